"""A place where named tables live: Delta tables that appear together, commit by commit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import astuple
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import microseconds
from cdckit.store import maintenance
from cdckit.store.commit_protocol import Committed
from cdckit.store.commits import COMMITS_SCHEMA, Commits, load
from cdckit.store.compaction import SMALL
from cdckit.store.errors import ConflictingCommit
from cdckit.store.locations import locate
from cdckit.store.snapshot import Snapshot
from cdckit.store.transaction import Transaction

_TRIES = 20
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
        self,
        spark: SparkSession | None,
        location: str | Path,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._location = locate(location, storage_options, spark)
        self._commits()

    def snapshot(
        self, version: int | None = None, timestamp: datetime | None = None, *, function: str = "snapshot"
    ) -> Snapshot:
        """
        The tables as one commit names them.

        Args:
            version: The number of the commit; the newest without it.
            timestamp: The commit that held at this instant, instead.
            function: What was called, which an error names.

        Raises:
            InvalidArgument: There is no such commit, or `vacuum` may have deleted files that it names.
        """
        commits = self._commits()
        if commits is None:
            if version is not None:
                raise InvalidArgument(function, "version", "that of a commit; there is none yet", version)
            return Snapshot(self._spark, self._location, None, None)
        newest = commits.commit()
        found = newest
        if timestamp is not None:
            if version is not None:
                raise InvalidArgument(function, "version", "None where `timestamp` is given", version)
            microseconds(timestamp, "timestamp", function=function)
            found = next((one for one in commits.since(timestamp) if one.timestamp <= timestamp), None)
            if found is None:
                return Snapshot(self._spark, self._location, None, None)
        elif version is not None:
            found = commits.commit(version)
            if found is None:
                raise InvalidArgument(function, "version", f"from 0 to {commits.version}", version)
        assert newest is not None
        assert found is not None
        horizon = int(newest.notes.get(maintenance.VACUUMED, 0))
        if found.version < horizon:
            needed = f"{horizon} or later, because of vacuum"
            if timestamp is not None:
                raise InvalidArgument(function, "timestamp", f"that of commit {needed}", timestamp)
            raise InvalidArgument(function, "version", needed, found.version)
        return Snapshot(self._spark, self._location, commits, found)

    def begin(self) -> Transaction:
        """A transaction from the newest commit."""
        return Transaction(self._spark, self._location, self._commits())

    def atomically(self, work: Callable[[Transaction], Answer]) -> Answer:
        """
        What *work* returns, which is given a transaction from the newest commit, and commits it.

        Where another writer has changed what it goes by, it is done again on what that one left, up
        to 20 times, after a wait that grows and differs from writer to writer.  What *work* raises itself
        ends it, also a conflict in another store.

        Raises:
            ConflictingCommit: Others came between each time.
        """
        for number in range(_TRIES):
            with self.begin() as transaction:
                try:
                    return work(transaction)
                except ConflictingCommit:
                    if number == _TRIES - 1 or not transaction.has_ended:
                        raise
            time.sleep(random.uniform(0, min(5.0, 0.1 * 2**number)))
        raise AssertionError("every round returns or raises")

    def batch(self, batch: str) -> int | None:
        """The digest of a batch that was committed, 0 if none was told; None if there is no such batch."""
        commits = self._commits()
        return None if commits is None else commits.digest(batch)

    def commits(self) -> DataFrame:
        """
        One row per commit: `version`, `timestamp`, `batch`, `digest`, `tables`, `notes`.

        Tables are by name where each lies (`folder`), from which version of its Delta table on it is in this
        state, which commit wrote to it last, its files, its rows and a digest of both.  Batch and digest are
        null where a commit took up no batch.
        """
        commits = self._commits()
        if self._spark is None:
            raise InvalidArgument("Store", "spark", "a session, which makes the table of commits", None)
        rows = [
            (
                one.version,
                one.timestamp,
                one.batch,
                one.digest,
                {name: astuple(named) for name, named in one.tables.items()},
                dict(one.notes),
                dict(one.plans),
            )
            for one in (commits.all() if commits else [])
        ]
        return self._spark.createDataFrame(rows, COMMITS_SCHEMA).drop("plans")

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

    def compact(self, name: str | None = None, *, below: int = SMALL) -> Committed:
        """
        Write the small files of a table, or of all, together: those of one partition as one.

        Args:
            name: The table.
            below: In bytes: how large a file may be and still be a small one.

        Returns:
            The commit; the base's number if there was nothing to do.

        Cost: one job per table, in which each partition's small files are read and written by one task.
        """
        with self.begin() as transaction:
            names = [name] if name is not None else transaction.base.names()
            for each in names:
                transaction.compact(each, below=below)
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
        """
        return maintenance.vacuum(self._spark, self._location, older_than)

    def check(self, *, deep: bool = False) -> None:
        """
        Raise for the first thing that is wrong with the tables of the newest commit.

        Args:
            deep: Whether every file is read, too: each page has a checksum, each file a number of rows.

        Raises:
            DamagedTable: A file is not there, or is not of its size; with *deep*, or cannot be read whole.
            ForeignChange: Another program has changed rows of a table.

        Cost: one listing per table, and no file is opened; with *deep* all are read, by this program.
        """
        maintenance.check(self._location, self.snapshot(), deep=deep)

    def _commits(self) -> Commits | None:
        return load(self._location)
