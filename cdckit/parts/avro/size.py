"""
What values take in memory, known before they are made.

A byte of a datum can mean a symbol of 255 letters, or a row of nulls.  So the bytes of a datum do not
bound what is made of it; its schema does (`most_made`), and closer than that what the native reader
gives, in which a symbol is still a number (`made`).  Both count what the making takes besides, where
that is Python's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdckit.parts.avro.types import Node, arrow_type, least_bytes

_OFFSET = 4
_LOGICAL = {"decimal": 64, "uuid": 200}  # with the places of its bytes, or with Python's text
# In JSON text a control character takes six bytes, and Python's text another.
_OBJECT, _DICT, _ESCAPED = 64, 240, 7


class Most(NamedTuple):
    """A value of b bytes makes at most `each + per_byte * b` bytes, and at most `ratio * b`."""

    each: float
    per_byte: float
    ratio: float


@lru_cache(maxsize=512)
def empty_bytes(kind: pa.DataType) -> int:
    """The bytes that a null of this Arrow type takes."""
    if pa.types.is_struct(kind):
        return 1 + sum(empty_bytes(field.type) for field in kind)
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_nested(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _OFFSET
    bits: int = kind.bit_width
    return -(-bits // 8)


@lru_cache(maxsize=512)
def most_made(root: Node) -> Most:
    """The most bytes that values of *root* can become."""
    return _most(root)


def _most(node: Node, *, as_json: bool = False) -> Most:
    if node.kind == "union":
        return _most_of_union(node, as_json or len(node.holds) > 1, as_json)
    if node.kind == "record":
        members = [(child, _most(child, as_json=as_json)) for _, child in node.fields]
        more = _DICT + sum(map(_name_bytes, node.fields)) if as_json else 1
        return _together(members, more)
    if node.items is not None:
        return _most_of_many(node, node.items, as_json)
    if node.kind in ("string", "bytes") and (as_json or not node.logical):
        each, per_byte = (_OBJECT, _ESCAPED) if as_json else (_OFFSET, 1)
        return Most(each, per_byte, each + per_byte)
    each = _leaf_bytes(node, as_json)
    return Most(each, 0, each / max(1, least_bytes(node)))


def _name_bytes(field: tuple[str, Node]) -> int:
    return len(field[0]) + 5 + 16


def _together(members: list[tuple[Node, Most]], more: float) -> Most:
    """Values one after another, and *more* for all of them."""
    each = more + sum(most.each for _, most in members)
    unpaid = more + sum(most.each for child, most in members if not least_bytes(child))
    paid = max((most.ratio for child, most in members if least_bytes(child)), default=0)
    least = max(1, sum(least_bytes(child) for child, _ in members))
    return Most(each, max((most.per_byte for _, most in members), default=0), paid + unpaid / least)


def _most_of_union(node: Node, is_text: bool, as_json: bool) -> Most:
    branches = []
    for branch in node.branches:
        most = _most(branch, as_json=is_text)
        each, per_byte = most.each, most.per_byte
        if branch.kind == "null":
            each = _OBJECT if as_json else empty_bytes(arrow_type(node))
        elif is_text:
            each += _DICT + len(branch.name) + 6
        if is_text and not as_json and branch.kind != "null":  # it is shaped as well, for its faults
            shaped = _most(branch)
            each, per_byte = each + shaped.each, per_byte + shaped.per_byte
        ratio = max(per_byte + (each + 1) / (1 + least_bytes(branch)), per_byte)
        branches.append(Most(each + 1, per_byte, ratio))
    return Most(*map(max, zip(*branches, strict=True)))


def _most_of_many(node: Node, item: Node, as_json: bool) -> Most:
    members = [(item, _most(item, as_json=as_json))]
    if node.kind == "map":
        key = Node("string")
        members.append((key, _most(key, as_json=as_json)))
    inside = _together(members, _OBJECT if as_json else 0)
    each = _DICT if as_json else _OFFSET
    return Most(each, inside.ratio, each + inside.ratio)


def _leaf_bytes(node: Node, as_json: bool) -> int:
    if node.kind == "enum":
        return max(map(len, node.symbols)) + (2 if as_json else 0) + _OFFSET
    if as_json:
        return _OBJECT + _ESCAPED * node.size
    return _LOGICAL.get(node.logical, 0) or empty_bytes(arrow_type(node)) + node.size


def made(array: pa.Array, node: Node, *, as_json: bool = False) -> int:
    """About the bytes that the native reader's *array* of *node* will become; never too few."""
    if node.kind == "union":
        return _made_of_union(array, node, as_json)
    if node.kind == "record":
        held = [child for _, child in node.fields if child.kind != "null"]
        more = _DICT + sum(map(_name_bytes, node.fields)) if as_json else 1
        inside = sum(made(array.field(i), child, as_json=as_json) for i, child in enumerate(held))
        return more * len(array) + inside
    if node.items is not None:
        return _made_of_many(array, node, node.items, as_json)
    if node.kind == "enum":
        lengths = np.array([len(symbol) for symbol in node.symbols]) + (2 if as_json else 0) + _OFFSET
        return int(lengths[np.clip(enum_numbers(array), 0, len(lengths) - 1)].sum())
    most = _most(node, as_json=as_json)
    texts = array.nbytes if most.per_byte else 0
    return int(most.each * len(array) + most.per_byte * texts)


def _made_of_union(array: pa.Array, node: Node, as_json: bool) -> int:
    if pa.types.is_null(array.type):
        return len(array)
    is_text = as_json or len(node.holds) > 1
    empty = _OBJECT if as_json else empty_bytes(arrow_type(node)) + 1
    bytes_made = empty * len(array)
    for i in node.holds:
        child, branch = array.field(i), node.branches[i]
        if is_text:
            bytes_made += (_DICT + len(branch.name) + 6) * len(child)
            bytes_made += made(child, branch, as_json=True)
        if not as_json:
            bytes_made += made(child, branch)
    return bytes_made


def _made_of_many(array: pa.Array, node: Node, item: Node, as_json: bool) -> int:
    each = _DICT if as_json else _OFFSET
    if node.kind == "array":
        more = _OBJECT * len(array.values) if as_json else 0
        return each * len(array) + more + made(array.values, item, as_json=as_json)
    keys = made(array.keys, Node("string"), as_json=as_json)
    return each * len(array) + keys + made(array.items, item, as_json=as_json)


def enum_numbers(array: pa.Array) -> npt.NDArray[Any]:
    """The numbers of an enum's symbols; in a union the reader may have them in a record (`plain_item`)."""
    plain = array.field(0) if pa.types.is_struct(array.type) else array
    numbers: npt.NDArray[Any] = plain.to_numpy(zero_copy_only=True)
    return numbers
