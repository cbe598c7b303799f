"""From what the native reader gives to the Arrow types that we promise.

The reader gives plain types: numbers where a date is meant, bytes where a decimal is, a dense union
where a value may be null.  What such a value means is decided here and nowhere else, a column at a
time.  A value that cannot be what its type says makes its whole row a fault, whatever it is inside of.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.avro.schema import Node, arrow_type, enum_numbers

Positions = npt.NDArray[np.int64]
Rows = Callable[[Positions], Positions]
"""Takes positions in an array; gives the rows of the whole that they belong to."""

_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, which datetime can hold
_PER_UNIT = {"millis": 1_000, "micros": 1}


class Shaper:
    """Shapes plain arrays; `faults` holds for each row that is not to be used the reason why."""

    def __init__(self) -> None:
        self.faults: dict[int, str] = {}

    def shape(self, array: pa.Array, node: Node, rows: Rows) -> pa.Array:
        """*array* of the plain type of *node* as an array of its `arrow_type`."""
        if node.kind == "union":
            return self._union(array, node, rows)
        if node.kind == "record":
            return self._record(array, node, rows)
        if node.kind in ("array", "map"):
            return self._collection(array, node, rows)
        if node.kind == "enum":
            return self._enum(array, node, rows)
        if node.logical == "decimal":
            return self._decimal(array, node, rows)
        if node.logical == "uuid":
            return pa.array([str(uuid.UUID(bytes=value)) for value in array.to_pylist()], pa.string())
        if node.logical:
            return self._time(array, node, rows)
        return array.cast(pa.binary()) if node.kind == "fixed" else array

    def _fault(self, wrong: npt.NDArray[np.bool_], rows: Rows, reason: str) -> None:
        if wrong.any():
            for row in np.unique(rows(np.flatnonzero(wrong))).tolist():
                self.faults.setdefault(row, reason)

    def _record(self, array: pa.Array, node: Node, rows: Rows) -> pa.Array:
        children, held = [], iter(range(array.type.num_fields))
        for _, child in node.fields:
            if child.kind == "null":
                children.append(pa.nulls(len(array)))
            else:
                children.append(self.shape(array.field(next(held)), child, rows))
        return pa.StructArray.from_arrays(children, fields=list(arrow_type(node)))

    def _collection(self, array: pa.Array, node: Node, rows: Rows) -> pa.Array:
        offsets = _ints(array.buffers()[1], np.int32, len(array) + 1, array.offset)
        first, last = int(offsets[0]), int(offsets[-1])
        offsets = offsets - offsets[0]

        def rows_of_items(positions: Positions) -> Positions:
            return rows(np.searchsorted(offsets, positions, side="right") - 1)

        places = pa.array(offsets, pa.int32())
        if node.kind == "array":
            items = self.shape(array.values.slice(first, last - first), node.children[0], rows_of_items)
            return pa.ListArray.from_arrays(places, items, type=arrow_type(node))
        keys = array.keys.slice(first, last - first)
        values = self.shape(array.items.slice(first, last - first), node.children[0], rows_of_items)
        self._fault(_repeated(keys, offsets), rows_of_items, "a map has a key twice")
        return pa.MapArray.from_arrays(places, keys, values, type=arrow_type(node))

    def _union(self, array: pa.Array, node: Node, rows: Rows) -> pa.Array:
        if pa.types.is_null(array.type):
            return array
        tags, _ = _tags(array)
        self._fault(tags >= len(node.branches), rows, "a union has a branch that its schema has not")
        if len(node.holds) > 1:
            for i in node.holds:  # for the faults inside
                self._branch(array, node, i, tags == i, rows)
            return pa.array(json_texts(array, node), pa.string())
        if not node.holds:
            return pa.nulls(len(array))
        there = tags == node.holds[0]
        return _spread(self._branch(array, node, node.holds[0], there, rows), there)

    def _branch(
        self, array: pa.Array, node: Node, branch: int, there: npt.NDArray[np.bool_], rows: Rows
    ) -> pa.Array:
        where = np.flatnonzero(there)

        def rows_of_branch(positions: Positions) -> Positions:
            return rows(where[positions])

        return self.shape(array.field(branch), node.branches[branch], rows_of_branch)

    def _enum(self, array: pa.Array, node: Node, rows: Rows) -> pa.Array:
        numbers = enum_numbers(array)
        wrong = (numbers < 0) | (numbers >= len(node.symbols))
        self._fault(wrong, rows, f"the enum {node.name} has only {len(node.symbols)} symbols")
        indexes = pa.array(np.where(wrong, 0, numbers))
        return pa.DictionaryArray.from_arrays(indexes, pa.array(node.symbols)).cast(pa.string())

    def _time(self, array: pa.Array, node: Node, rows: Rows) -> pa.Array:
        numbers = _numbers(array)
        kind, _, unit = node.logical.rpartition("-")
        if node.logical == "date":
            low, high = _FIRST_DAY, _LAST_DAY
        elif kind == "time":
            low, high = 0, _DAY // _PER_UNIT[unit] - 1
        elif unit == "nanos":
            return pa.array(numbers // 1000).view(arrow_type(node))  # years 1677 to 2262: all can be held
        else:
            low, high = _FIRST_DAY * _DAY // _PER_UNIT[unit], (_LAST_DAY + 1) * _DAY // _PER_UNIT[unit] - 1
        wrong = (numbers < low) | (numbers > high)
        reason = "a time of day is" if kind == "time" else "a date or time is not in the years 1 to 9999:"
        if wrong.any():
            self._fault(wrong, rows, f"{reason} {numbers[wrong][0]} as {node.logical}")
            numbers = np.where(wrong, 0, numbers)
        if node.logical == "date":
            return pa.array(numbers.astype(np.int32, copy=False)).view(pa.date32())
        return pa.array(numbers.astype(np.int64, copy=False) * _PER_UNIT[unit]).view(arrow_type(node))

    def _decimal(self, array: pa.Array, node: Node, rows: Rows) -> pa.Array:
        words, wrong = _unscaled(array.cast(pa.binary()))
        wrong |= _outside(words, node.precision)
        if wrong.any():
            self._fault(wrong, rows, f"a decimal has more than {node.precision} digits")
            words[wrong] = 0
        return pa.Array.from_buffers(arrow_type(node), len(array), [None, pa.py_buffer(words)])


def _ints(buffer: pa.Buffer, kind: Any, length: int, offset: int) -> npt.NDArray[Any]:
    size = np.dtype(kind).itemsize
    return np.frombuffer(buffer, kind, length, offset * size) if buffer else np.zeros(length, kind)


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return numbers


def _tags(array: pa.Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32]]:
    """Of a dense union, the branch of each value and its place in the array of that branch."""
    _, tags, places = array.buffers()[:3]
    return _ints(tags, np.int8, len(array), array.offset), _ints(places, np.int32, len(array), array.offset)


def _spread(child: pa.Array, there: npt.NDArray[np.bool_]) -> pa.Array:
    """The values of *child* (no nulls) in their order where *there* is true, null elsewhere."""
    rows, kind = len(there), child.type
    if len(child) == rows:
        return child
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        ends = _ints(child.buffers()[1], np.int32, len(child) + 1, child.offset)
        offsets = np.concatenate([ends[:1], ends[np.cumsum(there)]])
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(offsets), child.buffers()[2]])
    if pa.types.is_primitive(kind) and not pa.types.is_boolean(kind):
        word = (
            np.dtype(f"V{kind.bit_width // 8}")
            if kind.bit_width > 64
            else np.dtype(f"i{kind.bit_width // 8}")
        )
        values = np.zeros(rows, word)
        values[there] = _ints(child.buffers()[1], word, len(child), child.offset)
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(values)])
    return child.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _repeated(keys: pa.Array, offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """For each key whether the same one stands before it in the same map."""
    codes = keys.dictionary_encode()
    maps = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs = maps * max(len(codes.dictionary), 1) + codes.indices.to_numpy(zero_copy_only=False)
    repeated = np.ones(len(pairs), bool)
    repeated[np.unique(pairs, return_index=True)[1]] = False
    return repeated


def _unscaled(array: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """
    Big-endian two's complement numbers of any length as 16 little-endian bytes each.

    Also for each whether it does not fit. No bytes at all are zero, as Java reads them not at all
    and fastavro as zero.
    """
    rows = len(array)
    offsets = _ints(array.buffers()[1], np.int32, rows + 1, array.offset)
    data = np.frombuffer(array.buffers()[2] or b"\0", np.uint8)
    data = data if len(data) else np.zeros(1, np.uint8)
    lengths = np.diff(offsets)
    negative = (lengths > 0) & (data[np.minimum(offsets[:-1], len(data) - 1)] > 0x7F)
    words = np.repeat(np.where(negative, np.uint8(0xFF), np.uint8(0)), 16).reshape(rows, 16)
    for width, of_width in _by_width(np.minimum(lengths, 16)):
        last_first = offsets[1:][of_width, None] - np.arange(1, width + 1, dtype=np.int32)
        words[of_width, :width] = data[last_first]
    wrong = np.zeros(rows, bool)
    for row in np.flatnonzero(lengths > 16).tolist():
        number = int.from_bytes(data[offsets[row] : offsets[row + 1]].tobytes(), "big", signed=True)
        wrong[row] = not -(2**127) <= number < 2**127
    return words, wrong


def _by_width(widths: npt.NDArray[np.int32]) -> Iterator[tuple[int, Any]]:
    """Each width above zero that occurs, and which have it."""
    counts = np.bincount(widths, minlength=1)
    for width in np.flatnonzero(counts).tolist():
        if width:
            yield width, slice(None) if counts[width] == len(widths) else widths == width


def _outside(words: npt.NDArray[np.uint8], precision: int) -> npt.NDArray[np.bool_]:
    """Which of the numbers in *words* (see `_unscaled`) have more digits than *precision*."""
    low, high = words.view("<u8")[:, 0], words.view("<i8")[:, 1]
    if precision < 19:
        short = low.view("<i8")
        bound = 10**precision - 1
        wrong: npt.NDArray[np.bool_] = (high != short >> 63) | (short > bound) | (short < -bound)
        return wrong
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(words), [None, pa.py_buffer(words)])
    greatest, smallest = (pa.scalar(n, whole.type) for n in (10**precision - 1, 1 - 10**precision))
    outside = pc.or_(pc.greater(whole, greatest), pc.less(whole, smallest))
    wrong = outside.to_numpy(zero_copy_only=False)
    return wrong


def json_texts(array: pa.Array, node: Node) -> list[str | None]:
    """
    The values of a union as JSON text, in Avro's JSON encoding: `{"name of the branch": value}`.

    Null is None. A number that JSON does not have (NaN, infinity) is written as a string.
    """
    write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return [None if value is None else write(value) for value in _json_union(array, node)]


def _json_values(array: pa.Array, node: Node) -> list[Any]:
    if node.kind == "union":
        return _json_union(array, node)
    if node.kind == "record":
        return _json_record(array, node)
    if node.kind in ("array", "map"):
        return _json_collection(array, node)
    if node.kind == "enum":
        numbers = enum_numbers(array).tolist()
        return [node.symbols[i] if 0 <= i < len(node.symbols) else None for i in numbers]
    listed: list[Any] = array.to_pylist()
    if node.kind in ("bytes", "fixed"):
        return [value.decode("latin-1") for value in listed]
    if node.kind in ("float", "double"):
        return [value if math.isfinite(value) else str(value) for value in listed]
    return listed


def _json_union(array: pa.Array, node: Node) -> list[Any]:
    if pa.types.is_null(array.type):
        return [None] * len(array)
    values = [_json_values(array.field(i), branch) for i, branch in enumerate(node.branches)]
    tags, places = _tags(array)
    return [
        _json_branch(node, values, tag, place)
        for tag, place in zip(tags.tolist(), places.tolist(), strict=True)
    ]


def _json_branch(node: Node, values: list[list[Any]], tag: int, place: int) -> Any:
    if tag >= len(node.branches) or node.branches[tag].kind == "null":
        return None
    return {node.branches[tag].name: values[tag][place]}


def _json_record(array: pa.Array, node: Node) -> list[Any]:
    held = iter(range(array.type.num_fields))
    columns = [
        [None] * len(array) if child.kind == "null" else _json_values(array.field(next(held)), child)
        for _, child in node.fields
    ]
    names = [name for name, _ in node.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _json_collection(array: pa.Array, node: Node) -> list[Any]:
    ends = _ints(array.buffers()[1], np.int32, len(array) + 1, array.offset).tolist()
    if node.kind == "array":
        items = _json_values(array.values, node.children[0])
        return [items[start:end] for start, end in pairwise(ends)]
    keys, values = array.keys.to_pylist(), _json_values(array.items, node.children[0])
    return [dict(zip(keys[start:end], values[start:end], strict=True)) for start, end in pairwise(ends)]
