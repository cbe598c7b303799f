"""
Avro schemas from the wire, read with suspicion: their types, and what their values take in memory.

A byte of a datum can mean a symbol of 255 letters, or a row of nulls.  So the bytes of a datum do not
bound what is made of it; its schema does (`most_bytes`), and closer than that what the native reader
gives, in which a symbol is still a number (`decoded_bytes`).  Both count what the making takes besides, where
that is Python's.

A schema arrives inside a message, so it may be anything: a megabyte of brackets, a type that
doubles at every level, a list whose items take no bytes and can therefore be claimed by the
trillion.  What passes here is a finite tree of known size, and everything that decodes works on
that tree: the text itself never reaches a library, and no name is ever looked up in a file or at
an address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdckit.errors import ErrorWithFacts


@dataclass(frozen=True, eq=False)
class Node:
    """One type of an Avro schema.

    Attributes:
        kind: null, boolean, int, long, float, double, bytes, string, fixed, enum, array, map,
            record or union.
        name: The full name of a record, enum or fixed; of any other the kind.
        fields: Name and type of each field of a record.
        items: What an array or a map holds.
        branches: The branches of a union.
        symbols: The symbols of an enum.
        size: The number of bytes of a fixed.
        logical: The logical type, empty where there is none that is used.
        precision: All digits of a decimal.
        scale: The decimal's digits after the point.
    """

    kind: str
    name: str = ""
    fields: tuple[tuple[str, Node], ...] = ()
    items: Node | None = None
    branches: tuple[Node, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @cached_property
    def children(self) -> tuple[Node, ...]:
        """The types directly inside this one."""
        inside = (self.items,) if self.items else ()
        return (*(node for _, node in self.fields), *inside, *self.branches)

    @cached_property
    def weight(self) -> int:
        """The number of types in this one, itself among them, each name expanded where it stands.

        Unions and the null in them are not counted: "or null" makes nothing wider.
        """
        counted = [self.branches[i] for i in self.holds] if self.kind == "union" else self.children
        return (self.kind != "union") + sum(child.weight for child in counted)

    @cached_property
    def depth(self) -> int:
        """How deep types lie in this one: 1 if it has none inside."""
        return 1 + max((child.depth for child in self.children), default=0)

    @cached_property
    def holds(self) -> tuple[int, ...]:
        """The positions of a union's branches that are not null."""
        return tuple(i for i, branch in enumerate(self.branches) if branch.kind != "null")


_ARROW = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}

_UNITS = ("millis", "micros", "nanos")
_INSTANTS, _CLOCKS = ([f"{kind}-{unit}" for unit in _UNITS] for kind in ("timestamp", "local-timestamp"))
_ARROW_LOGICAL = {
    "date": pa.date32(),
    "uuid": pa.string(),
    **dict.fromkeys(("time-millis", "time-micros"), pa.int64()),
    **dict.fromkeys(_INSTANTS, pa.timestamp("us", "UTC")),
    **dict.fromkeys(_CLOCKS, pa.timestamp("us")),
}


def arrow_type(node: Node) -> pa.DataType:
    """The Arrow type of the decoded values of *node*."""
    if node.logical == "decimal":
        return pa.decimal128(node.precision, node.scale)
    if node.logical:
        return _ARROW_LOGICAL[node.logical]
    if node.kind == "record":
        return pa.struct([pa.field(name, arrow_type(child)) for name, child in node.fields])
    if node.kind == "array":
        return pa.list_(arrow_type(node.children[0]))
    if node.kind == "map":
        return pa.map_(pa.string(), arrow_type(node.children[0]))
    if node.kind == "union":
        if len(node.holds) > 1:
            return pa.string()
        return arrow_type(node.branches[node.holds[0]]) if node.holds else pa.null()
    return _ARROW[node.kind]


_LEAST = {"null": 0, "float": 4, "double": 8}


def least_bytes(node: Node) -> int:
    """The fewest bytes a datum of *node* can have."""
    if node.kind == "record":
        return sum(least_bytes(child) for _, child in node.fields)
    if node.kind == "union":
        return 1 + min(least_bytes(branch) for branch in node.branches)
    return node.size if node.kind == "fixed" else _LEAST.get(node.kind, 1)


