"""`show`: a table to look at, in Jupyter and as text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import cached_property, partial
from html import escape
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.model.history import SYSTEM_FROM, VALID_FROM
from cdckit.notebook.clock import Clock, timespec
from cdckit.notebook.columns import (
    NULL,
    TableColumn,
    has_change_columns,
    resolve_headings,
    resolve_names,
    select_columns,
    table_columns,
)
from cdckit.notebook.message_labels import (
    MessageLabel,
    label_messages,
    one_line,
    require_changes,
    shorten_messages,
)
from cdckit.notebook.options import ROWS, as_zone, options
from cdckit.parts.argument_forms import rows_with, takes
from cdckit.parts.arguments import quoted, require_batch, require_fields
from cdckit.parts.job_descriptions import describe_step

OPEN = "…"
_INSTANTS = ("instant", "begin", "end")


class Cell(NamedTuple):
    """
    Text, its message, all that is known of it, and its look.

    A mark is red and bold, nothing is pale, the value of a deleted version is struck through.
    """

    text: str
    message: str = ""
    in_full: str = ""
    look: str = ""


class Grid(NamedTuple):
    """What a `Table` shows: rows of texts; which columns are numbers, and which rows are struck through."""

    headings: Sequence[Cell]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[Cell]]
    deleted: Sequence[bool]
    caption: str


class Table:
    """What `show`, `check`, `profile` and the widgets show: HTML in Jupyter, text elsewhere; read once."""

    def __init__(self, read: Callable[[], Grid]) -> None:
        self._read = read

    @cached_property
    def grid(self) -> Grid:
        """What it shows; the first to ask for it has it read."""
        return self._read()

    def map(self, change: Callable[[Grid], Grid]) -> Table:
        """Change the grid of the table when it is read."""
        return Table(lambda: change(self.grid))

    def __repr__(self) -> str:
        lines = [
            [f"{cell.text} ·{cell.message}" if cell.message else cell.text for cell in row]
            for row in (self.grid.headings, *self.grid.rows)
        ]
        widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
        written = [
            "  ".join(text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True))
            for line in lines
        ]
        return "\n".join([line.rstrip() for line in written] + [f"({self.grid.caption})"])

    def _repr_html_(self) -> str:
        """HTML without an id, a script or a time: the same rows give the same text."""
        grid = self.grid
        headings = "".join(
            f'<th style="{_NUMBER if number else _CELL}">{html_text(heading.text)}'
            f"{_BELOW.format(html_text(heading.message)) if heading.message else ''}</th>"
            for heading, number in zip(grid.headings, grid.numbers, strict=True)
        )
        rows = "".join(
            f"<tr>{''.join(map(_html_cell, row, grid.numbers, [deleted] * len(row)))}</tr>"
            for row, deleted in zip(grid.rows, grid.deleted, strict=True)
        )
        caption = f'<caption style="caption-side:bottom;text-align:left">{html_text(grid.caption)}</caption>'
        parts = f"{caption}<thead><tr>{headings}</tr></thead><tbody>{rows}</tbody>"
        return f'<div style="overflow-x:auto"><table style="line-height:1.3">{parts}</table></div>'


# With the table, as styles of its own: notebooks that are looked at elsewhere lose their style sheets.
_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre"
_NUMBER = _CELL.replace("left", "right", 1)
_LONG_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre-wrap;min-width:20em"
_LONG = 40
_BELOW = '<div style="font-weight:normal;font-size:0.85em;opacity:0.6">{}</div>'
_LOOKS = {
    "mark": '<b style="color:#d94050">{}</b>',  # as far from white as from the black of a dark theme
    "nothing": '<span style="opacity:0.5">{}</span>',
}


def _width(text: str) -> int:
    """Count the columns that a text takes where all characters are equally wide, but for the wide ones."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


_MATHEMATICS = re.compile(r"\$|\\(?=[(\[]|begin\{)")


def html_text(text: str) -> str:
    """Escape a text for HTML; Jupyter would set what stands between two dollars as mathematics."""
    return _MATHEMATICS.sub(r"<span>\g<0></span>", escape(text))


