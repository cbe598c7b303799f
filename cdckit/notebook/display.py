"""`show`: a table to look at, in Jupyter and as text; and the options chosen once for a whole notebook."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from functools import cached_property, partial
from html import escape
from typing import Generic, TypeVar
from zoneinfo import ZoneInfo, available_timezones

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.model.history import SYSTEM_FROM, VALID_FROM
from cdckit.notebook.tables import (
    Cell,
    Grid,
    Look,
    TableRows,
    has_change_columns,
    label_messages,
    make_grid,
    require_changes,
    resolve_headings,
    resolve_names,
    select_columns,
    shorten_messages,
    table_columns,
)
from cdckit.parts.arguments import (
    nearest_name,
    quoted,
    require_batch,
    require_columns,
    require_fields,
    require_flag,
)
from cdckit.parts.workers import describe_step

MOST_ROWS = 1000
"""As many as a table that is looked at may have."""


_Given = TypeVar("_Given")
_Kept = TypeVar("_Kept")


class _Option(Generic[_Given, _Kept]):
    """One of the options: what is assigned is checked, and kept as *check* gives it."""

    def __init__(self, check: Callable[[_Given], _Kept]) -> None:
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, options: Options, owner: type) -> _Kept:
        kept: _Kept = vars(options)[self._name]
        return kept

    def __set__(self, options: Options, given: _Given) -> None:
        vars(options)[self._name] = self._check(given)


class Options:
    """
    How tables, pictures, widgets and texts look where a call does not say it.

    Attributes:
        zone: The zone in which instants are shown, a tzinfo or the name of one; UTC at first.  Answers do
            not depend on it: an instant is the same in every zone.
        rows: How many rows a table shows at most, from 1 to 1000; 20 at first.
        eager: Whether a DataFrame that ends a cell of a notebook shows itself, which runs a job; True at
            first.
        progress: Whether a notebook shows what Spark is doing while a cell runs; True at first, unless the
            environment says `CDCKIT_PROGRESS=0`.

    Raises:
        InvalidArgument: What is assigned is none of this.

    >>> from cdckit import options
    >>> options.zone = "America/New_York"
    >>> print(options)
    zone=America/New_York, rows=20, eager=True, progress=True
    >>> options.reset()
    >>> print(options.zone)
    UTC
    """

    zone = _Option[tzinfo | str, tzinfo](lambda zone: as_zone(zone, function="options"))
    rows = _Option[int, int](lambda rows: require_rows(rows, "rows", function="options"))
    eager = _Option[bool, bool](lambda eager: require_flag(eager, "eager", function="options"))
    progress = _Option[bool, bool](lambda progress: require_flag(progress, "progress", function="options"))

    def __init__(self) -> None:
        self.reset()

    def __setattr__(self, name: str, value: object) -> None:
        known = [each for each, what in vars(type(self)).items() if isinstance(what, _Option)]
        if name not in known:
            close = nearest_name(name, known)
            remedy = None if close is None else f"Is it options.{close}?"
            raise InvalidArgument(
                "options", "its attribute", f"one of {', '.join(known)}", name, None, remedy
            )
        super().__setattr__(name, value)

    def reset(self) -> None:
        """Choose again what was chosen at first."""
        self.zone, self.rows, self.eager = UTC, 20, True
        # A notebook that is compared with its outputs may not say how far Spark is.
        self.progress = os.environ.get("CDCKIT_PROGRESS") != "0"

    def __repr__(self) -> str:
        return f"zone={self.zone}, rows={self.rows}, eager={self.eager}, progress={self.progress}"


def as_zone(zone: tzinfo | str | None, *, function: str) -> tzinfo:
    """The zone itself or the one of that name, without one that of the options; else `InvalidArgument`."""
    if zone is None:
        return options.zone
    if isinstance(zone, tzinfo):
        return zone
    try:
        # Its name for UTC has another text than Python's own UTC, and both stand in one notebook.
        return UTC if zone == "UTC" else ZoneInfo(zone)
    except (TypeError, ValueError, OSError, KeyError):
        needed = "a tzinfo, or the name of a zone as zoneinfo.available_timezones() lists them"
        close = _nearest_zone(str(zone))
        remedy = None if close is None else f"Is it {close!r}?"
        raise InvalidArgument(function, "zone", needed, zone, remedy=remedy) from None


def _nearest_zone(name: str) -> str | None:
    """The zone whose name, or whose city, is most like what was said."""
    zones = sorted(available_timezones())
    by_city = {zone.rsplit("/", 1)[-1]: zone for zone in zones}
    city = nearest_name(name, by_city)
    return nearest_name(name, zones) or (None if city is None else by_city[city])


def require_rows(number: int, argument: str, *, function: str) -> int:
    """The number itself; raises `InvalidArgument` unless a table can have so many rows, or so wide values."""
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MOST_ROWS:
        raise InvalidArgument(function, argument, f"a number from 1 to {MOST_ROWS}", number)
    return number


options = Options()


# With the table, as styles of its own: notebooks that are looked at elsewhere lose their style sheets.
_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre"
_NUMBER = _CELL.replace("left", "right", 1)
_LONG_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre-wrap;min-width:20em"
_LONG = 40
_DELETED_COLOUR = "#d94050"  # as far from white as from the black of a dark theme: 4.3 to 1


def _text_table(grid: Grid) -> str:
    """The table in columns that are as wide as their texts, and below it the caption."""
    lines = [grid.headings]
    lines += [
        [f"{cell.text} ·{cell.message}" if cell.message else cell.text for cell in row] for row in grid.rows
    ]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    written = [
        "  ".join(text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join([line.rstrip() for line in written] + [f"({grid.caption})"])


def _width(text: str) -> int:
    """How many columns a text takes where all characters are equally wide, but for the wide ones."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _html_table(grid: Grid) -> str:
    """The table as HTML without an id, a script or a time: the same rows give the same text."""
    headings = "".join(
        f'<th style="{_NUMBER if number else _CELL}">{escape(heading)}</th>'
        for heading, number in zip(grid.headings, grid.numbers, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(map(_html_cell, row, grid.numbers, [deleted] * len(row)))}</tr>"
        for row, deleted in zip(grid.rows, grid.deleted, strict=True)
    )
    caption = f'<caption style="caption-side:bottom;text-align:left">{escape(grid.caption)}</caption>'
    parts = f"{caption}<thead><tr>{headings}</tr></thead><tbody>{rows}</tbody>"
    return f'<div style="overflow-x:auto"><table style="line-height:1.3">{parts}</table></div>'


