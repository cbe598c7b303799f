"""
Snapshots of which a row waits for the schema of its key, and which are no lists.

In `make test`:
tests/debezium/test_debezium_feed.py::test_a_row_whose_key_has_an_unknown_schema_waits,
tests/debezium/test_debezium_feed.py::test_a_snapshot_of_which_a_record_cannot_be_read_is_no_list.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import debezium
from support.captured_events import CONNECT, event, records, rows


def test_a_row_whose_key_has_an_unknown_schema_waits_and_is_not_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its value says its table: it waits with those that say none, and no snapshot is a list meanwhile."""
    unknown = F.lit('{"id": 2}')

    def decode(of_records: DataFrame) -> DataFrame:
        code = F.when(F.decode("key", "utf-8") == unknown, "UNKNOWN_SCHEMA")
        return debezium.decode(of_records).withColumn("error_code", F.coalesce(code, "error_code"))

    def read(key: int, lsn: int, snapshot: str) -> tuple[bytes, bytes]:
        row = {"id": key, "price": lsn}
        value = event("r", "items", row, lsn=lsn, snapshot=snapshot, types=CONNECT)
        return b'{"id": %d}' % key, value

    feed = debezium.Feed(spark, tmp_path)
    feed.receive(records(spark, [read(2, 10, "true"), read(1, 10, "last")]))
    feed = debezium.Feed(spark, tmp_path, decode=decode)
    later = [read(2, 20, "true"), read(1, 20, "last")]
    assert any("their schema: 1" in note for note in feed.receive(records(spark, later, first=2)).notes)
    assert rows(feed.waiting(), "offset", "table") == [(2, None)]
    assert rows(feed.table("items").history(), "id", "price") == [(1, 20), (2, 10)]
    feed = debezium.Feed(spark, tmp_path)
    feed.receive(records(spark, [read(1, 30, "false")], first=4))
    assert rows(feed.table("items").history(), "id", "price") == [(1, 30), (2, 20)]
    assert (feed.rejects().count(), feed.waiting().count()) == (0, 0)


def test_what_a_snapshot_deletes_is_counted_and_can_be_turned_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As for one with a filter, of which its events say nothing."""

    def read(key: int, lsn: int) -> tuple[bytes, bytes]:
        row = {"id": key, "price": lsn}
        return b'{"id": %d}' % key, event("r", "items", row, lsn=lsn, snapshot="last", types=CONNECT)

    told = "rows of items that are deleted, as a snapshot did not read them: 1"
    for complete, notes, left in ((True, (told,), [2]), (False, (), [1, 2])):
        feed = debezium.Feed(spark, tmp_path / str(complete), complete_snapshots=complete)
        feed.receive(records(spark, [read(1, 10)]))
        assert feed.receive(records(spark, [read(2, 20)], first=1)).notes == notes
        assert rows(feed.table("items").history(), "id") == [(key,) for key in left]
