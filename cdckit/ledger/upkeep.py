"""
The way of changes through a ledger's tables, within a transaction of its store.

`Upkeep` makes the tables fit for changes of their columns; `take` writes the changes into files of the log,
which no commit names yet; `run` lets a worker for each bucket merge what these files touch, and gives the
tables what the workers wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.bucket import Outcome, keep_up_bucket
from cdckit.ledger.columns import (
    BUCKET,
    CONTENT,
    EVERY,
    LEDGER_REJECT_SCHEMA,
    LISTED,
    OPEN,
    UNBORN_SCHEMA,
    log_columns,
    log_fields,
    stored_history_columns,
    with_all_priorities,
    words_columns,
)
from cdckit.ledger.flat_rows import flatten_structs, nest_structs
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import inherited_words, require_keys_keep_their_texts, to_log_rows
from cdckit.ledger.tasks import FOLD, FileRange, Paths, Targets, Task, select_rows, with_columns
from cdckit.ledger.tombstones import REFUSED_SCHEMA, VERDICT, refused_rows, with_verdicts
from cdckit.merging.arrow_changes import GUID, SNAPSHOT, Layout
from cdckit.model.changes import IS_PERIOD, MOVED, TRUNCATE, UNTIL, has_mark, with_empty_as
from cdckit.model.records import REJECT, usable_changes
from cdckit.parts.arrays import bools, ints
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.values import guid
from cdckit.parts.widening import void_as_text
from cdckit.parts.workers import reports_at_home, worker_reports
from cdckit.query.provenance import Messages, revoke
from cdckit.store import File, Transaction
from cdckit.store.columns import as_columns, keeps_types, true_names
from cdckit.store.files import Target, to_signed
from cdckit.store.transaction import Scope
from cdckit.store.writing import OpenFiles, parse_report

BYTES_PER_TASK = 8 << 20
"""How much a task should have to read and write, so that it is worth starting."""

_LOG = logging.getLogger(__name__)

AT_HOME, BYTES_AT_HOME = 4, 64 << 20
"""So many buckets at most, with so many bytes of files, are kept up at home: late changes have a log read."""

_FEW = 8
"""Fewer tasks than these are not worth counting: as many then as the session has cores."""


@dataclass(frozen=True)
class ApplyResult:
    """
    What `Ledger.apply` did.

    Args:
        version: The commit by which it is seen.
        news: How many of the changes the log did not have.
        repeated: Whether nothing was done, because the batch had been applied before.
        deleted: Of lists, how many entities they lack that the lists before them named.
        rejects: How many rows of the batch were no changes, since they could not be used (`Ledger.rejects`).

    >>> result = ApplyResult(version=7, news=0)
    >>> "repeated" if result.repeated else f"{result.news} changes were news, as of commit {result.version}"
    '0 changes were news, as of commit 7'
    """

    version: int
    news: int
    repeated: bool = False
    deleted: int = 0
    rejects: int = 0


class LoggedChanges(NamedTuple):
    """
    Changes that were written into the log.

    Args:
        files: Each holds changes of one bucket.
        digest: Of the batch: the sum over its rows, whatever their order.
        lists: Of which full lists there are changes: the source and the instant of each.
        refused: Files of the table of changes that were refused.
        rejects: Files of the table of rejects.
    """

    files: list[File]
    digest: int
    lists: list[tuple[str | None, int]]
    refused: list[File]
    rejects: list[File]


class Upkeep:
    """
    The tables of a ledger within a transaction, made fit for changes of the columns *log*.

    With *anew* the history, and what else derives from the log, is empty beside it.

    Attributes:
        anew: Whether every version is merged again: so it is where a field has got another type, too.
        targets: The tables, as workers know them.

    Raises:
        WrongColumnType: A key field is of another type than before, and not a wider number.
        NotStorable: A field is of a type that no table has.
    """

    def __init__(
        self, transaction: Transaction, kind: Kind, log: T.StructType, *, anew: bool = False
    ) -> None:
        self._tables, log = transaction, log_columns(log)
        self.anew = _settle_types(transaction, kind, log) or anew
        self._kind = kind = kind.with_empty_of(transaction, log)
        before = transaction.schema(kind.changes) if transaction.has(kind.changes) else None
        if before is not None:
            require_keys_keep_their_texts(log_fields(before), log_fields(log), kind)
        to_log = transaction.target(kind.changes, log, [BUCKET])
        has_moves = MOVED in true_names(to_log.stored).fieldNames()
        if has_moves:
            more = with_all_priorities(true_names(to_log.stored))
            to_log = transaction.target(kind.changes, more, [BUCKET])
        columns = true_names(to_log.stored)
        self.anew |= before is not None and not keeps_types(before, columns)
        history = stored_history_columns(log_fields(columns))
        if self.anew:
            for name, of, by in (
                (kind.history, history, [BUCKET, OPEN]),
                (kind.unborn, UNBORN_SCHEMA, [BUCKET]),
            ):
                empty = pa.Table.from_batches([], arrow_schema(of, large=True))
                transaction.replace(name, empty, partition_by=by)
            if transaction.has(kind.words):
                transaction.drop(kind.words)
        self.targets = Targets(
            log=to_log,
            history=transaction.target(kind.history, history, [BUCKET, OPEN]),
            unborn=transaction.target(kind.unborn, UNBORN_SCHEMA, [BUCKET]),
            layout=_layout(kind, columns),
            words=transaction.target(kind.words, words_columns(columns), [BUCKET]) if has_moves else None,
            periods=has_mark(log, UNTIL, IS_PERIOD),
        )
        kind.note(transaction)

    def take(self, rows: DataFrame) -> LoggedChanges:
        """Let workers write rows of `columns.logged`, a file for each bucket; one job, of many a shuffle."""
        columns = true_names(self.targets.log.stored)
        has_rejects = REJECT in rows.columns
        beside = [CONTENT, LISTED, *([REJECT] if has_rejects else [])]
        wanted = T.StructType([*columns, *(rows.schema[name] for name in beside)])
        if not _has_types(rows.schema, wanted):
            rows = as_columns(rows, wanted)
        rows = with_verdicts(rows, self._tables, self._kind)
        kind, tables = self._kind, self._tables
        aside = _Aside(
            tables.target(kind.refused, REFUSED_SCHEMA) if VERDICT in rows.columns else None,
            tables.target(kind.rejects, LEDGER_REJECT_SCHEMA) if has_rejects else None,
        )
        log = self.targets.log
        write = partial(_write, columns=rows.schema, buckets=kind.buckets, target=log, aside=aside)
        # However many partitions they come in: a file for each of those and bucket would be thousands.
        reports = worker_reports(flatten_structs(rows), write, large=True, by=[BUCKET])

        def files(name: str, target: Target | None) -> list[File]:
            return (
                []
                if target is None
                else parse_report((file for report in reports for file in report[name]), target)
            )

        lists = sorted({(source, at) for report in reports for source, at in report["lists"]}, key=str)
        content = to_signed(sum(report["content"] for report in reports))
        asides = files("refused", aside.refused), files("rejects", aside.rejects)
        if has_rejects and not asides[1] and not tables.base.has(kind.rejects):
            tables.drop(kind.rejects)
        return LoggedChanges(files("files", log), content, lists, *asides)

    def keep_aside(self, taken: LoggedChanges) -> None:
        """Let the tables of refused changes and of rejects have what `take` has written to them."""
        for name, files in ((self._kind.refused, taken.refused), (self._kind.rejects, taken.rejects)):
            if files:
                self._tables.adopt(name, files)

    def run(
        self, fresh: Collection[File] = (), *, again: Collection[int] = (), fold: int = FOLD
    ) -> tuple[int, list[int]]:
        """
        Bring the tables to where they are with the changes in *fresh* files of the log: one job.

        Args:
            fresh: What `take` wrote.
            again: Buckets of which all entities are merged again.
            fold: From how many small files on those of a bucket are written as one; of all buckets, if it
                is fewer than `FOLD`.

        Returns:
            How many of the changes were news, and the buckets that were touched.
        """
        tasks = self._tasks(fresh, again, fold)
        outcomes = self._run_workers(tasks, fresh)
        news = sum(outcome.news for outcome in outcomes)
        _warn_of_ties([outcome.ties for outcome in outcomes if outcome.ties])
        if not any(outcome.moved for outcome in outcomes):
            return news, [task.bucket for task in tasks]
        self._inherit_words()
        # What a row takes along any bucket may have said.
        return news, list(range(self._kind.buckets))

    def _inherit_words(self) -> None:
        """Let rows take along to their new keys what the log says by now."""
        tables, kind = self._tables, self._kind
        before = tables.files(kind.words)
        tables.swap(kind.words, before, inherited_words(tables.read(kind.changes), kind).repartition(BUCKET))
        was, now, files = (
            _group_by_bucket(before),
            _group_by_bucket(tables.files(kind.words)),
            self.bucket_tasks(),
        )
        buckets = sorted({*was, *now})
        self._run_workers(
            [replace(_task(files, bucket), words_before=was.get(bucket, [])) for bucket in buckets], []
        )

    def bucket_tasks(self) -> dict[int, Task]:
        """The buckets, with the files that there are of each."""
        kind, versions = self._kind, self._tables.files(self._kind.history)
        words = self._tables.files(kind.words) if self._tables.has(kind.words) else []
        parts = {
            "log": self._tables.files(kind.changes),
            "open": [file for file in versions if file.partition[OPEN]],
            "closed": [file for file in versions if not file.partition[OPEN]],
            "unborn": self._tables.files(kind.unborn),
            "words": words,
        }
        tasks: dict[int, Task] = {}
        for part, files in parts.items():
            for bucket, paths in _group_by_bucket(files).items():
                more: dict[str, Any] = {part: paths}
                tasks[bucket] = replace(_task(tasks, bucket), **more)
        return tasks

    def _tasks(self, fresh: Iterable[File], again: Collection[int], fold: int) -> list[Task]:
        files, news = self.bucket_tasks(), _group_by_bucket(fresh)
        buckets = {*news, *again}
        if self.anew:
            buckets |= files.keys()
        elif fold < FOLD:
            buckets |= {bucket for bucket, task in files.items() if task.closed}
        return [
            replace(
                _task(files, bucket),
                fresh=news.get(bucket, []),
                anew=self.anew or bucket in again,
                fold=fold,
            )
            for bucket in sorted(buckets)
        ]

    def _run_workers(self, tasks: list[Task], fresh: Collection[File]) -> list[Outcome]:
        """Let the workers do it, and the tables have what they wrote."""
        outcomes, kind, targets = (
            _run_tasks(self._tables.spark, tasks, self.targets),
            self._kind,
            self.targets,
        )
        by_path = {file.path: file for file in fresh}
        for part, name, target in (
            ("log", kind.changes, targets.log),
            ("history", kind.history, targets.history),
            ("unborn", kind.unborn, targets.unborn),
        ):
            added = parse_report((file for outcome in outcomes for file in outcome.added[part]), target)
            removed = [path for outcome in outcomes for path in outcome.removed[part]]
            same_rows: list[str] = []
            if part == "log":
                added += [by_path[path] for outcome in outcomes for path in outcome.keep]
                # Of the log only files go whose rows are in another one then.
                same_rows = [*removed, *(path for outcome in outcomes for path in outcome.folded)]
            if added or removed:
                self._tables.adopt(name, added, removed, same_rows)
        return outcomes


def read_scopes(kind: Kind, buckets: list[int]) -> list[Scope]:
    """List what an upkeep of these buckets must find as it was."""
    parts: list[Scope] = [(name, {BUCKET: buckets}) for name in (kind.changes, kind.history, kind.unborn)]
    # Who was erased meanwhile must not come back.
    return [*parts, kind.erased]


def apply_within(transaction: Transaction, kind: Kind, changes: DataFrame) -> list[Scope]:
    """
    Do what `Ledger.apply` does, without a commit, for doors; returns what the commit must find as it was.

    A ledger that is there keeps its number of buckets; rejects are kept by the shell.  Raises as
    `Ledger.apply`.
    """
    kind = kind.with_buckets_of(transaction)
    rows = to_log_rows(usable_changes(changes), kind)
    kind, rows = kind.for_fields(transaction, rows.schema).fit(transaction, rows)
    work = Upkeep(transaction, kind, rows.schema)
    taken = work.take(rows)
    work.keep_aside(taken)
    _, buckets = work.run(taken.files)
    return read_scopes(kind, buckets)


def withdraw_within(transaction: Transaction, kind: Kind, messages: DataFrame) -> list[Scope]:
    """
    Take changes out of a ledger, as if they never had been applied; returns what `apply_within` returns.

    *messages* has a row for each: the key fields of its entity, and `message_id`; what the ledger does not
    have is passed over.

    Cost: the buckets of these entities are written anew, log and history; the other ones are not read.
    """
    kind = kind.with_buckets_of(transaction)
    if not transaction.has(kind.changes):
        return []
    key = {name: F.col(name) for name in kind.keys}
    withdrawn = messages.select(guid(kind.entity, key).alias(GUID), "message_id")
    buckets = remove_changes(transaction, kind, withdrawn)
    Upkeep(transaction, kind, transaction.schema(kind.changes)).run(again=buckets)
    return read_scopes(kind, buckets)


def remove_changes(transaction: Transaction, kind: Kind, messages: DataFrame) -> list[int]:
    """
    Take changes out of the log alone; returns the buckets that are to be made anew.

    *messages* has a row for each: the `guid` of its entity, and `message_id`.
    """
    withdrawn = messages.distinct()
    buckets = [row[0] for row in withdrawn.select(kind.bucket_column(F.col(GUID))).distinct().collect()]
    if buckets:
        where = {BUCKET: buckets}
        log = transaction.read(kind.changes, where)
        left = log.join(withdrawn, [GUID, "message_id"], "left_anti").select(*log.columns)
        transaction.swap(kind.changes, transaction.files(kind.changes, where), left.repartition(BUCKET))
    return buckets


def revoke_within(transaction: Transaction, kind: Kind, messages: Messages, source: str | None) -> list[int]:
    """
    Take messages out of a ledger, as if they had never come; returns the buckets that were touched.

    Raises as `cdckit.query.revoke`.
    """
    log = transaction.read(kind.changes)
    # A bucket is touched if it has more rows in the log than in what is left of it.
    sides = (
        log.withColumn("rows", F.lit(1)),
        revoke(log, messages, source=source).withColumn("rows", F.lit(-1)),
    )
    counted = reduce(DataFrame.unionAll, (side.select(BUCKET, "rows") for side in sides)).groupBy(BUCKET)
    buckets = [row[BUCKET] for row in counted.agg(F.sum("rows").alias("gone")).where("gone > 0").collect()]
    if buckets:
        where = {BUCKET: buckets}
        left = revoke(transaction.read(kind.changes, where), messages, source=source)
        transaction.swap(kind.changes, transaction.files(kind.changes, where), left.repartition(BUCKET))
        # What rows took along when their keys changed, any bucket may have said.
        upkeep = Upkeep(transaction, kind, log.schema, anew=MOVED in log.columns)
        _, buckets = upkeep.run(again=buckets)
    return buckets


def _settle_types(transaction: Transaction, kind: Kind, log: T.StructType) -> bool:
    """Let fields of the log have the types of the first values that come; whether any has another then."""
    types = kind.fields(transaction)
    kinds = {name: void_as_text(type_) for name, type_ in kind.settled(log).items()}
    others = {name: now for name, now in kinds.items() if now != types[name].dataType}
    if others:
        rows = with_empty_as(transaction.read(kind.changes), others)
        transaction.replace(kind.changes, rows, partition_by=[BUCKET])
    return bool(others)


def _layout(kind: Kind, log: T.StructType) -> Layout:
    names, stated = log_fields(log).fieldNames(), []
    if "field_priorities" in log.fieldNames():
        priorities = log["field_priorities"].dataType
        assert isinstance(priorities, T.StructType)
        stated = priorities.fieldNames()
    return Layout(
        fields=tuple(names),
        keys=tuple(names.index(key) for key in kind.keys),
        field_priorities=frozenset(names.index(name) for name in stated),
        by_guid=bool(kind.by_guid),
        entity=None,
        has_guid=True,
    )


def _task(files: Mapping[int, Task], bucket: int) -> Task:
    return files.get(bucket) or Task(bucket)


def _group_by_bucket(files: Iterable[File]) -> dict[int, Paths]:
    ranges: dict[int, Paths] = {}
    for file in files:
        low, high = file.low.get(GUID), file.high.get(GUID)
        first, last = file.low.get("message_id"), file.high.get("message_id")
        # What another program wrote may tell one of the two alone.
        messages = None if first is None or last is None else (first, last)
        ends = (low or "").encode(), high and high.encode()
        file_range = FileRange(file.path, file.size, file.rows, *ends, messages)
        ranges.setdefault(int(file.partition[BUCKET]), []).append(file_range)
    return ranges


def _warn_of_ties(ties: list[list[str]]) -> None:
    """Log a warning where nothing says which of two rows counts."""
    if ties:
        sentence = (
            "apply(): rows of one entity, source, time and sequence, where nothing says which one counts, "
            "such as the messages %s: let sequence_by= of changes_from name what tells them apart"
        )
        _LOG.warning(sentence, " and ".join(ties[0]))


def _has_types(rows: T.DataType, columns: T.DataType) -> bool:
    """Tell whether the rows need no cast; fields that they lack, they lack."""
    if isinstance(rows, T.StructType) and isinstance(columns, T.StructType):
        wanted = {field.name: field.dataType for field in columns}
        return all(field.name in wanted and _has_types(field.dataType, wanted[field.name]) for field in rows)
    given, other = (arrow_schema(T.StructType().add("x", kind)).field(0).type for kind in (rows, columns))
    return bool(given == other)


# In the workers --------------------------------------------------------------------------------------------


def _run_tasks(spark: SparkSession, tasks: list[Task], targets: Targets) -> list[Outcome]:
    """Let the workers do it, each some of the buckets."""
    if not tasks:
        return []
    if len(tasks) <= AT_HOME and sum(map(stored_bytes, tasks)) <= BYTES_AT_HOME:
        return [Outcome(**report) for report in reports_at_home(lambda: _keep_up(tasks, targets))]
    parts = sum(task_bytes(task) for task in tasks) // BYTES_PER_TASK
    many = len(tasks)
    spread = spark.range(many) if parts < _FEW else spark.range(0, many, 1, min(parts, many))
    reports = worker_reports(spread, partial(_keep_up_buckets, tasks=tasks, targets=targets), heavy=True)
    return [Outcome(**report) for report in reports]


def task_bytes(task: Task) -> int:
    """About how much a task reads and writes: of the log a column alone, if the bucket is not merged anew."""
    parts = [task.fresh, task.open, task.unborn, *([task.log, task.closed] if task.anew else [])]
    return sum(file.size for part in parts for file in part)


def stored_bytes(task: Task) -> int:
    """The bytes of all files of a bucket: the most that is read and written again."""
    parts = (task.fresh, task.log, task.open, task.closed, task.unborn, task.words)
    return sum(file.size for part in parts for file in part)


def _keep_up_buckets(
    batches: Iterable[pa.RecordBatch], tasks: list[Task], targets: Targets
) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from _keep_up((tasks[number] for number in batch.column(0).to_pylist()), targets)


def _keep_up(tasks: Iterable[Task], targets: Targets) -> Iterator[dict[str, Any]]:
    return (keep_up_bucket(task, targets)._asdict() for task in tasks)


class _Aside(NamedTuple):
    """Where rows go that are not logged; None where there are no such ones."""

    refused: Target | None
    rejects: Target | None


def _write(
    batches: Iterable[pa.RecordBatch],
    columns: T.StructType,
    buckets: int,
    target: Target,
    aside: _Aside,
) -> Iterator[dict[str, Any]]:
    content, lists = 0, set[tuple[str | None, int]]()
    with ExitStack() as stack:
        files, refused, rejects = (
            None if table is None else stack.enter_context(OpenFiles(table)) for table in (target, *aside)
        )
        assert files is not None
        for batch in (nest_structs(flat, columns) for flat in batches):
            content += int(ints(batch.column(CONTENT)).sum(dtype=np.int64))
            lists |= _named_lists(batch)
            if refused is not None:
                refused.take(refused_rows(batch))
                batch = batch.filter(batch.column(VERDICT).is_null())
            if rejects is not None:
                rejects.take(_reject_rows(batch))
                batch = batch.filter(batch.column(REJECT).is_null())
            for rows in _copy_truncates(batch, buckets):
                files.take(rows)
        names = {"files": files, "refused": refused, "rejects": rejects}
        written = {
            name: [] if open_files is None else open_files.close() for name, open_files in names.items()
        }
    yield {**written, "content": content, "lists": list(lists)}


def _reject_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rejects among changes, in the columns of `LEDGER_REJECT_SCHEMA`."""
    some = batch.filter(batch.column(REJECT).is_valid())
    reject = some.column(REJECT)
    parts = {field.name: reject.field(field.name) for field in reject.type}
    return pa.RecordBatch.from_pydict({**parts, "source": some.column("source")})


def _copy_truncates(changes: pa.RecordBatch, buckets: int) -> Iterator[pa.RecordBatch]:
    """The changes, of each truncate a copy for every bucket."""
    is_truncate = bools(pc.equal(changes.column("operation"), TRUNCATE))
    if not (SNAPSHOT in changes.schema.names and is_truncate.any()):
        yield changes
        return
    yield select_rows(changes, ~is_truncate)
    some = select_rows(changes, is_truncate)
    every = pa.array([EVERY] * some.num_rows, changes.schema.field(GUID).type)
    for bucket in range(buckets):
        bucket_column = pa.array([bucket] * some.num_rows, changes.schema.field(BUCKET).type)
        yield with_columns(some, {GUID: every, BUCKET: bucket_column})


def _named_lists(batch: pa.RecordBatch) -> set[tuple[str | None, int]]:
    """The source and the instant of each list of which there are changes."""
    at = batch.column(LISTED)
    if at.null_count == len(at):
        return set()
    some = pa.table({"source": batch.column("source"), "at": at}).filter(at.is_valid())
    rows = some.group_by(["source", "at"]).aggregate([]).to_pylist()
    return {(row["source"], row["at"]) for row in rows}
