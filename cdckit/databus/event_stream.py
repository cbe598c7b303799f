"""Windows on the driver, one after the other: of events in memory, or of a relay's files, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdckit.databus.consumers import Event
from cdckit.databus.events import DATA, ERASED
from cdckit.databus.sources import Source, require_sources
from cdckit.databus.window_batches import STREAM, BatchQueue
from cdckit.databus.window_machine import COMPLETE, DAMAGED, ROLLED_BACK
from cdckit.databus.windowed_events import with_windows
from cdckit.errors import InvalidArgument
from cdckit.model.faults import ERROR_CODE
from cdckit.parts.argument_forms import takes
from cdckit.parts.arrays import Ints, group_starts
from cdckit.store import File, Snapshot, Store
from cdckit.store.files import Target
from cdckit.store.reading import read_batches

EVENTS = "events"
"""The table of a relay's events."""

_COLUMNS = (
    *STREAM, "window", "window_state", "window_start_scn", "window_end_scn", "window_timestamp", "kind",
    "source_id", "scn", "opcode", "long_key", "string_key", "event_timestamp", "schema_id", "payload",
)  # fmt: skip
_FAILED = (ROLLED_BACK, DAMAGED)
_ROWS_AT_ONCE = 1 << 15


class _Rows:
    """A batch of events of these sources; an event is made of each when the first is asked for."""

    def __init__(self, batch: pa.RecordBatch, sources: Mapping[int, Source]) -> None:
        self.batch, self._sources = batch, sources

    @cached_property
    def events(self) -> list[Event]:
        def values(name: str) -> list[Any]:
            column: list[Any] = self.batch.column(name).to_pylist()
            return column

        keys = values("long_key")
        if self.batch.column("string_key").null_count < len(keys):
            texts = values("string_key")
            keys = [text if key is None else key for key, text in zip(keys, texts, strict=True)]
        sources = map(self._sources.__getitem__, values("source_id"))
        micros = self.batch.column("event_timestamp").cast(pa.int64()).to_pylist()
        scns, opcodes, ids, payloads = map(values, ("scn", "opcode", "schema_id", "payload"))
        return list(map(Event, sources, scns, opcodes, keys, micros, ids, payloads))


class _SourceRun(NamedTuple):
    """Rows that stand together and are of one window and one source."""

    window: tuple[int, int, int | None]
    """Its number, its start and its end."""
    source: Source
    rows: _Rows
    place: slice

    @property
    def batch(self) -> pa.RecordBatch:
        return self.rows.batch.slice(self.place.start, self.place.stop - self.place.start)


@dataclass
class Window:
    """
    One window on its way to consumers.

    Attributes:
        start_scn: The lowest SCN of it, among all its events, subscribed to or not.
        end_scn: The SCN of its end; None where it has none and is rolled back.

    >>> from cdckit import databus
    >>> first = next(databus.EventStream(events, [flights, planes]).windows())
    >>> first.end_scn, [(source.name, len(some)) for source, some in first.runs()]
    (5, [('flights', 1), ('planes', 1)])
    """

    start_scn: int
    end_scn: int | None
    _runs: Iterator[_SourceRun] = field(repr=False)

    def runs(self) -> Iterator[tuple[Source, list[Event]]]:
        """Read the events, once: as many at a time as are of one source and of one batch."""
        for run in self._runs:
            yield run.source, run.rows.events[run.place]

    def table(self) -> pa.Table:
        """
        Read all events, once, as one Arrow table, which must fit in memory.

        `databus.rows(spark.createDataFrame(window.table()), planes)` has their values.
        """
        return pa.Table.from_batches(run.batch for run in self._runs)


class EventStream:
    """
    The windows of one stream for one consumer, as often as they are asked for.

    Args:
        events: What `decode` returned, of one physical partition.
        sources: What the consumer asks for, in the order in which each window is to show them.
        buffered: Whether a window is held back until its end is known, so that no consumer ever sees a
            rollback.  Otherwise windows that were rolled back or damaged come too, and end in a rollback.

    Raises:
        MissingColumns, WrongColumnType: *events* are not what `decode` returns.
        InvalidArgument: *events* are a stream; there is no source, or one twice.

    Cost: each time it is asked, the events are decoded and cut anew, and all of them are held in the memory
    of this program, with their payloads.  For more than fit there, keep a `Relay`: its `stream` reads files
    batch by batch.

    >>> stream = EventStream(events, [flights, planes])
    >>> for window in stream.windows():
    ...     print(window.start_scn, window.end_scn, window.table().column("source_id").to_pylist())
    5 5 [4, 3]
    6 6 [4]
    """

    @takes()
    def __init__(self, events: DataFrame, sources: Sequence[Source], *, buffered: bool = True) -> None:
        self._sources, self._buffered = require_sources(sources), buffered
        self._events = with_windows(events).select(*_COLUMNS, ERROR_CODE)

    def windows(self, after: int = -1) -> Iterator[Window]:
        """
        Read the windows that end above the SCN *after*, in their order; take each before the next.

        Raises:
            InvalidArgument: The events are of several streams: their SCNs cannot be compared.
        """
        events = self._events.toArrow()
        streams = events.select(STREAM).drop_null().group_by(list(STREAM)).aggregate([]).to_pylist()
        _require_one_stream(tuple(stream.values()) for stream in streams)
        return _visible_windows(events.to_batches(), self._sources, after, self._buffered)


