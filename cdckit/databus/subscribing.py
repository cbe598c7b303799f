"""What a consumer asked for: sources in an order of its own, each with a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.databus.event_sources import Source, by_id
from cdckit.databus.key_filters import KeyFilter
from cdckit.databus.window_columns import STREAM
from cdckit.errors import InvalidArgument
from cdckit.parts.schemas import require_columns

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
    >>> asked = Subscription([planes], {"planes": databus.ModFilter(2, databus.ids_of("[0]"))})
    >>> [source.name for source in asked.sources]
    ['planes']
    """

    sources: Sequence[Source]
    filters: Mapping[str, KeyFilter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [each.name for each in by_id(self.sources, function="Subscription").values()]
        if not names:
            raise InvalidArgument("Subscription", "sources", "one or more", self.sources)
        if strangers := sorted(set(self.filters) - set(names)):
            raise InvalidArgument(
                "Subscription", "filters", f"of sources among {', '.join(names)}", strangers
            )


def subscribed(whole: DataFrame, subscription: Subscription) -> DataFrame:
    """
    Keep what a consumer asked for, and say in which order it gets it.

    Args:
        whole: What `consistent` returned (or `with_windows`, of which the data events are kept).
        subscription: What is asked for.

    Returns:
        The rows of the sources of the subscription whose keys its filters let pass, and `source_rank`: the
        place of the source in the subscription, from 1.

    Raises:
        MissingColumns: *whole* has no windows.

    Cost: a filter and a projection, no shuffle.

    >>> from cdckit import databus
    >>> asked = Subscription([flights, planes], {"planes": databus.ModFilter(2, databus.ids_of("[0]"))})
    >>> told = in_order(subscribed(databus.consistent(events), asked))
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
    require_columns(whole, ["kind", "source_id", "long_key", "string_key", "window"], function="subscribed")
    wanted = []
    rank = F.lit(None).cast("int")
    for place, source in enumerate(subscription.sources, 1):
        is_of = F.col("source_id") == source.id
        rank = F.when(is_of, F.lit(place)).otherwise(rank)
        only = subscription.filters.get(source.name)
        wanted.append(is_of if only is None else is_of & only.column())
    return whole.where((F.col("kind") == "data") & reduce(or_, wanted)).withColumn(RANK, rank)


def in_order(events: DataFrame) -> DataFrame:
    """
    Sort what `subscribed` returned as a consumer sees it.

    By stream; window by window; in each the sources in the order of the subscription; of a source by SCN, and
    for one SCN as they came.

    Cost: one shuffle by ranges and a sort.

    >>> from cdckit import databus
    >>> asked = subscribed(databus.consistent(events), Subscription([flights, planes]))
    >>> [(row["scn"], row["source"]) for row in in_order(asked).collect()]
    [(5, 'flights'), (5, 'planes'), (6, 'flights')]
    """
    require_columns(events, [RANK, "window", "window_position"], function="in_order")
    return events.orderBy(*STREAM, "window", RANK, "scn", "window_position")
