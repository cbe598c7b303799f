"""What a consumer asked for: sources in an order of its own, each with a filter by key; and those events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.databus.event_values import Source, sources_by_id
from cdckit.databus.window_batches import STREAM, BatchBuffer
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_columns
from cdckit.parts.arrays import Bools, Ints

Ids = tuple[tuple[int, int], ...]
"""First and last, both included."""

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_NUMBER = re.compile(r"[+-]?[0-9]+")
_SETTING = re.compile(r"(?:.*\.)?filter\((?P<source>.+)\)\.(?P<name>type|range\.\w+|mod\.\w+)")


@dataclass(frozen=True)
class RangeFilter:
    """
    The keys of some ranges of one size: id 0 is the range of the keys from 0 up to *size*, that excluded.

    A key of text counts as the number that it spells; one that spells none is in no range.

    >>> some = RangeFilter(100, parse_ids("[0,2-3]"))
    >>> [key for key in (99, 100, 200, 399, 400, -1, "7", "x") if some.accepts(key)]
    [99, 200, 399, '7']
    """

    size: int
    ids: Ids

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise InvalidArgument("RangeFilter", "size", "above 0", self.size)

    def accepts(self, key: int | str) -> bool:
        """Whether an event with this key passes."""
        number = _number(key)
        return number is not None and any(first <= number <= last for first, last in self._bounds())

    def column(self) -> Column:
        """Whether an event passes, of its columns `long_key` and `string_key`."""
        number = F.coalesce(F.col("long_key"), _spelled_number())
        found = [number.between(first, last) for first, last in self._bounds()]
        return F.coalesce(reduce(or_, found, F.lit(False)), F.lit(False))

    def mask(self, numbers: pa.Array, texts: pa.Array) -> Bools:
        """Which events pass, of their keys, each a number or a text."""
        return _mask(self, numbers, texts, lambda keys: _is_within_bounds(keys, self._bounds()))

    def _bounds(self) -> list[tuple[int, int]]:
        """The first and the last key of each range, as far as numbers of 64 bits go."""
        ranges = ((first * self.size, (last + 1) * self.size - 1) for first, last in self.ids)
        return [
            (max(first, _LEAST), min(last, _MOST))
            for first, last in ranges
            if first <= _MOST and last >= _LEAST
        ]


@dataclass(frozen=True)
class ModFilter:
    """
    The keys whose absolute value, divided by the number of buckets, leaves one of some remainders.

    A key of text counts as the number that it spells; of one that spells none the hash counts that Java has
    for texts.

    >>> some = ModFilter(10, parse_ids("[1,3-5]"))
    >>> [key for key in (1, 2, -13, 25, "4", "ab") if some.accepts(key)]
    [1, -13, 25, '4', 'ab']
    """

    buckets: int
    ids: Ids

    def __post_init__(self) -> None:
        if not 0 < self.buckets <= _MOST:
            raise InvalidArgument("ModFilter", "buckets", f"above 0, and at most {_MOST}", self.buckets)
        if any(last > self.buckets for _, last in self.ids):
            raise InvalidArgument("ModFilter", "ids", f"buckets up to {self.buckets}", self.ids)

    def accepts(self, key: int | str) -> bool:
        """Whether an event with this key passes."""
        number = _number(key)
        rest = abs(java_hash(str(key)) if number is None else number) % self.buckets
        return any(first <= rest <= last for first, last in self.ids)

    def column(self) -> Column:
        """Whether an event passes, of its columns `long_key` and `string_key`."""
        number = F.coalesce(F.col("long_key"), _spelled_number(), _java_hash(F.col("string_key")))
        # The remainder first: the least long has no absolute value.
        rest = F.abs(number % F.lit(self.buckets))
        found = [rest.between(first, last) for first, last in self.ids]
        return F.coalesce(reduce(or_, found), F.lit(False))

    def mask(self, numbers: pa.Array, texts: pa.Array) -> Bools:
        """Which events pass, of their keys, each a number or a text."""
        # The remainder first: the least number has no absolute value.
        return _mask(
            self,
            numbers,
            texts,
            lambda keys: _is_within_bounds(np.abs(np.fmod(keys, self.buckets)), self.ids),
        )


KeyFilter = RangeFilter | ModFilter


def parse_ids(text: str) -> Ids:
    """
    Ids as configurations write them.

    Raises:
        InvalidArgument: It is no such list.

    >>> parse_ids("[1, 3-5]")
    ((1, 1), (3, 5))
    """
    inside = re.fullmatch(r"\s*\[(.*)\]\s*", text)
    if inside is None:
        raise InvalidArgument("parse_ids", "text", "ids between brackets, as in [1,3-5]", text)
    found = []
    for part in inside[1].split(","):
        pair = re.fullmatch(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?", part)
        if pair is None or int(pair[1]) > int(pair[2] or pair[1]):
            raise InvalidArgument("parse_ids", "text", "ids, or first-last, as in [1,3-5]", text)
        found.append((int(pair[1]), int(pair[2] or pair[1])))
    return tuple(found)


def parse_filters(settings: Mapping[str, str]) -> dict[str, KeyFilter]:
    """
    The filters by the names of their sources, as the settings of a Databus client say them.

    Args:
        settings: Such as `filter(flights).type` = `MOD`, `filter(flights).mod.numBuckets` = `10`,
            `filter(flights).mod.buckets` = `[1,3-5]`; or `type` = `RANGE`, `range.size`, `range.partitions`;
            or `type` = `NONE`.  There may be a prefix before `filter`.  What is none of a filter is passed
            over.

    Raises:
        InvalidArgument: A filter is not whole, or not valid.

    Source:
        Databus, "Server side Filtering".

    >>> parse_filters({"filter(planes).type": "RANGE", "filter(planes).range.size": "100",
    ...                "filter(planes).range.partitions": "[2-3]"})
    {'planes': RangeFilter(size=100, ids=((2, 3),))}
    """
    properties: dict[str, dict[str, str]] = {}
    for setting, value in settings.items():
        if named := _SETTING.fullmatch(setting):
            properties.setdefault(named["source"], {})[named["name"]] = value
    found: dict[str, KeyFilter] = {}
    for source, own in properties.items():
        kind = own.get("type")
        if kind == "NONE":
            continue
        if kind not in _KINDS:
            raise InvalidArgument("parse_filters", f"filter({source}).type", "NONE, RANGE or MOD", kind)
        number, ids, make = _KINDS[kind]
        for name in (number, ids):
            if name not in own:
                raise InvalidArgument(
                    "parse_filters", f"filter({source}).{name}", f"given: it is a {kind}", None
                )
        if not _NUMBER.fullmatch(own[number].strip()):
            raise InvalidArgument("parse_filters", f"filter({source}).{number}", "a number", own[number])
        found[source] = make(int(own[number]), parse_ids(own[ids]))
    return found


_KINDS: dict[str, tuple[str, str, Callable[[int, Ids], KeyFilter]]] = {
    "RANGE": ("range.size", "range.partitions", RangeFilter),
    "MOD": ("mod.numBuckets", "mod.buckets", ModFilter),
}


def java_hash(text: str) -> int:
    """
    What Java's `String.hashCode` says: of the 16-bit units of the text.

    >>> java_hash("ab"), java_hash("databus, all of it")
    (3105, 949793163)
    """
    found = 0
    units = text.encode("utf-16-be")
    for place in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[place : place + 2])) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def _java_hash(text: Column) -> Column:
    units = F.regexp_extract_all(F.hex(F.encode(text, "UTF-16BE")), F.lit("(....)"))
    found = F.aggregate(
        units,
        F.lit(0).cast("bigint"),
        lambda so_far, unit: (so_far * 31 + F.conv(unit, 16, 10).cast("bigint")).bitwiseAND(
            F.lit(0xFFFFFFFF)
        ),
    )
    return F.when(found >= 1 << 31, found - (1 << 32)).otherwise(found)


def _is_within_bounds(numbers: Ints, bounds: Sequence[tuple[int, int]]) -> Bools:
    found: Bools = np.zeros(len(numbers), dtype=bool)
    for first, last in bounds:
        found |= (numbers >= first) & (numbers <= last)
    return found


def _mask(by: KeyFilter, numbers: pa.Array, texts: pa.Array, takes: Callable[[Ints], Bools]) -> Bools:
    """Keys of numbers all at once; those of text, which spell one or not, each by itself."""
    found = takes(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).astype(np.int64))
    for row in np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist():
        found[row] = by.accepts(texts[row].as_py())
    return found


def _number(key: int | str) -> int | None:
    """The number of a key, if it is one of 64 bits."""
    if isinstance(key, str):
        if _NUMBER.fullmatch(key) is None:
            return None
        # Python reads no number of thousands of digits.
        digits = key.lstrip("+-").lstrip("0") or "0"
        number = int(digits[:20]) * (-1 if key[0] == "-" else 1)
        return number if _LEAST <= number <= _MOST else None
    return key


def _spelled_number() -> Column:
    # Before \z, unlike before $, no end of a line may stand.
    is_number = F.col("string_key").rlike(rf"^{_NUMBER.pattern}\z")
    return F.when(is_number, F.col("string_key").try_cast("bigint"))


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
    >>> sorted_events = sort_for_consumer(keep_subscribed(databus.consistent_events(events), asked))
    >>> sorted_events.select("scn", "source", "source_rank").show()
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
