"""Snapshots that ended, as full lists of their tables: what one did not read is gone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.debezium.events import READ
from cdckit.model.changes import AFTER_ALL, DELETE, TRUNCATE, UPSERT
from cdckit.model.faults import ERROR_CODE
from cdckit.model.places import LOG_END
from cdckit.parts.arguments import require_struct, schema_columns

_KEY, _LAST = "key of row", "last said of row"
ENDED_SCHEMA = "source string, position string, ended_timestamp timestamp, taken_timestamp timestamp"
"""One row is one snapshot that ended: its source, its place in the log, when its last record came, and the
instant of which that record is."""


def source_column(source: str | None = None) -> Column:
    """Tell whose events are, as `cdckit.debezium.events.source_name` does."""
    names = F.lit(source).cast("string"), F.col("source"), F.col("topic")
    return F.coalesce(*(F.when(name != "", name) for name in names)).alias("source")


def ended_snapshots(decoded: DataFrame, source: str | None = None) -> DataFrame:
    """
    The snapshots that ended, of all tables of a source (`ENDED_SCHEMA`): each read at one place in the log.

    Incremental snapshots do not say that they ended, and of one without a place nobody can tell what it read.
    """
    return (
        decoded.where(is_last_read())
        .groupBy(source_column(source), "position")
        .agg(F.min("timestamp").alias("ended_timestamp"), F.min("event_timestamp").alias("taken_timestamp"))
    )


def is_last_read() -> Column:
    """Tell whether an event is the last that a snapshot with a place in the log read."""
    is_placed_read = (F.col("operation") == READ) & F.col("position").isNotNull()
    return is_placed_read & (F.col("snapshot") == "last") & F.col(ERROR_CODE).isNull()


def find_new_logs(logs: Sequence[DataFrame], ended: DataFrame) -> DataFrame:
    """
    Find the snapshots ahead of a place that their topic had delivered before: a log begins anew.

    Args:
        logs: The changes of each table.
        ended: The snapshots (`ENDED_SCHEMA`).

    Returns:
        One row per snapshot: `source`, `position`, and `last_place`, the last that had come before.
    """
    # A place that names its log is compared with none of another, and of a commit any change may be read.
    has_place = (F.col("sequence") != "") & ~F.contains("sequence", F.lit(LOG_END))
    columns = ("source", "sequence", "snapshot", "arrival.topic", F.col("arrival.timestamp").alias("came"))
    changes = [log.where(has_place & ~is_absence()).select(*columns) for log in logs]
    beside = reduce(DataFrame.unionByName, changes).join(F.broadcast(ended), "source")
    bound = F.regexp_replace("position", "//.*", f"/{AFTER_ALL}")
    had_come = (F.col("came") < F.col("ended_timestamp")) & (F.col("sequence") > bound)
    topics = beside.groupBy("source", "position", "topic").agg(
        F.max(F.when(had_come, F.col("sequence"))).alias("last_place"),
        F.max((F.col("sequence") == F.col("position")) & F.col("snapshot")).alias("was_read"),
    )
    ahead = topics.where("was_read AND last_place IS NOT NULL")
    return ahead.groupBy("source", "position").agg(F.max("last_place").alias("last_place"))


def find_absences(
    changes: DataFrame,
    keys: Sequence[str],
    ended: DataFrame,
    refused: DataFrame,
    unread: DataFrame,
    source: str | None = None,
) -> DataFrame:
    """
    The deletes of rows that a snapshot which ended did not read.

    Of all rows that their source had said until the snapshot's end: where the log says something behind the
    snapshot it counts all the same, since a delete stands at the place of the reads.

    Args:
        changes: All changes of one table.
        keys: The key columns.
        ended: The snapshots (`ENDED_SCHEMA`).
        refused: The rows of the table in error, as `table_rows` gives them: what was read is there.
        unread: The records of which nobody can tell what they are about, with `topic` and `timestamp`: a
            snapshot that may have them among its reads is no list.
        source: The name of the source, if not what the events say.

    Returns:
        One row per absence, in the columns of *changes*.
    """
    stated = changes.where((F.col("operation") != TRUNCATE) & ~is_absence()).select(
        "source",
        "sequence",
        "arrival",
        ((F.col("operation") == UPSERT) & F.col("snapshot")).alias("is_read"),
        _key_of(keys).alias(_KEY),
    )
    reads = stated.where("is_read").select("source", F.col("sequence").alias("position"), "arrival", _KEY)
    refused_reads = refused.where(F.col("operation") == READ)
    there = refused_reads.select(source_column(source), "position", _key_of(keys).alias(_KEY))
    was_read = reads.drop("arrival").unionByName(there).distinct()
    lists = _full_lists(stated, reads, ended, unread)
    until_then = stated.join(F.broadcast(lists), "source").where("arrival.timestamp <= ended_timestamp")
    rows = until_then.groupBy(*lists.columns, _KEY).agg(F.max("arrival").alias(_LAST))
    absent = rows.join(was_read, ["source", "position", _KEY], "left_anti")
    return _as_changes(absent, changes, keys)


def is_absence() -> Column:
    """Tell whether a change is one of those that `find_absences` gives."""
    return F.startswith("message_id", F.concat("source", F.lit(_ABSENT)))


_ABSENT = ":absent/"


def _key_of(keys: Sequence[str]) -> Column:
    return F.struct(*(F.col("data").getField(key).alias(key) for key in keys))


def _full_lists(stated: DataFrame, reads: DataFrame, ended: DataFrame, unread: DataFrame) -> DataFrame:
    """Keep the snapshots that read rows of the table, and all that they read is known."""
    topics = reads.groupBy("source", "position", "arrival.topic").agg(
        F.min("arrival.timestamp").alias("begun_timestamp")
    )
    # What cannot be read may be the first that was read: it counts from the last that is known before.
    said = stated.select("source", "arrival.topic", F.col("arrival.timestamp").alias("said_timestamp"))
    known = said.join(F.broadcast(topics), ["source", "topic"]).where("said_timestamp < begun_timestamp")
    since = known.groupBy("source", "position", "topic").agg(F.max("said_timestamp").alias("since"))
    spans = topics.join(ended, ["source", "position"]).join(since, ["source", "position", "topic"], "left")
    others = unread.select("topic", F.col("timestamp").alias("unread_timestamp"))
    doubtful = spans.join(others, "topic").where(
        "unread_timestamp <= ended_timestamp AND (since IS NULL OR unread_timestamp >= since)"
    )
    whole = ended.join(doubtful, ["source", "position"], "left_anti")
    return whole.join(topics, ["source", "position"], "left_semi")


def _as_changes(absent: DataFrame, changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    fields = require_struct(changes, "data")
    data = {
        field.name: (F.col(_KEY).getField(field.name) if field.name in keys else F.lit(None)).cast(
            field.dataType
        )
        for field in fields
    }
    # Right behind what was last said of the row: what its partition delivers from then on counts behind it.
    last = {name: F.col(_LAST).getField(name) for name in require_struct(changes, "arrival").names}
    arrival = last | {"timestamp": F.col("ended_timestamp")}
    columns = {
        "operation": F.lit(DELETE),
        "effective_timestamp": F.col("taken_timestamp"),
        "sequence": F.col("position"),
        "arrival": F.struct(*(value.alias(name) for name, value in arrival.items())),
        "message_id": F.concat("source", F.lit(_ABSENT), "position"),
        "source": F.col("source"),
        "priority": F.lit(0),
        "data": F.struct(*(value.alias(name) for name, value in data.items())),
        "carried": F.struct(*(F.lit(name in keys).alias(name) for name in data)),
        "snapshot": F.lit(True),
    }
    return absent.select(*schema_columns(changes.schema, columns))
