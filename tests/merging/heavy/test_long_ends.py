"""
Changes with an end, batch by batch.

In `make test`:
tests/merging/test_changes_with_ends.py::test_random_changes_with_ends_are_what_the_fold_makes_of_them,
tests/merging/test_changes_with_ends.py::test_an_entity_that_has_ended_begins_again_in_a_ledger.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdckit import Ledger, check, keep_known, merge
from cdckit.quality import check_all
from support.histories import assert_folds_to, to_dataframe
from support.ledger_programs import FIELDS as LEDGER_FIELDS
from support.ledger_programs import all_of, batches

KEYS = ["h", "k"]
ENDS = (False, False, True)


# Kept up, and checked -------------------------------------------------------------------------------------


def test_a_ledger_gives_what_one_merge_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Ends come with the second batch; then late changes beside them, repeats, and a rebuild."""
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=2)
    call: Any = {"entity": "thing", "keys": KEYS}
    parts = batches(31, 100, most=3, ends=ENDS)
    first = [row for row in parts[0] if row["effective_until"] is None]
    for number, part in enumerate([first, *parts]):
        rows = to_dataframe(spark, part, LEDGER_FIELDS)
        ledger.apply(rows if number else rows.drop("effective_until"))
    changes = all_of([first, *parts])
    assert_folds_to(ledger.history(), changes, **call)
    checked = check_all(ledger)
    # Some of these changes name no source, which the suite `changes` minds.
    assert [each.sentence.says for name in ("history", "ledger") for each in checked[name].broken] == []
    kept = ledger.changes().localCheckpoint()
    assert_folds_to(merge(kept, **call), changes, **call)
    ledger.rebuild()
    assert_folds_to(ledger.history(), changes, **call)
    ledger.check()
    moment = changes[0]["arrival"]["timestamp"]
    known = [each for each in changes if each["arrival"]["timestamp"] <= moment]
    assert_folds_to(keep_known(ledger.beliefs(), moment), known, **call)
    assert [each.sentence.says for each in check(ledger.beliefs(), "bitemporal").broken] == []
