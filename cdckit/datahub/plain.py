"""Messages in which nothing is unusual, as Arrow reads them: without an object for every value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from cdckit.datahub.conversions import NATURAL, Converted, of_natural
from cdckit.datahub.mappings import LINK, FieldType, Place
from cdckit.datahub.plans import KeyPlan
from cdckit.datahub.readers import Reader, read_json
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.walk import Nodes
from cdckit.parts.running import Ints

_WORD = re.compile(r"\w+", re.ASCII)
_NULL = "null"


class Unusual(Exception):
    """Something that only the general reading knows how to treat."""


@dataclass(kw_only=True)
class PlainNodes(Nodes):
    """
    Records as Arrow has them: there is no dictionary of any.

    What is wrong with one can therefore not be told here: whoever finds a fault has Python read it again.
    """

    order: pa.Array
    """Which record of its message each is."""
    properties: Mapping[str, pa.Array]
    nulls: bool
    """Whether what has no value was sent, as null; otherwise it was not sent."""

    @property
    def paths(self) -> pa.Array:
        return self.order.cast(pa.string())

    def column(self, source: str, kind: FieldType) -> tuple[Converted, pa.Array | None]:
        values = self.properties[source]
        found = of_natural(values, kind)
        if found is None or (pa.types.is_floating(values.type) and _has_negative_zero(values)):
            raise Unusual
        absent = values.null_count and not self.nulls
        return Converted(found, {}), values.is_valid() if absent else None

    def mention(self, source: str) -> bool:
        values = self.properties[source]
        return bool(self.nulls or values.null_count < len(values))


def _has_negative_zero(values: pa.Array) -> bool:
    # -0 is a whole number, which has no sign, and -0.0 is none: Arrow does not say which of them it read.
    zeros = values.filter(pc.equal(values, 0.0))
    return bool(np.signbit(np.asarray(zeros)).any())


def plain_form(schema: Schema, place: Place, readers: Mapping[str, Reader]) -> pa.Schema | None:
    """The properties that the mapping reads, as Arrow reads them from JSON; None if it cannot serve."""
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
    return pa.schema([("data", pa.list_(pa.struct(list(found.items()))))])


def plain_nodes(
    data: pa.Array, place: Place, form: pa.Schema, numbered: Callable[[Ints], Ints]
) -> PlainNodes:
    """
    The records of messages.

    Args:
        data: The data of each message.
        place: The mapping that reads them.
        form: Its `plain_form`.
        numbered: Gives the numbers of records that come first, second, ... in their messages.

    Raises:
        Unusual: A message is no array of objects; a value is of another type than its field; one record
            names a property twice; or it cannot be told what was null and what was not sent.
    """
    nulls = bool(pc.any(pc.match_substring_regex(data, rf":\s*{_NULL}"), min_count=0).as_py())
    lists = _parsed(data, form, only_known=nulls)
    records = lists.flatten()
    if lists.null_count or records.null_count:
        raise Unusual
    properties = {each.name: records.field(each.name) for each in records.type}
    if nulls:
        _require_all_sent(data, properties)
    counts = np.asarray(pc.list_value_length(lists), np.int64)
    first = np.cumsum(counts) - counts
    order = np.arange(1, len(records) + 1) - np.repeat(first, counts)
    return PlainNodes(
        place,
        message=np.repeat(np.arange(len(data)), counts).tolist(),
        number=numbered(order).tolist(),
        listed=numbered(order).tolist(),
        order=pa.array(order),
        properties=properties,
        nulls=nulls,
    )


def _properties(schema: Schema, place: Place) -> Iterator[tuple[str, FieldType]]:
    mapping = schema.mapping(place)
    yield mapping.deleted_source, FieldType("boolean")
    for each in mapping.columns:
        if each.type.name == LINK:
            yield from _followed(schema.key_plan(place, each))
        else:
            yield each.source, each.type


def _followed(plan: KeyPlan) -> Iterator[tuple[str, FieldType]]:
    for part in plan.parts:
        if part.inner is not None:
            yield from _followed(part.inner)
        else:
            assert part.source is not None
            yield part.source, part.type


def _parsed(data: pa.Array, form: pa.Schema, *, only_known: bool) -> pa.Array:
    documents = pc.binary_join_element_wise('{"data":', data, "}", "")
    text = documents.buffers()[2]
    others = "error" if only_known else "ignore"
    try:
        found = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=form, unexpected_field_behavior=others),
        )
    except pa.ArrowException:
        raise Unusual from None
    if found.num_rows != len(data):
        raise Unusual
    return found.column("data").combine_chunks()


def _require_all_sent(data: pa.Array, properties: Mapping[str, pa.Array]) -> None:
    """
    Count the nulls in the texts: if there are fewer than properties without a value, some were not sent.

    Only properties that are read may be there, so none is inside another.  What looks like `"name": null`
    is one: in a text the quotes would have backslashes before them, and between two texts, as in
    `": ", "`, stands no word.
    """
    if not all(map(_WORD.fullmatch, properties)) or pc.any(pc.match_substring(data, "\\")).as_py():
        raise Unusual
    named = rf'"(?:{"|".join(properties)})"\s*:\s*{_NULL}'
    sent = pc.sum(pc.count_substring_regex(data, named)).as_py()
    if sent != sum(each.null_count for each in properties.values()):
        raise Unusual
