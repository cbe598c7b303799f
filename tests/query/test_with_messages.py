"""`with_messages`: where a message comes from and when it arrived, beside any table that names it."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.query.provenance import with_messages
from support.histories import at

CHANGES = """
    message_id string, source string,
    arrival struct<timestamp: timestamp, topic: string, partition: int, offset: bigint, record_number: int>
"""


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    """m1 arrived three times; of m2 nobody knows the source, m3 is the id of two messages; one has none."""
    told = [
        *(("m1", "depot", at(11)), ("m1", "depot", at(12)), ("m1", "depot", at(10)), ("m2", None, at(9))),
        *(("m3", "shop", at(8)), ("m3", "depot", at(7)), ("m4", "shop", at(6)), ("m4", None, at(5))),
    ]
    return spark.createDataFrame(
        [(m, source, (time, "t", 0, 0, 0)) for m, source, time in [*told, (None, "ghost", at(1))]], CHANGES
    )


def test_every_row_stays_one_row_and_an_id_of_two_sources_tells_none(
    spark: SparkSession, changes: DataFrame
) -> None:
    frame = spark.createDataFrame(
        [(1, "m1"), (2, "m1"), (3, "m2"), (4, "m9"), (5, None), (6, "m3"), (7, "m4")],
        "number int, source_message string",
    )
    assert [tuple(row) for row in with_messages(frame, changes).orderBy("number").collect()] == [
        (1, "m1", "depot", at(10).replace(tzinfo=None)),
        (2, "m1", "depot", at(10).replace(tzinfo=None)),
        (3, "m2", None, at(9).replace(tzinfo=None)),
        (4, "m9", None, None),
        (5, None, None, None),
        (6, "m3", None, None),
        (7, "m4", None, None),
    ]


def test_the_column_may_have_any_name_and_place(spark: SparkSession, changes: DataFrame) -> None:
    frame = spark.createDataFrame(
        [("m9", "m1", "other")], "message_id string, `said.by ``whom``` string, source string"
    )
    found = with_messages(frame, changes, message="said.by `whom`")
    assert found.columns == [*frame.columns, "message_source", "message_arrival_timestamp"]
    assert found.drop("message_arrival_timestamp").collect() == [("m9", "m1", "other", "depot")]


def test_a_table_that_was_made_from_the_changes_can_be_joined_with_them(changes: DataFrame) -> None:
    frame = changes.select("message_id", "source")
    found = with_messages(frame, changes, message="message_id").where("source = 'depot'").collect()
    assert [row["message_source"] for row in found] == ["depot", "depot", "depot", None]


def test_columns_that_are_there_already_are_not_replaced(changes: DataFrame) -> None:
    frame = changes.select(
        F.col("message_id").alias("source_message"), F.col("source").alias("Message_Source")
    )
    with pytest.raises(
        InvalidArgument, match=r"with_messages\(\) needs frame to be .* it is \['Message_Source'\]"
    ):
        with_messages(frame, changes)


def test_a_column_of_messages_is_needed(spark: SparkSession, changes: DataFrame) -> None:
    with pytest.raises(MissingColumns, match=r"with_messages\(\) needs the columns source_message;"):
        with_messages(changes, changes)
    with pytest.raises(
        WrongColumnType, match=r"with_messages\(\) needs the column id as string; it is bigint"
    ):
        with_messages(spark.range(3), changes, message="id")


def test_changes_are_needed(changes: DataFrame) -> None:
    with pytest.raises(MissingColumns, match=r"with_messages\(\) needs the columns arrival;"):
        with_messages(changes, changes.drop("arrival"), message="message_id")
