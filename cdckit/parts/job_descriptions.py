"""Words that describe Spark's jobs: in its own pages, and beside the bar of a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_DESCRIPTION = "spark.job.description"
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")
_running: list[str] = []


@contextmanager
def describe_step(spark: SparkSession | None, words: str) -> Iterator[None]:
    """
    Within it, *words* describe the jobs of this thread, unless an inner step says more.

    A session of Spark Connect has no place for them: then notebooks alone show them.
    """
    try:
        context = None if spark is None else spark.sparkContext
    except PySparkException:
        context = None
    before = None if context is None else context.getLocalProperty(_DESCRIPTION)
    if context is not None:
        context.setLocalProperty(_DESCRIPTION, words)
    _running.append(words)
    try:
        yield
    finally:
        _running.remove(words)
        if context is not None:
            context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


def describe_jobs(words: str) -> Callable[[Callable[_Arguments, _Answer]], Callable[_Arguments, _Answer]]:
    """A function within whose calls *words* describe the jobs of the thread that calls it."""

    def described(function: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
        @wraps(function)
        def call(*given: _Arguments.args, **named: _Arguments.kwargs) -> _Answer:
            with describe_step(SparkSession.getActiveSession(), words):
                return function(*given, **named)

        return call

    return described


def latest_step() -> str:
    """The words of the step that began last, of whichever thread; empty where none runs."""
    return _running[-1] if _running else ""
