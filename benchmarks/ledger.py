"""The ledger: kept up by batches, against what Spark takes to shuffle, sort and write all its changes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import PeakMemory, Result, content_hash
from benchmarks.merging import floor, random_changes
from cdckit import Ledger, merge

CHANGES = 2_000_000
KEYS = CHANGES // 10


def results(spark: SparkSession, work: Path) -> list[Result]:
    """A new ledger of 2 million changes, its rebuild, and batches of 1 % of its keys and of a hundred."""
    source = work / f"changes_{CHANGES}_{KEYS}.parquet"
    if not (source / "_SUCCESS").exists():
        random_changes(spark, CHANGES, KEYS).write.mode("overwrite").parquet(str(source))
    frame = spark.read.parquet(str(source))

    def floored() -> None:
        floor(frame).write.mode("overwrite").parquet(str(work / "floor.parquet"))

    place = work / "ledger"
    shutil.rmtree(place, ignore_errors=True)
    ledger = Ledger(spark, place, entity="flight", keys=["number"])
    _timed("floor (warm-up)", floored)
    first, _ = _timed("floor", floored)
    timings = {
        "new": _timed("new ledger", lambda: ledger.apply(frame)),
        "rebuild": _timed("rebuild", ledger.rebuild),
    }
    second, _ = _timed("floor", floored)
    batches = {
        "in_order": _batch(spark, KEYS // 100, KEYS // 100, "in order", days=100),
        "late": _batch(spark, KEYS // 100, KEYS // 100, "late", days=0),
        "small": _batch(spark, 100, 1_000, "small", days=200),
    }
    for name, batch in batches.items():
        batch.write.mode("overwrite").parquet(str(work / f"{name}.parquet"))
        rows = spark.read.parquet(str(work / f"{name}.parquet"))
        timings[name] = _timed(name, lambda rows=rows: ledger.apply(rows))  # type: ignore[misc]
    expected = content_hash(merge(ledger.changes().drop("guid"), entity="flight", keys=["number"]))
    found = content_hash(ledger.history())
    assert found == expected, (found, expected)
    bars = {"new": 1.5, "rebuild": 0.6, "in_order": 0.2, "late": 0.35, "small": None}
    floor_seconds = (first + second) / 2
    return [
        Result(
            f"ledger_{name}_2m_over_floor",
            round(seconds / floor_seconds, 2),
            bars[name],
            "lower",
            round(seconds, 2),
            memory,
            found,
        )
        for name, (seconds, memory) in timings.items()
    ]


def _timed(name: str, run: Callable[[], object]) -> tuple[float, int]:
    with PeakMemory() as peak:
        began = time.perf_counter()
        run()
        took = time.perf_counter() - began
    print(f"  {name:<36}{took:8.1f} s", flush=True)
    return took, peak.megabytes


def _batch(spark: SparkSession, keys: int, changes: int, name: str, days: int) -> DataFrame:
    """Changes of so many of the ledger's keys at random, all *days* later than those before."""
    number = F.pmod(F.xxhash64(F.lit(name), "data.number"), F.lit(KEYS))
    return random_changes(spark, changes, keys).withColumns(
        {
            "data": F.col("data").withField("number", number),
            "message_id": F.concat(F.lit(f"{name} "), "message_id"),
            "effective_timestamp": F.col("effective_timestamp") + F.lit(timedelta(days=days)),
        }
    )
