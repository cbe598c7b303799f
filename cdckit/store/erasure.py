"""
Let a store keep its newest state alone: what older commits named, and what nobody named, is deleted at once.

`Store.vacuum` waits until readers and writers that are on their way have ended; this does not.  It is the
second half of an erasure, whose first is a commit by which the newest state does not hold what is to go:

1. A commit of its own says that it is the first one that can be read, and names each Delta table by the
   very version that it has.  With it the table of commits is written anew, as one file without the plans of
   earlier commits, in which the bounds of files stand.
2. Of each Delta table a checkpoint is written at that version, without bounds of files that were removed, and
   what its log says of earlier versions deleted.
3. All files of tables are deleted that are not of these versions or later ones: also those of other programs,
   of dropped tables, and of writers that died.  What another program is writing, such as an OPTIMIZE, fails
   by a commit that changes nothing but counts as one of the table's properties.

It can be done again from the beginning, wherever it was stopped.  A writer that is on its way finds that its
files may be gone, and begins again; a reader of an older commit gets an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import uuid4

import pyarrow.parquet as pq

from cdckit.store import delta_log
from cdckit.store.commits import ERASED, VACUUMED, VACUUMED_UNTIL, Commit, Commits, load, next_instant
from cdckit.store.delta_log import DeltaLog, first_answer, live_files, log_entry
from cdckit.store.files import OUR_FILES
from cdckit.store.locations import COMMITS, Location
from cdckit.store.snapshot import Snapshot
from cdckit.store.table_plans import CommittedTable, marked_version

_LOG = "_delta_log"
_LAST, _SIDECARS = "_last_checkpoint", "_sidecars"


class ForgetResult(NamedTuple):
    """What was deleted."""

    commit: int
    """The first commit that can be read."""
    files: int
    """How many files of tables went."""
    entries: int
    """How many files of their logs."""


def forget_past(location: Location) -> ForgetResult:
    """
    Delete whatever the newest commit of a store does not need.

    Raises:
        ForeignChange: Another program has changed rows of a table, which nobody has adopted.
        StoreIsBusy: Other writers were faster, again and again.

    Cost: a listing of each table; a checkpoint for each, and one file for the table of commits.
    """
    commits = load(location)
    if commits is None:
        return ForgetResult(0, 0, 0)
    commit, old = first_answer(location.root, lambda: _try_to_begin_anew(location, commits.newest()))
    entries = sum(forget_versions(location, table.folder, table.version) for table in commit.tables.values())
    # Of the table of commits itself, what counts now is what was not there before.
    kept = {f"{COMMITS}/{path}" for path in commits.newest().files()}
    deleted = [path for path in old if path not in kept]
    entries += sum(f"/{_LOG}/" in path for path in deleted)
    for path in sorted(deleted):
        location.delete(path)
    return ForgetResult(commit.version, sum(f"/{_LOG}/" not in path for path in deleted), entries)


def _try_to_begin_anew(location: Location, commits: Commits) -> tuple[Commit, dict[str, datetime]] | None:
    """The first commit that will be read, and the files that go; None if another writer was faster."""
    newest = commits.commit()
    assert newest is not None
    tables = _settled_tables(location, commits, newest)
    old = {**_unneeded_files(location, tables), **_files_of_commits(location)}
    first = newest.version + 1
    notes = {VACUUMED: str(first), ERASED: str(first), VACUUMED_UNTIL: _until(old.values())}
    commit = Commit(first, next_instant(newest.timestamp), tables, {**newest.notes, **notes})
    return (commit, old) if commits.add(commit, anew=True) else None


def forget_versions(location: Location, folder: str, version: int) -> int:
    """
    Let the log of a Delta table begin with one of its versions; how many of its files went.

    That version and all later ones are read as before.
    """
    head, log_folder = DeltaLog(location, folder, folder, version), f"{folder}/{_LOG}"
    names = [name for name, info in location.listed(log_folder).items() if info.is_file and name != _LAST]
    if (version, "checkpoint.parquet") not in map(log_entry, names):
        head.delta.create_checkpoint()
    _drop_removed_bounds(location, log_folder, f"{version:020}.checkpoint.parquet")
    # It stands for all that goes.
    assert DeltaLog(location, folder, folder, version).state.digest == head.state.digest
    # Deltalake stages entries there, too, and others keep what is no entry: of later versions it is theirs.
    kept = {name for name in names if name[:20].isdigit() and int(name[:20]) > version}
    features = head.delta.protocol().reader_features or ()
    if "v2Checkpoint" not in features and not any("checkpoint" in name for name in kept):
        # Checkpoints of that feature have parts of their own; none is left that needs them.
        names += [f"{_SIDECARS}/{name}" for name in location.listed(f"{log_folder}/{_SIDECARS}")]
    kept |= {name for name in names if (entry := log_entry(name)) is not None and entry[0] == version}
    # Entries last, the oldest first: by them it is told whether all of this was done.
    old = sorted({*names} - kept, key=lambda name: (log_entry(name) is not None, name))
    for name in old:
        location.delete(f"{log_folder}/{name}")
    return len(old)


def _drop_removed_bounds(location: Location, log_folder: str, checkpoint: str) -> None:
    """Write a checkpoint without what it says of removed files, where it has the bounds of some."""
    path, system = location.path(f"{log_folder}/{checkpoint}"), location.file_system()
    with system.open_input_file(path) as file, pq.ParquetFile(file) as parquet:
        # Spark's OPTIMIZE and DELETE write them into the log, and deltalake takes them over.
        bounds = parquet.read(columns=["remove.stats"]).flatten().columns
        if all(column.null_count == len(column) for column in bounds):
            return
        actions = parquet.read()
    # Whole under its name, or not at all: the log begins with it.
    with system.open_output_stream(f"{path}.tmp") as file:
        pq.write_table(actions.filter(actions.column("remove").is_null()), file)
    system.move(f"{path}.tmp", path)
    # It tells how long the checkpoint was; who does not find it lists the log.
    location.delete(f"{log_folder}/{_LAST}")


def _settled_tables(location: Location, commits: Commits, newest: Commit) -> dict[str, CommittedTable]:
    """The tables of the newest commit, each brought up to it, by the versions that are in this state."""
    now = Snapshot(None, location, commits, newest)
    tables = {}
    for name, named in now.named.items():
        if (foreign := now.bring_up(name)) is not None:
            raise foreign
        version = marked_version(location, named)
        tables[name] = named if version is None else replace(named, version=version)
    return tables


def _unneeded_files(location: Location, tables: dict[str, CommittedTable]) -> dict[str, datetime]:
    """The files in folders of tables, or that a writer of ours has left anywhere, which no table needs."""
    versions = {table.folder: table.version for table in tables.values()}
    files: dict[str, datetime] = {}
    for folder, info in location.listed().items():
        if info.is_file or folder == COMMITS:
            continue
        listed = location.listed(folder, recursive=True)
        if folder in versions:
            data = (path for path in listed if not path.startswith(f"{_LOG}/"))
            old = unneeded_files(location, folder, versions[folder], data)
        else:
            was_table = location.has_log(folder)
            old = {path for path in listed if was_table or OUR_FILES.fullmatch(path)}
        files |= {f"{folder}/{path}": listed[path].mtime for path in old}
    return files


def unneeded_files(location: Location, folder: str, version: int, listed: Iterable[str]) -> set[str]:
    """
    Find those of some files of a Delta table that no version from one on needs, and none will need.

    What another program has written and not committed is never committed after this.
    """
    old = set(listed) - live_files(location, folder, version)
    if not all(map(OUR_FILES.fullmatch, old)):
        delta_log.overtake_others(location, folder)
        old -= live_files(location, folder, version)
    return old


def _files_of_commits(location: Location) -> dict[str, datetime]:
    """The files of the table of commits, which is written anew."""
    entries = location.listed(COMMITS, recursive=True).items()
    return {f"{COMMITS}/{path}": info.mtime for path, info in entries if not path.startswith(f"{_LOG}/")}


def _until(written: Iterable[datetime]) -> str:
    """Note until when files may be gone, by which `Transaction.commit` goes."""
    return f"{max([datetime.now(UTC), *written]).isoformat()} {uuid4().hex}"
