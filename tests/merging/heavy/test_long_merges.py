"""
A merge of one large key among thousands of small ones, and of thousands of histories.

In `make test`:
tests/merging/test_merge.py::test_random_histories_are_what_the_fold_makes_of_them,
tests/merging/test_merge.py::test_a_key_may_span_arrow_batches,
tests/merging/test_merge.py::test_the_versions_of_a_hot_key_are_handed_on_in_bounded_batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdckit import merge
from cdckit.parts.arrays import ROWS_AT_ONCE
from support.histories import (
    EXTREME_PRIORITIES,
    assert_folds_to,
    random_changes,
    to_dataframe,
)
from tools.tiers import seeds

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
KEYS = ["h", "k"]


@pytest.fixture
def configured(spark: SparkSession) -> Iterator[None]:
    """One partition, in Arrow batches of 999 rows."""
    chosen = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "999",
        "spark.sql.shuffle.partitions": "1",
    }
    before = {name: spark.conf.get(name) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        if value is not None:
            spark.conf.set(name, value)


@pytest.mark.usefixtures("configured")
def test_keys_of_all_sizes_stay_whole_in_a_partition_of_many_rows(spark: SparkSession) -> None:
    """Among thousands of small entities, one in the middle has more changes than all others together."""
    hot = random_changes(10, 1, FIELDS, exactly=ROWS_AT_ONCE + 500)
    assert len(hot) > ROWS_AT_ONCE
    for change in hot:
        change["data"] = {**change["data"], "h": 1000, "k": "hot"}
        change["message_id"] += "hot"
    small = random_changes(11, 1_000, FIELDS)
    changes = small + hot
    assert len(small) < len(hot)
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


@pytest.mark.parametrize(
    "options", [{}, {"guids": True}, {"priorities": EXTREME_PRIORITIES}, {"priorities": (0,)}]
)
@seeds(4, soak=15)
def test_thousands_of_random_histories_are_what_the_fold_makes_of_them(
    spark: SparkSession, options: dict[str, Any], seed: int
) -> None:
    changes = random_changes(seed, 500, FIELDS, **options)
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)
