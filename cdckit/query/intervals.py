"""Intervals: how two lie to each other, which share an instant, and where several tables stand still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import WindowSpec

from cdckit.model.history import VALID_FROM, VALID_TO, with_open_ends
from cdckit.parts.arguments import quoted
from cdckit.parts.public_calls import called_function
from cdckit.parts.values import as_text, comparable

APART = ("before", "after")
TOUCHING = ("meets", "met_by")
SHARING = (
    "overlaps",
    "overlapped_by",
    "starts",
    "started_by",
    "during",
    "contains",
    "finishes",
    "finished_by",
    "equals",
)
"""Those in which the two periods have an instant in common."""

ALLEN_RELATIONS = (*APART, *TOUCHING, *SHARING)
"""All thirteen: of two periods exactly one holds."""


def allen_relation(
    a_from: Column | str, a_to: Column | str, b_from: Column | str, b_to: Column | str
) -> Column:
    """
    Tell which of Allen's thirteen relations period a has to period b.

    Periods are half-open, so a *meets* b where a ends at the instant at which b begins, and they share no
    instant.

    | relation | a and b | the other way round |
    |---|---|---|
    | `before` | a ends before b begins | `after` |
    | `meets` | a ends as b begins | `met_by` |
    | `overlaps` | a begins first and ends within b | `overlapped_by` |
    | `starts` | they begin together, a ends first | `started_by` |
    | `during` | a lies within b and shares neither beginning nor end with it | `contains` |
    | `finishes` | they end together, a begins last | `finished_by` |
    | `equals` | they are the same | `equals` |

    Args:
        a_from: Where period a begins: a column of timestamps (or of any type with an order), or its name.
        a_to: Where it ends, exclusive; null for an open end, which is later than any other, and the same
            as another open end.
        b_from: Where period b begins.
        b_to: Where it ends.

    Returns:
        A column with the name of the relation; null if one of them is no period: without a beginning, or
        with an end that is not after it.

    Source:
        J. F. Allen, Maintaining Knowledge about Temporal Intervals, Communications of the ACM 26, 1983.

    >>> rows = [(1, 3, 3, 5), (1, 4, 3, None), (4, None, 2, None)]
    >>> spans = session().createDataFrame(rows, "a_from int, a_to int, b_from int, b_to int")
    >>> spans.select(allen_relation("a_from", "a_to", "b_from", "b_to").alias("relation")).show()
    +--------+
    |relation|
    +--------+
    |   meets|
    |overlaps|
    |finishes|
    +--------+
    <BLANKLINE>
    """
    begins, ends, other_begins, other_ends = (_column(given) for given in (a_from, a_to, b_from, b_to))
    begin, end = _order(begins, other_begins), _end_order(ends, other_ends)
    relation = (
        F.when(ends < other_begins, "before")
        .when(ends == other_begins, "meets")
        .when(other_ends < begins, "after")
        .when(other_ends == begins, "met_by")
    )
    by_begin = {
        -1: ("overlaps", "finished_by", "contains"),
        0: ("starts", "equals", "started_by"),
        1: ("during", "finishes", "overlapped_by"),
    }
    for beginning, by_end in by_begin.items():
        for ending, name in zip((-1, 0, 1), by_end, strict=True):
            relation = relation.when((begin == beginning) & (end == ending), name)
    return F.when(is_period(begins, ends) & is_period(other_begins, other_ends), relation)


def is_period(begins: Column, ends: Column) -> Column:
    """Tell whether there is an instant from *begins* on and before *ends*; an end of null is open."""
    return begins.isNotNull() & (ends.isNull() | (ends > begins))


def is_in_force(instant: Column, begins: str = VALID_FROM, ends: str = VALID_TO) -> Column:
    """Tell whether the period of these columns, closed at its start and open at its end, has the instant."""
    return (F.col(begins) <= instant) & (F.col(ends).isNull() | (F.col(ends) > instant))


def is_ever_in_force() -> Column:
    """Tell whether a version is in force at any instant."""
    return is_period(F.col(VALID_FROM), F.col(VALID_TO))


def comparable_column(frame: DataFrame, name: str) -> Column:
    """A column in the form in which its equal values meet."""
    return comparable(F.col(quoted(name)), frame.schema[name].dataType)


def key_columns(frame: DataFrame, names: Iterable[str]) -> list[Column]:
    """The parts of a key in such a form and under names of ours, whatever they are called."""
    return [comparable_column(frame, name).alias(key_column(place)) for place, name in enumerate(names)]


def key_column(place: int) -> str:
    """The name of a part of the key."""
    return f"key_{place}"


def _column(given: Column | str) -> Column:
    return F.col(quoted(given)) if isinstance(given, str) else given


def _order(value: Column, other: Column) -> Column:
    return F.when(value < other, -1).when(value == other, 0).otherwise(1)


def _end_order(value: Column, other: Column) -> Column:
    open_ends = F.when(other.isNull(), F.when(value.isNull(), 0).otherwise(-1)).when(value.isNull(), 1)
    return F.coalesce(open_ends, _order(value, other))


_CHUNK = 32
"""So many neighbours are looked at together: a period is compared with at most twice as many in vain."""
_FEW_PERIODS = 2 * _CHUNK
"""Of a key that has no more periods, in both tables together, each is compared with each."""
_HOUR = 3600
_PERIOD = ("begins", "ends", "row")


def period_rows(frame: DataFrame, key: Sequence[str], period: tuple[str, str]) -> DataFrame:
    """The rows as `find_overlapping` takes them: by *key*, without those that are no periods."""
    rows = frame.select(
        *key_columns(frame, key),
        F.col(quoted(period[0])).alias("begins"),
        F.col(quoted(period[1])).alias("ends"),
        F.struct(*(F.col(quoted(name)) for name in frame.columns)).alias("row"),
    )
    return with_open_ends(rows, "ends").where(is_period(F.col("begins"), F.col("ends")))


def find_overlapping(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """
    The pairs of periods that share an instant, each once, as the structs `a` and `b`.

    Both tables have the columns *keys*, `begins`, `ends` (null for open) and `row`, and hold nothing but
    periods (`is_period`).
    """
    if not keys:
        return _compare_numbers(a, b, keys)
    crowded = _find_crowded_keys(a, b, keys)

    def of(frame: DataFrame, how: str) -> DataFrame:
        return frame.join(crowded, _same(keys), how)

    some = _compare_all(of(a, "left_anti"), of(b, "left_anti"), keys)
    return some.unionByName(_compare_numbers(of(a, "left_semi"), of(b, "left_semi"), keys))


def _find_crowded_keys(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The keys that have more periods than `_FEW_PERIODS`, each once."""
    both = a.select(*keys).unionByName(b.select(*keys))
    counted = both.groupBy(*keys).agg(F.count(F.lit(1)).alias("many")).where(F.col("many") > _FEW_PERIODS)
    return counted.select(*(F.col(key).alias(f"same_{key}") for key in keys))


