"""Windows, where workers cut them: sorted batches of events in, batches with their windows out."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise, starmap
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.databus.events import DATA, END, KINDS, ROLLBACK, DatabusFault
from cdckit.databus.record_places import RecordPlaces
from cdckit.databus.window_machine import (
    COMPLETE,
    DAMAGED,
    LATE,
    NO_SCN,
    NO_WINDOW,
    OPEN,
    REPEATED,
    Spans,
    StreamState,
    WindowMachine,
    WindowState,
)
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION, Findings, error_columns
from cdckit.parts.arrays import bools, group_starts, number_texts
from cdckit.parts.instants import INSTANT

CONTENT = "_content"
"""A digest of what a record says, which tells it from another one at the same offset."""

PARTITION = ("topic", "partition")
STREAM = (*PARTITION, "physical_partition")
"""What tells one stream from the next."""

WINDOW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("physical_partition", pa.int32()),
        ("window", pa.int64()),
        ("state", pa.string()),
        ("start_scn", pa.int64()),
        ("end_scn", pa.int64()),
        ("window_timestamp", INSTANT),
        ("events", pa.int64()),
        ("bad_events", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        (ERROR_CODE, pa.string()),
        (ERROR_DESCRIPTION, pa.string()),
    ]
)
"""One row is one window."""

COVERED = pa.schema([("covered_from", pa.int64()), ("covered_to", pa.int64())])
"""Of which SCNs a window that passed has said everything: for who keeps windows."""

_WINDOW_COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "window": ("number_or_null", pa.int64()),
    "window_state": ("state", pa.string()),
    "window_start_scn": ("start_scn", pa.int64()),
    "window_end_scn": ("end_scn", pa.int64()),
    "window_timestamp": ("passed_micros", INSTANT),
}
"""By column the attribute of a window that it has, and its type."""

_POSITION = "window_position"
EVENT_WINDOW = pa.schema(
    [*((name, kind) for name, (_, kind) in _WINDOW_COLUMNS.items()), (_POSITION, pa.int64())]
)
"""What an event is told of its window."""

MAX_BYTES = 1 << 26
"""The most bytes that are held in memory: 64 MiB."""


class BatchQueue:
    """Batches of one schema, first in, first out; those that are too many for memory lie in a file."""

    def __init__(self) -> None:
        self._batches: deque[pa.RecordBatch | tuple[int, int]] = deque()
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._schema: pa.Schema | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def append(self, batch: pa.RecordBatch) -> None:
        """Hold one more batch."""
        if self._bytes + batch.nbytes <= MAX_BYTES:
            self._batches.append(batch)
            self._bytes += batch.nbytes
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when it was read
        self._schema = batch.schema
        place = self._file.seek(0, os.SEEK_END)
        self._batches.append((place, self._file.write(batch.serialize())))

    def popleft(self) -> pa.RecordBatch:
        """Take the batch that came first."""
        batch = self._batches.popleft()
        if isinstance(batch, tuple):
            assert self._file is not None
            place, size = batch
            self._file.seek(place)
            batch = pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), self._schema)
        else:
            self._bytes -= batch.nbytes
        if not self._batches and self._file is not None:
            self._file.close()
            self._file = None
        return batch


Run = tuple[WindowState, int]
"""A window, and how many rows of it stand together."""


class PartitionState(msgspec.Struct):
    """Where a partition of a topic stands; it can be written down."""

    last_offset: int = -1
    """That of the last record that came."""
    lost: int = 0
    """How many records came, since a window ended, that do not say their stream: they may have been of one
    that begins before the next end."""
    streams: dict[int, StreamState] = {}


class WindowCutter:
    """
    The windows of all streams of one partition of a topic: what the machines take, and the rows that wait.

    Args:
        state: Where the partition stands; that is kept up.
        covered_before: By stream, and from an SCN on: what the windows covered that passed before.
        places: Finds the rows that are there twice; without it each is known to be there once.
    """

    def __init__(
        self,
        state: PartitionState,
        covered_before: Callable[[int, int], Spans] | None = None,
        places: RecordPlaces | None = None,
    ) -> None:
        self.state, self._places = state, places
        self._machines = {
            number: WindowMachine(stream, covered_before and partial(covered_before, number))
            for number, stream in state.streams.items()
        }
        self._rows, self._runs = BatchQueue(), deque[list[Run]]()

    def take(self, rows: pa.RecordBatch) -> None:
        """Take the next rows, in the order of their offsets; they are held until `settled` gives them."""
        runs, positions, findings = self.judge(rows)
        columns = {**_error_columns(rows, findings), _POSITION: pa.array(positions, pa.int64())}
        self._rows.append(with_columns(rows, columns))
        self._runs.append(runs)

    def judge(self, rows: pa.RecordBatch) -> tuple[list[Run], list[int | None], Findings]:
        """Find the windows of the next rows, the places of data events in these, and what is wrong."""
        windows: list[WindowState] = []
        positions: list[int | None] = []
        put_aside, findings = self._put_aside(rows)
        for row, (number, kind, scn, source, micros) in enumerate(_events(rows)):
            if number is None or row in put_aside:
                if row not in put_aside:
                    self._lose_record()
                windows.append(put_aside.get(row, NO_WINDOW))
                positions.append(None)
                continue
            machine = self._machines.get(number) or self._begin_stream(number)
            window = machine.window
            finding = machine.take(kind, scn, source, micros)
            windows.append(window)
            positions.append(window.events if kind == DATA else None)
            if finding is not None:
                findings[row] = finding
            if kind in (END, ROLLBACK):
                self.state.lost = 0
        return [(window, len(list(run))) for window, run in groupby(windows)], positions, findings

    def settled(self, *, at_end: bool = False) -> Iterator[tuple[pa.RecordBatch, list[Run]]]:
        """Give the first batches of which all windows have ended; at the end the others too."""
        while self._runs and (at_end or all(window.state != OPEN for window, _ in self._runs[0])):
            yield self._rows.popleft(), self._runs.popleft()

    def open_windows(self) -> list[WindowState]:
        """List the windows that have not ended, one for each stream."""
        return [machine.window for machine in self._machines.values()]

    def _put_aside(self, rows: pa.RecordBatch) -> tuple[dict[int, WindowState], Findings]:
        """Find the rows that are of no stream, whatever they say, and why they are in error, if they are."""
        put_aside = dict.fromkeys(_true_rows(pc.is_in(rows.column(ERROR_CODE), _NO_EVENTS)), NO_WINDOW)
        findings: Findings = {}
        if self._places is not None:
            offsets = pc.fill_null(rows.column("offset"), -1)
            placed = pa.record_batch({"offset": offsets, "value": rows.column(CONTENT)})
            is_repeat, is_misplaced = self._places.find_repeats(placed)
            put_aside |= dict.fromkeys(np.flatnonzero(is_repeat).tolist(), REPEATED_RECORD)
            for row in np.flatnonzero(is_misplaced).tolist():
                put_aside[row], findings[row] = NO_WINDOW, (DatabusFault.PLACE_TAKEN, "")
        return put_aside, findings

    def _begin_stream(self, number: int) -> WindowMachine:
        stream = self.state.streams[number] = StreamState(WindowState(number, lost=self.state.lost))
        machine = self._machines[number] = WindowMachine(stream)
        return machine

    def _lose_record(self) -> None:
        """Count a record that does not say its stream: it may have been of any."""
        self.state.lost += 1
        for machine in self._machines.values():
            machine.window.lost += 1


def _events(rows: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Read the events as the rules look at them: the stream, and what a machine takes."""
    is_bad, kind, scn = rows.column(ERROR_CODE).is_valid(), rows.column("kind"), rows.column("scn")
    kinds = pc.if_else(is_bad, len(KINDS), pc.index_in(kind, _KINDS))
    # Of an event in error an SCN counts that may be one of a data event.
    has_none = pc.or_(pc.fill_null(pc.not_equal(kind, DATA), False), pc.fill_null(pc.less(scn, 0), True))
    scns = pc.if_else(pc.and_(is_bad, has_none), NO_SCN, scn)
    numbers = [kinds, scns, rows.column("source_id"), rows.column("event_timestamp")]
    codes, *columns = (np.asarray(pc.fill_null(column.cast(pa.int64()), 0)).tolist() for column in numbers)
    return zip(rows.column(STREAM[2]).to_pylist(), map(_NAMES.__getitem__, codes), *columns, strict=True)


