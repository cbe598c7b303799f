"""Tables: the versions of a history as a reader wants to see them, in Jupyter and as text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cached_property, partial
from html import escape
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    SYSTEM_FROM,
    SYSTEM_TO,
    VALID_FROM,
    VALID_TO,
)
from cdckit.parts.arguments import require_fields
from cdckit.parts.instants import EPOCH
from cdckit.parts.schemas import quoted, require_columns, require_struct, require_type
from cdckit.parts.values import as_text

OPEN = "…"
NULL = "NULL"
_LONGEST_MESSAGE = 12
_MOST = 1000
_TIMESPECS = (
    (60_000_000, "minutes"),
    (1_000_000, "seconds"),
    (1_000, "milliseconds"),
    (1, "microseconds"),
)

# What these columns are called above a table; everything that is not here is a field of the entity.
_TIMES = {
    VALID_FROM: "valid_from",
    VALID_TO: "valid_to",
    SYSTEM_FROM: "system_from",
    SYSTEM_TO: "system_to",
}
_MARKS = {DELETED: "state", SOURCE_MESSAGE: "message", "guid": "guid"}
_ENDS = (VALID_TO, SYSTEM_TO)
_INSTANTS = ("instant", "begin", "end")
# Of answers about a history: in a history itself these are fields like any other.
_MESSAGES = ("message", "message_id", "by_message", "a_message", "b_message")

# With the table, as styles of its own: notebooks that are looked at elsewhere lose their style sheets.
_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre"
_LONG_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre-wrap;min-width:20em"
_LONG = 40
_DELETED_COLOUR = "#b2182b"


def show(
    history: DataFrame,
    *,
    rows: int = 20,
    order_by: str | Sequence[str] | None = None,
    provenance: bool = True,
    width: int = 60,
    zone: tzinfo = UTC,
) -> HistoryTable:
    """
    A history as a table to look at, bounded and readable, in Jupyter and as text.

    Nothing is computed before the table is displayed or its text is asked for, and then once: a
    table is a picture of its first display.

    Args:
        history: A history, or what is left of one: the answers of `as_of`, `known_at`, `timeline`
            and `blame`, a bitemporal table.  Of the columns that every history has each may be missing.
        rows: How many rows to show at most, up to 1000.
        order_by: Columns to order by; after them come guid and the beginnings of the intervals.
            Without it rows stand as *history* gives them: in its order, if it has one.
        provenance: Show after each value its message and priority, where *history* knows them.
        width: How many characters of a value to show at most.
        zone: The zone to show instants in; the caption names it.

    Returns:
        A table with the fields first, then the intervals, `state` where a version is deleted, the
        message and the guid.  Instants are as short as they can be without losing anything: a day
        that all share stands in the caption alone, and seconds only where the column has some.
        An open end is `…`, a null NULL; guids are cut after 8 characters, and of long messages the
        middle is left out as far as they still differ.

    Raises:
        MissingColumns, WrongColumnType: A standard column is of another type than in a history.
        InvalidArgument: *history* is no DataFrame; *rows* or *width* is not from 1 to 1000; or *order_by* is
            not of the columns of *history*.

    Cost: nothing at the call; at the first display one job for *rows* + 1 rows (with *order_by* over
    the whole history).

    >>> show(history.drop("guid"), order_by=["number"])
    number   name          valid_from  valid_to  state          message
    1 ·m1/0  kettle ·m1/0  09:00       10:00                    m1
    1 ·m1/0  teapot ·m2/0  10:00       …                        m2
    2 ·m1/0  mug ·m1/0     09:00       11:00                    m1
    2 ·m1/0  NULL ·m3/0    11:00       …         deleted ·m3/0  m3
    (4 rows; instants of 2024-01-01, UTC; … is an open end; ·message/priority after a value)
    """
    require_columns(history, [], function="show")
    for name, number in (("rows", rows), ("width", width)):
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _MOST:
            raise InvalidArgument("show", name, f"a number from 1 to {_MOST}", number)
    columns = _columns(history, provenance, width)
    ordered = history if order_by is None else _ordered(history, order_by)
    # By place, not by name: a field may be called as another one's provenance is.
    cells = [column.cell.alias(str(place)) for place, column in enumerate(columns)]
    headings = tuple(column.heading for column in columns)
    kinds = tuple(column.kind for column in columns)
    return HistoryTable(ordered.limit(rows + 1).select(*cells), headings, kinds, rows, width, zone)


class HistoryTable:
    """What `show` returns: displays itself in Jupyter, and is text where there is none."""

    def __init__(
        self,
        cells: DataFrame,
        headings: Sequence[str],
        kinds: Sequence[str],
        rows: int,
        width: int,
        zone: tzinfo,
    ) -> None:
        self._cells, self._headings, self._kinds = cells, headings, kinds
        self._rows, self._width, self._zone = rows, width, zone

    def __repr__(self) -> str:
        return _as_text_table(self._page)

    def _repr_html_(self) -> str:
        return _as_html_table(self._page)

    @cached_property
    def _page(self) -> _Page:
        found = [tuple(row) for row in self._cells.collect()]
        return _page(found, self._headings, self._kinds, self._rows, self._width, self._zone)


# What is read -------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """A column of the table: kind is value, instant, begin, end, state, message or guid."""

    heading: str
    kind: str
    cell: Column


def _columns(history: DataFrame, provenance: bool, width: int) -> list[_Column]:
    types = {field.name: field.dataType for field in history.schema.fields}
    for name in (*_TIMES, *_MARKS):
        if name in types:
            needed = T.TimestampType() if name in _TIMES else HISTORY_SCHEMA[name].dataType
            require_type(history, name, needed, function="show")
    said = _provenance(history) if FIELD_PROVENANCE in types and provenance else {}
    apart = {*_TIMES, *_MARKS, FIELD_PROVENANCE}
    messages = () if DELETED in types else _MESSAGES
    columns = [
        _Column(
            name,
            _kind(name, kind, messages),
            _cell(name, kind, said.get(name), width, as_it_is=_kind(name, kind, messages) == "message"),
        )
        for name, kind in types.items()
        if name not in apart
    ]
    for name, heading in _TIMES.items():
        if name in types:
            kind = "end" if name in _ENDS else "begin"
            columns.append(_Column(heading, kind, _cell(name, types[name], None, width)))
    for name, heading in _MARKS.items():
        if name in types:
            entry = said.get("guid") if name == DELETED else None
            columns.append(_Column(heading, heading, _cell(name, types[name], entry, width, as_it_is=True)))
    return columns


def _provenance(history: DataFrame) -> dict[str, Column]:
    """Where each field has its value from; what is no entry of a message and a priority says nothing."""
    fields = require_struct(history, FIELD_PROVENANCE, function="show").fields
    return {
        field.name: F.col(FIELD_PROVENANCE).getField(field.name)
        for field in fields
        if isinstance(field.dataType, T.StructType) and {"m", "p"} <= set(field.dataType.names)
    }


def _kind(name: str, kind: T.DataType, messages: Sequence[str]) -> str:
    if name in messages and isinstance(kind, T.StringType):
        return "message"
    return "instant" if _is_instant(kind) else "value"


def _is_instant(kind: T.DataType) -> bool:
    return isinstance(kind, T.TimestampType)


def _cell(name: str, kind: T.DataType, entry: Column | None, width: int, as_it_is: bool = False) -> Column:
    """Value, message, priority; instants as microseconds, since Python knows no year after 9999."""
    column = F.col(quoted(name))
    if _is_instant(kind):
        value = F.unix_micros(column)
    elif as_it_is:
        value = column
    else:
        value = F.substring(as_text(column, kind), 1, width + 1)
    nobody = F.lit(None)
    message = nobody.cast("string") if entry is None else entry.getField("m").cast("string")
    priority = nobody.cast("string") if entry is None else entry.getField("p").cast("string")
    return F.struct(value.alias("value"), message.alias("m"), priority.alias("p"))


def _ordered(history: DataFrame, order_by: str | Sequence[str]) -> DataFrame:
    chosen = require_fields(order_by, history.columns, "order_by", function="show")
    ties = [name for name in ("guid", VALID_FROM, SYSTEM_FROM) if name in history.columns]
    names = dict.fromkeys([*chosen, *ties])
    return history.orderBy(*(F.col(quoted(name)) for name in names))


# What is shown ------------------------------------------------------------------------------------------


class _Cell(NamedTuple):
    """Text, who said so (shortened, and in full), and its look: value, nothing, mark, or none of them."""

    text: str
    said: str = ""
    in_full: str = ""
    look: str = ""


class _Page(NamedTuple):
    """A table as it is shown, whatever in."""

    headings: list[str]
    rows: list[list[_Cell]]
    deleted: list[bool]
    caption: str


def _page(
    found: Sequence[tuple[Any, ...]],
    headings: Sequence[str],
    kinds: Sequence[str],
    rows: int,
    width: int,
    zone: tzinfo,
) -> _Page:
    shown = found[:rows]
    deleted = [any(_is_deleted(cell, kind) for cell, kind in zip(row, kinds, strict=True)) for row in shown]
    places = [place for place, kind in enumerate(kinds) if kind != "state" or any(deleted)]
    values = {place: [row[place].value for row in shown if row[place].value is not None] for place in places}
    times = {place: values[place] for place in places if kinds[place] in _INSTANTS}
    clock = _Clock.of([each for column in times.values() for each in column], zone)
    named = [name for place in places if kinds[place] == "message" for name in values[place]]
    said = [row[place].m for row in shown for place in places if row[place].m is not None]
    messages = _short_messages([*named, *said])
    # Beginnings and ends are read together, so they are written alike; a field is written for itself.
    bounds = [each for place, column in times.items() if kinds[place] != "instant" for each in column]
    specs = {
        place: _timespec(column if kinds[place] == "instant" else bounds) for place, column in times.items()
    }
    table = [
        [
            _shown(row[place], kinds[place], partial(clock.text, spec=specs.get(place, "")), messages, width)
            for place in places
        ]
        for row in shown
    ]
    notes = [_count(len(found), rows)]
    if any(times.values()):
        notes.append(clock.caption)
    if any(kinds[place] == "end" and row[place].value is None for row in shown for place in places):
        notes.append(f"{OPEN} is an open end")
    if any(cell.said for row in table for cell in row):
        notes.append("·message/priority after a value")
    return _Page([_one_line(headings[place]) for place in places], table, deleted, "; ".join(notes))


def _is_deleted(cell: Any, kind: str) -> bool:
    return kind == "state" and bool(cell.value)


def _count(found: int, rows: int) -> str:
    if found > rows:
        return f"first {rows} row{'s' if rows != 1 else ''} of more"
    return f"{found} row{'s' if found != 1 else ''}" if found else "no rows"


def _shown(
    cell: Any, kind: str, instant: Callable[[int], str], messages: Mapping[str, str], width: int
) -> _Cell:
    said = f"{messages[cell.m]}/{cell.p}" if cell.m is not None else ""
    in_full = f"{_one_line(cell.m)}, priority {cell.p}" if cell.m is not None else ""
    if kind == "state":
        return _Cell("deleted", said, in_full, "mark") if cell.value else _Cell("")
    if cell.value is None:
        return _Cell(OPEN if kind == "end" else NULL, said, in_full, "" if kind == "end" else "nothing")
    if kind == "message":
        return _Cell(messages[cell.value], "", _one_line(cell.value))
    if kind in _INSTANTS:
        return _Cell(instant(cell.value), said, in_full, "value" if kind == "instant" else "")
    if kind == "guid":
        return _Cell(_cut(cell.value, 8))
    return _Cell(_cut(cell.value, width), said, in_full, "value")


def _cut(text: str, longest: int) -> str:
    return _one_line(text if len(text) <= longest else text[:longest] + "…")


def _one_line(text: str) -> str:
    """Line ends, and what would turn or hide the text around it, as their escapes."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _short_messages(messages: Iterable[str]) -> dict[str, str]:
    """Long message names without their middles, as far as the names of one table still differ."""
    names = sorted(set(messages))
    for tail in range(4, max(map(len, names), default=0)):
        short = {
            name: name if len(name) <= max(_LONGEST_MESSAGE, tail + 5) else f"{name[:4]}…{name[-tail:]}"
            for name in names
        }
        if len(set(short.values())) == len(names):
            return {name: _one_line(text) for name, text in short.items()}
    return {name: _one_line(name) for name in names}


