"""
A ledger that is cut into more buckets as it grows, published and erased from meanwhile.

In `make test`:
tests/ledger/test_growth.py::test_a_truncate_ends_what_is_in_every_bucket,
tests/ledger/test_growth.py::test_who_began_before_it_was_cut_begins_again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdckit.ledger import intake
from cdckit.outputs import scd_type_2
from support.histories import assert_folds_to, plain, to_dataframe
from support.ledger_programs import FIELDS, KEYS, all_of, batches
from support.ledgers import opened, require_order, rows_of


def test_it_is_what_one_merge_makes_and_what_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "BUCKET_BYTES", 12_000)
    monkeypatch.setattr(intake, "_PART_BYTES", 0)
    monkeypatch.setattr(intake, "plan_bytes", lambda rows: 0)
    place, target = tmp_path / "ledger", tmp_path / "published"
    ledger, seen, parts = opened(spark, place, buckets=None), [], batches(7, 40, most=5)
    for number, batch in enumerate(parts):
        ledger.apply(to_dataframe(spark, batch, FIELDS), number)
        ledger.publish(target, scd_type_2)
        seen.append(require_order(ledger, place))
        if number == 0:
            key = {name: all_of(parts[:1])[0]["data"][name] for name in KEYS}
            first = rows_of(ledger.history(key))
    assert len(set(seen)) > 2, seen
    assert seen == sorted(seen)
    assert_folds_to(ledger.history(), all_of(parts), entity="e", keys=KEYS)
    both = DeltaTable(str(target)).to_pyarrow_table(), scd_type_2(ledger.history()).toArrow()
    assert rows_of(ledger.at_commit(1).history(key)) == first
    shown = (sorted(str(plain(row)) for row in table.to_pylist()) for table in both)
    assert next(shown) == next(shown)
    # What came before is known, whatever bucket it was in.
    assert ledger.apply(to_dataframe(spark, all_of(parts), FIELDS)).news == 0
    gone = ledger.erase(keys=[key], by="dana", reason="asked for")
    assert (gone.entities, ledger.history(key).count()) == (1, 0)
    require_order(ledger, place)
