"""The data hub, one record and one change at a time: the deliberately naive reading of its rules.

`cdckit.datahub` is compared with this on hand-written cases and on random programs, so nothing here is
clever.  What a schema says and how a value converts it takes from the library, where cases by hand judge
that; everything behind is its own, but for the fold of the merge.  Every run starts again from all messages.
Speed is no aim.

The stages of `interpret`, in order: messages are expanded into *units* (one record under one mapping), units
get their guid, links are looked up, the units that wait are found, and each target is walked from its first
change to its last over a plain dict of entities.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from cdckit import datahub
from cdckit.datahub import mappings as datahub_mappings
from cdckit.datahub import readers
from cdckit.datahub.conversions import ConvertedColumn, convert_values
from cdckit.datahub.mappings import EntityMapping, FieldMapping, FieldType
from support import fold

Row = dict[str, Any]
Reader = Callable[..., Iterable[Any]]
Filter = Callable[..., Any]

NOT_PROCESSED, REQUIRES_REPROCESSING, PREVIOUSLY_RECEIVED, SUCCESS = 0, 1, 5, 10
MESSAGE_INVALID, SYSTEM_NOT_FOUND, ENTITY_NOT_FOUND, DATA_INVALID, REPROCESS_TIMEOUT = 22, 23, 24, 25, 26

AFTER_THE_RECORDS = 10**9
MAXIMUM_AGE = timedelta(days=40)


# The schema ----------------------------------------------------------------------------------------------


class Mapping:
    """An entity mapping of a source system."""

    def __init__(self, system: str, rules: EntityMapping) -> None:
        self.system, self.rules, self.target, self.fields = system, rules, rules.reference, rules.columns
        self.alternatives = [frozenset(alternative) for alternative in rules.alternatives]
        # None where it is that of the mapping.
        self.field_priorities = {each.reference: each.priority for each in self.fields}


class Target:
    """A target entity, from all mappings that write it."""

    def __init__(self, rules: datahub_mappings.Target) -> None:
        self.name, self.keys, self.strict = rules.entity, rules.keys, rules.strict
        self.alternatives, self.exported = rules.alternatives, rules.export
        self.fields: dict[str, FieldMapping] = {}
        self.mappings: list[Mapping] = []


class Schema:
    """All source systems together."""

    def __init__(self, documents: Sequence[Row]) -> None:
        self.systems: dict[str, dict[str, list[Mapping]]] = {}
        schema = datahub.schema(*documents)
        self.targets = {name: Target(rules) for name, rules in schema.targets.items()}
        for system, rules in schema.systems.items():
            self.systems[system] = {
                entity: [Mapping(system, each) for each in mappings]
                for entity, mappings in rules.mappings.items()
            }
            for mappings in self.systems[system].values():
                for mapping in mappings:
                    self.add(mapping)

    def add(self, mapping: Mapping) -> None:
        target = self.targets[mapping.target]
        target.mappings.append(mapping)
        for each in mapping.fields:
            target.fields.setdefault(each.reference, each)

    def child_mappings(self, system: str, children: FieldMapping) -> list[Mapping]:
        return self.systems[system][str(children.child_entity)]

    def linked_target(self, system: str, link: FieldMapping) -> str:
        mappings = self.systems[system].get(str(link.link_entity))
        return mappings[0].target if mappings else str(link.link_entity)

    def linked_fields(self, system: str, link: FieldMapping) -> list[tuple[str, FieldMapping]]:
        """The key fields that a link's key may name, each with the name that it goes by there."""
        keys = self.targets[self.linked_target(system, link)].keys
        mappings = self.systems[system].get(str(link.link_entity))
        if mappings:
            return [(each.source, each) for each in mappings[0].fields if each.reference in keys]
        own = self.targets[str(link.link_entity)].fields.values()
        return [(each.reference, each) for each in own if each.reference in keys]

    def linked_priority(self, system: str, link: FieldMapping) -> int:
        mappings = self.systems[system].get(str(link.link_entity))
        return mappings[0].rules.priority if mappings else 0

    def children_of(self, system: str, target: str) -> list[tuple[FieldMapping, Mapping]]:
        """The children fields of that system's mappings for that target, with their child mappings."""
        return [
            (children, child)
            for mappings in self.systems[system].values()
            for mapping in mappings
            if mapping.target == target
            for children in mapping.rules.children
            for child in self.child_mappings(system, children)
        ]

    def parents_first(self) -> list[Target]:
        """The targets, every one behind those that have it as children."""
        parents: dict[str, set[str]] = {name: set() for name in self.targets}
        for name in self.targets:
            for system in self.systems:
                for _, child in self.children_of(system, name):
                    parents[child.target].add(name)
        ordered: list[Target] = []
        while len(ordered) < len(self.targets):
            done = {target.name for target in ordered}
            ordered += [t for n, t in self.targets.items() if n not in done and parents[n] <= done]
        return ordered


# Values --------------------------------------------------------------------------------------------------


class ValueInvalid(Exception):
    """A value is not of the type of its field."""


CONVERTED: dict[tuple[str, FieldType], ConvertedColumn] = {}


