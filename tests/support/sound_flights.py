"""Changes of flights that keep all suites."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from benchmarks.merging import random_changes
from cdckit import Priority, with_priorities


def sound_changes(spark: SparkSession) -> DataFrame:
    """Changes of three sources whose words count differently, field by field."""
    ranks = {
        "schedule": Priority(0, {"tailnum": 2, "gate": 1}),
        "airport": Priority(1, {"gate": 3, "delay": -1}),
        "operations": Priority(2, {"expected": 0}),
    }
    return with_priorities(random_changes(spark, 4_000, 100), ranks).coalesce(2).localCheckpoint()
