"""Checkpoints: how far a consumer is, in the JSON form of Databus, and where that is kept."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_name
from cdckit.store import Store

INIT, SNAPSHOT, CATCHUP, ONLINE = "INIT", "BOOTSTRAP_SNAPSHOT", "BOOTSTRAP_CATCHUP", "ONLINE_CONSUMPTION"
MODES = (INIT, SNAPSHOT, CATCHUP, ONLINE)

WHOLE_WINDOW = -1


@dataclass(frozen=True)
class Checkpoint:
    """
    How far a consumer is.

    Args:
        consumption_mode: `INIT`, `BOOTSTRAP_SNAPSHOT`, `BOOTSTRAP_CATCHUP` or `ONLINE_CONSUMPTION`.
        window_scn: The SCN of the window that was consumed last; -1 where the consumer begins anywhere.
        prev_scn: The SCN of the last window that was consumed whole; -1 where none is known.
        window_offset: How many events of the window were consumed; -1 for all.
        ts_nsecs: The time of the window's end, in nanoseconds since 1970; -1 where none is known.
        bootstrap_since_scn, bootstrap_start_scn, bootstrap_target_scn: -1 where not set.
        bootstrap_snapshot_source_index, bootstrap_catchup_source_index, snapshot_offset: see Databus.

    Raises:
        InvalidArgument: The parts do not fit together; it says which.

    Source:
        Databus, "Client Design": the checkpoint; the invariants are those of its Checkpoint class.

    >>> done = Checkpoint.of_window(17, ts_nsecs=1_000)
    >>> Checkpoint.from_json(done.as_json()) == done
    True
    """

    consumption_mode: str = INIT
    window_scn: int = -1
    prev_scn: int = -1
    window_offset: int = WHOLE_WINDOW
    ts_nsecs: int = -1
    bootstrap_since_scn: int = -1
    bootstrap_start_scn: int = -1
    bootstrap_target_scn: int = -1
    bootstrap_snapshot_source_index: int = 0
    bootstrap_catchup_source_index: int = 0
    snapshot_offset: int = -1

    def __post_init__(self) -> None:
        wrong = self._fault()
        if wrong:
            raise InvalidArgument("Checkpoint", *wrong)

    @classmethod
    def of_window(cls, scn: int, *, ts_nsecs: int = -1) -> Checkpoint:
        """The whole window that ends with this SCN was consumed."""
        return cls(ONLINE, scn, scn, WHOLE_WINDOW, ts_nsecs)

    @classmethod
    def from_json(cls, text: str) -> Checkpoint:
        """
        Read a checkpoint; what is not known of it is passed over, what is missing is not set.

        Raises:
            InvalidArgument: It is no JSON object, a field is of another type, or its parts do not fit.
        """
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise InvalidArgument("Checkpoint.from_json", "text", "a JSON object", text)
        own: dict[str, Any] = {}
        for field in fields(cls):
            value = document.get(_JSON_NAMES.get(field.name, field.name))
            if value is None:
                continue
            kind = str if field.name == "consumption_mode" else int
            if not isinstance(value, kind) or isinstance(value, bool):
                needed = "a text" if kind is str else "a whole number"
                raise InvalidArgument("Checkpoint.from_json", field.name, needed, value)
            own[field.name] = value
        return cls(**own)

    def as_json(self) -> str:
        """The JSON form; the fields of the bootstrap only where it is one."""
        is_online = self.consumption_mode in (INIT, ONLINE)
        document = {
            _JSON_NAMES.get(field.name, field.name): getattr(self, field.name)
            for field in fields(self)
            if not (is_online and field.name.startswith("bootstrap"))
        }
        return json.dumps(document)

    @property
    def consumed_scn(self) -> int:
        """The SCN up to which all windows were consumed whole."""
        return self.window_scn if self.window_offset == WHOLE_WINDOW else self.prev_scn

    def _fault(self) -> tuple[str, str, object] | None:
        if self.consumption_mode not in MODES:
            return "consumption_mode", f"one of {', '.join(MODES)}", self.consumption_mode
        if self.window_offset < WHOLE_WINDOW:
            return "window_offset", "-1 (all) or more", self.window_offset
        if self.consumption_mode == ONLINE:
            return self._online_fault()
        if self.consumption_mode in (SNAPSHOT, CATCHUP) and self.bootstrap_since_scn < 0:
            return "bootstrap_since_scn", "set in a bootstrap", self.bootstrap_since_scn
        if self.consumption_mode == SNAPSHOT:
            return self._snapshot_fault()
        return self._catchup_fault() if self.consumption_mode == CATCHUP else None

    def _online_fault(self) -> tuple[str, str, object] | None:
        if self.window_scn < -1:
            return "window_scn", "-1 (anywhere) or more", self.window_scn
        if self.window_scn == -1 and self.ts_nsecs != -1:
            return "ts_nsecs", "not set where the consumer begins anywhere", self.ts_nsecs
        if self.window_scn >= 0 and self.prev_scn > self.window_scn:
            return "prev_scn", f"{self.window_scn} (window_scn) or less", self.prev_scn
        whole = self.window_offset == WHOLE_WINDOW
        if whole and self.prev_scn not in (-1, self.window_scn):
            return "prev_scn", "window_scn where the window was consumed whole", self.prev_scn
        return None

    def _snapshot_fault(self) -> tuple[str, str, object] | None:
        if self.bootstrap_catchup_source_index:
            return "bootstrap_catchup_source_index", "0 in a snapshot", self.bootstrap_catchup_source_index
        if self.bootstrap_start_scn < 0 and self.bootstrap_target_scn >= 0:
            return "bootstrap_target_scn", "not set before bootstrap_start_scn", self.bootstrap_target_scn
        return None

    def _catchup_fault(self) -> tuple[str, str, object] | None:
        if self.bootstrap_start_scn < 0:
            return "bootstrap_start_scn", "set in a catch-up", self.bootstrap_start_scn
        if self.bootstrap_target_scn < self.bootstrap_start_scn:
            return "bootstrap_target_scn", f"{self.bootstrap_start_scn} or more", self.bootstrap_target_scn
        if not 0 <= self.bootstrap_catchup_source_index <= self.bootstrap_snapshot_source_index:
            most = self.bootstrap_snapshot_source_index
            return "bootstrap_catchup_source_index", f"from 0 to {most}", self.bootstrap_catchup_source_index
        return None


_JSON_NAMES = {
    "window_scn": "windowScn", "prev_scn": "prevScn", "window_offset": "windowOffset", "ts_nsecs": "tsNsecs",
}  # fmt: skip


class Checkpoints(Protocol):
    """Where the last checkpoint of a consumer is kept: `CheckpointFile`, `StoredCheckpoints`, or another."""

    def load(self) -> Checkpoint:
        """The checkpoint that was stored last; one that begins anywhere if there is none."""

    def store(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint; a kill at any moment leaves the one before, or this one."""


