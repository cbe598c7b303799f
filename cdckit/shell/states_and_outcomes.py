"""
Folds of a door whose states are kept in its store: `states` by scope and bucket, `outcomes` by record.

`BucketStates` takes the rows of a bucket, with the files that there are of it, and tells which files are to
come and to go, and what follows.  Spark's workers use it, each for some buckets; or this program does, if a
batch is small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.fold import Result, Rule
from cdckit.parts.folded_rows import explode_rule
from cdckit.parts.kept_folds import (
    WAITING,
    Again,
    KeptFold,
    Place,
    RecordOutcome,
    ScopeState,
    bucket_of,
    spread_rows,
    take_scopes,
)
from cdckit.parts.workers import WorkerPlan, compute_once, local_frame, without_garbage_collection
from cdckit.shell.waiting import with_waited
from cdckit.store import File, Snapshot, Transaction
from cdckit.store.files import Target, Where
from cdckit.store.reading import hold_few_rows, read_batches
from cdckit.store.store import Tables, read_note, write_note
from cdckit.store.store import read_rows as read_table
from cdckit.store.writing import OpenFiles, parse_report

STATES, OUTCOMES = "states", "outcomes"
FOLD, BUCKET, WRITTEN = "fold", "bucket", "written"
PLACE = ("batch", "number")
"""What tells records apart: the commit that brought them, and a number within it."""

MANY_FILES = 16
"""So many files of the states of one bucket are written together."""

SPREAD_BUCKETS, SPREAD_BYTES = 64, 8 << 20
"""The states stand in so many buckets as soon as workers fold, or there are so many bytes; before, in one."""

_BUCKETS_NOTE = "cdckit.folds.buckets"

_TURNS = 16
"""In how many bits the turns of one commit are counted."""

_PLACE = [(name, pa.int64()) for name in PLACE]
_STATES = pa.schema(
    [
        *((FOLD, pa.string()), (BUCKET, pa.int32()), ("scope", pa.string()), (WRITTEN, pa.int64())),
        ("state", pa.binary()),
    ]
)
"""One row is a `ScopeState`, in MessagePack, as it was at some time; what was written last holds."""

_OUTCOMES = pa.schema(
    [
        *(*_PLACE, (WRITTEN, pa.int64()), ("outcome", pa.string())),
        *((ERROR_CODE, pa.string()), (ERROR_DESCRIPTION, pa.string())),
        *(("waiting_since", pa.timestamp("us", "UTC")), ("waiting_for", pa.string()), ("about", pa.string())),
    ]
)
"""One row is what became of a record at some time (`RecordOutcome`); what was written last holds."""

_ROWS = pa.schema([("kind", pa.string()), ("row", pa.binary()), (WRITTEN, pa.int64())])
_SPREAD = pa.schema([(BUCKET, pa.int32()), ("scope", pa.string()), ("row", pa.binary())])
PLACE_SCHEMA = spark_columns(pa.schema(_PLACE))
_REPORT, _AGAIN = "report", "again"


@dataclass(frozen=True)
class DoorFolds:
    """
    What a door folds.

    Args:
        records: The table of its records, which have a `PLACE`.
        reads: The columns of a record that are looked at.
        read: Makes rows of records; is given a batch of them and the settings.
        rows: The type of all rows, a union, for msgspec.
        folds: In their order; each hands its rows on to those behind it.
        settings: What they go by.
    """

    records: str
    reads: tuple[str, ...]
    read: Any
    rows: Any
    folds: tuple[type[KeptFold], ...]
    settings: Any


@dataclass(frozen=True)
class FoldTask:
    """
    What workers must know of one turn of a fold.

    Args:
        door: What is folded.
        fold: Which of the folds.
        targets: Of the tables of records, states and outcomes.
        records: The files of the records.
        states: The files of the states of a bucket.
        written: The number of the turn.
        rewrites: From how many files on those of a bucket are written together.
    """

    door: DoorFolds
    fold: type[KeptFold]
    targets: Mapping[str, Target]
    records: Sequence[File]
    states: Mapping[tuple[str, int], Sequence[str]]
    buckets: int
    written: int
    rewrites: int = MANY_FILES

    def read_records(self, places: Iterable[Place]) -> Iterator[Any]:
        """The rows of some records."""
        wanted = set(places)
        where = {name: {place[at] for place in wanted} for at, name in enumerate(PLACE)}
        for file in self.records:
            if file.can_hold(where):
                for batch in read_batches(self.targets[self.door.records], file.path, self.door.reads):
                    numbers = zip(*(batch.column(name).to_pylist() for name in PLACE), strict=True)
                    chosen = batch.filter(pa.array([number in wanted for number in numbers], pa.bool_()))
                    yield from self.door.read(chosen, self.door.settings)


class BucketStates:
    """The states of some buckets, and what becomes of them and of records: files of both are written last."""

    def __init__(self, task: FoldTask) -> None:
        self._task = task
        self._stored: dict[tuple[str, int], pa.Table] = {}
        self._changed = defaultdict[tuple[str, int], dict[str, ScopeState]](dict)
        self._outcomes: dict[Place, RecordOutcome] = {}

    def take(self, fold: type[KeptFold], bucket: int, scopes: Mapping[str, list[Any]]) -> list[Any]:
        """Take the rows of scopes of one bucket; what follows, but for outcomes."""
        task, key = self._task, (fold.name, bucket)
        changed, results = take_scopes(
            fold, task.door.settings, scopes, self._states(key, scopes), task.read_records
        )
        self._changed[key] |= {state.scope: state for state in changed}
        for outcome in results:
            if isinstance(outcome, RecordOutcome):
                self._outcomes[outcome.place] = outcome.after(self._outcomes.get(outcome.place))
        return [result for result in results if not isinstance(result, RecordOutcome)]

    def _states(self, key: tuple[str, int], scopes: Iterable[str]) -> dict[str, ScopeState]:
        if key not in self._stored:
            target = self._task.targets[STATES]
            batches = (
                batch for path in self._task.states.get(key, ()) for batch in read_batches(target, path)
            )
            self._stored[key] = pa.Table.from_batches(batches, target.shape.schema)
        sought = pa.array(list(scopes), pa.string())
        rows = self._stored[key].filter(pc.is_in(self._stored[key].column("scope"), sought))
        return {**_last_states(rows), **self._changed[key]}

    def close(self) -> dict[str, Any]:
        """Write what has changed, and say which files are to come and to go."""
        task, removed = self._task, list[str]()
        with OpenFiles(task.targets[STATES]) as states, OpenFiles(task.targets[OUTCOMES]) as outcomes:
            for key, changed in self._changed.items():
                files = task.states.get(key, ())
                if len(files) + 1 >= task.rewrites and files:
                    changed = {**_last_states(self._stored[key]), **changed}
                    changed = {
                        scope: state for scope, state in changed.items() if state.state or state.waiting
                    }
                    removed += files
                rows = [(*key, scope, task.written, _write(state)) for scope, state in changed.items()]
                states.take(tuple_batch(rows, _STATES))
            outcome_rows = [(*place, task.written, *values) for place, *values in self._outcomes.values()]
            outcomes.take(tuple_batch(outcome_rows, _OUTCOMES))
            return {STATES: states.close(), OUTCOMES: outcomes.close(), "removed": removed}


_write = msgspec.msgpack.encode
_read_state = msgspec.msgpack.Decoder(ScopeState).decode


def _last_states(rows: pa.Table) -> dict[str, ScopeState]:
    rows = rows.sort_by(WRITTEN)
    columns = (rows.column(name).to_pylist() for name in ("scope", "state"))
    return {scope: _read_state(state) for scope, state in zip(*columns, strict=True)}


def tuple_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a batch."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# Within a transaction --------------------------------------------------------------------------------------


@dataclass
class FoldedRows:
    """
    What the last fold handed on, of a type each: *few* rows in this program, in their order; or *many*, which
    workers hold, a text `kind` with the name of their type, `row` in MessagePack, and `written`, their order.
    """

    few: list[Any]
    many: DataFrame | None = None


class StatesAndOutcomes:
    """What a transaction does with the folds of a door."""

    def __init__(self, tables: Transaction, door: DoorFolds) -> None:
        self._tables, self._door = tables, door
        self._cut(read_note(tables, _BUCKETS_NOTE, 1))
        self._turn = ((tables.base.version or 0) + 1) << _TURNS
        self._targets = {
            STATES: tables.target(STATES, spark_columns(_STATES), [FOLD, BUCKET]),
            OUTCOMES: tables.target(OUTCOMES, spark_columns(_OUTCOMES)),
        }

    def take(self, records: Sequence[File]) -> FoldedRows:
        """Take records that are kept: of few of them all is done by this program."""
        tables, door = self._tables, self._door
        if hold_few_rows(records):
            if sum(file.size for file in tables.files(STATES)) > SPREAD_BYTES:
                self._spread_states()
            target = tables.target(door.records, tables.schema(door.records))
            batches = (batch for file in records for batch in read_batches(target, file.path, door.reads))
            return self.take_rows([row for batch in batches for row in door.read(batch, door.settings)])
        rows = tables.read(door.records, files=records).select(*door.reads)
        return self.take_many(rows, partial(door.read, settings=door.settings))

    def take_many(self, source: DataFrame, read: Callable[[pa.RecordBatch], Iterable[Any]]) -> FoldedRows:
        """Take, by workers, the rows that *read* makes of batches."""
        self._spread_states()
        rows = WorkerPlan(source, partial(_read, read=read), spark_columns(_ROWS))
        return self._fold(FoldedRows([], self._tables.scratch(rows)))

    def take_rows(self, rows: Sequence[Any], *, rewrites: int = MANY_FILES) -> FoldedRows:
        """Take rows of this program; with *rewrites* of 1 nothing is left of what was known before."""
        return self._fold(FoldedRows(list(rows)), rewrites)

    def _cut(self, buckets: int) -> None:
        self._buckets = buckets
        # Also where that stands there: who cuts the states otherwise meanwhile is in conflict.
        write_note(self._tables, _BUCKETS_NOTE, buckets)

    def _spread_states(self) -> None:
        """Cut what is known into buckets for workers, once."""
        if self._buckets >= SPREAD_BUCKETS:
            return
        tables = self._tables
        self._cut(SPREAD_BUCKETS)
        if files := tables.files(STATES):
            bucket = F.pmod(F.crc32(F.col("scope").cast("binary")), F.lit(self._buckets)).cast("int")
            states = tables.read(STATES).withColumn(BUCKET, bucket)
            tables.swap(STATES, files, states.repartition(FOLD, BUCKET), same_rows=True)

    def _fold(self, rows: FoldedRows, rewrites: int = MANY_FILES) -> FoldedRows:
        home: BucketStates | None = None
        for fold in self._door.folds:
            if rows.many is not None:
                rows = self._fold_by_workers(fold, rows)
            else:
                if home is None:
                    home = BucketStates(self._task(fold, rewrites))
                rows = FoldedRows(self._fold_here(fold, rows.few, home))
        if home is not None:
            self._adopt([home.close()])
        return rows

    def _fold_here(self, fold: type[KeptFold], rows: Iterable[Any], home: BucketStates) -> list[Any]:
        """Take rows in this program; what is handed on."""
        handed, taken = list[Any](), list[Any]()
        for row in rows:
            (taken if isinstance(row, fold.takes) else handed).append(row)
        while taken:
            buckets = defaultdict[int, dict[str, list[Any]]](dict)
            for scope, scoped in spread_rows(fold, taken).items():
                buckets[bucket_of(scope, self._buckets)][scope] = scoped
            results = [
                result for bucket, scopes in buckets.items() for result in home.take(fold, bucket, scopes)
            ]
            handed += [result for result in results if not isinstance(result, Again)]
            taken = [result.row for result in results if isinstance(result, Again)]
        return handed

    def _fold_by_workers(self, fold: type[KeptFold], rows: FoldedRows) -> FoldedRows:
        assert rows.many is not None
        kinds = [kind.__name__ for kind in fold.takes]
        is_taken = F.col("kind").isin(*kinds)
        taken, handed = rows.many.where(is_taken), rows.many.where(~is_taken)
        while True:
            task = self._task(fold)
            spread = WorkerPlan(taken, partial(_spread, task=task), spark_columns(_SPREAD)).rows()
            in_order = spread.repartition(BUCKET).sortWithinPartitions(BUCKET, "scope")
            take = partial(_take_buckets, task=task)
            results = self._tables.scratch(WorkerPlan(in_order, take, spark_columns(_ROWS)))
            reports = results.where(F.col("kind") == _REPORT).collect()
            written = [msgspec.json.decode(report["row"]) for report in reports]
            self._adopt(written)
            handed = handed.unionByName(results.where(~F.col("kind").isin(_REPORT, _AGAIN)))
            if not sum(report[_AGAIN] for report in written):
                return FoldedRows([], handed)
            taken = results.where(F.col("kind") == _AGAIN)

    def _task(self, fold: type[KeptFold], rewrites: int = MANY_FILES) -> FoldTask:
        tables, door = self._tables, self._door
        self._turn += 1
        states = defaultdict[tuple[str, int], list[str]](list)
        for file in tables.files(STATES):
            states[file.partition[FOLD], int(file.partition[BUCKET])].append(file.path)
        records = tables.files(door.records) if tables.has(door.records) else []
        if records:
            self._targets[door.records] = tables.target(door.records, tables.schema(door.records))
        return FoldTask(
            door, fold, dict(self._targets), records, dict(states), self._buckets, self._turn, rewrites
        )

    def _adopt(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Let the tables have what was written."""
        reports = list(reports)
        removed = [path for report in reports for path in report["removed"]]
        for name in (STATES, OUTCOMES):
            files = parse_report((file for report in reports for file in report[name]), self._targets[name])
            self._tables.adopt(name, files, removed if name == STATES else ())


