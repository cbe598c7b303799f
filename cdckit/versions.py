"""From the sorted changes of whole entities to their versions: the rules of the merge on Arrow and NumPy.

Runs in Spark's Python workers, on tables that hold every change of each entity they touch.  No
change is applied one by one: what stands in a field after a change is the *position* of the change
that put it there, and each such position is a running maximum.  Only positions travel, so a field
may have any type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.errors import CdcError
from cdckit.history import FIELD_PROVENANCE
from cdckit.identifiers import guids
from cdckit.running import (
    NOWHERE,
    Bools,
    Ints,
    Segments,
    greatest_before,
    last_where,
    ranked,
    row_before,
    segments,
)

# Enough rows that NumPy's cost per call vanishes, few enough that they stay in the cache.
ROWS_AT_ONCE = 1 << 14
BYTES_AT_ONCE = 1 << 26


GUID = "guid"


class InvalidChanges(CdcError, ValueError):
    """Changes reached the merge without their instant, message, priority, record number or operation."""

    def __init__(self, column: str, count: int) -> None:
        self.column, self.count = column, count
        super().__init__(column, count)

    def __str__(self) -> str:
        return (
            f"merge() needs {self.column} in every change; at least {self.count} have none "
            "(or, for the operation, neither 'upsert' nor 'delete'): keep them out before the merge."
        )


@dataclass(frozen=True)
class Layout:
    """
    The columns of the rows that go in: named by position, since a business field may have any name.

    Args:
        fields: The names of the business fields, in order.
        keys: Which of the fields (by index) are key fields, in the order of the key.
        field_priorities: Which of the fields have a priority column of their own.
        by_guid: Whether the column `guid`, not the key fields, tells one entity from the next.
        entity: What the guids are made of beside the keys; None leaves them null.
    """

    fields: tuple[str, ...]
    keys: tuple[int, ...]
    field_priorities: frozenset[int]
    by_guid: bool
    entity: str | None

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell one entity from the next."""
        return (GUID,) if self.by_guid else tuple(value_column(index) for index in self.keys)


def value_column(index: int) -> str:
    """The column with the values of the field at *index*."""
    return f"value_{index}"


WORD = 63
"""How many fields' flags one number holds: as many as stay positive."""


def carried_words(names: Sequence[str]) -> list[Sequence[str]]:
    """The fields whose flags share a number: the first 63, the next 63, ..."""
    return [names[start : start + WORD] for start in range(0, len(names), WORD)]


def carried_column(word: int) -> str:
    """The column whose bits say which of the fields of a *word* the message sent."""
    return f"carried_{word}"


def priority_column(index: int) -> str:
    """The column with the priority of the field at *index*, null where it is the entity's."""
    return f"priority_{index}"


