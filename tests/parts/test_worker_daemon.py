"""The process that workers are forked from: what it has by then, and what it must not have."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, os, random, sys
import numpy as np
from pyspark import daemon
from cdckit.parts import worker_daemon

def fork_two():
    print("cdckit.merging" in sys.modules, gc.get_freeze_count() > 10_000)
    tasks = [open(f"/proc/self/task/{each}/comm").read().strip() for each in os.listdir("/proc/self/task")]
    print({each for each in tasks if not each.startswith(("python", "jemalloc"))}, flush=True)
    for _ in range(2):
        if not os.fork():
            import pyarrow as pa
            # Memory of Arrow's own allocator, whose thread did not come along.
            whole = sum(len(pa.array(np.arange(100_000)).take(pa.array([0, 1]))) for _ in range(100))
            print(whole, random.random(), np.random.random(), flush=True)
            os._exit(0)
        os.wait()

daemon.manager = fork_two
worker_daemon.begin()
"""


def test_workers_have_what_they_need_and_their_own_random_numbers() -> None:
    """No thread is lost that anybody needs: there are none but the allocators' own."""
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}  # the first is as Spark sets it
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    known, threads, one, other = done.stdout.splitlines()
    assert (known, threads) == ("True True", "set()")
    assert one.split()[0] == other.split()[0] == "200"
    assert len({*one.split()[1:], *other.split()[1:]}) == 4


BROKEN = """
import cdckit

def broken(name):
    raise OSError("libc++.so.1: cannot open shared object file")

cdckit.__all__, cdckit.__getattr__ = ["datahub"], broken
from cdckit.parts import worker_daemon
print("begun")
"""


def test_a_door_that_cannot_be_imported_leaves_the_others_their_workers() -> None:
    """Such as one whose package was compiled for another system: it sends no work from here."""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", BROKEN], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("begun\n", "")


ENOUGH = """
import os, socket, sys
from pyspark import daemon
from cdckit.parts import worker_daemon

def answer(infile, outfile):
    outfile.write(b"rows")
    if closes:
        os.close(outfile.fileno())

def flush_answers():
    global closes
    for closes in (False, True):
        reader, writer = socket.socketpair()
        reader.close()
        print(closes, daemon.worker(writer, True), file=sys.stderr, flush=True)

daemon.worker_main, daemon.manager = answer, flush_answers
worker_daemon.begin()
"""


def test_a_worker_whose_reader_has_rows_enough_says_nothing() -> None:
    """Of the last rows of a table of which a part is shown; what else cannot be written is told."""
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", ENOUGH], env=environment, capture_output=True, text=True)
    first, *others = done.stderr.splitlines()
    assert first == "False 0"
    assert "Bad file descriptor" in "\n".join(others)
