"""
Many datums decoded at once, by a native reader, into the Arrow types that we promise.

The reader (DataFusion's, which is arrow-avro) reads Avro object container files.  So datums are
framed as such a file, undecoded: it has one record, an array, and each item of the array is a datum
and a mark of eight bytes.  Between Avro values there are no borders, so the marks are what tells
whether each datum was read to its last byte and not beyond: one that is too short, too long or wrong
makes its mark wrong, and so cannot shift its neighbours unnoticed.  Marks count on from a random
number, so that no datum can bring along one for a row of its own making.

Why one array, and not a record for each datum: when bytes are left over in a block after as many
records as it announces, the reader (arrow-avro 59.3) looks for its end for ever, and a datum that
hides a second value in itself brings that about.  It hands out a batch as soon as that is full,
though, so when batches are of one record it is not asked beyond the first.  Its second batch could
not be used anyway: it counts the places in unions on from the first.

The reader never sees a schema from outside: `plain_item` writes one that encodes the same bytes,
without names, logical types, defaults or anything else that it could take differently from us.

The reader gives plain types: numbers where a date is meant, bytes where a decimal is, a dense union
where a value may be null.  What such a value means is decided here and nowhere else, a column at a
time.  A value that cannot be what its type says makes its whole row a fault, whatever it is inside of.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count, islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionConfig, SessionContext

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
        children, places = [], iter(range(array.type.num_fields))
        for _, child in node.fields:
            if child.kind == "null":
                children.append(pa.nulls(len(array)))
            else:
                children.append(self.shape(array.field(next(places)), child, rows))
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
        self._fault(_is_repeated_key(keys, offsets), rows_of_items, "a map has a key twice")
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
        is_present = tags == node.holds[0]
        return _spread_values(self._branch(array, node, node.holds[0], is_present, rows), is_present)

    def _branch(
        self, array: pa.Array, node: Node, branch: int, is_present: npt.NDArray[np.bool_], rows: Rows
    ) -> pa.Array:
        where = np.flatnonzero(is_present)

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
        wrong |= _exceeds_precision(words, node.precision)
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
    """Find in a dense union the branch of each value and its place in the array of that branch."""
    _, tags, places = array.buffers()[:3]
    return _ints(tags, np.int8, len(array), array.offset), _ints(places, np.int32, len(array), array.offset)


def _spread_values(child: pa.Array, is_present: npt.NDArray[np.bool_]) -> pa.Array:
    """The values of *child* (no nulls) in their order where *is_present* is true, null elsewhere."""
    rows, kind = len(is_present), child.type
    if len(child) == rows:
        return child
    valid = pa.py_buffer(np.packbits(is_present, bitorder="little"))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        ends = _ints(child.buffers()[1], np.int32, len(child) + 1, child.offset)
        offsets = np.concatenate([ends[:1], ends[np.cumsum(is_present)]])
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(offsets), child.buffers()[2]])
    if pa.types.is_primitive(kind) and 8 <= kind.bit_width <= 64:
        word = np.dtype(f"i{kind.bit_width // 8}")
        values = np.zeros(rows, word)
        values[is_present] = _ints(child.buffers()[1], word, len(child), child.offset)
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(values)])
    return child.take(pa.array(np.cumsum(is_present) - 1, mask=~is_present))


def _is_repeated_key(keys: pa.Array, offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Tell for each key whether the same one stands before it in the same map."""
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


def _exceeds_precision(words: npt.NDArray[np.uint8], precision: int) -> npt.NDArray[np.bool_]:
    """Tell which of the numbers in *words* (see `_unscaled`) have more digits than *precision*."""
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
    names = [None if branch.kind == "null" else branch.name for branch in node.branches]
    pairs = zip(*(numbers.tolist() for numbers in _tags(array)), strict=True)
    # A tag that the schema has not is a fault of its row.
    return [
        {names[tag]: values[tag][place]} if tag < len(names) and names[tag] is not None else None
        for tag, place in pairs
    ]


