"""Windows on the driver, one after the other, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.consumers import Event
from cdckit.databus.event_sources import Source, by_id
from cdckit.databus.subscribing import RANK, Subscription, in_order, subscribed
from cdckit.databus.window_rows import STREAM
from cdckit.databus.window_tables import consistent, with_windows
from cdckit.errors import InvalidArgument
from cdckit.parts.workers import Made

_COLUMNS = (
    *STREAM, "window", "window_state", "window_start_scn", "window_end_scn", "window_timestamp",
    "source_id", "scn", "opcode", "long_key", "string_key", "event_timestamp", "schema_id", "payload",
)  # fmt: skip
_ROLLED_BACK = ("rolled back", "damaged")
_PACKED = T.StructType([T.StructField("batch", T.BinaryType())])


class _Rows:
    """A batch of sorted events, made Python's at once: window by window would take longer than all else."""

    def __init__(self, batch: pa.RecordBatch, sources: Mapping[int, Source]) -> None:
        self.batch, self._sources = batch, sources
        windows, numbers = batch.column("window").to_numpy(), batch.column("source_id").to_numpy()
        is_new = np.diff(windows) != 0
        self.cuts = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(windows)]
        self._runs = (np.flatnonzero(is_new | (np.diff(numbers) != 0)) + 1).tolist()
        self._numbers = numbers
        self.window = windows.tolist()

    @cached_property
    def ends(self) -> list[tuple[int, int | None, int]]:
        """Of each row's window its start, its end (None where it is rolled back), and the time of its end."""
        starts, ends = (self.batch.column(f"window_{name}_scn").to_pylist() for name in ("start", "end"))
        states = self.batch.column("window_state").to_pylist()
        micros = self.batch.column("window_timestamp").cast(pa.int64()).to_pylist()
        return [
            (start, None if state in _ROLLED_BACK else end, -1 if at is None else at * 1000)
            for start, end, state, at in zip(starts, ends, states, micros, strict=True)
        ]

    @cached_property
    def events(self) -> list[Event]:
        """All events of the batch."""
        columns = [self.batch.column(name).to_pylist() for name in ("long_key", "string_key")]
        keys = [text if number is None else number for number, text in zip(*columns, strict=True)]
        micros = self.batch.column("event_timestamp").cast(pa.int64()).to_pylist()
        sources = [self._sources[number] for number in self._numbers.tolist()]
        scns, opcodes, schemas, payloads = (
            self.batch.column(name).to_pylist() for name in ("scn", "opcode", "schema_id", "payload")
        )
        return list(map(Event, sources, scns, opcodes, keys, micros, schemas, payloads))

    def runs(self, start: int, stop: int) -> Iterator[list[Event]]:
        """The events of some rows, as many at once as are of one source."""
        first, last = bisect_right(self._runs, start), bisect_left(self._runs, stop)
        for begins, ends in pairwise([start, *self._runs[first:last], stop]):
            yield self.events[begins:ends]


class _Piece(NamedTuple):
    """Rows of a batch that are of one window."""

    rows: _Rows
    start: int
    stop: int

    @property
    def window(self) -> int:
        return int(self.rows.window[self.start])


@dataclass
class Window:
    """
    One window on its way to consumers.

    Attributes:
        start_scn: The lowest SCN of it, among all its events, subscribed to or not.
        end_scn: The SCN of its end; None where it has none and is rolled back.
        ts_nsecs: The time of its end in nanoseconds since 1970; -1 where it has none.
    """

    start_scn: int
    end_scn: int | None
    ts_nsecs: int
    _pieces: Iterator[_Piece] = field(repr=False)

    def runs(self) -> Iterator[tuple[Source, list[Event]]]:
        """The events, to be taken once: as many at a time as are of one source and of one batch."""
        for piece in self._pieces:
            for events in piece.rows.runs(piece.start, piece.stop):
                yield events[0].source, events

    def table(self) -> pa.Table:
        """All events of the window as one Arrow table, which must fit in memory; to be taken once."""
        return pa.Table.from_batches(
            piece.rows.batch.slice(piece.start, piece.stop - piece.start) for piece in self._pieces
        )

    def skip(self) -> None:
        """Go on behind the window."""
        for _ in self._pieces:
            pass


