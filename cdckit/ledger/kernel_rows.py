"""Rows of the log, in Arrow, as the kernel reads changes: flat, entity by entity, in their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.changes import TRUNCATE
from cdckit.kernel.arrays import bools, ints, ranked
from cdckit.kernel.changes import (
    GUID,
    OPERATIONS,
    SNAPSHOT,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from cdckit.kernel.places import PLACES, places
from cdckit.parts.running_aggregates import Ints


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """All rows of a table in one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def flat(rows: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The changes in the columns of `cdckit.kernel.changes`; each field has a priority, or a null."""
    columns = {
        name: rows.column(name) for name in (GUID, "effective_timestamp", "message_id", "source", "priority")
    }
    if SNAPSHOT in rows.schema.names:
        columns |= {name: rows.column(name) for name in PLACES}
    known = OPERATIONS if SNAPSHOT in columns else OPERATIONS[: OPERATIONS.index(TRUNCATE)]
    operation = pc.index_in(
        rows.column("operation"), value_set=pa.array(known, rows.column("operation").type)
    )
    columns["operation"] = operation.cast(pa.int8())
    columns["record_number"] = rows.column("arrival").field("record_number")
    data, carried = rows.column("data"), rows.column("carried")
    nothing = pa.nulls(rows.num_rows, pa.int32())
    stated = rows.column("field_priorities") if "field_priorities" in rows.schema.names else None
    named = set() if stated is None else {field.name for field in stated.type}
    for index, name in enumerate(layout.fields):
        columns[value_column(index)] = data.field(name)
        columns[priority_column(index)] = _within(stated, name) if name in named else nothing
    lacking = np.asarray(pc.or_(data.is_null(), carried.is_null()))
    for word, names in enumerate(carried_words(layout.fields)):
        bits = np.zeros(rows.num_rows, np.int64)
        for bit, name in enumerate(names):
            bits |= bools(carried.field(name)).astype(np.int64) << bit
        columns[carried_column(word)] = pa.array(bits, mask=lacking)
    return pa.RecordBatch.from_pydict(columns)


def _within(values: pa.StructArray, name: str) -> pa.Array:
    """A part of a struct; null where the struct is."""
    part = values.field(name)
    return pc.if_else(values.is_valid(), part, pa.scalar(None, part.type)) if values.null_count else part


def numbered_texts(texts: pa.Array) -> Ints:
    """Equal texts as equal numbers; null is one."""
    return ints(texts.dictionary_encode("encode").indices)


def in_order(rows: pa.RecordBatch) -> Ints:
    """
    The positions of changes so that those of an entity stand together, in the order of changes.

    The entities are in the order of their guids, so that their versions need not be sorted to be written.
    Sorted as numbers; only what is left open, changes of one entity and one instant, by all of the order.
    """
    entity = ranked(rows.column(GUID))
    instant = ints(rows.column("effective_timestamp"))
    order = np.lexsort((instant, entity))
    tied = np.zeros(len(order), dtype=bool)
    same = (entity[order[1:]] == entity[order[:-1]]) & (instant[order[1:]] == instant[order[:-1]])
    tied[1:] |= same
    tied[:-1] |= same
    if not tied.any():
        return order
    at = order[tied]
    order[tied] = at[places(rows.take(pa.array(at)), entity[at], instant[at])]
    return order
