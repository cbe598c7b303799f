"""
The table of commits, one row per commit of a store.

It is a Delta table like the others.  Commit *n* is its version *n*, or a later one where other programs have
put its files together, and adds one small file; from time to time a commit puts the rows of the last ones
into its own file, so that there are at most fifteen files for each power of sixteen in the number of commits.

The row of a commit says what it does to each Delta table (`Plan`), until another commit has done something
to that one: so the row is the commit, and whoever finds a Delta table behind it can bring it there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.parts.arguments import StreamBatch, flat_columns
from cdckit.parts.arrow_types import arrow_schema
from cdckit.store import delta_log, foreign_changes
from cdckit.store.delta_log import NO_HOOK, DeltaLog
from cdckit.store.errors import BatchIdReused, DamagedTable
from cdckit.store.files import OUR_FILES, File, Table, Target, Where
from cdckit.store.locations import COMMITS, Location
from cdckit.store.reading import read_arrow, read_spark
from cdckit.store.table_plans import CommittedTable, Plan
from cdckit.store.writing import write

KIND = "cdckit.kind"
"""The note that says what a store is for, such as "data hub (form 1)": the kind, and its tables' form."""

CLAIM = "cdckit.claim"
"""The note that says who wants to be alone, and which of its tries that is."""

VACUUMED = "cdckit.vacuumed"
"""The note that says before which commit files have been deleted."""

VACUUMED_UNTIL = "cdckit.vacuumed_until"
"""The note that says until which instant files that no commit named were deleted; and the vacuum's id."""

ERASED = "cdckit.erased"
"""The note that says before which commit nothing is left, because of an erasure."""

FORMAT = "5"
_FORMAT = "cdckit.format"
"""Where the column `version` says in which form a store is: comments and properties are others' to write."""

_FOLD = 16
_NAMED = "folder string, version long, commit long, files long, rows long, digest long"

COMMITS_SCHEMA = (
    T.StructType([T.StructField("version", T.LongType(), metadata={_FORMAT: FORMAT})])
    .add("timestamp", T.TimestampType())
    .add("batch", T.StringType())
    .add("digest", T.LongType())
    .add("tables", T.MapType(T.StringType(), flat_columns(_NAMED)))
    .add("notes", T.MapType(T.StringType(), T.StringType()))
    .add("plans", T.MapType(T.StringType(), T.StringType()))
)
"""One row per commit: its number, instant, batch and the batch's digest, tables, notes, and plans in JSON."""


@dataclass(frozen=True)
class Commit:
    """
    One commit.

    Args:
        version: Its number, from 0, which is that of the store without tables.
        timestamp: When; later than the commit before it.
        tables: Where each table is, and in which state.
        notes: What was noted, by key.
        plans: What it does to the Delta tables that it writes, by the names of the tables, in JSON.
        batch: The id of the batch that it took up, if any.
        digest: Of that batch.
    """

    version: int
    timestamp: datetime
    tables: Mapping[str, CommittedTable] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    plans: Mapping[str, str] = field(default_factory=dict)
    batch: str | None = None
    digest: int | None = None


