"""Workers whose Python has no cdckit are refused before anything is sent to them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from cdckit.parts.workers import NoPackageInWorkers, require_package


class ConnectSession:
    """As much of a session as is asked: its workers are this program."""

    def __init__(self, session_id: str) -> None:
        self.session_id, self.jobs = session_id, 0

    def range(self, count: int) -> ConnectSession:
        return self

    def mapInArrow(self, function: Callable[..., Any], columns: str) -> ConnectSession:  # noqa: N802 - as PySpark names it
        self._function = function
        return self

    def collect(self) -> list[dict[str, Any]]:
        self.jobs += 1
        return pa.Table.from_batches(self._function([pa.record_batch({"id": [0]})])).to_pylist()


def test_a_server_without_the_package_is_refused_and_one_with_it_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ConnectSession("with")
    require_package(server)
    require_package(server)
    assert server.jobs == 1
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for _ in range(2):
        with pytest.raises(NoPackageInWorkers, match=r"need cdckit .*python.* lacks them: .*addArtifacts"):
            require_package(ConnectSession("without"))


def local_session(python: Path | str, master: str = "local[2]", sent: tuple[str, ...] = ()) -> Any:
    context = SimpleNamespace(master=master, pythonExec=str(python), _python_includes=list(sent))
    return SimpleNamespace(sparkContext=context)


def python_beside(folder: Path, answer: int) -> Path:
    """A Python of another environment, which notes that it was started."""
    folder.mkdir()
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\necho started >> {folder}/starts\nexit {answer}\n")
    python.chmod(0o755)
    return python


def test_another_python_on_this_machine_is_started_once_and_refused_without_the_package(
    tmp_path: Path,
) -> None:
    """As the `python3` of the system is, where a session begins in an environment that is not activated."""
    with_it, without = python_beside(tmp_path / "with", 0), python_beside(tmp_path / "without", 1)
    for _ in range(2):
        require_package(local_session(with_it))
        with pytest.raises(
            NoPackageInWorkers, match=r"without/python3\) lacks them: .*PYSPARK_PYTHON"
        ) as error:
            require_package(local_session(without))
    assert error.value.python == str(without)
    assert (tmp_path / "with/starts").read_text() == "started\n"
    # What is on a cluster, what was sent to workers, and which Python there is none of, nobody can tell here.
    for session in (
        local_session(without, "spark://there:7077"),
        local_session(without, sent=("cdckit.zip",)),
        local_session(tmp_path / "none"),
        local_session(sys.executable),
    ):
        require_package(session)
    assert (tmp_path / "without/starts").read_text() == "started\n" * 2
