"""
New files of a ledger's log are merged into its history, within a transaction of its store.

`begin_upkeep` makes the tables fit for changes of their columns; `Upkeep.run` lets a worker for each bucket
merge what the files touch, and gives the tables what the workers wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdckit.ledger.buckets.bucket_upkeep import Outcome, keep_up_bucket
from cdckit.ledger.buckets.tasks import FOLD, UPKEPT, FileRange, Paths, Targets, Task
from cdckit.ledger.columns import (
    BUCKET,
    OPEN,
    UNBORN_SCHEMA,
    log_columns,
    log_fields,
    stored_history_columns,
    with_all_priorities,
    words_columns,
)
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import inherited_words, require_keys_keep_their_texts
from cdckit.merging.arrow_changes import GUID, Layout
from cdckit.model.changes import IS_PERIOD, MOVED, UNTIL, has_mark, with_empty_as
from cdckit.parts import at_home
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import reports_at_home, worker_reports
from cdckit.store import File, Transaction
from cdckit.store.columns import keeps_types, true_names
from cdckit.store.conflicts import Scope
from cdckit.store.writing import parse_report

BYTES_PER_TASK = 8 << 20
"""How much a task should have to read and write, so that it is worth starting."""

_LOG = logging.getLogger(__name__)


_LEAST_TASKS = 8
"""Fewer tasks than these are not worth counting: as many then as the session has cores."""


class Upkeep:
    """
    The tables of a ledger within a transaction, fit for some changes (`begin_upkeep`).

    Attributes:
        anew: Whether every version is merged again.
        targets: The tables, as workers know them.
    """

    def __init__(self, transaction: Transaction, kind: Kind, targets: Targets, *, anew: bool) -> None:
        self._tables, self._kind, self.targets, self.anew = transaction, kind, targets, anew

    def run(
        self, fresh: Collection[File] = (), *, again: Collection[int] = (), fold: int = FOLD
    ) -> tuple[int, list[int]]:
        """
        Bring the tables to where they are with the changes in *fresh* files of the log: one job.

        Args:
            fresh: What `write_batch` wrote.
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
        was, now = _group_by_bucket(before), _group_by_bucket(tables.files(kind.words))
        tasks = self.bucket_tasks()
        buckets = sorted({*was, *now})
        changed = [replace(_task(tasks, bucket), words_before=was.get(bucket, [])) for bucket in buckets]
        self._run_workers(changed, [])

    def bucket_tasks(self) -> dict[int, Task]:
        """The buckets, with the files that there are of each."""
        names = {part: name for part, name in self._kind.tables.items() if self._tables.has(name)}
        files = {part: self._tables.files(name) for part, name in names.items()}
        versions = files.pop("history", [])
        files["open"] = [file for file in versions if file.partition[OPEN]]
        files["closed"] = [file for file in versions if not file.partition[OPEN]]
        tasks: dict[int, Task] = {}
        for part, some in files.items():
            for bucket, paths in _group_by_bucket(some).items():
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
                _task(files, bucket), fresh=news.get(bucket, []), anew=self.anew or bucket in again, fold=fold
            )
            for bucket in sorted(buckets)
        ]

    def _run_workers(self, tasks: list[Task], fresh: Collection[File]) -> list[Outcome]:
        """Let the workers do it, and the tables have what they wrote."""
        outcomes = _run_tasks(self._tables.spark, tasks, self.targets)
        by_path = {file.path: file for file in fresh}
        for part in UPKEPT:
            name, target = self._kind.tables[part], self.targets.tables[part]
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
    parts: list[Scope] = [(kind.tables[part], {BUCKET: buckets}) for part in UPKEPT]
    # Who was erased meanwhile must not come back.
    return [*parts, kind.erased]


def begin_upkeep(
    transaction: Transaction,
    kind: Kind,
    log: T.StructType | None = None,
    *,
    anew: bool = False,
    log_types: Mapping[str, T.DataType] | None = None,
) -> Upkeep:
    """
    Make the tables of a ledger fit for changes of the columns *log*; without it, for those that it has.

    The history, and what else derives from the log, is empty beside it with *anew*, and where a field of the
    log gets another type.

    Args:
        log_types: The fields of the log that have no values, and get these types.

    Raises:
        WrongColumnType: A key field is of another type than before, and not a wider number.
        NotStorable: A field is of a type that no table has.
    """
    log = log_columns(transaction.schema(kind.changes) if log is None else log)
    if log_types:
        rows = with_empty_as(transaction.read(kind.changes), log_types)
        transaction.replace(kind.changes, rows, partition_by=[BUCKET])
    before = transaction.schema(kind.changes) if transaction.has(kind.changes) else None
    if before is not None:
        require_keys_keep_their_texts(log_fields(before), log_fields(log), kind)
    to_log = transaction.target(kind.changes, log, [BUCKET])
    has_moves = MOVED in true_names(to_log.stored).fieldNames()
    if has_moves:
        more = with_all_priorities(true_names(to_log.stored))
        to_log = transaction.target(kind.changes, more, [BUCKET])
    columns = true_names(to_log.stored)
    derived = {
        "history": (stored_history_columns(log_fields(columns)), [BUCKET, OPEN]),
        "unborn": (UNBORN_SCHEMA, [BUCKET]),
    }
    if anew or log_types or (before is not None and not keeps_types(before, columns)):
        anew = True
        for part, (schema, by) in derived.items():
            empty = pa.Table.from_batches([], arrow_schema(schema, large=True))
            transaction.replace(kind.tables[part], empty, partition_by=by)
        if transaction.has(kind.words):
            transaction.drop(kind.words)
    if has_moves:
        derived["words"] = (words_columns(columns), [BUCKET])
    tables = {part: transaction.target(kind.tables[part], *table) for part, table in derived.items()}
    periods = has_mark(log, UNTIL, IS_PERIOD)
    kind.note(transaction)
    targets = Targets({"log": to_log, **tables}, _layout(kind, columns), periods)
    return Upkeep(transaction, kind, targets, anew=anew)


def _layout(kind: Kind, log: T.StructType) -> Layout:
    names, stated = log_fields(log).fieldNames(), []
    if "field_priorities" in log.fieldNames():
        priorities = log["field_priorities"].dataType
        assert isinstance(priorities, T.StructType)
        stated = priorities.fieldNames()
    keys, ranked = (tuple(names.index(name) for name in some) for some in (kind.keys, stated))
    return Layout(tuple(names), keys, frozenset(ranked), bool(kind.by_guid), entity=None, has_guid=True)


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


# In the workers --------------------------------------------------------------------------------------------


def _run_tasks(spark: SparkSession, tasks: list[Task], targets: Targets) -> list[Outcome]:
    """Let the workers do it, each some of the buckets."""
    if not tasks:
        return []
    if len(tasks) <= at_home.BUCKETS and sum(map(stored_bytes, tasks)) <= at_home.BUCKET_BYTES:
        return [Outcome(**report) for report in reports_at_home(lambda: _keep_up(tasks, targets))]
    parts = sum(task_bytes(task) for task in tasks) // BYTES_PER_TASK
    many = len(tasks)
    spread = spark.range(many) if parts < _LEAST_TASKS else spark.range(0, many, 1, min(parts, many))
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
