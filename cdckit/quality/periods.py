"""Periods: folding versions that are neighbours, and finding those that do not follow one another."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdckit.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    VALID_FROM,
    VALID_TO,
    business_fields,
    require_free,
    require_history,
)
from cdckit.parts.arguments import quoted, require_fields, require_struct
from cdckit.parts.values import comparable


def coalesce(history: DataFrame, on: Iterable[str] | None = None) -> DataFrame:
    """
    Fold neighbouring versions of an entity that say the same into one.

    Two versions are neighbours if one begins at the instant at which the other ends.  They say the same
    if `deleted_indicator` and the fields *on* are equal (`cdckit.parts.values`: null equals null).

    Args:
        history: One row per version; intervals of one entity must not overlap, which is not checked
            here (see `find_overlaps`).  `field_provenance` may be missing.
        on: The business fields that count.  Without it: all, so that only versions which differ in
            provenance alone are folded.

    Returns:
        One row per run of such versions: `guid`, `valid_from_timestamp` of its first,
        `valid_to_timestamp` of its last, `deleted_indicator`, the fields *on*, and from the first
        version `source_message` and `field_provenance` (where *history* has it; of the row and of
        the fields *on* alone).  Who confirmed a value later, or with a higher priority, is gone.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks a column of every history, or has it in another type.
        InvalidArgument: *on* is empty, or names a field twice or one that *history* does not have.

    Cost: one shuffle by guid and one sort.

    Source:
        Böhlen, Snodgrass, Soo, "Coalescing in Temporal Databases", VLDB 1996.

    >>> coalesce(history, on=["number"]).orderBy("number", "valid_from_timestamp").select(
    ...     "number", "valid_from_timestamp", "valid_to_timestamp", "deleted_indicator"
    ... ).show()
    +------+--------------------+-------------------+-----------------+
    |number|valid_from_timestamp| valid_to_timestamp|deleted_indicator|
    +------+--------------------+-------------------+-----------------+
    |     1| 2024-01-01 09:00:00|               NULL|            false|
    |     2| 2024-01-01 09:00:00|2024-01-01 11:00:00|            false|
    |     2| 2024-01-01 11:00:00|               NULL|             true|
    +------+--------------------+-------------------+-----------------+
    <BLANKLINE>
    """
    history = require_history(history, *HISTORY_SCHEMA.fieldNames(), function="coalesce")
    fields = business_fields(history)
    known = fields.fieldNames()
    names = known if on is None else require_fields(on, known, "on", function="coalesce")
    said = F.struct(F.col(DELETED), *(comparable(F.col(quoted(n)), fields[n].dataType) for n in names))
    in_time = Window.partitionBy("guid").orderBy(VALID_FROM)
    whole = in_time.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    before = F.lag(F.struct(F.col(VALID_TO).alias("end"), said.alias("said"))).over(in_time)
    follows = before.getField("end").eqNullSafe(F.col(VALID_FROM))
    says_the_same = before.getField("said").eqNullSafe(said)
    marked = history.select(
        F.struct(*_folded_columns(history, names)).alias("version"),
        F.col("guid"),
        F.col(VALID_FROM),
        F.struct(before.getField("end").alias("end")).alias("before"),
        F.struct(F.last(VALID_TO).over(whole).alias("end")).alias("final"),
        (follows & says_the_same).alias("continues"),
    )
    # A run ends with the version before the next run.  The ends are held in structs, so that an open end
    # and no next run are two things.
    end = F.coalesce(F.lead("before").over(in_time), F.col("final")).getField("end")
    first = marked.where(~F.col("continues"))
    return first.select(F.col("version").withField(VALID_TO, end).alias("version")).select("version.*")


def find_overlaps(history: DataFrame) -> DataFrame:
    """
    The versions that begin before an earlier version of the same entity has ended.

    Args:
        history: One row per version.  Versions that are in force at no time overlap nothing (see
            `find_empty_periods`).

    Returns:
        The offending rows, each the later one of those that overlap: the same columns and
        `overlapped_until_timestamp`, the end of the earlier version that ends last, null if that one is
        still current.  Of versions that begin together, the one that ends first counts as earlier.
        None for a history that `merge` gives.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks `guid`, `valid_from_timestamp` or
            `valid_to_timestamp`, or has it in another type.
        InvalidArgument: *history* has a column `overlapped_until_timestamp` already.

    Cost: one shuffle by guid and one sort.

    >>> late = history.where("number = 1 and name = 'teapot'").withColumn(
    ...     "valid_from_timestamp", F.expr("valid_from_timestamp - interval 1 minute")
    ... )
    >>> find_overlaps(history.where("name = 'kettle'").union(late)).select(
    ...     "name", "valid_from_timestamp", "overlapped_until_timestamp"
    ... ).show()
    +------+--------------------+--------------------------+
    |  name|valid_from_timestamp|overlapped_until_timestamp|
    +------+--------------------+--------------------------+
    |teapot| 2024-01-01 09:59:00|       2024-01-01 10:00:00|
    +------+--------------------+--------------------------+
    <BLANKLINE>
    """
    column = "overlapped_until_timestamp"
    versions = _with_last_end_before(history, column, function="find_overlaps")
    last = F.col(column)
    before_its_end = last.getField("open") | (F.col(VALID_FROM) < last.getField("end"))
    return versions.where(before_its_end).withColumn(column, last.getField("end"))


def find_gaps(history: DataFrame) -> DataFrame:
    """
    The versions that begin after all earlier versions of the same entity have ended.

    Args:
        history: One row per version.  Versions that are in force at no time fill no gap (see
            `find_empty_periods`).

    Returns:
        The offending rows, each the one after a gap: the same columns and `gap_from_timestamp`, the
        instant from which nothing was known of the entity.  None for a history that `merge` gives: it
        has a version for the time in which an entity is deleted.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks `guid`, `valid_from_timestamp` or
            `valid_to_timestamp`, or has it in another type.
        InvalidArgument: *history* has a column `gap_from_timestamp` already.

    Cost: one shuffle by guid and one sort.

    >>> late = history.where("number = 1 and name = 'teapot'").withColumn(
    ...     "valid_from_timestamp", F.expr("valid_from_timestamp + interval 1 minute")
    ... )
    >>> find_gaps(history.where("name = 'kettle'").union(late)).select(
    ...     "name", "gap_from_timestamp", "valid_from_timestamp"
    ... ).show()
    +------+-------------------+--------------------+
    |  name| gap_from_timestamp|valid_from_timestamp|
    +------+-------------------+--------------------+
    |teapot|2024-01-01 10:00:00| 2024-01-01 10:01:00|
    +------+-------------------+--------------------+
    <BLANKLINE>
    """
    column = "gap_from_timestamp"
    versions = _with_last_end_before(history, column, function="find_gaps")
    last = F.col(column)
    after_its_end = ~last.getField("open") & (F.col(VALID_FROM) > last.getField("end"))
    return versions.where(after_its_end).withColumn(column, last.getField("end"))


def find_several_current(history: DataFrame) -> DataFrame:
    """
    The current versions of entities that have more than one.

    Args:
        history: One row per version; `valid_to_timestamp` is null while the version is current.

    Returns:
        The offending rows, the same columns: all current versions of such an entity, deleted ones
        too.  None for a history that `merge` gives.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks `guid` or `valid_to_timestamp`, or has it in
            another type.

    Cost: one shuffle of the current versions by guid and one sort.

    >>> reopened = history.withColumn("valid_to_timestamp", F.lit(None).cast("timestamp"))
    >>> find_several_current(reopened).where("number = 1").select("number", "name").orderBy("name").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|kettle|
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    """
    history = require_history(history, "guid", VALID_TO, function="find_several_current")
    number = F.count(F.lit(1)).over(Window.partitionBy("guid"))
    # The row is held in one column: whatever its fields are called, they cannot be taken for the number.
    counted = history.where(F.col(VALID_TO).isNull()).select(
        F.struct(*(F.col(quoted(name)) for name in history.columns)).alias("row"), number.alias("number")
    )
    return counted.where("number > 1").select("row.*")


def find_empty_periods(history: DataFrame) -> DataFrame:
    """
    The versions that are in force at no time: they end no later than they begin, or never begin.

    Args:
        history: One row per version.

    Returns:
        The offending rows, the same columns: those with a `valid_to_timestamp` that is not after
        `valid_from_timestamp`, and those whose `valid_from_timestamp` is null.  None for a history
        that `merge` gives.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks `valid_from_timestamp` or
            `valid_to_timestamp`, or has it in another type.

    Cost: one filter, no shuffle.

    >>> at_once = history.withColumn("valid_to_timestamp", F.col("valid_from_timestamp"))
    >>> find_empty_periods(history).count(), find_empty_periods(at_once).count()
    (0, 4)
    """
    history = require_history(history, VALID_FROM, VALID_TO, function="find_empty_periods")
    return history.where(F.col(VALID_FROM).isNull() | (F.col(VALID_TO) <= F.col(VALID_FROM)))


def _folded_columns(history: DataFrame, names: Iterable[str]) -> list[Column]:
    columns = ["guid", VALID_FROM, VALID_TO, DELETED, *names, SOURCE_MESSAGE]
    chosen = [F.col(quoted(column)) for column in columns]
    if FIELD_PROVENANCE in history.columns:
        entries = require_struct(history, FIELD_PROVENANCE, function="coalesce").fieldNames()
        kept = [F.col(FIELD_PROVENANCE).getField(n).alias(n) for n in ("guid", *names) if n in entries]
        chosen.append(F.struct(*kept).alias(FIELD_PROVENANCE))
    return chosen


def _with_last_end_before(history: DataFrame, column: str, *, function: str) -> DataFrame:
    """The versions in force at some time; *column* is the greatest end before each, null at the first."""
    history = require_history(history, "guid", VALID_FROM, VALID_TO, function=function)
    require_free(history, column, function=function)
    begins, ends = F.col(VALID_FROM), F.col(VALID_TO)
    not_empty = begins.isNotNull() & (ends.isNull() | (ends > begins))
    earlier = (
        Window.partitionBy("guid")
        .orderBy(begins, ends.asc_nulls_last())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    # Structs compare field by field, so an open end is greater than any other.
    last_end = F.max(F.struct(ends.isNull().alias("open"), ends.alias("end"))).over(earlier)
    return history.where(not_empty).withColumn(column, last_end)
