"""
Fields in which nothing stands yet, in lists of a ledger and in published tables.

In `make test`:
tests/ledger/test_empty_fields.py::test_a_part_in_which_nothing_stands_has_no_type_either,
tests/ledger/test_empty_fields.py::test_so_it_is_in_tables_that_are_united_and_lists.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdckit import Ledger, changes_from

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
NIGHTS: list[Any] = [
    [],
    None,
    [{"size": None, "codes": []}],
    [{"size": 2.5, "codes": []}],
    [],
    [{"size": None, "codes": ["a"]}],
]
"""What a field says from night to night: each leaves open less than the one before it, or nothing new."""


def test_a_field_that_is_filled_part_by_part(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path / "ledger", entity="thing", keys=["id"], buckets=1)
    lists = Ledger(spark, tmp_path / "lists", entity="thing", keys=["id"], buckets=1)
    for night, value in enumerate(NIGHTS):
        frame, at = pd.DataFrame({"id": [1], "items": [value]}), FIRST + timedelta(days=night)
        ledger.apply(changes_from(frame, keys=["id"], effective=at, ignore_null_updates=False))
        ledger.publish(tmp_path / "published")
        lists.apply_list(frame, taken_at=at)
        if night == 2:
            ledger.compact()
            ledger.rebuild()
    for history in (ledger.history(), lists.history()):
        assert (
            history.schema["items"].dataType.simpleString()
            == "array<struct<size:double,codes:array<string>>>"
        )
        rows = history.orderBy("valid_from_timestamp").select("items").collect()
        assert [row.asDict(recursive=True)["items"] for row in rows] == NIGHTS
    ledger.check(deep=True)
    published = DeltaTable(tmp_path / "published").to_pyarrow_table().sort_by("valid_from_timestamp")
    assert published["items"].to_pylist() == NIGHTS
