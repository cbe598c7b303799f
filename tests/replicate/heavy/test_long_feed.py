"""
A feed in any batches, with other keys and columns on the way.

In `make test`:
tests/replicate/test_replicate_feed.py::test_messages_in_json_form_belong_to_the_table_of_their_topic,
tests/replicate/test_replicate_feed.py::test_tables_without_a_key_have_no_ledger_until_they_are_given_one,
tests/test_doors.py::test_a_rebuild_lets_only_what_was_given_up_wait_again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import merge, replicate
from cdckit.errors import InvalidArgument
from cdckit.replicate import Feed, TableName, TableSettings, intake
from support.feeds import OTHER, TEXT, V1, fed, said, short
from support.jobs import jobs_of
from support.replicate_messages import (
    NOON,
    Record,
    Version,
    header_values,
    json_envelope,
    life,
    record,
    to_dataframe,
)

V2 = Version({"id": "int", "name": TEXT, "colour": TEXT}, number=2)
MINUTE = timedelta(minutes=1)


def in_order(history: DataFrame) -> list[Any]:
    """The rows whatever the order of the columns, which follows that of arrival in a ledger."""
    columns = sorted(set(history.columns) - {"field_provenance"})
    fields = sorted(history.schema["field_provenance"].dataType.fieldNames())  # type: ignore[attr-defined]
    return sorted(
        history.select(*columns, *(f"field_provenance.{name}" for name in fields)).collect(), key=repr
    )


def rounds(records: Sequence[Record], rng: random.Random, count: int) -> list[list[Record]]:
    found: list[list[Record]] = [[] for _ in range(count)]
    for each in rng.sample(records, len(records)):
        rng.choice(found).append(each)
    return found


def test_any_order_and_any_batches_give_what_one_batch_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Two versions of a table, damaged and repeated messages, metadata whenever it comes."""
    records = life(3)
    feed = fed(spark, tmp_path, rounds(records, random.Random(5), 3))
    everything = to_dataframe(spark, records)
    expected = merge(
        replicate.table_changes(everything, task="shop_task", table="ITEMS"), entity="ITEMS", keys=["id"]
    )
    found = in_order(feed.table("ITEMS").history())
    assert found == in_order(expected)
    assert len(found) > 10
    decoded = replicate.decode(everything)
    bad = decoded.where("error_code is not null").count()
    zone = replicate.schema_zone(replicate.metadata(decoded))
    bad += replicate.data(everything, zone).where("error_code is not null").count()
    assert bad
    assert feed.rejects().count() == bad
    assert feed.waiting().count() == 0


def test_a_column_that_comes_in_mid_stream_comes_to_the_history(spark: SparkSession, tmp_path: Path) -> None:
    feed = fed(
        spark,
        tmp_path,
        [
            [record(V1.md(), 0), said(V1, "INSERT", {"id": 1, "name": "a"}, 1, 1)],
            [record(V2.md(), 2), said(V2, "UPDATE", {"id": 1, "name": "a", "colour": "red"}, 2, 3)],
        ],
    )
    assert short(feed.table("ITEMS").history(), "name", "colour") == [
        (1, False, "a", None),
        (2, False, "a", "red"),
    ]


def test_data_before_its_metadata_waits_and_is_used_when_it_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = fed(spark, tmp_path, [[said(V1, "INSERT", {"id": 1, "name": "a"}, 1, 1, timestamp=NOON)]])
    assert [row["offset"] for row in feed.waiting().collect()] == [1]
    assert feed.tables().collect() == []
    assert feed.expire(now=NOON + timedelta(seconds=10)) == 0
    assert feed.expire(now=NOON + MINUTE) == 1
    assert feed.waiting().collect() == []
    given_up = feed.rejects().collect()
    assert [(row["offset"], row["error_code"]) for row in given_up] == [(1, "METADATA_MISSING")]
    feed.receive(to_dataframe(spark, [record(V1.md(), 0)]))
    assert feed.rejects().collect() == []
    assert short(feed.table("ITEMS").history(), "id", "name") == [(1, False, 1, "a")]


