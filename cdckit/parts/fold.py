"""Folds: rules that carry what is known of a scope from row to row, in plain Python over Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.arrays import Bools, first_of_entity

Result = tuple[Any, ...]


class Fold:
    """
    What is known of one scope, and the rules by which its rows are taken, one after the other.

    What a row comes to is known once it is taken, or once all rows of the scope are: until then it is held.
    """

    def take(self, *row: Any) -> Result | None:
        """Take a row: what it comes to; None where it is held."""
        raise NotImplementedError

    def settle(self) -> Iterable[Result]:
        """What the rows that are held come to, in their order; all rows were taken."""
        return ()

    def state(self) -> Result:
        """What is known after the last row, so that a later call can go on from it."""
        return ()


@dataclass(frozen=True)
class FoldPlan:
    """
    How rows are folded.

    Args:
        scope: The columns that tell scopes apart.
        reads: The columns of a row that a fold is given.
        keeps: The columns of a row that its result has, too, unchanged.
        makes: What a fold makes of a row.
        states: What is known of a scope, before its first row and after its last; nothing where each call
            stands alone.
        begin: Begins a scope with what is known of it; None where nothing is.
    """

    scope: tuple[str, ...]
    reads: tuple[str, ...]
    keeps: tuple[str, ...]
    makes: pa.Schema
    begin: Callable[[Result | None], Fold]
    states: pa.Schema = field(default_factory=lambda: pa.schema([]))

    @property
    def made_columns(self) -> pa.Schema:
        """The columns of the result behind those that it keeps."""
        return pa.schema([*self.makes, IS_LAST, *self.states])

    def needed_columns(self, order: Sequence[str]) -> list[str]:
        """The columns that rows must have, each once."""
        return list(dict.fromkeys([*self.keeps, *self.scope, *self.reads, *order]))


IS_LAST = pa.field("is_last", pa.bool_())
"""Whether a row is the last of its scope: only such a row has the state behind it."""

IS_STATE = "is a state"
"""Of rows that are folded, whether one has a state, and no row: a name that no column of a caller has."""

_ROWS_AT_ONCE = 1 << 14
_CHARACTERS_AT_ONCE = 1 << 26


def fold_table(
    rows: pa.Table, plan: FoldPlan, *, order: Sequence[str], states: pa.Table | None = None
) -> pa.Table:
    """
    What a table comes to, in the memory of this program: one row for each, as workers would make it.

    Args:
        rows: The rows, with the columns that *plan* names, in any order.
        plan: How they are folded.
        order: The columns in whose order the rows of a scope count; nulls come first.
        states: One row for each scope of which something is known: the columns of the scope and the state.

    Returns:
        The columns that are kept; those that are made; `is_last`; the state, null but in the last row of a
        scope.

    >>> class Sum(Fold):
    ...     def __init__(self, state):
    ...         self.sum = state[0] if state else 0
    ...     def take(self, number):
    ...         self.sum += number
    ...         return (self.sum,)
    ...     def state(self):
    ...         return (self.sum,)
    >>> sums = pa.schema([("so_far", pa.int64())])
    >>> plan = FoldPlan(("who",), ("number",), ("who",), sums, Sum, pa.schema([("sum", pa.int64())]))
    >>> rows = pa.table({"who": ["ann", "ben", "ann"], "number": [1, 2, 3], "at": [1, 1, 2]})
    >>> known = pa.table({"who": ["ann"], "sum": [10]})
    >>> [tuple(row.values()) for row in fold_table(rows, plan, order=["at"], states=known).to_pylist()]
    [('ann', 11, False, None), ('ann', 14, True, 14), ('ben', 2, True, 2)]
    """
    rows = rows.select(plan.needed_columns(order))
    kept = [rows.schema.field(name) for name in plan.keeps]
    rows = rows.append_column(IS_STATE, pa.array(np.zeros(rows.num_rows, bool)))
    if states is not None:
        before = states.select([*plan.scope, *plan.states.names])
        before = before.append_column(IS_STATE, pa.array(np.ones(before.num_rows, bool)))
        rows = pa.concat_tables([rows, before], promote_options="default")
    # Nulls first, as Spark sorts: what is not null is greater.
    names = [*plan.scope, IS_STATE, *order]
    ranks = [(name, "descending" if name == IS_STATE else "ascending") for name in names]
    keys = {f"{name} is there": rows.column(name).is_valid() for name, _ in ranks}
    sorting = pa.table({**keys, **{name: rows.column(name) for name in names}})
    ranks = [pair for name, way in ranks for pair in ((f"{name} is there", "ascending"), (name, way))]
    ordered = rows.take(pc.sort_indices(sorting, ranks)).combine_chunks()
    return pa.Table.from_batches(
        fold_batches(ordered.to_batches(), plan), pa.schema([*kept, *plan.made_columns])
    )


def fold_batches(batches: Iterable[pa.RecordBatch], plan: FoldPlan) -> Iterator[pa.RecordBatch]:
    """
    What rows come to that are sorted by scope, then states first, then in the order in which they count.

    One state is held at a time, and the rows that wait for the end of their scope.
    """
    results, fold = _Results(plan), plan.begin(None)
    for batch, first, last in _with_bounds(batches, plan.scope):
        is_state = batch.column(IS_STATE).to_pylist()
        states = [batch.column(name) for name in plan.states.names if any(is_state)]
        rows = zip(*(batch.column(name).to_pylist() for name in plan.reads), strict=True)
        results.open(batch)
        for place, row in enumerate(rows):
            if is_state[place]:
                fold = plan.begin(tuple(column[place].as_py() for column in states))
                continue
            if first[place]:
                fold = plan.begin(None)
            results.add(place, fold.take(*row))
            if last[place]:
                results.end(fold)
            if results.characters > _CHARACTERS_AT_ONCE:
                yield from results.flush()
        yield from results.flush()


class _Results:
    """What rows have come to, batch by batch, and which of them are held."""

    def __init__(self, plan: FoldPlan) -> None:
        self._plan, self.characters = plan, 0
        self._no_state: Result = (False, *(None for _ in plan.states))
        self._batches: list[tuple[pa.RecordBatch, list[int], list[Result], list[Result]]] = []
        self._held: list[tuple[list[Result], int]] = []

    def open(self, batch: pa.RecordBatch) -> None:
        """Let what is added be of this batch."""
        self._batches.append((batch, [], [], []))

    def add(self, place: int, result: Result | None) -> None:
        """Note what the row at that place comes to."""
        _, places, results, states = self._batches[-1]
        if result is None:
            self._held.append((results, len(results)))
        else:
            self._count(result)
        places.append(place)
        results.append(result or ())
        states.append(self._no_state)

    def end(self, fold: Fold) -> None:
        """Note what the rows that are held come to, and the state behind the last row."""
        for (results, at), result in zip(self._held, fold.settle(), strict=True):
            results[at] = result
            self._count(result)
        self._held = []
        states = self._batches[-1][-1]
        states[-1] = (True, *fold.state())

    def _count(self, result: Result) -> None:
        self.characters += sum(len(value) for value in result if type(value) is str)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """All that is known, unless rows are held."""
        if self._held:
            return
        for batch, places, results, states in self._batches:
            if places:
                yield self._batch(batch, places, results, states)
        self._batches, self.characters = [(self._batches[-1][0], [], [], [])], 0

    def _batch(
        self, batch: pa.RecordBatch, places: list[int], results: list[Result], states: list[Result]
    ) -> pa.RecordBatch:
        kept = batch.select(self._plan.keeps)
        # Nearly always all of them: then nothing is copied.
        kept = kept if len(places) == batch.num_rows else kept.take(pa.array(places, pa.int64()))
        made = [*zip(*results, strict=True), *zip(*states, strict=True)]
        types = self._plan.made_columns
        arrays = [pa.array(values, one.type) for values, one in zip(made, types, strict=True)]
        return pa.RecordBatch.from_arrays([*kept.columns, *arrays], schema=pa.schema([*kept.schema, *types]))


def _with_bounds(
    batches: Iterable[pa.RecordBatch], scope: tuple[str, ...]
) -> Iterator[tuple[pa.RecordBatch, Bools, Bools]]:
    """The batches, and for each row whether it is the first and the last of its scope in all of them."""
    before: tuple[pa.RecordBatch, Bools] | None = None
    for batch in _pieces(batches):
        first = first_of_entity(batch, scope)
        if before is not None:
            first[0] = _scope_at(before[0], -1, scope) != _scope_at(batch, 0, scope)
            yield *before, np.append(before[1][1:], first[0])
        before = batch, first
    if before is not None:
        yield *before, np.append(before[1][1:], True)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            yield batch.slice(start, _ROWS_AT_ONCE)


def _scope_at(batch: pa.RecordBatch, row: int, scope: tuple[str, ...]) -> list[Any]:
    return [batch.column(name)[row].as_py() for name in scope]
