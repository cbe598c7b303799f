"""
Datums to Arrow, whatever the datums are.

One wrong datum keeps the native reader from reading any of its batch.  This finds it without
looking at each: every step of the schema is taken by all datums together, each at its own place.
What ends at its last byte is very likely right, what does not is surely wrong; the exact verdict
is `find_fault`'s.

This is what says *which* datum of a batch is wrong, and why.  `find_fault` walks over the bytes in
plain Python, slow and exact: it accepts what the native reader accepts.  Nothing is built from the
bytes, so a claim of any size costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.avro.native import MARK, Shaper, Unreadable, read
from cdckit.parts.avro.schema import AvroSchema, Node, decoded_bytes, most_bytes

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_FIXED_WIDTH = {"null": 0, "boolean": 1, "float": 4, "double": 8}
# Of a number, an int's too: the reader takes a long spelling of a short number.
_MOST_BYTES = 10


def can_scan(root: Node) -> bool:
    """Tell whether no datum repeats anything: the number of steps is the schema's."""
    return root.kind not in ("array", "map") and all(map(can_scan, root.children))


def ends_right(datums: pa.BinaryArray, root: Node) -> Bools:
    """
    Tell whether each of *datums* (no nulls among them) is used up by *root* to its last byte.

    Cost: some array operations for each type in the schema; about half of what reading costs.
    """
    walk = _Walk(datums)
    walk.step(root, np.arange(len(datums)))
    right: Bools = walk.fits & (walk.place == walk.end)
    return right


class _Walk:
    """Where every datum stands: `place` in the common buffer, `fits` until it is found wrong."""

    def __init__(self, datums: pa.BinaryArray) -> None:
        offsets = np.frombuffer(datums.buffers()[1], np.int32)[
            datums.offset : datums.offset + len(datums) + 1
        ]
        self.place, self.end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        self.bytes = np.frombuffer(datums.buffers()[2] or b"\0", np.uint8)
        self.fits = np.ones(len(datums), dtype=bool)

    def step(self, node: Node, rows: Ints) -> None:
        """Let *rows* pass one value of the type *node*."""
        if node.kind == "record":
            for _, child in node.fields:
                self.step(child, rows)
        elif node.kind == "union":
            chosen = self._number(rows)
            self.fits[rows] &= (chosen >= 0) & (chosen < len(node.branches))
            for index, branch in enumerate(node.branches):
                self.step(branch, rows[chosen == index])
        elif node.kind in ("bytes", "string"):
            self._skip(rows, self._number(rows))
        elif node.kind in ("int", "long", "enum"):
            self._number(rows)
        else:
            width = node.size if node.kind == "fixed" else _FIXED_WIDTH[node.kind]
            self._skip(rows, np.full(len(rows), width, np.int64))

    def _skip(self, rows: Ints, count: Ints) -> None:
        # Compared with what remains, not added: a claim of 2^62 bytes must not overflow.
        fits = (count >= 0) & (count <= self.end[rows] - self.place[rows])
        self.fits[rows] &= fits
        self.place[rows] += np.where(fits, count, 0)

    def _number(self, rows: Ints) -> Ints:
        """The variable-length numbers at the places of *rows*, which move behind them."""
        value = np.zeros(len(rows), np.uint64)
        going = np.arange(len(rows))
        for byte in range(_MOST_BYTES):
            at = self.place[rows[going]]
            is_inside = at < self.end[rows[going]]
            self.fits[rows[going[~is_inside]]] = False
            going, at = going[is_inside], at[is_inside]
            words = self.bytes[at].astype(np.uint64)
            value[going] |= (words & np.uint64(0x7F)) << np.uint64(7 * byte)
            self.place[rows[going]] += 1
            going = going[words >= 0x80]
            if not len(going):
                break
        self.fits[rows[going]] = False
        halves: Ints = (value >> np.uint64(1)).astype(np.int64) ^ -((value & np.uint64(1)).astype(np.int64))
        return halves


Step = Callable[[bytes, int], int]
"""Takes the bytes and the place where a value begins; gives the place where it ends."""


class Malformed(Exception):
    """The bytes of a datum are not what its schema says; the text says where and in what way."""


def find_fault(datum: bytes, root: Node) -> str | None:
    """The reason why *datum* is no value of *root*, or None if it is one."""
    try:
        end = _walk(root)(datum, 0)
    except Malformed as fault:
        return str(fault)
    if end < len(datum):
        return f"the value ends at byte {end}, but {len(datum) - end} more bytes follow"
    return None


@lru_cache(maxsize=64)
def _walk(root: Node) -> Step:
    return _step(root, "")


def _step(node: Node, path: str) -> Step:
    if node.kind == "record":
        return _record([_step(child, f"{path}.{name}".lstrip(".")) for name, child in node.fields])
    where = f"in {path}" if path else "in the value"
    if node.kind == "union":
        return _union([_step(branch, path) for branch in node.branches], where)
    if node.kind == "array":
        return _blocks(_step(node.children[0], f"{path}[]"), where)
    if node.kind == "map":
        key, value = _text(f"{where} (a key)"), _step(node.children[0], f"{path}[]")
        return _blocks(_record([key, value]), where)
    return _scalar(node, where)


