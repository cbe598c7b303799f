"""
A captured database that is kept up batch by batch: what comes late or again; a person who is forgotten.

In `make test`:
tests/debezium/test_captured_tables.py::test_rows_read_the_same_by_what_came,
tests/debezium/test_debezium_feed.py::test_a_snapshot_that_ended_is_a_full_list_by_choice,
tests/debezium/test_debezium_feed.py::test_columns_that_differ_in_case_alone_are_fields_of_their_own,
tests/test_doors.py::test_what_waited_too_long_is_given_up_once_and_is_a_reject_then,
tests/test_doors.py::test_who_was_erased_is_gone_and_does_not_come_again.
"""

from __future__ import annotations

import io
import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import debezium
from cdckit.errors import InvalidArgument
from support.captured_events import BEGIN, CONNECT, event, records, rows

KEY = b'{"id": 1}'


def test_columns_that_come_later_are_fields(spark: SparkSession, tmp_path: Path) -> None:
    """Of the type that events say, also of rows before; without one as text; what is gone stays."""
    feed = debezium.Feed(spark, tmp_path)
    feed.receive(records(spark, [(KEY, event("c", "items", {"id": 1, "price": 5}))]))
    assert rows(feed.table("items").history(), "id", "price") == [("1", "5")]
    sent = [(KEY, event("c", "items", {"id": 2, "price": 6}, types=CONNECT))]
    received = feed.receive(records(spark, sent, first=1))
    assert [note.split(":")[0] for note in received.notes] == ["items.id", "items.price"]
    assert rows(feed.table("items").history(), "id", "price") == [(1, 5), (2, 6)]
    types = {"id": "int32", "at": "io.debezium.time.Date"}
    sent = [
        (KEY, event("u", "items", {"id": 1, "at": 0}, types=types)),
        (KEY, event("u", "items", {"id": 2, "by": 7})),
    ]
    received = feed.receive(records(spark, sent, first=2))
    assert received.notes == (
        "items has another column, at (io.debezium.time.Date)",
        "items has another column, by (untyped)",
    )
    history = feed.table("items").history().withColumn("day", F.col("at").cast("string"))
    assert rows(history, "id", "price", "day", "by") == [
        (1, 5, "1970-01-01", None),
        (2, 6, None, "7"),
    ]


def test_types_without_one_in_common_are_text_as_it_was_sent(spark: SparkSession, tmp_path: Path) -> None:
    """The feed goes on, and the rows of before read alike."""
    feed = debezium.Feed(spark, tmp_path)
    for number, kind in enumerate(("int32", "io.debezium.time.Date")):
        said = event("c", "items", {"id": number, "price": 5}, types={"id": "int32", "price": kind})
        received = feed.receive(records(spark, [(KEY, said)], first=number))
    assert received.notes == (
        "items.price has several types (int32, io.debezium.time.Date); it is read as string",
    )
    assert rows(feed.table("items").history(), "id", "price") == [(0, "5"), (1, "5")]


def test_a_table_waits_until_somebody_names_its_key(spark: SparkSession, tmp_path: Path) -> None:
    """Given up it is a reject, and taken all the same once the key is there; another key needs `rebuild`."""
    feed = debezium.Feed(spark, tmp_path)
    truncate = b'{"op": "t", "ts_ms": 2, "source": {"table": "audit", "name": "shop", "ts_ms": 2}}'
    feed.receive(records(spark, [(None, event("c", "audit", {"id": 1, "price": 5})), (None, truncate)]))
    assert rows(feed.waiting(), "offset", "waiting_for") == [
        (0, "the key columns of audit, which tables= can name"),
        (1, "the key columns of audit, which tables= can name"),
    ]
    assert feed.expire(BEGIN + timedelta(days=1)) == 2
    codes = [(0, "TABLE_WITHOUT_KEY"), (1, "TABLE_WITHOUT_KEY")]
    assert rows(feed.rejects(), "offset", "error_code") == codes
    named = debezium.Feed(spark, tmp_path, tables={"audit": ["id"]})
    named.receive(records(spark, [(None, event("c", "audit", {"id": 2, "price": 6}))], first=2))
    assert named.waiting().isEmpty()
    assert named.rejects().isEmpty()
    assert rows(named.table("audit").changes(), "arrival.offset") == [(0,), (1,), (2,)]
    other = debezium.Feed(spark, tmp_path, tables={"audit": ["price"]})
    with pytest.raises(InvalidArgument, match="rebuild makes it anew by others"):
        other.receive(records(spark, [(None, event("c", "audit", {"id": 3, "price": 7}))], first=3))
    other.rebuild()
    assert rows(other.table("audit").history(), "price") == [("5",), ("6",)]


