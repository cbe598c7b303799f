"""The channel adaptor: tells the exchange what changes in an application that knows nothing of it."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import httpx

from cdckit.parts.instants import parse_instant
from cdckit.rdss.findings import RdssFault
from cdckit.rdss.gateway.errors import (
    BACKOFF,
    Backoff,
    ChannelUnreachable,
    NoChannel,
    UnfitMessage,
    retry_after,
)
from cdckit.rdss.gateway.gateway import Gateway
from cdckit.rdss.message_types import CREATE, REMOVE, UPDATE
from cdckit.rdss.object_bodies import KEY, NEWER, RELATED, related_objects


@dataclass(frozen=True)
class SourceObject:
    """
    An object as its application has it now: *modified* grows with every change, as a text that sorts.

    >>> SourceObject("42", "2024-02-01T09:00:00Z", {"title": "Prices"}).content["title"]
    'Prices'
    """

    id: str
    modified: str
    content: Mapping[str, Any]


Source = Callable[[str | None], Iterable[SourceObject]]
"""What an adaptor polls: every object whose `modified` is the given one or later, in any order; or all."""


@dataclass(eq=False)
class HttpSource:
    """
    An interface that answers `GET <url>?since=<modified>` with pages, `{"items": [...], "next": <url>}`.

    Args:
        url: The address of the list; its origin is the only one that is asked.
        items: The member of a page that holds the objects.
        id: The member of an object that says which it is.
        modified: The member that says when it was changed last, in RFC 3339 and one zone.
        since: The parameter for the oldest time of interest.
        overlap: How much earlier to ask, for what became visible late; what is known is not sent again.
        client: With credentials, certificates or time-outs of its own.

    >>> source = HttpSource("http://127.0.0.1:1/objects")
    >>> list(source(None))
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.errors.ChannelUnreachable: The channel 'http://127.0.0.1:1/objects' cannot be ...
    """

    url: str
    _: KW_ONLY
    items: str = "items"
    id: str = "id"
    modified: str = "modified"
    since: str = "since"
    overlap: timedelta = timedelta(0)
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=30, trust_env=False))

    def __call__(self, since: str | None) -> Iterator[SourceObject]:
        """Read the objects of all pages; an answer that is no such list raises `NoChannel`."""
        parameters = {} if since is None else {self.since: self._overlap_start(since)}
        url: httpx.URL | None = httpx.URL(self.url).copy_merge_params(parameters)
        asked = set[httpx.URL]()
        while url is not None:
            asked.add(url)
            page = self._page(url)
            for content in self._member(page, self.items, list):
                names = (self.id, self.modified)
                object_id, modified = (str(self._member(content, name, (str, int))) for name in names)
                yield SourceObject(object_id, modified, content)
            url = self._next_page(page.get("next"), url, asked)

    def _overlap_start(self, since: str) -> str:
        if not self.overlap:
            return since
        return (datetime.fromisoformat(since) - self.overlap).isoformat().replace("+00:00", "Z")

    def _page(self, url: httpx.URL) -> Mapping[str, Any]:
        try:
            answer = self.client.get(url)
            if answer.status_code == 429 or answer.status_code >= 500:
                because, wait = f"the answer was {answer.status_code}", answer.headers.get("retry-after")
                raise ChannelUnreachable(self.url, because, retry_after(wait))
            page = answer.raise_for_status().json()
        except httpx.TransportError as error:
            raise ChannelUnreachable(self.url, str(error) or type(error).__name__) from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise NoChannel(self.url, str(error).splitlines()[0]) from error
        if not isinstance(page, Mapping):
            raise NoChannel(self.url, "a page is no JSON object")
        return page

    def _next_page(self, address: object, url: httpx.URL, asked: set[httpx.URL]) -> httpx.URL | None:
        if address is None:
            return None
        first, following = httpx.URL(self.url), url.join(str(address))
        # Credentials of the client are for this origin alone.
        if (following.scheme, following.netloc) != (first.scheme, first.netloc) or following in asked:
            raise NoChannel(self.url, f"the next page is said to be {following}")
        return following

    def _member(self, value: object, name: str, kind: type | tuple[type, ...]) -> Any:
        member = value.get(name) if isinstance(value, Mapping) else None
        if not isinstance(member, kind):
            raise NoChannel(self.url, f"an answer lacks the member {name!r}")
        return member


Convert = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""An object as a body of the exchange; None for one that others are not to see: deleted, or confidential."""


logger = logging.getLogger("cdckit.rdss.gateway")
_NAMESPACE = UUID("6c1e2f0a-6f5e-4b8e-9d58-0d6f2f0c8a11")
_GONE = "gone"
_MARK = ""
"""The name under which the time of the last round is kept, beside the objects; none has an empty id."""


@dataclass(frozen=True)
class PollResult:
    """
    What one round has found: how many objects were sent, were known already, or could not be sent.

    >>> PollResult(sent=2, known=1, unfit=("42",)).unfit
    ('42',)
    """

    sent: int = 0
    known: int = 0
    unfit: tuple[str, ...] = ()


class _NotConverted(Exception):
    """The application's own code failed to convert an object."""

    code = RdssFault.UNEXPECTED.value


