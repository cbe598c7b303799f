"""Rows that are kept: in tables that grow run by run, and for the rest of one run."""

from __future__ import annotations

from pyspark.sql import DataFrame

from cdckit.store import Transaction
from cdckit.store.writing import Rows

_FEW = 1_000
"""So many guids, or keys of statements, this program may hold; more stay with the executors."""

_SMALL, _MANY = 4 << 20, 16
"""So many files of fewer bytes are written together: a table that grows by the run has a bounded number."""


def grow(tables: Transaction, name: str, *rows: Rows) -> None:
    """Append rows to a table, and write its small files together when there are many."""
    tables.append(name, *rows)
    fold(tables, name)


def fold(tables: Transaction, name: str) -> None:
    """Write the small files of a table together when there are many."""
    tables.compact(name, below=_SMALL, files=_MANY)


def computed(rows: DataFrame, *, few: bool = False) -> DataFrame | None:
    """
    Rows computed once and looked at again; None if there are none.

    They are held without files: if they are few, as rows of Spark's plans, else by the executors.  An
    executor that dies takes its part along: then the run fails, and can be run again.

    Args:
        rows: The rows.
        few: Whether they are known to be few: then this program takes them at once.

    Cost: a job; without *few* another one, which looks whether there are more than a few.
    """
    kept = rows if few else rows.localCheckpoint()
    some = (kept if few else kept.limit(_FEW + 1)).toArrow()
    if not some.num_rows:
        return None
    return kept if some.num_rows > _FEW and not few else rows.sparkSession.createDataFrame(some, rows.schema)
