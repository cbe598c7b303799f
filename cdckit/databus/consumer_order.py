"""Events of windows as one consumer sees them: what it asked for, and the sources in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.databus.held import Held
from cdckit.databus.subscribing import Subscription
from cdckit.parts.running import Bools, Ints


def in_consumer_order(
    batches: Iterable[pa.RecordBatch], subscription: Subscription
) -> Iterator[pa.RecordBatch]:
    """
    Sort data events, which come window by window, and in each as they were made.

    A window of several batches is held until its end, above 64 MiB in files, one for each source.
    """
    waiting = _Waiting(len(subscription.sources))
    for batch in batches:
        rank = _ranks(batch, subscription)
        if not rank.all():
            chosen = rank > 0
            batch, rank = batch.filter(pa.array(chosen)), rank[chosen]
        if not batch.num_rows:
            continue
        windows = np.asarray(batch.column("window"))
        goes_on = int(np.searchsorted(windows, waiting.window, side="right"))
        waiting.add(batch.slice(0, goes_on), rank[:goes_on])
        if goes_on == len(windows):
            continue
        yield from waiting.take()
        last = max(goes_on, int(np.searchsorted(windows, windows[-1])))
        if last > goes_on:
            yield _sorted(batch.slice(goes_on, last - goes_on), windows[goes_on:last], rank[goes_on:last])
        waiting.window = int(windows[-1])
        waiting.add(batch.slice(last), rank[last:])
    yield from waiting.take()


class _Waiting:
    """The window that may go on in the next batch, source by source."""

    def __init__(self, sources: int) -> None:
        self.window = -1
        self._held = [Held() for _ in range(sources)]

    def add(self, rows: pa.RecordBatch, rank: Ints) -> None:
        for place in np.unique(rank).tolist():
            of = rank == place
            self._held[place - 1].add(rows if of.all() else rows.filter(pa.array(of)))

    def take(self) -> Iterator[pa.RecordBatch]:
        for held in self._held:
            yield from held.take()


def _sorted(rows: pa.RecordBatch, windows: Ints, rank: Ints) -> pa.RecordBatch:
    if ((np.diff(rank) >= 0) | (np.diff(windows) > 0)).all():
        return rows
    return rows.take(pa.array(np.lexsort((rank, windows))))


def _ranks(batch: pa.RecordBatch, subscription: Subscription) -> Ints:
    """The place of the source of each event in the subscription, from 1; 0 for one that is not wanted."""
    numbers = pa.array([each.id for each in subscription.sources], pa.int32())
    place = pc.index_in(batch.column("source_id"), numbers)
    rank: Ints = pc.fill_null(place, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    for at, source in enumerate(subscription.sources, 1):
        only = subscription.filters.get(source.name)
        if only is not None:
            own = np.flatnonzero(rank == at)
            keys = [batch.column(name).take(pa.array(own)) for name in ("long_key", "string_key")]
            taken: Bools = only.mask(*keys)
            rank[own[~taken]] = 0
    return rank
