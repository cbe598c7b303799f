"""A table as it is shown: its cells as texts, instants as short as they can be together, and its caption."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, NamedTuple

from cdckit.notebook.columns import MessageLabel, one_line
from cdckit.parts.instants import EPOCH, microseconds

_TIMESPECS = (
    (60_000_000, "minutes"),
    (1_000_000, "seconds"),
    (1_000, "milliseconds"),
    (1, "microseconds"),
)


class Clock(NamedTuple):
    """What the instants of one table share, and so need not say: they are microseconds since 1970."""

    zone: tzinfo
    offsets: bool
    day: date | None

    @classmethod
    def of(cls, micros: Iterable[int], zone: tzinfo) -> Clock:
        """The clock of these instants."""
        moments = [moment for moment in (_moment(each, zone) for each in micros) if moment is not None]
        days = {moment.date() for moment in moments}
        # An hour that happens twice, or a summer among winters: then each instant needs its offset.
        offsets = len({moment.utcoffset() for moment in moments}) > 1 or any(map(_happens_twice, moments))
        return cls(zone, offsets, min(days) if len(days) == 1 else None)

    @property
    def caption(self) -> str:
        """What the instants share, in words."""
        return f"instants of {self.day}, {self.zone}" if self.day else f"instants in {self.zone}"

    def text(self, micros: int, spec: str) -> str:
        """An instant without what all share; *spec* is what `isoformat` calls so."""
        moment = _moment(micros, self.zone)
        if moment is None:
            return "after 9999" if micros > 0 else "before 0001"
        written = (moment if self.offsets else moment.replace(tzinfo=None)).isoformat(" ", spec)
        return written[11:] if self.day else written

    def in_full(self, micros: int) -> str:
        """An instant by itself, with its day."""
        moment = _moment(micros, self.zone)
        if moment is None:
            return self.text(micros, "")
        return moment.replace(tzinfo=None).isoformat(" ", timespec([micros]))


def short_instants(instants: Sequence[datetime], zone: tzinfo) -> tuple[list[str], str]:
    """Instants as short as they can be together, and the words for what they share."""
    micros = [microseconds(instant) for instant in instants]
    clock = Clock.of(micros, zone)
    return [clock.text(each, timespec(micros)) for each in micros], clock.caption


def timespec(micros: Iterable[int]) -> str:
    """How fine these instants are, as `isoformat` calls it: seconds only where one has some."""
    listed = list(micros)
    return next(word for unit, word in _TIMESPECS if all(each % unit == 0 for each in listed))


def _happens_twice(moment: datetime) -> bool:
    """Whether clocks were put back then, and show this once more."""
    return moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()


def _moment(micros: int, zone: tzinfo) -> datetime | None:
    try:
        return (EPOCH + timedelta(microseconds=micros)).astimezone(zone)
    except OverflowError:
        return None


OPEN = "…"
NULL = "NULL"
_INSTANTS = ("instant", "begin", "end")


class Cell(NamedTuple):
    """Text, its message and all that is known of it, and its look: see `cdckit.notebook.display`."""

    text: str
    message: str = ""
    in_full: str = ""
    look: str = ""


class Page(NamedTuple):
    """A table as it is shown."""

    headings: list[str]
    numbers: list[bool]
    rows: list[list[Cell]]
    deleted: list[bool]
    caption: str


class Look(NamedTuple):
    """What a table is to look like: its columns, how many rows, how wide a value may be, and whose clock."""

    headings: Sequence[str]
    kinds: Sequence[str]
    rows: int
    width: int
    zone: tzinfo


class TableRows(NamedTuple):
    """What was read for a table: perhaps one row more than it shows."""

    found: Sequence[tuple[Any, ...]]
    look: Look

    @property
    def visible_rows(self) -> Sequence[tuple[Any, ...]]:
        """The rows that the table has."""
        return self.found[: self.look.rows]

    @property
    def kinds(self) -> dict[int, str]:
        """The columns that say something of some row, by their places."""
        return {
            place: kind
            for place, kind in enumerate(self.look.kinds)
            if kind not in ("state", "quiet") or any(row[place].value for row in self.visible_rows)
        }

    @property
    def messages(self) -> set[str]:
        """The messages that are named in it."""
        cells = [(kind, row[place]) for place, kind in self.kinds.items() for row in self.visible_rows]
        named = {cell.value for kind, cell in cells if kind == "message" and cell.value is not None}
        return named | {cell.m for _, cell in cells if cell.m is not None}

    @property
    def times(self) -> dict[int, list[int]]:
        """The instants of each column that has some."""
        return {
            place: [
                row[place].value
                for row in self.visible_rows
                if row[place].value is not None and row[place].sent
            ]
            for place, kind in self.kinds.items()
            if kind in _INSTANTS
        }

    @property
    def clock(self) -> Clock:
        """The clock that all instants of the table share."""
        return Clock.of([each for column in self.times.values() for each in column], self.look.zone)


def make_page(rows: TableRows, messages: Mapping[str, MessageLabel], *, named: bool) -> Page:
    """The table of what was read, its messages called as *messages* say: *named* by their sources, or not."""
    look, kinds, clock, times = rows.look, rows.kinds, rows.clock, rows.times
    # Beginnings and ends are read together, so they are written alike; a field is written for itself.
    bounds = [each for place, column in times.items() if kinds[place] != "instant" for each in column]
    specs = {
        place: timespec(column if kinds[place] == "instant" else bounds) for place, column in times.items()
    }
    table = [
        [
            _show_cell(row[place], kind, partial(clock.text, spec=specs.get(place, "")), messages, look.width)
            for place, kind in kinds.items()
        ]
        for row in rows.visible_rows
    ]
    deleted = [
        any(kind == "state" and bool(row[place].value) for place, kind in kinds.items())
        for row in rows.visible_rows
    ]
    headings = [one_line(look.headings[place]) for place in kinds]
    numbers = [kind == "number" for kind in kinds.values()]
    cells = [(kind, row[place]) for place, kind in kinds.items() for row in rows.visible_rows]
    notes = {
        _count(len(rows.found), look.rows): True,
        clock.caption: any(times.values()),
        f"{OPEN} is an open end": any(kind == "end" and cell.value is None for kind, cell in cells),
        "blank was not sent": any(not cell.sent for _, cell in cells),
        f"after a value its {'source' if named else 'message'}/priority": any(
            cell.m is not None for _, cell in cells
        ),
        "after a value the priority that it has of its own": any(
            cell.m is None and cell.p for _, cell in cells
        ),
    }
    caption = "; ".join(note for note, holds in notes.items() if holds)
    return Page(headings, numbers, table, deleted, caption)


def _count(found: int, rows: int) -> str:
    if found > rows:
        return f"first {rows} row{'s' if rows != 1 else ''} of more"
    return f"{found} row{'s' if found != 1 else ''}" if found else "no rows"


def _show_cell(
    cell: Any, kind: str, instant: Callable[[int], str], messages: Mapping[str, MessageLabel], width: int
) -> Cell:
    if not cell.sent:
        return Cell("")
    said, in_full = _message_label(cell, messages)
    if kind == "state":
        return Cell("deleted", said, in_full, "mark") if cell.value else Cell("")
    if kind == "quiet":
        return Cell(_shorten(cell.value or "", width))
    if cell.value is None:
        return Cell(OPEN if kind == "end" else NULL, said, in_full, "" if kind == "end" else "nothing")
    if kind == "message":
        return Cell(messages[cell.value].short, "", messages[cell.value].in_full)
    if kind in _INSTANTS:
        return Cell(instant(cell.value), said, in_full, "value" if kind == "instant" else "")
    if kind == "guid":
        return Cell(_shorten(cell.value, 8))
    if kind == "operation":
        return Cell(one_line(cell.value), look="mark" if cell.value == "delete" else "")
    if kind == "bytes":
        return Cell(_bytes(cell.value), said, in_full, "value")
    return Cell(_shorten(cell.value, width), said, in_full, "value")


def _message_label(cell: Any, messages: Mapping[str, MessageLabel]) -> tuple[str, str]:
    if cell.m is None:
        return (cell.p, f"priority {cell.p}") if cell.p else ("", "")
    message = messages[cell.m]
    return f"{message.short}/{cell.p}", f"{message.in_full}, priority {cell.p}"


def _bytes(value: Any) -> str:
    text = repr(bytes(value.first))
    return text if len(value.first) == value.of else f"{text[:-1]}…' ({value.of:,} bytes)"


def _shorten(text: str, longest: int) -> str:
    return one_line(text if len(text) <= longest else text[:longest] + "…")
