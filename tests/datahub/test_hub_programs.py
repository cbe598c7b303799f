"""Random programs: the hub and the interpreter hold the same tables, in one run and in several."""

from __future__ import annotations

import random

from support.hub_comparison import DAY, interpreted
from support.hub_interpreter import InterpretedHub
from support.hub_programs import BEGIN, FILTERS, READERS, draw_program, program_differences
from tools.tiers import seeds


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


@seeds(*range(6), soak=100)
def test_the_order_of_arrival_does_not_matter_where_effective_times_differ(seed: int) -> None:
    """By the interpreter: histories, statuses and log are those of the same messages that came otherwise."""
    program = draw_program(seed).without_repeats().at_times_of_their_own()
    other = program.arriving_otherwise(random.Random(seed))
    assert program_differences(program, interpreted(program), interpreted(other)) == []
