"""Points of two times among rectangles: what the workers of `as_of_join` search, without Spark."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from cdckit.parts.arrays import NOWHERE
from cdckit.query.as_of_join_kernel import (
    NEVER,
    REASONS,
    LookupRule,
    Overlap,
    Points,
    VersionIndex,
    Versions,
    answer_points,
)
from support.searching import searched
from tools.tiers import seeds

Row = dict[str, Any]
Rectangle = tuple[int, int, int, int, int]


def versions_of(*rectangles: Rectangle) -> Versions:
    """Each: key, begin, end, known since, forgotten at."""
    return Versions(*np.array(rectangles, dtype=np.int64).reshape(-1, 5).T)


def points_at(*points: tuple[int, int, int]) -> Points:
    """Each: key, instant, moment of knowledge."""
    return Points(*np.array(points, dtype=np.int64).reshape(-1, 3).T)


def test_intervals_are_closed_at_their_start_and_open_at_their_end() -> None:
    index = VersionIndex(versions_of((0, 10, 20, 5, 8)))
    inside = points_at((0, 10, 5), (0, 19, 7))
    outside = points_at((0, 9, 5), (0, 20, 5), (0, 10, 4), (0, 10, 8), (1, 10, 5))
    assert index.in_force(inside).tolist() == [0, 0]
    assert index.in_force(outside).tolist() == [NOWHERE] * 5


def test_each_moment_has_beliefs_of_its_own() -> None:
    """First 1 from 10 on; then, from moment 6 on, 1 until 15 and 2 from there; at 9 all is forgotten."""
    index = VersionIndex(versions_of((0, 10, NEVER, 5, 6), (0, 10, 15, 6, 9), (0, 15, NEVER, 6, 9)))
    assert index.in_force(points_at((0, 20, 5), (0, 20, 6), (0, 12, 8), (0, 12, 9))).tolist() == [
        0,
        2,
        1,
        -1,
    ]
    assert index.next_to_begin(points_at((0, 11, 5), (0, 11, 6), (0, 10, 6))).tolist() == [-1, 2, 1]


def test_no_versions_and_no_points() -> None:
    assert VersionIndex(versions_of()).in_force(points_at((0, 1, 1))).tolist() == [NOWHERE]
    assert VersionIndex(versions_of((0, 1, 2, 1, 2))).next_to_begin(points_at()).tolist() == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, 10, 20, 1, NEVER), (0, 19, 30, 1, NEVER)),
        ((0, 10, 20, 1, 9), (0, 15, 30, 4, 6)),
        ((0, 10, NEVER, 1, 6), (0, 10, 11, 3, NEVER)),
    ],
)
def test_two_versions_at_one_point_are_never_chosen_from(one: Rectangle, other: Rectangle) -> None:
    at, known = max(one[1], other[1]), max(one[3], other[3])
    for both in ((one, other), (other, one)):
        with pytest.raises(Overlap) as found:
            VersionIndex(versions_of(*both)).in_force(points_at((0, at, known)))
        assert both[found.value.version][1] == at, "the later beginning is the instant to tell"


def test_versions_that_are_believed_one_after_the_other_do_not_overlap() -> None:
    index = VersionIndex(versions_of((0, 10, 20, 1, 4), (0, 15, 30, 4, 6)))
    assert index.in_force(points_at((0, 16, 3), (0, 16, 4))).tolist() == [0, 1]


def test_at_the_last_instant_there_is_what_has_no_end_is_in_force_and_nothing_begins_later() -> None:
    first, last = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    index = VersionIndex(versions_of((0, first, 10, 1, NEVER), (0, 10, NEVER, 1, NEVER)))
    ends = points_at((0, first, 1), (0, last, 1))
    assert index.in_force(ends).tolist() == [0, 1]
    assert index.in_force(ends, just_before=True).tolist() == [NOWHERE, 1]
    assert index.next_to_begin(ends).tolist() == [0, NOWHERE]
    assert index.next_to_begin(ends, later=True).tolist() == [1, NOWHERE]
    assert index.any_in_force(ends, just_before=True).tolist() == [False, True]


@seeds(1, 2, soak=20)
def test_every_point_finds_what_a_search_through_all_versions_finds(seed: int) -> None:
    """3,000 keys with several beliefs, all options crossed."""
    chance = random.Random(seed)
    rows = [row for key in range(1_500) for row in random_beliefs(chance, key)]
    chance.shuffle(rows)
    of_key: dict[int, list[Row]] = {}
    for place, row in enumerate(rows):
        of_key.setdefault(row["key"], []).append({**row, "place": place})
    names = ("key", "valid_from_timestamp", "valid_to_timestamp", "known", "forgotten")
    columns = [[NEVER if row[name] is None else row[name] for row in rows] for name in names]
    versions = Versions(*(np.array(column, dtype=np.int64) for column in columns))
    deleted = np.array([row["deleted_indicator"] for row in rows])
    drawn = [
        (chance.randrange(1_550), chance.randrange(-2, 22), chance.randrange(-1, 18)) for _ in range(5_000)
    ]
    has_time = np.array([chance.random() < 0.95 for _ in drawn])
    for direction in ("backward", "forward", "nearest"):
        for strictly in (False, True):
            for tolerance in (None, 0, 2):
                limit = NEVER if tolerance is None else tolerance
                how = LookupRule("found", 0, direction, strictly, limit, reason=True)
                found = answer_points(versions, deleted, points_at(*drawn), has_time, how)
                for place, (key, at, known) in enumerate(drawn):
                    ever = of_key.get(key, [])
                    believed = [row for row in ever if row["known"] <= known < (row["forgotten"] or NEVER)]
                    options = {"direction": direction, "strictly": strictly, "tolerance": tolerance}
                    version, why = searched(believed, at, **options)
                    later = [row for row in ever if row["known"] > known]
                    asked = {"direction": direction, "strictly": strictly}
                    if why == "no version" and any(searched([row], at, **asked)[0] for row in later):
                        why = "not yet known"
                    if not has_time[place]:
                        version, why = None, "no time"
                    assert found.version[place] == (NOWHERE if version is None else version["place"])
                    assert version is not None or REASONS[found.reason[place]] == why


def random_beliefs(chance: random.Random, key: int) -> list[Row]:
    """Epochs of knowledge, in each of which there are some versions that do not overlap."""
    rows = []
    known = chance.randrange(5)
    for _ in range(chance.randrange(5)):
        forgotten = None if chance.random() < 0.3 else known + chance.randrange(1, 4)
        at = chance.randrange(6)
        for _ in range(chance.randrange(5)):
            ends = None if chance.random() < 0.2 else at + chance.randrange(1, 4)
            rows.append(
                {
                    "key": key,
                    "valid_from_timestamp": at,
                    "valid_to_timestamp": ends,
                    "known": known,
                    "forgotten": forgotten,
                    "deleted_indicator": chance.random() < 0.2,
                }
            )
            if ends is None:
                break
            at = ends + chance.randrange(3)
        if forgotten is None:
            break
        known = forgotten + chance.randrange(2)
    return rows
