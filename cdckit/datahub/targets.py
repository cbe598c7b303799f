"""Targets, and the mappings that write them: what source systems make together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import types as T

from cdckit.datahub.mappings import LINK, EntityMapping, FieldMapping, FieldType


@dataclass(frozen=True)
class Place:
    """Where a mapping stands: its system, its source entity, and which of that entity's targets it is."""

    system: str
    entity: str
    index: int

    def __str__(self) -> str:
        return f"{self.system}:mappings.{self.entity}[{self.index}]"


def field_path(place: Place, mapping: EntityMapping, field: FieldMapping) -> str:
    """Where a field of the mapping stands in the document."""
    return f"{place}.fields[{mapping.fields.index(field)}]"


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
