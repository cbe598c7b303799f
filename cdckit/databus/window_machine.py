"""
The rules of windows: a machine that takes the rows of one stream in their order.

A window begins with its first event, since its start is no record, and ends with an end of a period, or with
a rollback.  It passes (`complete`) if nothing in it is wrong, nothing before it is missing, and it ends above
all that passed.  What was rolled back or damaged is missing until a window starts where it did, or before;
until then all windows wait.  What is sent again is passed over, up to the SCN that passed last.

A rollback may come at any time, since a window may have started of which no event had come, and behind one
any number of windows without events; neither is ever wrong.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdckit.databus.event_values import DATA, END, ROLLBACK, DatabusFault

COMPLETE, OPEN, REPEATED, ROLLED_BACK = "complete", "open", "repeated", "rolled back"
DAMAGED, WAITING, LATE = "damaged", "waiting", "late"

HIGHEST, LOWEST = (1 << 63) - 1, -(1 << 63)

Finding = tuple[DatabusFault, str]
Spans = tuple[Sequence[int], Sequence[int]]
"""The first and the last SCN of each of some spans, both growing."""


class Row(NamedTuple):
    """What the rules look at of a record."""

    kind: str | None
    """None: it is in error, whatever it would have been."""
    scn: int
    source: int
    offset: int
    micros: int


class Step(NamedTuple):
    """What is known of a row once it was taken; and of the window that it ends, if it ends one."""

    position: int | None = None
    """The place of a data event among those of its window, from 1."""
    is_late: bool = False
    """Whether it says something of an SCN that passed without it."""
    finding: Finding | None = None
    outcome: Outcome | None = None


class Outcome(NamedTuple):
    """What became of a window."""

    number: int
    state: str
    start_scn: int | None
    end_scn: int | None
    micros: int | None
    """When a complete window became true: never before one that passed earlier."""
    passed_scn: int
    """The SCN up to which all had passed before: its events at or below it are repeats."""
    events: int
    bad: int
    first_offset: int
    last_offset: int
    finding: Finding | None = None
    covered: tuple[int, int] | None = None
    """The first and the last SCN of which a window that passed has said everything."""


@dataclass
class OpenWindow:
    """What is known of a window that has not ended: it can be written down."""

    number: int = 1
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
    """By source the SCN of its last event."""

    @property
    def start_scn(self) -> int | None:
        """The lowest SCN of its events."""
        return self.low if self.events else None


class StreamPosition(NamedTuple):
    """Where a stream stands between two windows."""

    passed_scn: int = -1
    """The SCN up to which all has passed."""
    needed_scn: int | None = None
    """The SCN at which, or before which, the next window must start; None where nothing is missing."""
    after_rollback: bool = False
    """Whether a rollback came since the last window with events: the next one must start in time."""
    micros: int = LOWEST
    """When the last window that passed became true."""


START = StreamPosition()


class WindowMachine:
    """
    The state of one stream.

    Args:
        position: Where it stands.
        window: What is known of the window that follows.
        unreadable: The growing offsets of records in error that do not say their stream; each may have been
            of this one.
        covered_before: From an SCN on, what the windows covered that passed before *position*.

    >>> machine = WindowMachine()
    >>> machine.take(Row("data", 5, 97, 0, 0)).position
    1
    >>> machine.take(Row("end", 5, 0, 1, 0)).outcome.state, machine.position.passed_scn
    ('complete', 5)
    """

    def __init__(
        self,
        position: StreamPosition = START,
        window: OpenWindow | None = None,
        unreadable: Sequence[int] = (),
        covered_before: Callable[[int], Spans] | None = None,
    ) -> None:
        self._passed, self._needed, self._after_rollback, self._micros = position
        self.window = window or OpenWindow()
        self._unreadable, self._seen = unreadable, 0
        self._lows, self._highs = array("q"), array("q")
        self._covered_before, self._looked_up = covered_before, 0
        self._covered_from = LOWEST if covered_before is None else position.passed_scn + 1

    @property
    def position(self) -> StreamPosition:
        """Where the stream stands at the end of its last window."""
        return StreamPosition(self._passed, self._needed, self._after_rollback, self._micros)

    @property
    def unseen(self) -> int:
        """How many records that do not say their stream stand behind that end."""
        return len(self._unreadable) - self._seen

    def take(self, row: Row) -> Step:
        """Take the next row."""
        window, kind = self.window, row.kind
        if window.first_offset < 0:
            window.first_offset = row.offset
        window.last_offset = row.offset
        if kind == DATA:
            return self._add_event(window, row.scn, row.source, row.micros)
        if kind in (END, ROLLBACK):
            return self._end_window(row)
        if kind is None:
            window.bad += 1
        return _NOTHING

    def open_outcome(self) -> Outcome:
        """What there is to say of the window that never ended."""
        window = self.window
        return Outcome(
            window.number, OPEN, window.start_scn, None, None, self._passed,
            window.events, window.bad, window.first_offset, window.last_offset,
        )  # fmt: skip

    def _add_event(self, window: OpenWindow, scn: int, source: int, micros: int) -> Step:
        finding = None
        least = window.of_source.get(source, scn)
        if scn < least:
            window.fell = True
            finding = DatabusFault.SCN_FELL, f"Expected {least} or more, found {scn}."
        window.of_source[source] = scn
        window.events += 1
        if scn < window.low:
            window.low = scn
        if scn > window.high:
            window.high = scn
        if micros > window.micros:
            window.micros = micros
        is_late = scn <= self._passed and not self._is_covered(scn)
        if is_late:
            window.late = True
        return Step(window.events, is_late, finding)

    def _is_covered(self, scn: int) -> bool:
        """Whether a window that passed has said everything of the SCN."""
        if scn < self._covered_from and self._covered_before is not None:
            lows, highs = self._covered_before(scn)
            self._lows[: self._looked_up] = array("q", lows)
            self._highs[: self._looked_up] = array("q", highs)
            self._looked_up, self._covered_from = len(lows), scn
        place = bisect_right(self._lows, scn) - 1
        return place >= 0 and scn <= self._highs[place]

    def _end_window(self, end: Row) -> Step:
        window, passed = self.window, self._passed
        seen = bisect_left(self._unreadable, end.offset, self._seen)
        window.bad += seen - self._seen
        self._seen, self.window = seen, OpenWindow(window.number + 1)
        is_rollback = end.kind == ROLLBACK
        state, finding = self._roll_back(window, end.scn) if is_rollback else self._judge(window, end.scn)
        covered = None
        if state == COMPLETE:
            self._micros = max(self._micros, end.micros, window.micros)
            covered = self._pass(window, end.scn)
        outcome = Outcome(
            window.number, state, window.start_scn, None if is_rollback else end.scn,
            self._micros if state == COMPLETE else None, passed,
            window.events, window.bad, window.first_offset, window.last_offset, finding, covered,
        )  # fmt: skip
        return Step(finding=finding, outcome=outcome)

    def _roll_back(self, window: OpenWindow, scn: int) -> tuple[str, Finding | None]:
        """A rollback takes with it what came of its window."""
        if not window.events and not window.bad:
            return ROLLED_BACK, None
        start = window.low if window.events else scn
        self._miss(start)
        self._after_rollback = True
        if scn > start:
            return ROLLED_BACK, (DatabusFault.ROLLBACK_TOO_LATE, f"Expected {start} or less, found {scn}.")
        return ROLLED_BACK, None

    def _judge(self, window: OpenWindow, end: int) -> tuple[str, Finding | None]:
        """What becomes of a window that ends with this SCN, and what is wrong with its end."""
        low, high = (window.low, window.high) if window.events else (end, end)
        repeated = LATE if window.late else REPEATED
        if window.bad or window.fell or end < high:
            self._after_rollback = False
            too_low = DatabusFault.END_TOO_LOW, f"Expected {high} or more, found {end}."
            finding = too_low if end < high else None
            if max(end, high) <= self._passed:
                return repeated, finding
            self._miss(low)
            return DAMAGED, finding
        if self._needed is not None:
            if not window.events:
                return WAITING, None
            after_rollback, self._after_rollback = self._after_rollback, False
            if low > self._needed:
                expected = f"Expected a window that starts at {self._needed} or less"
                too_late = DatabusFault.START_TOO_LATE, f"{expected}, found one that starts at {low}."
                return WAITING, too_late if after_rollback else None
        if end > self._passed and window.late:
            self._miss(low)
            return DAMAGED, None
        self._needed = None
        return (repeated if end <= self._passed else COMPLETE), None

    def _miss(self, scn: int) -> None:
        """From this SCN on something is missing."""
        self._needed = scn if self._needed is None else min(self._needed, scn)

    def _pass(self, window: OpenWindow, end: int) -> tuple[int, int] | None:
        """The window passes; the SCNs of which it has said everything."""
        covered = None
        if window.events:
            covered = max(window.low, self._passed + 1), window.high
            self._lows.append(covered[0])
            self._highs.append(covered[1])
        # A relay begins with an empty window of SCN 0, which says nothing.
        if end > 0 or window.events:
            self._passed = end
        return covered


_NOTHING = Step()