def _true_rows(mask: pa.Array) -> list[int]:
    rows: list[int] = np.flatnonzero(bools(mask)).tolist() if mask.true_count else []
    return rows


_NO_EVENTS = pa.array([DatabusFault.NO_VALUE.value, DatabusFault.PLACE_TAKEN.value])
"""Errors of records that are missing from no window: tombstones, and what a relay has put aside."""
REPEATED_RECORD = WindowState(-1, 0, state=REPEATED)
"""In place of the window of a record that is there once more."""
_KINDS, _NAMES = pa.array(KINDS), [*KINDS, None]


def _new_cutter() -> WindowCutter:
    """Begin a partition of which nothing came before; a row may be there twice, or in another's place."""
    return WindowCutter(PartitionState(), places=RecordPlaces(-1, lambda low, high: {}))


def cut_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell events, sorted by `PARTITION`, offset and `CONTENT`, their windows; they stay in this order."""
    for _, pieces in split_partitions(batches):
        cutter = _new_cutter()
        for piece in pieces:
            cutter.take(piece)
            yield from starmap(with_outcomes, cutter.settled())
        yield from starmap(with_outcomes, cutter.settled(at_end=True))


def find_windows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """List the windows of events that are sorted so."""
    for partition, pieces in split_partitions(batches):
        cutter = _new_cutter()
        for piece in pieces:
            runs, *_ = cutter.judge(piece)
            _note_offsets(runs, piece.column("offset"))
            ended = (window for window in dict(runs) if window.number and window.state != OPEN)
            yield _window_rows(partition, ended)
        open_windows = [window for window in cutter.open_windows() if window.events or window.bad]
        yield _window_rows(partition, open_windows)


def _note_offsets(runs: Sequence[Run], offsets: pa.Array) -> None:
    start = 0
    for window, count in runs:
        if window.first_offset is None:
            window.first_offset = offsets[start].as_py()
        start += count
        window.last_offset = offsets[start - 1].as_py()


def _window_rows(partition: tuple[str, int], windows: Iterable[WindowState]) -> pa.RecordBatch:
    rows = []
    for window in windows:
        row = dict(zip(STREAM, (*partition, window.stream), strict=True))
        row |= {"window": window.number, "state": window.state, "start_scn": window.start_scn}
        row |= {"end_scn": window.end_scn, "window_timestamp": window.passed_micros}
        row |= {"events": window.events, "bad_events": window.bad}
        row |= {"first_offset": window.first_offset, "last_offset": window.last_offset}
        if window.finding is not None:
            fault, finding = window.finding
            row |= {ERROR_CODE: fault.value, ERROR_DESCRIPTION: fault.describe(finding)}
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=WINDOW)


def split_partitions(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[tuple[str, int], Iterator[pa.RecordBatch]]]:
    """Split batches that are sorted so into the rows of each topic and partition."""
    pieces = (piece for batch in batches for piece in _split_by_partition(batch))
    return groupby(pieces, lambda piece: tuple(piece.column(name)[0].as_py() for name in PARTITION))


def _split_by_partition(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    topics, partitions = number_texts(batch.column("topic")), np.asarray(batch.column("partition"))
    starts = np.flatnonzero(group_starts(topics, partitions)).tolist()
    for start, stop in pairwise([*starts, batch.num_rows]):
        yield batch.slice(start, stop - start)


def with_outcomes(rows: pa.RecordBatch, runs: Sequence[Run], *, covered: bool = False) -> pa.RecordBatch:
    """Tell rows what became of their windows, or that these are open; with *covered* also `COVERED`."""
    place = pa.array(np.repeat(np.arange(len(runs)), [count for _, count in runs]))

    def of_windows(attribute: str, kind: pa.DataType) -> pa.Array:
        return pa.array([getattr(window, attribute) for window, _ in runs], kind).take(place)

    outcome_columns = _WINDOW_COLUMNS | (_COVERED_COLUMNS if covered else {})
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns |= _error_columns(rows, _find_late_events(rows, runs))
    columns |= {name: of_windows(attribute, kind) for name, (attribute, kind) in outcome_columns.items()}
    has_passed = is_passed(columns["window_state"], columns["kind"])
    is_repeat = pc.and_(has_passed, pc.less_equal(columns["scn"], of_windows("passed_before", pa.int64())))
    state = pc.if_else(pc.fill_null(is_repeat, False), REPEATED, columns["window_state"])
    columns["window_state"] = state
    outcomes = [*outcome_columns, _POSITION]
    names = [*(name for name in columns if name not in outcomes), *outcomes]
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


_COVERED_COLUMNS = {name: (name, pa.int64()) for name in COVERED.names}


def _find_late_events(rows: pa.RecordBatch, runs: Sequence[Run]) -> Findings:
    findings: Findings = {}
    start = 0
    for window, count in runs:
        start += count
        # In an open window, or one that was rolled back, it may come again.
        if window.late_scns and window.state in (LATE, DAMAGED):
            kinds, scns = (rows.column(name).slice(start - count, count) for name in ("kind", "scn"))
            for row in np.flatnonzero(bools(pc.equal(kinds, DATA))).tolist():
                if (scn := scns[row].as_py()) in window.late_scns:
                    finding = f"Expected an SCN above {window.passed_before}, found {scn}."
                    findings[start - count + row] = (DatabusFault.EVENT_LATE, finding)
    return findings


def is_passed(state: pa.Array, kind: pa.Array) -> pa.Array:
    """Find, by the states of their windows and their kinds, the data events that pass."""
    return pc.fill_null(pc.and_(pc.equal(state, COMPLETE), pc.equal(kind, DATA)), False)


def _error_columns(rows: pa.RecordBatch, findings: Findings) -> dict[str, pa.Array]:
    """Make the columns of errors, with the findings where a row has none yet."""
    if not findings:
        return {}
    new = error_columns(findings, rows.num_rows)
    has_none = rows.column(ERROR_CODE).is_null()
    names = (ERROR_CODE, ERROR_DESCRIPTION)
    return {
        name: pc.if_else(has_none, column, rows.column(name)) for name, column in zip(names, new, strict=True)
    }


def with_columns(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Put these columns in the place of those of their names, or behind all."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | columns
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
