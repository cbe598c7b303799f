"""Windows on the driver, one after the other, in bounded memory: of records, or those that a relay keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cdckit.databus.consumers import EventBatch, Events
from cdckit.databus.event_tables import plan_windows
from cdckit.databus.event_values import DATA, DELETE, UPSERT, Source
from cdckit.databus.relay_tables import EVENTS, Place
from cdckit.databus.subscriptions import require_sources, sort_batches
from cdckit.databus.window_batches import STREAM
from cdckit.databus.window_machine import COMPLETE, DAMAGED, ROLLED_BACK
from cdckit.errors import InvalidArgument
from cdckit.model.records import ERROR_CODE
from cdckit.store import File, Snapshot, Store
from cdckit.store.files import Target, read_batches

COLUMNS = (
    *STREAM, "window", "window_state", "window_start_scn", "window_end_scn", "window_timestamp", "kind",
    "source_id", "scn", "opcode", "long_key", "string_key", "event_timestamp", "schema_id", "payload",
)  # fmt: skip
_WHOLE, _FAILED = COMPLETE, (ROLLED_BACK, DAMAGED)
_ROWS_AT_ONCE = 1 << 15


class _Batch:
    """A batch of sorted events, and where windows and sources begin in it."""

    def __init__(self, batch: pa.RecordBatch, sources: Mapping[int, Source]) -> None:
        self.rows = EventBatch(batch, sources)
        windows, numbers = (np.asarray(batch.column(name)) for name in ("window", "source_id"))
        is_new = np.diff(windows, prepend=windows[0] - 1) != 0
        starts, runs = (
            np.flatnonzero(each) for each in (is_new, is_new | (np.diff(numbers, prepend=numbers[0]) != 0))
        )
        self.window = windows[starts].tolist()
        self.starts = [*starts.tolist(), len(windows)]
        self.runs = [*runs.tolist(), len(windows)]
        self.run_of_window = [*np.searchsorted(runs, starts).tolist(), len(runs)]
        self.source = [sources[number] for number in numbers[runs].tolist()]
        first = batch.take(pa.array(starts))
        columns = (first.column(f"window_{name}").to_pylist() for name in ("start_scn", "end_scn", "state"))
        self.window_bounds = [
            (start, None if state in _FAILED else end) for start, end, state in zip(*columns, strict=True)
        ]


class _Piece(NamedTuple):
    """Rows of a batch that are of one window."""

    source_batch: _Batch
    place: int

    @property
    def window(self) -> int:
        number: int = self.source_batch.window[self.place]
        return number

    def runs(self) -> Iterator[tuple[Source, Events]]:
        """The events, as many at once as are of one source."""
        of = self.source_batch
        for run in range(of.run_of_window[self.place], of.run_of_window[self.place + 1]):
            yield of.source[run], Events(of.rows, range(of.runs[run], of.runs[run + 1]))

    def batch(self) -> pa.RecordBatch:
        start = self.source_batch.starts[self.place]
        return self.source_batch.rows.batch.slice(start, self.source_batch.starts[self.place + 1] - start)


@dataclass
class Window:
    """
    One window on its way to consumers.

    Attributes:
        start_scn: The lowest SCN of it, among all its events, subscribed to or not.
        end_scn: The SCN of its end; None where it has none and is rolled back.

    >>> from cdckit import databus
    >>> first = next(databus.EventStream(events, [flights, planes]).windows())
    >>> first.end_scn, [(source.name, len(given)) for source, given in first.runs()]
    (5, [('flights', 1), ('planes', 1)])
    """

    start_scn: int
    end_scn: int | None
    _pieces: Iterator[_Piece] = field(repr=False)

    def runs(self) -> Iterator[tuple[Source, Events]]:
        """The events, to be taken once: as many at a time as are of one source and of one batch."""
        for piece in self._pieces:
            yield from piece.runs()

    def table(self) -> pa.Table:
        """All events of the window as one Arrow table, which must fit in memory; to be taken once."""
        return pa.Table.from_batches(piece.batch() for piece in self._pieces)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The same as a DataFrame, which `rows` takes: `databus.rows(window.frame(spark), planes)`."""
        return spark.createDataFrame(self.table())

    def skip(self) -> None:
        """Go on behind the window."""
        for _ in self._pieces:
            pass


