"""One batch of records on its way into a relay's tables: what its workers write, within one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.databus.decoding import decode
from cdckit.databus.event_stream import EVENTS
from cdckit.databus.events import DATA, DatabusFault
from cdckit.databus.record_places import RecordPlaces, Values
from cdckit.databus.relay_erasure import as_if_new, drop_erased_events
from cdckit.databus.relay_tables import (
    STORED_SCHEMA,
    STREAMS,
    TAKEN,
    WAITING_SCHEMA,
    RelaySettings,
    States,
    read_states,
    read_windowed_events,
    state_rows,
    to_stored_rows,
)
from cdckit.databus.row_changes import event_changes, is_erased
from cdckit.databus.window_batches import (
    COVERED,
    EVENT_WINDOW,
    PARTITION,
    STREAM,
    PartitionState,
    Run,
    WindowCutter,
    is_passed,
    split_partitions,
    with_columns,
    with_outcomes,
)
from cdckit.databus.window_machine import COMPLETE, OPEN, Spans, WindowState
from cdckit.ledger.intake import apply_within
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_COLUMNS
from cdckit.parts.workers import run_together, worker_reports
from cdckit.shell.shell import MANY_FILES
from cdckit.shell.waiting import WAITING
from cdckit.store import File, Transaction
from cdckit.store.files import Target, Where
from cdckit.store.reading import read_batches
from cdckit.store.writing import OpenFiles, parse_report

RANK = "_rank"
"""Which of several records in one place counts: the first."""


@dataclass(frozen=True)
class Task:
    """What the workers must know of the batches before this one."""

    batch: int
    targets: Mapping[str, Target]
    states: States
    files: Mapping[tuple[str, int], list[tuple[str, File]]]
    """By topic and partition the files of both tables, in the order of their offsets."""


def write_events(batches: Iterable[pa.RecordBatch], *, task: Task) -> Iterator[dict[str, Any]]:
    """
    Cut events into windows, write them, and report what was written and where streams stand.

    The events are sorted by `PARTITION`, offset and `RANK`.
    """
    with OpenFiles(task.targets[EVENTS]) as events, OpenFiles(task.targets[WAITING]) as waiting:
        report: dict[str, Any] = {"states": [], "read": [], "sources": set(), "rows": 0}
        for place, pieces in split_partitions(batches):
            work = _PartitionWork(task, place, events, waiting, report)
            for piece in pieces:
                work.take(piece)
            work.finish()
        report |= {"sources": sorted(report["sources"]), EVENTS: events.close(), WAITING: waiting.close()}
    yield report


class _PartitionWork:
    """The work at one partition of a topic."""

    def __init__(
        self,
        task: Task,
        place: tuple[str, int],
        events: OpenFiles,
        waiting: OpenFiles,
        report: dict[str, Any],
    ) -> None:
        self.task, self.place, self.events, self.waiting, self.report = task, place, events, waiting, report
        text = task.states.get(place)
        state = PartitionState() if text is None else msgspec.json.decode(text, type=PartitionState)
        self.files = task.files.get(place, [])
        self.cutter = WindowCutter(state, self._covered_scns)
        self.places = RecordPlaces(state.last_offset, self._earlier_values)
        self.kept_windows = set(self.cutter.open_windows())
        """Those that were open before, whose events wait in files."""

    def take(self, rows: pa.RecordBatch) -> None:
        """Take records in the order of their offsets, each once; one without its own place is put aside."""
        lacks_offset = rows.column("offset").is_null()
        if lacks_offset.true_count:
            self.report["rows"] += lacks_offset.true_count
            self.events.take(self._stamped(_without_place(rows.filter(lacks_offset))))
            rows = rows.filter(pc.invert(lacks_offset))
            if not rows.num_rows:
                return
        state = self.cutter.state
        is_repeat, is_misplaced = self.places.find_repeats(rows)
        state.last_offset = max(state.last_offset, rows.column("offset")[-1].as_py())
        self.report["rows"] += int((~is_repeat).sum())
        new = rows.filter(pa.array(~(is_repeat | is_misplaced))).drop_columns([RANK])
        if new.num_rows:
            self.cutter.take(new)
        for settled_rows in self.cutter.settled():
            self._write(*settled_rows)
        if is_misplaced.any():
            self.events.take(self._stamped(_without_place(rows.filter(pa.array(is_misplaced)))))

    def finish(self) -> None:
        """Write what stays open, and report where the streams stand."""
        for open_rows in self.cutter.settled(at_end=True):
            self._write(*open_rows)
        text = msgspec.json.encode(self.cutter.state).decode()
        self.report["states"].append((*self.place, text))

    def _write(self, rows: pa.RecordBatch, runs: list[Run]) -> None:
        for window in dict(runs):
            if window.state != OPEN and window in self.kept_windows:
                self.kept_windows.remove(window)
                self._write_kept_events(window)
        self._write_rows(with_outcomes(rows, runs, covered=True))

    def _write_kept_events(self, window: WindowState) -> None:
        """Write the events that earlier batches brought of a window which has ended."""
        for table, file in self.files:
            if (table, file.partition[STREAM[2]]) == (WAITING, window.stream):
                self.report["read"].append(file.path)
                for rows in read_batches(self.task.targets[WAITING], file.path):
                    self._write_rows(with_outcomes(rows, [(window, rows.num_rows)], covered=True))

    def _write_rows(self, rows: pa.RecordBatch) -> None:
        is_open = pc.fill_null(pc.equal(rows.column("window_state"), OPEN), False)
        if is_open.true_count:
            self.waiting.take(rows.filter(is_open))
        settled_rows = rows.filter(pc.invert(is_open))
        has_passed = is_passed(settled_rows.column("window_state"), settled_rows.column("kind"))
        passed_rows = settled_rows.filter(has_passed)
        self.report["sources"].update(passed_rows.column("source_id").to_pylist())
        self.events.take(self._stamped(settled_rows))

    def _stamped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return with_columns(rows, {TAKEN: pa.array(np.full(rows.num_rows, self.task.batch))})

    def _covered_scns(self, stream: int, least: int) -> Spans:
        """Find what windows covered that passed in earlier batches, from an SCN on."""
        spans: set[tuple[int, int]] = set()
        for table, file in self.files:
            if file.partition[STREAM[2]] == stream and file.high.get("covered_to", -1) >= least:
                for rows in read_batches(self.task.targets[table], file.path, COVERED.names):
                    passed_rows = rows.filter(pc.greater_equal(rows.column("covered_to"), least))
                    spans |= set(zip(*(column.to_pylist() for column in passed_rows.columns), strict=True))
        lows, highs = zip(*sorted(spans), strict=True) if spans else ((), ())
        return lows, highs

    def _earlier_values(self, low: int, high: int) -> Values:
        """Find what came in earlier batches between two offsets."""
        values: Values = {}
        for table, file in self.files:
            if file.low["offset"] <= high and file.high["offset"] >= low:
                for rows in read_batches(self.task.targets[table], file.path, ["offset", "value"]):
                    columns = (rows.column(name).to_pylist() for name in ("offset", "value"))
                    for offset, value in zip(*columns, strict=True):
                        if low <= offset <= high:
                            values.setdefault(offset, set()).add(value)
        return values


def _without_place(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Mark records that cannot be put in order: they are of no stream."""
    fault, count = DatabusFault.PLACE_TAKEN, rows.num_rows
    nothing = {name: pa.nulls(count, rows.schema.field(name).type) for name in ("kind", STREAM[2])}
    error = {ERROR_CODE: pa.array([fault.value] * count)}
    error[ERROR_DESCRIPTION] = pa.array([fault.describe()] * count)
    names = [name for name in (*EVENT_WINDOW.names, RANK) if name in rows.schema.names]
    return with_columns(rows.drop_columns(names), {**nothing, **error})


