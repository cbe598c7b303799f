"""Rows of a table of periods that is read again, in which what was open has an end now."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.errors import CdcError
from cdckit.ledger.buckets.bucket_rows import join_batches
from cdckit.ledger.columns import EVERY
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import UNTIL, UPSERT
from cdckit.model.history import DELETED, FIELD_PROVENANCE, SOURCE_MESSAGE, VALID_FROM, VALID_TO
from cdckit.parts.arrays import Bools, Ints, bools, group_starts, number_texts, number_values


class OpenInLedger(CdcError, ValueError):
    """Rows of a table have an end now, which the ledger has without one: there they would go on."""

    def __init__(self, message: str, source: str | None) -> None:
        self.message, self.source = message, source
        super().__init__(message, source)

    def __str__(self) -> str:
        source = "source IS NULL" if self.source is None else f"source = {self.source!r}"
        return (
            "The ledger has rows without an end that the table has with one now, and they would still be "
            f"seen beside what follows. One is the message {self.message!r}. Take the open rows back, and "
            f'apply the table again: ledger.revoke(ledger.changes().where("{source} AND {UNTIL} IS NULL")). '
            "If both are meant, let them be of two sources."
        )


def require_no_stale_rows(
    rows: pa.RecordBatch, is_new: Bools, is_known: Bools, merge: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> None:
    """
    Raise `OpenInLedger` where a row that the table has ended makes the history another one than without it.

    An open row is stale if its source has one from the same instant on that ends, and does not say it again.

    Args:
        rows: The changes of whole entities, in their order: those of the log, and new ones.
        is_new: Which of them are new.
        is_known: Which of the new ones the log has already.
        merge: What makes versions of changes.
    """
    says = np.asarray(pc.equal(rows.column("operation"), UPSERT))
    has_end = np.asarray(rows.column(UNTIL).is_valid())
    ends = says & has_end & is_new & ~is_known
    if not ends.any():
        return
    entity = number_texts(rows.column(GUID))
    record = rows.column("arrival").field("record_number")
    word = _numbers(rows.column(GUID), rows.column("source"), rows.column("message_id"), record)
    beginning = _numbers(rows.column(GUID), rows.column("source"), rows.column("effective_timestamp"))
    stale = says & ~has_end & np.isin(entity, entity[ends])
    stale &= ~np.isin(word, word[is_new]) & np.isin(beginning, beginning[says & has_end])
    if not stale.any():
        return
    is_every = np.asarray(pc.equal(rows.column(GUID), EVERY))
    counts = (np.isin(entity, entity[stale]) | is_every) & ~(is_new & is_known)
    merged, right = (merge(rows.filter(pa.array(some))) for some in (counts, counts & ~stale))
    wrong = _entities_that_differ(merged, right)
    seen = np.flatnonzero(stale & bools(pc.is_in(rows.column(GUID), value_set=wrong)))
    if len(seen):
        raise OpenInLedger(*(rows.column(name)[int(seen[0])].as_py() for name in ("message_id", "source")))


def _entities_that_differ(left: pa.RecordBatch, other: pa.RecordBatch) -> pa.Array:
    """The entities of which two histories do not say the same, whoever says it."""
    rows, side = join_batches([left, other], left.schema), np.repeat([0, 1], [left.num_rows, other.num_rows])
    lives = ~bools(rows.column(DELETED))
    rows, side = rows.filter(pa.array(lives)), side[lives]
    others = (VALID_FROM, VALID_TO, SOURCE_MESSAGE, FIELD_PROVENANCE)
    values = [rows.column(name) for name in rows.schema.names if name not in others]
    begin, end = rows.column(VALID_FROM), rows.column(VALID_TO)
    # Stretches of equal versions, each of which goes on where the one before it ends.
    first = group_starts(_numbers(pa.array(side), *values))
    first[1:] |= ~bools(pc.equal(begin[1:], end[:-1]))
    last = np.append(first[1:], True)[: len(first)]
    starts = [column.filter(pa.array(first)) for column in (*values, begin)]
    stretch, side = _numbers(*starts, end.filter(pa.array(last))), side[first]
    alone = ~np.isin(stretch, np.intersect1d(stretch[side == 0], stretch[side == 1]))
    return rows.column(GUID).filter(pa.array(first)).filter(pa.array(alone))


def _numbers(*columns: pa.Array) -> Ints:
    """Equal numbers for rows that are equal in all columns."""
    return number_values(pa.StructArray.from_arrays(columns, [str(at) for at, _ in enumerate(columns)]))
