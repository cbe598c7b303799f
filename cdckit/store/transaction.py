"""
What is written to the tables of a store together: seen all at once with `commit`, or never.

A commit goes in four steps.  What becomes of it when a writer dies or is overtaken is told after them.

1. *Files.*  Workers write files under names that nobody else has, where they stay.  No log names them:
   a writer that dies here leaves garbage that nobody sees, and `Store.vacuum` deletes.
2. *The newest commit is compared* with the one from which the transaction began.  Where others have
   changed what it read or removes, it ends with `ConflictingCommit`.  Each Delta table that it writes is
   looked at: one that lags behind the newest commit is brought up first; one in which another program has
   changed rows ends the transaction with `ForeignChange`, unless it is replaced as a whole.
3. *The commit* is one row in the table of commits, as its version n + 1 if n was the newest one in step 2.
   The row says what is to be done to each Delta table.  Of several writers exactly one can be version
   n + 1; another one goes back to step 2.  Before this step nothing is seen, after it everything.
4. *Each Delta table* that is written gets its commit, as the row says; several of them at once.  So a
   Delta table never says what is not committed, and nothing in it is ever taken back: other programs may
   read it at any moment.

A writer that dies after step 3 has committed.  Delta tables that it did not reach are older states: who
opens the store reads them as the row says, and the next writer to one of them, or `Store.vacuum`, brings it
up.  Several may do that at once, since each commit to a Delta table carries the number of its row.  Whatever
fails in step 4 therefore does not fail the commit.
A batch id is looked up in step 2, each time: two writers with one batch cannot both commit it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from threading import RLock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import quoted
from cdckit.parts.workers import WorkerPlan
from cdckit.store import delta_log, foreign_changes, table_plans, writing
from cdckit.store.columns import (
    as_columns,
    keeps_types,
    require_partitioning,
    storable_columns,
    stored_names,
    true_name,
    true_names,
    unite_columns,
)
from cdckit.store.commits import VACUUMED_UNTIL, Commit, Commits, load_or_begin, next_instant
from cdckit.store.conflicts import Part, Scope, find_conflict, parse_scope
from cdckit.store.delta_log import first_answer
from cdckit.store.errors import BatchIdReused, ConflictingCommit, DamagedTable, NoSuchTable
from cdckit.store.files import File, Table, Target, Where
from cdckit.store.locations import SCRATCH, Location, folder_name
from cdckit.store.reading import hold_few_rows, read_arrow, read_spark
from cdckit.store.snapshot import Snapshot
from cdckit.store.table_plans import Change, CommittedTable, Plan
from cdckit.store.writing import Rows, WriteResult

_FILE_ROWS = "cdckit.file_rows"
"""Before the name of a table: the note that says how many rows one of its files has at most."""

_AT_ONCE = 8
"""So many Delta tables are committed to at once: each waits for its storage most of the time."""


@dataclass(frozen=True)
class CommitResult:
    """
    What `Transaction.commit` did.

    Args:
        version: The commit by which everything is seen.
        repeated: Whether nothing was committed, because the batch was committed before.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         with Store(None, folder).begin() as transaction:
    ...             _ = transaction.append("products", pa.table({"number": [1, 2]}))
    ...             transaction.commit(batch="monday")
    CommitResult(version=1, repeated=False)
    CommitResult(version=1, repeated=True)
    """

    version: int
    repeated: bool = False


class Transaction:
    """
    Writes to several tables that appear together.

    It begins from the newest commit, its *base*, and sees that and what it has itself written.  Several
    threads may write to different tables at once.

    Attributes:
        base: The tables from which it began.
        has_ended: Whether a commit was tried, well or not, or it was closed.

    >>> with store.begin() as tx:  # doctest: +SKIP
    ...     tx.append("log", changes)
    ...     tx.commit(batch="2024-05-01")
    """

    def __init__(
        self,
        spark: SparkSession | None,
        location: Location,
        commits: Commits | None,
        kept: dict[str, delta_log.DeltaLog] | None = None,
    ) -> None:
        self.base = Snapshot(spark, location, commits, commits.commit() if commits else None, kept)
        self._location, self._commits = location, commits
        self._changes: dict[str, Change] = {}
        self._read: set[str] = set()
        self._notes: dict[str, str | None] = {}
        self._scratch: list[str] = []
        self._lock, self._failed, self.has_ended = RLock(), False, False

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Reading ---------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The names of the tables, sorted."""
        return sorted(filter(self.has, {*self.base.names(), *self._changes}))

    def has(self, name: str) -> bool:
        """Tell whether there is a table of that name, one that was written here included."""
        change = self._changes.get(name)
        return self.base.has(name) if change is None else change.after is not None

    def schema(self, name: str) -> T.StructType:
        """The columns of a table, under their true names."""
        return true_names(self._table(name).stored)

    def files(self, name: str, where: Where | None = None) -> list[File]:
        """List files as `Snapshot.files`, and what was written here; the table counts as read (`commit`)."""
        self._read.add(name)
        return self._table(name).select(where, "files")

    def old_and_new_files(self, name: str) -> tuple[list[File], list[File]]:
        """
        List the files of a table whose rows it had before this transaction, and those of the others.

        Where files are written together these stay apart: to who reads the table as a stream they are news.
        """
        change, files = self._change(name), self._table(name).files.values()
        old = {*change.known, *change.same_rows}
        return [file for file in files if file.path in old], [file for file in files if file.path not in old]

    def read(self, name: str, where: Where | None = None, files: Iterable[File] | None = None) -> DataFrame:
        """Read rows as `Snapshot.read`, and what was written here; the table counts as read (`commit`)."""
        table = self._table(name)
        self._read.add(name)
        return read_spark(self.spark, self._location, table, table.select(where, "read", files), where)

    def note_of(self, key: str) -> str | None:
        """Read what is noted under a key, here or before; None if nothing is."""
        return self._notes[key] if key in self._notes else self.base.notes.get(key)

    @property
    def spark(self) -> SparkSession:
        """The session that reads."""
        return self.base.spark

    # Writing ---------------------------------------------------------------------------------------------

    def append(
        self,
        name: str,
        rows: Rows,
        *more: Rows,
        partition_by: Sequence[str] = (),
        compact_at: int | None = None,
    ) -> WriteResult:
        """
        Write rows to a table, which is made if there is none.

        Args:
            name: The table.
            rows: A DataFrame, what workers make, or an Arrow table of this program.  Columns that the
                table lacks come to it; the rows it has are null there.
                A number of another type becomes as wide as both need, anything else text
                (`cdckit.parts.widening`): what is there is rewritten then.
            more: More of them; each is written.
            partition_by: For a table that is made: the columns whose values tell its files apart.  A file
                holds rows of one value each, so rows should come in partitions by them, or every
                task writes a file for every value.
            compact_at: With how many small files a partition to which rows have come is compacted (see
                `compact`); never without it.  A transaction that compacts replaces files, so two that
                do it at once are in conflict, where two that only append are not.

        Raises:
            NotStorable: A column is of a type that no table has, or cannot become that of the table.
            InvalidArgument: *partition_by* names columns that the rows lack, or cannot be that of the table.

        Cost: one job per source of rows; for a table whose columns change types, one over all of it.
        """
        try:
            for some_rows in (rows, *more):
                self._with_columns(name, writing.row_columns(some_rows), tuple(partition_by))
            written = self._write(name, (rows, *more))
            if compact_at is not None:
                touched = {tuple(file.partition_texts().items()) for file in written.files}
                self.compact(name, files=max(2, compact_at), only=touched)
            return written
        except BaseException:
            self._failed = True
            raise

    def replace(self, name: str, rows: Rows, *more: Rows, partition_by: Sequence[str] = ()) -> WriteResult:
        """Write rows as the whole of a table, whatever its columns were before; as `append` for the rest."""
        with self._lock:
            change, by, after = self._change(name), tuple(partition_by), None
            before = change.after
            if before is not None and (not by or by == _partition_names(before)):
                stored = stored_names(storable_columns(writing.row_columns(rows), name), before.stored)
                if set(before.partition_by) <= set(stored.fieldNames()):
                    after = replace(before, stored=stored, files={})
            self._changes[name] = replace(change, after=after, rewritten=True)
        return self.append(name, rows, *more, partition_by=by)

    def swap(self, name: str, remove: Iterable[File], *rows: Rows, same_rows: bool = False) -> WriteResult:
        """
        Write rows in the place of some files of a table.

        Args:
            name: The table.
            remove: Files of `files(name)`.
            rows: As for `append`; none if the files' rows are to go.
            same_rows: Whether these are the rows that the files had: streams that read the table pass over
                such files then.

        Raises:
            InvalidArgument: One of the files is not the table's.
        """
        paths = [file.path for file in remove]
        self.adopt(name, (), paths, paths if same_rows else ())
        written = self.append(name, *rows) if rows else WriteResult()
        if same_rows:
            self.adopt(name, (), (), (file.path for file in written.files))
        return written

    def limit_files(self, name: str, rows: int) -> None:
        """
        Note that a file which is written to a table is to have so many rows at most.

        For a table of which single rows are replaced: the whole file of each is written anew.  Who writes
        through a `target` cuts files as it likes.
        """
        if rows < 1:
            raise InvalidArgument("limit_files", "rows", "1 or more", rows)
        if rows != self._file_rows(name):
            self.note(f"{_FILE_ROWS}:{name}", str(rows))

    def _file_rows(self, name: str) -> int | None:
        number = self.note_of(f"{_FILE_ROWS}:{name}")
        return None if number is None else int(number)

    def target(self, name: str, columns: T.StructType, partition_by: Sequence[str] = ()) -> Target:
        """
        Make a place where workers may write rows of such columns to a table, which is made if there is none.

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
        return Target.from_table(self._location, table)

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
            table, paths = self._table(name), set(remove)
            strange = sorted(paths - table.files.keys())
            if strange:
                raise InvalidArgument("adopt", "remove", f"files of the table {name!r}", strange[0])
            kept = [file for path, file in table.files.items() if path not in paths]
            self._put(name, table.with_files([*kept, *add]), same_rows)

    def compact(
        self, name: str, *, files: int = 2, only: Collection[tuple[tuple[str, str | None], ...]] | None = None
    ) -> WriteResult:
        """
        Write the small files of a table together, those of one partition as one.

        Args:
            name: The table.
            files: How many small ones a partition must have at least.
            only: The partitions that are meant, each by its columns and their values; all without it.

        Cost: a job, in which a task writes each file that is made; none for a thousand rows or fewer.
        """
        table, written, most_rows = self._table(name), WriteResult(), self._file_rows(name)
        rows: list[Rows]
        for some, is_old in zip(self.old_and_new_files(name), (True, False), strict=True):
            small = writing.small_files(table.with_files(some), writing.SMALL_FILE, files, most_rows)
            groups = [
                group for group in small if only is None or tuple(group[0].partition_texts().items()) in only
            ]
            if groups:
                old_files = [file for group in groups for file in group]
                if hold_few_rows(old_files):
                    rows = [read_arrow(self._location, table, group) for group in groups]
                else:
                    rows = [writing.rows_of_groups(self.spark, self._location, table, groups)]
                written += self.swap(name, old_files, *rows, same_rows=is_old)
        return written

    def accept(self, name: str) -> None:
        """Let a table be as another program has left its Delta table."""
        before = self._table(name)
        self.base.require_writable(name)
        if self.base.bring_up(name) is not None:
            accepted = self.base.with_theirs(name)
            with self._lock:
                self._changes[name] = Change(before, accepted, rewritten=True, over_others=True)

    def renew(self, name: str) -> None:
        """
        Let a table, if there is one, have no rows, whatever others did to it: it is to be made anew.

        One that cannot be read is none then, and gets another folder.
        """
        if not self.has(name):
            return
        with self._lock:
            try:
                before: Table | None = self._table(name)
            except DamagedTable:
                before = None
            after = before and before.with_files(())
            self._changes[name] = Change(before, after, rewritten=True, over_others=True)

    def touch(self, name: str) -> None:
        """Let the Delta table of a table, if there is one, get a version of its own by the commit."""
        if self.has(name):
            with self._lock:
                self._changes[name] = replace(self._change(name), touched=True)

    def drop(self, name: str) -> None:
        """Let there be no table of that name; nothing is done if there is none."""
        with self._lock:
            self._changes[name] = replace(self._change(name), after=None, rewritten=True)

    def note(self, key: str, value: str | None) -> None:
        """Note a short text beside the tables; None to forget it."""
        self._notes[key] = value

    def discard(self, name: str, files: Iterable[File]) -> None:
        """Let those files that this transaction wrote, and took out again, be deleted when it ends."""
        table, known_files = self._table(name), self._change(name).known
        paths = [file.path for file in files if file.path not in known_files and file.path not in table.files]
        with self._lock:
            self._scratch += [f"{table.folder}/{path}" for path in paths]

    def scratch(self, rows: DataFrame | WorkerPlan) -> DataFrame:
        """Rows computed once and needed again, in files that are deleted when the transaction ends."""
        return self._scratch_files(rows)[0]

    def scratch_by_null(self, rows: DataFrame, column: str) -> tuple[DataFrame | None, DataFrame | None]:
        """
        Rows as of `scratch`, in two parts: those of which *column* is null, and the others.

        None for a part without rows, which the files tell: no job looks for them.  The column, of a type
        without parts, is the first of both.
        """
        names = [column, *(name for name in rows.columns if name != column)]
        # In the first place, since what is known of files is of their first columns.
        rows_there, files = self._scratch_files(rows.select(*(F.col(quoted(name)) for name in names)))
        nulls = sum(file.nulls[column] for file in files)
        others = sum(file.rows for file in files) - nulls
        is_null = F.col(column).isNull()
        return rows_there.where(is_null) if nulls else None, rows_there.where(~is_null) if others else None

    def _scratch_files(self, rows: DataFrame | WorkerPlan) -> tuple[DataFrame, Sequence[File]]:
        table = Table(SCRATCH, SCRATCH, stored_names(storable_columns(writing.row_columns(rows), SCRATCH)))
        files = writing.write(rows, Target.from_table(self._location, table)).files
        with self._lock:
            self._scratch += [f"{SCRATCH}/{file.path}" for file in files]
        return read_spark(self.spark, self._location, table, files), files

    def _write(self, name: str, rows: Sequence[Rows]) -> WriteResult:
        written, table = WriteResult(), self._table(name)
        for part in rows:
            target = Target.from_table(self._location, table, self._file_rows(name))
            written += writing.write(self._fitting(part, table), target)
        with self._lock:
            self._put(name, (table := self._table(name)).with_files([*table.files.values(), *written.files]))
        return written

    def _fitting(self, rows: Rows, table: Table) -> Rows:
        """Rows in the types of the table's columns; columns that they lack are left to who writes them."""
        columns = true_names(table.stored)
        if keeps_types(storable_columns(writing.row_columns(rows), table.name), columns):
            return rows
        if isinstance(rows, WorkerPlan):
            return as_columns(rows.rows(), columns)
        return as_columns(rows if isinstance(rows, DataFrame) else self.spark.createDataFrame(rows), columns)

    def _with_columns(self, name: str, rows: T.StructType, by: tuple[str, ...]) -> None:
        """Let there be the table, with columns for such rows."""
        with self._lock:
            table, columns = self._change(name).after, storable_columns(rows, name)
            if table is None:
                self._put(name, self._new_table(name, columns, by))
            elif by and by != _partition_names(table):
                partitioning = ", ".join(_partition_names(table)) or "nothing"
                raise InvalidArgument("append", "partition_by", f"that of the table, {partitioning}", by)
            else:
                self._widen(name, table, columns)

    def _new_table(self, name: str, columns: T.StructType, by: tuple[str, ...]) -> Table:
        """A table without rows: the one that was dropped here, if it can have such columns."""
        require_partitioning(columns, by, name)
        dropped = self._change(name).before
        stored = stored_names(columns, None if dropped is None else dropped.stored)
        if dropped is not None and not by and not dropped.partition_by:
            return replace(dropped, stored=stored, files={})
        names = {column.name: two.name for column, two in zip(columns, stored, strict=True)}
        return Table(name, self._free_folder(name), stored, tuple(names[column] for column in by))

    def _widen(self, name: str, table: Table, columns: T.StructType) -> None:
        """Let a table have room for such columns; what is there is written anew where types change."""
        before = true_names(table.stored)
        after = unite_columns(before, columns, name)
        if after == before:
            return
        widened = replace(table, stored=stored_names(after, table.stored))
        if keeps_types(before, after) or not table.files:
            self._put(name, widened)
            return
        old = read_spark(self.spark, self._location, table, list(table.files.values()))
        self._changes[name] = replace(self._change(name), after=widened.with_files(()), rewritten=True)
        self._write(name, [as_columns(old, after)])

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
        table = self._change(name).after
        if table is None:
            raise NoSuchTable(name, self.base.version, self.names())
        return table

    def _free_folder(self, name: str) -> str:
        """A folder in which there is no Delta table, and that no table of ours has, whatever its case."""
        taken = {table.folder.lower() for table in self.base.named.values()}
        taken |= {change.after.folder.lower() for change in self._changes.values() if change.after}
        folder, number = folder_name(name), 1
        while folder.lower() in taken or self._location.has_log(folder):
            number += 1
            folder = f"{folder_name(name)}.{number}"
        return folder

    # Ending ----------------------------------------------------------------------------------------------

    def commit(
        self, *, batch: str | None = None, digest: int | None = None, reads: Iterable[Scope] | None = None
    ) -> CommitResult:
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
            ForeignChange: Another program has changed rows of a table, or asks of its writers what we do not
                keep to.
            StoreIsBusy: Others were faster, 30 times.

        After it, or an error of it, the transaction has ended.

        Cost: 20 to 30 ms on a local disk for the commit, and as much for each table that is written.
        """
        needed = "one that has not ended" if self.has_ended else "one whose writes have all succeeded"
        if self.has_ended or self._failed:
            raise InvalidArgument("commit", "the transaction", needed, "not that")
        scopes = [parse_scope(scope) for scope in (self._read if reads is None else reads)]
        # A table that is made anew goes over what others did, also where there is no row before and after.
        self._changes = {
            name: change
            for name, change in self._changes.items()
            if change.before != change.after
            or ((change.over_others or change.touched) and change.before is not None)
        }
        try:
            return first_answer(self._location.root, partial(self._try_to_land, batch, digest or 0, scopes))
        finally:
            self.close()

    def close(self) -> None:
        """End, without committing if that was not done: what was written is garbage, scratch is deleted."""
        self.has_ended = True
        with self._lock:
            while self._scratch:
                # The transaction has ended, well or not, and `vacuum` deletes what is left here.
                with suppress(OSError):
                    self._location.delete(self._scratch.pop())

    def _try_to_land(self, batch: str | None, digest: int, scopes: Sequence[Part]) -> CommitResult | None:
        """The steps 2 to 4; None if another writer was faster."""
        # It is there before any table is.
        commits = load_or_begin(self._location) if self._commits is None else self._commits.newest()
        self._commits = commits
        if batch is not None and (before := commits.digest(batch)) is not None:
            if before != digest:
                raise BatchIdReused(batch, before, digest)
            return CommitResult(commits.version, repeated=True)
        newest = commits.commit()
        assert newest is not None
        now = self.base.at_commit(newest, commits)
        heads = self._heads(now)
        self._require_no_conflict(now, scopes)
        news = {key for key, value in self._notes.items() if value != self.base.notes.get(key)}
        if not self._changes and not news and batch is None:
            return CommitResult(self.base.version or 0)
        tables = {name: head.state for name, head in heads.items()}
        plans = {name: change.plan(tables.get(name)) for name, change in self._changes.items()}
        for name, head in heads.items():
            if (plan := plans[name]) is not None and plan.base is not None:
                foreign_changes.require_writable(
                    head, plan.after.partition_by, removes_rows=plan.removes_rows
                )
        next_one = self._next(newest, tables, plans)
        if not commits.add(replace(next_one, batch=batch, digest=None if batch is None else digest)):
            return None
        self._carry_out(next_one.version, plans, now)
        now.keep_logs()
        return CommitResult(next_one.version)

    def _heads(self, now: Snapshot) -> dict[str, delta_log.DeltaLog]:
        """The Delta tables that are written, brought to where the newest commit has them."""
        for name in self._read & now.named.keys() - self._changes.keys():
            # What was read would be held against something that others have changed.
            now.require_untouched(name)
        heads = {}
        for name in self._changes.keys() & now.named.keys():
            change = self._changes[name]
            if change.over_others and change.before is None:
                continue  # What cannot be read is made anew elsewhere.
            foreign = now.bring_up(name)
            if foreign is not None and not change.over_others:
                raise foreign
            head = now.log_of(name, now.table(name).folder) if foreign is None else None
            heads[name] = now.head(name) if head is None else head
        return heads

    def _require_no_conflict(self, now: Snapshot, scopes: Sequence[Part]) -> None:
        """
        Raise `ConflictingCommit` where others have changed what the transaction goes by.

        That is: a table that it read, replaced, dropped or made; the part of one that it said it read; a
        file that it removes; the columns of a table that it writes; a note.  Rows that others appended to a
        table to which it only appends are no conflict.
        """

        def conflict(because: str, *names: str) -> ConflictingCommit:
            return ConflictingCommit(names, self.base.version or 0, now.version or 0, because)

        if old := self._vacuumed_tables(now):
            raise conflict("its files may have been deleted by `vacuum`, which keeps younger ones", *old)
        for name in sorted({*self._changes, *(name for name, _ in scopes)}):
            change, parts = self._changes.get(name), [part for table, part in scopes if table == name]
            is_unread = change is None or change.before is None
            if is_unread and self.base.named.get(name) == now.named.get(name):
                continue  # Perhaps it could not be read.
            before, after = (state.table(name) if state.has(name) else None for state in (self.base, now))
            if (because := find_conflict(change, parts, before, after)) is not None:
                raise conflict(because, name)
        for key, value in self._notes.items():
            if now.notes.get(key) not in (value, self.base.notes.get(key)):
                raise conflict(f"it has noted something else as {key!r}")

    def _vacuumed_tables(self, now: Snapshot) -> list[str]:
        """The tables of which files that were written here may have been deleted since the base."""
        until = now.notes.get(VACUUMED_UNTIL)
        if until is None or until == self.base.notes.get(VACUUMED_UNTIL):
            return []
        horizon = datetime.fromisoformat(until.split()[0])
        return [
            name for name, change in self._changes.items() if change.is_older_than(horizon, self._location)
        ]

    def _next(self, newest: Commit, heads: Mapping[str, Table], plans: Mapping[str, Plan | None]) -> Commit:
        number, tables = newest.version + 1, dict(newest.tables)
        for name, plan in plans.items():
            tables.pop(name, None)
            if plan is not None:
                after = plan.onto(None if plan.base is None else heads[name])
                version = 0 if plan.base is None else plan.base + 1
                size = len(after.files), after.rows, after.digest
                tables[name] = CommittedTable(after.folder, version, number, *size)
        notes = {key: value for key, value in {**newest.notes, **self._notes}.items() if value is not None}
        texts = {name: plan.to_json() for name, plan in plans.items() if plan is not None}
        return Commit(number, next_instant(newest.timestamp), tables, notes, texts)

    def _carry_out(self, commit: int, plans: Mapping[str, Plan | None], now: Snapshot) -> None:
        def reach(name: str, plan: Plan) -> None:
            with suppress(Exception):  # The commit has landed: who comes next does what is left.
                table_plans.carry_out(self._location, plan, commit, now.log_of(name, plan.after.folder))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            tried = [pool.submit(reach, name, plan) for name, plan in plans.items() if plan is not None]
        for task in tried:
            task.result()


def _partition_names(table: Table) -> tuple[str, ...]:
    return tuple(true_name(table.stored[name]) for name in table.partition_by)
