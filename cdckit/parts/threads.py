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
    """
    What *work* gives for each item, in their order.

    The jobs belong to the groups and have the tags of the caller's.  After an error nothing more is
    begun; it is raised when what had begun has ended.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        # Each with a copy of the caller's properties: Spark notes there what a thread is running.
        begun = [pool.submit(inheritable_thread_target(spark)(work), item) for item in items]
        try:
            return [each.result() for each in begun]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
