"""Programs that a proof runs in a process of their own: another Spark, with other jars or another Python."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def environment() -> dict[str, str]:
    """Where a program finds cdckit and what the tests share."""
    paths = [str(ROOT), str(ROOT / "tests"), str(HERE), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TZ": "UTC"}


def run(
    program: str, *arguments: str | Path, seconds: float = 300, python: str | Path = sys.executable
) -> str:
    """Run a program of this folder to its end, which must be a good one; what it printed."""
    with Running(program, *arguments, python=python) as running:
        running.ends_well(seconds)
        return "".join(running.lines)


class Running:
    """A program of this folder that runs, and what it prints, errors too; it ends with the `with`."""

    def __init__(self, program: str, *arguments: str | Path, python: str | Path = sys.executable) -> None:
        self.lines: list[str] = []
        self._name = program
        self._process = subprocess.Popen(
            [str(python), str(HERE / program), *map(str, arguments)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, begin: str, seconds: float) -> None:
        """Wait until a line begins with *begin*."""
        wait_until(lambda: self._has(begin), seconds, f"{begin.strip()!r} of {self._name}")

    def ends_well(self, seconds: float) -> None:
        """Wait until it has ended, which must be a good end."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._name} took longer than {seconds} s:\n{self._end()}") from None
        self._reader.join(10)
        assert code == 0, f"{self._name} ended with {code}:\n{self._end()}"

    def _has(self, begin: str) -> bool:
        has_ended = self._process.poll() is not None
        found = any(line.startswith(begin) for line in self.lines)
        assert found or not has_ended, f"ended with {self._process.returncode}:\n{self._end()}"
        return found

    def _end(self) -> str:
        return "".join(self.lines[-60:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


def wait_until(true: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until *true* says so; an error that names *what* if it never does."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, f"{what}: not within {seconds} s"
        time.sleep(0.1)
