"""Progress of Spark's work below a cell that runs: a bar, the step, how many of its tasks are done."""

from __future__ import annotations

import threading
import time
from html import escape
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdckit.notebook.options import options
from cdckit.parts.job_descriptions import latest_step

if TYPE_CHECKING:
    from pyspark import SparkContext  # which a client of Spark Connect lacks

_PATIENCE, _PAUSE = 1.0, 0.5
"""Seconds: how long a cell runs before anything is said of it, and how often something new is said."""


class Progress:
    """A bar and a line below a cell that takes longer than a moment; gone when the cell has ended."""

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
        begun, pause, is_shown = time.monotonic(), _PATIENCE, False
        # Of this cell alone: a thread's number is given again, and then lines of cells before would follow.
        name = {"display_id": f"cdckit-{uuid4()}"}
        while not ended.wait(pause):
            pause = _PAUSE
            forms = progress_forms(time.monotonic() - begun) if options.progress else _NOTHING
            if is_shown or forms != _NOTHING:
                self._shell.display_pub.publish(forms, transient=name, update=is_shown)
                is_shown = True
        if is_shown:
            self._shell.display_pub.publish(_NOTHING, transient=name, update=True)


_NOTHING = {"text/plain": ""}


def progress_forms(seconds: float) -> dict[str, str]:
    """Show what Spark has been doing for so long: the step, and how much of its tasks is done."""
    context = spark_context()
    if context is None:
        return _NOTHING
    try:
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Exception:  # the session ends; a cell works without such a line
        return _NOTHING
    done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
    tasks = sum(stage.numTasks for stage in stages if stage is not None)
    if not tasks:
        return _NOTHING
    line = f"{latest_step() or 'Spark'}: {done} of {tasks} tasks, {seconds:.0f} s"
    bar = f'<progress value="{done}" max="{tasks}" style="width:12em;vertical-align:middle"></progress>'
    return {"text/html": f'{bar} <span style="opacity:0.6">{escape(line)}</span>', "text/plain": line}


def spark_context() -> SparkContext | None:
    """The context of the session, if there is one; a session of Spark Connect has none."""
    try:
        return SparkSession.active().sparkContext
    except PySparkException:
        return None
