"""A captured database that is kept up: what becomes of each record of one batch."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import debezium, merge, rejects
from cdckit.errors import InvalidArgument
from cdckit.ledger import intake
from cdckit.model import drop_rejects
from support.captured_events import CONNECT, event, records, rows


def test_each_record_is_in_a_ledger_waits_or_is_a_reject(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a table that is named, one whose records have keys, and one of which nobody knows the key."""
    feed = debezium.Feed(spark, tmp_path, tables={"orders": ["id"]})
    sent = [
        (None, event("c", "orders", {"id": 1, "price": 5})),
        (b'{"id": 1}', event("c", "items", {"id": 1, "price": 5}, types=CONNECT)),
        (None, event("c", "audit", {"text": "a"})),
        (b'{"id": 1}', event("u", "items", {"id": 1, "price": "five"}, types=CONNECT)),
        (None, event("c", "orders", {"id": 1})[:40]),
        (b'{"id": 1}', None),
        (None, b'{"ts_ms": 1}'),
    ]
    with caplog.at_level(logging.WARNING):
        received = feed.receive(records(spark, sent), "monday")
    assert received.records == 7
    assert sorted(received.notes) == [
        "audit is a table that was not named",
        "audit: no type is said of text; they are text, unless columns= says one",
        "items is a table that was not named",
        "orders: no type is said of id, price; they are text, unless columns= says one",
        "records that cannot be used, see rejects(): 2",
        "records that wait for the key columns of audit, which tables= can name: 1",
    ]
    logged = {record.getMessage() for record in caplog.records}
    assert logged >= {f"receive(): {note}" for note in received.notes}
    assert rows(feed.table("orders").history(), "id", "price") == [("1", "5")]
    assert rows(feed.table("items").history(), "id", "price") == [(1, 5)]
    assert rows(feed.rejects(), "offset", "error_code") == [(3, "VALUE_INVALID"), (4, "NOT_JSON")]
    assert rows(feed.waiting(), "offset", "table") == [(2, "audit")]
    tables = feed.tables().orderBy("table")
    assert [tuple(row) for row in tables.collect()] == [
        ("audit", [], ["text"], False),
        ("items", ["id"], ["id", "price"], True),
        ("orders", ["id"], ["id", "price"], True),
    ]


