"""What each message did to what stands at an instant, without Spark: against the fold, message by message."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from cdckit.merging.effects import Question, effects
from support.explaining import BEGAN, ENDED, TOLD, UNDONE, Report, Step, World
from support.histories import ARRIVAL, INSTANTS, KINDS, Row, random_changes, two_tables
from support.kernel_rows import INSTANT, kernel_rows, layout_of
from tools.tiers import seeds

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
KEYS = ["h", "k"]
WORLD = World("thing", KEYS, list(FIELDS))
ENDS = (False, False, True)
START = datetime(2024, 7, 1, tzinfo=UTC)
STEPS = (UNDONE, BEGAN, ENDED, TOLD)


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


def micros(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def schema() -> pa.Schema:
    stands = pa.struct(
        [("deleted_indicator", pa.bool_()), *((name, KINDS[kind].arrow) for name, kind in FIELDS.items())]
    )
    texts = [(name, pa.string()) for name in ("guid", "message_id", "source")]
    told = [("step", pa.int32()), ("restated", pa.bool_()), ("effective_timestamp", INSTANT)]
    return pa.schema([*texts, *told, ("was", stands), ("now", stands)])


def found_steps(
    rows: Sequence[Row], before: datetime, after: datetime, *, apart: bool
) -> list[tuple[Any, ...]]:
    """What the kernel tells, of rows that differ."""
    arrival = pa.struct([(each.name, KINDS[each.dataType.simpleString()].arrow) for each in ARRIVAL])
    batch = kernel_rows(
        rows, FIELDS, KEYS, {"sides": pa.int32(), "place": arrival, "own_sequence": pa.string()}
    )
    question = Question(micros(before), micros(after), apart)
    told = effects([batch], layout_of(FIELDS, KEYS), question, schema())
    return [
        step_of(row)
        for batch in told
        for row in batch.to_pylist()
        if repr(there(row["was"])) != repr(there(row["now"]))
    ]


def step_of(row: Row) -> tuple[Any, ...]:
    told = (row[name] for name in ("guid", "message_id", "source", "effective_timestamp", "restated"))
    return (STEPS[row["step"]], *told, repr(there(row["was"])), repr(there(row["now"])))


def there(version: Row | None) -> Row | None:
    return (
        None if version is None or version["deleted_indicator"] else {name: version[name] for name in FIELDS}
    )


def expected_steps(steps: Sequence[Step]) -> list[tuple[Any, ...]]:
    return [
        (
            each.step,
            each.guid,
            each.message,
            each.source,
            each.effective,
            each.restated,
            repr(each.was),
            repr(each.now),
        )
        for each in steps
    ]


def assert_steps(found: list[tuple[Any, ...]], steps: Sequence[Step], changes: Sequence[Row]) -> None:
    wanted = expected_steps(steps)
    for guid in sorted({each[1] for each in (*found, *wanted)}):
        mine, theirs = ([each for each in some if each[1] == guid] for some in (found, wanted))
        assert sorted(mine, key=repr) == sorted(theirs, key=repr), WORLD.by_guid(changes)[guid]


def with_arrivals(changes: Sequence[Row], seed: int) -> list[Row]:
    chance = random.Random(seed)
    return [
        {**change, "arrival": {**change["arrival"], "timestamp": at(chance.randrange(8))}}
        for change in changes
    ]


def two_instants(chance: random.Random) -> tuple[datetime, datetime]:
    first, second, _, third = INSTANTS
    before, after = sorted(chance.choice((first, second, third)) for _ in range(2))
    return before, after


@pytest.mark.parametrize("options", [{}, {"ends": ENDS}, {"priorities": (0,), "ends": (True,)}])
@seeds(1, 2, 3, soak=100)
def test_between_two_moments_of_knowledge_each_step_is_what_the_fold_says(
    options: dict[str, Any], seed: int
) -> None:
    chance = random.Random(seed)
    changes = with_arrivals(random_changes(seed, 100, FIELDS, **options), seed)
    before, after = two_instants(chance)
    early, late = at(chance.choice((1, 2))), at(chance.choice((5, 7)))
    known = [[each for each in changes if each["arrival"]["timestamp"] <= moment] for moment in (early, late)]
    rows = [
        {
            **each,
            "place": each["arrival"],
            "own_sequence": each["sequence"],
            "sides": 3 if each["arrival"]["timestamp"] <= early else 2,
        }
        for each in known[1]
    ]
    steps = WORLD.steps(Report(known[0], before), Report(known[1], after))
    assert len(steps) > 20
    assert_steps(found_steps(rows, before, after, apart=False), steps, changes)


@pytest.mark.parametrize("options", [{}, {"ends": ENDS}])
@seeds(1, 2, 3, soak=100)
def test_between_two_tables_each_step_is_what_the_fold_says(options: dict[str, Any], seed: int) -> None:
    chance = random.Random(seed)
    changes = with_arrivals(random_changes(seed, 100, FIELDS, **options), seed)
    before, after = two_instants(chance)
    mine, theirs = two_tables(chance, changes)
    rows = [
        {**each, "place": each["arrival"], "own_sequence": each["sequence"], "sides": side}
        for side, some in ((1, mine), (2, theirs))
        for each in some
    ]
    steps = WORLD.steps(Report(mine, before), Report(theirs, after))
    assert len(steps) > 20
    assert_steps(found_steps(rows, before, after, apart=True), steps, changes)


@pytest.mark.parametrize("apart", [True, False])
def test_where_both_know_the_same_nothing_happens(apart: bool) -> None:
    """Also where all that is there is true later only."""
    changes = random_changes(1, 10, FIELDS)
    told = {"place": changes[0]["arrival"], "own_sequence": ""}
    rows = [{**each, **told, "sides": side} for each in changes for side in ((1, 2) if apart else (3,))]
    assert found_steps(rows, INSTANTS[3], INSTANTS[3], apart=apart) == []
    earlier = datetime(1960, 1, 1, tzinfo=UTC)
    assert found_steps([{**each, "sides": 2} for each in rows], earlier, earlier, apart=apart) == []
