"""Rows that are needed several times, computed once."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from cdckit.parts.arrow_types import arrow_schema

_FEW = 1_000
"""So many rows this program may hold; more stay with the executors."""


def computed(rows: DataFrame, *, few: bool = False) -> DataFrame | None:
    """
    Rows computed once and looked at again; None if there are none.

    They are held without files: if they are few, as rows of Spark's plans, else by the executors.  An
    executor that dies takes its part along: then the run fails, and can be run again.

    Args:
        rows: The rows.
        few: Whether they are known to be few: then this program takes them at once, and hands them on as one
            partition, so that nothing that follows need be shuffled.

    Cost: a job; without *few* another one, which looks whether there are more than a few.
    """
    kept = rows if few else rows.localCheckpoint()
    some = here(kept if few else kept.limit(_FEW + 1))
    if not some.num_rows:
        return None
    if some.num_rows > _FEW and not few:
        return kept
    found = rows.sparkSession.createDataFrame(some, rows.schema)
    return found.coalesce(1) if few else found


def here(rows: DataFrame) -> pa.Table:
    """Few rows in the memory of this program, instants in UTC; a job."""
    return rows.toArrow().cast(arrow_schema(rows.schema))