def test_a_ledger_begins_with_buckets_for_its_own_part_of_a_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 32 MB that are read come 128 MB of files, 96 of them of three events and 32 of one."""
    monkeypatch.setattr(intake, "plan_bytes", lambda rows: 32_000_000)
    keys = ((1, "items"), (2, "items"), (3, "items"), (1, "orders"))
    sent = [(b'{"id": %d}' % key, event("c", name, {"id": key}, types={"id": "int32"})) for key, name in keys]
    feed = debezium.Feed(spark, tmp_path)
    feed.receive(records(spark, sent))
    assert {name: view.kind.buckets for name, view in feed.ledgers().items()} == {"items": 4, "orders": 1}


def test_a_change_of_a_schema_says_nothing_of_the_key(spark: SparkSession, tmp_path: Path) -> None:
    """SQL Server sends one for each table before its rows, with the database for its key."""
    source = {"name": "shop", "table": "items", "ts_ms": 1}
    change = json.dumps({"source": source, "ddl": "CREATE TABLE items", "ts_ms": 1}).encode()
    row = (b'{"id": 1}', event("c", "items", {"id": 1, "price": 5}, types=CONNECT))
    feed = debezium.Feed(spark, tmp_path)
    feed.receive(records(spark, [(b'{"databaseName": "shop"}', change)]))
    feed.receive(records(spark, [row], first=1))
    assert rows(feed.table("items").history(), "id", "price") == [(1, 5)]
    assert rows(feed.tables(), "table", "keys", "columns") == [("items", ["id"], ["id", "price"])]
    assert rows(feed.events(), "kind") == [("row",), ("schema_change",)]
    assert (feed.rejects().count(), feed.waiting().count()) == (0, 0)


def test_a_row_whose_key_has_an_unknown_schema_waits(spark: SparkSession, tmp_path: Path) -> None:
    """Its value says its table: it waits with those that say none, until its schema is there."""

    def decode(of_records: DataFrame) -> DataFrame:
        code = F.when(F.decode("key", "utf-8") == '{"id": 2}', "UNKNOWN_SCHEMA")
        return debezium.decode(of_records).withColumn("error_code", F.coalesce(code, "error_code"))

    feed = debezium.Feed(spark, tmp_path, decode=decode)
    sent = [(b'{"id": %d}' % key, event("c", "items", {"id": key}, types={"id": "int32"})) for key in (1, 2)]
    assert any("their schema: 1" in note for note in feed.receive(records(spark, sent)).notes)
    assert rows(feed.waiting(), "offset", "table") == [(1, None)]
    assert rows(feed.table("items").history(), "id") == [(1,)]


def test_events_by_another_key_wait_until_somebody_says_which_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows 7 of two tenants would be one by the key that the table had."""
    types = {"tenant": "int32", "id": "int32"}
    before = (b'{"id": 7}', event("c", "items", {"tenant": 1, "id": 7}, types=types))
    after = [
        (b'{"tenant": %d, "id": 7}' % tenant, event("c", "items", {"tenant": tenant, "id": 7}, types=types))
        for tenant in (1, 2)
    ]
    feed = debezium.Feed(spark, tmp_path)
    feed.receive(records(spark, [before]))
    [note] = feed.receive(records(spark, after, first=1)).notes
    assert note == (
        "records that wait for the key columns of items, which tables= can name, and rebuild by others than "
        "its ledger was made by: its records name (id) and (tenant, id): 2"
    )
    assert (feed.waiting().count(), feed.table("items").history().count()) == (2, 1)
    feed = debezium.Feed(spark, tmp_path, tables={"items": ["tenant", "id"]})
    feed.rebuild()
    assert rows(feed.table("items").history(), "tenant", "id") == [(1, 7), (2, 7)]
    assert feed.waiting().count() == 0