def _scalar(node: Node, where: str) -> Step:
    if node.kind == "null":
        return lambda data, at: at
    if node.kind in ("int", "enum"):
        return lambda data, at: _number(data, at, where, 32)[1]
    if node.kind == "long":
        return lambda data, at: _number(data, at, where, 64)[1]
    if node.kind == "string":
        return _text(where)
    if node.kind == "bytes":
        return lambda data, at: _length(data, at, where, "bytes")[1]
    size = {"boolean": 1, "float": 4, "double": 8}.get(node.kind, node.size)
    return lambda data, at: _take(data, at, size, where, node.kind)


def _record(steps: list[Step]) -> Step:
    def walk(data: bytes, at: int) -> int:
        for step in steps:
            at = step(data, at)
        return at

    return walk


def _union(steps: list[Step], where: str) -> Step:
    def walk(data: bytes, at: int) -> int:
        branch, end = _number(data, at, where, 64)
        if not 0 <= branch < len(steps):
            raise Malformed(f"{where}, byte {at}: branch {branch} of a union that has {len(steps)}")
        return steps[branch](data, end)

    return walk


def _blocks(item: Step, where: str) -> Step:
    def walk(data: bytes, at: int) -> int:
        while True:
            start = at
            count, at = _number(data, at, where, 64)
            if count == 0:
                return at
            if count < 0:
                count = -count
                size, at = _number(data, at, where, 64)
                if size < 0:
                    raise Malformed(f"{where}, byte {start}: a block of {size} bytes")
            if count > len(data) - at:  # an item takes a byte at least
                raise Malformed(
                    f"{where}, byte {start}: {count} items are claimed, {len(data) - at} bytes remain"
                )
            for _ in range(count):
                at = item(data, at)

    return walk


