"""
Changes that cannot matter in a run of stretches, whichever of the others hold.

Of a long history most is overruled by what came later, and stays so.  With such changes left out, what is
looked at in each stretch of time is a few changes, not all that the entity ever heard.

What is left out is sure.  It lasts: it holds in every stretch of the run.  It speaks where the entity is
alive, whatever else holds: a change that lasts and has the priority of all before it has seen to that, and no
delete of such a priority came since (between two of these is a *zone*).  It is not the first word of its
priority about the row, and of each field that it carries either

- the word before it is as sure, and says the same with the same priority; or
- a word as sure, later in the zone, has more priority; or two such have its priority and differ;
- of a key field, which keeps its first message, the first word stands before it, and its priority is no more
  than one before it, or less than one after it.

A delete that lasts and has the priority of all before it ends a life for sure.  Where a new one follows in
its zone, and sets every field anew with no less priority than any delete has, all that lasts and stands
before that delete is left out, but for the first upsert: that the entity was there is all that is left of it.

Of an entity that a message speaks of twice nothing is left out: there one word may undo another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cdckit.kernel.arrays import number_values
from cdckit.kernel.changes import Changes, value_column
from cdckit.parts.running_aggregates import Bools, Ints


class Word(NamedTuple):
    """Of every change what it says of one field, as numbers."""

    carries: Bools
    priority: Ints
    value: Ints
    is_key: bool
    renews: Bools
    """Whether the value is taken for sure where the last word about the field is that of a delete."""


class Words(NamedTuple):
    """Of every change what it says, as numbers that compare as what they stand for; priorities from 1 on."""

    is_delete: Bools
    priority: Ints
    is_sole: Bools
    """Whether no message speaks twice of the entity."""
    may_end: Bools
    """Whether the change is a delete of an entity all of whose upserts carry its whole key."""
    fields: list[Word]

    @classmethod
    def of(cls, changes: Changes, entity: Ints) -> Words | None:
        """None where it cannot be said so: keys may change, or some words were taken along."""
        layout = changes.layout
        if layout.by_guid or changes.is_taken_along.any():
            return None
        fields, whole = [], np.ones(len(changes), dtype=bool)
        for index in range(len(layout.fields)):
            said = changes.carries(index) & ~changes.is_delete
            column, priority = (
                changes.table.column(value_column(index)),
                _ranks(changes.field_priority(index)),
            )
            least = _of_entity(np.where(changes.is_delete, priority, 0), entity)
            renews = said & ((priority > least) | ((priority == least) & np.asarray(column.is_valid())))
            fields.append(Word(said, priority, number_values(column), index in layout.keys, renews))
            if index in layout.keys:
                whole &= said | changes.is_delete
        pairs, count = np.unique(np.stack([entity, changes.message]), axis=1, return_counts=True)
        is_sole = ~np.isin(entity, pairs[0][count > 1])
        may_end = changes.is_delete & ~changes.is_absence & ~np.isin(entity, entity[~whole])
        return cls(changes.is_delete, _ranks(changes.priority), is_sole, may_end, fields)


def _of_entity(rank: Ints, entity: Ints) -> Ints:
    """For each change the greatest of the ranks of its entity; entities are numbered, growing."""
    first = np.flatnonzero(_first(entity))
    greatest = np.maximum.reduceat(rank, first)
    return np.repeat(greatest, np.diff(first, append=len(entity)))


def _ranks(priority: Ints) -> Ints:
    ranks: Ints = np.unique(priority, return_inverse=True)[1] + 1
    return ranks


def find_overruled(words: Words, node: Ints, position: Ints, lasting: Bools) -> Bools:
    """
    Which rows cannot matter.

    Args:
        words: Of all changes.
        node: For each row the run of stretches that it is looked at in; growing.
        position: Which change it is; growing within a node.
        lasting: Whether it holds in all of the run.
    """
    is_delete, priority = words.is_delete[position], words.priority[position]
    lasting = lasting & words.is_sole[position]
    upsert = lasting & ~is_delete
    most = _greatest_before(np.where(upsert, priority, 0), node)
    threat: Bools = is_delete & (priority >= most)
    strongest: Bools = priority >= _greatest_before(priority, node)
    firm = upsert & strongest
    zone: Ints = np.cumsum(threat | _first(node))
    begins_alive = ~threat[_first(zone)][zone - 1]
    settled = begins_alive | (_greatest_before(firm.astype(np.int64), zone) > 0)
    sure: Bools = upsert & (settled | firm)
    found: Bools = upsert & settled & (priority <= most)
    for word in words.fields:
        if not found.any():
            break
        at = np.flatnonzero(word.carries[position])
        of = _Field(zone[at], node[at], word.priority[position[at]], word.value[position[at]], sure[at])
        found[at] &= _find_overruled_keys(of) if word.is_key else _find_overruled_values(of)
    # A weak delete finds the entity alive, and stronger than it is.
    found |= lasting & is_delete & ~threat
    ends = lasting & words.may_end[position] & strongest
    renewed = (np.bincount(zone[firm], minlength=zone[-1] + 1) > 0)[zone]
    for word in words.fields:
        if not word.is_key and word.carries[position].any():
            renewed &= (np.bincount(zone[sure & word.renews[position]], minlength=zone[-1] + 1) > 0)[zone]
    # Of each node the last such delete: what stands before it does not matter, but for the first upsert.
    last = np.full(int(node[-1]) + 1, -1)
    at = np.flatnonzero(ends & renewed)
    last[node[at]] = at
    found |= lasting & (np.arange(len(node)) < last[node]) & ~(upsert & (most == 0))
    return found


class _Field(NamedTuple):
    """The rows that carry a field."""

    zone: Ints
    node: Ints
    priority: Ints
    value: Ints
    sure: Bools


def _find_overruled_values(of: _Field) -> Bools:
    zone, priority, value, sure = of.zone, of.priority, of.value, of.sure
    again = np.zeros(len(zone), dtype=bool)
    again[1:] = sure[1:] & sure[:-1] & (zone[1:] == zone[:-1])
    again[1:] &= (priority[1:] == priority[:-1]) & (value[1:] == value[:-1])
    others = np.flatnonzero(sure & ~again)
    most = _greatest_before(_stated_priorities(priority, others)[::-1], zone[-1:] - zone[::-1])[::-1]
    # Of each zone and priority the last two words in a row that differ.
    group = np.unique(np.stack([zone, priority]), axis=1, return_inverse=True)[1].reshape(-1)
    others = others[np.argsort(group[others], kind="stable")]
    one, other = others[:-1], others[1:]
    differ = (group[one] == group[other]) & (value[one] != value[other])
    last = np.full(len(zone) + 1, -1)
    np.maximum.at(last, group[one[differ]], one[differ])
    found: Bools = again | (most > priority) | (last[group] > np.arange(len(zone)))
    return found


def _find_overruled_keys(of: _Field) -> Bools:
    sure = np.flatnonzero(of.sure)
    stated = _stated_priorities(of.priority, sure)
    before = _greatest_before(stated, of.zone)
    behind = _greatest_before(stated[::-1], of.zone[-1:] - of.zone[::-1])[::-1]
    is_there = _greatest_before(stated, of.node) > 0
    found: Bools = (before >= of.priority) | (is_there & (behind > of.priority))
    return found


def _stated_priorities(priority: Ints, at: Ints) -> Ints:
    """The priorities of the rows at these positions, 0 of the others."""
    stated = np.zeros_like(priority)
    stated[at] = priority[at]
    return stated


def _first(number: Ints) -> Bools:
    first = np.ones(len(number), dtype=bool)
    first[1:] = number[1:] != number[:-1]
    return first


def _greatest_before(rank: Ints, segment: Ints) -> Ints:
    """The greatest of the ranks of the rows before, within the segment; 0 if there is none."""
    several = int(rank.max(initial=0)) + 1
    running = np.maximum.accumulate(segment * several + rank)
    before = np.zeros_like(rank)
    before[1:] = np.where(segment[1:] == segment[:-1], running[:-1] - segment[1:] * several, 0)
    return before
