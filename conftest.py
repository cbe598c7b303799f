"""The session of all tests, and the names that examples in docstrings have."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _pytest.doctest import DoctestItem  # pytest exports no name for it
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit
from cdckit.model.records import RECORD_SCHEMA
from tools import jvm_calls
from tools.jvm_options import with_generated_code, with_ours

pytest_plugins = ["tools.tiers"]

jvm_calls.install()

ADAPTIVE = "spark.sql.adaptive.enabled"

CHANGES = """
    'upsert' 2024-01-01T09:00:00Z m1 1 1 kettle
    'upsert' 2024-01-01T09:00:00Z m1 2 2 mug
    'upsert' 2024-01-01T10:00:00Z m2 1 1 teapot
    'delete' 2024-01-01T11:00:00Z m3 1 2 -
"""


def pytest_configure(config: pytest.Config) -> None:
    """Settle what the JVM of this run is told when it starts."""
    generated = config.option.tier == "soak" or getattr(config.option, "nbval", False)
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    os.environ["SPARK_SUBMIT_OPTS"] = with_ours(given, generated=generated)


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The one local session of the tests and the examples, made when the first asks for it."""
    # To plan anew after each shuffle takes a sixth of a test's time, and so do a third and a fourth partition
    # beside the two that keep entities apart; the soak goes as a user's work does.
    is_soak = pytestconfig.option.tier == "soak"
    config = {
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "4" if is_soak else "2",
        ADAPTIVE: str(is_soak).lower(),
    }
    running = cdckit.session(app_name="cdckit-tests", memory="2g", config=config)
    # Else Spark walks the stack for each RDD, to say of its jobs at which line of Spark they were begun.
    for form in ("callSite.short", "callSite.long"):
        running.sparkContext.setLocalProperty(form, "a test")
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _generated_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """
    The smoke test of each door, and the examples of each question, go by generated code and adaptive plans.
    """
    node = request.node
    is_question = isinstance(node, DoctestItem) and node.dtest.name.startswith("cdckit.query")
    if not is_question and node.get_closest_marker("smoke") is None:
        yield
        return
    spark = request.getfixturevalue("spark")
    before = spark.conf.get(ADAPTIVE, "true")
    spark.conf.set(ADAPTIVE, "true")
    with with_generated_code(spark):
        yield
    spark.conf.set(ADAPTIVE, str(before))


@pytest.fixture(autouse=True)
def _example_frames(doctest_namespace: dict[str, Any], request: pytest.FixtureRequest) -> None:
    """
    Two products of one shop: `changes` of them, and their `history`; where an example names them.

    In the Replicate door: four `records` about airlines, and the `zone` that the first of them makes.
    In the Debezium door: three events of one product, `decoded`.
    In the RDSS door: three messages about one dataset, `decoded`.
    In the Databus door: two sources, `planes` and `flights`, and five windows of `events`.
    """
    if not isinstance(request.node, DoctestItem):
        return
    spark: SparkSession = request.getfixturevalue("spark")  # `F` does not work before
    # One dictionary serves all examples: a name of another one's would hide that of a module.
    doctest_namespace.clear()
    doctest_namespace.update(session=cdckit.session, F=F, records_of=records_of)
    written = "".join(example.source for example in request.node.dtest.examples)
    named = {name for name in ("changes", "history") if re.search(rf"\b{name}\b", written)}
    if named:
        frames = example_frames(spark)
        doctest_namespace.update({name: frames[name] for name in named})
    if request.node.dtest.name.startswith("cdckit.rdss") and re.search(r"\bdecoded\b", written):
        doctest_namespace["decoded"] = example_messages(spark)
    if request.node.dtest.name.startswith("cdckit.databus") and re.search(r"\bevents\b", written):
        doctest_namespace.update(example_events(spark))
    if request.node.dtest.name.startswith("cdckit.debezium") and re.search(r"\bdecoded\b", written):
        doctest_namespace["decoded"] = database_events(spark)
    if request.node.dtest.name.startswith("cdckit.replicate") and re.search(r"\brecords\b|\bzone\b", written):
        doctest_namespace.update(zip(("records", "zone"), airlines(spark), strict=True))


@cache
def example_frames(spark: SparkSession) -> dict[str, DataFrame]:
    """Computed once for all examples: a merge takes longer than most of them."""
    changes = example_changes().localCheckpoint()
    return {
        "changes": changes,
        "history": cdckit.merge(changes, entity="product", keys=["number"]).localCheckpoint(),
    }


@cache
def database_events(spark: SparkSession) -> DataFrame:
    """Of the cases of the Debezium door: a product's create, an update of its price alone, its delete."""
    cases = json.loads((Path(__file__).parent / "tests/cases/debezium/events.json").read_text())
    chosen = [json.dumps(cases["product"][name]).encode() for name in ("create", "update", "delete")]
    return cdckit.debezium.decode(records_of(*chosen)).localCheckpoint()


