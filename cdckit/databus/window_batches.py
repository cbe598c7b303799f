"""Windows, where workers cut them: sorted batches of events in, batches with their windows out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.databus.event_values import DATA, KINDS, DatabusFault
from cdckit.databus.window_machine import (
    COMPLETE,
    DAMAGED,
    LATE,
    REPEATED,
    START,
    OpenWindow,
    Outcome,
    Row,
    Spans,
    Step,
    StreamPosition,
    WindowMachine,
)
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION, Findings, error_columns
from cdckit.parts.arrays import Ints
from cdckit.parts.instants import INSTANT

MAX_BYTES = 1 << 26
"""The most bytes that are held in memory: 64 MiB."""


def _no_rows() -> Iterable[pa.RecordBatch]:
    return ()


class BatchBuffer:
    """
    Batches of one schema, given back once in the order in which they came.

    Args:
        before: Those that came before and lie somewhere else; asked for once, when all are given back.
    """

    def __init__(self, before: Callable[[], Iterable[pa.RecordBatch]] = _no_rows) -> None:
        self._before, self._bytes = before, 0
        self._batches: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold one more batch."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > MAX_BYTES:
            if self._writer is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when it was read
                self._writer = pa.ipc.new_stream(self._file, batch.schema)
            for each in self._batches:
                self._writer.write_batch(each)
            self._batches, self._bytes = [], 0

    def take(self) -> Iterator[pa.RecordBatch]:
        """Give all batches back, and hold none any more."""
        before, self._before = self._before, _no_rows
        yield from before()
        yield from self.take_new()

    def take_new(self) -> Iterator[pa.RecordBatch]:
        """The same without those that came before."""
        batches, file, writer = self._batches, self._file, self._writer
        self._batches, self._bytes, self._file, self._writer = [], 0, None, None
        if file is not None and writer is not None:
            writer.close()
            file.seek(0)
            with file, pa.ipc.open_stream(file) as reader:
                yield from reader
        yield from batches


STREAM = ("topic", "partition", "physical_partition")
"""What tells one stream from the next."""

IS_LATE = "is_late"
"""Whether an event of a window that is open says something of an SCN that has passed without it."""

EVENT_WINDOW = pa.schema(
    [
        ("window", pa.int64()),
        ("window_state", pa.string()),
        ("window_start_scn", pa.int64()),
        ("window_end_scn", pa.int64()),
        ("window_timestamp", INSTANT),
        ("window_position", pa.int64()),
    ]
)
"""What an event is told of its window."""

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
"""Which SCNs a window that passes has said everything of: on its end, for who keeps windows."""


def event_rows(piece: pa.RecordBatch) -> Iterator[Row]:
    """Events of one stream as the rules look at them."""
    is_bad = piece.column(ERROR_CODE).is_valid()
    kinds = pc.if_else(is_bad, len(KINDS), pc.index_in(piece.column("kind"), _KINDS))
    times = piece.column("event_timestamp").cast(pa.int64())
    numbers = [kinds, piece.column("scn"), piece.column("source_id"), piece.column("offset"), times]
    codes, *others = (np.asarray(pc.fill_null(column, 0)).tolist() for column in numbers)
    return map(Row, map(_NAMES.__getitem__, codes), *others)


_KINDS, _NAMES = pa.array(KINDS), [*KINDS, None]


def with_no_window(piece: pa.RecordBatch) -> pa.RecordBatch:
    """Records that do not say their stream: they have no window."""
    return with_columns(piece, {field.name: pa.nulls(piece.num_rows, field.type) for field in EVENT_WINDOW})


def with_steps(piece: pa.RecordBatch, steps: Sequence[Step], *, covered: bool) -> pa.RecordBatch:
    """The rows with what is known of each before its window ends; the ends with what is wrong with them."""
    columns = {
        **_error_columns(piece, {row: step.finding for row, step in enumerate(steps) if step.finding}),
        "window_position": pa.array([step.position for step in steps], pa.int64()),
        IS_LATE: pa.array([step.is_late for step in steps], pa.bool_()),
    }
    if covered:
        spans = [(step.outcome and step.outcome.covered) or (None, None) for step in steps]
        for name, scns in zip(COVERED.names, zip(*spans, strict=True), strict=True):
            columns[name] = pa.array(scns, pa.int64())
    return with_columns(piece, columns)


def with_outcomes(rows: pa.RecordBatch, outcomes: Sequence[Outcome], place: Ints) -> pa.RecordBatch:
    """The rows with what became of their windows; *place* is that of the outcome of each row."""
    at = pa.array(place)
    window = window_rows((None, None, None), outcomes)
    columns = {name: window.column(of_window).take(at) for name, of_window in _FROM_WINDOW.items()}
    state, scn = columns["window_state"], rows.column("scn")
    passed = pa.array([outcome.passed_scn for outcome in outcomes], pa.int64()).take(at)
    is_repeat = pc.and_(_counts(state, rows.column("kind")), pc.less_equal(scn, passed))
    columns["window_state"] = state = pc.if_else(pc.fill_null(is_repeat, False), REPEATED, state)
    is_error = pc.and_(rows.column(IS_LATE), pc.is_in(state, _WHERE_LATE))
    late: Findings = {
        row: (DatabusFault.EVENT_LATE, f"Expected an SCN above {passed[row]}, found {scn[row]}.")
        for row in np.flatnonzero(is_error).tolist()
    }
    columns |= _error_columns(rows, late)
    found = dict(zip(rows.schema.names, rows.columns, strict=True)) | columns
    names = [name for name in found if name not in EVENT_WINDOW.names and name != IS_LATE]
    names += EVENT_WINDOW.names
    return pa.RecordBatch.from_arrays([found[name] for name in names], names=names)


_FROM_WINDOW = {
    "window": "window",
    "window_state": "state",
    "window_start_scn": "start_scn",
    "window_end_scn": "end_scn",
    "window_timestamp": "window_timestamp",
}
_WHERE_LATE = pa.array([REPEATED, LATE, DAMAGED])
"""The states in which a late event is an error; in others it may come again."""


def _counts(state: pa.Array, kind: pa.Array) -> pa.Array:
    return pc.and_(pc.equal(state, COMPLETE), pc.fill_null(pc.equal(kind, DATA), False))


def window_rows(stream: Key, outcomes: Sequence[Outcome]) -> pa.RecordBatch:
    """A row for each window."""
    findings: Findings = {row: outcome.finding for row, outcome in enumerate(outcomes) if outcome.finding}
    numbers = [(*stream, *outcome[:5], *outcome[6:10]) for outcome in outcomes]
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*numbers, strict=True), WINDOW, strict=False)
    ]
    return pa.RecordBatch.from_arrays([*columns, *error_columns(findings, len(outcomes))], schema=WINDOW)


def _error_columns(rows: pa.RecordBatch, findings: Findings) -> dict[str, pa.Array]:
    """The columns of errors, with the findings where a row has none yet."""
    if not findings:
        return {}
    new = error_columns(findings, rows.num_rows)
    has_none = rows.column(ERROR_CODE).is_null()
    names = (ERROR_CODE, ERROR_DESCRIPTION)
    return {
        name: pc.if_else(has_none, column, rows.column(name)) for name, column in zip(names, new, strict=True)
    }


def with_columns(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with these columns, in the place of those of their names or behind all."""
    found = dict(zip(rows.schema.names, rows.columns, strict=True)) | columns
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