def convert(value: Any, kind: FieldType) -> Any:
    """The value as the type wants it: how, is for the cases of conversions to judge."""
    same = (repr(value), kind)
    if same not in CONVERTED:
        CONVERTED[same] = convert_values([value], kind)
    if CONVERTED[same].errors:
        raise ValueInvalid(CONVERTED[same].errors[0])
    return CONVERTED[same].values[0].as_py()


def read_json(data: Any, _config: Row) -> Iterable[Any]:
    if isinstance(data, list):
        return data
    if isinstance(data, dict):
        return [data]
    raise ValueError("the data is no array and no object")


def read_csv(data: Any, config: Row) -> Iterable[Any]:
    return readers.read_csv(json.dumps(data), readers.Context("", "", "", config, {}))


READERS: dict[str, Reader] = {"json": read_json, "csv": read_csv}


# Messages ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Message:
    """A message as the message store has it."""

    identifier: str
    system: str
    entity: str
    message_timestamp: datetime
    effective_timestamp: datetime
    arrival: tuple[Any, ...]
    refresh: bool
    data: Any
    error: tuple[int, str] | None = None
    units: list[Unit] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


OPTIONAL: dict[str, type] = {
    "system": str, "timestamp": str, "user": str, "refresh": bool, "process": bool, "options": dict,
    "guid": str,
}  # fmt: skip


def read_message(received: Row) -> Message | None:
    """The message of a document, or None when it is no message."""
    document = received["document"]
    if not isinstance(document, dict) or not isinstance(document.get("entity"), str):
        return None
    if not document.keys() <= {"entity", "data", *OPTIONAL}:
        return None
    for name, kind in OPTIONAL.items():
        if document.get(name) is not None and not isinstance(document[name], kind):
            return None
    effective = message_time = received["message_timestamp"]
    if document.get("timestamp") is not None:
        try:
            effective = convert(document["timestamp"], FieldType("timestamp"))
        except ValueInvalid:
            return None
    place = (received["topic"], received["partition"], received["offset"])
    guid = document.get("guid")
    return Message(
        identifier=guid or str(uuid.uuid5(fold.NAMESPACE, "/".join(map(str, place)))),
        system=document.get("system") or "*",
        entity=document["entity"],
        message_timestamp=message_time,
        effective_timestamp=effective,
        arrival=(message_time, *place),
        refresh=bool(document.get("refresh")),
        data=document.get("data"),
    )


# Units: one record under one mapping ---------------------------------------------------------------------


@dataclass(eq=False)
class LinkKey:
    """A link whose guid is still to be found: the linked target and the values of its key fields."""

    link: FieldMapping
    target: str
    parts: Row  # target field: a value, or again a LinkKey


@dataclass(eq=False)
class ParentLink:
    """The link of a child to the record that lists it."""

    parent: Unit


class Missing:
    """What a link leads to that leads to nothing."""


class Several:
    """What a link leads to that leads to more than one entity."""


MISSING, SEVERAL = Missing(), Several()


@dataclass(eq=False)
class Unit:
    """What one record says under one mapping."""

    message: Message
    path: str
    mapping: Mapping
    parent: Unit | None
    operation: str = "upsert"
    dropped: bool = False
    values: Row = field(default_factory=dict)  # what is carried; a link is a LinkKey until it is looked up
    bad: set[str] = field(default_factory=set)  # the fields that could not be converted
    error: str | None = None  # found before links are looked up
    late_error: str | None = None  # found when links are looked up
    guid: str | None = None
    links: Row = field(default_factory=dict)  # link field: guid, None, MISSING or SEVERAL
    waits: bool = False

    def name(self) -> tuple[str, str, str, int, str]:
        """Names the unit in every run, so that it can be remembered as given up."""
        same = [each for each in self.message.units if each.path == self.path]
        return (self.message.identifier, self.path, self.mapping.target, same.index(self), self.operation)

    def processed(self) -> bool:
        """Whether the record is looked at at all: not below a record that is in error."""
        above = self.parent
        return above is None or (above.error is None and above.late_error is None and above.processed())

    def valid(self) -> bool:
        """Whether nothing was wrong with it and with the records above it, before links are looked up."""
        return not self.dropped and self.error is None and (self.parent is None or self.parent.valid())

    def applied(self) -> bool:
        return self.valid() and self.late_error is None and not self.waits and self.processed()


@dataclass(eq=False)
class Operation:
    """Something to do at one place of a message."""

    place: int
    kind: str  # "unit", "autocreate", "unlisted", "refresh" or "cascade"
    target: str
    message: Message
    unit: Unit | None = None
    link: FieldMapping | None = None
    priority: int = 0
    field_priorities: Row = field(default_factory=dict)
    seen: list[Unit] = field(default_factory=list)
    parent_field: str | None = None
    parent_guid: str | None = None