def versions(
    batches: Iterator[pa.RecordBatch], layout: Layout, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The versions of every entity in *batches*, sorted by identity and then by the order of changes."""
    for table in whole_entities(batches, layout.identity):
        made = _versions(table, layout, schema)
        if made.num_rows:
            yield made


def whole_entities(batches: Iterator[pa.RecordBatch], identity: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """
    The same rows in batches that never split an entity.

    The rows of an entity that spans batches are kept as a list of pieces and joined once.
    """
    pieces: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in _slices(batches):
        if pieces and (rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE):
            cut = _last_start(pieces[-1], batch, identity)
            if cut is not None:
                yield _joined([*pieces, batch.slice(0, cut)])
                batch, pieces, rows, size = batch.slice(cut), [], 0, 0
        pieces.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if pieces:
        yield _joined(pieces)


def _slices(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a size that stays in the cache, whatever the session sends."""
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(start, ROWS_AT_ONCE)


def _last_start(before: pa.RecordBatch, batch: pa.RecordBatch, identity: Sequence[str]) -> int | None:
    """Where the last entity that begins within *batch* begins, if one does."""
    both = _joined([before.slice(before.num_rows - 1), batch]).select(list(identity))
    starts = np.flatnonzero(_first_of_entity(both, identity)[1:])
    return int(starts[-1]) if len(starts) else None


def _joined(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0]


def _first_of_entity(table: pa.RecordBatch, identity: Sequence[str]) -> Bools:
    first = np.ones(table.num_rows, dtype=bool)
    first[1:] = False
    for name in identity:
        column = table.column(name)
        first[1:] |= ~same_values(column.slice(1), column.slice(0, len(column) - 1))
    return first


def same_values(left: pa.Array, right: pa.Array) -> Bools:
    """Pair by pair, whether two arrays hold the same: null is null, NaN is NaN, 0.0 is -0.0."""
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((_same(a, b) for a, b in pairs), dtype=bool, count=len(left))
    same = _bools(pc.equal(left, right))
    if pa.types.is_floating(left.type):
        same |= _bools(pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if left.null_count and right.null_count:
        same |= _bools(pc.and_(left.is_null(), right.is_null()))
    return same


def _same(left: object, right: object) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return left == right or (left != left and right != right)


def _bools(array: pa.Array) -> Bools:
    if array.null_count:
        array = pc.fill_null(array, False)
    flags: Bools = array.to_numpy(zero_copy_only=False)
    return flags


def _ints(array: pa.Array) -> Ints:
    numbers: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return numbers


def _require_complete(table: pa.RecordBatch) -> None:
    for name in ("is_delete", "effective_timestamp", "message_id", "priority", "record_number"):
        if table.column(name).null_count:
            raise InvalidChanges("operation" if name == "is_delete" else name, table.column(name).null_count)


def _versions(table: pa.RecordBatch, layout: Layout, schema: pa.Schema) -> pa.RecordBatch:
    _require_complete(table)
    entity = np.cumsum(_first_of_entity(table, layout.identity), dtype=np.int64)
    messages = _Messages.of(table)
    keep = ~messages.repeated(entity)
    keep &= last_where(keep & ~_bools(table.column("is_delete")), segments(entity)) != NOWHERE
    if not keep.all():
        table, entity, messages = table.filter(pa.array(keep)), entity[keep], messages.kept(keep)
    if not len(entity):
        return pa.RecordBatch.from_arrays([], names=[])
    steps = _steps(table, segments(entity))
    return _Entities(table, steps, messages if messages.shared(entity) else None, layout).versions(schema)


@dataclass(frozen=True)
class _Messages:
    """The messages of a table of changes as numbers: equal numbers, equal messages."""

    codes: Ints
    record: Ints
    distinct: bool

    @classmethod
    def of(cls, table: pa.RecordBatch) -> _Messages:
        encoded = table.column("message_id").dictionary_encode()
        distinct = len(encoded.dictionary) == len(encoded)
        return cls(_ints(encoded.indices), _ints(table.column("record_number")), distinct)

    def kept(self, keep: Bools) -> _Messages:
        return _Messages(self.codes[keep], self.record[keep], self.distinct)

    def repeated(self, entity: Ints) -> Bools:
        """The same (message, record number) twice is one change of an entity: all but the first."""
        again = np.zeros(len(self.codes), dtype=bool)
        if not self.distinct:
            order = np.lexsort((self.record, self.codes, entity))
            sorted_ = [column[order] for column in (entity, self.codes, self.record)]
            again[order[1:]] = np.logical_and.reduce([column[1:] == column[:-1] for column in sorted_])
        return again

    def shared(self, entity: Ints) -> bool:
        """Whether a message made several changes of one entity."""
        if self.distinct:
            return False
        pairs = np.sort((entity << 32) + self.codes)
        return bool((pairs[1:] == pairs[:-1]).any())


@dataclass(frozen=True)
class _Steps:
    """For every change: what it did to the row as a whole."""

    of: Segments
    live: Bools
    """The upserts that have an effect."""
    kill: Bools
    """The deletes that have an effect."""
    turn: Bools
    """The change ended or began a life: nothing older counts for a field that it sets."""
    dead: Bools
    """Whether the row is deleted after the change."""
    row_source: Ints
    """Position of the change that the row itself (`guid`) has its provenance from."""


def _steps(table: pa.RecordBatch, of: Segments) -> _Steps:
    """Steps 2 to 4 of the contract's running form."""
    is_delete, p = _bools(table.column("is_delete")), _ints(table.column("priority"))
    g = greatest_before(p, of)
    at_least, more = p >= g, p > g
    dead = is_delete[last_where(of.first | at_least, of)]
    was_dead = np.zeros_like(dead)
    was_dead[1:] = dead[:-1] & ~of.first[1:]
    kill = is_delete & np.where(was_dead, more, at_least)
    rise = ~is_delete & was_dead & at_least
    live = rise | (~is_delete & ~was_dead)
    turn = kill | rise
    return _Steps(of, live, kill, turn, dead, last_where(of.first | turn | more, of))


class _Entities:
    """The changes of whole entities, in order, and what stands in each field after each."""

    def __init__(
        self, table: pa.RecordBatch, steps: _Steps, shared_messages: _Messages | None, layout: Layout
    ) -> None:
        self.table, self.steps, self.layout = table, steps, layout
        self.shared_messages = shared_messages
        self.priority = _ints(table.column("priority"))
        self.carried = [
            _ints(table.column(carried_column(word))) for word, _ in enumerate(carried_words(layout.fields))
        ]

    def versions(self, schema: pa.Schema) -> pa.RecordBatch:
        """Step 7: the last state of each instant, where it differs from the version before."""
        steps, fields = self.steps, range(len(self.layout.fields))
        priorities = [self._field_priority(index) for index in fields]
        standing = [self._standing(index, priorities[index]) for index in fields]
        changed = steps.of.first.copy()
        changed[1:] |= self._new_state(
            np.arange(1, len(changed)), np.arange(len(changed) - 1), standing, priorities
        )
        ends = self._last_of_instants()
        new = np.ones(len(ends), dtype=bool)
        number = steps.of.number[ends]
        new[1:] = (number[1:] != number[:-1]) | self._new_state(ends[1:], ends[:-1], standing, priorities)
        ends = ends[new]
        return self._written(ends, standing, priorities, last_where(changed, steps.of)[ends], schema)

    def _new_state(
        self, now: Ints, then: Ints, standing: Sequence[Ints], priorities: Sequence[Ints]
    ) -> Bools:
        """Whether the states after the changes at *now* and at *then*, of one entity, differ."""
        steps = self.steps
        new: Bools = steps.dead[now] != steps.dead[then]
        new |= self._differs(steps.row_source[now], steps.row_source[then], self.priority)
        for index, stands in enumerate(standing):
            new |= self._differs(stands[now], stands[then], priorities[index], index)
        return new

    def _field_priority(self, index: int) -> Ints:
        """The priority with which each change speaks of a field: its own, but the entity's on a delete."""
        if index not in self.layout.field_priorities:
            return self.priority
        own = self.table.column(priority_column(index))
        stated = _ints(pc.fill_null(own, 0))
        return np.where(self.steps.kill | _bools(own.is_null()), self.priority, stated)

    def _standing(self, index: int, priority: Ints) -> Ints:
        """After each change, the position of the one that put the field's value there, or `NOWHERE`."""
        of, kill = self.steps.of, self.steps.kill
        word, bit = divmod(index, WORD)
        written = ((self.carried[word] >> bit) & 1).astype(bool) & self.steps.live
        if index in self.layout.keys:
            is_set = written
        else:
            is_set = written | (kill & (last_where(written, of) != NOWHERE))
        level = np.cumsum(is_set & self.steps.turn) + of.number
        rank = np.where(is_set, ranked(level, priority), 0)
        wins = is_set & (rank == np.maximum.accumulate(rank))
        before = row_before(last_where(wins, of), of)
        # An equal value at an equal priority in the same life leaves the older message standing.
        again = np.flatnonzero(wins & (before != NOWHERE) & (rank == rank[before]))
        values = self._values(index)
        again = again[same_values(values.take(pa.array(again)), values.take(pa.array(before[again])))]
        wins[again] = False
        return last_where(wins, of)

    def _differs(self, left: Ints, right: Ints, priority: Ints, index: int | None = None) -> Bools:
        """Whether the states (of the row, of a field) that the changes at *left* and *right* made differ."""
        differs: Bools = left != right
        if self.shared_messages is None:
            return differs
        # One message can say the same twice, in two of its records: two positions, one state.
        codes = self.shared_messages.codes
        pairs = differs & (left != NOWHERE) & (right != NOWHERE)
        pairs &= (codes[left] == codes[right]) & (priority[left] == priority[right])
        alike = np.flatnonzero(pairs)
        if not len(alike):
            return differs
        a, b = left[alike], right[alike]
        same = np.ones(len(alike), dtype=bool)
        if index is not None:
            values = self._values(index)
            same = same_values(values.take(pa.array(a)), values.take(pa.array(b)))
        differs[alike] = ~same
        return differs

    def _values(self, index: int) -> pa.Array:
        """The field's value as each change left it: null where it deleted."""
        values = self.table.column(value_column(index))
        if index in self.layout.keys or not self.steps.kill.any():
            return values
        return pc.if_else(pa.array(self.steps.kill), pa.scalar(None, values.type), values)

    def _last_of_instants(self) -> Ints:
        instants = _ints(self.table.column("effective_timestamp").cast(pa.int64()))
        last = np.ones(len(instants), dtype=bool)
        last[:-1] = self.steps.of.first[1:] | (instants[1:] != instants[:-1])
        return np.flatnonzero(last)

    def _written(
        self,
        ends: Ints,
        standing: Sequence[Ints],
        priorities: Sequence[Ints],
        said_by: Ints,
        schema: pa.Schema,
    ) -> pa.RecordBatch:
        at = pa.array(ends)
        begins = self.table.column("effective_timestamp").take(at)
        messages = self.table.column("message_id")
        row = self._provenance(self.steps.row_source[ends], self.priority)
        provenance = [
            self._provenance(stands[ends], p) for stands, p in zip(standing, priorities, strict=True)
        ]
        fields = [
            self._values(index).take(self._shown(index, ends, stands))
            for index, stands in enumerate(standing)
        ]
        columns = [
            self._guids(ends),
            begins,
            begins.take(_positions(self._next_version(ends))),
            pa.array(self.steps.dead[ends]),
            *fields,
            messages.take(pa.array(said_by)),
            pa.StructArray.from_arrays([row, *provenance], fields=list(schema.field(FIELD_PROVENANCE).type)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _guids(self, ends: Ints) -> pa.Array:
        if self.layout.by_guid:
            return self.table.column(GUID).take(pa.array(ends))
        if self.layout.entity is None:
            return pa.nulls(len(ends), pa.string())
        number = self.steps.of.number[ends]
        first = np.ones(len(ends), dtype=bool)
        first[1:] = number[1:] != number[:-1]
        at = pa.array(ends[first])
        key = {self.layout.fields[i]: self.table.column(value_column(i)).take(at) for i in self.layout.keys}
        return guids(self.layout.entity, key).take(pa.array(np.cumsum(first) - 1))

    def _shown(self, index: int, ends: Ints, stands: Ints) -> pa.Array:
        """Which change's value a field shows: a field that is the identity shows it, carried or not."""
        if value_column(index) in self.layout.identity:
            return pa.array(ends)
        return _positions(stands[ends])

    def _next_version(self, ends: Ints) -> Ints:
        """For each version the place, among the versions, of the next one of the same entity."""
        number = self.steps.of.number[ends]
        following = np.arange(1, len(ends) + 1)
        following[:-1][number[1:] != number[:-1]] = NOWHERE
        following[-1:] = NOWHERE
        return following

    def _provenance(self, stands: Ints, priority: Ints) -> pa.Array:
        at = _positions(stands)
        message = self.table.column("message_id").take(at)
        return pa.StructArray.from_arrays(
            [message, pa.array(priority.astype(np.int32)).take(at)], names=["m", "p"], mask=at.is_null()
        )


def _positions(stands: Ints) -> pa.Array:
    return pa.array(stands, mask=stands == NOWHERE)
