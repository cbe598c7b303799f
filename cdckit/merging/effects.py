"""
What each message did to what stands of an entity, on the way from one belief to another.

Two beliefs know changes; those that both know are their *core*.  The way leads from the first belief back to
the core, on through time, and from the core to the second belief:

- what only the first belief knows is undone, what arrived last first;
- with what both know, time goes from the instant of the first belief to that of the second;
- what only the second belief knows is told, in the order of arrival.

So each step is of one message and one entity, and before it and after it stands what the merge makes of the
changes that are known then.  That is found as beliefs are: once for each side of the core, where the place of
a message among all arrivals is the moment at which it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdckit.merging.arrow_changes import ARRIVED, Changes, Layout, require_whole
from cdckit.merging.beliefs import Beliefs, find_beliefs, select_beliefs
from cdckit.merging.log_order import order_entities
from cdckit.merging.versions import field_values, portions, version_guids
from cdckit.parts.arrays import (
    NEVER,
    NOWHERE,
    Bools,
    Ints,
    first_of_entity,
    ints,
    number_values,
    positions,
    rank_values,
)
from cdckit.parts.arrow_types import make_batch

SIDES = "sides"
"""The column that says which beliefs know a change: `BEFORE`, `AFTER` or both, as bits."""

BEFORE, AFTER, CORE = 1, 2, 3

PLACE = "place"
"""The column of the arrival of changes that are not of the core; it may be null in the others."""

RESTATED = "restated"

_OF_MESSAGE = (RESTATED, "message_id", "source", "effective_timestamp", PLACE)

UNDONE, BEGAN, ENDED, TOLD = range(4)
"""What a step is, in the order of the way: a message undone, one whose time came or was over, one told."""


class Question(NamedTuple):
    """Which instants the two beliefs are about, in microseconds, the second not before the first."""

    before: int
    after: int
    apart: bool
    """Whether the changes of the two stand apart: equal ones are in the core then."""


class _Steps(NamedTuple):
    """Steps; what stands before and after each is a row of beliefs, or `NOWHERE`."""

    was: Ints
    now: Ints
    message: Ints
    """The change that the step is of, or the first of those of its message."""
    kind: Ints
    at: Ints
    """The instant at which what began or ended did so."""


def effects(
    batches: Iterable[pa.RecordBatch], layout: Layout, question: Question, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """A row of *schema* for each step that changes a value of an entity, or whether it is there."""
    for table in order_entities(batches, layout):
        require_whole(table)
        table = _differing_entities(_with_core(table) if question.apart else table, layout, question)
        table = _with_places(table, layout) if table.num_rows else table
        # What speaks of a later time does nothing yet.
        is_true = ints(table.column("effective_timestamp")) <= question.after
        table = table.filter(pa.array(is_true))
        if table.num_rows:
            yield from _effects_of(table, layout, question, schema)


def _effects_of(
    table: pa.RecordBatch, layout: Layout, question: Question, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
    sides, period = ints(table.column(SIDES)), (question.before, question.after)
    for side, at in ((BEFORE, question.before), (AFTER, question.after)):
        chosen = sides & side > 0
        if not chosen.any() or (side == BEFORE and (sides[chosen] == CORE).all()):
            continue
        known_changes = Changes(table.filter(pa.array(chosen)), layout)
        changes, whose, beliefs = find_beliefs(known_changes, entity[chosen], period)
        steps = _find_steps(changes, beliefs, at, side)
        if side == AFTER:
            passing = _find_passing(changes, whose, beliefs, question)
            steps = _Steps(*map(np.concatenate, zip(steps, passing, strict=True)))
        steps = _changing(beliefs, steps)
        for some in portions(changes, len(steps.was)):
            yield _step_rows(changes, beliefs, _select(steps, some), schema)


def _with_core(table: pa.RecordBatch) -> pa.RecordBatch:
    """The changes of both beliefs, each once: equal ones are known to both."""
    names = [name for name in table.schema.names if name != SIDES]
    rows = pa.StructArray.from_arrays([table.column(name) for name in names], names)
    content, sides = number_values(rows), ints(table.column(SIDES))
    order = np.argsort(content, kind="stable")
    starts = np.flatnonzero(np.diff(content[order], prepend=NOWHERE))
    all_sides = np.bitwise_or.reduceat(sides[order], starts)
    first = order[starts]
    in_order = np.argsort(first)
    return _with_column(table.take(pa.array(first[in_order])), SIDES, all_sides[in_order])


def _differing_entities(table: pa.RecordBatch, layout: Layout, question: Question) -> pa.RecordBatch:
    """The changes of entities that can differ in the two beliefs."""
    entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
    changes = Changes(table, layout)
    differs = ints(table.column(SIDES)) != CORE
    for times in (changes.instants(), changes.until()):
        differs |= (times > question.before) & (times <= question.after)
    wanted = np.zeros(len(entity) + 1, dtype=bool)
    wanted[entity[differs]] = True
    return table.filter(pa.array(wanted[entity]))


def _with_places(table: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """
    The changes with `ARRIVED`: 0 in the core, else the place of their message among those of the entity.

    And with `RESTATED`: whether they are of a message that both beliefs know, with other words or priorities.
    """
    entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
    sides = ints(table.column(SIDES))
    source, message = (rank_values(table.column(name)) for name in ("source", "message_id"))
    arrival = table.column(PLACE)
    parts = [rank_values(arrival.field(name)) for name in ("timestamp", "topic", "partition", "offset")]
    # What a row took along came with its move, which some other message had said.
    along = Changes(table, layout).is_taken_along.astype(np.int64)
    key = np.stack([entity, *parts, along, message, source])
    outside = sides != CORE
    place = np.zeros(len(entity), np.int64)
    place[outside] = _number(key[:, outside]) + 1
    identity = _number(np.stack([entity, message, source]))
    restated = outside & np.isin(
        identity, np.intersect1d(identity[sides == BEFORE], identity[sides == AFTER])
    )
    return _with_column(_with_column(table, ARRIVED, place), RESTATED, restated)


def _number(columns: Ints) -> Ints:
    """Numbers that sort as the columns of numbers do, equal ones having one."""
    order = np.lexsort(columns[::-1])
    new = (columns[:, order[1:]] != columns[:, order[:-1]]).any(axis=0)
    numbers = np.zeros(columns.shape[1], np.int64)
    numbers[order[1:]] = np.cumsum(new)
    return numbers


def _find_steps(changes: Changes, beliefs: Beliefs, at: int, side: int) -> _Steps:
    """Find what stands at an instant as one message after the other is told, or undone."""
    versions = beliefs.versions
    in_force = np.flatnonzero((versions.begin <= at) & (versions.end > at))
    order = in_force[np.lexsort((beliefs.since[in_force], versions.states.entity[in_force]))]
    was, now, place = _successions(versions.states.entity[order], beliefs.since[order], beliefs.until[order])
    was, now = (np.where(row == NOWHERE, NOWHERE, order[row]) for row in (was, now))
    has_place = place > 0
    places, first = np.unique(ints(changes.table.column(ARRIVED)), return_index=True)
    message = first[np.searchsorted(places, place[has_place])]
    kind = np.full(len(message), TOLD if side == AFTER else UNDONE)
    was, now = (was[has_place], now[has_place]) if side == AFTER else (now[has_place], was[has_place])
    return _Steps(was, now, message, kind, np.zeros(len(message), np.int64))


def _find_passing(changes: Changes, whose: Ints, beliefs: Beliefs, question: Question) -> _Steps:
    """Find what stands as time passes, by what both beliefs know."""
    versions, states = beliefs.versions, beliefs.versions.states
    core = np.flatnonzero(beliefs.since == 0)
    order = core[np.lexsort((versions.begin[core], states.entity[core]))]
    was, now, at = _successions(states.entity[order], versions.begin[order], versions.end[order])
    passed = (at > question.before) & (at <= question.after)
    was, now = (np.where(row == NOWHERE, NOWHERE, order[row])[passed] for row in (was, now))
    at = at[passed]
    message = np.where(now == NOWHERE, NOWHERE, states.source_row[now])
    began = (message != NOWHERE) & (changes.instants()[message] == at)
    entity = whose[states.entity[np.where(now == NOWHERE, was, now)]]
    message[~began] = _last_ending(changes, whose, entity[~began], at[~began])
    return _Steps(was, now, message, np.where(began, BEGAN, ENDED), at)


def _successions(whose: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """
    Tell what follows what, and when: of intervals that are sorted, none of one entity overlapping another.

    `NOWHERE` comes before the first and after the last interval of an entity, and in a gap.
    """
    follows = np.zeros(len(whose), dtype=bool)
    follows[1:] = (whose[1:] == whose[:-1]) & (end[:-1] == begin[1:])
    every = np.arange(len(whose))
    closes = np.flatnonzero((end != NEVER) & ~np.append(follows[1:], False))
    was = np.concatenate([np.where(follows, every - 1, NOWHERE), closes])
    now = np.concatenate([every, np.full(len(closes), NOWHERE)])
    return was, now, np.concatenate([begin, end[closes]])


def _last_ending(changes: Changes, whose: Ints, entity: Ints, at: Ints) -> Ints:
    """The last of the changes of an entity in the core that end at an instant."""
    until = changes.until()
    core = np.flatnonzero(ints(changes.table.column(ARRIVED)) == 0)
    core = core[~changes.take(core).find_repeats(whose[core])]
    ended = core[until[core] != NEVER]
    times = np.unique(until[ended])
    key = whose[ended] * (len(times) + 1) + np.searchsorted(times, until[ended])
    order = np.argsort(key, kind="stable")
    asked = entity * (len(times) + 1) + np.searchsorted(times, at)
    last: Ints = ended[order][np.searchsorted(key[order], asked, side="right") - 1]
    return last


def _changing(beliefs: Beliefs, steps: _Steps) -> _Steps:
    """The steps after which another value stands, or another entity is there."""
    states = beliefs.versions.states
    was_there, is_there = (
        (row != NOWHERE) & ~states.dead[row] if len(states.dead) else row != NOWHERE
        for row in (steps.was, steps.now)
    )
    other = np.zeros(len(steps.was), dtype=bool)
    for stands in states.standing:
        other |= stands[steps.was] != stands[steps.now]
    return _select(steps, (was_there | is_there) & ((was_there != is_there) | other))


def _step_rows(changes: Changes, beliefs: Beliefs, steps: _Steps, schema: pa.Schema) -> pa.RecordBatch:
    table, at = changes.table, pa.array(steps.message)
    rows = np.unique(np.concatenate([steps.was, steps.now]))
    rows = rows[rows != NOWHERE]
    versions = select_beliefs(beliefs, rows).versions
    kind = schema.field("was").type
    layout = changes.layout
    values = [
        pa.array(versions.states.dead),
        *(field_values(changes, versions.states, index) for index in range(len(layout.fields))),
    ]
    typed = [value.cast(part.type) for value, part in zip(values, kind, strict=True)]
    stands = pa.StructArray.from_arrays(typed, fields=list(kind))

    def of(row: Ints) -> pa.Array:
        place = np.where(row == NOWHERE, NOWHERE, np.searchsorted(rows, row))
        return stands.take(positions(place))

    version_row = np.searchsorted(rows, np.where(steps.now == NOWHERE, steps.was, steps.now))
    clock = table.schema.field("effective_timestamp").type
    columns = {
        "guid": version_guids(changes, versions.states).take(pa.array(version_row)),
        "step": pa.array(steps.kind.astype(np.int32)),
        "at": pa.array(steps.at).cast(clock),
        **{name: table.column(name).take(at) for name in _OF_MESSAGE},
        "was": of(steps.was),
        "now": of(steps.now),
    }
    return make_batch(columns, schema)


def _with_column(table: pa.RecordBatch, name: str, values: Ints | Bools) -> pa.RecordBatch:
    at, column = table.schema.get_field_index(name), pa.array(values)
    if at == NOWHERE:
        return table.append_column(name, column)
    return table.set_column(at, pa.field(name, column.type), column)


def _select(steps: _Steps, which: Ints | Bools | slice) -> _Steps:
    return _Steps(*(part[which] for part in steps))
