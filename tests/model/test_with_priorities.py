"""`with_priorities`: what the word of each source counts."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Priority, merge, with_priorities
from cdckit.errors import InvalidArgument, MissingColumns
from support.flight_changes import change, frame
from support.histories import to_rows

RANKS = {"operations": Priority(entity=10, fields={"tailnum": 30}), "schedule": Priority(fields={"gate": -5})}


def priorities(changes: DataFrame) -> dict[str, tuple[int, Any]]:
    """By message: the priority of the entity, and those of the fields that have one of their own."""
    return {
        row["message_id"]: (
            row["priority"],
            {name: p for name, p in row["field_priorities"].asDict().items() if p is not None},
        )
        for row in changes.collect()
    }


def test_each_source_has_the_priorities_it_was_given(spark: SparkSession) -> None:
    changes = frame(spark, change(1, "schedule"), change(2, "operations"), field_priorities=False)
    assert priorities(with_priorities(changes, RANKS)) == {
        "m1": (0, {"gate": -5}),
        "m2": (10, {"tailnum": 30}),
    }


def test_a_source_that_is_not_named_keeps_what_its_changes_say(spark: SparkSession) -> None:
    changes = frame(
        spark,
        change(1, "weather", stated={"gate": 3}),
        change(2, "weather"),
        change(3, None, stated={"gate": 4}),
    )
    assert priorities(with_priorities(changes, RANKS)) == {
        "m1": (7, {"gate": 3}),
        "m2": (7, {}),
        "m3": (7, {"gate": 4}),
    }


def test_what_a_named_source_said_before_is_replaced(spark: SparkSession) -> None:
    changes = frame(spark, change(1, "operations", stated={"gate": 3, "tailnum": 4}))
    assert priorities(with_priorities(changes, RANKS)) == {"m1": (10, {"tailnum": 30})}


def test_only_the_two_columns_change(spark: SparkSession) -> None:
    changes = frame(spark, change(1, "schedule"), change(2, "operations"))
    ranked = with_priorities(changes, RANKS)
    assert ranked.schema.simpleString() == changes.schema.simpleString()
    others = [name for name in changes.columns if name not in ("priority", "field_priorities")]
    assert sorted(ranked.select(others).collect()) == sorted(changes.select(others).collect())


def test_no_priorities_change_nothing(spark: SparkSession) -> None:
    changes = frame(spark, change(1, "schedule", stated={"gate": 3}))
    assert priorities(with_priorities(changes, {})) == {"m1": (7, {"gate": 3})}


def test_the_merge_obeys_them(spark: SparkSession) -> None:
    """The schedule's later word changes the gate of which operations said nothing, and not the aircraft."""
    changes = frame(
        spark,
        change(1, "operations", tailnum="N1"),
        change(2, "schedule", tailnum="N2", gate="A1"),
        change(3, "operations", gate="B2"),
        change(4, "schedule", gate="A4"),
    )
    history = to_rows(merge(with_priorities(changes, RANKS), entity="flight", keys=["flight"]))
    assert [(row["source_message"], row["tailnum"], row["gate"]) for row in history] == [
        ("m1", "N1", None),
        ("m2", "N1", "A1"),
        ("m3", "N1", "B2"),
    ]
    assert history[-1]["field_provenance"] == {
        "guid": {"m": "m1", "p": 10},
        "flight": {"m": "m1", "p": 10},
        "tailnum": {"m": "m1", "p": 30},
        "gate": {"m": "m3", "p": 10},
    }


def test_a_field_that_is_not_there_is_refused(spark: SparkSession) -> None:
    wrong = {"operations": Priority(fields={"tail": 30})}
    with pytest.raises(
        InvalidArgument, match=r"with_priorities\(\) needs .*operations.*flight, tailnum, gate.*'tail'"
    ):
        with_priorities(frame(spark, change(1, "operations")), wrong)


def test_a_missing_column_is_named(spark: SparkSession) -> None:
    with pytest.raises(MissingColumns, match=r"with_priorities\(\) needs the columns source"):
        with_priorities(frame(spark, change(1, "operations")).drop("source"), RANKS)
