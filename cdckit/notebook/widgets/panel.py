"""What all widgets share: a panel with a static form, and an area that shows tables or one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, tzinfo
from functools import cached_property
from html import escape
from importlib import import_module
from itertools import dropwhile
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.notebook import NULL, Table, short_instants

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
    >>> page.only(1).html
    '<p style="margin:8px 0 2px"><b>no more</b></p>'
    """

    sections: tuple[tuple[str, Table | None], ...]

    def only(self, place: int) -> Page:
        """The section at that place alone."""
        return Page((self.sections[place],))

    @property
    def html(self) -> str:
        return "".join(
            f'<p style="margin:8px 0 2px"><b>{escape(heading)}</b></p>{table._repr_html_() if table else ""}'
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
        if not _kernel_runs() or self.widget is None:
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
            self._html = f'<p role="alert" style="{_ALERT}">{escape(_sentence(error))}</p>'
        self.widget.value = self._html


def _sentence(error: Exception) -> str:
    """The class and the message of an error in one line: of one from a Spark worker the worker's own."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    raised = list(dropwhile(lambda line: not line.startswith("Traceback"), lines))[1:]
    said = next((line for line in raised if not line[0].isspace()), lines[0] if lines else "")
    return f"{type(error).__name__}: {said.strip()}"[:_LONGEST_ERROR]


def instant_text(at: datetime, zone: tzinfo) -> str:
    """An instant with its day and its zone."""
    return f"{with_day(at, zone)} {zone}"


def with_day(at: datetime, zone: tzinfo) -> str:
    """An instant with its day, for where the zone is said beside it."""
    (text,), _ = short_instants([at], zone)
    return f"{at.astimezone(zone).date()} {text}"


def joined_text(texts: Any) -> Column:
    return F.concat_ws(" ", *(F.coalesce(text, F.lit(NULL)) for text in texts))


def first_rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows as Arrow gives them: instants aware, which a `Row` would give without their zone."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows


def _ipywidgets() -> Any:
    try:
        return import_module("ipywidgets")
    except ImportError:
        return None


def _kernel_runs() -> bool:
    """Whether a Jupyter kernel runs this: elsewhere nobody would answer a widget."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    return getattr(shell, "kernel", None) is not None
