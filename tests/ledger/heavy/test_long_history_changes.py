"""
What appeared and ended between any two commits.

In `make test`:
tests/ledger/test_history_changes.py::test_each_word.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import cdckit.ledger.buckets.bucket_upkeep
from cdckit import Ledger
from cdckit.ledger.intake import withdraw_within
from support.histories import Row, by_guid, plain, to_dataframe, to_rows
from support.ledger_programs import FIELDS, batches
from support.publications import opened
from tools.tiers import seeds


def difference(before: list[Row], after: list[Row]) -> list[Row]:
    """What became of each version, by looking at all of both histories."""
    was, is_ = ({(row["guid"], row["valid_from_timestamp"]): row for row in rows} for rows in (before, after))
    found = []
    for key in was.keys() | is_.keys():
        old, new = was.get(key), is_.get(key)
        if old is None or new is None:
            found.append({"change": "appeared" if old is None else "went", **(new or old or {})})
        elif plain(old) != plain(new):
            ends = "valid_to_timestamp"
            ended = old[ends] is None and plain({**old, ends: 0}) == plain({**new, ends: 0})
            found.append({"change": "ended" if ended else "changed", **new})
    return sorted(found, key=lambda row: (row["guid"], row["valid_from_timestamp"]))


def assert_tells_all(ledger: Ledger, since: int, until: int) -> list[str]:
    """The words that were said."""
    before = to_rows(ledger.at_commit(since).history()) if since else []
    expected = difference(before, to_rows(ledger.at_commit(until).history()))
    assert by_guid(to_rows(ledger.history_changes(since, until))) == by_guid(expected)
    return [row["change"] for row in expected]


@seeds(0, soak=20)
def test_it_is_the_difference_of_the_two_histories(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Batches in order and late, withdrawn messages, upkeep of ours and of others between any two commits."""
    for name in ("OPEN_ROWS", "CLOSED_ROWS"):
        monkeypatch.setattr(cdckit.ledger.buckets.bucket_upkeep, name, 4)
    chance = random.Random(seed)
    ledger, commits = opened(spark, tmp_path), [0]
    for batch in batches(seed, 12):
        commits.append(ledger.apply(to_dataframe(spark, batch, FIELDS)).version)
        step = chance.choice(["withdraw", "rebuild", "compact", "optimize", "delete"])
        if step == "withdraw":
            commits.append(withdrawn(ledger))
        elif step == "rebuild":
            commits.append(ledger.rebuild())
        elif step == "compact":
            commits.append(ledger.compact().version)
        elif step == "optimize":
            DeltaTable(str(tmp_path / "history")).optimize.compact()
        elif step == "delete":
            DeltaTable(str(tmp_path / "changes")).delete(f"data.h = {chance.randrange(12)}")
            commits.append(ledger.adopt())
    said = set()
    for _ in range(6):
        since, until = sorted(chance.sample(commits, 2))
        said.update(assert_tells_all(ledger, since, until))
    said.update(assert_tells_all(ledger, 0, commits[-1]))
    assert said >= {"appeared", "changed"}


def withdrawn(ledger: Ledger) -> int:
    """The commit that takes a quarter of all messages back."""
    gone = ledger.changes().where("pmod(xxhash64(message_id), 4) = 0")
    messages = gone.select("data.h", "data.k", "message_id").localCheckpoint()
    with ledger.store.begin() as transaction:
        withdraw_within(transaction, ledger.at_commit().kind, messages)
        return transaction.commit().version
