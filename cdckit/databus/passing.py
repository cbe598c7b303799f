"""
Passing: which windows of one stream move what is known from one consistent state to the next.

The rule, window by window: one passes if nothing in it is wrong, nothing before it is missing, and it ends
behind all that passed.  What was rolled back or damaged is missing until a window starts where it did, or
before.  What is sent again is passed over, up to the SCN that passed last.  The same is done here for whole
runs of windows at once; a step by step form of it stands in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cdckit.databus.cutting import Open, Rows, Spans
from cdckit.databus.faults import DatabusFault, Findings
from cdckit.parts.running import Bools, Ints

COMPLETE, OPEN, REPEATED, ROLLED_BACK, DAMAGED, WAITING, LATE = range(7)
STATES = ("complete", "open", "repeated", "rolled back", "damaged", "waiting", "late")

_NOTHING = -1


class Judged(NamedTuple):
    """What became of the spans that ended in a piece of rows."""

    state: Ints
    above: Ints
    """The events of a window that count are those with an SCN above this one."""
    micros: Ints
    """When the window became true: never before one that passed earlier."""
    late: Bools
    """For each row of the piece: whether it says something of an SCN that has passed without it."""
    findings: Findings
    """By the place of the span: what is wrong with its end."""
    covered_from: Ints
    """Of each window that passed the SCNs of which it said everything, from here …"""
    covered_to: Ints
    """… up to here, both included; -1 where a span says nothing that counts."""


class Standing(NamedTuple):
    """Where a stream stands between two windows."""

    passed: int
    """The SCN up to which all has passed."""
    needed: int | None
    """The SCN at which, or before which, the next window must start; None where nothing is missing."""
    after_rollback: bool
    micros: int
    """When the last window that passed became true."""


START = Standing(_NOTHING, None, False, int(np.iinfo(np.int64).min))

Covered = Callable[[int], tuple[Ints, Ints]] | None
"""Tells, of the windows that passed earlier, what `Judged` says they covered: those that reach an SCN."""


class Passing:
    """The state of one stream between windows."""

    def __init__(self, at: Standing = START, covered: Covered = None) -> None:
        self.passed, self.needed, self.after_rollback, self.micros = at
        self._covered, self._known_from = covered, at.passed + 1
        self._before = (_joined([]), _joined([]))
        self._lows: list[Ints] = []
        self._highs: list[Ints] = []

    @property
    def standing(self) -> Standing:
        """Where the stream stands now."""
        return Standing(self.passed, self.needed, self.after_rollback, self.micros)

    def judge(self, ended: Spans, rows: Rows, data: Bools, before: Open) -> Judged:
        """Judge the spans that ended, in their order."""
        count = len(ended.stop)
        judged = Judged(
            state=np.full(count, DAMAGED),
            above=np.full(count, _NOTHING),
            micros=ended.micros.copy(),
            late=np.zeros(len(rows.kind), dtype=bool),
            findings={},
            covered_from=np.full(count, _NOTHING),
            covered_to=np.full(count, _NOTHING),
        )
        step = _Step(self, ended, rows, data, before, judged)
        starts = np.concatenate([[0], ended.stop[:-1]]) if count else ended.stop
        step.starts = starts
        is_empty = ended.events == 0
        low = np.where(is_empty, ended.scn, ended.low)
        too_low = ~is_empty & (ended.scn < ended.high)
        sound = ~ended.is_rollback & (ended.bad == 0) & ~ended.fell & ~too_low
        breaks = ~sound
        breaks[1:] |= ~sound[:-1] | (low[1:] <= ended.scn[:-1])
        breaks[:1] = True
        cuts = np.flatnonzero(breaks).tolist()
        for first, stop in pairwise([*cuts, count]):
            if sound[first]:
                step.run(first, stop)
            elif ended.is_rollback[first]:
                step.rollback(first)
            else:
                step.damaged(first, bool(too_low[first]))
        return judged

    def late_among(self, scn: Ints) -> Bools:
        """Which SCNs no window has said anything of that passed, and it is too late."""
        late = scn <= self.passed
        if not late.any():
            return late
        least = int(scn[late].min())
        if self._covered is not None and least < self._known_from:
            self._before, self._known_from = self._covered(least), least
        self._lows, self._highs = [_joined(self._lows)], [_joined(self._highs)]
        lows = np.concatenate([self._before[0], self._lows[0]])
        highs = np.concatenate([self._before[1], self._highs[0]])
        place = np.searchsorted(lows, scn, side="right") - 1
        covered = (place >= 0) & (scn <= (highs[np.maximum(place, 0)] if len(highs) else _NOTHING))
        return late & ~covered

    def add(self, lows: Ints, highs: Ints) -> None:
        """Remember the SCNs of windows that passed."""
        self._lows.append(lows)
        self._highs.append(highs)

    def miss(self, scn: int) -> None:
        """From this SCN on something is missing."""
        self.needed = scn if self.needed is None else min(self.needed, scn)


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


class _Step:
    """The spans of one piece, judged in turn."""

    starts: Ints

    def __init__(
        self, known: Passing, ended: Spans, rows: Rows, data: Bools, before: Open, judged: Judged
    ) -> None:
        self.known, self.ended, self.rows, self.data = known, ended, rows, data
        self.before, self.judged = before, judged

    def run(self, first: int, stop: int) -> None:
        """Windows with nothing wrong in them, each above the one before."""
        known, ended, state = self.known, self.ended, self.judged.state
        if known.needed is not None:
            with_events = np.flatnonzero(ended.events[first:stop] > 0)
            start = first + int(with_events[0]) if len(with_events) else stop
            self._expect_start(first, start)
            if start == stop or ended.low[start] > known.needed:
                state[first:stop] = WAITING
                return
            state[first:start] = WAITING
            known.needed, first = None, start
        new = first + int(np.searchsorted(ended.scn[first:stop], known.passed, side="right"))
        late = self._mark_late(first, min(new + 1, stop))
        self.judged.above[first : new + 1] = known.passed
        state[first:new] = np.where(late[: new - first], LATE, REPEATED)
        if new == stop:
            return
        if len(late) > new - first and late[new - first]:
            state[new] = DAMAGED
            known.miss(int(ended.low[new]))
            if new + 1 < stop:
                self.run(new + 1, stop)
            return
        self._pass(slice(new, stop))

    def _pass(self, which: slice) -> None:
        known, ended = self.known, self.ended
        self.judged.state[which] = COMPLETE
        has = ended.events[which] > 0
        low = np.where(has, np.maximum(ended.low[which], known.passed + 1), _NOTHING)
        high = np.where(has, ended.high[which], _NOTHING)
        self.judged.covered_from[which], self.judged.covered_to[which] = low, high
        known.add(low[has], high[has])
        micros = np.maximum.accumulate(np.maximum(ended.micros[which], known.micros))
        self.judged.micros[which] = micros
        known.micros = int(micros[-1])
        # A relay begins with an empty window of SCN 0, which says nothing.
        if ended.scn[which][-1] > 0 or has[-1]:
            known.passed = int(ended.scn[which][-1])

    def rollback(self, at: int) -> None:
        known, ended = self.known, self.ended
        self.judged.state[at] = ROLLED_BACK
        to = int(ended.scn[at])
        if not ended.events[at] and not ended.bad[at]:
            self._find(
                at, DatabusFault.ROLLBACK_UNEXPECTED, "Expected the start of a window, or an end of period."
            )
            return
        start = int(ended.low[at]) if ended.events[at] else to
        if to > start:
            self._find(at, DatabusFault.ROLLBACK_TOO_LATE, f"Expected {start} or less, found {to}.")
        known.miss(start)
        known.after_rollback = True

    def damaged(self, at: int, too_low: bool) -> None:
        known, ended = self.known, self.ended
        end, has = int(ended.scn[at]), bool(ended.events[at])
        high = int(ended.high[at]) if has else end
        if too_low:
            self._find(at, DatabusFault.END_TOO_LOW, f"Expected {high} or more, found {end}.")
        known.after_rollback = False
        late = self._mark_late(at, at + 1)
        self.judged.above[at] = known.passed
        if max(end, high) <= known.passed:
            self.judged.state[at] = LATE if late[0] else REPEATED
        else:
            known.miss(int(ended.low[at]) if has else end)

    def _expect_start(self, first: int, start: int) -> None:
        """Behind a rollback: the first of the next windows must start in time."""
        known, ended = self.known, self.ended
        if known.after_rollback and known.needed is not None:
            needed = f"Expected a window that starts at {known.needed} or less"
            if start > first:
                self._find(first, DatabusFault.END_UNEXPECTED, f"{needed}, found an end of period.")
            elif ended.low[start] > known.needed:
                found = f"{needed}, found one that starts at {int(ended.low[start])}."
                self._find(first, DatabusFault.START_TOO_LATE, found)
        known.after_rollback = False

    def _mark_late(self, first: int, stop: int) -> Bools:
        """Mark the rows of these spans that are too late; whether each span has one."""
        begins, ends = int(self.starts[first]), int(self.ended.stop[stop - 1])
        rows = slice(begins, ends)
        late = self.data[rows] & self.known.late_among(self.rows.scn[rows])
        self.judged.late[rows] = late
        found = np.logical_or.reduceat(late, self.starts[first:stop] - begins)
        if first == 0:
            found[0] |= self.before.late
        return found

    def _find(self, at: int, fault: DatabusFault, finding: str) -> None:
        self.judged.findings.setdefault(at, (fault, finding))
