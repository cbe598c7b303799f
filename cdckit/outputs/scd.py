"""Slowly changing dimensions: a history as a table of type 1, 2, 3, 4 or 6."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.history import (
    DELETED,
    FIELD_PROVENANCE,
    OPEN_END,
    SOURCE_MESSAGE,
    VALID_FROM,
    VALID_TO,
    is_deleted,
)
from cdckit.outputs.history_arguments import HistoryArguments
from cdckit.parts.argument_forms import FLAG, takes
from cdckit.parts.arguments import free_name, microseconds, quoted, quoted_columns, require_name
from cdckit.parts.values import comparable
from cdckit.query.as_of import current
from cdckit.query.intervals import continues_previous, is_ever_in_force


def fold_versions(versions: DataFrame, tracked: Sequence[T.StructField]) -> DataFrame:
    """
    Fold neighbouring versions of an entity that are equal in the tracked fields into one row.

    Two versions are neighbours if one begins at the instant at which the other ends; a deleted one is never
    equal to one that is not.  The row is the last version of the run, from the first one's beginning on.
    """
    continues, begins, ends = (free_name(name, versions.columns) for name in ("continues", "begins", "ends"))
    in_time = Window.partitionBy("guid").orderBy(VALID_FROM)
    until_here = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    content = F.struct(
        is_deleted(), *(comparable(F.col(quoted(field.name)), field.dataType) for field in tracked)
    )
    first = F.when(~F.col(continues), F.col(VALID_FROM))
    runs = versions.withColumn(continues, continues_previous(in_time, content)).withColumns(
        {
            begins: F.last(first, ignorenulls=True).over(until_here),
            ends: ~F.coalesce(F.lead(continues).over(in_time), F.lit(False)),
        }
    )
    return runs.where(F.col(ends)).withColumn(VALID_FROM, F.col(begins)).drop(continues, begins, ends)


@takes(provenance=FLAG)
def scd_type_1(history: DataFrame, *, provenance: bool = False) -> DataFrame:
    """
    Keep one row per entity that is there now, with its values of now ("overwrite").

    Args:
        history: One row per version, as `merge` makes it or `Ledger.history()` keeps it.
        provenance: Whether `source_message`, and `field_provenance` where *history* has it, come along.

    Returns:
        `guid` and the fields of the entity.  An entity that is deleted now has no row, as AUTO CDC
        removes it; one that came back has one.  A version that begins in the future counts, and one with
        a known end does not, see `current`: for an instant of your own ask `as_of(history, valid_at)`.

    Raises:
        UnfitHistory: *history* is no history; all that is wrong is said at once.
        InvalidArgument: *history* is bitemporal.

    Cost: one filter, no shuffle.

    Source:
        Kimball's type 1; AUTO CDC's `stored_as_scd_type=1`.

    >>> scd_type_1(history).drop("guid").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    """
    call = HistoryArguments(history)
    versions = call.require_all().where(is_ever_in_force())
    return current(versions).select(
        quoted_columns(["guid", *call.known.fieldNames(), *_messages(versions, provenance)])
    )


def _messages(history: DataFrame, provenance: bool) -> list[str]:
    """Name the columns that say by which message a row is so, where they are asked for."""
    wanted = (SOURCE_MESSAGE, FIELD_PROVENANCE) if provenance else ()
    return [name for name in wanted if name in history.columns]


IS_CURRENT = "is_current"


@takes(deletes=FLAG, provenance=FLAG)
def scd_type_2(
    history: DataFrame,
    *,
    track_history_column_list: Iterable[str] | None = None,
    track_history_except_column_list: Iterable[str] | None = None,
    valid_to_current: datetime | None = None,
    surrogate_key: str | None = None,
    deletes: bool = False,
    provenance: bool = False,
) -> DataFrame:
    """
    Make one row per version of an entity ("add a row").

    Neighbouring versions that are equal in every tracked field are one row: it begins with the first of them,
    and everything else in it is what the last of them says.  So a field that is not tracked shows its newest
    value within the row, and a version that brought no other value than a new provenance is no row.

    Args:
        history: One row per version, as `merge` makes it or `Ledger.history()` keeps it; the versions of an
            entity do not overlap, which is not checked here (see `find_overlaps`).
        track_history_column_list: The fields whose changes open a row.  With an empty list none does: a row
            is then the life of an entity from its insert to its delete.
        track_history_except_column_list: Instead: all fields but these open one.  Without both, all do.
        valid_to_current: What stands in `valid_to_timestamp` where a version has not ended, such as
            `datetime(9999, 12, 31, tzinfo=UTC)`; null without it.  dbt calls it so.
        surrogate_key: The name of a column that is added in front: one text for each row, made of `guid` and
            `valid_from_timestamp`.  The same row has the same key on every run and every machine, so
            a fact gets it by `as_of_join(facts, Lookup(table, on=…, fields=[surrogate_key], …))`; a late
            change that moves a beginning gives another key, and its facts are to be joined again.
        deletes: Whether the time in which an entity was deleted has a row, too, with nulls in all fields but
            the keys.  Without it the last row ends when the entity is deleted, and there is a gap
            until it comes back.
        provenance: Whether `field_provenance` comes along, where *history* has it.

    Returns:
        `guid`, the fields, and behind them, as dbt and AUTO CDC have it, what is said of the row:
        `valid_from_timestamp`, `valid_to_timestamp` (exclusive), `is_current` (the version has not ended),
        `deleted_indicator`, `source_message`.  It is a history, too: `as_of`, `between` and `as_of_join`
        take it.  With *valid_to_current* the metadata of `valid_to_timestamp` say what
        stands for an open end, by which every question knows it, and answers with null; where
        another program has written the table anew they do not: ask for `is_current` there.  The year
        9999 is more than Spark's own `toPandas` can hold (nanoseconds end in 2262); `to_pandas` holds
        it.  What others call these columns:

        - dbt: `dbt_valid_from`, `dbt_valid_to`, `dbt_is_deleted`, and `dbt_scd_id` for the key;
        - Kimball: row effective date, row expiration date, current row indicator, surrogate key;
        - AUTO CDC: `__START_AT`, `__END_AT`.

    Raises:
        UnfitHistory: *history* is no history, has the name of a new column already, or a list names what is
            no field; all that is wrong is said at once, with a call that would do.
        InvalidArgument: *valid_to_current* is a naive datetime.

    Cost: one shuffle by guid and one sort.

    Source:
        Kimball's type 2.  What opens a row: AUTO CDC's `TRACK HISTORY ON`, as Apache Spark's
        `Scd2BatchProcessor` has it: changes of a key that follow each other without a gap and are equal in
        every tracked column are one record, whose other columns are those of the last; a delete ends a
        record and is none.
        `deletes=True` is dbt's `hard_deletes: new_record`.

    >>> table = scd_type_2(history, surrogate_key="product_key").orderBy("number", "valid_from_timestamp")
    >>> table.select("number", "name", "valid_from_timestamp", "valid_to_timestamp", "is_current").show()
    +------+------+--------------------+-------------------+----------+
    |number|  name|valid_from_timestamp| valid_to_timestamp|is_current|
    +------+------+--------------------+-------------------+----------+
    |     1|kettle| 2024-01-01 09:00:00|2024-01-01 10:00:00|     false|
    |     1|teapot| 2024-01-01 10:00:00|               NULL|      true|
    |     2|   mug| 2024-01-01 09:00:00|2024-01-01 11:00:00|     false|
    +------+------+--------------------+-------------------+----------+
    <BLANKLINE>
    >>> lives = scd_type_2(history, track_history_except_column_list=["name"])
    >>> lives.orderBy("number").select("number", "name").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    |     2|   mug|
    +------+------+
    <BLANKLINE>
    """
    call = HistoryArguments(history)
    tracked = _tracked_fields(call, track_history_column_list, track_history_except_column_list)
    return _type_2(
        call,
        tracked,
        valid_to_current=valid_to_current,
        surrogate_key=surrogate_key,
        deletes=deletes,
        provenance=provenance,
    )


@dataclass(frozen=True)
class ScdType4:
    """
    Two tables of the same columns, which together hold each version once; at the end of a cell, both of them.

    Args:
        current: The version of each entity that is there now: one row per entity.
        history: The versions that have ended.

    >>> now, before = scd_type_4(history)
    >>> now.count(), before.count()
    (1, 2)
    """

    current: DataFrame
    history: DataFrame

    # No named tuple: IPython writes every tuple in its own way.
    def __iter__(self) -> Iterator[DataFrame]:
        return iter((self.current, self.history))


@takes(provenance=FLAG)
def scd_type_4(
    history: DataFrame,
    *,
    track_history_column_list: Iterable[str] | None = None,
    track_history_except_column_list: Iterable[str] | None = None,
    surrogate_key: str | None = None,
    provenance: bool = False,
) -> ScdType4:
    """
    Split the rows of `scd_type_2` into what is current and what has been ("add a history table").

    Args:
        history, track_history_column_list, track_history_except_column_list: As for `scd_type_2`.
        surrogate_key, provenance: As for `scd_type_2`.

    Returns:
        `current` and `history`, in the columns of `scd_type_2` without `is_current`.  No row is in both.  An
        entity that is deleted now has rows in `history` alone.

    Raises:
        UnfitHistory, InvalidArgument: As `scd_type_2`.

    Cost: each of the two tables is one shuffle by guid and one sort of the whole history.

    Source:
        The history table that many call type 4, as the system-versioned tables of SQL:2011 keep it.
        (Kimball's own type 4 is another thing, a mini-dimension.)

    >>> tables = scd_type_4(history)
    >>> tables.current.select("number", "name").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    >>> tables.history.orderBy("number").select("number", "name", "valid_to_timestamp").show()
    +------+------+-------------------+
    |number|  name| valid_to_timestamp|
    +------+------+-------------------+
    |     1|kettle|2024-01-01 10:00:00|
    |     2|   mug|2024-01-01 11:00:00|
    +------+------+-------------------+
    <BLANKLINE>
    """
    call = HistoryArguments(history)
    tracked = _tracked_fields(call, track_history_column_list, track_history_except_column_list)
    rows = _type_2(call, tracked, surrogate_key=surrogate_key, provenance=provenance, flags=())
    return ScdType4(rows.where(F.col(VALID_TO).isNull()), rows.where(F.col(VALID_TO).isNotNull()))


def _tracked_fields(
    call: HistoryArguments, listed: Iterable[str] | None, excepted: Iterable[str] | None
) -> Sequence[T.StructField]:
    """Find the fields whose changes open a row: those that are listed, all but some, or all."""
    if listed is not None and excepted is not None:
        call.refuse(
            "track_history_column_list and track_history_except_column_list are both given: one says it"
        )
    if listed is not None:
        return call.fields(listed, "track_history_column_list", empty=True)
    if excepted is None:
        return list(call.known)
    left_out = call.fields(excepted, "track_history_except_column_list", empty=True)
    return [field for field in call.known if field not in left_out]


def _type_2(
    call: HistoryArguments,
    tracked: Sequence[T.StructField],
    *,
    fields: Sequence[T.StructField] = (),
    valid_to_current: datetime | None = None,
    surrogate_key: str | None,
    deletes: bool = False,
    provenance: bool,
    flags: Sequence[str] = (IS_CURRENT,),
) -> DataFrame:
    """Make the rows of type 2, with the values of now of *fields*, and *flags* for what has not ended."""
    open_end = None
    if valid_to_current is not None:
        open_end = microseconds(valid_to_current, "valid_to_current")
    key = [] if surrogate_key is None else [require_name(surrogate_key, "surrogate_key")]
    call.new_columns([*key, *flags, *(_current(field.name) for field in fields)])
    versions = call.require_all().where(is_ever_in_force())
    rows = fold_versions(versions if deletes else versions.where(~is_deleted()), tracked)
    begins, ends, now = F.col(VALID_FROM), F.col(VALID_TO), _values_of_now(fields)
    # The instant as a number: its text would depend on the session's zone.
    version = F.md5(F.concat_ws("|", "guid", F.unix_micros(begins).cast("string")))
    columns = dict.fromkeys(key, version)
    columns |= {name: F.col(quoted(name)) for name in ("guid", *call.known.fieldNames(), *now)}
    columns |= {VALID_FROM: begins, VALID_TO: ends} | dict.fromkeys(flags, ends.isNull())
    about = [DELETED, SOURCE_MESSAGE]
    if provenance and FIELD_PROVENANCE in rows.columns:
        about.append(FIELD_PROVENANCE)
    # Of no columns Spark Connect knows nothing.
    with_now = rows.withColumns(now) if now else rows
    named_columns = (column.alias(name) for name, column in columns.items())
    table = with_now.select(*named_columns, *quoted_columns(about))
    if open_end is None:
        return table
    stands_for_open = F.coalesce(ends, F.timestamp_micros(F.lit(open_end)))
    return table.withColumn(VALID_TO, stands_for_open).withMetadata(VALID_TO, {OPEN_END: open_end})


def _values_of_now(fields: Sequence[T.StructField]) -> dict[str, Column]:
    """Read what the last version of an entity that is not deleted says in some fields."""
    life = (
        Window.partitionBy("guid")
        .orderBy(VALID_FROM)
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    # In a struct: a value that is null is the last one like any other.
    values = F.struct(*(_value(field).alias(field.name) for field in fields))
    last = F.last(F.when(~is_deleted(), values), ignorenulls=True).over(life)
    return {_current(field.name): last.getField(field.name) for field in fields}


@takes(provenance=FLAG)
def scd_type_3(history: DataFrame, fields: Iterable[str], *, provenance: bool = False) -> DataFrame:
    """
    Keep one row per entity that is there now, with its values of now and the previous ones of some fields.

    Args:
        history: One row per version, as `merge` makes it or `Ledger.history()` keeps it; the versions of an
            entity do not overlap, which is not checked here (see `find_overlaps`).
        fields: The fields whose previous value is wanted.
        provenance: Whether `source_message`, and `field_provenance` where *history* has it, come along.

    Returns:
        The rows and columns of `scd_type_1`, and for each of *fields*

        - `previous_<field>`: the last value that was another one, null being a value like any other;
        - `<field>_changed_at_timestamp`: since when the present value stands in its place; null if the field
          never had another value (so that a previous null and none are two things).

        What an entity had before it was deleted and came back counts; that it was deleted is no value.

    Raises:
        UnfitHistory: *history* is no history, has the name of a new column already, or *fields* is empty
            or names what is no field; all that is wrong is said at once, with a call that would do.
        InvalidArgument: *history* is bitemporal.

    Cost: one shuffle by guid and one sort.

    Source:
        Kimball's type 3, "add new attribute", with the effective date of the change.

    >>> scd_type_3(history, ["name"]).drop("guid").show()
    +------+------+-------------+-------------------------+
    |number|  name|previous_name|name_changed_at_timestamp|
    +------+------+-------------+-------------------------+
    |     1|teapot|       kettle|      2024-01-01 10:00:00|
    +------+------+-------------+-------------------------+
    <BLANKLINE>
    """
    call = HistoryArguments(history)
    chosen_fields = call.fields(fields, "fields")
    new = [name for field in chosen_fields for name in _names(field)]
    call.new_columns(new)
    alive = call.require_all().where(is_ever_in_force() & ~is_deleted())
    names = ["guid", *call.known.fieldNames(), *new, *_messages(history, provenance)]
    return current(_with_previous(alive, chosen_fields)).select(quoted_columns(names))


def _with_previous(alive: DataFrame, fields: Sequence[T.StructField]) -> DataFrame:
    """Add to versions the value that stood before the present one, and when that one came."""
    before = free_name("before", alive.columns)
    in_time = Window.partitionBy("guid").orderBy(VALID_FROM)
    until_here = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    values = F.struct(*(_value(field).alias(f"value_{place}") for place, field in enumerate(fields)))
    versions = alive.withColumn(before, F.lag(values).over(in_time))
    previous_columns: dict[str, Column] = {}
    for place, field in enumerate(fields):
        previous_value = F.col(before).getField(f"value_{place}")
        same = comparable(previous_value, field.dataType).eqNullSafe(
            comparable(_value(field), field.dataType)
        )
        change = F.struct(previous_value.alias("value"), F.col(VALID_FROM).alias("at"))
        last = F.last(F.when(F.col(before).isNotNull() & ~same, change), ignorenulls=True).over(until_here)
        previous, at = _names(field)
        previous_columns |= {previous: last.getField("value"), at: last.getField("at")}
    return versions.withColumns(previous_columns)


def _value(field: T.StructField) -> Column:
    return F.col(quoted(field.name))


def _names(field: T.StructField) -> tuple[str, str]:
    return f"previous_{field.name}", f"{field.name}_changed_at_timestamp"


@takes(deletes=FLAG, provenance=FLAG)
def scd_type_6(
    history: DataFrame,
    fields: Iterable[str],
    *,
    track_history_column_list: Iterable[str] | None = None,
    track_history_except_column_list: Iterable[str] | None = None,
    valid_to_current: datetime | None = None,
    surrogate_key: str | None = None,
    deletes: bool = False,
    provenance: bool = False,
) -> DataFrame:
    """
    Make one row per version, with the values of then and, of some fields, of now (1 + 2 + 3 = 6).

    Args:
        history, track_history_column_list, track_history_except_column_list: As for `scd_type_2`.
        fields: The fields whose current value is wanted in each row.
        valid_to_current, surrogate_key, deletes, provenance: As for `scd_type_2`.

    Returns:
        The rows and columns of `scd_type_2`, and behind the fields `current_<field>` for each of *fields*:
        its value in the last version of the entity that is not deleted.  So what was sold to a customer who
        left is still counted for the region that the customer had last; `is_current` says who left.

    Raises:
        UnfitHistory, InvalidArgument: As `scd_type_2`; *fields* is empty or names what is no field.

    Cost: as `scd_type_2`, and one more sort; no second shuffle.

    Source:
        Kimball's type 6: a type 1 attribute in a dimension of type 2, beside it as in type 3.

    >>> table = scd_type_6(history, ["name"]).orderBy("number", "valid_from_timestamp")
    >>> table.select("number", "name", "current_name", "is_current").show()
    +------+------+------------+----------+
    |number|  name|current_name|is_current|
    +------+------+------------+----------+
    |     1|kettle|      teapot|     false|
    |     1|teapot|      teapot|      true|
    |     2|   mug|         mug|     false|
    +------+------+------------+----------+
    <BLANKLINE>
    """
    call = HistoryArguments(history)
    chosen_fields = call.fields(fields, "fields")
    tracked = _tracked_fields(call, track_history_column_list, track_history_except_column_list)
    return _type_2(
        call,
        tracked,
        fields=chosen_fields,
        valid_to_current=valid_to_current,
        surrogate_key=surrogate_key,
        deletes=deletes,
        provenance=provenance,
    )


def _current(field: str) -> str:
    return f"current_{field}"
