"""
What others ask of the writers of a history is refused by name until it is taken away.

In `make test`:
tests/ledger/test_properties_of_strangers.py::test_a_log_that_only_grows_takes_what_is_new.
"""

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


def test_a_history_that_only_grows_or_has_a_constraint_is_refused_until_that_is_taken_away(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = Ledger(spark, tmp_path, entity="price", keys=["id"], buckets=1)
    ledger.apply(price(5, 1))
    history = DeltaTable(tmp_path / "history")
    history.alter.set_table_properties({"delta.appendOnly": "true"})
    history.alter.add_constraint({"small": "price < 1000"})
    with pytest.raises(ForeignChange, match=r"history.*(delta\.appendOnly = true|CHECK constraint small)"):
        ledger.apply(price(6, 2))
    history.alter.drop_constraint("small")
    history.alter.set_table_properties({"delta.appendOnly": "false"})
    assert ledger.apply(price(6, 2)).news == 1