def test_columns_that_differ_in_case_alone_are_fields_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A column that was renamed, or two of PostgreSQL in one event, stop no other table, and lose nothing."""
    feed = debezium.Feed(spark, tmp_path, tables={"orders": ["id"]})
    images: list[dict[str, Any]] = [
        {"id": 1, "price": 5},
        {"id": 1, "Price": 6},
        {"id": 2, "price": 7, "Price": 8},
    ]
    sent = [(None, event("c", "orders", image, lsn=place)) for place, image in enumerate(images, 1)]
    feed.receive(records(spark, sent[:1]))
    received = feed.receive(records(spark, sent[1:], first=1))
    assert received.notes == ("orders has another column, Price (untyped), which is the field Price_2",)
    found = [("1", "5", "6"), ("2", "7", "8")]
    assert rows(feed.table("orders").history(), "id", "price", "Price_2") == found


def test_names_of_arguments_that_nothing_has_are_told(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"order": {"id": "int"}, "items": {"id": "int", "prise": "int"}}
    feed = debezium.Feed(spark, tmp_path, tables={"orders": ["id"], "items": ["id"]}, columns=columns)
    sent = [event("c", table, {"id": 1, "price": 5}) for table in ("orders", "items")]
    assert set(feed.receive(records(spark, [(None, value) for value in sent])).notes) == {
        "orders: no type is said of id, price; they are text, unless columns= says one",
        "items has no column prise, of which columns= says a type",
        "items has another column, price (untyped)",
        "columns= names order, which is no table so far; not named is orders",
    }


def test_a_table_of_a_feed_is_published_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """By as much of it as is needed, and nothing happens twice; another name is refused."""
    feed = debezium.Feed(spark, tmp_path / "feed", tables={"orders": ["id"]})
    sent = [(None, event("u", "orders", {"id": 1, "price": price}, lsn=price)) for price in (5, 6)]
    feed.receive(records(spark, sent))
    commits = {feed.publish("orders", tmp_path / "orders") for _ in range(2)}
    table = DeltaTable(tmp_path / "orders").to_pandas().sort_values("valid_from_timestamp")
    assert table[["price", "is_current"]].values.tolist() == [["5", False], ["6", True]]
    assert commits == {feed.table("orders").version}
    with pytest.raises(InvalidArgument, match=r"one of .*orders; it is 'items'"):
        feed.publish("items", tmp_path / "items")


def test_what_cannot_be_a_feed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for wrong in ({"orders": "id"}, {"orders": []}, ["orders"]):
        with pytest.raises(InvalidArgument, match="needs tables to be by table its key columns"):
            debezium.Feed(spark, tmp_path, tables=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="needs columns to be by table the types"):
        debezium.Feed(spark, tmp_path, columns={"orders": "int"})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument, match="one of no table yet"):
        debezium.Feed(spark, tmp_path).table("orders")


def test_a_snapshot_that_ended_is_a_full_list_by_choice(spark: SparkSession) -> None:
    """
    Rows 2 and 3 were deleted while the connector was away; 3 came back.  What was read of 4 is in error.

    Row 5 came behind the snapshot; so did 6, by a transaction that had begun before it.  The table that the
    snapshot did not read stays as it is.  The source has another name than its events say.
    """
    types = {"id": "int32", "price": "int32"}
    sent = [
        event("r", "items", {"id": 1, "price": 1}, lsn=10, snapshot="first", types=types),
        event("r", "items", {"id": 2, "price": 1}, lsn=10, snapshot="true", types=types),
        event("r", "items", {"id": 3, "price": 1}, lsn=10, snapshot="true", types=types),
        event("r", "items", {"id": 6, "price": 1}, lsn=10, snapshot="true", types=types),
        event("r", "items", {"id": 4, "price": 1}, lsn=10, snapshot="last", types=types),
        event("r", "items", {"id": 4, "price": "one"}, lsn=20, snapshot="true", types=types),
        event("r", "items", {"id": 1, "price": 1}, lsn=20, snapshot="last", types=types),
        event("c", "items", {"id": 3, "price": 2}, lsn=30, types=types),
        event("c", "items", {"id": 5, "price": 2}, lsn=31, types=types),
        event("c", "items", {"id": 6, "price": 2}, lsn=15, types=types),
        event("c", "others", {"id": 9, "price": 2}, lsn=5, types=types),
    ]
    decoded = debezium.decode(records(spark, [(None, value) for value in sent]))
    call: dict[str, Any] = {"keys": ["id"], "columns": types, "complete_snapshots": True}
    call["source"] = "restored"
    stated = debezium.changes(decoded, "items", **call).localCheckpoint()
    assert rows(stated.where("operation = 'delete'"), "data.id") == [(2,), (3,), (6,)]
    assert rows(merge(stated, entity="item", keys=["id"]), "id") == [(1,), (3,), (4,), (5,), (6,)]
    others = debezium.changes(decoded, "others", **call)
    assert rows(others, "operation", "data.id") == [("upsert", 9)]


@pytest.mark.parametrize(("place", "code"), [(1, "NOT_JSON"), (2, "NOT_JSON"), (2, "NO_ROW")])
def test_a_snapshot_of_which_a_record_cannot_be_read_is_no_list(
    spark: SparkSession, place: int, code: str
) -> None:
    """The record may have said any of the rows that seem to be gone, as the first or as one of its table."""
    types = {"id": "int32"}
    sent = [
        event("r", "items", {"id": 1}, lsn=10, snapshot="last", types=types),
        event("r", "items", {"id": 2}, lsn=20, snapshot="first", types=types),
        event("r", "items", {"id": 3}, lsn=20, snapshot="last", types=types),
    ]
    unread = event("r", "items", {"id": 1}, lsn=20, snapshot="true", types=types)
    no_row = unread.replace(b'"after": {"id": 1}', b'"after": null')
    sent.insert(place, no_row if code == "NO_ROW" else unread[:30])
    decoded = debezium.decode(records(spark, [(None, value) for value in sent]))
    stated = debezium.changes(decoded, "items", keys=["id"], columns=types, complete_snapshots=True)
    assert rows(drop_rejects(stated), "operation", "data.id") == [("upsert", 1), ("upsert", 2), ("upsert", 3)]
    assert rows(rejects(stated), "offset", "error_code") == [(place, code)]
