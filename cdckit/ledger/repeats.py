"""Which of the new changes are no news."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.kernel.arrays import ints, same_values
from cdckit.kernel.layout import GUID
from cdckit.ledger.flat import numbered_texts
from cdckit.parts.running import NOWHERE, Bools, Ints, last_where, segments


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

    That is: the same change (source, message and record number, of one entity) stands in the log at the
    same place or before it; or it is among the new ones at the same place.  One that stands
    before what the log has is news: of a change that came twice, the first one counts.

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
    first = np.ones(rows.num_rows, dtype=bool)
    first[1:] = ~same
    of = segments(np.cumsum(first))
    drop = is_new[order] & (last_where(~is_new[order], of) != NOWHERE)
    pairs = np.flatnonzero(same & is_new[order[1:]]) + 1
    drop[pairs] |= _in_one_place(rows, order[pairs], order[pairs - 1])
    found: Bools = np.zeros(rows.num_rows, dtype=bool)
    found[order] = drop
    return found


def _in_one_place(rows: pa.RecordBatch, one: Ints, other: Ints) -> Bools:
    """Pair by pair, whether two changes of one identity stand at one place in the order."""
    left, right = (rows.take(pa.array(at)) for at in (one, other))
    columns = ("effective_timestamp", "sequence", "arrival")
    parts = [same_values(left.column(name), right.column(name)) for name in columns]
    found: Bools = np.logical_and.reduce(parts)
    return found
