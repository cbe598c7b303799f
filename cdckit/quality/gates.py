"""A gate: batches of a stream are checked before they are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark.sql import DataFrame

from cdckit.quality.checks import check

_Answer = TypeVar("_Answer")


def gate(
    take: Callable[[DataFrame, int], _Answer],
    suite: str | Mapping[str, Any],
    *,
    severity: str = "critical",
    tables: Mapping[str, DataFrame] | None = None,
) -> Callable[[DataFrame, int], _Answer]:
    """
    What takes the batches of a stream, with a check before it: nothing is committed of a batch that fails.

    The stream ends with the error, and begins with the same batch when it is started again.

    Args:
        take: What `foreachBatch` would be given: `ledger.sink("a name")`, `feed.sink(…)`, or any function of
            a batch and its number.
        suite: As for `check`.
        severity: How much a broken sentence must matter to shut the gate: `info`, `warning` or `critical`.
        tables: As for `check`.

    Returns:
        A function for `foreachBatch`.  It raises `BrokenPromises` where the gate is shut.

    What a batch would do to a history is asked by the *gate* of `Ledger.apply` and `Ledger.sink` instead.

    Cost: for each batch that of `check`: the batch is read once more, so cache what is dear to compute.

    >>> taken = gate(lambda batch, number: batch.count(), "changes")
    >>> taken(changes, 0)
    4
    >>> taken(changes.withColumn("source", F.lit(None).cast("string")), 1)
    Traceback (most recent call last):
    ...
    cdckit.quality.check_results.BrokenPromises: A table of 4 rows breaks 1 sentence of the suite changes:
    - 4 rows: A change says who said so: priorities go by it.
      source  operation  number  name    effective  arrived  message
      NULL    upsert     1       kettle  09:00      09:00    m1
      NULL    upsert     2       mug     09:00      09:00    m1
      NULL    upsert     1       teapot  10:00      10:00    m2
      (first 3 rows of more; instants of 2024-01-01, UTC)
    """

    def checked(batch: DataFrame, number: int) -> _Answer:
        check(batch, suite, tables=tables).require(severity)
        return take(batch, number)

    return checked
