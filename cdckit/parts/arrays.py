"""
Arrow columns as NumPy arrays: whole entities in one batch, equality, and running aggregates over their rows.

A segment is the run of rows of one entity.  Positions grow along the rows, so a running maximum of
positions needs no restart: what it carries over from an earlier segment is known by being smaller
than the position at which the segment starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

NOWHERE = -1

NEVER = np.iinfo(np.int64).max
"""In place of an instant, in microseconds: the end of what has none."""

_PRIORITY_BITS = 32
_PRIORITY_OFFSET = 1 << 31


class Segments(NamedTuple):
    """For every row: whether it begins a segment, where its segment begins, and which one it is."""

    first: Bools
    start: Ints
    number: Ints
    positions: Ints


def segments(number: Ints) -> Segments:
    """The segments of rows that are numbered by segment, from 1 or more, growing."""
    first = group_starts(number)
    positions = np.arange(len(number))
    return Segments(first, np.maximum.accumulate(np.where(first, positions, 0)), number, positions)


def group_starts(*columns: Ints) -> Bools:
    """Tell for every row whether it is the first of its group: rows together that are equal in all."""
    first = np.ones(len(columns[0]), dtype=bool)
    first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return first


def last_where(marked: Bools, of: Segments) -> Ints:
    """Find for every row the last marked row of its segment so far, itself included."""
    last = np.maximum.accumulate(np.where(marked, of.positions, NOWHERE))
    last[last < of.start] = NOWHERE
    return last


def row_before(values: Ints, of: Segments) -> Ints:
    """Every row's value moved down by one row, `NOWHERE` at the start of a segment."""
    moved = np.empty_like(values)
    moved[1:] = values[:-1]
    moved[of.first] = NOWHERE
    return moved


def greatest_before(priority: Ints, of: Segments) -> Ints:
    """The greatest 32-bit *priority* of the rows before, within the segment; the row's own at its start."""
    packed = (of.number << _PRIORITY_BITS) + (priority + _PRIORITY_OFFSET)
    running = np.maximum.accumulate(packed)
    greatest = (running & ((1 << _PRIORITY_BITS) - 1)) - _PRIORITY_OFFSET
    moved = np.empty_like(greatest)
    moved[1:] = greatest[:-1]
    return np.where(of.first, priority, moved)


def ranked(level: Ints, priority: Ints) -> Ints:
    """
    One integer that compares like (*level*, *priority*): 31 bits of level over 32 of priority.

    Rows of one call number less than 2^31 (an Arrow batch holds no more), and a level grows by at
    most one a row, so this cannot overflow.
    """
    return (level << _PRIORITY_BITS) + (priority + _PRIORITY_OFFSET)


def bools(array: pa.Array) -> Bools:
    """The flags, null being False."""
    if array.null_count:
        array = pc.fill_null(array, False)
    flags: Bools = array.to_numpy(zero_copy_only=False)
    return flags


