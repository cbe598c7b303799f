"""`revoke`: the changes as if some messages had never come."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from_snapshots, merge
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.query.provenance import revoke, values_by_message
from support.histories import (
    Row,
    assert_folds_to,
    change_schema,
    random_changes,
    rows_to_dataframe,
    to_dataframe,
    to_rows,
)

FIELDS = {"k": "string", "a": "int"}


def change(message: str | None, hour: int, value: int, priority: int = 0) -> Row:
    """What a message said of the only thing there is."""
    return {
        "operation": "upsert",
        "effective_timestamp": datetime(2024, 3, 10, hour, tzinfo=UTC),
        "sequence": "",
        "arrival": {
            "timestamp": datetime(2024, 3, 11, tzinfo=UTC), "topic": "t", "partition": 0, "offset": hour,
            "record_number": 0,
        },
        "message_id": message,
        "source": "",
        "priority": priority,
        "data": {"k": "x", "a": value},
        "carried": {"k": True, "a": True},
    }  # fmt: skip


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    """A strong word between two weak ones, and one without a message."""
    told = [change("m1", 9, 1), change("m2", 10, 2, priority=5), change("m3", 11, 3), change(None, 12, 4)]
    return rows_to_dataframe(spark, told, change_schema(FIELDS, field_priorities=False))


def left(changes: DataFrame) -> list[int]:
    return sorted(row["data"]["a"] for row in changes.collect())


@pytest.mark.parametrize("messages", ["m2", ["m2"], ("m2", "m9"), {"m2"}], ids=str)
def test_the_changes_of_the_messages_are_left_out(changes: DataFrame, messages: Any) -> None:
    assert left(revoke(changes, messages)) == [1, 3, 4]


def test_the_messages_may_be_a_table(spark: SparkSession, changes: DataFrame) -> None:
    messages = spark.createDataFrame(
        [("m1", 1), ("m2", 2), ("m2", 3), ("m9", 4), (None, 5)], "message_id string, n int"
    )
    assert left(revoke(changes, messages)) == [3, 4]
    assert revoke(changes, messages).schema == changes.schema
    assert left(revoke(changes, pd.DataFrame({"message_id": ["m1", "m2", "m9", None]}))) == [3, 4]


def test_a_source_is_meant_alone(spark: SparkSession) -> None:
    """Two sources, and one that nobody names, number their messages alike."""
    told = [
        {**change(message, hour, hour), "source": source}
        for hour, (message, source) in enumerate(
            [("1", "a"), ("1", "b"), ("1", None), ("2", "a"), ("2", "b"), (None, "a")]
        )
    ]
    changes = rows_to_dataframe(spark, told, change_schema(FIELDS, field_priorities=False))
    table = spark.createDataFrame([("1", "b"), ("1", None), ("2", "c")], "message_id string, source string")
    assert left(revoke(changes, "1")) == [3, 4, 5]
    assert left(revoke(changes, "1", source="a")) == [1, 2, 3, 4, 5]
    assert left(revoke(changes, table)) == [0, 3, 4, 5]
    assert left(revoke(changes, table, source="b")) == [0, 2, 3, 4, 5]
    assert left(revoke(changes, table.select("message_id"), source="a")) == [1, 2, 4, 5]


@pytest.mark.parametrize("nothing", [[], "m9", ["m9", ""]], ids=str)
def test_no_messages_and_unknown_ones_change_nothing(changes: DataFrame, nothing: Any) -> None:
    assert left(revoke(changes, nothing)) == [1, 2, 3, 4]
    assert revoke(changes, nothing).schema == changes.schema


def test_an_empty_table_of_messages_changes_nothing(changes: DataFrame) -> None:
    assert left(revoke(changes, changes.select("message_id").limit(0))) == [1, 2, 3, 4]


def test_without_a_strong_word_the_weak_one_it_had_outranked_counts(changes: DataFrame) -> None:
    told = changes.where("message_id is not null")

    def values(some: DataFrame) -> list[int]:
        return [row["a"] for row in to_rows(merge(some, entity="thing", keys=["k"]))]

    assert values(told) == [1, 2]
    assert values(revoke(told, "m2")) == [1, 3]


@pytest.mark.parametrize("wrong", [None, 7, ["m1", None], [1], {"m1": 1}], ids=str)
def test_messages_are_texts(changes: DataFrame, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"revoke\(\) needs messages to be the id of a message"):
        revoke(changes, wrong)


def test_tables_need_the_column_message_id_as_text(spark: SparkSession, changes: DataFrame) -> None:
    with pytest.raises(
        MissingColumns, match=r"revoke\(\) needs the columns message_id; the DataFrame has id"
    ):
        revoke(changes, spark.range(1))
    with pytest.raises(
        WrongColumnType, match=r"revoke\(\) needs the column message_id as string; it is bigint"
    ):
        revoke(changes, spark.range(1).toDF("message_id"))
    with pytest.raises(MissingColumns, match=r"revoke\(\) needs the columns message_id;"):
        revoke(changes.drop("message_id"), "m1")
    with pytest.raises(MissingColumns, match=r"revoke\(\) needs the columns source;"):
        revoke(changes.drop("source"), "m1", source="shop")
    wrong: Any = 7
    with pytest.raises(InvalidArgument, match=r"revoke\(\) needs source to be the name of a source"):
        revoke(changes, "m1", source=wrong)


LAW_FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
KEYS = ["h", "k"]


@pytest.mark.parametrize("as_table", [False, True], ids=["listed", "table"])
def test_the_history_is_as_if_the_messages_had_never_come(spark: SparkSession, as_table: bool) -> None:
    changes = random_changes(61, 120, LAW_FIELDS)
    messages = sorted({change["message_id"] for change in changes})
    revoked = random.Random(2).sample(messages, len(messages) // 4)
    frame = to_dataframe(spark, changes, LAW_FIELDS)
    asked: Any = spark.createDataFrame([(m,) for m in revoked], "message_id string") if as_table else revoked
    history = merge(revoke(frame, asked), entity="thing", keys=KEYS)
    assert_folds_to(
        history, [c for c in changes if c["message_id"] not in set(revoked)], entity="thing", keys=KEYS
    )
    assert values_by_message(history, revoked).isEmpty()


def test_a_full_list_is_no_message_that_stands_for_itself(spark: SparkSession) -> None:
    """What the next list confirmed would go with it; a message that is only called like one is none."""
    lists = {
        datetime(2024, 1, day, tzinfo=UTC): spark.createDataFrame([(1, name)], "k int, a string")
        for day, name in ((1, "x"), (2, "y"), (3, "y"))
    }
    changes = changes_from_snapshots(lists, keys=["k"], source="shop")
    second = "shop-list-2024-01-02T00:00:00Z"
    of_messages = spark.createDataFrame([(second,), ("shop-list-2024-01-03T00:00:00Z",)], "message_id string")
    for revoked in (second, [second, "m1"], of_messages):
        with pytest.raises(
            PySparkException, match=r"revoke\(\).*a full list.*shop-list-2024-01-02T00:00:00Z"
        ):
            revoke(changes, revoked).collect()
    # The third list is in no change, another source has none, and this message is of another instant.
    assert revoke(changes, "shop-list-2024-01-03T00:00:00Z").count() == 2
    assert revoke(changes, of_messages, source="other").count() == 2
    other = changes.withColumn("effective_timestamp", F.lit(datetime(2024, 2, 1, tzinfo=UTC)))
    assert revoke(other, second).count() == 1
