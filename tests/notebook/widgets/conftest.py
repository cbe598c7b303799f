"""Two entities, and a ledger of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger
from support.panels import KEYS, two_entities


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    return two_entities(spark)


@pytest.fixture
def ledger(spark: SparkSession, changes: DataFrame, tmp_path: Path) -> Ledger:
    made = Ledger(spark, tmp_path / "ledger", entity="thing", keys=KEYS, buckets=1)
    made.apply(changes)
    return made
