"""A session that sends its workers Arrow's large texts gets the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import bitemporal, merge, replicate, why
from cdckit.datahub import Hub, records, schema
from support.histories import random_changes, to_dataframe
from support.replicate_messages import Version, numbered, sequence
from support.replicate_messages import to_dataframe as to_records

LARGE_TEXTS = "spark.sql.execution.arrow.useLargeVarTypes"
FIELDS = {
    "k": "string",
    "a": "string",
    "p": "struct<x:double,y:string>",
    "list": "array<int>",
    "map": "binary",
}
ITEMS = Version(
    {"a": "int", "b": "string", "raw": "bytes", "list": {"type": "array", "items": "string"}}, keys=("a",)
)
SHOP: dict[str, Any] = {
    "reference": "*",
    "mappings": {
        "customer": [
            {"reference": "customer", "fields": [{"reference": "c", "key": True}, {"reference": "name"}]}
        ]
    },
}

Answers = dict[str, list[str]]


@pytest.fixture
def large_texts(spark: SparkSession) -> Iterator[Callable[[bool], None]]:
    yield lambda wanted: spark.conf.set(LARGE_TEXTS, str(wanted).lower())
    spark.conf.unset(LARGE_TEXTS)


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.collect())


def changes(spark: SparkSession) -> DataFrame:
    """Random ones, with texts and bytes at every depth."""
    said = to_dataframe(spark, random_changes(7, 5, FIELDS), FIELDS)
    listed = F.col("data.list").cast("array<string>")
    mapped = F.when(F.col("data.map").isNotNull(), F.create_map(F.lit("x"), F.col("data.map")))
    return said.withColumn("data", F.col("data").withField("list", listed).withField("map", mapped))


def of_the_merge(spark: SparkSession, folder: Path) -> Answers:
    said = changes(spark)
    arrived = said.where("arrival.timestamp is not null")
    key = said.select("data.k").where("data.k is not null").first()[0]
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return {
        "merge": rows(merge(said, entity="thing", keys=["k"])),
        "bitemporal": rows(bitemporal(arrived, entity="thing", keys=["k"])),
        "why": rows(why(said, {"k": key}, "list", keys=["k"], valid_at=at)),
    }


def of_replicate(spark: SparkSession, folder: Path) -> Answers:
    row = {"a": 1, "b": "text", "raw": b"\xff", "list": ["x", "y"]}
    at = sequence("20240101100000", 1)
    sent = [ITEMS.md(), ITEMS.dt("INSERT", row, changeSequence=at), b"atMSG", None]
    decoded = replicate.decode(to_records(spark, numbered(sent)))
    zone = replicate.schema_zone(replicate.metadata(decoded))
    data = replicate.data(to_records(spark, numbered(sent)), zone)
    return {
        "decode": rows(decoded),
        "data": rows(data),
        "history": rows(merge(replicate.changes(data, keys=["a"]), entity="item", keys=["a"])),
    }


def of_a_hub(spark: SparkSession, folder: Path) -> Answers:
    hub = Hub(spark, schema(SHOP), folder)
    at = datetime(2024, 1, 1, tzinfo=UTC)
    said = [
        {"guid": "m1", "entity": "customer", "data": [{"c": "1", "name": "Ann"}, {"c": "2", "name": None}]},
        {"guid": "m2", "entity": "customer", "data": [{"name": "nobody"}]},
    ]
    hub.receive(records(spark, said, received_at=at))
    hub.run(now=at)
    statuses = hub.messages().select("message_identifier", "status", "error_message")
    return {"history": rows(hub.history("customer")), "messages": rows(statuses)}


@pytest.mark.parametrize("part", [of_the_merge, of_replicate, pytest.param(of_a_hub, marks=pytest.mark.soak)])
def test_large_texts_change_no_answer(
    spark: SparkSession,
    tmp_path: Path,
    large_texts: Callable[[bool], None],
    part: Callable[[SparkSession, Path], Answers],
) -> None:
    large_texts(False)
    expected = part(spark, tmp_path / "plain")
    assert all(expected.values())
    large_texts(True)
    assert part(spark, tmp_path / "large") == expected