class Expansion:
    """All units and operations of one message, in their order."""

    def __init__(self, schema: Schema, message: Message, readers: Row, filters: Row) -> None:
        self.schema, self.message, self.readers, self.filters = schema, message, readers, filters
        self.records = 0

    def run(self) -> None:
        message = self.message
        if message.system not in self.schema.systems:
            message.error = (SYSTEM_NOT_FOUND, "SYSTEM_NOT_FOUND")
            return
        mappings = self.schema.systems[message.system].get(message.entity)
        if mappings is None:
            message.error = (ENTITY_NOT_FOUND, "ENTITY_NOT_FOUND")
            return
        try:
            read = [
                list(self.readers[mapping.rules.reader](message.data, mapping.rules.reader_config))
                for mapping in mappings
            ]
        except Exception:
            message.error = (DATA_INVALID, "DATA_INVALID")
            return
        for number in range(1, max(map(len, read)) + 1):
            pairs = [
                (mapping, records[number - 1])
                for mapping, records in zip(mappings, read, strict=True)
                if number <= len(records)
            ]
            self.expand(str(number), number, pairs, None, None)
        if message.refresh:
            for mapping in mappings:
                if not mapping.rules.export:
                    self.refresh(mapping)

    def refresh(self, mapping: Mapping) -> None:
        seen = [unit for unit in self.message.units if unit.mapping.target == mapping.target]
        self.add(
            "refresh", mapping.target, priority=mapping.rules.priority,
            field_priorities=mapping.field_priorities, seen=seen,
        )  # fmt: skip

    def expand(
        self,
        path: str,
        number: int,
        records: list[tuple[Mapping, Any]],
        parent: Unit | None,
        children: FieldMapping | None,
    ) -> list[Unit]:
        """The units of one record, each with the units of its children behind it."""
        self.records += 1
        made = []
        for mapping, given in records:
            unit = Unit(self.message, path, mapping, parent)
            self.message.units.append(unit)
            made.append((unit, self.read(unit, given, number, children)))
            for link in mapping.fields:
                if link.autocreate:
                    target = self.schema.linked_target(mapping.system, link)
                    priority = self.schema.linked_priority(mapping.system, link)
                    self.add("autocreate", target, unit=unit, link=link, priority=priority)
            self.add("unit", mapping.target, unit=unit)
        for unit, record in made:
            if record is not None and unit.error is None and unit.operation == "upsert":
                for each in unit.mapping.rules.children:
                    if each.source in record:
                        self.expand_children(unit, each, record[each.source])
        return [unit for unit, _ in made]

    def expand_children(self, parent: Unit, children: FieldMapping, records: list[Any]) -> None:
        mappings = self.schema.child_mappings(parent.mapping.system, children)
        seen: list[Unit] = []
        for number, record in enumerate(records, start=1):
            path = f"{parent.path}/{children.source}/{number}"
            seen += self.expand(path, number, [(each, record) for each in mappings], parent, children)
        for mapping in mappings:
            self.add(
                "unlisted", mapping.target, unit=parent, priority=mapping.rules.priority,
                field_priorities=mapping.field_priorities, seen=seen,
                parent_field=children.parent_identifier,
            )  # fmt: skip

    def add(self, kind: str, target: str, **properties: Any) -> None:
        place = len(self.message.operations)
        self.message.operations.append(Operation(place, kind, target, self.message, **properties))

    def read(self, unit: Unit, given: Any, number: int, children: FieldMapping | None) -> Row | None:
        """Fill the unit from its record; the record as the filters left it, if they did."""
        mapping = unit.mapping
        if not isinstance(given, dict):
            unit.error = "RECORD_INVALID"
            return None
        record: Any = dict(given)
        try:
            for each in mapping.rules.filters:
                record = self.filters[each.name](record, each.config)
                if record is None:
                    unit.dropped = True
                    return None
            record = dict(record)
        except Exception:
            unit.error = "FILTER_FAILED"
            return None
        if mapping.rules.unique_identifier:
            record[mapping.rules.unique_identifier] = self.message.identifier
        if mapping.rules.unique_sequence:
            record[mapping.rules.unique_sequence] = self.records
        if children is not None and children.source_child_sequence:
            record[children.source_child_sequence] = number
        self.read_deleted_indicator(unit, record)
        for each in mapping.fields:
            self.read_field(unit, each, record, children)
        if unit.operation == "upsert":
            for each in mapping.rules.children:
                if each.source in record and not isinstance(record[each.source], list):
                    unit.error = unit.error or "CHILDREN_INVALID"
        return dict(record)

    def read_deleted_indicator(self, unit: Unit, record: Row) -> None:
        try:
            if convert(record.get(unit.mapping.rules.deleted_source), FieldType("boolean")):
                unit.operation = "delete"
        except ValueInvalid:
            unit.error = unit.error or "VALUE_INVALID"

    def read_field(self, unit: Unit, each: FieldMapping, record: Row, children: FieldMapping | None) -> None:
        try:
            if children is not None and each.reference == children.parent_identifier:
                unit.values[each.reference] = ParentLink(unit.parent)  # type: ignore[arg-type]
            elif each.type.name == "link":
                if any(name in record for name in each.source_link_key):
                    unit.values[each.reference] = self.link_key(each, record, each.source_link_key)
            elif each.source in record:
                unit.values[each.reference] = convert(record[each.source], each.type)
        except ValueInvalid:
            unit.bad.add(each.reference)
            unit.error = unit.error or "VALUE_INVALID"

    def link_key(self, link: FieldMapping, record: Row, sources: list[str]) -> LinkKey | None:
        """The key of the linked entity, from the values of the record under those names."""
        system = self.message.system
        given = {name: record.get(source) for name, source in zip(link.link_key, sources, strict=True)}
        if all(value is None for value in given.values()):
            return None
        parts: Row = {}
        for name, each in self.schema.linked_fields(system, link):
            if each.type.name == "link" and set(each.source_link_key) & set(given):
                parts[each.reference] = self.link_key(each, given, each.source_link_key)
            elif name in given:
                parts[each.reference] = convert(given[name], each.type)
        return LinkKey(link, self.schema.linked_target(system, link), parts)


