"""Joins of periods: the pairs of two tables whose periods lie to each other in a stated way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.history import VALID_FROM, VALID_TO, with_open_ends
from cdckit.parts.arguments import both_sides, require_fields, require_name
from cdckit.parts.schemas import quoted, require_batch, require_columns, require_distinct, require_type
from cdckit.parts.values import comparable
from cdckit.query.allen import ALLEN_RELATIONS, APART, SHARING, TOUCHING, allen_relation, is_period
from cdckit.query.shared_instants import overlapping

_FUNCTION = "join_periods"


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
            for an open end, or what stands for it in a table that `scd_type_2` made).  A row without a
            beginning, or with an end that is not after it, is no period and in no pair.
        into: The names of the two struct columns.

    Returns:
        One row per pair, each as often as its rows are there: a struct with the row of *a*, one with the row
        of *b*, and `relation` (text).

    Raises:
        MissingColumns, WrongColumnType: A column is not there, *period* is not of timestamps, or *on* has not
            the same type in both.
        InvalidArgument: A table that is a stream, or has two columns that differ in case alone; a relation
            that is none, or none at all; "before" or "after" without *on*: nearly every row is before or
            after every other; a *period* or *into* that is no pair of names; two equal names in *into*.

    Cost: each table is read more than once.  With *on*, rows are counted by it first.  Of a value that few
    rows have (64 in both tables together), all pairs are compared: that takes a quarter more than a join by
    equality.  Rows of other values, and all without *on*, are sorted by their beginnings and numbered, by
    *on* or else by the hour; each period knows then which numbers of the other table begin within it, and
    is joined with those by equality.  So the work grows with rows and pairs that share an instant, also
    for long periods among short ones and for many at one time: nothing is compared with everything.  Of each
    value of *on*, or hour, one task sorts the beginnings.  "meets" and "met_by" are joins by equality;
    "before" and "after" compare all rows of one value of *on*.

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


def _require_tables(
    a: DataFrame,
    b: DataFrame,
    on: str | Sequence[str] | Mapping[str, str],
    period: tuple[str, str],
    into: tuple[str, str],
) -> dict[str, str]:
    """The common columns as a mapping of a's to b's."""
    key = dict(zip(*both_sides(on), strict=True))
    for argument, two in (("period", period), ("into", into)):
        if isinstance(two, str) or not isinstance(two, Sequence) or len(two) != 2:
            raise InvalidArgument(_FUNCTION, argument, "a pair of names", two)
    for argument, frame, columns in (("a", a, key), ("b", b, key.values())):
        require_columns(frame, [*period, *columns], function=_FUNCTION)
        for column in period:
            require_type(frame, column, T.TimestampType(), function=_FUNCTION)
        require_distinct(frame, argument, function=_FUNCTION)
        require_batch(frame, argument, "join what it has written", function=_FUNCTION)
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
    rows = frame.select(
        *(
            comparable(F.col(quoted(name)), frame.schema[name].dataType).alias(f"key_{index}")
            for index, name in enumerate(key)
        ),
        F.col(quoted(period[0])).alias("begins"),
        F.col(quoted(period[1])).alias("ends"),
        F.struct(*(F.col(quoted(name)) for name in frame.columns)).alias("row"),
    )
    return with_open_ends(rows, "ends").where(is_period(F.col("begins"), F.col("ends")))


def _relation() -> Column:
    return allen_relation(*(F.col(side).getField(end) for side in ("a", "b") for end in ("begins", "ends")))


def _touching(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The pairs in which one period ends as the other begins."""
    one, other = _held(a, keys, "a"), _held(b, keys, "b")
    same = _same(keys)
    meets = one.join(other, same & (F.col("a.ends") == F.col("b.begins")), "inner")
    met = one.join(other, same & (F.col("a.begins") == F.col("b.ends")), "inner")
    return meets.unionByName(met).select("a", "b")


def _of_one_key(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The pairs of one key in which one period is over before the other begins."""
    apart = (F.col("a.ends") < F.col("b.begins")) | (F.col("b.ends") < F.col("a.begins"))
    return _held(a, keys, "a").join(_held(b, keys, "b"), _same(keys) & apart, "inner").select("a", "b")


def _held(frame: DataFrame, keys: Sequence[str], side: str) -> DataFrame:
    return frame.select(
        *(F.col(key).alias(f"{side}_{key}") for key in keys), F.struct("begins", "ends", "row").alias(side)
    )


def _same(keys: Sequence[str]) -> Column:
    same = F.lit(True)
    for key in keys:
        same &= F.col(f"a_{key}").eqNullSafe(F.col(f"b_{key}"))
    return same
