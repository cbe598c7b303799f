"""How pictures look: what each colour means, and the parts that all of them are drawn with."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import Bbox

from cdckit.pictures.words import days, one_line


class Look(NamedTuple):
    """How one thing is drawn in every picture: for those who see colours, and for those who do not."""

    colour: str
    marker: str


PALETTE: Mapping[str, Look] = MappingProxyType(
    {
        "insert": Look("#1b7837", "^"),
        "update": Look("#2166ac", "o"),
        "delete": Look("#b2182b", "X"),
        "recreate": Look("#762a83", "D"),
        # Sources in the order of their names.  The colours are Paul Tol's scheme "light", made to be told
        # apart by everybody and to be read upon in black.
        "source 1": Look("#77aadd", "o"),
        "source 2": Look("#ee8866", "s"),
        "source 3": Look("#eedd88", "^"),
        "source 4": Look("#44bb99", "D"),
        "source 5": Look("#ffaabb", "v"),
        "source 6": Look("#bbcc33", "P"),
        "source 7": Look("#99ddff", "*"),
        "source 8": Look("#aaaa00", "X"),
        "no source": Look("#dddddd", "_"),
    }
)
"""What each colour means, here and in whatever is drawn beside these pictures."""


SIZE = (10.0, 5.0)
"""Inches.  More than 30 rows make a picture higher, never smaller."""


_CYCLE = tuple(look for name, look in PALETTE.items() if name.startswith("source "))


INK, _FAINT, HATCH = "#222222", "#777777", "////"


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
    heading = figure.suptitle(one_line(title, 105), x=0.01, ha="left", fontsize=12, weight="bold", color=INK)
    heading.set_parse_math(False)
    axes = figure.add_subplot()
    axes.set_title(one_line(subtitle, 130), loc="left", fontsize=9, color=_FAINT, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9, colors=INK)
    return figure, axes


def only_words(text: str) -> Figure:
    """A figure for where there is nothing to draw."""
    figure, axes = new_figure(text, "")
    axes.set_axis_off()
    return figure


def time_axis(axis: Axis, label: str, first: float, last: float, *, pad: float) -> float:
    """Set up an axis of instants with room for open ends; returns its end."""
    span = (last - first) or 1 / 24
    lowest, highest = days(datetime(1, 1, 1)), days(datetime(9999, 12, 31))
    low, high = max(first - 0.02 * span, lowest), min(last + pad * span, highest)
    axis._set_lim(low, high, auto=False)  # type: ignore[attr-defined]
    locator = AutoDateLocator(tz=UTC, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axis.get_offset_text().set(fontsize=8, color=_FAINT)
    axis.set_label_text(label, fontsize=9, color=INK)
    axis.grid(True, color="#e6e6e6", linewidth=0.8)
    axis.axes.set_axisbelow(True)
    return high


def draw_key(
    figure: Figure,
    looks: Mapping[str, Look],
    *,
    hollow: Iterable[str] = (),
    deleted: bool = False,
    points: bool = False,
) -> None:
    handles: list[Any] = []
    for name, look in looks.items():
        line = Line2D([], [], linestyle="", marker=look.marker, color=look.colour, markeredgecolor="white")
        if name in hollow:
            patch = Patch(facecolor="white", edgecolor=look.colour, hatch=HATCH)
        else:
            patch = Patch(facecolor=look.colour)
        handles.append(line if points else (patch, line))
    names = [one_line(name, 30) for name in looks]
    if deleted:
        handles.append(Patch(facecolor="white", edgecolor=_FAINT, hatch=HATCH))
        names.append("deleted")
    legend = figure.legend(handles, names, loc="outside lower left", ncols=6, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)


def ink_on(colour: str) -> str:
    red, green, blue = to_rgb(colour)
    return INK if 0.21 * red + 0.72 * green + 0.07 * blue > 0.5 else "white"


def write_in(
    axes: Axes,
    forms: Sequence[str],
    box: Bbox,
    *,
    left: bool = False,
    colour: str = INK,
    boxed: bool = False,
) -> bool:
    """Write the longest form that has room in a box of the axes; whether one had."""
    room = box.transformed(axes.transData)
    wide, high = abs(room.width) - (20 if left else 12), abs(room.height)
    if wide < 12 or high < 9:
        return False
    place = (
        (room.x0 + 12, (room.y0 + room.y1) / 2)
        if left
        else ((room.x0 + room.x1) / 2, (room.y0 + room.y1) / 2)
    )
    x, y = axes.transData.inverted().transform(place)
    text = axes.text(
        x, y, "", ha="left" if left else "center", va="center_baseline" if left else "center",
        fontsize=min(8.5, 0.62 * high * 72 / 100 + 1.5), color=colour, parse_math=False, clip_on=True,
    )  # fmt: skip
    if boxed:
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.5})
    for form in forms:
        text.set_text(form)
        if text.get_window_extent().width <= wide:
            return True
    text.remove()
    return False


def write_beside(
    axes: Axes, words: str, at: tuple[float, float], taken: list[Bbox], *, colour: str = INK
) -> None:
    """Write beside a point, where no other of these labels stands; leave it out if there is no such place."""
    frame = axes.get_window_extent()
    for dx, dy, ha in (
        (8, 0, "left"),
        (-8, 0, "right"),
        (8, 10, "left"),
        (8, -10, "left"),
        (-8, 10, "right"),
    ):
        note = axes.annotate(
            words,
            at,
            xytext=(dx, dy),
            textcoords="offset points",
            ha=ha,
            va="center",
            fontsize=8.5,
            color=colour,
        )
        place = note.get_window_extent()
        if (
            frame.x0 <= place.x0
            and place.x1 <= frame.x1
            and not any(place.overlaps(other) for other in taken)
        ):
            taken.append(place)
            return
        note.remove()


def source_looks(sources: Sequence[str]) -> dict[str, Look]:
    looks = {name: _CYCLE[place % len(_CYCLE)] for place, name in enumerate(sorted(sources))}
    return looks | {"unknown source": PALETTE["no source"]}
