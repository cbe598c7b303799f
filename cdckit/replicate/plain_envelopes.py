"""
Plain data envelopes: the common shape, opened by position instead of decoded.

Nearly every message of a feed is a data message without application headers.  Up to the message its
envelope is 44 bytes that differ in the schema id alone, then comes the message's length, then the
message to the end of the value.  A value of exactly that shape needs no reader; every other is left
to one, and so is everything that is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.running_aggregates import Bools, Ints

# The magic; type: text of 2 bytes; headers: null; messageSchemaId: text of 32 bytes, which follows.
_START = b"atMSG\x04DT\x00\x02\x40"
_ID = slice(len(_START), len(_START) + 32)
# After the id: messageSchema: null.
_HEAD = len(_START) + 32 + 1
# A length below 2^34 takes at most five bytes; an Arrow batch holds no longer value.
_MOST_LENGTH_BYTES = 5

Bytes = npt.NDArray[np.uint8]


class Plain(NamedTuple):
    """Which values are plain, and the schema id and message of those (null in the other rows)."""

    rows: Bools
    schema_id: pa.Array
    message: pa.Array


def open_plain(values: pa.Array) -> Plain:
    """The plain envelopes among *values* (binary, may be null)."""
    heads, long_enough = _heads(values)
    plain = long_enough & (heads[:, : len(_START)] == np.frombuffer(_START, np.uint8)).all(axis=1)
    ids = heads[:, _ID]
    # A schema id that is not ASCII may not be text at all: a reader shall say so.
    plain &= (heads[:, _HEAD - 1] == 0) & (ids < 0x80).all(axis=1)
    stated, taken = _lengths(heads[:, _HEAD:])
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    plain &= (taken > 0) & (_HEAD + taken + stated == lengths)
    return Plain(plain, _texts(ids, plain), _messages(values, taken, plain))


def _heads(values: pa.Array) -> tuple[Bytes, Bools]:
    """The first bytes of every value, one row each, filled up with zeros; and which reach to the message."""
    width = _HEAD + _MOST_LENGTH_BYTES
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    padded = pc.binary_join_element_wise(
        pc.fill_null(pc.binary_slice(values, 0, width), b""), pa.scalar(bytes(width)), pa.scalar(b"")
    )
    fixed = pc.binary_slice(padded, 0, width)
    # All rows are of one width now, so the Arrow buffer is the matrix.
    start = np.frombuffer(fixed.buffers()[1], np.int32)[fixed.offset]
    data = np.frombuffer(fixed.buffers()[2] or b"", np.uint8)[start : start + width * len(fixed)]
    return data.reshape(len(fixed), width), lengths > _HEAD


def _lengths(encoded: Bytes) -> tuple[Ints, Ints]:
    """Avro's long at the start of each row, and how many bytes it takes: 0 if it can be no length."""
    value = np.zeros(len(encoded), np.int64)
    taken = np.zeros(len(encoded), np.int64)
    going = np.ones(len(encoded), dtype=bool)
    for place in range(encoded.shape[1]):
        byte = encoded[:, place].astype(np.int64)
        value = np.where(going, value | ((byte & 0x7F) << (7 * place)), value)
        ends = going & (byte < 0x80)
        # A last byte of zero is a longer spelling of a shorter number: a reader shall judge it.
        taken = np.where(ends & ((byte != 0) | (place == 0)), place + 1, taken)
        going &= ~ends
    return value >> 1, np.where(value & 1, 0, taken)


def _texts(ids: Bytes, plain: Bools) -> pa.Array:
    width = ids.shape[1]
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * width
    data = np.where(plain[:, None], ids, np.uint8(0x20)).tobytes()
    texts = pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(pa.array(plain), texts, pa.scalar(None, pa.string()))


def _messages(values: pa.Array, taken: Ints, plain: Bools) -> pa.Array:
    messages = pa.nulls(len(values), pa.binary())
    # Without an end Arrow's slice overflows a buffer size, so the longest value names it.
    end = pc.max(pc.binary_length(values)).as_py()
    for size in np.unique(taken[plain]).tolist():
        of_size = pa.array(plain & (taken == size))
        messages = pc.if_else(of_size, pc.binary_slice(values, _HEAD + size, end), messages)
    return messages
