"""
The process from which Spark forks its Python workers, begun with what each of them would import by itself.

    python -m cdckit.parts.worker_daemon pyspark.worker        as Spark starts it, see `sessions.settings`

Spark's own daemon knows PySpark alone, so that every worker imports pandas, Arrow and this package anew: a
second of processor time for each.  Threads do not come along when a process forks; by now there are none
but those of the memory allocators of Arrow and delta-rs, which are begun again after a fork.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from pyspark import daemon

import cdckit
from cdckit.parts.workers import begin_task

for _name in cdckit.__all__:  # all that the workers of this package run, before they are forked
    with suppress(Exception):  # a door that cannot be open here sends no work, and others do
        getattr(cdckit, _name)


def _print(*words: Any, **options: Any) -> None:
    """Print what Spark's daemon has to say, unless a worker's reader, who had rows enough, has gone."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        print(*words, **options)


def begin() -> None:
    """Fork workers as Spark's daemon does, until Spark ends."""
    # NumPy seeds its generator when it is imported, which would be the same seed for all workers.
    os.register_at_fork(after_in_child=np.random.seed)
    begin_task()
    # It prints a traceback where the rest of an answer cannot be flushed, above a result that is right.
    daemon.print = _print  # type: ignore[attr-defined]
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    begin()
