"""The tables of a store as one commit names them: what a reader keeps while others write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.store.commits import FOLDER, Commit, Commits, load
from cdckit.store.errors import ForeignChange, NoSuchTable
from cdckit.store.file_reader import read_arrow, read_spark
from cdckit.store.files import File, Where, require_where
from cdckit.store.locations import Location
from cdckit.store.log import (
    Followed,
    Named,
    Plan,
    Table,
    carry_out,
    damaged_log,
    foreign_change,
    require_known_features,
    state_of,
    upkeep_of_others,
)
from cdckit.store.names import true_name, true_names


class Snapshot:
    """
    The tables at one commit; what others write later is not seen.

    Its files are there until `Store.vacuum` deletes them, long after they were replaced.

    Attributes:
        version: The number of the commit; None for a store in which nothing was ever committed.
        timestamp: When that commit was made.
        notes: What was noted, by key.

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
        self, spark: SparkSession | None, location: Location, commits: Commits | None, commit: Commit | None
    ) -> None:
        self._spark, self._location, self._commits, self._commit = spark, location, commits, commit
        self._states: dict[str, Table] = {}
        self._logs: dict[str, Followed | None] = {}

    @property
    def version(self) -> int | None:
        """The number of the commit."""
        return self._commit.version if self._commit else None

    @property
    def timestamp(self) -> datetime | None:
        """When the commit was made."""
        return self._commit.timestamp if self._commit else None

    @property
    def store(self) -> str:
        """What tells the store from all others, wherever it lies; empty as long as nothing was committed."""
        return self._commits.id if self._commits else ""

    @property
    def root(self) -> str:
        """Where the store lies."""
        return self._location.root

    @property
    def notes(self) -> Mapping[str, str]:
        """What was noted, by key."""
        return MappingProxyType(dict(self._commit.notes) if self._commit else {})

    def note_of(self, key: str) -> str | None:
        """What is noted under a key; None if nothing is."""
        return self._commit.notes.get(key) if self._commit else None

    def names(self) -> list[str]:
        """The names of the tables, sorted."""
        return sorted(self.named)

    def has(self, name: str) -> bool:
        """Whether there is a table of that name."""
        return name in self.named

    def schema(self, name: str) -> T.StructType:
        """The columns of a table, under their true names."""
        return true_names(self.table(name).stored)

    def partitioned_by(self, name: str) -> tuple[str, ...]:
        """The columns by which a table's files are told apart."""
        stored = self.table(name)
        return tuple(true_name(stored.stored[one]) for one in stored.partition_by)

    def path(self, name: str) -> str:
        """Where the Delta table lies, for other readers; its version is `delta_version`."""
        return self._location.delta(self._named_table(name).folder)

    def delta_version(self, name: str) -> int | None:
        """The version of the Delta table that is in this state; None if there is none, not yet."""
        return self.table(name).version

    def files(self, name: str, where: Where | None = None) -> list[File]:
        """The files of a table, or those that can hold rows for which *where* is true (see `read`)."""
        return select(self.table(name), where, "files")

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
        chosen = select(table, where, "read", files)
        return read_spark(self.spark, self._location, table, chosen, where)

    def arrow(self, name: str, where: Where | None = None, files: Iterable[File] | None = None) -> pa.Table:
        """The same rows in the memory of this program, read without Spark: for small tables."""
        table = self.table(name)
        return read_arrow(self._location, table, select(table, where, "arrow", files), where)

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
            found, followed, mark = state_of(self._location, name, named, lambda: self._plan(name))
            self._require_known(mark)
            self._states[name], self._logs[name] = found, followed
        return self._states[name]

    def _require_known(self, mark: int) -> None:
        """Raise `DamagedTable` for a commit that is in a Delta table and not in the table of commits."""
        if self._commits is None or mark <= self._commits.version:
            return
        # Another writer may have come since.
        newest = load(self._location)
        if newest is None or mark > newest.version:
            error = ValueError(f"it lacks commit {mark}, of which a table has files")
            raise damaged_log(FOLDER, FOLDER, self._commits.version, error)

    def bring_up(self, name: str) -> ForeignChange | None:
        """
        Let a Delta table be where this commit, the newest one, has it; what others have changed in it.

        Raises:
            StoreIsBusy: Other writers were faster, again and again.
        """
        if self.table(name).version is None:
            plan = self._plan(name)
            assert plan is not None
            if not carry_out(self._location, plan, self._named_table(name).commit):
                return foreign_change(self._location, plan)
            del self._states[name]
        found = self.table(name)
        assert found.version is not None
        others = upkeep_of_others(self._location, found.folder, found.version)
        if others.kept != found.version:
            del self._states[name]
        return others.foreign

    def change_by_others(self, name: str) -> ForeignChange | None:
        """What others have changed in a Delta table since this commit, the newest one."""
        version = self.table(name).version
        if version is None:
            plan = self._plan(name)
            return None if plan is None else foreign_change(self._location, plan)
        return upkeep_of_others(self._location, self.table(name).folder, version).foreign

    def head(self, name: str) -> Table:
        """The newest state of a Delta table, whoever made it; raises `ForeignChange` for strange features."""
        found = Followed(self._location, name, self._named_table(name).folder)
        require_known_features(found)
        return found.state

    def with_theirs(self, name: str) -> Table:
        """A table as another program has left it, with what is committed and not in its Delta table yet."""
        found = self.head(name)
        plan = self._plan(name) if self.table(name).version is None else None
        return found if plan is None else replace(plan.onto(found), stored=found.stored)

    def log_of(self, name: str, plan: Plan) -> Followed | None:
        """The log of the Delta table of a plan, if it was loaded."""
        found = self._logs.get(name)
        return found if found is not None and found.folder == plan.after.folder else None

    def at(self, commit: Commit, commits: Commits) -> Snapshot:
        """The tables of the same store at another commit, or at the same one, to be looked at again."""
        found = Snapshot(self._spark, self._location, commits, commit)
        if commit.version == self.version:
            found._states.update(self._states)
            found._logs.update(self._logs)
        return found

    @property
    def location(self) -> Location:
        """Where the store lies, as its parts know it."""
        return self._location

    @property
    def commit(self) -> Commit | None:
        """The commit itself."""
        return self._commit

    @property
    def named(self) -> Mapping[str, Named]:
        """Where each table is, and in which state."""
        return self._commit.tables if self._commit else {}

    def _plan(self, name: str) -> Plan | None:
        return self._commits.plan(name, self._named_table(name)) if self._commits else None

    def _named_table(self, name: str) -> Named:
        if name not in self.named:
            raise NoSuchTable(name, self.version, self.names())
        return self.named[name]


def select(
    table: Table, where: Where | None, function: str, files: Iterable[File] | None = None
) -> list[File]:
    """The files of a table that can hold rows for which *where*, by true names, is true."""
    stored = stored_where(table, where, function)
    some: Collection[File] = table.files.values() if files is None else list(files)
    return [one for one in some if one.can_hold(stored)]


def stored_where(table: Table, where: Where | None, function: str) -> dict[str, Any]:
    """The same by stored names, and checked."""
    names = {true_name(one): one.name for one in table.stored}
    return {names[name]: sought for name, sought in require_where(where, names, function).items()}
