"""Rows of a ledger's tables in a worker, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.kernel.layout import GUID
from cdckit.ledger.flat import in_order, one_batch
from cdckit.ledger.tasks import Paths
from cdckit.parts.arrow_types import batch_of
from cdckit.store.reading import batches_of
from cdckit.store.writing import Target


def rows_of(target: Target, paths: Paths) -> pa.RecordBatch:
    """All rows of some files of a table."""
    return joined((batch for path, _ in paths for batch in batches_of(target, path)), target.shape.schema)


def joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of batches of one schema, in one."""
    return one_batch(pa.Table.from_batches(list(batches), schema=schema))


def joined_flat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of batches in one, in the columns of the first."""
    first, *more = batches
    return joined([first, *(batch.select(first.schema.names) for batch in more)], first.schema)


def ordered(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Changes, those of an entity together and in their order."""
    return rows.take(pa.array(in_order(rows)))


def distinct(rows: pa.RecordBatch) -> pa.Array:
    """The entities that rows are about."""
    return rows.column(GUID).unique()


def others(rows: pa.RecordBatch, guids: pa.Array) -> pa.RecordBatch:
    """The rows of all other entities."""
    return rows.filter(pc.invert(pc.is_in(rows.column(GUID), value_set=guids)))


def with_columns(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with other values in some columns."""
    found = dict(zip(rows.schema.names, rows.columns, strict=True))
    return batch_of({**found, **columns}, rows.schema)