Output = Literal["events", "consistent", "windows", "kept"]

Key = tuple[Any, ...]
"""A stream: the values of `STREAM`.  Without a physical partition: the records that say none."""


class Mark(NamedTuple):
    """Where a stream stands, so that it can be gone on from there."""

    position: StreamPosition = START
    """At the end of its last window."""
    open: OpenWindow = OpenWindow()
    """What is known of the window that follows."""
    lost: int = 0
    """How many records that do not say their stream stand behind that end; of no stream: how many came."""


def _ignore_mark(key: Key, mark: Mark) -> None:
    """Who asks once need not know where the streams stand."""


def cut_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    output: Output,
    marks: Mapping[Key, Mark] = MappingProxyType({}),
    covered_before: Callable[[Key, int], Spans] | None = None,
    held_batches: Callable[[Key], Iterable[pa.RecordBatch]] = lambda key: (),
    tell: Callable[[Key, Mark], None] = _ignore_mark,
) -> Iterator[pa.RecordBatch]:
    """
    Cut sorted events into windows.

    Args:
        batches: Events, sorted by `STREAM`, nulls first, and offset.
        output: `events`: all of them, each with its window; `kept`: the same, with `COVERED` or, in an open
            window, with `IS_LATE`; `consistent`: those that count; `windows`: one row for each window.
        marks: Where each stream stood.
        covered_before: By stream, and from an SCN on: what the windows covered that passed before.
        held_batches: By stream, the rows of the window that was open, as yielded; read when it ends.
        tell: Is told where each stream stands now.
    """
    stream: _Stream | None = None
    unreadable: list[int] = []
    partition: Key = ()
    for batch in batches:
        for piece in split_streams(batch):
            key = tuple(piece.column(name)[0].as_py() for name in STREAM)
            if stream is None or key != stream.key:
                if stream is not None:
                    yield from stream.finish(tell)
                if key[:2] != partition:
                    unreadable, partition = [], key[:2]
                    lost = marks.get((*partition, None), Mark()).lost
                # Records that were lost before stand before all others, wherever that was.
                mark = marks.get(key, Mark(lost=lost))
                machine = WindowMachine(
                    mark.position,
                    deepcopy(mark.open),
                    [-1] * mark.lost + unreadable,
                    partial(covered_before, key) if covered_before is not None and key in marks else None,
                )
                stream = _Stream(key, machine, BatchBuffer(partial(held_batches, key)), output)
            if key[2] is None:
                unreadable += piece.column("offset").to_pylist()
                tell(key, Mark(lost=lost + len(unreadable)))
                if output in ("events", "kept"):
                    yield with_no_window(piece)
            else:
                yield from stream.take(piece)
    if stream is not None:
        yield from stream.finish(tell)


