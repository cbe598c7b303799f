"""What waits in a shell, and when it is given up."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.parts.arguments import require_instant
from cdckit.parts.values import time_between

WAITING, GIVEN_UP = "waiting", "given_up_timestamp"
"""The table of what waits, and its column that says since when a row no longer does."""


def is_overdue(waited: Column, wait: timedelta) -> Column:
    """Tell whether a time waited is too long; a null too, of what has no time: else it waited for ever."""
    return F.coalesce(waited > F.lit(wait), F.lit(True))


def with_waited(rows: DataFrame, since: Column, now: datetime, wait: timedelta) -> DataFrame:
    """Add how long rows have `waited` *since* an instant, and whether that is longer than *wait*."""
    waited = rows.withColumn("waited", time_between(since, require_instant(now, "now")))
    return waited.withColumn("is_overdue", is_overdue(F.col("waited"), wait))


def give_up_overdue(
    waiting: DataFrame, since: Column, now: datetime, wait: timedelta
) -> tuple[DataFrame, int]:
    """What waits, that given up which waits *since* longer than *wait*; and how many records that are."""
    instant = require_instant(now, "now")
    overdue = F.col(GIVEN_UP).isNull() & is_overdue(time_between(since, instant), wait)
    given_up = F.when(overdue, instant).otherwise(F.col(GIVEN_UP))
    return waiting.withColumn(GIVEN_UP, given_up), waiting.where(overdue).count()
