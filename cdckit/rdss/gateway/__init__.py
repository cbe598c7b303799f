"""
An application's part in the exchange of RDSS messages; import it yourself (extra `gateway`).

    with SqliteRepository("messages.db") as repository:
        channels = open_channels({"kind": "rabbitmq", "options": {"url": …}, "addresses": {…}}, repository)
        gateway = Gateway(repository, channels, Producer("repository", 7), audit=AuditLog("audit").write)
        gateway.resume()                                   what a crash has left unsent
        gateway.send(gateway.producer.message("MetadataCreate", body))
        gateway.request(…)                                 the response
        gateway.receive(), gateway.process(handler)        what others send

It needs no Spark, and no module of it starts one.
"""

# ruff: noqa: E402 - what is not installed is said before it is needed
from cdckit.parts.arguments import require_package

require_package("tenacity", extra="gateway", part="cdckit.rdss.gateway")

from cdckit.rdss.exchange_tables import Fate, Status
from cdckit.rdss.gateway.adaptor import ChannelAdaptor, Found, HttpSource, Polled, Source
from cdckit.rdss.gateway.audit import Audited, AuditLog, LogLines
from cdckit.rdss.gateway.channel import Channel, Delivery, MemoryChannel
from cdckit.rdss.gateway.channels import Channels, open_channels
from cdckit.rdss.gateway.downloads import (
    Downloaded,
    DownloadFailed,
    RefusedFile,
    WrongChecksum,
    download,
)
from cdckit.rdss.gateway.errors import (
    BACKOFF,
    Backoff,
    ChannelUnreachable,
    FailedStatement,
    KnownMessage,
    NoChannel,
    NoRepository,
    NoResponse,
    NotRefused,
    Rejection,
    RepositoryInUse,
    SendFailed,
    UnfitMessage,
)
from cdckit.rdss.gateway.gateway import Gateway, Handler, Turn
from cdckit.rdss.gateway.kinesis import KinesisChannel
from cdckit.rdss.gateway.messages import Machine, Message, Producer
from cdckit.rdss.gateway.rabbitmq import RabbitChannel
from cdckit.rdss.gateway.repository import Incoming, Outgoing, Refused, Repository, Statement
from cdckit.rdss.gateway.sqlite import SqliteRepository

__all__ = [
    "BACKOFF",
    "AuditLog",
    "Audited",
    "Backoff",
    "Channel",
    "ChannelAdaptor",
    "ChannelUnreachable",
    "Channels",
    "Delivery",
    "DownloadFailed",
    "Downloaded",
    "FailedStatement",
    "Fate",
    "Found",
    "Gateway",
    "Handler",
    "HttpSource",
    "Incoming",
    "KinesisChannel",
    "KnownMessage",
    "LogLines",
    "Machine",
    "MemoryChannel",
    "Message",
    "NoChannel",
    "NoRepository",
    "NoResponse",
    "NotRefused",
    "Outgoing",
    "Polled",
    "Producer",
    "RabbitChannel",
    "Refused",
    "RefusedFile",
    "Rejection",
    "Repository",
    "RepositoryInUse",
    "SendFailed",
    "Source",
    "SqliteRepository",
    "Statement",
    "Status",
    "Turn",
    "UnfitMessage",
    "WrongChecksum",
    "download",
    "open_channels",
]
