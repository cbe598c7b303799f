"""From the sorted changes of whole entities to what was believed of them at every moment of knowledge.

A change that arrives with a later instant than all that is known of its entity leaves every earlier state
as it is: it closes one version and opens the next.  Any other is *late* and begins a new *epoch* of its
entity, for which all that is known by then is merged anew.  What two epochs in a row believe is one row.
So is a change that has an end, and one that begins before all that is known has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdckit.merging.arrow_changes import ARRIVED, Changes, Layout
from cdckit.merging.ends import Versions, no_versions
from cdckit.merging.log_order import order_entities
from cdckit.merging.versions import find_versions, may_matter, portions, version_rows
from cdckit.parts.arrays import NEVER, Bools, Ints, first_of_entity, group_starts, ints

EPOCH_ROWS_AT_ONCE = 1 << 18


EPOCH_BYTES_AT_ONCE = 1 << 27
"""How many changes are merged anew together; of one entity with many late changes, an epoch at least."""


def beliefs(batches: Iterator[pa.RecordBatch], layout: Layout, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The versions of every entity in *batches*, each with the interval in which it was believed."""
    for table in order_entities(batches, layout):
        changes = Changes.from_table(table, layout)
        entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
        changes, _, rows = find_beliefs(changes, entity)
        for some_rows in portions(changes, len(rows.since)):
            yield _belief_rows(changes, select_beliefs(rows, some_rows), schema)


class Beliefs(NamedTuple):
    """Versions that are believed from *since* until *until*."""

    versions: Versions
    """Positions of changes; the entity is the position of its first one."""
    since: Ints
    until: Ints


def find_beliefs(
    changes: Changes, entity: Ints, period: tuple[int, int] | None = None
) -> tuple[Changes, Ints, Beliefs]:
    """
    Find what was believed, by entity, beginning and moment of knowledge, with the changes that count for it.

    Args:
        changes: Sorted, with the column `ARRIVED`.
        entity: Of each change; growing.
        period: Two instants: only versions that are in force at one of them or between are wanted.
    """
    keep = ~_find_later_repeats(changes, entity)
    if not keep.all():
        changes, entity = changes.where(keep), entity[keep]
    epochs = _epochs(changes, entity)
    row_bytes = 1 + changes.table.nbytes // changes.table.num_rows
    rows = _no_rows(changes)
    for some in _split_epochs(epochs, row_bytes):
        beliefs = _merge_epochs(changes, epochs, some)
        if period is not None:
            first, last = period
            beliefs = select_beliefs(
                beliefs, (beliefs.versions.begin <= last) & (beliefs.versions.end > first)
            )
        rows = _fold_rows(_join_rows(rows, beliefs))
    return changes, entity, rows


def _find_later_repeats(changes: Changes, entity: Ints) -> Bools:
    """Repeats that stand after, and came no sooner than, another one of the same: they never count."""
    repeated = np.zeros(len(changes), dtype=bool)
    arrived = ints(changes.table.column(ARRIVED))
    order = changes.order_by_record(entity)
    same = changes.same_record(entity, order[1:], order[:-1])
    repeated[order[1:]] = same & (arrived[order[1:]] >= arrived[order[:-1]])
    return repeated


class _Epochs(NamedTuple):
    of_change: Ints
    """The epoch in which each change arrives; epochs of all entities are numbered through."""
    arrived: Ints
    """When each change arrived."""
    start: Ints
    """For each epoch when it begins."""
    end: Ints
    """For each epoch when the next one of its entity begins, or `NEVER`."""
    first: Ints
    """For each epoch the position of its entity's first change."""
    size: Ints
    """For each epoch how many changes its entity has, late or not."""


def _epochs(changes: Changes, entity: Ints) -> _Epochs:
    arrived, instants = ints(changes.table.column(ARRIVED)), changes.instants()
    new = group_starts(entity, instants)
    # Positions grow from entity to entity, so a running maximum needs no restart where one begins.
    moment = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    order = np.lexsort((moment, arrived, entity))
    by_entity, by_arrival, by_moment = entity[order], arrived[order], moment[order]
    new_entity, together = group_starts(by_entity), ~group_starts(by_entity, by_arrival)
    late = np.zeros(len(order), dtype=bool)
    late[1:] = by_moment[1:] <= np.maximum.accumulate(_last_moments(changes, entity, moment)[order])[:-1]
    if changes.has_ends:
        # What arrived together is known together.
        arrival = np.cumsum(~together) - 1
        late |= np.isin(arrival, arrival[changes.until()[order] != NEVER])
    begins = new_entity | (late & ~together)
    of_change = np.empty(len(order), dtype=np.int64)
    of_change[order] = np.cumsum(begins) - 1
    start, whose = by_arrival[begins], by_entity[begins]
    end = np.full(len(start), NEVER)
    end[:-1] = np.where(whose[1:] == whose[:-1], start[1:], NEVER)
    firsts = np.flatnonzero(np.diff(entity, prepend=-1))
    sizes = np.diff(firsts, append=len(entity))
    number = np.cumsum(np.diff(whose, prepend=-1) != 0) - 1
    return _Epochs(of_change, arrived, start, end, firsts[number], sizes[number])


