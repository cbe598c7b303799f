"""
The grammar of windows: events cut into windows, and a machine of three states that says what counts.

A *span* is what stands up to an end of a period, or up to a rollback, that included: a window, or what is
left of one.  The rows of a stream come in pieces; what is known of the span that a piece leaves open is
carried to the next one, in a few numbers.

It takes the spans of one stream in their order, each as one word (`SpanKind`): what ended it, whether
something in it is wrong, and where it stands to what has passed and to what is missing.  `TRANSITIONS` is all
of it: what becomes of such a span, what is wrong with its end, and in which state the stream is then.

A window passes if nothing in it is wrong, nothing before it is missing, and it ends behind all that passed.
What was rolled back or damaged is missing until a window starts where it did, or before.  What is sent again
is passed over, up to the SCN that passed last.  The start of a window is no record: it begins with its first
data event.  So a rollback may come at any time, and behind one any number of windows without events; neither
is ever wrong.

`WindowMachine` moves over whole runs of equal words at once (NumPy).  A machine that takes one record after
the other stands in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, unique
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cdckit.databus.event_values import DatabusFault
from cdckit.model.faults import Findings
from cdckit.parts.arrays import Bools, Ints

IS_DATA, IS_END, IS_ROLLBACK, IS_OTHER, IS_BAD = range(5)
"""What a row is to the cutting; one in error is bad, whatever it would have been."""

HIGHEST = np.iinfo(np.int64).max
LOWEST = np.iinfo(np.int64).min


class Rows(NamedTuple):
    """Events of one stream, in their order."""

    kind: Ints
    scn: Ints
    source: Ints
    offset: Ints
    micros: Ints


@dataclass
class OpenSpan:
    """What is known of a span that has not ended yet."""

    number: int = 1
    rows: int = 0
    events: int = 0
    bad: int = 0
    fell: bool = False
    late: bool = False
    low: int = HIGHEST
    high: int = LOWEST
    micros: int = LOWEST
    first_offset: int = -1
    last_offset: int = -1
    of_source: dict[int, int] = field(default_factory=dict)


class Spans(NamedTuple):
    """The spans that end in a piece of rows; one number, or flag, for each."""

    number: Ints
    is_rollback: Bools
    events: Ints
    bad: Ints
    fell: Bools
    low: Ints
    high: Ints
    scn: Ints
    micros: Ints
    first_offset: Ints
    last_offset: Ints
    stop: Ints
    """Where its rows end in the piece; they begin where the one before stops."""


class SpanCut(NamedTuple):
    """A piece of rows, cut."""

    span: Ints
    """For each row, which of the spans it is in; behind the last one is what stays open."""
    position: Ints
    """For each data event its place among those of its window, from 1; for other rows 0."""
    fell: list[tuple[int, int]]
    """The rows whose SCN fell, and what it had to be at least."""
    ended: Spans
    open: OpenSpan


def cut_spans(rows: Rows, before: OpenSpan, unreadable: Ints) -> SpanCut:
    """
    Cut a piece of the rows of one stream.

    Args:
        rows: The piece.
        before: What the pieces before it left open.
        unreadable: The offsets, growing, of rejects that could be of this stream as well as of any other;
            those behind the last end of a period.
    """
    ends = (rows.kind == IS_END) | (rows.kind == IS_ROLLBACK)
    stop = np.flatnonzero(ends) + 1
    span = np.cumsum(ends) - ends
    spans = len(stop) + 1
    data = rows.kind == IS_DATA
    of_data = span[data]
    events = np.bincount(of_data, minlength=spans)
    low = _reduce_spans(np.minimum, rows.scn[data], of_data, spans, HIGHEST)
    high = _reduce_spans(np.maximum, rows.scn[data], of_data, spans, LOWEST)
    micros = _reduce_spans(np.maximum, rows.micros[data], of_data, spans, LOWEST)
    counted = np.cumsum(data)
    begins = np.concatenate([[0], counted[stop - 1]])
    position = counted - begins[span]
    position[span == 0] += before.events
    falls = _find_falls(rows.scn, rows.source, np.flatnonzero(data), span, before)
    fell = np.zeros(spans, dtype=bool)
    fell[span[[row for row, _ in falls]]] = True
    bad = np.bincount(span[rows.kind == IS_BAD], minlength=spans)
    ended_at = rows.offset[stop - 1]
    seen = np.searchsorted(unreadable, ended_at)
    bad[:-1] += np.diff(seen, prepend=0)
    first_offset = rows.offset[np.minimum(np.concatenate([[0], stop]), len(rows.kind) - 1)]
    events[0] += before.events
    bad[0] += before.bad
    fell[0] |= before.fell
    low[0], high[0] = min(low[0], before.low), max(high[0], before.high)
    micros[0] = max(micros[0], before.micros)
    if before.rows:
        first_offset[0] = before.first_offset
    ended = Spans(
        number=before.number + np.arange(spans - 1),
        is_rollback=rows.kind[stop - 1] == IS_ROLLBACK,
        events=events[:-1],
        bad=bad[:-1],
        fell=fell[:-1],
        low=low[:-1],
        high=high[:-1],
        scn=rows.scn[stop - 1],
        micros=np.maximum(rows.micros[stop - 1], micros[:-1]),
        first_offset=first_offset[:-1],
        last_offset=ended_at,
        stop=stop,
    )
    tail = slice(int(stop[-1]) if len(stop) else 0, len(span))
    left = OpenSpan(
        number=before.number + spans - 1,
        rows=tail.stop - tail.start + (0 if len(stop) else before.rows),
        events=int(events[-1]),
        bad=int(bad[-1]),
        fell=bool(fell[-1]),
        late=before.late and not len(stop),
        low=int(low[-1]),
        high=int(high[-1]),
        micros=int(micros[-1]),
        first_offset=int(first_offset[-1]),
        last_offset=int(rows.offset[-1]),
        of_source=_last_scns(rows, tail, {} if len(stop) else before.of_source),
    )
    return SpanCut(span, np.where(data, position, 0), falls, ended, left)


def _reduce_spans(by: np.ufunc, values: Ints, span: Ints, spans: int, nothing: int) -> Ints:
    """One number for each span, of its values; *nothing* for one that has none."""
    found = np.full(spans, nothing, dtype=np.int64)
    if len(values):
        starts = np.flatnonzero(np.diff(span, prepend=-1))
        found[span[starts]] = by.reduceat(values, starts)
    return found


def _find_falls(scn: Ints, source: Ints, data: Ints, span: Ints, before: OpenSpan) -> list[tuple[int, int]]:
    """The rows whose SCN is lower than that of the event of the source before it in the window."""
    values, spans = scn[data], span[data]
    if not len(data):
        return []
    in_order = bool(((np.diff(values) >= 0) | (np.diff(spans) > 0)).all())
    if in_order and (spans[0] > 0 or values[0] >= before.high):
        return []
    order = np.lexsort((data, source[data], spans))
    values, spans, sources, places = values[order], spans[order], source[data][order], data[order]
    same = (np.diff(sources) == 0) & (np.diff(spans) == 0)
    fell = np.flatnonzero(same & (np.diff(values) < 0)) + 1
    found = [(int(places[at]), int(values[at - 1])) for at in fell.tolist()]
    firsts = np.concatenate([[True], ~same]) & (spans == 0)
    for at in np.flatnonzero(firsts).tolist():
        least = before.of_source.get(int(sources[at]), LOWEST)
        if values[at] < least:
            found.append((int(places[at]), least))
    return found


def _last_scns(rows: Rows, tail: slice, before: dict[int, int]) -> dict[int, int]:
    """For each source the last SCN of the span that stays open."""
    data = rows.kind[tail] == IS_DATA
    if not data.any():
        return before
    return before | dict(zip(rows.source[tail][data].tolist(), rows.scn[tail][data].tolist(), strict=True))


COMPLETE, OPEN, REPEATED, ROLLED_BACK, DAMAGED, WAITING, LATE = range(7)
STATES = ("complete", "open", "repeated", "rolled back", "damaged", "waiting", "late")
"""What becomes of a window."""


class State(Enum):
    """Where a stream stands between two windows."""

    SETTLED = "nothing is missing"
    MISSING = "the next window must start where something is missing, or before; until then all wait"
    UNDONE = "the same behind a rollback: there the next window with events must start in time"


@unique
class SpanKind(Enum):
    """What a span is.  *Passed* is the SCN up to which all has passed, *needed* the first that is missing."""

    VOID = "a rollback with nothing before it"
    UNDONE = "a rollback of a window that had begun"
    SPOILT = "an end; something in the window is wrong, and it reaches above passed"
    SPOILT_REPEAT = "an end; something in the window is wrong, and none of it is above passed"
    SPOILT_LATE = "the same; some of its SCNs should have come earlier, and did not"
    EMPTY = "an end of a window without events, while something is missing"
    BEHIND = "an end of a window that starts above needed"
    NEW = "an end above passed"
    LATE = "an end above passed; some of its SCNs should have come earlier, and did not"
    REPEAT = "an end at passed, or below"
    REPEAT_LATE = "an end at passed, or below; some of its SCNs should have come earlier, and did not"


class Transition(NamedTuple):
    """What becomes of a span, the state behind it, and what is wrong with its end, if anything is."""

    outcome: int
    next_state: State
    fault: DatabusFault | None = None


_WAITS = (State.MISSING, State.UNDONE)
_RULES: list[tuple[Iterable[State], SpanKind, Transition]] = [
    (State, SpanKind.UNDONE, Transition(ROLLED_BACK, State.UNDONE)),
    (State, SpanKind.SPOILT, Transition(DAMAGED, State.MISSING)),
    (State, SpanKind.NEW, Transition(COMPLETE, State.SETTLED)),
    (State, SpanKind.LATE, Transition(DAMAGED, State.MISSING)),
    (State, SpanKind.REPEAT, Transition(REPEATED, State.SETTLED)),
    (State, SpanKind.REPEAT_LATE, Transition(LATE, State.SETTLED)),
    *(([state], SpanKind.VOID, Transition(ROLLED_BACK, state)) for state in State),
    ([State.SETTLED], SpanKind.SPOILT_REPEAT, Transition(REPEATED, State.SETTLED)),
    ([State.SETTLED], SpanKind.SPOILT_LATE, Transition(LATE, State.SETTLED)),
    (_WAITS, SpanKind.SPOILT_REPEAT, Transition(REPEATED, State.MISSING)),
    (_WAITS, SpanKind.SPOILT_LATE, Transition(LATE, State.MISSING)),
    *(([state], SpanKind.EMPTY, Transition(WAITING, state)) for state in _WAITS),
    ([State.MISSING], SpanKind.BEHIND, Transition(WAITING, State.MISSING)),
    ([State.UNDONE], SpanKind.BEHIND, Transition(WAITING, State.MISSING, DatabusFault.START_TOO_LATE)),
]
TRANSITIONS: Mapping[tuple[State, SpanKind], Transition] = {
    (state, word): move for states, word, move in _RULES for state in states
}
"""The grammar.  Where nothing is missing no window waits, so `EMPTY` and `BEHIND` are no words there."""

_NOTHING = -1


class SpanOutcomes(NamedTuple):
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


class StreamPosition(NamedTuple):
    """Where a stream stands between two windows."""

    passed_scn: int
    """The SCN up to which all has passed."""
    needed_scn: int | None
    """The SCN at which, or before which, the next window must start; None where nothing is missing."""
    after_rollback: bool
    micros: int
    """When the last window that passed became true."""


START = StreamPosition(_NOTHING, None, False, int(np.iinfo(np.int64).min))

Covered = Callable[[int], tuple[Ints, Ints]] | None
"""
Tells, of the windows that passed earlier, what `SpanOutcomes` says they covered: those that reach an SCN.
"""


class WindowMachine:
    """The state of one stream between windows."""

    def __init__(self, at: StreamPosition = START, covered: Covered = None) -> None:
        self.passed, self.needed, after_rollback, self.micros = at
        behind = State.UNDONE if after_rollback else State.MISSING
        self.state = State.SETTLED if at.needed_scn is None else behind
        self._covered, self._known_from = covered, at.passed_scn + 1
        self._before = (_concatenate([]), _concatenate([]))
        self._lows: list[Ints] = []
        self._highs: list[Ints] = []

    @property
    def position(self) -> StreamPosition:
        """Where the stream stands now."""
        return StreamPosition(self.passed, self.needed, self.state is State.UNDONE, self.micros)

    def judge_spans(self, ended: Spans, rows: Rows, data: Bools, before: OpenSpan) -> SpanOutcomes:
        """Judge the spans that ended, in their order."""
        count = len(ended.stop)
        judged = SpanOutcomes(
            state=np.full(count, DAMAGED),
            above=np.full(count, _NOTHING),
            micros=ended.micros.copy(),
            late=np.zeros(len(rows.kind), dtype=bool),
            findings={},
            covered_from=np.full(count, _NOTHING),
            covered_to=np.full(count, _NOTHING),
        )
        step = _SpanJudge(self, ended, rows, data, before, judged)
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
                step.judge_sound(first, stop)
            elif ended.is_rollback[first]:
                step.judge_rollback(first)
            else:
                step.judge_spoilt(first, bool(too_low[first]))
        return judged

    def find_late(self, scn: Ints) -> Bools:
        """Which SCNs no window has said anything of that passed, and it is too late."""
        late = scn <= self.passed
        if not late.any():
            return late
        least = int(scn[late].min())
        if self._covered is not None and least < self._known_from:
            self._before, self._known_from = self._covered(least), least
        self._lows, self._highs = [_concatenate(self._lows)], [_concatenate(self._highs)]
        lows = np.concatenate([self._before[0], self._lows[0]])
        highs = np.concatenate([self._before[1], self._highs[0]])
        place = np.searchsorted(lows, scn, side="right") - 1
        covered = (place >= 0) & (scn <= (highs[np.maximum(place, 0)] if len(highs) else _NOTHING))
        return late & ~covered

    def add_passed(self, lows: Ints, highs: Ints) -> None:
        """Remember the SCNs of windows that passed."""
        self._lows.append(lows)
        self._highs.append(highs)

    def note_missing(self, scn: int) -> None:
        """From this SCN on something is missing."""
        self.needed = scn if self.needed is None else min(self.needed, scn)


def _concatenate(parts: list[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


class _SpanJudge:
    """The spans of one piece, judged in turn."""

    starts: Ints

    def __init__(
        self,
        known: WindowMachine,
        ended: Spans,
        rows: Rows,
        data: Bools,
        before: OpenSpan,
        judged: SpanOutcomes,
    ) -> None:
        self.known, self.ended, self.rows, self.data = known, ended, rows, data
        self.before, self.judged = before, judged

    def judge_sound(self, first: int, stop: int) -> None:
        """Windows with nothing wrong in them, each above the one before."""
        known, ended = self.known, self.ended
        if known.state is not State.SETTLED:
            with_events = np.flatnonzero(ended.events[first:stop] > 0)
            start = first + int(with_events[0]) if len(with_events) else stop
            self._move(SpanKind.EMPTY, slice(first, start))
            if start == stop:
                return
            low = int(ended.low[start])
            if known.needed is None or low > known.needed:
                expected = f"Expected a window that starts at {known.needed} or less"
                self._move(
                    SpanKind.BEHIND, slice(start, stop), f"{expected}, found one that starts at {low}."
                )
                return
            first = start
        new = first + int(np.searchsorted(ended.scn[first:stop], known.passed, side="right"))
        late = self._mark_late(first, min(new + 1, stop))
        self.judged.above[first : new + 1] = known.passed
        if new > first:
            is_late = late[: new - first]
            of_word = [(SpanKind.REPEAT, ~is_late), (SpanKind.REPEAT_LATE, is_late)]
            for word, those in reversed(of_word) if is_late[0] else of_word:
                self._move(word, first + np.flatnonzero(those))
        if new == stop:
            return
        if late[new - first]:
            self._move(SpanKind.LATE, slice(new, new + 1))
            known.note_missing(int(ended.low[new]))
            self.judge_sound(new + 1, stop)
            return
        self._pass(slice(new, stop))

    def _pass(self, which: slice) -> None:
        known, ended = self.known, self.ended
        self._move(SpanKind.NEW, which)
        has = ended.events[which] > 0
        low = np.where(has, np.maximum(ended.low[which], known.passed + 1), _NOTHING)
        high = np.where(has, ended.high[which], _NOTHING)
        self.judged.covered_from[which], self.judged.covered_to[which] = low, high
        known.add_passed(low[has], high[has])
        micros = np.maximum.accumulate(np.maximum(ended.micros[which], known.micros))
        self.judged.micros[which] = micros
        known.micros = int(micros[-1])
        # A relay begins with an empty window of SCN 0, which says nothing.
        if ended.scn[which][-1] > 0 or has[-1]:
            known.passed = int(ended.scn[which][-1])

    def judge_rollback(self, at: int) -> None:
        """A rollback, and what it takes with it."""
        known, ended = self.known, self.ended
        if not ended.events[at] and not ended.bad[at]:
            self._move(SpanKind.VOID, slice(at, at + 1))
            return
        to = int(ended.scn[at])
        start = int(ended.low[at]) if ended.events[at] else to
        if to > start:
            self._find(at, DatabusFault.ROLLBACK_TOO_LATE, f"Expected {start} or less, found {to}.")
        self._move(SpanKind.UNDONE, slice(at, at + 1))
        known.note_missing(start)

    def judge_spoilt(self, at: int, too_low: bool) -> None:
        """A window in which something is wrong."""
        known, ended = self.known, self.ended
        end, has = int(ended.scn[at]), bool(ended.events[at])
        high = int(ended.high[at]) if has else end
        if too_low:
            self._find(at, DatabusFault.END_TOO_LOW, f"Expected {high} or more, found {end}.")
        late = self._mark_late(at, at + 1)
        self.judged.above[at] = known.passed
        if max(end, high) <= known.passed:
            self._move(SpanKind.SPOILT_LATE if late[0] else SpanKind.SPOILT_REPEAT, slice(at, at + 1))
        else:
            self._move(SpanKind.SPOILT, slice(at, at + 1))
            known.note_missing(int(ended.low[at]) if has else end)

    def _move(self, word: SpanKind, spans: slice | Ints, finding: str = "") -> None:
        """Move on over spans that are one word: the first leads to a state in which the others stay."""
        if not len(self.judged.state[spans]):
            return
        move = TRANSITIONS[self.known.state, word]
        self.judged.state[spans] = move.outcome
        if move.fault is not None:
            self._find(spans.start if isinstance(spans, slice) else int(spans[0]), move.fault, finding)
        self.known.state = move.next_state
        if move.next_state is State.SETTLED:
            self.known.needed = None

    def _mark_late(self, first: int, stop: int) -> Bools:
        """Mark the rows of these spans that are too late; whether each span has one."""
        begins, ends = int(self.starts[first]), int(self.ended.stop[stop - 1])
        rows = slice(begins, ends)
        late = self.data[rows] & self.known.find_late(self.rows.scn[rows])
        self.judged.late[rows] = late
        found = np.logical_or.reduceat(late, self.starts[first:stop] - begins)
        if first == 0:
            found[0] |= self.before.late
        return found

    def _find(self, at: int, fault: DatabusFault, finding: str) -> None:
        self.judged.findings.setdefault(at, (fault, finding))
