"""`datahub.query`: a question about one entity, as a JSON document."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit.datahub import query
from cdckit.errors import InvalidArgument, MissingColumns
from support.hub_programs import rows_of

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
COLUMNS = (
    "guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean, "
    "number int, name string, price decimal(6,2), size double, day date, seen timestamp, sold boolean, "
    "`a.b` smallint, source_message string, field_provenance struct<guid: struct<m: string, p: int>>"
)


def at(hour: int) -> datetime:
    return NOW.replace(hour=hour)


def version(guid: str, start: int, end: int | None, *values: Any, deleted: bool = False) -> tuple[Any, ...]:
    said = ("m", (("m", 0),))
    return (guid, at(start), None if end is None else at(end), deleted, *values, *said)


OLD = date(1000, 2, 28)
SEEN = datetime(1500, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
KETTLE = (1, "kettle", Decimal("9.90"), 0.1, date(2024, 2, 29), NOW, True, 5)
MUG = (2, "mug", Decimal("3.00"), 1.5, OLD, SEEN, False, -5)
NAMELESS = (3, None, None, None, None, None, None, None)


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """The kettle became a teapot at 10, the mug was deleted at 11, the nameless came at 11."""
    teapot = (1, "teapot", *KETTLE[2:])
    rows = [
        version("k", 9, 10, *KETTLE),
        version("k", 10, None, *teapot),
        version("m", 9, 11, *MUG),
        version("m", 11, None, 2, *[None] * 7, deleted=True),
        version("n", 11, None, *NAMELESS),
    ]
    return spark.createDataFrame(rows, COLUMNS).localCheckpoint()


def ask(history: DataFrame, *, now: datetime = NOW, **question: Any) -> list[Any]:
    """The names that are found, or the numbers of those without."""
    found = rows_of(query({"product": history}, {"entity": "product", **question}, now=now))
    return sorted((row["name"] or row["number"] for row in found), key=str)


def test_without_a_timestamp_now_is_asked_about(history: DataFrame) -> None:
    assert ask(history) == [3, "teapot"]
    assert ask(history, now=at(9)) == ["kettle", "mug"]
    assert ask(history, timestamp=None) == [3, "teapot"]
    assert ask(history, now=at(8)) == []


def test_a_version_is_in_force_from_its_start_to_before_its_end(history: DataFrame) -> None:
    assert ask(history, timestamp="2024-01-01T10:00") == ["mug", "teapot"]
    assert ask(history, timestamp="2024-01-01T09:59:59.999999Z") == ["kettle", "mug"]
    assert ask(history, timestamp="2024-01-01 12:00+02:00") == ["mug", "teapot"]
    assert ask(history, timestamp="2024-01-02") == [3, "teapot"]


def test_a_timestamp_may_be_an_aware_datetime(history: DataFrame) -> None:
    there = at(9).astimezone(timezone(timedelta(hours=-8)))
    assert ask(history, timestamp=there) == ["kettle", "mug"]


def test_deletes_are_returned_when_they_are_asked_for(history: DataFrame) -> None:
    assert ask(history, deletes=True) == [2, 3, "teapot"]
    assert ask(history, deletes=False) == [3, "teapot"]
    assert ask(history, deletes=True, where={"number": 2}, fields=["number", "name"]) == [2]


def test_all_conditions_must_hold(history: DataFrame) -> None:
    then: dict[str, Any] = {"timestamp": "2024-01-01T09:00"}
    assert ask(history, where={"number": 1, "name": "kettle"}, **then) == ["kettle"]
    assert ask(history, where={"number": 1, "name": "mug"}, **then) == []
    assert ask(history, where={}, **then) == ["kettle", "mug"]
    assert ask(history, where=None, **then) == ["kettle", "mug"]


def test_a_list_means_any_of_its_values_and_an_empty_one_none(history: DataFrame) -> None:
    assert ask(history, timestamp="2024-01-01T09:00", where={"number": [1, 2, 7]}) == ["kettle", "mug"]
    assert ask(history, where={"number": [7, 8]}) == []
    assert ask(history, where={"number": []}) == []
    assert ask(history, where={"number": (1, 3), "name": [None]}) == [3]


def test_null_asks_for_what_has_no_value(history: DataFrame) -> None:
    assert ask(history, where={"name": None}) == [3]
    assert ask(history, where={"name": [None, "teapot"]}) == [3, "teapot"]
    assert ask(history, where={"name": ["teapot"]}) == ["teapot"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"guid": "k"}, ["kettle"]),
        ({"number": "1"}, ["kettle"]),
        ({"number": 1.4}, ["kettle"]),
        ({"name": "KETTLE"}, []),
        ({"price": 9.9}, ["kettle"]),
        ({"price": "3"}, ["mug"]),
        ({"price": Decimal("3.000")}, ["mug"]),
        ({"size": 0.1}, ["kettle"]),
        ({"size": "1.5"}, ["mug"]),
        ({"day": "2024-02-29"}, ["kettle"]),
        ({"day": "1000-02-28"}, ["mug"]),
        ({"seen": "2024-01-01T14:00+02:00"}, ["kettle"]),
        ({"seen": "1500-01-01T00:00:00.000001"}, ["mug"]),
        ({"sold": "yes"}, ["kettle"]),
        ({"sold": False}, ["mug"]),
        ({"a.b": 5}, ["kettle"]),
        ({"a.b": ["-5", None]}, ["mug"]),
    ],
)
def test_a_value_is_read_as_in_a_message(
    history: DataFrame, where: dict[str, Any], expected: list[str]
) -> None:
    assert ask(history, timestamp="2024-01-01T09:00", where=where) == expected


def test_fields_are_returned_as_they_are_asked_for(history: DataFrame) -> None:
    question = {"entity": "product", "fields": ["a.b", "guid", "source_message"], "where": {"number": 1}}
    found = query({"product": history}, question, now=NOW)
    assert found.columns == ["a.b", "guid", "source_message"]
    assert [tuple(row) for row in found.collect()] == [(5, "k", "m")]
    assert query({"product": history}, {"entity": "product"}, now=NOW).columns == history.columns


@pytest.mark.parametrize(
    ("question", "argument"),
    [
        ({}, r"question['entity']"),
        ({"entity": None}, r"question['entity']"),
        ({"entity": ["product"]}, r"question['entity']"),
        ({"entity": "Product"}, r"question['entity']"),
        ({"entity": "product", "filter": {}}, r"question"),
        ({"entity": "product", "Where": {}}, r"question"),
        ({"entity": "product", "timestamp": ""}, r"question['timestamp']"),
        ({"entity": "product", "timestamp": "noon"}, r"question['timestamp']"),
        ({"entity": "product", "timestamp": 1704067200}, r"question['timestamp']"),
        ({"entity": "product", "timestamp": date(2024, 1, 1)}, r"question['timestamp']"),
        ({"entity": "product", "deletes": "yes"}, r"question['deletes']"),
        ({"entity": "product", "deletes": 1}, r"question['deletes']"),
        ({"entity": "product", "where": ["number"]}, r"question['where']"),
        ({"entity": "product", "where": "number = 1"}, r"question['where']"),
        ({"entity": "product", "where": {"nummer": 1}}, r"question['where']"),
        ({"entity": "product", "where": {"NUMBER": 1}}, r"question['where']"),
        ({"entity": "product", "where": {"source_message": "m"}}, r"question['where']"),
        ({"entity": "product", "where": {"number": "one"}}, r"question['where']['number']"),
        ({"entity": "product", "where": {"number": {"gt": 1}}}, r"question['where']['number']"),
        ({"entity": "product", "where": {"number": [1, [2]]}}, r"question['where']['number']"),
        ({"entity": "product", "where": {"number": 2**31}}, r"question['where']['number']"),
        ({"entity": "product", "where": {"number": float("nan")}}, r"question['where']['number']"),
        ({"entity": "product", "where": {"number": float("inf")}}, r"question['where']['number']"),
        ({"entity": "product", "where": {"price": float("nan")}}, r"question['where']['price']"),
        ({"entity": "product", "where": {"size": float("nan")}}, r"question['where']['size']"),
        ({"entity": "product", "where": {"sold": 10**5000}}, r"question['where']['sold']"),
        ({"entity": "product", "where": {"day": "2023-02-29"}}, r"question['where']['day']"),
        ({"entity": "product", "where": {"a.b": 40_000}}, r"question['where']['a.b']"),
        ({"entity": "product", "fields": "name"}, r"question['fields']"),
        ({"entity": "product", "fields": []}, r"question['fields']"),
        ({"entity": "product", "fields": ["name", "name"]}, r"question['fields']"),
        ({"entity": "product", "fields": ["name", "nummer"]}, r"question['fields']"),
    ],
)
def test_a_question_that_means_nothing_is_refused(
    history: DataFrame, question: dict[str, Any], argument: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        query({"product": history}, question, now=NOW)
    assert (caught.value.function, caught.value.argument) == ("query", argument)


def test_an_instant_without_its_zone_is_refused(history: DataFrame) -> None:
    naive = datetime(2024, 1, 1)
    with pytest.raises(InvalidArgument, match=r"query\(\) needs now to be an aware datetime"):
        query({"product": history}, {"entity": "product"}, now=naive)
    with pytest.raises(InvalidArgument, match=r"query\(\) needs question\['timestamp'\] to be an aware"):
        query({"product": history}, {"entity": "product", "timestamp": naive}, now=NOW)


def test_errors_are_those_of_the_function_that_was_called(history: DataFrame) -> None:
    for question in ("product", None, ["entity"]):
        with pytest.raises(InvalidArgument, match=r"query\(\) needs question to be an object of entity, "):
            query({"product": history}, question, now=NOW)  # type: ignore[arg-type]
    with pytest.raises(MissingColumns, match=r"query\(\) needs the columns valid_to_timestamp; "):
        query({"product": history.drop("valid_to_timestamp")}, {"entity": "product"}, now=NOW)
