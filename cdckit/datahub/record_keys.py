"""Keys of records: the guids that they give, and the texts by which entities are looked up, or named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.identifiers import names, uuid5

LOOKED_UP = "?"
"""What a text begins with that stands for a guid which only a look at all entities can tell."""

_GUIDS_KEPT = 1 << 18

_known_guids: dict[tuple[object, ...], dict[Any, str]] = {}
"""By entity, key fields and types the guids that a worker has made: the same keys come again and again."""


def looked_up_by(entity: str, fields: Sequence[str], key: Mapping[str, pa.Array]) -> pa.Array:
    """The marked texts that stand for entities with these values in these fields."""
    start = f"{LOOKED_UP}{','.join(fields)}"
    return pa.array([start + name for name in names(entity, _texts(key))], pa.string())


def named(entity: str, key: Sequence[tuple[str, pa.Array]]) -> pa.Array:
    """Entities by their keys, for people: "order number = 5, line = 2"."""
    parts = []
    for name, values in key:
        text = pc.fill_null(_texts({name: values})[name].cast(pa.string()), "null")
        parts.append(pc.binary_join_element_wise(f"{name} = ", text, ""))
    return pc.binary_join_element_wise(f"{entity} ", pc.binary_join_element_wise(*parts, ", "), "")


def known_guids(entity: str, key: Mapping[str, pa.Array]) -> pa.Array:
    """What `cdckit.parts.identifiers.guids` gives, also of dates and instants; each is made once a worker."""
    if sum(map(len, _known_guids.values())) > _GUIDS_KEPT:
        _known_guids.clear()
    kinds = tuple(values.type for values in key.values())
    known = _known_guids.setdefault((entity, tuple(key), kinds), {})
    if len(key) > 1:
        return pa.array(_remembered(known, names(entity, _texts(key))), pa.string())
    [(field, values)] = _texts(key).items()
    distinct = values.dictionary_encode(null_encoding="encode")
    if pa.types.is_string(values.type) or pa.types.is_integer(values.type):
        found = _made_once(known, entity, field, distinct.dictionary)
    else:
        found = _remembered(known, names(entity, {field: distinct.dictionary}))
    return pa.array(found, pa.string()).take(distinct.indices)


def _remembered(known: dict[Any, str], all_names: list[str]) -> list[str]:
    """The guids of these names."""
    return [known.get(name) or known.setdefault(name, uuid5(name)) for name in all_names]


def _made_once(known: dict[Any, str], entity: str, field: str, values: pa.Array) -> list[str]:
    """The guids of keys of one field, remembered by the key itself: its name is longer than its value."""
    keys = values.to_pylist()
    new = [at for at, value in enumerate(keys) if value not in known]
    if new:
        made = map(uuid5, names(entity, {field: values.take(pa.array(new))}))
        known.update(zip((keys[at] for at in new), made, strict=True))
    return [known[value] for value in keys]


def _texts(key: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Dates and instants as the texts that guids have them in; years are of four digits here."""
    return {name: as_text(values) for name, values in key.items()}


def as_text(values: pa.Array) -> pa.Array:
    """Values of a key as the guids have them in their texts."""
    if pa.types.is_date(values.type):
        return values.cast(pa.string())
    if pa.types.is_timestamp(values.type):
        return pc.strftime(values, "%Y-%m-%dT%H:%M:%SZ")
    return values


def any_valid(values: Iterable[pa.Array]) -> pa.Array:
    """Where any of these columns has a value."""
    return reduce(pc.or_, map(pc.is_valid, values))


def all_valid(values: Iterable[pa.Array]) -> pa.Array:
    """Where all of these columns have a value."""
    return reduce(pc.and_, map(pc.is_valid, values))