_OFFSET = 4
_BYTES_OF_LOGICAL = {"decimal": 64, "uuid": 200}  # with the places of its bytes, or with Python's text
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
def most_bytes(root: Node) -> Most:
    """The most bytes that values of *root* can become."""
    return _most_bytes(root)


def _most_bytes(node: Node, *, as_json: bool = False) -> Most:
    if node.kind == "union":
        return _most_of_union(node, as_json or len(node.holds) > 1, as_json)
    if node.kind == "record":
        members = [(child, _most_bytes(child, as_json=as_json)) for _, child in node.fields]
        more = _DICT + sum(map(_name_bytes, node.fields)) if as_json else 1
        return _sum_most(members, more)
    if node.items is not None:
        return _most_of_many(node, node.items, as_json)
    if node.kind in ("string", "bytes") and (as_json or not node.logical):
        per_value, per_byte = (_OBJECT, _ESCAPED) if as_json else (_OFFSET, 1)
        return Most(per_value, per_byte, per_value + per_byte)
    per_value = _leaf_bytes(node, as_json)
    return Most(per_value, 0, per_value / max(1, least_bytes(node)))


def _name_bytes(field: tuple[str, Node]) -> int:
    return len(field[0]) + 5 + 16


def _sum_most(members: list[tuple[Node, Most]], more: float) -> Most:
    """Values one after another, and *more* for all of them."""
    per_value = more + sum(most.each for _, most in members)
    unpaid = more + sum(most.each for child, most in members if not least_bytes(child))
    paid = max((most.ratio for child, most in members if least_bytes(child)), default=0)
    least = max(1, sum(least_bytes(child) for child, _ in members))
    return Most(per_value, max((most.per_byte for _, most in members), default=0), paid + unpaid / least)


def _most_of_union(node: Node, is_text: bool, as_json: bool) -> Most:
    branches = []
    for branch in node.branches:
        most = _most_bytes(branch, as_json=is_text)
        per_value, per_byte = most.each, most.per_byte
        if branch.kind == "null":
            per_value = _OBJECT if as_json else empty_bytes(arrow_type(node))
        elif is_text:
            per_value += _DICT + len(branch.name) + 6
        if is_text and not as_json and branch.kind != "null":  # it is shaped as well, for its faults
            shaped = _most_bytes(branch)
            per_value, per_byte = per_value + shaped.each, per_byte + shaped.per_byte
        ratio = max(per_byte + (per_value + 1) / (1 + least_bytes(branch)), per_byte)
        branches.append(Most(per_value + 1, per_byte, ratio))
    return Most(*map(max, zip(*branches, strict=True)))


def _most_of_many(node: Node, item: Node, as_json: bool) -> Most:
    members = [(item, _most_bytes(item, as_json=as_json))]
    if node.kind == "map":
        key = Node("string")
        members.append((key, _most_bytes(key, as_json=as_json)))
    inside = _sum_most(members, _OBJECT if as_json else 0)
    per_value = _DICT if as_json else _OFFSET
    return Most(per_value, inside.ratio, per_value + inside.ratio)


def _leaf_bytes(node: Node, as_json: bool) -> int:
    if node.kind == "enum":
        return max(map(len, node.symbols)) + (2 if as_json else 0) + _OFFSET
    if as_json:
        return _OBJECT + _ESCAPED * node.size
    return _BYTES_OF_LOGICAL.get(node.logical, 0) or empty_bytes(arrow_type(node)) + node.size


def decoded_bytes(array: pa.Array, node: Node, *, as_json: bool = False) -> int:
    """About the bytes that the native reader's *array* of *node* will become; never too few."""
    if node.kind == "union":
        return _union_bytes(array, node, as_json)
    if node.kind == "record":
        parts = [child for _, child in node.fields if child.kind != "null"]
        more = _DICT + sum(map(_name_bytes, node.fields)) if as_json else 1
        inside = sum(decoded_bytes(array.field(i), child, as_json=as_json) for i, child in enumerate(parts))
        return more * len(array) + inside
    if node.items is not None:
        return _collection_bytes(array, node, node.items, as_json)
    if node.kind == "enum":
        lengths = np.array([len(symbol) for symbol in node.symbols]) + (2 if as_json else 0) + _OFFSET
        return int(lengths[np.clip(enum_numbers(array), 0, len(lengths) - 1)].sum())
    most = _most_bytes(node, as_json=as_json)
    texts = array.nbytes if most.per_byte else 0
    return int(most.each * len(array) + most.per_byte * texts)


