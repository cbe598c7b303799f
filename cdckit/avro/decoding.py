"""Datums to Arrow, whatever the datums are."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.avro.arrow import Shaper
from cdckit.avro.native import MARK, Unreadable, read
from cdckit.avro.scan import can_scan, ends_right
from cdckit.avro.schema import AvroSchema
from cdckit.avro.strict import find_fault, looks_right
from cdckit.avro.types import Node

MAX_BYTES = 1 << 25
"""The most bytes that are framed and read at once (a single longer datum is read alone)."""

MAX_ROWS = 1 << 17
"""The most datums that are framed and read at once."""

_PARTS = 4  # into so many parts a portion is split that cannot be read at once
_SINGLY = 1024  # in a part of so many datums each is looked at

Rows = npt.NDArray[np.int64]


class Decoded(NamedTuple):
    """What became of some datums.

    Attributes:
        values: One value for each datum, of the schema's `arrow_type`; null where there is an error.
        errors: For each datum null, or one sentence that says why it could not be decoded.
    """

    values: pa.Array
    errors: pa.StringArray


def decode(datums: pa.Array, schema: AvroSchema) -> Decoded:
    """
    Decode Avro datums that were all written with *schema*.

    Nothing in the data raises: a datum that is wrong costs its own value and no other. A datum must
    be used up to its last byte. A null datum is an error too.

    Args:
        datums: Binary; one datum each.
        schema: The writers' schema.

    Returns:
        Values and errors, both as long as *datums*. The value of a datum without an error may be null
        as well, if the schema is a union with null.

    Cost: a fraction of decoding each datum by itself (see the benchmarks). Wrong datums are found by a
    second look at their portion: together where nothing repeats in the schema (`cdckit.avro.scan`),
    else in ever smaller parts. A call has a fixed cost of one or two milliseconds, so batches of some
    thousand datums are good and of a hundred not.

    Memory: a small multiple of the bytes given, unless arrays or maps hold what is wide and mostly
    absent; the schema then bounds it (see `cdckit.avro.schema.MAX_AMPLIFICATION`).

    >>> from cdckit.avro.schema import parse_schema
    >>> schema = parse_schema('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}')
    >>> decoded = decode(pa.array([b"\\x02x", b"\\x04x", None]), schema)
    >>> decoded.values.to_pylist()
    [{'a': 'x'}, None, None]
    >>> decoded.errors.to_pylist()
    [None, 'The datum is not of its schema: in a, byte 1: string of 2 bytes, 1 remain.', 'There is no datum.']
    """
    datums = datums.cast(pa.binary())
    errors = dict.fromkeys(np.flatnonzero(datums.is_null()).tolist(), "There is no datum.")
    pieces: list[_Piece] = []
    for rows in _portions(datums):
        taken = datums if len(rows) == len(datums) else datums.take(pa.array(rows))
        pieces += _decode(taken, rows, schema.root, errors)
    return Decoded(_values(pieces, errors, len(datums), schema.arrow_type), _texts(errors, len(datums)))


class _Piece(NamedTuple):
    rows: Rows
    values: pa.Array


def _portions(datums: pa.BinaryArray) -> Iterator[Rows]:
    """The rows that have a datum, in portions of a size that can be framed and read at once."""
    rows = np.flatnonzero(datums.is_valid())
    ends = np.cumsum(
        pc.binary_length(datums).drop_null().to_numpy(zero_copy_only=False).astype(np.int64) + MARK
    )
    start = 0
    while start < len(rows):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + MAX_BYTES, side="right")))
        stop = min(stop, start + MAX_ROWS)
        yield rows[start:stop]
        start = stop


class _Seen(IntEnum):
    """How closely datums were looked at, that the reader could not read all at once."""

    NOT = 0
    TOGETHER = 1
    QUICKLY = 2
    EXACTLY = 3


def _decode(
    datums: pa.BinaryArray, rows: Rows, root: Node, errors: dict[int, str], seen: _Seen = _Seen.NOT
) -> Iterator[_Piece]:
    """
    Decode the *datums* of *rows*; puts into *errors* what cannot be decoded and leaves it out.

    Where they cannot be read all at once, those that end in the wrong place are taken out, together.
    If that does not help, parts are tried, and of a small part each one is looked at, quickly and if
    need be exactly. That the reader refuses even then is not known to happen; if it
    does, that costs only what it refuses alone.
    """
    try:
        plain = read(datums, root)
    except Unreadable as refusal:
        if seen is _Seen.NOT and len(rows) > _SINGLY and can_scan(root):
            right = _ending_right(datums, rows, root, errors)
            if len(right):
                yield from _decode(datums.take(pa.array(right)), rows[right], root, errors, _Seen.TOGETHER)
        elif seen is not _Seen.EXACTLY and (len(rows) <= _SINGLY or seen is _Seen.QUICKLY):
            seen = max(_Seen.QUICKLY, _Seen(seen + 1))
            right = _right(datums, rows, root, errors, seen)
            if len(right):
                yield from _decode(datums.take(pa.array(right)), rows[right], root, errors, seen)
        elif len(rows) == 1:
            errors[int(rows[0])] = f"The datum could not be read: {str(refusal)[:200]}."
        else:
            size = -(-len(rows) // _PARTS)
            for start in range(0, len(rows), size):
                part = slice(start, start + size)
                yield from _decode(datums[part], rows[part], root, errors, seen)
    else:
        yield _shaped(plain, rows, root, errors)


def _ending_right(datums: pa.BinaryArray, rows: Rows, root: Node, errors: dict[int, str]) -> Rows:
    """The places of those datums that may be right; why the others are not goes into *errors*."""
    right = ends_right(datums, root)
    for i in np.flatnonzero(~right).tolist():
        reason = find_fault(datums[i].as_py(), root)
        right[i] = reason is None
        if reason is not None:
            errors[int(rows[i])] = f"The datum is not of its schema: {reason}."
    return np.flatnonzero(right)


def _right(datums: pa.BinaryArray, rows: Rows, root: Node, errors: dict[int, str], seen: _Seen) -> Rows:
    """The places of those datums that are right; why the others are not goes into *errors*."""
    right = []
    for i, datum in enumerate(datums.to_pylist()):
        reason = None
        if seen is _Seen.EXACTLY or not looks_right(datum, root):
            reason = find_fault(datum, root)
        if reason is None:
            right.append(i)
        else:
            errors[int(rows[i])] = f"The datum is not of its schema: {reason}."
    return np.array(right, np.int64)


def _shaped(array: pa.Array, rows: Rows, root: Node, errors: dict[int, str]) -> _Piece:
    shaper = Shaper()
    values = shaper.shape(array, root, lambda positions: positions)
    errors.update(
        {int(rows[i]): f"The datum cannot be held: {reason}." for i, reason in shaper.faults.items()}
    )
    return _Piece(rows, values)


def _values(pieces: list[_Piece], errors: dict[int, str], length: int, kind: pa.DataType) -> pa.Array:
    """The values of all pieces at their rows, null at the rows with an error."""
    values = (
        pieces[0].values
        if len(pieces) == 1
        else pa.concat_arrays([pa.nulls(0, kind), *(p.values for p in pieces)])
    )
    if not errors:
        return values
    places = np.full(length, -1, np.int64)
    places[np.concatenate([np.empty(0, np.int64), *(piece.rows for piece in pieces)])] = np.arange(
        len(values)
    )
    places[list(errors)] = -1
    return values.take(pa.array(places, mask=places < 0))


def _texts(errors: dict[int, str], length: int) -> pa.StringArray:
    texts = pa.nulls(length, pa.string())
    if not errors:
        return texts
    rows = np.array(sorted(errors), np.int64)
    places = np.zeros(length, np.int64)
    places[rows] = np.arange(len(rows))
    there = np.zeros(length, bool)
    there[rows] = True
    return pa.array([errors[row] for row in rows.tolist()], pa.string()).take(pa.array(places, mask=~there))
