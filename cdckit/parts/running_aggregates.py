"""Running aggregates over sorted rows, restarting where a new segment begins (NumPy).

A segment is the run of rows of one entity.  Positions grow along the rows, so a running maximum of
positions needs no restart: what it carries over from an earlier segment is known by being smaller
than the position at which the segment starts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

NOWHERE = -1

NEVER = np.iinfo(np.int64).max
"""In place of an instant, in microseconds: the end of what has none."""

_PRIORITY_BITS = 32
_PRIORITY_OFFSET = 1 << 31


class Segments(NamedTuple):
    """For every row: whether it begins a segment, where its segment begins, and which one it is."""

    first: Bools
    start: Ints
    number: Ints
    positions: Ints


def segments(number: Ints) -> Segments:
    """The segments of rows that are numbered by segment, from 1 or more, growing."""
    first = np.ones(len(number), dtype=bool)
    first[1:] = number[1:] != number[:-1]
    positions = np.arange(len(number))
    return Segments(first, np.maximum.accumulate(np.where(first, positions, 0)), number, positions)


def last_where(marked: Bools, of: Segments) -> Ints:
    """For every row the position of the last marked row of its segment so far, itself included."""
    found = np.maximum.accumulate(np.where(marked, of.positions, NOWHERE))
    found[found < of.start] = NOWHERE
    return found


def row_before(values: Ints, of: Segments) -> Ints:
    """Every row's value moved down by one row, `NOWHERE` at the start of a segment."""
    moved = np.empty_like(values)
    moved[1:] = values[:-1]
    moved[of.first] = NOWHERE
    return moved


def greatest_before(priority: Ints, of: Segments) -> Ints:
    """The greatest 32-bit *priority* of the rows before, within the segment; the row's own at its start."""
    packed = (of.number << _PRIORITY_BITS) + (priority + _PRIORITY_OFFSET)
    running = np.maximum.accumulate(packed)
    greatest = (running & ((1 << _PRIORITY_BITS) - 1)) - _PRIORITY_OFFSET
    moved = np.empty_like(greatest)
    moved[1:] = greatest[:-1]
    return np.where(of.first, priority, moved)


def ranked(level: Ints, priority: Ints) -> Ints:
    """
    One integer that compares like (*level*, *priority*): 31 bits of level over 32 of priority.

    Rows of one call number less than 2^31 (an Arrow batch holds no more), and a level grows by at
    most one a row, so this cannot overflow.
    """
    return (level << _PRIORITY_BITS) + (priority + _PRIORITY_OFFSET)