def test_what_waits_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """Batches that bring nothing for it leave its files as they are, also where more comes that waits."""
    early = said(V1, "INSERT", {"id": 1, "name": "a"}, 1, 1)
    feed = fed(spark, tmp_path, [[early], [record(OTHER.md(), 2)]])

    def files() -> set[str]:
        return {each.path for each in feed.store.snapshot().files("waiting")}

    before = files()
    feed.receive(to_dataframe(spark, [said(OTHER, "INSERT", {"code": 7, "name": "s"}, 2, 3)]))
    assert files() == before
    feed.receive(to_dataframe(spark, [said(V2, "INSERT", {"id": 2, "name": "b", "colour": "red"}, 3, 4)]))
    assert files() > before
    assert {row["offset"] for row in feed.waiting().collect()} == {1, 4}
    feed.receive(to_dataframe(spark, [record(V1.md(), 5)]))
    assert {row["offset"] for row in feed.waiting().collect()} == {4}
    assert short(feed.table("ITEMS").history(), "id") == [(1, False, 1)]
    assert short(feed.table("SHOPS").history(), "code") == [(2, False, 7)]


def test_only_tables_of_which_rows_came_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feed may know thousands of tables, of which a batch has rows of few: two jobs each, of few rows."""
    read: list[str] = []

    def counted(self: intake.Intake, table: intake.FeedTable, received: DataFrame) -> None:
        read.append(table.name.table)
        plain(self, table, received)

    plain = intake.Intake._add
    monkeypatch.setattr(intake.Intake, "_add", counted)
    shop = said(OTHER, "INSERT", {"code": 7, "name": "s"}, 3, 4)
    feed = fed(
        spark,
        tmp_path,
        [
            [record(V1.md(), 0), record(OTHER.md(), 1)],
            [said(V1, "INSERT", {"id": 1, "name": "a"}, 1, 2)],
            [said(V2, "INSERT", {"id": 2, "name": "b", "colour": "red"}, 2, 3)],
            [shop],
            [record(V2.md(), 5)],
        ],
    )
    assert read == ["ITEMS", "SHOPS", "ITEMS"]
    assert short(feed.table("ITEMS").history(), "id") == [(1, False, 1), (2, False, 2)]
    assert short(feed.table("SHOPS").history(), "code") == [(3, False, 7)]
    both = [said(V1, "INSERT", {"id": number, "name": "c"}, number, 6) for number in (3, 4)]
    both += [said(OTHER, "INSERT", {"code": number}, number, 7) for number in (8, 9)]
    spark.sparkContext.setJobGroup("both", "a batch with rows of two tables")
    feed.receive(to_dataframe(spark, both), "both")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert sorted(read[3:]) == ["ITEMS", "SHOPS"]
    # Two of the batch: its digest, and its records.
    assert len(jobs_of(spark, "both")) == 2 + 2 * 2


def test_another_key_in_the_metadata_makes_the_ledger_anew(spark: SparkSession, tmp_path: Path) -> None:
    """By the key id there are two entities, by the key name one."""
    rows = [said(V1, "INSERT", {"id": number, "name": "a"}, number, number) for number in (1, 2)]
    feed = fed(spark, tmp_path, [[record(V1.md(), 0), *rows]])
    assert len({row["guid"] for row in feed.table("ITEMS").history().collect()}) == 2
    renamed = Version(V1.columns, keys=("name",))
    before = feed.store.snapshot().version
    feed.receive(to_dataframe(spark, [record(renamed.md(), 9, timestamp=NOON + MINUTE)]))
    assert feed.tables().select("keys").collect() == [(["name"],)]
    assert short(feed.table("ITEMS").history(), "id", "name") == [(1, False, 1, "a"), (2, False, 2, "a")]
    assert len({row["guid"] for row in feed.table("ITEMS").history().collect()}) == 1
    assert len({row["guid"] for row in feed.table("ITEMS", version=before).history().collect()}) == 2


def test_records_that_come_again_without_an_id_are_no_news(spark: SparkSession, tmp_path: Path) -> None:
    first = to_dataframe(spark, [record(V1.md(), 0), said(V1, "INSERT", {"id": 1, "name": "a"}, 1, 1)])
    feed = fed(spark, tmp_path, [])
    for _ in range(2):
        assert feed.receive(first).records == 2
    assert short(feed.table("ITEMS").history(), "id") == [(1, False, 1)]
    assert feed.table("ITEMS").changes().count() == 1


def test_a_record_that_came_twice_waits_once_and_is_given_up_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Within a batch, in two, and after it was given up; other content at the offset is another record."""
    early = said(V1, "INSERT", {"id": 1, "name": "a"}, 1, 1, timestamp=NOON)
    other = said(V1, "INSERT", {"id": 2, "name": "b"}, 1, 1, timestamp=NOON)
    feed = fed(spark, tmp_path, [[early, early], [early, other]])
    assert [row["offset"] for row in feed.waiting().collect()] == [1, 1]
    assert feed.expire(now=NOON + MINUTE) == 2
    assert feed.expire(now=NOON + MINUTE) == 0
    feed.receive(to_dataframe(spark, [early]))
    assert feed.waiting().collect() == []
    assert feed.rejects().count() == 2
    feed.receive(to_dataframe(spark, [record(V1.md(), 0)]))
    assert (feed.waiting().count(), feed.rejects().count()) == (0, 0)
    assert short(feed.table("ITEMS").history(), "id") == [(1, False, 1), (1, False, 2)]


