"""
A ledger and its gate, and a store that names the suites of its tables.

In `make test`:
tests/quality/test_check.py::test_a_gate_lets_pass_what_is_sound_and_commits_nothing_else,
tests/quality/test_check.py::test_whatever_is_merged_keeps_the_suites.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, check
from cdckit.errors import InvalidArgument
from cdckit.ledger import Pending
from cdckit.quality import BrokenPromises, check_all
from support.sound_flights import sound_changes


@pytest.fixture(scope="module")
def sound(spark: SparkSession) -> DataFrame:
    return sound_changes(spark)


def test_a_ledger_refuses_what_its_gate_does_not_let_pass(
    spark: SparkSession, sound: DataFrame, tmp_path: Path
) -> None:
    """The gate sees the history as it would be: what a batch does to it, no look at the batch can tell."""
    ledger = Ledger(spark, tmp_path, entity="flight", keys=["number"], buckets=2)
    ledger.apply(sound.where("data.number < 5"), "first")
    version, before = ledger.at_commit().version, ledger.history().collect()
    seen: list[int] = []

    def guard(after: Pending) -> None:
        touched = after.touched_history()
        seen.append(touched.select("number").distinct().count())
        assert check(touched, "history").ok
        few = {"type": "unexpected_rows_expectation", "notes": "No flight is on time in row 7.", "kwargs": {}}
        few["kwargs"] = {"unexpected_rows_query": "SELECT * FROM {batch} WHERE number = 7"}
        check(touched, {"name": "mine", "expectations": [few]}).require()

    more = sound.where("data.number BETWEEN 4 AND 7")
    with pytest.raises(BrokenPromises, match=r"No flight is on time in row 7.\n(?:.|\n)*number"):
        ledger.apply(more, "second", gate=guard)
    assert seen == [3]  # of number 4 nothing was news
    assert (ledger.at_commit().version, ledger.history().collect()) == (version, before)
    assert ledger.apply(more.where("data.number < 7"), "second", gate=guard).news
    stream = ledger.sink("airport", gate=guard)
    with pytest.raises(BrokenPromises):
        stream(more, 0)
    assert check_all(ledger)["ledger"].ok


def test_a_store_says_itself_which_suite_each_of_its_tables_keeps(
    spark: SparkSession, sound: DataFrame, tmp_path: Path
) -> None:
    ledger = Ledger(spark, tmp_path, entity="flight", keys=["number"], buckets=1)
    assert check_all(ledger) == {}
    ledger.apply(sound.where("data.number < 5"))
    other = ledger.changes().where("message_id < 'operations:000001'")
    damaged = {"changes": (other, "changes"), "ledger": (ledger.history(), "ledger")}
    found = check_all({"flights": ledger, "damaged": damaged})
    names = ["flights.changes", "flights.history", "flights.ledger", "damaged.changes", "damaged.ledger"]
    assert [*found] == names
    assert [each.ok for each in found.values()] == [True, True, True, True, False]  # its own log, not ours
    with pytest.raises(InvalidArgument, match=r"what has `contracts\(\)`"):
        check_all({"flights": ledger.history()})  # type: ignore[dict-item]
