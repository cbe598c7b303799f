"""What all widgets share: a panel with a static form, texts of all fields, and marks on what changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cached_property, reduce
from html import escape
from importlib import import_module
from itertools import dropwhile
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.notebook import NULL, Table, short_instants
from cdckit.notebook.tables import Grid
from cdckit.parts.arguments import quoted
from cdckit.parts.values import as_text


def show_in_zone(zone: tzinfo, frame: DataFrame, fields: T.StructType, *columns: str) -> DataFrame:
    """
    *frame*, the values of *fields* that are instants written as *zone*'s clocks show them.

    `diff` and `blame` write them in UTC.  One view has one clock: beside it the beginnings of versions stand.
    """
    instants = [each.name for each in fields if isinstance(each.dataType, T.TimestampType)]
    for column in columns if instants else ():
        text = F.col(quoted(column))
        is_instant = F.col("field").isin(instants)
        frame = frame.withColumn(column, F.when(is_instant, zone_text(text, zone)).otherwise(text))
    return frame


def zone_text(text: Column, zone: tzinfo) -> Column:
    """
    An instant that is written in UTC, as *zone*'s clocks show it: like `show`, without seconds that are zero.

    A time that happens twice, since clocks are put back, has its offset.  What is no instant stays as it is;
    for a zone that Spark does not know, an instant stays in UTC and says so.
    """
    there, name = text.try_cast("timestamp_ntz"), _zone_name(zone)
    if name is None:
        return F.when(there.isNotNull(), F.concat(_shorten_seconds(there), F.lit(" UTC"))).otherwise(text)
    here = _convert_zone(there, name)
    twice = reduce(
        Column.__or__,
        (
            here == _convert_zone(there + F.lit(timedelta(minutes=shift)), name)
            for shift in (-60, -30, 30, 60)
        ),
    )
    written = F.when(twice, F.concat(_shorten_seconds(here), _offset(here - there))).otherwise(
        _shorten_seconds(here)
    )
    return F.coalesce(written, text)


def _convert_zone(there: Column, name: str) -> Column:
    return there if name == "UTC" else F.convert_timezone(F.lit("UTC"), F.lit(name), there)


def _shorten_seconds(wall: Column) -> Column:
    return F.regexp_replace(wall.cast("string"), r"^(\S+ \d\d:\d\d):00$", "$1")


def _offset(ahead: Column) -> Column:
    """How far clocks are ahead of UTC, as ISO 8601 writes it."""
    hours, minutes = (F.abs(F.extract(F.lit(unit), ahead)) for unit in ("HOUR", "MINUTE"))
    sign = F.when(ahead < F.lit(timedelta(0)), F.lit("-")).otherwise(F.lit("+"))
    return F.format_string("%s%02d:%02d", sign, hours, minutes)


def _zone_name(zone: tzinfo) -> str | None:
    """What Spark calls the zone."""
    if zone is UTC:
        return "UTC"
    if isinstance(zone, timezone):
        minutes = zone.utcoffset(None) // timedelta(minutes=1)
        return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    # `key` is what zoneinfo calls its name, `zone` what pytz does.
    name: str | None = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return name


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

    def section(self, place: int) -> Page:
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
    message = next((line for line in raised if not line[0].isspace()), lines[0] if lines else "")
    return f"{type(error).__name__}: {message.strip()}"[:_LONGEST_ERROR]


def instant_text(at: datetime, zone: tzinfo) -> str:
    """An instant with its day and its zone."""
    return f"{with_day(at, zone)} {zone}"


def with_day(at: datetime, zone: tzinfo) -> str:
    """An instant with its day, for where the zone is said beside it."""
    (text,), _ = short_instants([at], zone)
    return f"{at.astimezone(zone).date()} {text}"


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


def _kernel_runs() -> bool:
    """Whether a Jupyter kernel runs this: elsewhere nobody would answer a widget."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    return getattr(shell, "kernel", None) is not None


MARK = "what changed"
"""The column of marks, before all others."""

NEW, GONE = "new", "gone"
_LONGEST = 24


def mark_changes(
    now: DataFrame, before: DataFrame, fields: Sequence[T.StructField], zone: tzinfo
) -> DataFrame:
    """
    The rows of *now*, and those of *before* that are gone, each with a mark before its columns.

    The mark is "new", "gone", or what *fields* were before ("a was 10; b was NULL"); empty where all of them
    are as they were.  Both tables have the same columns, among them `guid`, and a row for each guid.
    """
    whole = F.struct(*(F.col(quoted(name)) for name in now.columns))
    pairs = now.select("guid", whole.alias("now")).join(
        before.select("guid", whole.alias("old")), on="guid", how="full"
    )
    here, there = F.col("now"), F.col("old")
    was = [_previous_value(field, zone) for field in fields]
    mark = (
        F.when(there.isNull(), F.lit(NEW))
        .when(here.isNull(), F.lit(GONE))
        .otherwise(F.concat_ws("; ", *was) if was else F.lit(""))
    )
    rows = pairs.select(mark.alias("mark"), F.coalesce(here, there).alias("row"))
    kept = [F.col("row").getField(name).alias(name) for name in now.columns]
    return rows.select(F.col("mark").alias(MARK), *kept)


def counts(rows: DataFrame) -> str:
    """How many rows of `mark_changes` are new, changed and gone, in words.  A job."""
    mark = F.col(MARK)
    changed = ~mark.isin("", NEW, GONE)
    (found,) = rows.agg(
        F.count_if(mark == NEW).alias(NEW),
        F.count_if(changed).alias("changed"),
        F.count_if(mark == GONE).alias(GONE),
    ).collect()
    return (
        ", ".join(f"{number:,} {word}" for word, number in found.asDict().items() if number)
        or "nothing changed"
    )


def strike_gone(table: Table) -> Table:
    """A table of marked rows, the mark before all columns, those that are gone struck through."""
    return Table(lambda: _mark_first(table.grid)).strike_rows(lambda row: row[0].text == GONE)


def _mark_first(grid: Grid) -> Grid:
    """The same table with its marks at the left; `show` puts since when and until when there."""
    order = sorted(range(len(grid.headings)), key=lambda place: grid.headings[place] != MARK)
    return grid._replace(
        headings=[grid.headings[place] for place in order],
        numbers=[grid.numbers[place] for place in order],
        rows=[[row[place] for place in order] for row in grid.rows],
    )


def _previous_value(field: T.StructField, zone: tzinfo) -> Column:
    new, old = (as_text(F.col(side).getField(field.name), field.dataType) for side in ("now", "old"))
    text = zone_text(old, zone) if isinstance(field.dataType, T.TimestampType) else old
    shown = F.coalesce(
        F.when(F.length(text) > _LONGEST, F.concat(F.left(text, F.lit(_LONGEST)), F.lit("…"))).otherwise(
            text
        ),
        F.lit(NULL),
    )
    return F.when(~new.eqNullSafe(old), F.concat(F.lit(f"{field.name} was "), shown))
