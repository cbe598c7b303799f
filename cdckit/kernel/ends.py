"""
Changes with an end: at each instant the fold of those that hold then.

The time of an entity is cut where a change of it ends.  Within such a *stretch* nothing ends, so what holds
only grows, and the merge of `states` serves for each of them: of the changes that hold at its beginning, and
those that begin within it.  What two stretches in a row leave as it was is one version.

An entity with many ends is halved, and each half again, each with the changes that hold at some time within
it; those that cannot matter there are left out (`find_overruled`).  So n changes of which k end cost about
n log k, not n k; but nearly n k where few of them are sure, such as upserts that carry a field or two and
deletes, in turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cdckit.kernel.changes import Changes
from cdckit.kernel.overruled import Words, find_overruled
from cdckit.kernel.states import States, effective, states
from cdckit.parts.running_aggregates import NEVER, Bools, Ints

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
        begin, end = (np.concatenate(parts) for parts in zip(*(each[1:] for each in some), strict=True))
        return cls(States.joined([each.states for each in some]), begin, end)


class _Stretches(NamedTuple):
    """Of all entities in their order, by time."""

    entity: Ints
    begin: Ints
    end: Ints


def versions_with_ends(changes: Changes, entity: Ints) -> Versions:
    """The versions that come of changes of which some end; none of the changes is a repeat."""
    stretches, instants, found = _stretches(changes, entity), changes.instants(), [no_versions(changes)]
    roots = _roots(stretches, entity)
    words = Words.of(changes, entity) if (roots.high - roots.low > MANY).any() else None
    for leaves in _leaves(roots, _Times(stretches, instants, changes.until(), words)):
        found.append(_merge_stretches(changes, leaves, stretches, instants))
    begun, begin, end = Versions.joined(found)
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
    """Of each node the first stretch."""
    high: Ints
    """Behind its last one."""
    node: Ints
    """Of each row the node; growing."""
    position: Ints
    """And which change it is; growing within a node."""


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
    """What stands in each stretch for itself."""
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