@cache
def airlines(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Of the samples: metadata of one table, two rows of a full load, an update; and the zone of these."""
    chosen = (
        ("flights.metadata", 1),
        ("schedule.airlines", 3),
        ("schedule.airlines", 4),
        ("schedule.airlines", 17),
    )
    rows = pa.concat_tables(
        [pq.read_table(cdckit.samples(f"replicate/{name}.parquet")) for name in ("metadata", "schedule")]
    ).to_pylist()
    found = [
        tuple(row[name] for name in RECORD_SCHEMA.names)
        for row in rows
        if (row["topic"], row["offset"]) in chosen
    ]
    records = spark.createDataFrame(found, RECORD_SCHEMA)
    zone = cdckit.replicate.schema_zone(cdckit.replicate.metadata(cdckit.replicate.decode(records)))
    return records, spark.createDataFrame(zone.collect(), zone.schema)


@cache
def example_messages(spark: SparkSession) -> DataFrame:
    """Of the cases: an object's create, its update an hour later, and its delete after another."""
    messages = json.loads((Path(__file__).parent / "tests/cases/rdss/messages.json").read_text())["messages"]
    create, update, delete = (messages[name] for name in ("create", "update", "delete"))
    update["messageBody"] = {**create["messageBody"], "objectTitle": "Tides, again"}
    del update["messageBody"]["language"]
    for hour, message in ((13, update), (14, delete)):
        message["messageHeader"]["messageTimings"]["publishedTimestamp"] = f"2024-03-01T{hour}:00:00Z"
    decoded = cdckit.rdss.decode(
        records_of(*(json.dumps(each).encode() for each in (create, update, delete)))
    )
    return spark.createDataFrame(decoded.collect(), decoded.schema)


@cache
def example_events(spark: SparkSession) -> dict[str, Any]:
    """A window, one that is rolled back, the first one again, the next one, and one that is open."""
    said = {
        "planes": ("tail", "string", b"\x06N12\x02\x6e"),
        "flights": ("number", "long", b"\x90\x03\x02\x14"),
    }
    sources = {
        name: cdckit.databus.Source(number, name, [json.dumps(_record(name, key, kind))])
        for number, (name, (key, kind, _)) in enumerate(said.items(), 3)
    }
    told = []
    for word in ["p5", "f5", ".5", "f6", "<6", "p5", "f5", ".5", "f6", ".6", "f7"]:
        scn = int(word[1])
        event: dict[str, Any] = {"sequence": scn, "physicalPartitionId": 1}
        event["timestampInNanos"] = 1_704_099_600_000_000_000 + scn * 1_000_000_000
        if word[0] in "pf":
            source = sources["planes" if word[0] == "p" else "flights"]
            (number,) = source.texts
            value = base64.b64encode(said[source.name][2]).decode()
            event |= {"opcode": "UPSERT", "key": 12, "logicalPartitionId": 0, "srcId": source.id}
            event |= {"schemaId": number, "valueEnc": "JSON", "value": value}
        else:
            event["srcId"] = -2 if word[0] == "." else -51
        told.append(json.dumps(event).encode())
    events = cdckit.databus.decode(records_of(*told), sources.values())
    return {"events": spark.createDataFrame(events.collect(), events.schema), **sources}


def _record(name: str, key: str, kind: str) -> dict[str, Any]:
    seats = {"name": "seats", "type": ["null", "int"]}
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind}, seats]}


def records_of(*values: bytes | None) -> DataFrame:
    """Records of one topic with these values, in this order."""
    listed = [(None, value, "topic", 0, offset, None, 1, None) for offset, value in enumerate(values)]
    return cdckit.session().createDataFrame(listed, RECORD_SCHEMA)


def example_changes() -> DataFrame:
    """Three messages of a shop about two products."""
    rows = [line.split() for line in CHANGES.strip().splitlines()]
    listed = [
        (op.strip("'"), at, m, int(record), int(number), None if name == "-" else name)
        for op, at, m, record, number, name in rows
    ]
    frame = cdckit.session().createDataFrame(
        listed, "operation string, at string, m string, record int, number int, name string"
    )
    at = F.to_timestamp("at")
    return frame.select(
        "operation",
        at.alias("effective_timestamp"),
        F.lit("").alias("sequence"),
        F.struct(
            at.alias("timestamp"),
            F.lit("shop").alias("topic"),
            F.lit(0).alias("partition"),
            F.substring("m", 2, 1).cast("long").alias("offset"),
            F.col("record").alias("record_number"),
        ).alias("arrival"),
        F.col("m").alias("message_id"),
        F.lit("shop").alias("source"),
        F.lit(0).alias("priority"),
        F.struct("number", "name").alias("data"),
        F.struct(F.lit(True).alias("number"), F.col("name").isNotNull().alias("name")).alias("carried"),
    )
