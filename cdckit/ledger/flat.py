"""Rows of the log, in Arrow, as the kernel reads changes: flat, entity by entity, in their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.kernel.arrays import bools, ints
from cdckit.kernel.layout import (
    GUID,
    OPERATIONS,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from cdckit.parts.running import NOWHERE, Ints

_ARRIVAL = ("timestamp", "topic", "partition", "offset", "record_number")


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """All rows of a table in one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def flat(rows: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The changes in the columns of `cdckit.kernel.layout`; of every field there is a priority, or a null."""
    columns = {
        name: rows.column(name) for name in (GUID, "effective_timestamp", "message_id", "source", "priority")
    }
    operation = pc.index_in(
        rows.column("operation"), value_set=pa.array(OPERATIONS, rows.column("operation").type)
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
    places = order[tied]
    order[tied] = places[_full_order(rows.take(pa.array(places)), entity[places])]
    return order


def _full_order(rows: pa.RecordBatch, entity: Ints) -> Ints:
    source, message, sequence = (ranked(rows.column(name)) for name in ("source", "message_id", "sequence"))
    instant = ints(rows.column("effective_timestamp"))
    order: Ints = np.lexsort((source, message, arrivals(rows), sequence, instant, entity))
    return order


def arrivals(rows: pa.RecordBatch) -> Ints:
    """Numbers that sort as the arrivals of changes do."""
    arrival = rows.column("arrival")
    columns = [ranked(arrival.field(name)) for name in _ARRIVAL]
    order = np.lexsort(columns[::-1])
    later = [column[order[1:]] != column[order[:-1]] for column in columns]
    numbers = np.zeros(len(order), np.int64)
    numbers[order[1:]] = np.cumsum(np.logical_or.reduce(later))
    return numbers


def ranked(values: pa.Array) -> Ints:
    """Numbers that sort as the values do, texts by their bytes; null comes first."""
    encoded = values.dictionary_encode()
    order = ints(pc.sort_indices(encoded.dictionary).cast(pa.int64()))
    rank = np.empty(len(order) + 1, np.int64)
    rank[order] = np.arange(len(order))
    rank[NOWHERE] = NOWHERE
    ranks: Ints = rank[ints(pc.fill_null(encoded.indices, NOWHERE))]
    return ranks
