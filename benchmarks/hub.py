"""The data hub: a run over messages, against what Spark takes to shuffle, sort and write as many rows."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, Timing, content_hash, side_by_side
from benchmarks.merging import SPAN_SECONDS, floor, random_changes
from cdckit import datahub
from cdckit.model.records import RECORD_SCHEMA

SMALL, MIDDLE, LARGE = 20_000, 110_000, 200_000
"""Numbers of messages."""
RECORDS = 5
"""How many records a message carries."""
KEYS = 10
"""One entity for so many records."""
ENTITIES = {"flight": "plane", "plane": "airport", "airport": "airport"}
"""Each with the entity that its link leads to."""
SYSTEMS = ("schedule", "airport", "operations")
"""From the lowest priority to the highest."""
NOW = datetime(2014, 1, 1, tzinfo=UTC)


def results(spark: SparkSession, work: Path) -> list[Result]:
    """Runs over 200,000 messages with a million records, over a tenth of them, and over what is between."""
    changes = _changes(spark, work, LARGE * RECORDS)
    source, received = work / f"hub_messages_{LARGE}.parquet", work / "hub_received"
    for messages in (SMALL, MIDDLE, LARGE):
        _receive(spark, message_files(spark, work, messages), work / f"hub_received_{messages}")
    runs: dict[str, Callable[[], object]] = {
        "floor": lambda: _write(floor(spark.read.parquet(str(changes))), work / "floor.parquet"),
        "receive": lambda: _receive(spark, source, received),
        # One after the other in every turn: the sizes are compared, and code grows warm by and by.
        "small": lambda: _run(spark, work / f"hub_received_{SMALL}", work / f"hub_{SMALL}"),
        "middle": lambda: _run(spark, work / f"hub_received_{MIDDLE}", work / f"hub_{MIDDLE}"),
        "run": lambda: _run(spark, work / f"hub_received_{LARGE}", work / "hub"),
    }
    took = side_by_side(runs)
    digest = content_hash(datahub.Hub(spark, hub_schema(), work / "hub").history("flight"))
    floor_, run, small, middle = (took[name].seconds for name in ("floor", "run", "small", "middle"))
    # What a run costs whatever it holds (planning, starting jobs) falls on few messages or on many.
    lower, upper = (middle - small) / (MIDDLE - SMALL), (run - middle) / (LARGE - MIDDLE)
    return [
        Result.of("hub_200k_messages_over_floor", run / floor_, 3.0, took["run"], digest),
        Result.of("hub_receive_over_floor", took["receive"].seconds / floor_, None, took["receive"], digest),
        Result.of("hub_per_message_200k_over_20k", (run / LARGE) / (small / SMALL), 1.2, took["run"], digest),
        Result.of("hub_next_message_110k_to_200k_over_20k_to_110k", upper / lower, 1.2, took["run"], digest),
    ]


def small_results(spark: SparkSession, work: Path) -> list[Result]:
    """
    Runs of a few messages: over few records, over ten thousand, and over a million.

    Beside them, as a unit, a trivial job of Spark: one that counts the rows of one of the hub's tables.
    """
    few, some, many = 3, 2_000, LARGE
    for messages in (few, some, many):
        folder = work / f"hub_grown_{messages}"
        if not folder.exists():
            _receive(spark, message_files(spark, work, messages), folder)
            datahub.Hub(spark, hub_schema(), folder).run(now=NOW)
    hubs = {each: datahub.Hub(spark, hub_schema(), work / f"hub_grown_{each}") for each in (few, some, many)}
    took: dict[str, list[float]] = {}
    for turn in range(12):
        for messages, hub in hubs.items():
            three = turn % 4 == 3 or messages == few
            hub.receive([hub_document(entity, turn) for entity in (ENTITIES if three else ["flight"])])
            name = f"three targets over {messages}" if three else f"one message over {messages}"
            began = time.perf_counter()
            hub.run(now=NOW)
            took.setdefault(name, []).append(time.perf_counter() - began)
        began = time.perf_counter()
        hubs[few].history("flight").count()
        took.setdefault("trivial", []).append(time.perf_counter() - began)
    # The first ones grow warm.
    seconds = {name: statistics.median(each[len(each) // 2 :]) for name, each in took.items()}
    for name, each in seconds.items():
        print(f"  {name:<36}{each:8.2f} s", flush=True)
    digest = content_hash(hubs[few].history("flight").select("number", "tailnum"))
    small, trivial = seconds[f"three targets over {few}"], seconds["trivial"]
    grown = seconds[f"one message over {many}"] / seconds[f"one message over {some}"]
    return [
        Result.of("hub_small_run_over_trivial_job", small / trivial, 8.0, Timing(small, 0), digest),
        Result.of(
            "hub_message_over_1m_over_10k", grown, 1.5, Timing(seconds[f"one message over {many}"], 0), digest
        ),
    ]


def hub_document(entity: str, turn: int) -> dict[str, Any]:
    record = {"number": turn, "linked_number": turn, "tailnum": f"N{turn}", "delay": turn}
    return {"guid": f"{entity} {uuid4()}", "system": "operations", "entity": entity, "data": [record]}


def message_files(spark: SparkSession, work: Path, messages: int) -> Path:
    source = work / f"hub_messages_{messages}.parquet"
    if not (source / "_SUCCESS").exists():
        random_messages(spark, messages).write.mode("overwrite").parquet(str(source))
    return source


def _changes(spark: SparkSession, work: Path, rows: int) -> Path:
    source = work / f"changes_{rows}_{rows // KEYS}.parquet"
    if not (source / "_SUCCESS").exists():
        random_changes(spark, rows, rows // KEYS).write.mode("overwrite").parquet(str(source))
    return source


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.mode("overwrite").parquet(str(path))


def _receive(spark: SparkSession, source: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    datahub.Hub(spark, hub_schema(), folder).receive(spark.read.parquet(str(source)))


def _run(spark: SparkSession, received: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(received, folder)
    datahub.Hub(spark, hub_schema(), folder).run(now=NOW)


def hub_schema() -> datahub.Schema:
    """Three entities with the fields of the merge benchmark, one of them a link; three systems that rank."""
    systems = []
    for priority, system in enumerate(SYSTEMS):
        mappings = {entity: [_mapping(entity, linked, priority)] for entity, linked in ENTITIES.items()}
        systems.append({"reference": system, "mappings": mappings})
    return datahub.schema(*systems)


def _mapping(entity: str, linked: str, priority: int) -> dict[str, Any]:
    link = {"reference": "link", "type": "link", "linkEntity": linked, "linkKey": "number"}
    return {
        "reference": entity,
        "priority": priority,
        "fields": [
            {"reference": "number", "type": "bigint", "key": True},
            {**link, "sourceLinkKey": "linked_number"},
            {"reference": "tailnum", "type": "text", "length": 20},
            {"reference": "delay", "type": "integer"},
            {"reference": "expected", "type": "timestamp"},
            {"reference": "temperature", "type": "number"},
            {"reference": "diverted", "type": "boolean"},
            {"reference": "distance", "type": "bigint"},
        ],
    }


def random_messages(spark: SparkSession, messages: int) -> DataFrame:
    """
    Seeded messages of records like the changes of the merge benchmark.

    The three entities come in turn, the systems are drawn.  A record carries its key and its link, and
    half of its other fields; 5 % delete.  Every key is spoken of, so no record waits for ever.
    """
    entity = _one_of(ENTITIES, F.col("id") % len(ENTITIES))
    keys = max(1, messages * RECORDS // len(ENTITIES) // KEYS)
    records = F.transform(F.sequence(F.lit(1), F.lit(RECORDS)), lambda place: _record(place, keys))
    document = F.struct(
        F.concat(F.lit("operations:"), F.lpad(F.col("id").cast("string"), 9, "0")).alias("guid"),
        _one_of(SYSTEMS, F.pmod(F.xxhash64(F.lit("system"), "id"), F.lit(len(SYSTEMS)))).alias("system"),
        entity.alias("entity"),
        _text_of(F.pmod(F.xxhash64(F.lit("time"), "id"), F.lit(SPAN_SECONDS)) + 1_360_000_000).alias(
            "timestamp"
        ),
        records.alias("data"),
    )
    return spark.range(messages).select(
        F.lit(None).cast("binary").alias("key"),
        F.encode(F.to_json(document), "utf-8").alias("value"),
        F.lit("hub").alias("topic"),
        (F.col("id") % 3).cast("int").alias("partition"),
        F.col("id").alias("offset"),
        F.timestamp_seconds(F.lit(1_370_000_000) + F.col("id")).alias("timestamp"),
        F.lit(0).alias("timestampType"),
        F.lit(None).cast(RECORD_SCHEMA["headers"].dataType).alias("headers"),
    )


def _record(place: Column, keys: int) -> Column:
    number = F.col("id") * RECORDS + place

    def drawn(salt: str, below: int) -> Column:
        return F.pmod(F.xxhash64(F.lit(salt), number), F.lit(below))

    def half(name: str, value: Column) -> Column:
        # What is null is not written at all.
        return F.when(drawn(f"carried {name}", 2) == 0, value).alias(name)

    # The first round names every key once, and deletes none; later rounds draw.
    first = number < keys * len(ENTITIES) * 2
    own = F.when(first, number % keys).otherwise(drawn("key", keys))
    return F.struct(
        own.alias("number"),
        drawn("link", keys).alias("linked_number"),
        half("tailnum", F.concat(F.lit("N"), drawn("tailnum", 5_000))),
        half("delay", drawn("delay", 1_000)),
        half("expected", _text_of(drawn("expected", 1_000_000))),
        half("temperature", drawn("temperature", 1_000) / 10),
        half("diverted", drawn("diverted", 2) == 0),
        half("distance", drawn("distance", 10_000)),
        F.when(~first & (drawn("operation", 20) == 0), True).alias("deleted_indicator"),
    )


def _one_of(names: Iterable[str], number: Column) -> Column:
    return F.element_at(F.array(*map(F.lit, names)), (number + 1).cast("int"))


def _text_of(seconds: Column) -> Column:
    return F.date_format(F.timestamp_seconds(seconds), "yyyy-MM-dd'T'HH:mm:ss")
