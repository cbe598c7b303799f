"""
The merge of one bucket, in a worker: only of the entities that new changes speak of.

An entity whose new changes are all later than all that the log has of it goes on from its open version; of
any other one that is touched, and of one that has a change with an end, all changes are merged again.
Which of the two it was never shows in the result.

An open version carries the whole state of its entity: values, deletion, and for the row and every
field the message and the priority that each has its value from.  So a few changes lead to that state:
one upsert per message, each carrying the fields that are from it with their own priorities; the first
of them is the row's, the others speak for the row with the least priority that there is, which never
changes it; and at the end, if the entity is deleted, a delete with the priorities that the fields have.
What later changes do depends on the state alone.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.ledger.columns import ALWAYS_LATE, EVERY, IDENTITY, LATEST, PLACE
from cdckit.ledger.periods import require_no_stale_rows
from cdckit.ledger.tasks import (
    Targets,
    Task,
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
from cdckit.merging.arrow_changes import (
    GUID,
    OPERATIONS,
    SNAPSHOT,
    WORD,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from cdckit.merging.places import arrivals, has_log, is_placed, order_entities
from cdckit.merging.versions import versions
from cdckit.model.changes import DELETE, MOVED, UNTIL, UPSERT
from cdckit.model.history import DELETED, FIELD_PROVENANCE, VALID_FROM, VALID_TO
from cdckit.parts.arrays import (
    NOWHERE,
    Bools,
    Ints,
    bools,
    greatest_before,
    group_starts,
    ints,
    number_texts,
    positions,
    rank_values,
    same_values,
    segments,
)
from cdckit.store.files import read_batches

_LEAST = -(2**31)
_SOURCE = "\0ledger"
"""The source of such changes: no other change is the same word of the same source."""


class _Origins(NamedTuple):
    """Where each version has its row, and each field, from: messages as numbers, and priorities."""

    texts: pa.Array
    row: Ints
    row_priority: Ints
    fields: list[Ints]
    """`NOWHERE` where the field was never set."""
    priorities: list[Ints]


def resume_changes(open_versions: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The changes in the columns of `kernel_rows`: those of a version together, in their order."""
    count = open_versions.num_rows
    origins = _origins(open_versions, layout)
    dead = bools(open_versions.column(DELETED))
    others = _others(origins, count)
    deleted = np.flatnonzero(dead)
    version = np.concatenate([np.arange(count), others.version, deleted])
    message = np.concatenate([origins.row, others.message, origins.row[deleted]])
    step = np.repeat([0, 1, 2], [count, len(others.version), len(deleted)])
    priority = np.full(len(version), _LEAST)
    priority[:count] = origins.row_priority
    priority[step == 2] = origins.row_priority[deleted]
    at = pa.array(version)
    columns = {
        GUID: open_versions.column(GUID).take(at),
        "effective_timestamp": open_versions.column(VALID_FROM).take(at),
        "message_id": origins.texts.take(pa.array(message)),
        "source": pa.array([_SOURCE], pa.large_string()).take(pa.array(np.zeros(len(version), np.int64))),
        "priority": pa.array(priority.astype(np.int32)),
        "operation": pa.array(
            np.where(step == 2, OPERATIONS.index(DELETE), OPERATIONS.index(UPSERT)).astype(np.int8)
        ),
        "record_number": pa.array(np.where(step == 2, _LEAST + 1, _LEAST).astype(np.int32)),
    }
    carried = [np.zeros(len(version), np.int64) for _ in carried_words(layout.fields)]
    for index, name in enumerate(layout.fields):
        is_set = origins.fields[index] != NOWHERE
        rows = others.row_of(origins, index, is_set)
        word, bit = divmod(index, WORD)
        carried[word][rows] |= 1 << bit
        stated = np.full(len(version), 0, np.int32)
        lacking: Bools = np.ones(len(version), dtype=bool)
        stated[rows], lacking[rows] = origins.priorities[index][is_set], False
        stated[step == 2], lacking[step == 2] = origins.priorities[index][deleted], ~is_set[deleted]
        columns[value_column(index)] = open_versions.column(name).take(at)
        columns[priority_column(index)] = pa.array(stated, mask=lacking)
    columns |= {carried_column(word): pa.array(bits) for word, bits in enumerate(carried)}
    return pa.RecordBatch.from_pydict(columns).take(pa.array(np.lexsort((step, version))))