def say_outcomes(tables: Transaction, outcomes: DataFrame) -> None:
    """Let records have other outcomes: rows of `last_outcomes`, but for when they are written."""
    written = F.lit(((tables.base.version or 0) + 1) << _TURNS).alias(WRITTEN)
    columns = [written if name == WRITTEN else F.col(name) for name in _OUTCOMES.names]
    tables.append(OUTCOMES, outcomes.select(*columns))


def give_up_records(tables: Transaction, now: datetime, wait: timedelta, given_up: dict[str, Column]) -> int:
    """Let the records that have waited longer than *wait* have the outcome *given_up*; how many they are."""
    waits = last_outcomes(tables).where(F.col("outcome") == WAITING)
    measured = with_waited(waits, F.col("waiting_since"), now, wait)
    overdue = compute_once(measured.where("is_overdue").withColumns(given_up))
    if overdue is None:
        return 0
    say_outcomes(tables, overdue)
    return overdue.count()


def last_outcomes(tables: Snapshot | Transaction) -> DataFrame:
    """Read what became of each record of which something was said: one row for each, without when it was."""
    if not tables.has(OUTCOMES):
        return local_frame(tables.spark, [], spark_columns(_OUTCOMES)).drop(WRITTEN)
    names = [name for name in _OUTCOMES.names if name not in (*PLACE, WRITTEN, "about")]
    last = F.max_by(F.struct(*names), WRITTEN).alias("last")
    outcomes = tables.read(OUTCOMES).groupBy(*PLACE).agg(last, F.max("about").alias("about"))
    return outcomes.select(*PLACE, *(F.col("last")[name].alias(name) for name in names), "about")


