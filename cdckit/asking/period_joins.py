"""Joins of periods: the pairs of two tables whose periods lie to each other in a stated way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import WindowSpec

from cdckit.asking.allen import ALLEN_RELATIONS, APART, SHARING, TOUCHING, allen_relation, is_period
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.history import VALID_FROM, VALID_TO
from cdckit.parts.arguments import require_fields, require_name
from cdckit.parts.schemas import quoted, require_columns, require_type
from cdckit.parts.values import comparable

_FUNCTION = "join_periods"
_CHUNK = 32
"""So many neighbours are looked at together: a period is compared with at most twice as many in vain."""
_HOUR = 3600


def join_periods(
    a: DataFrame,
    b: DataFrame,
    relations: str | Sequence[str] = SHARING,
    *,
    on: str | Sequence[str] | Mapping[str, str] = (),
    period: tuple[str, str] = (VALID_FROM, VALID_TO),
    into: tuple[str, str] = ("a", "b"),
) -> DataFrame:
    """
    The pairs of rows of two tables whose periods have one of Allen's relations.

    Args:
        a: One row per period, of any columns.  Versions of deleted entities are periods, too: leave them out
            with `where`, if they are not meant.
        b: Another such table.
        relations: One of `ALLEN_RELATIONS`, or several: what a is to b.  By default the nine in which the two
            share an instant.
        on: What the two rows of a pair have in common, besides: a column, a list of columns (the same in
            both), or a mapping of a's column to b's.  Null equals null.  Nothing by default.
        period: The two columns, in both tables, where a period begins, and where it ends (exclusive, null
            for an open end).  A row without a beginning, or with an end that is not after it, is no period
            and in no pair.
        into: The names of the two struct columns.

    Returns:
        One row per pair, each as often as its rows are there: a struct with the row of *a*, one with the row
        of *b*, and `relation` (text).

    Raises:
        MissingColumns, WrongColumnType: A column is not there, *period* is not of timestamps, or *on* has not
            the same type in both.
        InvalidArgument: A relation that is none, or none at all; "before" or "after" without *on*: nearly
            every row is before or after every other; two equal names in *into*.

    Cost: rows are sorted by their beginnings and numbered, by *on* or else by the hour; each period knows
    then which numbers of the other table begin within it, and is joined with those by equality.  So the work
    grows with rows and pairs that share an instant, also for long periods among short ones and for many
    at one time: nothing is compared with everything.  Of each value of *on*, or hour, one task sorts the
    beginnings.  "meets" and "met_by" are joins by equality; "before" and "after" compare all rows of
    one value of *on*.

    >>> def periods(*rows):
    ...     frame = session().createDataFrame(list(rows), "what string, begins int, ends int")
    ...     hours = (F.timestamp_seconds(3600 * F.col(end)).alias(end) for end in ("begins", "ends"))
    ...     return frame.select("what", *hours)
    >>> shifts = periods(("early", 6, 14), ("late", 14, 22))
    >>> repairs = periods(("lamp", 13, 15), ("lift", 20, 21))
    >>> pairs = join_periods(repairs, shifts, period=("begins", "ends"), into=("repair", "shift"))
    >>> told = pairs.select("repair.what", "relation", F.col("shift.what").alias("shift"))
    >>> told.orderBy("what", "shift").show()
    +----+-------------+-----+
    |what|     relation|shift|
    +----+-------------+-----+
    |lamp|overlapped_by|early|
    |lamp|     overlaps| late|
    |lift|       during| late|
    +----+-------------+-----+
    <BLANKLINE>
    """
    asked = require_fields(relations, ALLEN_RELATIONS, "relations", function=_FUNCTION)
    key = _require_tables(a, b, on, period, into)
    if not key and set(asked) & set(APART):
        needed = "on, where before or after is asked for: nearly every row is before or after every other"
        raise InvalidArgument(_FUNCTION, "on", needed, on)
    names = [f"key_{index}" for index in range(len(key))]
    one, other = _periods(a, list(key), period), _periods(b, list(key.values()), period)
    found = [
        join(one, other, names)
        for kinds, join in ((SHARING, overlapping), (TOUCHING, _touching), (APART, _of_one_key))
        if set(asked) & set(kinds)
    ]
    pairs = found[0]
    for more in found[1:]:
        pairs = pairs.unionByName(more)
    return (
        pairs.select("a", "b", _relation().alias("relation"))
        .where(F.col("relation").isin(asked))
        .select(F.col("a.row").alias(into[0]), F.col("b.row").alias(into[1]), "relation")
    )


def overlapping(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """
    The pairs of periods that share an instant, each once, as the structs `a` and `b`.

    Both tables have the columns *keys*, `begins`, `ends` (null for open) and `row`, and hold nothing but
    periods (`is_period`).

    One of the two begins within the other: b within a, at its beginning or later, or else a within b, later
    than at its beginning.  The beginnings that lie within a period are neighbours when all are sorted, so
    their numbers from `low` up to `high` say which they are.
    """
    numbered = _numbered(a, b, keys)
    of_a, of_b = numbered.where("is_a"), numbered.where("NOT is_a")
    return _beginning_within(of_a, of_b, keys, ("a", "b")).unionByName(
        _beginning_within(of_b, of_a, keys, ("b", "a"))
    )


def _require_tables(
    a: DataFrame,
    b: DataFrame,
    on: str | Sequence[str] | Mapping[str, str],
    period: tuple[str, str],
    into: tuple[str, str],
) -> dict[str, str]:
    """The common columns as a mapping of a's to b's."""
    listed = [on] if isinstance(on, str) else list(on)
    key = dict(on) if isinstance(on, Mapping) else {name: name for name in listed}
    for frame, columns in ((a, key), (b, key.values())):
        require_columns(frame, [*period, *columns], function=_FUNCTION)
        for column in period:
            require_type(frame, column, T.TimestampType(), function=_FUNCTION)
    for column, same in key.items():
        needed, found = (
            frame.schema[name].dataType.simpleString() for frame, name in ((a, column), (b, same))
        )
        if needed != found:
            raise WrongColumnType(_FUNCTION, same, f"{needed}, like {column} of a", found)
    for name in into:
        require_name(name, "into", function=_FUNCTION)
    if len({name.lower() for name in (*into, "relation")}) < 3:
        raise InvalidArgument(_FUNCTION, "into", "two names, neither of them relation", into)
    return key


def _periods(frame: DataFrame, key: Sequence[str], period: tuple[str, str]) -> DataFrame:
    """The rows under names of ours, without those that are no periods."""
    begins, ends = (F.col(quoted(name)) for name in period)
    return frame.where(is_period(begins, ends)).select(
        *(
            comparable(F.col(quoted(name)), frame.schema[name].dataType).alias(f"key_{index}")
            for index, name in enumerate(key)
        ),
        begins.alias("begins"),
        ends.alias("ends"),
        F.struct(*(F.col(quoted(name)) for name in frame.columns)).alias("row"),
    )


def _relation() -> Column:
    return allen_relation(*(F.col(side).getField(end) for side in ("a", "b") for end in ("begins", "ends")))


def _numbered(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """
    All periods, with their own number among the beginnings of their table, and `low` and `high`.

    From `low` on, and before `high`, are the numbers of the other table's periods that begin within this one.
    """
    moments = _moments(a, keys, is_a=True).unionByName(
        _moments(b, keys, is_a=False), allowMissingColumns=True
    )
    counted = _counted_by_key(moments, keys) if keys else _counted_by_hour(moments)
    own = F.when(F.col("is_a"), F.col("before_a")).otherwise(F.col("before_b"))
    others = F.when(F.col("is_a"), F.col("before_b")).otherwise(F.col("before_a"))
    # Equal periods of a table are numbered alike: the end of any of them will do.
    same = Window.partitionBy(*keys, "is_a", "begins", "ends")
    high = F.max("others").over(same.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    return (
        counted.withColumns({"number": own, "others": others})
        .withColumn("high", high)
        .where("place > 0")
        .select(*keys, "is_a", "begins", "ends", "a", "b", "number", F.col("others").alias("low"), "high")
    )


def _moments(frame: DataFrame, keys: Sequence[str], *, is_a: bool) -> DataFrame:
    """
    Each period where it begins, and once more where it ends.

    At one instant ends come first, since they lie outside; then the beginnings of a, since those of b lie
    within.
    """
    kind = frame.schema["row"].dataType
    begin = F.struct(
        F.col("begins").alias("at"), F.lit(1 if is_a else 2).alias("place"), F.col("row").alias("row")
    )
    end = F.struct(F.col("ends").alias("at"), F.lit(0).alias("place"), F.lit(None).cast(kind).alias("row"))
    return frame.select(
        *keys, F.lit(is_a).alias("is_a"), "begins", "ends", F.inline(F.array(begin, end))
    ).withColumnRenamed("row", "a" if is_a else "b")


def _counted_by_key(moments: DataFrame, keys: Sequence[str]) -> DataFrame:
    """With the numbers of beginnings of either table that stand before each moment of its key."""
    counts = {f"before_{side}": _sum(_begins(side)).over(_before(*keys)) for side in "ab"}
    return moments.withColumns({name: F.coalesce(count, F.lit(0)) for name, count in counts.items()})


def _counted_by_hour(moments: DataFrame) -> DataFrame:
    """
    The same for all moments together: hours are added up first, so that no task sorts all of them.

    The moment of an open end has no hour and is the last of all.
    """
    by_hour = moments.withColumn("hour", F.floor(F.unix_seconds("at") / F.lit(_HOUR)))
    totals = by_hour.groupBy("hour").agg(*(_sum(_begins(side)).alias(f"in_{side}") for side in "ab"))
    earlier = Window.orderBy(F.col("hour").asc_nulls_last()).rowsBetween(Window.unboundedPreceding, -1)
    offsets = totals.select(
        F.col("hour").alias("of_hour"),
        *(F.coalesce(F.sum(f"in_{side}").over(earlier), F.lit(0)).alias(f"until_{side}") for side in "ab"),
    )
    within = _counted_by_key(by_hour, ["hour"])
    joined = within.join(offsets, F.col("hour").eqNullSafe(F.col("of_hour")), "inner")
    return joined.withColumns(
        {f"before_{side}": F.col(f"before_{side}") + F.col(f"until_{side}") for side in "ab"}
    )


def _begins(side: str) -> Column:
    return F.col("place") == (1 if side == "a" else 2)


def _sum(flag: Column) -> Column:
    return F.sum(flag.cast("bigint"))


def _before(*keys: str) -> WindowSpec:
    in_line = Window.partitionBy(*keys).orderBy(F.col("at").asc_nulls_last(), "place")
    return in_line.rowsBetween(Window.unboundedPreceding, -1)


def _beginning_within(
    outer: DataFrame, inner: DataFrame, keys: Sequence[str], sides: tuple[str, str]
) -> DataFrame:
    """The pairs in which the period of *inner* begins within that of *outer*."""
    first, last = F.col("low"), F.col("high") - 1
    chunks = F.sequence(*(F.floor(number / F.lit(_CHUNK)) for number in (first, last)))
    looking = outer.where("high > low").select(
        *keys, _side(sides[0]), "low", "high", F.explode(chunks).alias("chunk")
    )
    begun = inner.select(
        *(F.col(key).alias(f"same_{key}") for key in keys),
        _side(sides[1]),
        "number",
        F.floor(F.col("number") / F.lit(_CHUNK)).alias("of_chunk"),
    )
    same = F.col("chunk") == F.col("of_chunk")
    for key in keys:
        same &= F.col(key).eqNullSafe(F.col(f"same_{key}"))
    within = (F.col("low") <= F.col("number")) & (F.col("number") < F.col("high"))
    return looking.join(begun, same & within, "inner").select(*keys, "a", "b")


def _side(side: str) -> Column:
    return F.struct("begins", "ends", F.col(side).alias("row")).alias(side)


def _touching(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The pairs in which one period ends as the other begins."""
    one, other = _held(a, keys, "a"), _held(b, keys, "b")
    same = _same(keys)
    meets = one.join(other, same & (F.col("a.ends") == F.col("b.begins")), "inner")
    return meets.unionByName(one.join(other, same & (F.col("a.begins") == F.col("b.ends")), "inner")).select(
        *(F.col(f"a_{key}").alias(key) for key in keys), "a", "b"
    )


def _of_one_key(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The pairs of one key in which one period is over before the other begins."""
    apart = (F.col("a.ends") < F.col("b.begins")) | (F.col("b.ends") < F.col("a.begins"))
    pairs = _held(a, keys, "a").join(_held(b, keys, "b"), _same(keys) & apart, "inner")
    return pairs.select(*(F.col(f"a_{key}").alias(key) for key in keys), "a", "b")


def _held(frame: DataFrame, keys: Sequence[str], side: str) -> DataFrame:
    return frame.select(
        *(F.col(key).alias(f"{side}_{key}") for key in keys), F.struct("begins", "ends", "row").alias(side)
    )


def _same(keys: Sequence[str]) -> Column:
    same = F.lit(True)
    for key in keys:
        same &= F.col(f"a_{key}").eqNullSafe(F.col(f"b_{key}"))
    return same
