"""
Precedence: which of two changes decides what stands, of an entity as a whole and of each of its fields.

The higher priority wins, whichever change came first.  Of equal priorities the later change wins, in the
order in which changes count (`cdckit.model.changes.ORDER`): by their times and, at one instant, by sequence,
arrival, message and source.  So where two sources of equal priority speak of a value at one instant, that
order says who wins the tie.  A delete ends what its priority allows, and what stands before a new life counts
for none of its fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cdckit.merging.arrow_changes import Changes
from cdckit.parts.arrays import (
    NOWHERE,
    Bools,
    Ints,
    Segments,
    greatest_before,
    last_where,
    ranked,
    row_before,
    same_values,
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
    """It would have won, but repeated the value that stood, with its priority."""
    confirms: Bools
    """Of a key field: it repeated the value that stood; the older message stays, with this priority."""
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
    again = _find_equal(changes, index, again, before)
    equal = again & (priority == priority[before])
    confirms = again & ~equal
    ruling = last_where(wins & ~equal, of)
    standing = last_where(wins & ~again, of) if is_key else ruling
    return Field(is_set, equal, confirms, standing, ruling)


def _find_equal(changes: Changes, index: int, candidates: Bools, before: Ints) -> Bools:
    """Find those of the changes *candidates* about that say the same value as the one at *before*."""
    if changes.layout.tells_apart(index):
        return candidates
    at = np.flatnonzero(candidates)
    equal = np.zeros_like(candidates)
    equal[at] = same_values(changes.values_at(index, at), changes.values_at(index, before[at]))
    return equal


def counting_changes(changes: Changes, entity: Ints) -> Bools:
    """
    All but repeats, deletes before the first upsert of an entity, and absences of what is not alive.

    Entities are numbered from 1, growing.
    """
    return effective(changes, entity, ~changes.find_repeats(entity))


def effective(changes: Changes, entity: Ints, keep: Bools) -> Bools:
    """Keep, of the changes to *keep*, all but such deletes and absences."""
    keep = keep & (last_where(keep & ~changes.is_delete, segments(entity)) != NOWHERE)
    if (keep & changes.is_absence).any():
        keep &= ~changes.is_absence | _find_alive(changes, entity, keep)
    return keep


def _find_alive(changes: Changes, entity: Ints, keep: Bools) -> Bools:
    """
    Find the absences that stand where the entity is alive.

    What one of them finds depends on those before it.  So all are taken for deletes at first, and what
    they find then is right up to the first that is wrong; with that one left out it is right up to the
    next, and so on.  One that is wrong matters only where it raises the priority of a delete, so the
    rounds are about as many as priorities, not as absences.
    """
    of = segments(entity)
    alive = np.ones(len(changes), dtype=bool)
    while True:
        tried = keep & (~changes.is_absence | alive)
        dead = np.zeros(len(changes), dtype=bool)
        dead[tried] = steps(changes.where(tried), entity[tried]).dead
        before = row_before(last_where(tried, of), of)
        is_alive: Bools = (before == NOWHERE) | ~dead[before]
        if (is_alive == alive)[keep & changes.is_absence].all():
            return is_alive
        alive = is_alive
