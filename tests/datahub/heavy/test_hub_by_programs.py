"""
Random programs through the hub, in one run and in several, compared with the interpreter.

In `make test`: tests/datahub/test_hub_cases.py::test_a_case_gives_its_tables,
tests/datahub/test_hub_story.py::test_a_rebuild_leaves_waiting_what_waits.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import cdckit.datahub.runs
import cdckit.datahub.state
from cdckit.datahub.backoff import Backoff
from cdckit.datahub.waiting import waiting_statements
from support.hub_comparison import DAY, interpreted
from support.hub_interpreter import InterpretedHub
from support.hub_programs import BEGIN, FILTERS, READERS, Program, SparkHub, draw_program, program_differences
from tools.tiers import seeds

OUTCOMES = {"upsert", "delete", "waiting", "error"}
LOOKUP_ERRORS = {"KEY_MISSING", "KEY_AMBIGUOUS", "LINK_AMBIGUOUS", "LINK_MISSING"}

GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5")


def receipt_counts(receipts: list[dict[str, object]]) -> Counter[object]:
    return Counter((row["message_identifier"], row["status"]) for row in receipts)


def assert_same(program: Program, expected: InterpretedHub, actual: SparkHub) -> None:
    found = program_differences(program, expected, actual)
    assert found == [], "\n".join(found)
    # Who is missing is named by what was sent.
    waits = [row for row in actual.log() if row["outcome"] == "waiting"]
    assert [row for row in waits if GUID.search(row["error_description"])] == []


@pytest.mark.soak
@seeds(100, soak=6)
def test_the_hub_is_the_interpreter_in_one_run_and_after_a_rebuild(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    program = draw_program(seed)
    expected = InterpretedHub(program.schema, readers=READERS, filters=FILTERS)
    actual = SparkHub(spark, program.schema, tmp_path)
    wanted, receipts = expected.receive(program.messages), actual.receive(program.messages)
    assert receipt_counts(receipts) == receipt_counts(wanted)
    expected.process(BEGIN + DAY)
    actual.process(BEGIN + DAY)
    assert_same(program, expected, actual)
    actual.rebuild(BEGIN + 2 * DAY)
    assert_same(program, expected, actual)


@seeds(5, soak=12)
def test_a_hub_that_looks_up_nothing_applies_what_is_new_and_what_is_due(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """
    Where all links lead to whole keys, a run of a large hub looks at its news alone.

    The pieces come as soon after each other as what waits is tried again, so that of what waited some is due
    and some is not; in the end all is.  With seed 5 a record needs what none but a record makes that is
    not due.
    """
    monkeypatch.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
    monkeypatch.setattr(cdckit.datahub.state, "_FILE_ROWS", 3)
    monkeypatch.setattr(cdckit.datahub.state, "MANY_ENTITIES", 5)
    asked = []

    def counted(stated: DataFrame, answers: None, known: DataFrame | None, table: Any) -> DataFrame | None:
        asked.append(0 if known is None else known.count())
        return waiting_statements(stated, answers, known, table)

    monkeypatch.setattr(cdckit.datahub.runs, "waiting_statements", counted)
    program = draw_program(seed, messages=150).without_repeats().without_lookups()
    first_delay = Backoff().first
    expected = InterpretedHub(program.schema, readers=READERS, filters=FILTERS, first_delay=first_delay)
    actual = SparkHub(spark, program.schema, tmp_path)
    held_back = 0
    for number, piece in enumerate(program.shuffled(random.Random(seed)).pieces(4), start=1):
        now = BEGIN + number * first_delay
        held_back += sum(due > now for due in expected.due.values())
        for hub in (expected, actual):
            hub.receive(piece)
            hub.process(now)
        assert actual.statuses == expected.statuses
    assert sum(asked) > 0
    assert held_back > 0
    for hub in (expected, actual):
        hub.process(BEGIN + DAY)
    assert {row["outcome"] for row in expected.log()} >= OUTCOMES
    assert program_differences(program, interpreted(program), expected) == []
    assert_same(program, expected, actual)


# Each run of so many targets takes half a minute: what is easier, or longer, is for the soak tier alone, and
# so are targets to which nothing leads, of which nothing else can happen than to those that are left.
SOAK = pytest.mark.soak
ALL: tuple[str, ...] = ()
LEAVES = ("visit", "fact", "report")


@pytest.mark.parametrize(
    ("pieces", "in_order", "left_out"),
    [
        (2, False, LEAVES),
        *(pytest.param(*each, ALL, marks=SOAK) for each in ((2, True), (2, False), (3, False))),
    ],
)
@seeds(99, soak=3)
def test_the_hub_is_the_interpreter_in_pieces_and_after_a_rebuild(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    pieces: int,
    in_order: bool,
    left_out: tuple[str, ...],
) -> None:
    """Each piece is received and processed alone, in order of arrival or in any other one."""
    if not in_order:
        # However small, it is kept up as a large hub is: what the run touches, and no more.
        monkeypatch.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
    program = draw_program(seed + pieces).without_repeats().without(*left_out)  # another one for each
    received = program if in_order else program.shuffled(random.Random(seed))
    expected = interpreted(program)
    assert {row["outcome"] for row in expected.log()} >= OUTCOMES
    assert {row["error_code"] for row in expected.log()} >= LOOKUP_ERRORS
    actual = SparkHub(spark, program.schema, tmp_path)
    receipts = []
    for number, piece in enumerate(received.pieces(pieces), start=1):
        receipts += actual.receive(piece)
        actual.process(BEGIN + number * DAY)
    wanted = InterpretedHub(program.schema, readers=READERS, filters=FILTERS).receive(program.messages)
    assert receipt_counts(receipts) == receipt_counts(wanted)
    assert_same(program, expected, actual)
    actual.rebuild(BEGIN + (pieces + 1) * DAY)
    assert_same(program, expected, actual)
