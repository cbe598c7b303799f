"""Databus: windows cut, beside a shuffle, sort and write of their events; and events for a listener."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.databus_dispatch import PLANES, measured
from benchmarks.measure import Result, Timing, content_hash, side_by_side
from cdckit import databus
from cdckit.databus.decoding import EVENT_SCHEMA

EVENTS = 5_000_000
PARTITIONS = 8
PER_WINDOW = 10
DISPATCHED = (100_000, 1_000_000, 10_000_000)


def results(
    spark: SparkSession, work: Path, *, events: int = EVENTS, dispatched: tuple[int, ...] = DISPATCHED
) -> list[Result]:
    """Events of eight streams, and of one alone; then windows to a listener, more and more of them."""
    found = [*_cutting(spark, work, events, PARTITIONS), *_cutting(spark, work, events, 1)]
    return [*found, *_dispatching(work, dispatched)]


def _cutting(spark: SparkSession, work: Path, events: int, partitions: int) -> list[Result]:
    source = work / f"databus_{events}_{partitions}"
    if not (source / "_SUCCESS").exists():
        made(spark, events, partitions).write.mode("overwrite").parquet(str(source))
    frame = spark.read.parquet(str(source))
    moved, told = work / "databus_moved", work / "databus_told"

    def floor() -> None:
        rows = frame.drop("key", "value", "headers").repartition("topic", "partition")
        rows.sortWithinPartitions("topic", "partition", "offset").write.mode("overwrite").parquet(str(moved))

    def cut() -> None:
        databus.consistent_events(frame).write.mode("overwrite").parquet(str(told))

    took = side_by_side({f"databus, floor of {partitions}": floor, f"databus, cut of {partitions}": cut})
    ours, least = took[f"databus, cut of {partitions}"], took[f"databus, floor of {partitions}"]
    passed = spark.read.parquet(str(told))
    if passed.count() != events - events // PER_WINDOW:
        raise RuntimeError("every data event should pass")
    digest = content_hash(passed.select("partition", "offset", "window"))
    name = f"databus_windows_of_{partitions}_streams_over_floor"
    return [Result.of(name, ours.seconds / least.seconds, 2.0, ours, digest)]


def _dispatching(work: Path, counts: tuple[int, ...]) -> list[Result]:
    """The rate at which a listener that does nothing is called; and the memory for many events over few."""
    runs = {count: sorted((measured(work, count) for _ in range(3)), key=_seconds)[1] for count in counts}
    for count, run in runs.items():
        print(f"  databus, {count:,} events dispatched: {run}", flush=True)
    middle, most, least = runs[counts[len(counts) // 2]], runs[counts[-1]], runs[counts[0]]
    rate = counts[len(counts) // 2] / middle["seconds"]
    told = Timing(middle["seconds"], middle["peak_memory_mb"])
    memory = most["peak_memory_mb"] / least["peak_memory_mb"]
    of_most = Timing(most["seconds"], most["peak_memory_mb"])
    return [
        Result.of(
            "databus_dispatched_a_second", rate, 200_000, told, str(middle["windows"]), better="higher"
        ),
        Result.of("databus_dispatch_memory_over_least", memory, 1.2, of_most, str(most["windows"])),
    ]


def _seconds(run: dict[str, Any]) -> float:
    return float(run["seconds"])


def made(spark: SparkSession, events: int, partitions: int) -> DataFrame:
    """Decoded events in windows of nine and an end, spread over partitions of a topic."""
    place = F.floor(F.col("id") / partitions)
    window = F.floor(place / PER_WINDOW)
    is_end = place % PER_WINDOW == PER_WINDOW - 1
    columns = {
        "topic": F.lit("t"),
        "partition": (F.col("id") % partitions).cast("int"),
        "offset": place,
        "timestamp": F.timestamp_seconds(place),
        "kind": F.when(is_end, "end").otherwise("data"),
        "opcode": F.when(~is_end, "UPSERT"),
        "scn": window,
        "physical_partition": F.lit(1),
        "source_id": F.when(~is_end, PLANES.id),
        "source": F.when(~is_end, PLANES.name),
        "long_key": F.col("id"),
        "event_timestamp": F.timestamp_seconds(window),
        "schema_id": F.lit(next(iter(PLANES.texts))),
        "payload": F.concat(F.unhex(F.lit("10")), F.lpad(F.col("id").cast("string"), 8, "N").cast("binary")),
    }
    rows = spark.range(0, events, 1, 8)
    return rows.select(
        *(
            columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in EVENT_SCHEMA
        )
    )
