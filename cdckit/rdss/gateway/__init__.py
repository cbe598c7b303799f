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

from cdckit.parts.installed import require_package

require_package("tenacity", extra="gateway", part="cdckit.rdss.gateway")

from cdckit.rdss.fates import Fate, Status  # noqa: E402
from cdckit.rdss.gateway.adaptor import ChannelAdaptor, Polled  # noqa: E402  what is missing is said first
from cdckit.rdss.gateway.audit import Audited, AuditLog  # noqa: E402
from cdckit.rdss.gateway.backoff import BACKOFF, Backoff  # noqa: E402
from cdckit.rdss.gateway.channel import Channel, Delivery  # noqa: E402
from cdckit.rdss.gateway.channels import Channels  # noqa: E402
from cdckit.rdss.gateway.checksums import WrongChecksum  # noqa: E402
from cdckit.rdss.gateway.downloads import (  # noqa: E402
    Downloaded,
    DownloadFailed,
    RefusedFile,
    download,
)
from cdckit.rdss.gateway.errors import (  # noqa: E402
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
from cdckit.rdss.gateway.gateway import Gateway, Handler  # noqa: E402
from cdckit.rdss.gateway.kinesis import KinesisChannel  # noqa: E402
from cdckit.rdss.gateway.log_lines import LogLines  # noqa: E402
from cdckit.rdss.gateway.memory import MemoryChannel  # noqa: E402
from cdckit.rdss.gateway.messages import Machine, Message, Producer  # noqa: E402
from cdckit.rdss.gateway.polling import Found, HttpSource, Source  # noqa: E402
from cdckit.rdss.gateway.rabbitmq import RabbitChannel  # noqa: E402
from cdckit.rdss.gateway.repository import Incoming, Outgoing, Refused, Repository, Statement  # noqa: E402
from cdckit.rdss.gateway.settings import open_channels  # noqa: E402
from cdckit.rdss.gateway.sqlite import SqliteRepository  # noqa: E402
from cdckit.rdss.gateway.turns import Turn  # noqa: E402

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
