"""Changes from full lists of a source: what a list names is there, what the next one leaves out is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import note_empty
from cdckit.model.list_comparison import CORRUPT, NAMED_LISTS, compare_lists, has_corrupt_rows, listed_fields
from cdckit.parts.argument_forms import FLAG, INT, takes
from cdckit.parts.arguments import free_name, microseconds, quoted, require_batch, wrong_argument, wrong_type
from cdckit.parts.tables import AnyTable, require_distinct
from cdckit.parts.widening import (
    TIMES_IN_LISTS,
    as_type,
    common_spark_type,
    has_void,
    is_made_text,
    is_other_beside_time,
    void_as_text,
)
from cdckit.tables.table_arguments import GivenTable, TableArguments, as_table, column_name

_TEXT_KEYS = "Read the keys of every list in the same way, such as by `dtype=str` or a cast to string."
_STREAMED = "keep the lists, and give those that came so far"

Lists = AnyTable | Mapping[datetime, AnyTable] | Sequence[tuple[datetime, AnyTable]]


class UnitedLists(NamedTuple):
    """
    All lists as one table, and when each row's list and the next one were taken.

    `taken` is None where the lists are one table already and the caller says what tells them apart; `lacking`
    are, by column, the instants of the lists that do not have it; `instants` are those of all lists that are
    known without reading them.
    """

    table: GivenTable
    taken: Column | None = None
    next_taken: Column | None = None
    lacking: Mapping[str, Sequence[datetime]] = MappingProxyType({})
    instants: Sequence[datetime] = ()


def unite_lists(snapshots: Lists, keys: Collection[object]) -> UnitedLists:
    """One table of all lists; columns of one name get a type that holds the values of all lists."""
    if not isinstance(snapshots, Mapping | list | tuple):
        table = as_table(snapshots, keys=keys).typed()  # type: ignore[arg-type]
        require_batch(table.frame, "snapshots", _STREAMED)
        return UnitedLists(table)
    named = {key for key in keys if isinstance(key, str)}
    return _union(_sort_lists(snapshots, keys), named)


def _sort_lists(snapshots: Any, keys: Collection[object]) -> list[tuple[datetime, GivenTable]]:
    pairs = list(snapshots.items()) if isinstance(snapshots, Mapping) else list(snapshots)
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        needed = (
            "a table, or full lists with the instants at which they were taken, such as "
            "{datetime(2024, 1, 1, tzinfo=UTC): frame}"
        )
        raise wrong_argument("snapshots", needed, [type(pair).__name__ for pair in pairs])
    by_time: dict[int, tuple[datetime, GivenTable]] = {}
    for at, frame in pairs:
        table = as_table(frame, keys=keys)
        require_batch(table.frame, "snapshots", _STREAMED)
        place = microseconds(at, "the instant of a list")
        if place in by_time:
            raise wrong_argument("snapshots", "one list for each instant", at.isoformat())
        by_time[place] = at.astimezone(UTC), table
    return [by_time[place] for place in sorted(by_time)]


def _union(lists: Sequence[tuple[datetime, GivenTable]], keys: Collection[str]) -> UnitedLists:
    columns = [(table, name) for _, table in lists for name in table.columns]
    kinds: dict[str, T.DataType] = dict.fromkeys((name for _, name in columns), T.NullType())
    for table, name in columns:
        kind = table.empty.get(name, table.frame.schema[name].dataType)
        kinds[name] = _common(name, kinds[name], kind, is_key=name in keys)
    empty = {name: kind for name, kind in kinds.items() if has_void(kind)}
    for table, name in columns:
        if isinstance(kinds[name], T.NullType):
            kinds[name] = table.frame.schema[name].dataType
    kinds = {name: void_as_text(kind) for name, kind in kinds.items()}
    require_distinct(list(kinds))
    taken, after = free_name("taken", kinds), free_name("next taken", kinds)
    instants = [at for at, _ in lists]
    frames = [
        table.frame.select(*_columns(table, kinds), _literal(at).alias(taken), _literal(next_).alias(after))
        for (at, table), next_ in zip(lists, [*instants[1:], None], strict=True)
    ]
    lacking = {name: [at for at, table in lists if name not in table.columns] for name in kinds}
    united = reduce(DataFrame.unionByName, frames)
    digits = {name: column for _, table in lists for name, column in table.digits.items()}
    at, next_at = F.col(quoted(taken)), F.col(quoted(after))
    table = GivenTable(united, list(kinds), None, digits=digits, empty=empty)
    return UnitedLists(table, at, next_at, lacking, instants)


def _columns(table: GivenTable, kinds: Mapping[str, T.DataType]) -> list[Column]:
    has = {name: table.frame.schema[name].dataType for name in table.columns}
    columns = {name: F.lit(None).cast(kind) for name, kind in kinds.items()}
    for name, kind in has.items():
        if not isinstance(table.empty.get(name), T.NullType):
            columns[name] = as_type(F.col(quoted(name)), kind, kinds[name], name)
    return [column.alias(name) for name, column in columns.items()]


def _common(name: str, kind: T.DataType, other: T.DataType, *, is_key: bool) -> T.DataType:
    common = common_spark_type(kind, other, as_double=True)
    is_time_once = is_other_beside_time(kind, other)
    # 7 and "007" would be two entities, of which one has ended.
    is_other_key = is_key and is_made_text(common, kind, other)
    if common is None or is_time_once or is_other_key:
        needed = kind.simpleString()
        remedy = TIMES_IN_LISTS if is_time_once else _TEXT_KEYS if is_other_key else None
        raise wrong_type(f"{name} of every list", needed, other.simpleString(), remedy)
    return common


def _literal(at: datetime | None) -> Column:
    if at is None:
        return F.lit(None).cast("timestamp_ltz")
    return F.timestamp_micros(F.lit(microseconds(at, "the instant of a list")))


@takes(priority=INT, compared=FLAG)
def changes_from_snapshots(
    snapshots: Lists,
    *,
    keys: Sequence[str | Column],
    taken_at: str | Column | None = None,
    source: str | Column = "table",
    column_list: Sequence[str | Column] | None = None,
    except_column_list: Sequence[str | Column] | None = None,
    compared: bool = True,
    priority: int = 0,
) -> DataFrame:
    """
    Changes from full lists of a source, taken at several times.

    What a list names is there, with all its fields, at the instant at which the list was taken; what an
    earlier list named and the next one does not is absent from that instant on.  Where one list comes after
    the other, `Ledger.apply_list` takes it alone: the lists of this call are compared with each other only.

    Args:
        snapshots: The lists, of Spark or of pandas (see `changes_from`): a mapping of instant to list,
            a list of pairs of both, or one table of all of them in which *taken_at* tells them apart.  Only
            the first two know a list in which nothing stands.  Instants are aware datetimes.  A column
            that a list does not have was not sent by it; columns that lists have in different types
            get one that holds both, as in `union_changes`.
        keys: The columns that say which entity a row is about.  One of several may be null, not all.
        taken_at: Of one table: when the list of a row was taken.  A column, or an expression: a timestamp, a
            date or an ISO 8601 text, of UTC where it says no zone.
        source: Who says so: a name or, of one table, also a Column; the lists of each source go on by
            themselves.
        column_list: The columns that become fields, beside the keys.  Without it all.
        except_column_list: Those that do not; of one table, the column *taken_at* may be one.
        compared: Whether a row that says what the list before said is no new change.  Otherwise each
            row of each list is one: then a list also takes back what another source of the same priority
            changed since the last one.
        priority: How much it counts (see `with_priorities`).

    Returns:
        One row per row that says something new, and one per entity and list that it is missing in for the
        first time (`cdckit.model.CHANGE_SCHEMA`).  A null in a list is a value.  `message_id` is made of
        the source and the instant of the list: the same list is the same message whenever it is read.

    Raises:
        UnfitTable: Columns that the call names are missing, or of types that cannot mean that: all at once.
        InvalidArgument: *snapshots* are no such lists, or streams; an instant has no zone, or two
            lists; *taken_at* is given and the instants are too.
        WrongColumnType: A column is nested in two lists, and not of one type.
        SparkRuntimeException: When the result is computed (Spark's; its text holds
            `changes_from_snapshots()`): a list names an entity twice, and not the same; a row has no key,
            or no instant that can be read, or could not be read itself (`_corrupt_record`).  None of them is
            left out for you: what a list does not name has ended, so the sentence says how to mend it, or
            how to leave it out.

    Cost: one shuffle by key and one sort, however many lists there are; where they are one table,
    its instants are read before, and broadcast.

    Source:
        Spark's `create_auto_cdc_from_snapshot_flow`, for the rule and for what is refused.

    >>> from datetime import UTC, datetime
    >>> monday = session().createDataFrame([(1, "kettle"), (2, "mug")], "id int, name string")
    >>> tuesday = session().createDataFrame([(1, "teapot")], "id int, name string")
    >>> lists = {datetime(2024, 1, 1, tzinfo=UTC): monday, datetime(2024, 1, 2, tzinfo=UTC): tuesday}
    >>> changes = changes_from_snapshots(lists, keys=["id"], source="shop")
    >>> changes.orderBy("data.id", "effective_timestamp").select(
    ...     "operation", "effective_timestamp", "message_id", "data"
    ... ).show(truncate=False)
    +---------+-------------------+------------------------------+-----------+
    |operation|effective_timestamp|message_id                    |data       |
    +---------+-------------------+------------------------------+-----------+
    |upsert   |2024-01-01 00:00:00|shop-list-2024-01-01T00:00:00Z|{1, kettle}|
    |upsert   |2024-01-02 00:00:00|shop-list-2024-01-02T00:00:00Z|{1, teapot}|
    |upsert   |2024-01-01 00:00:00|shop-list-2024-01-01T00:00:00Z|{2, mug}   |
    |absent   |2024-01-02 00:00:00|shop-list-2024-01-02T00:00:00Z|{2, NULL}  |
    +---------+-------------------+------------------------------+-----------+
    <BLANKLINE>
    """
    lists = unite_lists(snapshots, keys)
    if has_corrupt_rows(lists.table.frame):
        readable = [name for name in lists.table.columns if name != CORRUPT]
        lists = lists._replace(table=lists.table._replace(columns=readable))
    taken_at = column_name(taken_at, lists.table.columns)
    arguments = TableArguments(lists.table)
    key_names = arguments.keys(keys)
    fields = arguments.fields(key_names, column_list, except_column_list)
    by = arguments.source(source)
    _require_key_everywhere(arguments, key_names, lists.lacking)
    at = lists.taken
    time = arguments.unreadable(taken_at, "taken_at")
    if at is None:
        at = _list_time(arguments, taken_at, key_names)
    elif taken_at is not None:
        raise wrong_argument("taken_at", "left out, since each list has its instant", taken_at)
    arguments.require_all()
    after = F.lit(None).cast("timestamp_ltz") if lists.next_taken is None else lists.next_taken
    carried = [_carried(at, lists.lacking.get(name, ())).alias(name) for name in fields]
    rows = lists.table.frame.select(
        by.alias("source"),
        at.alias("taken"),
        arguments.time_text(taken_at).alias("time_said"),
        after.alias("next_taken"),
        F.lit(priority).alias("priority"),
        listed_fields(lists.table.frame, fields).alias("data"),
        F.struct(*carried).alias("carried"),
    )
    placed = rows if lists.next_taken is not None else _with_next(rows)
    no_time = time.sentence("time_said", F.to_json(F.col("data")))
    changes = compare_lists(placed, key_names, no_time, compared=compared)
    if lists.instants and isinstance(source, str):
        instants = [microseconds(at, "taken_at") for at in lists.instants]
        changes = changes.withMetadata("message_id", {NAMED_LISTS: {source: instants}})
    empty = {name: lists.table.empty[name] for name in fields if name in lists.table.empty}
    return (changes.withMetadata("data", note_empty(empty)) if empty else changes).drop("begins")


def _list_time(arguments: TableArguments, expression: str | Column | None, keys: Sequence[str]) -> Column:
    if expression is None:
        arguments.lacks_list_time(keys)
        return F.lit(None).cast("timestamp_ltz")
    return arguments.instant(expression, "taken_at")


def _require_key_everywhere(
    arguments: TableArguments, keys: Sequence[str], lacking: Mapping[str, Sequence[datetime]]
) -> None:
    for name in keys:
        if lacking.get(name):
            at = ", ".join(instant.isoformat() for instant in lacking[name])
            arguments.refuse(f"the key {name} is no column of the list of {at}")


def _carried(at: Column, lacking: Sequence[datetime]) -> Column:
    if not lacking:
        return F.lit(True)
    instants = [microseconds(instant, "the instant of a list") for instant in lacking]
    return ~F.unix_micros(at).isin(*instants)


def _with_next(rows: DataFrame) -> DataFrame:
    """Each row with the instant of the list of its source after its own."""
    in_order = Window.partitionBy("source").orderBy("taken")
    lists = rows.select("source", "taken").distinct().withColumn("later", F.lead("taken").over(in_order))
    named = lists.select(F.col("source").alias("by"), F.col("taken").alias("at"), "later")
    same = F.col("source").eqNullSafe(F.col("by")) & F.col("taken").eqNullSafe(F.col("at"))
    joined = rows.join(F.broadcast(named), same, how="left")
    return joined.withColumn("next_taken", F.col("later")).drop("by", "at", "later")