def _origins(open_versions: pa.RecordBatch, layout: Layout) -> _Origins:
    provenance = open_versions.column(FIELD_PROVENANCE)
    entries = [provenance.field(name) for name in (GUID, *layout.fields)]
    count = open_versions.num_rows
    encoded = pa.concat_arrays([entry.field("m") for entry in entries]).dictionary_encode()
    numbers = ints(encoded.indices.fill_null(NOWHERE))
    messages, priorities = [], []
    for place, entry in enumerate(entries):
        there = np.asarray(entry.is_valid())
        messages.append(np.where(there, numbers[place * count : (place + 1) * count], NOWHERE))
        priorities.append(ints(entry.field("p").fill_null(0)))
    return _Origins(encoded.dictionary, messages[0], priorities[0], messages[1:], priorities[1:])


class _Others(NamedTuple):
    """The messages of each version beside that of its row, sorted by version."""

    versions: int
    keys: Ints
    version: Ints
    message: Ints

    def row_of(self, origins: _Origins, index: int, is_set: Bools) -> Ints:
        """Find the change that carries a field, for each version in which it is set."""
        version = np.flatnonzero(is_set)
        message = origins.fields[index][is_set]
        places = self.versions + np.searchsorted(self.keys, version * len(origins.texts) + message)
        rows: Ints = np.where(message == origins.row[is_set], version, places)
        return rows


