"""Mappings, which say what fields of what records go where, as values; read from JSON documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from pyspark.sql import types as T

from cdckit.errors import ErrorWithFacts
from cdckit.model.history import STANDARD_COLUMNS

DEFAULT_SYSTEM = "*"
DELETED_INDICATOR = "deleted_indicator"

LINK, CHILDREN, TEXT, DECIMAL = "link", "children", "text", "decimal"

SPARK_TYPES: Mapping[str, T.DataType] = MappingProxyType(
    {
        TEXT: T.StringType(),
        "number": T.DoubleType(),
        "double": T.DoubleType(),
        "smallint": T.ShortType(),
        "integer": T.IntegerType(),
        "bigint": T.LongType(),
        DECIMAL: T.DecimalType(),
        "date": T.DateType(),
        "timestamp": T.TimestampType(),
        "boolean": T.BooleanType(),
        LINK: T.StringType(),
        CHILDREN: T.StringType(),
    }
)
"""The field types, and what a column of each is in Spark; a link is the guid of what it leads to."""

KEYLESS_TYPES = frozenset({"number", "double", CHILDREN})
"""Types of which no key can be made: a floating-point number has no exact text."""


@dataclass(frozen=True)
class FieldType:
    """
    A type with its measures.

    Args:
        name: One of `SPARK_TYPES`.
        length: Of a text: how many characters are kept.
        scale: Of a decimal: how many digits in all.
        precision: Of a decimal: how many of them are decimals.  The two words mean the reverse in SQL.
    """

    name: str = TEXT
    length: int | None = None
    scale: int | None = None
    precision: int | None = None

    @property
    def spark(self) -> T.DataType:
        """The type of a column of it."""
        if self.name == DECIMAL and self.scale is not None and self.precision is not None:
            return T.DecimalType(self.scale, self.precision)
        return SPARK_TYPES[self.name]


@dataclass(frozen=True)
class FieldMapping:
    """How one field of a target is read from a record."""

    reference: str
    source: str
    type: FieldType
    key: str | None
    """The alternative key of which it is a part; None if it is no key."""
    priority: int | None
    link_entity: str | None = None
    link_key: tuple[str, ...] = ()
    source_link_key: tuple[str, ...] = ()
    autocreate: bool = False
    child_entity: str | None = None
    parent_identifier: str | None = None
    child_sequence: str | None = None
    """The field of a child that holds its number in the list."""
    source_child_sequence: str | None = None
    """The name under which the record of a child is given that number."""

    @property
    def is_needed(self) -> bool:
        """Whether it is a link that must lead to what exists."""
        return self.type.name == LINK and not self.autocreate


@dataclass(frozen=True)
class FilterMapping:
    """A filter by the name under which it was given to the hub, and what it is to be called with."""

    name: str
    config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class EntityMapping:
    """How records of a source entity become rows of one target."""

    reference: str
    fields: tuple[FieldMapping, ...]
    priority: int = 0
    reader: str = "json"
    reader_config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    filters: tuple[FilterMapping, ...] = ()
    unique_identifier: str | None = None
    """Where the message's identifier is put into each record; None unless the mapping is unique."""
    unique_sequence: str | None = None
    export: bool = False
    export_identifier: str | None = None
    export_standard_fields: bool = False

    @property
    def columns(self) -> tuple[FieldMapping, ...]:
        """The fields that are columns of the target: all but children and the deleted indicator."""
        return tuple(
            field
            for field in self.fields
            if field.type.name != CHILDREN and field.reference != DELETED_INDICATOR
        )

    @property
    def links(self) -> tuple[FieldMapping, ...]:
        """The columns that lead to other entities."""
        return tuple(column for column in self.columns if column.type.name == LINK)

    @property
    def children(self) -> tuple[FieldMapping, ...]:
        """The fields that hold records of child entities."""
        return tuple(field for field in self.fields if field.type.name == CHILDREN)

    @property
    def brings_others(self) -> bool:
        """Whether its records hold others, or make what they link to."""
        return bool(self.children) or any(column.autocreate for column in self.columns)

    @property
    def deleted_source(self) -> str:
        """The name under which a record says that it deletes."""
        named = (field.source for field in self.fields if field.reference == DELETED_INDICATOR)
        return next(named, DELETED_INDICATOR)

    @property
    def time_source(self) -> str | None:
        """The name under which a record of a message says from when on it is true; None for the message's."""
        name: str | None = self.reader_config.get("timestamp")
        return name

    @property
    def alternatives(self) -> tuple[tuple[str, ...], ...]:
        """The keys by which its records find their entity: the target fields of each."""
        names = dict.fromkeys(column.key for column in self.columns if column.key is not None)
        return tuple(
            tuple(column.reference for column in self.columns if column.key == name) for name in names
        )