# Who is meant --------------------------------------------------------------------------------------------


Claim = tuple[tuple[str, ...], tuple[Any, ...]]


class Identities:
    """The guids of all units, and where their links lead."""

    def __init__(self, schema: Schema, messages: Sequence[Message]) -> None:
        self.schema, self.messages = schema, sorted(messages, key=when)
        self.units = [unit for message in messages for unit in message.units]
        # Of each target with weak keys: what its entities held in their key fields from which instants on.
        self.held: dict[str, dict[str, list[tuple[datetime, Row]]]] = {name: {} for name in schema.targets}
        self.begun: set[str] = set()

    def run(self) -> None:
        for name in self.schema.targets:
            self.identify(name)
        valid = [unit for unit in self.units if unit.valid()]
        found = [self.lookup_links(unit, valid) for unit in self.units]
        for unit, ambiguous in zip(self.units, found, strict=True):
            if ambiguous:
                unit.late_error = "LINK_AMBIGUOUS"

    # Keys

    def identify(self, name: str) -> None:
        """Give the units of one target their guids, those of the targets that its keys lead to first."""
        if name in self.begun:
            return
        self.begun.add(name)
        target = self.schema.targets[name]
        mine = [unit for unit in self.units if unit.mapping.target == name and not unit.dropped]
        for mapping in target.mappings:
            for each in mapping.fields:
                if each.type.name == "link" and each.key is not None:
                    self.identify(self.schema.linked_target(mapping.system, each))
        for unit in mine:
            if unit.parent is not None:
                self.identify(unit.parent.mapping.target)
        if target.exported:
            return
        if target.strict:
            for unit in mine:
                self.identify_strictly(unit, target)
            return
        self.identify_weakly(target)

    def identify_strictly(self, unit: Unit, target: Target) -> None:
        key = {name: self.key_value(unit, name) for name in target.keys}
        if unit.error in ("RECORD_INVALID", "FILTER_FAILED") or unit.bad & set(key):
            return
        if MISSING in key.values() or SEVERAL in key.values():
            return
        if all(value is None for value in key.values()):
            unit.error = unit.error or "KEY_MISSING"
            return
        unit.guid = guid_of(target.name, key)

    def key_value(self, unit: Unit, name: str) -> Any:
        return self.value(unit.values.get(name), unit.message.effective_timestamp)

    def value(self, value: Any, at: datetime) -> Any:
        """A value of a key: itself, or the guid where it is a link by a whole key."""
        if isinstance(value, ParentLink):
            return value.parent.guid or MISSING
        if isinstance(value, LinkKey):
            return self.guid_of_link(value, at)
        return value

    def guid_of_link(self, key: LinkKey, at: datetime) -> Any:
        """The guid of a link by the whole key, or by a weak one as it was held at that instant."""
        target = self.schema.targets[key.target]
        parts = {name: self.value(part, at) for name, part in key.parts.items()}
        if MISSING in parts.values():
            return MISSING
        if target.strict:
            return guid_of(target.name, {name: parts.get(name) for name in target.keys})
        return self.holder(target, parts, at)

    def holder(self, target: Target, parts: Row, at: datetime) -> Any:
        """Who held these values at the end of that instant; if nobody did, whoever holds them ever."""
        alternatives = [set(each) for each in target.alternatives]
        if set(parts) in alternatives and None in parts.values():
            return MISSING
        then, ever = set(), set()
        for guid, states in self.held[target.name].items():
            for number, (since, values) in enumerate(states):
                if any(values.get(name) != parts[name] for name in parts):
                    continue
                ever.add(guid)
                ended = number + 1 < len(states) and states[number + 1][0] <= at
                if since <= at and not ended:
                    then.add(guid)
        guids = then or ever
        if len(guids) > 1:
            return SEVERAL
        return guids.pop() if guids else MISSING

    def claims(self, unit: Unit, alternatives: Sequence[Sequence[str]]) -> list[Claim]:
        found = []
        for alternative in alternatives:
            values = [self.key_value(unit, name) for name in alternative]
            if not any(value is None or value is MISSING for value in values):
                found.append((tuple(alternative), tuple(values)))
        return found

    def identify_weakly(self, target: Target) -> None:
        """Go through the records in the order of the merge; each means who holds one of its keys by then."""
        entities: dict[str, fold.Entity] = {}
        for message in self.messages:
            for unit in message.units:
                if unit.mapping.target == target.name and not unit.dropped:
                    self.identify_one(unit, target, entities)
            refreshes = [
                each for each in message.operations if each.kind == "refresh" and each.target == target.name
            ]
            for refresh in sorted(refreshes, key=lambda each: -each.priority):
                seen = {unit.guid for unit in refresh.seen}
                for guid, entity in entities.items():
                    if guid not in seen and not entity.deleted:
                        change = change_of("delete", message, refresh.priority, {}, [])
                        entities[guid] = fold.apply(entity, change, target.keys, target.keys)

    def identify_one(self, unit: Unit, target: Target, entities: dict[str, fold.Entity]) -> None:
        if unit.error in ("RECORD_INVALID", "FILTER_FAILED"):
            return
        claims = self.own_claims(unit, target)
        if not claims:
            return
        found = [
            guid
            for guid, entity in entities.items()
            if any(all(entity.values.get(n) == v for n, v in zip(*claim, strict=True)) for claim in claims)
        ]
        if len(found) > 1:
            unit.error = unit.error or "KEY_AMBIGUOUS"
            return
        if found:
            unit.guid = found[0]
        elif unit.operation == "upsert" and unit.error is None:
            unit.guid = self.new_guid(unit, target, claims[0], entities)
            entities[unit.guid] = fold.Entity()
        # A record in error says something of whoever is there, and changes nothing.
        if unit.guid is not None and unit.error is None:
            self.change_keys(unit, unit.guid, target, entities)

    def change_keys(self, unit: Unit, guid: str, target: Target, entities: dict[str, fold.Entity]) -> None:
        """What the record leaves the entity with in its key fields, by the rules of the merge."""
        keys = target.keys
        data = {name: self.key_value(unit, name) for name in keys if name in unit.values}
        change = change_of(unit.operation, unit.message, unit.mapping.rules.priority, data, keys)
        change["field_priorities"] = unit.mapping.field_priorities
        entities[guid] = fold.apply(entities[guid], change, keys, keys)
        states = self.held[target.name].setdefault(guid, [])
        instant = unit.message.effective_timestamp
        if states and states[-1][0] == instant:
            states.pop()
        states.append((instant, dict(entities[guid].values)))

    def new_guid(self, unit: Unit, target: Target, claim: Claim, entities: Row) -> str:
        """The guid of the record's first key; if somebody has it already, of the record as well."""
        key = dict(zip(*claim, strict=True))
        guid = guid_of(target.name, key)
        if guid in entities:
            more = f',"message":{json_text(unit.message.identifier)},"record":{json_text(unit.path)}}}'
            guid = str(uuid.uuid5(fold.NAMESPACE, guid_text(target.name, key)[:-1] + more))
        return guid

    def own_claims(self, unit: Unit, target: Target) -> list[Claim]:
        """All claims of the unit; none, and an error, when its own mapping's alternatives give none."""
        claims = self.claims(unit, target.alternatives)
        own = unit.mapping.alternatives
        if any(frozenset(fields) in own for fields, _ in claims):
            return claims
        waits = any(self.key_value(unit, name) is MISSING for alternative in own for name in alternative)
        if not waits:
            unit.error = unit.error or "KEY_MISSING"
        return []

    # Links

    def lookup_links(self, unit: Unit, valid: list[Unit]) -> bool:
        """Find where each link of the unit leads; True when one leads to several entities."""
        if not unit.valid():
            return False
        for name, value in unit.values.items():
            if isinstance(value, (LinkKey, ParentLink)):
                unit.links[name] = self.lookup(value, valid, unit.message.effective_timestamp)
        return SEVERAL in unit.links.values()

    def lookup(self, value: LinkKey | ParentLink, valid: list[Unit], at: datetime) -> Any:
        if isinstance(value, ParentLink):
            return value.parent.guid or MISSING
        target = self.schema.targets[value.target]
        whole = any(set(value.parts) == set(alternative) for alternative in target.alternatives)
        if whole or not target.strict:
            return self.guid_of_link(value, at)
        parts = {name: self.value(part, at) for name, part in value.parts.items()}
        guids = {
            unit.guid
            for unit in valid
            if unit.mapping.target == value.target and unit.operation == "upsert" and unit.guid
            if all(name in unit.values and self.key_value(unit, name) == parts[name] for name in parts)
        }
        if len(guids) > 1:
            return SEVERAL
        return guids.pop() if guids else MISSING


