"""Random programs: the hub and the interpreter hold the same tables, in one run and in several."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import cdckit.datahub.runs
import cdckit.datahub.state
from cdckit.datahub.messages import Backoff
from cdckit.datahub.waiting import known_makers
from support.hub_interpreter import InterpretedHub
from support.hub_programs import BEGIN, FILTERS, READERS, Program, SparkHub, draw_program, program_differences
from tools.tiers import seeds

OUTCOMES = {"upsert", "delete", "waiting", "error"}
LOOKUP_ERRORS = {"KEY_MISSING", "KEY_AMBIGUOUS", "LINK_AMBIGUOUS", "LINK_MISSING"}

GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5")

# A day between runs: whoever waits is due by then, and nobody has waited too long in the end.
DAY = timedelta(days=1)


def interpreted(program: Program) -> InterpretedHub:
    world = InterpretedHub(program.schema, readers=READERS, filters=FILTERS)
    world.receive(program.messages)
    world.process(BEGIN + DAY)
    return world


def receipt_counts(receipts: list[dict[str, object]]) -> Counter[object]:
    return Counter((row["message_identifier"], row["status"]) for row in receipts)


def assert_same(program: Program, expected: InterpretedHub, actual: SparkHub) -> None:
    found = program_differences(program, expected, actual)
    assert found == [], "\n".join(found)
    # Who is missing is named by what was sent.
    waits = [row for row in actual.log() if row["outcome"] == "waiting"]
    assert [row for row in waits if GUID.search(row["error_description"])] == []


@seeds(*range(8), soak=8)
def test_the_programs_are_the_same_for_the_same_seed(seed: int) -> None:
    one, other = draw_program(seed), draw_program(seed)
    assert (one.schema, one.messages) == (other.schema, other.messages)


def test_the_programs_meet_everything_that_can_happen() -> None:
    """All statuses, outcomes and errors, deleted versions, links, priorities; else they prove little."""
    statuses, outcomes, errors, deleted, targets = set(), set(), set(), set(), set()
    late = set()
    for seed in range(8):
        program = draw_program(seed)
        world = interpreted(program)
        statuses |= set(world.statuses.values())
        outcomes |= {row["outcome"] for row in world.log()}
        errors |= {row["error_code"] for row in world.log()}
        late |= {(row["target"], row["error_code"]) for row in world.log()}
        for target in program.targets:
            targets |= {target for _ in world.history(target)}
            deleted |= {target for row in world.history(target) if row["deleted_indicator"]}
    assert statuses == {1, 10, 23, 24, 25}
    assert outcomes == {"upsert", "delete", "dropped", "waiting", "error"}
    assert errors >= {
        "RECORD_INVALID", "VALUE_INVALID", "CHILDREN_INVALID", "KEY_MISSING", "KEY_AMBIGUOUS",
        "LINK_AMBIGUOUS", "LINK_MISSING",
    }  # fmt: skip
    # Those that hold children, or make what they link to.
    assert late >= {
        ("order", "LINK_AMBIGUOUS"),
        ("order_line", "LINK_AMBIGUOUS"),
        ("person", "KEY_AMBIGUOUS"),
    }
    assert targets == set(program.targets)
    assert deleted >= {"customer", "order", "order_line", "serial", "person", "desk", "site"}


@seeds(*range(8), soak=100)
def test_the_interpreter_gives_the_same_in_pieces(seed: int) -> None:
    """What it remembers between runs (only who was given up) changes nothing here."""
    program = draw_program(seed)
    world = InterpretedHub(program.schema, readers=READERS, filters=FILTERS)
    for number, piece in enumerate(program.pieces(3), start=1):
        world.receive(piece)
        world.process(BEGIN + number * DAY)
    assert program_differences(program, interpreted(program), world) == []


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


@seeds(*range(6), soak=100)
def test_the_order_of_arrival_does_not_matter_where_effective_times_differ(seed: int) -> None:
    """By the interpreter: histories, statuses and log are those of the same messages that came otherwise."""
    program = draw_program(seed).without_repeats().at_times_of_their_own()
    other = program.arriving_otherwise(random.Random(seed))
    assert program_differences(program, interpreted(program), interpreted(other)) == []


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
    asked = []

    def counted(statements: dict[str, DataFrame], needs: DataFrame, waiting: DataFrame | None) -> DataFrame:
        asked.append(needs.count())
        return known_makers(statements, needs, waiting)

    monkeypatch.setattr(cdckit.datahub.runs, "known_makers", counted)
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
