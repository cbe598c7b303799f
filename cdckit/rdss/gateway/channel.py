"""A channel: the queue below, of whatever kind, as a gateway uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

    >>> from cdckit.rdss.gateway.memory import MemoryChannel
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
