"""The data hub: a run over messages, against what Spark takes to shuffle, sort and write as many rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, Timing, content_hash, side_by_side
from benchmarks.merging import floor, random_changes
from cdckit import datahub
from cdckit.records import RECORD_SCHEMA

RECORDS = 5
"""How many records a message carries."""
KEYS = 10
"""One entity for so many records."""
ENTITIES = {"flight": "plane", "plane": "airport", "airport": "airport"}
"""Each with the entity that its link leads to."""
NOW = datetime(2014, 1, 1, tzinfo=UTC)


def results(spark: SparkSession, work: Path) -> list[Result]:
    """200,000 messages with a million records, and a tenth of them."""
    large, digest = _measured(spark, work, 200_000)
    small, _ = _measured(spark, work, 20_000)
    middle, _ = _measured(spark, work, 110_000)
    run, received, bare = large["run"], large["receive"], large["floor"]
    # What a run costs whatever it holds (planning, starting jobs) falls on few messages or on many.
    lower = (middle["run"].seconds - small["run"].seconds) / 90_000
    upper = (run.seconds - middle["run"].seconds) / 90_000
    per_message = (run.seconds / 200_000) / (small["run"].seconds / 20_000)
    return [
        _result("hub_200k_messages_over_floor", run.seconds / bare.seconds, 3.0, run, digest),
        _result("hub_receive_over_floor", received.seconds / bare.seconds, None, received, digest),
        _result("hub_per_message_200k_over_20k", per_message, 1.2, run, digest),
        _result("hub_next_message_110k_to_200k_over_20k_to_110k", upper / lower, 1.2, run, digest),
    ]


def _result(name: str, ratio: float, bar: float | None, took: Timing, digest: str) -> Result:
    return Result(name, round(ratio, 2), bar, "lower", round(took.seconds, 2), took.peak_memory_mb, digest)


def _measured(spark: SparkSession, work: Path, messages: int) -> tuple[dict[str, Timing], str]:
    print(f"  {messages:,} messages of {RECORDS} records")
    rows = messages * RECORDS
    source = work / f"messages_{messages}.parquet"
    if not (source / "_SUCCESS").exists():
        random_messages(spark, messages).write.mode("overwrite").parquet(str(source))
    changes = work / f"changes_{rows}_{rows // KEYS}.parquet"
    if not (changes / "_SUCCESS").exists():
        random_changes(spark, rows, rows // KEYS).write.mode("overwrite").parquet(str(changes))
    received = work / "hub_received"
    runs: dict[str, Callable[[], object]] = {
        "floor": lambda: _write(floor(spark.read.parquet(str(changes))), work / "floor.parquet"),
        "receive": lambda: _receive(spark, source, received),
        "run": lambda: _run(spark, received, work / "hub"),
    }
    took = side_by_side(runs)
    hub = datahub.Hub(spark, hub_schema(), work / "hub")
    return took, content_hash(hub.history("flight"))


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.mode("overwrite").parquet(str(path))


def _receive(spark: SparkSession, source: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    datahub.Hub(spark, hub_schema(), folder).receive(spark.read.parquet(str(source)))


def _run(spark: SparkSession, received: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(received, folder)
    datahub.Hub(spark, hub_schema(), folder).process(now=NOW)


def hub_schema() -> datahub.Schema:
    """Three entities of eight fields, one of them a link."""
    mappings = {entity: [_mapping(entity, linked)] for entity, linked in ENTITIES.items()}
    return datahub.schema({"reference": "*", "mappings": mappings})


def _mapping(entity: str, linked: str) -> dict[str, Any]:
    link = {"reference": "link", "type": "link", "linkEntity": linked, "linkKey": "number"}
    return {
        "reference": entity,
        "fields": [
            {"reference": "number", "type": "bigint", "key": True},
            {**link, "sourceLinkKey": "linked_number"},
            {"reference": "name", "type": "text", "length": 20},
            {"reference": "delay", "type": "integer"},
            {"reference": "expected", "type": "timestamp"},
            {"reference": "temperature", "type": "number"},
            {"reference": "diverted", "type": "boolean"},
            {"reference": "distance", "type": "bigint"},
        ],
    }


def random_messages(spark: SparkSession, messages: int) -> DataFrame:
    """Seeded messages of the three entities in turn; every key is spoken of, so no record waits for ever."""
    entities = F.array(*map(F.lit, ENTITIES))
    entity = F.element_at(entities, (F.col("id") % len(ENTITIES) + 1).cast("int"))
    keys = messages * RECORDS // len(ENTITIES) // KEYS
    records = F.transform(F.sequence(F.lit(1), F.lit(RECORDS)), lambda place: _record(place, keys))
    at = F.timestamp_seconds(F.lit(1_360_000_000) + F.col("id"))
    document = F.struct(
        entity.alias("entity"),
        F.date_format(at, "yyyy-MM-dd'T'HH:mm:ss").alias("timestamp"),
        records.alias("data"),
    )
    return spark.range(messages).select(
        F.lit(None).cast("binary").alias("key"),
        F.encode(F.to_json(document), "utf-8").alias("value"),
        F.lit("hub").alias("topic"),
        (F.col("id") % 3).cast("int").alias("partition"),
        F.col("id").alias("offset"),
        F.timestamp_seconds(F.lit(1_360_000_060) + F.col("id")).alias("timestamp"),
        F.lit(0).alias("timestampType"),
        F.lit(None).cast(RECORD_SCHEMA["headers"].dataType).alias("headers"),
    )


def _record(place: Column, keys: int) -> Column:
    number = F.col("id") * RECORDS + place

    def drawn(salt: str, below: int) -> Column:
        return F.pmod(F.xxhash64(F.lit(salt), number), F.lit(below))

    # The first round names every key once; later rounds draw.
    own = F.when(number < keys * len(ENTITIES) * 2, number % keys).otherwise(drawn("key", keys))
    return F.struct(
        own.alias("number"),
        drawn("link", keys).alias("linked_number"),
        F.concat(F.lit("N"), drawn("name", 5_000)).alias("name"),
        drawn("delay", 1_000).alias("delay"),
        F.date_format(F.timestamp_seconds(drawn("expected", 1_000_000)), "yyyy-MM-dd'T'HH:mm:ss").alias(
            "expected"
        ),
        (drawn("temperature", 1_000) / 10).alias("temperature"),
        (drawn("diverted", 2) == 0).alias("diverted"),
        drawn("distance", 10_000).alias("distance"),
    )