class _Clock(NamedTuple):
    """What the instants of one table share, and so need not say: they are microseconds since 1970."""

    zone: tzinfo
    offsets: bool
    day: date | None

    @classmethod
    def of(cls, micros: Iterable[int], zone: tzinfo) -> _Clock:
        moments = [moment for moment in (_moment(each, zone) for each in micros) if moment is not None]
        days = {moment.date() for moment in moments}
        # An hour that happens twice, or a summer among winters: then each instant needs its offset.
        offsets = len({moment.utcoffset() for moment in moments}) > 1
        return cls(zone, offsets, min(days) if len(days) == 1 else None)

    @property
    def caption(self) -> str:
        return f"instants of {self.day}, {self.zone}" if self.day else f"instants in {self.zone}"

    def text(self, micros: int, spec: str) -> str:
        moment = _moment(micros, self.zone)
        if moment is None:
            return "after 9999" if micros > 0 else "before 0001"
        written = (moment if self.offsets else moment.replace(tzinfo=None)).isoformat(" ", spec)
        return written[11:] if self.day else written


def short_instants(instants: Sequence[datetime], zone: tzinfo) -> tuple[list[str], str]:
    """Instants as short as they can be together, and the words for what they share."""
    micros = [(instant - EPOCH) // timedelta(microseconds=1) for instant in instants]
    clock = _Clock.of(micros, zone)
    return [clock.text(each, _timespec(micros)) for each in micros], clock.caption


def _timespec(micros: Iterable[int]) -> str:
    listed = list(micros)
    return next(word for unit, word in _TIMESPECS if all(each % unit == 0 for each in listed))


def _moment(micros: int, zone: tzinfo) -> datetime | None:
    try:
        return (EPOCH + timedelta(microseconds=micros)).astimezone(zone)
    except OverflowError:
        return None


def _as_text_table(page: _Page) -> str:
    lines = [page.headings]
    lines += [[f"{cell.text} ·{cell.said}" if cell.said else cell.text for cell in row] for row in page.rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    written = [
        "  ".join(text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join([line.rstrip() for line in written] + [f"({page.caption})"])


def _width(text: str) -> int:
    """How many columns a text takes where all characters are equally wide, but for the wide ones."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _as_html_table(page: _Page) -> str:
    headings = "".join(f'<th style="{_CELL}">{escape(heading)}</th>' for heading in page.headings)
    rows = "".join(
        f"<tr>{''.join(_as_html_cell(cell, deleted) for cell in row)}</tr>"
        for row, deleted in zip(page.rows, page.deleted, strict=True)
    )
    caption = f'<caption style="caption-side:bottom;text-align:left">{escape(page.caption)}</caption>'
    parts = f"{caption}<thead><tr>{headings}</tr></thead><tbody>{rows}</tbody>"
    return f'<div style="overflow-x:auto"><table style="line-height:1.3">{parts}</table></div>'


def _as_html_cell(cell: _Cell, deleted: bool) -> str:
    text = escape(cell.text)
    if cell.look == "mark":
        text = f'<b style="color:{_DELETED_COLOUR}">{text}</b>'
    elif cell.look == "nothing":
        text = f'<span style="opacity:0.5">{text}</span>'
    elif cell.look == "value" and deleted:
        text = f'<del style="opacity:0.6">{text}</del>'
    in_full = f' title="{escape(cell.in_full)}"' if cell.in_full else ""
    if cell.said:
        text += f'<sup style="opacity:0.6;padding-left:3px"{in_full}>{escape(cell.said)}</sup>'
        in_full = ""
    return f'<td style="{_LONG_CELL if len(cell.text) > _LONG else _CELL}"{in_full}>{text}</td>'
