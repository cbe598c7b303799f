"""The jobs that Spark ran, by their groups."""

from __future__ import annotations

from pyspark.sql import SparkSession


def jobs_of(spark: SparkSession, group: str) -> list[int]:
    """The numbers of a group's jobs, once Spark has noted them, which it does while they run."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    return sorted(map(int, context.statusTracker().getJobIdsForGroup(group)))
