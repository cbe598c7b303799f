"""Rules of rows, and folds, which carry what is known of a scope from row to row: plain Python over Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cdckit.parts.arrays import Bools, first_of_entity, slices

Result = tuple[Any, ...]
Rule = Callable[..., Result]
"""What a row comes to, by itself: is given some of its values."""
Rules = Callable[..., Iterable[Result]]
"""The same, of what comes to any number of rows."""

_ROWS_AT_ONCE = 1 << 14
_RULED_AT_ONCE = 1_000  # a message may have a megabyte
_CHARACTERS_AT_ONCE = 1 << 26


def rule_batches(batches: Iterable[pa.RecordBatch], rule: Rule, makes: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Apply a rule to each row: as many rows, in the columns that it makes."""
    results = _Results(makes)
    for batch in slices(batches, _RULED_AT_ONCE):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            results.add(rule(*row))
            if results.characters > _CHARACTERS_AT_ONCE:
                yield from results.flush()
        yield from results.flush()


LISTED = "listed"


def list_results(*row: Any, rule: Rules, makes: pa.Schema) -> Result:
    """A `Rule` that lists what a row comes to by one that makes any number of rows (`listed_columns`)."""
    return ([dict(zip(makes.names, result, strict=True)) for result in rule(*row)],)


def listed_columns(makes: pa.Schema) -> pa.Schema:
    """Name the columns of `list_results`: a list of structs."""
    return pa.schema([(LISTED, pa.list_(pa.struct(list(makes))))])


class Fold(ABC):
    """
    What is known of one scope, and the rules by which its rows are taken, one after the other.

    What a row comes to is known once it is taken, or once all rows of the scope are: until then it is held.
    """

    @abstractmethod
    def take(self, *row: Any) -> Result | None:
        """Take a row: what it comes to; None where it is held."""
        raise NotImplementedError

    def settle(self) -> Iterable[Result]:
        """Settle the rows that are held, in their order, once all rows are taken."""
        return ()

    def state(self) -> Result:
        """Write down what is known after the last row, so that a later call can go on from it."""
        return ()


IS_LAST = pa.field("is_last", pa.bool_())
"""Whether a row is the last of its scope: only such a row has the state behind it."""

IS_STATE = "is a state"
"""Of rows that are folded, whether one has a state, and is no row: a name that no column of a caller has."""


@dataclass(frozen=True)
class FoldPlan:
    """
    How rows are folded.

    Args:
        scope: The columns that tell scopes apart.
        reads: The columns of a row that a fold is given; of those with lists, an empty one for null.
        makes: What a fold makes of a row.
        begin: Begins a scope with what is known of it; None where nothing is.
        states: What is known of a scope, before its first row and after its last.
        order: The columns in whose order the rows of a scope count; nulls come first.
        logs: The columns that tell logs apart, if the rows were appended to several: those of one log are in
            this order, those of different logs by the latest *time* that their log has shown so far.
        time: The columns of that time, which are among those of the order.
        skip: The column that says of which rows nothing is made; None if there are no such.
    """

    scope: tuple[str, ...]
    reads: tuple[str, ...]
    makes: pa.Schema
    begin: Callable[[Result | None], Fold]
    states: pa.Schema = field(default_factory=lambda: pa.schema([]))
    order: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    time: tuple[str, ...] = ("timestamp",)
    skip: str | None = None

    @property
    def columns(self) -> pa.Schema:
        """What is made of a row; whether it is the last of its scope; and of that one what is known then."""
        return pa.schema([*self.makes, IS_LAST, *self.states])

    @property
    def sent(self) -> tuple[str, ...]:
        """The columns that are looked at."""
        skipped = [] if self.skip is None else [self.skip]
        return tuple(dict.fromkeys([*self.scope, *self.reads, *self.states.names, *skipped, IS_STATE]))


def fold_batches(batches: Iterable[pa.RecordBatch], plan: FoldPlan) -> Iterator[pa.RecordBatch]:
    """
    Fold rows that are sorted by scope, then those that are skipped first, the states behind them, and then
    the others in the order in which they count.

    Args:
        batches: The columns that are sent (`plan.sent`).
        plan: How they are folded.

    Returns:
        As many rows, in the same order (`plan.columns`); of a state, and of what is skipped, nothing is made.
        One state is held at a time, and what is made of rows that stand behind one that is held.
    """
    results, fold = _Results(plan.columns), plan.begin(None)
    no_state = (False, *(None for _ in plan.states))
    for batch, first, last in _with_bounds(batches, plan.scope):
        is_state = batch.column(IS_STATE).to_pylist()
        skipped = [False] * len(is_state) if plan.skip is None else batch.column(plan.skip).to_pylist()
        states = [batch.column(name) for name in plan.states.names]
        rows = zip(*(batch.column(name).to_pylist() for name in plan.reads), strict=True)
        for place, row in enumerate(rows):
            if first[place]:
                fold = plan.begin(None)
            if skipped[place]:
                results.add(())
                continue
            if is_state[place]:
                fold = plan.begin(tuple(column[place].as_py() for column in states))
                results.add(())
                continue
            result = fold.take(*row)
            ends = last[place]
            state = (True, *fold.state()) if ends else no_state
            results.add(None if result is None else (*result, *state), state)
            if ends:
                results.settle(fold.settle())
            if results.characters > _CHARACTERS_AT_ONCE:
                yield from results.flush()
        yield from results.flush()


class _Results:
    """What rows have come to, and which of them are held."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns, self.characters = columns, 0
        self._nothing: Result = (None,) * len(columns)
        self._rows: list[Result] = []
        self._held: list[int] = []

    def add(self, result: Result | None, behind: Result = ()) -> None:
        """Note what the next row comes to; of one that is held, what will stand behind it."""
        if result is None:
            self._held.append(len(self._rows))
            self._rows.append(behind)
        else:
            self._rows.append(result or self._nothing)
            self._count(result)

    def settle(self, results: Iterable[Result]) -> None:
        """Note what the rows that are held come to."""
        for place, result in zip(self._held, results, strict=True):
            self._rows[place] = (*result, *self._rows[place])
            self._count(result)
        self._held = []

    def _count(self, result: Result) -> None:
        self.characters += sum(map(_size, result))

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The rows before the first that is held."""
        count = self._held[0] if self._held else len(self._rows)
        if not count:
            return
        columns = zip(zip(*self._rows[:count], strict=True), self._columns, strict=True)
        arrays = [pa.array(values, column.type) for values, column in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._columns)
        self._rows, self.characters = self._rows[count:], 0
        self._held = [place - count for place in self._held]


def _size(value: Any) -> int:
    if type(value) is str:
        return len(value)
    if type(value) is dict:
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if type(value) is list else 0


def _with_bounds(
    batches: Iterable[pa.RecordBatch], scope: tuple[str, ...]
) -> Iterator[tuple[pa.RecordBatch, Bools, Bools]]:
    """The batches, and for each row whether it is the first and the last of its scope in all of them."""
    before: tuple[pa.RecordBatch, Bools] | None = None
    for batch in slices(batches, _ROWS_AT_ONCE):
        first = first_of_entity(batch, scope)
        if before is not None:
            first[0] = _scope_at(before[0], -1, scope) != _scope_at(batch, 0, scope)
            yield *before, np.append(before[1][1:], first[0])
        before = batch, first
    if before is not None:
        yield *before, np.append(before[1][1:], True)


def _scope_at(batch: pa.RecordBatch, row: int, scope: tuple[str, ...]) -> list[Any]:
    return [batch.column(name)[row].as_py() for name in scope]
