"""Streams: events and the windows they are in, and the calls of several listeners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import Bbox
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.notebook.pictures.axes import Labels, draw_bar, rows_axis
from cdckit.notebook.pictures.style import (
    HATCH,
    INK,
    Picture,
    first_rows,
    in_style,
    ink_on,
    one_line,
    source_looks,
    text_figure,
)
from cdckit.parts.argument_forms import COUNT, takes
from cdckit.parts.arguments import require_types, with_number, wrong_argument

_SHARED, _ALONE, _MOST = "#c9d3df", "#5b7794", 400


class Call(NamedTuple):
    """One call of a listener: which listener, what was called, and when it began and ended in seconds."""

    listener: str
    name: str
    begin: float
    end: float


@takes()
def callbacks(calls: Iterable[tuple[str, str, float, float]]) -> Figure:
    """
    Calls of listeners below each other, in the order in which they began and ended.

    A call that all listeners get before the next one begins is light, with a line where all have ended: a
    barrier.  A call that one listener gets alone is dark; such calls stand side by side.

    Args:
        calls: Of each call the listener, the name, and the seconds at which it began and ended, by one clock:
            400 at most.

    Returns:
        The figure.  Across is the order of all beginnings and ends, not the clock: how long a call took does
        not show.  Its title says how many calls went to all, and how many to one.

    Raises:
        InvalidArgument: There are more calls than can be drawn.

    Cost: none but the drawing.

    >>> from cdckit.notebook import pictures
    >>> both = [("a", "start", 0.0, 0.1), ("b", "start", 0.0, 0.2)]
    >>> pictures.callbacks([*both, ("a", "event 1", 0.3, 0.5), ("b", "event 2", 0.3, 0.4)]).get_suptitle()
    '2 listeners: 1 callback to all, 2 to one'
    """
    listed = [Call(*call) for call in calls]
    if len(listed) > _MOST:
        raise wrong_argument("calls", f"{_MOST} or fewer", len(listed))
    return _draw_calls(listed) if listed else text_figure("There are no calls.")


@in_style
def _draw_calls(calls: list[Call]) -> Figure:
    names = sorted({call.listener for call in calls})
    heard_by: dict[str, set[str]] = {}
    for call in calls:
        heard_by.setdefault(call.name, set()).add(call.listener)
    shared = {name for name, listeners in heard_by.items() if listeners == set(names)}
    # Ends before beginnings: what begins when another ends stands behind it.
    moments = sorted({(call.end, 0) for call in calls} | {(call.begin, 1) for call in calls})
    order = {moment: at for at, moment in enumerate(moments)}
    single = sum(call.name not in shared for call in calls)
    to_all = with_number(len(shared), "callback")
    picture = Picture(
        f"{with_number(len(names), 'listener')}: {to_all} to all, {single} to one",
        "light: to all, a line where all have ended; dark: to one alone",
    )
    axes, boxes = picture.chart, []
    rows_axis(axes, [one_line(name, 30) for name in names])
    for call in calls:
        row, begin, end = names.index(call.listener), order[call.begin, 1], order[call.end, 0]
        colour = _SHARED if call.name in shared else _ALONE
        draw_bar(axes, row, begin, end, colour, high=0.7)
        boxes.append((call.name, colour, Bbox([[begin, row - 0.35], [end, row + 0.35]])))
    for name in shared:
        last = max(order[call.end, 0] for call in calls if call.name == name)
        axes.axvline(last, color=INK, linewidth=0.8, linestyle=":", zorder=0)
    axes.set_xlim(-0.5, len(moments) - 0.5)
    axes.set_xticks([])
    axes.set_xlabel("order of all beginnings and ends")
    picture.settle()
    labels = Labels(axes)
    for name, colour, box in boxes:
        labels.write_in([name, name.split(" ")[-1]], box, colour=ink_on(colour))
    return picture


_READ = T.StructType().add("offset", "long").add("kind", "string").add("scn", "long").add("source", "string")
_READ.add("window", "long").add("window_state", "string").add("error_code", "string")
_STREAM = ("topic", "partition", "physical_partition")


@takes(limit=COUNT)
def event_windows(events: DataFrame, *, limit: int = 120) -> Figure:
    """
    The events of one stream in their order, a row for each source, and the windows that they are in.

    A window that passes has a coloured ground; one that does not is hatched, with what became of it above.
    An event that counts is filled, one that does not is hollow, and one in error has a cross.

    Args:
        events: Events of one stream, each with its window: what `databus.with_windows` returns.
        limit: How many events to draw, the first ones by their offsets.

    Returns:
        The figure: the offsets across, the SCN of each end below it.  Its title says how many windows pass,
        of those that are drawn.

    Raises:
        MissingColumns, WrongColumnType: *events* has no events with windows.
        InvalidArgument: They are of several streams: of several topics, partitions or physical partitions,
            whose windows and offsets have nothing to do with each other.

    Cost: one job that sorts and takes the first rows.

    >>> from cdckit.notebook import pictures
    >>> events = session().sql('''
    ...     SELECT offset, kind, 5L AS scn, if(kind = 'data', 'planes', NULL) AS source,
    ...         window, state AS window_state, CAST(NULL AS string) AS error_code
    ...     FROM VALUES (0L, 'data', 1L, 'complete'), (1L, 'end', 1L, 'complete'), (2L, 'data', 2L, 'open')
    ...         AS events(offset, kind, window, state)''')
    >>> pictures.event_windows(events).get_suptitle()
    '1 of 2 windows passes; 1 open'
    """
    require_types(events, _READ)
    stream = [name for name in _STREAM if name in events.columns]
    chosen = events.select(*_READ.fieldNames(), *stream).orderBy("offset")
    rows, more = first_rows(chosen, limit)
    for name in stream:
        values = sorted({row[name] for row in rows if row[name] is not None})
        if len(values) > 1:
            raise wrong_argument("events", f"events of one stream: of one {name}", values)
    return _draw_windows(rows, more) if rows else text_figure("There are no events.")


@in_style
def _draw_windows(rows: list[dict[str, Any]], more: bool) -> Figure:
    # What its end says, since single events of a window may be repeats.
    states = {row["window"]: str(row["window_state"]) for row in rows}
    spans = [
        (list(group), window, states[window])
        for window, group in groupby(rows, lambda row: row["window"])
        if window is not None
    ]
    counted = Counter(state for _, _, state in spans)
    passed = counted.pop("complete", 0)
    others = "".join(f"; {count} {state}" for state, count in sorted(counted.items()))
    picture = Picture(
        f"{passed} of {with_number(len(spans), 'window')} {'passes' if passed == 1 else 'pass'}{others}",
        f"{f'the first {len(rows)} events; ' if more else ''}filled: counts, hollow: does not count, "
        "cross: in error",
    )
    axes = picture.chart
    names = sorted({row["source"] for row in rows if row["source"]})
    looks = source_looks(names)
    rows_axis(axes, [*(one_line(name, 30) for name in names), "end ┃ or rollback ◀"])
    axes.set_ylim(len(names) + 0.7, -1.4)
    axes.set_xlim(rows[0]["offset"] - 0.8, rows[-1]["offset"] + 0.8)
    axes.set_xlabel("offset of the record; below each end its SCN")
    for group, window, state in spans:
        _draw_window(axes, group, window, state)
    for row in rows:
        is_data, is_bad = row["kind"] == "data", row["error_code"] is not None
        look = looks.get(row["source"], looks["unknown source"])
        at = names.index(row["source"]) if is_data and row["source"] in names else len(names)
        fill = look.colour if is_data and row["window_state"] == "complete" else "none"
        edge: dict[str, Any] = {"markeredgecolor": INK, "markeredgewidth": 1.4 if is_bad else 0.9}
        mark = "x" if is_bad else {"data": look.marker, "end": "|", "rollback": "<"}.get(row["kind"], ".")
        axes.plot(row["offset"], at, mark, markersize=8, markerfacecolor=fill, zorder=3, **edge)
        if row["kind"] in ("end", "rollback"):
            place: dict[str, Any] = {"xytext": (0, -14), "textcoords": "offset points", "ha": "center"}
            axes.annotate(f"{row['scn']}", (row["offset"], at), fontsize=7.5, **place)
    grounds = {name: Patch(**_ground(name == "passes")) for name in ("passes", "does not pass")}
    cross = Line2D([], [], linestyle="", marker="x", color=INK)
    picture.key({name: looks[name] for name in names}, points=True, others={**grounds, "in error": cross})
    picture.settle()
    return picture


def _ground(passes: bool) -> dict[str, Any]:
    """Draw what lies behind the events of a window."""
    if passes:
        return {"facecolor": "#3579c033", "edgecolor": "#7c7c7c80", "linewidth": 0.6}
    return {"facecolor": "#7c7c7c1a", "edgecolor": "#7c7c7c80", "linewidth": 0.6, "hatch": HATCH}


def _draw_window(axes: Axes, group: list[dict[str, Any]], window: int, state: str) -> None:
    """The ground of a window, and above it its number and what became of it."""
    passes = state == "complete"
    first, last = group[0]["offset"] - 0.45, group[-1]["offset"] + 0.45
    axes.axvspan(first, last, ymax=0.8, zorder=0, **_ground(passes))
    upright = 90 if len(group) < 4 and not passes else 0
    place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": "center", "rotation": upright}
    axes.text((first + last) / 2, 0.82, f"{window}" if passes else f"{window} {state}", fontsize=8, **place)
