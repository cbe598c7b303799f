"""`show`: what is handed to it as a table to look at, in Jupyter and as text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import tzinfo
from functools import cached_property
from html import escape

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.history import SYSTEM_FROM, VALID_FROM
from cdckit.notebook.columns import (
    has_change_columns,
    label_messages,
    require_changes,
    resolve_headings,
    resolve_names,
    select_columns,
    shorten_messages,
    table_columns,
)
from cdckit.notebook.options import as_zone, options, require_rows
from cdckit.notebook.table_layout import Cell, Look, Page, TableRows, make_page
from cdckit.parts.arguments import quoted, require_batch, require_columns, require_fields
from cdckit.parts.workers import describe_step

# With the table, as styles of its own: notebooks that are looked at elsewhere lose their style sheets.
_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre"
_NUMBER = _CELL.replace("left", "right", 1)
_LONG_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre-wrap;min-width:20em"
_LONG = 40
_DELETED_COLOUR = "#b2182b"


def as_text_table(page: Page) -> str:
    """The table in columns that are as wide as their texts, and below it the caption."""
    lines = [page.headings]
    lines += [
        [f"{cell.text} ·{cell.message}" if cell.message else cell.text for cell in row] for row in page.rows
    ]
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


def as_html_table(page: Page) -> str:
    """The table as HTML without an id, a script or a time: the same rows give the same text."""
    headings = "".join(
        f'<th style="{_NUMBER if number else _CELL}">{escape(heading)}</th>'
        for heading, number in zip(page.headings, page.numbers, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(map(_html_cell, row, page.numbers, [deleted] * len(row)))}</tr>"
        for row, deleted in zip(page.rows, page.deleted, strict=True)
    )
    caption = f'<caption style="caption-side:bottom;text-align:left">{escape(page.caption)}</caption>'
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
        provenance: Show after each value its message and priority, where *frame* knows them.
        width: How many characters of a value, or bytes, to show at most.
        zone: The zone to show instants in, a tzinfo or its name; the caption names it.  Without it
            `options.zone`, which is UTC at first.

    Returns:
        A table.  Of a history: the fields first, then the intervals, `state` where a version is deleted, the
        message and the guid.  Of changes: the source and the operation, the fields, blank where they were
        not sent, and the message; the sequence, and priorities, where there are some.  Of rejects: what is
        wrong, then where the record lies and how it begins.

        Instants are as short as they can be without losing anything: a day that all share stands in the
        caption alone, and seconds only where the column has some.  An open end is `…`, a null NULL; guids are
        cut after 8 characters, and of long messages the middle is left out as far as they still differ.

    Raises:
        MissingColumns, WrongColumnType: A standard column is of another type than in a history; *changes*
            lack what names a message.
        InvalidArgument: *frame* is no DataFrame or a stream; *rows* or *width* is not from 1 to 1000;
            *order_by* or *columns* are not of *frame*; there is no such zone.

    Cost: nothing at the call; at the first display one job for *rows* + 1 rows (with *order_by* over
    the whole of *frame*), and with *changes* one more, which reads them.

    >>> show(history.drop("guid"), order_by=["number"])
    number   name          valid_from  valid_to  state          message
    1 ·m1/0  kettle ·m1/0  09:00       10:00                    m1
    1 ·m1/0  teapot ·m2/0  10:00       …                        m2
    2 ·m1/0  mug ·m1/0     09:00       11:00                    m1
    2 ·m1/0  NULL ·m3/0    11:00       …         deleted ·m3/0  m3
    (4 rows; instants of 2024-01-01, UTC; … is an open end; after a value its message/priority)

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
        asked = resolve_headings(frame, shown, [columns] if isinstance(columns, str) else columns)
        known = [each.heading for each in shown]
        shown = select_columns(shown, require_fields(asked, known, "columns", function="show"))
    ordered = frame if order_by is None else _order_rows(frame, order_by)
    # By place, not by name: a field may be called as another one's provenance is.
    cells = [column.cell.alias(str(place)) for place, column in enumerate(shown)]
    headings = tuple(column.heading for column in shown)
    kinds = tuple(column.kind for column in shown)
    look = Look(headings, kinds, most, width, as_zone(zone, function="show"))
    return Table(ordered.limit(most + 1).select(*cells), changes, look)


class Table:
    """What `show` returns: displays itself in Jupyter, and is text where there is none."""

    def __init__(self, cells: DataFrame, changes: DataFrame | None, look: Look) -> None:
        self._cells, self._changes, self._look = cells, changes, look

    def __repr__(self) -> str:
        return as_text_table(self._page)

    def _repr_html_(self) -> str:
        return as_html_table(self._page)

    @cached_property
    def _page(self) -> Page:
        with describe_step(self._cells.sparkSession, f"show {self._look.rows} rows"):
            rows = TableRows([tuple(row) for row in self._cells.collect()], self._look)
            if self._changes is None:
                return make_page(rows, shorten_messages(rows.messages), named=False)
            messages = label_messages(rows.messages, self._changes, rows.clock.in_full)
            return make_page(rows, messages, named=True)


def _order_rows(frame: DataFrame, order_by: str | Sequence[str]) -> DataFrame:
    known = {name: F.col(quoted(name)) for name in frame.columns}
    if has_change_columns(frame):
        data = frame.schema["data"].dataType
        known = {name: F.col("data").getField(name) for name in getattr(data, "names", [])} | known
    asked = resolve_names(frame, [order_by] if isinstance(order_by, str) else order_by)
    chosen = require_fields(asked, list(known), "order_by", function="show")
    ties = [name for name in ("guid", VALID_FROM, SYSTEM_FROM) if name in frame.columns]
    return frame.orderBy(*(known[name] for name in dict.fromkeys([*chosen, *ties])))
