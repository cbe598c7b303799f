"""
Notebooks that are tested in one JVM do not touch each other, whatever one of them leaves there.

In `make test`: all notebooks, so, and
tests/tools/test_forked_kernels.py::test_forked_kernels_are_as_others_and_end_when_their_owner_is_killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parents[3]
BEGUN = "from cdckit import session\nspark = session(memory='1g', small=True)"
LEAVES = """
print(spark.conf.get("spark.sql.codegen.factoryMode"))
spark.conf.set("spark.sql.shuffle.partitions", "7")
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
left = spark.range(100).cache()
left.count()
left.createOrReplaceTempView("left")
left.createOrReplaceGlobalTempView("left")
left.write.saveAsTable("kept")
spark.udf.register("thrice", lambda number: 3 * number, "long")
query = spark.readStream.format("rate").load().writeStream.format("memory").queryName("rates").start()
batches = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda *_: None).start()
print(query.isActive, batches.isActive)
"""
FINDS = """
conf = spark.conf
print(conf.get("spark.sql.codegen.factoryMode"))
print(conf.get("spark.sql.shuffle.partitions"), conf.get("spark.sql.session.timeZone"))
print(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
catalog = spark.catalog
print([table.name for table in catalog.listTables("global_temp")])
print(catalog.tableExists("kept"), catalog.functionExists("thrice"))
print(len(spark.sparkContext._jsc.getPersistentRDDs()), len(spark.streams.active))
threads = spark._jvm.java.lang.Thread.getAllStackTraces().keySet()
print([str(each.getName()) for each in threads if "stream execution thread" in each.getName()])
batches = []
spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().writeStream.foreachBatch(
    lambda batch, number: batches.append(batch.count())
).trigger(availableNow=True).start().awaitTermination()
print(batches)
"""
FOUND = "NO_CODEGEN\n2 UTC\nNone\n[]\nFalse False\n0 0\n[]\n[3]\n"
CONFTEST = """
from tools.one_jvm import OneJvm
def pytest_configure(config):
    config.pluginmanager.register(OneJvm())
"""


def write(path: Path, code: str, printed: str) -> None:
    """A notebook of two cells: it begins a session, and then prints this."""
    cells = [
        new_code_cell(BEGUN, execution_count=1),
        new_code_cell(code, execution_count=2, outputs=[new_output("stream", text=printed)]),
    ]
    nbformat.write(new_notebook(cells=cells), path)  # type: ignore[no-untyped-call]


@pytest.mark.jvm
def test_what_a_notebook_leaves_does_not_touch_the_next(tmp_path: Path) -> None:
    """
    Two streams, a cache, a table, views, a function and settings: the next begins as in a JVM of its own.
    The first goes by generated code, since its number ends in 0, and the other does not.

    And so does one after a kernel that was killed in the middle of its work, which every kernel here is.
    """
    write(tmp_path / "10_leaves.ipynb", LEAVES, "FALLBACK\nTrue True\n")
    write(tmp_path / "11_finds.ipynb", FINDS, FOUND)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    options = [
        "-p",
        "nbval.plugin",
        "--nbval",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        f"{ROOT}/pyproject.toml",
    ]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", str(tmp_path)]
    env = {**os.environ, "CDCKIT_PROGRESS": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
