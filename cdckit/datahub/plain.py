"""Messages in which nothing is unusual, as columns: no dictionary is made of any record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.datahub.conversions import NATURAL, Converted, of_natural
from cdckit.datahub.mappings import LINK, FieldType, Place
from cdckit.datahub.readers import Reader, read_json
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.walk import Nodes
from cdckit.parts.plain_json import Objects, Unusual, plain_objects
from cdckit.parts.running import Ints

Form = Mapping[str, pa.DataType]


@dataclass(kw_only=True)
class PlainNodes(Nodes):
    """
    Records as Arrow has them.

    What is wrong with one cannot be told here: whoever finds a fault has Python read it again.
    """

    objects: Objects

    @property
    def paths(self) -> pa.Array:
        return pa.array(self.objects.order).cast(pa.string())

    def column(self, source: str, kind: FieldType) -> tuple[Converted, pa.Array | None]:
        values = self.objects.properties[source]
        found = of_natural(values, kind)
        if found is None or (pa.types.is_floating(values.type) and _has_negative_zero(values)):
            raise Unusual
        absent = values.null_count and not self.objects.nulls
        return Converted(found, {}), values.is_valid() if absent else None

    def mention(self, source: str) -> bool:
        values = self.objects.properties[source]
        return bool(self.objects.nulls or values.null_count < len(values))


def _has_negative_zero(values: pa.Array) -> bool:
    # -0 is a whole number, which has no sign, and -0.0 is none: Arrow does not say which of them it read.
    zeros = values.filter(pc.equal(values, 0.0))
    return bool(np.signbit(np.asarray(zeros)).any())


def plain_form(schema: Schema, place: Place, readers: Mapping[str, Reader]) -> Form | None:
    """The properties that the mapping reads, in the types that JSON has them in; None if it cannot serve."""
    mapping = schema.mapping(place)
    beside = schema.systems[place.system].mappings[place.entity]
    if mapping.children or mapping.filters or mapping.unique_identifier:
        return None
    if any(readers[each.reader] is not read_json for each in beside):
        return None
    found: dict[str, pa.DataType] = {}
    for source, kind in _properties(schema, place):
        natural = NATURAL.get(kind.name)
        if natural is None or found.setdefault(source, natural) != natural:
            return None
    return found


def plain_nodes(data: pa.Array, place: Place, form: Form, numbered: Callable[[Ints], Ints]) -> PlainNodes:
    """
    The records in the data of messages, read by the mapping at *place*, which has that `plain_form`.

    They are *numbered* by which of their message's records each is.

    Raises:
        Unusual: What is read, by the rules of `plain_objects`, needs the general reading.
    """
    objects = plain_objects(data, form)
    numbers: list[int] = numbered(objects.order).tolist()
    return PlainNodes(place, message=objects.text.tolist(), number=numbers, listed=numbers, objects=objects)


def _properties(schema: Schema, place: Place) -> Iterator[tuple[str, FieldType]]:
    mapping = schema.mapping(place)
    yield mapping.deleted_source, FieldType("boolean")
    for each in mapping.columns:
        if each.type.name == LINK:
            yield from schema.key_plan(place, each).sources
        else:
            yield each.source, each.type