def guid_of(entity: str, key: Row) -> str:
    """The guid of an entity and its key; the merge's own, with the texts of instants, dates and decimals."""
    return str(uuid.uuid5(fold.NAMESPACE, guid_text(entity, key)))


def guid_text(entity: str, key: Row) -> str:
    parts = [f"{json_text(name)}:{json_text(value)}" for name, value in key.items() if value is not None]
    return f'{{"entity":{json_text(entity)},"key":{{{",".join(parts)}}}}}'


def json_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime('"%Y-%m-%dT%H:%M:%S.%fZ"')
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, Decimal):
        digits = format(value, "f")
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return json.dumps(value, ensure_ascii=False)


# Who waits -----------------------------------------------------------------------------------------------


def find_waiting(schema: Schema, units: Sequence[Unit], given_up: set[Any]) -> None:
    """Let those wait whose links lead to nobody: all are applied at first, and the wrong ones taken away."""
    for unit in units:
        unit.waits = unit.name() in given_up
    while True:
        existing = find_existing(schema, units)
        newly = [unit for unit in units if unit.applied() and must_wait(schema, unit, existing)]
        if not newly:
            return
        for unit in newly:
            unit.waits = True


def find_existing(schema: Schema, units: Sequence[Unit]) -> set[tuple[str, str | None]]:
    """The entities that an applied upsert speaks of, or makes because it links to them."""
    existing = set()
    for unit in units:
        if unit.applied() and unit.operation == "upsert":
            existing.add((unit.mapping.target, unit.guid))
            for link in unit.mapping.fields:
                guid = unit.links.get(link.reference)
                if link.autocreate and isinstance(guid, str):
                    existing.add((schema.linked_target(unit.mapping.system, link), guid))
    return existing