class EventStream:
    """
    The windows of one stream for one consumer, as often as they are asked for.

    Args:
        events: What `decode` returned, of one physical partition.
        sources: What the consumer asks for, in the order in which each window is to show them.
        buffered: Whether a window is held back until its end is known, so that no consumer ever sees a
            rollback.  Otherwise windows that were rolled back or damaged come too, and end in a rollback.
        folder: Where the windows are put down while they are read: a folder, or a URI, that this program and
            the workers both reach.  Without it the folder for temporary files of this machine, which is
            enough where the workers are on it too.  It is deleted at the end; after a kill a folder
            `databus-…` remains there, and may be deleted.
        storage_options: For a URI, as for `cdckit.store.Store`.

    Raises:
        MissingColumns, WrongColumnType: *events* are not what `decode` returns.
        InvalidArgument: *events* are a stream; there is no source, or one twice.

    Each time it is asked, the events are decoded and cut anew, and the windows written to files, which are
    read batch by batch and deleted.  What a `Relay` keeps need not be cut again: see `Relay.stream`.

    >>> stream = EventStream(events, [flights, planes])
    >>> for window in stream.windows():
    ...     print(window.start_scn, window.end_scn, window.table().column("source_id").to_pylist())
    5 5 [4, 3]
    6 6 [4]
    """

    def __init__(
        self,
        events: DataFrame,
        sources: Sequence[Source],
        *,
        buffered: bool = True,
        folder: str | Path | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._sources, self._buffered = require_sources(sources, function="EventStream"), buffered
        self._place = Place(folder, storage_options)
        self._made = plan_windows(events, "consistent" if buffered else "events", function="EventStream")

    def windows(self, after: int = -1) -> Iterator[Window]:
        """
        The windows that end above the SCN *after*, in their order; each must be taken before the next.

        Raises:
            InvalidArgument: The events are of several streams: their SCNs cannot be compared; or what workers
                wrote to *folder* cannot be reached from here.
            NoFileSystem: Spark or deltalake lacks the scheme of *folder*.
        """
        spark = self._made.source.sparkSession
        with self._place.with_events(spark, self._made, function="EventStream") as found:
            yield from stored_windows(found, self._sources, after, failed=not self._buffered)


def stored_windows(
    snapshot: Snapshot,
    sources: Mapping[int, Source],
    after: int,
    where: Mapping[str, Any] | None = None,
    *,
    failed: bool = False,
) -> Iterator[Window]:
    """
    The windows that a store keeps in its table of events, in files that are each of one stream.

    Args:
        snapshot: The store at a commit.
        sources: What is asked for, in its order, by id.
        after: The SCN above which windows end that are wanted.
        where: Values of columns of `STREAM`, where there are several streams.
        failed: Whether windows that were rolled back or damaged come too.
    """
    files = _stream_files(snapshot, where or {}) if snapshot.has(EVENTS) else []
    states = (_WHOLE, *_FAILED) if failed else (_WHOLE,)
    batches = _read(snapshot, files, after, states)
    return split_windows(sort_batches(batches, list(sources)), sources)


def _stream_files(snapshot: Snapshot, where: Mapping[str, Any]) -> list[File]:
    """The files of one stream, in the order of their windows."""
    wanted = {name: [value] for name, value in where.items() if value is not None}
    found = [one for one in snapshot.files(EVENTS, wanted) if "window" in one.low]
    streams = {tuple(one.partition[name] for name in STREAM) for one in found}
    if len(streams) > 1:
        (topic, _, physical), other = sorted(streams)[:2]
        needed = f"of one stream, such as physical partition {physical} of topic {topic!r} alone"
        raise InvalidArgument("windows", "events", needed, f"{len(streams)} streams, also {other}")
    return sorted(found, key=lambda one: int(one.low["window"]))


def _read(
    snapshot: Snapshot, files: Iterable[File], after: int, states: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The data events that a consumer sees, of the windows in these states that end above an SCN."""
    table = snapshot.table(EVENTS) if snapshot.has(EVENTS) else None
    for one in files:
        assert table is not None
        highest = one.high.get("window_end_scn")
        # One that failed has no end: it is found by its start.
        if len(states) == 1 and highest is not None and highest <= after:
            continue
        target = Target(snapshot.location, table.folder, table.stored)
        known = {*COLUMNS, ERROR_CODE} & set(snapshot.schema(EVENTS).fieldNames())
        for batch in read_batches(target, one.path, sorted(known), _ROWS_AT_ONCE):
            yield _keep_visible(batch, after, states)


def _keep_visible(batch: pa.RecordBatch, after: int, states: Sequence[str]) -> pa.RecordBatch:
    state = batch.column("window_state")
    end = pc.coalesce(batch.column("window_end_scn"), batch.column("window_start_scn"))
    seen = pc.and_(pc.equal(batch.column("kind"), DATA), pc.greater(end, after))
    seen = pc.and_(seen, pc.is_in(state, pa.array(states, state.type)))
    # Others were erased.
    seen = pc.and_(seen, pc.is_in(batch.column("opcode"), pa.array([UPSERT, DELETE])))
    if ERROR_CODE in batch.schema.names:
        seen = pc.and_(seen, batch.column(ERROR_CODE).is_null())
    return batch.select(list(COLUMNS)).filter(seen)


def split_windows(batches: Iterable[pa.RecordBatch], sources: Mapping[int, Source]) -> Iterator[Window]:
    """Sorted events, window by window."""
    pieces = _pieces(batches, sources)
    piece = next(pieces, None)
    while piece is not None:
        rest: list[_Piece | None] = [piece]
        window = Window(
            *piece.source_batch.window_bounds[piece.place], _window_pieces(piece.window, rest, pieces)
        )
        yield window
        window.skip()
        piece = rest[0]


def _window_pieces(number: int, rest: list[_Piece | None], pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """The pieces of a window; the first that is of another one is left in *rest*."""
    while (piece := rest[0]) is not None and piece.window == number:
        rest[0] = None
        yield piece
        rest[0] = next(pieces, None)


def _pieces(batches: Iterable[pa.RecordBatch], sources: Mapping[int, Source]) -> Iterator[_Piece]:
    """The batches in pieces of one window each."""
    for batch in batches:
        if batch.num_rows:
            of = _Batch(batch, sources)
            yield from (_Piece(of, place) for place in range(len(of.window)))


class RelayStream:
    """
    The windows of one stream that a relay keeps, for one consumer: what `dispatch` and loops take.

    They are read from the relay's files, batch by batch, without Spark; each time it is asked, those of the
    newest commit.

    Args:
        store: The store of the relay.
        sources: What the consumer asks for, in its order.
        where: Values of `STREAM`, where the relay keeps several streams.
    """

    def __init__(self, store: Store, sources: Sequence[Source], where: Mapping[str, Any]) -> None:
        self._store, self._where = store, where
        self._sources = require_sources(sources, function="stream")

    def windows(self, after: int = -1) -> Iterator[Window]:
        """
        The windows that end above the SCN *after*, in their order; each must be taken before the next.

        Raises:
            InvalidArgument: There are several streams: their SCNs cannot be compared.
        """
        return stored_windows(self._store.snapshot(), self._sources, after, self._where)