def _html_cell(cell: Cell, number: bool, deleted: bool) -> str:
    """A mark is red and bold, nothing is pale, the value of a deleted version is struck through."""
    text = escape(cell.text)
    if cell.look == "mark":
        text = f'<b style="color:{_DELETED_COLOUR}">{text}</b>'
    elif cell.look == "nothing":
        text = f'<span style="opacity:0.5">{text}</span>'
    elif cell.look == "value" and deleted:
        text = f'<del style="opacity:0.6">{text}</del>'
    in_full = f' title="{escape(cell.in_full)}"' if cell.in_full else ""
    if cell.message:
        text += (
            f'<sup style="line-height:0;opacity:0.6;padding-left:3px"{in_full}>{escape(cell.message)}</sup>'
        )
        in_full = ""
    style = _LONG_CELL if len(cell.text) > _LONG else _NUMBER if number else _CELL
    return f'<td style="{style}"{in_full}>{text}</td>'


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
            its priority becomes that of a stronger one that repeats it.
        width: How many characters of a value, or bytes, to show at most.
        zone: The zone to show instants in, a tzinfo or its name; the caption names it.  Without it
            `options.zone`, which is UTC at first.

    Returns:
        A table.  Of a history: since when and until when first, then the fields, `state` where a version is
        deleted, the message and the guid.  Of changes: the source and the operation, the fields, blank where
        they were not sent, and the message; the sequence, and priorities, where there are some.  Of rejects:
        what is wrong, then where the record lies and how it begins.

        Instants are as short as they can be without losing anything: a day that all share stands in the
        caption alone, and seconds only where the column has some.  An open end is `…`, a null NULL; guids are
        cut after 8 characters.  A message that nobody named, as `changes_from` makes it without
        `message_id`, is called by its source; of other long names a word and the end are shown, and more
        where they would be alike.  The mouse finds each in full.

    Raises:
        MissingColumns, WrongColumnType: A standard column is of another type than in a history; *changes*
            lack what names a message.
        InvalidArgument: *frame* is no DataFrame or a stream; *rows* or *width* is not from 1 to 1000;
            *order_by* or *columns* are not of *frame*; there is no such zone.

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
    require_columns(frame, [], function="show")
    require_batch(frame, "its table", "show what a query of the stream has written", function="show")
    most = require_rows(options.rows if rows is None else rows, "rows", function="show")
    require_rows(width, "width", function="show")
    if changes is not None:
        require_changes(changes)
    shown = table_columns(frame, provenance=provenance, width=width)
    if columns is not None:
        names = resolve_headings(frame, shown, [columns] if isinstance(columns, str) else columns)
        known = [each.heading for each in shown]
        shown = select_columns(shown, require_fields(names, known, "columns", function="show"))
    ordered = frame if order_by is None else _order_rows(frame, order_by)
    # By place, not by name: a field may be called as another one's provenance is.
    cells = [column.cell.alias(str(place)) for place, column in enumerate(shown)]
    headings = tuple(column.heading for column in shown)
    kinds = tuple(column.kind for column in shown)
    look = Look(headings, kinds, most, width, as_zone(zone, function="show"))
    return Table(partial(_read_grid, ordered.limit(most + 1).select(*cells), changes, look))


