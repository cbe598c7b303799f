"""What keeps a store small and sound: files written together, files deleted, files looked for."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from pyspark.sql import SparkSession

from cdckit.errors import InvalidArgument
from cdckit.store.commit_protocol import VACUUMED_UNTIL
from cdckit.store.commits import FOLDER, Commit, Commits, load
from cdckit.store.errors import DamagedTable
from cdckit.store.file_reader import read_arrow
from cdckit.store.files import OUR_FILES, File
from cdckit.store.locations import Location
from cdckit.store.log import Followed, actions_of
from cdckit.store.snapshot import Snapshot
from cdckit.store.transaction import SCRATCH, Transaction

VACUUMED = "cdckit.vacuumed"
"""The note that says before which commit files have been deleted."""

_ENTRY = re.compile(r"([0-9]{20})\.(json|crc|checkpoint\.(?:.*\.)?parquet)")
"""Of a Delta table's log: what one version did, or what there is at it."""


def vacuum(spark: SparkSession | None, location: Location, older_than: timedelta) -> list[str]:
    """Delete what `Store.vacuum` says, and note before which commit that was."""
    if older_than < timedelta(0):
        raise InvalidArgument("vacuum", "older_than", "not negative", older_than)
    # Before the commits are read: what is committed by then is named by them, what comes later is younger.
    horizon = datetime.now(UTC) - older_than
    commits = load(location)
    if commits is None:
        return []
    newest = Snapshot(spark, location, commits, commits.commit())
    for name in newest.names():
        newest.bring_up(name)
    old = [*_unnamed(location, commits, horizon), *_old_entries(location, commits, horizon)]
    if not old:
        return []
    with Transaction(spark, location, commits) as transaction:
        # Readers of older commits are told before the files go; and writers that may still commit some of
        # these files see, from the same commit on, that they have to begin again.
        first = max(commits.since(horizon)[0].version, int(transaction.note_of(VACUUMED) or 0))
        until = max(horizon.isoformat(), (transaction.note_of(VACUUMED_UNTIL) or "").split(" ")[0])
        transaction.note(VACUUMED, str(first))
        transaction.note(VACUUMED_UNTIL, f"{until} {uuid.uuid4().hex}")
        transaction.commit(reads=())
    # What others have committed until then stays.
    commits = commits.newest()
    still = {*_unnamed(location, commits, horizon), *_old_entries(location, commits, horizon)}
    old = sorted(still.intersection(old))
    for path in old:
        location.delete(path)
    return old


def _kept(commits: Commits, horizon: datetime) -> list[Commit]:
    """The commits since *horizon* that can be read: of older ones, files and entries of logs are gone."""
    newest = commits.commit()
    assert newest is not None
    first = int(newest.notes.get(VACUUMED, 0))
    return [one for one in commits.since(horizon) if one.version >= first]


def _unnamed(location: Location, commits: Commits, horizon: datetime) -> list[str]:
    """The files older than *horizon* that no commit since then names."""
    named = _named(location, commits, _kept(commits, horizon))
    return [
        f"{folder}/{info.base_name}"
        for folder in [*_folders(location), SCRATCH]
        for info in location.listed(folder)
        if OUR_FILES.fullmatch(info.base_name)
        and info.base_name not in named.get(folder, ())
        and info.mtime <= horizon
    ]


def _old_entries(location: Location, commits: Commits, horizon: datetime) -> list[str]:
    """What is older than *horizon* in the logs, before a checkpoint from which all that is kept is read."""
    kept = _kept(commits, horizon)
    needed = {FOLDER: commits.at}
    for commit in kept:
        for one in commit.tables.values():
            # The version before is the one from which the plan of the commit begins.
            needed[one.folder] = min(one.version - 1, needed.get(one.folder, one.version))
    return [
        path for folder, version in needed.items() for path in _before(location, folder, version, horizon)
    ]


def _before(location: Location, folder: str, version: int, horizon: datetime) -> list[str]:
    """The entries of a log, older than *horizon*, without which *version* and all later ones are read too."""
    log = f"{folder}/_delta_log"
    entries = [(found, one) for one in location.listed(log) if (found := _ENTRY.fullmatch(one.base_name))]
    begins = [int(found[1]) for found, _ in entries if found[2] == "checkpoint.parquet"]
    begin = max((each for each in begins if each <= version), default=0)
    old = [one.base_name for found, one in entries if int(found[1]) < begin and one.mtime <= horizon]
    if old:
        Followed(location, folder, folder, begin)  # It is whole: what it stands for can go.
    return [f"{log}/{name}" for name in old]


def _folders(location: Location) -> list[str]:
    return [info.base_name for info in location.listed() if location.has_log(info.base_name)]


def _named(location: Location, commits: Commits, kept: list[Commit]) -> dict[str, set[str]]:
    """The files that these commits name, by folder."""
    versions: dict[str, set[int]] = {}
    for commit in kept:
        for one in commit.tables.values():
            versions.setdefault(one.folder, set()).add(one.version)
    newest = Snapshot(None, location, commits, kept[-1])
    now = {table.folder: set(table.files) for table in map(newest.table, newest.names())}
    found = {FOLDER: commits.files(), **now}
    for folder, some in versions.items():
        try:
            found[folder] = found.get(folder, set()) | _ever_live(location, folder, min(some))
        except DamagedTable:
            if folder in now:
                raise
            # It was made anew elsewhere: what there is stays as long as the commits that name it.
            found[folder] = {info.base_name for info in location.listed(folder)}
    return found


def _ever_live(location: Location, folder: str, first: int) -> set[str]:
    """The files of a Delta table at any of its versions from *first* on."""
    if not actions_of(location, folder, first):
        return set()  # It lags: its files are those of the newest commit.
    found = set(Followed(location, folder, folder, first).state.files)
    while actions := actions_of(location, folder, first + 1):
        first += 1
        found |= {one["add"]["path"] for one in actions if "add" in one}
    return found


def check(location: Location, snapshot: Snapshot, *, deep: bool) -> None:
    """Raise for what is wrong, as `Store.check` says."""
    for name in snapshot.names():
        table = snapshot.table(name)
        sizes = {info.base_name: info.size for info in location.listed(table.folder)}
        for one in table.files.values():
            size = sizes.get(one.path)
            if size is None and "/" in one.path:
                size = location.size(f"{table.folder}/{unquote(one.path)}")  # a file of another program
            if (found := _fault(one, size)) is None and deep:
                read_arrow(location, table, [one], None)
            if found is not None:
                remedy = "Bring the file back from a copy of the store."
                raise DamagedTable(table.name, f"{table.folder}/{one.path}", found, remedy)
        if (foreign := snapshot.change_by_others(name)) is not None:
            raise foreign.of(name)


def _fault(one: File, size: int | None) -> str | None:
    if size == one.size:
        return None
    return "the file is not there" if size is None else f"it has {size} bytes, not {one.size}"
