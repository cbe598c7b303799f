"""Folds in the memory of this program, as Spark's workers make them: no JVM is started."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.fold import IS_STATE, FoldPlan, fold_batches


def fold_table(
    rows: pa.Table, plan: FoldPlan, *, order: Sequence[str] | None = None, states: pa.Table | None = None
) -> pa.Table:
    """
    The rows, sorted, with `plan.columns` behind their own: as `cdckit.parts.folded_rows.fold_rows`.

    Of rows of logs, in the order that is given, or that of the plan's columns.
    """
    kept = rows.schema.names
    rows = rows.append_column(IS_STATE, pa.array(np.zeros(rows.num_rows, bool)))
    before = pa.schema([*map(rows.schema.field, plan.scope), *plan.states]).empty_table()
    before = before if states is None else states.select(before.schema.names)
    before = before.append_column(IS_STATE, pa.array(np.ones(before.num_rows, bool)))
    if plan.skip is not None:
        before = before.append_column(plan.skip, pa.array(np.zeros(before.num_rows, bool)))
    together = pa.concat_tables([rows, before], promote_options="default")
    # Nulls first, as Spark sorts: what is there is greater.
    first = [IS_STATE] if plan.skip is None else [plan.skip, IS_STATE]
    names = [*plan.scope, *first, *(plan.order if order is None else order)]
    keys = {name: together.column(name) for name in names}
    keys |= {f"{name} is there": together.column(name).is_valid() for name in names}
    ways = {name: "descending" if name in first else "ascending" for name in names}
    ranks = [pair for name, way in ways.items() for pair in ((f"{name} is there", "ascending"), (name, way))]
    together = together.take(pc.sort_indices(pa.table(keys), ranks)).combine_chunks()
    results = pa.Table.from_batches(fold_batches(together.select(plan.sent).to_batches(), plan), plan.columns)
    whole = pa.table([*together.select(kept).columns, *results.columns], [*kept, *plan.columns.names])
    return whole.filter(pc.invert(together.column(IS_STATE)))
