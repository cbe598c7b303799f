"""Windows, where the work is done: sorted batches of events in, batches with their windows out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.databus.cutting import IS_BAD, IS_DATA, IS_OTHER, Cut, Open, Rows, Spans, cut
from cdckit.databus.event_rows import KINDS
from cdckit.databus.faults import DatabusFault, Findings
from cdckit.databus.held import Held
from cdckit.databus.passing import COMPLETE, DAMAGED, LATE, OPEN, REPEATED, STATES, Judged, Passing
from cdckit.parts.instants import INSTANT
from cdckit.parts.running import Bools, Ints
from cdckit.rejected import ERROR_CODE, ERROR_DESCRIPTION

Output = Literal["events", "consistent", "windows"]

STREAM = ("topic", "partition", "physical_partition")
"""What tells one stream from the next."""

_KNOWN = pa.array(KINDS)
_STATES = pa.array(STATES)
_LATE = "_late"

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


def cut_batches(batches: Iterable[pa.RecordBatch], *, output: Output) -> Iterator[pa.RecordBatch]:
    """
    Cut sorted events into windows.

    Args:
        batches: Events, sorted by `STREAM`, nulls first, and offset.
        output: `events`: all of them, each with its window; `consistent`: those that count; `windows`: one
            row for each window.
    """
    stream: _Stream | None = None
    unreadable: list[Ints] = []
    of: tuple[object, ...] = ()
    for batch in batches:
        for piece in _streams(batch):
            key = tuple(piece.column(name)[0].as_py() for name in STREAM)
            if stream is None or key != stream.key:
                if stream is not None:
                    yield from stream.finish()
                if key[:2] != of:
                    unreadable, of = [], key[:2]
                known = np.concatenate([np.zeros(0, dtype=np.int64), *unreadable])
                stream = _Stream(key, known, output)
            if key[2] is None:
                unreadable.append(np.asarray(piece.column("offset"), dtype=np.int64))
                yield from _of_no_stream(piece, output)
            else:
                yield from stream.take(piece)
    if stream is not None:
        yield from stream.finish()


def _streams(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, in pieces that are of one stream each."""
    if not batch.num_rows:
        return
    changes: Bools = np.zeros(batch.num_rows, dtype=bool)
    for name in STREAM:
        codes = pc.fill_null(pc.dictionary_encode(batch.column(name)).indices, -1)
        changes[1:] |= np.diff(codes.to_numpy(zero_copy_only=False)) != 0
    for start, stop in pairwise([0, *np.flatnonzero(changes).tolist(), batch.num_rows]):
        yield batch.slice(start, stop - start)


def _of_no_stream(piece: pa.RecordBatch, output: Output) -> Iterator[pa.RecordBatch]:
    """Records that do not say their stream: they have no window."""
    if output == "events":
        nothing = [pa.nulls(piece.num_rows, field.type) for field in EVENT_WINDOW]
        yield _with(piece, dict(zip(EVENT_WINDOW.names, nothing, strict=True)))


