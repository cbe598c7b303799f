"""The merge: against what Spark takes to read, shuffle, sort and write the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, Timing, content_hash, side_by_side
from cdckit import merge
from cdckit.changes import ORDER

FIELDS = ("number", "tailnum", "delay", "expected", "temperature", "gate", "diverted", "distance")
SPAN_SECONDS = 2_000_000
SMALL, LARGE, HOT = 2_000_000, 20_000_000, 5_000_000
"""Numbers of changes, the last of one key."""


def results(spark: SparkSession, work: Path) -> list[Result]:
    """2 and 20 million changes of a tenth as many keys; and one key with 5 million changes."""
    small = _compared(spark, work, SMALL, SMALL // 10)
    large = _compared(spark, work, LARGE, LARGE // 10)
    hot = _compared(spark, work, HOT, 1)
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
    ]


def _result(name: str, ratio: float, bar: float | None, compared: tuple[dict[str, Timing], str]) -> Result:
    took, digest = compared
    seconds, memory = took["merge"].seconds, took["merge"].peak_memory_mb
    return Result(name, round(ratio, 2), bar, "lower", round(seconds, 2), memory, digest)


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
    at = F.timestamp_seconds(F.lit(1_360_000_000) + seconds)
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
