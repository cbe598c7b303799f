"""From Arrow to NumPy, and the equality of the merge."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.running import NOWHERE, Bools, Ints


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


def positions(stands: Ints) -> pa.Array:
    """Positions to take from an array: null, and so taken as null, where there is none."""
    return pa.array(stands, mask=stands == NOWHERE)


def same_values(left: pa.Array, right: pa.Array) -> Bools:
    """Pair by pair, whether two arrays hold the same: null is null, NaN is NaN, 0.0 is -0.0."""
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((_same(a, b) for a, b in pairs), dtype=bool, count=len(left))
    same = bools(pc.equal(left, right))
    if pa.types.is_floating(left.type):
        same |= bools(pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if left.null_count and right.null_count:
        same |= bools(pc.and_(left.is_null(), right.is_null()))
    return same


def _same(left: object, right: object) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return left == right or (left != left and right != right)
