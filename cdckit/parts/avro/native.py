"""Many datums decoded at once, by a native reader.

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
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionConfig, SessionContext

from cdckit.parts.avro.schema import Node

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
    found = np.frombuffer(marks.buffers()[1], np.uint64, len(marks), marks.offset * MARK)
    if not np.array_equal(found, _marks(base, len(datums))):
        raise Unreadable("its bytes do not end where its value ends")
    return items.field(0) if root.kind != "null" else pa.nulls(len(items))


def _items(datums: pa.BinaryArray, root: Node, base: int) -> pa.StructArray:
    """What the reader makes of *datums* and their marks."""
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
    return _plain(root, (f"n{i}" for i in count()))


def _plain(node: Node, names: Iterator[str]) -> Any:
    if node.kind == "record":
        held = (child for _, child in node.fields if child.kind != "null")
        fields = [{"name": f"f{i}", "type": _plain(child, names)} for i, child in enumerate(held)]
        return {"type": "record", "name": next(names), "fields": fields}
    if node.kind == "fixed":
        return {"type": "fixed", "name": next(names), "size": node.size}
    if node.kind == "array":
        return {"type": "array", "items": _plain(node.children[0], names)}
    if node.kind == "map":
        return {"type": "map", "values": _plain(node.children[0], names)}
    if node.kind == "union":
        ints = sum(branch.kind in ("int", "enum") for branch in node.branches)
        branches = [
            {"type": "record", "name": next(names), "fields": [{"name": "f0", "type": "int"}]}
            if branch.kind == "enum" and ints > 1
            else _plain(branch, names)
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
