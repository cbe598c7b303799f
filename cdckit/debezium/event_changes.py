"""From events to changes: what the door hands over to the spine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.column_types import Columns
from cdckit.debezium.event_rows import PLACEHOLDER, typed_rows
from cdckit.debezium.events import DELETE, OF_ROWS, READ, TRUNCATE
from cdckit.model.changes import DELETE as IS_DELETED
from cdckit.model.changes import MOVED, UPSERT
from cdckit.model.changes import TRUNCATE as IS_TRUNCATED
from cdckit.model.records import ERROR_CODE
from cdckit.parts.arguments import require_instant, require_instants
from cdckit.parts.columns import built_once


def changes(
    decoded: DataFrame,
    table: str,
    *,
    keys: Sequence[str] | None = None,
    columns: Columns | None = None,
    snapshot_at: datetime | Column | None = None,
    source: str | None = None,
    placeholder: str = PLACEHOLDER,
    unreadable: str = "reject",
) -> DataFrame:
    """
    What the events say of the rows of one table.

    A create, an update and a read of a snapshot are upserts, a delete is a delete.  What an event did not
    send, such as a large value that did not change, is not carried; where the event says what it was before,
    it is that.  An update that gives a row another key is two changes: a delete of the old one (record
    number 1) and an upsert of the new one (2).  Debezium itself sends a delete and a create then, each of
    which names the other key.

    **Their order is that of the source's log.**  A clock cannot give it: a snapshot, incremental or not, says
    when it read a row, while changes that came after it, and are delivered after it, say earlier times, of
    their commits; MySQL says when a statement began, which can be before one whose commit it waited for.
    So the changes of a row count in the order of their positions, and their times follow, in `merge` and in a
    `Ledger`, in whatever batches they come.  What the log says is not true before what stands ahead of it.
    A row that a snapshot read is true from the time on that its event says, or from *snapshot_at* on; but
    not before what the log says ahead of it, and no later than what the log says behind it.  Events without a
    position count by their times.

    **A truncate** ends every row that its source had said by then, of this call and of all that a `Ledger`
    has and will be given.  So of several tables of one connector that speak of one entity, such as the
    partitions of a table, give each a *source* of its own, or the truncate of one ends the rows of all.

    A source whose log begins anew (MySQL without GTIDs on another server, a restored cluster) is another
    source: its positions mean nothing beside those before.  Say so by *source*.

    Args:
        decoded: What `decode`, `decode_maxwell` or `decode_wal2json` returned.  Events in error are passed
            over, and all that is not about a row or a truncate.
        table: The name of the table, with as much before it as is needed: `orders`, `public.orders`,
            `shop.public.orders`.  Tables of several databases whose names end so are taken for one.
        keys: The key columns; without them, those that the keys of the records have, which are collected.
        columns: By column its type (see `columns`); others are not read.  Without it, what `columns` says.
            Where *decoded* is a stream, keys and columns must be said.  It must be said, too, where some
            events of a column say its type and others none, as after the converter of a connector was told
            `schemas.enable=false`.  A column that is `untyped` is text as it was sent, such as 19800 for a
            day, and a `Ledger` takes no values of a type beside it.  Of several types, each event is read by
            the one that it says; one that says none cannot be read.
        snapshot_at: From when on the rows that a snapshot read are true: an instant from which on the
            stream has all changes, or at which the snapshot had not begun; or a column of instants over
            *decoded*'s records, `source` and `snapshot`.  Without it, what their events say: a row of which
            the stream had said nothing is then not there before it was read.
        source: The name of the source; without it, what the events say.
        placeholder: What the connector writes for a value that is not available, if it was told otherwise.
        unreadable: What a value that its column's type cannot hold, such as 19.999 in a `decimal(10,2)`,
            costs: `reject`, its row (`VALUE_INVALID`); or `null`, itself alone: it is null, and `faults`
            says it.  A row whose key cannot be read, or could not be before, is always rejected.

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`).  `effective_timestamp` is the time of the event
        at its source (see `time_taken_from` in `table_rows`).  `sequence` is its position, and of a create
        that a changed key brought the place right behind its delete.  `message_id` is the source and the
        position, so that a redelivered event is the same message (topic, partition and offset where there is
        no position); of a read and a delete the operation too, since they may stand at the position of
        another change of the row; of a read the table, since a snapshot reads all of them at one position;
        and of MySQL a hash of the row before and after, since the events of a compressed transaction may
        share a position (two that say the same of one row are then one).  A redelivered change of a
        transaction of MongoDB, or of Oracle by OpenLogReplicator, is another message, which says the same
        behind the first: those events have no number of their own.  `snapshot` says whether a snapshot read
        the row.  `moved` says the old key and the new one where the key of a row
        changed: so a value that did not change and was not sent with the new key is that of the old one.
        Beside them stands `faults`: the values that could not be read and are null therefore, each behind the
        name of its column.

        PostgreSQL's `infinity` and `-infinity` are 9999-12-31 and 0001-01-02, of a timestamp midnight in UTC,
        however the connector writes them.  A timestamp without a zone is taken for one in UTC.  Times of day
        are microseconds since midnight.
        A decimal that may have more than 38 digits, such as `DECIMAL(65,30)`, stays text as it was sent, in
        Base64, unless *columns* says a type for it: `org.apache.kafka.connect.data.Decimal(38,30)`.
        Decimals of Kafka Connect may be Base64 or numbers (`decimal.format=NUMERIC`): a JSON text is Base64,
        a JSON number is one.  No number is rounded: one with more digits than its type has, on either side
        of the point, zeros at the end aside, cannot be read.

        Arrays, maps and structs, nested too, are such of Spark, a `VariableScaleDecimal` the text of its
        digits; a part that cannot be read makes the whole value one that cannot.  A map whose keys are no
        text, and any of them where *columns* says `string`, stays JSON text.

    Raises:
        InvalidArgument: There is no such table; *keys* or *columns* are not of their form, or are needed; a
            type is unknown; two types of one column have none in common, as two arrays of different types,
            or a number and a date (`string` reads both as they were sent); two columns have names that
            differ in case alone; *snapshot_at* is naive.
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: as for `table_rows`, no shuffle.  Without *keys* or *columns* a job first, for each of them.

    >>> from cdckit import debezium
    >>> changed = debezium.changes(decoded, "products", keys=["id"]).orderBy("arrival.offset")
    >>> changed.select("operation", "effective_timestamp", "data", "carried").show(truncate=False)
    +---------+-------------------+------------------+--------------------+
    |operation|effective_timestamp|data              |carried             |
    +---------+-------------------+------------------+--------------------+
    |upsert   |2024-03-01 12:00:00|{1, kettle, 19.90}|{true, true, true}  |
    |upsert   |2024-03-01 12:00:01|{1, NULL, 17.50}  |{true, false, true} |
    |delete   |2024-03-01 12:00:02|{1, NULL, NULL}   |{true, false, false}|
    +---------+-------------------+------------------+--------------------+
    <BLANKLINE>
    """
    rows = typed_rows(decoded, table, keys, columns, placeholder, unreadable, (*OF_ROWS, TRUNCATE))
    steps = _steps(rows.schema["data"], rows.schema["old"], source)
    spread = rows.withColumn(_NUMBER, steps.record_number).where(F.col(_NUMBER).isNotNull())
    at = _effective(rows, snapshot_at).alias("effective_timestamp")
    return spread.select(steps.operation, at, *steps.others)


_NUMBER = "record_number"


class _Steps(NamedTuple):
    """The columns of each step from the rows of a table to its changes."""

    record_number: Column
    operation: Column
    others: list[Column]


@built_once
def _steps(data: T.StructField, old: T.StructField, source: str | None) -> _Steps:
    parts = F.when(F.col("moved"), F.array(F.lit(1), F.lit(2))).otherwise(F.array(F.lit(1)))
    is_leaving = F.col("moved") & (F.col(_NUMBER) == 1)
    operation = F.col("operation")
    is_deleted = is_leaving | (operation == DELETE)
    kinds = {field.name: field.dataType for field in data.dataType}  # type: ignore[attr-defined]
    keys = [field.name for field in old.dataType]  # type: ignore[attr-defined]
    leaving = F.struct(
        *(
            (F.col("old")[name] if name in keys else F.lit(None).cast(kind)).alias(name)
            for name, kind in kinds.items()
        )
    )
    key_alone = F.struct(*(F.lit(name in keys).alias(name) for name in kinds))
    named_source = source_name(source)
    return _Steps(
        # A filter that asks for errors would have Spark work out all values anew for it.
        record_number=F.explode_outer(F.when(F.col(ERROR_CODE).isNull(), parts)),
        operation=F.when(is_deleted, IS_DELETED)
        .when(operation == TRUNCATE, IS_TRUNCATED)
        .otherwise(UPSERT)
        .alias("operation"),
        others=[
            _sequence().alias("sequence"),
            F.struct("timestamp", "topic", "partition", "offset", _NUMBER).alias("arrival"),
            message_id(named_source).alias("message_id"),
            named_source.alias("source"),
            F.lit(0).alias("priority"),
            F.when(is_leaving, leaving).otherwise(F.col("data")).alias("data", metadata=data.metadata),
            F.when(is_leaving, key_alone).otherwise(F.col("carried")).alias("carried"),
            (F.col("operation") == READ).alias("snapshot"),
            _move_struct(keys).alias(MOVED),
            F.col("faults"),
        ],
    )


def _move_struct(keys: Sequence[str]) -> Column:
    """How the row came to another key: in one update, or in a delete and a create that name each other."""
    own = F.struct(*(F.col("data")[name].alias(name) for name in keys))
    record = F.concat_ws("/", "topic", "partition", "offset")
    event = F.unix_micros("event_timestamp").cast("string")

    # Without the offset that a transaction of Oracle may need: its delete and its create are one move.
    position = F.regexp_replace("position", r"^(\d+/\d+/0+)/\d+$", "$1")

    def move(id_: Column, old: Column, new: Column) -> Column:
        return F.struct(F.coalesce(position, id_).alias("id"), old.alias("old_key"), new.alias("new_key"))

    other, is_delete = F.col("other"), F.col("operation") == DELETE
    return (
        F.when(F.col("moved"), move(record, F.col("old"), own))
        .when(other.isNotNull() & is_delete, move(event, own, other))
        .when(other.isNotNull(), move(event, other, own))
    )


def source_name(given: str | None) -> Column:
    """The name of the source: the given one, or what the event says, or else its topic."""
    return F.lit(given) if given is not None else F.coalesce("source", "topic")


def message_id(source: Column) -> Column:
    """Which event it is, of its source: by its position where it has one."""
    place = F.concat_ws("/", "topic", "partition", "offset")
    # The row that an incremental snapshot read may stand at the position of a change of the same row; and a
    # delete at that of a create, where the key that changed is not, or not all of, the key that is asked for.
    is_beside = F.col("operation").isin(READ, DELETE)
    beside = F.when(is_beside, F.concat(F.col("operation"), F.lit("/"), F.col("position")))
    position = F.concat_ws("#", F.coalesce(beside, "position"), "apart")
    return F.concat(source, F.lit(":"), F.when(F.col("position").isNotNull(), position).otherwise(place))


def _sequence() -> Column:
    """The position; of a create that a changed key brought, the one behind that of its delete."""
    behind = F.when(F.col("old_key").isNotNull(), F.concat("position", F.lit("/1")))
    return F.coalesce(behind, "position", F.lit(""))


def _effective(rows: DataFrame, snapshot_at: datetime | Column | None) -> Column:
    if snapshot_at is None:
        return F.col("event_timestamp")
    if isinstance(snapshot_at, Column):
        at = require_instants(rows, snapshot_at, "snapshot_at", function="changes")
    else:
        at = require_instant(snapshot_at, "snapshot_at", function="changes")
    return F.when(F.col("operation") == READ, at).otherwise(F.col("event_timestamp"))
