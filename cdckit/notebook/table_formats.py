"""The two forms of a table: text in columns, and HTML that carries its own look."""

from __future__ import annotations

import unicodedata
from html import escape

from cdckit.notebook.table_layout import Cell, Page

# With the table, as styles of its own: notebooks that are looked at elsewhere lose their style sheets.
_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre"
_NUMBER = _CELL.replace("left", "right", 1)
_LONG_CELL = "text-align:left;vertical-align:top;padding:2px 10px;white-space:pre-wrap;min-width:20em"
_LONG = 40
_DELETED_COLOUR = "#b2182b"


def as_text_table(page: Page) -> str:
    """The table in columns that are as wide as their texts, and below it the caption."""
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
    if cell.said:
        text += f'<sup style="line-height:0;opacity:0.6;padding-left:3px"{in_full}>{escape(cell.said)}</sup>'
        in_full = ""
    style = _LONG_CELL if len(cell.text) > _LONG else _NUMBER if number else _CELL
    return f'<td style="{style}"{in_full}>{text}</td>'
