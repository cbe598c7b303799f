"""Time as a quantity: how long values stood, means weighted by time, and counts as functions of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.forms import history_with
from cdckit.model.history import DELETED, VALID_FROM, VALID_TO, business_fields, is_deleted
from cdckit.parts.argument_forms import Form, takes
from cdckit.parts.arguments import listed, quoted, require_fields, require_period, wrong_argument, wrong_type
from cdckit.parts.instants import microseconds
from cdckit.query.as_of import versions_within
from cdckit.query.intervals import comparable_column

VERSIONS = history_with("guid", VALID_FROM, VALID_TO, DELETED)


def _check_end(end: Any, argument: str) -> Any:
    if end is None:
        needed = "an aware datetime: without one the answer would depend on when it is asked"
        raise wrong_argument(argument, needed, end)
    return end


END = Form(_check_end, "InvalidArgument: {} is None")


@takes(history=VERSIONS, end=END)
def durations(
    history: DataFrame,
    fields: str | Sequence[str],
    start: datetime,
    end: datetime,
    *,
    by: str | Sequence[str] = (),
) -> DataFrame:
    """
    Measure how long fields had each of their values in a period, all entities of a group together.

    Intervals are half-open, so each instant counts once.  A version that is still current lasts until
    *end*: no clock is asked.  While an entity is deleted it has no value, and counts nowhere; a null of
    an entity that is there is a value like any other.

    Args:
        history: One row per version; intervals of one entity must not overlap, which is not checked
            here (see `find_overlaps`): time that two versions claim counts twice.
        fields: A business field or several; of several, each combination of values is one.
        start: Where the period begins: an aware datetime in any zone.
        end: Where it ends, later than *start*.
        by: The groups: business fields or `guid`, each taken from the version whose time it is.  None
            by default: all entities are one group.

    Returns:
        One row per group and value that lasted: *by*, *fields*, `seconds` (double; summed as whole
        microseconds, so exact up to 285 years, and to 15 digits beyond) and `versions` (bigint), how
        many of them said it.  Two neighbouring versions with the same value are two versions.  A field of
        maps comes as their sorted entries, one of variants as JSON: so equal values meet.

    Raises:
        InvalidArgument: *start* or *end* is a naive datetime, *end* is not after *start*; *fields* or *by*
            names nothing, something twice or something that is not there; *history* has a field
            `seconds` or `versions` that is asked for.

    Cost: one filter and one aggregation, with as many rows shuffled as there are groups and values in
    each partition.

    Source:
        Snodgrass, Developing Time-Oriented Database Applications in SQL, 1999, ch. 6: duration of a value.

    >>> from datetime import datetime, timezone
    >>> nine, noon = (datetime(2024, 1, 1, hour, tzinfo=timezone.utc) for hour in (9, 12))
    >>> durations(history, "name", nine, noon).orderBy("name").show()
    +------+-------+--------+
    |  name|seconds|versions|
    +------+-------+--------+
    |kettle| 3600.0|       1|
    |   mug| 7200.0|       1|
    |teapot| 7200.0|       1|
    +------+-------+--------+
    <BLANKLINE>
    """
    names = listed(fields)
    groups = listed(by)
    kept = require_groups(history, groups, names, made=["seconds", "versions"])
    counted = _seconds().alias("seconds"), F.count(F.lit(1)).alias("versions")
    return _alive(history, start, end).groupBy(*kept).agg(*counted)


@takes(history=VERSIONS, end=END)
def weighted_means(
    history: DataFrame,
    fields: str | Sequence[str],
    start: datetime,
    end: datetime,
    *,
    by: str | Sequence[str] = (),
) -> DataFrame:
    """
    The mean of each field in a period, in which a value counts by how long it was in force.

    The mean price of a product that cost 10 for three hours and 20 for one is 12.5, however often it was
    said.  Time without a value (a null, or a deleted entity) counts neither above nor below the line.

    Args:
        history: One row per version, as for `durations`.
        fields: A business field of numbers, or several.
        start: Where the period begins: an aware datetime in any zone.
        end: Where it ends, later than *start*; a version that is still current lasts until then.
        by: The groups, as for `durations`.

    Returns:
        One row per group: *by*, and each field with its mean (double; null where it never had a value;
        NaN where it was NaN for a while).  Without *by* there is one row, also of a period without entities.
        Values are added up as doubles, so the last digits may depend on the order of the rows.

    Raises:
        InvalidArgument: As `durations`.
        WrongColumnType: A field is no number.

    Cost: one filter and one aggregation.

    >>> from datetime import datetime, timezone
    >>> nine, one = (datetime(2024, 1, 1, hour, tzinfo=timezone.utc) for hour in (9, 13))
    >>> priced = history.withColumn("price", F.when(F.col("name") == "kettle", 20).otherwise(10))
    >>> weighted_means(priced, "price", nine, one, by="number").orderBy("number").show()
    +------+-----+
    |number|price|
    +------+-----+
    |     1| 12.5|
    |     2| 10.0|
    +------+-----+
    <BLANKLINE>
    """
    names = listed(fields)
    groups = listed(by)
    kept = require_groups(history, groups, names, made=[])[: len(groups)]
    for name in names:
        if not isinstance(kind := history.schema[name].dataType, T.NumericType):
            raise wrong_type(name, "a number", kind.simpleString())
    means = [_mean(F.col(quoted(name)).cast("double")).alias(name) for name in names]
    return _alive(history, start, end).groupBy(*kept).agg(*means)


def require_groups(
    history: DataFrame,
    by: Iterable[str],
    fields: str | Iterable[str] | None,
    *,
    argument: str = "fields",
    made: Sequence[str],
) -> list[Column]:
    """
    The columns that rows are grouped by, in forms in which equal values meet: *by*, then *fields*, if any.

    Raises:
        InvalidArgument: Names that are none, come twice, are not there or are those of the columns that are
            *made*.

    """
    columns = business_fields(history).fieldNames()
    groups, names = list(by), []
    if fields is not None:
        names = require_fields(fields, columns, argument)
    if groups:
        free = [name for name in ("guid", *columns) if name not in names]
        require_fields(groups, free, "by")
    taken = [name for name in (*groups, *names) if name.lower() in made]
    if taken:
        raise wrong_argument("history", f"of fields with other names than {', '.join(made)}", taken)
    return [comparable_column(history, name).alias(name) for name in (*groups, *names)]


def _alive(history: DataFrame, start: datetime, end: datetime) -> DataFrame:
    """The versions of entities that were there, cut to the period."""
    return versions_within(history, start, end).where(~is_deleted())


def _micros() -> Column:
    return F.unix_micros(VALID_TO) - F.unix_micros(VALID_FROM)


def _seconds() -> Column:
    """
    The time of all versions of a group.

    Whole seconds and the rest apart: as microseconds, 300,000 years of all entities together are too many
    for a bigint.
    """
    million = F.lit(1_000_000)
    whole = F.sum(F.call_function("div", _micros(), million))
    return whole + F.sum(F.pmod(_micros(), million)) / million


def _mean(value: Column) -> Column:
    seconds = _micros() / F.lit(1_000_000)
    return F.try_divide(F.sum(value * seconds), F.sum(F.when(value.isNotNull(), seconds)))


ENTITIES = "entities"
AT = "at_timestamp"
_MOST = 1_000_000
"""As many instants as a grid may have: more are a slip of the hand."""
_DAY = 86_400_000_000
"""In microseconds."""


@takes(history=VERSIONS, end=END)
def counts_over_time(
    history: DataFrame,
    start: datetime,
    end: datetime,
    *,
    sums: str | Sequence[str] = (),
    by: str | Sequence[str] = (),
    every: timedelta | None = None,
) -> DataFrame:
    """
    Count the entities, and add up their fields, at every instant of a period.

    A deleted entity is not there.  A version that begins where another one ends takes its place at that
    instant, so an entity that changes is never counted twice, and never missed.

    Args:
        history: One row per version; intervals of one entity must not overlap, which is not checked
            here (see `find_overlaps`).
        start: Where the period begins: an aware datetime in any zone.
        end: Where it ends, later than *start*.
        sums: Fields of whole numbers or decimals to add up; null counts as nothing.
        by: The groups: business fields or `guid`, as each version says.
        every: None for each interval in which nothing changes; a length for instants at that distance,
            the first one being *start*.

    Returns:
        By default, a row per group and longest interval in which nothing changes: *by*,
        `valid_from_timestamp`, `valid_to_timestamp` (both within the period and never null), `entities`
        (bigint), and each field of *sums* with its sum (bigint or decimal).  The intervals of a group
        fill the period without a gap.  With *every*, a row per group and instant: *by*, `at_timestamp`,
        `entities`, sums.  A group that has no entity in the period has no row; without *by* there is
        always one.

    Raises:
        WrongColumnType: A field of *sums* is no number, or a double: sums over which values come and go
            would keep what rounding leaves, so cast it to a decimal.
        InvalidArgument: *start* or *end* is a naive datetime, *end* is not after *start*, *every* is no
            length or too short for a million instants; *by* or *sums* names something twice or something
            that is not there, or a column that the result has.
        SparkArithmeticException: When the result is computed (Spark's): a sum is too large for its type.
            Not where `spark.sql.ansi.enabled` is off: sums are wrong then, and nobody says so.

    Cost: two rows of the size of *by* and *sums* for each version, added up before they are shuffled; then
    one sort of a group's instants.  No task has to sort more than one day of a group, or its grid.

    Source:
        Snodgrass, Developing Time-Oriented Database Applications in SQL, 1999, ch. 6: sequenced aggregates.

    >>> from datetime import datetime, timezone
    >>> eight, noon = (datetime(2024, 1, 1, hour, tzinfo=timezone.utc) for hour in (8, 12))
    >>> counts_over_time(history, eight, noon).orderBy("valid_from_timestamp").show()
    +--------------------+-------------------+--------+
    |valid_from_timestamp| valid_to_timestamp|entities|
    +--------------------+-------------------+--------+
    | 2024-01-01 08:00:00|2024-01-01 09:00:00|       0|
    | 2024-01-01 09:00:00|2024-01-01 11:00:00|       2|
    | 2024-01-01 11:00:00|2024-01-01 12:00:00|       1|
    +--------------------+-------------------+--------+
    <BLANKLINE>
    >>> counts_over_time(history, eight, noon, every=timedelta(hours=2)).orderBy("at_timestamp").show()
    +-------------------+--------+
    |       at_timestamp|entities|
    +-------------------+--------+
    |2024-01-01 08:00:00|       0|
    |2024-01-01 10:00:00|       2|
    +-------------------+--------+
    <BLANKLINE>
    """
    added = listed(sums)
    groups = listed(by)
    require_period(start, end)
    columns = [ENTITIES, *([AT] if every is not None else [VALID_FROM, VALID_TO])]
    require_groups(history, groups, added or None, argument="sums", made=columns)
    for name in added:
        if not isinstance(kind := history.schema[name].dataType, T.IntegralType | T.DecimalType):
            needed = "a whole number or a decimal (what comes and goes must add up to nothing)"
            raise wrong_type(name, needed, kind.simpleString())
    step = None if every is None else _require_grid(start, end, every)
    net = _net_changes(_alive(history, start, end), groups, added, start, end, step)
    counted = _steps(net, end) if step is None else _sample_grid(net, start, end, step)
    return counted.select(
        *(F.col("group").getField(f"by_{index}").alias(name) for index, name in enumerate(groups)),
        *columns[1:],
        *(F.col(f"of_{index}").alias(name) for index, name in enumerate([ENTITIES, *added])),
    )


def _require_grid(start: datetime, end: datetime, every: timedelta) -> int:
    """The distance of the grid's instants in microseconds."""
    step = every // timedelta(microseconds=1) if isinstance(every, timedelta) else 0
    if step < 1 or (microseconds(end) - microseconds(start)) // step >= _MOST:
        needed = f"None, or a timedelta that divides the period into at most {_MOST:,} parts"
        raise wrong_argument("every", needed, every)
    return step


def _net_changes(
    versions: DataFrame,
    by: Sequence[str],
    added: Sequence[str],
    start: datetime,
    end: datetime,
    step: int | None,
) -> DataFrame:
    """
    Find by how much the counts and sums of a group change at an instant at which they do.

    One row per `group` and `at` (microseconds since 1970; on a grid, the number of its first instant that
    is not earlier), with the changes `of_0`, `of_1` ...; and one at the start, if of nothing.
    """
    first, last = F.lit(microseconds(start)), F.lit(microseconds(end))
    values = [F.lit(1).cast("bigint"), *(_widen(versions, name) for name in added)]
    nothing = [value * F.lit(0) for value in values]
    changes = [
        _change(first, nothing),
        _change(F.unix_micros(VALID_FROM), values),
        _change(F.unix_micros(VALID_TO), [-value for value in values]),
    ]
    # In two steps: beside `inline`, Spark forgets the names in a struct over functions of nested elements.
    grouped = versions.select(_group(versions, by).alias("group"), F.array(*changes).alias("changes"))
    net_changes = grouped.select("group", F.inline("changes"))
    if not by:
        # All entities are one group, even where there are none.
        net_changes = net_changes.unionByName(_nothing(net_changes, first))
    if step is not None:
        # In whole numbers: a quotient of doubles takes a microsecond after an instant of the grid for it.
        rounded_up = F.col("at") - first + F.lit(step - 1)
        net_changes = net_changes.withColumn("at", F.call_function("div", rounded_up, F.lit(step)))
        first, last = F.lit(0), F.lit(-(-(microseconds(end) - microseconds(start)) // step))
    changed = reduce(or_, (F.col(name) != 0 for name in _measures(net_changes)), F.col("at") == first)
    net = net_changes.where(F.col("at") < last).groupBy("group", "at")
    return net.agg(*(F.sum(name).alias(name) for name in _measures(net_changes))).where(changed)


def _group(versions: DataFrame, by: Sequence[str]) -> Column:
    """The group in one column; the same for all, if there are no groups."""
    parts = [comparable_column(versions, name) for name in by] or [F.lit(0)]
    return F.struct(*(part.alias(f"by_{index}") for index, part in enumerate(parts)))


def _widen(versions: DataFrame, name: str) -> Column:
    """A number in the type that its sums have; a null adds nothing."""
    data_type, value = versions.schema[name].dataType, F.col(quoted(name))
    if isinstance(data_type, T.DecimalType):
        kind = T.DecimalType(min(data_type.precision + 10, 38), data_type.scale).simpleString()
    else:
        kind = "bigint"
    return F.coalesce(value.cast(kind), F.lit(0).cast(kind))


def _change(at: Column, values: Sequence[Column]) -> Column:
    return F.struct(at.alias("at"), *(value.alias(f"of_{index}") for index, value in enumerate(values)))


def _nothing(changes: DataFrame, first: Column) -> DataFrame:
    """One row like those *changes*, which changes nothing."""
    zeros = [F.lit(0).cast(changes.schema[name].dataType).alias(name) for name in _measures(changes)]
    return changes.sparkSession.range(1).select(_group(changes, []).alias("group"), first.alias("at"), *zeros)


def _measures(net: DataFrame) -> list[str]:
    return [name for name in net.columns if name.startswith("of_")]


def _sum_changes(net: DataFrame, rows: WindowSpec) -> list[Column]:
    """Add up what the changes of a window's rows say; nothing, if there are none."""
    return [
        F.coalesce(F.sum(name).over(rows).cast(net.schema[name].dataType), F.lit(0)).alias(name)
        for name in _measures(net)
    ]


def _steps(net: DataFrame, end: datetime) -> DataFrame:
    """
    The intervals in which nothing changes, with what there is in each.

    Days are added up first, so that no task has to sort all instants of a group.
    """
    days = net.withColumn("day", F.call_function("div", F.col("at"), F.lit(_DAY)))
    on_day = Window.partitionBy("group", "day").orderBy("at")
    so_far = _sum_changes(net, on_day.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    steps = days.select("group", "day", "at", F.lead("at").over(on_day).alias("next"), *so_far)
    totals = days.groupBy("group", "day").agg(
        F.min("at").alias("at"), *(F.sum(name).alias(name) for name in _measures(net))
    )
    by_day = Window.partitionBy("group").orderBy("day")
    before = totals.select(
        F.struct("group", "day").alias("of"),
        F.lead("at").over(by_day).alias("next_day"),
        F.struct(*_sum_changes(net, by_day.rowsBetween(Window.unboundedPreceding, -1))).alias("before"),
    )
    joined = steps.join(before, F.struct("group", "day") == F.col("of"), "inner")
    ends = F.coalesce("next", "next_day", F.lit(microseconds(end)))
    return joined.select(
        "group",
        F.timestamp_micros("at").alias(VALID_FROM),
        F.timestamp_micros(ends).alias(VALID_TO),
        *((F.col(name) + F.col("before").getField(name)).alias(name) for name in _measures(net)),
    )


def _sample_grid(net: DataFrame, start: datetime, end: datetime, step: int) -> DataFrame:
    """Sample at each instant of the grid: what changed last holds until it changes again."""
    number = -(-(microseconds(end) - microseconds(start)) // step)
    in_line = Window.partitionBy("group").orderBy("at")
    so_far = _sum_changes(net, in_line.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    last = F.coalesce(F.lead("at").over(in_line), F.lit(number)) - 1
    values = net.select("group", "at", last.alias("last"), *so_far)
    samples = values.select("group", F.explode(F.sequence("at", "last")).alias("number"), *_measures(net))
    at = F.timestamp_micros(F.lit(microseconds(start)) + F.col("number") * F.lit(step))
    return samples.select("group", at.alias(AT), *_measures(net))
