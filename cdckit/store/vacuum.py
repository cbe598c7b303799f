"""Files of a store, and of the logs of its tables, that no commit needs: what `Store.vacuum` deletes."""

from __future__ import annotations

from datetime import datetime

from cdckit.store.commits import VACUUMED, Commit, Commits
from cdckit.store.delta_log import DeltaLog, live_files, log_entry, read_actions
from cdckit.store.errors import DamagedTable
from cdckit.store.files import OUR_FILES
from cdckit.store.locations import COMMITS, SCRATCH, Location
from cdckit.store.snapshot import Snapshot


def unneeded_paths(location: Location, commits: Commits, horizon: datetime) -> set[str]:
    """
    Find what is older than *horizon*, and no commit since then needs that can be read.

    That is: files that none of them names; and of each log the entries before a checkpoint from which all
    that they name is read.
    """
    newest = commits.commit()
    assert newest is not None
    first = int(newest.notes.get(VACUUMED, 0))
    kept = [commit for commit in commits.since(horizon) if commit.version >= first]
    named = _named_files(location, commits, kept)
    folders = [folder for folder in location.listed() if location.has_log(folder)]
    files = {
        f"{folder}/{path}"
        for folder in [*folders, SCRATCH]
        for path, info in location.listed(folder).items()
        if OUR_FILES.fullmatch(path) and path not in named.get(folder, ()) and info.mtime <= horizon
    }
    # The version before is the one from which the plan of a commit begins.
    begins = {folder: version - 1 for folder, version in _first_versions(kept).items()}
    needed = {COMMITS: commits.at, **begins}
    return files.union(*(_entries_before(location, *table, horizon) for table in needed.items()))


def _first_versions(commits: list[Commit]) -> dict[str, int]:
    """Find the oldest version of each Delta table that these commits name, by folder."""
    versions: dict[str, int] = {}
    for table in (table for commit in commits for table in commit.tables.values()):
        versions[table.folder] = min(table.version, versions.get(table.folder, table.version))
    return versions


def _entries_before(location: Location, folder: str, version: int, horizon: datetime) -> set[str]:
    """The entries of a log, older than *horizon*, without which *version* and all later ones are read too."""
    log = f"{folder}/_delta_log"
    files = location.listed(log).items()
    entries = [(entry, name, info) for name, info in files if (entry := log_entry(name)) is not None]
    begins = [at for (at, kind), _, _ in entries if kind == "checkpoint.parquet" and at <= version]
    begin = max(begins, default=0)
    old = {f"{log}/{name}" for (at, _), name, info in entries if at < begin and info.mtime <= horizon}
    if old:
        DeltaLog(location, folder, folder, begin)  # It is whole: what it stands for can go.
    return old


def _named_files(location: Location, commits: Commits, kept: list[Commit]) -> dict[str, set[str]]:
    """The files that these commits name, by folder."""
    newest = Snapshot(None, location, commits, kept[-1])
    now = {table.folder: set(table.files) for table in map(newest.table, newest.names())}
    files = {COMMITS: commits.files(), **now}
    for folder, version in _first_versions(kept).items():
        try:
            # One that lags has the files of the newest commit.
            if read_actions(location, folder, version):
                files[folder] = now.get(folder, set()) | live_files(location, folder, version)
        except DamagedTable:
            if folder in now:
                raise
            # It was made anew elsewhere: what there is stays as long as the commits that name it.
            files[folder] = set(location.listed(folder))
    return files
