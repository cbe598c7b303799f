"""Events with a schema and events without: what is written in two ways never stands in one column."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, debezium, rejects, union_changes
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.records import RECORD_SCHEMA

MONEY = "org.apache.kafka.connect.data.Decimal"
SCHEMAS: dict[str, dict[str, Any]] = {
    "id": {"type": "string"},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
    "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "price": {"type": "bytes", "name": MONEY, "parameters": {"scale": "2", "connect.decimal.precision": "5"}},
    "weight": {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
}
TYPES = {
    "id": "string",
    "day": "io.debezium.time.Date",
    "at": "io.debezium.time.MicroTimestamp",
    "price": f"{MONEY}(5,2)",
    "weight": "io.debezium.data.VariableScaleDecimal",
}
ROW = {"day": 19800, "at": 1709294400000000, "price": "B8Y=", "weight": {"scale": 1, "value": "Dw=="}}
VALUES = (date(2024, 3, 18), datetime(2024, 3, 1, 12), Decimal("19.90"), "1.5")
SENT = ("19800", "1709294400000000", "B8Y=", '{"scale":1,"value":"Dw=="}')


def event(place: int, *, schema: bool, **row: Any) -> bytes:
    """A create, as the converter writes it with its schema or without."""
    source = {"connector": "postgresql", "name": "shop", "table": "orders", "ts_ms": 1000 * place}
    said = {"op": "c", "after": row, "source": source | {"sequence": f'["{place}","{place}"]'}}
    if not schema:
        return json.dumps(said).encode()
    fields = [{"field": name} | SCHEMAS[name] for name in row]
    whole = {"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": said}
    return json.dumps(whole).encode()


def decoded(spark: SparkSession, *values: bytes) -> DataFrame:
    rows = [(None, value, "shop.orders", 0, n, None, 0, None) for n, value in enumerate(values)]
    return debezium.decode(spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)).localCheckpoint()


def changes(events: DataFrame, **call: Any) -> DataFrame:
    return debezium.changes(events, "orders", keys=["id"], **call)


@pytest.mark.filterwarnings("ignore::cdckit.debezium.UntypedColumns")
def test_a_ledger_that_knows_types_takes_no_texts_as_they_were_sent(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By itself, or with what `columns` says as in `foreachBatch`; with the types both are one column."""
    ledger = Ledger(spark, tmp_path, entity="order", keys=["id"], buckets=1)
    typed = decoded(spark, event(1, schema=True, id="a", **ROW))
    untyped = decoded(spark, event(2, schema=False, id="b", **ROW))
    ledger.apply(changes(typed))
    found = debezium.columns(untyped, "orders")
    assert found == dict.fromkeys(TYPES, ("untyped",))
    known = "id string, day date, at timestamp, price decimal.5,2., weight string"
    for call in ({}, {"columns": found}, {"columns": {"id": "string", "day": "untyped"}}):
        with pytest.raises(WrongColumnType, match=rf"Give `columns=` .* Known are {known}"):
            ledger.apply(changes(untyped, **call))
    assert ledger.changes().count() == 1
    ledger.apply(changes(untyped, columns=TYPES))
    history = ledger.history().orderBy("id").select(*TYPES).collect()
    assert [tuple(row) for row in history] == [("a", *VALUES), ("b", *VALUES)]


@pytest.mark.filterwarnings("ignore::cdckit.debezium.UntypedColumns")
def test_a_ledger_of_texts_as_they_were_sent_takes_no_values(spark: SparkSession, tmp_path: Path) -> None:
    """Not even texts of a type; it goes on in texts, and takes a text of which nobody knows."""
    ledger = Ledger(spark, tmp_path, entity="order", keys=["id"], buckets=1)
    typed = decoded(spark, event(2, schema=True, id="b", **ROW))
    ledger.apply(changes(decoded(spark, event(1, schema=False, id="a", **ROW))))
    for columns in (None, {"id": "untyped", "weight": TYPES["weight"]}):
        with pytest.raises(WrongColumnType, match=r'go on in texts, with columns=.*"day": "untyped"'):
            ledger.apply(changes(typed, columns=columns))
    opened = Ledger(spark, tmp_path, entity="order", keys=["id"])
    opened.apply(changes(typed, columns=dict.fromkeys(TYPES, "untyped")))
    history = opened.history().orderBy("id").select(*TYPES).collect()
    assert [tuple(row) for row in history] == [("a", *SENT), ("b", *SENT)]
    # Its own changes say so, too.
    with pytest.raises(WrongColumnType, match=r"union_changes.* the column data.id as text as it was"):
        union_changes(opened.changes(), changes(typed))


