"""Batches that hold whole entities, however the rows were cut before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from cdckit.kernel.arrays import same_values
from cdckit.parts.running_aggregates import Bools

# Enough rows that NumPy's cost per call vanishes, few enough that they stay in the cache.
ROWS_AT_ONCE = 1 << 14
BYTES_AT_ONCE = 1 << 26


def whole_entities(batches: Iterable[pa.RecordBatch], identity: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """
    The same rows in batches that never split an entity.

    The rows of an entity that spans batches are kept as a list of pieces and joined once.
    """
    pieces: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in _slices(batches):
        if pieces and (rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE):
            cut = _last_start(pieces[-1], batch, identity)
            if cut is not None:
                pieces.append(batch.slice(0, cut))
                yield _taken(pieces)
                batch, rows, size = batch.slice(cut), 0, 0
        pieces.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if pieces:
        yield _taken(pieces)


def first_of_entity(table: pa.RecordBatch, identity: Sequence[str]) -> Bools:
    """For every row whether it is the first of its entity, or of the table."""
    first = np.ones(table.num_rows, dtype=bool)
    first[1:] = False
    for name in identity:
        column = table.column(name)
        first[1:] |= ~same_values(column.slice(1), column.slice(0, len(column) - 1))
    return first


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a size that stays in the cache, whatever the session sends."""
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(start, ROWS_AT_ONCE)


def _last_start(before: pa.RecordBatch, batch: pa.RecordBatch, identity: Sequence[str]) -> int | None:
    """Where the last entity that begins within *batch* begins, if one does."""
    both = _joined([before.slice(before.num_rows - 1), batch]).select(list(identity))
    starts = np.flatnonzero(first_of_entity(both, identity)[1:])
    return int(starts[-1]) if len(starts) else None


def _taken(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The pieces as one, and the list empty: a large entity is not held twice while it is merged."""
    joined = _joined(pieces)
    pieces.clear()
    return joined


def _joined(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0]
