"""The windows that a relay keeps, for consumers: those that pass; and a snapshot to begin with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import functions as F

from cdckit.databus.checkpoints import CATCHUP, INIT, SNAPSHOT, Checkpoint
from cdckit.databus.event_stream import COLUMNS, Window, stored_windows
from cdckit.databus.event_values import Source
from cdckit.databus.events import DATA, UPSERT
from cdckit.databus.relay_tables import EVENTS, STREAMS, Place
from cdckit.databus.subscriptions import Subscription
from cdckit.errors import InvalidArgument
from cdckit.store import Store


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
        events = now.read(EVENTS, {**stream, **passed, "source_id": [source.id]}).select(
            *COLUMNS, "window_position"
        )
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