class Commits:
    """The table of commits as it stands when this is made."""

    def __init__(self, location: Location, table_log: DeltaLog) -> None:
        self._location, self._log = location, table_log
        self.at: int = table_log.version
        self._files = table_log.state.files
        ranges = sorted(
            (file.low.get("version", -1), file.high.get("version", -1)) for file in self._files.values()
        )
        # Each commit stands in one file, from the first on: a log that lost an entry says something else.
        ends = [-1, *(high for _, high in ranges)]
        self.version: int = ends[-1]
        is_whole = [low for low, _ in ranges] == [end + 1 for end in ends[:-1]]
        if not is_whole or self.version != self.at:
            self._require_kept_by_others(is_whole)

    def _require_kept_by_others(self, is_whole: bool) -> None:
        """Raise for entries of its log that are neither ours nor such as keep all rows."""
        foreign = None
        for version, actions in delta_log.entries_until(self._location, COMMITS, self.at):
            if delta_log.commit_mark(actions) is not None:
                added = [action["add"]["stats"] for action in actions if "add" in action]
                last = max(json.loads(stats)["maxValues"]["version"] for stats in added)
                restored = all(OUR_FILES.fullmatch(path) for path in self._files)
                if is_whole and last == self.version and (foreign is None or restored):
                    return
                break
            if foreign_changes.is_foreign_change(self._location, COMMITS, version, actions):
                remedy = (
                    "Nothing was written. This table says which files of the others count: put it back to "
                    f"version {version - 1} by that program, as with RESTORE."
                )
                foreign = foreign_changes.describe_change(COMMITS, version, actions, remedy)
        if foreign is not None:
            raise foreign
        raise delta_log.damaged_log(COMMITS, COMMITS, self.at, ValueError("it does not name every commit"))

    def newest(self) -> Commits:
        """The table of commits as it stands now."""
        self._log.newest()
        return self if self._log.version == self.at else Commits(self._location, self._log)

    def plan(self, name: str, named: CommittedTable) -> Plan | None:
        """Read what the last commit that wrote to a table does to it; None if that is told no more."""
        commit = self.commit(named.commit)
        text = None if commit is None else commit.plans.get(name)
        return None if text is None else Plan.from_json(name, text)

    def commit(self, version: int | None = None) -> Commit | None:
        """One commit, the newest for None; None if there is none of that number."""
        wanted = self.version if version is None else version
        files = [file for file in self._files.values() if file.can_hold({"version": [wanted]})]
        return next(iter(self._rows(files, {"version": [wanted]})), None)

    def since(self, instant: datetime) -> list[Commit]:
        """The commits after an instant, and the one that held at it; the oldest first."""
        files = sorted(self._files.values(), key=lambda file: file.low["version"], reverse=True)
        commits: list[Commit] = []
        for file in files:
            commits.extend(self._rows([file]))
            if min(row.timestamp for row in commits) <= instant:
                break
        commits.sort(key=lambda commit: commit.version)
        before = [commit for commit in commits if commit.timestamp <= instant]
        return before[-1:] + [commit for commit in commits if commit.timestamp > instant]

    def digest(self, batch: str) -> int | None:
        """
        The digest of a batch that was committed; None if there is no such batch.

        Raises:
            BatchIdReused: A later batch of its stream was committed: of older ones nothing is known.
            DamagedTable: The log does not say the same of it twice.
        """
        transaction_version = self._log.delta.transaction_version
        names = delta_log.batch_names(batch)
        digest: int | None = transaction_version(names.digest)
        last = transaction_version(names.number) if names.number else batch
        check = None if last is None or digest is None else delta_log.batch_check(last, digest)
        if transaction_version(names.check) != check:
            error = ValueError(f"it says two things about the batch {batch!r}")
            raise delta_log.damaged_log(COMMITS, COMMITS, self.at, error)
        if isinstance(batch, StreamBatch) and isinstance(last, int) and last != batch.number:
            if last > batch.number:
                raise BatchIdReused(batch, 0, 0, last)
            return None
        return digest

    @property
    def id(self) -> str:
        """What tells the store from all others."""
        return str(self._log.delta.metadata().id)

    def require_writable(self) -> None:
        """Raise `ForeignChange` where another program asks more of the writers of this table than we do."""
        foreign_changes.require_writable(self._log, removes_rows=False)

    def files(self) -> set[str]:
        """The names of its files."""
        return set(self._files)

    def add(self, commit: Commit, *, anew: bool = False) -> bool:
        """
        Let *commit*, whose number is the next one, be seen; False if another writer was faster.

        With *anew* all earlier ones are written again, without their plans: each was carried out.
        """
        assert commit.version == self.version + 1
        self.require_writable()
        folded = list(self._files.values()) if anew else self._files_to_fold(commit.version)
        earlier = self._rows(folded)
        rows = [replace(row, plans={}) if anew else _drop_plans(row, commit) for row in earlier] + [commit]
        mark = secrets.randbits(62)
        # As if long ago: a checkpoint names what was removed in the last week, here nearly every file.
        removes = [file.remove(data_change=False, at=0) for file in folded]
        batch = None if commit.batch is None else (commit.batch, commit.digest or 0)
        try:
            self._log.delta.create_write_transaction(
                [_write(self._location, rows), *removes],
                "append",
                delta_log.delta_schema(self._log.state.stored),
                commit_properties=delta_log.commit_properties(mark, batch),
                post_commithook_properties=NO_HOOK,
            )
        except (DeltaError, OSError):
            # Another writer was faster; or the answer was lost, and the commit is there: its mark tells.
            if delta_log.commit_mark(delta_log.read_actions(self._location, COMMITS, self.at + 1)) != mark:
                if self.newest().at > self.at:
                    return False
                raise
        with suppress(Exception):  # The commit has landed: whatever happens now is no fault of it.
            delta_log.keep_short(self.newest()._log.delta)
        return True

    def _files_to_fold(self, version: int) -> list[File]:
        size = 1
        while (version + 1) % (size * _FOLD) == 0:
            size *= _FOLD
        return [file for file in self._files.values() if size > 1 and file.low["version"] > version - size]

    def read(self, spark: SparkSession) -> DataFrame:
        """Every commit, without its plans, which are nobody else's business."""
        some = T.StructType([column for column in self._log.state.stored if column.name != "plans"])
        table = replace(self._log.state, stored=some)
        return read_spark(spark, self._location, table, list(self._files.values())).orderBy("version")

    def _rows(self, files: Sequence[File], where: Where | None = None) -> list[Commit]:
        try:
            rows = read_arrow(self._location, self._log.state, files, where)
        except DamagedTable as error:
            remedy = (
                "Bring the file back from a copy of the store: without it nobody knows which files count."
            )
            raise DamagedTable(error.table, error.file, error.found, remedy) from error
        return [_commit(row) for row in rows.to_pylist()]