def must_wait(schema: Schema, unit: Unit, existing: set[tuple[str, str | None]]) -> bool:
    if unit.parent is not None and unit.parent.waits:
        return True
    for link in unit.mapping.fields:
        found = unit.links.get(link.reference)
        if found is None or (link.autocreate and found is not MISSING):
            continue
        value = unit.values[link.reference]
        if isinstance(value, ParentLink):
            target = value.parent.mapping.target
        else:
            target = schema.linked_target(unit.mapping.system, link)
        if (target, found) not in existing:
            return True
    return False


# The walk ------------------------------------------------------------------------------------------------


@dataclass
class Track:
    """One entity on the walk: what is believed of it now, and its versions so far."""

    guid: str
    now: fold.Entity = field(default_factory=fold.Entity)
    before: fold.Entity = field(default_factory=fold.Entity)  # at the beginning of the instant
    instant: datetime | None = None
    changed_by: str | None = None
    versions: list[Row] = field(default_factory=list)

    def alive(self) -> bool:
        return self.now.exists and not self.now.deleted


class Walk:
    """All changes of one target in their order, over a plain dict of entities."""

    def __init__(self, schema: Schema, target: Target, operations: list[Operation]) -> None:
        self.schema, self.target, self.operations = schema, target, operations
        self.keys, self.fields = target.keys, list(target.fields)
        self.entities: dict[str, Track] = {}

    def run(self) -> dict[str, Track]:
        for operation in sorted(self.operations, key=lambda each: (*when(each.message), each.place)):
            self.step(operation)
        for track in self.entities.values():
            self.close(track)
        return {guid: track for guid, track in self.entities.items() if track.versions}

    def step(self, operation: Operation) -> None:
        unit = operation.unit
        if operation.kind == "unit":
            if unit is not None and unit.applied() and unit.guid is not None:
                self.change(unit.guid, unit_change(unit))
        elif operation.kind == "autocreate":
            if unit is not None and unit.applied() and unit.operation == "upsert":
                self.autocreate(operation, unit)
        elif operation.kind == "unlisted":
            if unit is not None and unit.applied():
                self.delete_all(operation, unit.guid)
        elif operation.kind == "cascade":
            self.delete_all(operation, operation.parent_guid)
        else:
            self.delete_all(operation, None)

    def autocreate(self, operation: Operation, unit: Unit) -> None:
        name = operation.link.reference if operation.link else ""
        guid, key = unit.links.get(name), unit.values.get(name)
        if not isinstance(guid, str) or not isinstance(key, LinkKey):
            return
        if guid in self.entities and self.entities[guid].now.exists:
            return
        data = {name: resolved(unit, part) for name, part in key.parts.items()}
        self.change(guid, change_of("upsert", unit.message, operation.priority, data, self.fields))

    def delete_all(self, operation: Operation, parent: str | None) -> None:
        """Delete every entity that is alive, of the parent if there is one, and was not seen."""
        seen = {unit.guid for unit in operation.seen if unit.processed()}
        for guid in sorted(self.entities):
            track = self.entities[guid]
            of_parent = operation.parent_field is None or (
                track.now.values.get(operation.parent_field) == parent
            )
            if track.alive() and of_parent and guid not in seen:
                change = change_of("delete", operation.message, operation.priority, {}, self.fields)
                change["field_priorities"] = operation.field_priorities
                self.change(guid, change)

    def change(self, guid: str, change: Row) -> None:
        track = self.entities.setdefault(guid, Track(guid))
        if track.instant != change["effective_timestamp"]:
            self.close(track)
            track.instant = change["effective_timestamp"]
        after = fold.apply(track.now, change, self.keys, self.fields)
        if not fold.same_state(after, track.now, self.fields):
            track.changed_by = change["message_id"]
        track.now = after

    def close(self, track: Track) -> None:
        """The instant of this entity is over: if it changed anything, that is a version."""
        if track.instant is not None and not fold.same_state(track.now, track.before, self.fields):
            if track.versions:
                track.versions[-1]["valid_to_timestamp"] = track.instant
            track.versions.append(
                fold.version(track.guid, track.instant, track.now, track.changed_by, self.fields)
            )
        track.before, track.changed_by = track.now, None


def when(message: Message) -> tuple[Any, ...]:
    return (message.effective_timestamp, *message.arrival)


