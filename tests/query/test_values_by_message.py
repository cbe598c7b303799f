"""`values_by_message`: everything that a message is responsible for in a history."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import current, merge
from cdckit.errors import InvalidArgument
from cdckit.query.provenance import values_by_message
from support.fold import fold, identity
from support.histories import Row, at, random_changes, to_dataframe
from support.provenances import is_run, rows_of, text, told

ENTRY = "struct<m: string, p: int>"
SCHEMA = f"""
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    name string, price double, source_message string,
    field_provenance struct<guid: {ENTRY}, name: {ENTRY}, price: {ENTRY}>
"""


def rows(*versions: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Versions from: guid, hours, deleted, name, price, and the messages of row, name and price."""
    return [
        (guid, at(start), end and at(end), deleted, name, price, "unread", tuple(m and (m, 0) for m in said))
        for guid, start, end, deleted, name, price, *said in versions
    ]


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """A mug with three prices, deleted in the end, and a kettle."""
    return spark.createDataFrame(
        rows(
            ("mug", 9, 10, False, "Mug", 1.0, "m1", "m1", "m1"),
            ("mug", 10, 11, False, "Mug", 2.0, "m1", "m1", "m2"),
            ("mug", 11, 12, False, "Mug", 3.0, "m1", "m1", "m3"),
            ("mug", 12, None, True, None, None, "m4", "m4", "m4"),
            ("kettle", 9, 11, False, "Kettle", None, "m1", "m1", None),
            ("kettle", 11, None, False, "Kettle", 2.0, "m1", "m1", "m2"),
        ),
        SCHEMA,
    )


def answer(found: DataFrame) -> list[tuple[Any, ...]]:
    """Entity, field, value, message, and the hours between which it stood; in order."""
    table = []
    for row in found.collect():
        start, end = row["valid_from_timestamp"], row["valid_to_timestamp"]
        assert row["priority"] == 0
        table.append((*row[:4], start.hour, end and end.hour))
    return sorted(table, key=str)


def test_each_value_has_one_row_over_all_versions_that_it_spans(history: DataFrame) -> None:
    assert answer(values_by_message(history, "m1")) == [
        ("kettle", "deleted_indicator", "false", "m1", 9, None),
        ("kettle", "name", "Kettle", "m1", 9, None),
        ("mug", "deleted_indicator", "false", "m1", 9, 12),
        ("mug", "name", "Mug", "m1", 9, 12),
        ("mug", "price", "1.0", "m1", 9, 10),
    ]


def test_several_messages_are_told_apart(history: DataFrame) -> None:
    assert answer(values_by_message(history, ["m2", "m3", "m2"])) == [
        ("kettle", "price", "2.0", "m2", 11, None),
        ("mug", "price", "2.0", "m2", 10, 11),
        ("mug", "price", "3.0", "m3", 11, 12),
    ]


def test_a_delete_is_responsible_for_the_nulls_it_leaves(history: DataFrame) -> None:
    assert answer(values_by_message(history, "m4")) == [
        ("mug", "deleted_indicator", "true", "m4", 12, None),
        ("mug", "name", None, "m4", 12, None),
        ("mug", "price", None, "m4", 12, None),
    ]


def test_of_the_current_versions_it_is_what_stands_now(history: DataFrame) -> None:
    assert answer(values_by_message(current(history), ["m1", "m3"])) == [
        ("kettle", "deleted_indicator", "false", "m1", 11, None),
        ("kettle", "name", "Kettle", "m1", 11, None),
    ]


@pytest.mark.parametrize("unknown", ["m9", [], ["m9", "M1", ""], "unread"])
def test_messages_that_gave_nothing_have_no_rows(history: DataFrame, unknown: Any) -> None:
    """`source_message` is no answer: it says who changed the state, not who is responsible for a value."""
    assert values_by_message(history, unknown).collect() == []


def test_what_a_message_says_again_after_it_was_replaced_is_a_row_of_its_own(spark: SparkSession) -> None:
    """Two records of one message, and another message between them."""
    history = spark.createDataFrame(
        rows(
            ("mug", 9, 10, False, "Mug", 1.0, "m1", "m1", "m1"),
            ("mug", 10, 11, False, "Mug", 2.0, "m1", "m1", "m2"),
            ("mug", 11, None, False, "Mug", 1.0, "m1", "m1", "m1"),
        ),
        SCHEMA,
    )
    assert answer(values_by_message(history, "m1").where("field = 'price'")) == [
        ("mug", "price", "1.0", "m1", 11, None),
        ("mug", "price", "1.0", "m1", 9, 10),
    ]


