"""When a change is true, if its message does not say so: full loads, and other messages without a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import as_of, merge, replicate
from cdckit.errors import InvalidArgument
from support.replicate_messages import (
    HEADERS,
    NO_TIME,
    NOON,
    Record,
    Version,
    by_offset,
    numbered,
    record,
    sequence,
)
from support.replicate_readings import Reading, read, read_home

TEXT = ["null", "string"]
# Of the producers that there are, some leave the texts of a full load empty and some leave them null.
NULLABLE = HEADERS | dict.fromkeys(("changeSequence", "timestamp", "streamPosition", "transactionId"), TEXT)
ITEMS = Version({"id": "int", "price": ["null", "int"]}, headers=NULLABLE)
ROW = {"id": 1, "price": 5}
NULL_TIME = dict.fromkeys(NO_TIME)
AT_TEN = "2024-01-01T10:00:00"
NOON_SHOWN = NOON.replace(tzinfo=None)


def after(seconds: int) -> datetime:
    """When the broker took the record at that offset."""
    return NOON_SHOWN + timedelta(seconds=seconds)


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)


TOLD: list[tuple[str, bytes, tuple[datetime, str]]] = [
    ("a load with empty headers", ITEMS.dt("REFRESH", ROW, **NO_TIME), (after(1), "record")),
    ("a load with null headers", ITEMS.dt("REFRESH", ROW, **NULL_TIME), (after(2), "record")),
    (
        "a load whose time is empty and whose sequence is not",
        ITEMS.dt("REFRESH", ROW, timestamp="", changeSequence=sequence("20240101100000", 1)),
        (after(3), "record"),
    ),
    (
        "a load that says its time",
        ITEMS.dt("REFRESH", ROW, timestamp=AT_TEN),
        (datetime(2024, 1, 1, 10), "change"),
    ),
    (
        "a change that says its time",
        ITEMS.dt("UPDATE", ROW, timestamp=AT_TEN),
        (datetime(2024, 1, 1, 10), "change"),
    ),
    (
        "a delete without a time",
        ITEMS.dt("DELETE", ROW, timestamp=None, changeSequence="2024010109594512" + "0" * 18 + "7"),
        (datetime(2024, 1, 1, 9, 59, 45, 120_000), "sequence"),
    ),
    (
        "a change whose sequence is no time",
        ITEMS.dt("UPDATE", ROW, timestamp="", changeSequence="0" * 35),
        (after(7), "record"),
    ),
    ("a change with neither", ITEMS.dt("UPDATE", ROW, **NULL_TIME), (after(8), "record")),
]


def records() -> list[Record]:
    lost = record(ITEMS.dt("REFRESH", ROW, **NO_TIME), len(TOLD) + 1, timestamp=None)
    return [*numbered([ITEMS.md(), *(value for _, value, _ in TOLD)]), lost]


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> Reading:
    return read(spark, records())


@pytest.fixture(scope="module")
def rows() -> dict[int, dict[str, Any]]:
    return read_home(records())[1]


@pytest.mark.parametrize("place", range(len(TOLD)), ids=[name for name, _, _ in TOLD])
def test_a_row_says_when_it_is_true_and_whence_that_is_known(
    rows: dict[int, dict[str, Any]], place: int
) -> None:
    row = rows[place + 1]
    assert (row["error_code"], row["change_timestamp"], row["time_taken_from"]) == (None, *TOLD[place][2])


def test_without_any_time_a_record_is_a_reject(rows: dict[int, dict[str, Any]]) -> None:
    row = rows[len(TOLD) + 1]
    assert (row["error_code"], row["change_timestamp"], row["time_taken_from"]) == (
        "TIMESTAMP_INVALID",
        None,
        None,
    )


def test_a_record_without_a_time_is_true_from_the_time_of_its_sequence_on() -> None:
    told = ITEMS.dt("DELETE", ROW, timestamp=None, changeSequence=sequence("2024010109594512", 7))
    _, rows = read_home([record(ITEMS.md(), 0), record(told, 1, timestamp=None)])
    assert (rows[1]["error_code"], rows[1]["change_timestamp"], rows[1]["time_taken_from"]) == (
        None,
        datetime(2024, 1, 1, 9, 59, 45, 120_000),
        "sequence",
    )


def given(reading: Reading, loaded_at: Any) -> dict[int, dict[str, Any]]:
    return by_offset(replicate.data(reading.records, reading.zone, loaded_at=loaded_at))


def test_the_caller_says_when_a_load_was(reading: Reading, rows: dict[int, dict[str, Any]]) -> None:
    """Only of the rows of a load that do not say so themselves."""
    eight = datetime(2024, 1, 1, 8, tzinfo=UTC)
    found = given(reading, eight)
    for offset in (1, 2, 3):
        assert (found[offset]["change_timestamp"], found[offset]["time_taken_from"]) == (
            eight.replace(tzinfo=None),
            "given",
        )
    for offset in range(4, len(TOLD) + 1):
        assert {name: found[offset][name] for name in rows[offset]} == rows[offset]
    lost = found[len(TOLD) + 1]
    assert (lost["error_code"], lost["change_timestamp"].hour, lost["time_taken_from"]) == (None, 8, "given")


def test_several_loads_have_a_time_each(reading: Reading) -> None:
    of_load = F.when(F.col("offset") < 2, F.lit(datetime(2024, 1, 1, 8, tzinfo=UTC))).otherwise(
        F.date_trunc("hour", "timestamp")
    )
    found = given(reading, of_load)
    assert [found[offset]["change_timestamp"].hour for offset in (1, 2, 3)] == [8, 12, 12]


@pytest.mark.parametrize("wrong", ["2024-01-01", NOON.replace(tzinfo=None), NOON.date()])
def test_a_time_of_a_load_that_is_none_is_refused_at_the_call(reading: Reading, wrong: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"data\(\) needs loaded_at to be an aware datetime, or a column"
    ):
        given(reading, wrong)


def test_a_load_comes_before_the_changes_of_its_instant(spark: SparkSession) -> None:
    """Whatever arrives first: an empty sequence sorts before every other."""
    update = ITEMS.dt("UPDATE", {"id": 1, "price": 6}, timestamp="2024-01-01T08:00:00")
    load = ITEMS.dt("REFRESH", ROW, timestamp="", changeSequence="9" * 35)
    records = read(spark, numbered([ITEMS.md(), update, load])).records
    at = datetime(2024, 1, 1, 8, tzinfo=UTC)
    changes = replicate.table_changes(records, task="shop_task", table="ITEMS", loaded_at=at)
    told = {row["arrival"]["offset"]: row for row in changes.collect()}
    assert (told[2]["sequence"], told[2]["message_id"]) == ("", f"db1/shop_task:items/0/{micros(after(2))}/2")
    history: DataFrame = merge(changes, entity="item", keys=["id"])
    assert [row["price"] for row in as_of(history, at).collect()] == [6]


def test_a_load_of_a_topic_that_was_made_anew_is_news(spark: SparkSession) -> None:
    """Its offsets are those of the load before."""
    loads = [ITEMS.dt("REFRESH", {"id": 1, "price": price}, **NO_TIME) for price in (5, 7)]
    later = NOON + timedelta(days=150)
    records = [*numbered([ITEMS.md(), loads[0]]), record(loads[1], 1, timestamp=later)]
    changes = replicate.table_changes(read(spark, records).records, task="shop_task", table="ITEMS")
    history: DataFrame = merge(changes, entity="item", keys=["id"])
    told = history.orderBy("valid_from_timestamp").select("price", "valid_from_timestamp").collect()
    assert told == [(5, after(1)), (7, later.replace(tzinfo=None))]
