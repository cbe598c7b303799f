"""A queue in the memory of one process, which is what a gateway uses unless it is told another."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count
from threading import Lock

from cdckit.rdss.gateway.channel import Delivery


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