def test_several_values_of_one_message_are_several_rows(spark: SparkSession) -> None:
    history = spark.createDataFrame(
        rows(
            ("mug", 9, 10, False, "Mug", 1.0, "m1", "m1", "m1"),
            ("mug", 10, 11, False, "Mug", 2.0, "m1", "m1", "m1"),
            ("mug", 11, None, False, "Mug", 1.0, "m1", "m1", "m1"),
        ),
        SCHEMA,
    )
    assert answer(values_by_message(history, "m1").where("field <> 'deleted_indicator'")) == [
        ("mug", "name", "Mug", "m1", 9, None),
        ("mug", "price", "1.0", "m1", 11, None),
        ("mug", "price", "1.0", "m1", 9, 10),
        ("mug", "price", "2.0", "m1", 10, 11),
    ]


def test_versions_with_a_gap_between_them_are_not_folded(spark: SparkSession) -> None:
    history = spark.createDataFrame(
        rows(
            ("mug", 9, 10, False, "Mug", None, "m1", "m1", None),
            ("mug", 11, None, False, "Mug", None, "m1", "m1", None),
        ),
        SCHEMA,
    )
    assert answer(values_by_message(history, "m1").where("field = 'name'")) == [
        ("mug", "name", "Mug", "m1", 11, None),
        ("mug", "name", "Mug", "m1", 9, 10),
    ]


def test_an_empty_history_has_no_rows(spark: SparkSession) -> None:
    assert values_by_message(spark.createDataFrame([], SCHEMA), "m1").collect() == []


@pytest.mark.parametrize(
    "wrong", [None, 7, ["m1", None], [b"m1"], {"m1": 1}, pd.DataFrame({"message_id": ["m1"]})]
)
def test_messages_are_texts(history: DataFrame, wrong: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"values_by_message\(\) needs messages to be the id of a message"
    ):
        values_by_message(history, wrong)


FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}


@pytest.fixture(scope="module")
def changes() -> list[Row]:
    return random_changes(41, 120, FIELDS)


@pytest.mark.parametrize("part", [1.0, 0.2], ids=["all messages", "some messages"])
def test_it_is_what_the_fold_says(spark: SparkSession, changes: list[Row], part: float) -> None:
    messages = sorted({change["message_id"] for change in changes})
    asked = random.Random(1).sample(messages, int(part * len(messages)))
    expected = stretches(fold(changes, entity="thing", keys=["h", "k"], fields=list(FIELDS)), asked)
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=["h", "k"])
    assert rows_of(values_by_message(history, asked)) == sorted(expected, key=text)


def test_a_message_of_one_record_has_at_most_one_row_per_entity_and_field(
    spark: SparkSession, changes: list[Row]
) -> None:
    """But of a key: its message stays while others change its priority, and each is a stretch of its own."""
    first = {(identity(c, "thing", ["h", "k"]), c["message_id"]): c for c in changes}
    history = merge(to_dataframe(spark, list(first.values()), FIELDS), entity="thing", keys=["h", "k"])
    found = values_by_message(history, [message for _, message in first])
    assert (
        not found.where("field not in ('h', 'k')")
        .groupBy("guid", "field", "message")
        .agg(F.count("*").alias("rows"))
        .where("rows > 1")
        .count()
    )


def stretches(versions: Sequence[Row], messages: Sequence[str]) -> list[Row]:
    """Version by version: what goes on is made longer, what is new begins."""
    wanted = set(messages)
    made: list[Row] = []
    going_on: dict[tuple[str, str], Row] = {}
    before: dict[str, Row] = {}
    for row in versions:
        for name, said in told(row, FIELDS).items():
            if said["message"] not in wanted:
                continue
            place = (row["guid"], name)
            if row["guid"] in before and is_run(before[row["guid"]], row, name):
                going_on[place]["valid_to_timestamp"] = row["valid_to_timestamp"]
                continue
            times = {name: row[name] for name in ("valid_from_timestamp", "valid_to_timestamp")}
            going_on[place] = {**said, **times}
            made.append(going_on[place])
        before[row["guid"]] = row
    return made
