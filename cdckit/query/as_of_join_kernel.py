"""
Which version each fact gets, found by workers in sorted batches (NumPy): by one time, or by two.

A version is a rectangle: it holds from `begins` until `ends` in the world, and is believed from `known` until
`forgotten`.  The moments of knowledge of all keys are the leaves of a tree.  A version stands in the lists of
the nodes that make up the time for which it is believed, at most two of each level; a point looks into one
list of each level, by binary search.  So the work is that of sorting, times the levels that a key needs,
however many versions it has.  (This is Bentley's segment tree of 1977, level by level.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import and_
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as T

from cdckit.parts.arrays import (
    NEVER,
    NOWHERE,
    ROWS_AT_ONCE,
    Bools,
    Ints,
    bools,
    ints,
    number_values,
    positions,
    whole_entities,
)
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.query.lookups import Lookup

SOURCE = "source"
"""The source of a version; null for a fact."""

AT, UNTIL = "at", "until"
"""When a version begins and ends in the world; the first is the time at which a fact asks."""

KNOWN, FORGOTTEN = "known", "forgotten"
"""When a version begins and ends to be believed; the first is the moment of knowledge of a fact."""

IS_DELETED = "deleted"
"""Whether a version is deleted."""


class Versions(NamedTuple):
    """Versions by number of their key and by their two intervals, closed at the start and open at the end."""

    key: Ints
    begins: Ints
    ends: Ints
    known: Ints
    forgotten: Ints

    def select(self, which: Ints | Bools) -> Versions:
        """Some of them."""
        return Versions(*(column[which] for column in self))


class Points(NamedTuple):
    """What is asked about: a key, an instant of the world, a moment of knowledge."""

    key: Ints
    valid_at: Ints
    known_at: Ints


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
    """The node of each entry and the rank of its begin, as one number."""
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
        low, high = (self._moment(versions.key, moments) for moments in (versions.known, versions.forgotten))
        self._leaves = np.unique(np.concatenate([low, high]))
        low, high = (np.searchsorted(self._leaves, bound) for bound in (low, high))
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
        Find for each point the version that is in force there, or `NOWHERE`; raises `Overlap` for two.

        With *just_before* it is what ends at the point, or later, and began before it.
        """
        versions = np.full(len(points.key), NOWHERE)
        begins = self._versions.begins
        last = self._last_begin(points, just_before)
        for level, node in self._lists_of(points):
            stands = np.searchsorted(level.place, node + last, side="right") - 1
            version, here = self._listed_versions(level, node, stands)
            here &= _is_in_force(self._versions.ends[version], points, just_before)
            # Both are in force from the later beginning on: that is the instant to tell.
            later = np.where(begins[versions] > begins[version], versions, version)
            _require_one(here & (versions != NOWHERE), later)
            versions[here] = version[here]
        return versions

    def next_to_begin(self, points: Points, *, later: bool = False) -> Ints:
        """
        Find for each point the first version that begins there or later; raises `Overlap` for two.

        With *later* one that begins just there does not count.
        """
        versions = np.full(len(points.key), NOWHERE)
        begins = np.full(len(points.key), NEVER)
        first = np.searchsorted(self._times, points.valid_at, side="right" if later else "left")
        for level, node in self._lists_of(points):
            stands = np.searchsorted(level.place, node + first)
            version, here = self._listed_versions(level, node, stands)
            starts = self._versions.begins[version]
            _require_one(here & (versions != NOWHERE) & (starts == begins), version)
            here &= starts < begins
            versions[here], begins[here] = version[here], starts[here]
        return versions

    def any_in_force(self, points: Points, *, just_before: bool = False, or_later: bool = False) -> Bools:
        """Tell whether any version is in force at each point, or was just before it, or will be."""
        hits = np.zeros(len(points.key), dtype=bool)
        many = len(self._times)
        last = many - 1 if or_later else self._last_begin(points, just_before)
        ends = np.searchsorted(self._times, self._versions.ends)
        for level, node in self._lists_of(points):
            # The greatest end so far in each list: nodes grow, so that none is carried to the next.
            latest = np.maximum.accumulate(level.place // many * many + ends[level.version])
            stands = np.searchsorted(level.place, node + last, side="right") - 1
            _, here = self._listed_versions(level, node, stands)
            end = self._times[latest[np.maximum(stands, 0)] % many]
            hits |= here & _is_in_force(end, points, just_before)
        return hits

    def _last_begin(self, points: Points, just_before: bool) -> Ints:
        """Find for each point the last of the times at which a version may have begun, if it is in force."""
        return np.searchsorted(self._times, points.valid_at, side="left" if just_before else "right") - 1

    def _moment(self, key: Ints, moment: Ints) -> Ints:
        """
        A key and the last known moment that is not later than this, as one number.

        Before the first there is none, and the number is that of the last moment of the key before.  Nothing
        is believed then: every version is forgotten by the last moment of all.
        """
        return key * len(self._moments) + np.searchsorted(self._moments, moment, side="right") - 1

    def _lists_of(self, points: Points) -> Iterator[tuple[_Level, Ints]]:
        """Each level, and where the list of each point begins in it, as the places are numbered."""
        leaf = np.searchsorted(self._leaves, self._moment(points.key, points.known_at), side="right") - 1
        for level in self._levels:
            yield level, (leaf >> level.height) * len(self._times)

    def _listed_versions(self, level: _Level, node: Ints, stands: Ints) -> tuple[Ints, Bools]:
        """The versions at these places of a level, and whether they are in the list that was asked."""
        inside = np.clip(stands, 0, len(level.place) - 1)
        offset = level.place[inside] - node
        return level.version[inside], (stands == inside) & (offset >= 0) & (offset < len(self._times))

    def _require_no_overlap(self) -> None:
        for level in self._levels:
            node = level.place // len(self._times)
            begins, ends = (bounds[level.version] for bounds in (self._versions.begins, self._versions.ends))
            _require_one((node[1:] == node[:-1]) & (begins[1:] < ends[:-1]), level.version[1:])


def _is_in_force(ends: Ints, points: Points, just_before: bool) -> Bools:
    # What has no end has not ended, not even at the last instant that there is.
    return (ends >= points.valid_at) if just_before else (ends > points.valid_at) | (ends == NEVER)


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


REASONS = ("no version", "deleted", "too old", "too far ahead", "not yet known", "no time", "no key")
NO_VERSION, DELETED, TOO_OLD, TOO_FAR, NOT_YET, NO_TIME, NO_KEY = range(len(REASONS))

ANY = np.iinfo(np.uint64).max
"""The tolerance that passes every distance: from Spark's least instant to its greatest it is as much."""

Distances = NDArray[np.uint64]


@dataclass(frozen=True)
class LookupRule:
    """
    How a lookup is asked: what workers need of a `Lookup`.

    *source* is the place of its versions among those of the lookups with the same key, *tolerance* is in
    microseconds.
    """

    into: str
    source: int
    direction: str
    strictly: bool
    tolerance: int
    reason: bool

    @staticmethod
    def from_lookup(lookup: Lookup, source: int) -> LookupRule:
        """Take what a lookup says, without its table."""
        most = lookup.tolerance
        tolerance = ANY if most is None else min(ANY, most // timedelta(microseconds=1))
        gives_reason = lookup.reason is not None
        return LookupRule(lookup.into, source, lookup.direction, lookup.strictly, tolerance, gives_reason)


class Answers(NamedTuple):
    """For each point its version, by position, or `NOWHERE`; and if so why, by its place in `REASONS`."""

    version: Ints
    reason: Ints


def answer_points(
    versions: Versions, deleted: Bools, points: Points, has_time: Bools, how: LookupRule
) -> Answers:
    """
    Find what the points find; raises `Overlap` where that could be two versions.

    Args:
        versions: Those of all keys, deleted ones too if the reason is asked for.
        deleted: Which of them are.
        points: Of the facts; nothing is found where not *has_time*.
        has_time: Whether a fact has the times at which it asks.
        how: The options of the lookup.
    """
    alive = np.flatnonzero(~deleted)
    # Points that look into the same lists come together: of a key with many beliefs, three times as fast.
    order = np.lexsort((points.known_at, points.key))
    points, has_time = Points(*(column[order] for column in points)), has_time[order]
    try:
        nearest, distance, ahead = _nearest(versions.select(alive), points, how)
    except Overlap as overlap:
        raise Overlap(int(alive[overlap.version])) from None
    version = np.append(alive, NOWHERE)[nearest]
    reason = np.full(len(version), NO_VERSION)
    if how.reason:
        reason = _reasons(versions, deleted, points, how)
    far = (version != NOWHERE) & (distance > np.uint64(how.tolerance))
    reason[far] = np.where(ahead[far], TOO_FAR, TOO_OLD)
    reason[~has_time] = NO_TIME
    version[far | ~has_time] = NOWHERE
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return Answers(version[back], reason[back])


def _nearest(alive: Versions, points: Points, how: LookupRule) -> tuple[Ints, Distances, Bools]:
    """Find for each point a version or `NOWHERE`, how far away it begins, and whether it is ahead."""
    index = VersionIndex(alive)
    # Where nothing is found, NOWHERE takes the last one of these.
    begins = np.append(alive.begins, 0)
    nearest = np.full(len(points.key), NOWHERE)
    distance, ahead = np.zeros(len(nearest), dtype=np.uint64), np.zeros(len(nearest), dtype=bool)
    if how.direction != "forward":
        nearest = index.in_force(points, just_before=how.strictly)
        distance = _time_between(begins[nearest], points.valid_at)
    if how.direction != "backward":
        later = index.next_to_begin(points, later=how.strictly)
        until = _time_between(points.valid_at, begins[later])
        ahead = (later != NOWHERE) & ((nearest == NOWHERE) | (until < distance))
        nearest, distance = np.where(ahead, later, nearest), np.where(ahead, until, distance)
    return nearest, distance, ahead


def _time_between(first: Ints, second: Ints) -> Distances:
    """Measure from each to what is not before it: exact, where the difference of two longs is not."""
    return second.view(np.uint64) - first.view(np.uint64)


def _reasons(versions: Versions, deleted: Bools, points: Points, how: LookupRule) -> Ints:
    """Why there is nothing at each point, if there is nothing."""
    reason = np.full(len(points.key), NO_VERSION)
    learnt = versions.select(~deleted & (versions.known > _ALWAYS))
    before = learnt._replace(known=np.full(len(learnt.key), _ALWAYS), forgotten=learnt.known)
    deletes = VersionIndex(versions.select(deleted), may_overlap=True)
    # Nearest looks both ways, and just before an instant something else may be in force than at it.
    if how.direction != "forward":
        unknown = VersionIndex(before, may_overlap=True)
        reason[unknown.any_in_force(points, just_before=how.strictly)] = NOT_YET
    if how.direction != "backward":
        begins = VersionIndex(before._replace(ends=before.begins + 1), may_overlap=True)
        from_then = points._replace(valid_at=points.valid_at + int(how.strictly))
        reason[begins.any_in_force(from_then, or_later=True)] = NOT_YET
    if how.direction != "forward":
        reason[deletes.any_in_force(points, just_before=how.strictly)] = DELETED
    if how.direction != "backward":
        reason[deletes.any_in_force(points, or_later=True)] = DELETED
    return reason


_ALWAYS = np.iinfo(np.int64).min


STAND, REASON = "stand", "reason"
"""What is said of a row for each lookup: where the version stands that a fact gets, and why it gets none."""

OVERLAP = "overlap"
"""Into which lookup a version goes that overlaps with another one."""


def answer_columns(hows: Sequence[LookupRule]) -> T.StructType:
    """Name what is said of each row."""
    schema = T.StructType().add(OVERLAP, T.StringType())
    for index, how in enumerate(hows):
        schema = schema.add(answer_column(STAND, index), T.LongType())
        if how.reason:
            schema = schema.add(answer_column(REASON, index), T.StringType())
    return schema


def answer_column(kind: str, index: int) -> str:
    """The name of a column of one lookup."""
    return f"{kind}_{index}"


def answer_batches(
    batches: Iterable[pa.RecordBatch], group: str, key: Sequence[str], hows: Sequence[LookupRule]
) -> Iterator[pa.RecordBatch]:
    """
    Answer each row, of which those of a group lie together: where it stands, and each fact's version.

    Of a version, its own place among all rows; of a fact, the place of the version that it gets, or null.
    """
    schema = arrow_schema(answer_columns(hows))
    begin = 0
    for table in whole_entities(batches, [group]):
        answer = _answer_table(table, begin, key, hows)
        begin += table.num_rows
        result = make_batch(
            {name: answer.get(name, pa.nulls(table.num_rows)) for name in schema.names}, schema
        )
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            yield result.slice(start, ROWS_AT_ONCE)


def _answer_table(
    table: pa.RecordBatch, begin: int, key: Sequence[str], hows: Sequence[LookupRule]
) -> dict[str, pa.Array]:
    """Write the answers to rows of whole groups, the first of which stands at *begin*; nothing where null."""
    parts = [table.column(name) for name in key]
    number = number_values(pa.StructArray.from_arrays(parts, list(key)))
    lacks_key = reduce(and_, (np.asarray(part.is_null()) for part in parts))
    source = ints(table.column(SOURCE).fill_null(NOWHERE))
    facts = np.flatnonzero(source == NOWHERE)
    place = np.arange(begin, begin + table.num_rows)
    columns: dict[str, pa.Array] = {}
    for index, how in enumerate(hows):
        rows = np.flatnonzero(source == how.source)
        try:
            answers = _answers(table, number, facts, rows, how)
        except Overlap as overlap:
            return {OVERLAP: _scatter(table.num_rows, rows[[overlap.version]], pa.array([how.into]))}
        # Where nothing is found, NOWHERE takes the last one of these.
        stands = place.copy()
        stands[facts] = np.append(place[rows], NOWHERE)[answers.version]
        columns[answer_column(STAND, index)] = positions(stands)
        if how.reason:
            lacks = answers.version == NOWHERE
            reason = np.where(lacks_key[facts], NO_KEY, answers.reason)
            why = pa.array(REASONS).take(pa.array(reason[lacks]))
            columns[answer_column(REASON, index)] = _scatter(table.num_rows, facts[lacks], why)
    return columns


def _scatter(count: int, rows: Ints, values: pa.Array) -> pa.Array:
    """So many values: these in some rows, null in all others."""
    places = np.full(count, NOWHERE)
    places[rows] = np.arange(len(rows))
    return values.take(positions(places))


def _answers(table: pa.RecordBatch, number: Ints, facts: Ints, rows: Ints, how: LookupRule) -> Answers:
    """Find what the facts in some rows find among the versions in others; raises `Overlap`."""
    points, has_time = _points(table, number, facts)
    begins, known_from = (_micros(table, name, rows, _ALWAYS) for name in (AT, KNOWN))
    ends, forgotten = (_micros(table, name, rows, NEVER) for name in (UNTIL, FORGOTTEN))
    versions = Versions(number[rows], begins, ends, known_from, forgotten)
    deleted = bools(table.column(IS_DELETED).take(pa.array(rows)))
    return answer_points(versions, deleted, points, has_time, how)


def _points(table: pa.RecordBatch, number: Ints, facts: Ints) -> tuple[Points, Bools]:
    """The points at which facts ask, and which facts have the times to ask."""
    at, known_at = (_micros(table, name, facts, _ALWAYS) for name in (AT, KNOWN))
    has_time = np.ones(len(facts), dtype=bool)
    for name in {AT, KNOWN} & set(table.schema.names):
        has_time &= np.asarray(table.column(name).is_valid())[facts]
    return Points(number[facts], np.where(has_time, at, 0), known_at), has_time


def _micros(table: pa.RecordBatch, name: str, rows: Ints, instead: int) -> Ints:
    """The instants in some rows; what is not there is *instead*."""
    if name not in table.schema.names:
        return np.full(len(rows), instead)
    return ints(table.column(name).take(pa.array(rows)).cast(pa.int64()).fill_null(instead))
