"""What all pictures share: colours, fonts, words, and the bounded number of rows that they are drawn from."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.history import VALID_TO, is_never
from cdckit.notebook.tables import Clock, timespec
from cdckit.parts.arguments import require_columns
from cdckit.parts.instants import microseconds
from cdckit.parts.values import as_text
from cdckit.query.bitemporal import history_fields
from cdckit.query.entity_keys import is_entity
from cdckit.query.provenance import MESSAGE_SOURCE, with_messages


def source_name(row: Mapping[str, Any], column: str = MESSAGE_SOURCE) -> str:
    return "unknown source" if row[column] is None else row[column]


def days(instant: datetime) -> float:
    """An instant as matplotlib counts it."""
    return float(date2num(instant))  # type: ignore[no-untyped-call]


def days_or_none(instant: datetime | None) -> float | None:
    return None if instant is None else days(instant)


def entity_text(key: Mapping[str, Any], zone: tzinfo) -> str:
    """A key in words; the instants in it in full."""
    shown = [
        Clock.of([micros := microseconds(value)], zone)._replace(day=None).text(micros, timespec([micros]))
        if isinstance(value, datetime)
        else str(value)
        for value in key.values()
    ]
    return one_line(" ".join(shown), 60)


def one_line(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def with_number(number: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units."""
    left, parts = round(abs(seconds)), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size} {unit}")
        left %= size
    return ("-" if seconds < 0 else "") + (" ".join(parts[:2]) or "0 s")


# What systems bring for signs that matplotlib's own font lacks: those of East Asia first of all.
_OTHERS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Noto Sans SC", "Noto Sans KR"),
    *("Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic"),
    *("WenQuanYi Zen Hei", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji"),
)

# A sign that no font here has is an empty box.  The reader sees that; a red warning for each tells no more.
warnings.filterwarnings(
    "ignore", message=r"Glyph \d+ .* missing from font", module=r"cdckit\.notebook\.pictures"
)


def families() -> list[str]:
    """The families of fonts to write with: a sign is taken from the first that has it."""
    return [*rcParams["font.family"], *_installed_fonts()]


@cache
def _installed_fonts() -> tuple[str, ...]:
    found = {font.name for font in fontManager.ttflist}
    return tuple(name for name in _OTHERS if name in found)


_Value = TypeVar("_Value")


class Look(NamedTuple):
    """
    How one thing is drawn in every picture: for those who see colours, and for those who do not.

    >>> PALETTE["delete"]
    Look(colour='#b2182b', marker='X')
    """

    colour: str
    marker: str


PALETTE: Mapping[str, Look] = MappingProxyType(
    {
        "insert": Look("#1b7837", "^"),
        "update": Look("#2166ac", "o"),
        "delete": Look("#b2182b", "X"),
        "recreate": Look("#762a83", "D"),
        # Sources in the order of their names.  The colours come from Paul Tol's scheme "light", made to be
        # told apart by everybody and to be read upon in black, but for its orange and its pink: red, and
        # what comes near it, is a delete's alone, and so is its cross.
        "source 1": Look("#77aadd", "o"),
        "source 2": Look("#ddc04c", "s"),
        "source 3": Look("#44bb99", "^"),
        "source 4": Look("#c3a5d9", "D"),
        "source 5": Look("#bbcc33", "v"),
        "source 6": Look("#99ddff", "P"),
        "source 7": Look("#c4ab7c", "*"),
        "source 8": Look("#aaaa00", "h"),
        "no source": Look("#dddddd", "_"),
    }
)
"""What each colour means, here and in whatever is drawn beside these pictures."""


SIZE = (10.0, 5.0)
"""Inches.  More than 30 rows make a picture higher, never smaller."""


_CYCLE = tuple(look for name, look in PALETTE.items() if name.startswith("source "))


INK, FAINT, HATCH = "#222222", "#777777", "////"
SMALL: dict[str, Any] = {"fontsize": 9, "color": FAINT, "parse_math": False}


_VALUES = LinearSegmentedColormap.from_list("values", ["#e3edf5", "#9fb8cd", "#4f7291", "#24405c"])


ROWS = 30


SECOND = 1 / 86_400  # of a day: matplotlib counts instants in days


class _Picture(Figure):
    """A figure that a notebook shows even if it never imports pyplot."""

    def _repr_png_(self) -> bytes:
        written = io.BytesIO()
        self.savefig(written, format="png")
        return written.getvalue()