class CheckpointFile:
    """
    A checkpoint in a file: always a whole one, the last that was stored.

    Args:
        path: The file; its folder is made if it is not there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     before = CheckpointFile(f"{folder}/flights").load()
    ...     CheckpointFile(f"{folder}/flights").store(Checkpoint.of_window(5))
    ...     before.consumed_scn, CheckpointFile(f"{folder}/flights").load().consumed_scn
    (-1, 5)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def load(self) -> Checkpoint:
        """The checkpoint that was stored last; one that begins anywhere if there is none."""
        if not self.path.exists():
            return Checkpoint()
        return Checkpoint.from_json(self.path.read_text())

    def store(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint; a kill at any moment leaves the one before, or this one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        with beside.open("w") as file:
            file.write(checkpoint.as_json())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)


class StoredCheckpoints:
    """
    A checkpoint beside the tables of a store, in its JSON form: it works wherever a store does.

    Args:
        store: The store, such as that of a `Relay`.
        name: Of the consumer, or group of consumers; each has a checkpoint of its own.

    Cost: a commit for each checkpoint, 20 to 30 ms on a local disk: of streams with many small windows, let
    `dispatch` store one every second or so (`checkpoint_every`).

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     kept = StoredCheckpoints(Store(None, folder), "board")
    ...     kept.store(Checkpoint.of_window(17))
    ...     StoredCheckpoints(Store(None, folder), "board").load().window_scn
    17
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._key = store, f"{_NOTE}:{require_name(name, 'name', function='StoredCheckpoints')}"

    def load(self) -> Checkpoint:
        """The checkpoint that was stored last; one that begins anywhere if there is none."""
        text = self._store.snapshot().note_of(self._key)
        return Checkpoint() if text is None else Checkpoint.from_json(text)

    def store(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint; a kill at any moment leaves the one before, or this one."""
        with self._store.begin() as transaction:
            transaction.note(self._key, checkpoint.as_json())
            transaction.commit(reads=())


_NOTE = "databus.checkpoint"
