"""
A digest of rows that does not depend on their order: two batches of the same rows have the same one.

Each value becomes 64 bits, those of a row are mixed into 64, and the rows are added up.  It tells a
repeated batch from another one; it is no proof against somebody who looks for two batches with one digest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Numbers = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xA0761D6478BD642F)


def row_digests(batch: pa.RecordBatch) -> int:
    """The sum of the digests of the rows, each from the names and values of its columns that are not null."""
    total = np.zeros(batch.num_rows, np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        total += _named(name, column)
    return int(_mixed(total).sum(dtype=np.uint64))


def digest_of(rows: DataFrame, each: Column) -> int:
    """The sum of a digest of *each* row, in 64 bits with a sign; one job."""
    found = rows.agg(F.sum(each.cast("decimal(38,0)"))).first()
    return signed(int(found[0] or 0) if found else 0)


def signed(number: int) -> int:
    """The same number of 64 bits, as Delta and Spark have it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _named(name: str, column: pa.Array) -> Numbers:
    """Digests of a column's values; 0 for null, so that a column that is not there changes nothing."""
    seed = pd.util.hash_array(np.array([name], dtype=object))[0]
    found = _mixed(_values(column) ^ np.uint64(seed))
    found[_is_null(column)] = 0
    return found


def _is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _values(column: pa.Array) -> Numbers:
    kind = column.type
    if pa.types.is_struct(kind):
        total = np.zeros(len(column), np.uint64)
        for place, part in enumerate(kind):
            total += _named(part.name, column.field(place))
        return _mixed(total)
    if pa.types.is_map(kind):
        entries = _mixed(_values(column.keys) * _ODD + _or_null(column.items))
        return _summed(column, entries)
    if pa.types.is_list(kind):
        return _summed(column, _placed(column, _or_null(column.values)))
    return _plain(column)


def _or_null(column: pa.Array) -> Numbers:
    found = _values(column)
    found[_is_null(column)] = _NULL
    return found


def _placed(column: pa.Array, elements: Numbers) -> Numbers:
    """The digests of elements, each mixed with its place in its list."""
    offsets = np.asarray(column.offsets)
    places = np.arange(len(elements), dtype=np.uint64)
    lengths = np.diff(offsets)
    first = np.repeat(offsets[:-1].astype(np.uint64), lengths)
    placed = elements.copy()
    within = slice(int(offsets[0]), int(offsets[-1]))
    placed[within] = _mixed(elements[within] + (places[within] - first + np.uint64(1)) * _ODD)
    return placed


def _summed(column: pa.Array, elements: Numbers) -> Numbers:
    """Per list the sum of its elements' digests, and of their number."""
    offsets = np.asarray(column.offsets)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(elements, dtype=np.uint64)])
    return _mixed(sums[offsets[1:]] - sums[offsets[:-1]] + np.diff(offsets).astype(np.uint64) * _ODD)


def _plain(column: pa.Array) -> Numbers:
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        # One zero and one NaN, as everywhere in cdckit.
        numbers = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        return _mixed(numbers.view(np.uint64))
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        whole = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return _mixed(whole.view(np.uint64))
    return _of_bytes(column)


def _of_bytes(column: pa.Array) -> Numbers:
    """Of texts and bytes: a Python object each, which is what this costs."""
    objects: Any = column.cast(pa.large_binary()).to_numpy(zero_copy_only=False)
    filled = np.where(_is_null(column), b"", objects)
    return np.asarray(pd.util.hash_array(filled.astype(object), categorize=False), np.uint64)


def _mixed(numbers: Numbers) -> Numbers:
    """Each number with its bits spread over all 64 (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = numbers + _ODD
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)
