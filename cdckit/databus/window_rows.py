"""Windows, where workers cut them: sorted batches of events in, batches with their windows out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.databus.event_values import DatabusFault
from cdckit.databus.events import KINDS
from cdckit.databus.window_rules import (
    COMPLETE,
    DAMAGED,
    IS_BAD,
    IS_DATA,
    IS_OTHER,
    LATE,
    OPEN,
    REPEATED,
    START,
    STATES,
    Covered,
    OpenSpan,
    Rows,
    SpanCut,
    SpanOutcomes,
    Spans,
    StreamPosition,
    WindowMachine,
    cut_spans,
)
from cdckit.model.faults import Findings
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.arrays import Bools, Ints
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

_KNOWN = pa.array(KINDS)
_STATES = pa.array(STATES)
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


def event_numbers(piece: pa.RecordBatch) -> Rows:
    """Events of one stream as cutting takes them."""
    kind = _ints(pc.index_in(piece.column("kind"), _KNOWN))
    kind = np.minimum(kind, IS_OTHER)
    kind[_flags(piece.column(ERROR_CODE).is_valid())] = IS_BAD
    return Rows(
        kind,
        _ints(piece.column("scn")),
        _ints(piece.column("source_id")),
        _ints(piece.column("offset")),
        _ints(piece.column("event_timestamp").cast(pa.int64())),
    )


def with_no_window(piece: pa.RecordBatch) -> pa.RecordBatch:
    """Records that do not say their stream: they have no window."""
    nothing = [pa.nulls(piece.num_rows, field.type) for field in EVENT_WINDOW]
    return with_columns(piece, dict(zip(EVENT_WINDOW.names, nothing, strict=True)))


def with_first_findings(
    piece: pa.RecordBatch, found: SpanCut, judged: SpanOutcomes, *, covered: bool
) -> pa.RecordBatch:
    """What is known of each row before its window ends; and of the ends what is wrong with them."""
    findings: Findings = {}
    for row, least in found.fell:
        scn = piece.column("scn")[row].as_py()
        findings[row] = (DatabusFault.SCN_FELL, f"Expected {least} or more, found {scn}.")
    for span, finding in judged.findings.items():
        findings[int(found.ended.stop[span]) - 1] = finding
    columns = {
        **_with_errors(piece, findings),
        "window_position": pa.array(found.position, pa.int64(), mask=found.position == 0),
        IS_LATE: pa.array(judged.late),
    }
    if covered:
        ends = found.ended.stop - 1
        for name, scns in zip(COVERED.names, (judged.covered_from, judged.covered_to), strict=True):
            values = np.full(piece.num_rows, -1)
            values[ends] = scns
            columns[name] = pa.array(values, mask=values < 0)
    return with_columns(piece, columns)


def with_window(
    rows: pa.RecordBatch, span: Ints, ended: Spans, judged: SpanOutcomes, *, consistent: bool
) -> pa.RecordBatch | None:
    """The rows, of spans that ended, with what became of these; or those alone that count, if some do."""
    scn = _ints(rows.column("scn"))
    state = judged.state[span]
    is_data = _flags(pc.equal(rows.column("kind"), KINDS[IS_DATA]))
    state[(state == COMPLETE) & is_data & (scn <= judged.above[span])] = REPEATED
    if consistent:
        chosen = (state == COMPLETE) & is_data
        if not chosen.any():
            return None
        if not chosen.all():
            rows, span, state = rows.filter(pa.array(chosen)), span[chosen], state[chosen]
    has_events, is_complete = ended.events[span] > 0, judged.state[span] == COMPLETE
    is_end = ~ended.is_rollback[span]
    columns = {
        "window": pa.array(ended.number[span]),
        "window_state": _STATES.take(pa.array(state)),
        "window_start_scn": pa.array(ended.low[span], mask=~has_events),
        "window_end_scn": pa.array(ended.scn[span], mask=~is_end),
        "window_timestamp": pa.array(judged.micros[span], pa.int64(), mask=~is_complete).cast(INSTANT),
    }
    if not consistent:
        columns |= _with_errors(rows, _late_events(rows, state, scn, judged.above[span]))
    return _order_columns(rows, columns)


def with_open_window(rows: pa.RecordBatch, last: OpenSpan, *, kept: bool) -> pa.RecordBatch:
    """The rows, of a window that has not ended; with `IS_LATE` if they are kept until it ends."""
    count = rows.num_rows
    columns = {
        "window": pa.array(np.full(count, last.number)),
        "window_state": pa.array([STATES[OPEN]] * count),
        "window_start_scn": pa.array([last.low if last.events else None] * count, pa.int64()),
        "window_end_scn": pa.nulls(count, pa.int64()),
        "window_timestamp": pa.nulls(count, INSTANT),
    }
    found = _order_columns(rows, columns)
    return with_columns(found, {IS_LATE: rows.column(IS_LATE)}) if kept else found


def ended_windows(stream: tuple[object, ...], ended: Spans, judged: SpanOutcomes) -> pa.RecordBatch:
    """A row for each window that ended."""
    count = len(ended.stop)
    codes: list[str | None] = [None] * count
    sentences: list[str | None] = [None] * count
    for span, (fault, finding) in judged.findings.items():
        codes[span], sentences[span] = fault.value, fault.describe(finding)
    is_complete = judged.state == COMPLETE
    columns = [
        *(
            pa.array([each] * count, WINDOW.field(name).type)
            for name, each in zip(STREAM, stream, strict=True)
        ),
        pa.array(ended.number),
        _STATES.take(pa.array(judged.state)),
        pa.array(ended.low, mask=ended.events == 0),
        pa.array(ended.scn, mask=ended.is_rollback),
        pa.array(judged.micros, pa.int64(), mask=~is_complete).cast(INSTANT),
        pa.array(ended.events),
        pa.array(ended.bad),
        pa.array(ended.first_offset),
        pa.array(ended.last_offset),
        pa.array(codes, pa.string()),
        pa.array(sentences, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=WINDOW)


def open_window(stream: tuple[object, ...], last: OpenSpan) -> pa.RecordBatch:
    """The row of a window that has not ended."""
    start = last.low if last.events else None
    row = (
        *stream, last.number, STATES[OPEN], start, None, None,
        last.events, last.bad, last.first_offset, last.last_offset, None, None,
    )  # fmt: skip
    columns = [pa.array([each], field.type) for each, field in zip(row, WINDOW, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=WINDOW)


def _late_events(rows: pa.RecordBatch, state: Ints, scn: Ints, passed: Ints) -> Findings:
    late = _flags(rows.column(IS_LATE))
    late &= (state == REPEATED) | (state == LATE) | (state == DAMAGED)
    finding = "Expected an SCN above {}, found {}."
    return {
        row: (DatabusFault.EVENT_LATE, finding.format(passed[row], scn[row]))
        for row in np.flatnonzero(late).tolist()
    }


def _with_errors(rows: pa.RecordBatch, findings: Findings) -> dict[str, pa.Array]:
    """The columns of errors, with the findings where a row has none yet."""
    if not findings:
        return {}
    codes = rows.column(ERROR_CODE).to_pylist()
    sentences = rows.column(ERROR_DESCRIPTION).to_pylist()
    for row, (fault, finding) in findings.items():
        if codes[row] is None:
            codes[row], sentences[row] = fault.value, fault.describe(finding)
    return {ERROR_CODE: pa.array(codes, pa.string()), ERROR_DESCRIPTION: pa.array(sentences, pa.string())}


def with_columns(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with these columns, in the place of those of their names or behind all."""
    found = dict(zip(rows.schema.names, rows.columns, strict=True)) | columns
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _order_columns(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with these columns, those of windows behind all others."""
    found = dict(zip(rows.schema.names, rows.columns, strict=True)) | columns
    names = [name for name in found if name not in EVENT_WINDOW.names and name != IS_LATE]
    names += EVENT_WINDOW.names
    return pa.RecordBatch.from_arrays([found[name] for name in names], names=names)


def _ints(array: pa.Array) -> Ints:
    filled: Ints = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return filled.astype(np.int64)


def _flags(array: pa.Array) -> Bools:
    flags: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return flags.copy()


Output = Literal["events", "consistent", "windows", "kept"]

Key = tuple[Any, ...]
"""A stream: the values of `STREAM`.  Without a physical partition: the records that say none."""


class Mark(NamedTuple):
    """Where a stream stands, so that it can be gone on from there."""

    position: StreamPosition = START
    """At the end of its last window."""
    open: OpenSpan = OpenSpan()
    """What is known of the window that follows."""
    lost: int = 0
    """How many records that do not say their stream stand behind that end; of no stream: how many came."""


def _ignore_mark(key: Key, mark: Mark) -> None:
    """Who asks once need not know where the streams stand."""


def _no_waiting_rows(key: Key) -> Iterable[pa.RecordBatch]:
    """Nothing was held of a stream that was not asked for before."""
    return ()


def cut_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    output: Output,
    marks: Mapping[Key, Mark] = MappingProxyType({}),
    covered: Callable[[Key], Covered] = lambda key: None,
    held_batches: Callable[[Key], Iterable[pa.RecordBatch]] = _no_waiting_rows,
    tell: Callable[[Key, Mark], None] = _ignore_mark,
) -> Iterator[pa.RecordBatch]:
    """
    Cut sorted events into windows.

    Args:
        batches: Events, sorted by `STREAM`, nulls first, and offset.
        output: `events`: all of them, each with its window; `kept`: the same, with `COVERED` or, in an open
            window, with `IS_LATE`; `consistent_events`: those that count; `windows`: one row for each window.
        marks: Where each stream stood.
        covered: By stream, what tells which SCNs the windows said that passed before.
        held_batches: By stream, the rows of the window that was open, as yielded; read when it ends.
        tell: Is told where each stream stands now.
    """
    stream: _Stream | None = None
    unreadable: list[Ints] = []
    of: Key = ()
    for batch in batches:
        for piece in split_streams(batch):
            key = tuple(piece.column(name)[0].as_py() for name in STREAM)
            if stream is None or key != stream.key:
                if stream is not None:
                    yield from stream.finish(tell)
                if key[:2] != of:
                    unreadable, of = [], key[:2]
                    before = marks.get((*of, None), Mark()).lost
                # Whose offsets are not known any more stand before all others.
                lost = marks[key].lost if key in marks else before
                known = np.concatenate([np.full(lost, -1), *unreadable])
                waiting = BatchBuffer(partial(held_batches, key))
                stream = _Stream(key, marks.get(key, Mark()), known, covered(key), waiting, output)
            if key[2] is None:
                unreadable.append(np.asarray(piece.column("offset"), dtype=np.int64))
                tell(key, Mark(lost=before + sum(map(len, unreadable))))
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
    changes: Bools = np.zeros(batch.num_rows, dtype=bool)
    for name in STREAM:
        codes = pc.fill_null(pc.dictionary_encode(batch.column(name)).indices, -1)
        changes[1:] |= np.diff(codes.to_numpy(zero_copy_only=False)) != 0
    for start, stop in pairwise([0, *np.flatnonzero(changes).tolist(), batch.num_rows]):
        yield batch.slice(start, stop - start)


class _Stream:
    """One physical partition of one partition of a topic."""

    def __init__(
        self, key: Key, mark: Mark, unreadable: Ints, covered: Covered, held_rows: BatchBuffer, output: Output
    ) -> None:
        self.key, self.unreadable, self.output = key, unreadable, output
        self.passing, self.held_rows = WindowMachine(mark.position, covered), held_rows
        self.open = replace(mark.open)

    def take(self, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What can be said once these rows are known; what stays open is held."""
        rows = event_numbers(piece)
        data = rows.kind == IS_DATA
        before, found = self.open, cut_spans(rows, self.open, self.unreadable)
        ended = found.ended
        judged = self.passing.judge_spans(ended, rows, data, before)
        stop = int(ended.stop[-1]) if len(ended.stop) else 0
        late_behind = data[stop:] & self.passing.find_late(rows.scn[stop:])
        judged.late[stop:] = late_behind
        self.open = found.open
        self.open.late |= bool(late_behind.any())
        if stop:
            seen = int(np.searchsorted(self.unreadable, rows.offset[stop - 1]))
            self.unreadable = self.unreadable[seen:]
        if self.output == "windows":
            if stop:
                yield ended_windows(self.key, ended, judged)
            return
        judged_rows = with_first_findings(piece, found, judged, covered=self.output == "kept")
        if stop:
            for batch in self.held_rows.take():
                yield from self._with_window(batch, np.zeros(batch.num_rows, dtype=np.int64), ended, judged)
            yield from self._with_window(judged_rows.slice(0, stop), found.span[:stop], ended, judged)
        if stop < piece.num_rows:
            self.held_rows.add(judged_rows.slice(stop))

    def _with_window(
        self, rows: pa.RecordBatch, span: Ints, ended: Spans, judged: SpanOutcomes
    ) -> Iterator[pa.RecordBatch]:
        found = with_window(rows, span, ended, judged, consistent=self.output == "consistent")
        if found is not None:
            yield found

    def finish(self, tell: Callable[[Key, Mark], None]) -> Iterator[pa.RecordBatch]:
        """The window that never ended, at the end of the stream."""
        last = self.open
        if self.key[2] is not None:
            tell(self.key, Mark(self.passing.position, last, len(self.unreadable)))
        if self.output == "windows":
            if last.events or last.bad:
                yield open_window(self.key, last)
        elif self.output != "consistent":
            for batch in self.held_rows.take_new():
                yield with_open_window(batch, last, kept=self.output == "kept")
