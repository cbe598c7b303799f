"""
The rules of windows: a machine that takes the events of one stream in their order.

A window begins with its first event, since its start is no record, and ends with an end of a period, or with
a rollback.  It passes (`complete`) if nothing in it is wrong, nothing before it is missing, and it ends above
all that passed.  What is sent again is passed over, up to the SCN that passed last.

Two things can be missing.  After a rollback or a damaged window the source must start again where that
window did, or before; until it does, all windows wait.  And what came in windows that were damaged or waited
must come again: a window passes only if it has those of these SCNs that are not above its end.  Of each such
window the first and the last SCN are kept, also those of events in error.  A rollback is the source's own
word: of what it takes back, only the start is asked for.

A rollback may come at any time, since a window may have started of which no event had come, and behind one
any number of windows without events; neither is ever wrong.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

import msgspec

from cdckit.databus.events import DATA, END, ROLLBACK, DatabusFault

COMPLETE, OPEN, REPEATED, ROLLED_BACK = "complete", "open", "repeated", "rolled back"
DAMAGED, WAITING, LATE = "damaged", "waiting", "late"

HIGHEST, LOWEST = (1 << 63) - 1, -(1 << 63)
NO_SCN = -1
"""In place of the SCN of an event that does not say it."""

Finding = tuple[DatabusFault, str]
Spans = tuple[Sequence[int], Sequence[int]]
"""The first and the last SCN of each of some spans, both growing."""


class WindowState(msgspec.Struct, eq=False):
    """What is known of a window while its events come, and what became of it once it has ended."""

    stream: int
    """The physical partition."""
    number: int = 1
    """From 1; 0 where there is none."""
    events: int = 0
    bad: int = 0
    """How many events in error it has; of those that do not say their stream once it has ended."""
    lost: int = 0
    """How many records that do not say their stream stand in it."""
    fell: bool = False
    low: int = HIGHEST
    """The lowest SCN of its events."""
    high: int = LOWEST
    new_low: int = HIGHEST
    """The lowest SCN above all that had passed, of its events and of those in error."""
    new_high: int = LOWEST
    micros: int = LOWEST
    last_scns: dict[int, int] = {}
    """By source the SCN of its last event."""
    late_scns: set[int] = set()
    """The SCNs that had passed without what it says of them."""
    found_scns: set[int] = set()
    """The SCNs of its events that were missing."""
    first_offset: int | None = None
    last_offset: int | None = None
    state: str | None = OPEN
    end_scn: int | None = None
    passed_before: int = -1
    """The SCN up to which all had passed before its end: its events at or below it are repeats."""
    passed_micros: int | None = None
    """When it became true, if it is complete: never before one that passed earlier."""
    finding: Finding | None = None
    """What is wrong with its end."""
    covered_from: int | None = None
    """The first of the SCNs of which it has said everything, if it is complete."""
    covered_to: int | None = None
    """The last of them."""

    @property
    def number_or_null(self) -> int | None:
        """Its number; None where there is none."""
        return self.number or None

    @property
    def start_scn(self) -> int | None:
        """The lowest SCN of its events."""
        return self.low if self.events else None

    def lowest_scn(self, default: int) -> int:
        """Find where it starts, as far as its events say that, also those in error."""
        lowest = min(self.low, self.new_low)
        return default if lowest == HIGHEST else lowest


NO_WINDOW = WindowState(-1, 0, state=None)
"""That of a record that does not say its stream."""


class StreamState(msgspec.Struct):
    """Where a stream stands; it can be written down."""

    window: WindowState
    passed_scn: int = -1
    """The SCN up to which all has passed."""
    restart_scn: int | None = None
    """The SCN at which, or before which, the source must start again; None once it did."""
    after_rollback: bool = False
    """Whether a rollback came since the last window with events: the next one must start in time."""
    missing_scns: list[int] = []
    """The first and the last SCNs of windows that came and did not pass, growing, above `passed_scn`."""
    micros: int = LOWEST
    """When the last window that passed became true."""

    @property
    def needed_scn(self) -> int | None:
        """The SCN at which, or before which, the next window must start; None where nothing is missing."""
        starts = self.missing_scns[:1] + ([] if self.restart_scn is None else [self.restart_scn])
        return min(starts, default=None)


class PassedSpans:
    """
    Of which SCNs the windows that passed have said everything.

    Args:
        covered_before: From an SCN on, what windows covered that passed before; it is asked once it matters.
        known_from: The SCN from which on nothing had passed before.
    """

    def __init__(self, covered_before: Callable[[int], Spans] | None, known_from: int) -> None:
        self._lows, self._highs = array("q"), array("q")
        self._covered_before, self._looked_up = covered_before, 0
        self._known_from = LOWEST if covered_before is None else known_from

    def add(self, low: int, high: int) -> None:
        """Add a span above all others."""
        self._lows.append(low)
        self._highs.append(high)

    def covers(self, scn: int) -> bool:
        """Tell whether a window that passed has said everything of the SCN."""
        if scn < self._known_from and self._covered_before is not None:
            lows, highs = self._covered_before(scn)
            self._lows[: self._looked_up] = array("q", lows)
            self._highs[: self._looked_up] = array("q", highs)
            self._looked_up, self._known_from = len(lows), scn
        place = bisect_right(self._lows, scn) - 1
        return place >= 0 and scn <= self._highs[place]


class WindowMachine:
    """
    The rules, for one stream.

    Args:
        stream: Where it stands; that is kept up.
        covered_before: From an SCN on, what the windows covered that passed before.

    >>> machine = WindowMachine(StreamState(WindowState(stream=1)))
    >>> window = machine.window
    >>> machine.take("data", 5, 97, 0), machine.take("end", 5, 0, 0)
    (None, None)
    >>> window.state, machine.stream.passed_scn
    ('complete', 5)
    """

    def __init__(self, stream: StreamState, covered_before: Callable[[int], Spans] | None = None) -> None:
        self.stream = stream
        self._passed_spans = PassedSpans(covered_before, stream.passed_scn + 1)

    @property
    def window(self) -> WindowState:
        """The window of the next event."""
        return self.stream.window

    def take(self, kind: str | None, scn: int, source: int, micros: int) -> Finding | None:
        """
        Take the next event, and return what is wrong with it.

        Args:
            kind: None if it is in error, whatever it would have been.
            scn: Its SCN; of an event in error `NO_SCN`, if it does not say one or may be no data event.
            source, micros: The number of its source, and its time.
        """
        window = self.stream.window
        if kind == DATA:
            return self._add_event(window, scn, source, micros)
        if kind in (END, ROLLBACK):
            return self._end_window(window, kind == ROLLBACK, scn, micros)
        if kind is None:
            window.bad += 1
            if scn != NO_SCN:
                self._add_scn(window, scn)
        return None

    def _add_event(self, window: WindowState, scn: int, source: int, micros: int) -> Finding | None:
        least = window.last_scns.get(source, scn)
        window.last_scns[source] = scn
        window.events += 1
        if scn < window.low:
            window.low = scn
        if scn > window.high:
            window.high = scn
        if micros > window.micros:
            window.micros = micros
        self._add_scn(window, scn)
        missing = self.stream.missing_scns
        if missing and missing[bisect_right(missing, scn) - 1] == scn:
            window.found_scns.add(scn)
        if scn >= least:
            return None
        window.fell = True
        return DatabusFault.SCN_FELL, f"Expected {least} or more, found {scn}."

    def _add_scn(self, window: WindowState, scn: int) -> None:
        """Note an SCN of the window that is new, or that should have come earlier."""
        if scn > self.stream.passed_scn:
            if scn < window.new_low:
                window.new_low = scn
            if scn > window.new_high:
                window.new_high = scn
        elif not self._passed_spans.covers(scn):
            window.late_scns.add(scn)

    def _end_window(self, window: WindowState, is_rollback: bool, scn: int, micros: int) -> Finding | None:
        stream = self.stream
        window.bad += window.lost
        window.passed_before, window.end_scn = stream.passed_scn, None if is_rollback else scn
        window.state, window.finding = (
            self._roll_back(window, scn) if is_rollback else self._judge(window, scn)
        )
        if window.state == COMPLETE:
            window.passed_micros = stream.micros = max(stream.micros, micros, window.micros)
            self._pass(window, scn)
        elif window.state in (DAMAGED, WAITING):
            self._note_missing(window)
        stream.window = WindowState(window.stream, window.number + 1)
        return window.finding

    def _roll_back(self, window: WindowState, scn: int) -> tuple[str, Finding | None]:
        """Roll the window back: what came of it goes with it."""
        if not window.events and not window.bad:
            return ROLLED_BACK, None
        start = window.lowest_scn(scn)
        self._require_start(start)
        self.stream.after_rollback = True
        if scn > start:
            return ROLLED_BACK, (DatabusFault.ROLLBACK_TOO_LATE, f"Expected {start} or less, found {scn}.")
        return ROLLED_BACK, None

    def _judge(self, window: WindowState, end: int) -> tuple[str, Finding | None]:
        """Judge a window that ends with this SCN, and find what is wrong with its end."""
        stream, passed_or_late = self.stream, LATE if window.late_scns else REPEATED
        end_too_low, start_too_late = self._find_low_end(window, end), self._find_late_start(window)
        is_wrong = window.bad > 0 or window.fell or end_too_low is not None
        is_new = max(end, window.high, window.new_high) > stream.passed_scn
        # A window without events starts nowhere.
        is_in_time = stream.restart_scn is None or window.low <= stream.restart_scn
        if window.events or window.bad:
            stream.after_rollback = False
        if is_wrong and not is_new:
            return passed_or_late, end_too_low
        if is_wrong or (is_in_time and is_new and window.late_scns):
            self._require_start(window.lowest_scn(end))
            return DAMAGED, end_too_low
        if not is_in_time:
            return WAITING, start_too_late
        stream.restart_scn = None
        if not is_new:
            return passed_or_late, None
        return (WAITING if self._lacks_missing(window, end) else COMPLETE), None

    def _find_low_end(self, window: WindowState, end: int) -> Finding | None:
        if end >= window.high:
            return None
        return DatabusFault.END_TOO_LOW, f"Expected {window.high} or more, found {end}."

    def _find_late_start(self, window: WindowState) -> Finding | None:
        """Find whether the window is the first one behind a rollback, and starts too late."""
        restart = self.stream.restart_scn
        if not window.events or not self.stream.after_rollback or restart is None or window.low <= restart:
            return None
        expected = f"Expected a window that starts at {restart} or less"
        return DatabusFault.START_TOO_LATE, f"{expected}, found one that starts at {window.low}."

    def _require_start(self, scn: int) -> None:
        """Note that the source must start again at this SCN, or before it."""
        restart = self.stream.restart_scn
        self.stream.restart_scn = scn if restart is None else min(restart, scn)

    def _lacks_missing(self, window: WindowState, end: int) -> bool:
        """Tell whether something is missing up to this end that the window does not have."""
        return len(window.found_scns) < bisect_right(self.stream.missing_scns, end)

    def _note_missing(self, window: WindowState) -> None:
        """Note what came in a window that did not pass."""
        missing = self.stream.missing_scns
        for scn in {window.new_low, window.new_high} - {HIGHEST, LOWEST}:
            place = bisect_left(missing, scn)
            if missing[place : place + 1] != [scn]:
                missing.insert(place, scn)

    def _pass(self, window: WindowState, end: int) -> None:
        """Let the window pass: it has said everything of the SCNs of its events."""
        stream = self.stream
        if window.events:
            window.covered_from, window.covered_to = max(window.low, stream.passed_scn + 1), window.high
            self._passed_spans.add(window.covered_from, window.covered_to)
        # A relay begins with an empty window of SCN 0, which says nothing.
        if end > 0 or window.events:
            stream.passed_scn = end
        del stream.missing_scns[: bisect_right(stream.missing_scns, end)]
