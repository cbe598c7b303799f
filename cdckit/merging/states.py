"""The states in which versions begin, of what stands after each change (`cdckit.merging.precedence`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from cdckit.merging.arrow_changes import Changes
from cdckit.merging.precedence import field, steps
from cdckit.parts.arrays import NOWHERE, Bools, Ints, Segments, group_starts, last_where, same_values

_Part = TypeVar("_Part", Ints, Bools)


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
    source_row: Ints
    """The last change at or before the end that changed the state."""

    def select(self, which: Ints | Bools | slice) -> States:
        """Some of the states."""
        return States(
            self.entity[which],
            self.ends[which],
            self.dead[which],
            self.row[which],
            [stands[which] for stands in self.standing],
            [priority[which] for priority in self.key_priorities],
            self.source_row[which],
        )

    def among(self, position: Ints) -> States:
        """The same, of changes that are those at *position* of more."""

        def mapped(stands: Ints) -> Ints:
            return np.where(stands == NOWHERE, NOWHERE, position[stands])

        standing = [mapped(stands) for stands in self.standing]
        ends, row, said_by = mapped(self.ends), mapped(self.row), mapped(self.source_row)
        return States(self.entity, ends, self.dead, row, standing, self.key_priorities, said_by)

    @classmethod
    def joined(cls, some: Sequence[States]) -> States:
        """All states of several."""
        entity, ends, dead, row, standing, priorities, said_by = zip(*some, strict=True)
        return cls(
            np.concatenate(entity),
            np.concatenate(ends),
            np.concatenate(dead),
            np.concatenate(row),
            [np.concatenate(parts) for parts in zip(*standing, strict=True)],
            [np.concatenate(parts) for parts in zip(*priorities, strict=True)],
            np.concatenate(said_by),
        )

    def changed(self, changes: Changes, entity: Ints) -> Bools:
        """Tell which states differ from the one before; *entity* are those of the changes."""
        shared, now, before = changes.share_messages(entity), slice(1, None), slice(None, -1)
        parts: list[tuple[Ints, Differ]] = [(self.row, Differ(changes, shared, changes.priority))]
        for index, stands in enumerate(self.standing):
            priorities = None if index in changes.layout.keys else changes.field_priority(index)
            parts.append((stands, Differ(changes, shared, priorities, index)))
        differs: Bools = np.ones(len(self.ends), dtype=bool)
        plain = (self.entity, self.dead, *self.key_priorities)
        differs[1:] = np.logical_or.reduce(
            [
                *(part[now] != part[before] for part in plain),
                *(differ(part[now], part[before]) for part, differ in parts),
            ]
        )
        return differs


def states(changes: Changes, entity: Ints) -> States:
    """Step 7: the last state of each instant, where it differs from the version before."""
    did = steps(changes, entity)
    of, ends = did.of, _last_of_instants(changes, did.of)
    shared = changes.share_messages(entity)
    differences = _Differences(of.first, ends)
    dead = differences.note(did.dead, np.not_equal)
    row = differences.note(did.row, Differ(changes, shared, changes.priority))
    standing, key_priorities = [], []
    # Field by field: what is kept of each is one number an instant, however much it takes to find it.
    for index in range(len(changes.layout.fields)):
        priority = changes.field_priority(index)
        state = field(changes, did, index, priority)
        if index in changes.layout.keys:
            differ = Differ(changes, shared, None, index)
            ruled = np.where(state.ruling == NOWHERE, 0, priority[state.ruling])
            key_priorities.append(differences.note(ruled, np.not_equal))
        else:
            differ = Differ(changes, shared, priority, index)
        standing.append(differences.note(state.standing, differ))
    said_by = last_where(differences.rows, of)[ends]
    if changes.is_taken_along.any():
        # What a row takes along is no news of the message that once said it.
        said_by = last_where(~changes.is_taken_along, of)[said_by]
    begun = States(entity[ends], ends, dead, row, standing, key_priorities, said_by)
    return begun if differences.instants.all() else begun.select(differences.instants)


def _last_of_instants(changes: Changes, of: Segments) -> Ints:
    instants = changes.instants()
    last = np.ones(len(instants), dtype=bool)
    last[:-1] = of.first[1:] | (instants[1:] != instants[:-1])
    return np.flatnonzero(last)


class _Differences:
    """Where the state differs from the one before: of one change to the next, of one instant to the next."""

    def __init__(self, first: Bools, ends: Ints) -> None:
        self.ends, self.rows = ends, first.copy()
        # An entity's first instant ends where no earlier one of it does.
        self.instants = group_starts(np.cumsum(first, dtype=np.int64)[ends])

    def note(self, part: _Part, differ: Callable[[_Part, _Part], Bools]) -> _Part:
        """Compare one part of the state, which is given for each change; returned is that of each instant."""
        at_ends = part[self.ends]
        self.rows[1:] |= differ(part[1:], part[:-1])
        self.instants[1:] |= differ(at_ends[1:], at_ends[:-1])
        return at_ends


@dataclass(frozen=True)
class Differ:
    """Whether the states (of the row, of a field) that two changes made differ."""

    changes: Changes
    messages_shared: bool
    priority: Ints | None
    """With which each change speaks; None for a key field, whose priority is compared for itself."""
    index: int | None = None
    """The place of the field; None for the row."""

    def __call__(self, left: Ints, right: Ints) -> Bools:
        differs: Bools = left != right
        if not self.messages_shared:
            return differs
        # One message can say the same twice, in two of its records: two positions, one state.
        message, priority = self.changes.message, self.priority
        pairs = differs & (left != NOWHERE) & (right != NOWHERE)
        pairs &= message[left] == message[right]
        if priority is not None:
            pairs &= priority[left] == priority[right]
        alike = np.flatnonzero(pairs)
        if len(alike) and self.index is not None:
            a, b = (self.changes.values_at(self.index, side[alike]) for side in (left, right))
            alike = alike[same_values(a, b)]
        differs[alike] = False
        return differs