def state_of(tables: Snapshot, fold: type[KeptFold], scope: str) -> bytes | None:
    """Read what is known of one scope; no job."""
    if not tables.has(STATES):
        return None
    bucket = bucket_of(scope, read_note(tables, _BUCKETS_NOTE, 1))
    where: Where = {FOLD: [fold.name], BUCKET: [bucket], "scope": [scope]}
    return _last_states(tables.arrow(STATES, where)).get(scope, ScopeState(scope)).state


def last_states(tables: Tables, fold: type[KeptFold], read: Rule, makes: pa.Schema) -> DataFrame:
    """Read what is known of all scopes of a fold: what *read* makes of each scope and its state."""
    written = read_table(tables, STATES, spark_columns(_STATES), {FOLD: [fold.name]})
    last = written.groupBy("scope").agg(F.max_by("state", WRITTEN).alias("state"))
    return explode_rule(last, [], ("scope", "state"), partial(_known, read=read), makes)


def _known(scope: str, state: bytes, read: Rule) -> Iterator[Result]:
    last_state = _read_state(state).state
    if last_state is not None:
        yield read(scope, last_state)


# In the workers --------------------------------------------------------------------------------------------


_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1_000, 1 << 26


def _read(
    batches: Iterable[pa.RecordBatch], read: Callable[[pa.RecordBatch], Iterable[Any]]
) -> Iterator[pa.RecordBatch]:
    with without_garbage_collection():
        for batch in batches:
            # A record may have a megabyte.
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield _row_batch(read(batch.slice(start, _ROWS_AT_ONCE)), 0)


