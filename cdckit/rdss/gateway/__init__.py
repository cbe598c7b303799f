"""An application's part in the exchange of RDSS messages; import it yourself (extra `gateway`)."""

from cdckit.rdss.gateway.errors import NoRepository, RepositoryInUse
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
    "Fate",
    "Incoming",
    "NoRepository",
    "Outgoing",
    "Refused",
    "Repository",
    "RepositoryInUse",
    "SqliteRepository",
    "Statement",
    "Status",
]
