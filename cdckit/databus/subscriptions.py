"""What a consumer asked for: sources in an order of its own, each with a filter; and events in that order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.databus.event_values import Source, sources_by_id
from cdckit.databus.key_filters import KeyFilter
from cdckit.databus.window_rows import STREAM, BatchBuffer
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_columns
from cdckit.parts.running_aggregates import Bools, Ints

RANK = "source_rank"


@dataclass(frozen=True)
class Subscription:
    """
    The sources that a consumer asks for, in the order in which each window is to show them.

    Args:
        sources: In the consumer's order.
        filters: By the name of the source; one without a filter is wanted whole.

    Raises:
        InvalidArgument: No source, or one twice, or a filter of a source that is not among them.

    >>> from cdckit import databus
    >>> schema = '{"type": "record", "name": "plane", "fields": [{"name": "tail", "type": "string"}]}'
    >>> planes = databus.Source(3, "planes", [schema])
    >>> asked = Subscription([planes], {"planes": databus.ModFilter(2, databus.parse_ids("[0]"))})
    >>> [source.name for source in asked.sources]
    ['planes']
    """

    sources: Sequence[Source]
    filters: Mapping[str, KeyFilter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [each.name for each in sources_by_id(self.sources, function="Subscription").values()]
        if not names:
            raise InvalidArgument("Subscription", "sources", "one or more", self.sources)
        if strangers := sorted(set(self.filters) - set(names)):
            raise InvalidArgument(
                "Subscription", "filters", f"of sources among {', '.join(names)}", strangers
            )


def keep_subscribed(whole: DataFrame, subscription: Subscription) -> DataFrame:
    """
    Keep what a consumer asked for, and say in which order it gets it.

    Args:
        whole: What `consistent_events` returned (or `with_windows`, of which the data events are kept).
        subscription: What is asked for.

    Returns:
        The rows of the sources of the subscription whose keys its filters let pass, and `source_rank`: the
        place of the source in the subscription, from 1.

    Raises:
        MissingColumns: *whole* has no windows.

    Cost: a filter and a projection, no shuffle.

    >>> from cdckit import databus
    >>> asked = Subscription([flights, planes], {"planes": databus.ModFilter(2, databus.parse_ids("[0]"))})
    >>> told = sort_for_consumer(keep_subscribed(databus.consistent_events(events), asked))
    >>> told.select("scn", "source", "source_rank").show()
    +---+-------+-----------+
    |scn| source|source_rank|
    +---+-------+-----------+
    |  5|flights|          1|
    |  5| planes|          2|
    |  6|flights|          1|
    +---+-------+-----------+
    <BLANKLINE>
    """
    require_columns(
        whole, ["kind", "source_id", "long_key", "string_key", "window"], function="keep_subscribed"
    )
    wanted = []
    rank = F.lit(None).cast("int")
    for place, source in enumerate(subscription.sources, 1):
        is_of = F.col("source_id") == source.id
        rank = F.when(is_of, F.lit(place)).otherwise(rank)
        only = subscription.filters.get(source.name)
        wanted.append(is_of if only is None else is_of & only.column())
    return whole.where((F.col("kind") == "data") & reduce(or_, wanted)).withColumn(RANK, rank)


def sort_for_consumer(events: DataFrame) -> DataFrame:
    """
    Sort what `keep_subscribed` returned as a consumer sees it.

    By stream; window by window; in each the sources in the order of the subscription; of a source by SCN, and
    for one SCN as they came.

    Cost: one shuffle by ranges and a sort.

    >>> from cdckit import databus
    >>> asked = keep_subscribed(databus.consistent_events(events), Subscription([flights, planes]))
    >>> [(row["scn"], row["source"]) for row in sort_for_consumer(asked).collect()]
    [(5, 'flights'), (5, 'planes'), (6, 'flights')]
    """
    require_columns(events, [RANK, "window", "window_position"], function="sort_for_consumer")
    return events.orderBy(*STREAM, "window", RANK, "scn", "window_position")


def sort_batches(batches: Iterable[pa.RecordBatch], subscription: Subscription) -> Iterator[pa.RecordBatch]:
    """
    Sort data events, which come window by window, and in each as they were made.

    A window of several batches is held until its end, above 64 MiB in files, one for each source.
    """
    waiting = _OpenWindow(len(subscription.sources))
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
            yield _sort_rows(batch.slice(goes_on, last - goes_on), windows[goes_on:last], rank[goes_on:last])
        waiting.window = int(windows[-1])
        waiting.add(batch.slice(last), rank[last:])
    yield from waiting.take()


class _OpenWindow:
    """The window that may go on in the next batch, source by source."""

    def __init__(self, sources: int) -> None:
        self.window = -1
        self._held = [BatchBuffer() for _ in range(sources)]

    def add(self, rows: pa.RecordBatch, rank: Ints) -> None:
        for place in np.unique(rank).tolist():
            of = rank == place
            self._held[place - 1].add(rows if of.all() else rows.filter(pa.array(of)))

    def take(self) -> Iterator[pa.RecordBatch]:
        for held in self._held:
            yield from held.take()


def _sort_rows(rows: pa.RecordBatch, windows: Ints, rank: Ints) -> pa.RecordBatch:
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
