"""The types of an Avro schema as a tree, and what is known of a type before any datum is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa


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

_ARROW_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.int64(),
    "time-micros": pa.int64(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("us"),
    "uuid": pa.string(),
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