def unit_change(unit: Unit) -> Row:
    data = {name: unit.links.get(name, value) for name, value in unit.values.items()}
    fields = [each.reference for each in unit.mapping.fields]
    change = change_of(unit.operation, unit.message, unit.mapping.rules.priority, data, fields)
    change["field_priorities"] = unit.mapping.field_priorities
    return change


def resolved(unit: Unit, part: Any) -> Any:
    """A part of a link's key that is itself a link is known by now."""
    if not isinstance(part, LinkKey):
        return part
    return guid_of(part.target, {name: resolved(unit, inner) for name, inner in part.parts.items()})


def change_of(operation: str, message: Message, priority: int, data: Row, fields: Sequence[str]) -> Row:
    return {
        "operation": operation,
        "effective_timestamp": message.effective_timestamp,
        "message_id": message.identifier,
        "priority": priority,
        "data": data,
        "carried": AllNames(data),
        "fields": fields,
    }


class AllNames(dict[str, bool]):
    """Which fields are carried, of as many as are asked for."""

    def __init__(self, data: Row) -> None:
        super().__init__(dict.fromkeys(data, True))

    def __missing__(self, name: str) -> bool:
        return False


def cascades(schema: Schema, target: Target, walked: dict[str, Track], by_name: Row) -> list[Operation]:
    """
    The deletes of children that begin with each deleted version of a parent.

    All entities that any system makes children of it go with it.  Their priorities are those of the deleting
    system's strongest mapping of them; of a system that has none of these, that of the parent's delete.
    """
    owned = {
        (child.target, children.parent_identifier)
        for system in schema.systems
        for children, child in schema.children_of(system, target.name)
    }
    found = []
    for guid in sorted(walked):
        for version in walked[guid].versions:
            if not version["deleted_indicator"]:
                continue
            message = by_name[version["source_message"]]
            for name, parent_field in sorted(owned, key=str):
                own = [
                    child
                    for children, child in schema.children_of(message.system, target.name)
                    if (child.target, children.parent_identifier) == (name, parent_field)
                ]
                strongest = max(own, key=lambda child: child.rules.priority, default=None)
                row_priority = version["field_provenance"]["guid"]["p"]
                found.append(
                    Operation(
                        AFTER_THE_RECORDS,
                        "cascade",
                        name,
                        message,
                        priority=strongest.rules.priority if strongest else row_priority,
                        field_priorities=strongest.field_priorities if strongest else {},
                        parent_field=parent_field,
                        parent_guid=guid,
                    )
                )
    return found


# Everything ----------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What the hub's tables hold after a run."""

    histories: dict[str, list[Row]]
    statuses: dict[str, int]
    log: list[Row]
    exports: dict[str, list[Row]]
    waiting: set[Any]  # the names of the units that wait


def interpret(
    documents: Sequence[Row],
    messages: Sequence[Message],
    *,
    given_up: Iterable[Any] = (),
    readers: Row | None = None,
    filters: Row | None = None,
) -> Outcome:
    """
    Process all messages, one by one.

    Args:
        documents: The source systems.
        messages: The stored messages, in any order; no two have one identifier.
        given_up: The names of units that wait for good (`Outcome.waiting` has them).
        readers: Further readers by name: (data, config) to an iterable of records.
        filters: Filters by name: a record to a record or None.
    """
    schema = Schema(documents)
    in_order = sorted(messages, key=lambda message: message.arrival)
    for message in in_order:
        message.units, message.operations, message.error = [], [], None
        Expansion(schema, message, READERS | (readers or {}), filters or {}).run()
    identities = Identities(schema, in_order)
    identities.run()
    find_waiting(schema, identities.units, set(given_up))
    return Outcome(
        histories=walk_all(schema, in_order),
        statuses={message.identifier: status(message) for message in in_order},
        log=[row for message in in_order for row in log_rows(message)],
        exports=exported(schema, identities.units),
        waiting={unit.name() for unit in identities.units if outcome(unit) == "waiting"},
    )


def walk_all(schema: Schema, messages: list[Message]) -> dict[str, list[Row]]:
    by_name = {message.identifier: message for message in messages}
    operations = [operation for message in messages for operation in message.operations]
    histories = {}
    for target in schema.parents_first():
        if target.exported:
            continue
        mine = [each for each in operations if each.target == target.name]
        walked = Walk(schema, target, mine).run()
        histories[target.name] = [row for guid in sorted(walked) for row in walked[guid].versions]
        operations += cascades(schema, target, walked, by_name)
    return histories


def outcome(unit: Unit) -> str:
    if unit.dropped:
        return "dropped"
    if unit.error is not None or unit.late_error is not None:
        return "error"
    return "waiting" if unit.waits else unit.operation


def logged(message: Message) -> list[Unit]:
    return [unit for unit in message.units if unit.processed()]


def status(message: Message) -> int:
    if message.error is not None:
        return message.error[0]
    outcomes = {outcome(unit) for unit in logged(message)}
    if "waiting" in outcomes:
        return REQUIRES_REPROCESSING
    return DATA_INVALID if "error" in outcomes else SUCCESS


