"""`find_uncovered`: the stretches of a version in which the row that it refers to was not there."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.quality import find_uncovered
from tools.tiers import seeds

Period = tuple[str, str | None, int, int | None, bool]
Stretch = tuple[str, int, int | None]


def at(hour: int | None) -> datetime | None:
    return None if hour is None else datetime(2024, 3, 10, hour, tzinfo=UTC)


def versions(spark: SparkSession, *periods: Period) -> DataFrame:
    """A name, what it refers to or is, from hour to hour, and whether it is deleted."""
    rows = [(name, plane, at(begin), at(end), gone) for name, plane, begin, end, gone in periods]
    columns = "name string, plane string, valid_from_timestamp timestamp, valid_to_timestamp timestamp"
    return spark.createDataFrame(rows, f"{columns}, deleted_indicator boolean")


def uncovered(flights: DataFrame, planes: DataFrame) -> list[Stretch]:
    """The flight, and from which hour to which it has no plane."""
    rows = find_uncovered(flights, planes, "plane").toArrow().to_pylist()
    ends = ((row["name"], row["uncovered_from_timestamp"], row["uncovered_to_timestamp"]) for row in rows)
    found = [(name, begin.hour, end and end.hour) for name, begin, end in ends]
    return sorted(found, key=lambda each: each[:2])


CASES: dict[str, tuple[list[Period], list[Period], list[Stretch]]] = {
    "each stretch of a version without its parent is found": (
        [("p", "N1", 4, 6, False), ("p", "N1", 8, 10, False)],
        [("AA", "N1", 3, 12, False)],
        [("AA", 3, 4), ("AA", 6, 8), ("AA", 10, 12)],
    ),
    "parents that touch or overlap cover together": (
        [
            *(("p", "N1", 1, 5, False), ("q", "N1", 5, 7, False)),
            *(("r", "N1", 2, 3, False), ("s", "N1", 6, None, False)),
        ],
        [("AA", "N1", 1, 9, False), ("BB", "N1", 4, None, False)],
        [],
    ),
    "a deleted parent covers nothing, and a deleted child needs nothing": (
        [("p", "N1", 1, 5, False), ("p", "N1", 5, None, True)],
        [("AA", "N1", 3, 8, False), ("AA", "N1", 8, None, True)],
        [("AA", 5, 8)],
    ),
    "a parent that never was leaves the whole version, and null refers to nothing": (
        [("p", "N1", 1, None, False)],
        [("AA", "N9", 3, None, False), ("BB", None, 3, 5, False)],
        [("AA", 3, None)],
    ),
    "versions of one entity are told apart": (
        [("p", "N1", 1, 4, False), ("p", "N2", 4, None, False)],
        [("AA", "N1", 2, 6, False), ("AA", "N2", 3, 5, False)],
        [("AA", 3, 4), ("AA", 4, 6)],
    ),
}


def test_the_stretches_of_each_case(spark: SparkSession) -> None:
    """All cases in one table: no plane of one is that of another."""

    def rows(of_case: int) -> list[Period]:
        return [
            (f"{case}: {name}", plane and f"{plane} of {case}", begin, end, gone)
            for case, tables in CASES.items()
            for name, plane, begin, end, gone in tables[of_case]
        ]

    found = uncovered(versions(spark, *rows(1)), versions(spark, *rows(0)))
    expected = [(f"{case}: {name}", *hours) for case, tables in CASES.items() for name, *hours in tables[2]]
    assert found == sorted(expected, key=lambda each: each[:2])


def test_the_columns_of_the_versions_stay(spark: SparkSession) -> None:
    planes, flights = (versions(spark, (name, "N1", 1, 4, False)) for name in ("p", "AA"))
    found = find_uncovered(flights, planes, {"plane": "plane"})
    assert found.columns == [*flights.columns, "uncovered_from_timestamp", "uncovered_to_timestamp"]


@seeds(1, soak=20)
def test_hour_by_hour_a_child_is_covered_or_found(spark: SparkSession, seed: int) -> None:
    """Many children and parents of few keys, so that both kinds of join are taken; hours are few."""
    chance = random.Random(seed)

    def drawn(name: str, keys: str, many: int) -> list[Period]:
        begins = [chance.randrange(20) for _ in range(many)]
        ends = [chance.choice((None, *range(begin + 1, 22))) for begin in begins]
        gone = (chance.random() < 0.1 for _ in range(many))
        return [
            (f"{name}{place}", chance.choice(keys), *each)
            for place, each in enumerate(zip(begins, ends, gone, strict=True))
        ]

    children, parents = drawn("c", "abcd", 150), drawn("p", "aabc", 12)
    there = {
        (plane, hour)
        for _, plane, begin, end, gone in parents
        for hour in range(begin, end or 24)
        if not gone
    }
    expected = {
        (name, hour)
        for name, plane, begin, end, gone in children
        for hour in range(begin, end or 24)
        if not gone and (plane, hour) not in there
    }
    stretches = uncovered(versions(spark, *children), versions(spark, *parents))
    assert {(name, hour) for name, begin, end in stretches for hour in range(begin, end or 24)} == expected
    assert sum((end or 24) - begin for _, begin, end in stretches) == len(expected)


def test_what_it_cannot_read_is_refused(spark: SparkSession) -> None:
    flights = versions(spark, ("AA", "N1", 3, 8, False))
    with pytest.raises(MissingColumns, match="deleted_indicator"):
        find_uncovered(flights, flights.drop("deleted_indicator"), "plane")
    with pytest.raises(InvalidArgument, match="on"):
        find_uncovered(flights, flights, "tail")
    with pytest.raises(InvalidArgument, match="on"):
        find_uncovered(flights, flights, [])
    with pytest.raises(WrongColumnType, match="plane"):
        find_uncovered(flights, flights.withColumn("plane", flights.deleted_indicator), "plane")
    with pytest.raises(InvalidArgument, match="uncovered_from_timestamp"):
        find_uncovered(find_uncovered(flights, flights, "plane"), flights, "plane")
