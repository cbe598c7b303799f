"""In which order messages are handed over: one whose files do not come lets the others by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cdckit.rdss.gateway.channels import Message
from cdckit.rdss.gateway.repository import StoredMessage
from cdckit.rdss.object_bodies import KEY, related_objects

Parts = Sequence[StoredMessage]
_MOST_POSTPONED = 100
"""How many messages are postponed at once: if the servers of files are down, the rest stays where it is."""


@dataclass
class Handover:
    """
    A message that is handed over; *message* is None if it is refused before, since it has expired.

    *left* are the seconds that may still be waited for it, *due* is when it is handed over again.
    """

    parts: Parts
    message: Message | None
    objects: frozenset[str]
    left: float
    due: datetime | None = None


@dataclass
class WaitingLine:
    """
    The messages that wait, the oldest first, and those that are postponed.

    A message about an object of which a message is postponed stays behind that, so that no update overtakes
    its create.

    Args:
        next_waiting: The oldest message after another one, or of all (`SqliteRepository.next_waiting`).
        open_message: The message of all its parts, or None.
        budget: The seconds that may be waited for one message.
        clock: The present instant.
        sleep: Waits so many seconds.
    """

    next_waiting: Callable[[Parts], Parts]
    open_message: Callable[[Parts], Message | None]
    budget: float
    clock: Callable[[], datetime]
    sleep: Callable[[float], None]
    _postponed: list[Handover] = field(default_factory=list)
    _seen: Parts = ()
    _held: frozenset[str] = frozenset()

    def next(self, *, begin: bool) -> Handover | None:
        """
        Find what was postponed and is due, or a new message if *begin*; else wait for what is due first.

        None when nothing is left.
        """
        first = min(self._postponed, key=self._seconds_to_wait, default=None)
        if first is None or self._seconds_to_wait(first) > 0:
            new = self._next_new() if begin and len(self._postponed) < _MOST_POSTPONED else None
            if first is None or new is not None:
                return new
            self.sleep(self._seconds_to_wait(first))
        self._postponed.remove(first)
        self._begin_again()
        first.message = self.open_message(first.parts)
        return first

    def postpone(self, handover: Handover, delay: float, asked_for: float | None) -> None:
        """Hand it over again after *delay* seconds, or those that a server *asked for*, if they are left."""
        wait = max(delay, min(asked_for or 0, handover.left))
        handover.left -= wait
        handover.due = self.clock() + timedelta(seconds=wait)
        self._postponed.append(handover)
        self._held |= handover.objects

    def _begin_again(self) -> None:
        """Look at all that wait from the oldest on, since what stayed behind may go now."""
        self._seen = ()
        self._held = frozenset[str]().union(*(handover.objects for handover in self._postponed))

    def _next_new(self) -> Handover | None:
        while parts := self.next_waiting(self._seen):
            self._seen = parts
            message = self.open_message(parts)
            objects = frozenset({parts[0].message_id}) | concerned_objects(message)
            if self._held.isdisjoint(objects):
                return Handover(parts, message, objects, self.budget)
            self._held |= objects
        return None

    def _seconds_to_wait(self, handover: Handover) -> float:
        assert handover.due is not None  # it is postponed
        return (handover.due - self.clock()).total_seconds()


def concerned_objects(message: Message | None) -> frozenset[str]:
    """
    The objects that a message is about: its own, and those that it is related to, such as other versions.

    >>> of_first = {"relationType": "isNewVersionOf", "identifier": {"identifierValue": "urn:uuid:5680E8E0"}}
    >>> body = {"objectUUID": "41aa", "objectRelatedIdentifier": [of_first]}
    >>> sorted(concerned_objects(Message({}, body)))
    ['41aa', '5680e8e0']
    """
    body = message.body if message is not None and isinstance(message.body, Mapping) else {}
    return frozenset({str(body.get(KEY, "")), *(name for _, name in related_objects(body))}) - {""}
