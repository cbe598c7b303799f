"""What others ask of the writers of a ledger's tables is kept, or refused by name until it is taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdckit import Ledger, changes_from
from cdckit.store import ForeignChange


def price(amount: int, day: int) -> Any:
    frame = pd.DataFrame({"id": [1], "price": [amount], "day": [f"2024-01-{day:02}"]})
    return changes_from(frame, keys=["id"], sequence_by="day", except_column_list=["day"])


def test_a_constraint_on_the_table_of_commits_is_found(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path, entity="price", keys=["id"], buckets=1)
    ledger.apply(price(6, 2))
    DeltaTable(tmp_path / "commits").alter.add_constraint({"early": "version < 2"})
    with pytest.raises(ForeignChange, match=r"commits.*CHECK constraint early \(version < 2\)"):
        ledger.check()
    with pytest.raises(ForeignChange, match=r"ALTER TABLE \.\.\. DROP CONSTRAINT early"):
        ledger.apply(price(5, 1))
    assert [row["price"] for row in ledger.history().collect()] == [6]


def test_a_log_that_only_grows_takes_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path, entity="price", keys=["id"], buckets=1)
    ledger.apply(price(6, 2))
    DeltaTable(tmp_path / "changes").alter.set_table_properties({"delta.appendOnly": "true"})
    ledger.apply(price(5, 1))
    assert sorted(row["price"] for row in ledger.history().collect()) == [5, 6]
    with pytest.raises(ForeignChange, match=r"changes.*delta\.appendOnly = true"):
        ledger.check()
