"""Rows whose source had several logs, or says no place: what counts last, by hand, in any batches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, debezium, merge
from cdckit.model.records import RECORD_SCHEMA

Said = tuple[str, str, int, dict[str, Any]]
"""An event: its operation, the value, the second that it says, and its place."""

NOWHERE = {"file": "", "pos": 0, "row": 0}
CASES: dict[str, tuple[str, list[Said], str]] = {
    "a transaction that began before a snapshot and was committed after it": (
        "postgresql",
        [
            ("r", "read", 10, {"sequence": '[null,"500"]', "lsn": 500}),
            ("u", "begun before", 12, {"sequence": '["400","480"]', "lsn": 480}),
            ("u", "and once more", 12, {"sequence": '["400","490"]', "lsn": 490}),
        ],
        "and once more",
    ),
    "a number of a domain counts on across servers, whatever their clocks and files": (
        "mariadb",
        [
            ("u", "first", 10, {"gtid": "0-1-100", "file": "bin.9", "pos": 500}),
            ("u", "second", 9, {"gtid": "0-2-101", "file": "bin.1", "pos": 4}),
        ],
        "second",
    ),
    "a snapshot after a failover, in the second of the last change, from a file that sorts before": (
        "mariadb",
        [
            ("u", "changed", 10, {"gtid": "0-1-100", "file": "bin.9", "pos": 500}),
            ("r", "unseen", 10, {"file": "bin.1", "pos": 4}),
        ],
        "unseen",
    ),
    "what changed after that snapshot, which says a file that sorts behind": (
        "mariadb",
        [
            ("r", "unseen", 20, {"file": "bin.9", "pos": 500}),
            ("u", "changed", 12, {"gtid": "0-2-101", "file": "bin.1", "pos": 4}),
        ],
        "changed",
    ),
    "a snapshot from a server whose clock is behind": (
        "mysql",
        [
            ("u", "changed", 20, {"gtid": "aaa:100", "file": "bin.9", "pos": 500}),
            ("r", "unseen", 15, {"file": "bin.1", "pos": 4}),
        ],
        "unseen",
    ),
    "events of a stream that say no place": (
        "mysql",
        [("u", value, second, NOWHERE) for second, value in enumerate("ABAB", 1)],
        "B",
    ),
    "a second snapshot that says no place": (
        "mysql",
        [
            ("r", "A", 1, NOWHERE),
            ("u", "B", 2, {"file": "bin.3", "pos": 154}),
            ("r", "C", 9, NOWHERE),
        ],
        "C",
    ),
}  # fmt: skip
COLUMNS = {"id": "int32", "v": "string"}


def changes(spark: SparkSession, numbers: Iterable[int]) -> DataFrame:
    """The changes of the events of these numbers, of each case."""
    rows = []
    for case, (connector, events, _) in enumerate(CASES.values()):
        for number in numbers:
            if number < len(events):
                op, value, second, place = events[number]
                source = {"connector": connector, "name": f"s{case}", "table": "t", "ts_ms": second * 1000}
                event = {"op": op, "after": {"id": case, "v": value}, "source": source | place}
                at = datetime(2024, 3, 1, second=number, tzinfo=UTC)
                rows.append((None, json.dumps(event).encode(), "t", 0, 10 * case + number, at, 0, None))
    decoded = debezium.decode(spark.createDataFrame(rows, RECORD_SCHEMA))
    return debezium.changes(decoded, "t", keys=["id"], columns=COLUMNS)


EXPECTED = {case: value for case, (_, _, value) in enumerate(CASES.values())}


def last_values(history: DataFrame) -> dict[int, str]:
    return {row["id"]: row["v"] for row in history.where("valid_to_timestamp IS NULL").collect()}


def test_what_counts_last_in_one_call(spark: SparkSession) -> None:
    told = changes(spark, range(4)).localCheckpoint()
    assert last_values(merge(told, entity="row", keys=["id"])) == EXPECTED
    assert told.select("source", "message_id").distinct().count() == told.count()


@pytest.mark.parametrize("batches", [((0,), (1,), (2, 3)), ((3, 1), (0, 2))])
def test_what_counts_last_in_a_ledger(
    spark: SparkSession, tmp_path: Path, batches: tuple[tuple[int, ...], ...]
) -> None:
    ledger = Ledger(spark, tmp_path, entity="row", keys=["id"], buckets=1)
    for numbers in batches:
        ledger.apply(changes(spark, numbers))
    assert last_values(ledger.history()) == EXPECTED


def test_a_batch_that_names_no_column_is_an_ordinary_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A truncate alone, beside its schema, in a ledger that knows types: it ends the rows of its source."""
    source = {"connector": "postgresql", "name": "s", "table": "t"}
    fields = [{"field": "id", "type": "int32"}, {"field": "v", "type": "string"}]
    schema = {"fields": [{"field": "after", "fields": fields}]}
    said: list[dict[str, Any]] = [
        {"op": "c", "after": {"id": 1, "v": "a"}, "source": source | {"lsn": 10, "ts_ms": 1000}},
        {"op": "t", "source": source | {"lsn": 20, "ts_ms": 2000}},
    ]
    ledger = Ledger(spark, tmp_path, entity="row", keys=["id"], buckets=1)
    for number, payload in enumerate(said):
        value = json.dumps({"schema": schema, "payload": payload}).encode()
        sent = spark.createDataFrame([(None, value, "t", 0, number, None, 0, None)], RECORD_SCHEMA)
        ledger.apply(debezium.changes(debezium.decode(sent), "t", keys=["id"]))
    assert last_values(ledger.history()) == {1: None}