@dataclass(frozen=True)
class SourceSystem:
    """A set of rules under a name: for each source entity the targets that its records go to."""

    reference: str
    mappings: Mapping[str, tuple[EntityMapping, ...]]


@dataclass(frozen=True)
class Place:
    """Where a mapping stands: its system, its source entity, and which of that entity's targets it is."""

    system: str
    entity: str
    index: int

    def __str__(self) -> str:
        return f"{self.system}:mappings.{self.entity}[{self.index}]"

    def path(self, mapping: EntityMapping, field: FieldMapping) -> str:
        """Say where a field of the mapping stands in the document."""
        return f"{self}.fields[{mapping.fields.index(field)}]"


@dataclass(frozen=True)
class Target:
    """A target entity: its fields, its keys, and the mappings that write it."""

    entity: str
    fields: Mapping[str, FieldType]
    alternatives: tuple[tuple[str, ...], ...]
    mappings: Mapping[Place, EntityMapping]
    export: bool

    @property
    def strict(self) -> bool:
        """Whether every mapping finds its entities by the same key: then the key gives the guid."""
        return len(self.alternatives) == 1

    @property
    def weak(self) -> bool:
        """Whether any of several keys finds its entities."""
        return len(self.alternatives) > 1

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields that are part of a key, in the order of the fields."""
        named = {name for alternative in self.alternatives for name in alternative}
        return tuple(name for name in self.fields if name in named)

    @property
    def data(self) -> T.StructType:
        """The type of the business fields."""
        return T.StructType([T.StructField(name, kind.spark) for name, kind in self.fields.items()])

    @property
    def links(self) -> tuple[str, ...]:
        """The fields that lead to other entities."""
        return tuple(name for name, kind in self.fields.items() if kind.name == LINK)


_Item = TypeVar("_Item")


class InvalidSchema(ErrorWithFacts, ValueError):
    """A document that describes a source system cannot be followed."""

    path: str
    needed: str
    found: object
    sentence = "{path} must be {needed}; it is {found!r}."

    @classmethod
    def require(cls, sound: object, path: str, needed: str, found: object) -> None:
        """Raise this error unless it is sound."""
        if not sound:
            raise cls(path, needed, found)


require = InvalidSchema.require


class DocumentObject:
    """
    A JSON object of a document, and where in the document it stands.

    Whatever is not as it is needed raises `InvalidSchema`.  A property that is null is one that is left out.

    Args:
        value: What stands there.
        path: Where.
        allowed: The properties that it may have; another one would be a rule that silently does not hold.

    >>> DocumentObject({"name": "a", "keys": "x, y"}, "$", {"name", "keys"}).names("keys")
    ('x', 'y')
    >>> DocumentObject({"nmae": "a"}, "$.queue", {"name"})
    Traceback (most recent call last):
    ...
    cdckit.datahub.mappings.InvalidSchema: $.queue must be an object of name; it is ['nmae'].
    """

    def __init__(self, value: Any, path: str, allowed: set[str]) -> None:
        self.value, self.path = value, path
        require(isinstance(value, Mapping), path, "an object", value)
        unknown = sorted(set(value) - allowed)
        require(not unknown, path, f"an object of {', '.join(sorted(allowed))}", unknown)

    def require(self, sound: object, name: str, needed: str, found: object) -> None:
        """Raise `InvalidSchema` unless the property of that *name* is sound."""
        require(sound, f"{self.path}.{name}", needed, found)

    def _value(self, name: str, needed: str, fits: Callable[[Any], object]) -> Any:
        """A property that may be left out; if it is there, it is as *needed*."""
        value = self.value.get(name)
        self.require(value is None or fits(value), name, needed, value)
        return value

    def text(self, name: str) -> str | None:
        """A text that may be left out."""
        text: str | None = self._value(name, "a text that is not empty", is_name)
        return text

    def needed_text(self, name: str) -> str:
        """A text that may not."""
        self.require(self.text(name), name, "a text that is not empty", None)
        return str(self.text(name))

    def flag(self, name: str) -> bool:
        """True or false; false without it."""
        return bool(self._value(name, "true or false", lambda value: isinstance(value, bool)))

    def number(self, name: str, allowed: range) -> int | None:
        """A whole number that may be left out."""
        needed = f"a whole number from {allowed.start} to {allowed.stop - 1}"
        number: int | None = self._value(name, needed, lambda value: type(value) is int and value in allowed)
        return number

    def config(self, name: str) -> Mapping[str, Any]:
        """An object of anything; empty without it."""
        config = self._value(name, "an object", lambda value: isinstance(value, Mapping))
        return MappingProxyType(dict(config or {}))

    def names(self, name: str) -> tuple[str, ...]:
        """Distinct names, as a list or a text with commas; none without it."""
        value = self.value.get(name)
        listed = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if listed is None:
            return ()
        are_names = isinstance(listed, Sequence) and listed and all(map(is_name, listed))
        self.require(are_names, name, "one or more names: a list, or a text with commas", value)
        self.require(len(set(listed)) == len(listed), name, "distinct names", value)
        return tuple(listed)

    def items(self, name: str, of: Callable[[Any, str], _Item]) -> tuple[_Item, ...]:
        """Let *of* read each item of a list that must be there, with something in it, and its path."""
        items: Any = self.value.get(name)
        is_list = isinstance(items, Sequence) and not isinstance(items, str) and items
        self.require(is_list, name, "a list that is not empty", items)
        return tuple(of(item, f"{self.path}.{name}[{index}]") for index, item in enumerate(items))


def is_name(value: Any) -> bool:
    """Tell whether it is a text that is not empty."""
    return isinstance(value, str) and value != ""


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

_NEEDED = {LINK: ("linkEntity", "linkKey"), CHILDREN: ("childEntity", "parentIdentifier")}
"""The properties that a field of a type cannot do without."""
_OPTIONAL = {
    LINK: ("sourceLinkKey", "autocreate"),
    CHILDREN: ("sourceParentIdentifier", "childSequence", "sourceChildSequence"),
}
"""Those that it may have: on a field of another type all of these would mean nothing."""

_MAX_DIGITS = 38
_INT32 = range(-(2**31), 2**31)


def source_system(document: Mapping[str, Any]) -> SourceSystem:
    """The source system that *document* describes, by itself; `Schema` checks what lies between systems."""
    properties = DocumentObject(document, "$", _SYSTEM)
    reference, stated = properties.needed_text("reference"), properties.value.get("mappings")
    path = f"{reference}:mappings"
    mappings = DocumentObject(stated, path, set(stated) if isinstance(stated, Mapping) else set())
    by_entity = {}
    for entity in mappings.value:
        require(is_name(entity), path, "an object of source entities", entity)
        by_entity[entity] = mappings.items(entity, _entity)
        _require_distinct([mapping.reference for mapping in by_entity[entity]], f"{path}.{entity}", "targets")
    return SourceSystem(reference, MappingProxyType(by_entity))


def _entity(value: Any, path: str) -> EntityMapping:
    if isinstance(value, Mapping) and "dataStore" in value:
        needed = "left out: a hub keeps every target in tables of its own, and hands exports to a sink"
        raise InvalidSchema(f"{path}.dataStore", needed, value["dataStore"])
    document = DocumentObject(value, path, _ENTITY)
    fields = document.items("fields", _field)
    _require_distinct(
        [field.reference.lower() for field in fields], f"{path}.fields", "references, in any case"
    )
    unique, export, filters = (
        document.flag("unique"),
        document.flag("export"),
        document.value.get("messageFilters"),
    )
    mapping = EntityMapping(
        reference=document.needed_text("reference"),
        fields=fields,
        priority=document.number("priority", _INT32) or 0,
        reader=document.text("messageReader") or "json",
        reader_config=document.config("messageReaderConfig"),
        filters=() if filters is None else document.items("messageFilters", _filter),
        unique_identifier=_unique(document, fields, "uniqueIdentifier", needed=True) if unique else None,
        unique_sequence=_unique(document, fields, "uniqueSequence", needed=False) if unique else None,
        export=export,
        export_identifier=document.text("exportIdentifier"),
        export_standard_fields=document.flag("exportStandardFields"),
    )
    timed = mapping.time_source is None or is_name(mapping.time_source)
    document.require(timed, "messageReaderConfig.timestamp", "the name of a property", mapping.time_source)
    document.require(mapping.columns, "fields", "of at least one field that is a column", [])
    document.require(export or mapping.alternatives, "fields", "of at least one field with a key", "none")
    named, references = mapping.export_identifier, [column.reference for column in mapping.columns]
    document.require(named is None or named in references, "exportIdentifier", "one of the fields", named)
    children = [child.reference for child in mapping.children]
    document.require(not (export and children), "fields", "free of children, being exported", children)
    return mapping


def _unique(
    document: DocumentObject, fields: tuple[FieldMapping, ...], name: str, *, needed: bool
) -> str | None:
    """The name under which the record is given the identifier, or the number, that makes it unique."""
    target = document.needed_text(name) if needed else document.text(name)
    if target is None:
        return None
    source = document.text("source" + name[0].upper() + name[1:]) or target
    keys = {field.reference: field.source for field in fields if field.key}
    document.require(target in keys, name, "one of the fields that are keys", target)
    document.require(keys[target] == source, name, f"read from {source!r}", keys[target])
    return source


def _filter(value: Any, path: str) -> FilterMapping:
    document = DocumentObject({"name": value} if isinstance(value, str) else value, path, {"name", "config"})
    return FilterMapping(document.needed_text("name"), document.config("config"))


def _field(value: Any, path: str) -> FieldMapping:
    document = DocumentObject(value, path, _FIELD)
    reference, kind, key = document.needed_text("reference"), _type(document), _key(document)
    inexact = key is not None and kind.name in KEYLESS_TYPES
    document.require(not inexact, "type", "a type with an exact text, being a key", kind.name)
    taken = reference.lower() in STANDARD_COLUMNS and reference != DELETED_INDICATOR
    document.require(not taken, "reference", "another name than a standard column's", reference)
    for of, names in _NEEDED.items():
        for name in (*names, *_OPTIONAL[of]):
            stated = document.value.get(name)
            document.require(not stated or kind.name == of, name, f"absent from a {kind.name}", stated)
    for name in _NEEDED.get(kind.name, ()):
        document.require(document.value.get(name) is not None, name, "stated", None)
    link_key = document.names("linkKey")
    source_link_key = document.names("sourceLinkKey") or link_key
    needed, are_as_many = f"as many names as linkKey, {len(link_key)}", len(link_key) == len(source_link_key)
    document.require(are_as_many, "sourceLinkKey", needed, source_link_key)
    # Nothing follows from it: the link of a child is the parent that it stands in, whatever that is called.
    document.text("sourceParentIdentifier")
    child_sequence, source_child_sequence = map(document.text, ("childSequence", "sourceChildSequence"))
    return FieldMapping(
        reference=reference,
        source=document.text("sourceReference") or reference,
        type=kind,
        key=key,
        priority=document.number("priority", _INT32),
        link_entity=document.text("linkEntity"),
        link_key=link_key,
        source_link_key=source_link_key,
        autocreate=document.flag("autocreate"),
        child_entity=document.text("childEntity"),
        parent_identifier=document.text("parentIdentifier"),
        child_sequence=child_sequence,
        source_child_sequence=source_child_sequence or child_sequence,
    )


def _type(text: DocumentObject) -> FieldType:
    name = text.text("type") or TEXT
    text.require(name in SPARK_TYPES, "type", f"one of {', '.join(SPARK_TYPES)}", name)
    length = text.number("length", range(1, 2**31))
    scale = text.number("scale", range(1, _MAX_DIGITS + 1))
    precision = text.number("precision", range(_MAX_DIGITS + 1))
    for measure, kind in (("length", TEXT), ("scale", DECIMAL), ("precision", DECIMAL)):
        stated = text.value.get(measure)
        text.require(stated is None or name == kind, measure, f"absent from a {name}", stated)
    if name != DECIMAL:
        return FieldType(name, length)
    text.require(scale is not None, "scale", "stated: how many digits a decimal has in all", None)
    assert scale is not None
    needed = f"stated, and at most scale, {scale}: how many of the digits are decimals"
    text.require(precision is not None and precision <= scale, "precision", needed, precision)
    return FieldType(name, None, scale, precision)


def _key(document: DocumentObject) -> str | None:
    key = document.value.get("key")
    if key is None or isinstance(key, bool):
        return MAIN_KEY if key else None
    names_a_key = is_name(key) and key.lower() not in ("true", "false")
    document.require(names_a_key, "key", "true, false, or the name of an alternative key", key)
    return str(key)


def _require_distinct(names: Sequence[str], path: str, what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, path, f"of distinct {what}", twice)
