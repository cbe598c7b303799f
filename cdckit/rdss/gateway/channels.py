"""The queues of one gateway, by what they are for, and the configuration that names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cdckit.errors import InvalidArgument
from cdckit.rdss.gateway.channel import Channel, MemoryChannel
from cdckit.rdss.gateway.kinesis import KinesisChannel, Positions
from cdckit.rdss.gateway.rabbitmq import RabbitChannel


@dataclass(frozen=True)
class Channels:
    """
    The queues of a gateway; *returns* are those that a returnAddress may name, besides the output.

    >>> from cdckit.rdss.gateway.channel import MemoryChannel
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


_NAMES = ("input", "output", "invalid", "error")
_KEYS = {"kind", "options", "addresses", "returns"}


def open_channels(settings: Mapping[str, Any], positions: Positions) -> Channels:
    """
    The queues that *settings*, such as a file of JSON has them, name; none is connected to yet.

    Args:
        settings:
            `kind`: `memory` (without it), `rabbitmq` or `kinesis`.
            `addresses`: the names of the queues for `input`, `output`, `invalid` and `error`; those words
            themselves without it.
            `returns`: the addresses, besides these, that a returnAddress may name.
            `options`: what the kind needs to connect: `{"url": "amqp://…"}`, or what `boto3.client` takes.
        positions: Where a stream's positions are kept: the gateway's repository.

    Raises:
        InvalidArgument: A kind, a key or an address that there is not.
        MissingExtra: The package for the kind is not installed.

    >>> from cdckit.rdss.gateway.sqlite import SqliteRepository
    >>> settings = {"kind": "rabbitmq", "options": {"url": "amqp://broker"}, "addresses": {"input": "in"}}
    >>> with SqliteRepository(":memory:") as repository:
    ...     channels = open_channels(settings, repository)
    ...     channels.input.name, channels.error.name
    ('in', 'error')
    """
    found = set(settings) - _KEYS
    addresses = settings.get("addresses", {})
    if found or not set(addresses) <= set(_NAMES):
        wrong = sorted(found) or sorted(set(addresses) - set(_NAMES))
        needed = f"of {', '.join(sorted(_KEYS))}, with addresses for {', '.join(_NAMES)}"
        raise InvalidArgument("open_channels", "settings", needed, wrong)
    opened = _opener(settings.get("kind", "memory"), dict(settings.get("options", {})), positions)
    own = {name: opened(addresses.get(name, name)) for name in _NAMES}
    return Channels(**own, returns={each: opened(each) for each in settings.get("returns", ())})


def _opener(kind: str, options: dict[str, Any], positions: Positions) -> Callable[[str], Channel]:
    if kind == "memory":
        return MemoryChannel
    if kind == "rabbitmq":
        return lambda name: RabbitChannel(name, **options)
    if kind == "kinesis":
        return lambda name: KinesisChannel(name, positions, options=options)
    raise InvalidArgument("open_channels", "settings['kind']", "memory, rabbitmq or kinesis", kind)
