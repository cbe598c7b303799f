"""What a proof runs in a process of its own: programs with another Spark or Python, and servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pythons import python_with

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


class Server:
    """A server on loopback, which can be killed and started again; it ends with the `with` it is made for."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.port, self.log = folder, free_port(), folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *command: str, **options: Any) -> None:
        """Run the program of the server, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **options
            )
        wait_until(self._answers, 60, f"the server answers (see {self.log})")

    def kill(self) -> None:
        """kill -9, of what the program has started too: it says goodbye to nobody."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-3000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class MotoServer(Server):
    """A service of Amazon's as moto has it, which keeps everything in memory."""

    def __init__(self, folder: Path, service: str) -> None:
        super().__init__(folder, service)
        # In an environment of its own: botocore holds python-dateutil back.
        self._python = python_with(f"moto[{service}]>=5.2", "flask", "flask-cors")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.run(str(self._python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port))
        return self


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
