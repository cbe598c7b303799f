"""`counts_over_time`: how many there were at every instant of a period."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.query import counts_over_time
from support.random_versions import HOURS, MIDNIGHT, history_of, hour, in_force, random_versions


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.fixture(scope="module")
def versions() -> list[dict[str, Any]]:
    return random_versions(11, 120)


@pytest.fixture(scope="module")
def history(spark: SparkSession, versions: list[dict[str, Any]]) -> DataFrame:
    return history_of(spark, versions)


def counted(versions: list[dict[str, Any]], number: int) -> dict[str | None, tuple[int, int]]:
    """By gate, how many entities there are at an hour, and how many seats."""
    found: dict[str | None, list[int]] = defaultdict(list)
    for row in in_force(versions, hour(number)):
        found[row["gate"]].append(row["seats"] or 0)
    return {gate: (len(seats), sum(seats)) for gate, seats in found.items()}


def test_every_interval_says_what_each_of_its_hours_says_and_none_could_be_longer(
    history: DataFrame, versions: list[dict[str, Any]]
) -> None:
    found = counts_over_time(history, hour(0), hour(HOURS), sums="seats", by="gate")
    assert found.columns == ["gate", "valid_from_timestamp", "valid_to_timestamp", "entities", "seats"]
    expected = []
    for gate in {gate for number in range(HOURS) for gate in counted(versions, number)}:
        said = [counted(versions, number).get(gate, (0, 0)) for number in range(HOURS)]
        begins = [number for number in range(HOURS) if number == 0 or said[number] != said[number - 1]]
        for begin, end in zip(begins, [*begins[1:], HOURS], strict=True):
            expected.append((gate, hour(begin), hour(end), *said[begin]))
    assert len(expected) > 60
    assert [_aware(row) for row in rows_of(found)] == sorted(expected, key=repr)


def test_a_grid_says_what_each_of_its_hours_says(history: DataFrame, versions: list[dict[str, Any]]) -> None:
    found = counts_over_time(history, hour(0), hour(HOURS), sums="seats", by="gate", every=timedelta(hours=7))
    assert found.columns == ["gate", "at_timestamp", "entities", "seats"]
    gates = {gate for number in range(HOURS) for gate in counted(versions, number)}
    assert [_aware(row) for row in rows_of(found)] == sorted(
        (
            (gate, hour(number), *counted(versions, number).get(gate, (0, 0)))
            for gate in gates
            for number in range(0, HOURS, 7)
        ),
        key=repr,
    )


def _aware(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in row)


def test_nothing_at_all_is_counted_too(history: DataFrame) -> None:
    assert [tuple(row)[2:] for row in counts_over_time(history, hour(-99), hour(-98)).collect()] == [(0,)]
    grid = counts_over_time(history, hour(-99), hour(-97), sums="seats", every=timedelta(hours=1))
    assert [tuple(row)[1:] for row in grid.collect()] == [(0, 0), (0, 0)]
    assert counts_over_time(history, hour(-99), hour(-98), by="gate").collect() == []


def test_decimals_add_up_exactly_and_doubles_are_refused(history: DataFrame) -> None:
    priced = history.withColumn("price", F.lit(Decimal("0.10")).cast("decimal(38,2)"))
    last = counts_over_time(priced, hour(-8), hour(60), sums="price").orderBy(F.desc("valid_from_timestamp"))
    row = last.first()
    assert row is not None
    assert row["entities"] > 0
    assert row["price"] == row["entities"] * Decimal("0.10")
    with pytest.raises(WrongColumnType, match="price as a whole number or a decimal"):
        counts_over_time(history.withColumn("price", F.lit(0.1)), hour(0), hour(1), sums="price")


def test_a_group_may_be_of_maps_within_arrays(history: DataFrame, versions: list[dict[str, Any]]) -> None:
    """In whatever order their entries are written: they come as these, sorted."""
    one, other = (F.create_map(*map(F.lit, entries)) for entries in (("a", 1, "b", 2), ("b", 2, "a", 1)))
    nested = history.withColumn("tags", F.array(F.when(F.col("seats") == 1, one).otherwise(other)))
    found = counts_over_time(nested, hour(0), hour(1), by="tags", every=timedelta(hours=1)).collect()
    assert [(row["tags"], row["entities"]) for row in found] == [
        ([[("a", 1), ("b", 2)]], len(in_force(versions, hour(0))))
    ]


def test_a_microsecond_after_an_instant_of_the_grid_is_after_it_in_a_thousand_years_too(
    spark: SparkSession,
) -> None:
    century = timedelta(days=36_500)
    begins = MIDNIGHT + 9 * century + timedelta(microseconds=1)
    row = {**random_versions(1, 1)[0], "valid_from_timestamp": begins, "valid_to_timestamp": None}
    history = history_of(spark, [{**row, "deleted_indicator": False}])
    found = counts_over_time(history, MIDNIGHT, MIDNIGHT + 11 * century, every=century)
    counts = [row["entities"] for row in found.orderBy("at_timestamp").collect()]
    assert counts == [0] * 10 + [1]


def test_what_cannot_be_meant(history: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="end to be an aware datetime"):
        counts_over_time(history, hour(0), None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="1,000,000"):
        counts_over_time(history, hour(0), hour(30), every=timedelta(microseconds=1))
    with pytest.raises(InvalidArgument, match="every"):
        counts_over_time(history, hour(0), hour(30), every=timedelta(0))
    with pytest.raises(InvalidArgument, match=r"seets.*seats"):
        counts_over_time(history, hour(0), hour(30), sums="seets")
    with pytest.raises(InvalidArgument, match="other names"):
        counts_over_time(history.withColumnRenamed("gate", "entities"), hour(0), hour(30), by="entities")
