"""The tables of a store as one of its commits names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.store import delta_log, foreign_changes, table_plans
from cdckit.store.columns import true_names
from cdckit.store.commits import Commit, Commits, load
from cdckit.store.delta_log import DeltaLog
from cdckit.store.errors import ForeignChange, NoSuchTable
from cdckit.store.files import File, Table, Where
from cdckit.store.locations import COMMITS, Location
from cdckit.store.reading import read_arrow, read_spark
from cdckit.store.table_plans import CommittedTable, Plan, State


class Snapshot:
    """
    The tables at one commit; what others write later is not seen.

    Its files are there until `Store.vacuum` deletes them, long after they were replaced.

    Attributes:
        location: Where the store lies.
        version: The number of the commit; None for a store in which nothing was ever committed.
        timestamp: When that commit was made.
        notes: What was noted, by key.
        named: Where each table is, and in which state, by name.
        store: What tells the store from all others, wherever it lies; empty if nothing was ever committed.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     shop = Store(None, folder)
    ...     before = shop.snapshot()
    ...     with shop.begin() as transaction:
    ...         _ = transaction.append("products", pa.table({"number": [1, 2]}))
    ...         _ = transaction.commit()
    ...     before.names(), shop.snapshot().names()
    ([], ['products'])
    """

    def __init__(
        self,
        spark: SparkSession | None,
        location: Location,
        commits: Commits | None,
        commit: Commit | None,
        kept: dict[str, DeltaLog] | None = None,
    ) -> None:
        self._spark, self.location, self._commits = spark, location, commits
        self._kept = {} if kept is None else kept
        self.version = commit.version if commit else None
        self.timestamp = commit.timestamp if commit else None
        self.notes: Mapping[str, str] = MappingProxyType(dict(commit.notes) if commit else {})
        self.named: Mapping[str, CommittedTable] = commit.tables if commit else {}
        self.store = commits.id if commits else ""
        self._states: dict[str, State] = {}

    def note_of(self, key: str) -> str | None:
        """Read what is noted under a key; None if nothing is."""
        return self.notes.get(key)

    def made(self, version: int) -> datetime | None:
        """When a commit of the store was made, also one whose files are deleted; None if there is none."""
        commit = None if self._commits is None else self._commits.commit(version)
        return None if commit is None else commit.timestamp

    def names(self) -> list[str]:
        """The names of the tables, sorted."""
        return sorted(self.named)

    def has(self, name: str) -> bool:
        """Tell whether there is a table of that name."""
        return name in self.named

    def schema(self, name: str) -> T.StructType:
        """The columns of a table, under their true names."""
        return true_names(self.table(name).stored)

    def path(self, name: str) -> str:
        """Say where the Delta table lies, for other readers; its version there is that of `table`."""
        return self.location.delta(self._named_table(name).folder)

    def files(self, name: str, where: Where | None = None) -> list[File]:
        """The files of a table, or those that can hold rows for which *where* is true (see `read`)."""
        return self.table(name).select(where, "files")

    def read(self, name: str, where: Where | None = None, files: Iterable[File] | None = None) -> DataFrame:
        """
        The rows of a table; Spark reads just the files that can hold them.

        Args:
            name: The table.
            where: Per column either a collection of the values sought, in which None means null, or a
                tuple of the lowest and the highest, both included, None where there is no such bound.
                Only rows for which it is true for every column are returned.
            files: Some of `files(name)`, if not all are wanted.

        Raises:
            NoSuchTable: There is none of that name.
            DamagedTable: A file is not there any more, or is cut short.  Where Spark reads it, one cut
                short ends the job, with Spark's message, which names it; `Store.check` finds such files.

        Cost: no job; the files are chosen by what the log says about them.  A thousand rows or fewer are read
        at once, by this program, and are part of the plan: Spark's start would take longer.
        """
        table = self.table(name)
        return read_spark(self.spark, self.location, table, table.select(where, "read", files), where)

    def arrow(self, name: str, where: Where | None = None, files: Iterable[File] | None = None) -> pa.Table:
        """Read the rows into the memory of this program, without Spark: for small tables."""
        table = self.table(name)
        return read_arrow(self.location, table, table.select(where, "arrow", files), where)

    @property
    def spark(self) -> SparkSession:
        """The session that reads."""
        if self._spark is None:
            needed = "a session: without one only `arrow` reads"
            raise InvalidArgument("Store", "spark", needed, None)
        return self._spark

    def table(self, name: str) -> Table:
        """A table's state; loaded once."""
        if name not in self._states:
            named = self._named_table(name)
            # A log is brought to newer versions: whoever takes it has it alone.
            kept = self._kept.pop(named.folder, None)
            state = table_plans.load_state(self.location, name, named, lambda: self._plan(name), kept)
            self._require_known(state.next_mark)
            self._states[name] = state
        return self._states[name].table

    def _require_known(self, mark: int) -> None:
        """Raise `DamagedTable` for a commit that is in a Delta table and not in the table of commits."""
        if self._commits is None or mark <= self._commits.version:
            return
        # Another writer may have come since.
        newest = load(self.location)
        if newest is None or mark > newest.version:
            error = ValueError(f"it lacks commit {mark}, of which a table has files")
            raise delta_log.damaged_log(COMMITS, COMMITS, self._commits.version, error)

    def bring_up(self, name: str) -> ForeignChange | None:
        """
        Let a Delta table be where this commit, the newest one, has it; what others have changed in it.

        Raises:
            StoreIsBusy: Other writers were faster, again and again.
        """
        if self.table(name).version is None:
            plan = self._plan(name)
            assert plan is not None
            if not table_plans.carry_out(self.location, plan, self._named_table(name).commit):
                return table_plans.foreign_change(self.location, plan)
            del self._states[name]
        table = self.table(name)
        others = foreign_changes.upkeep_of_others(self.location, table)
        if others.kept != table.version:
            del self._states[name]
        return others.foreign

    def require_untouched(self, name: str) -> None:
        """Raise `ForeignChange` if others have changed a Delta table since this commit, the newest one."""
        table = self.table(name)
        if table.version is not None:
            foreign = foreign_changes.upkeep_of_others(self.location, table).foreign
        else:
            plan = self._plan(name)
            foreign = None if plan is None else table_plans.foreign_change(self.location, plan)
        if foreign is not None:
            raise foreign

    def require_writable(self, name: str) -> None:
        """Raise `ForeignChange` for a Delta table that asks more of its writers than we do."""
        # One that was committed by a writer who died has no log of its own yet.
        if self.location.has_log(self._named_table(name).folder):
            foreign_changes.require_writable(self.head(name), self.table(name).partition_by)

    def require_commits_writable(self) -> None:
        """Raise `ForeignChange` where another program asks more of who writes the table of commits."""
        if self._commits is not None:
            self._commits.require_writable()

    def head(self, name: str) -> DeltaLog:
        """The newest state of a Delta table, whoever made it."""
        return DeltaLog(self.location, name, self._named_table(name).folder)

    def with_theirs(self, name: str) -> Table:
        """A table as another program has left it, with what is committed and not in its Delta table yet."""
        table = self.head(name).state
        plan = self._plan(name) if self.table(name).version is None else None
        return table if plan is None else replace(plan.onto(table), stored=table.stored)

    def log_of(self, name: str, folder: str) -> DeltaLog | None:
        """The log of a Delta table in a folder, if it was loaded."""
        table_log = self._states[name].log if name in self._states else None
        return table_log if table_log is not None and table_log.folder == folder else None

    def keep_logs(self) -> None:
        """Let the next one have the logs that were loaded, which this one does not bring up any more."""
        self._kept |= {
            state.log.folder: state.log for state in self._states.values() if state.log is not None
        }

    def at_commit(self, commit: Commit, commits: Commits) -> Snapshot:
        """The tables of the same store at another commit, or at the same one, to be looked at again."""
        snapshot = Snapshot(self._spark, self.location, commits, commit, self._kept)
        if commit.version == self.version:
            snapshot._states.update(self._states)
        return snapshot

    def _plan(self, name: str) -> Plan | None:
        return self._commits.plan(name, self._named_table(name)) if self._commits else None

    def _named_table(self, name: str) -> CommittedTable:
        if name not in self.named:
            raise NoSuchTable(name, self.version, self.names())
        return self.named[name]
