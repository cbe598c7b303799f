"""The carrier of rules and folds: what rows come to, made by Spark's workers beside the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import quoted, quoted_columns
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.fold import (
    IS_STATE,
    LISTED,
    FoldPlan,
    Rule,
    Rules,
    fold_batches,
    list_results,
    listed_columns,
    rule_batches,
)
from cdckit.parts.workers import map_columns, require_package, without_garbage_collection

# Names that no column of a caller has.
_SCOPE, _LATEST, _MADE = "number of the scope", "latest time of the log", "made of the row"


def with_rule(
    rows: DataFrame, keeps: Sequence[str], reads: Sequence[str], rule: Rule, makes: pa.Schema
) -> DataFrame:
    """
    Apply a rule to each row.

    Args:
        rows: The rows.
        keeps: The columns of the rows that the result has.
        reads: The columns whose values the rule is given, two or more; of those with lists, an empty one for
            null.
        rule: The rule.
        makes: What it makes of a row: the columns of the result behind those that are kept.

    Cost: a pass through Python of the columns that are read, no shuffle.
    """
    require_package(rows.sparkSession)
    filled, sent = _with_filled_lists(rows, reads)
    function = partial(_by_rule, rule=rule, makes=makes)
    ruled = filled.withColumn(_MADE, map_columns(sent, function, spark_columns(makes)))
    return ruled.select(*map(quoted, keeps), *_fields(F.col(quoted(_MADE)), makes))


def explode_rule(
    rows: DataFrame, keeps: Sequence[str], reads: Sequence[str], rule: Rules, makes: pa.Schema
) -> DataFrame:
    """Apply a rule that makes any number of rows of one: a row for each of them."""
    by = partial(list_results, rule=rule, makes=makes)
    listed = with_rule(rows, keeps, reads, by, listed_columns(makes))
    exploded = listed.withColumn(LISTED, F.explode(LISTED))
    return exploded.select(*map(quoted, keeps), *_fields(F.col(LISTED), makes))


def fold_rows(
    rows: DataFrame,
    plan: FoldPlan,
    *,
    keeps: Sequence[str],
    order: Sequence[str] | None = None,
    states: DataFrame | None = None,
) -> DataFrame:
    """
    Fold rows, one after the other within their scopes.

    Args:
        rows: The rows, with the columns that *plan* names, a batch.
        plan: How they are folded.
        keeps: The columns of the rows that the result has.
        order: The columns in whose order the rows of a scope count, if not as the plan has it.
        states: One row for each scope of which something is known: the columns of the scope and the state;
            None where nothing is known.

    Returns:
        The columns that are kept, and behind them `plan.columns`.

    Cost: one shuffle by scope, a sort (of rows of logs two), and a pass of what is looked at through Python.
    """
    require_package(rows.sparkSession)
    state_columns = spark_columns(plan.states)
    nothing = [F.lit(None).cast(kind.dataType).alias(kind.name) for kind in state_columns]
    in_order = plan.order if order is None else order
    first = {name: F.col(name) for name in [plan.skip] if name} | {IS_STATE: F.lit(False)}
    needed = dict.fromkeys([*keeps, *plan.scope, *plan.reads, *plan.logs, *in_order])
    folded = rows.select(*map(quoted, needed), *(column.alias(name) for name, column in first.items()))
    if states is not None:
        before = states.select(*map(quoted, [*plan.scope, *plan.states.names]))
        marks = {name: F.lit(name == IS_STATE) for name in first}
        folded = folded.unionByName(before.withColumns(marks), allowMissingColumns=True)
    elif nothing:
        folded = folded.select("*", *nothing)
    filled, sent = _with_filled_lists(folded, plan.sent)
    scope = [quoted(name) for name in plan.scope]
    # To tell two rows apart by a number takes no look at their texts, whose beginnings are mostly the same.
    together = filled.repartition(*scope).withColumn(_SCOPE, F.hash(*scope))
    ranks = quoted_columns(in_order)
    if plan.logs and order is None:
        # By the number of the scope, too: then the sort below has little to do.
        logs, time = (quoted_columns(names) for names in (plan.logs, plan.time))
        log = Window.partitionBy(_SCOPE, *scope, *map(quoted, first), *logs).orderBy(*ranks)
        so_far = log.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        latest = F.max(F.struct(*time) if time[1:] else time[0]).over(so_far)
        together, ranks = together.withColumn(_LATEST, latest), [F.col(quoted(_LATEST)), *logs, *ranks]
    ranks = [*(F.col(quoted(name)).desc() for name in first), *ranks]
    ordered = together.sortWithinPartitions(_SCOPE, *scope, *ranks)
    results = ordered.withColumn(
        _MADE, map_columns(sent, partial(_by_fold, plan=plan), spark_columns(plan.columns))
    )
    results = results.where(~F.col(quoted(IS_STATE)))
    return results.select(*map(quoted, keeps), *_fields(F.col(quoted(_MADE)), plan.columns))


def _with_filled_lists(rows: DataFrame, reads: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """The rows, and which of their columns to send for those that are read: of lists copies without nulls."""
    copies = {
        field.name: f"{field.name} without null"
        for field in rows.schema
        if field.name in reads and isinstance(field.dataType, T.ArrayType)
    }
    # Arrow's lists count their rows anew from the last one that is no null, with each row that Spark adds.
    filled = (
        F.coalesce(F.col(quoted(name)), F.array().cast(rows.schema[name].dataType)).alias(copy)
        for name, copy in copies.items()
    )
    return rows.select("*", *filled), [copies.get(name, name) for name in reads]


def _fields(struct: Column, columns: pa.Schema) -> list[Column]:
    return [struct[name].alias(name) for name in columns.names]


def _by_rule(batches: Iterable[pa.RecordBatch], rule: Rule, makes: pa.Schema) -> Iterator[pa.RecordBatch]:
    # What is read makes no cycles: what is not referred to any more is gone at once.
    with without_garbage_collection():
        yield from rule_batches(batches, rule, makes)


def _by_fold(batches: Iterable[pa.RecordBatch], plan: FoldPlan) -> Iterator[pa.RecordBatch]:
    named = (batch.rename_columns(list(plan.sent)) for batch in batches)
    with without_garbage_collection():
        yield from fold_batches(named, plan)
