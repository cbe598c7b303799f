"""Pictures of how long: from when changes were true until they arrived; and each value's share of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cdckit.model.forms import CHANGES
from cdckit.model.rejected_records import usable_changes
from cdckit.notebook.clock import with_day
from cdckit.notebook.options import as_zone
from cdckit.notebook.pictures.axes import Labels, draw_bar, rows_axis, time_axis
from cdckit.notebook.pictures.style import (
    INK,
    ROWS,
    Picture,
    days,
    duration_text,
    first_rows,
    in_style,
    ink_on,
    one_line,
    source_looks,
    source_name,
    text_figure,
    value_shades,
)
from cdckit.parts.argument_forms import COUNT, takes
from cdckit.parts.arguments import quoted, require_fields, require_struct, with_number, wrong_argument
from cdckit.parts.values import as_text
from cdckit.query.measures import durations

_MOST_LABELS = 21
_DURATIONS = {
    1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3_600: "1 h", 6 * 3_600: "6 h", 86_400: "1 d",
    7 * 86_400: "7 d", 30 * 86_400: "30 d", 365 * 86_400: "1 y", 3_650 * 86_400: "10 y",
}  # fmt: skip


@takes(changes=CHANGES, limit=COUNT)
def arrivals(
    changes: DataFrame, *, keys: Sequence[str], limit: int = 5_000, zone: tzinfo | str | None = None
) -> Figure:
    """
    Draw when changes were true, and how long after that they arrived; those that came late are ringed.

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
        InvalidArgument: *keys* name no field, or there is no such zone.

    Cost: one job, two shuffles and a sort by entity; done twice, once to count and once to draw.

    >>> from cdckit.notebook import pictures
    >>> pictures.arrivals(changes, keys=["number"]).get_suptitle()
    '0 of 4 changes arrived late'
    """
    changes = usable_changes(changes)
    data = require_struct(changes, "data")
    names = require_fields(keys, data.fieldNames(), "keys")
    clock = as_zone(zone)
    values = [(F.col("data").getField(name), data[name].dataType) for name in names]
    identity = (
        F.struct("guid")
        if "guid" in changes.columns
        else F.struct(*(value.alias(f"key_{place}") for place, (value, _) in enumerate(values)))
    )
    timed = changes.where(F.col("effective_timestamp").isNotNull() & F.col("arrival.timestamp").isNotNull())
    key = F.concat_ws(" ", *(as_text(value, kind) for value, kind in values)).alias("key")
    columns = F.col("arrival.timestamp"), F.col("effective_timestamp"), F.col("source"), key
    once = timed.groupBy(
        identity.alias("identity"), "source", "message_id", F.col("arrival.record_number").alias("record")
    ).agg(F.min_by(F.struct(*columns), "arrival").alias("first"))
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


@in_style
def _points(rows: list[dict[str, Any]], zone: tzinfo) -> Figure:
    changes, late = rows[0]["changes"], rows[0]["late_changes"]
    points = [_Point.of(row) for row in rows]
    late_points = sorted((point for point in points if point.late), key=lambda point: -point.delay)
    by = f", by up to {duration_text(late_points[0].delay)}" if late_points else ""
    left_out = f"{len(rows):,} of {changes:,} changes, late ones first; " if len(rows) < changes else ""
    picture = Picture(
        f"{late:,} of {with_number(changes, 'change')} arrived late{by}",
        f"{left_out}late: something as new of the same entity had arrived before",
    )
    axes, looks = picture.chart, source_looks(rows[0]["sources"], {point.source for point in points})
    large: dict[str, Any] = {"markersize": 8, "markeredgecolor": INK, "markeredgewidth": 1.2, "zorder": 3}
    small: dict[str, Any] = {"markersize": 4, "markeredgecolor": "none", "alpha": 0.6, "zorder": 2}
    for source, is_late in sorted({(point.source, point.late) for point in points}):
        drawn = [
            (point.at, point.delay) for point in points if (point.source, point.late) == (source, is_late)
        ]
        label, look = f"{source}, late" if is_late else source, looks[source]
        style = large if is_late else small
        axes.plot(*zip(*drawn, strict=True), look.marker, color=look.colour, label=label, **style)
    _delay_axis(axes, [point.delay for point in points])
    instants = [point.at for point in points]
    time_axis(axes.xaxis, "effective time", min(instants), max(instants), pad=0.03, zone=zone)
    seen = {name: look for name, look in looks.items() if any(point.source == name for point in points)}
    ring = Line2D([], [], linestyle="", marker="o", color="none", markeredgecolor=INK, markersize=8)
    picture.key(seen, points=True, others={"late": ring} if late else {})
    picture.settle()
    labels = Labels(axes)
    for point in late_points:
        labels.keep_clear((point.at, point.delay))
    for place, point in enumerate(late_points[:_MOST_LABELS]):
        text, at = duration_text(point.delay), (point.at, point.delay)
        if place or not labels.write_beside(f"{text}: {one_line(point.key, 40)}", at):
            labels.write_beside(text, at, must=not place)
    return picture


class _Point(NamedTuple):
    """A change: when it was true, how many seconds later it arrived, if that is late, and of what it is."""

    at: float
    delay: float
    late: bool
    source: str
    key: str

    @classmethod
    def of(cls, row: dict[str, Any]) -> _Point:
        delay = (row["timestamp"] - row["effective_timestamp"]).total_seconds()
        return cls(
            days(row["effective_timestamp"]), delay, row["late"], source_name(row, "source"), row["key"]
        )


def _delay_axis(axes: Axes, delays: Sequence[float]) -> None:
    axes.set_yscale("symlog", linthresh=1)
    low, high = min(0.0, *delays), max(1.0, *delays)
    ticks = {0.0: "0"} | {float(at): text for at, text in _DURATIONS.items() if at <= high * 1.5}
    ticks |= {-float(at): f"-{text}" for at, text in _DURATIONS.items() if -at >= low * 1.5}
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_yticks([], minor=True)
    axes.set_ylim(low * 2 if low < 0 else -0.3, high * 3)
    axes.set_ylabel("delay of arrival (h, min, s; logarithmic)")
    axes.grid(True, axis="y")


_MOST_VALUES = 8
_MOST_ROWS = 5_000
_NARROWEST = 0.03
"""In what is narrower, a number has no room."""
_OTHERS, _NOTHING = "other values", "no value"
_NO_VALUE = "#f2efe8"
"""For what is no one value: lighter than any shade."""

_Times = Mapping[str, "Counter[str]"]
"""By group, the seconds of each value."""


@takes(limit=COUNT)
def duration_shares(
    history: DataFrame,
    field: str,
    start: datetime,
    end: datetime,
    *,
    by: str,
    limit: int = ROWS,
    zone: tzinfo | str | None = None,
) -> Figure:
    """
    Draw where the time went: for each group a bar, of which each value has the share that it lasted.

    Args:
        history: One row per version, as for `durations`.
        field: The field whose values share the time.  The eight that lasted longest have a shade each, the
            rest are one; a null is "no value".
        start: Where the period begins: an aware datetime in any zone.
        end: Where it ends, later than *start*; what is current lasts until then.
        by: The field of the groups.
        limit: How many groups to draw: those with the most time.
        zone: The zone in which the period is told, a tzinfo or its name; without it `options.zone`.

    Returns:
        The figure.  Its title says which value had the largest share of the time of all groups that are
        drawn; behind each group stands how much time all its entities had together.

    Raises:
        As `durations`; InvalidArgument also if there is no such zone.

    Cost: one job, that of `durations`; at most 5,000 of its rows are collected, those that lasted longest.

    >>> from cdckit.notebook import pictures
    >>> from datetime import datetime, timezone
    >>> nine, one = (datetime(2024, 1, 1, hour, tzinfo=timezone.utc) for hour in (9, 13))
    >>> pictures.duration_shares(history, "name", nine, one, by="number").get_suptitle()
    'name was “teapot” for 50% of the time'
    """
    if not isinstance(by, str) or not isinstance(field, str):
        raise wrong_argument("by" if isinstance(field, str) else "field", "one field", by)
    clock = as_zone(zone)
    measured = durations(history, field, start, end, by=by)
    kinds = history.schema
    longest = measured.select(
        as_text(F.col(quoted(by)), kinds[by].dataType).alias("group"),
        as_text(F.col(quoted(field)), kinds[field].dataType).alias("value"),
        "seconds",
    ).orderBy(F.desc("seconds"), "group", "value")
    rows, cut = first_rows(longest, _MOST_ROWS)
    period = f"from {with_day(start, clock)} to {with_day(end, clock)}"
    if not rows:
        return text_figure(f"There was no entity {period}.")
    times: dict[str, Counter[str]] = {}
    for row in rows:
        group, value = (_value_name(row[name]) for name in ("group", "value"))
        times.setdefault(group, Counter())[value] += row["seconds"]
    return _shares(times, field, by, limit, period, cut=cut)


def _value_name(text: str | None) -> str:
    # Quotes tell a text from what it would be taken for.
    return _NOTHING if text is None else f'"{text}"' if text in (_NOTHING, _OTHERS) else text


@in_style
def _shares(times: _Times, field: str, by: str, limit: int, period: str, *, cut: bool) -> Figure:
    drawn = sorted(times, key=lambda group: (-times[group].total(), group))[:limit]
    total = sum((times[group] for group in drawn), Counter[str]())
    named = [value for value, _ in total.most_common(_MOST_VALUES)]
    shades = value_shades(named) | ({_OTHERS: _NO_VALUE} if len(named) < len(total) else {})
    label = named[0] if named[0] == _NOTHING else f"“{named[0]}”"
    left_out = f"{len(drawn)} of " if len(drawn) < len(times) else ""
    groups = left_out + with_number(len(times), by)
    notes = [groups, f"the {_MOST_ROWS:,} longest times" if cut else "", period]
    picture = Picture(
        f"{field} was {label} for {total[named[0]] / total.total():.0%} of the time",
        "; ".join(filter(None, notes)),
        rows=len(drawn),
    )
    axes = picture.chart
    rows_axis(axes, [f"{one_line(group, 30)}   {duration_text(times[group].total())}" for group in drawn])
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(f"share of the time of all entities of one {by}")
    size = 8.5 if len(drawn) <= 20 else 6.0
    for place, group in enumerate(drawn):
        for value, left, share in _parts(times[group], shades):
            bar = draw_bar(axes, place, left, left + share, shades[value], high=0.8)
            if share >= _NARROWEST:
                ink = ink_on(shades[value])
                axes.bar_label(bar, [f"{share:.0%}"], label_type="center", fontsize=size, color=ink)
    picture.key(others={value: Patch(facecolor=shade) for value, shade in shades.items()})
    picture.settle()
    return picture


def _parts(times: Counter[str], shades: Mapping[str, str]) -> Iterator[tuple[str, float, float]]:
    """Place from left to right each value, where it begins in its bar, and its share."""
    left, whole = 0.0, times.total()
    for value in shades:
        seconds = times[value]
        if value == _OTHERS:
            seconds = sum(time for other, time in times.items() if other not in shades)
        if seconds:
            yield value, left, seconds / whole
            left += seconds / whole
