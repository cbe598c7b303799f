"""Rows of the files of a bucket: read, joined, filtered, ordered, and as the kernel reads changes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.ledger.buckets.tasks import Paths
from cdckit.merging.arrow_changes import (
    GUID,
    MOVED_HERE,
    OPERATIONS,
    SNAPSHOT,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from cdckit.merging.log_order import PLACES, order_positions
from cdckit.model.changes import MOVED, TABLE, TRUNCATE, UNTIL, UPSERT
from cdckit.parts.arrays import Bools, Ints, bools, group_starts, ints, rank_values
from cdckit.parts.arrow_types import make_batch
from cdckit.store.files import Target
from cdckit.store.reading import read_batches


def read_rows(target: Target, paths: Paths) -> pa.RecordBatch:
    """All rows of some files of a table."""
    return join_batches(
        (batch for file in paths for batch in read_batches(target, file.path)), target.shape.schema
    )


def join_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of batches of one schema, in one; copied only if several have some."""
    some = [batch for batch in batches if batch.num_rows]
    return some[0] if len(some) == 1 else _one_batch(pa.Table.from_batches(some, schema=schema))


def align_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the columns of *schema*; those that they lack are null."""
    names = set(rows.schema.names)
    columns = {
        field.name: rows.column(field.name) if field.name in names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    }
    return make_batch(columns, schema)


def select_rows(rows: pa.RecordBatch, which: Bools) -> pa.RecordBatch:
    """Some of the rows; copied only if they are not all."""
    return rows if which.all() else rows.filter(pa.array(which))


def join_flat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of batches in one, in the columns of the first."""
    first, *more = batches
    return join_batches([first, *(batch.select(first.schema.names) for batch in more)], first.schema)


def order_changes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Changes, those of an entity together and in their order."""
    return rows.take(pa.array(change_order(rows)))


def entity_guids(rows: pa.RecordBatch) -> pa.Array:
    """The entities that rows are about."""
    return rows.column(GUID).unique()


def drop_entities(rows: pa.RecordBatch, guids: pa.Array) -> pa.RecordBatch:
    """The rows of all other entities."""
    return select_rows(rows, ~bools(pc.is_in(rows.column(GUID), value_set=guids)))


def with_columns(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with other values in some columns."""
    values = dict(zip(rows.schema.names, rows.columns, strict=True))
    return make_batch({**values, **columns}, rows.schema)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    """All rows of a table in one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def flatten_changes(rows: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The changes in the columns of `cdckit.merging.arrow_changes`; each field has a priority, or null."""
    columns = {
        name: rows.column(name) for name in (GUID, "effective_timestamp", "message_id", "source", "priority")
    }
    if UNTIL in rows.schema.names:
        columns[UNTIL] = rows.column(UNTIL)
    if SNAPSHOT in rows.schema.names:
        columns |= {name: rows.column(name) for name in PLACES}
    if MOVED in rows.schema.names:
        is_upsert = pc.equal(rows.column("operation"), UPSERT)
        columns[MOVED_HERE] = pc.and_(rows.column(MOVED).is_valid(), is_upsert)
    operations = OPERATIONS if SNAPSHOT in columns else OPERATIONS[: OPERATIONS.index(TRUNCATE)]
    operation = pc.index_in(
        rows.column("operation"), value_set=pa.array(operations, rows.column("operation").type)
    )
    columns["operation"] = operation.cast(pa.int8())
    columns["record_number"] = rows.column("arrival").field("record_number")
    data, carried = rows.column("data"), rows.column("carried")
    nothing = pa.nulls(rows.num_rows, pa.int32())
    stated = rows.column("field_priorities") if "field_priorities" in rows.schema.names else None
    named = set() if stated is None else {field.name for field in stated.type}
    for index, name in enumerate(layout.fields):
        columns[value_column(index)] = data.field(name)
        columns[priority_column(index)] = _struct_part(stated, name) if name in named else nothing
    lacking = np.asarray(pc.or_(data.is_null(), carried.is_null()))
    for word, names in enumerate(carried_words(layout.fields)):
        bits = np.zeros(rows.num_rows, np.int64)
        for bit, name in enumerate(names):
            bits |= bools(carried.field(name)).astype(np.int64) << bit
        columns[carried_column(word)] = pa.array(bits, mask=lacking)
    return pa.RecordBatch.from_pydict(columns)


def _struct_part(values: pa.StructArray, name: str) -> pa.Array:
    """A part of a struct; null where the struct is."""
    part = values.field(name)
    return pc.if_else(values.is_valid(), part, pa.scalar(None, part.type)) if values.null_count else part


def find_tie(rows: pa.RecordBatch) -> list[str]:
    """
    The messages of two rows of tables that stand at one place in the order of changes; empty without such.

    So do rows of Spark's of one entity, source, time and sequence.
    """
    rows = rows.filter(pc.equal(rows.column("arrival").field("topic"), TABLE))
    rows = rows.take(pa.array(change_order(rows)))
    places = ("sequence", "source", "effective_timestamp", GUID)
    arrivals = (rows.column("arrival").field(part) for part in ("timestamp", "partition", "offset"))
    columns = [*arrivals, *(rows.column(name) for name in places)]
    messages = rows.column("message_id")
    tied = ~group_starts(*(rank_values(column) for column in columns))
    # A message may say several things of an entity.
    at = np.flatnonzero(tied & group_starts(rank_values(messages)))
    return messages[at[0] - 1 : at[0] + 1].to_pylist() if len(at) else []


def change_order(rows: pa.RecordBatch) -> Ints:
    """
    The positions of changes so that those of an entity stand together, in the order of changes.

    The entities are in the order of their guids, so that their versions need not be sorted to be written.
    Sorted as numbers; only what is left open, changes of one entity and one instant, by all of the order.
    """
    entity = rank_values(rows.column(GUID))
    instant = ints(rows.column("effective_timestamp"))
    order = np.lexsort((instant, entity))
    same = ~group_starts(entity[order], instant[order])
    tied = same.copy()
    tied[:-1] |= same[1:]
    if not tied.any():
        return order
    at = order[tied]
    order[tied] = at[order_positions(rows.take(pa.array(at)), entity[at], instant[at])]
    return order
