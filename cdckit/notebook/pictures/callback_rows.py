"""Calls of several listeners, each in its row, in the order in which they began and ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from cdckit.errors import InvalidArgument
from cdckit.notebook.pictures.labels import Labels
from cdckit.notebook.pictures.look import FAINT, INK, ink_on, new_figure, only_words
from cdckit.notebook.pictures.rows import rows_axis
from cdckit.notebook.pictures.words import one_line, with_number

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
    return _drawn(listed) if listed else only_words("There are no calls.")


def _drawn(calls: list[Call]) -> Figure:
    names = sorted({each.listener for each in calls})
    place = {name: at for at, name in enumerate(names)}
    shared = {name for name in {each.name for each in calls} if _of(calls, name) == set(names)}
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
        colour = _SHARED if each.name in shared else _ALONE
        begin, end = order[each.begin, 1], order[each.end, 0]
        axes.barh(
            place[each.listener], end - begin, left=begin, height=0.7, facecolor=colour, edgecolor="white"
        )
        boxes.append(
            (
                each.name,
                colour,
                Bbox([[begin, place[each.listener] - 0.35], [end, place[each.listener] + 0.35]]),
            )
        )
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


def _of(calls: list[Call], name: str) -> set[str]:
    return {each.listener for each in calls if each.name == name}
