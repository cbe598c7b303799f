"""
What every door promises, asked of all of them: a new door adds itself to `support.doors`.

Every record becomes a change, waits, is a reject, or is one that the door names otherwise; changes have the
shape that `merge` takes; rejects are records again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, merge
from cdckit.model.changes import require_changes
from cdckit.model.records import RECORD_COLUMNS, usable_changes
from support.doors import BY_HAND, FREE, SHELLS, settle


class Run(NamedTuple):
    """What a door made of its records."""

    count: int
    changes: DataFrame
    keys: list[str]
    outcomes: list[set[int]]
    """The records that are rejects, that wait, and that are named otherwise."""
    refused_again: Callable[[], tuple[DataFrame, DataFrame]]
    """The rejects, and those when they are fed again."""


def of_shell(spark: SparkSession, name: str, place: Path) -> Run:
    door = SHELLS[name]()
    shell, sent = door.open(spark, place), door.records(spark)
    shell.receive(sent)
    settle(shell)

    def refused_again() -> tuple[DataFrame, DataFrame]:
        before = shell.rejects()
        shell.receive(before.select(*RECORD_COLUMNS))
        settle(shell)
        return before, shell.rejects()

    came = headers(sent)
    kept = headers(shell.rejects()) | headers(shell.waiting())
    assert kept.items() <= came.items()
    assert any(kept.values()), "none of them came with headers"
    outcomes = [offsets(each) for each in (shell.rejects(), shell.waiting(), door.named(shell, sent))]
    assert outcomes[1] == door.waiting
    return Run(len(door.values), door.changes(shell), door.keys, outcomes, refused_again)


def of_free_door(spark: SparkSession, name: str) -> Run:
    door = FREE[name](spark)
    once = door.refused(door.sent)
    again = door.refused(once.select(*RECORD_COLUMNS))
    return Run(door.count, door.changes, door.keys, [offsets(once), door.named], lambda: (once, again))


def headers(rows: DataFrame) -> dict[int, Any]:
    return {row["offset"]: row["headers"] for row in rows.collect() if row["offset"] is not None}


def offsets(rows: DataFrame) -> set[int]:
    return {row[0] for row in rows.select("offset").collect()} - {None}


@pytest.fixture(scope="module", params=[*SHELLS, *FREE])
def run(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: Any) -> Run:
    name = request.param
    if name in FREE:
        return of_free_door(spark, name)
    return of_shell(spark, name, tmp_path_factory.mktemp(name))


def test_every_record_is_a_change_or_waits_or_is_a_reject_or_is_named(run: Run) -> None:
    require_changes(run.changes)
    assert merge(run.changes, entity="thing", keys=run.keys).count() > 0
    usable = usable_changes(run.changes)
    changed_by = {row[0] for row in usable.select("arrival.offset").collect()}
    assert sorted(offset for each in [changed_by, *run.outcomes] for offset in each) == list(range(run.count))
    assert changed_by
    assert run.outcomes[0]


def test_rejects_are_records_that_can_be_fed_again(run: Run) -> None:
    """As they are they are rejects again, and nothing else becomes of them."""
    once, again = run.refused_again()
    assert as_set(again) == as_set(once)


def as_set(refused: DataFrame) -> set[tuple[bytes, str]]:
    return {(bytes(row["value"]), row["error_code"]) for row in refused.collect()}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_cannot_be_used_is_counted_and_kept_by_a_ledger(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    door = BY_HAND[name](spark)
    ledger = Ledger(spark, tmp_path, entity="thing", keys=door.keys, buckets=1)
    assert ledger.apply(door.changes).rejects == len(door.refused)
    assert as_set(ledger.rejects()) == door.refused
    assert ledger.history().count() >= 1