class Intake:
    """What a transaction does with records: `take`, or `rebuild`."""

    def __init__(self, transaction: Transaction, settings: RelaySettings) -> None:
        self._transaction, self._settings = transaction, settings
        self._batch = (transaction.base.version or 0) + 1

    def take(self, records: DataFrame) -> int:
        """Bring all tables up to records, and tell how many of them are new."""
        fresh = self._decode(records, F.lit(0))
        return self._keep(drop_erased_events(fresh, self._transaction, self._settings))

    def rebuild(self) -> None:
        """Make everything anew from the records, by the settings as they are now."""
        tables = self._transaction
        # Of two in one place that counts which did before; one that came behind others has a place now.
        is_misplaced = F.coalesce(F.col(ERROR_CODE) == DatabusFault.PLACE_TAKEN.value, F.lit(False))
        rank = F.when(is_misplaced, 1).otherwise(0)
        before = read_windowed_events(tables).withColumn(RANK, rank)
        records = tables.scratch(before.where(~is_erased()).select(*RECORD_COLUMNS, RANK))
        erased = tables.scratch(as_if_new(before.where(is_erased())).withColumn(RANK, F.lit(0)))
        for name in (EVENTS, WAITING, STREAMS):
            tables.drop(name)
        self._settings.forget_ledgers(tables)
        first, misplaced = (
            self._decode(records.where(F.col(RANK) == number), F.lit(number)) for number in (0, 1)
        )
        # What can be read only now may speak of entities that were erased meanwhile.
        fresh = drop_erased_events(first.unionByName(misplaced), tables, self._settings)
        self._keep(fresh.unionByName(erased))

    # -----------------------------------------------------------------------------------------------------

    def _decode(self, records: DataFrame, rank: Column) -> DataFrame:
        """Read the events of records, in the columns in which they are kept, and `RANK`."""
        settings = self._settings
        decoded = decode(records, settings.sources.values(), skip_sources=settings.skipped)
        return to_stored_rows(decoded).withColumn(RANK, rank)

    def _keep(self, fresh: DataFrame) -> int:
        tables = self._transaction
        task = make_task(tables, self._batch)
        # A record in the place of another one of its batch is told by its stream, and by what it says.
        in_place = ("offset", RANK, F.asc_nulls_first(STREAM[2]), "value")
        write = partial(write_events, task=task)
        reports = worker_reports(fresh, write, by=PARTITION, order=[*PARTITION, *in_place])
        added = adopt_files(tables, task, reports)
        self._apply(added, {number for report in reports for number in report["sources"]})
        for grown in (EVENTS, WAITING):
            tables.compact(grown, files=MANY_FILES)
        return sum(report["rows"] for report in reports)

    def _apply(self, added: list[File], numbers: set[int]) -> None:
        """Bring the ledgers up to the windows that passed."""
        tables, settings = self._transaction, self._settings
        names = [source.name for number, source in settings.sources.items() if number in numbers]

        def apply(name: str) -> None:
            source, kind = settings.named[name], settings.kinds[name]
            where: Where = {
                "source_id": [source.id],
                "kind": [DATA],
                "window_state": [COMPLETE],
                TAKEN: [self._batch],
            }
            passed_events = tables.read(EVENTS, where, added)
            apply_within(tables, kind, event_changes(passed_events, source, keys=kind.keys))

        run_together(tables.spark, apply, [name for name in names if name in settings.kinds])