def _text(where: str) -> Step:
    def walk(data: bytes, at: int) -> int:
        start, end = _length(data, at, where, "string")
        try:
            data[start:end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise Malformed(f"{where}, byte {start + error.start}: a string that is not UTF-8") from None
        return end

    return walk


def _length(data: bytes, at: int, where: str, kind: str) -> tuple[int, int]:
    size, start = _number(data, at, where, 64)
    if size < 0:
        raise Malformed(f"{where}, byte {at}: {kind} of {size} bytes")
    return start, _take(data, start, size, where, kind)


def _take(data: bytes, at: int, size: int, where: str, kind: str) -> int:
    if size > len(data) - at:
        raise Malformed(f"{where}, byte {at}: {kind} of {size} bytes, {len(data) - at} remain")
    return at + size


def _number(data: bytes, at: int, where: str, bits: int) -> tuple[int, int]:
    start, number = at, 0
    if at < len(data) and data[at] < 0x80:  # most are of one byte
        return (data[at] >> 1) ^ -(data[at] & 1), at + 1
    for shift in range(0, 70, 7):
        if at == len(data):
            raise Malformed(f"{where}, byte {start}: the bytes end inside a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> bits:
                raise Malformed(f"{where}, byte {start}: a number of more than {bits} bits")
            return (number >> 1) ^ -(number & 1), at
    raise Malformed(f"{where}, byte {start}: a number of more than 10 bytes")


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


class DecodedDatums(NamedTuple):
    """What became of some datums.

    Attributes:
        values: One value for each datum, of the schema's `arrow_type`; null where there is an error.
        errors: For each datum null, or one sentence that says why it could not be decoded.
    """

    values: pa.Array
    errors: pa.StringArray


def decode(datums: pa.Array, schema: AvroSchema) -> DecodedDatums:
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
    second look at their portion: together where nothing repeats in the schema (`cdckit.parts.avro.decoding`),
    else in ever smaller parts. A call has a fixed cost of one or two milliseconds, so batches of some
    thousand datums are good and of a hundred not.

    Memory: a small multiple of what is returned; it can be many times the bytes given
    (`cdckit.parts.avro.schema`).

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
    return DecodedDatums(
        pa.concat_arrays([pa.nulls(0, schema.arrow_type), *(part.values for part in parts)]),
        pa.concat_arrays([pa.nulls(0, pa.string()), *(part.errors for part in parts)]),
    )


def decode_parts(datums: pa.Array, schema: AvroSchema, *, row_bytes: int = 0) -> Iterator[DecodedDatums]:
    """
    Decode part after part, each of which becomes at most `MAX_MADE` bytes or is one datum; see `decode`.

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
        yield _decode_portion(_compact(datums[rows]), schema)


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


def _most_bytes(lengths: Ints, root: Node) -> npt.NDArray[Any]:
    """The most bytes that datums of these *lengths* can become."""
    most = most_bytes(root)
    bytes_made: npt.NDArray[Any] = most.each + most.per_byte * lengths
    return bytes_made


def _compact(datums: pa.Array) -> pa.BinaryArray:
    """Some rows of an array, without the others' bytes if those could be too many for offsets of 32 bits."""
    if pa.types.is_large_binary(datums.type):
        datums = datums.take(pa.array(np.arange(len(datums))))
    return datums.cast(pa.binary())


def _decode_portion(datums: pa.BinaryArray, schema: AvroSchema) -> DecodedDatums:
    errors = dict.fromkeys(np.flatnonzero(datums.is_null()).tolist(), "There is no datum.")
    rows = np.flatnonzero(datums.is_valid())
    taken = datums if len(rows) == len(datums) else datums.take(pa.array(rows))
    pieces = list(_decode(taken, rows, schema.root, errors)) if len(rows) else []
    return DecodedDatums(
        _values(pieces, errors, len(datums), schema.arrow_type), _error_texts(errors, len(datums))
    )


class _Piece(NamedTuple):
    rows: Ints
    values: pa.Array


class _Scrutiny(IntEnum):
    """How closely datums were looked at, that the reader could not read all at once."""

    NOT = 0
    TOGETHER = 1
    EACH = 2


def _decode(
    datums: pa.BinaryArray, rows: Ints, root: Node, errors: dict[int, str], seen: _Scrutiny = _Scrutiny.NOT
) -> Iterator[_Piece]:
    """
    Decode the *datums* of *rows*; puts into *errors* what cannot be decoded and leaves it out.

    Where they cannot be read all at once, those that end in the wrong place are taken out, if all can be
    looked at together.  If that does not help, parts are tried, and of a small part each one is looked at.
    That the reader refuses even then is not known to happen; if it does, that costs only what it refuses
    alone.
    """
    try:
        plain = read(datums, root)
    except Unreadable as refusal:
        if seen is _Scrutiny.NOT and len(rows) > _SINGLY and can_scan(root):
            seen, suspects = _Scrutiny.TOGETHER, ~ends_right(datums, root)
        elif seen is not _Scrutiny.EACH and len(rows) <= _SINGLY:
            seen, suspects = _Scrutiny.EACH, np.ones(len(rows), dtype=bool)
        elif len(rows) == 1:
            errors[int(rows[0])] = f"The datum could not be read: {str(refusal)[:200]}."
            return
        else:
            yield from _decode_apart(datums, rows, root, errors, seen)
            return
        right = _find_right(datums, rows, root, errors, suspects)
        if len(right):
            yield from _decode(datums.take(pa.array(right)), rows[right], root, errors, seen)
        return
    if len(rows) == 1 and (too_much := _excess_reason(plain, datums, root)):
        errors[int(rows[0])] = f"The datum cannot be held: {too_much}."
        return
    try:
        yield _shape_piece(plain, rows, root, errors)
    except pa.ArrowException as refusal:
        if len(rows) == 1:
            errors[int(rows[0])] = f"The datum cannot be held: {str(refusal)[:200]}."
        else:
            yield from _decode_apart(datums, rows, root, errors, seen)


def _decode_apart(
    datums: pa.BinaryArray, rows: Ints, root: Node, errors: dict[int, str], seen: _Scrutiny
) -> Iterator[_Piece]:
    size = -(-len(rows) // _PARTS)
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        yield from _decode(datums[part], rows[part], root, errors, seen)


def _excess_reason(plain: pa.Array, datums: pa.BinaryArray, root: Node) -> str | None:
    """Why the only datum is not shaped, if it is not."""
    length = pc.binary_length(datums)[0].as_py()
    if _most_bytes(np.array([length]), root)[0] <= MAX_MADE_OF_ONE + length:
        return None
    size = decoded_bytes(plain, root)
    if size <= MAX_MADE_OF_ONE + length:
        return None
    return f"its {length:,} bytes would become {size:,}; at most {MAX_MADE_OF_ONE:,} more are made of one"


def _find_right(
    datums: pa.BinaryArray, rows: Ints, root: Node, errors: dict[int, str], suspects: Bools
) -> Ints:
    """The places of those datums that may be right; why the others are not goes into *errors*."""
    right = ~suspects
    for i in np.flatnonzero(suspects).tolist():
        reason = find_fault(datums[i].as_py(), root)
        right[i] = reason is None
        if reason is not None:
            errors[int(rows[i])] = f"The datum is not of its schema: {reason}."
    return np.flatnonzero(right)


def _shape_piece(array: pa.Array, rows: Ints, root: Node, errors: dict[int, str]) -> _Piece:
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


def _error_texts(errors: dict[int, str], length: int) -> pa.StringArray:
    texts = pa.nulls(length, pa.string())
    if not errors:
        return texts
    rows = np.array(sorted(errors), np.int64)
    places = np.zeros(length, np.int64)
    places[rows] = np.arange(len(rows))
    has_error = np.zeros(length, bool)
    has_error[rows] = True
    return pa.array([errors[row] for row in rows.tolist()], pa.string()).take(
        pa.array(places, mask=~has_error)
    )
