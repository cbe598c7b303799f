"""Rows in the order of their source: reads of snapshots, waiting statements and truncates, in any batches."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, debezium, merge, why
from cdckit.model.records import RECORD_SCHEMA
from support.source_order import COLUMNS, KEYS, NAIVE, START, Event, changes, decoded


def test_a_row_first_seen_by_a_snapshot_is_there_from_an_instant_that_is_said(spark: SparkSession) -> None:
    """Deleted at 20, read a little before but stamped 50: there from 5 on, the beginning of the stream."""
    events = [Event(0, "r", 10, 50, 1, "old"), Event(0, "d", 11, 20, 1, "old"), Event(0, "r", 12, 60, 2, "b")]
    begun = START + timedelta(seconds=5)
    said = debezium.changes(
        decoded(spark, list(enumerate(events))), "t", keys=KEYS, columns=COLUMNS, snapshot_at=begun
    )
    history = merge(said, entity="row", keys=KEYS).orderBy("id", "valid_from_timestamp").collect()
    seconds = [(row["id"], row["v"], (row["valid_from_timestamp"] - NAIVE).seconds) for row in history]
    assert seconds == [(1, "old", 5), (1, None, 20), (2, "b", 5)]


def test_why_names_the_truncate(spark: SparkSession) -> None:
    events = [Event(0, "c", 10, 1, 1, "a"), Event(0, "t", 11, 2), Event(0, "c", 12, 3, 2, "b")]
    told = why(changes(spark, list(enumerate(events))), {"life": 0, "id": 1}, "v", keys=KEYS).collect()
    assert [(row["operation"], row["value"], row["verdict"]) for row in told] == [
        ("upsert", "a", "SUPERSEDED"),
        ("absent", None, "WON"),
    ]


def mysql(offset: int, key: int, value: str, was: str | None, said: dict[str, Any]) -> tuple[Any, ...]:
    """A row of MySQL that was updated, or read where nothing is said of what it was."""
    source = {"connector": "mysql", "name": "shop", "table": "t", "row": 0, **said}
    row = {"life": 0, "id": key}
    before = {} if was is None else {"before": {**row, "v": was}}
    event = {"op": "u" if was else "r", "after": {**row, "v": value}, "source": source, **before}
    return (None, json.dumps(event).encode(), "t", 0, offset, START, 0, None)


@pytest.mark.parametrize("next_gtid", ["bbb:1", "aaa:10"])
def test_positions_of_mysql(spark: SparkSession, next_gtid: str) -> None:
    """
    Events of a compressed transaction share a position; a new master counts anew, which GTIDs tell.

    In a group all members write the group's name into them; so does a replica that of its master.

    Row 1: changed twice at one position, and delivered twice.  Row 2: read by the first snapshot, which
    knows no GTID and whose clock is ahead; changed on one server at second 2, on another at second 3.
    """
    second = int(START.timestamp()) * 1000
    together = {"file": "binlog.000009", "pos": 40, "ts_ms": second + 1000, "gtid": "aaa:1"}
    on_first = {"file": "binlog.000009", "pos": 50, "ts_ms": second + 2000, "gtid": "aaa:2"}
    on_next = {"file": "binlog.000001", "pos": 4, "ts_ms": second + 3000, "gtid": next_gtid}
    read = {"file": "binlog.000009", "pos": 45, "ts_ms": second + 9000, "snapshot": "true"}
    rows = [
        mysql(0, 1, "b", "a", together),
        mysql(1, 1, "c", "b", together),
        mysql(2, 1, "b", "a", together),
        mysql(3, 1, "c", "b", together),
        mysql(4, 2, "read", None, read),
        mysql(5, 2, "first", "read", on_first),
        mysql(6, 2, "next", "first", on_next),
    ]
    decoded = debezium.decode(spark.createDataFrame(rows, RECORD_SCHEMA)).localCheckpoint()
    said = debezium.changes(decoded, "t", keys=KEYS, columns=COLUMNS).localCheckpoint()
    assert said.select("message_id").distinct().count() == 5
    history = merge(said, entity="row", keys=KEYS).orderBy("id", "valid_from_timestamp").collect()
    seconds = [(row["id"], row["v"], (row["valid_from_timestamp"] - NAIVE).seconds) for row in history]
    assert seconds == [(1, "c", 1), (2, "first", 2), (2, "next", 3)]


def test_a_write_after_an_election_counts_behind_those_before(spark: SparkSession, tmp_path: Path) -> None:
    """MongoDB's events say a server's clock since Debezium 3.4; that of the new primary is behind."""
    second = int(START.timestamp()) * 1000
    rows = []
    for offset, (value, at) in enumerate([("first", 10), ("ahead", 13), ("new", 11), ("newer", 12)]):
        ms = second + at * 1000
        said: dict[str, Any] = {"version": "3.4.0.Final", "connector": "mongodb", "name": "shop"}
        said |= {"collection": "t", "ts_ms": ms, "wallTime": ms, "ord": 1}
        event = {"op": "u", "after": json.dumps({"_id": 1, "v": value}), "source": said}
        place = ("t", 0, offset, START + timedelta(days=1, seconds=offset))
        rows.append((b'{"id": "1"}', json.dumps(event).encode(), *place, 0, None))
    decoded = debezium.decode(spark.createDataFrame(rows, RECORD_SCHEMA)).localCheckpoint()
    types = {"_id": "int32", "v": "string"}
    written = debezium.changes(decoded, "t", keys=["_id"], columns=types).localCheckpoint()
    expected = [("first", 10), ("newer", 13)]
    assert values(merge(written, entity="row", keys=["_id"])) == expected
    ledger = Ledger(spark, tmp_path / "rows", entity="row", keys=["_id"], buckets=1)
    for batch in ("arrival.offset in (0, 2)", "arrival.offset = 1", "arrival.offset = 3"):
        ledger.apply(written.where(batch))
    assert values(ledger.history()) == expected


def values(history: DataFrame) -> list[tuple[str, int]]:
    rows = history.orderBy("valid_from_timestamp").collect()
    return [(row["v"], (row["valid_from_timestamp"] - NAIVE).seconds) for row in rows]
