"""
Processes that are killed while they write, one after the other.

In `make test`:
tests/store/test_dying_writers.py::test_a_writer_dies.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

from cdckit.store import Store
from support.store_numbers import held

LOOP = """
import sys
import pyarrow as pa
from cdckit.store import Store
store = Store(None, sys.argv[1])
for number in range(int(sys.argv[2]), 10**6):
    with store.begin() as tx:
        tx.append("log", pa.table({"n": [number]}))
        tx.replace("last", pa.table({"n": [number]}))
        tx.commit(batch=str(number))
"""


def test_kill_9_in_a_loop_of_commits(store: Store, place: Path) -> None:
    """After each kill the two tables agree, and the next process goes on from them."""
    chance = random.Random(13)
    for _ in range(3):
        done = held(store, "last")[0] + 1 if store.snapshot().has("last") else 0
        with subprocess.Popen([sys.executable, "-c", LOOP, str(place), str(done)]) as process:
            try:
                while not store.snapshot().has("last") or held(store, "last")[0] < done + 2:
                    assert process.poll() is None
                    time.sleep(0.01)
                time.sleep(chance.uniform(0, 0.2))
            finally:
                process.kill()
        [last] = held(store, "last")
        assert held(store, "log") == list(range(last + 1))
        assert store.batch(str(last)) == 0
        assert store.batch(str(last + 1)) is None
    assert isinstance(store.snapshot().arrow("log"), pa.Table)