def _row_batch(rows: Iterable[Any], written: int) -> pa.RecordBatch:
    rows_written = []
    for row in rows:
        kind, sent = (_AGAIN, row.row) if isinstance(row, Again) else (type(row).__name__, row)
        rows_written.append((kind, _write(sent), written))
    return tuple_batch(rows_written, _ROWS)


def _spread(batches: Iterable[pa.RecordBatch], task: FoldTask) -> Iterator[pa.RecordBatch]:
    read = msgspec.msgpack.Decoder(task.door.rows).decode
    for batch in batches:
        scoped_rows = [
            (bucket_of(scope, task.buckets), scope, _write(scoped))
            for row in batch.column("row").to_pylist()
            for scope, scoped in task.fold.spread(read(row))
        ]
        yield tuple_batch(scoped_rows, _SPREAD)


def _take_buckets(batches: Iterable[pa.RecordBatch], task: FoldTask) -> Iterator[pa.RecordBatch]:
    """Take the rows of some buckets: what follows, and behind it a report of the files."""
    states, agains = BucketStates(task), 0
    with without_garbage_collection():
        for bucket, scopes in _scopes_of(batches, msgspec.msgpack.Decoder(task.door.rows)):
            results = states.take(task.fold, bucket, scopes)
            agains += sum(isinstance(result, Again) for result in results)
            yield _row_batch(results, task.written)
        report = msgspec.json.encode({**states.close(), _AGAIN: agains})
        yield tuple_batch([(_REPORT, report, task.written)], _ROWS)


def _scopes_of(
    batches: Iterable[pa.RecordBatch], decoder: msgspec.msgpack.Decoder[Any]
) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    """The rows by bucket and scope, in whose order they come; of large buckets some scopes at once."""
    columns = ([column.to_pylist() for column in batch.columns] for batch in batches)
    rows = (row for values in columns for row in zip(*values, strict=True))
    for bucket, of_bucket in groupby(rows, itemgetter(0)):
        scopes, count, size = dict[str, list[Any]](), 0, 0
        for scope, of_scope in groupby(of_bucket, itemgetter(1)):
            texts = [text for _, _, text in of_scope]
            scopes[scope] = list(map(decoder.decode, texts))
            count, size = count + len(texts), size + sum(map(len, texts))
            if count > _ROWS_AT_ONCE or size > _BYTES_AT_ONCE:
                yield bucket, scopes
                scopes, count, size = {}, 0, 0
        if scopes:
            yield bucket, scopes