def _html_cell(cell: Cell, number: bool, deleted: bool) -> str:
    struck = cell.look == "value" and deleted
    look = '<del style="opacity:0.6">{}</del>' if struck else _LOOKS.get(cell.look, "{}")
    title = f' title="{escape(cell.in_full)}"' if cell.in_full and not cell.message else ""
    style = _LONG_CELL if len(cell.text) > _LONG else _NUMBER if number else _CELL
    message = ""
    if cell.message:
        of = f' title="{escape(cell.in_full)}"' if cell.in_full else ""
        style_of = "line-height:0;opacity:0.6;padding-left:3px"
        message = f'<sup style="{style_of}"{of}>{html_text(cell.message)}</sup>'
    return f'<td style="{style}"{title}>{look.format(html_text(cell.text))}{message}</td>'


@takes(frame=rows_with(), rows=ROWS.or_none(), width=ROWS)
def show(
    frame: DataFrame,
    *,
    changes: DataFrame | None = None,
    columns: Sequence[str] | None = None,
    rows: int | None = None,
    order_by: str | Sequence[str] | None = None,
    provenance: bool = True,
    width: int = 60,
    zone: tzinfo | str | None = None,
) -> Table:
    """
    A history, changes, rejects or an answer as a table to look at: bounded, in Jupyter and as text.

    Nothing is computed before the table is displayed or its text is asked for, and then once: a
    table is a picture of its first display.

    Args:
        frame: A history, or what is left of one: the answers of `as_of`, `known_at`, `timeline` and `blame`,
            a bitemporal table.  Of the columns that every history has each may be missing.  Or changes, or
            rejects.  Any other table is shown as it is.
        changes: The changes that a history was merged from: then each message is called by its source, and
            the mouse finds when it was true, when it came and where it lies.
        columns: The columns to show, by their names or by what stands above them, in this order; without it
            all.  The state of deleted versions is shown anyhow.
        rows: How many rows to show at most, up to 1000; without it `options.rows`, which is 20 at first.
        order_by: Columns to order by, by their names or by what stands above them, of changes also fields;
            after them come guid and the beginnings of the intervals.  Without it rows stand as *frame* gives
            them: in its order, if it has one.
        provenance: Show after each value its message and the priority that the value has, where *frame* knows
            them.  The two may be of different messages: a key keeps the message that stated it first, while
            its priority becomes that of a stronger one that repeats it.  With *changes*, a source that is the
            same for a whole column stands above it.
        width: How many characters of a value, or bytes, to show at most.
        zone: The zone to show instants in, a tzinfo or its name; the caption names it.  Without it
            `options.zone`, which is UTC at first.

    Returns:
        A table.  Of a history: since when and until when first, then the fields, `state` where a version is
        deleted, the message and the guid.  Of changes: the source and the operation, the fields, blank where
        they were not sent, and the message; the sequence, and priorities, where there are some.  Of rejects:
        what is wrong, then where the record lies and how it begins.

        Instants are as short as they can be without losing anything: a day that all share stands in the
        caption alone, and seconds only where the column has some.  An open end is `…`, a null NULL; the texts
        "" and "NULL" have quotes, so that they are not taken for what was not sent, or is null; guids are cut
        after 8 characters.  A message that nobody named, as `changes_from` makes it without
        `message_id`, is called by its source; of other long names a word and the end are shown, and more
        where they would be alike.  The mouse finds each in full.

    Raises:
        MissingColumns, WrongColumnType: A standard column is of another type than in a history; *changes*
            lack what names a message.
        InvalidArgument: *frame* is a stream; *order_by* or *columns* are not of *frame*; there is no such
            zone.

    Cost: nothing at the call; at the first display one job for *rows* + 1 rows (with *order_by* over
    the whole of *frame*), and with *changes* one more, which reads them.

    >>> show(history.drop("guid"), order_by=["number"])
    valid_from  valid_to  number   name          state          message
    09:00       10:00     1 ·m1/0  kettle ·m1/0                 m1
    10:00       …         1 ·m1/0  teapot ·m2/0                 m2
    09:00       11:00     2 ·m1/0  mug ·m1/0                    m1
    11:00       …         2 ·m1/0  NULL ·m3/0    deleted ·m3/0  m3
    (4 rows; instants of 2024-01-01, UTC; … is an open end; after a value its message/the value's priority)

    >>> show(changes, order_by=["message_id", "number"])
    source  operation  number  name    effective  arrived  message
    shop    upsert     1       kettle  09:00      09:00    m1
    shop    upsert     2       mug     09:00      09:00    m1
    shop    upsert     1       teapot  10:00      10:00    m2
    shop    delete     2               11:00      11:00    m3
    (4 rows; instants of 2024-01-01, UTC; blank was not sent)
    """
    require_batch(frame, "its table", "show what a query of the stream has written")
    most = options.rows if rows is None else rows
    if changes is not None:
        require_changes(changes)
    shown = table_columns(frame, provenance=provenance, width=width)
    if columns is not None:
        names = resolve_headings(frame, shown, [columns] if isinstance(columns, str) else columns)
        headings = [column.heading for column in shown]
        shown = select_columns(shown, require_fields(names, headings, "columns"))
    ordered = frame if order_by is None else _order_rows(frame, order_by)
    # By place, not by name: a field may be called as another one's provenance is.
    cells = ordered.limit(most + 1).select(
        *(column.cell.alias(str(place)) for place, column in enumerate(shown))
    )
    return Table(partial(_read_grid, cells, shown, changes, most, width, as_zone(zone)))


