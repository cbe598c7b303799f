"""
The merge of one bucket, in a worker: only of the entities that new changes speak of.

An entity whose new changes are all later than all that the log has of it goes on from its open version; of
any other one that is touched, and of one that has a change with an end, all changes are merged again.
Which of the two it was never shows in the result.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.ledger.buckets.bucket_rows import (
    align_columns,
    change_order,
    entity_guids,
    flatten_changes,
    join_batches,
    join_flat_batches,
    order_changes,
    read_rows,
    select_rows,
    with_columns,
)
from cdckit.ledger.buckets.repeats import is_repeated, may_be_repeated
from cdckit.ledger.buckets.resumed_versions import resume_changes
from cdckit.ledger.buckets.stale_rows import require_no_stale_rows
from cdckit.ledger.buckets.tasks import Targets, Task
from cdckit.ledger.columns import ALWAYS_LATE, EVERY, IDENTITY, LATEST, PLACE
from cdckit.merging.arrow_changes import GUID, SNAPSHOT
from cdckit.merging.log_order import has_log, is_placed, order_entities
from cdckit.merging.versions import versions
from cdckit.model.changes import MOVED, UNTIL
from cdckit.model.history import VALID_TO
from cdckit.model.places import CLOCK, LOG_END
from cdckit.parts.arrays import (
    NOWHERE,
    Bools,
    Ints,
    bools,
    group_starts,
    ints,
    number_texts,
    positions,
    rank_values,
)
from cdckit.store.reading import read_batches


class MergeResult(NamedTuple):
    """The outcome for the entities that are touched."""

    guids: pa.Array
    """The entities that are touched."""
    latest: pa.Array
    """The latest effective time of each."""
    place: pa.Array
    """The last place of each in the log of a source; null where none says one."""
    versions: pa.RecordBatch
    """Those that are new, of which one may be like one that was there."""
    continued: pa.RecordBatch
    """Versions that were open and have an end now, or have not."""
    late: pa.Array
    """The guids of which all versions that are there go."""
    news: pa.RecordBatch
    """The changes that were new, and were news."""

    moved: bool
    """Whether an entity that was merged again is one that moves came from, or went to."""


def merge_bucket(
    task: Task,
    targets: Targets,
    new: pa.RecordBatch,
    opened: pa.RecordBatch,
    unborn: pa.RecordBatch,
    rewritten: pa.Array,
) -> MergeResult:
    """Merge *new* changes into a bucket, and the entities *rewritten*, to which other words were taken."""
    late = _find_late(task, targets, new, opened, unborn)
    again = _merge_again(task, targets, select_rows(new, late), rewritten)
    later = select_rows(new, ~late)
    on = order_changes(later)
    stored = opened.filter(pc.is_in(opened.column(GUID), value_set=entity_guids(on)))
    begun, continued = _continue(targets, stored, on)
    guids, latest, place = _latest_positions([again.rows, on])
    # Changes that say no place go on behind the last one that did.
    for rows in (opened, unborn):
        place = pc.coalesce(place, rows.column(PLACE).take(pc.index_in(guids, rows.column(GUID))))
    # With room for the columns that users do not see.
    new_versions = join_batches([again.versions, begun], targets.merged_schema)
    new_versions = align_columns(new_versions, targets.stored_schema)
    news = join_batches([again.news, later], new.schema)
    moved = MOVED in new.schema.names and again.rows.column(MOVED).null_count < again.rows.num_rows
    late_guids = entity_guids(again.rows)
    return MergeResult(guids, latest, place, new_versions, continued, late_guids, news, moved)


def _find_late(
    task: Task, targets: Targets, new: pa.RecordBatch, opened: pa.RecordBatch, unborn: pa.RecordBatch
) -> Bools:
    """
    Find the changes of entities for which their place in the log matters, or that may be in it already.

    If one change of an entity is late, all of them are: its log is merged again.
    """
    if task.anew:
        return np.ones(new.num_rows, dtype=bool)
    encoded = new.column(GUID).dictionary_encode()
    entity = ints(encoded.indices)
    reasons = [_may_be_logged(task, targets, new), _end_or_move(new), _follow_no_truncate(new, unborn)]
    for stored in (opened, unborn):
        at = pc.index_in(encoded.dictionary, value_set=stored.column(GUID)).take(encoded.indices)
        latest = stored.column(LATEST).take(at)
        reasons.append(_follow_no_time(new, latest))
        if SNAPSHOT in new.schema.names:
            reasons.append(_follow_no_place(new, latest, stored.column(PLACE).take(at)))
    late: Bools = np.isin(entity, entity[np.logical_or.reduce(reasons)])
    return late


def _may_be_logged(task: Task, targets: Targets, new: pa.RecordBatch) -> Bools:
    """Tell which changes have the identity of one in the log, or of each other."""
    messages = sorted(new.column("message_id").unique().to_pylist())
    identities = [
        batch.column(0)
        for file in task.log
        if file.may_name(messages)
        for batch in read_batches(targets.log, file.path, [IDENTITY], 1 << 20)
    ]
    return may_be_repeated(new.column(IDENTITY), identities)


def _end_or_move(new: pa.RecordBatch) -> Bools:
    """Tell which changes say an end, or move a row: an open version does not tell what these make of it."""
    named = (name for name in (UNTIL, MOVED) if name in new.schema.names)
    parts = [np.zeros(new.num_rows, dtype=bool), *(np.asarray(new.column(name).is_valid()) for name in named)]
    end_or_move: Bools = np.logical_or.reduce(parts)
    return end_or_move


def _follow_no_truncate(new: pa.RecordBatch, unborn: pa.RecordBatch) -> Bools:
    """Tell which changes are not behind each truncate, by their times and their places."""
    instant, sequence = new.column("effective_timestamp"), new.column("sequence")
    is_early: Bools = np.zeros(new.num_rows, dtype=bool)
    for truncate in unborn.filter(pc.equal(unborn.column(GUID), EVERY)).to_pylist():
        is_early |= bools(pc.less_equal(instant, pa.scalar(truncate[LATEST], instant.type)))
        is_early |= bools(pc.less_equal(sequence, truncate[PLACE] or ""))
    return is_early


def _follow_no_time(new: pa.RecordBatch, latest: pa.Array) -> Bools:
    """Tell which changes are not later than the *latest* time of their entity, or than that can be told."""
    is_always_late = bools(pc.equal(latest, pa.scalar(ALWAYS_LATE, latest.type)))
    return _find_behind(new.column("effective_timestamp"), latest) | is_always_late


def _follow_no_place(new: pa.RecordBatch, latest: pa.Array, place: pa.Array) -> Bools:
    """Tell which changes are not behind the last *place* of their entity, of those that count by places."""
    sequence = new.column("sequence")
    # What a snapshot read, which knows no log, stands among places of logs by its arrival.
    stands_by_arrival = bools(has_log(sequence)) & bools(pc.invert(has_log(place)))
    was_read = bools(new.column(SNAPSHOT)) & np.asarray(latest.is_valid())
    is_behind = _find_behind(sequence, place) | stands_by_arrival | _arrived_before(new, place)
    follows_none: Bools = is_placed(new) & is_behind | was_read
    return follows_none


def _arrived_before(new: pa.RecordBatch, place: pa.Array) -> Bools:
    """Tell which changes say a time of a clock, and arrived no later than the last of their entity so did."""
    is_time = bools(pc.fill_null(pc.starts_with(new.column("sequence"), CLOCK), False))
    if not is_time.any():
        return is_time
    last = pc.struct_field(pc.extract_regex(place, f"^{CLOCK}.*{LOG_END}(?P<arrived>\\d+)$"), "arrived")
    return _find_behind(new.column("arrival").field("timestamp").cast(pa.int64()), last) & is_time


def _find_behind(values: pa.Array, bound: pa.Array) -> Bools:
    """Find the values that are not beyond what they are bound by; null binds none."""
    return bools(pc.less_equal(values, bound.cast(values.type)))


class _SecondMerge(NamedTuple):
    """Of entities that are merged again: their changes in order, which of them are news, their versions."""

    rows: pa.RecordBatch
    news: pa.RecordBatch
    versions: pa.RecordBatch


def _merge_again(task: Task, targets: Targets, new: pa.RecordBatch, rewritten: pa.Array) -> _SecondMerge:
    guids = pa.concat_arrays([entity_guids(new), rewritten])
    merged_guids = pa.concat_arrays([guids, pa.array([EVERY], guids.type)])

    def keep_merged(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows if task.anew else rows.filter(pc.is_in(rows.column(GUID), value_set=merged_guids))

    old: list[pa.RecordBatch] = []
    if task.anew or len(guids):
        old += (keep_merged(rows) for file in task.log for rows in read_batches(targets.log, file.path))
        if targets.words is not None:
            old.append(keep_merged(align_columns(read_rows(targets.words, task.words), new.schema)))
    before = sum(batch.num_rows for batch in old)
    rows = join_batches([*old, new], new.schema)
    order = change_order(rows)
    rows, is_new = rows.take(pa.array(order)), order >= before
    drop = is_repeated(rows, is_new)
    merge = partial(_merge, targets)
    if targets.periods:
        require_no_stale_rows(rows, is_new, drop, merge)
    news = select_rows(rows, is_new & ~drop)
    rows = select_rows(rows, ~drop)
    if not task.anew:
        touched = pa.concat_arrays([entity_guids(news), rewritten, pa.array([EVERY], guids.type)])
        rows = rows.filter(pc.is_in(rows.column(GUID), value_set=touched))
    return _SecondMerge(rows, news, merge(rows))


def _merge(targets: Targets, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The versions that changes make."""
    flat = [flatten_changes(rows, targets.layout)] if rows.num_rows else []
    return join_batches(versions(flat, targets.layout, targets.merged_schema), targets.merged_schema)


