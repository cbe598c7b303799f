"""Which kind of queue a gateway uses, and where: configuration, so that no application knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cdckit.errors import InvalidArgument
from cdckit.rdss.gateway.channel import Channel
from cdckit.rdss.gateway.channels import Channels
from cdckit.rdss.gateway.kinesis import KinesisChannel
from cdckit.rdss.gateway.memory import MemoryChannel
from cdckit.rdss.gateway.rabbitmq import RabbitChannel
from cdckit.rdss.gateway.shards import Positions

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