def _union_bytes(array: pa.Array, node: Node, as_json: bool) -> int:
    if pa.types.is_null(array.type):
        return len(array)
    is_text = as_json or len(node.holds) > 1
    empty = _OBJECT if as_json else empty_bytes(arrow_type(node)) + 1
    bytes_made = empty * len(array)
    for i in node.holds:
        child, branch = array.field(i), node.branches[i]
        if is_text:
            bytes_made += (_DICT + len(branch.name) + 6) * len(child)
            bytes_made += decoded_bytes(child, branch, as_json=True)
        if not as_json:
            bytes_made += decoded_bytes(child, branch)
    return bytes_made


def _collection_bytes(array: pa.Array, node: Node, item: Node, as_json: bool) -> int:
    per_value = _DICT if as_json else _OFFSET
    if node.kind == "array":
        more = _OBJECT * len(array.values) if as_json else 0
        return per_value * len(array) + more + decoded_bytes(array.values, item, as_json=as_json)
    keys = decoded_bytes(array.keys, Node("string"), as_json=as_json)
    return per_value * len(array) + keys + decoded_bytes(array.items, item, as_json=as_json)


def enum_numbers(array: pa.Array) -> npt.NDArray[Any]:
    """The numbers of an enum's symbols; in a union the reader may have them in a record (`plain_item`)."""
    plain = array.field(0) if pa.types.is_struct(array.type) else array
    numbers: npt.NDArray[Any] = plain.to_numpy(zero_copy_only=True)
    return numbers


MAX_TEXT = 1 << 20
"""The longest schema text that is read, in characters: 1 MiB."""

MAX_NODES = 10_000
"""The most types a schema may have after every name is replaced by what it stands for, unions aside."""

MAX_DEPTH = 32
"""The deepest that types may lie in one another."""

MAX_BRANCHES = 128
"""The most branches of a union: Arrow numbers them in a signed byte."""

MAX_NAME = 255
"""The longest name of a type, a field or a symbol."""

MAX_AMPLIFICATION = 1024
"""The most bytes that one byte of a datum may become inside an array or a map."""

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_COMPLEX = ("record", "error", "enum", "fixed", "array", "map")
# Avro allows ASCII alone; producers whose tables have other letters send those as well.
_WORD = re.compile(r"[^\W\d]\w*")


class SchemaRefused(ErrorWithFacts, ValueError):
    """The text of an Avro schema cannot be used: it is not one, or it is hostile."""

    reason: str
    sentence = "The Avro schema is refused: {reason}."


@dataclass(frozen=True)
class AvroSchema:
    """An Avro schema that can be decoded with, and the Arrow type its values take.

    Attributes:
        text: The JSON text the schema was read from.
        arrow_type: The type of the decoded values; see `cdckit.parts.avro` for the mapping.
        root: The types of the schema as a tree, every name replaced by what it stands for.
    """

    text: str
    arrow_type: pa.DataType = field(compare=False)
    root: Node = field(compare=False, repr=False)


def parse_schema(text: str, *, keep_names: bool = False) -> AvroSchema:
    """
    Read the text of an Avro schema, or refuse it.

    Args:
        text: The schema as JSON.
        keep_names: Whether fields keep names that differ in case alone: their values do not become Spark's.

    Returns:
        The schema. The same text gives the same object again while it is among the last 512 read.

    Raises:
        SchemaRefused: *text* is not an Avro schema; or it is too long, too deep or too wide;
            or it is recursive, names two fields of a record alike, or has items or values that
            take no bytes, so that a datum could claim any number.

    Spark tells no cases apart: of two fields of a record whose names differ in case alone, the later
    one gets its position behind its name, so that `name, NAME` are called `name` and `NAME_2`.

    >>> parse_schema('{"type": "array", "items": "long"}').arrow_type
    ListType(list<item: int64>)
    >>> parse_schema('{"type": "array", "items": "null"}')
    Traceback (most recent call last):
      ...
    cdckit.parts.avro.schema.SchemaRefused: The Avro schema is refused: the items of an array take no bytes.
    """
    schema = _check_schema(text, keep_names)
    if isinstance(schema, str):
        raise SchemaRefused(schema)
    return schema


