"""Frontiers: until where a stream of numbered messages has been seen without a gap, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import quoted, require_batch, require_columns, require_fields

PARTITION = ("topic", "partition")
"""What one stream is, if nothing else is said: records have offsets in each partition of a topic."""

_RANGE = ("first_position", "last_position")
_FRONTIER = ("complete_until_position", "complete_until_timestamp", "missing")
_INSTEAD = "take what a table keeps of it"


@takes()
def find_frontiers(
    records: DataFrame,
    *,
    stream: Sequence[str] = PARTITION,
    position: str = "offset",
    timestamp: str = "timestamp",
) -> DataFrame:
    """
    Find until where each stream has been seen without a gap, by numbers that follow one another.

    Where a producer may leave out numbers, the frontier lies too early, never too late: Kafka leaves out
    offsets where producers use transactions, and where a topic is compacted.  A stream position of Qlik
    Replicate, an SCN and an LSN grow by any step, and are no such numbers.

    Args:
        records: One row per message, in any order; those that came twice count once.  Rejects belong to
            them: what cannot be used has been seen all the same.
        stream: The columns in which each stream has its own numbers.
        position: The number: a column of whole numbers; a row without one says nothing.
        timestamp: When the message was sent, in a column of timestamps.

    Returns:
        One row per stream, in no order:

        - the columns of *stream*, `first_position` and `last_position`, the ends of what was seen; what
          is missing before the first cannot be known;
        - `complete_until_position`: the last number before the first gap, itself seen;
        - `complete_until_timestamp`: the instant of that message: all that was sent before it is there.  Null
          where instants are missing, or do not rise with the numbers: then no instant says that it is past;
        - `missing`: how many numbers are missing in between.

    Raises:
        MissingColumns, WrongColumnType: *records* lacks a column, or has *position* or *timestamp* in another
            type.
        InvalidArgument: A column of *stream* has the name of one of the answer; *records* are a stream.

    Cost: one shuffle of a number and an instant per message, and a join of these with themselves.

    >>> rows = [("a", 1, "09:00"), ("a", 2, "09:10"), ("a", 5, "09:30"), ("b", 7, "09:00")]
    >>> seen = session().createDataFrame(rows, "shop string, number int, sent string")
    >>> seen = seen.withColumn("sent", F.concat(F.lit("2024-01-01 "), "sent").cast("timestamp"))
    >>> found = find_frontiers(seen, stream=["shop"], position="number", timestamp="sent")
    >>> found.orderBy("shop").drop("first_position", "last_position").show()
    +----+-----------------------+------------------------+-------+
    |shop|complete_until_position|complete_until_timestamp|missing|
    +----+-----------------------+------------------------+-------+
    |   a|                      2|     2024-01-01 09:10:00|      2|
    |   b|                      7|     2024-01-01 09:00:00|      0|
    +----+-----------------------+------------------------+-------+
    <BLANKLINE>
    """
    of = _require(records, stream, position, (*_RANGE, *_FRONTIER))
    require_columns(records, [timestamp])
    kind = records.schema[timestamp].dataType
    if not isinstance(kind, T.TimestampType):
        raise WrongColumnType(None, timestamp, "timestamp", kind.simpleString())
    edges = _edges(records, of, position, F.col(quoted(timestamp)))
    ends = F.when(F.col("is_last"), F.col("place"))
    before_gap = F.min(ends)
    frontiers = edges.groupBy(*of).agg(
        F.min("place").alias(_RANGE[0]),
        F.max("place").alias(_RANGE[1]),
        before_gap.alias(_FRONTIER[0]),
        F.when(F.bool_and("rises"), F.min_by("sent", ends)).alias(_FRONTIER[1]),
        F.sum("missing_before").cast("bigint").alias("missing"),
    )
    return frontiers.withColumn("missing", F.coalesce("missing", F.lit(0).cast("bigint")))


@takes()
def find_missing_positions(
    records: DataFrame, *, stream: Sequence[str] = PARTITION, position: str = "offset"
) -> DataFrame:
    """
    Find the gaps in the numbers of each stream: which messages are missing.

    Args:
        records: As for `find_frontiers`.
        stream: As there.
        position: As there.

    Returns:
        One row per gap, in no order: the columns of *stream*, `first_position` and `last_position` of what
        is missing, both inclusive.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `find_frontiers`.

    Cost: one shuffle of the numbers, and a join of them with themselves.

    >>> seen = session().createDataFrame([("a", 1), ("a", 2), ("a", 5)], "shop string, number int")
    >>> find_missing_positions(seen, stream=["shop"], position="number").show()
    +----+--------------+-------------+
    |shop|first_position|last_position|
    +----+--------------+-------------+
    |   a|             3|            4|
    +----+--------------+-------------+
    <BLANKLINE>
    """
    of = _require(records, stream, position, _RANGE)
    edges = _edges(records, of, position, F.lit(None).cast("timestamp_ltz"))
    gap = (F.col("place") - F.col("missing_before")).alias(_RANGE[0]), (F.col("place") - 1).alias(_RANGE[1])
    return edges.where(F.col("missing_before") > 0).select(*of, *gap)


def _require(records: DataFrame, stream: Sequence[str], position: str, taken: Sequence[str]) -> list[str]:
    require_columns(records, [position])
    require_batch(records, "records", _INSTEAD)
    of = require_fields(stream, records.columns, "stream")
    if set(of) & set(taken):
        raise InvalidArgument(None, "stream", "of columns with other names than those of the answer", of)
    kind = records.schema[position].dataType
    if not isinstance(kind, T.IntegralType):
        raise WrongColumnType(None, position, "a whole number", kind.simpleString())
    return of


def _edges(records: DataFrame, of: Sequence[str], position: str, sent: Column) -> DataFrame:
    """
    The first and the last numbers of each unbroken run.

    `missing_before`, how many are missing between the run before and this one; `rises`, whether no instant
    of the run is before the one ahead of it.
    """
    numbers = (
        records.select(*of, F.col(quoted(position)).cast("bigint").alias("place"), sent.alias("sent"))
        .where(F.col("place").isNotNull())
        .groupBy(*of, "place")
        .agg(F.min("sent").alias("sent"))
    )
    here, ahead = numbers.alias("here"), numbers.withColumn("place", F.col("place") + 1).alias("ahead")
    same = reduce(
        and_, (F.col(f"here.{quoted(name)}").eqNullSafe(F.col(f"ahead.{quoted(name)}")) for name in of)
    )
    joined = here.join(ahead, same & (F.col("here.place") == F.col("ahead.place")), "outer")
    is_first, is_past = F.col("ahead.place").isNull(), F.col("here.place").isNull()
    # A number whose next one is not there stands in the row of that one.
    place = F.coalesce("here.place", F.col("ahead.place") - 1)
    rises = F.coalesce(F.col("here.sent") >= F.col("ahead.sent"), is_first & F.col("here.sent").isNotNull())
    rows = joined.select(
        *(F.coalesce(f"here.{quoted(name)}", f"ahead.{quoted(name)}").alias(name) for name in of),
        place.alias("place"),
        F.coalesce("here.sent", "ahead.sent").alias("sent"),
        is_first.alias("is_first"),
        is_past.alias("is_last"),
        F.when(is_past, True).otherwise(rises).alias("rises"),
    ).where(is_first | is_past | ~rises)
    edges = rows.groupBy(*of, "place").agg(
        F.min("sent").alias("sent"),
        F.bool_or("is_first").alias("is_first"),
        F.bool_or("is_last").alias("is_last"),
        F.bool_and("rises").alias("rises"),
    )
    # What stands before the first number of a run is the last number of the one before.
    before = F.lag(F.struct("place", "sent")).over(Window.partitionBy(*of).orderBy("place"))
    behind_gap = F.col("is_first") & F.col("before").isNotNull()
    return (
        edges.withColumn("before", before)
        .withColumn("missing_before", F.when(behind_gap, F.col("place") - F.col("before.place") - 1))
        .withColumn("rises", F.col("rises") & (~behind_gap | (F.col("sent") >= F.col("before.sent"))))
        .drop("before")
    )
