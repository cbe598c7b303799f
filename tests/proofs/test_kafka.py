"""Streams from a Kafka broker that is killed and comes back: nothing is lost, nothing is doubled."""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jars import kafka_connector
from kafka import Broker
from programs import Running
from pyspark.sql import DataFrame, SparkSession

from cdckit import datahub, merge, replicate
from support.histories import plain
from support.killed_programs import hub_of
from support.replicate_messages import RECORD_SCHEMA, V1, V2, Record, record, sequence, to_dataframe
from tools.tiers import seeds

pytestmark = pytest.mark.soak

STEPS = 24
KILLED_AT = {4: 0.0, 12: 15.0}
"""After which steps the broker is killed, and how many seconds it stays away."""

NOW = datetime(2024, 2, 1, tzinfo=UTC)


def changes_of_items(seed: int) -> list[Record]:
    """Two versions of a table, its later one published late; some messages twice, some damaged."""
    rng = random.Random(seed)
    records = [record(V1.md(), 0, topic="metadata")]
    for place in range(1, 240):
        if place == 150:
            records.append(record(V2.md(), place, topic="metadata"))
            continue
        version = rng.choice([V1, V2] if place > 80 else [V1])
        row = {
            "id": rng.randrange(12),
            "price": rng.choice([None, 1, 2]),
            "note": rng.choice([None, "a", "b"]),
        }
        row |= {"colour": rng.choice([None, "red"])} if version is V2 else {}
        minute = rng.randrange(40)
        said = {
            "columnMask": rng.choice([None, bytes([1 | rng.randrange(8 if version is V1 else 16)])]),
            "changeSequence": sequence(f"2024010110{minute:02d}", place),
            "timestamp": f"2024-01-01T10:{minute:02d}:00",
        }
        value = version.dt(rng.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"]), row, **said)
        if rng.random() < 0.05:
            value = value[: rng.randrange(len(value))]
        elif rng.random() < 0.1:
            value = records[-1]["value"]
        records.append(record(value, place))
    return records


def messages_of_products(seed: int) -> list[dict[str, Any]]:
    """What a shop says of its products, each message at a time of its own, some messages twice."""
    rng = random.Random(seed)
    found = [
        {
            "guid": f"m{place}",
            "entity": "product",
            "timestamp": f"2024-01-{place // 24 + 1:02d}T{place % 24:02d}:00:00Z",
            "data": [{"number": rng.randrange(9), "name": rng.choice("abc")} for _ in range(2)],
        }
        for place in range(100)
    ]
    return [*found, *rng.sample(found, 10)]


@seeds(1, soak=1)
def test_a_broker_is_killed_while_streams_run(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    connector = ",".join(map(str, kafka_connector()))
    items, products = changes_of_items(seed), messages_of_products(seed)
    said = [record(json.dumps(each).encode(), place, topic="products") for place, each in enumerate(products)]
    for name, records in (("feed", items), ("hub", said)):
        table = pa.Table.from_pylist(records, schema=RECORD_SCHEMA)
        steps = pa.array([place * STEPS // len(records) for place in range(len(records))])
        pq.write_table(table.append_column("step", steps), tmp_path / f"{name}.parquet")
    told = stream(tmp_path, connector)
    print(told)

    feed = replicate.Feed(spark, tmp_path / "feed")
    feed.store.check()
    in_one = to_dataframe(spark, items)
    changes = replicate.table_changes(in_one, task="shop_task", table="ITEMS")
    assert rows(feed.table("ITEMS").history()) == rows(merge(changes, entity="ITEMS", keys=["id"]))
    assert feed.waiting().isEmpty()
    # A redelivered message may be damaged twice.
    damaged = {row["value"] for row in feed.rejects().select("value").collect()}
    whole = replicate.Feed(spark, tmp_path / "in one")
    whole.receive(in_one)
    assert damaged == {row["value"] for row in whole.rejects().select("value").collect()} != set()

    hub, undisturbed = hub_of(spark, tmp_path), hub_of(spark, tmp_path / "undisturbed")
    hub.store.check()
    undisturbed.receive(datahub.records(spark, products, received_at=NOW))
    undisturbed.run(now=NOW)
    assert rows(hub.history("product")) == rows(undisturbed.history("product"))
    statuses = ["message_identifier", "status", "attempts"]
    assert rows(hub.messages().select(statuses)) == rows(undisturbed.messages().select(statuses))
    assert hub.messages().count() == 100
    assert told["records"][0] >= len(items) + len(products)
    assert min(told["batches"]) > 5
    kept = feed.store.snapshot().read("records").count() + hub.store.snapshot().read("messages").count()
    assert kept == told["records"][0]


def stream(folder: Path, connector: str) -> dict[str, list[int]]:
    """Let the program run while its broker is killed and comes back; what it told at its end."""
    with (
        Broker(folder / "kafka") as broker,
        Running("stream_from_kafka.py", broker.address, connector, folder) as program,
    ):
        for step, seconds in KILLED_AT.items():
            program.wait_for(f"step {step}\n", 300)
            broker.kill()
            time.sleep(seconds)
            broker.start()
        program.ends_well(600)
        lines = list(program.lines)
    print("".join(line for line in lines if line.startswith("a ")))
    numbered = [line.split() for line in lines if line.startswith(("records", "batches", "begun"))]
    return {words[0]: [int(word) for word in words[1:]] for words in numbered}


def rows(frame: DataFrame) -> list[str]:
    """The rows of a table in one order, whatever order its columns are in."""
    listed = frame.select(sorted(frame.columns)).toArrow().to_pylist()
    return sorted(repr(plain(row)) for row in listed)
