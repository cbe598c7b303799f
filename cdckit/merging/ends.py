"""
Changes with an end: at each instant the fold of those that hold then.

The time of an entity is cut where a change of it ends.  Within such a *stretch* nothing ends, so what holds
only grows, and the merge of `states` serves for each of them: of the changes that hold at its beginning, and
those that begin within it.  What two stretches in a row leave as it was is one version.

An entity with many ends is halved, and each half again, each with the changes that hold at some time within
it; those that cannot matter there are left out (`find_overruled`).  So n changes of which k end cost about
n log k, not n k; but nearly n k where few of them are sure, such as upserts that carry a field or two and
deletes, in turns.

Some changes cannot matter in a run of stretches, whichever of the others hold: of a long history most is
overruled by what came later, and stays so.  With such changes left out, what is looked at in each stretch of
time is a few changes, not all that the entity ever heard.

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

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cdckit.merging.arrow_changes import Changes, value_column
from cdckit.merging.precedence import effective
from cdckit.merging.states import States, states
from cdckit.parts.arrays import NEVER, Bools, Ints, group_starts, number_values


class Word(NamedTuple):
    """What every change says of one field, as numbers."""

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
            is_said = changes.carries(index) & ~changes.is_delete
            column = changes.table.column(value_column(index))
            priority = _ranks(changes.field_priority(index))
            least = _of_entity(np.where(changes.is_delete, priority, 0), entity)
            renews = is_said & ((priority > least) | ((priority == least) & np.asarray(column.is_valid())))
            fields.append(Word(is_said, priority, number_values(column), index in layout.keys, renews))
            if index in layout.keys:
                whole &= is_said | changes.is_delete
        pairs, count = np.unique(np.stack([entity, changes.message]), axis=1, return_counts=True)
        is_sole = ~np.isin(entity, pairs[0][count > 1])
        may_end = changes.is_delete & ~changes.is_absence & ~np.isin(entity, entity[~whole])
        return cls(changes.is_delete, _ranks(changes.priority), is_sole, may_end, fields)


def _of_entity(rank: Ints, entity: Ints) -> Ints:
    """Find for each change the greatest of the ranks of its entity; entities are numbered, growing."""
    first = np.flatnonzero(group_starts(entity))
    greatest = np.maximum.reduceat(rank, first)
    return np.repeat(greatest, np.diff(first, append=len(entity)))


def _ranks(priority: Ints) -> Ints:
    ranks: Ints = np.unique(priority, return_inverse=True)[1] + 1
    return ranks


def find_overruled(words: Words, node: Ints, position: Ints, lasting: Bools) -> Bools:
    """
    Find the rows that cannot matter.

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
    zone: Ints = np.cumsum(threat | group_starts(node))
    begins_alive = ~threat[group_starts(zone)][zone - 1]
    settled = begins_alive | (_greatest_before(firm.astype(np.int64), zone) > 0)
    sure: Bools = upsert & (settled | firm)
    overruled: Bools = upsert & settled & (priority <= most)
    for word in words.fields:
        if not overruled.any():
            break
        at = np.flatnonzero(word.carries[position])
        of = _Field(zone[at], node[at], word.priority[position[at]], word.value[position[at]], sure[at])
        overruled[at] &= _find_overruled_keys(of) if word.is_key else _find_overruled_values(of)
    # A weak delete finds the entity alive, and stronger than it is.
    overruled |= lasting & is_delete & ~threat
    ends = lasting & words.may_end[position] & strongest
    renewed = (np.bincount(zone[firm], minlength=zone[-1] + 1) > 0)[zone]
    for word in words.fields:
        if not word.is_key and word.carries[position].any():
            renewed &= (np.bincount(zone[sure & word.renews[position]], minlength=zone[-1] + 1) > 0)[zone]
    # Of each node the last such delete: what stands before it does not matter, but for the first upsert.
    last = np.full(int(node[-1]) + 1, -1)
    at = np.flatnonzero(ends & renewed)
    last[node[at]] = at
    overruled |= lasting & (np.arange(len(node)) < last[node]) & ~(upsert & (most == 0))
    return overruled


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
    before, other = others[:-1], others[1:]
    differ = (group[before] == group[other]) & (value[before] != value[other])
    last = np.full(len(zone) + 1, -1)
    np.maximum.at(last, group[before[differ]], before[differ])
    overruled: Bools = again | (most > priority) | (last[group] > np.arange(len(zone)))
    return overruled


