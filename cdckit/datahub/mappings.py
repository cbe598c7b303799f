"""Mappings, which say what fields of what records go where, and the targets that they write: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyspark.sql import types as T

DEFAULT_SYSTEM = "*"
DELETED_INDICATOR = "deleted_indicator"

LINK, CHILDREN, TEXT, DECIMAL = "link", "children", "text", "decimal"

SPARK_TYPES: Mapping[str, T.DataType] = MappingProxyType(
    {
        TEXT: T.StringType(),
        "number": T.DoubleType(),
        "double": T.DoubleType(),
        "smallint": T.ShortType(),
        "integer": T.IntegerType(),
        "bigint": T.LongType(),
        DECIMAL: T.DecimalType(),
        "date": T.DateType(),
        "timestamp": T.TimestampType(),
        "boolean": T.BooleanType(),
        LINK: T.StringType(),
        CHILDREN: T.StringType(),
    }
)
"""The field types, and what a column of each is in Spark; a link is the guid of what it leads to."""

KEYLESS_TYPES = frozenset({"number", "double", CHILDREN})
"""Types of which no key can be made: a floating-point number has no exact text."""


@dataclass(frozen=True)
class FieldType:
    """
    A type with its measures.

    Args:
        name: One of `SPARK_TYPES`.
        length: Of a text: how many characters are kept.
        scale: Of a decimal: how many digits in all.
        precision: Of a decimal: how many of them are decimals.  The two words mean the reverse in SQL.
    """

    name: str = TEXT
    length: int | None = None
    scale: int | None = None
    precision: int | None = None

    @property
    def spark(self) -> T.DataType:
        """The type of a column of it."""
        if self.name == DECIMAL and self.scale is not None and self.precision is not None:
            return T.DecimalType(self.scale, self.precision)
        return SPARK_TYPES[self.name]


@dataclass(frozen=True)
class FieldMapping:
    """How one field of a target is read from a record."""

    reference: str
    source: str
    type: FieldType
    key: str | None
    """The alternative key of which it is a part; None if it is no key."""
    priority: int | None
    link_entity: str | None = None
    link_key: tuple[str, ...] = ()
    source_link_key: tuple[str, ...] = ()
    autocreate: bool = False
    child_entity: str | None = None
    parent_identifier: str | None = None
    source_child_sequence: str | None = None

    @property
    def is_needed(self) -> bool:
        """Whether it is a link that must lead to what exists."""
        return self.type.name == LINK and not self.autocreate


@dataclass(frozen=True)
class Filter:
    """A filter by the name under which it was given to the hub, and what it is to be called with."""

    name: str
    config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class EntityMapping:
    """How records of a source entity become rows of one target."""

    reference: str
    fields: tuple[FieldMapping, ...]
    priority: int = 0
    reader: str = "json"
    reader_config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    filters: tuple[Filter, ...] = ()
    unique_identifier: str | None = None
    """Where the message's identifier is put into each record; None unless the mapping is unique."""
    unique_sequence: str | None = None
    export: bool = False
    export_identifier: str | None = None
    export_standard_fields: bool = False

    @property
    def columns(self) -> tuple[FieldMapping, ...]:
        """The fields that are columns of the target: all but children and the deleted indicator."""
        return tuple(
            each for each in self.fields if each.type.name != CHILDREN and each.reference != DELETED_INDICATOR
        )

    @property
    def links(self) -> tuple[FieldMapping, ...]:
        """The columns that lead to other entities."""
        return tuple(each for each in self.columns if each.type.name == LINK)

    @property
    def children(self) -> tuple[FieldMapping, ...]:
        """The fields that hold records of child entities."""
        return tuple(each for each in self.fields if each.type.name == CHILDREN)

    @property
    def holds(self) -> bool:
        """Whether its records hold others, or make what they link to."""
        return bool(self.children) or any(each.autocreate for each in self.columns)

    @property
    def deleted_source(self) -> str:
        """The name under which a record says that it deletes."""
        named = (each.source for each in self.fields if each.reference == DELETED_INDICATOR)
        return next(named, DELETED_INDICATOR)

    @property
    def time_source(self) -> str | None:
        """The name under which a record of a message says from when on it is true; None for the message's."""
        name: str | None = self.reader_config.get("timestamp")
        return name

    @property
    def alternatives(self) -> tuple[tuple[str, ...], ...]:
        """The keys by which its records find their entity: the target fields of each."""
        names = dict.fromkeys(each.key for each in self.columns if each.key is not None)
        return tuple(tuple(each.reference for each in self.columns if each.key == name) for name in names)


@dataclass(frozen=True)
class SourceSystem:
    """A set of rules under a name: for each source entity the targets that its records go to."""

    reference: str
    mappings: Mapping[str, tuple[EntityMapping, ...]]


@dataclass(frozen=True)
class Place:
    """Where a mapping stands: its system, its source entity, and which of that entity's targets it is."""

    system: str
    entity: str
    index: int

    def __str__(self) -> str:
        return f"{self.system}:mappings.{self.entity}[{self.index}]"

    def path(self, mapping: EntityMapping, field: FieldMapping) -> str:
        """Where a field of the mapping stands in the document."""
        return f"{self}.fields[{mapping.fields.index(field)}]"


@dataclass(frozen=True)
class Target:
    """A target entity: its fields, its keys, and the mappings that write it."""

    entity: str
    fields: Mapping[str, FieldType]
    alternatives: tuple[tuple[str, ...], ...]
    mappings: Mapping[Place, EntityMapping]
    export: bool

    @property
    def strict(self) -> bool:
        """Whether every mapping finds its entities by the same key: then the key gives the guid."""
        return len(self.alternatives) == 1

    @property
    def weak(self) -> bool:
        """Whether any of several keys finds its entities."""
        return len(self.alternatives) > 1

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields that are part of a key, in the order of the fields."""
        named = {name for alternative in self.alternatives for name in alternative}
        return tuple(name for name in self.fields if name in named)

    @property
    def data(self) -> T.StructType:
        """The type of the business fields."""
        return T.StructType([T.StructField(name, kind.spark) for name, kind in self.fields.items()])

    @property
    def links(self) -> tuple[str, ...]:
        """The fields that lead to other entities."""
        return tuple(name for name, kind in self.fields.items() if kind.name == LINK)
