"""What workers do between tasks: less, and still what is needed."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

PROGRAM = """
import gc, importlib, sys, zipfile
from cdckit.parts.workers import begin_task
place = sys.argv[1]
sys.path.insert(0, place)
import first
begin_task()
assert gc.get_freeze_count() > 10_000
frozen = gc.get_freeze_count()
begin_task()
assert abs(gc.get_freeze_count() - frozen) < 100
importlib.invalidate_caches()
with zipfile.ZipFile(place, "a") as archive:
    archive.writestr("second.py", "VALUE = 2")
importlib.invalidate_caches()
import second
print(first.VALUE, second.VALUE)
"""


def test_a_module_that_came_to_an_archive_later_is_found(tmp_path: Path) -> None:
    place = tmp_path / "modules.zip"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("first.py", "VALUE = 1")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["1", "2"], done.stderr


def test_a_program_that_runs_no_task_is_left_alone() -> None:
    """The driver imports the module, and nothing of it changes what Python does there."""
    from zipimport import zipimporter

    importlib.import_module("cdckit.parts.workers")
    assert zipimporter.invalidate_caches.__module__ != "cdckit.parts.workers"
