"""
What rows take along when their keys change, as changes of the new key: in workers.

What the upsert of a move did not send is what stood under the old key right before the delete, with the
message and the priority that it has there.  So such words are changes of the new key too, right behind its
upsert: one for each message, and a merge needs no rule for them.

What stood under the old key may have been taken along itself.  So all keys that moves connect, a *family*,
are looked at together, and again until nothing is taken along that was not before: as often as moves
follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdckit.errors import ErrorWithFacts
from cdckit.merging.arrow_changes import (
    ARRIVED,
    NO_PRIORITY,
    OPERATIONS,
    TAKEN_ALONG,
    WORD,
    Changes,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from cdckit.merging.log_order import order_entities
from cdckit.merging.precedence import counting_changes, field, steps
from cdckit.model.changes import UPSERT
from cdckit.parts.arrays import NOWHERE, Bools, Ints, first_of_entity, ints
from cdckit.parts.arrow_types import make_batch
from cdckit.parts.families import FAMILY

MOVE = "move"
"""The column that says of which move a change is part: equal texts, one move; null in all others."""

OWN = ("effective_timestamp", "sequence", "arrival", "snapshot")
"""What says the place of a change stands twice where changes may be placed: as it was, under `own_…`."""


class CircularMoves(ErrorWithFacts, ValueError):
    """Each of some moves takes along what another one of them has brought."""

    message: str
    sentence = (
        "Rows that moved from key to key would take along what they had not got yet: the delete and the "
        "upsert of one move stand at places too far apart.  One of these messages: {message}."
    )


class LateMoves(ErrorWithFacts, ValueError):
    """Something about a row that moved became known only after its move."""

    message: str
    sentence = (
        "bitemporal() cannot tell what was believed of a row that moved to another key, if something of "
        "the old key arrived after the move and is true before it; as_known() can, for each moment.  The "
        "message of the move: {message}."
    )


def inherit_words(
    batches: Iterable[pa.RecordBatch], layout: Layout, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """
    The words that moves took along, as changes of the new keys.

    Args:
        batches: The changes of whole families, sorted by `FAMILY`, identity and the order of changes,
            truncates first; with the columns `MOVE` and `own_…`.
        layout: Of their columns.
        schema: Of the result: theirs, but for these.
    """
    for table in order_entities(batches, layout, (FAMILY,)):
        changes = Changes.from_table(table, layout)
        entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
        keep = ~changes.find_repeats(entity)
        moves = _moves(changes, keep)
        if len(moves.leaving):
            # Of a family that is told of in part, some keys have no change that moves.
            keep &= np.isin(entity, entity[np.concatenate(moves)])
            number = np.cumsum(keep) - 1
            moves = _Moves(number[moves.leaving], number[moves.arriving])
            changes, entity = changes.where(keep), entity[keep]
            if f"own_{ARRIVED}" in table.schema.names:
                _require_at_once(changes, entity, moves)
            inherited = _find_inherited(changes, entity, moves)
            yield _with_own_places(_inherited_words(changes, entity, inherited), schema)


class _Moves(NamedTuple):
    """The changes by which rows moved, pair by pair."""

    leaving: Ints
    """Positions of the deletes of old keys."""
    arriving: Ints
    """Positions of the upserts of the new ones."""


def _moves(changes: Changes, counts: Bools) -> _Moves:
    """
    The moves of which both changes are there.

    Should several have one name, the first delete belongs to the first upsert, and so on.
    """
    move = changes.table.column(MOVE)
    is_part = counts & np.asarray(move.is_valid())
    name = ints(move.dictionary_encode().indices.fill_null(NOWHERE))
    sides = []
    for side in (changes.is_delete, ~changes.is_delete):
        at = np.flatnonzero(is_part & side)
        at = at[np.argsort(name[at], kind="stable")]
        first = np.searchsorted(name[at], name[at])
        sides.append((name[at] * len(changes) + np.arange(len(at)) - first, at))
    (left, leaving), (right, arriving) = sides
    _, left_at, other = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return _Moves(leaving[left_at], arriving[other])


def _require_at_once(changes: Changes, entity: Ints, moves: _Moves) -> None:
    """Raise `LateMoves` unless all up to the delete of an old key had arrived with its upsert."""
    arrived = ints(changes.table.column(f"own_{ARRIVED}"))
    # Ranks, so that a running maximum of (entity, rank) needs no restart.
    rank = np.unique(arrived, return_inverse=True)[1]
    several = len(rank) + 1
    last = np.maximum.accumulate(entity * several + rank) - entity * several
    late = last[moves.leaving] > rank[moves.arriving]
    if late.any():
        raise LateMoves(changes.table.column("message_id")[int(moves.arriving[late][0])].as_py())


class _InheritedValues(NamedTuple):
    """Values that are taken along, one by one."""

    arriving: Ints
    """Positions of the upserts that did not send them."""
    origin: Ints
    """Positions of the changes that said them."""
    field: Ints
    """Which field."""


_NOTHING = _InheritedValues(*[np.zeros(0, np.int64)] * 3)


def _find_inherited(changes: Changes, entity: Ints, moves: _Moves) -> _InheritedValues:
    taken = _NOTHING
    for _ in range(len(moves.leaving) + 1):
        before, taken = taken, _inherit_standing(changes, entity, moves, taken)
        if all(map(np.array_equal, before, taken)):
            return taken
    raise CircularMoves(changes.table.column("message_id")[int(moves.leaving[0])].as_py())


def _inherit_standing(
    changes: Changes, entity: Ints, moves: _Moves, taken: _InheritedValues
) -> _InheritedValues:
    """Find what stands before each delete and its upsert did not send, given what was taken along so far."""
    words = _inherited_words(changes, entity, taken)
    all_, origin, of = _insert_words(changes, entity, words)
    starts = origin[:, 0] == NOWHERE
    place = np.empty(len(changes), np.int64)
    place[origin[starts, 1]] = np.flatnonzero(starts)
    leaving = place[moves.leaving]
    if all_.has_ends:
        standing, of, leaving = _standing_changes(all_, of, leaving)
        all_, origin = all_.take(standing), origin[standing]
    counts = counting_changes(all_, of)
    then, of, origin = all_.where(counts), of[counts], origin[counts]
    did, number, counted = steps(then, of), np.cumsum(counts) - 1, counts[leaving]
    # A delete that counts is never the first change of its key.
    before, arriving = number[leaving][counted] - 1, moves.arriving[counted]
    alive = ~did.dead[before]
    before, arriving = before[alive], arriving[alive]
    all_values = [_NOTHING]
    for index in set(range(len(changes.layout.fields))) - set(changes.layout.keys):
        stands = field(then, did, index, then.field_priority(index)).standing[before]
        unsent = (stands != NOWHERE) & ~changes.carries(index)[arriving]
        at = stands[unsent]
        source_rows = np.where(origin[at, 0] == NOWHERE, origin[at, 1], origin[at, 0])
        all_values.append(_InheritedValues(arriving[unsent], source_rows, np.full(len(at), index)))
    arriving, source_rows, fields = (np.concatenate(part) for part in zip(*all_values, strict=True))
    order = np.lexsort((fields, source_rows, arriving))
    return _InheritedValues(arriving[order], source_rows[order], fields[order])


def _standing_changes(changes: Changes, entity: Ints, leaving: Ints) -> tuple[Ints, Ints, Ints]:
    """Find of moves the changes that hold at the delete; of which move each is; where the deletes are."""
    first = np.searchsorted(entity, entity[leaving])
    size = leaving + 1 - first
    move = np.repeat(np.arange(len(leaving)), size)
    position = np.arange(len(move)) - np.repeat(np.cumsum(size) - size, size) + first[move]
    holds = changes.until()[position] > changes.instants()[leaving][move]
    return position[holds], move[holds] + 1, np.cumsum(np.bincount(move[holds])) - 1


class _InheritedWords(NamedTuple):
    """What is taken along as changes: of each upsert, one for each change that said some of it."""

    table: pa.RecordBatch
    arriving: Ints
    origin: Ints


def _inherited_words(changes: Changes, entity: Ints, taken: _InheritedValues) -> _InheritedWords:
    layout = changes.layout
    new = np.ones(len(taken.field), dtype=bool)
    new[1:] = (np.diff(taken.arriving) != 0) | (np.diff(taken.origin) != 0)
    arriving, origin, word_of = taken.arriving[new], taken.origin[new], np.cumsum(new) - 1
    at, source_rows, count = pa.array(arriving), pa.array(origin), len(arriving)
    columns = {name: changes.table.column(name).take(at) for name in changes.table.schema.names}
    kinds = {name: column.type for name, column in columns.items()}
    carried = [np.zeros(count, np.int64) for _ in carried_words(layout.fields)]
    for index in range(len(layout.fields)):
        if index not in layout.keys:
            word, bit = divmod(index, WORD)
            carried[word][word_of[taken.field == index]] |= 1 << bit
            priority = changes.field_priority_at(index, origin).astype(np.int32)
            columns[priority_column(index)] = pa.array(priority)
            columns[value_column(index)] = changes.values_at(index, origin)
    columns |= {carried_column(word): pa.array(bits) for word, bits in enumerate(carried)}
    columns["message_id"] = changes.table.column("message_id").take(source_rows)
    columns["operation"] = pa.array(np.full(count, OPERATIONS.index(UPSERT)), kinds["operation"])
    columns["priority"] = pa.array(np.full(count, NO_PRIORITY), kinds["priority"])
    columns["record_number"] = pa.array(_numbers(entity[arriving]), kinds["record_number"])
    columns[MOVE] = pa.nulls(count, kinds[MOVE])
    return _InheritedWords(make_batch(columns, changes.table.schema), arriving, origin)


def _numbers(entity: Ints) -> Ints:
    """Numbers of records that no other change of an entity has."""
    order = np.argsort(entity, kind="stable")
    first = np.searchsorted(entity[order], entity[order])
    numbers = np.empty(len(entity), np.int64)
    numbers[order] = TAKEN_ALONG + np.arange(len(entity)) - first
    return numbers


def _insert_words(changes: Changes, entity: Ints, words: _InheritedWords) -> tuple[Changes, Ints, Ints]:
    """
    The changes with the words behind their upserts; where each one is from; and their entities.

    Where one is from are two numbers: of a word the position of the change that said it, or `NOWHERE`; and
    the position of the change, or of the upsert.
    """
    count = len(changes)
    own_rows = np.stack([np.full(count, NOWHERE), np.arange(count)], axis=1)
    origin = np.concatenate([own_rows, np.stack([words.origin, words.arriving], axis=1)])
    order = np.argsort(origin[:, 1], kind="stable")
    both = pa.Table.from_batches([changes.table, words.table]).combine_chunks().to_batches()[0]
    among = Changes(both.take(pa.array(order)), changes.layout)
    return among, origin[order], entity[origin[order, 1]]


def _with_own_places(words: _InheritedWords, schema: pa.Schema) -> pa.RecordBatch:
    """The words at the places that their upserts say themselves."""
    names = words.table.schema.names
    own_columns = {name: words.table.column(f"own_{name}") for name in OWN if f"own_{name}" in names}
    columns = dict(zip(names, words.table.columns, strict=True))
    return make_batch({**columns, **own_columns}, schema)
