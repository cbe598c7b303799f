"""From the JSON documents that describe source systems to mappings: every fault is named by its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cdckit.datahub.mappings import (
    CHILDREN,
    DECIMAL,
    DELETED_INDICATOR,
    KEYLESS_TYPES,
    LINK,
    SPARK_TYPES,
    TEXT,
    EntityMapping,
    FieldMapping,
    FieldType,
    Filter,
    SourceSystem,
)
from cdckit.history import STANDARD_COLUMNS
from cdckit.parts.described_documents import Described, InvalidDocument, is_name

MAIN_KEY = "key"
"""The name of the key that `"key": true` stands for."""

_SYSTEM = {"reference", "name", "description", "mappings"}
_ENTITY = {
    "reference", "name", "description", "sourceReference", "messageReader", "messageReaderConfig",
    "messageFilters", "unique", "uniqueIdentifier", "sourceUniqueIdentifier", "uniqueSequence",
    "sourceUniqueSequence", "priority", "export", "exportIdentifier", "exportStandardFields", "fields",
}  # fmt: skip
_FIELD = {
    "reference", "name", "description", "sourceReference", "type", "length", "scale", "precision", "key",
    "priority", "linkEntity", "linkKey", "sourceLinkKey", "autocreate", "childEntity", "parentIdentifier",
    "sourceParentIdentifier", "childSequence", "sourceChildSequence",
}  # fmt: skip

_MAX_DIGITS = 38
_INT32 = range(-(2**31), 2**31)


class InvalidSchema(InvalidDocument):
    """A document that describes a source system cannot be followed."""


require = InvalidSchema.unless


class _Object(Described):
    """A JSON object of such a document."""

    error = InvalidSchema


def source_system(document: Mapping[str, Any]) -> SourceSystem:
    """The source system that *document* describes, by itself; `Schema` checks what lies between systems."""
    said = _Object(document, "$", _SYSTEM)
    reference, stated = said.needed_text("reference"), said.value.get("mappings")
    path = f"{reference}:mappings"
    mappings = _Object(stated, path, set(stated) if isinstance(stated, Mapping) else set())
    found = {}
    for entity in mappings.value:
        require(is_name(entity), path, "an object of source entities", entity)
        found[entity] = mappings.items(entity, _entity)
        _require_distinct([each.reference for each in found[entity]], f"{path}.{entity}", "targets")
    return SourceSystem(reference, MappingProxyType(found))


def _entity(value: Any, path: str) -> EntityMapping:
    if isinstance(value, Mapping) and "dataStore" in value:
        needed = "left out: a hub keeps every target in tables of its own, and hands exports to a sink"
        raise InvalidSchema(f"{path}.dataStore", needed, value["dataStore"])
    said = _Object(value, path, _ENTITY)
    fields = said.items("fields", _field)
    _require_distinct(
        [each.reference.lower() for each in fields], f"{path}.fields", "references, in any case"
    )
    unique, export, filters = said.flag("unique"), said.flag("export"), said.value.get("messageFilters")
    mapping = EntityMapping(
        reference=said.needed_text("reference"),
        fields=fields,
        priority=said.number("priority", _INT32) or 0,
        reader=said.text("messageReader") or "json",
        reader_config=said.config("messageReaderConfig"),
        filters=() if filters is None else said.items("messageFilters", _filter),
        unique_identifier=_unique(said, fields, "uniqueIdentifier", needed=True) if unique else None,
        unique_sequence=_unique(said, fields, "uniqueSequence", needed=False) if unique else None,
        export=export,
        export_identifier=said.text("exportIdentifier"),
        export_standard_fields=said.flag("exportStandardFields"),
    )
    timed = mapping.time_source is None or is_name(mapping.time_source)
    said.require(timed, "messageReaderConfig.timestamp", "the name of a property", mapping.time_source)
    said.require(mapping.columns, "fields", "of at least one field that is a column", [])
    said.require(export or mapping.alternatives, "fields", "of at least one field with a key", "none")
    named, known = mapping.export_identifier, [each.reference for each in mapping.columns]
    said.require(named is None or named in known, "exportIdentifier", "one of the fields", named)
    children = [each.reference for each in mapping.children]
    said.require(not (export and children), "fields", "free of children, being exported", children)
    return mapping


def _unique(said: _Object, fields: tuple[FieldMapping, ...], name: str, *, needed: bool) -> str | None:
    """The name under which the record is given the identifier, or the number, that makes it unique."""
    target = said.needed_text(name) if needed else said.text(name)
    if target is None:
        return None
    source = said.text("source" + name[0].upper() + name[1:]) or target
    keys = {each.reference: each.source for each in fields if each.key}
    said.require(target in keys, name, "one of the fields that are keys", target)
    said.require(keys[target] == source, name, f"read from {source!r}", keys[target])
    return source


def _filter(value: Any, path: str) -> Filter:
    said = _Object({"name": value} if isinstance(value, str) else value, path, {"name", "config"})
    return Filter(said.needed_text("name"), said.config("config"))


def _field(value: Any, path: str) -> FieldMapping:
    said = _Object(value, path, _FIELD)
    reference, kind, key = said.needed_text("reference"), _type(said), _key(said)
    inexact = key is not None and kind.name in KEYLESS_TYPES
    said.require(not inexact, "type", "a type with an exact text, being a key", kind.name)
    taken = reference.lower() in STANDARD_COLUMNS and reference != DELETED_INDICATOR
    said.require(not taken, "reference", "another name than a standard column's", reference)
    for of, names in ((LINK, ("linkEntity", "linkKey")), (CHILDREN, ("childEntity", "parentIdentifier"))):
        needed = "stated" if kind.name == of else f"absent from a {kind.name}"
        for name in names:
            found = said.value.get(name)
            said.require((found is not None) == (kind.name == of), name, needed, found)
    link_key = said.names("linkKey")
    source_link_key = said.names("sourceLinkKey") or link_key
    needed, are_as_many = f"as many names as linkKey, {len(link_key)}", len(link_key) == len(source_link_key)
    said.require(are_as_many, "sourceLinkKey", needed, source_link_key)
    # Nothing follows from it: the link of a child is the parent that it stands in, whatever that is called.
    said.text("sourceParentIdentifier")
    return FieldMapping(
        reference=reference,
        source=said.text("sourceReference") or reference,
        type=kind,
        key=key,
        priority=said.number("priority", _INT32),
        link_entity=said.text("linkEntity"),
        link_key=link_key,
        source_link_key=source_link_key,
        autocreate=said.flag("autocreate"),
        child_entity=said.text("childEntity"),
        parent_identifier=said.text("parentIdentifier"),
        source_child_sequence=said.text("sourceChildSequence") or said.text("childSequence"),
    )


def _type(said: _Object) -> FieldType:
    name = said.text("type") or TEXT
    said.require(name in SPARK_TYPES, "type", f"one of {', '.join(SPARK_TYPES)}", name)
    length = said.number("length", range(1, 2**31))
    scale = said.number("scale", range(1, _MAX_DIGITS + 1))
    precision = said.number("precision", range(_MAX_DIGITS + 1))
    if name != DECIMAL:
        return FieldType(name, length if name == TEXT else None)
    said.require(scale is not None, "scale", "stated: how many digits a decimal has in all", None)
    assert scale is not None
    needed = f"stated, and at most scale, {scale}: how many of the digits are decimals"
    said.require(precision is not None and precision <= scale, "precision", needed, precision)
    return FieldType(name, None, scale, precision)


def _key(said: _Object) -> str | None:
    key = said.value.get("key")
    if key is None or isinstance(key, bool):
        return MAIN_KEY if key else None
    names_a_key = is_name(key) and key.lower() not in ("true", "false")
    said.require(names_a_key, "key", "true, false, or the name of an alternative key", key)
    return str(key)


def _require_distinct(names: Sequence[str], path: str, what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, path, f"of distinct {what}", twice)
