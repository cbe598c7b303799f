"""
Folds of a door whose states are kept in its store: `states` by scope and bucket, `outcomes` by record.

One function takes the rows of a bucket, with the files that there are of it, and tells which files are to
come and to go, and what follows.  Spark's workers call it, each for some buckets; or this program does, if
a batch is small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.kept_folds import (
    Again,
    KeptFold,
    Place,
    RecordOutcome,
    ScopeState,
    bucket_of,
    spread_rows,
    take_scopes,
)
from cdckit.parts.workers import WorkerPlan, local_frame, without_garbage_collection
from cdckit.store import File, Snapshot, Transaction
from cdckit.store.files import Target, Where, hold_few_rows, read_batches
from cdckit.store.writing import OpenFiles, parse_report

STATES, OUTCOMES = "states", "outcomes"
FOLD, BUCKET, WRITTEN = "fold", "bucket", "written"
PLACE = ("batch", "number")
"""What tells records apart: the commit that brought them, and a number within it."""

MANY_FILES = 16
"""So many files of the states of one bucket are written together."""

_TURNS = 16
"""In how many bits the turns of one commit are counted."""

PLACE_SCHEMA = T.StructType([T.StructField(name, T.LongType()) for name in PLACE])

STATES_SCHEMA = T.StructType(
    [
        T.StructField(FOLD, T.StringType()),
        T.StructField(BUCKET, T.IntegerType()),
        T.StructField("scope", T.StringType()),
        T.StructField(WRITTEN, T.LongType()),
        T.StructField("state", T.BinaryType()),
        T.StructField("waiting", T.ArrayType(PLACE_SCHEMA)),
    ]
)
"""One row is what was known of a scope at some time; what was written last holds."""

OUTCOMES_SCHEMA = T.StructType(
    [
        *PLACE_SCHEMA,
        T.StructField(WRITTEN, T.LongType()),
        *(T.StructField(name, T.StringType()) for name in ("outcome", ERROR_CODE, ERROR_DESCRIPTION)),
        T.StructField("waiting_since", T.TimestampType()),
        *(T.StructField(name, T.StringType()) for name in ("waiting_for", "about")),
    ]
)
"""One row is what became of a record at some time; what was written last holds."""

_ROWS = T.StructType(
    [
        T.StructField("kind", T.StringType()),
        T.StructField("row", T.BinaryType()),
        T.StructField(WRITTEN, T.LongType()),
    ]
)
_SPREAD = T.StructType(
    [
        T.StructField(BUCKET, T.IntegerType()),
        T.StructField("scope", T.StringType()),
        T.StructField("row", T.BinaryType()),
    ]
)
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


class RecordFile(NamedTuple):
    """A file of records, with the places that it may have."""

    path: str
    low: Place
    high: Place

    def may_have(self, place: Place) -> bool:
        """Whether the record of a place may be in it."""
        return all(low <= at <= high for low, at, high in zip(self.low, place, self.high, strict=True))


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
    records: Sequence[RecordFile]
    states: Mapping[tuple[str, int], Sequence[str]]
    buckets: int
    written: int
    rewrites: int = MANY_FILES

    def read_records(self, places: Iterable[Place]) -> Iterator[Any]:
        """The rows of some records."""
        wanted = set(places)
        for file in self.records:
            if any(map(file.may_have, wanted)):
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
        for said in results:
            if isinstance(said, RecordOutcome):
                self._outcomes[said.place] = said.after(self._outcomes.get(said.place))
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
                    changed = {scope: one for scope, one in changed.items() if one.state or one.waiting}
                    removed += files
                states.take(_state_rows(key, changed.values(), task.written))
            outcomes.take(_outcome_rows(self._outcomes.values(), task.written))
            return {STATES: states.close(), OUTCOMES: outcomes.close(), "removed": removed}


def _last_states(rows: pa.Table) -> dict[str, ScopeState]:
    found = {}
    for row in rows.sort_by(WRITTEN).to_pylist():
        waiting = tuple((place["batch"], place["number"]) for place in row["waiting"] or ())
        found[row["scope"]] = ScopeState(row["scope"], row["state"], waiting)
    return found


def _state_rows(key: tuple[str, int], states: Iterable[ScopeState], written: int) -> pa.RecordBatch:
    rows = [
        {
            **dict(zip((FOLD, BUCKET), key, strict=True)),
            "scope": state.scope,
            WRITTEN: written,
            "state": state.state,
            "waiting": [dict(zip(PLACE, place, strict=True)) for place in state.waiting],
        }
        for state in states
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(STATES_SCHEMA))


def _outcome_rows(outcomes: Iterable[RecordOutcome], written: int) -> pa.RecordBatch:
    names = [name for name in OUTCOMES_SCHEMA.names if name not in (*PLACE, WRITTEN)]
    rows = [
        {
            **dict(zip(PLACE, place, strict=True)),
            WRITTEN: written,
            **dict(zip(names, said, strict=True)),
        }
        for place, *said in outcomes
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(OUTCOMES_SCHEMA))


# Within a transaction --------------------------------------------------------------------------------------


@dataclass
class FoldedRows:
    """
    What the last fold handed on, of a type each: *few* rows in this program, in their order; or *many*, which
    workers hold, a text `kind` with the name of their type, `row` in MessagePack, and `written`, their order.
    """

    few: list[Any]
    many: DataFrame | None = None


class FoldTables:
    """What a transaction does with the folds of a door."""

    def __init__(self, tables: Transaction, door: DoorFolds, buckets: int) -> None:
        self._tables, self._door, self._buckets = tables, door, buckets
        self._turn = ((tables.base.version or 0) + 1) << _TURNS
        self._targets = {
            STATES: tables.target(STATES, STATES_SCHEMA, [FOLD, BUCKET]),
            OUTCOMES: tables.target(OUTCOMES, OUTCOMES_SCHEMA),
        }

    def take(self, records: Sequence[File]) -> FoldedRows:
        """Take records that are kept: of few of them all is done by this program."""
        tables, door = self._tables, self._door
        schema = tables.schema(door.records)
        target = self._targets[door.records] = tables.target(door.records, schema)
        if hold_few_rows(records):
            batches = (batch for file in records for batch in read_batches(target, file.path, door.reads))
            return self.take_rows([row for batch in batches for row in door.read(batch, door.settings)])
        read = WorkerPlan(
            tables.read(door.records, files=records).select(*door.reads), partial(_read, door=door), _ROWS
        )
        return self._fold(FoldedRows([], tables.scratch(read)))

    def take_rows(self, rows: Sequence[Any], *, rewrites: int = MANY_FILES) -> FoldedRows:
        """Take rows of this program; with *rewrites* of 1 nothing is left of what was known before."""
        return self._fold(FoldedRows(list(rows)), rewrites)

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
            spread = WorkerPlan(taken, partial(_spread, task=task), _SPREAD).rows()
            take = partial(_take_buckets, task=task)
            done = self._tables.scratch(WorkerPlan(spread.repartition(BUCKET), take, _ROWS))
            reports = done.where(F.col("kind") == _REPORT).collect()
            found = [msgspec.json.decode(report["row"]) for report in reports]
            self._adopt(found)
            handed = handed.unionByName(done.where(~F.col("kind").isin(_REPORT, _AGAIN)))
            if not sum(report[_AGAIN] for report in found):
                return FoldedRows([], handed)
            taken = done.where(F.col("kind") == _AGAIN)

    def _task(self, fold: type[KeptFold], rewrites: int = MANY_FILES) -> FoldTask:
        tables, door = self._tables, self._door
        self._turn += 1
        states = defaultdict[tuple[str, int], list[str]](list)
        for file in tables.files(STATES):
            states[file.partition[FOLD], int(file.partition[BUCKET])].append(file.path)
        records = []
        if tables.has(door.records):
            self._targets[door.records] = tables.target(door.records, tables.schema(door.records))
            for file in tables.files(door.records):
                low, high = ((bounds["batch"], bounds["number"]) for bounds in (file.low, file.high))
                records.append(RecordFile(file.path, low, high))
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
    """Let records have other outcomes: rows of `OUTCOMES_SCHEMA`, but for when they are written."""
    written = F.lit(((tables.base.version or 0) + 1) << _TURNS).alias(WRITTEN)
    columns = [written if name == WRITTEN else F.col(name) for name in OUTCOMES_SCHEMA.names]
    tables.append(OUTCOMES, outcomes.select(*columns))


def last_outcomes(tables: Snapshot | Transaction) -> DataFrame:
    """What became of each record of which something was said: one row for each, without when it was."""
    if not tables.has(OUTCOMES):
        return local_frame(tables.spark, [], OUTCOMES_SCHEMA).drop(WRITTEN)
    names = [name for name in OUTCOMES_SCHEMA.names if name not in (*PLACE, WRITTEN, "about")]
    last = F.max_by(F.struct(*names), WRITTEN).alias("last")
    said = tables.read(OUTCOMES).groupBy(*PLACE).agg(last, F.max("about").alias("about"))
    return said.select(*PLACE, *(F.col("last")[name].alias(name) for name in names), "about")


def state_of(tables: Snapshot, fold: type[KeptFold], scope: str, buckets: int) -> bytes | None:
    """What is known of one scope; no job."""
    if not tables.has(STATES):
        return None
    where: Where = {FOLD: [fold.name], BUCKET: [bucket_of(scope, buckets)], "scope": [scope]}
    return _last_states(tables.arrow(STATES, where)).get(scope, ScopeState(scope)).state


# In the workers --------------------------------------------------------------------------------------------


def _row_batch(rows: Sequence[tuple[str, bytes]], written: int = 0) -> pa.RecordBatch:
    kinds, values = zip(*rows, strict=True)
    columns = [pa.array(kinds), pa.array(values, pa.binary()), pa.array([written] * len(rows), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=_ROWS.names)


def _read(batches: Iterable[pa.RecordBatch], door: DoorFolds) -> Iterator[pa.RecordBatch]:
    with without_garbage_collection():
        for batch in batches:
            rows = [
                (type(row).__name__, msgspec.msgpack.encode(row)) for row in door.read(batch, door.settings)
            ]
            if rows:
                yield _row_batch(rows)


def _spread(batches: Iterable[pa.RecordBatch], task: FoldTask) -> Iterator[pa.RecordBatch]:
    read = msgspec.msgpack.Decoder(task.door.rows).decode
    for batch in batches:
        found = [
            (bucket_of(scope, task.buckets), scope, msgspec.msgpack.encode(scoped))
            for row in batch.column("row").to_pylist()
            for scope, scoped in task.fold.spread(read(row))
        ]
        if found:
            columns = zip(zip(*found, strict=True), arrow_schema(_SPREAD), strict=True)
            arrays = [pa.array(values, column.type) for values, column in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=_SPREAD.names)


def _take_buckets(batches: Iterable[pa.RecordBatch], task: FoldTask) -> Iterator[pa.RecordBatch]:
    """Take the rows of some buckets: what follows, and behind it a report of the files."""
    read = msgspec.msgpack.Decoder(task.door.rows).decode
    with without_garbage_collection():
        buckets = defaultdict[int, defaultdict[str, list[Any]]](lambda: defaultdict(list))
        for batch in batches:
            for bucket, scope, row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                buckets[bucket][scope].append(read(row))
        states, agains = BucketStates(task), 0
        for bucket in sorted(buckets):
            results = states.take(task.fold, bucket, buckets.pop(bucket))
            rows = []
            for result in results:
                again = isinstance(result, Again)
                agains += again
                row = result.row if again else result
                rows.append((_AGAIN if again else type(row).__name__, msgspec.msgpack.encode(row)))
            if rows:
                yield _row_batch(rows, task.written)
        report = {**states.close(), _AGAIN: agains}
        yield _row_batch([(_REPORT, msgspec.json.encode(report))])
