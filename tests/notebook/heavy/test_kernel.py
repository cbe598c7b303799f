"""
In a real kernel: frames that show themselves, nothing red, work that is seen and can be interrupted.

In `make test`:
tests/notebook/test_jupyter.py::test_a_frame_that_ends_a_cell_shows_itself,
tests/notebook/test_jupyter.py::test_what_fails_when_it_is_shown_is_one_sentence,
tests/notebook/test_jupyter.py::test_work_that_takes_long_is_seen_and_a_cell_s_line_is_its_own,
tests/notebook/test_jupyter.py::test_a_cell_that_is_interrupted_stops_its_jobs_and_the_next_one_works.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

SECONDS = 120
SLOW = """
def wait(batches):
    import time
    for batch in batches:
        time.sleep({seconds})
        yield batch

slow = spark.range(0, 2, 1, 2).mapInArrow(wait, "id long")
"""
JOBS = """
import json
from urllib.request import urlopen
context = spark.sparkContext
url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/jobs"
with urlopen(url) as answer:
    jobs = json.load(answer)
{job["description"] for job in jobs}, context.uiWebUrl.split("/")[2].split(":")[0]
"""


class Kernel:
    """A kernel that runs one cell after the other, and the messages that each sends."""

    def __init__(self, folder: Path) -> None:
        # What the tests tell their JVM is not what a notebook tells its own.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder), env={**env, "PYTHONPATH": os.getcwd()})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)

    def run(self, code: str, *, interrupted: bool = False) -> list[tuple[str, Any]]:
        """What the cell sends: kind and content; *interrupted* two seconds after it has begun."""
        sent = self.client.execute(code)
        found, stop = [], inf
        while True:
            if interrupted and time.monotonic() > stop:
                self.manager.interrupt_kernel()
                interrupted = False
            message: Any = None
            with suppress(Empty):
                message = self.client.get_iopub_msg(timeout=0.2 if interrupted else SECONDS)
            if message is None or message["parent_header"].get("msg_id") != sent:
                continue
            if message["msg_type"] == "execute_input":
                stop = time.monotonic() + 2
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
            found.append((message["msg_type"], message["content"]))

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    found = Kernel(tmp_path)
    yield found
    found.end()


def of(kind: str, found: list[tuple[str, Any]]) -> list[Any]:
    return [content for each, content in found if each == kind]


@pytest.mark.jvm
def test_a_kernel(kernel: Kernel) -> None:
    begun = kernel.run("from cdckit import options, session\nspark = session(memory='1g', ui=True)")
    assert of("stream", begun) == [] == of("error", begun)

    rows = "spark.createDataFrame([(1, None)], 'number int, name string')"
    [shown] = of("execute_result", kernel.run(rows))
    assert shown["data"]["text/plain"] == "number  name\n1       NULL\n(1 row)"
    assert '<td style="text-align:right' in shown["data"]["text/html"]

    named = "from cdckit.outputs.scd import ScdType4\nScdType4(spark.range(1), spark.range(2))"
    [shown] = of("execute_result", kernel.run(named))
    assert shown["data"]["text/plain"] == "current\nid\n0\n(1 row)\n\nhistory\nid\n0\n1\n(2 rows)"
    assert shown["data"]["text/html"].count("<table") == 2

    [shown] = of("execute_result", kernel.run("spark.readStream.format('rate').load()"))
    assert shown["data"] == {"text/plain": "DataFrame[timestamp: timestamp, value: bigint]"}

    # Spark's own pages name the job of the table above, and only this machine reaches them.
    [told] = of("execute_result", kernel.run(JOBS))
    assert told["data"]["text/plain"] == "({'show 20 rows'}, 'localhost')"

    # A table of somebody else's, and whoever wants no job for a frame: Spark's own words.
    foreign = "spark.range(1).withColumnRenamed('id', 'guid')"
    for words in (foreign, "options.eager = False\nspark.range(1)"):
        [shown] = of("execute_result", kernel.run(words))
        assert list(shown["data"]) == ["text/plain"]
        assert shown["data"]["text/plain"].startswith("DataFrame[")

    # What fails only when it is shown: our sentence, and little else.
    ours = "options.eager = True\nfrom cdckit import show\nfrom pyspark.sql import functions as F\n"
    ours += "wrong = spark.range(1).select(F.raise_error(F.lit('merge() needs a key.')))\n"
    worker = "from cdckit.errors import MissingColumns\ndef fail(batches):\n    "
    worker += "raise MissingColumns('f', ['a'], ['b'])\n    yield\n"
    worker += "wrong = spark.range(1).mapInArrow(fail, 'id long')\n"
    for how in ("wrong", "show(wrong)"):
        [error] = of("error", kernel.run(ours + how))
        assert error["evalue"] == "merge() needs a key."
        assert len("".join(error["traceback"]).splitlines()) <= 3
        [error] = of("error", kernel.run(worker + how))
        assert error["evalue"] == "f() needs the columns a; the DataFrame has b."
        assert error["traceback"][0].startswith("MissingColumns: f() needs")
    assert "Traceback" in "".join(of("error", kernel.run("%tb"))[0]["traceback"])

    kernel.run(SLOW.format(seconds=2))
    seen = kernel.run("slow.count()")
    first, *_ = of("display_data", seen)
    assert re.fullmatch(r"Spark: \d of 2 tasks, [12] s", first["data"]["text/plain"])
    assert re.match(r'<progress value="\d" max="2"', first["data"]["text/html"])
    assert of("update_display_data", seen)[-1]["data"] == {"text/plain": ""}
    # The line of another cell is another one: an update would change those of all cells before it.
    other, *_ = of("display_data", kernel.run("slow.count()"))
    assert other["transient"]["display_id"] != first["transient"]["display_id"]
    assert of("display_data", kernel.run("options.progress = False\nslow.count()")) == []

    kernel.run(SLOW.format(seconds=60))
    [error] = of("error", kernel.run("slow.count()", interrupted=True))
    assert error["ename"] == "KeyboardInterrupt"
    active = "len(spark.sparkContext.statusTracker().getActiveJobsIds())"
    # The answer to the call that was interrupted is nobody's.
    left = kernel.run(f"import time\nwhile {active}:\n    time.sleep(0.1)\nspark.range(7).count()")
    assert of("execute_result", left)[0]["data"]["text/plain"] == "7"

    failed = kernel.run("spark.range(1).mapInArrow(lambda batches: 1 / 0, 'id long').count()")
    assert [error["ename"] for error in of("error", failed)] == ["PythonException"]
    assert of("stream", failed) == []
