"""A place where named tables live: Delta tables that appear together, commit by commit; and their upkeep."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import microseconds, quoted
from cdckit.parts.public_calls import called_or
from cdckit.parts.workers import local_frame
from cdckit.store.commits import (
    CLAIM,
    COMMITS_SCHEMA,
    ERASED,
    KIND,
    VACUUMED,
    VACUUMED_UNTIL,
    Commit,
    Commits,
    load,
)
from cdckit.store.delta_log import DeltaLog
from cdckit.store.errors import ConflictingCommit, DamagedTable, OtherKind, StoreIsBusy
from cdckit.store.files import Where
from cdckit.store.locations import locate
from cdckit.store.reading import files_holding, find_damage, hold_few_rows
from cdckit.store.snapshot import Snapshot
from cdckit.store.transaction import CommitResult, Transaction
from cdckit.store.vacuum import unneeded_paths
from cdckit.store.writing import Rows

Tables: TypeAlias = Snapshot | Transaction
"""Tables as a commit names them, or as a transaction has left them so far."""

_TRIES, _PATIENCE = 20, 600.0
Answer = TypeVar("Answer")


class Store:
    """
    Named tables in a folder, or below a URI.

    Each is a Delta table, which DuckDB, polars, Spark's Delta connector and others read too; the table of
    commits, in the folder `commits`, says which versions of them belong together.  Opening a store, and
    every question to it, writes and deletes nothing.

    Args:
        spark: The session that reads, and whose workers write.  Without one only Arrow tables
            are written, and `Snapshot.arrow` reads.
        location: A local folder, which need not be there, or a URI such as `s3://bucket/folder`.
        storage_options: What deltalake calls so, for a URI; Spark takes its own from its session.

    Raises:
        NoFileSystem: Spark or deltalake lacks a file system for the URI's scheme.
        DamagedTable: There are tables without a table of commits, or it cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> with TemporaryDirectory() as folder:
    ...     shop = Store(None, folder)
    ...     with shop.begin() as transaction:
    ...         _ = transaction.append("products", pa.table({"number": [1, 2]}))
    ...         _ = transaction.commit()
    ...     shop.snapshot().arrow("products").num_rows
    2
    """

    def __init__(
        self, spark: SparkSession | None, location: str | Path, storage_options: dict[str, str] | None = None
    ) -> None:
        self._spark = spark
        self._location = locate(location, storage_options, spark)
        # What the last transaction knew of the Delta tables: their files are not read and looked at again.
        self._kept: dict[str, DeltaLog] = {}
        load(self._location)

    def snapshot(self, version: int | None = None, timestamp: datetime | None = None) -> Snapshot:
        """
        The tables as one commit names them.

        Args:
            version: The number of the commit; the newest without it.
            timestamp: The commit that held at this instant, instead.

        Raises:
            InvalidArgument: There is no such commit, or `vacuum` may have deleted files that it names.
        """
        commits = load(self._location)
        with called_or("snapshot"):
            commit = _find_commit(commits, version, timestamp)
        return Snapshot(self._spark, self._location, None if commit is None else commits, commit)

    def begin(self) -> Transaction:
        """A transaction from the newest commit."""
        return Transaction(self._spark, self._location, load(self._location), self._kept)

    def atomically(self, work: Callable[[Transaction], Answer], *, alone: bool = False) -> Answer:
        """
        Let *work* have a transaction from the newest commit, which it commits; returns what it returns.

        Where another writer has changed what it goes by, or deleted what it reads, it is done again on what
        that one left, up to 20 times, after a wait that grows and differs from writer to writer.  What else
        *work* raises ends it, also a conflict in another store.

        Args:
            work: What is done.
            alone: Whether others of these calls wait for it once it was overtaken, as work that reads all
                would be forever where others write all the time.  They wait ten minutes for each try at
                most, in case it has died.  *work* must not wait for one of them.

        Raises:
            ConflictingCommit: Others came between each time.
        """
        name, is_claimed = uuid.uuid4().hex, False
        try:
            for number in range(_TRIES):
                with self._begin_in_turn(name) as transaction:
                    try:
                        return work(transaction)
                    except Exception as error:
                        overtaken = isinstance(error, ConflictingCommit) and transaction.has_ended
                        # Of a commit that is forgotten meanwhile, files are missing while it is read.
                        if number == _TRIES - 1 or not (overtaken or self._is_forgotten(transaction.base)):
                            raise
                if alone:
                    is_claimed = True
                    self._note_claim(name, f"{name} {number}")
                else:
                    time.sleep(random.uniform(0, min(5.0, 0.1 * 2**number)))
        finally:
            if is_claimed:
                self._note_claim(name, None)
        raise AssertionError("every round returns or raises")

    def _begin_in_turn(self, name: str) -> Transaction:
        """A transaction, after that of another call that is to be alone."""
        text, since = None, 0.0
        while True:
            transaction = self.begin()
            claim = transaction.base.notes.get(CLAIM)
            if claim is None or claim.startswith(name):
                return transaction
            transaction.close()
            if claim != text:
                text, since = claim, time.monotonic()
            elif time.monotonic() - since > _PATIENCE:
                self._note_claim(claim, None)
            time.sleep(0.2)

    def _note_claim(self, name: str, claim: str | None) -> None:
        """Note a claim where there is none, or in the place of one that begins with this name."""
        # What was done stands all the same; a claim that is left ends by itself.
        with self.begin() as transaction, suppress(ConflictingCommit, StoreIsBusy):
            last_claim = transaction.base.notes.get(CLAIM)
            if last_claim != claim and (last_claim is None or last_claim.startswith(name)):
                transaction.note(CLAIM, claim)
                transaction.commit(reads=())

    def _is_forgotten(self, base: Snapshot) -> bool:
        """Tell whether older commits were deleted, and that one with them, since it was read."""
        newest = self.snapshot()
        first = int(newest.notes.get(VACUUMED, 0))
        return base.version is not None and base.version < first != int(base.notes.get(VACUUMED, 0))

    def batch(self, batch: str) -> int | None:
        """The digest of a batch that was committed, 0 if none was told; None if there is no such batch."""
        commits = load(self._location)
        return None if commits is None else commits.digest(batch)

    def commits(self) -> DataFrame:
        """
        One row per commit: `version`, `timestamp`, `batch`, `digest`, `tables`, `notes`.

        Tables are by name where each lies (`folder`), from which version of its Delta table on it is in this
        state, which commit wrote to it last, its files, its rows and a digest of both.  Batch and digest are
        null where a commit took up no batch.  Of many commits Spark reads the files when it is asked: after a
        vacuum, ask anew.
        """
        commits = load(self._location)
        if self._spark is None:
            raise InvalidArgument("Store", "spark", "a session, which makes the table of commits", None)
        if commits is None:
            columns = [column for column in COMMITS_SCHEMA if column.name != "plans"]
            return local_frame(self._spark, [], T.StructType(columns))
        return commits.read(self._spark)

    def adopt(self, name: str) -> int:
        """
        Keep what another program has changed in a Delta table: its newest state is what a commit names now.

        What derives from the table, such as the history of a ledger's changes, is to be made anew then.

        Returns:
            The commit; the newest one if nobody has changed anything.

        Raises:
            NoSuchTable: There is none of that name.
        """
        with self.begin() as transaction:
            transaction.accept(name)
            return transaction.commit(reads=()).version

    def compact(self, name: str | None = None) -> CommitResult:
        """
        Write the small files of a table, or of all, together: those of one partition as one.

        Args:
            name: The table.

        Returns:
            The commit; the base's number if there was nothing to do.

        Cost: as of `Transaction.compact`, for each table.
        """
        with self.begin() as transaction:
            names = [name] if name is not None else transaction.base.names()
            for table in names:
                transaction.compact(table)
            return transaction.commit(reads=())

    def vacuum(self, older_than: timedelta = timedelta(days=7)) -> list[str]:
        """
        Delete files that no commit of the last *older_than* names, and that are older than that themselves.

        So whatever a reader of such a commit needs stays, and whatever a writer that is on its way has
        written, if its transaction takes no longer than that.  Only files that are named as this package
        names them are deleted; all others stay.  The entries of logs go, too, before a checkpoint that is
        older than these commits: so logs grow with what is kept, not with the number of commits.

        Returns:
            The paths of the deleted files, below the location.

        Raises:
            InvalidArgument: *older_than* is negative.
            ConflictingCommit: Another vacuum came between.
        """
        if older_than < timedelta(0):
            raise InvalidArgument("vacuum", "older_than", "not negative", older_than)
        # Before the commits are read: they name what is committed by then, what comes later is younger.
        horizon = datetime.now(UTC) - older_than
        commits = load(self._location)
        if commits is None:
            return []
        newest = Snapshot(self._spark, self._location, commits, commits.commit())
        for name in newest.names():
            newest.bring_up(name)
        old = unneeded_paths(self._location, commits, horizon)
        if not old:
            return []
        with Transaction(self._spark, self._location, commits) as transaction:
            # Readers of older commits are told before the files go; and writers that may still commit some of
            # these files see, from the same commit on, that they have to begin again.
            first = max(commits.since(horizon)[0].version, int(transaction.note_of(VACUUMED) or 0))
            until = max(horizon.isoformat(), (transaction.note_of(VACUUMED_UNTIL) or "").split(" ")[0])
            transaction.note(VACUUMED, str(first))
            transaction.note(VACUUMED_UNTIL, f"{until} {uuid.uuid4().hex}")
            transaction.commit(reads=())
        # What others have committed until then stays.
        old &= unneeded_paths(self._location, commits.newest(), horizon)
        for path in sorted(old):
            self._location.delete(path)
        return sorted(old)

    def check(self, *, deep: bool = False) -> None:
        """
        Raise for the first thing that is wrong with the tables of the newest commit.

        Args:
            deep: Whether every file is read, too: each page has a checksum, each file a number of rows.

        Raises:
            DamagedTable: A file is not there, or is not of its size; with *deep*, or cannot be read whole.
            ForeignChange: Another program has changed rows of a table, or given it what no writer of ours
                keeps to, such as a CHECK constraint; or `delta.appendOnly`, by which no row may go.

        Cost: one listing per table, and no file is opened; with *deep* all are read, each by one worker.
        """
        snapshot = self.snapshot()
        for table in map(snapshot.table, snapshot.names()):
            infos = self._location.listed(table.folder)
            for file in table.files.values():
                below = unquote(file.path)
                path = f"{table.folder}/{below}"
                # What other programs write may lie in folders.
                size = (infos.get(below) or self._location.info(path)).size
                if size != file.size:
                    is_other = f"it has {size} bytes, not {file.size}"
                    problem = "the file is not there" if size is None else is_other
                    remedy = "Bring the file back from a copy of the store."
                    raise DamagedTable(table.name, path, problem, remedy)
            if deep and (damage := find_damage(self._spark, self._location, table)) is not None:
                raise damage
            snapshot.require_untouched(table.name)
            snapshot.require_writable(table.name)
        snapshot.require_commits_writable()


def _find_commit(commits: Commits | None, version: int | None, timestamp: datetime | None) -> Commit | None:
    """Find the commit as `Store.snapshot` says; None for an instant before the first commit."""
    if version is not None and timestamp is not None:
        raise InvalidArgument(None, "version", "None where `timestamp` is given", version)
    if commits is None:
        if version is not None:
            raise InvalidArgument(None, "version", "that of a commit; there is none yet", version)
        return None
    if timestamp is None:
        commit = commits.commit(version)
        if commit is None:
            raise InvalidArgument(None, "version", f"from 0 to {commits.version}", version)
    else:
        microseconds(timestamp, "timestamp")
        commit = next((commit for commit in commits.since(timestamp) if commit.timestamp <= timestamp), None)
    if commit is not None and commit.version < commits.version:
        _require_kept(commits, commit.version, timestamp)
    return commit


def _require_kept(commits: Commits, version: int, timestamp: datetime | None) -> None:
    """Raise `InvalidArgument` for a commit whose files may have been deleted."""
    newest = commits.commit()
    assert newest is not None
    horizon = int(newest.notes.get(VACUUMED, 0))
    if version < horizon:
        is_erased = version < int(newest.notes.get(ERASED, 0))
        needed = f"{horizon} or later, because of {'an erasure' if is_erased else 'vacuum'}"
        if timestamp is not None:
            raise InvalidArgument(None, "timestamp", f"that of commit {needed}", timestamp)
        raise InvalidArgument(None, "version", needed, version)


# For who keeps tables --------------------------------------------------------------------------------------


def require_kind(tables: Snapshot, kind: str) -> None:
    """
    Raise `OtherKind` for a store that has tables of another kind, or none that anything is said of.

    Args:
        tables: The store at a commit; one in which there is nothing may become anything.
        kind: What is needed, as it is noted.
    """
    stored_kind = tables.note_of(KIND)
    if stored_kind is None and not tables.names():
        return
    if stored_kind != kind:
        others = f"a store of the tables {', '.join(tables.names())}"
        raise OtherKind(tables.location.root, f"a {kind}", stored_kind or others)


def read_some(tables: Tables, name: str) -> DataFrame | None:
    """A table that has rows; None if there is none of that name, or it is empty."""
    return tables.read(name) if tables.has(name) and tables.files(name) else None


def read_rows(
    tables: Tables, name: str, columns: T.StructType | str, where: Where | None = None
) -> DataFrame:
    """A table; without rows, in those *columns*, if there is none of that name."""
    if tables.has(name):
        return tables.read(name, where=where)
    return local_frame(tables.spark, [], columns)


def replace_rows(tables: Transaction, name: str, keys: DataFrame, *rows: Rows) -> None:
    """
    Write *rows* in the place of those rows of a table that have one of the *keys*, in columns of these names.

    Cost: files without such rows stay as they are; unless the table is small, a job finds them.
    """
    table_rows, on = tables.read(name), keys.columns
    files = files_holding(table_rows, tables.files(name), keys, on)
    kept = []
    if files:
        others = tables.read(name, files=files).join(keys, on, "left_anti")
        others = others.select(*map(quoted, table_rows.columns))
        # Each task writes a file of its own.
        kept = [others.coalesce(1) if hold_few_rows(files) else others]
    tables.swap(name, files, *kept, *rows)


def read_note(tables: Tables, key: str, default: Any) -> Any:
    """Read what is noted under a key, as JSON; *default* if nothing is."""
    text = tables.note_of(key)
    return default if text is None else json.loads(text)


def write_note(tables: Transaction, key: str, value: Any) -> None:
    """Note a value beside the tables, as JSON; see `read_note`."""
    tables.note(key, json.dumps(value))
