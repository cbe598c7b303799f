"""One Delta table as the store uses it: its state at a version, and a commit that brings it to another."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction, create_table_with_add_actions
from pyspark.sql import types as T

from cdckit.store.errors import ConflictingCommit, DamagedTable, StoreIsBusy
from cdckit.store.files import File, files_of
from cdckit.store.locations import Location

APPLICATION = "cdckit"
"""
Every commit carries it as an application's transaction: so of two that begin from one version deltalake
lets one land and refuses the other, where it would otherwise put two appends one after the other.
"""

TRIES = 30
_LOG = {
    # Old versions can be read for as long as their files are there; `Store.vacuum` says how long.
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "20",
}


@dataclass(frozen=True)
class Table:
    """
    The state of a named table.

    Args:
        name: The name that users know.
        folder: Where it lies, below the location.
        version: Of its Delta table; None for one that is not yet written.
        stored: Its columns under their stored names.
        partition_by: The stored names of the columns that tell files apart.
        files: By path.
    """

    name: str
    folder: str
    version: int | None
    stored: T.StructType
    partition_by: tuple[str, ...] = ()
    files: Mapping[str, File] = field(default_factory=dict)

    def with_files(self, files: Mapping[str, File]) -> Table:
        """The same with other files."""
        return replace(self, files=dict(files))


class Followed:
    """
    A Delta table that was loaded, and can be brought to its newest version for less than loading it again.

    Args:
        location: Of the store.
        name: The name that users know.
        folder: Where it lies, below the location.
        version: Which is loaded; the newest for None.

    Raises:
        DamagedTable: The log cannot be read.
    """

    def __init__(self, location: Location, name: str, folder: str, version: int | None = None) -> None:
        self._name, self._folder = name, folder
        with undamaged(name, folder, version):
            self.delta = DeltaTable(
                location.delta(folder), version=version, storage_options=location.options or None
            )
            self.state = self._state()

    def newest(self) -> Table:
        """The state at the newest version."""
        with undamaged(self._name, self._folder, None):
            self.delta.update_incremental()
            if self.delta.version() != self.state.version:
                self.state = self._state()
        return self.state

    def _state(self) -> Table:
        return Table(
            name=self._name,
            folder=self._folder,
            version=self.delta.version(),
            stored=T.StructType.fromJson(json.loads(self.delta.schema().to_json())),
            partition_by=tuple(self.delta.metadata().partition_columns),
            files=files_of(pa.table(self.delta.get_add_actions(flatten=False))),
        )


@contextmanager
def undamaged(name: str, folder: str, version: int | None) -> Iterator[None]:
    """Within it, what is wrong with a log is a `DamagedTable`; what its storage says stays an OSError."""
    try:
        yield
    except (DeltaError, FileNotFoundError, ValueError) as error:
        raise damaged_log(name, folder, version, error) from error


def damaged_log(name: str, folder: str, version: int | None, error: Exception) -> DamagedTable:
    """What is raised where the log of a table cannot be read."""
    what = "" if version is None else f" at version {version}"
    return DamagedTable(
        name,
        f"{folder}/_delta_log",
        f"its log cannot be read{what} ({_first_line(error)})",
        "Bring back the files of the log from a copy of the store, or read an older commit.",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def create(location: Location, table: Table, base: int) -> int:
    """Make the Delta table of a table that is not there yet; its version."""
    try:
        create_table_with_add_actions(
            location.delta(table.folder),
            _schema(table),
            [one.add() for one in table.files.values()],
            mode="error",
            partition_by=list(table.partition_by),
            name=table.name,
            configuration=_LOG,
            storage_options=location.options or None,
            commit_properties=properties(secrets.randbits(62)),
        )
    except DeltaError as error:
        if not location.has_log(table.folder):
            raise
        because = "another writer has made a table of the same name at the same time"
        raise ConflictingCommit([table.name], base, base, because) from error
    return 0


def reach(location: Location, target: Table, head: Followed) -> int:
    """
    Commit to a Delta table that is there until its newest version is in the state *target*; that version.

    Whatever a writer that died, or that is on its way, has left at its *head* is undone with it: it is not
    named by any commit.
    """
    for wait in waits():
        now = head.newest()
        assert now.version is not None
        if _needs_naive(target) and not _has_naive(head):
            with suppress(CommitFailedError):
                head.delta.alter.add_feature(
                    TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
                )
            continue
        if now.stored != target.stored:
            # Only overwriting changes the columns; what stays is added again by the next round.
            done = _commit(location, head, target, [], "overwrite")
        else:
            actions: list[AddAction | RemoveAction] = []
            actions += [one.add() for path, one in target.files.items() if path not in now.files]
            actions += [_remove(one) for path, one in now.files.items() if path not in target.files]
            if not actions:
                return now.version
            if _commit(location, head, target, actions, "append"):
                return now.version + 1
            done = False
        if not done:
            time.sleep(wait)
    raise StoreIsBusy(location.delta(target.folder), TRIES)


def _needs_naive(table: Table) -> bool:
    """Whether it has timestamps without a zone, the one type that not every reader of Delta knows."""
    return "timestamp_ntz" in table.stored.json()


def _has_naive(head: Followed) -> bool:
    return "timestampNtz" in (head.delta.protocol().reader_features or [])


def _commit(
    location: Location, head: Followed, target: Table, actions: list[AddAction | RemoveAction], mode: str
) -> bool:
    """Whether exactly these actions are the version after *head*."""
    now, mark = head.state, secrets.randbits(62)
    assert now.version is not None
    with landing(location, now.folder, now.version + 1, mark):
        head.delta.create_write_transaction(
            actions,
            mode,
            _schema(target),
            partition_by=list(now.partition_by),
            commit_properties=properties(mark),
        )
    return marked(location, now.folder, now.version + 1, mark)


@contextmanager
def landing(location: Location, folder: str, version: int, mark: int) -> Iterator[None]:
    """Within it, an error of a commit that has landed all the same is none: its answer was lost."""
    try:
        yield
    except CommitFailedError:
        pass  # Another writer was faster, or the commit is there: the mark tells.
    except OSError:
        if not marked(location, folder, version, mark):
            raise


def marked(location: Location, folder: str, version: int, mark: int) -> bool:
    """Whether a version of a Delta table is the commit that carries the mark."""
    transactions = [one["txn"] for one in actions_of(location, folder, version) if "txn" in one]
    return any(one["appId"] == APPLICATION and one["version"] == mark for one in transactions)


def actions_of(location: Location, folder: str, version: int) -> list[dict[str, Any]]:
    """What one commit to a Delta table did; nothing if there is none of that number."""
    path = location.path(f"{folder}/_delta_log/{version:020}.json")
    try:
        with location.file_system().open_input_file(path) as file:
            return [json.loads(line) for line in file.read().splitlines()]
    except FileNotFoundError:
        return []


def properties(mark: int, batch: tuple[str, int] | None = None) -> CommitProperties:
    """
    What each commit to a Delta table carries.

    deltalake is not to try again by itself: of two that make one table at once, the later one would find it
    made, and add its own files and columns to it as version 1.
    """
    transactions = [Transaction(APPLICATION, mark)]
    if batch is not None:
        transactions.append(Transaction(f"{APPLICATION}:{batch[0]}", batch[1], int(time.time() * 1000)))
    return CommitProperties(max_commit_retries=0, app_transactions=transactions)


def waits() -> list[float]:
    """Seconds to wait after each of the tries, longer and longer, and of no two writers the same."""
    return [random.uniform(0, min(1.0, 0.01 * 2**number)) for number in range(TRIES)]


def log_options() -> dict[str, str]:
    """The properties of every Delta table of a store."""
    return dict(_LOG)


def _schema(table: Table) -> Schema:
    return Schema.from_json(table.stored.json())


def _remove(one: File) -> RemoveAction:
    values: Any = one.partition_texts()
    return RemoveAction(one.path, True, int(time.time() * 1000), one.size, values)
