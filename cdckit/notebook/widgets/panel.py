"""What all widgets share: a panel with a static form, texts of all fields, and marks on what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from html import escape
from importlib import import_module
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.notebook.clock import with_day
from cdckit.notebook.columns import NULL
from cdckit.notebook.jupyter import kernel_shell, summarize_error
from cdckit.notebook.message_labels import one_line
from cdckit.notebook.tables import Cell, Grid, Table, html_text
from cdckit.parts.arguments import free_name, quoted
from cdckit.parts.values import as_text

_LONGEST_ERROR = 400
# Not in red, which says deleted.
_ALERT = "border-left:4px solid;padding-left:8px;font-weight:bold"


_NO_WIDGETS = (
    "This is the first state only; with ipywidgets it can be changed: "
    "pip install 'cdckit[notebooks]', then restart the kernel."
)


class Page(NamedTuple):
    """
    Tables, each under its heading, which may stand alone; read when their text is asked for.

    >>> from cdckit import show
    >>> mugs = history.where("name = 'mug'").select("number", "name")
    >>> page = Page((("one product", show(mugs)), ("no more", None)))
    >>> print(page.text)
    one product
    number  name
    2       mug
    (1 row)
    <BLANKLINE>
    no more
    >>> page.section(1).html
    '<p style="margin:8px 0 2px"><b>no more</b></p>'
    """

    sections: tuple[tuple[str, Table | None], ...]

    @classmethod
    def of(cls, *pages: Iterable[Page]) -> Page:
        """All sections of these pages, in their order."""
        return cls(tuple(section for several in pages for page in several for section in page.sections))

    def section(self, place: int) -> Page:
        """The section at that place alone."""
        return Page((self.sections[place],))

    @property
    def html(self) -> str:
        return "".join(
            f'<p style="margin:8px 0 2px"><b>{html_text(heading)}</b></p>'
            + (table._repr_html_() if table else "")
            for heading, table in self.sections
        )

    @property
    def text(self) -> str:
        return "\n\n".join(f"{heading}\n{table!r}" if table else heading for heading, table in self.sections)


class Panel:
    """
    What the functions of this module return: a widget in Jupyter, its first state everywhere else.

    `widget` is the object of ipywidgets, or None where that is missing.  It is made, and the first
    state read, when it is first displayed or asked for.  The text and the HTML, which are what a
    notebook keeps when it is saved, are always those of the first state.

    >>> Panel(lambda: Page((("nothing to choose from", None),)), lambda library, first: library.HTML())
    nothing to choose from
    """

    def __init__(self, first: Callable[[], Page], build: Callable[[Any, Callable[[], Page]], Any]) -> None:
        self._first, self._build = first, build

    @cached_property
    def widget(self) -> Any:
        library = _ipywidgets()
        return None if library is None else self._build(library, lambda: self._page)

    def __repr__(self) -> str:
        return "\n\n".join([self._page.text, *self._notes])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes)
        static = {"text/plain": repr(self), "text/html": self._page.html + notes}
        if kernel_shell() is None or self.widget is None:
            return static
        return {**self.widget._repr_mimebundle_(), **static}

    @cached_property
    def _page(self) -> Page:
        return self._first()

    @property
    def _notes(self) -> list[str]:
        return [_NO_WIDGETS] if _ipywidgets() is None else []


class Area:
    """A place in a widget for a page, for what went wrong when it was read, and meanwhile for neither."""

    def __init__(self, library: Any) -> None:
        self.widget = library.HTML()
        self._html = ""

    def wait(self, words: str) -> None:
        """Say at once what is going to be read; what stands there is of before, and grey from now on."""
        status = f'<p role="status"><i>reading {escape(words)} …</i></p>'
        self.widget.value = f'{status}<div style="opacity:0.3">{self._html}</div>'

    def show(self, page: Callable[[], Page], words: str) -> None:
        """Read a page and show it; *words* say what it will be."""
        self.wait(words)
        try:
            self._html = page().html
        # Whatever it is: raised in a callback it would end in a log that nobody looks at.
        except Exception as error:
            sentence = ": ".join(summarize_error(error))[:_LONGEST_ERROR]
            self._html = f'<p role="alert" style="{_ALERT}">{escape(sentence)}</p>'
        self.widget.value = self._html


Values = Mapping[Any, Any]
"""What is chosen, by control."""


class Controls:
    """
    Controls above one area, which shows the page of their values, and follows them.

    *page* is told what was chosen before and what is now.  What it changes in the controls is no move.
    """

    def __init__(
        self,
        library: Any,
        controls: Mapping[Any, Any],
        first: Callable[[], Page],
        page: Callable[[Values, Values], Page],
        words: Callable[[Values], str],
    ) -> None:
        self._controls, self._page, self._words = controls, page, words
        self._area = Area(library)
        self._read(first, "the first state")
        for control in controls.values():
            control.observe(lambda _: self.follow(), names="value")
        row = library.HBox([*controls.values()], layout=library.Layout(flex_flow="row wrap"))
        self.widget = library.VBox([row, self._area.widget])

    def follow(self) -> None:
        """Read the page of what is chosen now."""
        if not self._is_reading:
            before, now = self._values, self._chosen()
            self._read(lambda: self._page(before, now), self._words(now))

    def _read(self, page: Callable[[], Page], words: str) -> None:
        self._is_reading = True
        self._area.show(page, words)
        self._values, self._is_reading = self._chosen(), False

    def _chosen(self) -> Values:
        return {name: control.value for name, control in self._controls.items()}


def choose_from(dropdown: Any, options: Sequence[Any]) -> None:
    """Give a dropdown other options, and choose the first of them; it makes no choice of its own."""
    dropdown.options = options
    dropdown.index = 0 if options else None


def instant_text(at: datetime, zone: tzinfo) -> str:
    """An instant with its day and its zone."""
    return f"{with_day(at, zone)} {zone}"


def join_texts(texts: Any) -> Column:
    return F.concat_ws(" ", *(F.coalesce(text, F.lit(NULL)) for text in texts))


def collect_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows as Arrow gives them: instants aware, which a `Row` would give without their zone."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows


def _ipywidgets() -> Any:
    try:
        return import_module("ipywidgets")
    except ImportError:
        return None


def on_clock(text: str, zone: tzinfo) -> str:
    """An instant that is written in UTC, on the clock of *zone*; what is none stays as it is."""
    try:
        return with_day(datetime.fromisoformat(text).replace(tzinfo=UTC), zone)
    except ValueError:
        return text


def in_zone(table: Table, fields: T.StructType, zone: tzinfo, *columns: str) -> Table:
    """
    A table of values by `field`, the instants among those of *columns* on the clock of *zone*.

    `diff` and `blame` write them in UTC.  One view has one clock: beside it the beginnings of versions stand.
    """
    instants = _names_of_instants(fields)

    def change(grid: Grid) -> Grid:
        headings = [heading.text for heading in grid.headings]
        places = [headings.index(name) for name in columns]
        of_row = headings.index("field")
        rows = [
            [
                cell._replace(text=on_clock(cell.text, zone))
                if place in places and row[of_row].text in instants
                else cell
                for place, cell in enumerate(row)
            ]
            for row in grid.rows
        ]
        return grid._replace(rows=rows)

    return table.map(change)


def _names_of_instants(fields: Iterable[T.StructField]) -> set[str]:
    return {field.name for field in fields if isinstance(field.dataType, T.TimestampType)}


MARK = "what changed"
"""The column of marks, before all others."""

NEW, GONE, CHANGED = "new", "gone", "changed"
_LONGEST = 24


class MarkedRows(NamedTuple):
    """Rows with a mark of what changed, and by field the column that says what it was before."""

    rows: DataFrame
    was: dict[str, str]

    @property
    def counts(self) -> str:
        """How many rows are new, changed and gone, in words.  A job."""
        words = (NEW, CHANGED, GONE)
        counted = self.rows.agg(*(F.count_if(F.col(MARK) == word).alias(word) for word in words))
        (row,) = counted.collect()
        numbers = (f"{row[word]:,} {word}" for word in words if row[word])
        return ", ".join(numbers) or "nothing changed"

    def show(self, table: Table, fields: Sequence[T.StructField], zone: tzinfo) -> Table:
        """A table of these rows: marks in words and before all columns, rows that are gone struck through."""
        instants = _names_of_instants(fields)
        was = {name: one_line(column) for name, column in self.was.items()}

        def words(row: dict[str, Cell]) -> str:
            if row[MARK].text != CHANGED:
                return row[MARK].text if row[MARK].text in (NEW, GONE) else ""
            before = {name: row[column] for name, column in was.items() if row[column].look != "nothing"}
            texts = [
                (one_line(name), on_clock(cell.text, zone) if name in instants else cell.text)
                for name, cell in before.items()
            ]
            return "; ".join(
                f"{name} was {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}"
                for name, text in texts
            )

        def change(grid: Grid) -> Grid:
            names = [heading.text for heading in grid.headings]
            rows = [dict(zip(names, row, strict=True)) for row in grid.rows]
            kept = [place for place, name in enumerate(names) if name not in {MARK, *was.values()}]
            return grid._replace(
                headings=[Cell(MARK), *(grid.headings[place] for place in kept)],
                numbers=[False, *(grid.numbers[place] for place in kept)],
                rows=[
                    [row[MARK]._replace(text=words(row)), *(cells[place] for place in kept)]
                    for row, cells in zip(rows, grid.rows, strict=True)
                ],
                deleted=[row[MARK].text == GONE for row in rows],
            )

        return table.map(change)


def mark_changes(now: DataFrame, before: DataFrame, fields: Sequence[T.StructField]) -> MarkedRows:
    """
    Compare two tables of the same columns, among them `guid`, and a row for each guid.

    The rows are those of *now*, and those of *before* that are gone; beside each its mark, and of a row that
    changed what its fields were.
    """
    whole = F.struct(*(F.col(quoted(name)) for name in now.columns))
    pairs = now.select("guid", whole.alias("now")).join(
        before.select("guid", whole.alias("old")), on="guid", how="full"
    )
    here, there, was = F.col("now"), F.col("old"), {}
    for field in fields:
        new, old = (as_text(side.getField(field.name), field.dataType) for side in (here, there))
        differs = here.isNotNull() & there.isNotNull() & ~new.eqNullSafe(old)
        was[field.name] = F.when(differs, F.coalesce(old, F.lit(NULL)))
    mark = (
        F.when(there.isNull(), NEW)
        .when(here.isNull(), GONE)
        .when(F.coalesce(*was.values(), F.lit(None)).isNotNull(), CHANGED)
        .otherwise("")
    )
    columns = {name: free_name(f"{name} was", now.columns) for name in was}
    rows = pairs.select(
        F.coalesce(here, there).alias("row"),
        mark.alias(MARK),
        *(text.alias(columns[name]) for name, text in was.items()),
    )
    return MarkedRows(rows.select(MARK, "row.*", *map(quoted, columns.values())), columns)
