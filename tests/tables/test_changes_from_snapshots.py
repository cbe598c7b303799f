"""Full lists become changes: who is listed is there, who is no more in the next list is gone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from_snapshots, merge
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.tables import UnfitTable
from support.snapshots import DAY, LISTS, NEW, one_table, products, said
from tools.tiers import seeds

Row = dict[str, Any]


def test_every_row_may_be_taken(spark: SparkSession) -> None:
    repeated = [(1, 2, "upsert", "kettle"), (3, 3, "upsert", None)]
    assert said(changes_from_snapshots(LISTS, keys=["id"], compared=False)) == sorted([*NEW, *repeated])


def test_a_null_in_a_list_is_a_value(spark: SparkSession) -> None:
    history = merge(changes_from_snapshots(LISTS, keys=["id"]), entity="product", keys=["id"])
    jug = history.where("id = 3").orderBy("valid_from_timestamp").toArrow().to_pylist()
    assert [row["name"] for row in jug] == ["jug", None, "jug"]


def test_a_list_in_which_nothing_stands_ends_all(spark: SparkSession) -> None:
    """Only the form that names the instants knows of it."""
    lists = {DAY[0]: products((1, "kettle")), DAY[1]: products(), DAY[2]: products()}
    assert said(changes_from_snapshots(lists, keys=["id"])) == [
        (1, 1, "upsert", "kettle"),
        (1, 2, "absent", None),
    ]
    table = one_table(lists)
    assert said(changes_from_snapshots(table, keys=["id"], taken_at="day")) == [(1, 1, "upsert", "kettle")]


def test_the_lists_of_each_source_go_on_by_themselves(spark: SparkSession) -> None:
    """Another source's list between two of one source's ends nothing."""
    table = pd.DataFrame(
        {"id": [1, 2, 1, 2], "day": [DAY[0], DAY[1], DAY[2], DAY[3]], "by": ["one", "two", "one", "two"]}
    )
    changes = changes_from_snapshots(table, keys=["id"], taken_at="day", source=F.col("by"), column_list=[])
    assert [row[:3] for row in said(changes)] == [(1, 1, "upsert"), (2, 2, "upsert")]


def test_a_column_that_a_list_lacks_was_not_sent(spark: SparkSession) -> None:
    """Neither a null nor the same row again; types meet as in union_changes."""
    lists = {
        DAY[0]: pd.DataFrame({"id": [1], "price": [20], "name": ["kettle"]}),
        DAY[1]: pd.DataFrame({"id": [1], "name": ["kettle"]}),
        DAY[2]: pd.DataFrame({"id": [1], "name": ["kettle"], "price": ["none"]}),
    }
    rows = changes_from_snapshots(lists, keys=["id"]).orderBy("effective_timestamp").toArrow().to_pylist()
    assert [row["data"] for row in rows] == [
        {"id": 1, "price": "20", "name": "kettle"},
        {"id": 1, "price": None, "name": "kettle"},
        {"id": 1, "price": "none", "name": "kettle"},
    ]
    assert [row["carried"]["price"] for row in rows] == [True, False, True]
    lists[DAY[2]] = pd.DataFrame({"id": [1], "price": [[1]]})
    with pytest.raises(WrongColumnType, match="price of every list"):
        changes_from_snapshots(lists, keys=["id"])
    for other in ("2024-01-01", 20240101):
        lists[DAY[1]] = pd.DataFrame({"id": [1], "since": [DAY[0]]})
        lists[DAY[2]] = pd.DataFrame({"id": [1], "since": [other]})
        with pytest.raises(WrongColumnType, match=r"since of every list as timestamp.*to_datetime"):
            changes_from_snapshots(lists, keys=["id"])


def test_an_entity_stands_in_a_list_once(spark: SparkSession) -> None:
    """Twice the same is once; twice and not the same ends the job, as in Spark."""
    lists = {DAY[0]: products((1, "kettle"), (1, "kettle")), DAY[1]: products((1, "kettle"), (2, "mug"))}
    assert said(changes_from_snapshots(lists, keys=["id"])) == [
        (1, 1, "upsert", "kettle"),
        (2, 2, "upsert", "mug"),
    ]
    lists[DAY[1]] = products((1, "kettle"), (1, "teapot"))
    with pytest.raises(
        PySparkException, match=r"changes_from_snapshots\(\) needs each entity once in a list"
    ):
        changes_from_snapshots(lists, keys=["id"]).collect()


def test_a_row_that_could_not_be_read_ends_the_job(spark: SparkSession) -> None:
    """It would say that each of its fields is null; where there is none the column is no field."""
    rows = [("2024-01-01", 1, 5, None), ("2024-01-01", 2, None, "2,five")]
    lists = spark.createDataFrame(rows, "day string, id int, price int, _corrupt_record string")
    with pytest.raises(PySparkException, match=r"one could not be read: .*The row: 2,five"):
        changes_from_snapshots(lists, keys=["id"], taken_at="day").collect()
    sound = changes_from_snapshots(lists.where("id = 1"), keys=["id"], taken_at="day", column_list=["price"])
    assert [row.data.asDict() for row in sound.select("data").collect()] == [{"id": 1, "price": 5}]


def test_keys_that_are_numbers_once_and_texts_another_time_are_refused(spark: SparkSession) -> None:
    lists = {DAY[0]: pd.DataFrame({"id": [7]}), DAY[1]: pd.DataFrame({"id": ["007"]})}
    with pytest.raises(
        WrongColumnType, match=r"id of every list .*Read the keys of every list in the same way"
    ):
        changes_from_snapshots(lists, keys=["id"])


def test_a_row_without_key_or_instant_ends_the_job(spark: SparkSession) -> None:
    rows = [(1, "kettle", "2024-01-01"), (None, "mug", "2024-01-01"), (2, "jug", None)]
    table = spark.createDataFrame(rows, "id int, name string, day string")
    needed = (
        r"needs a key for every row, .* id is null: give .* leave such rows out, "
        r"`frame.where\(\"id is not null\"\)`, in pandas `frame.dropna\(subset=\['id'\], how=\"all\"\)`"
    )
    with pytest.raises(PySparkException, match=needed):
        changes_from_snapshots(table.where("day is not null"), keys=["id"], taken_at="day").collect()
    with pytest.raises(
        PySparkException, match=r"needs a time for every row, and day is null: leave such rows out"
    ):
        changes_from_snapshots(table.where("id is not null"), keys=["id"], taken_at="day").collect()


def test_calls_that_mean_nothing_are_refused(spark: SparkSession) -> None:
    table = one_table(LISTS)
    with pytest.raises(UnfitTable, match=r"keys names number.*taken_at is not said.*such as taken_at='day'"):
        changes_from_snapshots(table, keys=["number"])
    with pytest.raises(
        UnfitTable, match=r"the key name is no column of the list of 2024-01-02T00:00:00\+00:00"
    ):
        changes_from_snapshots({DAY[0]: products((1, "a")), DAY[1]: pd.DataFrame({"id": [1]})}, keys=["name"])
    with pytest.raises(InvalidArgument, match="each list has its instant"):
        changes_from_snapshots(LISTS, keys=["id"], taken_at="name")
    with pytest.raises(InvalidArgument, match="aware datetime"):
        changes_from_snapshots({datetime(2024, 1, 1): products()}, keys=["id"])
    with pytest.raises(InvalidArgument, match="one list for each instant"):
        changes_from_snapshots([(DAY[0], products()), (DAY[0], products())], keys=["id"])
    for nothing in ({}, [], [products()]):
        with pytest.raises(InvalidArgument, match="full lists with the instants"):
            changes_from_snapshots(nothing, keys=["id"])
    with pytest.raises(InvalidArgument, match="a stream"):
        changes_from_snapshots(spark.readStream.format("rate").load(), keys=["value"], taken_at="timestamp")


@pytest.mark.parametrize(
    ("columns", "taken"),
    [
        ({"name": ["mug"], "night": ["2024-01-01"]}, "'night'"),
        ({"name": ["mug"], "night": ["01.01.2024 03:00"]}, "\"try_to_timestamp(night, 'd.M.yyyy H:mm')\""),
        ({"name": ["mug"]}, None),
    ],
    ids=["texts that are times", "in a form of their own", "nothing like it"],
)
def test_a_column_that_says_when_lists_were_taken_is_named(
    spark: SparkSession, columns: dict[str, list[str]], taken: str | None
) -> None:
    frame = pd.DataFrame({"id": [1], **columns})
    with pytest.raises(UnfitTable) as caught:
        changes_from_snapshots(frame, keys=["id"])
    assert f"apart{'' if taken is None else f', such as taken_at={taken}'}. The table" in str(caught.value)


def naive_count(lists: Sequence[tuple[datetime, Row]]) -> int:
    """How many things the lists say that the list before did not."""
    before: Row = {}
    count = 0
    for _, rows in lists:
        count += sum(1 for id_ in before if id_ not in rows)
        count += sum(1 for id_, value in rows.items() if id_ not in before or before[id_] != value)
        before = rows
    return count


@seeds(1, soak=20)
def test_at_the_instant_of_each_list_the_history_is_the_list(spark: SparkSession, seed: int) -> None:
    """Random lists, shuffled: nothing of a list is missing, nothing else is there, nothing is said twice."""
    chance = random.Random(seed)
    lists = [
        (at, {id_: chance.choice(("p", "q", None)) for id_ in range(12) if chance.random() < 0.6})
        for at in DAY[:7]
    ]
    rows = [(id_, value, at) for at, some in lists for id_, value in some.items()]
    chance.shuffle(rows)
    table = spark.createDataFrame(rows, "id int, name string, day timestamp")
    as_mapping = {at: spark.createDataFrame(list(some.items()), "id int, name string") for at, some in lists}
    for changes in (
        changes_from_snapshots(table, keys=["id"], taken_at="day", except_column_list=["day"]),
        changes_from_snapshots(as_mapping, keys=["id"]),
    ):
        assert changes.count() == naive_count(lists)
        history = (
            merge(changes, entity="product", keys=["id"]).where("not deleted_indicator").toArrow().to_pylist()
        )
        for at, some in lists:
            there = {
                row["id"]: row["name"]
                for row in history
                if row["valid_from_timestamp"] <= at
                and (row["valid_to_timestamp"] is None or at < row["valid_to_timestamp"])
            }
            assert there == some


def test_a_list_of_pandas_without_rows_has_the_types_of_the_others(spark: SparkSession) -> None:
    """A header without rows says that nothing is there, not that the ids are texts."""
    header, full = pd.DataFrame(columns=["id", "name"]), pd.DataFrame({"id": [1], "name": ["mug"]})
    for lists in ({DAY[0]: full, DAY[1]: header}, {DAY[0]: header, DAY[1]: full, DAY[2]: header}):
        changes = changes_from_snapshots(lists, keys=["id"])
        assert changes.select("data.*").dtypes == [("id", "bigint"), ("name", "string")]
        assert [row[2] for row in said(changes)] == ["upsert", "absent"]
    assert changes_from_snapshots({DAY[0]: header}, keys=["id"]).count() == 0