def _json_record(array: pa.Array, node: Node) -> list[Any]:
    places = iter(range(array.type.num_fields))
    columns = [
        [None] * len(array) if child.kind == "null" else _json_values(array.field(next(places)), child)
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


MARK = 8
"""The bytes of a mark."""

_SYNC = b"cdckit block end"
_IN_MEMORY = "/dev/shm"


class Unreadable(Exception):
    """The native reader did not read back exactly the datums it was given."""


def read(datums: pa.BinaryArray, root: Node) -> pa.Array:
    """
    Decode *datums* (no nulls, less than 2 GiB) to an array of the plain type of *root*.

    Raises:
        Unreadable: At least one datum is wrong.
    """
    base = secrets.randbits(63)
    items = _items(datums, root, base)
    marks = items.field(items.type.num_fields - 1)
    marks_read = np.frombuffer(marks.buffers()[1], np.uint64, len(marks), marks.offset * MARK)
    if not np.array_equal(marks_read, _marks(base, len(datums))):
        raise Unreadable("its bytes do not end where its value ends")
    return items.field(0) if root.kind != "null" else pa.nulls(len(items))


def _items(datums: pa.BinaryArray, root: Node, base: int) -> pa.StructArray:
    """Read *datums*, each with a mark behind it, by Arrow's reader."""
    session, (header, schema) = _session(), _container(root)
    items = _frame_datums(datums, _marks(base, len(datums)))
    size = _varint(len(datums))
    block = [_varint(1), _varint(len(size) + items.size + 1), size, items, b"\0"]
    with _file([header, *block, _SYNC]) as path, _translate_errors():
        stream = session.read_avro(path, schema=schema).execute_stream()
        for batch in islice(stream, 1):
            return batch.to_pyarrow().column(0).flatten()
    raise Unreadable("nothing was read")


def _frame_datums(datums: pa.BinaryArray, marks: npt.NDArray[np.uint64]) -> pa.Buffer:
    """The bytes of each datum, and after it its mark."""
    rows = len(datums)
    binary_marks = pa.Array.from_buffers(pa.binary(MARK), rows, [None, pa.py_buffer(marks)]).cast(pa.binary())
    joined = pc.binary_join_element_wise(datums, binary_marks, b"")
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, np.int32, rows + 1, joined.offset * 4)
    return data.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _marks(first: int, rows: int) -> npt.NDArray[np.uint64]:
    return np.arange(rows, dtype=np.uint64) + np.uint64(first)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise Unreadable(str(error)) from None
    except BaseException as error:
        # A panic of native code is no Exception; neither is an interrupt, and that must go on.
        if type(error).__name__ != "PanicException":
            raise
        raise Unreadable("the native reader gave up") from None


@contextmanager
def _file(parts: Sequence[bytes | pa.Buffer]) -> Iterator[str]:
    """A file of *parts* under a name of its own, for as long as the context lasts; in memory if it fits."""
    path = _write(parts, _IN_MEMORY) or _write(parts, tempfile.gettempdir())
    if path is None:
        raise OSError(f"no room for the {sum(map(len, parts)):,} bytes of a batch in {tempfile.gettempdir()}")
    try:
        yield path
    finally:
        os.unlink(path)


def _write(parts: Sequence[bytes | pa.Buffer], folder: str) -> str | None:
    """Write *parts* to a new file in *folder*; None if it is not there, not ours to write or full."""
    try:
        handle, path = tempfile.mkstemp(".avro", "cdckit-", folder)
    except OSError:
        return None
    try:
        with open(handle, "wb") as file:
            file.writelines(parts)
    except OSError:
        os.unlink(path)
        return None
    return path


def _session() -> SessionContext:
    """
    A session that reads with one thread: Spark runs a process per core.

    A new one every 256 uses, since a session remembers each path that it has read.
    """
    if _process.setdefault("id", os.getpid()) != os.getpid():
        raise RuntimeError(
            "cdckit.parts.avro was used before this process was forked, and its reader's threads were not "
            "forked with it; start such processes with the method 'spawn'"
        )
    return _new_session(next(_uses) // 256)


@lru_cache(maxsize=1)
def _new_session(generation: int) -> SessionContext:
    return SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(1))


