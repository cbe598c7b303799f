"""The masks of data messages: which columns one held, and which it changed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdckit.parts.arrays import Bools


class Masks(NamedTuple):
    """Masks of a table's columns, one row per message."""

    bits: Bools
    """Column i tells of the column with ordinal i + 1."""
    is_stray: Bools
    """Whether the mask marks an ordinal that the table does not have."""


def read_masks(masks: pa.Array, ordinals: Collection[int]) -> Masks:
    """
    The bits of binary *masks* over a table whose columns have *ordinals*.

    A mask is little-endian: bit 0 is the lowest bit of byte 0 and stands for ordinal 1.  A mask may
    be shorter than the table, and none marks nothing.

    Source:
        Replicate, changeMask and columnMask: bit `ordinal - 1`.

    >>> read_masks(pa.array([bytes.fromhex("0B")]), [1, 2, 3, 4]).bits.tolist()
    [[True, True, False, True]]
    """
    greatest, known_bits = max(ordinals), np.array(list(ordinals)) - 1
    width = -(-greatest // 8)
    # Masks repeat: a table has few sets of columns that change together.
    encoded = masks.dictionary_encode()
    distinct = [mask or b"" for mask in encoded.dictionary.to_pylist()] + [b""]
    packed = np.frombuffer(b"".join(mask[:width].ljust(width, b"\0") for mask in distinct), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(len(distinct), width), axis=1, bitorder="little").astype(bool)
    is_longer = np.array([any(mask[width:]) for mask in distinct])
    is_stray: Bools = np.delete(bits, known_bits, axis=1).any(axis=1) | is_longer
    which: npt.NDArray[Any] = encoded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)
    return Masks(bits[which, :greatest], is_stray[which])
