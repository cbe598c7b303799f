"""Checkpoints: the SCN up to which a consumer has taken all windows, and where that is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_name
from cdckit.store import Store

NOTHING = -1
"""The checkpoint of a consumer that has taken no window."""


class Checkpoints(Protocol):
    """Where the last checkpoint of a consumer is kept: `CheckpointFile`, `StoredCheckpoints`, or another."""

    def load(self) -> int:
        """The SCN of the end of the last window that was taken; -1 if there is none."""

    def store(self, scn: int) -> None:
        """Store the SCN; a kill at any moment leaves the one before, or this one."""


class CheckpointFile:
    """
    A checkpoint in a file: always a whole one, the last that was stored.

    Args:
        path: The file; its folder is made if it is not there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     before = CheckpointFile(f"{folder}/flights").load()
    ...     CheckpointFile(f"{folder}/flights").store(5)
    ...     before, CheckpointFile(f"{folder}/flights").load()
    (-1, 5)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def load(self) -> int:
        """The SCN of the end of the last window that was taken; -1 if there is none."""
        return _parse(self.path.read_text()) if self.path.exists() else NOTHING

    def store(self, scn: int) -> None:
        """Store the SCN; a kill at any moment leaves the one before, or this one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        with beside.open("w") as file:
            file.write(str(scn))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)


class StoredCheckpoints:
    """
    A checkpoint beside the tables of a store: it works wherever a store does.

    Args:
        store: The store, such as that of a `Relay`.
        name: Of the consumer, or group of consumers; each has a checkpoint of its own.

    Cost: a commit for each checkpoint, 20 to 30 ms on a local disk: of streams with many small windows, let
    `dispatch` store one every second or so (`checkpoint_every`).

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     kept = StoredCheckpoints(Store(None, folder), "board")
    ...     kept.store(17)
    ...     StoredCheckpoints(Store(None, folder), "board").load()
    17
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._key = store, f"{_NOTE}:{require_name(name, 'name', function='StoredCheckpoints')}"

    def load(self) -> int:
        """The SCN of the end of the last window that was taken; -1 if there is none."""
        text = self._store.snapshot().note_of(self._key)
        return NOTHING if text is None else _parse(text)

    def store(self, scn: int) -> None:
        """Store the SCN; a kill at any moment leaves the one before, or this one."""
        with self._store.begin() as transaction:
            transaction.note(self._key, str(scn))
            transaction.commit(reads=())


_NOTE = "databus.checkpoint"


def _parse(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidArgument("load", "checkpoint", "the SCN of a window, a whole number", text) from error
