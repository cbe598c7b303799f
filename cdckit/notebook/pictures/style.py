"""What all pictures share: colours, words, a figure with its title and key, and the rows it is drawn from."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from matplotlib import rc_context, rcParams
from matplotlib.artist import Artist
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

from cdckit.model.history import VALID_TO, is_never
from cdckit.notebook.clock import with_day
from cdckit.parts.arguments import require_columns
from cdckit.parts.values import as_text
from cdckit.query.bitemporal import history_fields
from cdckit.query.entity_keys import is_entity
from cdckit.query.provenance import MESSAGE_SOURCE, with_messages


class Look(NamedTuple):
    """
    How one thing is drawn in every picture: for those who see colours, and for those who do not.

    >>> PALETTE["delete"]
    Look(colour='#d94050', marker='X')
    """

    colour: str
    marker: str


PALETTE: Mapping[str, Look] = MappingProxyType(
    {
        # Operations: about as far from white as from the black of a dark theme.
        "insert": Look("#2a8a48", "^"),
        "update": Look("#3579c0", "o"),
        "delete": Look("#d94050", "X"),
        "recreate": Look("#9850a8", "D"),
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

ROWS = 30
SECOND = 1 / 86_400  # of a day: matplotlib counts instants in days
INK = "#7c7c7c"
"""Of what stands beside the bars: a page may be white or black, and the picture has no ground of its own."""
DARK, HATCH = "#1c1c1c", "////"
_SOURCES = tuple(look for name, look in PALETTE.items() if name.startswith("source "))
_VALUES = LinearSegmentedColormap.from_list("values", ["#dbe7f1", "#9fb8cd", "#6f93b3", "#3f6b93"])

# What systems bring for signs that matplotlib's own font lacks: those of East Asia first of all.
_FONTS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Noto Sans SC", "Noto Sans KR"),
    *("Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic"),
    *("WenQuanYi Zen Hei", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji"),
)
_INSTALLED = {font.name for font in fontManager.ttflist}

# A sign that no font here has is an empty box.  The reader sees that; a red warning for each tells no more.
warnings.filterwarnings(
    "ignore", message=r"Glyph \d+ .* missing from font", module=r"cdckit\.notebook\.pictures"
)

STYLE: Mapping[Any, Any] = MappingProxyType(
    {
        "font.family": [*rcParams["font.family"], *(name for name in _FONTS if name in _INSTALLED)],
        "font.size": 9,
        "text.color": INK,
        "text.parse_math": False,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.labelsize": 9,
        "axes.titlelocation": "left",
        "axes.titlesize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.alpha": 0.25,
        "grid.color": INK,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "xtick.color": INK,
        "ytick.color": INK,
    }
)
"""How these pictures look, as matplotlib's settings: `plt.rcParams.update(STYLE)` makes your own look so."""

in_style = rc_context(dict(STYLE))
"""The decorator of what draws: all that is drawn within it looks so, whatever the program has chosen."""


class Picture(Figure):
    """A figure of one chart with its title and a line below; a notebook shows it without pyplot."""

    def __init__(self, title: str, subtitle: str = "", *, rows: int = 0) -> None:
        height = max(SIZE[1], SIZE[1] + (rows - ROWS) * 0.13)
        super().__init__(figsize=(SIZE[0], height), dpi=100, layout="constrained")
        FigureCanvasAgg(self)
        self.suptitle(one_line(title, 105), x=0.01, ha="left", fontsize=12, weight="bold")
        self.chart = self.add_subplot()
        self._note = ""
        self._subtitle = self.chart.set_title(one_line(subtitle, 130))

    def _repr_png_(self) -> bytes:
        written = io.BytesIO()
        self.savefig(written, format="png")
        return written.getvalue()

    def key(
        self,
        looks: Mapping[str, Look] = MappingProxyType({}),
        *,
        hollow: Iterable[str] = (),
        points: bool = False,
        others: Mapping[str, Artist] = MappingProxyType({}),
        loc: Literal["outside lower left", "outside lower right"] = "outside lower left",
    ) -> None:
        """Say below the chart what its colours and markers mean, and its *others*: edges, rings, hatches."""
        handles: list[Any] = []
        self._note = "several share a look; " if len({*looks.values()}) < len(looks) else ""
        for name, look in looks.items():
            line = Line2D(
                [], [], linestyle="", marker=look.marker, color=look.colour, markeredgecolor="white"
            )
            is_hollow = name in hollow
            face, hatch = ("none", HATCH) if is_hollow else (look.colour, None)
            patch = Patch(facecolor=face, edgecolor=look.colour if is_hollow else "none", hatch=hatch)
            handles.append(line if points else (patch, line))
        names = [one_line(name, 40) for name in (*looks, *others)]
        self.legend([*handles, *others.values()], names, loc=loc, ncols=6)

    def settle(self, subtitle: str | None = None) -> None:
        """Lay the picture out, so that texts can be measured, with its second line below its first."""
        line = self._subtitle.get_text() if subtitle is None else subtitle
        self._subtitle.set_text(one_line(self._note + line.removeprefix(self._note), 130))
        self.draw_without_rendering()
        left, _ = self.chart.transAxes.inverted().transform((0.01 * self.bbox.width, 0))
        self._subtitle.set_x(left)


