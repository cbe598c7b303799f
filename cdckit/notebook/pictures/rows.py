"""Bars from one instant to another, in rows below each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import NamedTuple

from matplotlib.axes import Axes

from cdckit.notebook.pictures.axis import time_axis
from cdckit.notebook.pictures.look import HATCH, Look
from cdckit.notebook.pictures.words import days
from cdckit.notebook.pictures.writing import families


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
