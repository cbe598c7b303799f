"""Which version a fact gets by the options of its lookup, and why it gets none (NumPy)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cdckit.parts.running_aggregates import NOWHERE, Bools, Ints
from cdckit.query.lookups import Lookup
from cdckit.query.points import NEVER, Overlap, Points, VersionIndex, Versions

REASONS = ("no version", "deleted", "too old", "too far ahead", "not yet known", "no time")
NO_VERSION, DELETED, TOO_OLD, TOO_FAR, NOT_YET, NO_TIME = range(len(REASONS))

ANY = np.iinfo(np.uint64).max
"""The tolerance that passes every distance: from Spark's least instant to its greatest it is as much."""

Distances = NDArray[np.uint64]


@dataclass(frozen=True)
class How:
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
    def of(lookup: Lookup, source: int) -> How:
        """The same without its table."""
        most = lookup.tolerance
        tolerance = ANY if most is None else min(ANY, most // timedelta(microseconds=1))
        gives_reason = lookup.reason is not None
        return How(lookup.into, source, lookup.direction, lookup.strictly, tolerance, gives_reason)


class Answers(NamedTuple):
    """For each point its version, by position, or `NOWHERE`; and if so why, by its place in `REASONS`."""

    version: Ints
    reason: Ints


def answered(versions: Versions, deleted: Bools, points: Points, has_time: Bools, how: How) -> Answers:
    """
    What the points find; raises `Overlap` where that could be two versions.

    Args:
        versions: Those of all keys, deleted ones too if the reason is asked for.
        deleted: Which of them are.
        points: Of the facts; nothing is found where not *has_time*.
        has_time: Whether a fact has the times at which it asks.
        how: The options of the lookup.
    """
    alive = np.flatnonzero(~deleted)
    # Points that look into the same lists come together: of a key with many beliefs, three times as fast.
    order = np.lexsort((points.known, points.key))
    points, has_time = Points(*(column[order] for column in points)), has_time[order]
    try:
        found, distance, ahead = _nearest(versions.at(alive), points, how)
    except Overlap as overlap:
        raise Overlap(int(alive[overlap.version])) from None
    version = np.append(alive, NOWHERE)[found]
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


def _nearest(alive: Versions, points: Points, how: How) -> tuple[Ints, Distances, Bools]:
    """For each point a version or `NOWHERE`, how far from the point it begins, and whether it is ahead."""
    index = VersionIndex(alive)
    # Where nothing is found, NOWHERE takes the last one of these.
    begins = np.append(alive.begins, 0)
    found = np.full(len(points.key), NOWHERE)
    distance, ahead = np.zeros(len(found), dtype=np.uint64), np.zeros(len(found), dtype=bool)
    if how.direction != "forward":
        found = index.in_force(points, just_before=how.strictly)
        distance = _time_between(begins[found], points.at)
    if how.direction != "backward":
        later = index.next_to_begin(points, later=how.strictly)
        until = _time_between(points.at, begins[later])
        ahead = (later != NOWHERE) & ((found == NOWHERE) | (until < distance))
        found, distance = np.where(ahead, later, found), np.where(ahead, until, distance)
    return found, distance, ahead


def _time_between(first: Ints, second: Ints) -> Distances:
    """How long it is from each to what is not before it: exact, where the difference of two longs is not."""
    return second.view(np.uint64) - first.view(np.uint64)


def _reasons(versions: Versions, deleted: Bools, points: Points, how: How) -> Ints:
    """Why there is nothing at each point, if there is nothing."""
    first = np.full(1 + max(versions.key.max(initial=0), points.key.max(initial=0)), NEVER)
    np.minimum.at(first, versions.key, versions.known)
    first_known = first[points.key]
    not_yet = (first_known != NEVER) & (first_known > points.known)
    reason = np.where(not_yet, NOT_YET, NO_VERSION)
    gone = VersionIndex(versions.at(deleted), may_overlap=True)
    # Nearest looks both ways, and just before an instant something else may be in force than at it.
    if how.direction != "forward":
        reason[gone.any_in_force(points, just_before=how.strictly)] = DELETED
    if how.direction != "backward":
        reason[gone.any_in_force(points, or_later=True)] = DELETED
    return reason
