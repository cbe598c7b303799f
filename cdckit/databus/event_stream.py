"""Windows on the driver, one after the other, in bounded memory: of records, or those that a relay keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.databus.checkpoints import CATCHUP, INIT, ONLINE, SNAPSHOT, WHOLE_WINDOW, Checkpoint
from cdckit.databus.consumers import EventBatch, Events
from cdckit.databus.event_tables import plan_windows
from cdckit.databus.event_values import DATA, DELETE, UPSERT, Source, sources_by_id
from cdckit.databus.relay_tables import EVENTS, STREAMS, Place
from cdckit.databus.subscriptions import Subscription, sort_batches
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
        window_columns = (
            first.column(f"window_{name}").to_pylist() for name in ("start_scn", "end_scn", "state")
        )
        micros = first.column("window_timestamp").cast(pa.int64()).to_pylist()
        self.window_bounds = [
            (start, None if state in _FAILED else end, -1 if at is None else at * 1000)
            for start, end, state, at in zip(*window_columns, micros, strict=True)
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


_ONLINE = Checkpoint(ONLINE)


@dataclass
class Window:
    """
    One window on its way to consumers.

    Attributes:
        start_scn: The lowest SCN of it, among all its events, subscribed to or not.
        end_scn: The SCN of its end; None where it has none and is rolled back.
        ts_nsecs: The time of its end in nanoseconds since 1970; -1 where it has none.
        begun: The mode of the consumption, and how far a bootstrap is, while the window is open.
        done: The same when it is done.

    >>> from cdckit import databus
    >>> first = next(databus.EventStream(events, databus.Subscription([flights, planes])).windows())
    >>> first.end_scn, [(source.name, len(given)) for source, given in first.runs()]
    (5, [('flights', 1), ('planes', 1)])
    """

    start_scn: int
    end_scn: int | None
    ts_nsecs: int
    _pieces: Iterator[_Piece] = field(repr=False)
    begun: Checkpoint = _ONLINE
    done: Checkpoint = _ONLINE

    def checkpoint(self, passed: int, taken: int = WHOLE_WINDOW) -> Checkpoint:
        """
        Where a consumer is that has taken so many events of the window, by default all.

        Args:
            passed: The SCN up to which it consumed all windows before this one.
            taken: How many events it has taken of a window that has an end.  To go on from there is to begin
                this window again.
        """
        assert self.end_scn is not None
        if taken == WHOLE_WINDOW:
            end = self.end_scn
            return replace(self.done, window_scn=end, prev_scn=end, ts_nsecs=self.ts_nsecs)
        return replace(self.begun, window_scn=self.end_scn, prev_scn=passed, window_offset=taken)

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
    The windows of one stream for one subscription, as often as they are asked for.

    Args:
        events: What `decode` returned, of one physical partition.
        subscription: What the consumer asks for.
        buffered: Whether a window is held back until its end is known, so that no consumer ever sees a
            rollback.  Otherwise windows that were rolled back or damaged come too, and end in a rollback.
        folder: Where the windows are put down while they are read: a folder, or a URI, that this program and
            the workers both reach.  Without it the folder for temporary files of this machine, which is
            enough where the workers are on it too.  It is deleted at the end; after a kill a folder
            `databus-…` remains there, and may be deleted.
        storage_options: For a URI, as for `cdckit.store.Store`.

    Raises:
        MissingColumns, WrongColumnType: *events* are not what `decode` returns.
        InvalidArgument: *events* are a stream.

    Each time it is asked, the events are decoded and cut anew, and the windows written to files, which are
    read batch by batch and deleted.  What a `Relay` keeps need not be cut again: see `Relay.stream`.

    >>> from cdckit import databus
    >>> stream = EventStream(events, databus.Subscription([flights, planes]))
    >>> for window in stream.windows():
    ...     print(window.start_scn, window.end_scn, window.table().column("source_id").to_pylist())
    5 5 [4, 3]
    6 6 [4]
    """

    def __init__(
        self,
        events: DataFrame,
        subscription: Subscription,
        *,
        buffered: bool = True,
        folder: str | Path | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._subscription, self._buffered = subscription, buffered
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
            yield from stored_windows(found, self._subscription, after, failed=not self._buffered)


def stored_windows(
    snapshot: Snapshot,
    subscription: Subscription,
    after: int,
    where: Mapping[str, Any] | None = None,
    *,
    failed: bool = False,
) -> Iterator[Window]:
    """
    The windows that a store keeps in its table of events, in files that are each of one stream.

    Args:
        snapshot: The store at a commit.
        subscription: What is asked for.
        after: The SCN above which windows end that are wanted.
        where: Values of columns of `STREAM`, where there are several streams.
        failed: Whether windows that were rolled back or damaged come too.
    """
    files = _stream_files(snapshot, where or {}) if snapshot.has(EVENTS) else []
    states = (_WHOLE, *_FAILED) if failed else (_WHOLE,)
    batches = _read(snapshot, files, after, states)
    sources = sources_by_id(subscription.sources, function="windows")
    return split_windows(sort_batches(batches, subscription), sources)


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
    The windows of one stream that a relay keeps, for one subscription: what `dispatch` and loops take.

    They are read from the relay's files, batch by batch, without Spark; each time it is asked, those of the
    newest commit.

    Args:
        store: The store of the relay.
        subscription: What the consumer asks for.
        where: Values of `STREAM`, where the relay keeps several streams.
    """

    def __init__(self, store: Store, subscription: Subscription, where: Mapping[str, Any]) -> None:
        self._store, self._subscription, self._where = store, subscription, where

    def windows(self, after: int = -1) -> Iterator[Window]:
        """
        The windows that end above the SCN *after*, in their order; each must be taken before the next.

        Raises:
            InvalidArgument: There are several streams: their SCNs cannot be compared.
        """
        return stored_windows(self._store.snapshot(), self._subscription, after, self._where)


class BootstrapStream(RelayStream):
    """
    The same for a consumer that begins with nothing: a snapshot, then what came meanwhile, then the rest.

    A snapshot is one window for each source: the last event of each key, of those that are not deleted.
    Checkpoints say how far that is (`consumption_mode`), so that a consumer which is killed goes on with the
    source, or the window, that it was at, from its beginning.  Where nothing has passed so far there is no
    snapshot, only the windows that follow.

    Args:
        store: As for `RelayStream`.
        subscription: As for `RelayStream`.
        where: As for `RelayStream`.
        place: Where a snapshot is put down while it is read.

    Source:
        Databus: bootstrap, and the modes of its checkpoint.
    """

    def __init__(
        self, store: Store, subscription: Subscription, where: Mapping[str, Any], place: Place
    ) -> None:
        super().__init__(store, subscription, where)
        self._place = place

    def windows_from(self, checkpoint: Checkpoint) -> Iterator[Window]:
        """The windows for a consumer that is where a checkpoint says; each must be taken before the next."""
        mode, start = checkpoint.consumption_mode, checkpoint.bootstrap_start_scn
        if mode == INIT or (mode == SNAPSHOT and start < 0):
            mode, start = SNAPSHOT, self._last_scn()
            checkpoint = Checkpoint(SNAPSHOT, **_bootstrap_start(start, 0))
        after = start if mode == SNAPSHOT else checkpoint.consumed_scn
        if mode == SNAPSHOT and start >= 0:
            yield from self._snapshots(start, checkpoint.bootstrap_snapshot_source_index)
            checkpoint = self._catchup_windows(start, self._last_scn())
        for window in self.windows(after):
            assert window.end_scn is not None
            if window.end_scn <= checkpoint.bootstrap_target_scn:
                window.begun = window.done = self._catchup_windows(start, checkpoint.bootstrap_target_scn)
            yield window

    def _snapshots(self, start: int, first: int) -> Iterator[Window]:
        """A window for each source from the *first* on: what is there at the SCN *start*."""
        stands = [Checkpoint(SNAPSHOT, **_bootstrap_start(start, place)) for place in range(self._count)]
        stands.append(self._catchup_windows(start, start))
        for place, source in enumerate(self._subscription.sources[first:], first):
            for window in self._snapshot(source, start):
                window.begun, window.done, window.ts_nsecs = stands[place], stands[place + 1], -1
                yield window

    @property
    def _count(self) -> int:
        return len(self._subscription.sources)

    def _catchup_windows(self, start: int, target: int) -> Checkpoint:
        return Checkpoint(CATCHUP, bootstrap_target_scn=target, **_bootstrap_start(start, self._count))

    def _snapshot(self, source: Source, start: int) -> Iterator[Window]:
        now = self._store.snapshot()
        stream = {name: [value] for name, value in self._where.items() if value is not None}
        passed = {"kind": [DATA], "window_state": ["complete"], "window_end_scn": (None, start)}
        if not now.has(EVENTS):
            return
        events = now.read(
            EVENTS, {**stream, **passed, "source_id": [source.id], "opcode": [UPSERT, DELETE]}
        ).select(*COLUMNS, "window_position")
        latest = F.max_by(F.struct(*COLUMNS), F.struct("window", "window_position"))
        rows = events.groupBy("long_key", "string_key").agg(latest.alias("last")).select("last.*")
        alive = rows.where(F.col("opcode") == UPSERT).withColumns(
            {
                "window": F.lit(1).cast("long"),
                "window_start_scn": F.lit(start).cast("long"),
                "window_end_scn": F.lit(start).cast("long"),
            }
        )
        filters = {name: one for name, one in self._subscription.filters.items() if name == source.name}
        with self._place.with_events(now.spark, alive, function="bootstrap") as found:
            yield from stored_windows(found, Subscription([source], filters), -1)

    def _last_scn(self) -> int:
        """The SCN at which the last window ended that passed."""
        snapshot = self._store.snapshot()
        rows = snapshot.arrow(STREAMS).to_pylist() if snapshot.has(STREAMS) else []
        wanted = {name: value for name, value in self._where.items() if value is not None}
        found = [
            row["passed_scn"]
            for row in rows
            if row["physical_partition"] is not None
            and all(row[name] == value for name, value in wanted.items())
        ]
        if len(found) > 1:
            raise InvalidArgument("bootstrap", "physical_partition", "that of one stream", len(found))
        return int(found[0]) if found else -1


def _bootstrap_start(start: int, sources: int) -> dict[str, int]:
    """Of a checkpoint: where a bootstrap started, and of how many sources the snapshot is done."""
    return {
        "bootstrap_since_scn": 0,
        "bootstrap_start_scn": start,
        "bootstrap_snapshot_source_index": sources,
    }
