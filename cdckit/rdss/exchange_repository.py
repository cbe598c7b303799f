"""The local data repository of an exchange: which messages are known, received ones and its own."""

from __future__ import annotations

import zlib

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.exchange_tables import (
    BUCKET,
    REPOSITORY,
    WAITING,
    WAITING_SCHEMA,
    Settings,
    buckets_of,
)
from cdckit.rdss.fates import Status
from cdckit.rdss.repeats import IDENTITY
from cdckit.store import Snapshot, Transaction
from cdckit.store.store import Tables, rows_of

_TOLD = ("message_class", "message_type", "sequence_id", "sequence_position")
MANY_FILES = 16

REPOSITORY_SCHEMA = T.StructType(
    [
        T.StructField(IDENTITY, T.StringType()),
        *(DECODED_SCHEMA[name] for name in _TOLD),
        T.StructField("status", T.StringType()),
        T.StructField(BUCKET, T.IntegerType()),
    ]
)
"""One row is one message and a status that it had, in the bucket of what makes it the same message again.
Rows are only ever added: the status of a message is the last of its statuses, in the order of `STATUSES`."""

STATUSES = (Status.RECEIVED, Status.TO_SEND, Status.SENT)


class LocalRepository:
    """What a transaction does with the repository."""

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._transaction, self._settings = transaction, settings

    def buckets(self, came: DataFrame) -> list[int]:
        """The buckets of the messages that a batch can make whole, or bring again."""
        ids = came.select(F.coalesce(IDENTITY, "message_id").alias("id"))
        waiting = rows_of(self._transaction, WAITING, WAITING_SCHEMA)
        first = waiting.join(came.select("sequence_id").distinct(), "sequence_id", "left_semi")
        sought = ids.unionByName(first.select(F.col("message_id").alias("id")))
        found = sought.where("id is not null").select(self._settings.bucket(F.col("id"))).distinct()
        return sorted(row[0] for row in found.collect())

    def known(self, came: DataFrame) -> DataFrame | None:
        """What makes messages the same again that were known before, in the buckets of these; and whose."""
        before = self._transaction.base
        if not before.has(REPOSITORY):
            return None
        return _known(before.read(REPOSITORY, {BUCKET: self.buckets(came)}))

    def forget(self) -> DataFrame | None:
        """Keep our own messages alone, and return what makes them the same again; None if there are none."""
        tables = self._transaction
        if not tables.has(REPOSITORY):
            return None
        told = tables.read(REPOSITORY).where(F.col("status") != Status.RECEIVED.value)
        own = tables.scratch(told.withColumn(BUCKET, self._settings.bucket(F.col(IDENTITY))))
        tables.replace(REPOSITORY, own.repartition(BUCKET), partition_by=[BUCKET])
        return _known(own)

    def note(self, messages: DataFrame, status: Status) -> int:
        """Let messages be known that have an `identity`; how many that are."""
        noted = messages.where(F.col(IDENTITY).isNotNull()).select(
            IDENTITY,
            *_TOLD,
            F.lit(status.value).alias("status"),
            self._settings.bucket(F.col(IDENTITY)).alias(BUCKET),
        )
        rows = noted.repartition(BUCKET)
        done = self._transaction.append(REPOSITORY, rows, partition_by=[BUCKET], compact_at=MANY_FILES)
        return done.rows


def _known(rows: DataFrame) -> DataFrame:
    return rows.select(IDENTITY, (F.col("status") != Status.RECEIVED.value).alias("is_own"))


def as_noted(messages: DataFrame) -> DataFrame:
    """Whole messages, or parts of our own, by their ids: what `note` takes."""
    return messages.select(F.col("message_id").alias(IDENTITY), *_TOLD)


def own_messages(tables: Tables) -> DataFrame:
    """One row per message of our own, with the last of its statuses."""
    rows = rows_of(tables, REPOSITORY, REPOSITORY_SCHEMA)
    own = rows.where(F.col("status") != Status.RECEIVED.value)
    return own.groupBy(F.col(IDENTITY).alias("message_id")).agg(
        *(F.first(name).alias(name) for name in _TOLD), _last_status()
    )


def status_of(tables: Snapshot, message_id: str) -> Status | None:
    """The last status of a message; None if it is not known."""
    if not tables.has(REPOSITORY):
        return None
    bucket = zlib.crc32(message_id.encode()) % buckets_of(tables)
    rows = tables.arrow(REPOSITORY, {BUCKET: [bucket], IDENTITY: [message_id]})
    found = pc.unique(rows["status"]).to_pylist()
    return max(map(Status, found), key=STATUSES.index, default=None)


def _last_status() -> Column:
    order = F.array(*(F.lit(each.value) for each in STATUSES))
    last = F.max(F.array_position(order, F.col("status")).cast("int"))
    return F.when(last.isNotNull(), F.element_at(order, last)).alias("status")
