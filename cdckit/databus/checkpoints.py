"""Checkpoints: the SCN up to which a consumer has taken all windows, and where that is kept."""

from __future__ import annotations

from typing import Protocol

from cdckit.parts.argument_forms import NAME, takes
from cdckit.store import Store

NOTHING = -1
"""The checkpoint of a consumer that has taken no window."""


class Checkpoints(Protocol):
    """Where the last checkpoint of a consumer is kept: `StoredCheckpoints`, or another."""

    def load(self) -> int:
        """Read the SCN of the end of the last window that was taken; -1 if there is none."""

    def store(self, scn: int) -> None:
        """Store the SCN; a kill at any moment leaves the one before, or this one."""


class StoredCheckpoints(Checkpoints):
    """
    A checkpoint beside the tables of a store, such as that of a `Relay`, or in a store of its own.

    Args:
        store: The store.
        name: Of the consumer, or group of consumers; each has a checkpoint of its own.

    Cost: a commit for each checkpoint, 20 to 30 ms on a local disk: of streams with many small windows, let
    `dispatch` store one every second or so (`checkpoint_every`).

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     before = StoredCheckpoints(Store(None, folder), "board").load()
    ...     StoredCheckpoints(Store(None, folder), "board").store(17)
    ...     before, StoredCheckpoints(Store(None, folder), "board").load()
    (-1, 17)
    """

    @takes(name=NAME)
    def __init__(self, store: Store, name: str) -> None:
        self._store, self._key = store, f"databus.checkpoint:{name}"

    def load(self) -> int:
        return int(self._store.snapshot().note_of(self._key) or NOTHING)

    def store(self, scn: int) -> None:
        with self._store.begin() as transaction:
            transaction.note(self._key, str(scn))
            transaction.commit(reads=())
