"""Two processes write to one place for a minute: at the end it is what one of them alone would have made."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import Running
from pyspark.sql import SparkSession
from write_for_a_while import LEAST

from cdckit.store import Store
from support.histories import Row, assert_folds_to, to_dataframe
from support.killed_programs import ENTITY, KEYS, ledger_of
from support.ledger_programs import FIELDS, all_of, batches
from support.store_numbers import held
from tools.tiers import seeds

pytestmark = pytest.mark.soak

SECONDS = 60
WHO = ("one", "both", "other")
"""Whose a batch is; one of three is taken by whoever is the first."""


@seeds(1, soak=1)
def test_a_ledger(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """All entities are touched by both, and every third batch is applied by both."""
    changes = all_of(batches(seed, 300))
    parts: dict[str, list[Row]] = {}
    for number in range(240):
        name = f"{number:03} {WHO[number % 3]}"
        parts[name] = changes[number::240]
        to_dataframe(spark, parts[name], FIELDS).coalesce(1).write.parquet(str(tmp_path / "batches" / name))
    taken = run_both("ledger", tmp_path)
    ledger = ledger_of(spark, tmp_path)
    ledger.store.check()
    applied = [change for name in taken for change in parts[name]]
    assert_folds_to(ledger.history(), applied, entity=ENTITY, keys=KEYS)
    told = ledger.store.commits().where("batch is not null").select("batch").collect()
    assert sorted(row["batch"] for row in told) == taken


def test_a_store(tmp_path: Path) -> None:
    """Thousands of commits without Spark: the rows of each are there once, and each was counted."""
    (tmp_path / "batches").mkdir()
    for number in range(6000):
        (tmp_path / "batches" / f"{number:04} {WHO[number % 3]}").touch()
    taken = run_both("store", tmp_path)
    store = Store(None, tmp_path / "store")
    store.check()
    assert held(store, "log") == [int(name.split()[0]) for name in taken]
    for who in WHO:
        assert held(store, f"of {who}") == [int(name.split()[0]) for name in taken if who in name]
    assert held(store, "count") == [len(taken)]
    assert store.snapshot().version == len(taken)


def run_both(what: str, folder: Path) -> list[str]:
    """Let both run side by side; the batches that were taken, in their order."""
    program = ("write_for_a_while.py", what, folder)
    with Running(*program, "one", str(SECONDS)) as one, Running(*program, "other", str(SECONDS)) as other:
        for each in (one, other):
            each.wait_for("ready", 120)
        (folder / "go").touch()
        for each in (one, other):
            each.wait_for("done", 20 * SECONDS)
        lines = [one.lines, other.lines]
    taken = [line.split(" ", 1)[1].strip() for each in lines for line in each if line.startswith("took")]
    again = [line for each in lines for line in each if line.startswith("had been taken")]
    print(len(taken), "batches were taken,", len(again), "of them twice offered")
    assert len(set(taken)) == len(taken) >= 2 * LEAST
    assert again
    return sorted(taken)
