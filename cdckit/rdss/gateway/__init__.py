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
from cdckit.parts.installation import require_package

require_package("httpx", extra="gateway", part="cdckit.rdss.gateway")

from cdckit.rdss.gateway.adaptor import ChannelAdaptor, HttpSource, PollResult, SourceObject
from cdckit.rdss.gateway.channels import Channel, Delivery, Machine, MemoryChannel, Message, Producer
from cdckit.rdss.gateway.downloads import DownloadedFile, download, is_public
from cdckit.rdss.gateway.errors import (
    BACKOFF,
    Backoff,
    ChannelUnreachable,
    DownloadFailed,
    KnownMessage,
    NoChannel,
    NoRepository,
    NoResponse,
    NotRefused,
    RefusedFile,
    Rejection,
    RepositoryInUse,
    SendFailed,
    UnfitMessage,
    WrongChecksum,
)
from cdckit.rdss.gateway.gateway import Gateway, MessageContext
from cdckit.rdss.gateway.logs import AuditEntry, AuditLog, LogFormatter
from cdckit.rdss.gateway.queues import Channels, KinesisChannel, RabbitChannel, open_channels
from cdckit.rdss.gateway.repository import SqliteRepository
from cdckit.rdss.outcomes import Outcome, Status

__all__ = [
    "BACKOFF",
    "AuditEntry",
    "AuditLog",
    "Backoff",
    "Channel",
    "ChannelAdaptor",
    "ChannelUnreachable",
    "Channels",
    "Delivery",
    "DownloadFailed",
    "DownloadedFile",
    "Gateway",
    "HttpSource",
    "KinesisChannel",
    "KnownMessage",
    "LogFormatter",
    "Machine",
    "MemoryChannel",
    "Message",
    "MessageContext",
    "NoChannel",
    "NoRepository",
    "NoResponse",
    "NotRefused",
    "Outcome",
    "PollResult",
    "Producer",
    "RabbitChannel",
    "RefusedFile",
    "Rejection",
    "RepositoryInUse",
    "SendFailed",
    "SourceObject",
    "SqliteRepository",
    "Status",
    "UnfitMessage",
    "WrongChecksum",
    "download",
    "is_public",
    "open_channels",
]
