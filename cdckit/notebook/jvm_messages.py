"""What Spark's Java part writes on stderr, without the one sentence that it always begins with."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ALWAYS = b"WARNING: Using incubator modules: jdk.incubator.vector"


@contextmanager
def without_the_usual() -> Iterator[None]:
    """
    Within it, a JVM that starts says nothing of its incubator modules.

    Spark asks for them, Java says so whatever it is told, and in a notebook that is a red cell.  The JVM gets
    a pipe for its stderr, of which everything else goes where stderr went.
    """
    try:
        stderr = os.dup(2)
        sys.stderr.flush()
    except (OSError, AttributeError, ValueError):  # this program has no stderr
        yield
        return
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    threading.Thread(target=_hand_on, args=(read, os.dup(stderr)), daemon=True).start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _hand_on(read: int, to: int) -> None:
    with os.fdopen(read, "rb") as lines, os.fdopen(to, "wb", buffering=0) as stderr:
        for line in lines:
            if line.strip() != _ALWAYS:
                stderr.write(line)
