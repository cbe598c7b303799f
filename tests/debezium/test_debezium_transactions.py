"""`debezium.find_missing_events` and `find_frontiers`: what the counts of transactions say."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import debezium
from cdckit.model.records import RECORD_SCHEMA

HOUR = 1_704_099_600_000  # 2024-01-01 09:00 UTC


def row(topic: str, transaction: str, order: int | None, **source: Any) -> tuple[str, Any]:
    block = {
        "connector": "postgresql",
        "name": "shop",
        "db": "d",
        "schema": "s",
        "table": "a",
        "ts_ms": 1,
        **source,
    }
    told = {"op": "c", "after": {"id": order}, "source": block}
    numbers = {"id": transaction, "total_order": order, "data_collection_order": order}
    return topic, told | ({"transaction": numbers} if order else {})


def end(topic: str, transaction: str, hour: int, **counts: int) -> tuple[str, Any]:
    each = [{"data_collection": name.replace("_", "."), "event_count": n} for name, n in counts.items()]
    whole = {"status": "END", "id": transaction, "event_count": sum(counts.values())}
    return f"{topic}.transaction", whole | {"data_collections": each, "ts_ms": HOUR + hour * 3_600_000}


MYSQL = {"connector": "mysql", "name": "till", "db": "d", "schema": None, "table": "b"}
SAID = [
    # Whole; one event came twice, and a text says its number.
    *(row("shop.s.a", "1", 1), row("shop.s.a", "1", 2), row("shop.s.a", "1", 2)),
    end("shop", "1", 0, s_a=2),
    # The first, the third and the last are missing; of s.unread there is no event in the feed at all.
    *(row("shop.s.a", "2", 2), row("shop.s.a", "2", 4)),
    ("shop.transaction", {"payload": end("shop", "2", 1, s_a=5, s_unread=9)[1], "schema": {}}),
    # All of it, and then a whole one again.
    end("shop", "3", 2, s_a=2),
    row("shop.s.a", "4", 1),
    end("shop", "4", 3, s_a=1),
    # Not ended: what is between is known.
    *(row("shop.s.a", "5", 1), row("shop.s.a", "5", 3)),
    # Another source: whole, and its transactions have the same names.
    row("till.d.b", "2", 1, **MYSQL),
    end("till", "2", 5, d_b=1),
    # One that numbers nothing, and one that has no transactions.
    row("mute.s.a", "9", None, name="mute"),
    # A heartbeat says nothing of what was read.
    ("__debezium-heartbeat.shop", {"ts_ms": HOUR + 9 * 3_600_000}),
    ("__debezium-heartbeat.mute", {"ts_ms": HOUR}),
]


@pytest.fixture(scope="module")
def decoded(spark: SparkSession) -> DataFrame:
    listed = [
        (None, json.dumps(value).encode(), topic, 0, offset, None, 1, None)
        for offset, (topic, value) in enumerate(reversed(SAID))
    ]
    return debezium.decode(spark.createDataFrame(listed, RECORD_SCHEMA)).localCheckpoint()


def test_the_missing_events_of_each_transaction_are_told_by_their_numbers(decoded: DataFrame) -> None:
    found = debezium.find_missing_events(decoded)
    assert sorted(map(tuple, found.collect())) == [
        ("shop", "2", "s.a", 1, 1),
        ("shop", "2", "s.a", 3, 3),
        ("shop", "2", "s.a", 5, 5),
        ("shop", "3", "s.a", 1, 2),
        ("shop", "5", "s.a", 2, 2),
    ]


def test_a_source_is_complete_until_the_end_of_what_came_whole(decoded: DataFrame) -> None:
    found = {row["source"]: tuple(row)[1:] for row in debezium.find_frontiers(decoded).collect()}
    assert found == {"shop": (datetime(2024, 1, 1, 9), 2), "till": (datetime(2024, 1, 1, 14), 0)}
