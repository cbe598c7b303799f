"""Windows, where the work is done: sorted batches of events in, batches with their windows out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.databus.grammar import START, Covered, Judged, Passing, Standing
from cdckit.databus.row_buffer import Held
from cdckit.databus.window_assignment import IS_DATA, Open, Spans, cut
from cdckit.databus.window_columns import (
    STREAM,
    ended_windows,
    marked,
    numbers_of,
    of_no_stream,
    open_window,
    with_open_window,
    with_window,
)
from cdckit.parts.running_aggregates import Bools, Ints

Output = Literal["events", "consistent", "windows", "kept"]

Key = tuple[Any, ...]
"""A stream: the values of `STREAM`.  Without a physical partition: the records that say none."""


class Mark(NamedTuple):
    """Where a stream stands, so that it can be gone on from there."""

    standing: Standing = START
    """At the end of its last window."""
    open: Open = Open()
    """What is known of the window that follows."""
    lost: int = 0
    """How many records that do not say their stream stand behind that end; of no stream: how many came."""


def _forget(key: Key, mark: Mark) -> None:
    """Who asks once need not know where the streams stand."""


def _nothing(key: Key) -> Iterable[pa.RecordBatch]:
    """Nothing was held of a stream that was not asked for before."""
    return ()


def cut_batches(
    batches: Iterable[pa.RecordBatch],
    *,
    output: Output,
    marks: Mapping[Key, Mark] = MappingProxyType({}),
    covered: Callable[[Key], Covered] = lambda key: None,
    held: Callable[[Key], Iterable[pa.RecordBatch]] = _nothing,
    tell: Callable[[Key, Mark], None] = _forget,
) -> Iterator[pa.RecordBatch]:
    """
    Cut sorted events into windows.

    Args:
        batches: Events, sorted by `STREAM`, nulls first, and offset.
        output: `events`: all of them, each with its window; `kept`: the same, with `COVERED` or, in an open
            window, with `IS_LATE`; `consistent`: those that count; `windows`: one row for each window.
        marks: Where each stream stood.
        covered: By stream, what tells which SCNs the windows said that passed before.
        held: By stream, the rows of the window that was open, as they were yielded; asked for when it ends.
        tell: Is told where each stream stands now.
    """
    stream: _Stream | None = None
    unreadable: list[Ints] = []
    of: Key = ()
    for batch in batches:
        for piece in streams_of(batch):
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
                waiting = Held(partial(held, key))
                stream = _Stream(key, marks.get(key, Mark()), known, covered(key), waiting, output)
            if key[2] is None:
                unreadable.append(np.asarray(piece.column("offset"), dtype=np.int64))
                tell(key, Mark(lost=before + sum(map(len, unreadable))))
                if output in ("events", "kept"):
                    yield of_no_stream(piece)
            else:
                yield from stream.take(piece)
    if stream is not None:
        yield from stream.finish(tell)


def streams_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
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
        self, key: Key, mark: Mark, unreadable: Ints, covered: Covered, held: Held, output: Output
    ) -> None:
        self.key, self.unreadable, self.output = key, unreadable, output
        self.passing, self.held = Passing(mark.standing, covered), held
        self.open = replace(mark.open)

    def take(self, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What can be said once these rows are known; what stays open is held."""
        rows = numbers_of(piece)
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
                yield ended_windows(self.key, ended, judged)
            return
        told = marked(piece, found, judged, covered=self.output == "kept")
        if stop:
            for held in self.held.take():
                yield from self._told(held, np.zeros(held.num_rows, dtype=np.int64), ended, judged)
            yield from self._told(told.slice(0, stop), found.span[:stop], ended, judged)
        if stop < piece.num_rows:
            self.held.add(told.slice(stop))

    def _told(
        self, rows: pa.RecordBatch, span: Ints, ended: Spans, judged: Judged
    ) -> Iterator[pa.RecordBatch]:
        found = with_window(rows, span, ended, judged, consistent=self.output == "consistent")
        if found is not None:
            yield found

    def finish(self, tell: Callable[[Key, Mark], None]) -> Iterator[pa.RecordBatch]:
        """The window that never ended, at the end of the stream."""
        last = self.open
        if self.key[2] is not None:
            tell(self.key, Mark(self.passing.standing, last, len(self.unreadable)))
        if self.output == "windows":
            if last.events or last.bad:
                yield open_window(self.key, last)
        elif self.output != "consistent":
            for held in self.held.take_new():
                yield with_open_window(held, last, kept=self.output == "kept")