def log_rows(message: Message) -> list[Row]:
    if message.error is not None:
        whole: Row = {"message_identifier": message.identifier, "record": None, "target": None}
        return [whole | {"outcome": "error", "error_code": message.error[1], "guid": None}]
    return [
        {
            "message_identifier": message.identifier,
            "record": unit.path,
            "target": unit.mapping.target,
            "outcome": outcome(unit),
            "error_code": unit.error or unit.late_error or ("LINK_MISSING" if unit.waits else None),
            "guid": unit.guid,
        }
        for unit in logged(message)
    ]


def exported(schema: Schema, units: Sequence[Unit]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for name, target in schema.targets.items():
        if target.exported:
            rows[name] = [
                {
                    "message_identifier": unit.message.identifier,
                    "record": unit.path,
                    "operation": "insert" if unit.operation == "upsert" else "delete",
                    **{each: unit.links.get(each, unit.values.get(each)) for each in target.fields},
                }
                for unit in units
                if unit.mapping.target == name and unit.applied()
            ]
    return rows


class InterpretedHub:
    """The interpreter behind the same few words as the hub: receive, process, reprocess, and its tables."""

    def __init__(
        self,
        documents: Sequence[Row],
        *,
        readers: Row | None = None,
        filters: Row | None = None,
        maximum: timedelta = MAXIMUM_AGE,
        first_delay: timedelta = timedelta(0),
    ) -> None:
        self.documents, self.readers, self.filters, self.maximum = documents, readers, filters, maximum
        self.first_delay = first_delay
        self.stored: dict[str, Message] = {}
        self.given_up: set[Any] = set()
        self.attempts: Counter[str] = Counter()
        self.due: dict[str, datetime] = {}
        self.since: dict[str, datetime] = {}
        """Since when each message waits."""
        self.statuses: dict[str, int] = {}
        self.outcome: Outcome | None = None

    def receive(self, messages: Sequence[Row]) -> list[Row]:
        """Store the messages: {document, message_timestamp, topic, partition, offset}; a receipt for each."""
        receipts = []
        for received in sorted(messages, key=arrival_of):
            message = read_message(received)
            if message is None:
                receipts.append(receipt(None, MESSAGE_INVALID))
            elif message.identifier in self.stored:
                receipts.append(receipt(message.identifier, PREVIOUSLY_RECEIVED))
            else:
                self.stored[message.identifier] = message
                self.statuses[message.identifier] = NOT_PROCESSED
                receipts.append(receipt(message.identifier, NOT_PROCESSED))
        return receipts

    def process(self, now: datetime) -> None:
        """
        Process all messages again that are new or due; who waits too long is given up.

        So is a message of which a unit, that makes something, falls without the tried ones that fall, and
        stands with them.
        """
        waited = self.outcome.waiting if self.outcome else set()
        not_due = {name for name in waited if self.due[name[0]] > now} - self.given_up
        self.outcome = self.interpret_but(not_due)
        fallen = self.outcome.waiting - self.given_up - not_due
        if undue := fallen and self.circular(not_due):
            standing_on_fallen = self.interpret_but(not_due - undue | fallen).waiting & undue
            untried = not_due - standing_on_fallen | fallen - self.circular(fallen)
            joined = {name[0] for name in standing_on_fallen - self.interpret_but(untried).waiting}
            not_due = {name for name in not_due if name[0] not in joined}
            self.outcome = self.interpret_but(not_due)
        self.statuses = dict(self.outcome.statuses)
        for message in {name[0] for name in self.outcome.waiting} - {name[0] for name in not_due}:
            self.attempts[message] += 1
            self.due[message] = now + self.first_delay * 2 ** (self.attempts[message] - 1)
        self.since = {name[0]: self.since.get(name[0], now) for name in self.outcome.waiting}
        for name in self.outcome.waiting:
            if now - self.since[name[0]] > self.maximum:
                self.given_up.add(name)
                self.statuses[name[0]] = REPROCESS_TIMEOUT

    def circular(self, names: set[Any]) -> set[Any]:
        """Those of these units that make an entity which may need itself in the end."""
        targets = datahub.schema(*self.documents).circular
        return {name for name in names if name[2] in targets and name[-1] == "upsert"}

    def interpret_but(self, untried: set[Any]) -> Outcome:
        """What comes of all messages, but that these units wait, and those that were given up."""
        return interpret(
            self.documents,
            list(self.stored.values()),
            given_up=self.given_up | untried,
            readers=self.readers,
            filters=self.filters,
        )

    def reprocess(self, identifiers: Iterable[str], now: datetime) -> None:
        again = set(identifiers)
        self.given_up = {name for name in self.given_up if name[0] not in again}
        self.due |= dict.fromkeys(again, now)
        self.since = {message: since for message, since in self.since.items() if message not in again}
        self.process(now)

    def history(self, target: str) -> list[Row]:
        return self.outcome.histories[target] if self.outcome else []

    def log(self) -> list[Row]:
        return self.outcome.log if self.outcome else []

    def exports(self, target: str) -> list[Row]:
        return self.outcome.exports[target] if self.outcome else []


def arrival_of(received: Row) -> tuple[Any, ...]:
    return (received["message_timestamp"], received["topic"], received["partition"], received["offset"])


def receipt(identifier: str | None, status: int) -> Row:
    return {"message_identifier": identifier, "status": status}
