"""Entity types: what the entities of a collection have in common; a fold over schema-learning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdckit.parts.fold import Fold, FoldPlan, Result
from cdckit.parts.instants import parse_instant
from cdckit.streams.catalogue import LOG_ORDER, LOGS, SCHEMA_LEARNING
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.patches import step_text

STRING, BOOLEAN, INTEGER, LONG, DOUBLE = "STRING", "BOOLEAN", "INTEGER", "LONG", "DOUBLE"
BIG_INTEGER, DECIMAL, TIMESTAMP, UUID, DOCUMENT = "BIG_INTEGER", "DECIMAL", "TIMESTAMP", "UUID", "DOCUMENT"

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WIDER = {frozenset((INTEGER, LONG)): LONG, frozenset((INTEGER, DOUBLE)): DOUBLE}
_SHORTEST_INSTANT = len("2024-01-01T10:00Z")


def value_type(value: Any) -> str | None:
    """
    The type of a JSON value; None for null, which is of every type.

    An array is a STRING: the page's types have none for it.

    >>> values = (1, 2**40, 2**70, Decimal("0.5"), "2024-01-01T10:00:00Z", "x", {}, None)
    >>> [value_type(each) for each in values]
    ['INTEGER', 'LONG', 'BIG_INTEGER', 'DOUBLE', 'TIMESTAMP', 'STRING', 'DOCUMENT', None]
    """
    if value is None or isinstance(value, bool):
        return None if value is None else BOOLEAN
    if isinstance(value, int):
        bits = (value if value >= 0 else ~value).bit_length()
        return INTEGER if bits < 32 else LONG if bits < 64 else BIG_INTEGER
    if isinstance(value, Decimal):
        return DOUBLE if Decimal(repr(float(value))) == value else DECIMAL
    if isinstance(value, str):
        if _UUID.fullmatch(value):
            return UUID
        is_instant = len(value) >= _SHORTEST_INSTANT and parse_instant(value) is not None
        return TIMESTAMP if is_instant else STRING
    return DOCUMENT if isinstance(value, dict) else STRING


def common_type(types: Iterable[str]) -> str:
    """
    The one type of a field that was of these: a matter of the set, not of the order.

    >>> common_type(["LONG", "INTEGER"]), common_type(["INTEGER", "DOUBLE", "LONG"]), common_type([])
    ('LONG', 'STRING', 'STRING')
    """
    kinds = frozenset(types)
    return next(iter(kinds)) if len(kinds) == 1 else _WIDER.get(kinds, STRING)


def typed_paths(document: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """
    The fields of a document with their types, nested ones under the path to them.

    >>> dict(typed_paths({"phone": {"home": "1"}, "age": 3}))
    {'phone': 'DOCUMENT', 'age': 'INTEGER', 'phone/home': 'STRING'}
    """
    inside = [("", document)]
    while inside:
        before, holder = inside.pop(0)
        for name, value in holder.items():
            path = before + step_text(name)
            yield path, value_type(value)
            if isinstance(value, dict):
                inside.append((f"{path}/", value))


_MOST_FIELDS = 10_000
_LONGEST_NAME = 1_000  # 100 names within each other may have 50 megabytes, of a document of one


TYPE_STATE = pa.schema([("entity_type", pa.string()), ("lessons", pa.string())])
"""An entity type as JSON text, and what it was made of."""
LESSON = pa.schema([("changed_type", pa.string()), ("entities", pa.int32())])
"""What a message of schema-learning taught."""


class EntityType(Fold):
    """
    An entity type: how many entities there are, how many have each field, and of which types it was.

    What a schema declares of a field counts more than what is seen of it.  Types only widen: a field stays
    of the type that it was once seen with; one that was null each time has none yet, and is not told.  Of
    more than 10,000 fields the later ones are not learnt, nor is one whose path has more than 1,000
    characters.
    """

    def __init__(self, state: Result | None = None) -> None:
        type_, lessons = state or (None, None)
        learned = read(lessons or "{}")
        self.type: str | None = type_
        self.entities: int = learned.get("entities", 0)
        self.declared: dict[str, Any] = learned.get("declared", {})
        fields = learned.get("fields", {})
        self.counts: dict[str, int] = {path: count for path, (count, _) in fields.items()}
        self.types: dict[str, set[str]] = {path: set(types) for path, (_, types) in fields.items()}
        self.always: set[str] | None = None

    def state(self) -> Result:
        """The entity type, and what it was made of (`TYPE_STATE`)."""
        fields = {path: [count, sorted(self.types[path])] for path, count in sorted(self.counts.items())}
        lessons = {"entities": self.entities, "fields": fields, "declared": self.declared}
        return self.type, column_text(to_text(lessons)) or ""

    def take(self, is_type: bool, collection: str, before: str | None, after: str | None) -> Result:
        """The entity type if the message changed it, and how many entities there are (`LESSON`)."""
        if is_type:
            self.declared, is_new = _fields_declared(after, collection), True
        else:
            # Both are counted, whatever the first one says.
            is_new = any([self._count(before, -1), self._count(after, 1)])
        always = {path for path, count in self.counts.items() if count >= self.entities}
        # To sort and write all fields takes much longer than to see that they are as they were.
        if always == self.always and not is_new:
            return None, self.entities
        self.always = always
        schema = column_text(to_text({collection: {"fields": self._fields()}}))
        changed = schema if schema != self.type else None
        self.type = schema
        return changed, self.entities

    def _count(self, text: str | None, by: int) -> bool:
        """Count an entity in or out; whether a field, or a type of one, is new."""
        if text is None:
            return False
        self.entities += by
        is_new = False
        for path, kind in typed_paths(read(text)):
            if path not in self.counts:
                if len(path) > _LONGEST_NAME or len(self.counts) >= _MOST_FIELDS:
                    continue
                self.counts[path], self.types[path], is_new = 0, set(), True
            self.counts[path] += by
            if by > 0 and kind is not None and kind not in self.types[path]:
                self.types[path].add(kind)
                is_new = True
        return is_new

    def _fields(self) -> dict[str, Any]:
        seen = {
            path: {"type": common_type(self.types[path]), "optional": count < self.entities}
            for path, count in self.counts.items()
            if self.types[path]
        }
        fields = {**seen, **self.declared}
        return {path: fields[path] for path in sorted(fields)}


TYPE = ("db", "collection")
"""The key of an entity type."""
_READS = ("is_type", "collection", "before", "after")
TYPE_PLAN = FoldPlan(TYPE, _READS, LESSON, EntityType, TYPE_STATE, order=LOG_ORDER, logs=LOGS)
"""How entity types are learnt from messages of schema-learning."""


def _fields_declared(text: str | None, collection: str) -> dict[str, Any]:
    declared = read(text) if text else None
    type_ = declared.get(collection) if isinstance(declared, dict) else None
    fields = type_.get("fields") if isinstance(type_, dict) else None
    return fields if isinstance(fields, dict) else {}


_FIELDS = SCHEMA_LEARNING.columns()
DECLARED_TYPE = pa.schema(list(map(_FIELDS.field, ("collection", "part", "parts", "after"))))
"""One entity type of a schema: its name; that it is the i-th of n, without i where it was removed; and an
object with this type alone, which is null where it was removed."""


def declared_types(before: str | None, after: str | None) -> Iterator[Result]:
    """The entity types of a schema, and those that an update of it removed (`DECLARED_TYPE`)."""
    now, was = _types_in(after), _types_in(before)
    for part, name in enumerate(sorted(now), 1):
        yield column_text(name), part, len(now), column_text(to_text({name: now[name]}))
    for name in sorted(was.keys() - now.keys()):
        yield column_text(name), None, len(now), column_text(to_text({name: None}))


def _types_in(text: str | None) -> dict[str, Any]:
    return {name: type_ for name, type_ in read(text or "{}").items() if type_ is not None}
