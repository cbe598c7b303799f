"""What is said of events and windows: columns, of the numbers that cutting and judging give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.databus.event_rows import KINDS
from cdckit.databus.faults import DatabusFault, Findings
from cdckit.databus.grammar import COMPLETE, DAMAGED, LATE, OPEN, REPEATED, STATES, Judged
from cdckit.databus.window_assignment import IS_BAD, IS_DATA, IS_OTHER, Cut, Open, Rows, Spans
from cdckit.parts.instants import INSTANT
from cdckit.parts.running_aggregates import Bools, Ints
from cdckit.rejected import ERROR_CODE, ERROR_DESCRIPTION

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


def numbers_of(piece: pa.RecordBatch) -> Rows:
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


def of_no_stream(piece: pa.RecordBatch) -> pa.RecordBatch:
    """Records that do not say their stream: they have no window."""
    nothing = [pa.nulls(piece.num_rows, field.type) for field in EVENT_WINDOW]
    return with_columns(piece, dict(zip(EVENT_WINDOW.names, nothing, strict=True)))


def marked(piece: pa.RecordBatch, found: Cut, judged: Judged, *, covered: bool) -> pa.RecordBatch:
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
    rows: pa.RecordBatch, span: Ints, ended: Spans, judged: Judged, *, consistent: bool
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
    return _in_order(rows, columns)


def with_open_window(rows: pa.RecordBatch, last: Open, *, kept: bool) -> pa.RecordBatch:
    """The rows, of a window that has not ended; with `IS_LATE` if they are kept until it ends."""
    count = rows.num_rows
    columns = {
        "window": pa.array(np.full(count, last.number)),
        "window_state": pa.array([STATES[OPEN]] * count),
        "window_start_scn": pa.array([last.low if last.events else None] * count, pa.int64()),
        "window_end_scn": pa.nulls(count, pa.int64()),
        "window_timestamp": pa.nulls(count, INSTANT),
    }
    found = _in_order(rows, columns)
    return with_columns(found, {IS_LATE: rows.column(IS_LATE)}) if kept else found


def ended_windows(stream: tuple[object, ...], ended: Spans, judged: Judged) -> pa.RecordBatch:
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


def open_window(stream: tuple[object, ...], last: Open) -> pa.RecordBatch:
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


def _in_order(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
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
