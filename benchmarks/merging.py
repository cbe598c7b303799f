"""The merge: against what Spark takes to read, shuffle, sort and write the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, Timing, content_hash, side_by_side
from cdckit import merge
from cdckit.model.changes import ORDER

FIELDS = ("number", "tailnum", "delay", "expected", "temperature", "gate", "diverted", "distance")
BEGIN_SECONDS, SPAN_SECONDS = 1_360_000_000, 2_000_000
SMALL, LARGE, HOT = 2_000_000, 20_000_000, 5_000_000
"""Numbers of changes, the last of one key."""


def results(spark: SparkSession, work: Path) -> list[Result]:
    """2 and 20 million changes of a tenth as many keys; one key with 5 million; and changes with ends."""
    small = _compared(spark, work, SMALL, SMALL // 10)
    large = _compared(spark, work, LARGE, LARGE // 10)
    hot = _compared(spark, work, HOT, 1)
    ends, few = _with_ends(spark, work), _one_key_with_ends(spark, work)
    each = {
        changes: took["merge"].seconds / changes
        for changes, (took, _) in ((SMALL, small), (LARGE, large), (HOT, hot))
    }
    ratios = [took["merge"].seconds / took["floor"].seconds for took, _ in (small, large, hot)]
    return [
        _result("merge_2m_over_floor", ratios[0], 2.0, small),
        _result("merge_20m_over_floor", ratios[1], None, large),
        _result("merge_20m_per_change_over_2m", each[LARGE] / each[SMALL], 1.2, large),
        _result("merge_one_key_5m_over_floor", ratios[2], None, hot),
        _result("merge_one_key_5m_per_change_over_2m", each[HOT] / each[SMALL], 1.2, hot),
        _result("merge_2m_a_tenth_with_ends_over_without", _ratio(ends, "without"), 1.4, ends),
        _result("merge_one_key_20k_with_2k_ends_over_trivial_job", _ratio(few, "trivial"), 10.0, few),
    ]


def _ratio(compared: tuple[dict[str, Timing], str], other: str) -> float:
    return compared[0]["merge"].seconds / compared[0][other].seconds


def _result(name: str, ratio: float, bar: float | None, compared: tuple[dict[str, Timing], str]) -> Result:
    took, digest = compared
    return Result.of(name, ratio, bar, took["merge"], digest)


def _compared(spark: SparkSession, work: Path, changes: int, keys: int) -> tuple[dict[str, Timing], str]:
    print(f"  {changes:,} changes of {keys:,} keys")
    source = work / f"changes_{changes}_{keys}.parquet"
    if not (source / "_SUCCESS").exists():
        random_changes(spark, changes, keys).write.mode("overwrite").parquet(str(source))
    frame = spark.read.parquet(str(source))
    history = merge(frame, entity="flight", keys=["number"])
    runs: dict[str, Callable[[], object]] = {
        "floor": lambda: _write(floor(frame), work / "floor.parquet"),
        "merge": lambda: _write(history, work / "history.parquet"),
    }
    # The largest runs come when all code is warm, and are long enough not to notice.
    once = changes == LARGE
    took = side_by_side(runs, warm_up=not once, rounds=1 if once else 3)
    return took, content_hash(spark.read.parquet(str(work / "history.parquet")))


def _with_ends(spark: SparkSession, work: Path) -> tuple[dict[str, Timing], str]:
    """2 million changes of which a tenth end, each within a fifth of all time; and the same without."""
    print(f"  {SMALL:,} changes, a tenth of them with ends")
    frame = spark.read.parquet(str(work / f"changes_{SMALL}_{SMALL // 10}.parquet"))
    return _merged_with_ends(frame, work, {"without": lambda: _merge(frame, work / "history.parquet")})


def _one_key_with_ends(spark: SparkSession, work: Path) -> tuple[dict[str, Timing], str]:
    """One key of 20 thousand changes, of which a tenth end; and a job that does nothing."""
    print("  20,000 changes of one key, 2,000 of them with ends")
    source = work / "changes_20000_1.parquet"
    random_changes(spark, 20_000, 1).write.mode("overwrite").parquet(str(source))
    trivial: dict[str, Callable[[], object]] = {"trivial": lambda: spark.range(1).count()}
    return _merged_with_ends(spark.read.parquet(str(source)), work, trivial)


def _merged_with_ends(
    frame: DataFrame, work: Path, others: dict[str, Callable[[], object]]
) -> tuple[dict[str, Timing], str]:
    source = work / "changes_with_ends.parquet"
    begin = F.unix_seconds("effective_timestamp")
    after = F.pmod(F.xxhash64(F.lit("end"), "message_id"), F.lit(SPAN_SECONDS // 5)) + 1
    ends = F.pmod(F.xxhash64(F.lit("ends"), "message_id"), F.lit(10)) == 0
    until = F.when(ends, F.timestamp_seconds(begin + after))
    frame.withColumn("effective_until", until).write.mode("overwrite").parquet(str(source))
    changes = frame.sparkSession.read.parquet(str(source))
    made = work / "history_with_ends.parquet"
    took = side_by_side({**others, "merge": lambda: _merge(changes, made)})
    return took, content_hash(frame.sparkSession.read.parquet(str(made)))


def _merge(changes: DataFrame, path: Path) -> None:
    _write(merge(changes, entity="flight", keys=["number"]), path)


def floor(changes: DataFrame) -> DataFrame:
    """The same rows, shuffled by key and sorted: what every merge by key has to do at least."""
    return changes.repartition("data.number").sortWithinPartitions("data.number", *ORDER)


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.mode("overwrite").parquet(str(path))


def random_changes(spark: SparkSession, changes: int, keys: int) -> DataFrame:
    """Seeded changes of 8 fields, half of them carried, 3 priorities, 5 % deletes."""

    def drawn(salt: str, below: int) -> Column:
        return F.pmod(F.xxhash64(F.lit(salt), "id"), F.lit(below))

    number = drawn("key", keys)
    seconds = drawn("time", SPAN_SECONDS)
    at = F.timestamp_seconds(F.lit(BEGIN_SECONDS) + seconds)
    priority = drawn("priority", 3).cast("int")
    values = [
        number,
        F.concat(F.lit("N"), drawn("tailnum", 5_000)),
        drawn("delay", 1_000).cast("int"),
        F.timestamp_seconds(drawn("expected", 1_000_000)),
        drawn("temperature", 100) / 7,
        F.concat(F.lit("gate "), drawn("gate", 50)),
        drawn("diverted", 2) == 0,
        drawn("distance", 10_000),
    ]
    carried = [F.lit(True), *(drawn(f"carried {name}", 2) == 0 for name in FIELDS[1:])]
    return spark.range(changes).select(
        F.when(drawn("operation", 20) == 0, "delete").otherwise("upsert").alias("operation"),
        at.alias("effective_timestamp"),
        F.lpad(seconds.cast("string"), 12, "0").alias("sequence"),
        F.struct(
            at.alias("timestamp"),
            F.lit("operations.flights").alias("topic"),
            drawn("partition", 3).cast("int").alias("partition"),
            F.col("id").alias("offset"),
            F.lit(1).alias("record_number"),
        ).alias("arrival"),
        F.concat(F.lit("operations:"), F.lpad(F.col("id").cast("string"), 9, "0")).alias("message_id"),
        F.element_at(F.array(*map(F.lit, ("schedule", "airport", "operations"))), priority + 1).alias(
            "source"
        ),
        priority.alias("priority"),
        F.struct(*(value.alias(name) for value, name in zip(values, FIELDS, strict=True))).alias("data"),
        F.struct(*(flag.alias(name) for flag, name in zip(carried, FIELDS, strict=True))).alias("carried"),
    )
