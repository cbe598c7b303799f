"""`blame`: who is responsible for each value of one entity, and since when."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import merge
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.query.provenance import blame
from support.fold import fold
from support.histories import (
    INSTANTS,
    Row,
    at,
    change_schema,
    history_schema,
    random_changes,
    rows_to_dataframe,
    to_dataframe,
)
from support.provenances import in_force, is_run, rows_of, text, told

FIELDS = {"id": "string", "name": "string", "price": "int", "color": "string"}


def version(start: int, end: int | None, values: Row, said: dict[str, tuple[str, int]], **more: Any) -> Row:
    """A version of the mug between two hours; m1 said everything that *said* does not give to others."""
    said = {"guid": ("m1", 0), "id": ("m1", 0), **said}
    return {
        "guid": "g1",
        "valid_from_timestamp": at(start),
        "valid_to_timestamp": end and at(end),
        "deleted_indicator": False,
        **dict.fromkeys(FIELDS),
        "id": "mug",
        **values,
        "source_message": "unread",
        "field_provenance": {name: {"m": m, "p": p} for name, (m, p) in said.items()},
        **more,
    }


DELETE = ("m4", 7)
MUG = [
    version(9, 10, {"name": "Mug", "price": 3}, {"name": ("m1", 0), "price": ("m1", 0)}),
    version(10, 11, {"name": "Mug", "price": 4}, {"name": ("m1", 0), "price": ("m2", 5)}),
    version(11, 12, {"name": "Cup", "price": 4}, {"name": ("m3", 0), "price": ("m2", 5)}),
    version(12, None, {}, {"guid": DELETE, "name": DELETE, "price": DELETE}, deleted_indicator=True),
]


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """A mug whose price and name change, and which is deleted; and a kettle that was always there."""
    kettle = version(8, None, {"id": "kettle"}, {"guid": ("m0", 0), "id": ("m0", 0)}, guid="g2")
    return rows_to_dataframe(spark, [*MUG, kettle], history_schema(FIELDS))


def answer(found: DataFrame) -> list[tuple[Any, ...]]:
    """Without the guid, and the time as its hour."""
    rows = []
    for row in found.collect():
        since = row["since_timestamp"]
        rows.append((row["field"], row["value"], row["message"], row["priority"], since and since.hour))
    return rows


def test_each_value_has_its_message_and_the_start_of_its_unbroken_run(history: DataFrame) -> None:
    assert answer(blame(history, {"id": "mug"}, valid_at=at(11, 30))) == [
        ("deleted_indicator", "false", "m1", 0, 9),
        ("id", "mug", "m1", 0, 9),
        ("name", "Cup", "m3", 0, 11),
        ("price", "4", "m2", 5, 10),
        ("color", None, None, None, None),
    ]


def test_a_deleted_entity_shows_who_deleted_it(history: DataFrame) -> None:
    assert answer(blame(history, {"id": "mug"})) == [
        ("deleted_indicator", "true", "m4", 7, 12),
        ("id", "mug", "m1", 0, 9),
        ("name", None, "m4", 7, 12),
        ("price", None, "m4", 7, 12),
        ("color", None, None, None, None),
    ]


def test_a_version_is_read_from_the_instant_at_which_it_starts(history: DataFrame) -> None:
    price = F.col("field") == "price"
    assert answer(blame(history, {"id": "mug"}, valid_at=at(10)).where(price)) == [
        ("price", "4", "m2", 5, 10)
    ]
    just_before = at(10) - timedelta(microseconds=1)
    assert answer(blame(history, {"id": "mug"}, valid_at=just_before).where(price)) == [
        ("price", "3", "m1", 0, 9)
    ]


def test_what_comes_later_does_not_matter(history: DataFrame) -> None:
    """The run of a value begins in the past of the instant asked about."""
    early = history.where(F.col("valid_from_timestamp") <= F.lit(at(10)))
    at_ten = blame(history, {"id": "mug"}, valid_at=at(10))
    assert answer(blame(early, {"id": "mug"}, valid_at=at(10))) == answer(at_ten)


@pytest.mark.parametrize("key", [{"id": "jug"}, {"id": None}, {"guid": "none"}, {"id": "mug", "name": "Mug"}])
def test_an_entity_that_is_not_there_has_no_rows(history: DataFrame, key: Row) -> None:
    assert blame(history, key).collect() == []


def test_before_its_first_version_an_entity_has_no_rows(history: DataFrame) -> None:
    assert blame(history, {"id": "mug"}, valid_at=at(8, 59)).collect() == []


def test_the_guid_is_a_key_too(history: DataFrame) -> None:
    assert answer(blame(history, {"guid": "g1"})) == answer(blame(history, {"id": "mug"}))


def test_a_part_of_a_key_speaks_of_every_entity_that_has_it(history: DataFrame) -> None:
    found = blame(history, {"color": None}).where("field = 'id'").collect()
    assert sorted((row["guid"], row["value"]) for row in found) == [("g1", "mug"), ("g2", "kettle")]


def test_an_entity_whose_key_changed_answers_to_its_key_of_then_with_all_its_past(
    spark: SparkSession,
) -> None:
    renamed = [
        version(9, 10, {"id": "mug", "name": "Mug"}, {"name": ("m1", 0)}),
        version(10, None, {"id": "cup", "name": "Mug"}, {"id": ("m2", 0), "name": ("m1", 0)}),
    ]
    history = rows_to_dataframe(spark, renamed, history_schema(FIELDS))
    now = [("id", "cup", "m2", 0, 10), ("name", "Mug", "m1", 0, 9)]
    assert answer(blame(history, {"id": "cup"}).where("field in ('id', 'name')")) == now
    assert answer(blame(history, {"id": "mug"})) == []
    then = answer(blame(history, {"id": "mug"}, valid_at=at(9)).where("field = 'id'"))
    assert then == [("id", "mug", "m1", 0, 9)]


def test_a_key_that_no_message_carried_is_shown_without_one(spark: SparkSession) -> None:
    entries = {"guid": {"m": "m1", "p": 0}}
    versions = [version(9, None, {"id": "mug"}, {}, field_provenance=entries)]
    history = rows_to_dataframe(spark, versions, history_schema(FIELDS))
    found = answer(blame(history, {"id": "mug"}).where("field = 'id'"))
    assert found == [("id", "mug", None, None, None)]


@pytest.mark.parametrize(
    ("second", "since"),
    [
        ({"entry": ("m1", 0), "price": 1, "start": 10}, 9),
        ({"entry": ("m2", 0), "price": 1, "start": 10}, 10),
        ({"entry": ("m1", 1), "price": 1, "start": 10}, 10),
        ({"entry": ("m1", 0), "price": 2, "start": 10}, 10),
        ({"entry": ("m1", 0), "price": None, "start": 10}, 10),
        ({"entry": ("m1", 0), "price": 1, "start": 11}, 11),
    ],
    ids=["the same", "another message", "another priority", "another value", "null", "after a gap"],
)
def test_a_run_is_broken_by_another(spark: SparkSession, second: Row, since: int) -> None:
    entry, price, start = second["entry"], second["price"], second["start"]
    versions = [
        version(9, 10, {"price": 1}, {"price": ("m1", 0)}),
        version(start, None, {"price": price}, {"price": entry}),
    ]
    history = rows_to_dataframe(spark, versions, history_schema(FIELDS))
    assert [row[-1] for row in answer(blame(history, {"id": "mug"}).where("field = 'price'"))] == [since]


def test_a_value_that_returns_stands_since_its_return(spark: SparkSession) -> None:
    versions = [
        version(9, 10, {"price": 1}, {"price": ("m1", 0)}),
        version(10, 11, {"price": 2}, {"price": ("m1", 0)}),
        version(11, None, {"price": 1}, {"price": ("m1", 0)}),
    ]
    history = rows_to_dataframe(spark, versions, history_schema(FIELDS))
    assert answer(blame(history, {"id": "mug"}).where("field = 'price'")) == [("price", "1", "m1", 0, 11)]


def test_fields_may_have_any_name_and_type(spark: SparkSession) -> None:
    """Even the names that the answer itself uses, and types that Spark does not compare."""
    entry = "struct<m: string, p: int>"
    fields = {
        "value": "binary",
        "field": "map<string, int>",
        "a.b `c`": "struct<message: int, since: array<map<string, double>>>",
        "before": "decimal(5,2)",
    }
    names = [f"`{name.replace('`', '``')}`" for name in fields]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, fields.values(), strict=True))
    entries = ", ".join(f"{name}: {entry}" for name in ["guid", *names])
    schema = f"""
        guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
        {columns}, field_provenance struct<{entries}>
    """
    said = (("m1", 0),) * 5
    values = (b"\x00\xff", {"x": 1}, (7, [{"y": 0.5}]), Decimal("1.50"))
    rows = [
        ("g1", at(9), at(10), False, *values, said),
        ("g1", at(10), None, False, values[0], {"x": 2}, *values[2:], said),
    ]
    found = answer(blame(spark.createDataFrame(rows, schema), {"value": b"\x00\xff"}))
    assert found == [
        ("deleted_indicator", "false", "m1", 0, 9),
        ("value", "00ff", "m1", 0, 9),
        ("field", '{"x":2}', "m1", 0, 10),
        ("a.b `c`", '{"message":7,"since":[{"y":0.5}]}', "m1", 0, 9),
        ("before", "1.50", "m1", 0, 9),
    ]


def test_columns_that_came_to_the_history_later_are_no_fields(history: DataFrame) -> None:
    more = history.withColumn("note", F.lit("mine"))
    assert answer(blame(more, {"id": "mug"})) == answer(blame(history, {"id": "mug"}))


def test_a_version_over_as_it_begins_said_nothing(spark: SparkSession) -> None:
    """Wherever it stands among the others: who asks is told of those that were in force."""
    said = {"guid": ("m9", 9), "id": ("m9", 9), "name": ("m9", 9), "price": ("m9", 9)}
    never = [version(hour, hour, {"name": "Jug", "price": 9}, said) for hour in (9, 10, 11)]
    schema = history_schema(FIELDS)
    expected = blame(rows_to_dataframe(spark, MUG, schema), {"id": "mug"}, valid_at=at(11)).collect()
    for rows in ([*never, *MUG], [*MUG, *never]):
        found = blame(rows_to_dataframe(spark, rows, schema), {"id": "mug"}, valid_at=at(11))
        assert found.collect() == expected


def test_an_empty_history_has_no_rows(spark: SparkSession) -> None:
    assert blame(rows_to_dataframe(spark, [], history_schema(FIELDS)), {"id": "mug"}).collect() == []


@pytest.mark.parametrize("key", [{}, {"nonsense": 1}, "mug", {"deleted_indicator": True}])
def test_a_key_of_no_known_field_is_refused(history: DataFrame, key: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"blame\(\) needs key to be"):
        blame(history, key)


@pytest.mark.parametrize(
    ("provenance", "named"),
    [
        ("named_struct('id', 'm1')", "field_provenance as a struct with the entry guid"),
        ("named_struct('guid', 'm1')", r"field_provenance.guid as struct<m:string,p:int>; it is string"),
        ("'m1'", "field_provenance as a struct; it is string"),
    ],
)
def test_a_provenance_of_another_form_is_refused(history: DataFrame, provenance: str, named: str) -> None:
    with pytest.raises(WrongColumnType, match=rf"blame\(\) needs the column {named}"):
        blame(history.withColumn("field_provenance", F.expr(provenance)), {"id": "mug"})


def test_the_changes_say_which_source_sent_a_message(spark: SparkSession) -> None:
    """In the order of the fields, as without them; of an id that two sources use nobody can tell."""
    first = {"h": 1, "k": "x", "a": 1}
    rows = [
        change(first, source="crm", message="m1", hour=9),
        change({**first, "a": 2}, source="till", message="m2", hour=10),
        change({**first, "h": 2}, source="crm", message="m2", hour=11),
    ]
    kinds = {"h": "int", "k": "string", "a": "int"}
    changes = rows_to_dataframe(spark, rows, change_schema(kinds, field_priorities=False))
    history = merge(changes, entity="thing", keys=["h", "k"])
    found = blame(history, {"h": 1}, changes=changes).select("field", "message", "source").collect()
    assert [tuple(row) for row in found] == [
        ("deleted_indicator", "m1", "crm"),
        ("h", "m1", "crm"),
        ("k", "m1", "crm"),
        ("a", "m2", None),
    ]


def change(data: Row, *, source: str, message: str, hour: int) -> Row:
    at_hour = at(hour)
    arrival = {"timestamp": at_hour, "topic": "t", "partition": 0, "offset": hour, "record_number": 1}
    said = {"operation": "upsert", "effective_timestamp": at_hour, "sequence": "", "arrival": arrival}
    carried = dict.fromkeys(data, True)
    return {**said, "message_id": message, "source": source, "priority": 0, "data": data, "carried": carried}


LAW_FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}


@pytest.fixture(scope="module", params=[False, True], ids=["by key", "by guid"])
def law(spark: SparkSession, request: pytest.FixtureRequest) -> tuple[list[Row], DataFrame]:
    """Random versions by the fold and by `merge`; keys change where entities have guids of their own."""
    changes = random_changes(31, 100, LAW_FIELDS, guids=request.param)
    versions = fold(changes, entity="thing", keys=["h", "k"], fields=list(LAW_FIELDS))
    history = merge(to_dataframe(spark, changes, LAW_FIELDS), entity="thing", keys=["h", "k"])
    return versions, history.localCheckpoint()


@pytest.mark.parametrize("instant", [*INSTANTS, None], ids=str)
def test_at_every_instant_it_is_what_the_fold_says(
    law: tuple[list[Row], DataFrame], instant: datetime | None
) -> None:
    """Of every entity with the key x then."""
    versions, history = law
    expected = [
        {**said, "source": None, "since_timestamp": said["message"] and since(versions, row, name)}
        for row in in_force(versions, instant)
        if row["k"] == "x"
        for name, said in told(row, LAW_FIELDS).items()
    ]
    assert rows_of(blame(history, {"k": "x"}, valid_at=instant)) == sorted(expected, key=text)


def since(versions: list[Row], row: Row, name: str) -> datetime:
    """Back from a version to the first that said the same of the field without a break."""
    past = [
        other
        for other in versions
        if other["guid"] == row["guid"] and other["valid_from_timestamp"] <= row["valid_from_timestamp"]
    ]
    while len(past) > 1 and is_run(past[-2], past[-1], name):
        past.pop()
    start: datetime = past[-1]["valid_from_timestamp"]
    return start
