"""Datums to Arrow, whatever the datums are."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.avro.arrow import Shaper
from cdckit.parts.avro.native import MARK, Unreadable, read
from cdckit.parts.avro.scan import can_scan, ends_right
from cdckit.parts.avro.schema import AvroSchema
from cdckit.parts.avro.size import made, most_made
from cdckit.parts.avro.strict import find_fault, looks_right
from cdckit.parts.avro.types import Node

MAX_BYTES = 1 << 25
"""The most bytes that are framed and read at once (a single longer datum is read alone)."""

MAX_ROWS = 1 << 17
"""The most datums that are framed and read at once."""

MAX_MADE = 1 << 27
"""The most bytes that are made at once of several datums: 128 MiB."""

MAX_MADE_OF_ONE = 1 << 28
"""The most bytes that are made of one datum, beyond its own: 256 MiB. Not less than `MAX_MADE`."""

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

    A datum that is wrong costs its own value and no other. A datum must be used up to its last byte,
    and must not become more than `MAX_MADE_OF_ONE` bytes beyond its own. A null datum is an error too.

    Args:
        datums: Binary; one datum each.
        schema: The writers' schema.

    Returns:
        Values and errors, both as long as *datums*. The value of a datum without an error may be null
        as well, if the schema is a union with null.

    Raises:
        pyarrow.ArrowInvalid: All values together are more than one Arrow array holds: 2 GiB of text in
            one place of the schema. `decode_parts` has no such limit.

    Cost: a fraction of decoding each datum by itself (see the benchmarks). Wrong datums are found by a
    second look at their portion: together where nothing repeats in the schema (`cdckit.parts.avro.scan`),
    else in ever smaller parts. A call has a fixed cost of one or two milliseconds, so batches of some
    thousand datums are good and of a hundred not.

    Memory: a small multiple of what is returned; it can be many times the bytes given
    (`cdckit.parts.avro.size`).

    >>> from cdckit.parts.avro.schema import parse_schema
    >>> schema = parse_schema('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}')
    >>> decoded = decode(pa.array([b"\\x02x", b"\\x04x", None]), schema)
    >>> decoded.values.to_pylist()
    [{'a': 'x'}, None, None]
    >>> decoded.errors.to_pylist()
    [None, 'The datum is not of its schema: in a, byte 1: string of 2 bytes, 1 remain.', 'There is no datum.']
    """
    parts = list(decode_parts(datums, schema))
    if len(parts) == 1:
        return parts[0]
    return Decoded(
        pa.concat_arrays([pa.nulls(0, schema.arrow_type), *(part.values for part in parts)]),
        pa.concat_arrays([pa.nulls(0, pa.string()), *(part.errors for part in parts)]),
    )


def decode_parts(datums: pa.Array, schema: AvroSchema, *, row_bytes: int = 0) -> Iterator[Decoded]:
    """
    As `decode`, a part after the other, each of which becomes at most `MAX_MADE` bytes or is one datum.

    Args:
        datums: Binary; one datum each.
        schema: The writers' schema.
        row_bytes: What the caller will make of each value besides, in bytes.

    Returns:
        The values and errors of the first datums, of the next, and so on. Nothing in the data raises.

    >>> from cdckit.parts.avro.schema import parse_schema
    >>> datums = pa.array([b"\\x02", b"\\x04", b"\\x06"])
    >>> parts = decode_parts(datums, parse_schema('"int"'), row_bytes=50_000_000)
    >>> [part.values.to_pylist() for part in parts]
    [[1, 2], [3]]
    """
    for rows in _portions(datums, schema.root, row_bytes):
        yield _decoded_portion(_compact(datums[rows]), schema)


def _portions(datums: pa.Array, root: Node, row_bytes: int) -> Iterator[slice]:
    """The rows, in portions of a size that can be framed, read and held at once."""
    lengths = pc.fill_null(pc.binary_length(datums), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    becomes = row_bytes + _most_bytes(lengths, root)
    limits: list[npt.NDArray[Any]] = [np.cumsum((lengths + MARK) / MAX_BYTES), np.cumsum(becomes / MAX_MADE)]
    start = 0
    while start < len(lengths):
        stop = start + MAX_ROWS
        for used in limits:
            before = used[start - 1] if start else 0
            stop = min(stop, int(np.searchsorted(used, before + 1, side="right")))
        stop = max(stop, start + 1)
        yield slice(start, stop)
        start = stop


def _most_bytes(lengths: Rows, root: Node) -> npt.NDArray[Any]:
    """The most bytes that datums of these *lengths* can become."""
    most = most_made(root)
    bytes_made: npt.NDArray[Any] = most.each + most.per_byte * lengths
    return bytes_made


def _compact(datums: pa.Array) -> pa.BinaryArray:
    """Some rows of an array, without the others' bytes if those could be too many for offsets of 32 bits."""
    if pa.types.is_large_binary(datums.type):
        datums = datums.take(pa.array(np.arange(len(datums))))
    return datums.cast(pa.binary())


def _decoded_portion(datums: pa.BinaryArray, schema: AvroSchema) -> Decoded:
    errors = dict.fromkeys(np.flatnonzero(datums.is_null()).tolist(), "There is no datum.")
    rows = np.flatnonzero(datums.is_valid())
    taken = datums if len(rows) == len(datums) else datums.take(pa.array(rows))
    pieces = list(_decode(taken, rows, schema.root, errors)) if len(rows) else []
    return Decoded(_values(pieces, errors, len(datums), schema.arrow_type), _texts(errors, len(datums)))


class _Piece(NamedTuple):
    rows: Rows
    values: pa.Array


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
            yield from _decode_apart(datums, rows, root, errors, seen)
    else:
        if len(rows) == 1 and (too_much := _too_much(plain, datums, root)):
            errors[int(rows[0])] = f"The datum cannot be held: {too_much}."
            return
        try:
            yield _shaped(plain, rows, root, errors)
        except pa.ArrowException as refusal:
            if len(rows) == 1:
                errors[int(rows[0])] = f"The datum cannot be held: {str(refusal)[:200]}."
            else:
                yield from _decode_apart(datums, rows, root, errors, seen)


def _decode_apart(
    datums: pa.BinaryArray, rows: Rows, root: Node, errors: dict[int, str], seen: _Seen
) -> Iterator[_Piece]:
    size = -(-len(rows) // _PARTS)
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        yield from _decode(datums[part], rows[part], root, errors, seen)


def _too_much(plain: pa.Array, datums: pa.BinaryArray, root: Node) -> str | None:
    """Why the only datum is not shaped, if it is not."""
    length = pc.binary_length(datums)[0].as_py()
    if _most_bytes(np.array([length]), root)[0] <= MAX_MADE_OF_ONE + length:
        return None
    size = made(plain, root)
    if size <= MAX_MADE_OF_ONE + length:
        return None
    return f"its {length:,} bytes would become {size:,}; at most {MAX_MADE_OF_ONE:,} more are made of one"


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
