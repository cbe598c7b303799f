"""Rows of a table of periods that is read again, in which what was open has an end now."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.errors import CdcError
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import UNTIL, UPSERT
from cdckit.parts.arrays import NOWHERE, Bools, Ints, bools, number_values


class OpenInLedger(CdcError, ValueError):
    """Rows of a table have an end now, which the ledger has without one: there they would go on."""

    def __init__(self, message: str, source: str) -> None:
        self.message, self.source = message, source
        super().__init__(message, source)

    def __str__(self) -> str:
        return (
            "The ledger has rows without an end that the table has with one now, and no row of it follows: "
            f"what they say would hold for ever. One of them is the message {self.message!r} of "
            f"{self.source!r}. Take the open rows back, and apply the table again: "
            f'ledger.revoke(ledger.changes().where("source = {self.source!r} AND {UNTIL} IS NULL")).'
        )


def require_open_rows_end(rows: pa.RecordBatch, is_news: Bools) -> None:
    """
    Raise `OpenInLedger` where news end what is known without an end, but nothing ends that one.

    What the table says of the entity from that end on does, if it says all that the open row did.
    """
    says = np.asarray(pc.equal(rows.column("operation"), UPSERT))
    is_open = says & np.asarray(rows.column(UNTIL).is_null())
    ends = np.flatnonzero(says & is_news & ~is_open)
    if not len(ends):
        return
    same = number_values(_struct(rows, "effective_timestamp", "data"))
    known = np.flatnonzero(is_open & ~is_news)
    before = _place_of(same[ends], same[known], known)
    ends, before = ends[before != NOWHERE], before[before != NOWHERE]
    begin, end = _struct(rows, "effective_timestamp"), _struct(rows, UNTIL).take(pa.array(ends))
    both = number_values(pa.concat_arrays([begin, end]))
    begins = np.flatnonzero(says)
    next_ = _place_of(both[rows.num_rows :], both[begins], begins)
    lives = next_ == NOWHERE
    carried = rows.column("carried")
    for index in range(carried.type.num_fields):
        said = bools(carried.field(index))
        lives |= said[before] & ~said[next_]
    if lives.any():
        first = int(before[lives][0])
        raise OpenInLedger(rows.column("message_id")[first].as_py(), rows.column("source")[first].as_py())


def _struct(rows: pa.RecordBatch, *names: str) -> pa.StructArray:
    """An entity of a source, and these columns."""
    columns = [rows.column(GUID), rows.column("source"), *(rows.column(name) for name in names)]
    return pa.StructArray.from_arrays(columns, [str(number) for number, _ in enumerate(columns)])


def _place_of(wanted: Ints, numbers: Ints, at: Ints) -> Ints:
    """For each number the position, of those *at*, of a row that has it."""
    if not len(at):
        return np.full(len(wanted), NOWHERE)
    order = np.argsort(numbers, kind="stable")
    found = np.minimum(np.searchsorted(numbers[order], wanted), len(order) - 1)
    return np.where(numbers[order][found] == wanted, at[order][found], NOWHERE)
