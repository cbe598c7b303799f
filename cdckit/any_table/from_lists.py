"""Changes from full lists of a source: who is in a list is there, who is no more in the next one is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from cdckit.any_table import times
from cdckit.any_table.calls import Call
from cdckit.any_table.frames import Table
from cdckit.any_table.lists import Lists, united
from cdckit.any_table.truncates import key_alone
from cdckit.changes import ABSENT, UPSERT
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import microseconds, require_flag, require_int
from cdckit.parts.schemas import quoted, require_struct
from cdckit.parts.values import as_text, comparable

_FUNCTION = "changes_from_snapshots"


def changes_from_snapshots(
    snapshots: Lists,
    *,
    keys: Sequence[str | Column],
    taken: str | Column | None = None,
    source: str | Column = "table",
    column_list: Sequence[str | Column] | None = None,
    except_column_list: Sequence[str | Column] | None = None,
    compared: bool = True,
    priority: int = 0,
) -> DataFrame:
    """
    Changes from full lists of a source, taken at several times.

    What a list names is there, with all its fields, at the instant at which the list was taken; what an
    earlier list named and the next one does not is absent from that instant on.

    Args:
        snapshots: The lists, of Spark or of pandas (see `changes_from`): a mapping of instant to list,
            a list of pairs of both, or one table of all of them in which *taken* tells them apart.  Only
            the first two know a list in which nothing stands.  Instants are aware datetimes.  A column
            that a list does not have was not sent by it; columns that lists have in different types
            get one that holds both, as in `union_changes`.
        keys: The columns that say which entity a row is about.  One of several may be null, not all.
        taken: Of one table: when the list of a row was taken.  A column, or an expression: a timestamp, a
            date or an ISO 8601 text, of UTC where it says no zone.
        source: Who says so: a name or, of one table, also a Column; the lists of each source go on by
            themselves.
        column_list: The columns that become fields, beside the keys.  Without it all.
        except_column_list: Those that do not; of one table, the column *taken* may be one.
        compared: Whether a row that says what the list before said is no new change.  Otherwise each
            row of each list is one: then a list also takes back what another source of the same priority
            changed since the last one.
        priority: How much it counts (see `with_priorities`).

    Returns:
        One row per row that says something new, and one per entity and list that it is missing in for the
        first time (`cdckit.changes.CHANGE_SCHEMA`).  A null in a list is a value.  `message_id` is made of
        the source and the instant of the list: the same list is the same message whenever it is read.

    Raises:
        UnfitTable: Columns that the call names are missing, or of types that cannot mean that: all at once.
        InvalidArgument: *snapshots* are no such lists, or streams; an instant has no zone, or two
            lists; *taken* is given and the instants are too.
        WrongColumnType: A column is nested in two lists, and not of one type.
        SparkRuntimeException: When the result is computed (Spark's; its text holds
            `changes_from_snapshots()`): a list names an entity twice, and not the same; a row has no key,
            or no instant that can be read.

    Cost: one shuffle by key and one sort, however many lists there are; where they are one table,
    its instants are read before, and broadcast.

    Source:
        Spark's `create_auto_cdc_from_snapshot_flow`, for the rule and for what is refused.

    >>> from datetime import UTC, datetime
    >>> monday = session().createDataFrame([(1, "kettle"), (2, "mug")], "id int, name string")
    >>> tuesday = session().createDataFrame([(1, "teapot")], "id int, name string")
    >>> lists = {datetime(2024, 1, 1, tzinfo=UTC): monday, datetime(2024, 1, 2, tzinfo=UTC): tuesday}
    >>> said = changes_from_snapshots(lists, keys=["id"], source="shop")
    >>> said.orderBy("data.id", "effective_timestamp").select(
    ...     "operation", "effective_timestamp", "message_id", "data"
    ... ).show(truncate=False)
    +---------+-------------------+-----------------------+-----------+
    |operation|effective_timestamp|message_id             |data       |
    +---------+-------------------+-----------------------+-----------+
    |upsert   |2024-01-01 00:00:00|shop-list-60dd710212000|{1, kettle}|
    |upsert   |2024-01-02 00:00:00|shop-list-60deb2df88000|{1, teapot}|
    |upsert   |2024-01-01 00:00:00|shop-list-60dd710212000|{2, mug}   |
    |absent   |2024-01-02 00:00:00|shop-list-60deb2df88000|{2, NULL}  |
    +---------+-------------------+-----------------------+-----------+
    <BLANKLINE>
    """
    require_int(priority, "priority", function=_FUNCTION)
    require_flag(compared, "compared", function=_FUNCTION)
    lists = united(snapshots, function=_FUNCTION)
    call = Call(_FUNCTION, "snapshots", lists.frame, lists.columns, lists.cells)
    key_names = call.keys(keys)
    fields = call.fields(key_names, column_list, except_column_list)
    by = call.source(source)
    _require_key_everywhere(call, key_names, lists.lacking)
    at = lists.taken
    time = times.Unreadable("taken", "taken", F.lit(None).cast("string"), "")
    if at is None:
        at = _taken(call, taken)
        time = call.unreadable(taken, "taken", Table(lists.frame, lists.columns, lists.row))
    elif taken is not None:
        raise InvalidArgument(_FUNCTION, "taken", "left out, since each list has its instant", taken)
    call.require_sound()
    after = F.lit(None).cast("timestamp") if lists.next_taken is None else lists.next_taken
    rows = lists.frame.select(
        by.alias("source"),
        at.alias("taken"),
        time.value.alias("time_said"),
        after.alias("next_taken"),
        F.struct(*(F.col(quoted(name)).alias(name) for name in fields)).alias("data"),
        F.struct(*(_carried(at, lists.lacking.get(name, ())).alias(name) for name in fields)).alias(
            "carried"
        ),
    )
    placed = rows if lists.next_taken is not None else _with_next(rows)
    operation = _sound(time._replace(value=F.col("time_said")), key_names)
    return _changes(_compared(placed, key_names, operation, compared=compared), priority)


def _taken(call: Call, said: str | Column | None) -> Column:
    if said is None:
        call.lacks_taken()
        return F.lit(None).cast("timestamp")
    return call.instant(said, "taken")


def _require_key_everywhere(
    call: Call, keys: Sequence[str], lacking: Mapping[str, Sequence[datetime]]
) -> None:
    for name in keys:
        if lacking.get(name):
            at = ", ".join(each.isoformat() for each in lacking[name])
            call.wrong.append(f"the key {name} is no column of the list of {at}")


def _carried(at: Column, lacking: Sequence[datetime]) -> Column:
    if not lacking:
        return F.lit(True)
    instants = [microseconds(each, "the instant of a list", function=_FUNCTION) for each in lacking]
    return ~F.unix_micros(at).isin(*instants)


def _with_next(rows: DataFrame) -> DataFrame:
    """Each row with the instant of the list of its source after its own."""
    in_order = Window.partitionBy("source").orderBy("taken")
    lists = rows.select("source", "taken").distinct().withColumn("later", F.lead("taken").over(in_order))
    named = lists.select(F.col("source").alias("by"), F.col("taken").alias("at"), "later")
    same = F.col("source").eqNullSafe(F.col("by")) & F.col("taken").eqNullSafe(F.col("at"))
    joined = rows.join(F.broadcast(named), same, how="left")
    return joined.withColumn("next_taken", F.col("later")).drop("by", "at", "later")


def _compared(rows: DataFrame, keys: Sequence[str], operation: Column, *, compared: bool) -> DataFrame:
    """What each row says: that its entity is there, that it is gone with the next list, both, or nothing."""
    once, in_order = _once_in_a_list(rows, keys)
    data = require_struct(rows, "data", function=_FUNCTION)
    follows = F.lag("next_taken").over(in_order).eqNullSafe(F.col("taken"))
    unchanged = follows & F.lag("content").over(in_order).eqNullSafe(F.col("content"))
    goes_on = F.lead("taken").over(in_order).eqNullSafe(F.col("next_taken"))
    stated = F.struct(
        operation.alias("operation"), F.col("taken").alias("effective_timestamp"), "data", "carried"
    )
    values, only = key_alone(F.col("data"), keys, data)
    gone = F.struct(
        F.lit(ABSENT).alias("operation"),
        F.col("next_taken").alias("effective_timestamp"),
        values.alias("data"),
        only.alias("carried"),
    )
    is_new = ~unchanged if compared else F.lit(True)
    ends = F.col("next_taken").isNotNull() & ~goes_on
    says = once.withColumns({"is_new": is_new, "ends": ends})
    both = F.array(F.when(F.col("is_new"), stated), F.when(F.col("ends"), gone))
    return says.select("source", F.explode(F.filter(both, lambda each: each.isNotNull())).alias("said"))


def _once_in_a_list(rows: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, WindowSpec]:
    """The rows, each once; `again` where a list then says another thing of its entity; and their order."""
    data = require_struct(rows, "data", function=_FUNCTION)
    carried = require_struct(rows, "carried", function=_FUNCTION)
    # Equal values have one text: what this digest tells apart, `merge` tells apart.
    content = F.md5(F.concat(as_text(F.col("data"), data), as_text(F.col("carried"), carried)))
    of_key = {
        f"key {n}": comparable(F.col("data").getField(name), data[name].dataType)
        for n, name in enumerate(keys)
    }
    in_order = Window.partitionBy("source", *map(quoted, of_key)).orderBy("taken", "content")
    before, said_before = F.lag("taken").over(in_order), F.lag("content").over(in_order)
    again = said_before.isNotNull() & before.eqNullSafe(F.col("taken"))
    named = rows.withColumns(of_key).withColumn("content", content)
    marked = named.withColumns({"again": again, "same": said_before.eqNullSafe(F.col("content"))})
    return marked.where(~(F.col("again") & F.col("same"))), in_order


def _sound(time: times.Unreadable, keys: Sequence[str]) -> Column:
    """The operation; ends the job for a row that no list can hold."""
    of_key = [F.col("data").getField(name) for name in keys]
    row = F.to_json(F.col("data"))
    no_key = f"changes_from_snapshots() needs a key for every row, and {', '.join(keys)} are null in: "
    twice = (
        "changes_from_snapshots() needs each entity once in a list, and one names it again, not the same: "
    )
    return (
        F.when(F.col("taken").isNull(), F.raise_error(time.sentence(_FUNCTION, row)))
        .when(reduce(and_, (each.isNull() for each in of_key)), F.raise_error(F.concat(F.lit(no_key), row)))
        .when(F.col("again"), F.raise_error(F.concat(F.lit(twice), row)))
        .otherwise(UPSERT)
    )


def _changes(found: DataFrame, priority: int) -> DataFrame:
    said = found.select("source", "said.*")
    at = F.col("effective_timestamp")
    return said.select(
        "operation",
        "effective_timestamp",
        F.lit("").alias("sequence"),
        F.struct(
            at.alias("timestamp"),
            F.lit("table").alias("topic"),
            F.lit(0).alias("partition"),
            F.lit(0).cast("bigint").alias("offset"),
            F.lit(1).alias("record_number"),
        ).alias("arrival"),
        # No text of the instant: it would be a second clock in a table that is shown in another zone.
        F.concat_ws("-", "source", F.lit("list"), F.lower(F.hex(F.unix_micros(at)))).alias("message_id"),
        "source",
        F.lit(priority).alias("priority"),
        "data",
        "carried",
    )
