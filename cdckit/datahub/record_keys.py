"""Keys of records: the guids that they give, and the texts by which entities are looked up, or named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.identifiers import as_text, names, uuid5

LOOKED_UP = "?"
"""What a text begins with that stands for a guid which only a look at all entities can tell."""

_uuid5 = lru_cache(1 << 18)(uuid5)
"""The same keys come again and again; so many are remembered."""


def looked_up_by(entity: str, fields: Sequence[str], key: Mapping[str, pa.Array]) -> pa.Array:
    """The marked texts that stand for entities with these values in these fields."""
    start = f"{LOOKED_UP}{','.join(fields)}"
    return pa.array([start + name for name in names(entity, key)], pa.string())


def named(entity: str, key: Sequence[tuple[str, pa.Array]]) -> pa.Array:
    """Entities by their keys, for people: "order number = 5, line = 2"."""
    parts = []
    for name, values in key:
        text = pc.fill_null(as_text(values).cast(pa.string()), "null")
        parts.append(pc.binary_join_element_wise(f"{name} = ", text, ""))
    return pc.binary_join_element_wise(f"{entity} ", pc.binary_join_element_wise(*parts, ", "), "")


def known_guids(entity: str, key: Mapping[str, pa.Array]) -> pa.Array:
    """What `cdckit.parts.identifiers.guids` gives; each is made once a worker."""
    return pa.array(map(_uuid5, names(entity, key)), pa.string())


def any_valid(values: Iterable[pa.Array]) -> pa.Array:
    """Where any of these columns has a value."""
    return reduce(pc.or_, map(pc.is_valid, values))


def all_valid(values: Iterable[pa.Array]) -> pa.Array:
    """Where all of these columns have a value."""
    return reduce(pc.and_, map(pc.is_valid, values))
