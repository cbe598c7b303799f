"""Times that follow the source's own order, and the end of all rows when a table is truncated."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdckit.changes import ABSENT, field_names, require_changes
from cdckit.debezium.event_changes import message_id, source_name
from cdckit.debezium.event_columns import is_of
from cdckit.debezium.events import Kind, require_events
from cdckit.parts.arguments import require_keys
from cdckit.parts.schemas import require_batch, require_columns
from cdckit.rejected import ERROR_CODE


def in_source_order(changes: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """
    Make the times of each row's changes follow the positions of their source.

    `merge` goes by time, then by position.  Where the two disagree, the position is right: a snapshot
    says the time at which it read a row, which can be after changes that it did not see; MySQL says when
    a statement began, which can be before one whose commit it waited for; a clock can be put back.

    Args:
        changes: What `changes` returned, of one table: with `snapshot` beside the columns of changes.
        keys: The key columns.

    Returns:
        The same rows.  A row that a snapshot read is true from the time of the first later change of that
        row on, if that is before its own; any other change, not before what stands ahead of it.
        Changes without a `sequence` stay as they are.

    Raises:
        MissingColumns, WrongColumnType: *changes* are not what `changes` returned.
        InvalidArgument: *keys* names no column of `data`; or *changes* are a stream.

    Cost: a shuffle and a sort by source and key.  It sees these changes alone: of what a ledger holds
    already it knows nothing.

    >>> too_early = "effective_timestamp - INTERVAL 2 HOURS * int(message_id = 'm2')"
    >>> later = changes.withColumns(
    ...     {
    ...         "sequence": F.col("message_id"),
    ...         "snapshot": F.lit(None).cast("string"),
    ...         "effective_timestamp": F.expr(too_early),
    ...     }
    ... )
    >>> ordered = in_source_order(later, keys=["number"]).where("data.number = 1").orderBy("message_id")
    >>> ordered.select("message_id", "effective_timestamp").show()
    +----------+-------------------+
    |message_id|effective_timestamp|
    +----------+-------------------+
    |        m1|2024-01-01 09:00:00|
    |        m2|2024-01-01 09:00:00|
    +----------+-------------------+
    <BLANKLINE>
    """
    require_changes(changes, function="in_source_order")
    require_columns(changes, ["snapshot"], function="in_source_order")
    require_batch(changes, "changes", "say snapshot_at to `changes`", function="in_source_order")
    named = require_keys(keys, field_names(changes), function="in_source_order")
    of_row = Window.partitionBy("source", *(F.col("data")[key] for key in named)).orderBy(
        "sequence", "arrival"
    )
    later = of_row.rowsBetween(1, Window.unboundedFollowing)
    so_far = of_row.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    placed = F.col("sequence") != ""
    is_read = ~F.coalesce(F.col("snapshot"), F.lit("false")).isin("false", "incremental")
    own = F.col("effective_timestamp")
    follows = F.min(F.when(placed & ~is_read, own)).over(later)
    lowered = changes.withColumn(
        "effective_timestamp", F.when(placed & is_read, F.least(own, follows)).otherwise(own)
    )
    raised = F.max(F.when(placed, own)).over(so_far)
    return lowered.withColumn("effective_timestamp", F.when(placed, raised).otherwise(own))


def with_truncates(
    changes: DataFrame, decoded: DataFrame, table: str, *, keys: Sequence[str], source: str | None = None
) -> DataFrame:
    """
    The changes, and for each truncate of the table the end of every row that was there.

    Args:
        changes: What `changes` returned of that table.
        decoded, table, source: As they were given to `changes`.
        keys: The key columns.

    Returns:
        The same rows, and for each truncate one more for each key that its source named before: an absence,
        which deletes the row if it is alive then, at the time and the position of the truncate.

    Raises:
        MissingColumns, WrongColumnType: *changes* or *decoded* are not what `changes` or `decode` returned.
        InvalidArgument: *keys* names no column of `data`; or they are streams.

    Cost: *decoded* is read twice and the keys are shuffled once; truncates are few, and are broadcast.
    It knows the keys of these changes alone: a ledger that already has rows must be asked for theirs.

    >>> from cdckit import debezium
    >>> told = debezium.changes(decoded, "products", keys=["id"])
    >>> debezium.with_truncates(told, decoded, "products", keys=["id"]).count()
    3
    """
    require_changes(changes, function="with_truncates")
    require_events(decoded, function="with_truncates")
    require_batch(changes, "changes", "merge it in batches", function="with_truncates")
    named = require_keys(keys, field_names(changes), function="with_truncates")
    said = source_name(source)
    is_truncate = (F.col("kind") == Kind.TRUNCATE) & F.col(ERROR_CODE).isNull()
    truncates = decoded.where(is_truncate & is_of(table, function="with_truncates")).select(
        F.col("event_timestamp").alias("effective_timestamp"),
        F.coalesce("position", F.lit("")).alias("sequence"),
        F.struct("timestamp", "topic", "partition", "offset", F.lit(1).alias("record_number")).alias(
            "arrival"
        ),
        message_id(said).alias("message_id"),
        said.alias("by"),
    )
    entity = [F.col("data")[key].alias(f"key {n}") for n, key in enumerate(named)]
    alive = changes.groupBy("source", *entity).agg(
        F.min(_place()).alias("first"), F.any_value("data").alias("any")
    )
    ended = (F.col("by").eqNullSafe(F.col("source"))) & (F.col("first") < _place())
    met = alive.join(F.broadcast(truncates), ended, how="inner")
    kinds = changes.schema["data"].dataType
    data, carried = [], []
    for field in kinds:  # type: ignore[attr-defined]
        is_key = field.name in named
        value = F.col("any")[field.name] if is_key else F.lit(None).cast(field.dataType)
        data.append(value.alias(field.name))
        carried.append(F.lit(is_key).alias(field.name))
    ends = met.select(
        F.lit(ABSENT).alias("operation"),
        "effective_timestamp",
        "sequence",
        "arrival",
        "message_id",
        "source",
        F.lit(0).alias("priority"),
        F.struct(*data).alias("data"),
        F.struct(*carried).alias("carried"),
    )
    return changes.unionByName(ends, allowMissingColumns=True)


def _place() -> Column:
    return F.struct("effective_timestamp", "sequence", "arrival")
