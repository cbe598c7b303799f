"""Plain values: records that stand in events as JSON text, as the Avro datums that all others are."""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import Any

import fastavro

from cdckit.parts.json_text import each_name_once


def plain_datum(text: str, schema: str) -> bytes:
    """
    Make the Avro datum of a record that is written as JSON text.

    A value of a union may be written as Avro's JSON encoding has it, `{"string": "x"}`, or bare, `"x"`, which
    is of the first type that fits.  Bytes are text of one character each, as in Avro's JSON encoding.

    Raises:
        ValueError: The text is no such record; it says why.

    >>> schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]}]}'
    >>> plain_datum('{"a": "x"}', schema) == plain_datum('{"a": {"string": "x"}}', schema)
    True
    """
    try:
        document = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error!s:.100}") from None
    (parsed, named_types), datum = _parse_schema(schema), io.BytesIO()
    try:
        value = _avro_value(document, parsed, named_types)
        fastavro.schemaless_writer(datum, parsed, value, strict_allow_default=True)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error!s:.160}") from None
    return datum.getvalue()


_JSON = json.JSONDecoder(object_pairs_hook=each_name_once)

_NamedTypes = dict[str, Any]
"""By full name the types of a schema, which may use them again by name."""


@lru_cache(maxsize=512)
def _parse_schema(schema: str) -> tuple[Any, _NamedTypes]:
    # Logical types stay what they are written on: a plain value is a number there, as in Avro's JSON.
    plain_schema, named_types = json.loads(schema, object_hook=_without_logical_type), _NamedTypes()
    return fastavro.parse_schema(plain_schema, named_types), named_types


def _without_logical_type(kind: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in kind.items() if name != "logicalType"}


def _avro_value(value: Any, schema: Any, named_types: _NamedTypes) -> Any:
    """Turn a value of JSON into one that fastavro writes."""
    if isinstance(schema, list):
        return _union_value(value, schema, named_types)
    if isinstance(schema, str):
        schema = named_types.get(schema, schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    (classes, wanted), kind_of_value = _VALUES[kind], type(value)
    if kind_of_value not in classes:
        raise ValueError(f"{value!r:.60} is not {wanted}")
    if kind == "record":
        types = {field["name"]: field["type"] for field in schema["fields"]}
        if strange := sorted(value.keys() - types.keys()):
            raise ValueError(f"the schema has no field {', '.join(strange)}")
        return {name: _avro_value(part, types[name], named_types) for name, part in value.items()}
    if kind == "array":
        return [_avro_value(part, schema["items"], named_types) for part in value]
    if kind == "map":
        return {name: _avro_value(part, schema["values"], named_types) for name, part in value.items()}
    return value.encode("ISO-8859-1") if kind in ("bytes", "fixed") else value


# Fastavro writes what it is given: a text as true, a text as an array of its letters.
_VALUES: dict[Any, tuple[tuple[type, ...], str]] = {
    "null": ((type(None),), "null"),
    "boolean": ((bool,), "true or false"),
    **dict.fromkeys(("int", "long"), ((int,), "a whole number")),
    **dict.fromkeys(("float", "double"), ((int, float), "a number")),
    **dict.fromkeys(("string", "enum", "bytes", "fixed"), ((str,), "text")),
    "array": ((list,), "an array"),
    **dict.fromkeys(("map", "record"), ((dict,), "an object")),
}
"""By type the classes of JSON's values that are of it, and what they are called."""


def _union_value(value: Any, branches: list[Any], named_types: _NamedTypes) -> Any:
    branch_types = {_branch_name(branch): branch for branch in branches if branch != "null"}
    if value is None:
        if len(branch_types) == len(branches):
            raise ValueError("null is no value here")
        return None
    if isinstance(value, dict) and len(value) == 1 and (name := next(iter(value))) in branch_types:
        # Named so, fastavro writes this type, and not the first one that fits.
        return name, _avro_value(value[name], branch_types[name], named_types)
    if len(branch_types) != 1:
        return value
    [branch] = branch_types.values()
    return _avro_value(value, branch, named_types)


def _branch_name(branch: Any) -> str:
    return str(branch.get("name", branch["type"]) if isinstance(branch, dict) else branch)
