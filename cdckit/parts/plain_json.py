"""JSON arrays of objects in which nothing is unusual, as Arrow reads them: no object is made of any."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from cdckit.parts.running_aggregates import Ints

_WORD = re.compile(r"\w+", re.ASCII)
_NULL = "null"


class Unusual(Exception):
    """Something that Arrow would not read as it is meant: a general reader must."""


class Objects(NamedTuple):
    """The objects of some texts, column by column."""

    text: Ints
    """The place of the text in which each stands."""
    order: Ints
    """Which of its text each is, from 1."""
    properties: Mapping[str, pa.Array]
    nulls: bool
    """Whether what has no value was sent, as null; otherwise it was not sent."""


def plain_objects(texts: pa.Array, properties: Mapping[str, pa.DataType]) -> Objects:
    """
    The objects of texts, each of which is a JSON array of objects.

    Args:
        texts: The texts.
        properties: Those that are read, in the types that JSON itself has.

    Raises:
        Unusual: A text is no array of objects; a value is of another type; one object names a property
            twice; or it cannot be told what was null and what was not sent.

    >>> found = plain_objects(pa.array(['[{"a": 1}, {"a": 2}]', '[{"b": 3}]']), {"a": pa.int64()})
    >>> found.text.tolist(), found.order.tolist(), found.properties["a"].to_pylist(), found.nulls
    ([0, 0, 1], [1, 2, 1], [1, 2, None], False)
    """
    nulls = bool(pc.any(pc.match_substring_regex(texts, rf":\s*{_NULL}"), min_count=0).as_py())
    lists = _parsed(texts, pa.list_(pa.struct(list(properties.items()))), only_known=nulls)
    objects = lists.flatten()
    if lists.null_count or objects.null_count:
        raise Unusual
    found = {each.name: objects.field(each.name) for each in objects.type}
    if nulls:
        _require_all_sent(texts, found)
    counts = np.asarray(pc.list_value_length(lists), np.int64)
    first = np.cumsum(counts) - counts
    order = np.arange(1, len(objects) + 1) - np.repeat(first, counts)
    return Objects(np.repeat(np.arange(len(texts)), counts), order, found, nulls)


def _parsed(texts: pa.Array, kind: pa.DataType, *, only_known: bool) -> pa.Array:
    lines = pc.binary_join_element_wise('{"of":', texts, "}", "").buffers()[2]
    options = {
        "explicit_schema": pa.schema([("of", kind)]),
        "unexpected_field_behavior": "error" if only_known else "ignore",
    }
    try:
        found = pyarrow.json.read_json(
            pa.BufferReader(lines),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pyarrow.json.ParseOptions(**options),
        )
    except pa.ArrowException:
        raise Unusual from None
    if found.num_rows != len(texts):
        raise Unusual
    return found.column("of").combine_chunks()


def _require_all_sent(texts: pa.Array, properties: Mapping[str, pa.Array]) -> None:
    """
    Count the nulls in the texts: if there are fewer than properties without a value, some were not sent.

    Only properties that are read may be there, so none is inside another.  What looks like `"name": null`
    is one: in a text the quotes would have backslashes before them, and between two texts, as in
    `": ", "`, stands no word.
    """
    if not all(map(_WORD.fullmatch, properties)) or pc.any(pc.match_substring(texts, "\\")).as_py():
        raise Unusual
    named = rf'"(?:{"|".join(properties)})"\s*:\s*{_NULL}'
    sent = pc.sum(pc.count_substring_regex(texts, named)).as_py()
    if sent != sum(each.null_count for each in properties.values()):
        raise Unusual
