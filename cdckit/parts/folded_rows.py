"""The carrier of rules and folds: what rows come to, made by Spark's workers beside the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import quoted
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
_SCOPE, _MADE = "number of the scope", "made of the row"


def rule_column(reads: Sequence[str], rule: Rule, makes: pa.Schema) -> Column:
    """
    Apply a rule to each row, as a struct.

    Args:
        reads: The columns whose values the rule is given, two or more.
        rule: The rule.
        makes: The fields of the struct.

    Cost: a pass through Python of these columns, no shuffle.
    """
    return map_columns(reads, partial(_by_rule, rule=rule, makes=makes), spark_columns(makes))


def with_rule(
    rows: DataFrame, keeps: Sequence[str], reads: Sequence[str], rule: Rule, makes: pa.Schema
) -> DataFrame:
    """
    The columns *keeps* of rows, and behind them what each row comes to by a rule (see `rule_column`).

    Of lists that are read, there is an empty one for null.
    """
    require_package(rows.sparkSession)
    filled = rows.select(*(_without_null_list(field, reads) for field in rows.schema))
    made = filled.withColumn(_MADE, rule_column(reads, rule, makes))
    return made.select(*map(quoted, keeps), *_fields(F.col(quoted(_MADE)), makes))


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
    order: Sequence[str],
    states: DataFrame | None = None,
) -> DataFrame:
    """
    Fold rows, one after the other within their scopes.

    Args:
        rows: The rows, with the columns that *plan* names, a batch.
        plan: How they are folded.
        keeps: The columns of the rows that the result has.
        order: The columns in whose order the rows of a scope count; nulls come first.
        states: One row for each scope of which something is known: the columns of the scope and the state;
            None where nothing is known.

    Returns:
        The columns that are kept, and behind them `plan.columns`: as `cdckit.parts.fold.fold_table`.

    Cost: one shuffle by scope, a sort, and a pass of the columns that are looked at through Python.
    """
    require_package(rows.sparkSession)
    state_columns = spark_columns(plan.states)
    nothing = [F.lit(None).cast(kind.dataType).alias(kind.name) for kind in state_columns]
    needed = dict.fromkeys([*keeps, *plan.scope, *plan.reads, *order])
    folded = rows.select(*map(quoted, needed), F.lit(False).alias(IS_STATE))
    if states is not None:
        before = states.select(*map(quoted, [*plan.scope, *plan.states.names]))
        folded = folded.unionByName(before.withColumn(IS_STATE, F.lit(True)), allowMissingColumns=True)
    elif nothing:
        folded = folded.select("*", *nothing)
    filled = folded.select(*(_without_null_list(field, plan.sent) for field in folded.schema))
    scope = [quoted(name) for name in plan.scope]
    # To tell two rows apart by a number takes no look at their texts, whose beginnings are mostly the same.
    together = filled.repartition(*scope).withColumn(_SCOPE, F.hash(*scope))
    ranks = [F.col(quoted(IS_STATE)).desc(), *(F.col(quoted(name)) for name in order)]
    ordered = together.sortWithinPartitions(_SCOPE, *scope, *ranks)
    made = ordered.withColumn(
        _MADE, map_columns(plan.sent, partial(_by_fold, plan=plan), spark_columns(plan.columns))
    )
    made = made.where(~F.col(quoted(IS_STATE)))
    return made.select(*map(quoted, keeps), *_fields(F.col(quoted(_MADE)), plan.columns))


def _without_null_list(column: T.StructField, sent: Sequence[str]) -> Column:
    """The column; of a list that is sent to workers an empty one for null."""
    values = F.col(quoted(column.name))
    if column.name not in sent or not isinstance(column.dataType, T.ArrayType):
        return values
    # Arrow's lists count their rows anew from the last one that is no null, with each row that Spark adds.
    return F.coalesce(values, F.array().cast(column.dataType)).alias(column.name)


def _fields(struct: Column, columns: pa.Schema) -> list[Column]:
    return [struct[name].alias(name) for name in columns.names]


def _by_rule(batches: Iterable[pa.RecordBatch], rule: Rule, makes: pa.Schema) -> Iterator[pa.RecordBatch]:
    # What is read makes no cycles: what is not referred to any more is gone at once.
    with without_garbage_collection():
        yield from rule_batches(batches, rule, makes)


def _by_fold(batches: Iterable[pa.RecordBatch], plan: FoldPlan) -> Iterator[pa.RecordBatch]:
    with without_garbage_collection():
        yield from fold_batches(batches, plan)
