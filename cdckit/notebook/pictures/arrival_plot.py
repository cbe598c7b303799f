"""When changes were true, and how long after that they arrived."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cdckit.changes import require_changes
from cdckit.notebook.options import as_zone
from cdckit.notebook.pictures.axes import Labels, time_axis
from cdckit.notebook.pictures.style import (
    INK,
    days,
    draw_key,
    duration_text,
    first_rows,
    new_figure,
    one_line,
    require_limit,
    source_looks,
    source_name,
    text_figure,
    with_number,
)
from cdckit.parts.arguments import require_fields, require_struct
from cdckit.parts.values import as_text

_MOST_LABELS = 21
_DURATIONS = {
    1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3_600: "1 h", 6 * 3_600: "6 h", 86_400: "1 d",
    7 * 86_400: "7 d", 30 * 86_400: "30 d", 365 * 86_400: "1 y", 3_650 * 86_400: "10 y",
}  # fmt: skip


def arrivals(
    changes: DataFrame, *, keys: Sequence[str], limit: int = 5_000, zone: tzinfo | str | None = None
) -> Figure:
    """
    When changes were true, and how long after that they arrived; those that came late are ringed.

    A change is late if an equal or later instant of the same entity had arrived before it: what arrived
    at the same moment did not arrive before.  The same message and record once more is no second change.

    Args:
        changes: One row per change; those without a time are left out.
        keys: The key fields of the entity, as for `merge`; where *changes* have the column `guid`, that
            is the identity instead.
        limit: How many changes to draw: the late ones first, then a sample that is the same each time.
        zone: The zone whose clocks the axis shows, a tzinfo or its name; without it `options.zone`.

    Returns:
        The figure: the effective time across; the delay upwards, logarithmic beyond a second.  The one that
        came latest has its delay and its key beside it, and of up to 20 more the delay where there is room.

    Raises:
        MissingColumns, WrongColumnType: *changes* is not a table of changes.
        InvalidArgument: *keys* name no field, *limit* is not a positive number, or there is no such zone.

    Cost: one job, two shuffles and a sort by entity; done twice, once to count and once to draw.

    >>> from cdckit.notebook import pictures
    >>> pictures.arrivals(changes, keys=["number"]).get_suptitle()
    '0 of 4 changes arrived late'
    """
    function = "arrivals"
    require_changes(changes, function=function)
    data = require_struct(changes, "data", function=function)
    names = require_fields(keys, data.fieldNames(), "keys", function=function)
    require_limit(limit, function)
    clock = as_zone(zone, function=function)
    values = [(F.col("data").getField(name), data[name].dataType) for name in names]
    identity = (
        F.struct("guid")
        if "guid" in changes.columns
        else F.struct(*(value.alias(f"key_{place}") for place, (value, _) in enumerate(values)))
    )
    timed = changes.where(F.col("effective_timestamp").isNotNull() & F.col("arrival.timestamp").isNotNull())
    key = F.concat_ws(" ", *(as_text(value, kind) for value, kind in values)).alias("key")
    told = F.col("arrival.timestamp"), F.col("effective_timestamp"), F.col("source"), key
    once = timed.groupBy(
        identity.alias("identity"), "source", "message_id", F.col("arrival.record_number").alias("record")
    ).agg(F.min_by(F.struct(*told), "arrival").alias("first"))
    arrived = F.unix_micros(F.col("first.timestamp"))
    before = Window.partitionBy("identity").orderBy(arrived).rangeBetween(Window.unboundedPreceding, -1)
    latest = F.max("first.effective_timestamp").over(before)
    marked = once.withColumn("late", F.coalesce(latest >= F.col("first.effective_timestamp"), F.lit(False)))
    total = marked.agg(
        F.count("*").alias("changes"),
        F.count_if("late").alias("late_changes"),
        F.array_sort(F.collect_set("first.source")).alias("sources"),
    )
    delay = F.unix_micros("first.timestamp") - F.unix_micros("first.effective_timestamp")
    late_delay = F.when(F.col("late"), delay)  # null sorts last: the latest of the late come first
    word = ("message_id", "record", "source")
    chosen = marked.orderBy(late_delay.desc(), F.xxhash64("message_id", "record"), *word)
    few = chosen.select("first.*", "late").limit(limit)
    rows, _ = first_rows(few.crossJoin(F.broadcast(total)), limit)
    return _points(rows, clock) if rows else text_figure("There is no change with both times.")


def _points(rows: list[dict[str, Any]], zone: tzinfo) -> Figure:
    changes, late = rows[0]["changes"], rows[0]["late_changes"]
    delays = [(row["timestamp"] - row["effective_timestamp"]).total_seconds() for row in rows]
    longest = max((delay for row, delay in zip(rows, delays, strict=True) if row["late"]), default=None)
    by = "" if longest is None else f", by up to {duration_text(longest)}"
    title = f"{late:,} of {with_number(changes, 'change')} arrived late{by}"
    left_out = f"{len(rows):,} of {changes:,} changes, late ones first; " if len(rows) < changes else ""
    subtitle = f"{left_out}late: something as new of the same entity had arrived before"
    figure, axes = new_figure(title, subtitle)
    looks = source_looks(rows[0]["sources"])
    seen = {}
    for name, look in looks.items():
        for is_late in (False, True):
            points = [
                (days(row["effective_timestamp"]), delay)
                for row, delay in zip(rows, delays, strict=True)
                if source_name(row, "source") == name and row["late"] == is_late
            ]
            if points:
                seen[name] = look
                axes.plot(
                    *zip(*points, strict=True),
                    look.marker,
                    color=look.colour,
                    markersize=8 if is_late else 4,
                    markeredgecolor=INK if is_late else "none",
                    markeredgewidth=1.2 if is_late else 0,
                    alpha=1.0 if is_late else 0.6,
                    zorder=3 if is_late else 2,
                    label=f"{name}, late" if is_late else name,
                )
    _delay_axis(axes, delays)
    instants = [days(row["effective_timestamp"]) for row in rows]
    time_axis(axes.xaxis, "effective time", min(instants), max(instants), pad=0.03, zone=zone)
    ring = Line2D([], [], linestyle="", marker="o", color="none", markeredgecolor=INK, markersize=8)
    draw_key(figure, seen, points=True, others={"late": ring} if late else {})
    figure.draw_without_rendering()
    labels = Labels(axes)
    ringed = sorted(
        (-delay, days(row["effective_timestamp"]), row["key"])
        for row, delay in zip(rows, delays, strict=True)
        if row["late"]
    )
    for before, x, _ in ringed:
        labels.keep_clear((x, -before))
    for place, (before, x, key) in enumerate(ringed[:_MOST_LABELS]):
        told, at = duration_text(-before), (x, -before)
        if place:
            labels.write_beside(told, at)
        elif not labels.write_beside(f"{told}: {one_line(key, 40)}", at):
            labels.write_beside(told, at, must=True)
    return figure


def _delay_axis(axes: Axes, delays: Sequence[float]) -> None:
    axes.set_yscale("symlog", linthresh=1)
    low, high = min(0.0, *delays), max(1.0, *delays)
    ticks = {0.0: "0"} | {float(at): text for at, text in _DURATIONS.items() if at <= high * 1.5}
    ticks |= {-float(at): f"-{text}" for at, text in _DURATIONS.items() if -at >= low * 1.5}
    axes.set_yticks(sorted(ticks), [ticks[at] for at in sorted(ticks)])
    axes.set_yticks([], minor=True)
    axes.set_ylim(low * 2 if low < 0 else -0.3, high * 3)
    axes.set_ylabel("delay of arrival (h, min, s; logarithmic)", fontsize=9, color=INK)
    axes.grid(True, axis="y", color="#e6e6e6", linewidth=0.8)
