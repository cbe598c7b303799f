"""The shards of a Kinesis stream: which may be read now, and up to where each is processed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

ENDED = "ENDED"
"""The position of a shard that was closed, by a split or a merge, and is processed to its end."""


class Positions(Protocol):
    """Where positions are kept; a `Repository` is such a place."""

    def position(self, stream: str, shard: str) -> str | None:
        """The position kept for a shard of a stream; None before the first."""

    def keep_positions(self, stream: str, positions: Mapping[str, str]) -> None:
        """Note up to where shards of a stream are processed."""


@dataclass
class Shard:
    """
    One shard, as far as this process has read it.

    *unacknowledged* are the sequence numbers of deliveries, in order, each with whether it was acknowledged;
    the position to keep is that of the last before the first that was not.

    >>> shard = Shard("shard-0", ())
    >>> shard.deliver(["1", "2", "3"])
    >>> shard.acknowledge("2"), shard.acknowledge("1"), shard.acknowledge("3")
    (None, '2', '3')
    """

    name: str
    parents: tuple[str, ...]
    position: str | None = None
    iterator: str | None = None
    read: str | None = None
    closed: bool = False
    unacknowledged: deque[list[Any]] = field(default_factory=deque)

    def deliver(self, numbers: Iterable[str]) -> None:
        """Note what was read and handed on."""
        for number in numbers:
            self.read = number
            self.unacknowledged.append([number, False])

    def acknowledge(self, number: str) -> str | None:
        """Note that a delivery is processed; the position that can be kept now, if it has moved."""
        for each in self.unacknowledged:
            if each[0] == number:
                each[1] = True
                break
        moved = None
        while self.unacknowledged and self.unacknowledged[0][1]:
            moved = self.position = self.unacknowledged.popleft()[0]
        return moved

    @property
    def done(self) -> bool:
        """Whether all that it will ever have is processed."""
        return self.closed and not self.unacknowledged


def readable(shards: Mapping[str, Shard]) -> list[Shard]:
    """
    The shards that may be read: not at their end, and their parents processed to the end, or expired.

    So what was sent before a split or a merge is processed before what was sent after it.

    >>> old, new = Shard("old", ()), Shard("new", ("old", "expired long ago"))
    >>> [each.name for each in readable({"old": old, "new": new})]
    ['old']
    >>> old.position = ENDED
    >>> [each.name for each in readable({"old": old, "new": new})]
    ['new']
    """

    def ended(name: str) -> bool:
        return name not in shards or shards[name].position == ENDED

    return [
        each
        for each in shards.values()
        if each.position != ENDED and not each.closed and all(ended(name) for name in each.parents)
    ]
