"""What pictures are drawn of: axes of instants on the clock of a zone, bars in rows, and texts in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, tzinfo
from itertools import product
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from pyspark.sql import types as T

from cdckit.notebook.clock import Clock, timespec
from cdckit.notebook.columns import NULL
from cdckit.notebook.pictures.style import DARK, HATCH, INK, Look, days, one_line

# Further out no zone can say what its clocks show.
_FIRST, _LAST = datetime(1, 1, 3), datetime(9999, 12, 29)
# By the finest unit of the ticks, from years to seconds: what a tick says, and what all of them share.
_TICKS = ["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S.%f"]
_FIRST_TICKS = ["", "%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M:%S.%f"]
_SHARED = ["", "", "%Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d"]


def time_axis(axis: Axis, label: str, first: float, last: float, *, pad: float, zone: tzinfo) -> float:
    """Set up an axis of instants with room for open ends; returns its end."""
    span = (last - first) or 1 / 24
    low, high = max(first - 0.02 * span, days(_FIRST)), min(last + pad * span, days(_LAST))
    (axis.axes.set_xlim if axis is axis.axes.xaxis else axis.axes.set_ylim)(low, high)
    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    forms: dict[str, Any] = {"formats": _TICKS, "zero_formats": _FIRST_TICKS, "offset_formats": _SHARED}
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator, tz=zone, **forms))  # type: ignore[no-untyped-call]
    axis.set_label_text(f"{label} ({zone})")
    axis.grid(True)
    return high


def rows_axis(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=9 if len(labels) <= 20 else 7.5)
    axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def draw_bar(
    axes: Axes, place: float, begin: float, end: float, colour: str, *, high: float, deleted: bool = False,
    edge: str = "white", **more: Any,
) -> Any:  # fmt: skip
    """A bar from one end to another; what is deleted is hatched."""
    face, edge, hatch = ("none", colour, HATCH) if deleted else (colour, edge, None)
    style: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "hatch": hatch, "linewidth": 0.6, **more}
    return axes.barh(place, end - begin, left=begin, height=high, **style)


class Bar(NamedTuple):
    """What stands in one row of a picture from one instant to another."""

    place: int
    start: float
    end: float | None
    look: Look
    deleted: bool


def draw_bars(axes: Axes, bars: Sequence[Bar], *, high: float, pad: float, zone: tzinfo) -> None:
    """Draw bars through time, each with the marker of its look at its beginning, and an arrow without end."""
    instants = [x for bar in bars for x in (bar.start, bar.end) if x is not None] or [0.0]
    right = time_axis(axes.xaxis, "valid time", min(instants), max(instants), pad=pad, zone=zone)
    shortest = 0.012 * (right - min(instants))
    marker: dict[str, Any] = {
        "markersize": 6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.7,
        "zorder": 3,
    }
    for bar in bars:
        stop, colour = right if bar.end is None else bar.end, bar.look.colour
        thin: dict[str, Any] = {"linewidth": 0.2} if len(bars) >= 300 else {}
        draw_bar(axes, bar.place, bar.start, stop, colour, high=high, deleted=bar.deleted, **thin)
        if stop - bar.start > shortest or bar.deleted or bar.end is None:
            axes.plot(bar.start, bar.place, bar.look.marker, color=colour, clip_on=False, **marker)
        if bar.end is None:
            axes.plot(right, bar.place, ">", markersize=7, color=colour, clip_on=False, zorder=3)


class ValueTexts(NamedTuple):
    """How the values of one picture are written: instants as short as they can be together."""

    kinds: Collection[T.DataType]
    clock: Clock
    spec: str

    @classmethod
    def of(cls, values: Collection[tuple[str | None, T.DataType]], zone: tzinfo) -> ValueTexts:
        """Choose how to write these values, each with its type; of an instant its microseconds since 1970."""
        times = [int(value) for value, kind in values if _is_instant(kind) and value is not None]
        return cls([kind for _, kind in values], Clock.of(times, zone), timespec(times))

    @property
    def note(self) -> str:
        """What the values do not say of their instants."""
        return f"times in cells are of {self.clock.day}" if self.clock.day else ""

    def forms(self, value: str | None, kind: T.DataType) -> list[str]:
        """A value in words, from the longest form to the shortest."""
        if value is None:
            return [NULL]
        if not _is_instant(kind):
            return list(dict.fromkeys(one_line(value, longest) for longest in (60, 24, 12)))
        text = self.clock.text(int(value), self.spec)
        return [text, text[5:]] if text[:4].isdigit() else [text]  # the year is the first that can go


def _is_instant(kind: T.DataType) -> bool:
    return isinstance(kind, T.TimestampType)


class Labels:
    """The texts of one chart: each stands clear of those before it, so write the indispensable first."""

    def __init__(self, axes: Axes) -> None:
        self._axes, self._taken = axes, list[Bbox]()

    def keep_clear(self, at: tuple[float, float]) -> None:
        """Let no text stand upon the marker at this point."""
        x, y = self._axes.transData.transform(at)
        self._taken.append(Bbox([[x - 6, y - 6], [x + 6, y + 6]]))

    def write_in(
        self, forms: Sequence[str], box: Bbox, *, left: bool = False, colour: str = DARK,
        behind: str = "white", must: bool = False,
    ) -> bool:  # fmt: skip
        """
        Write the longest form that has room in a box of the chart, if need be upwards; whether one had.

        One that *must* stand runs over the edge of its box where it has no room, on the colour *behind*.
        """
        room = box.transformed(self._axes.transData)
        look = {"fontsize": min(8.5, max(6.0, 0.45 * abs(room.height) + 1.5)), "color": colour}
        begin, middle = (box.x0, (box.y0 + box.y1) / 2), ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
        for form, turned in product(forms, (0, 90)):
            from_left = left and not turned
            place: dict[str, Any] = {"ha": "left", "xytext": (5, 0)} if from_left else {"ha": "center"}
            text = self._write(form, begin if from_left else middle, rotation=turned, **place, **look)
            wide, free = text.get_window_extent(), room.width - (8 if left else 2)
            if self._keep(text, wide.width <= free and wide.height <= abs(room.height) + 2):
                return True
        if not must:
            return False
        ground = {"facecolor": behind, "edgecolor": "none", "pad": 1.0}
        text = self._write(forms[-1], begin, ha="left", xytext=(5, 0), bbox=ground, **look)
        over = text.get_window_extent().x1 - self._axes.get_window_extent().x1
        text.set_x(5 - max(0.0, over) * 0.72)  # at the picture's edge it ends there; 100 pixels are 72 points
        return self._keep(text, True)

    def write_beside(self, words: str, at: tuple[float, float], *, must: bool = False) -> bool:
        """Write beside a point where no other text and no marker stands; whether there was such a place."""
        frame = self._axes.get_window_extent()
        places = [(10, 0, "left"), (-10, 0, "right"), (0, 13, "center"), (0, -13, "center")]
        for dx, dy, ha in places:
            text = self._write(words, at, xytext=(dx, dy), ha=ha, fontsize=8.5, color=INK)
            place = text.get_window_extent()
            if self._keep(text, frame.x0 <= place.x0 and place.x1 <= frame.x1):
                return True
        if must:
            self._write(words, at, xytext=(0, -13), ha="center", fontsize=8.5, color=INK)
        return must

    def _write(self, words: str, at: tuple[float, float], **look: Any) -> Annotation:
        place = {"xytext": (0, 0), "textcoords": "offset points", "va": "center", "zorder": 4}
        return self._axes.annotate(words, at, **{**place, **look})

    def _keep(self, text: Annotation, has_room: bool) -> bool:
        """Keep a text that has room and touches no other; else it goes."""
        place = text.get_window_extent()
        if has_room and not place.count_overlaps(self._taken):
            self._taken.append(place)
            return True
        text.remove()
        return False
