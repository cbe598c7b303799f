"""One Delta table as the store uses it: its state at a version, and a commit that brings it to another."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
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


def state(location: Location, name: str, folder: str, version: int | None) -> Table:
    """The state of a table at a version, the newest for None; raises `DamagedTable`."""
    try:
        found = DeltaTable(location.delta(folder), version=version, storage_options=location.options or None)
        return Table(
            name=name,
            folder=folder,
            version=found.version(),
            stored=T.StructType.fromJson(json.loads(found.schema().to_json())),
            partition_by=tuple(found.metadata().partition_columns),
            files=files_of(pa.table(found.get_add_actions(flatten=False))),
        )
    except (TableNotFoundError, DeltaError, OSError, ValueError) as error:
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


def reach(location: Location, target: Table) -> int:
    """
    Commit to a Delta table that is there until its newest version is in the state *target*; that version.

    Whatever a writer that died, or that is on its way, has left at its head is undone with it: it is not
    named by any commit.
    """
    for wait in waits():
        head = state(location, target.name, target.folder, None)
        assert head.version is not None
        if head.stored != target.stored:
            # Only overwriting changes the columns; what stays is added again by the next round.
            done = _commit(location, head, target, [], "overwrite")
        else:
            adds: list[AddAction | RemoveAction] = [
                one.add() for path, one in target.files.items() if path not in head.files
            ]
            removes: list[AddAction | RemoveAction] = [
                _remove(one) for path, one in head.files.items() if path not in target.files
            ]
            if not adds and not removes:
                return head.version
            if _commit(location, head, target, adds + removes, "append"):
                return head.version + 1
            done = False
        if not done:
            time.sleep(wait)
    raise StoreIsBusy(location.delta(target.folder), TRIES)


def _commit(
    location: Location, head: Table, target: Table, actions: list[AddAction | RemoveAction], mode: str
) -> bool:
    """Whether exactly these actions are the version after *head*."""
    assert head.version is not None
    mark = secrets.randbits(62)
    table = DeltaTable(
        location.delta(head.folder), version=head.version, storage_options=location.options or None
    )
    try:
        table.create_write_transaction(
            actions,
            mode,
            _schema(target),
            partition_by=list(head.partition_by),
            commit_properties=properties(mark),
        )
    except CommitFailedError:
        return False
    return marked(location, head.folder, head.version + 1, mark)


def marked(location: Location, folder: str, version: int, mark: int) -> bool:
    """Whether a version of a Delta table is the commit that carries the mark."""
    found = DeltaTable(location.delta(folder), version=version, storage_options=location.options or None)
    return found.transaction_version(APPLICATION) == mark


def properties(mark: int, batch: tuple[str, int] | None = None) -> CommitProperties:
    """What each commit to a Delta table carries."""
    transactions = [Transaction(APPLICATION, mark)]
    if batch is not None:
        transactions.append(Transaction(f"{APPLICATION}:{batch[0]}", batch[1], int(time.time() * 1000)))
    return CommitProperties(app_transactions=transactions)


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