def test_a_rebuild_of_one_table_uses_what_waited_for_the_settings_of_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    message = json_envelope("DT", {"data": {"id": "1", "name": "j"}, "headers": header_values("INSERT")})
    metadata = [record(V1.md(), 0), record(OTHER.md(), 1)]
    untold = fed(spark, tmp_path, [[record(message, 2, topic="items"), *metadata]])
    assert [row["offset"] for row in untold.waiting().collect()] == [2]
    items, shops = (TableName("db1", "shop_task", "SHOP", name) for name in ("ITEMS", "SHOPS"))
    told = Feed(spark, tmp_path, tables={items: TableSettings(json_topics=["items"])})
    told.rebuild(shops)
    assert told.waiting().collect() == []
    assert short(told.table("ITEMS").history(), "id", "name") == [(0, False, 1, "j")]


def test_a_stream_gives_what_one_batch_gives_also_when_it_begins_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Files that come while it runs; the last batch is handed over once more, as after a crash."""
    records, landing = life(4), tmp_path / "landing"
    files = [records[:3], records[3:30], records[30:]]
    feed = Feed(spark, tmp_path / "feed")
    schema = to_dataframe(spark, []).schema

    def run() -> None:
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(landing))
        with pytest.raises(InvalidArgument, match=r"foreachBatch\(feed.sink"):
            feed.receive(stream)
        writer = stream.writeStream.foreachBatch(feed.sink("landing"))
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for number, some in enumerate(files):
        to_dataframe(spark, some).coalesce(1).write.mode("append").parquet(str(landing))
        if number != 1:
            run()
    for commit in sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))[-1:]:
        commit.unlink()
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    run()
    expected = merge(
        replicate.table_changes(to_dataframe(spark, records), task="shop_task", table="ITEMS"),
        entity="ITEMS",
        keys=["id"],
    )
    assert in_order(feed.table("ITEMS").history()) == in_order(expected)
    assert feed.store.commits().where("batch is not null").count() == 3


def test_data_that_no_table_reads_wait_until_the_settings_name_their_topic(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The metadata of their id is there, but the table is told to read another topic alone."""
    name = TableName("db1", "shop_task", "SHOP", "ITEMS")
    one_topic = {name: TableSettings(topics=["items"])}
    both = [
        said(V1, "INSERT", {"id": number, "name": topic}, number, number, topic=topic, timestamp=NOON)
        for number, topic in ((1, "items"), (2, "items.delayed"))
    ]
    feed = fed(spark, tmp_path, [[record(V1.md(), 0), *both]], tables=one_topic)
    (early,) = feed.waiting().collect()
    what = f"a table that reads schema id {V1.schema_id} from topic items.delayed"
    assert (early["offset"], early["waiting_for"]) == (2, what)
    assert short(feed.table("ITEMS").history(), "id") == [(1, False, 1)]
    feed.expire(now=NOON + timedelta(minutes=1))
    (given_up,) = feed.rejects().collect()
    assert given_up["error_description"].endswith(f" Schema id {V1.schema_id}, in items.delayed/0 at 2.")
    all_topics = Feed(spark, tmp_path)
    all_topics.rebuild(name)
    assert (all_topics.waiting().count(), all_topics.rejects().count()) == (0, 0)
    assert short(all_topics.table("ITEMS").history(), "id") == [(1, False, 1), (2, False, 2)]
    again = Feed(spark, tmp_path, tables=one_topic)
    again.rebuild(name)
    assert [row["offset"] for row in again.waiting().collect()] == [2]
    assert short(again.table("ITEMS").history(), "id") == [(1, False, 1)]