@lru_cache(maxsize=512)
def _check_schema(text: str, keep_names: bool) -> AvroSchema | str:
    """The schema, or the reason why it is refused: refusals are remembered as well."""
    try:
        if len(text) > MAX_TEXT:
            raise SchemaRefused(f"its text has {len(text):,} characters; at most {MAX_TEXT:,} are read")
        root = _Reader(keep_names).read(_json(text), namespace="")
        if most_bytes(root).per_byte > MAX_AMPLIFICATION:
            raise SchemaRefused(
                "a few bytes of an array or map could become very many: "
                f"more than {MAX_AMPLIFICATION} for each byte"
            )
        return AvroSchema(text, arrow_type(root), root)
    except SchemaRefused as refusal:
        return refusal.reason


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise SchemaRefused("its JSON is nested too deeply") from None
    except ValueError as error:
        raise SchemaRefused(f"it is not JSON ({str(error)[:200]})") from None


class _Reader:
    """Turns JSON values into nodes; remembers the names it has met (None: not finished yet)."""

    def __init__(self, keep_names: bool) -> None:
        self.keep_names = keep_names
        self.named: dict[str, Node | None] = {}
        self.level = 0

    def read(self, value: object, namespace: str) -> Node:
        self.level += 1
        if self.level > 3 * MAX_DEPTH:  # {"type": {"type": ...}} nests without a type of its own
            raise SchemaRefused(f"its types are nested more than {MAX_DEPTH} deep")
        node = self._node(value, namespace)
        self.level -= 1
        if node.depth > MAX_DEPTH:
            raise SchemaRefused(f"its types are nested more than {MAX_DEPTH} deep")
        if node.weight > MAX_NODES:
            raise SchemaRefused(f"it has more than {MAX_NODES:,} types once its names are expanded")
        return node

    def _node(self, value: object, namespace: str) -> Node:
        if isinstance(value, str):
            return self._by_name(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace)
        if not isinstance(value, dict):
            raise SchemaRefused(f"{_shorten_text(value)} is not a type")
        kind = value.get("type")
        if not isinstance(kind, str):
            return self.read(kind, namespace)
        if kind in _PRIMITIVES:
            return _with_logical(Node(kind, name=kind), value)
        if kind in ("array", "map"):
            return self._collection(kind, value, namespace)
        if kind in _COMPLEX:
            return self._named_type(kind, value, namespace)
        return self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> Node:
        if name in _PRIMITIVES:
            return Node(name, name=name)
        for full in (name,) if "." in name else (f"{namespace}.{name}".lstrip("."), name):
            if full in self.named:
                node = self.named[full]
                if node is None:
                    raise SchemaRefused(f"the type {full} contains itself, which Spark cannot hold")
                return node
        raise SchemaRefused(f"the type {_shorten_text(name)} is not defined")

    def _union(self, value: list[object], namespace: str) -> Node:
        if not value:
            raise SchemaRefused("a union has no branches")
        if len(value) > MAX_BRANCHES:
            raise SchemaRefused(f"a union has {len(value)} branches; at most {MAX_BRANCHES} can be held")
        branches = tuple(self.read(branch, namespace) for branch in value)
        if any(branch.kind == "union" for branch in branches):
            raise SchemaRefused("a union stands directly in a union")
        names = [branch.name for branch in branches]
        if len(set(names)) < len(names):
            raise SchemaRefused("a union has two branches of one type")
        return Node("union", name="union", branches=branches)

    def _collection(self, kind: str, value: Mapping[str, object], namespace: str) -> Node:
        item = self.read(value.get("items" if kind == "array" else "values"), namespace)
        if least_bytes(item) == 0:
            raise SchemaRefused(
                f"the {'items of an array' if kind == 'array' else 'values of a map'} take no bytes"
            )
        return Node(kind, name=kind, items=item)

    def _named_type(self, kind: str, value: Mapping[str, object], namespace: str) -> Node:
        name, space = _full_name(value, namespace)
        if name in self.named or name in _PRIMITIVES:
            raise SchemaRefused(f"the type {name} is defined twice")
        self.named[name] = None
        if kind == "enum":
            node = Node("enum", name=name, symbols=_symbols(value, name))
        elif kind == "fixed":
            node = _with_logical(Node("fixed", name=name, size=_size(value, name)), value)
        else:
            node = self._record(value, name, space)
        self.named[name] = node
        return node

    def _record(self, value: Mapping[str, object], name: str, namespace: str) -> Node:
        members = value.get("fields")
        if not isinstance(members, list) or not members:
            raise SchemaRefused(f"the record {name} has no fields")
        fields: list[tuple[str, Node]] = []
        seen: set[str] = set()
        weight = 0
        for member in members:
            if not isinstance(member, dict):
                raise SchemaRefused(f"the record {name} has a field that is not an object")
            field_name = _word(member.get("name"), f"the name of a field of {name}")
            if field_name in seen:
                raise SchemaRefused(f"the record {name} has two fields named {field_name}")
            seen.add(field_name)
            node = self.read(member.get("type"), namespace)
            weight += node.weight
            if weight > MAX_NODES:
                raise SchemaRefused(f"it has more than {MAX_NODES:,} types once its names are expanded")
            fields.append((field_name, node))
        distinct = fields if self.keep_names else _distinct_fields(fields)
        record = Node("record", name=name, fields=tuple(distinct))
        if least_bytes(record) == 0:
            raise SchemaRefused(f"the record {name} takes no bytes")
        return record


