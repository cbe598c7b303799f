"""`Feed`: records in any order and any batches, as a stream too, give what one batch of all of them gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdckit import merge, replicate
from cdckit.errors import InvalidArgument
from cdckit.replicate import Feed, TableName, TableSettings
from cdckit.shell import table_feed
from support.feeds import OTHER, TEXT, V1, fed, said, short
from support.replicate_messages import (
    NO_TIME,
    Version,
    header_values,
    json_envelope,
    record,
    sequence,
    to_dataframe,
)

LOG = Version({"line": TEXT}, keys=(), table="LOG")
MINUTE = timedelta(minutes=1)


def test_records_and_rejects_of_many_batches_lie_in_few_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of rejects that stand in one place, as of a topic that was made anew, each stays."""
    monkeypatch.setattr(table_feed, "MANY_FILES", 3)
    feed = fed(spark, tmp_path, [[record(b"%d" % number, 0)] for number in range(5)])
    snapshot = feed.store.snapshot()
    assert max(len(snapshot.files(name)) for name in snapshot.names()) <= 3
    assert sorted(bytes(row["value"]) for row in feed.rejects().collect()) == [b"0", b"1", b"2", b"3", b"4"]


def test_tables_without_a_key_have_no_ledger_until_they_are_given_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = [record(LOG.md(), 0), said(LOG, "INSERT", {"line": "x"}, 1, 1), record(OTHER.md(), 2)]
    feed = fed(spark, tmp_path, [[*records, said(OTHER, "INSERT", {"code": 7, "name": "s"}, 1, 3)]])
    found = feed.tables().orderBy("table").select("table", "entity", "keys", "has_ledger").collect()
    assert found == [("LOG", "LOG", [], False), ("SHOPS", "SHOPS", ["code"], True)]
    assert [row["offset"] for row in feed.without_key("LOG").collect()] == [1]
    with pytest.raises(InvalidArgument, match=r"a table with a key: give it one in TableSettings"):
        feed.table("LOG")
    name = TableName("db1", "shop_task", "SHOP", "LOG")
    keyed = Feed(spark, tmp_path, tables={name: TableSettings(entity="line", keys=["line"])})
    with pytest.raises(InvalidArgument, match=r"rebuild makes it anew by these"):
        keyed.receive(to_dataframe(spark, [said(LOG, "INSERT", {"line": "y"}, 2, 4)]))
    keyed.rebuild(name)
    assert short(keyed.table("LOG").history(), "line") == [(1, False, "x")]
    assert short(keyed.table("SHOPS").history(), "code") == [(1, False, 7)]