class Table:
    """What `show` returns, and `check` and the widgets show: HTML in Jupyter, text elsewhere, read once."""

    def __init__(self, read: Callable[[], Grid]) -> None:
        self._read = read

    def __repr__(self) -> str:
        return _text_table(self.grid)

    def _repr_html_(self) -> str:
        return _html_table(self.grid)

    @cached_property
    def grid(self) -> Grid:
        """What it shows; the first to ask for it has it read."""
        return self._read()

    def strike_rows(self, is_struck: Callable[[list[Cell]], bool]) -> Table:
        """The same table with these rows struck through, and no others."""
        return Table(lambda: self.grid._replace(deleted=[is_struck(row) for row in self.grid.rows]))


def _read_grid(cells: DataFrame, changes: DataFrame | None, look: Look) -> Grid:
    with describe_step(cells.sparkSession, f"show {look.rows} rows"):
        rows = TableRows([tuple(row) for row in cells.collect()], look)
        if changes is None:
            return make_grid(rows, shorten_messages(rows.messages), named=False)
        messages = label_messages(rows.messages, changes, rows.clock.in_full)
        return make_grid(rows, messages, named=True)


def _order_rows(frame: DataFrame, order_by: str | Sequence[str]) -> DataFrame:
    known = {name: F.col(quoted(name)) for name in frame.columns}
    if has_change_columns(frame):
        data = frame.schema["data"].dataType
        known = {name: F.col("data").getField(name) for name in getattr(data, "names", [])} | known
    names = resolve_names(frame, [order_by] if isinstance(order_by, str) else order_by)
    chosen = require_fields(names, list(known), "order_by", function="show")
    ties = [name for name in ("guid", VALID_FROM, SYSTEM_FROM) if name in frame.columns]
    return frame.orderBy(*(known[name] for name in dict.fromkeys([*chosen, *ties])))