def test_a_snapshot_that_ended_is_a_full_list_in_any_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Row 2 was deleted while the connector was away.  A read that comes late says that a row was there."""
    feed = debezium.Feed(spark, tmp_path)

    def read(key: int, lsn: int, marker: str) -> tuple[bytes, bytes]:
        return KEY, event("r", "items", {"id": key, "price": lsn}, lsn=lsn, snapshot=marker, types=CONNECT)

    first = records(spark, [read(1, 10, "first"), read(2, 10, "true"), read(3, 10, "last")])
    again = [read(3, 20, "first"), read(1, 20, "last")]
    feed.receive(first.where("offset <> 2"))
    feed.receive(records(spark, again[1:], first=4))
    assert rows(feed.table("items").history(), "id") == [(1,)]
    notes = feed.receive(first.where("offset = 2")).notes
    assert rows(feed.table("items").history(), "id") == [(1,)], "the list does not name 3"
    notes += feed.receive(records(spark, again[:1], first=3)).notes
    assert not any("begins anew" in note for note in notes)
    assert rows(feed.table("items").history(), "id") == [(1,), (3,)]
    gone = feed.table("items").history().where("id = 2 and deleted_indicator").select("valid_from_timestamp")
    assert [row[0].microsecond for row in gone.collect()] == [20_000]
    before = rows(feed.table("items").history(), "id", "price", "valid_from_timestamp")
    feed.rebuild()
    assert rows(feed.table("items").history(), "id", "price", "valid_from_timestamp") == before
    restored = feed.receive(records(spark, [read(1, 15, "last")], first=9)).notes
    assert restored[0].startswith("the log of shop begins anew: a snapshot stands at ")


def test_avro_waits_for_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    """A feed that has the schema takes what waited for it with the next batch, also what has no place."""
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}]}
    source = {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}
    parts = {"after": row, "source": source, "op": "string", "ts_ms": "long"}
    fields = [{"name": name, "type": kind} for name, kind in parts.items()]
    schema = {"type": "record", "name": "Envelope", "fields": fields}
    stream = io.BytesIO()
    said = {"after": {"id": 1}, "source": {"table": "items"}, "op": "c", "ts_ms": 1}
    fastavro.schemaless_writer(stream, schema, said)
    value = b"\0\0\0\0\7" + stream.getvalue()

    def open_feed(schemas: dict[int, str]) -> debezium.Feed:
        decode = partial(debezium.decode_avro, schemas=schemas)
        return debezium.Feed(spark, tmp_path, tables={"items": ["id"]}, decode=decode)

    feed = open_feed({8: json.dumps(row)})
    placeless = records(spark, [(None, value)]).withColumn("partition", F.lit(None).cast("int"))
    feed.receive(records(spark, [(None, value)]).unionByName(placeless))
    waiting = rows(feed.waiting(), "offset", "waiting_for")
    assert [(offset, "schema" in waits_for) for offset, waits_for in waiting] == [(0, True), (0, True)]
    feed = open_feed({7: json.dumps(schema)})
    feed.receive(records(spark, [(None, b"\0")], first=1))
    assert feed.waiting().isEmpty()
    assert rows(feed.table("items").history(), "id") == [(1,)]
    assert rows(feed.rejects(), "offset") == [(1,)]


def test_a_snapshot_is_no_list_while_its_records_wait_for_their_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One of them may have read the row that seems to be gone; once all can be read, it is a list."""
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}]}
    kinds = {"connector": "string", "name": "string", "table": "string", "snapshot": "string"}
    kinds |= {"lsn": "long", "ts_ms": "long"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    parts = {"after": row, "source": {"type": "record", "name": "Source", "fields": fields}, "op": "string"}
    envelope = [{"name": name, "type": kind} for name, kind in parts.items()]
    schema = {"type": "record", "name": "Envelope", "fields": envelope}

    def read(key: int, lsn: int, marker: str, schema_id: int = 7) -> tuple[None, bytes]:
        source = {"connector": "postgresql", "name": "shop", "table": "items", "snapshot": marker}
        said = {"after": {"id": key}, "source": {**source, "lsn": lsn, "ts_ms": lsn}, "op": "r"}
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, said)
        return None, b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()

    def receive(*schema_ids: int, first: int, sent: list[tuple[None, bytes]]) -> list[tuple[int]]:
        decode = partial(debezium.decode_avro, schemas=dict.fromkeys(schema_ids, json.dumps(schema)))
        feed = debezium.Feed(spark, tmp_path, tables={"items": ["id"]}, decode=decode)
        feed.receive(records(spark, sent, first=first))
        return rows(feed.table("items").history(), "id")

    once = [read(1, 10, "first"), read(2, 10, "true"), read(3, 10, "last")]
    again = [read(1, 20, "first"), read(2, 20, "true", schema_id=8), read(1, 20, "last")]
    assert receive(7, first=0, sent=once) == [(1,), (2,), (3,)]
    assert receive(7, first=3, sent=again) == [(1,), (2,), (3,)]
    assert receive(7, 8, first=6, sent=[]) == [(1,), (2,)]


