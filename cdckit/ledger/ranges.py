"""
Versions in files by ranges of guids, so that a batch about few entities touches few of the files.

Which file a version is in says nothing about it: a range only tells which files need not be opened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from cdckit.kernel.arrays import ranked
from cdckit.kernel.changes import GUID
from cdckit.ledger.tasks import Held, Paths

OPEN_ROWS = 1024
"""How many open versions a file has at least, where a bucket has so many: each batch writes some again."""

CLOSED_ROWS = 16384
"""The same of closed versions: only late changes write those again."""

_FILES = 16
"""Into about how many files the versions of a large bucket are cut."""


def about(files: Paths, guids: pa.Array) -> Paths:
    """The files that can hold rows of these entities, and those between which a new one's would be."""
    sought = sorted(set(guids.drop_null().cast(pa.large_binary()).to_pylist()))
    ordered = sorted(files, key=lambda one: one.low)
    ends = [one.low for one in ordered[1:]]
    found = []
    for number, one in enumerate(ordered):
        first = bisect_left(sought, one.low) if number else 0
        if first < len(sought) and (
            one.high is None
            or sought[first] <= one.high
            or number == len(ends)
            or sought[first] < ends[number]
        ):
            found.append(one)
    return found


def parts(rows: pa.RecordBatch, among: Paths, at_least: int) -> Iterator[pa.RecordBatch]:
    """
    The rows in the order of their guids, in parts of which each is for one file.

    Args:
        rows: Versions of a bucket.
        among: The files that the table has of the bucket: no part goes on where one of them begins.
        at_least: How many rows a part should have.
    """
    if not rows.num_rows:
        return
    order = ranked(rows.column(GUID))
    if (np.diff(order) < 0).any():
        rows = rows.take(pa.array(np.argsort(order, kind="stable")))
    many = max(at_least, max(rows.num_rows, sum(one.rows for one in among)) // _FILES)
    guids = rows.column(GUID).cast(pa.large_binary())
    lows = sorted(one.low for one in among)[1:]
    starts = [bisect_left(range(len(guids)), low, key=lambda at: _of(guids, at)) for low in lows]
    bounds = sorted({0, *starts, rows.num_rows})
    for begin, end in pairwise(bounds):
        pieces = (end - begin) // many if end - begin > 2 * many else 1
        cuts = np.linspace(begin, end, pieces + 1).astype(int)
        for start, stop in pairwise(cuts):
            yield rows.slice(start, stop - start)


def _of(guids: pa.Array, at: int) -> bytes:
    return guids[at].as_py() or b""


def is_small(one: Held, size: int) -> bool:
    """Whether a file of closed versions should be written together with others."""
    return one.rows < CLOSED_ROWS and one.size < size
