"""Work on several targets at once: while one waits for its last task, or is planned, others compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

_THREADS = 4
"""Spark has only so many cores, whoever asks; more threads would only hold more plans in memory."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def at_once(spark: SparkSession, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What *work* gives for each item, in their order; the first error is raised when all have ended."""
    with ThreadPoolExecutor(_THREADS) as pool:
        # Jobs that are started in a thread belong to the groups and tags of the caller's.
        return list(pool.map(inheritable_thread_target(spark)(work), items))
