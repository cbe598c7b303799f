"""`timeline` and `with_operation`: the versions of one entity in their order, and what each did to it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import changes_between
from cdckit.errors import InvalidArgument
from cdckit.query.as_of import timeline, with_operation
from support.histories import at

SCHEMA = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    shop string, number int, name string, source_message string
"""


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """
    A kettle that got another name, a mug with a life of its own, and a thing of no shop.

    The mug is deleted, deleted again by a stronger source, comes back, and gets another name.
    """
    rows = [
        ("mug", at(14), None, False, "A", 2, "Cup", "m6"),
        ("mug", at(13), at(14), False, "A", 2, "Mug", "m5"),
        ("mug", at(12), at(13), True, "A", 2, None, "m4"),
        ("mug", at(11), at(12), True, "A", 2, None, "m3"),
        ("mug", at(9), at(11), False, "A", 2, "Mug", "m1"),
        ("kettle", at(10), None, False, "A", 1, "Pot", "m2"),
        ("kettle", at(9), at(10), False, "A", 1, "Kettle", "m1"),
        ("thing", at(9), None, False, None, 1, "Thing", "m7"),
    ]
    return spark.createDataFrame(rows, SCHEMA)


def steps(versions: DataFrame) -> list[tuple[str, str]]:
    return [(row["source_message"], row["operation"]) for row in versions.collect()]


def test_every_version_says_what_it_did(history: DataFrame) -> None:
    assert sorted(steps(with_operation(history.where("guid = 'mug'")))) == [
        ("m1", "insert"),
        ("m3", "delete"),
        ("m4", "delete"),
        ("m5", "recreate"),
        ("m6", "update"),
    ]


def test_every_entity_has_its_own_first_version(history: DataFrame) -> None:
    inserts = with_operation(history).where("operation = 'insert'").select("guid")
    assert sorted(row["guid"] for row in inserts.collect()) == ["kettle", "mug", "thing"]


def test_an_entity_that_was_never_alive_is_deleted_not_inserted(history: DataFrame) -> None:
    assert steps(with_operation(history.where("source_message = 'm3'"))) == [("m3", "delete")]


def test_operations_are_one_more_column(history: DataFrame) -> None:
    found = with_operation(history)
    assert found.columns == [*history.columns, "operation"]
    assert found.count() == history.count()


def test_the_versions_of_one_entity_are_in_their_order(history: DataFrame) -> None:
    assert steps(timeline(history, {"shop": "A", "number": 2})) == [
        ("m1", "insert"),
        ("m3", "delete"),
        ("m4", "delete"),
        ("m5", "recreate"),
        ("m6", "update"),
    ]


def test_a_part_of_the_key_is_several_entities_one_after_the_other(history: DataFrame) -> None:
    found = timeline(history, {"number": 1}).select("guid", "source_message").collect()
    assert [tuple(row) for row in found] == [("kettle", "m1"), ("kettle", "m2"), ("thing", "m7")]


def test_null_in_a_key_is_a_value(history: DataFrame) -> None:
    assert steps(timeline(history, {"shop": None, "number": 1})) == [("m7", "insert")]


def test_a_field_that_is_no_key_does_not_cut_the_timeline(history: DataFrame) -> None:
    """The mug is called a mug in its first and fourth version alone: the others are of the same entity."""
    assert [message for message, _ in steps(timeline(history, {"name": "Mug"}))] == [
        "m1",
        "m3",
        "m4",
        "m5",
        "m6",
    ]


def test_an_unknown_key_has_no_timeline(history: DataFrame) -> None:
    assert steps(timeline(history, {"shop": "A", "number": 99})) == []


def test_the_guid_is_a_key_too(history: DataFrame) -> None:
    asked = timeline(history, {"guid": "mug"})
    assert asked.count() == history.where("guid = 'mug'").count() > 0


@pytest.mark.parametrize("key", [{"nr": 1}, {}, {"number": "1"}, "mug", None])
def test_what_is_no_key_is_refused(history: DataFrame, key: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"timeline\(\) needs key"):
        timeline(history, key)


@pytest.mark.parametrize("name", ["operation", "Operation"])
def test_a_field_called_operation_is_not_overwritten(history: DataFrame, name: str) -> None:
    renamed = history.withColumnRenamed("name", name)
    with pytest.raises(InvalidArgument, match="free of a column operation: rename it first"):
        with_operation(renamed)
    with pytest.raises(InvalidArgument, match=r"timeline\(\) .* free of a column operation"):
        timeline(renamed, {"number": 1})


def test_after_a_gap_the_entity_is_inserted_anew(history: DataFrame) -> None:
    """As `changes_between` has it: of the time between nothing is known, whatever stood before it."""
    kept = history.where("source_message IN ('m1', 'm4', 'm6')")
    assert steps(timeline(kept, {"shop": "A", "number": 2})) == [
        ("m1", "insert"),
        ("m4", "delete"),
        ("m6", "insert"),
    ]
    changed = changes_between(kept.where("guid = 'mug'"), at(9), None)
    told = {(row["changed_at_timestamp"].hour, row["operation"]) for row in changed.collect()}
    assert told == {(9, "insert"), (12, "delete"), (14, "insert")}


def test_field_names_may_be_anything(history: DataFrame) -> None:
    odd = history.withColumnsRenamed({"shop": "a.b `c`", "number": "key"})
    found = timeline(odd, {"a.b `c`": "A", "key": 1})
    assert steps(found) == [("m1", "insert"), ("m2", "update")]
    assert found.columns == [*odd.columns, "operation"]


def test_an_empty_history_has_no_timelines(history: DataFrame) -> None:
    assert timeline(history.where(F.lit(False)), {"number": 1}).collect() == []
