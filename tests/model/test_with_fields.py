"""`with_fields`: the words of one source in those of another."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import with_fields
from cdckit.errors import InvalidArgument
from cdckit.model.changes import ARRIVAL_TYPE


@pytest.fixture
def told(spark: SparkSession) -> DataFrame:
    """Two changes of one flight: the whole row, with a priority of its gate; and its state alone."""
    whole = "struct('WN' as al, 161 as no, 'C25' as gate, 'boarding' as state)"
    state = "struct('WN' as al, 161 as no, cast(null as string) as gate, 'closed' as state)"
    second = F.col("id") == 1
    flags = F.struct(
        F.lit(True).alias("al"), F.lit(True).alias("no"), (~second).alias("gate"), F.lit(True).alias("state")
    )
    return spark.range(2).select(
        F.lit("upsert").alias("operation"),
        F.timestamp_seconds("id").alias("effective_timestamp"),
        F.lit("").alias("sequence"),
        F.lit(None).cast(ARRIVAL_TYPE).alias("arrival"),
        F.col("id").cast("string").alias("message_id"),
        F.lit("airport").alias("source"),
        F.lit(3).alias("priority"),
        F.when(second, F.expr(state)).otherwise(F.expr(whole)).alias("data"),
        flags.alias("carried"),
        F.expr(
            "struct(cast(null as int) as al, cast(null as int) as no, 9 as gate, cast(null as int) as state)"
        ).alias("field_priorities"),
        F.lit("g1").alias("guid"),
    )


def rows(frame: DataFrame, column: str) -> list[dict[str, Any]]:
    return [row[column].asDict() for row in frame.orderBy("message_id").collect()]


def flight(al: Any, no: Any) -> Any:
    return F.concat(al, F.lit(" "), no)


def both(gate: Any, state: Any) -> Any:
    return F.concat(gate, state)


def test_fields_get_other_names_and_forms_and_no_others_are_left(told: DataFrame) -> None:
    said = with_fields(told, {"flight": flight, "status": "state"})
    assert rows(said, "data") == [
        {"flight": "WN 161", "status": "boarding"},
        {"flight": "WN 161", "status": "closed"},
    ]
    assert set(told.columns) - set(said.columns) == {"guid"}


def test_what_is_made_of_several_is_carried_where_all_are(told: DataFrame) -> None:
    """A field of which a part was not sent was not sent, and one made of none always is."""
    at_gate: dict[str, Any] = {
        "both": both,
        "gate": "gate",
        "door": lambda: F.lit("hub"),
    }
    assert rows(with_fields(told, at_gate), "carried") == [
        {"both": True, "gate": True, "door": True},
        {"both": False, "gate": False, "door": True},
    ]


def test_the_lowest_priority_of_its_parts_counts(told: DataFrame) -> None:
    """A part without one of its own has that of the entity, here 3; where no part has one, none has."""
    at_gate: dict[str, Any] = {
        "both": both,
        "gate": "gate",
        "status": "state",
        "flight": flight,
        "door": lambda: F.lit("hub"),
    }
    [first, _] = rows(with_fields(told, at_gate), "field_priorities")
    assert first == {"both": 3, "gate": 9, "status": None, "flight": None, "door": None}


def test_priorities_may_name_only_some_of_the_fields(told: DataFrame) -> None:
    """Those that they do not name have none of their own, as in `merge`."""
    some = told.withColumn("field_priorities", F.struct("field_priorities.gate"))
    [first, _] = rows(with_fields(some, {"both": both, "status": "state"}), "field_priorities")
    assert first == {"both": 3, "status": None}


def test_a_function_that_cannot_be_called_or_makes_no_column_is_refused(told: DataFrame) -> None:
    def by_name(*, al: Any) -> Any:
        return al

    with pytest.raises(InvalidArgument, match=r"fields\['al'\].*by keyword only"):
        with_fields(told, {"al": by_name})
    with pytest.raises(InvalidArgument, match=r"fields\['al'\].*returns a column; it is 'al'"):
        with_fields(told, {"al": lambda: "al"})  # type: ignore[dict-item, return-value]


@pytest.mark.parametrize("wrong", [{"flight": "number"}, {"flight": lambda al, number: al}])
def test_a_field_that_is_not_there_is_named(told: DataFrame, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"fields\['flight'\].*al, no, gate, state.*number"):
        with_fields(told, wrong)


def test_fields_that_are_no_mapping_are_refused(told: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="a mapping of names to fields"):
        with_fields(told, ["gate"])  # type: ignore[arg-type]
