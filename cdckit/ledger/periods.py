"""Rows of a table of periods that is read again, in which what was open has an end now."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.errors import CdcError
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import DELETE, UNTIL, UPSERT
from cdckit.parts.arrays import NEVER, NOWHERE, Bools, Ints, bools, group_starts, ints, number_values


class OpenInLedger(CdcError, ValueError):
    """Rows of a table have an end now, which the ledger has without one: there they would go on."""

    def __init__(self, message: str, source: str | None) -> None:
        self.message, self.source = message, source
        super().__init__(message, source)

    def __str__(self) -> str:
        source = "source IS NULL" if self.source is None else f"source = {self.source!r}"
        return (
            "The ledger has rows without an end that the table has with one now, and what follows does not "
            f"say all that they do: it would hold for ever. One is the message {self.message!r}. Take the "
            "open rows back, and apply the table again: "
            f'ledger.revoke(ledger.changes().where("{source} AND {UNTIL} IS NULL")). '
            "If both are meant, let them be of two sources."
        )


def require_open_rows_end(rows: pa.RecordBatch, is_new: Bools, is_known: Bools) -> None:
    """
    Raise `OpenInLedger` where a table ends a row that is known without an end, but nothing replaces that one.

    What its source says of the entity does, if it goes on from that end for ever and carries each field that
    the open row did.

    Args:
        rows: The changes of whole entities, those of the log and new ones.
        is_new: Which of them are new.
        is_known: Which of the new ones the log has already: a row that the table still says is meant.
    """
    says = np.asarray(pc.equal(rows.column("operation"), UPSERT))
    has_end = np.asarray(rows.column(UNTIL).is_valid())
    ends = np.flatnonzero(says & has_end & is_new & ~is_known)
    if not len(ends):
        return
    beginning = _numbers(rows, "effective_timestamp")
    message = _numbers(rows, "message_id")
    meant = np.isin(message, message[is_new & is_known])
    known = np.flatnonzero(says & ~has_end & ~is_new & ~meant)
    open_row = _place_of(beginning[ends], beginning[known], known)
    ends, open_row = ends[open_row != NOWHERE], open_row[open_row != NOWHERE]
    if not len(ends):
        return
    whose = _numbers(rows)
    some = np.isin(whose, whose[ends])
    some[open_row] = False
    carried, is_delete = rows.column("carried"), np.asarray(pc.equal(rows.column("operation"), DELETE))
    begin = ints(rows.column("effective_timestamp"))
    end = ints(pc.fill_null(rows.column(UNTIL).cast(pa.int64()), NEVER))
    for index in range(carried.type.num_fields):
        said = bools(carried.field(index))
        at = np.flatnonzero(some & (said | is_delete))
        goes_on = _goes_on_from(whose[at], begin[at], end[at], whose[ends])
        lives = said[open_row] & (goes_on > end[ends])
        if lives.any():
            first = int(open_row[lives][0])
            raise OpenInLedger(*(rows.column(name)[first].as_py() for name in ("message_id", "source")))


def _goes_on_from(whose: Ints, begin: Ints, end: Ints, wanted: Ints) -> Ints:
    """For each of *wanted*, from when on periods of the same hold without a gap; `NEVER` if they do not."""
    if not len(whose):
        return np.full(len(wanted), NEVER)
    order = np.lexsort((begin, whose))
    whose, begin, end = whose[order], begin[order], end[order]
    first = group_starts(whose)
    # As ranks after that of whose they are: a running maximum needs no restart.
    times, rank = np.unique(end, return_inverse=True)
    reached = times[np.maximum.accumulate(np.cumsum(first) * len(times) + rank) % len(times)]
    gap = first.copy()
    gap[1:] |= begin[1:] > reached[:-1]
    since = begin[np.maximum.accumulate(np.where(gap, np.arange(len(gap)), 0))]
    last = np.append(np.flatnonzero(first)[1:], len(first)) - 1
    since = np.where(reached[last] == NEVER, since[last], NEVER)
    at = _place_of(wanted, whose[last], np.arange(len(last)))
    return np.where(at == NOWHERE, NEVER, since[at])


def _numbers(rows: pa.RecordBatch, *names: str) -> Ints:
    """Equal numbers for rows of one entity and source that are equal in these columns."""
    columns = [rows.column(GUID), rows.column("source"), *(rows.column(name) for name in names)]
    return number_values(pa.StructArray.from_arrays(columns, [str(at) for at, _ in enumerate(columns)]))


def _place_of(wanted: Ints, numbers: Ints, at: Ints) -> Ints:
    """For each number the position, of those *at*, of a row that has it."""
    if not len(at):
        return np.full(len(wanted), NOWHERE)
    order = np.argsort(numbers, kind="stable")
    found = np.minimum(np.searchsorted(numbers[order], wanted), len(order) - 1)
    return np.where(numbers[order][found] == wanted, at[order][found], NOWHERE)
