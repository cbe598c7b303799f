"""A batch of changes applied to a ledger's tables, within a transaction of its store."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdckit.changes import MOVED
from cdckit.kernel.changes import GUID, Layout
from cdckit.ledger.bucket_upkeep import Kept, upkeep
from cdckit.ledger.columns import (
    BUCKET,
    OPEN,
    UNBORN_SCHEMA,
    fields_of,
    kept_history,
    require_keys_keep_their_texts,
    with_all_priorities,
    words_columns,
    words_of,
)
from cdckit.ledger.kinds import Kind
from cdckit.ledger.tasks import FOLD, Book, Held, Paths, Task
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import Made
from cdckit.store import File, Transaction
from cdckit.store.columns import keeps_types, true_names
from cdckit.store.files import Target
from cdckit.store.transaction import Scope
from cdckit.store.writing import reported

_REPORT = T.StructType().add("report", T.StringType())
_BYTES_PER_TASK = 8 << 20
"""How much a task should have to read and write, so that it is worth starting."""

_FEW = 8
"""Fewer tasks than these are not worth counting: as many then as the session has cores."""


@dataclass(frozen=True)
class Applied:
    """
    What `Ledger.apply` did.

    Args:
        version: The commit by which it is seen.
        news: How many of the changes the log did not have.
        repeated: Whether nothing was done, because the batch had been applied before.

    >>> said = Applied(version=7, news=0)
    >>> "repeated" if said.repeated else f"{said.news} changes were news, seen from commit {said.version} on"
    '0 changes were news, seen from commit 7 on'
    """

    version: int
    news: int
    repeated: bool = False


@dataclass(frozen=True)
class Tables:
    """Where the tables of a ledger are, made fit for the changes that come."""

    book: Book
    anew: bool
    """Whether a field has got another type, so that every version is merged again."""


def tables(transaction: Transaction, kind: Kind, log: T.StructType, *, anew: bool = False) -> Tables:
    """
    Let the tables be there, with columns for changes of the columns *log*; empty ones beside it with *anew*.

    Raises:
        WrongColumnType: A key field is of another type than before, and not a wider number.
        NotStorable: A field is of a type that no table has.
    """
    before = transaction.schema(kind.changes) if transaction.has(kind.changes) else None
    if before is not None:
        require_keys_keep_their_texts(fields_of(before), fields_of(log), kind)
    to_log = transaction.target(kind.changes, log, [BUCKET])
    found = true_names(to_log.stored)
    if MOVED in found.fieldNames():
        to_log = transaction.target(kind.changes, with_all_priorities(found), [BUCKET])
        found = true_names(to_log.stored)
    anew = anew or (before is not None and not keeps_types(before, found))
    history = kept_history(fields_of(found))
    if anew:
        for name, columns, by in (
            (kind.history, history, [BUCKET, OPEN]),
            (kind.unborn, UNBORN_SCHEMA, [BUCKET]),
        ):
            empty = pa.Table.from_batches([], arrow_schema(columns, large=True))
            transaction.replace(name, empty, partition_by=by)
    words = words_columns(found) if MOVED in found.fieldNames() else None
    if words is not None and anew and transaction.has(kind.words):
        transaction.drop(kind.words)
    book = Book(
        log=to_log,
        history=transaction.target(kind.history, history, [BUCKET, OPEN]),
        unborn=transaction.target(kind.unborn, UNBORN_SCHEMA, [BUCKET]),
        layout=_layout(kind, found),
        words=None if words is None else transaction.target(kind.words, words, [BUCKET]),
    )
    return Tables(book, anew)


def _layout(kind: Kind, log: T.StructType) -> Layout:
    names = fields_of(log).fieldNames()
    stated: list[str] = []
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


def bring_up(
    transaction: Transaction,
    kind: Kind,
    book: Book,
    fresh: Collection[File],
    *,
    anew: bool,
    fold: int = FOLD,
    only: Collection[int] | None = None,
) -> tuple[int, list[int]]:
    """
    Bring the tables to where they are with the changes in *fresh* files: one job.

    Args:
        transaction: In which this is done.
        kind: What the ledger is about.
        book: The tables.
        fresh: Files of the log that no commit names yet.
        anew: Whether all entities of all buckets are merged again, or of those in *only*.
        fold: From how many small files on those of a bucket are written as one; of all buckets, if it
            is fewer than `FOLD`.
        only: With *anew*: the buckets that are meant.

    Returns:
        How many of the changes were news, and the buckets that were touched.
    """
    work = _tasks(transaction, kind, fresh, anew, fold)
    if only is not None:
        work = [task for task in work if task.bucket in only]
    kept = _adopted(transaction, kind, book, work, fresh)
    if any(one.moved for one in kept):
        _take_along(transaction, kind, book)
        # What a row takes along any bucket may have said.
        return sum(one.taken for one in kept), list(range(kind.buckets))
    return sum(one.taken for one in kept), [task.bucket for task in work]


def _take_along(transaction: Transaction, kind: Kind, book: Book) -> None:
    """Let rows take along to their new keys what the log says by now."""
    before = transaction.files(kind.words)
    words = words_of(transaction.read(kind.changes), kind)
    transaction.swap(kind.words, before, words.repartition(BUCKET))
    was = _by_bucket(before)
    buckets = {*was, *_by_bucket(transaction.files(kind.words))}
    tasks = _tasks(transaction, kind, [], True, FOLD)
    work = [
        replace(task, anew=False, words_before=was.get(task.bucket, []))
        for task in tasks
        if task.bucket in buckets
    ]
    _adopted(transaction, kind, book, work, [])


def _adopted(
    transaction: Transaction, kind: Kind, book: Book, work: list[Task], fresh: Collection[File]
) -> list[Kept]:
    """Let the workers do it, and the tables have what they wrote."""
    kept = _done(transaction.spark, work, book)
    by_path = {one.path: one for one in fresh}
    names = {"log": kind.changes, "history": kind.history, "unborn": kind.unborn}
    targets: dict[str, Target] = {"log": book.log, "history": book.history, "unborn": book.unborn}
    for short, name in names.items():
        added = reported((each for one in kept for each in one.added[short]), targets[short])
        if short == "log":
            added += [by_path[path] for one in kept for path in one.keep]
        removed = [path for one in kept for path in one.removed[short]]
        # Of the log only files go whose rows are in another one then.
        same_rows = [*removed, *(path for one in kept for path in one.folded)] if short == "log" else []
        if added or removed:
            transaction.adopt(name, added, removed, same_rows)
    return kept


def reads(kind: Kind, buckets: list[int]) -> list[Scope]:
    """What an upkeep of these buckets must find as it was."""
    return [(name, {BUCKET: buckets}) for name in (kind.changes, kind.history, kind.unborn)]


def _tasks(transaction: Transaction, kind: Kind, fresh: Iterable[File], anew: bool, fold: int) -> list[Task]:
    news = _by_bucket(fresh)
    log = _by_bucket(transaction.files(kind.changes))
    versions = transaction.files(kind.history)
    open_ = _by_bucket(one for one in versions if one.partition[OPEN])
    closed = _by_bucket(one for one in versions if not one.partition[OPEN])
    unborn = _by_bucket(transaction.files(kind.unborn))
    words = _by_bucket(transaction.files(kind.words)) if transaction.has(kind.words) else {}
    buckets = {*news, *log, *open_, *closed, *unborn} if anew else set(news)
    if fold < FOLD:
        buckets |= set(closed)
    return [
        Task(
            bucket=each,
            fresh=news.get(each, []),
            log=log.get(each, []),
            open=open_.get(each, []),
            closed=closed.get(each, []),
            unborn=unborn.get(each, []),
            words=words.get(each, []),
            anew=anew,
            fold=fold,
        )
        for each in sorted(buckets)
    ]


def _by_bucket(files: Iterable[File]) -> dict[int, Paths]:
    found: dict[int, Paths] = {}
    for one in files:
        low, high = one.low.get(GUID), one.high.get(GUID)
        held = Held(one.path, one.size, one.rows, (low or "").encode(), high and high.encode())
        found.setdefault(int(one.partition[BUCKET]), []).append(held)
    return found


def _done(spark: SparkSession, work: list[Task], book: Book) -> list[Kept]:
    """Let the workers do it, each some of the buckets."""
    if not work:
        return []
    parts = sum(_bytes(task) for task in work) // _BYTES_PER_TASK
    few = parts < _FEW
    spread = spark.range(len(work)) if few else spark.range(0, len(work), 1, min(parts, len(work)))
    made = Made(spread, partial(_upkeep, work=work, book=book), _REPORT)
    return [Kept(**json.loads(row["report"])) for row in made.rows().collect()]


def _bytes(task: Task) -> int:
    """About how much a task reads and writes: of the log a column alone, if the bucket is not merged anew."""
    parts = [task.fresh, task.open, task.unborn, *([task.log, task.closed] if task.anew else [])]
    return sum(one.size for part in parts for one in part)


def _upkeep(batches: Iterable[pa.RecordBatch], work: list[Task], book: Book) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            kept: dict[str, Any] = upkeep(work[number], book)._asdict()
            yield pa.record_batch({"report": pa.array([json.dumps(kept)])})