_process: dict[str, int] = {}
_uses = count()


@lru_cache(maxsize=512)
def _container(root: Node) -> tuple[bytes, pa.Schema]:
    """The head of a container file for *root*, up to its first block, and the schema to read it with."""
    plain = plain_schema(root)
    text = json.dumps(plain, separators=(",", ":")).encode()
    header = b"".join(
        (b"Obj\x01", _varint(1), _varint(11), b"avro.schema", _varint(len(text)), text, b"\0", _SYNC)
    )
    session = _session()
    with _file([header]) as path, _translate_errors():
        inferred = session.read_avro(path).schema()
    named = _name_type(pa.struct(list(inferred)), plain)
    return header, pa.schema(list(named))


def _name_type(kind: pa.DataType, plain: Any) -> pa.DataType:
    """
    *kind* with the names of the records and fixeds inside it, which inference leaves out.

    The reader's own arrays have them, and DataFusion refuses to cast one union to another that differs
    even so. With this schema there is nothing to cast.
    """
    if pa.types.is_union(kind):
        branches = [_name_field(kind.field(i), branch) for i, branch in enumerate(plain)]
        return pa.dense_union(branches, kind.type_codes)
    if pa.types.is_struct(kind):
        pairs = zip(kind, plain["fields"], strict=True)
        return pa.struct([_name_field(field, member["type"]) for field, member in pairs])
    if pa.types.is_list(kind):
        return pa.list_(_name_field(kind.value_field, plain["items"]))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, _name_field(kind.item_field, plain["values"]))
    return kind


def _name_field(field: pa.Field, plain: Any) -> pa.Field:
    field = field.with_type(_name_type(field.type, plain))
    name = plain.get("name") if isinstance(plain, dict) else None
    return field.with_metadata({"avro.name": name}) if name else field


def plain_schema(root: Node) -> dict[str, Any]:
    """The schema that the reader is given: an array of items, each a value of *root* and a mark."""
    fields = [{"name": "mark", "type": {"type": "fixed", "name": "mark", "size": MARK}}]
    if root.kind != "null":
        fields.insert(0, {"name": "payload", "type": plain_item(root)})
    item = {"type": "record", "name": "item", "fields": fields}
    items = {"name": "items", "type": {"type": "array", "items": item}}
    return {"type": "record", "name": "items_of_a_batch", "fields": [items]}


def plain_item(root: Node) -> Any:
    """
    A schema for the same bytes as *root*, in the plainest types and with names of our own.

    Fields of type null take no bytes and are left out. An enum is the int it is written as; beside an
    int or another enum in a union, a record of that int, since a union has one branch of a type that has
    no name. A union of null and one type gets a branch that no datum may use: with two branches the
    reader would take every number but that of null for the other one.
    """
    return _plain_kind(root, (f"n{i}" for i in count()))


def _plain_kind(node: Node, names: Iterator[str]) -> Any:
    if node.kind == "record":
        parts = (child for _, child in node.fields if child.kind != "null")
        fields = [{"name": f"f{i}", "type": _plain_kind(child, names)} for i, child in enumerate(parts)]
        return {"type": "record", "name": next(names), "fields": fields}
    if node.kind == "fixed":
        return {"type": "fixed", "name": next(names), "size": node.size}
    if node.kind == "array":
        return {"type": "array", "items": _plain_kind(node.children[0], names)}
    if node.kind == "map":
        return {"type": "map", "values": _plain_kind(node.children[0], names)}
    if node.kind == "union":
        ints = sum(branch.kind in ("int", "enum") for branch in node.branches)
        branches = [
            {"type": "record", "name": next(names), "fields": [{"name": "f0", "type": "int"}]}
            if branch.kind == "enum" and ints > 1
            else _plain_kind(branch, names)
            for branch in node.branches
        ]
        if len(branches) == 2 and "null" in branches:
            branches.append("long" if "boolean" in branches else "boolean")
        return branches
    return "int" if node.kind == "enum" else node.kind


def _varint(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