def _drop_plans(row: Commit, newest: Commit) -> Commit:
    """The row without the plans of tables to which later commits have written: they were carried out."""
    last = {name: table.commit for name, table in newest.tables.items()}
    plans = {name: text for name, text in row.plans.items() if last.get(name) == row.version}
    return replace(row, plans=plans)


def load(location: Location) -> Commits | None:
    """
    The table of commits; None for a store in which nothing was ever committed.

    Raises:
        DamagedTable: It cannot be read, or is not there while tables are, or was made by a later version.
    """
    if not location.has_log(COMMITS):
        orphans = [folder for folder in location.listed() if location.has_log(folder)]
        # Another writer may have begun the store between the two looks.
        if orphans and not location.has_log(COMMITS):
            problem = f"there is none, but there are tables ({orphans[0]}, ...)"
            remedy = "Bring the folder back from a copy; or, if this was never a store, use another place."
            raise DamagedTable(COMMITS, f"{COMMITS}/_delta_log", problem, remedy)
        if not orphans:
            return None
    table_log = DeltaLog(location, COMMITS, COMMITS)
    columns = table_log.state.stored
    made_by = columns["version"].metadata.get(_FORMAT) if "version" in columns.names else None
    if made_by != FORMAT:
        problem = f"its format is {made_by}, and this version of cdckit reads {FORMAT}"
        remedy = "Open it with the version of cdckit that made it, or make it anew from its records."
        raise DamagedTable(COMMITS, f"{COMMITS}/_delta_log", problem, remedy)
    return Commits(location, table_log)


def load_or_begin(location: Location) -> Commits:
    """The table of commits, made with commit 0 if there is none yet: it is there before any table is."""
    commits = load(location)
    if commits is None:
        table = Table(COMMITS, COMMITS, COMMITS_SCHEMA)
        first = _write(location, [Commit(0, datetime.now(UTC))])
        delta_log.create(location, table, [first], delta_log.commit_properties(secrets.randbits(62)))
        commits = load(location)
    assert commits is not None
    return commits


def next_instant(after: datetime) -> datetime:
    """Now, or a little after the commit before: clocks of different machines may disagree."""
    return max(datetime.now(UTC), after + timedelta(microseconds=1))


def _write(location: Location, rows: list[Commit]) -> AddAction:
    listed = [
        {
            **{name: getattr(commit, name) for name in ("version", "timestamp", "batch", "digest")},
            "tables": [(name, asdict(named)) for name, named in commit.tables.items()],
            "notes": list(commit.notes.items()),
            "plans": list(commit.plans.items()),
        }
        for commit in rows
    ]
    table = pa.Table.from_pylist(listed, arrow_schema(COMMITS_SCHEMA))
    [file] = write(table, Target(location, COMMITS, COMMITS_SCHEMA)).files
    return file.add()


def _commit(row: dict[str, Any]) -> Commit:
    tables = {name: CommittedTable(**state) for name, state in row["tables"]}
    return Commit(**{**row, "tables": tables, "plans": dict(row["plans"]), "notes": dict(row["notes"])})
