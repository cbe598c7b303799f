"""What leaves the house: tables of type 2, out and in again, and snapshots, against writing the same rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import Result, content_hash, side_by_side
from benchmarks.merging import random_changes
from cdckit import changes_from, merge
from cdckit.model.history import business_fields
from cdckit.outputs import periodic_snapshots, scd_type_2

CHANGES, KEYS = 2_000_000, 200_000


def results(spark: SparkSession, work: Path) -> list[Result]:
    """A table of type 2 that tracks two fields, and snapshots of ten days, of two million changes."""
    history = _history(spark, work)
    table = scd_type_2(history, track_history_column_list=["gate", "diverted"], surrogate_key="flight_key")
    # The changes begin on the fourth of February, and take 23 days.
    days = periodic_snapshots(history, start=date(2013, 2, 5), end=date(2013, 2, 15), zone="America/New_York")
    sorted_by_entity = history.repartition("guid").sortWithinPartitions("guid", "valid_from_timestamp")
    begin, end = "valid_from_timestamp", "valid_to_timestamp"
    fields = business_fields(history).fieldNames()
    dimension = scd_type_2(history)
    stated = changes_from(dimension, keys=["number"], valid_from=begin, valid_to=end, column_list=fields)
    again = merge(stated, entity="flight", keys=["number"])
    return [
        _compared(spark, work, "type_2_out_and_in", again, lambda: sorted_by_entity, bar=3.0),
        _compared(spark, work, "scd_type_2", table, lambda: sorted_by_entity),
        _compared(spark, work, "periodic_snapshots", days, lambda: _read(spark, work, "periodic_snapshots")),
    ]


def _compared(
    spark: SparkSession,
    work: Path,
    name: str,
    made: DataFrame,
    floor: Callable[[], DataFrame],
    *,
    bar: float | None = None,
) -> Result:
    """The time to make and write rows over that to write sorted versions, or the very rows that were made."""
    print(f"  {name}", flush=True)
    written = work / f"{name}.parquet"
    _write(made, written)
    rows = floor()
    runs: dict[str, Callable[[], object]] = {
        "floor": lambda: _write(rows, work / "floor.parquet"),
        name: lambda: _write(made, work / f"{name}_again.parquet"),
    }
    took = side_by_side(runs)
    seconds, memory = took[name].seconds, took[name].peak_memory_mb
    ratio = seconds / took["floor"].seconds
    digest = content_hash(spark.read.parquet(str(written)))
    return Result(f"{name}_2m_over_floor", round(ratio, 2), bar, "lower", round(seconds, 2), memory, digest)


def _history(spark: SparkSession, work: Path) -> DataFrame:
    changes, kept = work / f"changes_{CHANGES}_{KEYS}.parquet", work / f"history_{CHANGES}_{KEYS}.parquet"
    if not (changes / "_SUCCESS").exists():
        _write(random_changes(spark, CHANGES, KEYS), changes)
    if not (kept / "_SUCCESS").exists():
        _write(merge(spark.read.parquet(str(changes)), entity="flight", keys=["number"]), kept)
    return spark.read.parquet(str(kept))


def _read(spark: SparkSession, work: Path, name: str) -> DataFrame:
    return spark.read.parquet(str(work / f"{name}.parquet"))


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.mode("overwrite").parquet(str(path))
