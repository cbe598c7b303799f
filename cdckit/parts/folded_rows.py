"""The carrier of folds: rows sorted within their scopes, for Spark's workers or for this program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import quoted
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.fold import IS_STATE, FoldPlan, fold_batches
from cdckit.parts.workers import WorkerPlan, without_garbage_collection

_SCOPE = "number of the scope"
"""A name that no column of a caller has."""


def fold_rows(
    rows: DataFrame, plan: FoldPlan, *, order: Sequence[str], states: DataFrame | None = None
) -> WorkerPlan:
    """
    What rows come to, taken one after the other within their scopes; nothing is computed yet.

    Args:
        rows: The rows, with the columns that *plan* names, a batch.
        plan: How they are folded.
        order: The columns in whose order the rows of a scope count; nulls come first.
        states: One row for each scope of which something is known: the columns of the scope and the state;
            None where nothing is known.

    Returns:
        As `rows()` of workers, or as `local_table()` of this program: what `cdckit.parts.fold.fold_table`
        returns of the same.

    Cost: one shuffle by scope, a sort, and a pass through Python.
    """
    folded = rows.select(*map(quoted, plan.needed_columns(order))).withColumn(IS_STATE, F.lit(False))
    if states is not None:
        before = states.select(*map(quoted, [*plan.scope, *plan.states.names]))
        folded = folded.unionByName(before.withColumn(IS_STATE, F.lit(True)), allowMissingColumns=True)
    scope = [quoted(name) for name in plan.scope]
    # To tell two rows apart by a number takes no look at their texts, whose beginnings are mostly the same.
    together = folded.repartition(*scope).withColumn(_SCOPE, F.hash(*scope))
    ranks = [F.col(IS_STATE).desc(), *(F.col(quoted(name)) for name in order)]
    ordered = together.sortWithinPartitions(_SCOPE, *scope, *ranks).drop(_SCOPE)
    kept = T.StructType([ordered.schema[name] for name in plan.keeps])
    columns = T.StructType([*kept.fields, *spark_columns(plan.made_columns).fields])
    return WorkerPlan(ordered, partial(_fold, plan=plan), columns)


def _fold(batches: Iterable[pa.RecordBatch], plan: FoldPlan) -> Iterator[pa.RecordBatch]:
    # What is carried makes no cycles: what is not referred to any more is gone at once.
    with without_garbage_collection():
        yield from fold_batches(batches, plan)