class EventStream:
    """
    The windows of one stream for one subscription, as often as they are asked for.

    Args:
        events: What `decode` returned, of one physical partition.
        subscription: What the consumer asks for.
        buffered: Whether a window is held back until its end is known, so that no consumer ever sees a
            rollback.  Otherwise windows that were rolled back or damaged come too, and end in a rollback.

    Each time it is asked, the events are decoded and cut anew; write what `consistent` returned, and read
    that, where consumers come often.

    >>> from cdckit import databus
    >>> stream = EventStream(events, databus.Subscription([flights, planes]))
    >>> for window in stream.windows():
    ...     print(window.start_scn, window.end_scn, window.table().column("source_id").to_pylist())
    5 5 [4, 3]
    6 6 [4]
    """

    def __init__(self, events: DataFrame, subscription: Subscription, *, buffered: bool = True) -> None:
        self._sources = by_id(subscription.sources, function="EventStream")
        told = consistent(events) if buffered else _attempts(with_windows(events))
        self._events = subscribed(told, subscription)

    def windows(self, after: int = -1) -> Iterator[Window]:
        """
        The windows that end above the SCN *after*, in their order; each must be taken before the next.

        Raises:
            InvalidArgument: The events are of several streams: their SCNs cannot be compared.
        """
        end = F.coalesce("window_end_scn", "window_start_scn")
        chosen = in_order(self._events.where(end > after)).select(*_COLUMNS, RANK)
        return split(streamed(chosen), self._sources)


def _attempts(told: DataFrame) -> DataFrame:
    """The windows that a consumer sees which hears of rollbacks: those that pass, and those that failed."""
    seen = F.col("window_state").isin("complete", *_ROLLED_BACK)
    return told.where(seen & F.col("error_code").isNull())


def streamed(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows of a table in its order, as Arrow batches, one partition of it in memory at a time."""
    for row in Made(rows, _packed, _PACKED).rows().toLocalIterator():
        with pa.ipc.open_stream(bytes(row["batch"])) as reader:
            yield from reader


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as the bytes of one row: as rows of its own, each event would be made twice."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays(
            [pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["batch"]
        )


def split(batches: Iterable[pa.RecordBatch], sources: Mapping[int, Source]) -> Iterator[Window]:
    """Sorted events, window by window."""
    pieces = _pieces(batches, sources)
    piece = next(pieces, None)
    while piece is not None:
        rest: list[_Piece | None] = [piece]
        window = Window(*piece.rows.ends[piece.start], _of_one_window(piece.window, rest, pieces))
        yield window
        window.skip()
        piece = rest[0]


def _of_one_window(number: int, rest: list[_Piece | None], pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """The pieces of a window; the first that is of another one is left in *rest*."""
    while (piece := rest[0]) is not None and piece.window == number:
        rest[0] = None
        yield piece
        rest[0] = next(pieces, None)


def _pieces(batches: Iterable[pa.RecordBatch], sources: Mapping[int, Source]) -> Iterator[_Piece]:
    """The batches in pieces of one window each; all of one stream."""
    stream: tuple[Any, ...] | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        for row in (0, batch.num_rows - 1):
            found = tuple(batch.column(name)[row].as_py() for name in STREAM)
            if stream is not None and found != stream:
                needed = f"of one stream, such as physical partition {stream[2]} of topic {stream[0]!r} alone"
                raise InvalidArgument("EventStream", "events", needed, found)
            stream = found
        rows = _Rows(batch, sources)
        yield from (_Piece(rows, start, stop) for start, stop in pairwise(rows.cuts))
