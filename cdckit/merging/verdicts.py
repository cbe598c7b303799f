"""What became of each change of one entity that spoke of one field."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.errors import CdcError
from cdckit.merging.arrow_changes import OPERATIONS, Changes, Layout
from cdckit.merging.log_order import order_entities
from cdckit.merging.precedence import Field, Steps, effective, field, steps
from cdckit.parts.arrays import (
    NEVER,
    NOWHERE,
    Bools,
    Ints,
    bools,
    first_of_entity,
    ints,
    positions,
    row_before,
)
from cdckit.parts.arrow_types import make_batch


class Verdict(StrEnum):
    """What became of one message's word about one value."""

    WON = "WON"
    SUPERSEDED = "SUPERSEDED"
    OUTRANKED = "OUTRANKED"
    EQUAL = "EQUAL"
    CONFIRMED = "CONFIRMED"
    DELETED = "DELETED"
    NOTHING_THERE = "NOTHING_THERE"
    NEVER_SET = "NEVER_SET"
    REPEATED = "REPEATED"
    EXPIRED = "EXPIRED"
    NOT_YET_EFFECTIVE = "NOT_YET_EFFECTIVE"
    ARRIVED_LATER = "ARRIVED_LATER"

    @property
    def reason(self) -> str:
        """The verdict in words."""
        return _REASONS[self]


_REASONS = {
    Verdict.WON: "this is the value that stands",
    Verdict.SUPERSEDED: "stood until a later message of at least its priority spoke",
    Verdict.OUTRANKED: "ignored: a message of higher priority had spoken before",
    Verdict.EQUAL: "ignored: repeated the value that stood, at the same priority",
    Verdict.CONFIRMED: "repeated the key: the older message stays, with this priority",
    Verdict.DELETED: "ignored: the entity was deleted, by a message that it could not overrule",
    Verdict.NOTHING_THERE: "ignored: there was nothing to delete",
    Verdict.NEVER_SET: "deleted the entity; this field had never been set",
    Verdict.REPEATED: "ignored: the same message, delivered again",
    Verdict.EXPIRED: "over: held until a time that has passed",
    Verdict.NOT_YET_EFFECTIVE: "not yet: speaks of a later time than was asked about",
    Verdict.ARRIVED_LATER: "unknown: arrived later than the moment of knowledge that was asked about",
}


_ALONG = "taken along from the key that the row had: "
"""Before the reason of what a change of the former key had said."""

_TIE = "decided by order of arrival, equal priority at one instant"
"""Why one of two messages stands where neither time nor priority says it."""

_DELETED = "deleted the entity, and nothing has brought it back"
"""What a delete that stands did."""

_NEVER_STOOD = "never stood: a message of at least its priority, of the same instant, counts after it"
"""What was superseded at the instant of which it spoke, where that was no tie."""

PLACE = "place in its source"
"""The column that holds `sequence`: of one source it decides, of two it is no order."""

_ALL = list(Verdict)
"""Verdicts travel as their places in this list: one number a change."""


class NotOneEntity(CdcError, ValueError):
    """Changes of several entities reached a question that is about one."""

    def __str__(self) -> str:
        return "why() found several entities of that key: name all key fields, as merge() was given them."


class Question(NamedTuple):
    """Which field is asked about, at which time, and as known when; times in microseconds."""

    field: int | None
    """None asks about the row itself: whether the entity is there or deleted."""
    valid_at: int
    known_at: int | None


class _Ruling(NamedTuple):
    """For each change what became of it."""

    verdict: Ints
    """A place in `_ALL`."""
    by: Ints
    """The change that overruled it, or `NOWHERE`."""
    by_priority: Ints
    """The change with whose priority it did: another one where a key field kept an older message."""
    of_row: Bools
    """It was overruled as to the row: the entity's priorities decided, not the field's."""


