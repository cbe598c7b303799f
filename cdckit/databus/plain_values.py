"""Values in plain form: JSON text of a record, made the same Avro datum that the base64 form carries."""

from __future__ import annotations

import base64
import binascii
import io
import json
from functools import lru_cache
from typing import Any

import fastavro

_BYTES = "ISO-8859-1"


def plain_datum(text: str, schema: str) -> bytes:
    """
    The Avro datum of a record that is written as JSON text.

    A value of a union may be written as Avro's JSON encoding has it, `{"string": "x"}`, or bare, `"x"`.
    Bytes are text of one character each, as in Avro's JSON encoding.

    Raises:
        ValueError: The text is no such record; it says why.

    >>> schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]}]}'
    >>> plain_datum('{"a": "x"}', schema) == plain_datum('{"a": {"string": "x"}}', schema)
    True
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error!s:.100}") from None
    parsed = _parsed(schema)
    written = io.BytesIO()
    try:
        fastavro.schemaless_writer(
            written, parsed, _value(said, parsed), strict_allow_default=True, disable_tuple_notation=True
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise ValueError(f"{type(error).__name__}: {error!s:.160}") from None
    return written.getvalue()


def from_base64(text: str) -> bytes | None:
    """The bytes that a text in base64 stands for; nothing where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


@lru_cache(maxsize=512)
def _parsed(schema: str) -> Any:
    # Logical types stay what they are written on: a plain value is a number there, as in Avro's JSON.
    return fastavro.parse_schema(json.loads(schema, object_hook=_without_logical_type))


def _without_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in found.items() if name != "logicalType"}


def _value(said: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        return _of_union(said, schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record" and isinstance(said, dict):
        fields = {field["name"]: field for field in schema["fields"]}
        if more := sorted(said.keys() - fields.keys()):
            raise ValueError(f"the schema has no field {', '.join(more)}")
        return {name: _value(each, fields[name]["type"]) for name, each in said.items()}
    if kind == "array" and isinstance(said, list):
        return [_value(each, schema["items"]) for each in said]
    if kind == "map" and isinstance(said, dict):
        return {name: _value(each, schema["values"]) for name, each in said.items()}
    if kind in ("bytes", "fixed") and isinstance(said, str):
        return said.encode(_BYTES)
    if kind in ("int", "long") and not (isinstance(said, int) and not isinstance(said, bool)):
        raise ValueError(f"{said!r:.60} is no whole number")
    return said


def _of_union(said: Any, branches: list[Any]) -> Any:
    if said is None:
        if "null" not in branches:
            raise ValueError("null is no value here")
        return None
    names = {_name(branch): branch for branch in branches}
    if isinstance(said, dict) and len(said) == 1 and (name := next(iter(said))) in names:
        return _value(said[name], names[name])
    others = [branch for branch in branches if branch != "null"]
    return _value(said, others[0]) if len(others) == 1 else said


def _name(branch: Any) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"]))
    return str(branch)
