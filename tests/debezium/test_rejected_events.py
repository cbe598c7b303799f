"""What events a ledger of a table could not use: they are rows of the changes, counted and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, debezium, merge, rejects
from cdckit.model.records import RECORD_SCHEMA
from support.doors import AT

COLUMNS = {"id": "int32", "amount": "decimal(10,2)"}


def event(table: str, **after: Any) -> bytes:
    source = {"connector": "postgresql", "name": "shop", "ts_ms": 1000, "db": "d", "schema": "s"}
    return json.dumps(
        {"op": "c", "ts_ms": 1000, "after": after, "source": {**source, "table": table}}
    ).encode()


VALUES = [
    event("payments", id=1, amount="10.00"),
    event("payments", id=2, amount="a lot"),
    event("payments", id=3, amount="30.00")[:60],
    event("refunds", id=4, amount="nothing"),
    event("payments", id=5, amount="50.00"),
]


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    rows = [(b"k", value, "shop", 0, at, AT, 0, None) for at, value in enumerate(VALUES)]
    records = spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)
    return debezium.changes(debezium.decode(records), "payments", keys=["id"], columns=COLUMNS)


def test_an_event_that_cannot_be_used_is_a_reject_among_the_changes(changes: DataFrame) -> None:
    """Of the table, or of nobody knows which; what another table could not use is that one's."""
    found = {row["offset"]: row for row in rejects(changes).collect()}
    assert {offset: row["error_code"] for offset, row in found.items()} == {1: "VALUE_INVALID", 2: "NOT_JSON"}
    assert [bytes(found[offset]["value"]) for offset in (1, 2)] == VALUES[1:3]
    assert "a lot" in found[1]["error_description"]


def test_a_merge_passes_over_them(changes: DataFrame) -> None:
    history = merge(changes, entity="payment", keys=["id"])
    assert sorted(row["id"] for row in history.collect()) == [1, 5]


def test_a_ledger_counts_and_keeps_them(
    spark: SparkSession, changes: DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(spark, tmp_path, entity="payment", keys=["id"], buckets=1)
    result = ledger.apply(changes)
    assert (result.news, result.rejects) == (2, 2)
    assert {row["offset"] for row in ledger.rejects().collect()} == {1, 2}
    assert any("could not be used: 2" in message for message in caplog.messages)
