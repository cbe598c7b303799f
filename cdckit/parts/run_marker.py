"""What is under way: a run in a local folder lets readers see which messages it has chosen."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

if sys.platform != "win32":
    import fcntl

_RUN = "run.json"
"""What is under way, while it is: locked by the program that does it, and empty otherwise."""

Said = Mapping[str, Any]


class UnderWay:
    """
    The file by which runs of several programs see each other.

    A lock ends with its program, so what a killed one has left there says nothing.  Where there is no such
    file, as in an object store, nobody is told of runs, and runs do not wait for each other: that nothing
    is done twice is for the store to see to.

    Args:
        folder: The folder of this machine in which the tables are; None if they are elsewhere.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / _RUN

    @contextmanager
    def alone(self) -> Iterator[Callable[[Said], None]]:
        """Wait for the runs of others to end, then tell what is under way with what is yielded."""
        if self._path is None:
            yield lambda run: None
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+") as file:
            _lock(file)
            file.truncate(0)

            def say(run: Said) -> None:
                file.truncate(0)
                json.dump(run, file)
                file.flush()

            try:
                yield say
            finally:
                # Deleted, it would be another file than the one for which others wait.
                file.truncate(0)

    def found(self) -> dict[str, Any] | None:
        """What was told of the run that is under way; None if there is none."""
        if self._path is None:
            return None
        try:
            with self._path.open() as file:
                said: dict[str, Any] | None = json.load(file) if _is_locked(file) else None
                return said
        except (FileNotFoundError, json.JSONDecodeError):
            return None


def _lock(file: IO[str]) -> None:
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_locked(file: IO[str]) -> bool:
    """
    Whether the program that has written the file still holds it.

    On Windows nobody can tell, and what a killed program has left there counts until the next run ends.
    """
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