class _Column(NamedTuple):
    """A column of a table, and what stands in its rows."""

    column: TableColumn
    values: list[Any]

    @property
    def kind(self) -> str:
        return self.column.kind

    @property
    def is_shown(self) -> bool:
        """Whether it says something of some row, where it is one of those that seldom do."""
        return self.kind not in ("state", "quiet") or any(value.value for value in self.values)

    @property
    def times(self) -> list[int]:
        """Its instants, in microseconds."""
        times = [value.value for value in self.values if value.sent and value.value is not None]
        return times if self.kind in _INSTANTS else []

    @property
    def messages(self) -> set[str]:
        messages = {
            value.value for value in self.values if self.kind == "message" and value.value is not None
        }
        return messages | {value.m for value in self.values if value.m is not None}


def _read_grid(
    cells: DataFrame,
    columns: Sequence[TableColumn],
    changes: DataFrame | None,
    most: int,
    width: int,
    zone: tzinfo,
) -> Grid:
    with describe_step(cells.sparkSession, f"show {most} rows"):
        every_row = [tuple(row) for row in cells.collect()]
        rows = every_row[:most]
        read = [_Column(column, [row[place] for row in rows]) for place, column in enumerate(columns)]
        shown = [column for column in read if column.is_shown]
        clock = Clock.of([micros for column in shown for micros in column.times], zone)
        names = {name for column in shown for name in column.messages}
        labels = shorten_messages(names)
        if changes is not None:
            labels = label_messages(names, changes, clock.in_full)
    # Beginnings and ends are read together, so they are written alike; a field is written for itself.
    bounds = timespec(micros for column in shown if column.kind != "instant" for micros in column.times)
    headings, texts = [], []
    for column in shown:
        spec = timespec(column.times) if column.kind == "instant" else bounds
        instant = partial(clock.text, spec=spec)
        heading = Cell(one_line(column.column.heading))
        written = [_show_cell(value, column.kind, instant, labels, width) for value in column.values]
        if changes is not None:
            heading, written = _share_message(heading, written)
        headings.append(heading)
        texts.append(written)
    states = [column.values for column in shown if column.kind == "state"]
    notes = [_count(len(every_row), most), *_notes(shown, clock, named=changes is not None)]
    notes += _several(labels, names) if changes is None else []
    return Grid(
        headings,
        [column.kind == "number" for column in shown],
        [*zip(*texts, strict=True)],
        [any(values[place].value for values in states) for place in range(len(rows))],
        "; ".join(notes),
    )


