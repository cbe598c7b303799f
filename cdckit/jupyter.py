"""
What a Jupyter notebook gets: tables that show themselves, and Spark's work made visible.

`session()` arranges for it in a notebook.  With a session of another making, `%load_ext cdckit` does.
"""

from __future__ import annotations

import sys
import threading
from html import escape
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit.display import show
from cdckit.parts.options import options
from cdckit.parts.steps import latest

_PATIENCE, _PAUSE = 1.0, 0.5
"""Seconds: how long a cell runs before anything is said of it, and how often something new is said."""


def attach() -> None:
    """Arrange for it where a Jupyter kernel runs this program; nothing elsewhere, and nothing twice."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    if getattr(shell, "kernel", None) is not None:
        load(shell)


def load(shell: Any) -> None:
    """Arrange for it in this shell of IPython."""
    shell.display_formatter.mimebundle_formatter.for_type(DataFrame, forms_of)
    if not any(isinstance(getattr(each, "__self__", None), _Progress) for each in _hooks(shell)):
        progress = _Progress(shell)
        shell.events.register("pre_run_cell", progress.begin)
        shell.events.register("post_run_cell", progress.end)


def _hooks(shell: Any) -> list[Any]:
    return list(shell.events.callbacks["pre_run_cell"])


def forms_of(frame: DataFrame) -> dict[str, str] | None:
    """A frame that ends a cell as `show` shows it, HTML and text; of a stream Spark's own words."""
    if frame.isStreaming:
        return None
    table = show(frame)
    return {"text/plain": repr(table), "text/html": table._repr_html_()}


class _Progress:
    """One line below a cell that takes longer than a moment; gone when the cell has ended."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, *_: Any) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(self._ended,), daemon=True)
        self._thread.start()

    def end(self, *_: Any) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self, ended: threading.Event) -> None:
        pause, handle = _PATIENCE, None
        while not ended.wait(pause):
            pause, line = _PAUSE, _line() if options.progress else ""
            if line and handle is None:
                handle = self._say(line, None)
            elif handle is not None:
                self._say(line, handle)
        if handle is not None:
            self._say("", handle)

    def _say(self, line: str, handle: str | None) -> str:
        name = handle or f"cdckit-{id(self)}-{threading.get_ident()}"
        data = {"text/html": f'<span style="opacity:0.6">{escape(line)}</span>', "text/plain": line}
        self._shell.display_pub.publish(
            data if line else {"text/plain": ""}, transient={"display_id": name}, update=handle is not None
        )
        return name


def _line() -> str:
    """What Spark is doing: the step, and how much of its tasks is done; empty if it does nothing."""
    try:
        tracker = SparkSession.active().sparkContext.statusTracker()
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    # Where there is no session, or one that ends, or one of Spark Connect, a cell works without such a line.
    except Exception:
        return ""
    known = [stage for stage in stages if stage is not None]
    if not known:
        return ""
    done, all_of_them = sum(each.numCompletedTasks for each in known), sum(each.numTasks for each in known)
    return f"{latest() or 'Spark works'}: {done} of {all_of_them} tasks"
