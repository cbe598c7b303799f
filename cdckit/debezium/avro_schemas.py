"""Schemas of a registry: what is decoded with them, and the types that they give to columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from cdckit.debezium.avro_references import spelled_out
from cdckit.debezium.column_types import VARIABLE
from cdckit.parts import avro

_PRIMITIVES = {"int": "int32", "long": "int64", "float": "float32", "double": "float64", "record": "struct"}
_LOGICAL = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


@lru_cache(maxsize=512)
def plain_schema(text: str) -> avro.AvroSchema:
    """
    The schema without its logical types: values are then as JSON has them, and their meaning is a type's.

    Raises:
        SchemaRefused: The text is no schema, or one that cannot be used; it says why.
    """
    avro.parse_schema(text)
    return avro.parse_schema(json.dumps(json.loads(text, object_hook=_without_logical_type)))


def _without_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "logicalType"}


def column_types(text: str) -> dict[str, str]:
    """
    The types that an envelope's schema gives the columns of its rows; none for any other schema.

    As in JSON with a schema: the name of its meaning (`connect.name`), or else its type.

    >>> day = {"type": "int", "connect.name": "io.debezium.time.Date"}
    >>> row = {"type": "record", "name": "Value", "fields": [{"name": "day", "type": ["null", day]}]}
    >>> column_types(json.dumps({"type": "record", "fields": [{"name": "after", "type": ["null", row]}]}))
    {'day': 'io.debezium.time.Date'}
    """
    for name, kind in _fields(spelled_out(json.loads(text))):
        row = _held(kind)
        if name in ("before", "after") and isinstance(row, Mapping) and row.get("type") == "record":
            return {column: _said(_schema(_held(each))) for column, each in _fields(row)}
    return {}


def _said(schema: dict[str, Any]) -> str:
    has_parts = len(schema) > 1
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False) if has_parts else schema["type"]


def _schema(kind: Any) -> dict[str, Any]:
    """The type as Kafka Connect's JSON has it: that of parts by them, any other by its name alone."""
    said = kind if isinstance(kind, Mapping) else {}
    if said.get("connect.name") == VARIABLE or said.get("connect.internal.type") == "MapEntry":
        return {"type": _type(kind)}
    if said.get("type") == "array":
        return {"type": "array", "items": _schema(_held(said["items"]))}
    if said.get("type") == "map":
        return {"type": "map", "keys": {"type": "string"}, "values": _schema(_held(said["values"]))}
    if said.get("type") == "record":
        fields = [_schema(_held(each)) | {"field": name} for name, each in _fields(said)]
        return {"type": "struct", "fields": fields}
    return {"type": _type(kind)}


def _fields(kind: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, Mapping):
        for field in kind.get("fields") or ():
            yield field["name"], field["type"]


def _held(kind: Any) -> Any:
    """What a type holds that may be null."""
    if not isinstance(kind, list):
        return kind
    held = [each for each in kind if each != "null"]
    return held[0] if len(held) == 1 else "string"


def _type(kind: Any) -> str:
    said = kind if isinstance(kind, Mapping) else {"type": kind}
    parameters = said.get("connect.parameters") or {}
    if isinstance(name := said.get("connect.name"), str):
        digits = [parameters.get(each) for each in ("connect.decimal.precision", "scale")]
        known = ",".join(str(each) for each in digits if each is not None)
        return f"{name}({known})" if digits[1] is not None else name
    logical = said.get("logicalType")
    if logical == "decimal":
        return f"{_DECIMAL}({said.get('precision')},{said.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    plain = str(said.get("connect.type") or said.get("type"))
    plain = _PRIMITIVES.get(plain, plain)
    # An enumeration, a fixed and a type that is named elsewhere are what their values are as JSON.
    known_types = ("int8", "int16", "boolean", "string", "bytes", "array", "map", *_PRIMITIVES.values())
    return plain if plain in known_types else "bytes" if plain == "fixed" else "string"
