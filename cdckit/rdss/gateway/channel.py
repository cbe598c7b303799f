"""Channels, the queues of a gateway of whatever kind; and one in the memory of its process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any, Protocol


@dataclass(frozen=True)
class Delivery:
    """
    A message as its channel delivered it; *mark* is what the channel acknowledges it by.

    >>> Delivery(b"{}", 1).value
    b'{}'
    """

    value: bytes
    mark: Any


class Channel(Protocol):
    """
    What a gateway asks of a queue; `MemoryChannel`, `RabbitChannel` and `KinesisChannel` are such.

    A delivery comes at least once: again, after a crash, until it is acknowledged.

    Every method raises `ChannelUnreachable` where the network or the service fails in a way that may pass.

    >>> from cdckit.rdss.gateway.channel import MemoryChannel
    >>> channel: Channel = MemoryChannel("input")
    >>> channel.receive(10)
    []
    """

    name: str

    def send(self, value: bytes, *, key: str) -> None:
        """
        Return once the queue has acknowledged *value*, which it then keeps.

        Messages of one *key* stay in the order in which they were sent, where the kind of queue has orders.
        """

    def receive(self, limit: int) -> list[Delivery]:
        """What is there now, at most *limit* deliveries; an empty list if there is nothing."""

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Tell the queue that these need not come again."""

    def close(self) -> None:
        """Let the connection go; what was not acknowledged comes again."""


class MemoryChannel:
    """
    A queue for tests, notebooks and applications whose parts are in one process; threads may share it.

    >>> channel = MemoryChannel("input")
    >>> channel.send(b"one", key="k")
    >>> [first] = channel.receive(10)
    >>> channel.close()
    >>> [again] = channel.receive(10)
    >>> channel.acknowledge([again])
    >>> first.value, again.value, len(channel)
    (b'one', b'one', 0)
    """

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self._lock, self._marks = Lock(), count()
        self._ready: deque[Delivery] = deque()
        self._unacknowledged: dict[object, Delivery] = {}

    def __len__(self) -> int:
        """How many messages it keeps: ready, or delivered and not acknowledged."""
        with self._lock:
            return len(self._ready) + len(self._unacknowledged)

    def send(self, value: bytes, *, key: str) -> None:
        """Keep *value*; all are in one order, whatever their *key*."""
        with self._lock:
            self._ready.append(Delivery(value, next(self._marks)))

    def receive(self, limit: int) -> list[Delivery]:
        """The oldest deliveries that nobody else has."""
        with self._lock:
            taken = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
            self._unacknowledged.update((each.mark, each) for each in taken)
        return taken

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Forget them; one that has been returned meanwhile comes again."""
        with self._lock:
            for each in deliveries:
                self._unacknowledged.pop(each.mark, None)

    def close(self) -> None:
        """Put back, in their order, what was delivered and not acknowledged, as if its receiver had died."""
        with self._lock:
            self._ready.extendleft(reversed(self._unacknowledged.values()))
            self._unacknowledged.clear()
