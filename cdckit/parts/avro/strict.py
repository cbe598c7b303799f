"""Whether the bytes of a single datum are right.

This is what says *which* datum of a batch is wrong, and why.  `find_fault` walks over the bytes in
plain Python, slow and exact: it accepts what the native reader accepts.  Nothing is built from the
bytes, so a claim of any size costs nothing.  `looks_right` is five times as fast and lets some faults
pass, as fastavro does: numbers of too many bits, and indexes below zero.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import fastavro

from cdckit.parts.avro.native import plain_item
from cdckit.parts.avro.types import Node

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


def looks_right(datum: bytes, root: Node) -> bool:
    """Whether fastavro reads *datum* to its last byte."""
    stream = io.BytesIO(datum)
    try:
        fastavro.schemaless_reader(stream, _parsed(root), None)
    except Exception:  # of many kinds, and `find_fault` is asked for the reason
        return False
    return stream.tell() == len(datum)


@lru_cache(maxsize=64)
def _parsed(root: Node) -> Any:
    return fastavro.parse_schema(plain_item(root))


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
