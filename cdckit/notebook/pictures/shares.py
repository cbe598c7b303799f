"""Where the time went: for each group, which share of its time a field had each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.notebook.options import as_zone
from cdckit.notebook.pictures.axes import rows_axis
from cdckit.notebook.pictures.style import (
    FAINT,
    ROWS,
    SMALL,
    draw_key,
    duration_text,
    first_rows,
    ink_on,
    new_figure,
    one_line,
    require_limit,
    text_figure,
    value_shades,
    with_number,
)
from cdckit.notebook.table_layout import Clock, timespec
from cdckit.parts.arguments import microseconds, quoted
from cdckit.parts.values import as_text
from cdckit.query.measures import durations

_FUNCTION = "duration_shares"
_MOST_VALUES = 8
_MOST_ROWS = 5_000
_NARROWEST = 0.03
"""In what is narrower, a number has no room."""
_OTHERS, _NOTHING = "other values", "no value"
_WHITE = "#f7f7f7"
"""For what is no one value: lighter than any shade."""

_Times = Mapping[str, "Counter[str]"]
"""By group, the seconds of each value."""


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
    Where the time went: for each group a bar, of which each value has the share that it lasted.

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
        As `durations`; InvalidArgument also if *limit* is not a positive number, or there is no such zone.

    Cost: one job, that of `durations`; at most 5,000 of its rows are collected, those that lasted longest.

    >>> from cdckit.notebook import pictures
    >>> from datetime import datetime, timezone
    >>> nine, one = (datetime(2024, 1, 1, hour, tzinfo=timezone.utc) for hour in (9, 13))
    >>> pictures.duration_shares(history, "name", nine, one, by="number").get_suptitle()
    'name was “teapot” for 50% of the time'
    """
    if not isinstance(by, str) or not isinstance(field, str):
        raise InvalidArgument(_FUNCTION, "by" if isinstance(field, str) else "field", "one field", by)
    require_limit(limit, _FUNCTION)
    clock = as_zone(zone, function=_FUNCTION)
    told = durations(history, field, start, end, by=by)
    kinds = history.schema
    longest = told.select(
        as_text(F.col(quoted(by)), kinds[by].dataType).alias("group"),
        as_text(F.col(quoted(field)), kinds[field].dataType).alias("value"),
        "seconds",
    ).orderBy(F.desc("seconds"), "group", "value")
    rows, cut = first_rows(longest, _MOST_ROWS)
    period = _period(start, end, clock)
    if not rows:
        return text_figure(f"There was no entity {period}.")
    times: dict[str, Counter[str]] = {}
    for row in rows:
        group, value = (_NOTHING if row[name] is None else row[name] for name in ("group", "value"))
        times.setdefault(group, Counter())[value] += row["seconds"]
    return _picture(times, field, by, limit, period, cut=cut)


def _period(start: datetime, end: datetime, zone: tzinfo) -> str:
    both = [microseconds(at, "at", function=_FUNCTION) for at in (start, end)]
    clock = Clock.of(both, zone)._replace(day=None)
    first, last = (clock.text(at, timespec(both)) for at in both)
    return f"from {first} to {last}"


def _picture(times: _Times, field: str, by: str, limit: int, period: str, *, cut: bool) -> Figure:
    drawn = sorted(times, key=lambda group: (-times[group].total(), group))[:limit]
    total = sum((times[group] for group in drawn), Counter[str]())
    named = [value for value, _ in total.most_common(_MOST_VALUES)]
    shades = value_shades(named) | ({_OTHERS: _WHITE} if len(named) < len(total) else {})
    said = named[0] if named[0] == _NOTHING else f"“{named[0]}”"
    left_out = f"{len(drawn)} of " if len(drawn) < len(times) else ""
    groups = left_out + with_number(len(times), by)
    notes = [groups, f"the {_MOST_ROWS:,} longest times" if cut else "", period]
    figure, axes = new_figure(
        f"{field} was {said} for {total[named[0]] / total.total():.0%} of the time",
        "; ".join(filter(None, notes)),
        rows=len(drawn),
    )
    rows_axis(axes, [f"{one_line(group, 30)}   {duration_text(times[group].total())}" for group in drawn])
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(f"share of the time of all entities of one {by}", **SMALL)
    size = 8.5 if len(drawn) <= 20 else 6.0
    for place, group in enumerate(drawn):
        for value, left, share in _parts(times[group], shades):
            bar = axes.barh(place, share, left=left, facecolor=shades[value], edgecolor="white")
            if share >= _NARROWEST:
                ink = ink_on(shades[value])
                axes.bar_label(bar, [f"{share:.0%}"], label_type="center", fontsize=size, color=ink)
    patches = {value: Patch(facecolor=shades[value], edgecolor=FAINT, linewidth=0.4) for value in shades}
    draw_key(figure, {}, others=patches)
    return figure


def _parts(times: Counter[str], shades: Mapping[str, str]) -> Iterator[tuple[str, float, float]]:
    """From left to right, in the order of the key: each value, where it begins in its bar, and its share."""
    left, whole = 0.0, times.total()
    for value in shades:
        seconds = times[value]
        if value == _OTHERS:
            seconds = sum(time for each, time in times.items() if each not in shades)
        if seconds:
            yield value, left, seconds / whole
            left += seconds / whole
