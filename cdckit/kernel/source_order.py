"""
Changes in the order of their source, where they say their places in its log.

A log is in order; the times in it need not be.  A snapshot says when it read a row, while what changed the
row after that, and is delivered after it, says an earlier time: of its commit.  MySQL says when a statement
began, before it waited for the commit of another one.  So of each entity and source, the changes that say a
place count in the order of their places, and their times follow:

- one that the log says is true from its own time on, but not before any that stands ahead of it;
- one that a snapshot read is true from its own time on, but no later than what stands behind it.

A source may have had several logs, such as those of the servers that were its master one after another: then
a place begins with the name of its log and `LOG_END`.  Of two logs not the places count, but the times.  A
read may not know the name; it is true no later than what stands behind it in any of them.

A truncate is said once, of all entities of its source: each that the source spoke of since the truncate
before has an absence at its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.changes import ABSENT, LOG_END, TRUNCATE, UNTIL, UPSERT
from cdckit.kernel.arrays import bools, first_of_entity, ints, rank_values, whole_entities
from cdckit.kernel.changes import (
    GUID,
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
from cdckit.parts.arrow_types import make_batch
from cdckit.parts.running_aggregates import NOWHERE, Bools, Ints

PLACES = ("sequence", "arrival", SNAPSHOT)
"""The columns that say a place; from here on they are not needed."""

_ARRIVAL = ("timestamp", "topic", "partition", "offset", "record_number")


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
            yield table
            continue
        require_whole(table)
        is_truncate = ints(table.column("operation")) == OPERATIONS.index(TRUNCATE)
        if is_truncate.any():
            # Each task and bucket has a copy of every truncate, a task with several of them more.
            truncates = _distinct_truncates(table.filter(pa.array(is_truncate)))
            table = table.filter(pa.array(~is_truncate))
        if table.num_rows:
            yield _order_entity(table, truncates, layout)


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
    instants = _placed_times(table, entity)
    if len(entity) > count or (instants != ints(table.column("effective_timestamp"))).any():
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
    later = [column[order[1:]] != column[order[:-1]] for column in columns]
    numbers = np.zeros(len(order), np.int64)
    numbers[order[1:]] = np.cumsum(np.logical_or.reduce(later))
    return numbers


def is_placed(rows: pa.RecordBatch) -> Bools:
    """Which changes say their place in the log of their source."""
    sequence = pc.fill_null(rows.column("sequence"), "")
    return bools(pc.and_(pc.not_equal(sequence, ""), rows.column(SNAPSHOT).is_valid()))


def _placed_times(table: pa.RecordBatch, entity: Ints) -> Ints:
    """The times of changes, which follow the places of those that say one."""
    instants = ints(table.column("effective_timestamp")).copy()
    at = np.flatnonzero(is_placed(table))
    if not len(at):
        return instants
    rows = table.take(pa.array(at))
    own, is_read = instants[at], bools(rows.column(SNAPSHOT))
    source, log = rank_values(rows.column("source")), _logs(rows)
    order = order_positions(rows, entity[at], source, log)
    instants[at[order]], _ = _order_times(
        own[order], is_read[order], entity[at][order], source[order], log[order]
    )
    if log.any():
        order = np.lexsort((own, rank_values(_places_in_log(rows)), source, entity[at]))
        _, bound = _order_times(own[order], is_read[order], entity[at][order], source[order])
        unnamed = (is_read & (log == 0))[order]
        instants[at[order][unnamed]] = bound[unnamed]
    return instants


def _order_times(own: Ints, is_read: Bools, *whose: Ints) -> tuple[Ints, Ints]:
    """The times of changes that stand in the order of their places; and what bounds those of reads."""
    new = np.ones(len(own), dtype=bool)
    new[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in whose])
    of = np.cumsum(new)
    # Times as their ranks: a running maximum of (whose, rank) needs no restart.
    times, rank = np.unique(own, return_inverse=True)
    several = len(times) + 1
    logged = np.maximum.accumulate(of * several + np.where(is_read, 0, rank + 1))
    behind = np.where(is_read, of * several + rank, logged - 1)
    behind = np.minimum.accumulate(behind[::-1])[::-1] - of * several
    rank = np.where(is_read, behind, rank)
    return times[np.maximum.accumulate(of * several + rank) - of * several], times[rank]


def _logs(rows: pa.RecordBatch) -> Ints:
    """The log of each place as a number: 0 where it has no name."""
    name = pc.replace_substring_regex(rows.column("sequence"), f"^([^{LOG_END}]*{LOG_END})?.*$", r"\1")
    return np.where(bools(pc.equal(name, "")), 0, rank_values(name) + 1)


def _places_in_log(rows: pa.RecordBatch) -> pa.Array:
    """The places without the names of their logs."""
    return pc.replace_substring_regex(rows.column("sequence"), f"^[^{LOG_END}]*{LOG_END}", "")


def _with_absences(
    table: pa.RecordBatch, entity: Ints, truncates: pa.RecordBatch, layout: Layout
) -> tuple[pa.RecordBatch, Ints]:
    """The changes, and of each entity its absences at the truncates that found it."""
    both = pa.Table.from_batches([truncates.select(_ORDERED), table.select(_ORDERED)])
    rows = both.combine_chunks().to_batches()[0]
    source, placed, count = rank_values(rows.column("source")), is_placed(rows), truncates.num_rows
    found = [_next_truncate(order_positions(rows, source), source, count, placed)]
    if not placed.all() or _logs(rows).any():
        # An absence that is too many does nothing: when it is true decides.
        instants = ints(rows.column("effective_timestamp"))
        found.append(
            _next_truncate(order_positions(rows, source, instants), source, count, np.ones_like(placed))
        )
    says = ints(table.column("operation")) == OPERATIONS.index(UPSERT)
    mention = np.concatenate([np.flatnonzero(says & (each[count:] != NOWHERE)) for each in found])
    truncate = np.concatenate([each[count:][says & (each[count:] != NOWHERE)] for each in found])
    first = np.unique(entity[mention] * count + truncate, return_index=True)[1]
    mention, truncate = mention[first], truncate[first]
    absences = _absences(table.take(pa.array(mention)), truncates.take(pa.array(truncate)), layout)
    joined = pa.Table.from_batches([table, absences]).combine_chunks().to_batches()[0]
    return joined, np.concatenate([entity, entity[mention]])


_ORDERED = ["effective_timestamp", *PLACES, "message_id", "source"]


def _next_truncate(order: Ints, source: Ints, count: int, asks: Bools) -> Ints:
    """For each change that *asks*, the next truncate of its source in *order*; those are the first rows."""
    is_truncate = order < count
    behind = np.where(is_truncate, np.arange(len(order)), len(order))
    behind = np.minimum.accumulate(behind[::-1])[::-1]
    there = np.append(order, NOWHERE)[behind]
    same = (there != NOWHERE) & (source[there] == source[order])
    found = np.empty(len(order), np.int64)
    found[order] = np.where(same, there, NOWHERE)
    return np.where(asks, found, NOWHERE)


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
