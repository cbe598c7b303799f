"""What a real Debezium sends of a real PostgreSQL, captured now."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.debezium.test_debezium_captured import require_what_the_engine_said
from tests.proofs.debezium_engine import capture
from tools.tiers import seeds


@pytest.mark.soak
@seeds(1, soak=2)
def test_the_history_is_what_the_table_held_at_every_instant(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Incremental snapshots under lag, several writers, truncates, an engine that is killed."""
    chance = random.Random(seed)
    capture(tmp_path, seconds=40, pause=chance.randint(2, 15), seed=seed)
    require_what_the_engine_said(spark, tmp_path)
