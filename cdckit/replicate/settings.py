"""What a feed is told about one of its tables, beyond what the metadata says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from cdckit.errors import InvalidArgument
from cdckit.replicate.many_tables import TableName


@dataclass(frozen=True)
class TableSettings:
    """
    How a feed reads one table.

    Args:
        entity: The name of the kind of entity, as for `merge`; the name of the table without it.
        keys: The key columns, as for `changes`; those of the metadata without them.
        topics: As for `data`: needed where a schema id of the table is that of another table too.
        json_topics: As for `data`: the topics whose messages in JSON form are of this table.
        loaded_at: As for `data`.
        as_double: As for `data`.

    Raises:
        InvalidArgument: A list is given as one text, or *loaded_at* is naive.

    >>> TableSettings(entity="item", keys=["number"], topics=["shop.items"]).keys
    ('number',)
    """

    entity: str | None = None
    keys: Sequence[str] | None = None
    topics: Sequence[str] | None = None
    json_topics: Sequence[str] = ()
    loaded_at: datetime | None = None
    as_double: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("keys", "topics", "json_topics", "as_double"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise InvalidArgument("TableSettings", name, "a list of names", given)
            object.__setattr__(self, name, None if given is None else tuple(given))
        if self.loaded_at is not None and self.loaded_at.utcoffset() is None:
            raise InvalidArgument("TableSettings", "loaded_at", "an aware datetime", self.loaded_at)

    def text(self) -> str:
        """The settings as a text that is the same for the same settings."""
        told = asdict(self)
        told["loaded_at"] = self.loaded_at and self.loaded_at.timestamp()
        return json.dumps(told, sort_keys=True)


def table_text(name: TableName) -> str:
    """The name of a table as one text, which names its ledger in the feed's store."""
    return f"{name.server}/{name.task} {name.schema}.{name.table}"
