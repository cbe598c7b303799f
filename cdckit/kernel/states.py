"""What stands after each change: the rules of the merge as running maxima over positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdckit.kernel.arrays import same_values
from cdckit.kernel.changes import Changes
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


@dataclass(frozen=True)
class Steps:
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
    row: Ints
    """Position of the change that the row itself (`guid`) has its provenance from."""


def steps(changes: Changes, entity: Ints) -> Steps:
    """Steps 2 to 4 of the contract's running form, for changes that all count."""
    of, is_delete, p = segments(entity), changes.is_delete, changes.priority
    g = greatest_before(p, of)
    at_least, more = p >= g, p > g
    dead = is_delete[last_where(of.first | at_least, of)]
    was_dead = np.zeros_like(dead)
    was_dead[1:] = dead[:-1] & ~of.first[1:]
    kill = is_delete & np.where(was_dead, more, at_least)
    rise = ~is_delete & was_dead & at_least
    live = rise | (~is_delete & ~was_dead)
    turn = kill | rise
    return Steps(of, live, kill, turn, dead, last_where(of.first | turn | more, of))


class Field(NamedTuple):
    """For every change: what it did to one field."""

    set: Bools
    """It spoke of the field and could do so: an upsert that carried it, a delete of what was set."""
    equal: Bools
    """It would have won, but said again what stood, with the priority that stood."""
    confirms: Bools
    """Of a key field: it said again the value that stood; the message stays, the priority is its own."""
    standing: Ints
    """Position of the change that value and message are from after it, or `NOWHERE`."""
    ruling: Ints
    """Position of the change that the priority is from; but of key fields, the same."""


def field(changes: Changes, steps: Steps, index: int, priority: Ints) -> Field:
    """Steps 5 and 6 for the field at *index*, of which each change speaks with *priority*."""
    of, kill, is_key = steps.of, steps.kill, index in changes.layout.keys
    is_set = changes.carries(index) & steps.live
    if not is_key:
        is_set |= kill & (last_where(is_set, of) != NOWHERE)
    level = np.cumsum(is_set & steps.turn) + of.number
    rank = np.where(is_set, ranked(level, priority), 0)
    wins = is_set & (rank == np.maximum.accumulate(rank))
    before = row_before(last_where(wins, of), of)
    # A key field keeps its message while its value does, whatever life it is; any other one while its
    # priority does, too, and within one life.
    again = wins & (before != NOWHERE)
    if not is_key:
        again &= rank == rank[before]
    again = _where_equal(changes, index, again, before)
    equal = again & (priority == priority[before])
    confirms = again & ~equal
    ruling = last_where(wins & ~equal, of)
    standing = last_where(wins & ~again, of) if is_key else ruling
    return Field(is_set, equal, confirms, standing, ruling)


def _where_equal(changes: Changes, index: int, asked: Bools, before: Ints) -> Bools:
    """Of the changes *asked* about, those that say the same value as the one at *before*."""
    if changes.layout.tells_apart(index):
        return asked
    at = np.flatnonzero(asked)
    values = changes.values(index)
    equal = np.zeros_like(asked)
    equal[at] = same_values(values.take(pa.array(at)), values.take(pa.array(before[at])))
    return equal


class States(NamedTuple):
    """The states in which versions begin, as positions of the changes that made them."""

    entity: Ints
    ends: Ints
    """The last change of the instant."""
    dead: Bools
    row: Ints
    standing: list[Ints]
    """For each field the change that value and message are from."""
    key_priorities: list[Ints]
    """For each key field, in the order of the fields, its priority: it need not be that change's."""
    said_by: Ints
    """The last change at or before the end that changed the state."""


def states(changes: Changes, entity: Ints) -> States:
    """Step 7: the last state of each instant, where it differs from the version before."""
    did = steps(changes, entity)
    of = did.of
    fields = range(len(changes.layout.fields))
    priorities = [changes.field_priority(index) for index in fields]
    standing, key_priorities = [], []
    for index in fields:
        told = field(changes, did, index, priorities[index])
        standing.append(told.standing)
        if index in changes.layout.keys:
            ruled = told.ruling != NOWHERE
            key_priorities.append(np.where(ruled, priorities[index][told.ruling], 0))
    messages_shared = changes.share_messages(entity)
    compare = _Comparison(changes, did, standing, priorities, key_priorities, messages_shared)
    changed = of.first.copy()
    changed[1:] |= compare.differ(np.arange(1, len(changed)), np.arange(len(changed) - 1))
    ends = _last_of_instants(changes, of)
    new = np.ones(len(ends), dtype=bool)
    new[1:] = (entity[ends[1:]] != entity[ends[:-1]]) | compare.differ(ends[1:], ends[:-1])
    ends = ends[new]
    said_by = last_where(changed, of)[ends]
    return States(
        entity[ends],
        ends,
        did.dead[ends],
        did.row[ends],
        [stands[ends] for stands in standing],
        [priority[ends] for priority in key_priorities],
        said_by,
    )


def _last_of_instants(changes: Changes, of: Segments) -> Ints:
    instants = changes.instants()
    last = np.ones(len(instants), dtype=bool)
    last[:-1] = of.first[1:] | (instants[1:] != instants[:-1])
    return np.flatnonzero(last)


class _Comparison(NamedTuple):
    changes: Changes
    steps: Steps
    standing: Sequence[Ints]
    priorities: Sequence[Ints]
    key_priorities: Sequence[Ints]
    messages_shared: bool

    def differ(self, now: Ints, then: Ints) -> Bools:
        """Whether the states after the changes at *now* and at *then*, of one entity, differ."""
        new: Bools = self.steps.dead[now] != self.steps.dead[then]
        new |= self._one_differs(self.steps.row[now], self.steps.row[then], self.changes.priority)
        for index, stands in enumerate(self.standing):
            # The priority of a key field is compared for itself: it may be another change's.
            own = None if index in self.changes.layout.keys else self.priorities[index]
            new |= self._one_differs(stands[now], stands[then], own, index)
        for priority in self.key_priorities:
            new |= priority[now] != priority[then]
        return new

    def _one_differs(self, left: Ints, right: Ints, priority: Ints | None, index: int | None = None) -> Bools:
        """Whether the states (of the row, of a field) that the changes at *left* and *right* made differ."""
        differs: Bools = left != right
        if not self.messages_shared:
            return differs
        # One message can say the same twice, in two of its records: two positions, one state.
        message = self.changes.message
        pairs = differs & (left != NOWHERE) & (right != NOWHERE)
        pairs &= message[left] == message[right]
        if priority is not None:
            pairs &= priority[left] == priority[right]
        alike = np.flatnonzero(pairs)
        if not len(alike):
            return differs
        a, b = left[alike], right[alike]
        same = np.ones(len(alike), dtype=bool)
        if index is not None:
            values = self.changes.values(index)
            same = same_values(values.take(pa.array(a)), values.take(pa.array(b)))
        differs[alike] = ~same
        return differs
