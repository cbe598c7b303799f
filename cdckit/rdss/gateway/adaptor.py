"""The channel adaptor: tells the exchange what changes in an application that knows nothing of it."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from cdckit.rdss.gateway.backoff import BACKOFF, Backoff
from cdckit.rdss.gateway.errors import ChannelUnreachable, UnfitMessage
from cdckit.rdss.gateway.gateway import Gateway
from cdckit.rdss.gateway.polling import Convert, Found, Source

logger = logging.getLogger("cdckit.rdss.gateway")
_NAMESPACE = UUID("6c1e2f0a-6f5e-4b8e-9d58-0d6f2f0c8a11")
_GONE = "gone"
_NEW_VERSION, _RELATED = "isNewVersionOf", "objectRelatedIdentifier"
_MARK = ""
"""The name under which the time of the last round is kept, beside the objects; none has an empty id."""


@dataclass(frozen=True)
class Polled:
    """
    What one round has found: how many objects were sent, were known already, or could not be sent.

    >>> Polled(sent=2, known=1, unfit=("42",)).unfit
    ('42',)
    """

    sent: int = 0
    known: int = 0
    unfit: tuple[str, ...] = ()


class _NotConverted(Exception):
    """The application's own code failed to convert an object."""


class ChannelAdaptor:
    """
    Polls *source*, converts what is new or changed, and sends it through *gateway*.

    The first time an object is visible it is a MetadataCreate, also if it was confidential before; then a
    MetadataUpdate; a MetadataDelete when *convert* no longer shows it.  An update under another objectUUID is
    a new version: it says that it isNewVersionOf the one before, unless *convert* says so.  Every version
    is an object of its own to the exchange, so all that were sent are deleted when the object is hidden.
    What is to be sent of each object, and was, is kept in the gateway's repository: a round that is cut short
    is done again, and sends what is missing, once.

    Args:
        gateway: Sends; its repository keeps where the adaptor is.
        source: What is polled.
        convert: An object as a body of the exchange, with an objectUUID; None if others are not to see it.
        name: Tells this adaptor from others in the same repository.
        backoff: When to try again where the application does not answer.
        sleep: Waits so many seconds.

    Source:
        RDSS, "Channel Adaptor", "Message Triggers".

    >>> from cdckit.rdss.gateway import Channels, MemoryChannel, Producer, SqliteRepository
    >>> class Shelf:
    ...     name = "shelf"
    ...     def changed(self, since):
    ...         yield Found("42", "2024-02-01T09:00:00Z", {"hidden": True})
    >>> queues = {name: MemoryChannel(name) for name in ("input", "output", "invalid", "error")}
    >>> with SqliteRepository(":memory:") as repository:
    ...     gateway = Gateway(repository, Channels(**queues), Producer("repository", 7))
    ...     ChannelAdaptor(gateway, Shelf(), lambda content: None).poll()
    Polled(sent=0, known=1, unfit=())
    """

    def __init__(
        self,
        gateway: Gateway,
        source: Source,
        convert: Convert,
        *,
        name: str = "adaptor",
        backoff: Backoff = BACKOFF,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gateway, self._source, self._convert = gateway, source, convert
        self._name, self._backoff, self._sleep = f"adaptor {name}", backoff, sleep

    def poll(self) -> Polled:
        """
        One round: everything that changed since the round before.

        An object that cannot be converted, or would be refused, is left out and logged with its code; it is
        tried again when it changes.

        Raises:
            ChannelUnreachable: The application does not answer, in all retries.
            NoChannel: It answers something else.
            SendFailed: The output could not be reached.
        """
        return self._backoff.retry(self._round, on=ChannelUnreachable, sleep=self._sleep)

    def run(self, interval: float, until: Callable[[], bool]) -> None:
        """Poll every *interval* seconds until *until* says so."""
        while not until():
            self.poll()
            self._sleep(interval)

    def _round(self) -> Polled:
        mark = self._kept(_MARK)
        latest, counted, unfit = mark, {True: 0, False: 0}, list[str]()
        for found in self._source.changed(mark):
            try:
                counted[self._tell(found)] += 1
            except (UnfitMessage, _NotConverted) as error:
                logger.error("GENERR001 the object %s is not sent: %s", found.id, error)
                unfit.append(found.id)
            latest = found.modified if latest is None else max(latest, found.modified)
        if latest is not None and latest != mark:
            # Only now: pages need not be in the order of time.
            self._keep({_MARK: latest})
        return Polled(counted[True], counted[False], tuple(unfit))

    def _tell(self, found: Found) -> bool:
        """Send what an object has become; False if that was sent already."""
        was_begun = self._finish(found.id)
        before, body = self._kept(f"object {found.id}"), self._converted(found)
        now = _GONE if body is None else _digest(body)
        last, versions = (before.split()[-1], before.split()[1].split(",")) if before else (_GONE, [])
        if last == now:
            return was_begun
        if body is None:
            told = [("MetadataDelete", {"objectUUID": each}) for each in versions]
        elif last == _GONE:
            told, versions = [("MetadataCreate", body)], [body["objectUUID"]]
        else:
            told = [("MetadataUpdate", _as_version(body, versions[-1]))]
            versions = [*(each for each in versions if each != body["objectUUID"]), body["objectUUID"]]
        step = (self._name, found.id, before or "", now)
        # The same step of the same object has the same messageIds, however often it is tried.
        named = [
            (kind, content, str(uuid5(_NAMESPACE, "\n".join((*step, str(place))))))
            for place, (kind, content) in enumerate(told)
        ]
        state = f"{named[-1][-1]} {','.join(versions)} {now}"
        self._keep({f"step {found.id}": json.dumps({"state": state, "messages": named})})
        return self._finish(found.id)

    def _finish(self, object_id: str) -> bool:
        """
        Send what was to be sent of an object; False if that is nothing.

        A message that was noted will be sent, though the round failed and the object has changed since.
        """
        text = self._kept(f"step {object_id}")
        if not text:
            return False
        step = json.loads(text)
        try:
            for kind, content, message_id in step["messages"]:
                self._gateway.send(self._gateway.producer.message(kind, content, message_id=message_id))
        except UnfitMessage:
            self._keep({f"step {object_id}": ""})
            raise
        self._keep({f"object {object_id}": step["state"], f"step {object_id}": ""})
        return True

    def _converted(self, found: Found) -> dict[str, Any] | None:
        try:
            body = self._convert(found.content)
            return None if body is None else {**body, "objectUUID": body["objectUUID"]}
        except Exception as error:  # whatever the application's code raises concerns this object alone
            raise _NotConverted(f"{type(error).__name__}: {error}") from error

    def _kept(self, name: str) -> str | None:
        return self._gateway.repository.position(self._name, name)

    def _keep(self, positions: dict[str, str]) -> None:
        self._gateway.repository.keep_positions(self._name, positions)


def _digest(body: object) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _as_version(body: dict[str, Any], before: str) -> dict[str, Any]:
    """The body of an update, with the link to the version before if it is of another object."""
    related = body.get(_RELATED) or []
    linked = {(each.get("relationType"), _value(each)) for each in related}
    if body["objectUUID"] == before or (_NEW_VERSION, before) in linked:
        return body
    identifier = {"identifierValue": before, "identifierType": "UUID"}
    return {**body, _RELATED: [*related, {"relationType": _NEW_VERSION, "identifier": identifier}]}


def _value(related: dict[str, Any]) -> Any:
    return (related.get("identifier") or {}).get("identifierValue")
