"""
What is written to the tables of a store together: seen all at once with `commit`, or never.

How a commit goes is told in `commit_protocol.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.workers import Made
from cdckit.store.columns import as_columns, keeps_types, require_partitioning, storable, together
from cdckit.store.commit_protocol import Committed, Landing
from cdckit.store.commits import Commits
from cdckit.store.compaction import SMALL, rows_of, small_files
from cdckit.store.conflicts import Change, Scope, reads_of
from cdckit.store.errors import DamagedTable, NoSuchTable
from cdckit.store.file_reader import read_spark
from cdckit.store.file_writer import Rows, Target, Written, columns_of, target_of, write
from cdckit.store.files import File, Where
from cdckit.store.locations import Location
from cdckit.store.log import Table
from cdckit.store.names import folder_name, stored_names, true_names
from cdckit.store.snapshot import Snapshot, select

SCRATCH = "scratch"


class Transaction:
    """
    Writes to several tables that appear together.

    It begins from the newest commit, its *base*, and sees that and what it has itself written.  Several
    threads may write to different tables at once.

    >>> with store.begin() as tx:  # doctest: +SKIP
    ...     tx.append("log", changes)
    ...     tx.commit(batch="2024-05-01")
    """

    def __init__(self, spark: SparkSession | None, location: Location, commits: Commits | None) -> None:
        self.base = Snapshot(spark, location, commits, commits.commit() if commits else None)
        self._spark, self._location = spark, location
        self._changes: dict[str, Change] = {}
        self._read: set[str] = set()
        self._notes: dict[str, str | None] = {}
        self._scratch: list[str] = []
        self._commits = commits
        self._lock, self._ended, self._failed = RLock(), False, False

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Reading ---------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The names of the tables, sorted."""
        found = set(self.base.names()) | set(self._changes)
        return sorted(name for name in found if self.has(name))

    def has(self, name: str) -> bool:
        """Whether there is a table of that name, one that was written here included."""
        change = self._changes.get(name)
        return self.base.has(name) if change is None else change.after is not None

    def schema(self, name: str) -> T.StructType:
        """The columns of a table, under their true names."""
        return true_names(self._table(name).stored)

    def files(self, name: str, where: Where | None = None) -> list[File]:
        """As `Snapshot.files`, with what was written here; the table counts as read (see `commit`)."""
        self._read.add(name)
        return select(self._table(name), where, "files")

    def read(self, name: str, where: Where | None = None, files: Iterable[File] | None = None) -> DataFrame:
        """As `Snapshot.read`, with what was written here; the table counts as read (see `commit`)."""
        table = self._table(name)
        self._read.add(name)
        return read_spark(self.spark, self._location, table, select(table, where, "read", files), where)

    def note_of(self, key: str) -> str | None:
        """What is noted under a key, here or before; None if nothing is."""
        return self._notes[key] if key in self._notes else self.base.notes.get(key)

    @property
    def spark(self) -> SparkSession:
        """The session that reads."""
        return self.base.spark

    # Writing ---------------------------------------------------------------------------------------------

    def append(
        self,
        name: str,
        *rows: Rows,
        partition_by: Sequence[str] = (),
        digest: bool = False,
        compact_at: int | None = None,
    ) -> Written:
        """
        Write rows to a table, which is made if there is none.

        Args:
            name: The table.
            rows: A DataFrame, what workers make, or an Arrow table of this program; of several, each is
                written.  Columns that the table lacks come to it; the rows it has are null there.
                A number of another type becomes as wide as both need, anything else text
                (`cdckit.parts.widening`): what is there is rewritten then.
            partition_by: For a table that is made: the columns whose values tell its files apart.  A file
                holds rows of one value each, so rows should come in partitions by them, or every
                task writes a file for every value.
            digest: Whether to tell the digest of the rows.
            compact_at: With how many small files a partition to which rows have come is compacted (see
                `compact`); never without it.  A transaction that compacts replaces files, so two that
                do it at once are in conflict, where two that only append are not.

        Returns:
            What was written; with `compact_at`, its files may have been written together with others.

        Raises:
            NotStorable: A column is of a type that Delta tables lack, or cannot be that of the table.

        Cost: one job per source of rows; for a table whose columns change types, one over all of it.
        """
        try:
            for one in rows:
                self._with_columns(name, columns_of(one), tuple(partition_by))
            done = self._write(name, rows, digest)
            if compact_at is not None:
                touched = {tuple(one.partition_texts().items()) for one in done.files}
                self._compact(name, SMALL, max(2, compact_at), touched)
            return done
        except BaseException:
            self._failed = True
            raise

    def replace(
        self, name: str, *rows: Rows, partition_by: Sequence[str] = (), digest: bool = False
    ) -> Written:
        """Write rows as the whole of a table, whatever its columns were before; as `append` for the rest."""
        require_rows(rows, "replace")
        with self._lock:
            change = self._change(name)
            by = tuple(partition_by)
            before = change.after
            if before is not None and (not by or by == _partitioned_by(before)):
                columns = storable(columns_of(rows[0]), name)
                stored = stored_names(columns)
                kept = all(one in stored.fieldNames() for one in before.partition_by)
                after = replace(before, stored=stored, files={}) if kept else None
            else:
                after = None
            self._changes[name] = replace(change, after=after, rewritten=True)
        return self.append(name, *rows, partition_by=by, digest=digest)

    def swap(
        self, name: str, remove: Iterable[File], *rows: Rows, digest: bool = False, same_rows: bool = False
    ) -> Written:
        """
        Write rows in the place of some files of a table.

        Args:
            name: The table.
            remove: Files of `files(name)`.
            rows: As for `append`; none if the files' rows are to go.
            digest: Whether to tell the digest of the rows.
            same_rows: Whether these are the rows that the files had: streams that read the table pass over
                such files then.

        Raises:
            InvalidArgument: One of the files is not the table's.
        """
        with self._lock:
            table = self._table(name)
            gone = self._gone(table, (one.path for one in remove), "swap")
            kept = {path: one for path, one in table.files.items() if path not in gone}
            self._put(name, table.with_files(kept), gone if same_rows else ())
        done = self.append(name, *rows, digest=digest) if rows else Written(())
        if same_rows:
            with self._lock:
                self._put(name, self._table(name), (one.path for one in done.files))
        return done

    def target(self, name: str, columns: T.StructType, partition_by: Sequence[str] = ()) -> Target:
        """
        Where workers may write rows of such columns to a table by themselves; it is made if there is none.

        What the columns do to a table that is there, and what raises, is as for `append`.  What the workers
        wrote counts once `adopt` is told of it.
        """
        try:
            self._with_columns(name, columns, tuple(partition_by))
        except BaseException:
            self._failed = True
            raise
        table = self._table(name)
        self._location.make_folder(table.folder)
        return target_of(self._location, table)

    def adopt(
        self, name: str, add: Iterable[File], remove: Iterable[str] = (), same_rows: Iterable[str] = ()
    ) -> None:
        """
        Let a table have files that workers wrote to its `target`, in the place of others.

        Args:
            name: The table.
            add: The files.
            remove: The paths of files of `files(name)`.
            same_rows: Paths of both which together hold the rows that they held before: streams that read
                the table pass over them.

        Raises:
            InvalidArgument: One of the paths is not that of a file of the table.
        """
        with self._lock:
            table = self._table(name)
            gone = self._gone(table, remove, "adopt")
            kept = {path: one for path, one in table.files.items() if path not in gone}
            self._put(name, table.with_files({**kept, **{one.path: one for one in add}}), same_rows)

    @staticmethod
    def _gone(table: Table, remove: Iterable[str], function: str) -> set[str]:
        gone = set(remove)
        strange = sorted(gone - set(table.files))
        if strange:
            raise InvalidArgument(function, "remove", f"files of the table {table.name!r}", strange[0])
        return gone

    def compact(self, name: str, *, below: int = SMALL, files: int = 2) -> Written:
        """
        Write the small files of a table together, those of one partition as one.

        Args:
            name: The table.
            below: In bytes: how large a file may be and still be a small one.
            files: How many small ones a partition must have at least.
        """
        return self._compact(name, below, files)

    def _compact(self, name: str, below: int, files: int, only: Collection[Any] | None = None) -> Written:
        table, before = self._table(name), self._change(name).before
        done = Written(())
        # What this transaction has written is news to who reads the table as a stream: it stays apart.
        known = set() if before is None else before.files.keys()
        for is_known in (True, False):
            some = {path: one for path, one in table.files.items() if (path in known) == is_known}
            groups = [
                group
                for group in small_files(table.with_files(some), below, files)
                if only is None or tuple(group[0].partition_texts().items()) in only
            ]
            if groups:
                gone = [one for group in groups for one in group]
                rows = rows_of(self.spark, self._location, table, groups)
                done += self.swap(name, gone, rows, same_rows=is_known)
        return done

    def accept(self, name: str) -> None:
        """Let a table be as another program has left its Delta table."""
        before = self._table(name)
        if self.base.bring_up(name) is not None:
            with self._lock:
                theirs = self.base.with_theirs(name)
                self._changes[name] = Change(before, theirs, rewritten=True, over_others=True)

    def renew(self, name: str) -> None:
        """
        Let a table, if there is one, have no rows, whatever others did to it: it is to be made anew.

        One that cannot be read is none then, and gets another folder.
        """
        if not self.has(name):
            return
        with self._lock:
            try:
                before = self._table(name)
                change = Change(before, before.with_files({}))
            except DamagedTable:
                change = Change(None, None)
            self._changes[name] = replace(change, rewritten=True, over_others=True)

    def drop(self, name: str) -> None:
        """Let there be no table of that name; nothing is done if there is none."""
        with self._lock:
            change = self._change(name)
            self._changes[name] = replace(change, after=None, rewritten=True)

    def note(self, key: str, value: str | None) -> None:
        """Note a short text beside the tables; None to forget it."""
        self._notes[key] = value

    def scratch(self, rows: DataFrame | Made) -> DataFrame:
        """Rows computed once and needed again, in files that are deleted when the transaction ends."""
        stored = stored_names(storable(columns_of(rows), SCRATCH))
        written = write(rows, Target(self._location, SCRATCH, stored))
        with self._lock:
            self._scratch += [f"{SCRATCH}/{one.path}" for one in written.files]
        files = {one.path: one for one in written.files}
        return read_spark(
            self.spark, self._location, Table(SCRATCH, SCRATCH, stored, files=files), written.files, None
        )

    def _write(self, name: str, rows: Sequence[Rows], digest: bool) -> Written:
        done = Written((), 0 if digest else None)
        table = self._table(name)
        target = replace(target_of(self._location, table), digest=digest)
        for one in rows:
            done += write(self._fitting(one, table), target)
        with self._lock:
            table = self._table(name)
            self._put(name, table.with_files({**table.files, **{one.path: one for one in done.files}}))
        return done

    def _fitting(self, rows: Rows, table: Table) -> Rows:
        """Rows in the types of the table's columns; columns that they lack are left to who writes them."""
        columns = true_names(table.stored)
        if keeps_types(storable(columns_of(rows), table.name), columns):
            return rows
        if isinstance(rows, Made):
            return as_columns(rows.rows(), columns)
        return as_columns(rows if isinstance(rows, DataFrame) else self.spark.createDataFrame(rows), columns)

    def _with_columns(self, name: str, rows: T.StructType, by: tuple[str, ...]) -> None:
        """Let there be the table, with columns for such rows."""
        with self._lock:
            change = self._change(name)
            columns = storable(rows, name)
            if change.after is None:
                require_partitioning(columns, by, name)
                stored = stored_names(columns)
                dropped = change.before
                if dropped is not None and not by and not dropped.partition_by:
                    self._put(name, replace(dropped, stored=stored, files={}))
                    return
                names = {one.name: two.name for one, two in zip(columns, stored, strict=True)}
                folder = self._free_folder(name)
                self._put(name, Table(name, folder, stored, tuple(names[one] for one in by)))
                return
            table = change.after
            if by and by != _partitioned_by(table):
                found = ", ".join(_partitioned_by(table)) or "nothing"
                raise InvalidArgument("append", "partition_by", f"that of the table, {found}", by)
            before = true_names(table.stored)
            after = together(before, columns, name)
            if after == before:
                return
            widened = replace(table, stored=stored_names(after, table.stored))
            if keeps_types(before, after) or not table.files:
                self._put(name, widened)
                return
            old = read_spark(self.spark, self._location, table, list(table.files.values()), None)
            self._changes[name] = replace(change, after=widened.with_files({}), rewritten=True)
            self._write(name, [as_columns(old, after)], digest=False)

    def _put(self, name: str, table: Table, same_rows: Iterable[str] = ()) -> None:
        change = self._change(name)
        self._changes[name] = replace(change, after=table, same_rows=change.same_rows.union(same_rows))

    def _change(self, name: str) -> Change:
        with self._lock:
            if name in self._changes:
                return self._changes[name]
            before = self.base.table(name) if self.base.has(name) else None
            return Change(before, before)

    def _table(self, name: str) -> Table:
        found = self._change(name).after
        if found is None:
            raise NoSuchTable(name, self.base.version, self.names())
        return found

    def _free_folder(self, name: str) -> str:
        """A folder in which there is no Delta table, and that no table of ours has, whatever its case."""
        commit = self.base.commit
        taken = {one.folder.lower() for one in commit.tables.values()} if commit else set()
        taken |= {one.after.folder.lower() for one in self._changes.values() if one.after}
        plain, number = folder_name(name), 1
        found = plain
        while found.lower() in taken or self._location.has_log(found):
            number += 1
            found = f"{plain}.{number}"
        return found

    # Ending ----------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether a commit was tried, well or not, or it was closed."""
        return self._ended

    def commit(
        self, *, batch: str | None = None, digest: int | None = None, reads: Iterable[Scope] | None = None
    ) -> Committed:
        """
        Let everything that was written be seen, all at once.

        Args:
            batch: The id of the batch that this takes up: of one id, one transaction is committed.
            digest: Of the batch's content, 64 bits with a sign; 0 if it is not told.
            reads:
                What the transaction goes by, and must not have changed since its base: names of tables,
                or pairs of a name and values of columns by which it is partitioned.  Without it, all tables
                that were read with `read`.  Tables that were replaced, dropped or made, and files that were
                removed, must not have changed in any case.

        Returns:
            The number of the commit.  If the batch was committed before, with the same digest, nothing
            is committed and that is said; if nothing was written, the number of the base.

        Raises:
            ConflictingCommit: Others have changed what the transaction goes by: begin again.
            BatchIdReused: The batch id was committed with another digest.
            StoreIsBusy: Others were faster, 30 times.

        After it, or an error of it, the transaction has ended.

        Cost: 20 to 30 ms on a local disk for the commit, and as much for each table that is written.
        """
        if self._ended:
            raise InvalidArgument("commit", "the transaction", "one that has not ended", "ended")
        if self._failed:
            raise InvalidArgument(
                "commit", "the transaction", "one whose writes have all succeeded", "not that"
            )
        changes = {name: one for name, one in self._changes.items() if not one.is_none()}
        scopes = reads_of(self._read if reads is None else reads)
        try:
            landing = Landing(self.base, self._commits, self._read, changes, scopes, self._notes)
            return landing.commit(batch, digest or 0)
        finally:
            self.close()

    def close(self) -> None:
        """End, without committing if that was not done: what was written is garbage, scratch is deleted."""
        self._ended = True
        with self._lock:
            while self._scratch:
                # The transaction has ended, well or not, and `vacuum` deletes what is left here.
                with suppress(OSError):
                    self._location.delete(self._scratch.pop())


def require_rows(rows: Sequence[Rows], function: str) -> None:
    """Raise `InvalidArgument` for no source of rows at all."""
    if not rows:
        raise InvalidArgument(function, "rows", "at least one DataFrame, Made or Arrow table", rows)


def _partitioned_by(table: Table) -> tuple[str, ...]:
    names = {
        one.name: true for one, true in zip(table.stored, true_names(table.stored).fieldNames(), strict=True)
    }
    return tuple(names[one] for one in table.partition_by)
