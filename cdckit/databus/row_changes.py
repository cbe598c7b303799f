"""From whole windows to changes: what the door hands over to the spine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import DELETE, UPSERT, number_in_order
from cdckit.databus.event_rows import DELETE as DELETED
from cdckit.parts.arguments import require_keys
from cdckit.parts.schemas import require_columns, require_struct

_KEYED = ("opcode", "long_key", "string_key", "data")
_PLACED = (
    "topic", "partition", "offset", "timestamp", "physical_partition", "scn", "source",
    "window_end_scn", "window_timestamp", "window_position", "sent",
)  # fmt: skip


def changes(rows: DataFrame, *, keys: Sequence[str], source: str | None = None) -> DataFrame:
    """
    What each event of a complete window says about its entity.

    All changes of a window become true at one instant, that of the window's end, so at no instant does a
    history of them show half a window; and `as_of` over the histories of several sources shows them at the
    end of the same window.

    Args:
        rows: `rows` of what `consistent` returned.
        keys: The fields of `data` that are the key.  Where there is one alone, a delete without a value has
            it from the key of its event.
        source: The name of the source in the changes; without it, the name of the Databus source.

    Returns:
        One row per change (`cdckit.changes.CHANGE_SCHEMA`).  UPSERT is an upsert, DELETE a delete.
        `sequence` is the SCN, and the place in the window; `effective_timestamp` is `window_timestamp`;
        `message_id` is the topic, the physical partition, the SCN of the window's end and the place in it, so
        that a window that is sent again says the same messages; `carried` are the fields that the schema of
        the event has; `priority` is 0.  Events that do not say their key are passed over
        (`find_without_key` gives them).

    Raises:
        MissingColumns: *rows* are not `rows` of what `consistent` returns.
        InvalidArgument: *keys* is empty or names no field of `data`.

    Cost: a projection, no shuffle.

    >>> from cdckit import databus
    >>> whole = databus.consistent(events)
    >>> told = databus.changes(databus.rows(whole, planes), keys=["tail"])
    >>> told.select("operation", "effective_timestamp", "message_id", "data").show(truncate=False)
    +---------+-------------------+-----------+---------+
    |operation|effective_timestamp|message_id |data     |
    +---------+-------------------+-----------+---------+
    |upsert   |2024-01-01 09:00:05|topic/1:5/1|{N12, 55}|
    +---------+-------------------+-----------+---------+
    <BLANKLINE>
    """
    require_columns(rows, _PLACED, function="changes")
    data = _with_key(rows, keys, function="changes")
    said = rows.withColumn("data", data).where(~_lacks_key(keys))
    is_delete = F.col("opcode") == DELETED
    return said.select(
        F.when(is_delete, DELETE).otherwise(UPSERT).alias("operation"),
        F.col("window_timestamp").alias("effective_timestamp"),
        F.concat_ws("/", number_in_order(F.col("scn")), F.lpad("window_position", 10, "0")).alias("sequence"),
        F.struct("timestamp", "topic", "partition", "offset", F.lit(1).alias("record_number")).alias(
            "arrival"
        ),
        _message_id().alias("message_id"),
        (F.col("source") if source is None else F.lit(source)).alias("source"),
        F.lit(0).alias("priority"),
        "data",
        F.col("sent").alias("carried"),
    )


def find_without_key(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """
    The rows that do not say which entity they are about, so that `changes` passes them over.

    Args:
        rows: What `rows` returned.
        keys: As for `changes`.

    Returns:
        The same columns: the rows in which a field of the key is null.

    Raises:
        MissingColumns: *rows* are not what `rows` returns.
        InvalidArgument: *keys* is empty or names no field of `data`.

    Cost: one filter, no shuffle.

    >>> from cdckit import databus
    >>> find_without_key(databus.rows(events, planes), keys=["tail"]).count()
    0
    """
    data = _with_key(rows, keys, function="find_without_key")
    found = rows.withColumn("found", data)
    return found.where(reduce(or_, (F.col("found").getField(key).isNull() for key in keys))).drop("found")


def _lacks_key(keys: Sequence[str]) -> Column:
    return reduce(or_, (F.col("data").getField(key).isNull() for key in keys))


def _with_key(rows: DataFrame, keys: Sequence[str], *, function: str) -> Column:
    """The data; of a delete without a value with the key of its event, where the key is one field."""
    require_columns(rows, _KEYED, function=function)
    row = require_struct(rows, "data", function=function)
    require_keys(keys, row.fieldNames(), function=function)
    if len(keys) > 1:
        return F.col("data")
    kind = row[keys[0]].dataType
    key = F.coalesce(F.col("string_key"), F.col("long_key").cast("string"))
    fields = [
        (key.try_cast(kind) if field.name == keys[0] else F.lit(None).cast(field.dataType)).alias(field.name)
        for field in row
    ]
    return F.coalesce(
        F.col("data"), F.when(F.col("opcode") == DELETED, F.struct(*fields)).cast(_all_nullable(row))
    )


def _all_nullable(row: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(field.name, field.dataType) for field in row])


def _message_id() -> Column:
    place = F.concat_ws("/", "topic", "physical_partition")
    return F.concat(place, F.lit(":"), F.concat_ws("/", "window_end_scn", "window_position"))
