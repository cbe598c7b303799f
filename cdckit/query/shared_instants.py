"""Which periods of two tables share an instant, without comparing everything with everything."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

_CHUNK = 32
"""So many neighbours are looked at together: a period is compared with at most twice as many in vain."""
_FEW = 2 * _CHUNK
"""Of a key that has no more periods, in both tables together, each is compared with each."""
_HOUR = 3600
_PERIOD = ("begins", "ends", "row")


def overlapping(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """
    The pairs of periods that share an instant, each once, as the structs `a` and `b`.

    Both tables have the columns *keys*, `begins`, `ends` (null for open) and `row`, and hold nothing but
    periods (`is_period`).
    """
    if not keys:
        return _by_numbers(a, b, keys)
    crowded = _crowded(a, b, keys)

    def of(frame: DataFrame, how: str) -> DataFrame:
        return frame.join(crowded, _same(keys), how)

    some = _each_with_each(of(a, "left_anti"), of(b, "left_anti"), keys)
    return some.unionByName(_by_numbers(of(a, "left_semi"), of(b, "left_semi"), keys))


def _crowded(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The keys that have more periods than `_FEW`, each once."""
    both = a.select(*keys).unionByName(b.select(*keys))
    counted = both.groupBy(*keys).agg(F.count(F.lit(1)).alias("many")).where(F.col("many") > _FEW)
    return counted.select(*(F.col(key).alias(f"same_{key}") for key in keys))


def _each_with_each(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The pairs among all pairs of a key: where they are few, faster than to number them."""
    other = b.select(*(F.col(name).alias(f"same_{name}") for name in (*keys, *_PERIOD)))
    shared = _begins_before_end("", "same_") & _begins_before_end("same_", "")
    pairs = a.select(*keys, *_PERIOD).join(other, _same(keys) & shared, "inner")
    return pairs.select(
        F.struct(*_PERIOD).alias("a"),
        F.struct(*(F.col(f"same_{name}").alias(name) for name in _PERIOD)).alias("b"),
    )


def _begins_before_end(one: str, other: str) -> Column:
    end = F.col(f"{other}ends")
    return end.isNull() | (F.col(f"{one}begins") < end)


def _same(keys: Sequence[str]) -> Column:
    return reduce(and_, (F.col(key).eqNullSafe(F.col(f"same_{key}")) for key in keys), F.lit(True))


def _by_numbers(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """
    The pairs, without comparing everything with everything.

    One of the two begins within the other: b within a, at its beginning or later, or else a within b, later
    than at its beginning.  The beginnings that lie within a period are neighbours when all are sorted, so
    their numbers from `low` up to `high` say which they are.
    """
    numbered = _numbered(a, b, keys)
    of_a, of_b = numbered.where("is_a"), numbered.where("NOT is_a")
    return _beginning_within(of_a, of_b, keys, ("a", "b")).unionByName(
        _beginning_within(of_b, of_a, keys, ("b", "a"))
    )


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
    same = (F.col("chunk") == F.col("of_chunk")) & _same(keys)
    within = (F.col("low") <= F.col("number")) & (F.col("number") < F.col("high"))
    return looking.join(begun, same & within, "inner").select("a", "b")


def _side(side: str) -> Column:
    return F.struct("begins", "ends", F.col(side).alias("row")).alias(side)