def _distinct_fields(fields: Sequence[tuple[str, Node]]) -> Iterator[tuple[str, Node]]:
    """Add their position to the later ones of fields whose names differ in case alone."""
    names = {name.lower() for name, _ in fields}
    seen: set[str] = set()
    for position, (name, node) in enumerate(fields, start=1):
        unique = name
        if name.lower() in seen:
            unique = f"{name}_{position}"
            while unique.lower() in names:
                unique += "_"
            names.add(unique.lower())
        seen.add(name.lower())
        yield unique, node


def _full_name(value: Mapping[str, object], namespace: str) -> tuple[str, str]:
    """The full name of a named type and the namespace that holds inside it."""
    name, space = value.get("name"), value.get("namespace", namespace)
    if not isinstance(name, str) or len(name) > MAX_NAME:
        raise SchemaRefused(f"{_shorten_text(name)} is not the name of a type")
    if not isinstance(space, str) or len(space) > MAX_NAME:
        raise SchemaRefused(f"{_shorten_text(space)} is not a namespace")
    full = name if "." in name or not space else f"{space}.{name}"
    for part in full.split("."):
        _word(part, f"a part of the name {_shorten_text(full)}")
    return full, full.rpartition(".")[0]


def _word(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME or not _WORD.fullmatch(value):
        raise SchemaRefused(f"{_shorten_text(value)} cannot be {what}")
    return value


def _symbols(value: Mapping[str, object], name: str) -> tuple[str, ...]:
    symbols = value.get("symbols")
    if not isinstance(symbols, list) or not symbols:
        raise SchemaRefused(f"the enum {name} has no symbols")
    words = tuple(_word(symbol, f"a symbol of {name}") for symbol in symbols)
    if len(set(words)) < len(words):
        raise SchemaRefused(f"the enum {name} has a symbol twice")
    return words


def _size(value: Mapping[str, object], name: str) -> int:
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_TEXT:
        raise SchemaRefused(
            f"the size of the fixed {name} is {_shorten_text(size)}; it must be 1 to {MAX_TEXT:,}"
        )
    return size


_LOGICAL = {
    **dict.fromkeys(("date", "time-millis"), ("int",)),
    **dict.fromkeys(("time-micros", *_INSTANTS, *_CLOCKS), ("long",)),
    "decimal": ("bytes", "fixed"),
    "uuid": ("fixed",),
}


def _with_logical(node: Node, value: Mapping[str, object]) -> Node:
    """*node* with its logical type; one that does not fit its type is ignored, as Avro has it."""
    logical = value.get("logicalType")
    if not isinstance(logical, str) or node.kind not in _LOGICAL.get(logical, ()):
        return node
    if logical == "uuid" and node.size != 16:
        return node
    if logical != "decimal":
        return Node(node.kind, name=node.name, size=node.size, logical=logical)
    precision, scale = value.get("precision"), value.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return node
    if not 0 <= scale <= precision <= 38 or precision == 0:
        return node  # neither Spark nor decimal128 can hold more digits
    return Node(node.kind, name=node.name, size=node.size, logical=logical, precision=precision, scale=scale)


def _shorten_text(value: object) -> str:
    text = repr(value) if not isinstance(value, (dict, list)) else type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."