def test_a_person_is_forgotten_with_all_records(spark: SparkSession, tmp_path: Path) -> None:
    """Also an event that was sent twice, of which the ledger has one, and the tombstone behind a delete."""
    feed = debezium.Feed(spark, tmp_path)
    ada, bob = b'{"id": 1947114711}', b'{"id": 1}'
    row = {"id": 1947114711, "price": 5}
    sent = [
        (ada, event("c", "items", row, lsn=10, types=CONNECT)),
        (ada, event("c", "items", row, lsn=10, types=CONNECT)),
        (bob, event("c", "items", {"id": 1, "price": 6}, lsn=11, types=CONNECT)),
        (ada, event("d", "items", row, lsn=12, types=CONNECT)),
        (ada, None),
    ]
    feed.receive(records(spark, sent))
    feed.erase("items", keys=[{"id": 1947114711}], by="dana", reason="letter of 3 May")
    assert rows(feed.table("items").history(), "id") == [(1,)]
    kept = feed.contracts()["records"][0]  # type: ignore[index]
    assert [row["offset"] for row in kept.where("key is not null").collect()] == [2]
    assert not any(b"1947114711" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    feed.receive(records(spark, [(ada, event("u", "items", row, lsn=13, types=CONNECT))], first=5))
    assert rows(feed.table("items").history(), "id") == [(1,)]
    kept = feed.contracts()["records"][0]  # type: ignore[index]
    assert [row["offset"] for row in kept.where("key is not null").collect()] == [2]
    feed.rebuild()
    assert rows(feed.table("items").history(), "id") == [(1,)]


def test_what_waited_while_its_entity_was_erased_is_erased_when_a_rebuild_reads_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The schema of its key was lacking: nobody could tell of whom it speaks."""

    def decode(of_records: DataFrame) -> DataFrame:
        code = F.when(F.col("offset") == 1, "UNKNOWN_SCHEMA")
        return debezium.decode(of_records).withColumn("error_code", F.coalesce(code, "error_code"))

    sent = [
        (b'{"id": 4711}', event("c", "items", {"id": 4711, "price": 5}, lsn=10, types=CONNECT)),
        (b'{"id": 4711}', event("u", "items", {"id": 4711, "price": 6}, lsn=11, types=CONNECT)),
        (KEY, event("c", "items", {"id": 1, "price": 5}, lsn=12, types=CONNECT)),
    ]
    feed = debezium.Feed(spark, tmp_path, decode=decode)
    feed.receive(records(spark, sent))
    assert rows(feed.waiting(), "offset") == [(1,)]
    feed.erase("items", keys=[{"id": 4711}], by="dana", reason="letter of 3 May")
    feed = debezium.Feed(spark, tmp_path)
    feed.rebuild()
    assert rows(feed.table("items").history(), "id") == [(1,)]
    kept = feed.contracts()["records"][0]  # type: ignore[index]
    assert rows(kept.where("key is not null or value is not null"), "offset") == [(2,)]
    assert feed.waiting().isEmpty()


def test_columns_that_differ_in_case_alone_are_the_same_fields_after_rebuild(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = debezium.Feed(spark, tmp_path)
    images: list[dict[str, Any]] = [{"id": 1, "price": 5}, {"id": 1, "Price": 6}, {"id": 1, "PRICE": 7}]
    for place, image in enumerate(images):
        feed.receive(records(spark, [(KEY, event("u", "items", image, lsn=place + 1))], first=place))
    for _ in range(2):
        assert rows(feed.table("items").history(), "price", "Price_2", "PRICE_3") == [("5", "6", "7")]
        feed.rebuild()
