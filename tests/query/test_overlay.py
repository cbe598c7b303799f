"""`overlay`: histories laid on each other, a row for each period in which none of them moves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.query import Layer, overlay
from support.random_versions import (
    SCHEMA,
    Row,
    history_of,
    hour,
    in_force,
    random_versions,
    streamed,
    version,
)
from tools.tiers import seeds

HOURS = range(-8, 90)
"""All that random versions speak of; in the last of them only what is open is in force."""
State = tuple[Row | None, ...]


def told(found: DataFrame, key: str, *sides: str) -> set[tuple[Any, ...]]:
    """(key, from, to, message of each side), instants in hours; no row may come twice."""
    ends = "valid_from_timestamp", "valid_to_timestamp"
    rows = [
        (row[key], *(_hours(row[end]) for end in ends), *messages(tuple(row[side] for side in sides)))
        for row in found.toArrow().to_pylist()
    ]
    assert len(set(rows)) == len(rows)
    return set(rows)


def _hours(instant: Any) -> float | None:
    return None if instant is None else (instant - hour(0)).total_seconds() / 3600


def runs(
    states: Iterable[tuple[int, State]], same: Callable[[State], Any]
) -> list[tuple[int, int | None, State]]:
    """From an hour up to another, what did not change; the last hour goes on for ever."""
    found: list[tuple[int, int | None, State]] = []
    for number, state in states:
        if found and found[-1][1] == number and same(found[-1][2]) == same(state):
            found[-1] = (found[-1][0], number + 1, found[-1][2])
        else:
            found.append((number, number + 1, state))
    return [(begins, None if ends == HOURS[-1] + 1 else ends, state) for begins, ends, state in found]


def expected(
    joined: Callable[[int], Iterable[tuple[Any, State]]], same: Callable[[State], Any]
) -> set[tuple[Any, ...]]:
    """By asking at every hour what was in force, and joining that."""
    by_key: dict[Any, list[tuple[int, State]]] = {}
    for number in HOURS:
        for key, state in joined(number):
            by_key.setdefault(key, []).append((number, state))
    return {
        (key, begins, ends, *messages(state))
        for key, states in by_key.items()
        for begins, ends, state in runs(states, same)
    }


def messages(state: State) -> Any:
    return [row and row["source_message"] for row in state]


def values(state: State) -> Any:
    return [row and (row["guid"], row["gate"], row["seats"]) for row in state]


def wanted(how: str, state: State) -> bool:
    there = [row is not None for row in state]
    return {"inner": all(there), "left": there[0], "full": any(there)}[how]


def test_a_row_for_each_period_in_which_both_stand_still(spark: SparkSession) -> None:
    a = history_of(spark, [version("x", 0, 4, "A"), version("x", 4, 9, "B"), version("y", 0, None, "A")])
    b = history_of(spark, [version("x", 1, 6, "C"), version("x", 7, None, "D")])
    sides = Layer(a, into="a"), Layer(b, into="b", fields=["gate"])
    found = overlay(*sides)
    assert found.columns == ["guid", "valid_from_timestamp", "valid_to_timestamp", "a", "b"]
    assert found.select("b.*").columns == [
        "guid",
        "valid_from_timestamp",
        "valid_to_timestamp",
        "gate",
        "source_message",
    ]
    inner = {("x", 1, 4, "x 0", "x 1"), ("x", 4, 6, "x 4", "x 1"), ("x", 7, 9, "x 4", "x 7")}
    assert told(found, "guid", "a", "b") == inner
    left = inner | {("x", 0, 1, "x 0", None), ("x", 6, 7, "x 4", None), ("y", 0, None, "y 0", None)}
    assert told(overlay(*sides, how="left"), "guid", "a", "b") == left
    full = left | {("x", 9, None, None, "x 7")}
    assert told(overlay(*sides, how="full"), "guid", "a", "b") == full


def test_a_deleted_side_is_not_there(spark: SparkSession) -> None:
    a = history_of(spark, [version("x", 0, None, "A")])
    b = history_of(
        spark,
        [
            version("x", 1, 2, "C"),
            version("x", 2, 3, None, deleted_indicator=True),
            version("x", 3, None, "C"),
        ],
    )
    assert told(overlay(Layer(a, into="a"), Layer(b, into="b"), how="left"), "guid", "a", "b") == {
        ("x", 0, 1, "x 0", None),
        ("x", 1, 2, "x 0", "x 1"),
        ("x", 2, 3, "x 0", None),
        ("x", 3, None, "x 0", "x 3"),
    }


@seeds(11, soak=20)
def test_random_histories_with_one_key(spark: SparkSession, seed: int) -> None:
    """Three sides; at every hour the overlay is the join of what was in force."""
    sides = [random_versions(seed + place, 60) for place in range(3)]
    frames = [Layer(history_of(spark, rows), into=f"s{place}") for place, rows in enumerate(sides)]

    def joined(how: str, number: int) -> Iterable[tuple[Any, State]]:
        now = [{row["guid"]: row for row in in_force(rows, hour(number))} for rows in sides]
        for guid in set().union(*now):
            state = tuple(each.get(guid) for each in now)
            if wanted(how, state):
                yield guid, state

    for how, fold in (("inner", False), ("left", False), ("full", False), ("full", True)):
        found = told(overlay(*frames, how=how, fold=fold), "guid", "s0", "s1", "s2")
        assert found == expected(lambda number, how=how: joined(how, number), values if fold else messages)


@seeds(12, soak=20)
def test_random_histories_by_a_link(spark: SparkSession, seed: int) -> None:
    """Several flights of a case lead to one gate, which a flight may change; null leads to null."""
    flights = random_versions(seed, 120)
    chance = random.Random(seed)
    gates = [
        row | {"guid": f"{case} {name}", "gate": name, "case": case}
        for case in range(40)
        for name in ("A", "B", None)
        for row in random_versions(chance.randrange(2**31), 1)
    ]
    flights = [row | {"case": int(row["guid"][1:]) // 3} for row in flights]
    schema = SCHEMA + ", case int"
    ours = [
        Layer(spark.createDataFrame(flights, schema), into="flight"),
        Layer(spark.createDataFrame(gates, schema), on=["case", "gate"], into="gate"),
    ]

    def joined(how: str, number: int) -> Iterable[tuple[Any, State]]:
        now = {(row["case"], row["gate"]): row for row in in_force(gates, hour(number))}
        for row in in_force(flights, hour(number)):
            state = (row, now.get((row["case"], row["gate"])))
            if wanted(how, state):
                yield row["guid"], state

    for how in ("inner", "left"):
        found = told(overlay(*ours, how=how), "guid", "flight", "gate")
        assert found == expected(lambda number, how=how: joined(how, number), messages)


def test_versions_of_one_key_that_overlap_are_an_error(spark: SparkSession) -> None:
    a = history_of(spark, [version("x", 0, 4, "A"), version("y", 3, None, "A")])
    other = Layer(a.where("guid = 'x'"), on="gate", into="b")
    overlay(Layer(a, into="a"), other, how="left").collect()
    with pytest.raises(PySparkException, match=r'side a; of the key \["A"\] two overlap at 2024-03-10 03:00'):
        overlay(Layer(a, on="gate", into="a"), other).where("gate = 'Z'").collect()
    with pytest.raises(PySparkException, match=r'side b; of the key \["x"\] two overlap'):
        overlay(Layer(a, into="a"), Layer(a, on="gate", into="b")).collect()


def test_what_is_in_force_at_no_time_moves_nothing(spark: SparkSession) -> None:
    empty = [
        version("x", 2, 2, "B"),
        version("x", 3, 1, "B"),
        version("x", 1, 9, "B", valid_from_timestamp=None),
    ]
    a = history_of(spark, [version("x", 0, 4, "A"), *empty])
    b = history_of(spark, [version("x", 0, None, "C")])
    found = overlay(Layer(a, into="a"), Layer(b, into="b"))
    assert told(found, "guid", "a", "b") == {("x", 0, 4, "x 0", "x 0")}


def test_what_cannot_be_asked(spark: SparkSession) -> None:
    a = history_of(spark, [version("x", 0, 4, "A")])
    one = Layer(a, into="a")
    twice = a.withColumn("kind", F.lit(1)).select("*", F.lit(2).alias("KIND"))
    stream = streamed(a)
    for sides, options, said in (
        ([one], {}, "two or more Layers"),
        ([one, Layer(a, into="A")], {}, "into to be a name other than"),
        ([one, Layer(a, into="guid")], {}, "into to be a name other than"),
        ([one, Layer(a, into="b", on="gat")], {}, "on to be one or more fields among guid, gate"),
        ([one, Layer(a, into="b", fields=["gat"])], {}, "fields to be one or more"),
        ([one, Layer(a, into="b", fields="")], {}, "fields to be one or more"),
        ([one, Layer(twice, into="b")], {}, "history of 'b' to be of columns that differ in more than case"),
        ([one, Layer(stream, into="b")], {}, "history of 'b' to be a batch of rows"),
        ([one, Layer(a, into="b")], {"how": "outer"}, "'inner', 'left' or 'full'"),
        (
            [one, Layer(a, into="b", on="gate")],
            {"how": "full"},
            "inner or left, where b is found by the link",
        ),
        ([one, Layer(a, into="b")], {"fold": "yes"}, "fold to be True or False"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            overlay(*sides, **options)
    with pytest.raises(WrongColumnType, match="int, like seats in a"):
        overlay(one, Layer(a, into="b", on={"seats": "gate"}))