def _compare_all(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The pairs among all pairs of a key: where they are few, faster than to number them."""
    # Not as structs: of those in a condition, Spark 4.1 loses a field where a table is read on both sides.
    other = b.select(*(F.col(name).alias(f"same_{name}") for name in (*keys, *_PERIOD)))
    shared = _begins_before_end("", "same_") & _begins_before_end("same_", "")
    pairs = a.select(*keys, *_PERIOD).join(other, _same(keys) & shared, "inner")
    return pairs.select(
        F.struct(*_PERIOD).alias("a"),
        F.struct(*(F.col(f"same_{name}").alias(name) for name in _PERIOD)).alias("b"),
    )


def _begins_before_end(side: str, other: str) -> Column:
    end = F.col(f"{other}ends")
    return end.isNull() | (F.col(f"{side}begins") < end)


def _same(keys: Sequence[str]) -> Column:
    return reduce(and_, (F.col(key).eqNullSafe(F.col(f"same_{key}")) for key in keys), F.lit(True))


def _compare_numbers(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """
    The pairs, without comparing everything with everything.

    One of the two begins within the other: b within a, at its beginning or later, or else a within b, later
    than at its beginning.  The beginnings that lie within a period are neighbours when all are sorted, so
    their numbers from `low` up to `high` say which they are.
    """
    numbered = _number_periods(a, b, keys)
    of_a, of_b = numbered.where("is_a"), numbered.where("NOT is_a")
    return _pair_beginnings(of_a, of_b, keys, ("a", "b")).unionByName(
        _pair_beginnings(of_b, of_a, keys, ("b", "a"))
    )


def _number_periods(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """
    All periods, with their own number among the beginnings of their table, and `low` and `high`.

    From `low` on, and before `high`, are the numbers of the other table's periods that begin within this one.
    """
    moments = _moments(a, keys, is_a=True).unionByName(
        _moments(b, keys, is_a=False), allowMissingColumns=True
    )
    counted = _count_by_key(moments, keys) if keys else _count_by_hour(moments)
    number = F.when(F.col("is_a"), F.col("before_a")).otherwise(F.col("before_b"))
    others = F.when(F.col("is_a"), F.col("before_b")).otherwise(F.col("before_a"))
    # Equal periods of a table are numbered alike: the end of any of them will do.
    same = Window.partitionBy(*keys, "is_a", "begins", "ends")
    high = F.max("others").over(same.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    return (
        counted.withColumns({"number": number, "others": others})
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


def _count_by_key(moments: DataFrame, keys: Sequence[str]) -> DataFrame:
    """With the numbers of beginnings of either table that stand before each moment of its key."""
    counts = {f"before_{side}": _sum(_begins(side)).over(_before(*keys)) for side in "ab"}
    return moments.withColumns({name: F.coalesce(count, F.lit(0)) for name, count in counts.items()})


def _count_by_hour(moments: DataFrame) -> DataFrame:
    """
    Count for all moments together: hours are added up first, so that no task sorts all of them.

    The moment of an open end has no hour and is the last of all.
    """
    by_hour = moments.withColumn("hour", F.floor(F.unix_seconds("at") / F.lit(_HOUR)))
    totals = by_hour.groupBy("hour").agg(*(_sum(_begins(side)).alias(f"in_{side}") for side in "ab"))
    earlier = Window.orderBy(F.col("hour").asc_nulls_last()).rowsBetween(Window.unboundedPreceding, -1)
    offsets = totals.select(
        F.col("hour").alias("of_hour"),
        *(F.coalesce(F.sum(f"in_{side}").over(earlier), F.lit(0)).alias(f"until_{side}") for side in "ab"),
    )
    within = _count_by_key(by_hour, ["hour"])
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


def _pair_beginnings(
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


def require_sound_rows(rows: DataFrame, *, overlap: Column, text: Column, keep: Column) -> DataFrame:
    """
    The rows for which *keep* is true; an error that says *text* if *overlap* is true for any row.

    The error comes also if the caller filters the result: Spark puts no filter before one that may give
    another answer each time, so every row comes to this one.
    """
    not_to_be_passed = F.monotonically_increasing_id() >= 0
    return rows.where(not_to_be_passed & F.when(overlap, F.raise_error(text)).otherwise(keep))


UNSOUND = "the history is not sound"
UNSOUND_OR_ON = f"{UNSOUND}, or `on` does not tell one entity from the next"


def overlap_message(
    of: Column, key: Iterable[tuple[Column, T.DataType]], at: Column, *, why: str = UNSOUND_OR_ON
) -> Column:
    """
    Say that a version begins while another one of its key is in force.

    Args:
        of: Which history that is, after "in the".
        key: The parts of the key, each with its type.
        at: When it begins.
        why: What may be wrong.
    """
    values = F.to_json(F.array(*(as_text(part, kind) for part, kind in key)))
    return F.concat(
        F.lit(f"{called_function()}() needs one version at a time per key in the "),
        of,
        F.lit("; of the key "),
        values,
        F.lit(" two overlap at "),
        as_text(at, T.TimestampType()),
        F.lit(f": {why}."),
    )


def split_periods(
    line: DataFrame, names: Sequence[str], sides: Mapping[str, str], *, why: str = UNSOUND_OR_ON
) -> DataFrame:
    """
    Find for each period in which no side moves the version of each side: a column by the side's name.

    All sides stand in one line per key, by time.  Between two beginnings nothing begins, but versions may end
    there of which none follows: such a stretch is cut at their ends.
    """
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
            for side, name in sides.items()
        )
    )
    key = [(F.col(name), line.schema[name].dataType) for name in names]
    text = overlap_message(F.concat(F.lit("side "), fault), key, F.col("begins"), why=why)
    last_of_its_instant = F.col("next").isNull() | (F.col("next") > F.col("begins"))
    now = [F.coalesce(F.col(side), before[side]).alias(side) for side in sides]
    sound = require_sound_rows(states, overlap=fault.isNotNull(), text=text, keep=last_of_its_instant)
    stretches = sound.select(*names, "begins", "next", *now)
    return stretches.select(*names, *sides, F.inline(_periods(sides))).select(
        *names,
        VALID_FROM,
        VALID_TO,
        *(_in_force(F.col(side), F.col(VALID_FROM)).getField("version").alias(side) for side in sides),
    )


def _periods(sides: Iterable[str]) -> Column:
    """Cut from each beginning, or end of a version within the stretch, to the next of these."""
    next_one, none = F.col("next"), F.lit(None).cast("timestamp_ltz")
    ends = (F.col(side).getField("ends") for side in sides)
    inside = (F.when(next_one.isNull() | (end < next_one), end) for end in ends)
    # Without functions of elements, which Spark does not compile: the nulls go with array_except.
    cuts = F.sort_array(F.array_except(F.array("begins", *inside), F.array(none)))
    following = F.concat(F.slice(cuts, 2, F.size(cuts)), F.array(next_one))
    return F.arrays_zip(cuts.alias(VALID_FROM), following.alias(VALID_TO))


def _in_force(state: Column, at: Column) -> Column:
    ends = state.getField("ends")
    return F.when(ends.isNull() | (ends > at), state)


def keep_present(rows: DataFrame, sides: Iterable[str], how: str) -> DataFrame:
    """The periods in which all sides are there ("inner"), the first is ("left"), or any is ("full")."""
    present = [F.col(side).isNotNull() for side in sides]
    if how == "left":
        return rows.where(present[0])
    both = Column.__and__ if how == "inner" else Column.__or__
    return rows.where(reduce(both, present))


def continues_previous(in_time: WindowSpec, content: Column) -> Column:
    """Tell whether a version begins where the one before it *in_time* ends, and says the same."""
    before = F.lag(F.struct(F.col(VALID_TO).alias("end"), content.alias("content"))).over(in_time)
    return before.eqNullSafe(F.struct(F.col(VALID_FROM).alias("end"), content.alias("content")))


def fold_periods(rows: DataFrame, names: Sequence[str], content: Column) -> DataFrame:
    """
    Neighbouring periods of *names* that say the same as one: the first, to the end of the last.

    No column may be called `cdckit_before`, `cdckit_final` or `cdckit_continues`.
    """
    before, final, continues = "cdckit_before", "cdckit_final", "cdckit_continues"
    in_time = Window.partitionBy(*names).orderBy(VALID_FROM)
    whole = in_time.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    # In structs, so that an open end and no next period are two things.
    marked = rows.select(
        "*",
        F.struct(F.lag(VALID_TO).over(in_time).alias("end")).alias(before),
        F.struct(F.last(VALID_TO).over(whole).alias("end")).alias(final),
        continues_previous(in_time, content).alias(continues),
    )
    # A run ends with the period before the next run.
    end = F.coalesce(F.lead(before).over(in_time), F.col(final)).getField("end")
    return marked.where(~F.col(continues)).withColumn(VALID_TO, end).drop(before, final, continues)