@in_style
def text_figure(text: str) -> Figure:
    """A figure for where there is nothing to draw."""
    picture = Picture(text)
    picture.chart.set_axis_off()
    return picture


def deleted_mark() -> dict[str, Artist]:
    """Draw what a key says of hatched bars whose colour is their source's."""
    return {"deleted": Patch(facecolor="none", edgecolor=INK, hatch=HATCH)}


def open_end_mark() -> dict[str, Artist]:
    """Draw what a key says of the arrow at an edge."""
    return {"no end yet": Line2D([], [], linestyle="", marker=">", color=INK)}


def ink_on(colour: str) -> str:
    red, green, blue = to_rgb(colour)
    return DARK if 0.21 * red + 0.72 * green + 0.07 * blue > 0.5 else "white"


_Value = TypeVar("_Value")


def source_looks(sources: Sequence[str], drawn: Iterable[str] | None = None) -> dict[str, Look]:
    """The look of each source, the same in all pictures; of more than there are looks, of those *drawn*."""
    if drawn is not None and len(sources) > len(_SOURCES):
        sources = [*{*sources} & {*drawn}]
    looks = {name: _SOURCES[place % len(_SOURCES)] for place, name in enumerate(sorted(sources))}
    return looks | {"unknown source": PALETTE["no source"]}


def value_shades(values: Collection[_Value]) -> dict[_Value, str]:
    """A shade of grey-blue for each value, from light to dark in their order."""
    return {value: to_hex(_VALUES((place + 0.5) / len(values))) for place, value in enumerate(values)}


def source_name(row: Mapping[str, Any], column: str = MESSAGE_SOURCE) -> str:
    return "unknown source" if row[column] is None else row[column]


def days(instant: datetime) -> float:
    """An instant as matplotlib counts it."""
    return float(date2num(instant))  # type: ignore[no-untyped-call]


def days_or_none(instant: datetime | None) -> float | None:
    return None if instant is None else days(instant)


def entity_text(key: Mapping[str, Any], zone: tzinfo) -> str:
    """A key in words; the instants in it in full."""
    shown = (with_day(value, zone) if isinstance(value, datetime) else str(value) for value in key.values())
    return one_line(" ".join(shown), 60)


def one_line(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units."""
    left, parts = round(abs(seconds)), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size} {unit}")
        left %= size
    return ("-" if seconds < 0 else "") + (" ".join(parts[:2]) or "0 s")


def entity_rows(table: DataFrame, key: Mapping[str, Any], columns: Sequence[Column]) -> DataFrame:
    """These columns of the rows of one entity, and `matching`: how many entities have this key."""
    is_wanted = is_entity(key, T.StructType([table.schema["guid"], *history_fields(table)]))
    entity = table.where(is_wanted).agg(
        F.min("guid").alias("one"), F.count_distinct("guid").alias("matching")
    )
    return table.select(F.col("guid").alias("one"), *columns).join(F.broadcast(entity), on="one", how="inner")


def with_ends(history: DataFrame) -> DataFrame:
    """Put null for ends in the year 9999: an axis up to there would show nothing else."""
    return history.withColumn(VALID_TO, F.when(~is_never(F.col(VALID_TO)), F.col(VALID_TO)))


def with_sources(frame: DataFrame, changes: DataFrame) -> DataFrame:
    """The source of each row's message, and the sources of all changes, which choose the colours."""
    require_columns(changes, ["message_id", "source"])
    every = changes.agg(F.array_sort(F.collect_set("source")).alias("sources"))
    return with_messages(frame, changes, message="message").crossJoin(F.broadcast(every))


def exact_text(value: Column, kind: T.DataType) -> Column:
    """A value as text; instants as microseconds, since their text depends on the zone of the session."""
    return F.unix_micros(value).cast("string") if isinstance(kind, T.TimestampType) else as_text(value, kind)


def first_rows(frame: DataFrame, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """The first rows, and whether there are more."""
    rows: list[dict[str, Any]] = frame.limit(limit + 1).toArrow().to_pylist()
    return rows[:limit], len(rows) > limit
