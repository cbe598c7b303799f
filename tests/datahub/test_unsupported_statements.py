"""What falls when what it stands on is missing: by hand, and against taking away one after the other."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit.datahub import waiting
from cdckit.datahub.waiting import find_unsupported, unsupported_places
from cdckit.parts.workers import compute_once

Statement = tuple[str | None, list[str]]


def fallen(*statements: Statement) -> list[tuple[int, str]]:
    """The places of those that fall, and what each misses first."""
    makes, needs = pa.array([one for one, _ in statements], pa.string()), [some for _, some in statements]
    places, missing = unsupported_places(makes, pa.array(needs, pa.list_(pa.string())))
    return list(zip(places.to_pylist(), missing.to_pylist(), strict=True))


def one_by_one(statements: list[Statement]) -> list[tuple[int, str]]:
    standing = set(range(len(statements)))
    while True:
        made = {statements[place][0] for place in standing}
        falls = [place for place in standing if not made.issuperset(statements[place][1])]
        if not falls:
            break
        standing.remove(falls[0])
    first = {at: [one for one in needs if one not in made] for at, (_, needs) in enumerate(statements)}
    return [(at, first[at][0]) for at in range(len(statements)) if at not in standing]


def drawn_programs() -> list[list[Statement]]:
    chance, found = random.Random(7), list[list[Statement]]()
    for _ in range(500):
        names = "abcdefghij"[: chance.randint(2, 10)]
        drawn = range(chance.randint(1, 15))
        needs = (0, 1, 1, 2)
        found.append(
            [(chance.choice([*names, None]), chance.sample(names, chance.choice(needs))) for _ in drawn]
        )
    return found


PROGRAMS = drawn_programs()


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([("a", [])], []),
        ([("a", ["nobody"])], [(0, "nobody")]),
        (
            [("a", ["b"]), ("b", ["c"]), ("c", ["nobody"]), (None, ["a"])],
            [(0, "b"), (1, "c"), (2, "nobody"), (3, "a")],
        ),
        ([("a", ["b"]), ("b", ["a"])], []),
        # What falls in the end is missing as well as what never was there.
        ([("a", ["b"]), ("b", ["a", "nobody"])], [(0, "b"), (1, "a")]),
        ([("a", ["nobody"]), ("a", []), ("b", ["a"])], [(0, "nobody")]),
        (
            [(None, ["a"]), ("a", ["nobody"]), ("a", ["nobody", "a"])],
            [(0, "a"), (1, "nobody"), (2, "nobody")],
        ),
        ([(None, ["nobody", "nobody"]), (None, [])], [(0, "nobody")]),
    ],
)
def test_what_stands_on_nothing_falls(statements: list[Statement], expected: list[tuple[int, str]]) -> None:
    assert fallen(*statements) == expected


def test_it_is_what_is_left_when_one_after_the_other_is_taken_away() -> None:
    expected = [one_by_one(each) for each in PROGRAMS]
    assert [fallen(*each) for each in PROGRAMS] == expected
    assert sum(0 < len(fell) < len(each) for fell, each in zip(expected, PROGRAMS, strict=True)) > 100


def test_of_many_statements_the_same_is_found_in_rounds(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All programs at once, the guids of each its own; after two rounds one task is left with long chains."""
    monkeypatch.setattr(waiting, "ROUNDS", 2)
    given = []

    def one_task(statements: DataFrame) -> DataFrame:
        given.append(statements.count())
        return find_unsupported(statements)

    monkeypatch.setattr(waiting, "find_unsupported", one_task)
    rows, expected = list[tuple[int, str | None, list[str]]](), set[tuple[int, str]]()
    for program, statements in enumerate(PROGRAMS):
        expected |= {(len(rows) + place, f"{program} {missing}") for place, missing in one_by_one(statements)}
        for makes, needs in statements:
            made = None if makes is None else f"{program} {makes}"
            rows.append((len(rows), made, [f"{program} {need}" for need in needs]))
    stated = spark.createDataFrame(rows, "fact_number long, makes string, needs array<string>")
    kept = waiting.find_waiting(stated, compute_once)
    assert kept is not None
    found = kept.collect()
    assert {(row["fact_number"], row["missing"]) for row in found} == expected
    assert len(found) == len(expected)
    assert 0 < given[0] < len(rows) / 3


def test_an_answer_takes_the_place_of_what_was_asked(spark: SparkSession) -> None:
    columns = "fact_number long, makes string, needs array<string>"
    stated = spark.createDataFrame([(1, "m", ["a", "t", "b", "u"]), (2, None, [])], columns)
    answers = spark.createDataFrame([("t", "g"), ("u", None), ("v", "h")], "text string, found string")
    found = {row["fact_number"]: row["needs"] for row in waiting.with_answers(stated, answers).collect()}
    assert found == {1: ["a", "g", "b", "u"], 2: []}
