"""What a consumer asked for: the events of some sources, in the order in which it wants these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.databus.event_values import DATA, Source, sources_by_id
from cdckit.databus.window_batches import STREAM, BatchBuffer
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_columns
from cdckit.parts.arrays import Ints

RANK = "source_rank"


def require_sources(sources: Sequence[Source], *, function: str) -> dict[int, Source]:
    """What a consumer asks for, by id; raises `InvalidArgument` where there is no source, or one twice."""
    listed = sources_by_id(sources, function=function)
    if not listed:
        raise InvalidArgument(function, "sources", "one or more", sources)
    return listed


def keep_subscribed(whole: DataFrame, sources: Sequence[Source]) -> DataFrame:
    """
    Keep what a consumer asked for, and say in which order it gets it.

    Args:
        whole: What `consistent_events` returned (or `with_windows`, of which the data events are kept).
        sources: What is asked for, in the consumer's order.

    Returns:
        The rows of these sources, and `source_rank`: the place of the source among them, from 1.

    Raises:
        MissingColumns: *whole* has no windows.
        InvalidArgument: There is no source, or one twice.

    Cost: a filter and a projection, no shuffle.

    >>> from cdckit import databus
    >>> asked = keep_subscribed(databus.consistent_events(events), [flights, planes])
    >>> sort_for_consumer(asked).select("scn", "source", "source_rank").show()
    +---+-------+-----------+
    |scn| source|source_rank|
    +---+-------+-----------+
    |  5|flights|          1|
    |  5| planes|          2|
    |  6|flights|          1|
    +---+-------+-----------+
    <BLANKLINE>
    """
    require_columns(whole, ["kind", "source_id", "window"], function="keep_subscribed")
    numbers = list(require_sources(sources, function="keep_subscribed"))
    wanted = whole.where((F.col("kind") == DATA) & F.col("source_id").isin(numbers))
    order = F.array(*(F.lit(number) for number in numbers))
    return wanted.withColumn(RANK, F.array_position(order, F.col("source_id")).cast("int"))


def sort_for_consumer(events: DataFrame) -> DataFrame:
    """
    Sort what `keep_subscribed` returned as a consumer sees it.

    By stream; window by window; in each the sources in the order of the consumer; of a source by SCN, and
    for one SCN as they came.

    Cost: one shuffle by ranges and a sort.

    >>> from cdckit import databus
    >>> asked = keep_subscribed(databus.consistent_events(events), [flights, planes])
    >>> [(row["scn"], row["source"]) for row in sort_for_consumer(asked).collect()]
    [(5, 'flights'), (5, 'planes'), (6, 'flights')]
    """
    require_columns(events, [RANK, "window", "window_position"], function="sort_for_consumer")
    return events.orderBy(*STREAM, "window", RANK, "scn", "window_position")


def sort_batches(batches: Iterable[pa.RecordBatch], sources: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """
    Sort data events, which come window by window, and in each as they were made, by these sources.

    A window of several batches is held until its end, above 64 MiB in files, one for each source.
    """
    waiting = _OpenWindow(len(sources))
    for batch in batches:
        place = pc.index_in(batch.column("source_id"), pa.array(sources, pa.int32()))
        rank = np.asarray(pc.fill_null(place, -1)).astype(np.int64) + 1
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
            yield _sort_rows(batch.slice(goes_on, last - goes_on), windows[goes_on:last], rank[goes_on:last])
        waiting.window = int(windows[-1])
        waiting.add(batch.slice(last), rank[last:])
    yield from waiting.take()


class _OpenWindow:
    """The window that may go on in the next batch, source by source."""

    def __init__(self, sources: int) -> None:
        self.window = -1
        self._buffers = [BatchBuffer() for _ in range(sources)]

    def add(self, rows: pa.RecordBatch, rank: Ints) -> None:
        for place in np.unique(rank).tolist():
            of = rank == place
            self._buffers[place - 1].add(rows if of.all() else rows.filter(pa.array(of)))

    def take(self) -> Iterator[pa.RecordBatch]:
        for batch in self._buffers:
            yield from batch.take()


def _sort_rows(rows: pa.RecordBatch, windows: Ints, rank: Ints) -> pa.RecordBatch:
    if ((np.diff(rank) >= 0) | (np.diff(windows) > 0)).all():
        return rows
    return rows.take(pa.array(np.lexsort((rank, windows))))
