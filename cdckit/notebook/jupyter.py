"""
What a Jupyter notebook gets: tables that show themselves, and Spark's work as a bar below the cell.

`session()` arranges for it in a notebook.  With a session of another making, `%load_ext cdckit` does.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cdckit.errors import CdcError, MissingColumns, WrongColumnType
from cdckit.notebook.options import options
from cdckit.notebook.tables import Table, show
from cdckit.parts.job_descriptions import latest_step

if TYPE_CHECKING:
    from pyspark import SparkContext  # which a client of Spark Connect lacks

_PACKAGE = Path(__file__).parents[1]
_GROUP, _CELL = "spark.jobGroup.id", "cell "
_LONGEST_STOP = 5.0
"""Seconds: how long an interrupt waits for Spark."""


def attach() -> None:
    """Arrange for it where a Jupyter kernel runs this program; nothing elsewhere, and nothing twice."""
    shell = kernel_shell()
    if shell is not None:
        load(shell)


def kernel_shell() -> Any:
    """The shell of the Jupyter kernel that runs this program; None elsewhere."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    return None if getattr(shell, "kernel", None) is None else shell


def load(shell: Any) -> None:
    """Arrange for it in this shell of IPython."""
    forms = shell.display_formatter.mimebundle_formatter
    forms.for_type(DataFrame, partial(_show_forms, shell, frame_forms))
    forms.for_type(Table, partial(_show_forms, shell, table_forms))
    # By its name, since what it is imported from imports this module.
    forms.for_type_by_name("cdckit.outputs.scd", "ScdType4", partial(_show_forms, shell, type_4_forms))
    listeners = (getattr(callback, "__self__", None) for callback in shell.events.callbacks["pre_run_cell"])
    if not any(isinstance(listener, Progress) for listener in listeners):
        progress, interrupts = Progress(shell), _Interrupts()
        shell.events.register("pre_run_cell", progress.begin)
        shell.events.register("post_run_cell", progress.end)
        shell.events.register("pre_run_cell", interrupts.begin)
        shell.set_custom_exc((CdcError,), _show_error)
        # The cell that runs now has begun already.
        progress.begin()
        interrupts.begin()


_Forms = dict[str, str] | None


def _show_forms(shell: Any, forms: Callable[[Any], _Forms], value: Any) -> _Forms:
    """The value's forms; where making them fails, what is wrong, without the sixty lines around it."""
    try:
        return forms(value)
    except (CdcError, PySparkException) as error:
        name, sentence = summarize_error(error)
        # For `%tb` and `%debug`, as the shell itself does it.
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        shell._showtraceback(type(error), sentence, [f"{name}: {sentence}", "(All of it: %tb)"])
        return {"text/plain": repr(value) if isinstance(value, DataFrame) else "", "text/html": ""}


def summarize_error(error: Exception) -> tuple[str, str]:
    """
    The kind of an error and its sentence: of one that Spark passes on, what was raised in the beginning.

    >>> summarize_error(ValueError("[USER_RAISED_EXCEPTION] merge() needs a key. SQLSTATE: P0001"))
    ('ValueError', 'merge() needs a key.')
    >>> lines = "An exception", "Traceback (most recent call last):", "  File x", "InvalidChanges: no time"
    >>> summarize_error(ValueError("\\n".join(lines)))
    ('InvalidChanges', 'no time')
    """
    text = str(error).strip()
    message, _, trace = text.rpartition("Traceback (most recent call last):")
    # A worker's own traceback: the lines that are not indented say what was raised.
    raised = re.findall(r"^(?:\w+\.)*(\w+): (.+)$", trace, re.M) if message else []
    if raised:
        name, sentence = raised[-1]
        return str(name), str(sentence)
    sentence = re.split(r"\s*(?:SQLSTATE: \w+|\n\s*\n|\n== )", text)[0]
    return type(error).__name__, re.sub(r"^\[[A-Z0-9_.]+\] ", "", sentence)


def frame_forms(frame: DataFrame) -> _Forms:
    """
    A frame that ends a cell as `show` shows it, HTML and text; nothing where Spark's own words stand.

    Those stand for a stream, where `options.eager` is False, and for a frame that has a column with a name of
    a history's and another type: it is not ours, and no error of its owner's.
    """
    if frame.isStreaming or not options.eager:
        return None
    try:
        table = show(frame)
    except (MissingColumns, WrongColumnType):
        return None
    return table_forms(table)


def table_forms(table: Table) -> _Forms:
    """The two forms of what `show` returned."""
    return {"text/plain": repr(table), "text/html": table._repr_html_()}


def type_4_forms(tables: Any) -> _Forms:
    """The two tables of `scd_type_4`, each below its name."""
    every_form = {"current": frame_forms(tables.current), "history": frame_forms(tables.history)}
    forms = {name: form for name, form in every_form.items() if form is not None}
    if len(forms) < len(every_form):
        return None
    return {
        "text/plain": "\n\n".join(f"{name}\n{form['text/plain']}" for name, form in forms.items()),
        "text/html": "".join(f"<p><b>{name}</b></p>{form['text/html']}" for name, form in forms.items()),
    }


def _show_error(
    shell: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: Any = None
) -> None:
    """Show an error of ours below the caller's own lines; `%tb` and `%debug` know the rest."""
    shell.showtraceback((kind, error, trim_trace(trace)), tb_offset=tb_offset)
    sys.last_traceback = trace


def trim_trace(trace: TracebackType | None) -> TracebackType | None:
    """The trace without what lies inside of this package: where the caller called it is what he can mend."""
    if trace is None or Path(trace.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        return None
    return TracebackType(trim_trace(trace.tb_next), trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


class _Interrupts:
    """
    A cell that is interrupted stops its jobs.

    PySpark does so in a program; in a notebook the kernel takes its place before each cell.  What the JVM
    answers to the call that was interrupted nobody reads any more: the thread gets a new connection, or
    each later call would get the answer of the one before.
    """

    def __init__(self) -> None:
        self._cells = 0
        self._group = ""
        self._context: Any = None

    def begin(self, *_: Any) -> None:
        context = spark_context()
        if context is None or threading.current_thread() is not threading.main_thread():
            return
        self._cells += 1
        # Who names the jobs of a cell by another group has them stopped too, but for those yet to come.
        if (context.getLocalProperty(_GROUP) or _CELL).startswith(_CELL):
            self._group = f"{_CELL}{self._cells}"
            context.setLocalProperty(_GROUP, self._group)
        self._context = context
        signal.signal(signal.SIGINT, self._raise_interrupt)

    def _raise_interrupt(self, *_: Any) -> None:
        # In a thread of its own, since this one's connection is in the middle of a call.
        stopping = threading.Thread(target=self._stop_jobs, daemon=True)
        stopping.start()
        stopping.join(_LONGEST_STOP)
        connection = self._context._gateway._gateway_client.get_thread_connection()
        if connection is not None:
            connection.close()
        raise KeyboardInterrupt

    def _stop_jobs(self) -> None:
        # Spark may be planning, and begin with the job only after this.
        self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)
        self._context.cancelAllJobs()


# Progress --------------------------------------------------------------------------------------------------


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