def split_streams(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, in pieces that are of one stream each."""
    if not batch.num_rows:
        return
    changes = np.zeros(batch.num_rows, dtype=bool)
    for name in STREAM:
        codes = pc.fill_null(pc.dictionary_encode(batch.column(name)).indices, -1)
        changes[1:] |= np.diff(codes.to_numpy(zero_copy_only=False)) != 0
    for start, stop in pairwise([0, *np.flatnonzero(changes).tolist(), batch.num_rows]):
        yield batch.slice(start, stop - start)


class _Stream:
    """One physical partition of one partition of a topic."""

    def __init__(self, key: Key, machine: WindowMachine, held_rows: BatchBuffer, output: Output) -> None:
        self.key, self.machine, self.held_rows, self.output = key, machine, held_rows, output

    def take(self, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What can be said once these rows are known; what stays open is held."""
        steps = list(map(self.machine.take, event_rows(piece)))
        ends = [(row + 1, step.outcome) for row, step in enumerate(steps) if step.outcome is not None]
        stops, outcomes = [stop for stop, _ in ends], [outcome for _, outcome in ends]
        if self.output == "windows":
            if outcomes:
                yield window_rows(self.key, outcomes)
            return
        rows = with_steps(piece, steps, covered=self.output == "kept")
        if stops:
            for batch in self.held_rows.take():
                yield from self._settled(batch, outcomes, np.zeros(batch.num_rows, dtype=np.int64))
            place = np.repeat(np.arange(len(stops)), np.diff(stops, prepend=0))
            yield from self._settled(rows.slice(0, stops[-1]), outcomes, place)
        still_open = rows.slice(stops[-1] if stops else 0)
        if still_open.num_rows:
            self.held_rows.add(still_open)

    def _settled(
        self, rows: pa.RecordBatch, outcomes: Sequence[Outcome], place: Ints
    ) -> Iterator[pa.RecordBatch]:
        found = with_outcomes(rows, outcomes, place)
        if self.output == "consistent":
            found = found.filter(_counts(found.column("window_state"), found.column("kind")))
        if found.num_rows:
            yield found

    def finish(self, tell: Callable[[Key, Mark], None]) -> Iterator[pa.RecordBatch]:
        """The window that never ended, at the end of the stream."""
        machine = self.machine
        if self.key[2] is None:
            return
        tell(self.key, Mark(machine.position, machine.window, machine.unseen))
        outcome = machine.open_outcome()
        if self.output == "windows":
            if outcome.events or outcome.bad:
                yield window_rows(self.key, [outcome])
        elif self.output != "consistent":
            for batch in self.held_rows.take_new():
                rows = with_outcomes(batch, [outcome], np.zeros(batch.num_rows, dtype=np.int64))
                yield with_columns(rows, {IS_LATE: batch.column(IS_LATE)}) if self.output == "kept" else rows
