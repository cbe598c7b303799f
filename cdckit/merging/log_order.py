"""
The order of the changes of a source, and the times that follow from it.

A log is in order; the times in it need not be.  A snapshot says when it read a row, while what changed the
row after that, and is delivered after it, says an earlier time: of its commit.  MySQL says when a statement
began, before it waited for the commit of another one.  So of each entity and source, the changes that say a
place count in the order of their places, and their times follow:

- one that the log says is true from its own time on, but not before any that stands ahead of it;
- one that a snapshot read is true from its own time on, but no later than what stands behind it.

What was delivered behind a read, in its partition, counts behind it, though its place may stand ahead: a
transaction of PostgreSQL that began before a snapshot and was committed after it says a place from before.
So does what was delivered behind a place that is a time of a clock (`CLOCK`), which may go back.

A source may have had several logs, such as those of the servers that were its master one after another: then
a place begins with the name of its log and `LOG_END`.  Of two logs not the places count, but the times.  A
read that does not know the name stands where it arrived: it is true no later than what came after it, and no
earlier than what its partition had delivered of a log before.  Of one without a place the first alone is so:
its time may be the caller's, who knows of the load better than its delivery does.

A truncate is said once, of all entities of its source: each that the source spoke of since the truncate
before has an absence at its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.merging.arrow_changes import (
    GUID,
    MOVED_HERE,
    OPERATIONS,
    SNAPSHOT,
    WORD,
    Layout,
    carried_column,
    carried_words,
    has_ends,
    require_whole,
    value_column,
)
from cdckit.merging.shifts import with_leavers_first
from cdckit.model.changes import ABSENT, AFTER_ALL, DELETE, TRUNCATE, UNTIL, UPSERT
from cdckit.model.places import CLOCK, LOG_END
from cdckit.parts.arrays import (
    NOWHERE,
    Bools,
    Ints,
    bools,
    first_of_entity,
    group_starts,
    ints,
    last_where,
    number_texts,
    positions,
    rank_values,
    segments,
    whole_entities,
)
from cdckit.parts.arrow_types import make_batch

PLACES = ("sequence", "arrival", SNAPSHOT)
"""The columns that say a place; from here on they are not needed."""

_ARRIVAL = ("timestamp", "topic", "partition", "offset", "record_number")

_SKEW = 60_000_000
"""By how many microseconds the clocks of those who write into one partition may differ."""


def order_entities(
    batches: Iterable[pa.RecordBatch], layout: Layout, together: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """
    The changes of whole entities, in the order in which they count.

    Args:
        batches: The changes, sorted by identity and then by the order of changes; truncates stand first.
            Where they lack the columns `PLACES` they are in order as they are.
        layout: Of their columns.
        together: The columns that say which entities are wanted in one batch, if several are; then the
            changes are sorted by these first.
    """
    truncates = None
    for table in whole_entities(batches, together or layout.identity):
        if SNAPSHOT not in table.schema.names:
            yield _leavers_first(table, layout)
            continue
        require_whole(table)
        is_truncate = ints(table.column("operation")) == OPERATIONS.index(TRUNCATE)
        if is_truncate.any():
            # Each task and bucket has a copy of every truncate, a task with several of them more.
            truncates = _distinct_truncates(table.filter(pa.array(is_truncate)))
            table = table.filter(pa.array(~is_truncate))
        if table.num_rows:
            yield _leavers_first(_order_entity(table, truncates, layout), layout)


def _leavers_first(table: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    return with_leavers_first(table, layout) if MOVED_HERE in table.schema.names else table


def _distinct_truncates(truncates: pa.RecordBatch) -> pa.RecordBatch:
    names = ("record_number", "message_id", "source")
    same = np.stack([rank_values(truncates.column(name)) for name in names])
    first = np.unique(same, axis=1, return_index=True)[1]
    return truncates.take(pa.array(np.sort(first)))


def _order_entity(table: pa.RecordBatch, truncates: pa.RecordBatch | None, layout: Layout) -> pa.RecordBatch:
    entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
    count = len(entity)
    if truncates is not None:
        table, entity = _with_absences(table, entity, truncates, layout)
    given = table
    table = _behind_reads(table, entity)
    table, instants = _bound_reads(table, entity, _placed_times(table, entity))
    is_same_order = table is given and len(entity) == count
    if not is_same_order or (instants != ints(table.column("effective_timestamp"))).any():
        at = table.schema.get_field_index("effective_timestamp")
        followed = pa.array(instants).cast(table.schema.field(at).type)
        table = table.set_column(at, table.schema.field(at), followed)
        table = table.take(pa.array(order_positions(table, entity, instants)))
        if has_ends(table):
            # What would begin later than it ends never holds.
            table = table.filter(pc.fill_null(pc.greater(table.column(UNTIL), table.column(at)), True))
    return table.select([name for name in table.schema.names if name not in PLACES])


def order_positions(rows: pa.RecordBatch, *before: Ints) -> Ints:
    """The positions of changes, sorted by *before* and then by the order of changes after their times."""
    source, message, sequence = (
        rank_values(rows.column(name)) for name in ("source", "message_id", "sequence")
    )
    order: Ints = np.lexsort((source, message, arrivals(rows), sequence, *reversed(before)))
    return order


def arrivals(rows: pa.RecordBatch) -> Ints:
    """Numbers that sort as the arrivals of changes do."""
    arrival = rows.column("arrival")
    columns = [rank_values(arrival.field(name)) for name in _ARRIVAL]
    order = np.lexsort(columns[::-1])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(group_starts(*(column[order] for column in columns)))
    return numbers


def is_placed(rows: pa.RecordBatch) -> Bools:
    """Tell which changes say their place in the log of their source."""
    sequence = pc.fill_null(rows.column("sequence"), "")
    return bools(pc.and_(pc.not_equal(sequence, ""), rows.column(SNAPSHOT).is_valid()))


def _placed_times(table: pa.RecordBatch, entity: Ints) -> Ints:
    """The times of changes, which follow the places of those that say one."""
    instants = ints(table.column("effective_timestamp")).copy()
    at = np.flatnonzero(is_placed(table))
    if not len(at):
        return instants
    rows = table.take(pa.array(at))
    entity, instant, is_read = entity[at], instants[at], bools(rows.column(SNAPSHOT))
    source, log = rank_values(rows.column("source")), _logs(rows)
    bounds = ~_are_copies(rows, entity)
    order = order_positions(rows, entity, source, log)
    instants[at[order]] = _in_order(
        instant[order], is_read[order], bounds[order], entity[order], source[order], log[order]
    )
    return instants


def _bound_reads(table: pa.RecordBatch, entity: Ints, instants: Ints) -> tuple[pa.RecordBatch, Ints]:
    """
    The changes and their times, where reads that no log has a place for stand where they arrived.

    Such a read is no later than what came after it.  One whose log has no name, while others have, is no
    earlier than what its partition had delivered of a log before, and counts behind it at its instant.
    """
    is_read, placed = bools(table.column(SNAPSHOT)), is_placed(table)
    if not is_read.any():
        return table, instants
    source, log = rank_values(table.column("source")), np.where(placed, _logs(table), 0)
    unnamed = is_read & placed & (log == 0) & _have_any(log > 0, entity, source)
    loose = is_read & ~placed | unnamed
    if not loose.any():
        return table, instants
    bounds = ~is_read & ~_are_copies(table, entity)
    arrived, partition = arrivals(table), _partitions(table)
    order = np.lexsort((arrived, partition, source, entity))
    whose = entity[order], source[order], partition[order]
    moved, ahead = instants.copy(), np.empty_like(instants)
    logged = (bounds & placed)[order]
    moved[order] = _no_earlier(instants[order], logged, *whose)
    before = last_where(logged, segments(np.cumsum(group_starts(*whose))))
    ahead[order] = np.where(before == NOWHERE, NOWHERE, order[before])
    moved = np.where(unnamed, moved, instants)
    order = np.lexsort((arrived, source, entity))
    later = np.empty_like(instants)
    later[order] = _no_later(moved[order], bounds[order], entity[order], source[order])
    instants = np.where(loose, later, instants)
    # At other instants than that of what was ahead of it, it stands before all.
    is_behind = unnamed & (ahead != NOWHERE) & (instants == instants[ahead])
    table = _counted_behind(table, np.flatnonzero(unnamed & ~is_behind), None)
    return _counted_behind(table, np.flatnonzero(is_behind), ahead[is_behind]), instants


def _have_any(marked: Bools, *whose: Ints) -> Bools:
    """Tell for each row whether any of those that are of the same is marked."""
    number = np.unique(np.stack(whose), axis=1, return_inverse=True)[1].ravel()
    have_any: Bools = np.isin(number, number[marked])
    return have_any


def _partitions(rows: pa.RecordBatch) -> Ints:
    """The partition of each change, as a number."""
    parts = [rank_values(rows.column("arrival").field(name)) for name in ("topic", "partition")]
    numbers: Ints = np.unique(np.stack(parts), axis=1, return_inverse=True)[1].ravel().astype(np.int64)
    return numbers


def _behind_reads(table: pa.RecordBatch, entity: Ints) -> pa.RecordBatch:
    """The changes, of which what was delivered behind a read, or a time of a clock, has a place behind it."""
    at = np.flatnonzero(is_placed(table))
    is_read, is_time = bools(table.column(SNAPSHOT))[at], _are_times(table)[at]
    may_follow, bounds = ~is_read | is_time, is_read | is_time
    if not may_follow.any() or not bounds.any():
        return table
    rows, entity = table.take(pa.array(at)), entity[at]
    bounds &= ~_are_copies(rows, entity)
    rank = rank_values(rows.column("sequence"))
    whose = entity, rank_values(rows.column("source")), _logs(rows), _partitions(rows)
    order = np.lexsort((arrivals(rows), _offsets(rows, is_read, *whose), *whose))
    place = _bases(order, *whose) + np.where(bounds, rank + 1, 0)[order]
    leads = place > np.append(0, np.maximum.accumulate(place)[:-1])
    ahead = np.empty_like(order)
    ahead[order] = order[np.maximum.accumulate(np.where(leads, np.arange(len(order)), 0))]
    # A topic that was made anew counts its offsets from 0 again: what is far older was not delivered behind.
    arrived = ints(pc.fill_null(rows.column("arrival").field("timestamp").cast(pa.int64()), 0))
    behind = may_follow & bounds[ahead] & (rank < rank[ahead]) & (arrived >= arrived[ahead] - _SKEW)
    return _counted_behind(table, at[behind], at[ahead[behind]])


def _offsets(rows: pa.RecordBatch, is_read: Bools, *whose: Ints) -> Ints:
    """
    The offset of each change's record, as a number; of a row that a snapshot did not find, when that ended.

    It has no record: it stands behind all that its partition had delivered until then.
    """
    offset = rank_values(rows.column("arrival").field("offset"))
    is_gone = is_read & (ints(rows.column("operation")) == OPERATIONS.index(DELETE))
    if is_gone.any():
        order = np.lexsort((arrivals(rows), *whose))
        base = _bases(order, *whose)
        latest = np.maximum.accumulate(base + offset[order]) - base
        offset[order] = np.where(is_gone[order], latest, offset[order])
    return offset


def _bases(order: Ints, *whose: Ints) -> Ints:
    """Numbers that grow from one group to the next by more than there are rows, of rows sorted by group."""
    bases: Ints = np.cumsum(group_starts(*(part[order] for part in whose))) * (len(order) + 1)
    return bases


def _are_times(rows: pa.RecordBatch) -> Bools:
    return bools(pc.fill_null(pc.starts_with(rows.column("sequence"), CLOCK), False))


def _counted_behind(table: pa.RecordBatch, rows: Ints, others: Ints | None) -> pa.RecordBatch:
    """The changes, of which *rows* have places right behind those of the *others*, or before all without."""
    if not len(rows):
        return table
    sequence = pc.fill_null(table.column("sequence"), "")
    places, is_moved = np.full(len(sequence), NOWHERE), np.zeros(len(sequence), dtype=bool)
    is_moved[rows] = True
    if others is not None:
        places[rows] = others
    mark, others_of = pa.scalar(AFTER_ALL, sequence.type), sequence.take(positions(places))
    behind = pc.fill_null(pc.binary_join_element_wise(others_of, sequence, mark), "")
    counted = pc.if_else(pa.array(is_moved), behind, sequence)
    at = table.schema.get_field_index("sequence")
    return table.set_column(at, table.schema.field(at), counted)


def _are_copies(table: pa.RecordBatch, entity: Ints) -> Bools:
    """Find the changes that had come before: they bound no other, since a ledger has the first alone."""
    message = number_texts(table.column("message_id"))
    copies = np.zeros(len(message), dtype=bool)
    if message.max(initial=-1) + 1 < len(message):
        source = number_texts(table.column("source"))
        identity = (ints(table.column("record_number")), message, source, entity)
        order = np.lexsort((arrivals(table), *identity))
        copies[order] = ~group_starts(*(part[order] for part in identity))
    return copies


def _in_order(instants: Ints, is_read: Bools, bounds: Bools, *whose: Ints) -> Ints:
    """The times of changes that stand in the order of their places in one log after another."""
    logged = np.where(is_read, instants, _no_earlier(instants, ~is_read & bounds, *whose))
    bounded = np.where(is_read, _no_later(logged, bounds, *whose), logged)
    return _no_earlier(bounded, bounds, *whose)


def _no_earlier(times: Ints, bounds: Bools, *whose: Ints) -> Ints:
    """Times, none before that of a row which *bounds* it, stands ahead of it and is of the same."""
    return -_no_later(-times[::-1], bounds[::-1], *(part[::-1] for part in whose))[::-1]


def _no_later(times: Ints, bounds: Bools, *whose: Ints) -> Ints:
    """Times, none after that of a row which *bounds* it, stands behind it and is of the same."""
    values, rank = np.unique(times, return_inverse=True)
    # As ranks after those of whose they are: a running minimum from the end needs no restart.
    base = np.cumsum(group_starts(*whose)) * (len(values) + 1)
    behind = np.minimum.accumulate((base + np.where(bounds, rank, len(values)))[::-1])[::-1] - base
    bounded: Ints = values[np.minimum(rank, behind)]
    return bounded


def has_log(places: pa.Array) -> pa.Array:
    """Tell whether each place begins with the name of its log; null for null."""
    return pc.match_substring(places, LOG_END)


def _logs(rows: pa.RecordBatch) -> Ints:
    """The log of each place as a number: 0 where it has no name."""
    name = pc.replace_substring_regex(rows.column("sequence"), f"^([^{LOG_END}]*{LOG_END})?.*$", r"\1")
    return np.where(bools(pc.equal(name, "")), 0, rank_values(name) + 1)


def _with_absences(
    table: pa.RecordBatch, entity: Ints, truncates: pa.RecordBatch, layout: Layout
) -> tuple[pa.RecordBatch, Ints]:
    """The changes, and of each entity its absences at the truncates that found it."""
    both = pa.Table.from_batches([truncates.select(_ORDERED), table.select(_ORDERED)])
    rows = both.combine_chunks().to_batches()[0]
    source, placed, count = rank_values(rows.column("source")), is_placed(rows), truncates.num_rows
    passes = [_next_truncate(order_positions(rows, source), source, count, placed)]
    if not placed.all() or _logs(rows).any():
        # An absence that is too many does nothing: when it is true decides.
        instants = ints(rows.column("effective_timestamp"))
        passes.append(
            _next_truncate(order_positions(rows, source, instants), source, count, np.ones_like(placed))
        )
    says = ints(table.column("operation")) == OPERATIONS.index(UPSERT)
    mention = np.concatenate([np.flatnonzero(says & (nexts[count:] != NOWHERE)) for nexts in passes])
    truncate = np.concatenate([nexts[count:][says & (nexts[count:] != NOWHERE)] for nexts in passes])
    first = np.unique(entity[mention] * count + truncate, return_index=True)[1]
    mention, truncate = mention[first], truncate[first]
    absences = _absences(table.take(pa.array(mention)), truncates.take(pa.array(truncate)), layout)
    joined = pa.Table.from_batches([table, absences]).combine_chunks().to_batches()[0]
    return joined, np.concatenate([entity, entity[mention]])


_ORDERED = ["effective_timestamp", *PLACES, "message_id", "source"]


def _next_truncate(order: Ints, source: Ints, count: int, asks: Bools) -> Ints:
    """Find for each change that *asks* the next truncate of its source in *order*: the first rows."""
    is_truncate = order < count
    behind = np.where(is_truncate, np.arange(len(order)), len(order))
    behind = np.minimum.accumulate(behind[::-1])[::-1]
    next_one = np.append(order, NOWHERE)[behind]
    same = (next_one != NOWHERE) & (source[next_one] == source[order])
    next_truncate = np.empty(len(order), np.int64)
    next_truncate[order] = np.where(same, next_one, NOWHERE)
    return np.where(asks, next_truncate, NOWHERE)


def _absences(mentions: pa.RecordBatch, truncates: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """An absence of the entity of each mention, at the truncate beside it."""
    count = mentions.num_rows
    columns = dict(zip(truncates.schema.names, truncates.columns, strict=True))
    columns["operation"] = pa.array(
        np.full(count, OPERATIONS.index(ABSENT)), mentions.schema.field("operation").type
    )
    for index, _ in enumerate(layout.fields):
        if index in layout.keys:
            columns[value_column(index)] = mentions.column(value_column(index))
    for word, _ in enumerate(carried_words(layout.fields)):
        bits = sum(1 << index % WORD for index in layout.keys if index // WORD == word)
        columns[carried_column(word)] = pa.array(np.full(count, bits, np.int64))
    if GUID in columns:
        columns[GUID] = mentions.column(GUID)
    return make_batch(columns, mentions.schema)
