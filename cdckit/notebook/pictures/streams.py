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

from cdckit.errors import InvalidArgument
from cdckit.notebook.pictures.axes import Labels, rows_axis
from cdckit.notebook.pictures.style import (
    FAINT,
    HATCH,
    INK,
    draw_key,
    first_rows,
    ink_on,
    new_figure,
    one_line,
    require_limit,
    source_looks,
    text_figure,
    with_number,
)
from cdckit.parts.arguments import require_types

_SHARED, _ALONE, _MOST = "#c9d3df", "#5b7794", 400


class Call(NamedTuple):
    """One call of a listener: which listener, what was called, and when it began and ended in seconds."""

    listener: str
    name: str
    begin: float
    end: float


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
    listed = [Call(*each) for each in calls]
    if len(listed) > _MOST:
        raise InvalidArgument("callbacks", "calls", f"{_MOST} or fewer", len(listed))
    return _draw_calls(listed) if listed else text_figure("There are no calls.")


def _draw_calls(calls: list[Call]) -> Figure:
    names = sorted({each.listener for each in calls})
    place = {name: at for at, name in enumerate(names)}
    heard_by: dict[str, set[str]] = {}
    for each in calls:
        heard_by.setdefault(each.name, set()).add(each.listener)
    shared = {name for name, listeners in heard_by.items() if listeners == set(names)}
    # Ends before beginnings: what begins when another ends stands behind it.
    moments = sorted({(each.end, 0) for each in calls} | {(each.begin, 1) for each in calls})
    order = {moment: at for at, moment in enumerate(moments)}
    single = sum(each.name not in shared for each in calls)
    to_all = with_number(len(shared), "callback")
    title = f"{with_number(len(names), 'listener')}: {to_all} to all, {single} to one"
    figure, axes = new_figure(title, "light: to all, a line where all have ended; dark: to one alone")
    rows_axis(axes, [one_line(name, 30) for name in names])
    boxes = []
    for each in calls:
        row, begin, end = place[each.listener], order[each.begin, 1], order[each.end, 0]
        colour, box = (
            _SHARED if each.name in shared else _ALONE,
            Bbox([[begin, row - 0.35], [end, row + 0.35]]),
        )
        axes.barh(row, end - begin, left=begin, height=0.7, facecolor=colour, edgecolor="white")
        boxes.append((each.name, colour, box))
    for name in shared:
        last = max(order[each.end, 0] for each in calls if each.name == name)
        axes.axvline(last, color=FAINT, linewidth=0.8, linestyle=":", zorder=0)
    axes.set_xlim(-0.5, len(moments) - 0.5)
    axes.set_xticks([])
    axes.set_xlabel("order of all beginnings and ends", fontsize=9, color=INK)
    figure.draw_without_rendering()
    labels = Labels(axes)
    for name, colour, box in boxes:
        labels.write_in([name, name.split(" ")[-1]], box, colour=ink_on(colour))
    return figure


_READ = T.StructType(
    [
        T.StructField("offset", T.LongType()),
        T.StructField("kind", T.StringType()),
        T.StructField("scn", T.LongType()),
        T.StructField("source", T.StringType()),
        T.StructField("window", T.LongType()),
        T.StructField("window_state", T.StringType()),
        T.StructField("error_code", T.StringType()),
    ]
)
_PASSED, _OTHER = "#dbe5f1", "#f4f4f4"


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
        InvalidArgument: *limit* is not a positive number.

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
    require_types(events, _READ, function="event_windows")
    require_limit(limit, "event_windows")
    chosen = events.select(*_READ.fieldNames()).orderBy("offset")
    rows, more = first_rows(chosen, limit)
    return _draw_windows(rows, more) if rows else text_figure("There are no events.")


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
    verb = "passes" if passed == 1 else "pass"
    title = f"{passed} of {with_number(len(spans), 'window')} {verb}{others}"
    left_out = f"the first {len(rows)} events; " if more else ""
    figure, axes = new_figure(title, f"{left_out}filled: counts, hollow: does not count, cross: in error")
    names = sorted({row["source"] for row in rows if row["source"]})
    looks = source_looks(names)
    place = {name: at for at, name in enumerate(names)}
    for group, window, state in spans:
        _draw_window(axes, group, window, state)
    for row in rows:
        look = looks.get(row["source"], looks["unknown source"])
        counts = row["kind"] != "data" or row["window_state"] == "complete"
        is_bad = row["error_code"] is not None
        at = place.get(row["source"], len(names)) if row["kind"] == "data" else len(names)
        axes.plot(
            row["offset"],
            at,
            _mark(row, look.marker),
            markersize=8,
            color=look.colour if row["kind"] == "data" else INK,
            markerfacecolor=look.colour if counts and row["kind"] == "data" else "white",
            markeredgecolor=INK if is_bad else FAINT,
            markeredgewidth=1.4 if is_bad else 0.9,
            zorder=3,
        )
        if row["kind"] in ("end", "rollback"):
            axes.annotate(
                f"{row['scn']}", (row["offset"], at), xytext=(0, -14), textcoords="offset points",
                ha="center", fontsize=7.5, color=FAINT,
            )  # fmt: skip
    rows_axis(axes, [*(one_line(name, 30) for name in names), "end ┃ or rollback ◀"])
    axes.set_ylim(len(names) + 0.7, -1.4)
    axes.set_xlim(rows[0]["offset"] - 0.8, rows[-1]["offset"] + 0.8)
    axes.set_xlabel("offset of the record; below each end its SCN", fontsize=9, color=INK)
    grounds = {
        "passes": Patch(facecolor=_PASSED, edgecolor=FAINT),
        "does not pass": Patch(facecolor=_OTHER, edgecolor=FAINT, hatch=HATCH),
        "in error": Line2D([], [], linestyle="", marker="x", color=INK),
    }
    draw_key(figure, {name: looks[name] for name in names}, points=True, others=grounds)
    return figure


def _mark(row: dict[str, Any], of_source: str) -> Any:
    if row["error_code"] is not None:
        return "x"
    return {"data": of_source, "end": "|", "rollback": "<"}.get(row["kind"], ".")


def _draw_window(axes: Axes, group: list[dict[str, Any]], window: int, state: str) -> None:
    passes = state == "complete"
    first, last = group[0]["offset"] - 0.45, group[-1]["offset"] + 0.45
    axes.axvspan(
        first, last, facecolor=_PASSED if passes else _OTHER, edgecolor="#bbbbbb", linewidth=0.6,
        hatch=None if passes else HATCH, zorder=0,
    )  # fmt: skip
    upright = len(group) < 4 and not passes
    axes.text(
        (first + last) / 2, -0.78, f"{window}" if passes else f"{window} {state}", fontsize=8, color=INK,
        ha="center", va="center", parse_math=False, rotation=90 if upright else 0,
        bbox={"facecolor": _PASSED if passes else _OTHER, "edgecolor": "none", "pad": 1.5},
    )  # fmt: skip
