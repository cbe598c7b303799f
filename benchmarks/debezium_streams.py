"""Debezium streams: patches applied to their entities, beside their shuffle, sort and write."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, content_hash, side_by_side
from cdckit import streams
from cdckit.streams.requests import PATCH_SCHEMA

PATCHES = 1_000_000
ENTITIES = 100_000

_ORDER = ("timestamp", "topic", "partition", "offset", "part")
_ENTITY = ("db", "collection", "zone", "entity")


def results(spark: SparkSession, work: Path) -> list[Result]:
    """1,000,000 patches of 100,000 contacts, ten of each, which ask for the contact as it is then."""
    patches = _patches(spark, work / f"stream_patches_{PATCHES}")
    made, moved = work / "stream_answers", work / "stream_moved"

    def apply() -> None:
        streams.apply_patches(patches).write.mode("overwrite").parquet(str(made))

    def move() -> None:
        together = patches.repartition(*_ENTITY).sortWithinPartitions(*_ENTITY, *_ORDER)
        together.write.mode("overwrite").parquet(str(moved))

    took = side_by_side({"streams, patches applied": apply, "streams, patches moved": move})
    ours, floor = took.values()
    answers = spark.read.parquet(str(made))
    if answers.where("status = 1").count() != PATCHES:
        raise RuntimeError("every one of the patches should have been applied")
    digest = content_hash(answers.select("entity", "request", "after"))
    ratio = round(ours.seconds / floor.seconds, 2)
    seconds = round(ours.seconds, 2)
    return [Result("stream_updates_over_shuffle", ratio, 3.0, "lower", seconds, ours.peak_memory_mb, digest)]


def _patches(spark: SparkSession, folder: Path) -> DataFrame:
    """Patches as `entity_patches` gives them, made once and then kept: a create, then small changes."""
    if not (folder / "_SUCCESS").exists():
        number = F.col("id")
        entity = F.concat(F.lit("contact-"), number % ENTITIES)
        turn = F.floor(number / ENTITIES)
        text = F.sha2(number.cast("string"), 256)
        name = F.concat(F.lit('"'), F.substring(text, 1, 12), F.lit('"'))
        create = F.concat(
            F.lit('[{"op":"add","path":"firstName","value":'),
            name,
            F.lit(
                '},{"op":"add","path":"lastName","value":"Anderson"},{"op":"add","path":"calls","value":0},'
            ),
            F.lit('{"op":"add","path":"phone/home","value":"1-222-555-1234"}]'),
        )
        change = F.concat(
            F.lit('[{"op":"replace","path":"firstName","value":'),
            name,
            F.lit('},{"op":"inc","path":"calls","value":1}]'),
        )
        columns = {
            "timestamp": F.timestamp_seconds(F.lit(1415747086) + turn),
            "topic": F.lit("entity-patches"),
            "partition": F.lit(0),
            "offset": number,
            "db": F.lit("my-db"),
            "collection": F.lit("Contacts"),
            "zone": F.lit("default"),
            "entity": entity,
            "client_id": F.lit("c297cf20-18bd-40e2-827d-9b563ca28ccd"),
            "request": number,
            "user": F.lit("jsmith"),
            "begun": F.lit(1415747086227) + turn,
            "part": F.lit(1),
            "parts": F.lit(1),
            "learning": F.lit(False),
            "include_before": F.lit(False),
            "include_after": F.lit(True),
            "ops": F.when(turn == 0, create).otherwise(change),
            "errors": F.lit(None),
        }
        typed = (columns[field.name].cast(field.dataType).alias(field.name) for field in PATCH_SCHEMA)
        rows = spark.range(PATCHES).select(*typed).orderBy(F.hash("offset"))
        rows.repartition(8).write.mode("overwrite").parquet(str(folder))
    return spark.read.parquet(str(folder))
