"""Changes from a log of rows: each row is one statement about one entity."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.any_table import places, times
from cdckit.any_table.calls import Call
from cdckit.any_table.frames import AnyTable, Table, as_table
from cdckit.any_table.truncates import IS_TRUNCATE, with_absences
from cdckit.changes import DELETE, UPSERT
from cdckit.parts.arguments import require_instant, require_int
from cdckit.parts.schemas import quoted, require_batch
from cdckit.parts.values import as_text

_FUNCTION = "changes_from"
_RECORD_NUMBERS = 2**31 - 1


def changes_from(
    frame: AnyTable,
    *,
    keys: Sequence[str | Column],
    sequence_by: str | Column | Sequence[str | Column] | None = None,
    source: str | Column = "table",
    apply_as_deletes: str | Column | None = None,
    apply_as_truncates: str | Column | None = None,
    ignore_null_updates: bool | Sequence[str | Column] = True,
    column_list: Sequence[str | Column] | None = None,
    except_column_list: Sequence[str | Column] | None = None,
    effective: str | Column | datetime | None = None,
    message: str | Column | None = None,
    priority: int = 0,
) -> DataFrame:
    """
    Changes from any table in which a row says what one entity is like: an export, a CSV, a log of rows.

    The words are those of Spark's `create_auto_cdc_flow`.  A text is the name of a column or, where there is
    none of that name, an SQL expression over the columns.

    Args:
        frame: A DataFrame of Spark, or one of pandas: its rows have the order in which they stand, its
            missing values (NaN, NaT, NA, None) are null, its index is left out, and its datetimes without
            a zone are instants of UTC.
        keys: The columns that say which entity a row is about.  One of several may be null; a row
            with none but nulls ends the job that reads it, since leaving it out would lose it unseen.
        sequence_by: What the rows of one entity are in order by: numbers, times, texts (by their bytes:
            "10" stands before "9", so cast numbers that were read as text), or several of these as a list or
            a struct.  Null stands first.  Without it the rows of pandas are in the order in which they
            stand, those of Spark in none (see Returns).
        source: Who says so: a name, or a Column.
        apply_as_deletes: The condition under which a row deletes its entity.  Null is no.
        apply_as_truncates: The condition under which a row says that nothing of what its source said
            before it is so any more; its key does not matter.  Entities that the source last said to be there
            are absent from then on, unless a later row says them again.  Of rows at one place
            the truncate comes first; a row that is both is a truncate.
        ignore_null_updates: Whether a null says nothing (True), or is a value like any other (False); or
            the columns of which a null says nothing.  Spark's default is False.  Here it is True, because
            many tables leave out what they do not know, and False would silently erase with it what was
            known before; what True does wrong, a value that should have been cleared, still stands there.
        column_list: The columns that become fields, beside the keys.  Without it all, as in Spark: also
            those that say the order or the operation.
        except_column_list: Those that do not become fields.
        effective: When it is true: a timestamp, a date (from its beginning) or an ISO 8601 text, all
            of UTC where they say no zone; or one instant for the whole table, an aware datetime.  Null,
            or a text that is no instant, ends the job that reads it.  Without it, when it was
            sequenced, if the first (or only) part of *sequence_by* is a time by its type.  A table
            with neither an order nor a time says what is so: it is true since 1970-01-01, which stands
            for a time that nobody said, and of several rows of one entity the last counts.
        message: What identifies the message: provenance will name it.  Null is as none.  Rows of one message
            that differ are several statements, equal ones are one.
        priority: How much it counts (see `with_priorities`).

    Returns:
        One row per row of the table, and for each truncate one for each entity that it ends
        (`cdckit.changes.CHANGE_SCHEMA`).  Without *message*, `message_id` is the source and a digest of the
        row, its place and its time, so that equal rows are one message and a table that is read again says
        nothing new; the place of a row is a part of it only where that is its order: in pandas, without
        *sequence_by*.  Of rows with one entity, time and sequence the later one counts in pandas;
        in Spark one that is the same in every run, but arbitrary.  `arrival.timestamp`, which
        `as_known` goes by, is when a row was sequenced if that is a time, else its effective time.

        Two tables that speak of an entity at one instant, with equal priority, are a tie: which of them
        counts is decided by the form of their sequences and by row numbers, so by nothing that means
        anything.  Say whose word counts: *priority*, or `with_priorities` (see `union_changes`).

    Raises:
        UnfitTable: Columns that the call names are missing, or of types that cannot mean that; all of it at
            once, with the columns that there are, and a call that would do.  Or the sequence is no time,
            and *effective* does not say one.
        InvalidArgument: *frame* is no table; *source* is no name, *priority* no whole number, *effective* a
            datetime without a zone; or *frame* is a stream and there are truncates.
        SparkRuntimeException: When the result is computed (Spark's; its text holds `changes_from()`): a row
            has no key, or no time that can be read.

    Cost: a projection, no shuffle.  With truncates, the table is read three times and its keys are shuffled
    once; truncates are few, and are broadcast.  A truncate knows the entities of this table alone.

    >>> log = session().createDataFrame(
    ...     [
    ...         (1, "kettle", 20, "2024-01-01"),
    ...         (1, "kettle", None, "2024-02-01"),
    ...         (1, "teapot", 25, "2024-03-01"),
    ...         (2, "mug", 5, "2024-01-01"),
    ...     ],
    ...     "id int, name string, price int, day string",
    ... )
    >>> said = changes_from(
    ...     log,
    ...     keys=["id"],
    ...     sequence_by="cast(day as date)",
    ...     apply_as_deletes="name = 'mug' and day > '2024-01-01'",
    ...     except_column_list=["day"],
    ... )
    >>> said.orderBy("data.id", "sequence").select("effective_timestamp", "data", "carried").show()
    +-------------------+-----------------+-------------------+
    |effective_timestamp|             data|            carried|
    +-------------------+-----------------+-------------------+
    |2024-01-01 00:00:00|  {1, kettle, 20}| {true, true, true}|
    |2024-02-01 00:00:00|{1, kettle, NULL}|{true, true, false}|
    |2024-03-01 00:00:00|  {1, teapot, 25}| {true, true, true}|
    |2024-01-01 00:00:00|      {2, mug, 5}| {true, true, true}|
    +-------------------+-----------------+-------------------+
    <BLANKLINE>
    >>> from cdckit import merge
    >>> merge(said, entity="product", keys=["id"]).where("id = 1").orderBy("valid_from_timestamp").select(
    ...     "id", "name", "price", "valid_from_timestamp", "valid_to_timestamp"
    ... ).show()
    +---+------+-----+--------------------+-------------------+
    | id|  name|price|valid_from_timestamp| valid_to_timestamp|
    +---+------+-----+--------------------+-------------------+
    |  1|kettle|   20| 2024-01-01 00:00:00|2024-03-01 00:00:00|
    |  1|teapot|   25| 2024-03-01 00:00:00|               NULL|
    +---+------+-----+--------------------+-------------------+
    <BLANKLINE>
    >>> changes_from(log, keys=["Id"], sequence_by="day_of_change")
    Traceback (most recent call last):
    ...
    cdckit.any_table.faults.UnfitTable: changes_from() cannot read the table so: keys names Id, ...
    """
    require_int(priority, "priority", function=_FUNCTION)
    table = as_table(frame, function=_FUNCTION)
    call = Call(_FUNCTION, "frame", table.frame, table.columns, table.cells)
    key_names = call.keys(keys)
    fields = call.fields(key_names, column_list, except_column_list)
    ignored = _ignored(call, ignore_null_updates, fields)
    call.keep("priority", priority, unless=0)
    parts = call.parts(sequence_by, "sequence_by")
    rows = _Rows(
        effective=_effective(call, effective, parts, sequence_by),
        time=call.unreadable_time(effective, sequence_by, table),
        known=_time_of(parts),
        sequence=places.in_order(parts),
        message=None if message is None else call.value(message, "message"),
        source=call.source(source),
        deletes=call.condition(apply_as_deletes, "apply_as_deletes"),
        truncates=call.condition(apply_as_truncates, "apply_as_truncates"),
    )
    call.require_sound()
    said = _statements(table, rows, key_names, fields, ignored, places_order=sequence_by is None)
    time = rows.time._replace(value=F.col("time_said"))
    changes = _changes(said, _sound(time, key_names, table.without(*key_names)), priority)
    if apply_as_truncates is None:
        return changes.drop(IS_TRUNCATE)
    require_batch(table.frame, "frame", "leave the truncates out", function=_FUNCTION)
    return with_absences(changes, key_names, table.frame.schema)


class _Rows(NamedTuple):
    """What the call says of each row, as columns over the table."""

    effective: Column
    time: times.Unreadable
    known: Column | None
    sequence: Column | None
    message: places.Typed | None
    source: Column
    deletes: Column
    truncates: Column


def _ignored(call: Call, said: bool | Sequence[str | Column], fields: Sequence[str]) -> list[str]:
    if isinstance(said, bool):
        call.keep("ignore_null_updates", said, unless=True)
        return list(fields) if said else []
    return call.names(said, "ignore_null_updates")


def _time_of(parts: Sequence[places.Typed]) -> Column | None:
    """When a row was sequenced, if the first part of that is a time by its type."""
    first = parts[0] if parts else None
    while first is not None and isinstance(first.kind, T.StructType):
        inner = first.kind.fields[0]
        first = places.Typed(first.value.getField(inner.name), inner.dataType)
    return times.as_instant(*first) if first is not None and times.is_time(first.kind) else None


def _effective(
    call: Call, said: str | Column | datetime | None, parts: Sequence[places.Typed], sequence: object
) -> Column:
    if isinstance(said, datetime):
        call.keep("effective", said, unless=None)
        return require_instant(said, "effective", function=_FUNCTION)
    if said is not None:
        return call.instant(said, "effective")
    known = _time_of(parts)
    if known is None and parts:
        call.lacks_time(parts[0].kind, sequence)
    return F.timestamp_seconds(F.lit(0)) if known is None else known


def _statements(
    table: Table,
    rows: _Rows,
    keys: Sequence[str],
    fields: Sequence[str],
    ignored: Sequence[str],
    *,
    places_order: bool,
) -> DataFrame:
    """Each row as what is known of it, under names that no column of the table can meet any more."""
    column = {name: F.col(quoted(name)) for name in table.columns}
    kinds = T.StructType([table.frame.schema[name] for name in table.columns])
    lacks_key = reduce(and_, (column[name].isNull() for name in keys))
    says = {
        name: column[name].isNotNull() if name in ignored and name not in keys else F.lit(True)
        for name in fields
    }
    row = F.lit(0).cast("bigint") if table.row is None else table.row
    assert rows.sequence is not None
    return table.frame.select(
        rows.effective.alias("effective_timestamp"),
        rows.time.value.alias("time_said"),
        rows.sequence.alias("sequence"),
        (rows.effective if rows.known is None else F.coalesce(rows.known, rows.effective)).alias("known"),
        row.alias("row"),
        (row if places_order else F.lit(0)).cast("string").alias("place"),
        as_text(F.struct(*column.values()), kinds).alias("content"),
        (F.lit(None).cast("string") if rows.message is None else as_text(*rows.message)).alias("message"),
        rows.source.alias("source"),
        rows.deletes.alias("deletes"),
        rows.truncates.alias(IS_TRUNCATE),
        lacks_key.alias("lacks_key"),
        F.struct(*(column[name].alias(name) for name in fields)).alias("data"),
        F.struct(*(said.alias(name) for name, said in says.items())).alias("carried"),
    )


def _changes(said: DataFrame, operation: Column, priority: int) -> DataFrame:
    time = as_text(F.col("effective_timestamp"), T.TimestampType())
    digest = F.md5(F.concat_ws("\n", "sequence", time, "place", "content"))
    # A message may say several things of one entity: which of them it is, its content tells.
    number = F.when(F.col("message").isNull(), 1).otherwise(
        F.pmod(F.xxhash64("digest"), F.lit(_RECORD_NUMBERS)) + 1
    )
    return said.withColumn("digest", digest).select(
        operation.alias("operation"),
        "effective_timestamp",
        "sequence",
        F.struct(
            F.col("known").alias("timestamp"),
            F.lit("table").alias("topic"),
            F.lit(0).alias("partition"),
            F.col("row").alias("offset"),
            F.when(F.col(IS_TRUNCATE), 0).otherwise(number).cast("int").alias("record_number"),
        ).alias("arrival"),
        # The source first: a table that does not know it shows who said so all the same.
        F.coalesce("message", F.concat_ws("-", "source", "digest")).alias("message_id"),
        "source",
        F.lit(priority).alias("priority"),
        "data",
        "carried",
        IS_TRUNCATE,
    )


def _sound(time: times.Unreadable, keys: Sequence[str], with_keys: str) -> Column:
    """The operation; ends the job for a row that is about no entity, or has no time that can be read."""
    no_key = (
        f"changes_from() needs a key for every row, and {', '.join(keys)} are null: leave such rows out, "
        f"`{with_keys}`, or name other keys.  The row: "
    )
    without_time = F.raise_error(time.sentence(_FUNCTION, F.col("content")))
    without_key = F.raise_error(F.concat(F.lit(no_key), "content"))
    return (
        F.when(F.col("effective_timestamp").isNull(), without_time)
        .when(F.col("lacks_key") & ~F.col(IS_TRUNCATE), without_key)
        .otherwise(F.when(F.col("deletes"), DELETE).otherwise(UPSERT))
    )