def test_events_without_types_are_read_as_texts_with_a_warning(spark: SparkSession) -> None:
    """Unless the types are said: also that there is none."""
    untyped = decoded(spark, event(1, schema=False, id="a", day=19800))
    with pytest.warns(
        debezium.UntypedColumns, match=r'orders say no types, .* `columns={"id": "…", "day": "…"}`'
    ):
        changed = changes(untyped)
    assert [tuple(row) for row in changed.select("data.*").collect()] == [("a", "19800")]
    changes(untyped, columns=debezium.columns(untyped, "orders"))


def test_events_of_one_batch_with_and_without_a_schema(spark: SparkSession) -> None:
    both = decoded(spark, event(1, schema=True, id="a", **ROW), event(2, schema=False, id="b", **ROW))
    said = debezium.columns(both, "orders")
    assert said["day"] == ("io.debezium.time.Date", "untyped")
    for columns in (None, said):
        with pytest.raises(InvalidArgument, match=r"A call that would do: .*'day': 'io.debezium.time.Date'"):
            changes(both, columns=columns)
    rows = changes(both, columns=TYPES).orderBy("data.id").select("data.*").collect()
    assert [tuple(row) for row in rows] == [("a", *VALUES), ("b", *VALUES)]
    # Of two types, the event that says none has none.
    two = TYPES | {"day": ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")}
    (reject,) = rejects(debezium.table_rows(both, "orders", keys=["id"], columns=two)).collect()
    assert (reject["offset"], reject["error_code"]) == (1, "VALUE_INVALID")
    assert reject["error_description"].endswith("day: 19800")


def test_a_number_is_no_date_however_the_type_is_named(spark: SparkSession) -> None:
    """Spark reads 19800 as a year."""
    days: list[Any] = [19800, -3653, "2024-03-18", "infinity"]
    kinds = ["date", "timestamp", "timestamp_ntz"]
    rows = [{"id": str(n)} | dict.fromkeys(kinds, day) for n, day in enumerate(days)]
    events = [event(n, schema=False, **row) for n, row in enumerate(rows, 1)]
    columns = {"id": "string"} | {kind: kind for kind in kinds}
    read = changes(decoded(spark, *events), columns=columns, unreadable="null").orderBy("data.id")
    dates = [F.col("data")[kind].cast("date").alias(kind) for kind in kinds]
    faults = [[f"{kind}: {number}" for kind in kinds] for number in (19800, -3653)]
    assert [tuple(row) for row in read.select(*dates, "faults").collect()] == [
        (None, None, None, faults[0]),
        (None, None, None, faults[1]),
        (*[date(2024, 3, 18)] * 3, None),
        (*[date(9999, 12, 31)] * 3, None),
    ]


def test_numbers_do_not_come_beside_dates(spark: SparkSession, tmp_path: Path) -> None:
    """Whether by a type that was given, or because a converter was changed: in one batch or in two."""
    ledger = Ledger(spark, tmp_path, entity="order", keys=["id"], buckets=1)
    first = decoded(spark, event(1, schema=False, id="a", day=19800))
    second = decoded(spark, event(2, schema=True, id="b", day=19800))
    ledger.apply(changes(first, columns={"id": "string", "day": "int32"}))
    with pytest.raises(WrongColumnType, match=r"data.day as int, as before; it is date. .*`columns=`"):
        ledger.apply(changes(second))
    with pytest.raises(InvalidArgument, match="types that have one in common"):
        changes(second, columns={"id": "string", "day": ("io.debezium.time.Date", "int32")})