def _find_overruled_keys(of: _Field) -> Bools:
    sure = np.flatnonzero(of.sure)
    stated = _stated_priorities(of.priority, sure)
    before = _greatest_before(stated, of.zone)
    behind = _greatest_before(stated[::-1], of.zone[-1:] - of.zone[::-1])[::-1]
    is_there = _greatest_before(stated, of.node) > 0
    overruled: Bools = (before >= of.priority) | (is_there & (behind > of.priority))
    return overruled


def _stated_priorities(priority: Ints, at: Ints) -> Ints:
    """The priorities of the rows at these positions, 0 of the others."""
    stated = np.zeros_like(priority)
    stated[at] = priority[at]
    return stated


def _greatest_before(rank: Ints, segment: Ints) -> Ints:
    """The greatest of the ranks of the rows before, within the segment; 0 if there is none."""
    several = int(rank.max(initial=0)) + 1
    running = np.maximum.accumulate(segment * several + rank)
    before = np.zeros_like(rank)
    before[1:] = np.where(segment[1:] == segment[:-1], running[:-1] - segment[1:] * several, 0)
    return before


AT_FIRST = np.iinfo(np.int64).min
"""The beginning of the first stretch of an entity."""

ROWS_AT_ONCE = 1 << 18
"""How many changes of stretches are merged together; of one with more changes, one stretch."""


MANY = 8
"""In how many stretches changes are looked at, at least, before any is left out."""


class Versions(NamedTuple):
    """Versions, sorted by entity and time: their states, and from when until when, in microseconds."""

    states: States
    begin: Ints
    end: Ints
    """`NEVER` while the version is current."""

    def at(self, which: Ints | Bools | slice) -> Versions:
        """Some of the versions."""
        return Versions(self.states.select(which), self.begin[which], self.end[which])

    @classmethod
    def joined(cls, some: Sequence[Versions]) -> Versions:
        """All versions of several."""
        begin, end = (np.concatenate(parts) for parts in zip(*(part[1:] for part in some), strict=True))
        return cls(States.joined([piece.states for piece in some]), begin, end)


class _Stretches(NamedTuple):
    """The stretches of all entities in their order, by time."""

    entity: Ints
    begin: Ints
    end: Ints


def versions_with_ends(changes: Changes, entity: Ints) -> Versions:
    """The versions that come of changes of which some end; none of the changes is a repeat."""
    stretches, instants, parts = _stretches(changes, entity), changes.instants(), [no_versions(changes)]
    roots = _roots(stretches, entity)
    words = Words.of(changes, entity) if (roots.high - roots.low > MANY).any() else None
    for leaves in _leaves(roots, _Times(stretches, instants, changes.until(), words)):
        parts.append(_merge_stretches(changes, leaves, stretches, instants))
    begun, begin, end = Versions.joined(parts)
    new = begun.changed(changes, entity)
    new[1:] |= begin[1:] != end[:-1]
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new))[: len(first)] - 1
    return Versions(begun.select(first), begin[first], end[last])


def _stretches(changes: Changes, entity: Ints) -> _Stretches:
    until = changes.until()
    ended = until != NEVER
    cuts = np.unique(np.stack([entity[ended], until[ended]], axis=1), axis=0)
    every = np.unique(entity)
    whose = np.concatenate([every, cuts[:, 0]])
    begin = np.concatenate([np.full(len(every), AT_FIRST), cuts[:, 1]])
    order = np.lexsort((begin, whose))
    whose, begin = whose[order], begin[order]
    end = np.full(len(begin), NEVER)
    end[:-1] = np.where(whose[1:] == whose[:-1], begin[1:], NEVER)
    return _Stretches(whose, begin, end)


class _Nodes(NamedTuple):
    """Runs of stretches, each with the changes that hold at some time within it."""

    low: Ints
    """The first stretch of each node."""
    high: Ints
    """The stretch behind its last one."""
    node: Ints
    """The node of each row; growing."""
    position: Ints
    """The change of each row; growing within a node."""


def _roots(stretches: _Stretches, entity: Ints) -> _Nodes:
    """One node an entity."""
    low = np.flatnonzero(np.diff(stretches.entity, prepend=-1))
    number = np.cumsum(np.diff(entity, prepend=entity[:1]) != 0)
    return _Nodes(low, np.append(low[1:], len(stretches.entity)), number, np.arange(len(entity)))


