"""Time as a quantity: how long fields had their values, and means in which each value counts by its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.history import VALID_FROM, VALID_TO, business_fields, require_history
from cdckit.parts.arguments import require_fields, require_period
from cdckit.parts.schemas import quoted
from cdckit.parts.values import comparable
from cdckit.query.between import between


def durations(
    history: DataFrame,
    fields: str | Sequence[str],
    start: datetime,
    end: datetime,
    *,
    by: str | Sequence[str] = (),
) -> DataFrame:
    """
    How long fields had each of their values in a period, all entities of a group together.

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
        MissingColumns, WrongColumnType: *history* lacks one of the columns of an interval, or has it in
            another type.
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
    asked = _one_or_more(fields, function="durations")
    groups = [by] if isinstance(by, str) else list(by)
    kept = require_groups(history, groups, asked, made=["seconds", "versions"], function="durations")
    return (
        _in_force(history, start, end, function="durations")
        .groupBy(*kept)
        .agg(_seconds().alias("seconds"), F.count(F.lit(1)).alias("versions"))
    )


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
        As `durations`, and WrongColumnType for a field that is no number.

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
    function = "weighted_means"
    asked = _one_or_more(fields, function=function)
    groups = [by] if isinstance(by, str) else list(by)
    kept = require_groups(history, groups, asked, made=[], function=function)[: len(groups)]
    for name in asked:
        require_number(history, name, function=function)
    means = [_mean(F.col(quoted(name)).cast("double")).alias(name) for name in asked]
    return _in_force(history, start, end, function=function).groupBy(*kept).agg(*means)


def require_groups(
    history: DataFrame,
    by: Iterable[str],
    fields: Iterable[str],
    *,
    argument: str = "fields",
    made: Sequence[str],
    function: str,
) -> list[Column]:
    """
    The columns that rows are grouped by, *by* before *fields*, in forms in which equal values meet.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks one of the columns of every history.
        InvalidArgument: Names that are none, come twice, are not there or are those of the columns that are
            *made*.
    """
    history = require_history(history, "guid", VALID_FROM, VALID_TO, function=function)
    groups, asked = list(by), list(fields)
    known = business_fields(history).fieldNames()
    if asked:
        require_fields(asked, known, argument, function=function)
    if groups:
        free = [name for name in ("guid", *known) if name not in asked]
        require_fields(groups, free, "by", function=function)
    taken = [name for name in (*groups, *asked) if name.lower() in made]
    if taken:
        raise InvalidArgument(
            function, "history", f"of fields with other names than {', '.join(made)}", taken
        )
    return [
        comparable(F.col(quoted(name)), history.schema[name].dataType).alias(name)
        for name in (*groups, *asked)
    ]


def _one_or_more(fields: str | Sequence[str], *, function: str) -> list[str]:
    """The fields as a list; raises `InvalidArgument` for none."""
    listed = [fields] if isinstance(fields, str) else list(fields)
    if not listed:
        raise InvalidArgument(function, "fields", "one or more business fields", fields)
    return listed


def require_end(end: datetime, *, function: str) -> None:
    """Raise `InvalidArgument` for a period without an end, which other questions have."""
    if end is None:
        raise InvalidArgument(
            function, "end", "an aware datetime: without one the answer would depend on when it is asked", end
        )


def require_number(history: DataFrame, field: str, *, function: str) -> None:
    """Raise `WrongColumnType` unless the field is a number."""
    found = history.schema[field].dataType
    if not isinstance(found, T.NumericType):
        raise WrongColumnType(function, field, "a number", found.simpleString())


def _in_force(history: DataFrame, start: datetime, end: datetime, *, function: str) -> DataFrame:
    """The versions of entities that were there, cut to the period."""
    require_end(end, function=function)
    require_period(start, end, function=function)
    return between(history, start, end)


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
