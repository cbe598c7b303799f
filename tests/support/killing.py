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

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "killed_programs.py"

_LONGEST = 600
"""Seconds in which a program that nobody kills must be done."""


def run_and_kill(work: str, folder: Path, *, kills: int, seed: int) -> dict[str, int]:
    """
    Run a program of `killed_programs.py`, and kill it *kills* times; then let it end.

    Each time all of it is killed, or its JVM, or one Python worker, at a moment drawn from what its first
    batch took so far, or a little later.  A program of which a part was killed may go on or fail; it is
    begun again until it ends well.

    Returns:
        How often what was killed.
    """
    rng, done, pace = random.Random(seed), {"driver": 0, "jvm": 0, "worker": 0}, 0.0
    while sum(done.values()) < kills:
        with _Program(work, folder) as program:
            program.wait_until_ready()
            what = rng.choice(list(done))
            program.lives(rng.uniform(0, 1.3 * pace) if pace else _LONGEST)
            if program.kill(what):
                done[what] += 1
            program.goes_on_or_ends(pace)
            pace = program.first_batch_took() or pace
    for _ in range(5):
        with _Program(work, folder) as program:
            if program.ends(_LONGEST) == 0:
                assert kills < 20 or all(done.values()), f"not everything was killed: {done}"
                return done
    raise AssertionError(f"{work} does not end, even if nobody kills it: {''.join(program.said[-40:])}")


class _Program:
    """One run; whatever it has started has ended with it."""

    def __init__(self, work: str, folder: Path) -> None:
        paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAMS), work, str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []
        self._batches: list[float] = []
        self._ready = 0.0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line)
            if line.startswith("ready"):
                self._ready = time.monotonic()
            elif line.strip().isdigit():
                self._batches.append(time.monotonic())

    def wait_until_ready(self) -> None:
        """Wait until it begins its work."""
        until = time.monotonic() + _LONGEST
        while not self._ready:
            ended = self.ends(0.05) is not None or time.monotonic() > until
            assert not ended, f"it does not begin: {''.join(self.said[-40:])}"

    def lives(self, seconds: float) -> None:
        """Let it live so long, or until two batches are done; an error if that is all its work."""
        until = time.monotonic() + seconds
        while len(self._batches) < 2 and time.monotonic() < until:
            assert self.ends(0.02) != 0, "it did all its work before it was killed often enough"

    def first_batch_took(self) -> float | None:
        """The seconds until its first batch was done; None if it never was."""
        return self._batches[0] - self._ready if self._batches else None

    def kill(self, what: str) -> bool:
        """Kill a part of it; False if there is no such part within a while."""
        until = time.monotonic() + 20
        while not (found := self._parts(what)) and self.ends(0.05) is None and time.monotonic() < until:
            pass
        for each in found[-1:] if what == "worker" else found:
            _kill(each)
        return bool(found)

    def goes_on_or_ends(self, pace: float) -> None:
        """Wait until it has ended, or has done another batch all the same."""
        before, until = len(self._batches), time.monotonic() + 20 + 2 * pace
        while self.ends(0.1) is None and len(self._batches) == before and time.monotonic() < until:
            pass

    def _parts(self, what: str) -> list[psutil.Process]:
        try:
            driver = psutil.Process(self._process.pid)
            children = driver.children(recursive=True)
            if what == "driver":
                return [driver, *children]
            words = {"jvm": "java", "worker": "worker_daemon"}[what]
            return [each for each in children if words in _command(each)]
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
            _kill(each)
        # What has lost its parent is still of the session that the program began.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
        process.send_signal(signal.SIGKILL)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""  # it has ended meanwhile
