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
    EntityMapping,
    FieldMapping,
    FieldType,
    Filter,
    SourceSystem,
)
from cdckit.errors import CdcError
from cdckit.history import STANDARD_COLUMNS

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


class InvalidSchema(CdcError, ValueError):
    """A document that describes a source system cannot be followed."""

    def __init__(self, path: str, needed: str, found: object) -> None:
        self.path, self.needed, self.found = path, needed, found
        super().__init__(path, needed, found)

    def __str__(self) -> str:
        return f"{self.path} must be {self.needed}; it is {self.found!r}."


class _Object:
    """A JSON object of a document, and where in the document it stands."""

    def __init__(self, value: Any, path: str, known: set[str]) -> None:
        self.value, self.path = value, path
        if not isinstance(value, Mapping):
            raise InvalidSchema(path, "an object", value)
        unknown = sorted(set(value) - known)
        if unknown:
            # A property that is ignored is a rule that silently does not hold.
            raise InvalidSchema(path, f"an object of {', '.join(sorted(known))}", unknown)

    def text(self, name: str, default: str | None = None) -> str | None:
        found = self.value.get(name)
        if found is None:
            return default
        if not isinstance(found, str) or not found:
            raise InvalidSchema(f"{self.path}.{name}", "a text that is not empty", found)
        return found

    def needed_text(self, name: str) -> str:
        found = self.text(name)
        if found is None:
            raise InvalidSchema(f"{self.path}.{name}", "a text that is not empty", None)
        return found

    def flag(self, name: str) -> bool:
        found = self.value.get(name)
        if found is not None and not isinstance(found, bool):
            raise InvalidSchema(f"{self.path}.{name}", "true or false", found)
        return bool(found)

    def number(self, name: str, allowed: range) -> int | None:
        found = self.value.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or found not in allowed:
            needed = f"a whole number from {allowed.start} to {allowed.stop - 1}"
            raise InvalidSchema(f"{self.path}.{name}", needed, found)
        return found

    def config(self, name: str) -> Mapping[str, Any]:
        found = self.value.get(name)
        if found is not None and not isinstance(found, Mapping):
            raise InvalidSchema(f"{self.path}.{name}", "an object", found)
        return MappingProxyType(dict(found or {}))

    def names(self, name: str) -> tuple[str, ...]:
        found = self.value.get(name)
        listed = [part.strip() for part in found.split(",")] if isinstance(found, str) else found
        if listed is None:
            return ()
        if not isinstance(listed, Sequence) or not listed or not all(_is_name(each) for each in listed):
            raise InvalidSchema(
                f"{self.path}.{name}", "one or more names: a list, or a text with commas", found
            )
        if len(set(listed)) != len(listed):
            raise InvalidSchema(f"{self.path}.{name}", "distinct names", found)
        return tuple(listed)

    def items(self, name: str) -> Sequence[Any]:
        found = self.value.get(name)
        if not isinstance(found, Sequence) or isinstance(found, str) or not found:
            raise InvalidSchema(f"{self.path}.{name}", "a list that is not empty", found)
        return found


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def source_system(document: Mapping[str, Any]) -> SourceSystem:
    """The source system that *document* describes, by itself; `Schema` checks what lies between systems."""
    said = _Object(document, "$", _SYSTEM)
    reference = said.needed_text("reference")
    here = f"{reference}:"
    stated = said.value.get("mappings")
    known = set(stated) if isinstance(stated, Mapping) else set()
    mappings = _Object(stated, f"{here}mappings", known)
    found = {}
    for entity in mappings.value:
        if not _is_name(entity):
            raise InvalidSchema(mappings.path, "an object of source entities", entity)
        targets = [
            _entity(each, f"{mappings.path}.{entity}[{index}]")
            for index, each in enumerate(mappings.items(entity))
        ]
        _require_distinct([each.reference for each in targets], f"{mappings.path}.{entity}", "targets")
        found[entity] = tuple(targets)
    return SourceSystem(reference, MappingProxyType(found))


def _entity(value: Any, path: str) -> EntityMapping:
    if isinstance(value, Mapping) and "dataStore" in value:
        needed = "left out: a hub keeps every target in tables of its own, and hands exports to a sink"
        raise InvalidSchema(f"{path}.dataStore", needed, value["dataStore"])
    said = _Object(value, path, _ENTITY)
    fields = tuple(_field(each, f"{path}.fields[{index}]") for index, each in enumerate(said.items("fields")))
    _require_distinct(
        [each.reference.lower() for each in fields], f"{path}.fields", "references, in any case"
    )
    unique, export = said.flag("unique"), said.flag("export")
    mapping = EntityMapping(
        reference=said.needed_text("reference"),
        fields=fields,
        priority=said.number("priority", _INT32) or 0,
        reader=said.text("messageReader", "json") or "json",
        reader_config=said.config("messageReaderConfig"),
        filters=_filters(said),
        unique_identifier=_unique(said, fields, "uniqueIdentifier", needed=True) if unique else None,
        unique_sequence=_unique(said, fields, "uniqueSequence", needed=False) if unique else None,
        export=export,
        export_identifier=said.text("exportIdentifier"),
        export_standard_fields=said.flag("exportStandardFields"),
    )
    if not mapping.columns:
        raise InvalidSchema(f"{path}.fields", "of at least one field that is a column", [])
    if not export and not mapping.alternatives:
        raise InvalidSchema(f"{path}.fields", "of at least one field with a key", "none")
    identifier = mapping.export_identifier
    if identifier is not None and identifier not in [each.reference for each in mapping.columns]:
        raise InvalidSchema(f"{path}.exportIdentifier", "one of the fields", identifier)
    if export and mapping.children:
        raise InvalidSchema(
            f"{path}.fields", "free of children, being exported", mapping.children[0].reference
        )
    return mapping


