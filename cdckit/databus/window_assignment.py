"""
Cutting: which window each event of one stream belongs to, and what each window holds (NumPy).

A *span* is what stands up to an end of a period, or up to a rollback, that included: a window, or what is
left of one.  The rows of a stream come in pieces; what is known of the span that a piece leaves open is
carried to the next one, in a few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cdckit.parts.running_aggregates import Bools, Ints

IS_DATA, IS_END, IS_ROLLBACK, IS_OTHER, IS_BAD = range(5)
"""What a row is to the cutting; one in error is bad, whatever it would have been."""

HIGHEST = np.iinfo(np.int64).max
LOWEST = np.iinfo(np.int64).min


class Rows(NamedTuple):
    """Events of one stream, in their order."""

    kind: Ints
    scn: Ints
    source: Ints
    offset: Ints
    micros: Ints


@dataclass
class Open:
    """What is known of a span that has not ended yet."""

    number: int = 1
    rows: int = 0
    events: int = 0
    bad: int = 0
    fell: bool = False
    late: bool = False
    low: int = HIGHEST
    high: int = LOWEST
    micros: int = LOWEST
    first_offset: int = -1
    last_offset: int = -1
    of_source: dict[int, int] = field(default_factory=dict)


class Spans(NamedTuple):
    """The spans that end in a piece of rows; one number, or flag, for each."""

    number: Ints
    is_rollback: Bools
    events: Ints
    bad: Ints
    fell: Bools
    low: Ints
    high: Ints
    scn: Ints
    micros: Ints
    first_offset: Ints
    last_offset: Ints
    stop: Ints
    """Where its rows end in the piece; they begin where the one before stops."""


class Cut(NamedTuple):
    """A piece of rows, cut."""

    span: Ints
    """For each row, which of the spans it is in; behind the last one is what stays open."""
    position: Ints
    """For each data event its place among those of its window, from 1; for other rows 0."""
    fell: list[tuple[int, int]]
    """The rows whose SCN fell, and what it had to be at least."""
    ended: Spans
    open: Open


def cut(rows: Rows, before: Open, unreadable: Ints) -> Cut:
    """
    Cut a piece of the rows of one stream.

    Args:
        rows: The piece.
        before: What the pieces before it left open.
        unreadable: The offsets, growing, of rejects that could be of this stream as well as of any other;
            those behind the last end of a period.
    """
    ends = (rows.kind == IS_END) | (rows.kind == IS_ROLLBACK)
    stop = np.flatnonzero(ends) + 1
    span = np.cumsum(ends) - ends
    spans = len(stop) + 1
    data = rows.kind == IS_DATA
    of_data = span[data]
    events = np.bincount(of_data, minlength=spans)
    low = _reduced(np.minimum, rows.scn[data], of_data, spans, HIGHEST)
    high = _reduced(np.maximum, rows.scn[data], of_data, spans, LOWEST)
    micros = _reduced(np.maximum, rows.micros[data], of_data, spans, LOWEST)
    counted = np.cumsum(data)
    begins = np.concatenate([[0], counted[stop - 1]])
    position = counted - begins[span]
    position[span == 0] += before.events
    falls = _falls(rows.scn, rows.source, np.flatnonzero(data), span, before)
    fell = np.zeros(spans, dtype=bool)
    fell[span[[row for row, _ in falls]]] = True
    bad = np.bincount(span[rows.kind == IS_BAD], minlength=spans)
    ended_at = rows.offset[stop - 1]
    seen = np.searchsorted(unreadable, ended_at)
    bad[:-1] += np.diff(seen, prepend=0)
    first_offset = rows.offset[np.minimum(np.concatenate([[0], stop]), len(rows.kind) - 1)]
    events[0] += before.events
    bad[0] += before.bad
    fell[0] |= before.fell
    low[0], high[0] = min(low[0], before.low), max(high[0], before.high)
    micros[0] = max(micros[0], before.micros)
    if before.rows:
        first_offset[0] = before.first_offset
    ended = Spans(
        number=before.number + np.arange(spans - 1),
        is_rollback=rows.kind[stop - 1] == IS_ROLLBACK,
        events=events[:-1],
        bad=bad[:-1],
        fell=fell[:-1],
        low=low[:-1],
        high=high[:-1],
        scn=rows.scn[stop - 1],
        micros=np.maximum(rows.micros[stop - 1], micros[:-1]),
        first_offset=first_offset[:-1],
        last_offset=ended_at,
        stop=stop,
    )
    tail = slice(int(stop[-1]) if len(stop) else 0, len(span))
    left = Open(
        number=before.number + spans - 1,
        rows=tail.stop - tail.start + (0 if len(stop) else before.rows),
        events=int(events[-1]),
        bad=int(bad[-1]),
        fell=bool(fell[-1]),
        late=before.late and not len(stop),
        low=int(low[-1]),
        high=int(high[-1]),
        micros=int(micros[-1]),
        first_offset=int(first_offset[-1]),
        last_offset=int(rows.offset[-1]),
        of_source=_of_source(rows, tail, {} if len(stop) else before.of_source),
    )
    return Cut(span, np.where(data, position, 0), falls, ended, left)


def _reduced(by: np.ufunc, values: Ints, span: Ints, spans: int, nothing: int) -> Ints:
    """One number for each span, of its values; *nothing* for one that has none."""
    found = np.full(spans, nothing, dtype=np.int64)
    if len(values):
        starts = np.flatnonzero(np.diff(span, prepend=-1))
        found[span[starts]] = by.reduceat(values, starts)
    return found


def _falls(scn: Ints, source: Ints, data: Ints, span: Ints, before: Open) -> list[tuple[int, int]]:
    """The rows whose SCN is lower than that of the event of the source before it in the window."""
    values, spans = scn[data], span[data]
    if not len(data):
        return []
    in_order = bool(((np.diff(values) >= 0) | (np.diff(spans) > 0)).all())
    if in_order and (spans[0] > 0 or values[0] >= before.high):
        return []
    order = np.lexsort((data, source[data], spans))
    values, spans, sources, places = values[order], spans[order], source[data][order], data[order]
    same = (np.diff(sources) == 0) & (np.diff(spans) == 0)
    fell = np.flatnonzero(same & (np.diff(values) < 0)) + 1
    found = [(int(places[at]), int(values[at - 1])) for at in fell.tolist()]
    firsts = np.concatenate([[True], ~same]) & (spans == 0)
    for at in np.flatnonzero(firsts).tolist():
        least = before.of_source.get(int(sources[at]), LOWEST)
        if values[at] < least:
            found.append((int(places[at]), least))
    return found


def _of_source(rows: Rows, tail: slice, before: dict[int, int]) -> dict[int, int]:
    """For each source the last SCN of the span that stays open."""
    data = rows.kind[tail] == IS_DATA
    if not data.any():
        return before
    return before | dict(zip(rows.source[tail][data].tolist(), rows.scn[tail][data].tolist(), strict=True))
