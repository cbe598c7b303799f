"""`find_contradictions`: one message that says two things."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.quality import find_contradictions
from support.fold import place, same_value
from support.histories import (
    KINDS,
    Row,
    change_schema,
    plain,
    random_changes,
    rows_to_dataframe,
    to_dataframe,
)

FIELDS = {"k": "string", "a": "int", "b": "double"}
NAN = float("nan")


def change(message: str, offset: int, value: int | None, **more: Any) -> Row:
    """What a message says of `a` of the thing x; *offset* tells the rows apart and is no content."""
    arrival = {"timestamp": datetime(2024, 1, 2, tzinfo=UTC), "topic": "t", "partition": 0, "offset": offset}
    return {
        "operation": "upsert",
        "effective_timestamp": datetime(2024, 1, 1, tzinfo=UTC),
        "sequence": "",
        "message_id": message,
        "source": "one",
        "priority": 0,
        "field_priorities": None,
        "data": {"k": more.pop("k", "x"), "a": value, "b": more.pop("b", None)},
        "carried": {"k": True, "a": more.pop("a_carried", True), "b": True},
        "arrival": {**arrival, "record_number": more.pop("record", 0)},
        **more,
    }


def found(spark: SparkSession, *changes: Row) -> list[tuple[int, bool]]:
    """(offset, whether it counts) of what is found."""
    frame = rows_to_dataframe(spark, changes, change_schema(FIELDS))
    rows = find_contradictions(frame, keys=["k"]).collect()
    return sorted((row["arrival"]["offset"], row["counts"]) for row in rows)


def test_all_words_of_a_message_that_says_two_things_are_listed(spark: SparkSession) -> None:
    """The first in the order of changes counts; an equal one beside it is listed, other messages are not."""
    changes = [change("m1", 1, 1), change("m1", 2, 2), change("m1", 3, 1), change("m2", 4, 3)]
    assert found(spark, *changes) == [(1, True), (2, False), (3, False)]


def test_a_message_that_is_delivered_again_is_none(spark: SparkSession) -> None:
    """NaN is NaN, null is null, and what was not carried is not said."""
    changes = [
        change("m1", 1, None, b=NAN),
        change("m1", 2, None, b=NAN),
        change("m2", 3, 1, a_carried=False),
        change("m2", 4, 2, a_carried=False, field_priorities={"k": 0, "a": 7, "b": None}),
        change("m3", 5, 1, operation="delete"),
        change("m3", 6, 2, operation="delete"),
        change("m4", 7, 1, operation="delete", field_priorities={"k": 5, "a": None, "b": 0}),
        change("m4", 8, 1, operation="delete", a_carried=False),
    ]
    assert found(spark, *changes) == []
    changes = [
        change("m1", 1, 1, operation="delete"),
        change("m1", 2, 1, operation="delete", field_priorities={"k": None, "a": 1, "b": None}),
    ]
    assert [offset for offset, _ in found(spark, *changes)] == [1, 2]


@pytest.mark.parametrize(
    "other",
    [
        {"operation": "delete"},
        {"effective_timestamp": datetime(2024, 1, 1, 1, tzinfo=UTC)},
        {"sequence": "2"},
        {"priority": 1},
        {"field_priorities": {"k": None, "a": 1, "b": None}},
        {"a_carried": False},
        {"b": 1.5},
    ],
    ids=str,
)
def test_every_part_of_what_is_said_counts(spark: SparkSession, other: dict[str, Any]) -> None:
    assert [offset for offset, _ in found(spark, change("m", 1, 1), change("m", 2, 1, **other))] == [1, 2]


@pytest.mark.parametrize("other", [{"source": "two"}, {"source": None}, {"record": 1}, {"k": "y"}], ids=str)
def test_another_source_record_or_entity_is_no_repeat(spark: SparkSession, other: dict[str, Any]) -> None:
    assert found(spark, change("m", 1, 1), change("m", 2, 2, **other)) == []


def test_where_changes_have_a_guid_it_is_the_entity(spark: SparkSession) -> None:
    same = [change("m", 1, 1, guid="g1"), change("m", 2, 1, guid="g1", k="y"), change("m", 3, 2, guid="g2")]
    frame = rows_to_dataframe(spark, same, change_schema(FIELDS, guid=True))
    assert sorted(row["guid"] for row in find_contradictions(frame, keys=["k"]).collect()) == ["g1", "g1"]


def test_an_end_is_part_of_what_is_said(spark: SparkSession) -> None:
    changes = [change("m", 1, 1), change("m", 2, 1), change("n", 3, 1), change("n", 4, 1)]
    ends = F.expr("effective_timestamp + make_interval(0, 0, 0, IF(arrival.offset = 1, NULL, 1))")
    frame = rows_to_dataframe(spark, changes, change_schema(FIELDS)).withColumn("effective_until", ends)
    rows = find_contradictions(frame, keys=["k"]).collect()
    assert sorted(row["arrival"]["offset"] for row in rows) == [1, 2]


def test_values_of_every_type_are_compared(spark: SparkSession) -> None:
    """Also of those that Spark itself cannot compare."""
    fields = {"k": "string", **{f"f{place}": kind for place, kind in enumerate(KINDS)}}
    first = {"k": "x", **{f"f{place}": kind.values[0] for place, kind in enumerate(KINDS.values())}}
    told = [{**change("m", offset, None), "data": first} for offset in (1, 2)]
    told += [{**change("n", 3, None), "data": first}, {**change("n", 4, None), "data": {**first, "f0": None}}]
    for each in told:
        each.update(carried=dict.fromkeys(fields, True))
    frame = rows_to_dataframe(spark, told, change_schema(fields))
    with_map = frame.withColumn("data", F.col("data").withField("f0", F.create_map("data.f0", "data.f1")))
    for some in (frame, with_map.where("data.f0 is not null")):
        rows = find_contradictions(some.where("message_id = 'm'"), keys=["k"]).collect()
        assert rows == []
    assert len(find_contradictions(frame, keys=["k"]).collect()) == 2


def test_random_changes(spark: SparkSession) -> None:
    """Naively: put the rows of one identity side by side."""
    fields = {"h": "int", "k": "string", "a": "int", "b": "double"}
    changes = random_changes(71, 300, fields)
    by_identity = defaultdict(list)
    for each in changes:
        data = each["data"]
        record = each["arrival"]["record_number"]
        by_identity[data["h"], data["k"], each["source"], each["message_id"], record].append(each)
    expected = []
    for rows in by_identity.values():
        rows.sort(key=place)
        if not all(same_value(content(rows[0], fields), content(row, fields)) for row in rows):
            expected += [(str(plain(list(place(row)))), row is rows[0]) for row in rows]
    told = find_contradictions(to_dataframe(spark, changes, fields), keys=["h", "k"]).toArrow().to_pylist()
    assert len(expected) > 100
    assert sorted((str(plain(list(place(row)))), row["counts"]) for row in told) == sorted(expected)


def content(change: Row, fields: dict[str, str]) -> list[Any]:
    said: list[Any] = [change[name] for name in ("operation", "effective_timestamp", "sequence", "priority")]
    for name in fields:
        stated = (change["field_priorities"] or {}).get(name)
        priority = change["priority"] if stated is None else stated
        if change["operation"] == "upsert":
            said.append([change["data"][name], priority] if change["carried"][name] else [])
        else:
            said.append([priority] if name not in ("h", "k") else [])
    return said


@pytest.fixture
def changes(spark: SparkSession) -> DataFrame:
    return rows_to_dataframe(spark, [change("m", 1, 1)], change_schema(FIELDS))


def test_what_is_not_a_table_of_changes_is_refused(changes: DataFrame) -> None:
    with pytest.raises(MissingColumns, match=r"find_contradictions\(\) needs the columns source;"):
        find_contradictions(changes.drop("source"), keys=["k"])
    with pytest.raises(WrongColumnType, match=r"find_contradictions\(\) needs the column priority as int"):
        find_contradictions(changes.withColumn("priority", F.lit("1")), keys=["k"])
    with pytest.raises(InvalidArgument, match=r"find_contradictions\(\) needs keys"):
        find_contradictions(changes, keys=["z"])
    with pytest.raises(InvalidArgument, match=r"find_contradictions\(\) needs changes .*'Counts'"):
        find_contradictions(changes.withColumn("Counts", F.lit(1)), keys=["k"])
