"""Columns that are built once."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cdckit import datahub, debezium
from cdckit.parts.built_columns import built_once

AT = datetime(2024, 3, 1, tzinfo=UTC)


def test_a_column_is_built_once_for_its_arguments_and_anew_for_another_jvm(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    @built_once
    def more(name: str, by: int = 1) -> Column:
        built.append((name, by))
        return F.col(name) + by

    rows = spark.range(3)
    assert [row[0] for row in rows.select(more("id")).collect()] == [1, 2, 3]
    assert [row[0] for row in rows.select(more("id")).where(more("id") > 1).collect()] == [2, 3]
    assert [row[0] for row in rows.select(more("id", by=2)).collect()] == [2, 3, 4]
    assert built == [("id", 1), ("id", 2)]
    monkeypatch.setattr(SparkContext, "_gateway", object())
    kept = built_once(lambda: built.append(("anew", 0)))
    kept()
    monkeypatch.undo()
    kept()
    assert built[2:] == [("anew", 0), ("anew", 0)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls to the JVM, but for what only lets it forget an object."""
    sent: list[str] = []
    send = ClientServerConnection.send_command

    def noted(connection: ClientServerConnection, command: str) -> str:
        if not command.startswith("m\n"):
            sent.append(command)
        return str(send(connection, command))

    monkeypatch.setattr(ClientServerConnection, "send_command", noted)
    return sent


def test_the_second_batch_of_a_stream_builds_no_columns(spark: SparkSession, calls: list[str]) -> None:
    columns = {"id": "int64", **{f"field_{number}": "string" for number in range(8)}}

    def count_calls(number: int) -> int:
        source = {"connector": "postgresql", "table": "products"}
        event = {"op": "c", "ts_ms": number, "after": {"id": number}, "source": source}
        batch = datahub.records(spark, [event], received_at=AT)
        calls.clear()
        changes = debezium.changes(debezium.decode(batch), "products", keys=["id"], columns=columns)
        assert [row["data"]["id"] for row in changes.collect()] == [number]
        return len(calls)

    # The rules of the door are no columns, so the first has few, too; but where no test came before, PySpark
    # looks up what it calls.
    first, second = count_calls(1), count_calls(2)
    assert (first < 350, second < 300) == (True, True)