def test_rows_take_along_what_was_not_sent_and_those_without_a_key_are_rejects(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of two keys that shift at one instant the newcomer stays, whatever leaves its key behind it."""
    at = {"timestamp": "2024-01-01T10:05:00", "columnMask": b"\x01"}
    shifts = [
        V1.dt("UPDATE", {"id": old + 1, "name": None}, {"id": old, "name": None}, **at, changeSequence=place)
        for old, place in ((1, sequence("202401011005", 8)), (2, sequence("202401011005", 9)))
    ]
    keyless = said(V1, "UPDATE", {"id": 0, "name": "z"}, 6, 5, columnMask=b"\x02")
    records = [
        *(record(V1.md(), 0), said(V1, "INSERT", {"id": 1, "name": "a"}, 1, 1)),
        *(said(V1, "INSERT", {"id": 2, "name": "b"}, 2, 2), record(shifts[0], 3), record(shifts[1], 4)),
    ]
    feed = Feed(spark, tmp_path)
    result = feed.receive(to_dataframe(spark, [*records, keyless]))
    current = feed.table("ITEMS").history().where("valid_to_timestamp IS NULL").orderBy("id")
    rows = current.select("id", "deleted_indicator", "name").collect()
    assert rows == [(1, True, None), (2, False, "a"), (3, False, "b")]
    assert result.notes == ("records that cannot be used, see rejects(): 1",)
    [reject] = feed.rejects().collect()
    assert (reject["error_code"], reject["offset"], reject["value"]) == ("KEY_MISSING", 5, keyless["value"])


def test_messages_in_json_form_belong_to_the_table_of_their_topic(
    spark: SparkSession, tmp_path: Path
) -> None:
    message = json_envelope("DT", {"data": {"id": "1", "name": "j"}, "headers": header_values("INSERT")})
    name = TableName("db1", "shop_task", "SHOP", "ITEMS")
    batches = [[record(message, 1, topic="items")], [record(V1.md(), 0)]]
    feed = fed(spark, tmp_path, batches, tables={name: TableSettings(json_topics=["items"])})
    assert short(feed.table("ITEMS").history(), "id", "name") == [(0, False, 1, "j")]
    assert feed.waiting().collect() == []


def test_a_topic_of_messages_in_json_form_is_of_one_table(spark: SparkSession, tmp_path: Path) -> None:
    """They name no table: of two, each would take the rows of the other."""
    names = [TableName("db1", "shop_task", "SHOP", table) for table in ("ITEMS", "SHOPS")]
    settings = dict.fromkeys(names, TableSettings(json_topics=["all"]))
    with pytest.raises(InvalidArgument, match=r"among the json_topics of one table.*'all'"):
        Feed(spark, tmp_path, tables=settings)


def test_each_load_of_a_table_has_its_own_time(spark: SparkSession, tmp_path: Path) -> None:
    """By the instant of the first one alone, the change between them would cover what the second says."""
    first, second = (datetime(2024, 1, 1, 10, minute, tzinfo=UTC) for minute in (1, 20))
    loads = [
        record(V1.dt("REFRESH", {"id": 1, "name": name}, **NO_TIME), offset, timestamp=at)
        for name, offset, at in (("a", 1, first - MINUTE), ("b", 2, first + MINUTE), ("d", 4, second))
    ]
    change = said(V1, "UPDATE", {"id": 1, "name": "c"}, 10, 3, timestamp=first + 9 * MINUTE)
    name = TableName("db1", "shop_task", "SHOP", "ITEMS")
    settings = TableSettings(loaded_at=[second, first])
    feed = fed(spark, tmp_path, [[record(V1.md(), 0), *loads, change]], tables={name: settings})
    history = short(feed.table("ITEMS").history(), "name")
    assert history == [(0, False, "a"), (1, False, "b"), (10, False, "c"), (20, False, "d")]
    with pytest.raises(InvalidArgument, match=r"loaded_at to be an aware datetime"):
        TableSettings(loaded_at=[first, first.replace(tzinfo=None)])


def test_what_needs_all_rows_at_once_refuses_a_stream_and_names_the_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    to_dataframe(spark, [record(V1.md(), 0)]).write.parquet(str(tmp_path / "a"))
    stream = spark.readStream.schema(to_dataframe(spark, []).schema).parquet(str(tmp_path / "a"))
    decoded = replicate.decode(stream)
    with pytest.raises(
        InvalidArgument, match=r"metadata\(\) needs decoded to be a batch of rows; of a stream, keep a Feed"
    ):
        replicate.metadata(decoded)
    with pytest.raises(
        InvalidArgument, match=r"table_changes\(\) needs records to be a batch of rows; of a stream"
    ):
        replicate.table_changes(stream, task="shop_task", table="ITEMS")
    zone = replicate.schema_zone(
        replicate.metadata(replicate.decode(spark.read.parquet(str(tmp_path / "a"))))
    )
    changes = replicate.changes(replicate.data(stream, zone), keys=["id"])
    with pytest.raises(
        InvalidArgument, match=r"merge\(\) needs changes to be a batch of rows; of a stream, keep a Ledger"
    ):
        merge(changes, entity="item", keys=["id"])


def test_a_feed_of_nothing_answers_with_nothing(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "feed")
    assert (feed.tables().collect(), feed.waiting().collect(), feed.rejects().collect()) == ([], [], [])
    with pytest.raises(InvalidArgument, match=r"one of no table yet"):
        feed.table("ITEMS")
    assert not (tmp_path / "feed").exists()
