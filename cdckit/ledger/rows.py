"""Rows of a ledger's tables in a worker, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.kernel.arrays import bools
from cdckit.kernel.changes import GUID
from cdckit.ledger.kernel_rows import in_order, one_batch
from cdckit.ledger.tasks import Paths
from cdckit.parts.arrow_types import batch_of
from cdckit.parts.running_aggregates import Bools
from cdckit.store.files import Target, batches_of


def rows_of(target: Target, paths: Paths) -> pa.RecordBatch:
    """All rows of some files of a table."""
    return joined((batch for one in paths for batch in batches_of(target, one.path)), target.shape.schema)


def joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of batches of one schema, in one; copied only if several have some."""
    some = [batch for batch in batches if batch.num_rows]
    return some[0] if len(some) == 1 else one_batch(pa.Table.from_batches(some, schema=schema))


def like(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the columns of *schema*; those that they lack are null."""
    there = set(rows.schema.names)
    columns = {
        each.name: rows.column(each.name) if each.name in there else pa.nulls(rows.num_rows, each.type)
        for each in schema
    }
    return batch_of(columns, schema)


def picked(rows: pa.RecordBatch, which: Bools) -> pa.RecordBatch:
    """Some of the rows; copied only if they are not all."""
    return rows if which.all() else rows.filter(pa.array(which))


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
    return picked(rows, ~bools(pc.is_in(rows.column(GUID), value_set=guids)))


def with_columns(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with other values in some columns."""
    found = dict(zip(rows.schema.names, rows.columns, strict=True))
    return batch_of({**found, **columns}, rows.schema)