def _last_moments(changes: Changes, entity: Ints, moment: Ints) -> Ints:
    """Find for each change the last moment of its entity that is not behind its end; its own without one."""
    if not changes.has_ends:
        return moment
    instants, until = changes.instants(), changes.until()
    at = np.flatnonzero(until != NEVER)
    rank = np.unique(np.concatenate([instants, until[at]]), return_inverse=True)[1]
    by = entity * (int(rank.max()) + 1)
    behind = np.searchsorted(by + rank[: len(by)], by[at] + rank[len(by) :], side="right")
    reach = moment.copy()
    reach[at] = moment[behind - 1]
    return reach


def _split_epochs(epochs: _Epochs, row_bytes: int) -> Iterator[Ints]:
    """The epochs, so many at once as have the changes that may be merged together, and at least one."""
    share = np.cumsum(epochs.size) // max(1, min(EPOCH_ROWS_AT_ONCE, EPOCH_BYTES_AT_ONCE // row_bytes))
    cuts = np.flatnonzero(np.diff(share, prepend=-1))
    for begin, end in zip(cuts, [*cuts[1:], len(share)], strict=True):
        yield np.arange(begin, end)


def _merge_epochs(changes: Changes, epochs: _Epochs, some: Ints) -> Beliefs:
    """Merge what is believed in some epochs, each for itself."""
    size = epochs.size[some]
    epoch = np.repeat(some, size)
    offset = np.arange(len(epoch)) - np.repeat(np.cumsum(size) - size, size)
    position = np.repeat(epochs.first[some], size) + offset
    is_known = epochs.of_change[position] <= epoch
    epoch, position = epoch[is_known], position[is_known]
    then = changes.take(position)
    # Segments are numbered from one.
    keep = may_matter(then, epoch + 1)
    if not keep.all():
        then, epoch, position = then.where(keep), epoch[keep], position[keep]
    if not len(then):
        return _no_rows(changes)
    then_versions = find_versions(then, epoch + 1)
    return _close_rows(then_versions._replace(states=then_versions.states.among(position)), epochs)


def _close_rows(all_versions: Versions, epochs: _Epochs) -> Beliefs:
    """Each version, first while it is the last one known, then with the end that the next one gave it."""
    begun = all_versions.states
    epoch = begun.entity - 1
    until = epochs.end[epoch]
    in_epoch = epochs.of_change[begun.ends] == epoch
    since = np.where(in_epoch, epochs.arrived[begun.ends], epochs.start[epoch])
    ended = all_versions.end != NEVER
    # One that ends with a change, and is followed by none, was known to end from the beginning.
    closed = np.where(ended, since, until)
    goes_on = (epoch[1:] == epoch[:-1]) & (all_versions.end[:-1] == all_versions.begin[1:])
    closed[:-1] = np.where(goes_on, since[1:], closed[:-1])
    # A late change may be the last of its instant and yet change nothing: the instant is what counts.
    first = epochs.first[epoch]
    all_versions = all_versions._replace(states=begun._replace(ends=first, entity=first))
    open_ = Beliefs(all_versions._replace(end=np.full(len(first), NEVER)), since, closed)
    shut = Beliefs(all_versions.at(ended), closed[ended], until[ended])
    return _join_rows(select_beliefs(open_, since < closed), select_beliefs(shut, shut.since < shut.until))


def _fold_rows(rows: Beliefs) -> Beliefs:
    """Rows that believe the same in epochs that follow one another as one."""
    versions = rows.versions
    rows = select_beliefs(rows, np.lexsort((rows.since, versions.begin, versions.states.entity)))
    begun, begin, end = rows.versions
    content = [
        *(begin, end, begun.entity, begun.dead, begun.row, begun.source_row),
        *(*begun.standing, *begun.key_priorities),
    ]
    same = np.zeros(len(begin), dtype=bool)
    same[1:] = np.logical_and.reduce(
        [rows.since[1:] == rows.until[:-1], *(column[1:] == column[:-1] for column in content)]
    )
    starts = np.flatnonzero(~same)
    ends = np.append(starts[1:], len(same))[: len(starts)] - 1
    return select_beliefs(rows, starts)._replace(until=rows.until[ends])


def _belief_rows(changes: Changes, rows: Beliefs, schema: pa.Schema) -> pa.RecordBatch:
    kind = schema.field("system_from_timestamp").type
    system = {
        "system_from_timestamp": pa.array(rows.since).cast(kind),
        "system_to_timestamp": pa.array(rows.until, mask=rows.until == NEVER).cast(kind),
    }
    return version_rows(changes, rows.versions, schema, system)


def select_beliefs(rows: Beliefs, which: Ints | Bools | slice) -> Beliefs:
    """Some of the rows."""
    return Beliefs(rows.versions.at(which), rows.since[which], rows.until[which])


def _join_rows(first: Beliefs, other: Beliefs) -> Beliefs:
    since, until = (np.concatenate(pair) for pair in zip(first[1:], other[1:], strict=True))
    return Beliefs(Versions.joined([first.versions, other.versions]), since, until)


def _no_rows(changes: Changes) -> Beliefs:
    none = np.empty(0, dtype=np.int64)
    return Beliefs(no_versions(changes), none, none)
