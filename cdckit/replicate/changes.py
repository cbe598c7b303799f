"""From rows to changes: what the door hands over to the spine."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.changes import DELETE, UPSERT
from cdckit.errors import InvalidArgument
from cdckit.rejects import ERROR_CODE
from cdckit.replicate import tables
from cdckit.replicate.data import data
from cdckit.replicate.envelope import decode
from cdckit.replicate.metadata import ZONE_SCHEMA, metadata, schema_zone
from cdckit.schemas import require_columns, require_struct

_READ = (
    "topic", "partition", "offset", "timestamp", "task", "operation", "change_sequence", "change_timestamp",
    "data", "before", "sent",
)  # fmt: skip


def changes(rows: DataFrame, *, keys: Sequence[str], source: str | None = None) -> DataFrame:
    """
    What each data message says about its entity.

    INSERT, UPDATE and REFRESH are upserts, DELETE is a delete.  An update that gives a row another
    key, as its `before` shows, is two changes: a delete of the old one (record number 1) and an
    upsert of the new one (record number 2) with what the message sent.

    Args:
        rows: What `data` returned; rows in error are passed over.
        keys: The key columns: `keys(zone)`, or your own choice for a table without a key.
        source: The name of the source; the task's name without it.

    Returns:
        One row per change (`cdckit.changes.CHANGE_SCHEMA`).  `message_id` is the task and its
        change sequence, so that a redelivered message is the same message; topic, partition and
        offset where there is no sequence.  `effective_timestamp` is the time of the change at the
        source, `carried` are the columns that were sent, `priority` is 0 (see
        `cdckit.with_priorities`).

    Raises:
        MissingColumns: *rows* are not what `data` returns.
        InvalidArgument: *keys* is empty or names no column of `data`.

    Cost: a projection, no shuffle.
    """
    require_columns(rows, [*_READ, ERROR_CODE], function="changes")
    names = require_struct(rows, "data", function="changes").fieldNames()
    if isinstance(keys, str) or not keys or set(keys) - set(names):
        raise InvalidArgument("changes", "keys", f"a list of columns among {', '.join(names)}", keys)
    good = rows.where(F.col(ERROR_CODE).isNull())
    moved = _key_differs(keys)
    parts = F.when(moved, F.array(F.lit(1), F.lit(2))).otherwise(F.array(F.lit(1)))
    spread = good.withColumn("moved", moved).withColumn("record_number", F.explode(parts))
    is_leaving = F.col("moved") & (F.col("record_number") == 1)
    return spread.select(
        F.when(is_leaving | (F.col("operation") == "DELETE"), DELETE).otherwise(UPSERT).alias("operation"),
        F.col("change_timestamp").alias("effective_timestamp"),
        F.coalesce("change_sequence", F.lit("")).alias("sequence"),
        F.struct("timestamp", "topic", "partition", "offset", "record_number").alias("arrival"),
        _message_id().alias("message_id"),
        (F.lit(source) if source is not None else F.col("task")).alias("source"),
        F.lit(0).alias("priority"),
        F.when(is_leaving, F.col("before")).otherwise(F.col("data")).alias("data"),
        F.col("sent").alias("carried"),
    )


def table_changes(records: DataFrame, *, task: str, table: str) -> DataFrame:
    """
    The changes of one table, straight from the records: the door in one step.

    What it passes over, rejects and messages that wait for their metadata, is found with the steps
    themselves: `decode`, `metadata`, `schema_zone`, `data`, `delayed`.

    Args:
        records: The metadata topic and the data topics, together; other tables' messages may be
            among them.
        task: The Replicate task.
        table: The name of the table, as its metadata says it.

    Returns:
        What `changes` returns, under the keys of the metadata.

    Raises:
        InvalidArgument: The metadata knows no such table, or knows it in two schemas, or it has no key.
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: one look at every envelope of *records* when it is called, to collect the schema zone of the
    table; then, lazily, what `data` costs.  Give it the topics that matter.

    Source:
        Replicate, message envelope; metadata messages and data messages.
    """
    zone = schema_zone(metadata(decode(records)))
    rows = zone.where((F.col("task") == task) & (F.col("table") == table)).collect()
    if not rows:
        raise InvalidArgument("table_changes", "table", f"a table that the metadata of {task} knows", table)
    # Kept: the keys and the rows ask for it once each, and it took a look at every record.
    known = records.sparkSession.createDataFrame(rows, ZONE_SCHEMA)
    found = tables.keys(known)
    if not found:
        raise InvalidArgument("table_changes", "table", "a table with a key (or use the single steps)", table)
    return changes(data(records, known), keys=found)


def _key_differs(keys: Sequence[str]) -> Column:
    """Whether an update moved its row to another key."""
    differs = F.lit(False)
    for key in keys:
        differs = differs | ~F.col("data").getField(key).eqNullSafe(F.col("before").getField(key))
    return (F.col("operation") == "UPDATE") & F.col("before").isNotNull() & differs


def _message_id() -> Column:
    place = F.concat_ws("/", F.col("topic"), F.col("partition"), F.col("offset"))
    sequence = F.nullif(F.col("change_sequence"), F.lit(""))
    return F.coalesce(F.concat(F.col("task"), F.lit(":"), sequence), place)