def verdicts(
    batches: Iterator[pa.RecordBatch], layout: Layout, question: Question, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """One row per change, of the one entity in *batches*, that speaks of the field asked about."""
    pieces = list(order_entities(batches, layout))
    if not pieces:
        return
    changes = Changes.from_table(pa.concat_batches(pieces), layout)
    if first_of_entity(changes.table, layout.identity).sum() != 1:
        raise NotOneEntity()
    ruling = _judge_changes(changes, question)
    speaks, priorities = _words(changes, question.field)
    spoken = np.flatnonzero(speaks)
    at = pa.array(spoken)
    by, verdict, table = positions(ruling.by), pa.array(ruling.verdict[speaks]), changes.table
    stated = np.where(ruling.of_row, changes.priority, priorities)
    overruling = np.where(ruling.of_row, changes.priority[ruling.by_priority], priorities[ruling.by_priority])
    reason_texts = [*(reason.reason for reason in _ALL), _TIE, _NEVER_STOOD, _DELETED]
    reasons = pa.array(reason_texts + [_ALONG + text for text in reason_texts])
    reason = _reasons(changes, ruling, stated, overruling) + len(reason_texts) * changes.is_taken_along
    columns = {
        "step": pa.array(np.arange(1, len(at) + 1, dtype=np.int32)),
        "effective_timestamp": table.column("effective_timestamp").take(at),
        "arrival_timestamp": table.column("arrival_timestamp").take(at),
        "message_id": table.column("message_id").take(at),
        "source": table.column("source").take(at),
        "operation": pa.array(OPERATIONS).take(table.column("operation")).take(at),
        "value": _stated_values(changes, question.field, spoken),
        "priority": pa.array(stated.astype(np.int32)).take(at),
        "verdict": pa.array([str(reason) for reason in _ALL]).take(verdict),
        "reason": reasons.take(pa.array(reason[speaks])),
        "by_message": table.column("message_id").take(by).take(at),
        "by_source": table.column("source").take(by).take(at),
        "by_priority": pa.array(overruling.astype(np.int32), mask=ruling.by == NOWHERE).take(at),
    }
    yield make_batch(columns, schema)


def _reasons(changes: Changes, ruling: _Ruling, stated: Ints, overruling: Ints) -> Ints:
    """Find for each change the place of its reason: of its verdict or, beyond these, of a case of that."""
    tie, never_stood, deleted = range(len(_ALL), len(_ALL) + 3)
    reason, instants = ruling.verdict.copy(), changes.instants()
    reason[changes.is_delete & (ruling.verdict == _ALL.index(Verdict.WON))] = deleted
    lost = np.flatnonzero((ruling.verdict == _ALL.index(Verdict.SUPERSEDED)) & (ruling.by != NOWHERE))
    lost = lost[instants[lost] == instants[ruling.by[lost]]]
    reason[lost] = never_stood
    by = ruling.by[lost]
    # A source has an order of its own: where it says one, that is no tie.
    ordered = _find_equal(changes, "source", lost, by) & ~_find_equal(changes, PLACE, lost, by)
    tied = (stated[lost] == overruling[lost]) & ~ordered
    reason[lost[tied]] = reason[by[tied]] = tie
    return reason


def _find_equal(changes: Changes, column: str, some: Ints, others: Ints) -> Bools:
    values = changes.table.column(column)
    left, right = (pc.fill_null(values.take(pa.array(at)), "") for at in (some, others))
    return bools(pc.equal(left, right))


def _words(changes: Changes, index: int | None) -> tuple[Bools, Ints]:
    """Tell which changes speak of the field, or of the row, and with which priority."""
    if index is None:
        return ~changes.is_taken_along, changes.priority
    speaks = np.where(changes.is_delete, index not in changes.layout.keys, changes.carries(index))
    return speaks, changes.field_priority(index)


def _stated_values(changes: Changes, index: int | None, at: Ints) -> pa.Array:
    """Read what the changes at these positions say of the field, or of the row: whether it is deleted."""
    return pa.array(changes.is_delete[at]) if index is None else changes.values_at(index, at)


def _judge_changes(changes: Changes, question: Question) -> _Ruling:
    verdict = np.full(len(changes), _ALL.index(Verdict.NOTHING_THERE))
    nowhere = np.full(len(changes), NOWHERE)
    ruling = _Ruling(verdict, nowhere, nowhere.copy(), np.zeros(len(changes), dtype=bool))
    unknown = _find_unknown(changes, question.known_at)
    later = ~unknown & (changes.instants() > question.valid_at)
    verdict[unknown] = _ALL.index(Verdict.ARRIVED_LATER)
    verdict[later] = _ALL.index(Verdict.NOT_YET_EFFECTIVE)
    judged_rows = np.flatnonzero(~unknown & ~later)
    then = changes.take(judged_rows)
    ones = np.ones(len(then), dtype=np.int64)
    repeated, until = then.find_repeats(ones), then.until()
    expired = (until <= question.valid_at) & (until != NEVER)
    verdict[judged_rows[expired]] = _ALL.index(Verdict.EXPIRED)
    verdict[judged_rows[repeated]] = _ALL.index(Verdict.REPEATED)
    counts = effective(then, ones, ~(repeated | expired))
    counted, then = judged_rows[counts], then.where(counts)
    if len(then):
        did, index = steps(then, ones[: len(then)]), question.field
        if index is None:
            row_verdicts = _judge_row(then, did)
        else:
            row_verdicts = _judge_field(did, field(then, did, index, then.field_priority(index)))
        verdict[counted] = row_verdicts.verdict
        ruling.by[counted] = np.where(row_verdicts.by == NOWHERE, NOWHERE, counted[row_verdicts.by])
        ruling.by_priority[counted] = np.where(
            row_verdicts.by == NOWHERE, NOWHERE, counted[row_verdicts.by_priority]
        )
        ruling.of_row[counted] = row_verdicts.of_row
    return ruling


def _find_unknown(changes: Changes, known_at: int | None) -> Bools:
    """Find the changes that had not arrived at the moment of knowledge: without a time one never has."""
    if known_at is None:
        return np.zeros(len(changes), dtype=bool)
    arrived = changes.table.column("arrival_timestamp")
    return bools(arrived.is_null()) | (ints(pc.fill_null(arrived.cast(pa.int64()), 0)) > known_at)


def _judge_field(did: Steps, field: Field) -> _Ruling:
    """Judge what became of the words about one field, of changes that all count."""
    wins = field.standing == did.of.positions
    standing, ranking = row_before(field.standing, did.of), row_before(field.ruling, did.of)
    stopped = ~did.live & ~did.kill
    # A change that could not touch the row at all: the one that rules the row beat it.
    ruler = row_before(did.row, did.of)
    of_row = stopped & ~field.set
    # What a delete took, or what came back after one, the priorities of the row decided, too.
    winners = np.flatnonzero(wins)
    of_row[winners[:-1]] = did.turn[winners[1:]]
    cases: list[tuple[Bools, Verdict, Ints]] = [
        *_winners(wins, field.standing),
        (field.equal, Verdict.EQUAL, standing),
        (field.confirms, Verdict.CONFIRMED, standing),
        (field.set, Verdict.OUTRANKED, ranking),
        (stopped & _was_dead(did), Verdict.DELETED, ruler),
        (stopped, Verdict.OUTRANKED, ruler),
        (did.kill, Verdict.NEVER_SET, np.full(len(wins), NOWHERE)),
    ]
    verdict, by = _first_case(cases)
    return _Ruling(verdict, by, np.where(field.equal | field.confirms, ranking, by), of_row)


def _judge_row(changes: Changes, did: Steps) -> _Ruling:
    """Judge what became of the words about the row itself, of changes that all count."""
    wins, ruler, was_dead = did.row == did.of.positions, row_before(did.row, did.of), _was_dead(did)
    again = (changes.is_delete == was_dead) & (changes.priority == changes.priority[ruler])
    everything = np.ones(len(wins), dtype=bool)
    cases: list[tuple[Bools, Verdict, Ints]] = [
        *_winners(wins, did.row),
        (again, Verdict.EQUAL, ruler),
        (was_dead, Verdict.DELETED, ruler),
        (everything, Verdict.OUTRANKED, ruler),
    ]
    verdict, by = _first_case(cases)
    return _Ruling(verdict, by, by, everything)


def _was_dead(did: Steps) -> Bools:
    was_dead: Bools = row_before(did.dead.astype(np.int64), did.of) == 1
    return was_dead


def _winners(wins: Bools, standing: Ints) -> list[tuple[Bools, Verdict, Ints]]:
    stands = wins & (np.arange(len(wins)) == standing[-1])
    return [
        (stands, Verdict.WON, np.full(len(wins), NOWHERE)),
        (wins, Verdict.SUPERSEDED, _next_winner(wins)),
    ]


def _first_case(cases: list[tuple[Bools, Verdict, Ints]]) -> tuple[Ints, Ints]:
    """Find for each change the verdict, and who overruled it, of the first case that it is one of."""
    which = [condition for condition, _, _ in cases]
    places = [_ALL.index(verdict) for _, verdict, _ in cases]
    nothing = _ALL.index(Verdict.NOTHING_THERE)
    return np.select(which, places, nothing), np.select(which, [by for _, _, by in cases], NOWHERE)


def _next_winner(wins: Bools) -> Ints:
    """Find for each winner the next one, or `NOWHERE`."""
    winners = np.flatnonzero(wins)
    following = np.full(len(wins), NOWHERE)
    following[winners[:-1]] = winners[1:]
    return following
