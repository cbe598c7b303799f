"""
Which versions hold at points of two times: one of the world, one of knowledge (NumPy).

A version is a rectangle: it holds from `begins` until `ends` in the world, and is believed from `known` until
`forgotten`.  The moments of knowledge of all keys are the leaves of a tree.  A version stands in the lists of
the nodes that make up the time for which it is believed, at most two of each level; a point looks into one
list of each level, by binary search.  So the work is that of sorting, times the levels that a key needs,
however many versions it has.  (This is Bentley's segment tree of 1977, level by level.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cdckit.parts.running_aggregates import NOWHERE, Bools, Ints

NEVER = np.iinfo(np.int64).max
"""The end of what has none; an end that is told and is the last instant of all is taken for none."""


class Versions(NamedTuple):
    """Versions by number of their key and by their two intervals, closed at the start and open at the end."""

    key: Ints
    begins: Ints
    ends: Ints
    known: Ints
    forgotten: Ints

    def at(self, which: Ints | Bools) -> Versions:
        """Some of them."""
        return Versions(*(column[which] for column in self))


class Points(NamedTuple):
    """What is asked about: a key, an instant of the world, a moment of knowledge."""

    key: Ints
    at: Ints
    known: Ints


class Overlap(Exception):
    """Two versions of one key are in force at once; *version* is the position of the later to begin."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(version)


class _Level(NamedTuple):
    """The lists of all nodes of one level, one behind the other; in each, versions by their begin."""

    height: int
    """How far it is above the leaves."""
    place: Ints
    """Of each entry: its node and the rank of its begin, as one number."""
    version: Ints


