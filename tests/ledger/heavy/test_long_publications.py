"""
What is published, in every form, with other writers between.

In `make test`:
tests/ledger/test_publish.py::test_only_what_was_touched_is_written,
tests/ledger/test_publish.py::test_a_form_is_told_from_every_other_one,
tests/ledger/test_publish.py::test_two_make_it_at_once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit.store.files
from cdckit import Ledger
from cdckit.ledger import publication, published
from cdckit.outputs import periodic_snapshots, scd_type_1, scd_type_2
from cdckit.store import ForeignChange
from support.histories import plain, to_dataframe
from support.ledger_programs import FIELDS, batches
from support.publications import opened, shown, told, values
from tools.tiers import seeds

SNAPSHOTS = partial(periodic_snapshots, start=date(2023, 12, 30), end=date(2024, 1, 4))


def wanted(ledger: Ledger, form: Callable[[DataFrame], DataFrame]) -> list[str]:
    return sorted(str(plain(row)) for row in form(ledger.history()).toArrow().to_pylist())


@seeds(0, soak=10)
def test_it_is_what_the_form_makes_of_the_history(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """In order, late, rebuilt, compacted, adopted; now and then a batch or two are published together."""
    monkeypatch.setattr(cdckit.store.files, "_FEW_ROWS", 0)
    monkeypatch.setattr(publication, "_FILE", 2000)
    monkeypatch.setattr(publication, "_FEW", 6)
    chance = random.Random(seed)
    forms = {"versions": scd_type_2, "current": scd_type_1, "snapshots": SNAPSHOTS}
    targets = {tmp_path / name: form for name, form in forms.items()}
    ledger = opened(spark, tmp_path / "ledger")
    for batch in batches(seed, 10):
        ledger.apply(to_dataframe(spark, batch, FIELDS))
        step = chance.choice(["", "", "rebuild", "compact", "delete", "optimize"])
        if step in ("rebuild", "compact"):
            getattr(ledger, step)()
        elif step == "delete":
            DeltaTable(str(tmp_path / "ledger" / "changes")).delete(f"data.h = {chance.randrange(10)}")
            ledger.adopt()
        for target, form in targets.items():
            if step == "optimize" and target.exists():
                DeltaTable(str(target)).optimize.compact()
            if chance.random() < 0.7:
                assert ledger.publish(target, form) == ledger.at_commit().version
                assert shown(target) == wanted(ledger, form)
    for target, form in targets.items():
        ledger.publish(target, form)
        assert shown(target) == wanted(ledger, form)


def test_fields_may_be_called_as_they_like(spark: SparkSession, tmp_path: Path) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    for day in (1, 2):
        rows = told(spark, (1, 5, day)).withColumn(
            "data", F.expr("struct(data.h, data.k, data.v AS `v.``x`)")
        )
        ledger.apply(rows.withColumn("carried", F.expr("struct(carried.h, carried.k, carried.v AS `v.``x`)")))
        ledger.apply(told(spark, (day + 1, 6, day)))
        ledger.publish(target)
    ledger.check(deep=True)
    assert len(shown(target)) == ledger.history().count()


def test_another_form_and_new_columns_make_it_anew(spark: SparkSession, tmp_path: Path) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (1, 11, 5), (2, 20, 1)))
    for form in (scd_type_2, partial(scd_type_2, surrogate_key="key"), scd_type_1, SNAPSHOTS):
        ledger.publish(target, form)
        assert shown(target) == wanted(ledger, form)
    ledger.publish(target)
    ledger.apply(told(spark, (3, 2**40, 1), kind="long"))
    ledger.publish(target)
    assert values(target) == [(1, 10, False), (1, 11, True), (2, 20, True), (3, 2**40, True)]


@pytest.mark.parametrize("is_ours", [True, False])
def test_another_writer_comes_between(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """Between the look at the table and the commit: ours has done it already, another's is not overlooked."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (2, 20, 1)))
    ledger.publish(target)
    ledger.apply(told(spark, (1, 11, 5)))
    real = published.PublishedTable.put

    def late(*given: Any) -> bool:
        monkeypatch.undo()
        if is_ours:
            ledger.publish(target)
        else:
            write_deltalake(
                str(target), DeltaTable(str(target)).to_pyarrow_table().slice(0, 1), mode="append"
            )
        return real(*given)

    monkeypatch.setattr(published.PublishedTable, "put", late)
    if is_ours:
        assert ledger.publish(target) == 2
        assert values(target) == [(1, 10, False), (1, 11, True), (2, 20, True)]
    else:
        with pytest.raises(ForeignChange, match="WRITE by delta-rs"):
            ledger.publish(target)
        assert len(values(target)) == 3
    assert DeltaTable(str(target)).version() == 1
