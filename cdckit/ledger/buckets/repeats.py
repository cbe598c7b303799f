"""Changes that came again: which of those of a bucket say nothing that the log has not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.merging.arrow_changes import GUID
from cdckit.merging.log_order import arrivals
from cdckit.parts.arrays import (
    Bools,
    Ints,
    greatest_before,
    group_starts,
    ints,
    number_texts,
    same_values,
    segments,
)


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
