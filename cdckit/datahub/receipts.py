"""Receipts: what a hub is given, checked, compared with what it has, and appended to the message store."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.datahub.message_store import identity, with_statuses
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.state import MANY_FILES, MESSAGES, RECEIVED, State, note, noted
from cdckit.datahub.statuses import Status
from cdckit.errors import InvalidArgument
from cdckit.parts.documents import Document, records_of
from cdckit.parts.schemas import require_batch
from cdckit.records import require_records
from cdckit.store import Transaction

RECEIPT_COLUMNS = (
    "topic", "partition", "offset", "message_identifier", "status", "error_code", "error_description",
)  # fmt: skip


def as_records(spark: SparkSession, given: DataFrame | Iterable[Document], at: datetime | None) -> DataFrame:
    """The table of records, or the documents as records that are stored *at* that time, or now."""
    if not isinstance(given, DataFrame):
        stored = datetime.now(UTC) if at is None else at
        return records_of(spark, given, stored, argument="records", function="receive")
    if at is not None:
        raise InvalidArgument("receive", "at", "left out for a table: its rows have a timestamp", at)
    require_records(given, function="receive")
    instead = "let writeStream.foreachBatch(hub.sink('a name')) hand them over"
    require_batch(given, "records", instead, function="receive")
    return given


def appended(tables: Transaction, *, schema: Schema, decoded: DataFrame, batch: str | None) -> int:
    """Append decoded records to those that were received; the number of the receipt."""
    number = int(noted(tables, RECEIVED, 0)) + 1
    earlier = State(schema, tables).received().where(F.col("status") != int(Status.PREVIOUSLY_RECEIVED))
    said = with_statuses(decoded, earlier.select(identity().alias("identity")))
    receipt = {"received": F.lit(number).cast("long"), "batch": F.lit(batch).cast("string")}
    tables.append(MESSAGES, said.withColumns(receipt), compact_at=MANY_FILES)
    note(tables, RECEIVED, number)
    return number


def identified(spark: SparkSession, messages: list[str]) -> DataFrame:
    """One row per identifier of a message."""
    return spark.createDataFrame([(each,) for each in messages], "message_identifier string")


def digest_of(records: DataFrame) -> int:
    """Of the keys and values of records, whatever their order, in 64 bits with a sign."""
    each = F.xxhash64("key", "value").cast("decimal(38,0)")
    found = int(records.select(F.coalesce(F.sum(each), F.lit(0))).first()[0])  # type: ignore[index]
    return (found + (1 << 63)) % (1 << 64) - (1 << 63)
