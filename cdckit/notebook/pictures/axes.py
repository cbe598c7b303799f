"""Axes of pictures: instants on the clock of a zone, bars in rows, and texts that make room for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, num2date
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from pyspark.sql import types as T

from cdckit.notebook import NULL
from cdckit.notebook.pictures.style import HATCH, INK, Look, days, families, one_line
from cdckit.notebook.tables import Clock, timespec
from cdckit.parts.instants import EPOCH, microseconds

# Further out no zone can say what its clocks show.
_FIRST, _LAST = datetime(1, 1, 3), datetime(9999, 12, 29)


def time_axis(axis: Axis, label: str, first: float, last: float, *, pad: float, zone: tzinfo) -> float:
    """Set up an axis of instants with room for open ends; returns its end."""
    span = (last - first) or 1 / 24
    low = max(first - 0.02 * span, days(datetime.min))
    high = min(last + pad * span, days(datetime.max))
    axis._set_lim(low, high, auto=False)  # type: ignore[attr-defined]
    ticks, texts = ticks_between(_instant(low), _instant(high), zone)
    axis.set_ticks([days(tick) for tick in ticks], texts)
    axis.set_label_text(f"{label} ({zone})", fontsize=9, color=INK)
    axis.grid(True, color="#e6e6e6", linewidth=0.8)
    axis.axes.set_axisbelow(True)
    return high


def ticks_between(low: datetime, high: datetime, zone: tzinfo) -> tuple[list[datetime], list[str]]:
    """
    Instants at which clocks show round times, at most about eight, and what they show.

    The day stands below the first and wherever it is another one.  Where clocks are put forward or back
    between the two ends, each time has its offset; an hour that happens twice has its ticks twice.
    """
    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    round_times = num2date(locator.tick_values(low.astimezone(zone), high.astimezone(zone)), tz=zone)  # type: ignore[no-untyped-call]
    found = {instant for each in round_times for instant in _instants_of(each.replace(tzinfo=None), zone)}
    ticks = sorted(each for each in found if low <= each <= high)
    there = [each.astimezone(zone) for each in ticks]
    if len(there) > 1 and all(each.time() == datetime.min.time() for each in there):
        return ticks, [f"{each.date()}" for each in there]
    # Also what lies between two ticks, or beside them, must not be read on another offset.
    clock = Clock.of([microseconds(each) for each in (low, *ticks, high)], zone)
    return ticks, _texts(ticks, clock._replace(day=None))


def _texts(ticks: Sequence[datetime], clock: Clock) -> list[str]:
    micros = [microseconds(tick) for tick in ticks]
    texts, before = [], ""
    for each in micros:
        day, time = clock.text(each, timespec(micros)).split(" ")
        texts.append(time if day == before else f"{time}\n{day}")
        before = day
    return texts


def _instants_of(wall: datetime, zone: tzinfo) -> Iterator[datetime]:
    """When clocks show this: once, twice where they are put back, never where they are put forward."""
    for fold in (0, 1):
        instant = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
            yield instant


def _instant(number: float) -> datetime:
    exact = EPOCH + timedelta(days=number)
    return min(max(exact, _FIRST.replace(tzinfo=UTC)), _LAST.replace(tzinfo=UTC))


class Bar(NamedTuple):
    """What stands in one row of a picture from one instant to another."""

    place: int
    start: float
    end: float | None
    look: Look
    deleted: bool


def rows_axis(axes: Axes, labels: list[str]) -> None:
    size = 9 if len(labels) <= 20 else 7.5
    axes.set_yticks(range(len(labels)), labels, fontsize=size, family=families(), parse_math=False)
    axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def draw_bars(axes: Axes, bars: Sequence[Bar], *, thick: float, pad: float, zone: tzinfo) -> None:
    instants = [x for bar in bars for x in (bar.start, bar.end) if x is not None] or [
        days(datetime(1970, 1, 1))
    ]
    right = time_axis(axes.xaxis, "valid time", min(instants), max(instants), pad=pad, zone=zone)
    shortest = 0.012 * (right - min(instants))
    for bar in bars:
        stop = right if bar.end is None else bar.end
        axes.barh(
            bar.place,
            stop - bar.start,
            left=bar.start,
            height=thick,
            facecolor="white" if bar.deleted else bar.look.colour,
            edgecolor=bar.look.colour if bar.deleted else "white",
            hatch=HATCH if bar.deleted else None,
            linewidth=0.8 if len(bars) < 300 else 0.2,
        )
        if stop - bar.start > shortest or bar.deleted or bar.end is None:
            beginning = (bar.start, bar.place)
            axes.plot(
                *beginning, bar.look.marker, markersize=6, color=bar.look.colour, markeredgecolor="white",
                markeredgewidth=0.7, zorder=3, clip_on=False,
            )  # fmt: skip
        if bar.end is None:
            axes.plot(right, bar.place, ">", markersize=7, color=bar.look.colour, clip_on=False, zorder=3)


_UNITS = ((60_000_000, "minutes"), (1_000_000, "seconds"), (1_000, "milliseconds"), (1, "microseconds"))


class CellValue(NamedTuple):
    """A value as text, of an instant its microseconds since 1970, and the type that it has."""

    value: str | None
    kind: T.DataType

    @property
    def micros(self) -> int | None:
        is_instant = isinstance(self.kind, T.TimestampType) and self.value is not None
        return int(self.value or 0) if is_instant else None


class InstantFormat(NamedTuple):
    """How the instants among the values of one picture are written: no finer than tells them apart."""

    clock: Clock
    spec: str
    cut: bool

    @classmethod
    def of(cls, columns: Iterable[Iterable[CellValue]], zone: tzinfo) -> InstantFormat:
        """The writing of a picture of these columns of values."""
        found = [{each.micros for each in column} - {None} for column in columns]
        instants = [{each for each in column if each is not None} for column in found]
        unit, spec = next(
            (unit, spec)
            for unit, spec in _UNITS
            if all(len({each // unit for each in column}) == len(column) for column in instants)
        )
        every = [each for column in instants for each in column]
        return cls(Clock.of(every, zone), spec, any(each % unit for each in every))

    @property
    def note(self) -> str:
        """What the cells do not say of their instants."""
        day = [f"of {self.clock.day}"] if self.clock.day else []
        cut = [f"cut to {self.spec}"] if self.cut else []
        return f"times in cells are {', '.join([*day, *cut])}" if day or cut else ""

    def day(self, value: CellValue) -> str:
        """The day of an instant, where the picture has several; empty for all else."""
        if value.micros is None or self.clock.day:
            return ""
        day = self.clock.text(value.micros, self.spec).split(" ")[0]
        return day if day[0].isdigit() else ""

    def forms(self, value: CellValue, day: str = "") -> Sequence[str]:
        """A value in words, from the longest form to the shortest; of an instant of *day* the time alone."""
        if value.value is None:
            return [NULL]
        if value.micros is None:
            return list(dict.fromkeys(one_line(value.value, longest) for longest in (60, 24, 12)))
        text = self.clock.text(value.micros, self.spec)
        return [text.split(" ")[1]] if day and self.day(value) == day else [text]


_MARKER, _EDGE = 7.0, 1.0  # pixels: half a marker at the beginning of a box, and what stays free of its end


class Labels:
    """
    The texts of one picture.

    Each stands clear of those that were written before it: so write the indispensable first.
    """

    def __init__(self, axes: Axes) -> None:
        self._axes, self._taken = axes, list[Bbox]()

    def keep_clear(self, at: tuple[float, float]) -> None:
        """Let no text stand upon the marker at this point."""
        x, y = self._axes.transData.transform(at)
        self._taken.append(Bbox([[x - 6, y - 6], [x + 6, y + 6]]))

    def write_in(
        self, forms: Sequence[str], box: Bbox, *, left: bool = False, colour: str = INK,
        behind: str = "white", must: bool = False,
    ) -> bool:  # fmt: skip
        """
        Write the longest form that has room in a box of the axes, if need be upwards; whether one had.

        One that *must* stand runs over the edge of its box where it has no room, on the colour *behind*.
        """
        room = box.transformed(self._axes.transData)
        inner = Bbox([[room.x0 + (_MARKER if left else _EDGE), room.y0], [room.x1 - _EDGE, room.y1]])
        size = min(8.5, max(6.0, 0.62 * abs(room.height) * 72 / 100 + 1.5))
        text = self._axes.text(
            0, 0, "", transform=None, va="center_baseline", family=families(), fontsize=size, color=colour,
            parse_math=False,
        )  # fmt: skip
        written = self._fits(text, forms, inner, left=left)
        if must and not written:
            written = self._runs_over(text, forms[-1], inner)
            text.set_bbox({"facecolor": behind, "edgecolor": "none", "pad": 1.0})
        if written:
            self._taken.append(text.get_window_extent())
            # At its instant, not at its pixel: a picture may be saved larger.
            x, y = self._axes.transData.inverted().transform(text.get_position())
            text.set_position((float(x), float(y)))
            text.set_transform(self._axes.transData)
            return True
        text.remove()
        return False

    def _fits(self, text: Text, forms: Sequence[str], inner: Bbox, *, left: bool) -> bool:
        middle = ((inner.x0 + inner.x1) / 2, (inner.y0 + inner.y1) / 2)
        for turned in (0, 90):
            text.set(
                rotation=turned,
                x=inner.x0 if left and not turned else middle[0],
                y=middle[1],
                va="center" if turned else "center_baseline",
                ha="left" if left and not turned else "center",
            )
            for form in forms:
                text.set_text(form)
                wide = text.get_window_extent()
                has_room = wide.width <= inner.width and wide.height <= abs(inner.height) + 2
                if has_room and not wide.count_overlaps(self._taken):
                    return True
        return False

    def _runs_over(self, text: Text, form: str, inner: Bbox) -> bool:
        """Written all the same, from the beginning of its box on, or to its end at the picture's edge."""
        frame = self._axes.get_window_extent()
        text.set(rotation=0, text=form, ha="left", va="center_baseline", x=inner.x0, zorder=4)
        text.set_x(max(frame.x0, min(inner.x0, frame.x1 - text.get_window_extent().width)))
        return not text.get_window_extent().count_overlaps(self._taken)

    def write_beside(self, words: str, at: tuple[float, float], *, must: bool = False) -> bool:
        """
        Write beside a point; whether there was a place where no other text and no marker stands.

        What *must* stand is written below the point where there is none.
        """
        frame = self._axes.get_window_extent()
        places = [
            (10, 0, "left"), (-10, 0, "right"), (10, 10, "left"), (10, -10, "left"), (-10, 10, "right"),
            (-10, -10, "right"), (0, 13, "center"), (0, -13, "center"),
        ]  # fmt: skip
        for dx, dy, ha in places:
            note = self._axes.annotate(
                words, at, xytext=(dx, dy), textcoords="offset points", ha=ha, va="center",
                family=families(), fontsize=8.5, color=INK, parse_math=False, zorder=4,
            )  # fmt: skip
            place = note.get_window_extent()
            inside = frame.x0 <= place.x0 and place.x1 <= frame.x1
            if (inside and not place.count_overlaps(self._taken)) or (must and (dx, dy, ha) == places[-1]):
                self._taken.append(place)
                return True
            note.remove()
        return False
