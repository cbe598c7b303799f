"""Where several histories stand still: the periods in which none of them moves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdckit.history import VALID_FROM, VALID_TO
from cdckit.query.overlapping_versions import overlap_text, where_sound


def standing_still(line: DataFrame, names: Sequence[str], into: Sequence[str]) -> DataFrame:
    """
    For each period in which no side moves, the version of each side.

    All sides stand in one line per key, by time.  Between two beginnings nothing begins, but versions may end
    there of which none follows: such a stretch is cut at their ends.
    """
    sides = [side_column(place) for place in range(len(into))]
    in_time = Window.partitionBy(*names).orderBy("begins")
    earlier = in_time.rowsBetween(Window.unboundedPreceding, -1)
    states = line.select(
        *names,
        "begins",
        F.lead("begins").over(in_time).alias("next"),
        *sides,
        *(F.last(side, ignorenulls=True).over(earlier).alias(f"last_{side}") for side in sides),
    )
    before = {side: _in_force(F.col(f"last_{side}"), F.col("begins")) for side in sides}
    fault = F.coalesce(
        *(
            F.when(F.col(side).isNotNull() & before[side].isNotNull(), F.lit(name))
            for side, name in zip(sides, into, strict=True)
        )
    )
    key = [(F.col(name), line.schema[name].dataType) for name in names]
    text = overlap_text(F.concat(F.lit("side "), fault), key, F.col("begins"), function="overlay")
    last_of_its_instant = F.col("next").isNull() | (F.col("next") > F.col("begins"))
    now = [F.coalesce(F.col(side), before[side]).alias(side) for side in sides]
    sound = where_sound(states, overlap=fault.isNotNull(), text=text, keep=last_of_its_instant)
    stretches = sound.select(*names, "begins", "next", *now)
    return stretches.select(*names, *sides, F.inline(_periods(sides))).select(
        *names,
        VALID_FROM,
        VALID_TO,
        *(_in_force(F.col(side), F.col(VALID_FROM)).getField("version").alias(side) for side in sides),
    )


def _periods(sides: Sequence[str]) -> Column:
    """From each beginning, or end of a version within the stretch, to the next of these."""
    next_one, none = F.col("next"), F.lit(None).cast("timestamp")
    ends = (F.col(side).getField("ends") for side in sides)
    inside = (F.when(next_one.isNull() | (end < next_one), end) for end in ends)
    # Without functions of elements, which Spark does not compile: the nulls go with array_except.
    cuts = F.sort_array(F.array_except(F.array("begins", *inside), F.array(none)))
    following = F.concat(F.slice(cuts, 2, F.size(cuts)), F.array(next_one))
    return F.arrays_zip(cuts.alias(VALID_FROM), following.alias(VALID_TO))


def _in_force(state: Column, at: Column) -> Column:
    ends = state.getField("ends")
    return F.when(ends.isNull() | (ends > at), state)


def kept(rows: DataFrame, sides: int, how: str) -> DataFrame:
    """The periods in which all sides are there ("inner"), the first is ("left"), or any is ("full")."""
    present = [F.col(side_column(place)).isNotNull() for place in range(sides)]
    if how == "left":
        return rows.where(present[0])
    both = Column.__and__ if how == "inner" else Column.__or__
    return rows.where(reduce(both, present))


def folded(rows: DataFrame, names: Sequence[str], said: Column) -> DataFrame:
    """Neighbouring periods of *names* that say the same as one: the first, to the end of the last."""
    in_time = Window.partitionBy(*names).orderBy(VALID_FROM)
    whole = in_time.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    before = F.lag(F.struct(F.col(VALID_TO).alias("end"), said.alias("said"))).over(in_time)
    continues = before.eqNullSafe(F.struct(F.col(VALID_FROM).alias("end"), said.alias("said")))
    marked = rows.select(
        "*",
        before.getField("end").alias("ended_before"),
        F.last(VALID_TO).over(whole).alias("final"),
        continues.alias("continues"),
    )
    # Only the last period of all can be open: what begins later has one before it that ended.
    end = F.coalesce(F.lead("ended_before").over(in_time), F.col("final"))
    first = marked.where(~F.col("continues")).withColumn(VALID_TO, end)
    return first.drop("ended_before", "final", "continues")


def side_column(place: int) -> str:
    """What the side at that place is called in a line."""
    return f"side_{place}"
