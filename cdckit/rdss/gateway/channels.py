"""The queues of one gateway, by what they are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdckit.rdss.gateway.channel import Channel


@dataclass(frozen=True)
class Channels:
    """
    The queues of a gateway; *returns* are those that a returnAddress may name, besides the output.

    >>> from cdckit.rdss.gateway.memory import MemoryChannel
    >>> queues = {name: MemoryChannel(name) for name in ("input", "output", "invalid", "error")}
    >>> Channels(**queues).destinations()["invalid"].name
    'invalid'
    """

    input: Channel
    output: Channel
    invalid: Channel
    error: Channel
    returns: Mapping[str, Channel] = field(default_factory=dict)

    def destinations(self) -> dict[str, Channel]:
        """By name, the channels that are sent to."""
        own = {"output": self.output, "invalid": self.invalid, "error": self.error}
        return {**{f"return {address}": each for address, each in self.returns.items()}, **own}

    def return_to(self, address: str | None) -> str:
        """The name of the channel for responses to *address*: the output where the address is not known."""
        return f"return {address}" if address in self.returns else "output"

    def close(self) -> None:
        """Close them all."""
        for each in (self.input, *self.destinations().values()):
            each.close()
