"""How the messages of a mapping are read: many at once by Arrow while they are plain, the rest by Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.datahub.columns import Columns
from cdckit.datahub.conversions import NATURAL, Converted, of_natural
from cdckit.datahub.mappings import LINK, FieldType, Place
from cdckit.datahub.readers import Reader, Work, read_json
from cdckit.datahub.record_walk import Message, Nodes, Walk
from cdckit.datahub.source_systems import Schema
from cdckit.parts.plain_json import Objects, Unusual, plain_objects

_MANY, _FEW = 1 << 12, 1 << 8
"""How many messages Arrow is given at once, and how many where one of those is unusual."""


class Found(NamedTuple):
    """What messages hold for one mapping, and that as columns, parents before what they hold."""

    walk: Walk
    columns: list[tuple[Nodes, Columns]]


class Reading:
    """The reading of the messages of one mapping, which stands at *place*, in one partition."""

    def __init__(self, work: Work, place: Place) -> None:
        self._work, self._place = work, place
        self._form = plain_form(work.schema, place, work.readers)

    def in_pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Found]]:
        """
        The messages of *batch* in pieces, and what each holds.

        Where a piece is not plain, smaller ones are tried.  If none of those is plain either, no more is
        tried in this partition: then the source does not write what its fields are.
        """
        for many in _pieces(batch, _MANY):
            found = self._if_plain(many)
            if found is not None or self._form is None or many.num_rows <= _FEW:
                yield many, found or self._by_python(many)
                continue
            few = [(each, self._if_plain(each)) for each in _pieces(many, _FEW)]
            if not any(found for _, found in few):
                self._form = None
            for each, found in few:
                yield each, found or self._by_python(each)

    def _if_plain(self, batch: pa.RecordBatch) -> Found | None:
        """None if anything is unusual, an error in a record included."""
        if self._form is None:
            return None
        walk = Walk(self._work, self._place)
        try:
            objects = plain_objects(batch.column("data"), self._form)
            numbers: list[int] = walk.numbered(objects.order).tolist()
            rows: list[int] = objects.text.tolist()
            walk.nodes = PlainNodes(
                self._place, message=rows, number=numbers, listed=numbers, objects=objects
            )
            columns = Columns(walk.nodes, self._work.schema, None)
        except Unusual:
            return None
        return None if columns.faults else Found(walk, [(walk.nodes, columns)])

    def _by_python(self, batch: pa.RecordBatch) -> Found:
        walk = Walk(self._work, self._place)
        names = ("message_identifier", "source_system", "source_entity", "options", "data", "refresh")
        for row, values in enumerate(zip(*(batch.column(name).to_pylist() for name in names), strict=True)):
            walk.read(Message(row, *values))
        return Found(walk, list(_columns(walk.nodes, self._work.schema)))


def _columns(nodes: Nodes, schema: Schema, above: Columns | None = None) -> Iterator[tuple[Nodes, Columns]]:
    """Records as columns, and those that they hold."""
    columns = Columns(nodes, schema, above)
    yield nodes, columns
    for each in nodes.below.values():
        yield from _columns(each, schema, columns)


def _pieces(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, size) for start in range(0, batch.num_rows, size))


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


def plain_form(schema: Schema, place: Place, readers: Mapping[str, Reader]) -> dict[str, pa.DataType] | None:
    """The properties that the mapping reads, in the types that JSON has them in; None if it cannot serve."""
    mapping = schema.mapping(place)
    beside = schema.systems[place.system].mappings[place.entity]
    if mapping.children or mapping.filters or mapping.unique_identifier:
        return None
    if any(readers[each.reader] is not read_json or each.time_source for each in beside):
        return None
    found: dict[str, pa.DataType] = {}
    for source, kind in _properties(schema, place):
        natural = NATURAL.get(kind.name)
        if natural is None or found.setdefault(source, natural) != natural:
            return None
    return found


def _properties(schema: Schema, place: Place) -> Iterator[tuple[str, FieldType]]:
    mapping = schema.mapping(place)
    yield mapping.deleted_source, FieldType("boolean")
    for each in mapping.columns:
        if each.type.name == LINK:
            yield from schema.key_plan(place, each).sources
        else:
            yield each.source, each.type