@dataclass(eq=False)
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
        source: What is polled, such as a `HttpSource`; raises `ChannelUnreachable` where it may pass.
        convert: An object as a body of the exchange, with an objectUUID; None if others are not to see it.
        name: Tells this adaptor from others in the same repository.
        backoff: When to try again where the application does not answer.
        sleep: Waits so many seconds.

    Source:
        RDSS, "Channel Adaptor", "Message Triggers".

    >>> from cdckit.rdss.gateway import Channels, MemoryChannel, Producer, SqliteRepository
    >>> def shelf(since):
    ...     yield SourceObject("42", "2024-02-01T09:00:00Z", {"hidden": True})
    >>> queues = {name: MemoryChannel(name) for name in ("input", "output", "invalid", "error")}
    >>> with SqliteRepository(":memory:") as repository:
    ...     gateway = Gateway(repository, Channels(**queues), Producer("repository", 7))
    ...     ChannelAdaptor(gateway, shelf, lambda content: None).poll()
    PollResult(sent=0, known=1, unfit=())
    """

    gateway: Gateway
    source: Source
    convert: Convert
    _: KW_ONLY
    name: str = "adaptor"
    backoff: Backoff = BACKOFF
    sleep: Callable[[float], None] = time.sleep

    def poll(self) -> PollResult:
        """
        One round: everything that changed since the round before, and what is dated in the future.

        An object that cannot be converted (GENERR009), or would be refused, is left out and logged with its
        code; it is tried again when it changes, or in each round if it is dated in the future.

        Raises:
            ChannelUnreachable: The application does not answer, in all retries.
            NoChannel: It answers something else.
            SendFailed: The output could not be reached.
        """
        return self.backoff.retry(self._poll_once, on=ChannelUnreachable, sleep=self.sleep)

    def _poll_once(self) -> PollResult:
        mark = self._read_position(_MARK)
        latest, sent, unchanged, unfit = mark, 0, 0, list[str]()
        for item in self.source(mark):
            try:
                was_sent = self._send_change(item)
                sent, unchanged = sent + was_sent, unchanged + (not was_sent)
            except (UnfitMessage, _NotConverted) as error:
                logger.error("%s the object %s is not sent: %s", error.code, item.id, error)
                unfit.append(item.id)
            # One of a wrong clock, or under an embargo, would hide what others become until then.
            if (at := parse_instant(item.modified)) is None or at <= self.gateway.clock():
                latest = max(latest or item.modified, item.modified)
        if latest is not None and latest != mark:
            # Only now: pages need not be in the order of time.
            self._keep_positions({_MARK: latest})
        return PollResult(sent, unchanged, tuple(unfit))

    def _send_change(self, item: SourceObject) -> bool:
        """Send what an object has become; False if that was sent already."""
        was_begun = self._finish(item.id)
        before, body = self._read_position(f"object {item.id}"), self._convert_object(item)
        now = _GONE if body is None else _digest(body)
        last, versions = (before.split()[-1], before.split()[1].split(",")) if before else (_GONE, [])
        if last == now:
            return was_begun
        if body is None:
            messages = [(REMOVE, {KEY: version}) for version in versions]
        elif last == _GONE:
            messages, versions = [(CREATE, body)], [body[KEY]]
        else:
            messages = [(UPDATE, _as_version(body, versions[-1]))]
            versions = [*(version for version in versions if version != body[KEY]), body[KEY]]
        # The same step of the same object has the same messageIds, however often it is tried.
        step = "\n".join((self._stream, item.id, before or "", now))
        ids = [str(uuid5(_NAMESPACE, f"{step}\n{place}")) for place in range(len(messages))]
        named = [(*message, message_id) for message, message_id in zip(messages, ids, strict=True)]
        state = f"{ids[-1]} {','.join(versions)} {now}"
        self._keep_positions({f"step {item.id}": json.dumps({"state": state, "messages": named})})
        return self._finish(item.id)

    def _finish(self, object_id: str) -> bool:
        """
        Send what was to be sent of an object; False if that is nothing, or unfit.

        A message that was noted will be sent, though the round failed and the object has changed since.
        """
        text = self._read_position(f"step {object_id}")
        if not text:
            return False
        step = json.loads(text)
        try:
            for kind, content, message_id in step["messages"]:
                self.gateway.send(self.gateway.producer.message(kind, content, message_id=message_id))
        except UnfitMessage as error:
            # By rules that are new.  What the object is now is looked at all the same.
            logger.error("%s what was begun of the object %s is not sent: %s", error.code, object_id, error)
            self._keep_positions({f"step {object_id}": ""})
            return False
        self._keep_positions({f"object {object_id}": step["state"], f"step {object_id}": ""})
        return True

    def _convert_object(self, item: SourceObject) -> dict[str, Any] | None:
        """Convert an object to a body in JSON that the exchange takes; `UnfitMessage` if it does not."""
        try:
            converted = self.convert(item.content)
            body = None if converted is None else dict(converted)
        except Exception as error:  # whatever the application's code raises concerns this object alone
            raise _NotConverted(f"{type(error).__name__}: {error}") from error
        if body is None:
            return None
        message = self.gateway.producer.message(CREATE, body)
        # Before anything is noted: what is noted will be sent.
        self.gateway.require_fit(message)
        written: dict[str, Any] = json.loads(message.to_bytes())["messageBody"]
        return written

    @property
    def _stream(self) -> str:
        return f"adaptor {self.name}"

    def _read_position(self, name: str) -> str | None:
        return self.gateway.repository.position(self._stream, name)

    def _keep_positions(self, positions: dict[str, str]) -> None:
        self.gateway.repository.keep_positions(self._stream, positions)


def _digest(body: object) -> str:
    text = json.dumps(body, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _as_version(body: dict[str, Any], before: str) -> dict[str, Any]:
    """The body of an update, with the link to the version before if it is of another object."""
    if body[KEY] == before or (NEWER, before) in related_objects(body):
        return body
    link = {"relationType": NEWER, "identifier": {"identifierValue": before, "identifierType": "UUID"}}
    return {**body, RELATED: [*body.get(RELATED, []), link]}