def ints(array: pa.Array) -> Ints:
    """The numbers, of which none is null; of timestamps their microseconds."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    numbers: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return numbers


def number_texts(texts: pa.Array) -> Ints:
    """Equal texts as equal numbers; null is one."""
    return ints(texts.dictionary_encode("encode").indices)


def positions(stands: Ints) -> pa.Array:
    """Positions to take from an array: null, and so taken as null, where there is none."""
    return pa.array(stands, mask=stands == NOWHERE)


def rank_values(values: pa.Array) -> Ints:
    """Numbers that sort as the values do, texts by their bytes; null comes first."""
    encoded = values.dictionary_encode()
    order = ints(pc.sort_indices(encoded.dictionary).cast(pa.int64()))
    rank = np.empty(len(order) + 1, np.int64)
    rank[order] = np.arange(len(order))
    rank[NOWHERE] = NOWHERE
    ranks: Ints = rank[ints(pc.fill_null(encoded.indices, NOWHERE))]
    return ranks


def same_values(left: pa.Array, right: pa.Array) -> Bools:
    """Pair by pair, whether two arrays hold the same, by the one equality (`cdckit.parts.values`)."""
    if pa.types.is_nested(left.type):
        numbers = number_values(pa.concat_arrays([left, right]))
        same: Bools = numbers[: len(left)] == numbers[len(left) :]
        return same
    if pa.types.is_null(left.type):
        return np.ones(len(left), dtype=bool)
    same = bools(pc.equal(left, right))
    if pa.types.is_floating(left.type):
        same |= bools(pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if left.null_count and right.null_count:
        same |= bools(pc.and_(left.is_null(), right.is_null()))
    return same


def number_values(values: pa.Array) -> Ints:
    """
    The values as numbers: equal numbers, equal values, by the one equality (`cdckit.parts.values`).

    Nested values are numbered from within: those of a struct by the numbers of its parts, those of a
    list by the numbers of its elements.  No value is ever made in Python, which has no years beyond
    9999 and no text that is not UTF-8.
    """
    kind = values.type
    if pa.types.is_map(kind):
        numbers = _number_maps(values)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        numbers = _number_lists(*_elements(values, values.values))
    elif _is_variant(kind):
        numbers = _number_variants(values)
    elif pa.types.is_struct(kind):
        numbers = _number_rows(
            [number_values(values.field(index)) for index in range(kind.num_fields)], len(values)
        )
    else:
        numbers = _number_plain(values)
    return np.where(np.asarray(values.is_valid()), numbers, NOWHERE)


def _number_plain(values: pa.Array) -> Ints:
    if pa.types.is_null(values.type):
        return np.full(len(values), NOWHERE)
    if pa.types.is_floating(values.type):
        # What is hashed are bits, and there are two zeros and many that are not a number.
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
        values = pc.add(values, pa.scalar(0.0, values.type))
    return ints(pc.fill_null(values.dictionary_encode().indices, NOWHERE))


def _number_rows(columns: Sequence[Ints], count: int) -> Ints:
    """The rows of some columns of numbers as numbers."""
    if len(columns) < 2:
        # NOWHERE is a number like any other within a row: a struct that holds a null is not a null.
        return columns[0] + 1 if columns else np.zeros(count, dtype=np.int64)
    rows = np.ascontiguousarray(np.stack(columns, axis=1))
    kind = pa.binary(rows.itemsize * len(columns))
    fixed = pa.FixedSizeBinaryArray.from_buffers(kind, count, [None, pa.py_buffer(rows)])
    return ints(fixed.dictionary_encode().indices)


def _number_lists(elements: Ints, lengths: Ints) -> Ints:
    """Lists as numbers, given the numbers of all their elements in a row."""
    ends = np.cumsum(np.append(0, lengths)) * elements.itemsize
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(elements))]
    texts = pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)
    return ints(texts.dictionary_encode().indices)


def _number_maps(values: pa.MapArray) -> Ints:
    keys, lengths = _elements(values, values.keys)
    items, _ = _elements(values, values.items)
    entries = _number_rows([keys, items], len(keys))
    # A map is the set of its entries: in whatever order they are written.
    return _number_lists(entries[np.lexsort((entries, np.repeat(np.arange(len(lengths)), lengths)))], lengths)


def _elements(lists: pa.Array, elements: pa.Array) -> tuple[Ints, Ints]:
    """The numbers of the elements of all lists in a row, and how many each list has; null has none."""
    offsets = ints(lists.offsets)
    lengths = np.diff(offsets)
    used = number_values(elements.slice(offsets[0], offsets[-1] - offsets[0]))
    valid = np.asarray(lists.is_valid())
    if valid.all():
        return used, lengths
    # Arrow allows a null to have elements: they are nobody's.
    kept = np.repeat(valid, lengths)
    return used[kept], np.where(valid, lengths, 0)


def _is_variant(kind: pa.DataType) -> bool:
    """Tell whether these are Spark's variants, which come as structs of bytes with a mark."""
    marks = (part.metadata or {} for part in kind) if pa.types.is_struct(kind) else ()
    return any(b"variant" in mark for mark in marks)


def _number_variants(values: pa.StructArray) -> Ints:
    """Variants by the JSON that they stand for: the same one can be written in several ways."""
    bytes_ = _number_rows([number_values(values.field(name)) for name in ("value", "metadata")], len(values))
    _, first, which = np.unique(bytes_, return_index=True, return_inverse=True)
    if len(first) < 2:
        return which
    parts = (values.field(name).take(pa.array(first)).to_pylist() for name in ("value", "metadata"))
    texts = [_json(value, metadata) for value, metadata in zip(*parts, strict=True)]
    return _number_plain(pa.array(texts))[which]


def _json(value: bytes | None, metadata: bytes | None) -> str | None:
    if value is None or metadata is None:
        return None
    # Within: rules over Arrow need these arrays, and no Spark.
    from pyspark.sql.types import VariantVal

    try:
        return VariantVal(value, metadata).toJson()
    except (ArithmeticError, ValueError):  # an instant of a year that Python does not have
        return value.hex()


# Enough rows that NumPy's cost per call vanishes, few enough that they stay in the cache.
ROWS_AT_ONCE = 1 << 14
BYTES_AT_ONCE = 1 << 26


def whole_entities(batches: Iterable[pa.RecordBatch], identity: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """
    Cut the rows into batches that never split an entity.

    The rows of an entity that spans batches are kept as a list of pieces and joined once.
    """
    pieces: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in slices(batches, ROWS_AT_ONCE):
        if pieces and (rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE):
            cut = _last_start(pieces[-1], batch, identity)
            if cut is not None:
                pieces.append(batch.slice(0, cut))
                yield _join_and_clear(pieces)
                batch, rows, size = batch.slice(cut), 0, 0
        pieces.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if pieces:
        yield _join_and_clear(pieces)


def first_of_entity(table: pa.RecordBatch, identity: Sequence[str]) -> Bools:
    """Tell for every row whether it is the first of its entity, or of the table."""
    first = np.ones(table.num_rows, dtype=bool)
    first[1:] = False
    for name in identity:
        column = table.column(name)
        first[1:] |= ~same_values(column.slice(1), column.slice(0, len(column) - 1))
    return first


def slices(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Cut the rows into batches of so many at most, whatever the session sends."""
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


def _last_start(before: pa.RecordBatch, batch: pa.RecordBatch, identity: Sequence[str]) -> int | None:
    """Find where the last entity that begins within *batch* begins, if one does."""
    both = _join_pieces([before.slice(before.num_rows - 1), batch]).select(list(identity))
    starts = np.flatnonzero(first_of_entity(both, identity)[1:])
    return int(starts[-1]) if len(starts) else None


def _join_and_clear(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The pieces as one, and the list empty: a large entity is not held twice while it is merged."""
    joined = _join_pieces(pieces)
    pieces.clear()
    return joined


def _join_pieces(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0]
