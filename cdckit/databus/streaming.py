"""Windows on the driver, one after the other, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass
class Window:
    """
    One window on its way to consumers.

    Attributes:
        start_scn: The lowest SCN of it, among all events or those that were subscribed to.
        end_scn: The SCN of its end; None where it has none and is rolled back.
        ts_nsecs: The time of its end in nanoseconds since 1970; -1 where it has none.
        pieces: Its events as Arrow batches, to be taken once, in the order of the subscription.
    """

    start_scn: int
    end_scn: int | None
    ts_nsecs: int
    pieces: Iterator[pa.RecordBatch] = field(repr=False)
    sources: Mapping[int, Source] = field(repr=False)

    def runs(self) -> Iterator[tuple[Source, list[Event]]]:
        """The events, as many at once as are of one source and of one batch."""
        for piece in self.pieces:
            yield from _runs(piece, self.sources)

    def table(self) -> pa.Table:
        """All events of the window as one Arrow table, which must fit in memory."""
        return pa.Table.from_batches(self.pieces)


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
    pieces = _pieces(batches)
    piece = next(pieces, None)
    while piece is not None:
        rest: list[pa.RecordBatch | None] = [piece]
        window = _window(piece, _of_one_window(rest, pieces), sources)
        yield window
        for _ in window.pieces:
            pass
        piece = rest[0]


def _of_one_window(
    rest: list[pa.RecordBatch | None], pieces: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The pieces of the window of the first; what follows is left in *rest*."""
    first = rest[0]
    number = first.column("window")[0].as_py() if first is not None else None
    while (piece := rest[0]) is not None and piece.column("window")[0].as_py() == number:
        rest[0] = None
        yield piece
        rest[0] = next(pieces, None)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
        cuts = np.flatnonzero(np.diff(batch.column("window").to_numpy())) + 1
        starts = [0, *cuts.tolist()]
        for start, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            yield batch.slice(start, stop - start)


def _window(first: pa.RecordBatch, pieces: Iterator[pa.RecordBatch], sources: Mapping[int, Source]) -> Window:
    start, end, at, state = (
        first.column(f"window_{name}")[0] for name in ("start_scn", "end_scn", "timestamp", "state")
    )
    ended = state.as_py() not in _ROLLED_BACK
    nanos = at.cast(pa.int64()).as_py()
    return Window(
        start_scn=start.as_py(),
        end_scn=end.as_py() if ended else None,
        ts_nsecs=-1 if nanos is None else nanos * 1000,
        pieces=pieces,
        sources=sources,
    )


def _runs(piece: pa.RecordBatch, sources: Mapping[int, Source]) -> Iterator[tuple[Source, list[Event]]]:
    numbers = piece.column("source_id").to_numpy()
    keys = [
        text if number is None else number
        for number, text in zip(
            piece.column("long_key").to_pylist(), piece.column("string_key").to_pylist(), strict=True
        )
    ]
    names = ("scn", "opcode", "event_timestamp", "schema_id", "payload")
    scns, opcodes, times, schemas, payloads = (piece.column(name).to_pylist() for name in names)
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
        source = sources[int(numbers[start])]
        own = slice(start, stop)
        columns = zip(
            scns[own], opcodes[own], keys[own], times[own], schemas[own], payloads[own], strict=True
        )
        yield source, [Event(source, *each) for each in columns]