class _Times(NamedTuple):
    """What all nodes have in common."""

    stretches: _Stretches
    instants: Ints
    until: Ints
    words: Words | None
    """None where no change is left out."""


def _leaves(nodes: _Nodes, times: _Times) -> Iterator[_Nodes]:
    """Nodes of one stretch each, in the order of these, so many at once as may be merged together."""
    for some in _portions(nodes):
        if (some.high - some.low > 1).any():
            halves = _split_nodes(some, times)
            yield from _leaves(
                halves if times.words is None else _prune_nodes(halves, times, times.words), times
            )
        else:
            yield some


def _portions(nodes: _Nodes) -> Iterator[_Nodes]:
    if len(nodes.node) <= ROWS_AT_ONCE:
        yield nodes
        return
    starts = np.searchsorted(nodes.node, np.arange(len(nodes.low) + 1))
    share = starts[:-1] // ROWS_AT_ONCE
    cuts = np.flatnonzero(np.diff(share, prepend=-1))
    for begin, end in zip(cuts, [*cuts[1:], len(share)], strict=True):
        rows = slice(starts[begin], starts[end])
        node, position = nodes.node[rows] - begin, nodes.position[rows]
        yield _Nodes(nodes.low[begin:end], nodes.high[begin:end], node, position)


def _split_nodes(nodes: _Nodes, times: _Times) -> _Nodes:
    """Each node of several stretches as two, in their order."""
    low, high, wide = nodes.low, nodes.high, nodes.high - nodes.low > 1
    middle = np.where(wide, (low + high) // 2, low)
    left = np.cumsum(1 + wide) - 1 - wide
    lows, highs = np.repeat(low, 1 + wide), np.repeat(high, 1 + wide)
    highs[left[wide]] = lows[left[wide] + 1] = middle[wide]
    cut, is_wide = times.stretches.begin[middle][nodes.node], wide[nodes.node]
    before = ~is_wide | (times.instants[nodes.position] < cut)
    behind = is_wide & (times.until[nodes.position] > cut)
    child = left[nodes.node]
    node = np.concatenate([child[before], child[behind] + 1])
    position = np.concatenate([nodes.position[before], nodes.position[behind]])
    order = np.argsort(node, kind="stable")
    return _Nodes(lows, highs, node[order], position[order])


def _prune_nodes(nodes: _Nodes, times: _Times, words: Words) -> _Nodes:
    """The nodes of many stretches without the changes that cannot matter in them."""
    many = np.flatnonzero((nodes.high - nodes.low > MANY)[nodes.node])
    if not len(many):
        return nodes
    node, position = nodes.node[many], nodes.position[many]
    begin = times.stretches.begin[nodes.low][node]
    end = times.stretches.end[nodes.high - 1][node]
    lasting = (times.instants[position] <= begin) & (times.until[position] >= end)
    keep = np.ones(len(nodes.node), dtype=bool)
    keep[many] = ~find_overruled(words, node, position, lasting)
    return nodes._replace(node=nodes.node[keep], position=nodes.position[keep])


def _merge_stretches(changes: Changes, leaves: _Nodes, stretches: _Stretches, instants: Ints) -> Versions:
    """Merge what stands in each stretch for itself."""
    position, number = leaves.position, leaves.low[leaves.node] + 1
    then = changes.take(position)
    keep = effective(then, number, np.ones(len(then), dtype=bool))
    if not keep.all():
        then, number, position = then.where(keep), number[keep], position[keep]
    if not len(then):
        return no_versions(changes)
    begun = states(then, number).among(position)
    stretch = begun.entity - 1
    begin = np.maximum(instants[begun.ends], stretches.begin[stretch])
    follows = np.append(stretch[1:] == stretch[:-1], False)
    end = np.where(follows, np.append(begin[1:], NEVER), stretches.end[stretch])
    # Of what stood before the stretch begins, only the last counts.
    lasts = begin < end
    begun = begun._replace(entity=stretches.entity[stretch])
    return Versions(begun, begin, end).at(lasts)


def no_versions(changes: Changes) -> Versions:
    """None, in the form of others."""
    none = np.empty(0, dtype=np.int64)
    standing, priorities = [none] * len(changes.layout.fields), [none] * len(changes.layout.keys)
    return Versions(States(none, none, none.astype(bool), none, standing, priorities, none), none, none)
