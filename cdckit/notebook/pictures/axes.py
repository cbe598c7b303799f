"""Axes of pictures: instants on the clock of a zone, and bars in rows below each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis

from cdckit.notebook.pictures.look import HATCH, INK, Look, days, families
from cdckit.notebook.table_layout import Clock, timespec
from cdckit.parts.instants import EPOCH, microseconds

_MOST_TICKS = 8
_DAY = timedelta(days=1)
# Enough to meet each offset of a zone in a span whose ticks are hours or days.
_SAMPLES = 60
_STEPS = (
    *(timedelta(microseconds=digit * 10**power) for power in range(6) for digit in (1, 2, 5)),
    *(timedelta(seconds=number) for number in (1, 2, 5, 10, 15, 30)),
    *(timedelta(minutes=number) for number in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=number) for number in (1, 2, 3, 6, 12)),
    *(timedelta(days=number) for number in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6, *(12 * number for number in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000)))
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
    spread = [low + (high - low) * place / _SAMPLES for place in range(_SAMPLES + 1)]
    offsets = {each.astimezone(zone).utcoffset() or timedelta(0) for each in spread}
    walls, in_days = _round_times(high - low)
    ticks = sorted(
        {
            instant
            for offset in offsets
            for wall in walls(low.replace(tzinfo=None) + offset, high.replace(tzinfo=None) + offset)
            for instant in _instants_of(wall, zone)
            if low <= instant <= high
        }
    )
    if in_days:
        return ticks, [f"{tick.astimezone(zone).date()}" for tick in ticks]
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


def _round_times(span: timedelta) -> tuple[Callable[[datetime, datetime], Iterator[datetime]], bool]:
    """What lists the round times between two on the clock at the wall, and whether they are days."""
    for step in _STEPS:
        if span <= _MOST_TICKS * step:
            return partial(_steps, step), step >= _DAY
    months = span / timedelta(days=30)
    number = next((number for number in _MONTHS if months <= _MOST_TICKS * number), _MONTHS[-1])
    return partial(_months, number), True


def _steps(step: timedelta, low: datetime, high: datetime) -> Iterator[datetime]:
    """Multiples of *step* since the year 1, whose first day is a Monday."""
    wall = datetime.min + (low - datetime.min) // step * step
    while wall <= high:
        yield wall
        wall += step


def _months(number: int, low: datetime, high: datetime) -> Iterator[datetime]:
    first = (low.year * 12 + low.month - 1) // number * number
    for month in range(first, high.year * 12 + high.month, number):
        if month >= 12:  # there is no year 0
            yield datetime(month // 12, month % 12 + 1, 1)


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
