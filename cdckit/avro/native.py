"""Many datums decoded at once, by a native reader.

The reader (DataFusion's, which is arrow-avro) reads Avro object container files.  So datums are
framed as one block of such a file, undecoded.  A block has no borders between its records; for
that the schema is wrapped in a record that ends in a mark of eight bytes, and each datum is
followed by the mark of its row.  A datum that is too short, too long or wrong makes the marks
after it wrong, and so cannot shift its neighbours unnoticed.  The marks begin at a random number,
so that no datum can bring along a mark for a row of its own making.

The reader never sees a schema from outside: `plain_schema` writes one that encodes the same bytes,
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
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionConfig, SessionContext

from cdckit.avro.types import Node

MARK = 8
"""The bytes of a mark."""

_SYNC = b"cdckit block end"
_IN_MEMORY = "/dev/shm"
_WHOLE, _PROBE = 1 << 17, 256  # rows per Arrow batch: when reading, and when looking for a wrong datum


class Unreadable(Exception):
    """The native reader did not read back exactly the datums it was given."""


def read(datums: pa.BinaryArray, root: Node) -> list[pa.Array]:
    """
    Decode *datums* (no nulls, less than 2 GiB) to arrays of the plain types, in their order.

    Raises:
        Unreadable: At least one datum is wrong. Which one, `sound_rows` helps to find.
    """
    base = secrets.randbits(63)
    pieces, rows = [], 0
    for batch in _batches(datums, root, base, _WHOLE):
        if _sound(batch, base + rows) < batch.num_rows:
            raise Unreadable("its bytes do not end where its value ends")
        pieces.append(batch.column(0) if batch.num_columns == 2 else pa.nulls(batch.num_rows))
        rows += batch.num_rows
    if rows != len(datums):
        raise Unreadable(f"{len(datums)} datums were read as {rows} rows")
    return pieces


def sound_rows(datums: pa.BinaryArray, root: Node) -> int:
    """How many datums from the first on are right for certain: all, or some hundreds too few at most."""
    base = secrets.randbits(63)
    rows = 0
    try:
        for batch in _batches(datums, root, base, _PROBE, ["mark"]):
            sound = _sound(batch, base + rows)
            rows += sound
            if sound < batch.num_rows:
                break
    except Unreadable:
        return rows  # the batches before were read, and what comes after is for the caller to look at
    return rows


def _sound(batch: pa.RecordBatch, first: int) -> int:
    """How many rows of *batch* have their own marks, up to the first that has not."""
    column = batch.column(batch.num_columns - 1)
    found = np.frombuffer(column.buffers()[1], np.uint64, batch.num_rows, column.offset * MARK)
    wrong = found != _marks(first, batch.num_rows)
    return int(wrong.argmax()) if wrong.any() else batch.num_rows


def _marks(first: int, rows: int) -> npt.NDArray[np.uint64]:
    return np.arange(rows, dtype=np.uint64) + np.uint64(first)


def _batches(
    datums: pa.BinaryArray, root: Node, base: int, batch_rows: int, columns: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    header, schema = _container(root)
    block = _framed(datums, base)
    parts = [header, _varint(len(datums)), _varint(block.size), block, _SYNC]
    with _file(parts) as path, _as_unreadable():
        frame = _session(batch_rows, os.getpid()).read_avro(path, schema=schema)
        for batch in (frame.select(*columns) if columns else frame).execute_stream():
            yield batch.to_pyarrow()


def _framed(datums: pa.BinaryArray, base: int) -> pa.Buffer:
    """The bytes of a block: each datum, and after it the mark of its row."""
    rows = len(datums)
    marks = pa.Array.from_buffers(pa.binary(MARK), rows, [None, pa.py_buffer(_marks(base, rows))])
    joined = pc.binary_join_element_wise(datums, marks.cast(pa.binary()), b"")
    _, offsets, data = joined.buffers()
    first, last = np.frombuffer(offsets, np.int32, rows + 1, joined.offset * 4)[[0, -1]].tolist()
    return data.slice(first, last - first)


@contextmanager
def _as_unreadable() -> Iterator[None]:
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


@lru_cache(maxsize=2)
def _session(batch_rows: int, pid: int) -> SessionContext:
    """One session per process: Spark runs a process per core, so each reads with one thread."""
    if pid != _first_process:
        raise RuntimeError("this process was forked after cdckit.avro was loaded; start it by spawn instead")
    return SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(batch_rows))


@lru_cache(maxsize=512)
def _container(root: Node) -> tuple[bytes, pa.Schema]:
    """The head of a container file for *root*, up to its first block, and the schema to read it with."""
    text = json.dumps(plain_schema(root), separators=(",", ":")).encode()
    header = b"".join(
        (b"Obj\x01", _varint(1), _varint(11), b"avro.schema", _varint(len(text)), text, b"\0", _SYNC)
    )
    with _file([header]) as path:
        inferred = _session(_WHOLE, os.getpid()).read_avro(path).schema()
    return header, pa.schema([field.with_type(_with_names(field.type)) for field in inferred])


def _with_names(kind: pa.DataType) -> pa.DataType:
    """
    *kind* with the names of named types on the branches of unions, where inference leaves them out.

    The reader's own arrays have them, and DataFusion refuses to cast unions that differ even so.
    """
    if pa.types.is_union(kind):
        branches = [kind.field(i) for i in range(kind.num_fields)]
        return pa.dense_union([_with_name(branch) for branch in branches], kind.type_codes)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_names(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_names(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_with_names(kind.item_type)))
    return kind


def _with_name(branch: pa.Field) -> pa.Field:
    named = pa.types.is_struct(branch.type) or pa.types.is_fixed_size_binary(branch.type)
    branch = branch.with_type(_with_names(branch.type))
    return branch.with_metadata({"avro.name": branch.name}) if named else branch


def plain_schema(root: Node) -> dict[str, object]:
    """
    The schema that the reader is given: the bytes of *root* and a mark, in the plainest types.

    Fields of type null take no bytes and are left out. An enum is the int it is written as. A union
    of null and one type gets a branch that no datum may use: with two branches the reader would take
    every number but that of null for the other one.
    """
    names = (f"n{i}" for i in count())
    fields: list[dict[str, object]] = [
        {"name": "mark", "type": {"type": "fixed", "name": "mark", "size": MARK}}
    ]
    if root.kind != "null":
        fields.insert(0, {"name": "payload", "type": _plain(root, names)})
    return {"type": "record", "name": "row", "fields": fields}


def _plain(node: Node, names: Iterator[str]) -> object:
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
        branches = [_plain(branch, names) for branch in node.branches]
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


_first_process = os.getpid()
