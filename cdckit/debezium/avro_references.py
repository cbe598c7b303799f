"""Schemas that refer to others of their registry, made whole: one text that defines all that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
        return json.dumps(_Whole(given).read(json.loads(own), ""))
    except (ValueError, RecursionError):
        return own


def spelled_out(schema: Any) -> Any:
    """
    A schema that contains itself nowhere, with the definition wherever a type is named.

    >>> point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    >>> spelled_out([point, {"type": "array", "items": "Point"}])[1]["items"]["fields"]
    [{'name': 'x', 'type': 'int'}]
    """
    return _Whole({}, again=True).read(schema, "")


def _note(schema: Any, given: dict[str, Mapping[str, Any]]) -> None:
    """Note the types of a schema by their full names: itself, or the branches of a union of some."""
    for kind in schema if isinstance(schema, list) else [schema]:
        if isinstance(kind, Mapping) and kind.get("type") in _NAMED:
            given[_full_name(kind, "")] = kind


class _Whole:
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
            return self._named(kind, namespace)
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
                return self._named(self.given[full], "")
        return name

    def _named(self, kind: Mapping[str, Any], namespace: str) -> dict[str, Any]:
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
