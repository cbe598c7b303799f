"""What falls when what it stands on is missing: by hand, and against taking away one after the other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdckit.datahub import waiting
from cdckit.datahub.waiting import UNAPPLIED_COLUMNS, find_unsupported_rows, joined_messages
from cdckit.parts.workers import local_table
from support.unsupported_statements import PROGRAMS, Statement, one_by_one


def fallen(*statements: Statement) -> list[tuple[int, str]]:
    """The rows of those that fall, and what each misses first."""
    makes, needs = pa.array([one for one, _ in statements], pa.string()), [some for _, some in statements]
    rows, missing = find_unsupported_rows(makes, pa.array(needs, pa.list_(pa.string())))
    return list(zip(rows.to_pylist(), missing.to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([], []),
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


@pytest.mark.parametrize(
    ("waiting", "there", "joined"),
    [
        ([], [], []),
        # A circle of one that is tried and one that is not; or with a third between them.
        ([("x", ["u"], True), ("u", ["x"], False)], [], [1]),
        ([("x", ["u"], True), ("u", ["v"], False), ("v", ["x", "k"], False)], ["k"], [1, 2]),
        ([("x", ["u"], True), ("u", ["v"], False), ("v", ["x", "nobody"], False)], [], []),
        # What stands without the tried one, alone or with others that are not tried, waits for its time.
        ([("x", ["u"], True), ("u", ["k"], False)], ["k"], []),
        ([("x", ["u"], True), ("u", ["v"], False), ("v", ["u"], False)], [], []),
        # As does what needs such a one beside it.
        ([("x", ["u"], True), ("u", ["x", "v"], False), ("v", ["k"], False)], ["k"], []),
        # It is made twice: by one that could be applied, and by one in a circle.
        ([("x", ["u"], True), ("u", ["x"], False), ("u", ["k"], False)], ["k"], [1]),
    ],
)
def test_what_waits_for_what_is_tried_and_that_for_it_is_tried_too(
    waiting: list[tuple[str, list[str], bool]], there: list[str], joined: list[int]
) -> None:
    rows = [
        {"message_identifier": str(at), "makes": makes, "needs": needs, "is_tried": is_tried}
        for at, (makes, needs, is_tried) in enumerate(waiting)
    ]
    strings, columns = pa.string(), ["message_identifier", "makes", "needs", "is_tried"]
    schema = pa.schema(zip(columns, [strings, strings, pa.list_(strings), pa.bool_()], strict=True))
    found = joined_messages(pa.Table.from_pylist([*rows, *({"makes": guid} for guid in there)], schema))
    assert found.column(0).to_pylist() == [str(at) for at in joined]


def test_what_is_known_is_never_missing_whoever_holds_the_facts(spark: SparkSession) -> None:
    """All programs at once, the guids of each its own; of every other one two guids are known."""
    rows, expected, known = list[Any](), set[tuple[int, str]](), list[tuple[str]]()
    for program, statements in enumerate(PROGRAMS):
        makers: list[Statement] = [("a", []), ("b", [])] if program % 2 else []
        known += [(f"{program} {made}",) for made, _ in makers]
        expected |= {
            (len(rows) + at, f"{program} {missing}") for at, missing in one_by_one([*statements, *makers])
        }
        for makes, needs in statements:
            made = None if makes is None else f"{program} {makes}"
            names = [f"{program} {need}" for need in needs]
            statement = ("product", "m", len(rows), None, "upsert", 0, None)
            rows.append((statement, made, names, [(name, None) for name in names], len(rows)))
    columns = f"{UNAPPLIED_COLUMNS.split(', missing')[0]}, makes string, needs array<string>, "
    columns += "named array<struct<need: string, text: string>>, fact_number long"
    stated = spark.createDataFrame(rows, columns)
    there = spark.createDataFrame(known, "makes string")
    found = waiting.waiting_statements(stated.drop("fact_number"), None, there)
    held = waiting.waiting_statements(stated, None, there, local_table(stated))
    for kept in (found, held):
        assert kept is not None
        assert {(row["statement"]["number"], row["missing"]) for row in kept.collect()} == expected


def test_an_answer_takes_the_place_of_what_was_asked(spark: SparkSession) -> None:
    columns = "fact_number long, makes string, needs array<string>"
    stated = spark.createDataFrame([(1, "m", ["a", "t", "b", "u"]), (2, None, [])], columns)
    answers = spark.createDataFrame([("t", "g"), ("u", None), ("v", "h")], "text string, found string")
    rows = waiting.with_answers(stated, answers, by="fact_number").collect()
    found = {row["fact_number"]: row["needs"] for row in rows}
    assert found == {1: ["a", "g", "b", "u"], 2: []}