class VersionIndex:
    """
    Versions, so arranged that points find them.

    Args:
        versions: Each with a begin before its end, and known before it is forgotten.
        may_overlap: Whether two of one key may be in force at once.  Without it `Overlap` is raised: here
            for two in one list, and for two in different lists by the question of a point that meets both.
    """

    def __init__(self, versions: Versions, *, may_overlap: bool = False) -> None:
        self._versions = versions
        self._times = np.unique(np.concatenate([versions.begins, versions.ends]))
        self._moments = np.unique(np.concatenate([versions.known, versions.forgotten]))
        low, high = (self._moment(versions.key, each) for each in (versions.known, versions.forgotten))
        self._leaves = np.unique(np.concatenate([low, high]))
        low, high = (np.searchsorted(self._leaves, each) for each in (low, high))
        begins = np.searchsorted(self._times, versions.begins)
        self._levels: list[_Level] = []
        for height, node, version in _nodes(low, high):
            place = node * len(self._times) + begins[version]
            order = np.argsort(place, kind="stable")
            self._levels.append(_Level(height, place[order], version[order]))
        if not may_overlap:
            self._require_no_overlap()

    def in_force(self, points: Points, *, just_before: bool = False) -> Ints:
        """
        For each point the version that is in force there, or `NOWHERE`; raises `Overlap` for two.

        With *just_before* it is what ends at the point, or later, and began before it.
        """
        found = np.full(len(points.key), NOWHERE)
        begins = self._versions.begins
        last = self._last_begin(points, just_before)
        for level, node in self._lists_of(points):
            stands = np.searchsorted(level.place, node + last, side="right") - 1
            version, here = self._standing(level, node, stands)
            here &= _has_not_ended(self._versions.ends[version], points, just_before)
            # Both are in force from the later beginning on: that is the instant to tell.
            later = np.where(begins[found] > begins[version], found, version)
            _require_one(here & (found != NOWHERE), later)
            found[here] = version[here]
        return found

    def next_to_begin(self, points: Points, *, later: bool = False) -> Ints:
        """
        For each point the first version that begins there or later, or `NOWHERE`; raises `Overlap` for two.

        With *later* one that begins just there does not count.
        """
        found = np.full(len(points.key), NOWHERE)
        begins = np.full(len(points.key), NEVER)
        first = np.searchsorted(self._times, points.at, side="right" if later else "left")
        for level, node in self._lists_of(points):
            stands = np.searchsorted(level.place, node + first)
            version, here = self._standing(level, node, stands)
            starts = self._versions.begins[version]
            _require_one(here & (found != NOWHERE) & (starts == begins), version)
            here &= starts < begins
            found[here], begins[here] = version[here], starts[here]
        return found

    def any_in_force(self, points: Points, *, just_before: bool = False, or_later: bool = False) -> Bools:
        """Whether any version is in force at each point, or just before it, or will be; they may overlap."""
        found = np.zeros(len(points.key), dtype=bool)
        many = len(self._times)
        last = many - 1 if or_later else self._last_begin(points, just_before)
        ends = np.searchsorted(self._times, self._versions.ends)
        for level, node in self._lists_of(points):
            # The greatest end so far in each list: nodes grow, so that none is carried to the next.
            latest = np.maximum.accumulate(level.place // many * many + ends[level.version])
            stands = np.searchsorted(level.place, node + last, side="right") - 1
            _, here = self._standing(level, node, stands)
            end = self._times[latest[np.maximum(stands, 0)] % many]
            found |= here & _has_not_ended(end, points, just_before)
        return found

    def _last_begin(self, points: Points, just_before: bool) -> Ints:
        """For each point the last of the times at which a version may have begun, if it is in force."""
        return np.searchsorted(self._times, points.at, side="left" if just_before else "right") - 1

    def _moment(self, key: Ints, moment: Ints) -> Ints:
        """
        A key and the last known moment that is not later than this, as one number.

        Before the first there is none, and the number is that of the last moment of the key before.  Nothing
        is believed then: every version is forgotten by the last moment of all.
        """
        return key * len(self._moments) + np.searchsorted(self._moments, moment, side="right") - 1

    def _lists_of(self, points: Points) -> Iterator[tuple[_Level, Ints]]:
        """Each level, and where the list of each point begins in it, as the places are numbered."""
        leaf = np.searchsorted(self._leaves, self._moment(points.key, points.known), side="right") - 1
        for level in self._levels:
            yield level, (leaf >> level.height) * len(self._times)

    def _standing(self, level: _Level, node: Ints, stands: Ints) -> tuple[Ints, Bools]:
        """The versions at these places of a level, and whether they are in the list that was asked."""
        inside = np.clip(stands, 0, len(level.place) - 1)
        offset = level.place[inside] - node
        return level.version[inside], (stands == inside) & (offset >= 0) & (offset < len(self._times))

    def _require_no_overlap(self) -> None:
        for level in self._levels:
            node = level.place // len(self._times)
            begins, ends = (each[level.version] for each in (self._versions.begins, self._versions.ends))
            _require_one((node[1:] == node[:-1]) & (begins[1:] < ends[:-1]), level.version[1:])


def _has_not_ended(ends: Ints, points: Points, just_before: bool) -> Bools:
    # What has no end has not ended, not even at the last instant that there is.
    return (ends >= points.at) if just_before else (ends > points.at) | (ends == NEVER)


def _require_one(two: Bools, version: Ints) -> None:
    if two.any():
        raise Overlap(int(version[np.argmax(two)]))


def _nodes(low: Ints, high: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """
    The nodes of a binary tree that make up spans of its leaves: level, node, and which span each is of.

    From the leaves upwards: a span that begins at a right child, or ends behind a left one, takes that node;
    what is left of it are whole parents.
    """
    which, level = np.arange(len(low)), 0
    while len(which):
        left, right = (low & 1).astype(bool), (high & 1).astype(bool)
        if left.any() or right.any():
            yield (
                level,
                np.concatenate([low[left], high[right] - 1]),
                np.concatenate([which[left], which[right]]),
            )
        low, high = (low + 1) >> 1, high >> 1
        some = low < high
        low, high, which, level = low[some], high[some], which[some], level + 1
