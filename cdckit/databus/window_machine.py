"""
The rules of windows: a machine that takes the events of one stream in their order.

A window begins with its first event, since its start is no record, and ends with an end of a period, or with
a rollback.  It passes (`complete`) if nothing in it is wrong, nothing before it is missing, and it ends above
all that passed.  What was rolled back or damaged is missing until a window starts where it did, or before;
until then all windows wait.  What is sent again is passed over, up to the SCN that passed last.

A rollback may come at any time, since a window may have started of which no event had come, and behind one
any number of windows without events; neither is ever wrong.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence

import msgspec

from cdckit.databus.events import DATA, END, ROLLBACK, DatabusFault

COMPLETE, OPEN, REPEATED, ROLLED_BACK = "complete", "open", "repeated", "rolled back"
DAMAGED, WAITING, LATE = "damaged", "waiting", "late"

HIGHEST, LOWEST = (1 << 63) - 1, -(1 << 63)

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
    high: int = LOWEST
    micros: int = LOWEST
    last_scns: dict[int, int] = {}
    """By source the SCN of its last event."""
    late_scns: set[int] = set()
    """The SCNs that had passed without what it says of them."""
    first_offset: int | None = None
    last_offset: int | None = None
    state: str | None = OPEN
    end_scn: int | None = None
    passed_scn: int = -1
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


NO_WINDOW = WindowState(-1, 0, state=None)
"""That of a record that does not say its stream."""


class StreamState(msgspec.Struct):
    """Where a stream stands; it can be written down."""

    window: WindowState
    passed_scn: int = -1
    """The SCN up to which all has passed."""
    needed_scn: int | None = None
    """The SCN at which, or before which, the next window must start; None where nothing is missing."""
    after_rollback: bool = False
    """Whether a rollback came since the last window with events: the next one must start in time."""
    micros: int = LOWEST
    """When the last window that passed became true."""


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
        self._lows, self._highs = array("q"), array("q")
        self._covered_before, self._looked_up = covered_before, 0
        self._covered_from = LOWEST if covered_before is None else stream.passed_scn + 1

    @property
    def window(self) -> WindowState:
        """The window of the next event."""
        return self.stream.window

    def take(self, kind: str | None, scn: int, source: int, micros: int) -> Finding | None:
        """
        Take the next event, and return what is wrong with it.

        Args:
            kind: None if it is in error, whatever it would have been.
            scn, source, micros: Its SCN, the number of its source, and its time.
        """
        window = self.stream.window
        if kind == DATA:
            return self._add_event(window, scn, source, micros)
        if kind in (END, ROLLBACK):
            return self._end_window(window, kind == ROLLBACK, scn, micros)
        if kind is None:
            window.bad += 1
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
        if scn <= self.stream.passed_scn and not self._is_covered(scn):
            window.late_scns.add(scn)
        if scn >= least:
            return None
        window.fell = True
        return DatabusFault.SCN_FELL, f"Expected {least} or more, found {scn}."

    def _is_covered(self, scn: int) -> bool:
        """Tell whether a window that passed has said everything of the SCN."""
        if scn < self._covered_from and self._covered_before is not None:
            lows, highs = self._covered_before(scn)
            self._lows[: self._looked_up] = array("q", lows)
            self._highs[: self._looked_up] = array("q", highs)
            self._looked_up, self._covered_from = len(lows), scn
        place = bisect_right(self._lows, scn) - 1
        return place >= 0 and scn <= self._highs[place]

    def _end_window(self, window: WindowState, is_rollback: bool, scn: int, micros: int) -> Finding | None:
        stream = self.stream
        window.bad += window.lost
        window.passed_scn, window.end_scn = stream.passed_scn, None if is_rollback else scn
        window.state, window.finding = (
            self._roll_back(window, scn) if is_rollback else self._judge(window, scn)
        )
        if window.state == COMPLETE:
            window.passed_micros = stream.micros = max(stream.micros, micros, window.micros)
            self._pass(window, scn)
        stream.window = WindowState(window.stream, window.number + 1)
        return window.finding

    def _roll_back(self, window: WindowState, scn: int) -> tuple[str, Finding | None]:
        """Roll the window back: what came of it goes with it."""
        if not window.events and not window.bad:
            return ROLLED_BACK, None
        start = window.low if window.events else scn
        self._miss(start)
        self.stream.after_rollback = True
        if scn > start:
            return ROLLED_BACK, (DatabusFault.ROLLBACK_TOO_LATE, f"Expected {start} or less, found {scn}.")
        return ROLLED_BACK, None

    def _judge(self, window: WindowState, end: int) -> tuple[str, Finding | None]:
        """Judge a window that ends with this SCN, and find what is wrong with its end."""
        stream = self.stream
        low, high = (window.low, window.high) if window.events else (end, end)
        repeated = LATE if window.late_scns else REPEATED
        if window.bad or window.fell or end < high:
            stream.after_rollback = False
            too_low = DatabusFault.END_TOO_LOW, f"Expected {high} or more, found {end}."
            finding = too_low if end < high else None
            if max(end, high) <= stream.passed_scn:
                return repeated, finding
            self._miss(low)
            return DAMAGED, finding
        if stream.needed_scn is not None:
            if not window.events:
                return WAITING, None
            after_rollback, stream.after_rollback = stream.after_rollback, False
            if low > stream.needed_scn:
                expected = f"Expected a window that starts at {stream.needed_scn} or less"
                too_late = DatabusFault.START_TOO_LATE, f"{expected}, found one that starts at {low}."
                return WAITING, too_late if after_rollback else None
        if end > stream.passed_scn and window.late_scns:
            self._miss(low)
            return DAMAGED, None
        stream.needed_scn = None
        return (repeated if end <= stream.passed_scn else COMPLETE), None

    def _miss(self, scn: int) -> None:
        """Note that from this SCN on something is missing."""
        needed = self.stream.needed_scn
        self.stream.needed_scn = scn if needed is None else min(needed, scn)

    def _pass(self, window: WindowState, end: int) -> None:
        """Let the window pass: it has said everything of the SCNs of its events."""
        stream = self.stream
        if window.events:
            window.covered_from, window.covered_to = max(window.low, stream.passed_scn + 1), window.high
            self._lows.append(window.covered_from)
            self._highs.append(window.covered_to)
        # A relay begins with an empty window of SCN 0, which says nothing.
        if end > 0 or window.events:
            stream.passed_scn = end