class RelayStream:
    """
    The windows of one stream that a relay keeps, for one consumer: what `dispatch` and loops take.

    They are read from the files of the newest commit, batch by batch, without Spark.

    Args:
        store: The store of the relay.
        sources: What the consumer asks for, in its order.
        where: Values of `STREAM`, where the relay keeps several streams.
        buffered: As for `EventStream`.
    """

    def __init__(
        self, store: Store, sources: Sequence[Source], where: Mapping[str, Any], *, buffered: bool = True
    ) -> None:
        self._store, self._where, self._buffered = store, where, buffered
        self._sources = require_sources(sources)

    def windows(self, after: int = -1) -> Iterator[Window]:
        """Read windows as `EventStream.windows` does."""
        snapshot = self._store.snapshot()
        files = _stream_files(snapshot, self._where) if snapshot.has(EVENTS) else []
        # A window that failed has no end, by which a file could be passed over.
        batches = _read_files(snapshot, files, after if self._buffered else -1)
        return _visible_windows(batches, self._sources, after, self._buffered)


def _stream_files(snapshot: Snapshot, where: Mapping[str, Any]) -> list[File]:
    """Find the files of one stream, in the order of their windows."""
    wanted = {name: [value] for name, value in where.items() if value is not None}
    files = [file for file in snapshot.files(EVENTS, wanted) if "window" in file.low]
    _require_one_stream(tuple(file.partition[name] for name in STREAM) for file in files)
    return sorted(files, key=lambda file: int(file.low["window"]))


def _require_one_stream(streams: Iterable[tuple[Any, ...]]) -> None:
    (topic, _, physical), *others = sorted(set(streams)) or [("", 0, 0)]
    if others:
        needed = f"of one stream, such as physical partition {physical} of topic {topic!r} alone"
        raise InvalidArgument("windows", "events", needed, f"{len(others) + 1} streams, also {others[0]}")


def _read_files(snapshot: Snapshot, files: Iterable[File], after: int) -> Iterator[pa.RecordBatch]:
    """Read the events of files, but for those of which all windows end at an SCN or below."""
    for file in files:
        table, highest = snapshot.table(EVENTS), file.high.get("window_end_scn")
        if highest is None or highest > after:
            target = Target(snapshot.location, table.folder, table.stored)
            yield from read_batches(target, file.path, [*_COLUMNS, ERROR_CODE], _ROWS_AT_ONCE)


def _visible_windows(
    batches: Iterable[pa.RecordBatch], sources: Mapping[int, Source], after: int, buffered: bool
) -> Iterator[Window]:
    """Make the windows that a consumer of these sources sees, which end above an SCN."""
    states = (COMPLETE,) if buffered else (COMPLETE, *_FAILED)
    visible = (_keep_visible(batch, after, states) for batch in batches)
    return split_windows(sort_batches(visible, list(sources)), sources)


def _keep_visible(batch: pa.RecordBatch, after: int, states: Sequence[str]) -> pa.RecordBatch:
    ends = pc.coalesce(batch.column("window_end_scn"), batch.column("window_start_scn"))
    conditions = (
        pc.greater(ends, after),
        pc.equal(batch.column("kind"), DATA),
        pc.is_in(batch.column("window_state"), pa.array(states)),
        pc.not_equal(batch.column("opcode"), ERASED),
        batch.column(ERROR_CODE).is_null(),
    )
    return batch.select(list(_COLUMNS)).filter(reduce(pc.and_, conditions))


def sort_batches(batches: Iterable[pa.RecordBatch], sources: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """
    Sort data events, which come window by window, and in each as they were made, by these sources.

    A window of several batches is held until its end, above 64 MiB in files, one for each source.
    """
    number, waiting_events = -1, [BatchQueue() for _ in sources]

    def hold(rows: pa.RecordBatch, rank: Ints) -> None:
        for place in np.unique(rank).tolist():
            waiting_events[place].append(rows.filter(pa.array(rank == place)))

    def take_held() -> Iterator[pa.RecordBatch]:
        for queue in waiting_events:
            while queue:
                yield queue.popleft()

    for batch in batches:
        places = pc.index_in(batch.column("source_id"), pa.array(sources, pa.int32()))
        batch, rank = batch.filter(places.is_valid()), np.asarray(places.drop_null())
        if not batch.num_rows:
            continue
        windows = np.asarray(batch.column("window"))
        # Up to *head* the window that is held goes on; from *tail* on the next one is held.
        head = int(np.searchsorted(windows, number, side="right"))
        hold(batch.slice(0, head), rank[:head])
        if head == len(windows):
            continue
        yield from take_held()
        number = int(windows[-1])
        tail = int(np.searchsorted(windows, number))
        order = np.lexsort((rank[head:tail], windows[head:tail])) + head
        yield batch.take(pa.array(order))
        hold(batch.slice(tail), rank[tail:])
    yield from take_held()


def split_windows(batches: Iterable[pa.RecordBatch], sources: Mapping[int, Source]) -> Iterator[Window]:
    """Cut sorted events into their windows."""
    runs = (run for batch in batches if batch.num_rows for run in _split_by_source(batch, sources))
    for (_, start_scn, end_scn), window_runs in groupby(runs, lambda run: run.window):
        yield Window(start_scn, end_scn, window_runs)


def _split_by_source(batch: pa.RecordBatch, sources: Mapping[int, Source]) -> Iterator[_SourceRun]:
    rows = _Rows(batch, sources)
    windows, numbers = (np.asarray(batch.column(name)) for name in ("window", "source_id"))
    starts = np.flatnonzero(group_starts(windows, numbers))
    first = batch.select(["window", "window_start_scn", "window_end_scn", "window_state", "source_id"])
    values = zip(*(column.to_pylist() for column in first.take(pa.array(starts)).columns), strict=True)
    places = pairwise([*starts.tolist(), batch.num_rows])
    for (window, start_scn, end_scn, state, number), place in zip(values, places, strict=True):
        end = None if state in _FAILED else end_scn
        yield _SourceRun((window, start_scn, end), sources[number], rows, slice(*place))