def _others(origins: _Origins, count: int) -> _Others:
    pairs = [np.zeros(0, np.int64)]
    for messages in origins.fields:
        version = np.flatnonzero((messages != NOWHERE) & (messages != origins.row))
        pairs.append(version * len(origins.texts) + messages[version])
    keys = np.unique(np.concatenate(pairs))
    several = max(1, len(origins.texts))
    return _Others(count, keys, keys // several, keys % several)


class MergeResult(NamedTuple):
    """The outcome for the entities that are touched."""

    guids: pa.Array
    """Of the touched ones."""
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
    for there in (opened, unborn):
        place = pc.coalesce(place, there.column(PLACE).take(pc.index_in(guids, there.column(GUID))))
    return MergeResult(
        guids,
        latest,
        place,
        join_batches(
            [_with_hidden(again.versions, targets), _with_hidden(begun, targets)], targets.stored_schema
        ),
        continued,
        entity_guids(again.rows),
        join_batches([again.news, later], new.schema),
        MOVED in new.schema.names and again.rows.column(MOVED).null_count < again.rows.num_rows,
    )


def _find_late(
    task: Task, targets: Targets, new: pa.RecordBatch, opened: pa.RecordBatch, unborn: pa.RecordBatch
) -> Bools:
    """The changes of entities for which their place in the log matters, or that may be in it already."""
    if task.anew:
        return np.ones(new.num_rows, dtype=bool)
    messages = sorted(new.column("message_id").unique().to_pylist())
    identities = [
        batch.column(0)
        for file in task.log
        if file.may_name(messages)
        for batch in read_batches(targets.log, file.path, [IDENTITY], 1 << 20)
    ]
    late = may_be_repeated(new.column(IDENTITY), identities)
    encoded = new.column(GUID).dictionary_encode()
    entity, instant = ints(encoded.indices), new.column("effective_timestamp")
    is_every = pc.equal(unborn.column(GUID), EVERY)
    for there in (opened, unborn):
        at = pc.index_in(encoded.dictionary, value_set=there.column(GUID)).take(encoded.indices)
        latest = there.column(LATEST).take(at)
        late |= _find_behind(instant, latest) | bools(pc.equal(latest, pa.scalar(ALWAYS_LATE, latest.type)))
        if SNAPSHOT in new.schema.names:
            place = there.column(PLACE).take(at)
            late |= is_placed(new) & _find_behind(new.column("sequence"), place)
            # What a snapshot read, which knows no log, stands among places of logs by its arrival.
            late |= is_placed(new) & bools(has_log(new.column("sequence"))) & bools(pc.invert(has_log(place)))
            late |= bools(new.column(SNAPSHOT)) & np.asarray(latest.is_valid())
    if UNTIL in new.schema.names:
        late |= np.asarray(new.column(UNTIL).is_valid())
    if MOVED in new.schema.names:
        late |= np.asarray(new.column(MOVED).is_valid())
    for truncated in unborn.filter(is_every).to_pylist():
        late |= bools(pc.less_equal(instant, pa.scalar(truncated[LATEST], instant.type)))
        late |= bools(pc.less_equal(new.column("sequence"), truncated[PLACE] or ""))
    return np.isin(entity, entity[late])


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
    old = (
        []
        if not (task.anew or len(guids))
        else [
            batch if task.anew else batch.filter(pc.is_in(batch.column(GUID), value_set=merged_guids))
            for file in task.log
            for batch in read_batches(targets.log, file.path)
        ]
    )
    if targets.words is not None and (task.anew or len(guids)):
        words = align_columns(read_rows(targets.words, task.words), new.schema)
        old.append(words if task.anew else words.filter(pc.is_in(words.column(GUID), value_set=merged_guids)))
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


def _with_hidden(versions: pa.RecordBatch, targets: Targets) -> pa.RecordBatch:
    """Versions with room for the columns that users do not see."""
    return align_columns(versions, targets.stored_schema)


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
    """Find for each entity, numbered from 0, the last place that its changes say; null without one."""
    sequence = rows.column("sequence")
    last = np.full(int(entity.max(initial=-1)) + 1, NOWHERE)
    if SNAPSHOT in rows.schema.names:
        at = np.flatnonzero(is_placed(rows))
        at = at[np.lexsort((rank_values(sequence)[at], entity[at]))]
        last[entity[at]] = at
    return sequence.take(positions(last))


# Repeats --------------------------------------------------------------------------------------------------


def may_be_repeated(identities: pa.Array, logged: list[pa.Array]) -> Bools:
    """Find the new changes that share the hash of their identity with a logged one, or with each other."""
    new = ints(identities)
    hits = [ints(some.filter(pc.is_in(some, value_set=identities))) for some in logged]
    values, counts = np.unique(new, return_counts=True)
    again = np.concatenate([*hits, values[counts > 1]])
    return np.isin(new, again)


def is_repeated(rows: pa.RecordBatch, is_new: Bools) -> Bools:
    """
    Find the new changes that say nothing that the log has not.

    Of a change that came twice (source, message and record number, of one entity) the one that stands first
    in the order counts.  So one says nothing if another stands before it and had arrived before it, or is
    at its very place; whether that one is in the log or among the new ones is no matter, so the log of
    changes that come as they arrived is one, wherever batches are cut.  One that stands later and arrived
    sooner is news: it counted until the other one came.

    *rows* are in their order (`change_order`), those of the log before new ones where they tie.
    """
    identity = (
        ints(rows.column("arrival").field("record_number")),
        number_texts(rows.column("source")),
        number_texts(rows.column("message_id")),
        number_texts(rows.column(GUID)),
    )
    order = np.lexsort((np.arange(rows.num_rows), *identity))
    first = group_starts(*(part[order] for part in identity))
    number, again, several = np.cumsum(first, dtype=np.int64), ~first, ~first
    several[:-1] |= again[1:]
    order, again, of = order[several], again[several], segments(number[several])
    arrived = arrivals(rows.take(pa.array(order)))
    drop = arrived > -greatest_before(-arrived, of)
    drop[again] |= _same_place(rows, order[again], order[np.flatnonzero(again) - 1])
    repeated: Bools = np.zeros(rows.num_rows, dtype=bool)
    repeated[order] = drop & is_new[order]
    return repeated


def _same_place(rows: pa.RecordBatch, first: Ints, other: Ints) -> Bools:
    """Pair by pair, whether two changes of one identity stand at one place in the order."""
    left, right = (rows.take(pa.array(at)) for at in (first, other))
    columns = ("effective_timestamp", "sequence", "arrival")
    parts = [same_values(left.column(name), right.column(name)) for name in columns]
    same: Bools = np.logical_and.reduce(parts)
    return same