def _unique(said: _Object, fields: tuple[FieldMapping, ...], name: str, *, needed: bool) -> str | None:
    """The name under which the record is given the identifier, or the number, that makes it unique."""
    target = said.needed_text(name) if needed else said.text(name)
    if target is None:
        return None
    source = said.text("source" + name[0].upper() + name[1:], target)
    if not any(each.reference == target and each.key for each in fields):
        raise InvalidSchema(f"{said.path}.{name}", "one of the fields that are keys", target)
    read = next(each.source for each in fields if each.reference == target)
    if read != source:
        raise InvalidSchema(f"{said.path}.{name}", f"read from {source!r}", read)
    return source


def _filters(said: _Object) -> tuple[Filter, ...]:
    if said.value.get("messageFilters") is None:
        return ()
    found = []
    for index, each in enumerate(said.items("messageFilters")):
        if isinstance(each, str):
            found.append(Filter(each))
        else:
            one = _Object(each, f"{said.path}.messageFilters[{index}]", {"name", "config"})
            found.append(Filter(one.needed_text("name"), one.config("config")))
    return tuple(found)


def _field(value: Any, path: str) -> FieldMapping:
    said = _Object(value, path, _FIELD)
    reference = said.needed_text("reference")
    kind = _type(said)
    key = _key(said)
    if key is not None and kind.name in KEYLESS_TYPES:
        raise InvalidSchema(f"{path}.type", "a type with an exact text, being a key", kind.name)
    if reference.lower() in STANDARD_COLUMNS and reference != DELETED_INDICATOR:
        raise InvalidSchema(f"{path}.reference", "another name than a standard column's", reference)
    link, child = kind.name == LINK, kind.name == CHILDREN
    link_key = said.names("linkKey")
    source_link_key = said.names("sourceLinkKey") or link_key
    for name, needed in (
        ("linkEntity", link),
        ("linkKey", link),
        ("childEntity", child),
        ("parentIdentifier", child),
    ):
        if needed != (said.value.get(name) is not None):
            raise InvalidSchema(
                f"{path}.{name}", "stated" if needed else f"absent from a {kind.name}", said.value.get(name)
            )
    if len(link_key) != len(source_link_key):
        raise InvalidSchema(
            f"{path}.sourceLinkKey", f"as many names as linkKey, {len(link_key)}", source_link_key
        )
    parent, sequence = said.text("parentIdentifier"), said.text("childSequence")
    return FieldMapping(
        reference=reference,
        source=said.text("sourceReference", reference) or reference,
        type=kind,
        key=key,
        priority=said.number("priority", _INT32),
        link_entity=said.text("linkEntity"),
        link_key=link_key,
        source_link_key=source_link_key,
        autocreate=said.flag("autocreate"),
        child_entity=said.text("childEntity"),
        parent_identifier=parent,
        child_sequence=sequence,
        source_child_sequence=said.text("sourceChildSequence", sequence),
    )


def _type(said: _Object) -> FieldType:
    name = said.text("type", "text") or "text"
    if name not in SPARK_TYPES:
        raise InvalidSchema(f"{said.path}.type", f"one of {', '.join(SPARK_TYPES)}", name)
    length = said.number("length", range(1, 2**31))
    scale = said.number("scale", range(1, _MAX_DIGITS + 1))
    precision = said.number("precision", range(_MAX_DIGITS + 1))
    if name == DECIMAL:
        if scale is None:
            raise InvalidSchema(f"{said.path}.scale", "stated: how many digits a decimal has in all", None)
        if precision is None or precision > scale:
            needed = f"stated, and at most scale, {scale}: how many of the digits are decimals"
            raise InvalidSchema(f"{said.path}.precision", needed, precision)
        return FieldType(name, None, scale, precision)
    return FieldType(name, length if name == "text" else None)


def _key(said: _Object) -> str | None:
    key = said.value.get("key")
    if key is None or key is False:
        return None
    if key is True:
        return MAIN_KEY
    if not _is_name(key) or key.lower() in ("true", "false"):
        raise InvalidSchema(f"{said.path}.key", "true, false, or the name of an alternative key", key)
    return str(key)


def _require_distinct(names: Sequence[str], path: str, what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidSchema(path, f"of distinct {what}", twice)
