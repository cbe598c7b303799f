"""Databus: windows cut, beside a shuffle, sort and write of their events; and events for a listener."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, Timing, content_hash, side_by_side
from cdckit import databus
from cdckit.databus.event_rows import EVENT_SCHEMA

EVENTS = 5_000_000
PARTITIONS = 8
PER_WINDOW = 10
DISPATCHED = 500_000
PLANES = databus.Source(
    3,
    "planes",
    ['{"type": "record", "name": "P", "fields": [{"name": "tail", "type": "string"}]}'],
)


def results(spark: SparkSession, work: Path, *, events: int = EVENTS) -> list[Result]:
    """Events of eight streams, and of one alone; then half a million of them to a listener."""
    found = [*_cutting(spark, work, events, PARTITIONS), *_cutting(spark, work, events, 1)]
    return [*found, _dispatching(spark, work, min(events, DISPATCHED))]


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
        databus.consistent(frame).write.mode("overwrite").parquet(str(told))

    took = side_by_side({f"databus, floor of {partitions}": floor, f"databus, cut of {partitions}": cut})
    ours, least = took[f"databus, cut of {partitions}"], took[f"databus, floor of {partitions}"]
    passed = spark.read.parquet(str(told))
    if passed.count() != events - events // PER_WINDOW:
        raise RuntimeError("every data event should pass")
    digest = content_hash(passed.select("partition", "offset", "window"))
    name = f"databus_windows_of_{partitions}_streams_over_floor"
    return [_result(name, ours.seconds / least.seconds, 2.0, "lower", ours, digest)]


def _dispatching(spark: SparkSession, work: Path, events: int) -> Result:
    source = work / f"databus_{events}_1"
    if not (source / "_SUCCESS").exists():
        made(spark, events, 1).write.mode("overwrite").parquet(str(source))
    stream = databus.EventStream(spark.read.parquet(str(source)), databus.Subscription([PLANES]))
    ended: list[databus.Outcome] = []

    def dispatch() -> None:
        ended.append(databus.dispatch(stream, databus.Consumer()))

    took = side_by_side({"databus, dispatched to nothing": dispatch})["databus, dispatched to nothing"]
    return _result(
        "databus_dispatched_a_second", events / took.seconds, 200_000, "higher", took, ended[-1].state
    )


def _result(name: str, ratio: float, bar: float | None, better: str, took: Timing, digest: str) -> Result:
    return Result(name, round(ratio, 2), bar, better, round(took.seconds, 2), took.peak_memory_mb, digest)


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
