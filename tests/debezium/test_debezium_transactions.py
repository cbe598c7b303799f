"""`debezium.find_missing_events` and `find_frontiers`: what the counts of transactions say."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
        "ts_ms": HOUR,
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
    *(row("shop.s.a", "5", n, ts_ms=HOUR + 4 * 3_600_000) for n in (1, 3)),
    # Another source: whole, and its transactions have the same names.
    row("till.d.b", "2", 1, **MYSQL),
    end("till", "2", 5, d_b=1),
    # One that numbers nothing, and one that has no transactions.
    row("mute.s.a", "9", None, name="mute"),
    # A heartbeat says nothing of what was read.
    ("__debezium-heartbeat.shop", {"ts_ms": HOUR + 9 * 3_600_000}),
    ("__debezium-heartbeat.mute", {"ts_ms": HOUR}),
]


def decode(spark: SparkSession, said: Iterable[tuple[str, Any]]) -> DataFrame:
    listed = [
        (None, json.dumps(value).encode(), topic, 0, offset, None, 1, None)
        for offset, (topic, value) in enumerate(said)
    ]
    return debezium.decode(spark.createDataFrame(listed, RECORD_SCHEMA)).localCheckpoint()


@pytest.fixture(scope="module")
def decoded(spark: SparkSession) -> DataFrame:
    return decode(spark, reversed(SAID))


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


def transaction(id_: str, hour: float, *, ends: bool = True, **block: Any) -> list[Any]:
    """One event and, an hour later, its end; `place` stands for its place in the log."""
    if (place := block.pop("place", None)) is not None:
        block["sequence"] = f'["{place}","{place}"]'
    at = {"ts_ms": HOUR + int(hour * 3_600_000)}
    event = row("shop.s.a", id_, 1, **at | block)
    return [event, *([end("shop", id_, int(hour) + 1, s_a=1)] if ends else [])]


def test_a_transaction_without_its_end_before_one_with_it_is_incomplete(spark: SparkSession) -> None:
    """By the order of the log where it is said; else by times, which never let the frontier be too late."""
    ten = datetime(2024, 1, 1, 10)
    cases: dict[str, tuple[list[Any], datetime | None, int]] = {
        # The last one may still end.
        "running": ([*transaction("1", 0), *transaction("2", 2, ends=False)], ten, 0),
        "lost": (
            [*transaction("1", 0), *transaction("2", 2, ends=False), *transaction("3", 4)],
            ten,
            1,
        ),
        # A statement may say an earlier time than the end of what stands ahead of it, or a later one than
        # the end of what stands behind it.
        "behind": (
            [*transaction("1", 0, place=1), *transaction("2", 0.5, ends=False, place=2)],
            ten,
            0,
        ),
        "ahead": (
            [
                *transaction("1", 0, place=1),
                *transaction("2", 6, ends=False, place=2),
                *transaction("3", 4, place=3),
            ],
            ten,
            1,
        ),
        # The later one has changed other tables alone, which are not read.
        "elsewhere": (
            [
                *transaction("1", 0, place=1),
                *transaction("2", 2, ends=False, place=2),
                end("shop", "3", 4, s_unread=1),
            ],
            ten,
            1,
        ),
        "first": ([*transaction("1", 0, ends=False), *transaction("2", 2)], None, 1),
        # Nothing but the record's own time.
        "timeless": ([*transaction("1", 0), *transaction("2", 0, ends=False, ts_ms=0)], None, 1),
    }
    said = [
        (topic.replace("shop", name), json.loads(json.dumps(value).replace("shop", name)))
        for name, (listed, _, _) in cases.items()
        for topic, value in listed
    ]
    found = debezium.find_frontiers(decode(spark, said)).collect()
    assert {row["source"]: tuple(row)[1:] for row in found} == {
        name: (until, incomplete) for name, (_, until, incomplete) in cases.items()
    }


def test_postgresql_says_other_ids_in_each_event_and_at_the_end(spark: SparkSession) -> None:
    """As seen with Debezium 2.7.4: behind the number of the transaction stands the LSN of what is told."""
    topic, truncate = row("shop.s.a", "733:22520104", 2)
    said = [row(topic, "733:22512776", 1), (topic, truncate | {"op": "t", "after": None})]
    said += [end("shop", "733:22520296", 0, s_a=3)]
    assert [tuple(each) for each in debezium.find_missing_events(decode(spark, said)).collect()] == [
        ("shop", "733", "s.a", 3, 3)
    ]