def _notes(columns: Sequence[_Column], clock: Clock, *, named: bool) -> list[str]:
    """Say once, in the caption, what a reader has to know of the cells."""
    values = [value for column in columns for value in column.values]
    ends = [value for column in columns if column.kind == "end" for value in column.values]
    message = "after a value its message/the value's priority"
    source = "after a value, or above all of a column, its source/the value's priority"
    notes = {
        clock.caption: any(column.times for column in columns),
        f"{OPEN} is an open end": any(value.value is None for value in ends),
        "blank was not sent": any(not value.sent for value in values),
        source if named else message: any(value.m is not None for value in values),
        "after a value the priority that it has of its own": any(
            value.m is None and value.p for value in values
        ),
    }
    return [note for note, holds in notes.items() if holds]


def _share_message(heading: Cell, cells: Sequence[Cell]) -> tuple[Cell, list[Cell]]:
    """A message that is behind all cells of a column stands above it instead; the mouse still finds it."""
    messages = {cell.message for cell in cells if cell.text}
    if len(cells) < 2 or len(messages) != 1 or "" in messages:
        return heading, list(cells)
    return heading._replace(message=messages.pop()), [cell._replace(message="") for cell in cells]


def _several(messages: Mapping[str, MessageLabel], shown: Iterable[str]) -> list[str]:
    """Say in words which names stand for messages that are not the same."""
    of = Counter(messages[message].short for message in shown)
    alike = [f"{name} is {many} messages" for name, many in sorted(of.items()) if many > 1]
    return [f"{', '.join(alike)} without a name"] if alike else []


def _count(number: int, rows: int) -> str:
    if number > rows:
        return f"first {rows} row{'s' if rows != 1 else ''} of more"
    return f"{number} row{'s' if number != 1 else ''}" if number else "no rows"


def _show_cell(
    cell: Any, kind: str, instant: Callable[[int], str], messages: Mapping[str, MessageLabel], width: int
) -> Cell:
    if not cell.sent:
        return Cell("")
    label, in_full = _message_label(cell, messages)
    if kind == "state":
        return Cell("deleted", label, in_full, "mark") if cell.value else Cell("")
    if kind == "quiet":
        return Cell(_shorten(cell.value or "", width))
    if cell.value is None:
        return Cell(OPEN if kind == "end" else NULL, label, in_full, "" if kind == "end" else "nothing")
    if kind == "message":
        return Cell(messages[cell.value].short, "", messages[cell.value].in_full)
    if kind in _INSTANTS:
        return Cell(instant(cell.value), label, in_full, "value" if kind == "instant" else "")
    if kind == "guid":
        return Cell(_shorten(cell.value, 8))
    if kind == "operation":
        return Cell(one_line(cell.value), look="mark" if cell.value == "delete" else "")
    if kind == "bytes":
        return Cell(_bytes(cell.value), label, in_full, "value")
    text = f'"{cell.value}"' if cell.value in ("", NULL) else _shorten(cell.value, width)
    return Cell(text, label, in_full, "value")


def _message_label(cell: Any, messages: Mapping[str, MessageLabel]) -> tuple[str, str]:
    if cell.m is None:
        return (cell.p, f"priority {cell.p}") if cell.p else ("", "")
    message = messages[cell.m]
    # Not the message's: that of a key rises with later messages, and its message stays the first.
    return f"{message.short}/{cell.p}", f"{message.in_full}; the value has priority {cell.p}"


def _bytes(value: Any) -> str:
    text = repr(bytes(value.first))
    return text if len(value.first) == value.of else f"{text[:-1]}…' ({value.of:,} bytes)"


def _shorten(text: str, longest: int) -> str:
    return one_line(text if len(text) <= longest else text[:longest] + "…")


def _order_rows(frame: DataFrame, order_by: str | Sequence[str]) -> DataFrame:
    columns = {name: F.col(quoted(name)) for name in frame.columns}
    if has_change_columns(frame):
        data = frame.schema["data"].dataType
        columns = {name: F.col("data").getField(name) for name in getattr(data, "names", [])} | columns
    names = resolve_names(frame, [order_by] if isinstance(order_by, str) else order_by)
    chosen = require_fields(names, list(columns), "order_by")
    ties = [name for name in ("guid", VALID_FROM, SYSTEM_FROM) if name in frame.columns]
    return frame.orderBy(*(columns[name] for name in dict.fromkeys([*chosen, *ties])))
