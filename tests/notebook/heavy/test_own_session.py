"""
A session of one's own, in a program of its own.

In `make test`: all notebooks begin one so, and
tests/notebook/test_sessions.py::test_a_session_for_samples_compiles_once_and_makes_few_partitions,
tests/notebook/test_sessions.py::test_workers_are_forked_by_us_where_that_is_sure_to_work.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FRESH = """
import os, sys, time
from pyspark.sql import functions as F
from cdckit import session
spark = session(memory="1g", config={"spark.sql.shuffle.partitions": "3"})
conf = spark.conf
print(time.tzname[0], conf.get("spark.sql.session.timeZone"), conf.get("spark.sql.shuffle.partitions"))
print(conf.get("spark.driver.memory"), conf.get("spark.driver.host"), conf.get("spark.ui.enabled"))
print(session(memory="7g") is spark)
from cdckit_probe import batches
asked, client = [], spark.sparkContext._gateway._gateway_client
send = client.send_command
client.send_command = lambda command, *more: (asked.append(command), send(command, *more))[1]
for _ in range(2):
    asked.clear()
    spark.range(1).select(F.col("id") + 1, F.lit(2))
print(len(asked) > 10, [command for command in asked if command.startswith("r\\n")])
exe, known, parent = spark.range(1).mapInArrow(batches, "exe string, known boolean, parent long").first()
print(exe, known)
of_rows = spark.sparkContext.parallelize([0]).map(lambda _: os.getppid())
print(sys.platform != "linux" or of_rows.first() == parent)
spark.sparkContext.stop()
print(session().range(3).count())
# Windows has neither of the two.
session().sparkContext.stop()
del time.tzset, os.sysconf, os.environ["TZ"]
print(session().conf.get("spark.sql.session.timeZone"), os.environ["TZ"], session().range(4).count())
"""


PROBE = """
import os, sys
import pyarrow as pa
def batches(it):
    for batch in it:
        known = "cdckit.merging" in sys.modules
        answer = {"exe": [sys.executable], "known": [known], "parent": [os.getppid()]}
        yield pa.RecordBatch.from_pydict(answer)
"""


@pytest.mark.jvm
def test_a_session_of_ones_own(tmp_path: Path) -> None:
    """
    UTC, loopback, quiet; the caller's settings win; the workers run the driver's interpreter, and on Linux
    they are forked from one process, which knows this package.  Columns are made without asking Java again
    what the classes and methods are by which PySpark makes them.

    Who stopped the context gets another one, and so does Windows.  One JVM for all: each takes seconds.
    """
    (tmp_path / "cdckit_probe.py").write_text(PROBE)
    done = subprocess.run(
        [sys.executable, "-c", FRESH],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TZ": "America/New_York"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[:6] == [
        "UTC UTC 3",
        "1g localhost false",
        "True",
        "True []",
        f"{sys.executable} {sys.platform == 'linux'}",
        "True",
    ]
    assert lines[6:] == ["3", "UTC UTC 4"]
    assert done.stderr == ""