def _continue(
    targets: Targets, stored: pa.RecordBatch, on: pa.RecordBatch
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The versions that begin with later changes, and the open ones that they follow, with their ends."""
    if not stored.num_rows:
        return _merge(targets, on), stored
    placed = order_entities([flatten_changes(on, targets.resume_layout)], targets.resume_layout)
    changes = join_flat_batches([resume_changes(stored, targets.resume_layout), *placed])
    changes = changes.take(pa.array(np.argsort(rank_values(changes.column(GUID)), kind="stable")))
    continued = join_batches(
        versions([changes], targets.resume_layout, targets.merged_schema), targets.merged_schema
    )
    entity = number_texts(continued.column(GUID))
    first = group_starts(entity)
    first &= bools(pc.is_in(continued.column(GUID), value_set=stored.column(GUID)))
    as_stored = continued.filter(pa.array(first))
    at = pc.index_in(stored.column(GUID), value_set=as_stored.column(GUID))
    assert as_stored.num_rows == stored.num_rows
    assert not at.null_count
    ended = with_columns(stored, {VALID_TO: as_stored.column(VALID_TO).take(at)})
    return select_rows(continued, ~first), ended


def _latest_positions(sorted_rows: list[pa.RecordBatch]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The entities in rows that are in order, the last instant of each, and the last place."""
    guids, instants, places = [], [], []
    for rows in sorted_rows:
        entity = number_texts(rows.column(GUID))
        last = group_starts(entity[::-1])[::-1]
        guids.append(rows.column(GUID).filter(pa.array(last)))
        number = np.cumsum(last, dtype=np.int64) - last
        latest = rows.column("effective_timestamp").filter(pa.array(last))
        instants.append(pc.if_else(_some_end(rows, number), pa.scalar(ALWAYS_LATE, latest.type), latest))
        places.append(_last_places(rows, number))
    return pa.concat_arrays(guids), pa.concat_arrays(instants), pa.concat_arrays(places)


def _some_end(rows: pa.RecordBatch, entity: Ints) -> pa.Array:
    """Tell for each entity, which are numbered from 0, whether some of its changes end."""
    ends = np.zeros(int(entity.max(initial=-1)) + 1, dtype=bool)
    if UNTIL in rows.schema.names:
        ends[entity[np.asarray(rows.column(UNTIL).is_valid())]] = True
    return pa.array(ends)


def _last_places(rows: pa.RecordBatch, entity: Ints) -> pa.Array:
    """
    Find for each entity, numbered from 0, the last place that its changes say; null without one.

    Behind a time of a clock stands when the last change with such a place arrived: that counts, too.
    """
    sequence = rows.column("sequence")
    last = np.full(int(entity.max(initial=-1)) + 1, NOWHERE)
    if SNAPSHOT in rows.schema.names:
        at = np.flatnonzero(is_placed(rows))
        at = at[np.lexsort((rank_values(sequence)[at], entity[at]))]
        last[entity[at]] = at
    places = sequence.take(positions(last))
    is_time = pc.starts_with(places, CLOCK)
    if not pc.any(is_time).as_py():
        return places
    arrived = np.zeros(len(last), np.int64)
    np.maximum.at(arrived, entity[at], ints(rows.column("arrival").field("timestamp"))[at])
    texts = pa.array([f"{LOG_END}{micros}" for micros in arrived.tolist()], places.type)
    return pc.if_else(is_time, pc.binary_join_element_wise(places, texts, pa.scalar("", places.type)), places)
