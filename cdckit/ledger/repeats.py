"""Which of the new changes are no news."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.kernel.arrays import ints, same_values
from cdckit.kernel.changes import GUID
from cdckit.kernel.places import arrivals
from cdckit.ledger.kernel_rows import numbered_texts
from cdckit.parts.running_aggregates import Bools, Ints, greatest_before, segments


def said_before(identities: pa.Array, known: list[pa.Array]) -> Bools:
    """Which of the new changes share the hash of their identity with a known one, or with each other."""
    new = ints(identities)
    hits = [ints(some.filter(pc.is_in(some, value_set=identities))) for some in known]
    values, counts = np.unique(new, return_counts=True)
    again = np.concatenate([*hits, values[counts > 1]])
    return np.isin(new, again)


def no_news(rows: pa.RecordBatch, is_new: Bools) -> Bools:
    """
    Which of the new changes say nothing that the log has not.

    Of a change that came twice (source, message and record number, of one entity) the one that stands first
    in the order counts.  So one says nothing if another stands before it and had arrived before it, or is
    at its very place; whether that one is in the log or among the new ones is no matter, so the log of
    changes that come as they arrived is one, wherever batches are cut.  One that stands later and arrived
    sooner is news: it counted until the other one came.

    Args:
        rows: Changes of some entities as the log has them, in their order (`in_order`), those of the
            log before new ones where they tie.
        is_new: Which of them are new.
    """
    identity = (
        ints(rows.column("arrival").field("record_number")),
        numbered_texts(rows.column("source")),
        numbered_texts(rows.column("message_id")),
        numbered_texts(rows.column(GUID)),
    )
    order = np.lexsort((np.arange(rows.num_rows), *identity))
    same = np.logical_and.reduce([part[order[1:]] == part[order[:-1]] for part in identity])
    number = np.cumsum(np.append(1, ~same))[: len(order)]
    again = np.append(False, same)[: len(order)]
    several = again | np.append(same, False)[: len(order)]
    order, again, of = order[several], again[several], segments(number[several])
    arrived = arrivals(rows.take(pa.array(order)))
    drop = arrived > -greatest_before(-arrived, of)
    drop[again] |= _in_one_place(rows, order[again], order[np.flatnonzero(again) - 1])
    found: Bools = np.zeros(rows.num_rows, dtype=bool)
    found[order] = drop & is_new[order]
    return found


def _in_one_place(rows: pa.RecordBatch, one: Ints, other: Ints) -> Bools:
    """Pair by pair, whether two changes of one identity stand at one place in the order."""
    left, right = (rows.take(pa.array(at)) for at in (one, other))
    columns = ("effective_timestamp", "sequence", "arrival")
    parts = [same_values(left.column(name), right.column(name)) for name in columns]
    found: Bools = np.logical_and.reduce(parts)
    return found