def make_task(tables: Transaction, batch: int) -> Task:
    """Collect what workers must know of what a relay has."""
    schemas = {EVENTS: STORED_SCHEMA, WAITING: WAITING_SCHEMA}
    targets = {name: tables.target(name, schema, STREAM) for name, schema in schemas.items()}
    files: dict[tuple[str, int], list[tuple[str, File]]] = {}
    for name in schemas:
        # Records without an offset are looked for by none.
        placed_files = [file for file in tables.files(name) if "offset" in file.low]
        for file in sorted(placed_files, key=lambda file: int(file.low["offset"])):
            place = file.partition["topic"], file.partition["partition"]
            files.setdefault(place, []).append((name, file))
    return Task(batch, targets, read_states(tables), files)


def adopt_files(tables: Transaction, task: Task, reports: list[dict[str, Any]]) -> list[File]:
    """Let the tables have what workers wrote; return the files of settled events."""
    read = [path for report in reports for path in report["read"]]
    added = {}
    for name, target in task.targets.items():
        added[name] = parse_report((file for report in reports for file in report[name]), target)
        tables.adopt(name, added[name], read if name == WAITING else ())
    states = {(topic, number): text for report in reports for topic, number, text in report["states"]}
    tables.replace(STREAMS, state_rows(task.states | states))
    return added[EVENTS]