def new_figure(title: str, subtitle: str, *, rows: int = 0) -> tuple[Figure, Axes]:
    height = max(SIZE[1], SIZE[1] + (rows - ROWS) * 0.13)
    figure = _Picture(figsize=(SIZE[0], height), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    heading = figure.suptitle(
        one_line(title, 105), x=0.01, ha="left", family=families(), fontsize=12, weight="bold", color=INK
    )
    heading.set_parse_math(False)
    axes = figure.add_subplot()
    axes.set_title(one_line(subtitle, 130), loc="left", family=families(), **SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9, colors=INK)
    return figure, axes


def text_figure(text: str) -> Figure:
    """A figure for where there is nothing to draw."""
    figure, axes = new_figure(text, "")
    axes.set_axis_off()
    return figure


def draw_key(
    figure: Figure,
    looks: Mapping[str, Look],
    *,
    hollow: Iterable[str] = (),
    points: bool = False,
    others: Mapping[str, Artist] = MappingProxyType({}),
    loc: Literal["outside lower left", "outside lower right"] = "outside lower left",
) -> None:
    """Say below the picture what its colours and markers mean, and its *others*: edges, rings, hatches."""
    handles: list[Any] = []
    for name, look in looks.items():
        line = Line2D([], [], linestyle="", marker=look.marker, color=look.colour, markeredgecolor="white")
        if name in hollow:
            patch = Patch(facecolor="white", edgecolor=look.colour, hatch=HATCH)
        else:
            patch = Patch(facecolor=look.colour)
        handles.append(line if points else (patch, line))
    names = [one_line(name, 40) for name in (*looks, *others)]
    legend = figure.legend([*handles, *others.values()], names, loc=loc, ncols=6, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)
        text.set_fontfamily(families())


def deleted_mark() -> dict[str, Artist]:
    """What a key says of hatched bars whose colour is their source's."""
    return {"deleted": Patch(facecolor="white", edgecolor=FAINT, hatch=HATCH)}


def open_end_mark() -> dict[str, Artist]:
    """What a key says of the arrow at an edge."""
    return {"no end yet": Line2D([], [], linestyle="", marker=">", color=FAINT)}


def ink_on(colour: str) -> str:
    red, green, blue = to_rgb(colour)
    return INK if 0.21 * red + 0.72 * green + 0.07 * blue > 0.5 else "white"


def source_looks(sources: Sequence[str]) -> dict[str, Look]:
    looks = {name: _CYCLE[place % len(_CYCLE)] for place, name in enumerate(sorted(sources))}
    return looks | {"unknown source": PALETTE["no source"]}


def value_shades(values: Collection[_Value]) -> dict[_Value, str]:
    """A shade of grey-blue for each value, from light to dark in their order."""
    return {value: to_hex(_VALUES((place + 0.5) / len(values))) for place, value in enumerate(values)}


def entity_rows(
    table: DataFrame, key: Mapping[str, Any], columns: Sequence[Column], function: str
) -> DataFrame:
    """These columns of the rows of one entity, and `matching`: how many entities have this key."""
    is_wanted = is_entity(
        key, T.StructType([table.schema["guid"], *history_fields(table)]), function=function
    )
    one = table.where(is_wanted).agg(F.min("guid").alias("one"), F.count_distinct("guid").alias("matching"))
    return table.select(F.col("guid").alias("one"), *columns).join(F.broadcast(one), on="one", how="inner")


def with_ends(history: DataFrame) -> DataFrame:
    """The same versions, with null for ends in the year 9999: an axis up to there would show nothing else."""
    return history.withColumn(VALID_TO, F.when(~is_never(F.col(VALID_TO)), F.col(VALID_TO)))


def with_sources(frame: DataFrame, changes: DataFrame, message: str, function: str) -> DataFrame:
    """The source of each row's message, and the sources of all changes, which choose the colours."""
    require_columns(changes, ["message_id", "source"], function=function)
    every = changes.agg(F.array_sort(F.collect_set("source")).alias("sources"))
    return with_messages(frame, changes, message=message).crossJoin(F.broadcast(every))


def exact_text(value: Column, kind: T.DataType) -> Column:
    """A value as text; instants as microseconds, since their text depends on the zone of the session."""
    return F.unix_micros(value).cast("string") if isinstance(kind, T.TimestampType) else as_text(value, kind)


def first_rows(frame: DataFrame, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """The first rows, and whether there are more."""
    rows: list[dict[str, Any]] = frame.limit(limit + 1).toArrow().to_pylist()
    return rows[:limit], len(rows) > limit


def require_limit(limit: int, function: str) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidArgument(function, "limit", "a positive number", limit)
