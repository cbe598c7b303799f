"""What an erasure is asked to forget: which entities, which of their fields, by whom and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.columns import BUCKET, log_fields, visible_history
from cdckit.ledger.entity_guids import Key, is_key, listed_guids, table_guids
from cdckit.ledger.erasure.receipts import Receipt
from cdckit.ledger.erasure.tombstones import ERASE, REFUSE
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.model.history import DELETED, VALID_FROM, VALID_TO
from cdckit.parts.argument_forms import DURATION
from cdckit.parts.arguments import require_fields, require_instant, require_name
from cdckit.parts.tables import AnyTable
from cdckit.parts.values import time_between
from cdckit.store import Transaction

Keys: TypeAlias = Sequence[Key] | AnyTable
"""Entities: guids, or mappings of their key fields; or a table of key fields, or of guids."""


@dataclass(frozen=True)
class Request:
    """
    What is asked for.

    Args:
        keys, where, keep: Which entities.
        fields: Which of their fields; None for all that is known.
        by, reason: Who asks, and why.
        later: What becomes of later changes.
        at: When.
        key_columns: Their key fields with their types, where no log has them.
    """

    keys: Keys | None
    where: str | Column | None
    keep: timedelta | None
    fields: tuple[str, ...] | None
    by: str
    reason: str
    later: str
    at: datetime
    key_columns: T.StructType | None = None

    def __post_init__(self) -> None:
        require_name(self.by, "by")
        require_name(self.reason, "reason")
        require_instant(self.at, "at")
        if self.keys is None and self.where is None and self.keep is None:
            needed = "a list or a table of keys, where neither `where` nor `keep` says which entities"
            raise InvalidArgument(None, "keys", needed, None)
        if self.keys is not None and (self.where is not None or self.keep is not None):
            raise InvalidArgument(None, "keys", "None where `where` or `keep` says which entities", "both")
        DURATION.or_none().check(self.keep, "keep")
        if self.later not in (REFUSE, ERASE):
            raise InvalidArgument(None, "later", f"{REFUSE!r} or {ERASE!r}", self.later)
        if self.fields is not None and not self.fields:
            raise InvalidArgument(None, "fields", "at least one field, or None for all", self.fields)

    def receipt(self, kind: Kind, **counts: Any) -> Receipt:
        """A new receipt."""
        about = (uuid4().hex, kind.entity, self.at, self.by, self.reason, self.fields, self.later)
        return Receipt(*about, **counts)

    def is_answered_by(self, receipt: Receipt, kind: Kind) -> bool:
        """Tell whether a receipt may be of this request, whose entities no keys name."""
        answered = (receipt.entity, receipt.erased_by, receipt.reason, receipt.fields, receipt.later)
        return self.keys is None and answered == (kind.entity, self.by, self.reason, self.fields, self.later)

    def entities(self, tables: Transaction, kind: Kind) -> DataFrame:
        """The guids of the entities, each once, and their buckets."""
        if self.keys is not None:
            entities = self.named(tables, kind)
        else:
            versions = visible_history(tables.read(kind.history), tables.schema(kind.changes))
            entities = self.among(versions)
        return entities.select(GUID, kind.bucket_column(F.col(GUID)).alias(BUCKET)).distinct()

    def named(self, tables: Transaction, kind: Kind) -> DataFrame:
        """The guids of *keys*."""
        assert self.keys is not None
        columns = self.key_columns or log_fields(tables.schema(kind.changes))
        return _named(self.keys, tables.spark, kind, columns)

    def known_fields(self, tables: Transaction, kind: Kind) -> tuple[str, ...] | None:
        """The fields that are to go; raises `InvalidArgument` for one that is a key, or not there."""
        if self.fields is None:
            return None
        names = log_fields(tables.schema(kind.changes)).fieldNames()
        fields = require_fields(self.fields, names, "fields")
        if keys := [name for name in fields if name in kind.keys]:
            needed = "none that is a key, by which the entity would not be known; erase the entity itself"
            raise InvalidArgument(None, "fields", needed, keys)
        return tuple(fields)

    def among(self, versions: DataFrame) -> DataFrame:
        """The entities of a history that *where* and *keep* name, with their guids."""
        versions_meant = versions if self.where is None else versions.where(self.where)
        if self.keep is None:
            return versions_meant
        is_open = F.col(VALID_TO).isNull()
        ended = F.when(~is_open, F.col(VALID_TO)).when(F.col(DELETED), F.col(VALID_FROM))
        others = versions.groupBy(GUID).agg(
            F.max(is_open & ~F.col(DELETED)).alias("lives"), F.max(ended).alias("ended")
        )
        age = time_between(F.col("ended"), require_instant(self.at, "at"))
        overdue = ~F.col("lives") & (age > F.lit(self.keep))
        return others.where(overdue).join(versions_meant, GUID, "left_semi")


def _named(keys: Keys, spark: SparkSession, kind: Kind, fields: T.StructType) -> DataFrame:
    if isinstance(keys, str | Mapping):
        raise InvalidArgument(None, "keys", "a list of keys, or a table of them", type(keys).__name__)
    if isinstance(keys, Sequence):
        if not keys:
            raise InvalidArgument(None, "keys", "a list of at least one", [])
        for key in keys:
            if not is_key(key, kind):
                needed = "guids" if kind.by_guid else f"guids, or mappings of {', '.join(kind.keys)}"
                raise InvalidArgument(None, "keys", f"a list of {needed}", type(key).__name__)
        return listed_guids(list(keys), spark, kind, fields)
    return table_guids(keys, spark, kind, fields)
