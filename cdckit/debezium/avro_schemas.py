"""Schemas of a registry, whole with those they refer to, and the types they give to columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from cdckit.debezium.column_types import VARIABLE
from cdckit.parts import avro
from cdckit.parts.avro.schema import MAX_TEXT

_NAMED = ("record", "error", "enum", "fixed")


def whole_schema(texts: Sequence[str]) -> str:
    """
    The first of the schemas, with what it names and the others define.

    A definition stands where its name is met first.  A name that none defines is left, and so is a text that
    is no schema: who reads it says what is wrong.

    >>> row = '{"type": "record", "name": "shop.Row", "fields": [{"name": "id", "type": "int"}]}'
    >>> refers = '{"type": "record", "name": "E", "fields": [{"name": "after", "type": "shop.Row"}]}'
    >>> json.loads(whole_schema([refers, row]))["fields"][0]["type"]["fields"]
    [{'name': 'id', 'type': 'int'}]
    """
    own, *others = texts
    if not others or any(len(text) > MAX_TEXT for text in texts):
        return own
    try:
        given: dict[str, Mapping[str, Any]] = {}
        for other in others:
            _note(json.loads(other), given)
        return json.dumps(_SchemaCopy(given).read(json.loads(own), ""))
    except (ValueError, RecursionError):
        return own


def expand_names(schema: Any) -> Any:
    """
    A schema that contains itself nowhere, with the definition wherever a type is named.

    >>> point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    >>> expand_names([point, {"type": "array", "items": "Point"}])[1]["items"]["fields"]
    [{'name': 'x', 'type': 'int'}]
    """
    return _SchemaCopy({}, again=True).read(schema, "")


def _note(schema: Any, given: dict[str, Mapping[str, Any]]) -> None:
    """Note the types of a schema by their full names: itself, or the branches of a union of some."""
    for kind in schema if isinstance(schema, list) else [schema]:
        if isinstance(kind, Mapping) and kind.get("type") in _NAMED:
            given[_full_name(kind, "")] = kind


class _SchemaCopy:
    """Copies a schema; what it has met a definition of, it names, or spells out *again*."""

    def __init__(self, given: Mapping[str, Mapping[str, Any]], *, again: bool = False) -> None:
        self.given = given
        self.again = again
        self.defined: dict[str, Mapping[str, Any]] = {}

    def read(self, kind: Any, namespace: str) -> Any:
        if isinstance(kind, str):
            return self._by_name(kind, namespace)
        if isinstance(kind, list):
            return [self.read(each, namespace) for each in kind]
        if not isinstance(kind, Mapping):
            return kind
        if kind.get("type") in _NAMED:
            return self._define(kind, namespace)
        # Items of an array, values of a map, and a type within a type.
        parts = {
            name: self.read(kind[name], namespace) for name in ("type", "items", "values") if name in kind
        }
        return {**kind, **parts}

    def _by_name(self, name: str, namespace: str) -> Any:
        for full in (name,) if "." in name else (f"{namespace}.{name}".lstrip("."), name):
            if full in self.defined:
                return self.defined[full] if self.again else full
            if full in self.given:
                return self._define(self.given[full], "")
        return name

    def _define(self, kind: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        full = _full_name(kind, namespace)
        space, _, name = full.rpartition(".")
        made = self.defined[full] = {**kind, "name": name, "namespace": space}
        fields = kind.get("fields")
        if isinstance(fields, list):
            made["fields"] = [self._field(each, space) for each in fields]
        return made

    def _field(self, field: Any, namespace: str) -> Any:
        if not isinstance(field, Mapping) or "type" not in field:
            return field
        return {**field, "type": self.read(field["type"], namespace)}


def _full_name(kind: Mapping[str, Any], namespace: str) -> str:
    name, space = str(kind.get("name")), kind.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


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
    for name, kind in _fields(expand_names(json.loads(text))):
        row = _nullable_type(kind)
        if name in ("before", "after") and isinstance(row, Mapping) and row.get("type") == "record":
            return {column: _type_text(_schema(_nullable_type(each))) for column, each in _fields(row)}
    return {}


def _type_text(schema: dict[str, Any]) -> str:
    has_parts = len(schema) > 1
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False) if has_parts else schema["type"]


def _schema(kind: Any) -> dict[str, Any]:
    """The type as Kafka Connect's JSON has it: that of parts by them, any other by its name alone."""
    said = kind if isinstance(kind, Mapping) else {}
    if said.get("connect.name") == VARIABLE or said.get("connect.internal.type") == "MapEntry":
        return {"type": _type(kind)}
    if said.get("type") == "array":
        return {"type": "array", "items": _schema(_nullable_type(said["items"]))}
    if said.get("type") == "map":
        return {"type": "map", "keys": {"type": "string"}, "values": _schema(_nullable_type(said["values"]))}
    if said.get("type") == "record":
        fields = [_schema(_nullable_type(each)) | {"field": name} for name, each in _fields(said)]
        return {"type": "struct", "fields": fields}
    return {"type": _type(kind)}


def _fields(kind: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, Mapping):
        for field in kind.get("fields") or ():
            yield field["name"], field["type"]


def _nullable_type(kind: Any) -> Any:
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
