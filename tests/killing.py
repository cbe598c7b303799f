"""Programs that are killed again and again, until they have done their work all the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(__file__).parent / "killed_programs.py"

_LONGEST = 600
"""Seconds in which a program that nobody kills must be done."""


def run_and_kill(work: str, folder: Path, *, kills: int, seed: int) -> dict[str, int]:
    """
    Run a program of `killed_programs.py`, and kill it *kills* times; then let it end.

    Each time all of it is killed, or its JVM, or one Python worker, at a moment drawn from what it took
    so far.  A program of which a part was killed may go on or fail; it is begun again until it ends well.

    Returns:
        How often what was killed.
    """
    rng, done = random.Random(seed), {"driver": 0, "jvm": 0, "worker": 0}
    while sum(done.values()) < kills:
        with _Program(work, folder) as program:
            if not program.is_ready():
                continue
            time.sleep(rng.uniform(0, 8))
            what = rng.choice(list(done))
            if program.kill(what):
                done[what] += 1
            program.ends(0 if what == "driver" else 20)
    for _ in range(5):
        with _Program(work, folder) as program:
            if program.ends(_LONGEST) == 0:
                return done
    raise AssertionError(f"{work} does not end, even if nobody kills it: {program.said}")


class _Program:
    """One run; whatever it has started has ended with it."""

    def __init__(self, work: str, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAMS), work, str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said = [*self.said[-40:], line]

    def is_ready(self) -> bool:
        """Wait until it begins its work; False if it ended before."""
        until = time.monotonic() + _LONGEST
        while time.monotonic() < until and self._process.poll() is None:
            if any(line.startswith("ready") for line in self.said):
                return True
            time.sleep(0.05)
        return False

    def kill(self, what: str) -> bool:
        """Kill a part of it; False if there is no such part now."""
        found = self._parts(what)
        for each in found[:1] if what == "worker" else found:
            each.send_signal(signal.SIGKILL)
        return bool(found)

    def _parts(self, what: str) -> list[psutil.Process]:
        try:
            driver = psutil.Process(self._process.pid)
            children = driver.children(recursive=True)
            if what == "driver":
                return [driver, *children]
            words = {"jvm": "java", "worker": "pyspark.daemon"}[what]
            return [each for each in children if words in " ".join(each.cmdline())]
        except psutil.NoSuchProcess:
            return []

    def ends(self, seconds: float) -> int | None:
        """How it ended within that time; None if it did not."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._parts("driver"):
            each.send_signal(signal.SIGKILL)
        # What has lost its parent is still of the session that the program began.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()
