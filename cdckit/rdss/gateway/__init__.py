"""An application's part in the exchange of RDSS messages; import it yourself (extra `gateway`)."""

from cdckit.rdss.gateway.channel import Channel, Delivery
from cdckit.rdss.gateway.errors import ChannelUnreachable, NoChannel, NoRepository, RepositoryInUse
from cdckit.rdss.gateway.kinesis import KinesisChannel
from cdckit.rdss.gateway.memory import MemoryChannel
from cdckit.rdss.gateway.rabbitmq import RabbitChannel
from cdckit.rdss.gateway.repository import (
    Fate,
    Incoming,
    Outgoing,
    Refused,
    Repository,
    Statement,
    Status,
)
from cdckit.rdss.gateway.sqlite import SqliteRepository

__all__ = [
    "Channel",
    "ChannelUnreachable",
    "Delivery",
    "Fate",
    "Incoming",
    "KinesisChannel",
    "MemoryChannel",
    "NoChannel",
    "NoRepository",
    "Outgoing",
    "RabbitChannel",
    "Refused",
    "Repository",
    "RepositoryInUse",
    "SqliteRepository",
    "Statement",
    "Status",
]
