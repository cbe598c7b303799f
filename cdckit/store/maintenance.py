"""What keeps a store small and sound: files written together, files deleted, files looked for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from cdckit.errors import InvalidArgument
from cdckit.store.commits import FOLDER, Commit, load
from cdckit.store.errors import DamagedTable
from cdckit.store.files import File
from cdckit.store.locations import Location
from cdckit.store.log import Followed, Table, actions_of, damaged_log
from cdckit.store.snapshot import Snapshot
from cdckit.store.transaction import SCRATCH, Transaction
from cdckit.store.writing import OUR_FILES

VACUUMED = "cdckit.vacuumed"
"""The note that says before which commit files have been deleted."""


def vacuum(spark: SparkSession | None, location: Location, older_than: timedelta) -> list[str]:
    """Delete what `Store.vacuum` says, and note before which commit that was."""
    if older_than < timedelta(0):
        raise InvalidArgument("vacuum", "older_than", "not negative", older_than)
    # Before the commits are read: what is committed by then is named by them, what comes later is younger.
    horizon = datetime.now(UTC) - older_than
    commits = load(location)
    if commits is None:
        return []
    kept = commits.since(horizon)
    named = _named(location, kept)
    named[FOLDER] = commits.files()
    old = [
        f"{folder}/{info.base_name}"
        for folder in [*_folders(location), SCRATCH]
        for info in location.listed(folder)
        if OUR_FILES.fullmatch(info.base_name)
        and info.base_name not in named.get(folder, ())
        and info.mtime <= horizon
    ]
    if not old:
        return []
    with Transaction(spark, location, commits) as transaction:
        # Readers of older commits are told before the files go.
        if int(transaction.note_of(VACUUMED) or 0) < kept[0].version:
            transaction.note(VACUUMED, str(kept[0].version))
            transaction.commit(reads=())
    for path in old:
        location.delete(path)
    return sorted(old)


def _folders(location: Location) -> list[str]:
    return [info.base_name for info in location.listed() if location.has_log(info.base_name)]


def _named(location: Location, commits: list[Commit]) -> dict[str, set[str]]:
    """The files that these commits name, by folder."""
    versions: dict[str, set[int]] = {}
    for commit in commits:
        for folder, version in commit.tables.values():
            versions.setdefault(folder, set()).add(version)
    return {folder: _ever_live(location, folder, min(some), max(some)) for folder, some in versions.items()}


def _ever_live(location: Location, folder: str, first: int, last: int) -> set[str]:
    """The files of a Delta table at any of its versions from *first* to *last*."""
    found = set(Followed(location, folder, folder, first).state.files)
    for version in range(first + 1, last + 1):
        actions = actions_of(location, folder, version)
        if not actions:
            raise damaged_log(folder, folder, version, FileNotFoundError("there is no such version"))
        found |= {one["add"]["path"] for one in actions if "add" in one}
    return found


def check(location: Location, snapshot: Snapshot) -> None:
    """Raise `DamagedTable` for a file that is not there or not of its size."""
    for name in snapshot.names():
        table = snapshot.table(name)
        _check(
            table, {info.base_name: info.size for info in location.listed(table.folder)}, table.files.values()
        )


def _check(table: Table, sizes: dict[str, int], files: Iterable[File]) -> None:
    for one in files:
        size = sizes.get(one.path)
        if size != one.size:
            found = "the file is not there" if size is None else f"it has {size} bytes, not {one.size}"
            raise DamagedTable(
                table.name,
                f"{table.folder}/{one.path}",
                found,
                "Bring the file back from a copy of the store.",
            )