class _Stream:
    """One physical partition of one partition of a topic."""

    def __init__(self, key: tuple[object, ...], unreadable: Ints, output: Output) -> None:
        self.key, self.unreadable, self.output = key, unreadable, output
        self.passing, self.open, self.held = Passing(), Open(), Held()

    def take(self, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What can be said once these rows are known; what stays open is held."""
        rows = _rows(piece)
        data = rows.kind == IS_DATA
        before, found = self.open, cut(rows, self.open, self.unreadable)
        ended = found.ended
        judged = self.passing.judge(ended, rows, data, before)
        stop = int(ended.stop[-1]) if len(ended.stop) else 0
        late_behind = data[stop:] & self.passing.late_among(rows.scn[stop:])
        judged.late[stop:] = late_behind
        self.open = found.open
        self.open.late |= bool(late_behind.any())
        if stop:
            seen = int(np.searchsorted(self.unreadable, rows.offset[stop - 1]))
            self.unreadable = self.unreadable[seen:]
        if self.output == "windows":
            if stop:
                yield self._windows(ended, judged)
            return
        marked = _with(piece, self._marks(piece, found, judged))
        if stop:
            for held in self.held.take():
                yield from self._told(held, np.zeros(held.num_rows, dtype=np.int64), ended, judged)
            yield from self._told(marked.slice(0, stop), found.span[:stop], ended, judged)
        if stop < piece.num_rows:
            self.held.add(marked.slice(stop))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The window that never ended, at the end of the stream."""
        last = self.open
        if self.output == "windows":
            if last.events or last.bad:
                yield self._open_window(last)
        elif self.output == "events":
            for held in self.held.take():
                yield self._of_open_window(held, last)

    def _marks(self, piece: pa.RecordBatch, found: Cut, judged: Judged) -> dict[str, pa.Array]:
        """What is known of each row before its window ends; and of the ends what is wrong with them."""
        findings: Findings = {}
        for row, least in found.fell:
            scn = piece.column("scn")[row].as_py()
            findings[row] = (DatabusFault.SCN_FELL, f"Expected {least} or more, found {scn}.")
        for span, finding in judged.findings.items():
            findings[int(found.ended.stop[span]) - 1] = finding
        position = pa.array(found.position, pa.int64(), mask=found.position == 0)
        return {
            **_with_errors(piece, findings),
            "window_position": position,
            _LATE: pa.array(judged.late),
        }

    def _told(
        self, rows: pa.RecordBatch, span: Ints, ended: Spans, judged: Judged
    ) -> Iterator[pa.RecordBatch]:
        """The rows, of spans that ended, with what became of these; or those alone that count."""
        scn = _ints(rows.column("scn"))
        state = judged.state[span]
        is_data = _flags(pc.equal(rows.column("kind"), KINDS[IS_DATA]))
        state[(state == COMPLETE) & is_data & (scn <= judged.above[span])] = REPEATED
        if self.output == "consistent":
            chosen = (state == COMPLETE) & is_data
            if not chosen.any():
                return
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
        if self.output == "events":
            columns |= _with_errors(rows, _late_events(rows, state, scn, judged.above[span]))
        yield _in_order(rows, columns)

    def _of_open_window(self, rows: pa.RecordBatch, last: Open) -> pa.RecordBatch:
        count = rows.num_rows
        columns = {
            "window": pa.array(np.full(count, last.number)),
            "window_state": pa.array([STATES[OPEN]] * count),
            "window_start_scn": pa.array([last.low if last.events else None] * count, pa.int64()),
            "window_end_scn": pa.nulls(count, pa.int64()),
            "window_timestamp": pa.nulls(count, INSTANT),
        }
        return _in_order(rows, columns)

    def _windows(self, ended: Spans, judged: Judged) -> pa.RecordBatch:
        count = len(ended.stop)
        codes: list[str | None] = [None] * count
        sentences: list[str | None] = [None] * count
        for span, (fault, finding) in judged.findings.items():
            codes[span], sentences[span] = fault.value, fault.describe(finding)
        is_complete = judged.state == COMPLETE
        columns = [
            *(
                pa.array([each] * count, WINDOW.field(name).type)
                for name, each in zip(STREAM, self.key, strict=True)
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

    def _open_window(self, last: Open) -> pa.RecordBatch:
        start = last.low if last.events else None
        row = (
            *self.key, last.number, STATES[OPEN], start, None, None,
            last.events, last.bad, last.first_offset, last.last_offset, None, None,
        )  # fmt: skip
        columns = [pa.array([each], field.type) for each, field in zip(row, WINDOW, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=WINDOW)


def _rows(piece: pa.RecordBatch) -> Rows:
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


def _late_events(rows: pa.RecordBatch, state: Ints, scn: Ints, passed: Ints) -> Findings:
    late = _flags(rows.column(_LATE))
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


def _with(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with these columns, in the place of those of their names or behind all."""
    found = dict(zip(rows.schema.names, rows.columns, strict=True)) | columns
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _in_order(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with these columns, those of windows behind all others."""
    found = dict(zip(rows.schema.names, rows.columns, strict=True)) | columns
    names = [name for name in found if name not in EVENT_WINDOW.names and name != _LATE]
    names += EVENT_WINDOW.names
    return pa.RecordBatch.from_arrays([found[name] for name in names], names=names)


def _ints(array: pa.Array) -> Ints:
    filled: Ints = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return filled.astype(np.int64)


def _flags(array: pa.Array) -> Bools:
    flags: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return flags.copy()
