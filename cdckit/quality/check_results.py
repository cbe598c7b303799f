"""What `check` found: the sentences of a suite, which of them a table breaks, and by which rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from textwrap import indent

from cdckit.errors import CdcError, InvalidArgument
from cdckit.notebook.table_display import Table
from cdckit.notebook.table_formats import as_html_table, as_text_table
from cdckit.notebook.table_layout import Cell, Page
from cdckit.quality.suites import SEVERITIES, Sentence


class BrokenPromises(CdcError, ValueError):
    """
    A table breaks sentences of its suite.

    Facts: `suite`, its name; `rows`, how many the table has; `broken`, by sentence how many break it;
    `first`, by sentence the first of these rows as text, of those that can be shown.
    """

    def __init__(
        self, suite: str, rows: int, broken: dict[str, int], first: Mapping[str, str] | None = None
    ) -> None:
        self.suite, self.rows, self.broken, self.first = suite, rows, broken, dict(first or {})
        super().__init__(suite, rows, broken, self.first)

    def __str__(self) -> str:
        listed = "\n".join(map(self._told, self.broken))
        what = _count(len(self.broken), "sentence")
        return f"A table of {_count(self.rows, 'row')} breaks {what} of the suite {self.suite}:\n{listed}"

    def _told(self, says: str) -> str:
        shown = indent(self.first.get(says, ""), "  ")
        return f"- {_count(self.broken[says], 'row')}: {says}" + (f"\n{shown}" if shown else "")


@dataclass(frozen=True)
class Told:
    """One sentence, how many rows break it, and the first of these as a table to look at, if it has some."""

    sentence: Sentence
    broken: int
    shown: Table | None


class Checked:
    """
    What `check` returns: displays itself in Jupyter, and is text where there is none.

    `suite` is the name of the suite, `rows` the number of rows, `told` what was found, a `Told` for each
    sentence; `ok` says whether no sentence is broken.
    """

    def __init__(self, suite: str, rows: int, told: tuple[Told, ...]) -> None:
        self.suite, self.rows, self.told = suite, rows, told

    @property
    def ok(self) -> bool:
        """Whether the table keeps every sentence."""
        return not self.broken

    @property
    def broken(self) -> tuple[Told, ...]:
        """The sentences that the table breaks."""
        return tuple(each for each in self.told if each.broken)

    def require(self, severity: str = "info") -> Checked:
        """
        Raise if a sentence is broken that matters at least so much; else this same answer.

        Raises:
            BrokenPromises: It has the sentences, how many rows break each, and the first of these rows.
            InvalidArgument: *severity* is not info, warning or critical.
        """
        if severity not in SEVERITIES:
            raise InvalidArgument("require", "severity", f"one of {', '.join(SEVERITIES)}", severity)
        least = SEVERITIES.index(severity)
        broken = [each for each in self.broken if SEVERITIES.index(each.sentence.severity) >= least]
        if broken:
            first = {each.sentence.says: repr(each.shown) for each in broken if each.shown is not None}
            numbers = {each.sentence.says: each.broken for each in broken}
            raise BrokenPromises(self.suite, self.rows, numbers, first)
        return self

    def __repr__(self) -> str:
        shown = [f"{each.sentence.says}\n{each.shown!r}" for each in self.broken if each.shown is not None]
        return "\n\n".join([as_text_table(self._page), *shown])

    def _repr_html_(self) -> str:
        shown = [
            f'<p style="margin:1em 0 0.2em">{escape(each.sentence.says)}</p>{each.shown._repr_html_()}'
            for each in self.broken
            if each.shown is not None
        ]
        return "".join([as_html_table(self._page), *shown])

    @property
    def _page(self) -> Page:
        some = any(each.broken for each in self.told)
        rows = [_row(each, some) for each in self.told]
        headings = ["rows that break it", "of what weight", "sentence"] if some else ["sentence"]
        kept = f"{len(self.told) - len(self.broken)} of {_count(len(self.told), 'sentence')} kept"
        caption = f"{self.suite}: {kept} by {_count(self.rows, 'row')}"
        return Page(headings, [True, False, False][-len(headings) :], rows, [False] * len(rows), caption)


def _row(told: Told, some: bool) -> list[Cell]:
    sentence = Cell(told.sentence.says, in_full=told.sentence.source)
    if not some:
        return [sentence]
    number = Cell(f"{told.broken:,}", look="mark") if told.broken else Cell("0", look="nothing")
    weight = Cell(told.sentence.severity, look="" if told.broken else "nothing")
    return [number, weight, sentence]


def _count(number: int, of: str) -> str:
    return f"{number:,} {of}{'' if number == 1 else 's'}"