def test_data_of_a_schema_id_that_two_tables_share_wait_for_their_topics_and_stop_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What had come while one table had it is in its ledger, until the settings say whose topic it is of."""
    twin = V1.md(lineage={**V1.metadata()["lineage"], "task": "test"})
    first = [record(V1.md(), 0), record(OTHER.md(), 1), said(V1, "INSERT", {"id": 1, "name": "a"}, 1, 2)]
    first.append(said(V1, "INSERT", {"id": 4, "name": "d"}, 5, 7, topic="test"))
    second = [
        record(twin, 3),
        said(V1, "INSERT", {"id": 2, "name": "b"}, 2, 4),
        said(V1, "INSERT", {"id": 3, "name": "c"}, 3, 5, topic="test"),
        said(OTHER, "INSERT", {"code": 7, "name": "s"}, 4, 6),
    ]
    feed = fed(spark, tmp_path / "feed", [first, second])
    texts = {row["offset"]: row["waiting_for"] for row in feed.waiting().collect()}
    shared = "db1/shop_task SHOP.ITEMS and db1/test SHOP.ITEMS have one schema id"
    needed = f"the topics of each in TableSettings: {shared}, {V1.schema_id}, and data of it came from topic "
    assert texts == {4: f"{needed}items", 5: f"{needed}test"}
    assert short(feed.table("ITEMS", task="shop_task").history(), "id") == [(1, False, 1), (5, False, 4)]
    assert short(feed.table("SHOPS").history(), "code") == [(4, False, 7)]
    names = {task: TableName("db1", task, "SHOP", "ITEMS") for task in ("shop_task", "test")}
    # One topic for both says no more than none.
    alike = dict.fromkeys(names.values(), TableSettings(topics=["items", "test"]))
    of_one_topic = fed(spark, tmp_path / "of one topic", [first, second], tables=alike)
    assert {row["offset"]: row["waiting_for"] for row in of_one_topic.waiting().collect()} == texts
    with pytest.raises(InvalidArgument, match=r"settings that name the topics of .*shop_task"):
        feed.rebuild(names["shop_task"])
    feed.rebuild()
    assert {row["offset"]: row["waiting_for"] for row in feed.waiting().collect()} == texts
    assert short(feed.table("ITEMS", task="shop_task").history(), "id") == [(1, False, 1), (5, False, 4)]
    assert short(feed.table("SHOPS").history(), "code") == [(4, False, 7)]
    topics = {"shop_task": "items", "test": "test"}
    settings = {name: TableSettings(topics=[topics[task]]) for task, name in names.items()}
    told = Feed(spark, tmp_path / "feed", tables=settings)
    told.rebuild(names["shop_task"])
    assert short(told.table("ITEMS", task="shop_task").history(), "id") == [(1, False, 1), (2, False, 2)]
    assert short(told.table("ITEMS", task="test").history(), "id") == [(3, False, 3), (5, False, 4)]


def test_a_late_version_makes_a_ledger_of_messages_in_json_form_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What named an unknown column is no reject any more, as it is none for all records at once."""
    row = {"id": "1", "name": "a", "colour": "red"}
    message = json_envelope("DT", {"data": row, "headers": header_values("INSERT", columnMask="07")})
    name = TableName("db1", "shop_task", "SHOP", "ITEMS")
    first = [record(V1.md(), 0), record(message, 2)]
    feed = fed(spark, tmp_path, [first], tables={name: TableSettings(json_topics=["items"])})
    assert [row["error_code"] for row in feed.rejects().collect()] == ["COLUMN_UNKNOWN"]
    feed.receive(to_dataframe(spark, [record(V2.md(), 1)]))
    assert feed.rejects().collect() == []
    assert short(feed.table("ITEMS").history(), "name", "colour") == [(0, False, "a", "red")]
