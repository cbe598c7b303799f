"""The schema of a hub: its source systems, the targets they write, and how links find their entities."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from pathlib import Path
from typing import Any

from cdckit.datahub.mappings import (
    DEFAULT_SYSTEM,
    LINK,
    EntityMapping,
    FieldMapping,
    FieldType,
    InvalidSchema,
    Place,
    SourceSystem,
    Target,
    require,
    source_system,
)
from cdckit.errors import InvalidArgument
from cdckit.parts.json_text import RepeatedName, each_name_once


@dataclass(frozen=True)
class KeyPart:
    """One field of a key that a link looks up: read from the record, or a link itself."""

    field: str
    type: FieldType
    source: str | None
    inner: KeyPlan | None = None


@dataclass(frozen=True)
class KeyPlan:
    """How the key of a linked entity is put together from a record."""

    entity: str
    parts: tuple[KeyPart, ...]
    whole: bool
    """The parts are the key that every mapping of the entity has: its guid can be computed."""
    mapping: Place | None
    """The mapping that translated the names; None where the target's own are used."""

    @property
    def sources(self) -> Iterator[tuple[str, FieldType]]:
        """The properties of a record that are read for it."""
        for part in self.parts:
            if part.inner is not None:
                yield from part.inner.sources
            elif part.source is not None:
                yield part.source, part.type


class Planner:
    """Makes the key plans of the links of these systems; raises `InvalidSchema` for a link that has none."""

    def __init__(self, systems: Mapping[str, SourceSystem], targets: Mapping[str, Target]) -> None:
        self._systems, self._targets = systems, targets

    def _mapping(self, place: Place) -> EntityMapping:
        return self._systems[place.system].mappings[place.entity][place.index]

    def plan(
        self,
        place: Place,
        field: FieldMapping,
        sources: tuple[str, ...],
        above: tuple[tuple[Place, str], ...] = (),
    ) -> KeyPlan:
        """
        The plan of the link *field* of the mapping at *place*.

        A record has the link's source fields under the names *sources*; *above* are the links that lead here.
        """
        path = place.path(self._mapping(place), field)
        here, named = (place, field.reference), dict(zip(field.link_key, sources, strict=True))
        needed = "of fields that do not lead back to this link"
        require(here not in above, f"{path}.linkKey", needed, field.link_key)
        assert field.link_entity is not None
        # A link may name a target, where its system has no source entity of that name.
        translators = self._systems[place.system].mappings.get(field.link_entity)
        there = Place(place.system, field.link_entity, 0) if translators else None
        entity = translators[0].reference if translators else field.link_entity
        needed = f"an entity among {', '.join(sorted(self._targets))}"
        require(entity in self._targets, f"{path}.linkEntity", needed, entity)
        target = self._targets[entity]
        if there is None:
            used = {name for name in target.keys if name in named}
            parts = [KeyPart(name, target.fields[name], named[name]) for name in used]
        else:
            parts, used = self._translate_key(there, target, named, (*above, here))
        parts.sort(key=lambda part: list(target.fields).index(part.field))
        key = tuple(part.field for part in parts)
        unknown = [name for name in field.link_key if name not in used]
        is_whole = target.strict and key == target.alternatives[0]
        leads_on_whole = all(part.inner is None or part.inner.whole for part in parts)
        [own_target] = [target for target in self._targets.values() if place in target.mappings]
        is_in_weak_key = own_target.weak and field.reference in own_target.keys
        is_key_there = field.key is None or key in target.alternatives
        named_keys = f"{'' if there else 'the target '}{entity}, which are {', '.join(target.keys) or 'none'}"
        require(not unknown, f"{path}.linkKey", f"of key fields of {named_keys}", unknown)
        require(not target.export, f"{path}.linkEntity", "an entity that is not exported", entity)
        one_key = f"the one whole key of {entity}"
        for is_sound, needed in (
            (is_key_there, f"all of a key of {entity}, the link being a key itself"),
            (is_whole or not is_in_weak_key, f"{one_key}, the link being part of a weak key"),
            (leads_on_whole, "of fields that lead on by whole keys of entities with one key"),
        ):
            require(is_sound, f"{path}.linkKey", needed, field.link_key)
        is_made_whole = is_whole or not field.autocreate
        require(is_made_whole, f"{path}.autocreate", f"with {one_key}", field.link_key)
        return KeyPlan(entity, tuple(parts), is_whole, there)

    def _translate_key(
        self, there: Place, target: Target, named: dict[str, str], above: tuple[tuple[Place, str], ...]
    ) -> tuple[list[KeyPart], set[str]]:
        """The parts of the key, as the mapping *there* names them, and the names that were used for it."""
        parts, used = [], set()
        for column in self._mapping(there).columns:
            if column.reference not in target.keys:
                continue
            inner = column.source_link_key
            if column.source in named:
                parts.append(KeyPart(column.reference, column.type, named[column.source]))
                used.add(column.source)
            elif column.type.name == LINK and named.keys() >= set(inner):
                plan = self.plan(there, column, tuple(named[name] for name in inner), above)
                parts.append(KeyPart(column.reference, column.type, None, plan))
                used.update(inner)
        return parts, used


def with_inner(plans: Iterable[KeyPlan]) -> Iterator[KeyPlan]:
    """The plans, each with those of the links in its key."""
    for plan in plans:
        yield plan
        yield from with_inner(part.inner for part in plan.parts if part.inner)


_RULES = 5
"""The number of the rules by which a hub reads records: with another one, what it made is made anew."""


class Schema:
    """
    Source systems that belong together.

    Args:
        systems: No two of one reference.

    Raises:
        InvalidSchema: They contradict each other, or name what is not there.

    >>> from cdckit.datahub import schema
    >>> fields = [{"reference": "number", "type": "integer", "key": True}, {"reference": "name"}]
    >>> shop = schema({"reference": "*", "mappings": {"item": [{"reference": "product", "fields": fields}]}})
    >>> list(shop.systems), list(shop.targets), shop.targets["product"].keys
    (['*'], ['product'], ('number',))
    """

    def __init__(self, systems: Iterable[SourceSystem]) -> None:
        listed = sorted(systems, key=lambda system: (system.reference != DEFAULT_SYSTEM, system.reference))
        self.systems: dict[str, SourceSystem] = {}
        for system in listed:
            require(
                system.reference not in self.systems, "reference", "of one document only", system.reference
            )
            self.systems[system.reference] = system
        entities = dict.fromkeys(mapping.reference for mapping in self.all_mappings.values())
        require(entities, "mappings", "of at least one source entity", {})
        self.targets = {entity: self._target(entity) for entity in entities}
        self._require_sound_links()
        self._require_sound_children()

    def mapping(self, place: Place) -> EntityMapping:
        """The mapping that stands there."""
        return self.all_mappings[place]

    @cached_property
    def all_mappings(self) -> dict[Place, EntityMapping]:
        """Every mapping by where it stands."""
        return {
            Place(system.reference, source, index): mapping
            for system in self.systems.values()
            for source, mappings in system.mappings.items()
            for index, mapping in enumerate(mappings)
        }

    @cached_property
    def numbers(self) -> dict[Place, int]:
        """The mappings by number, as the column `place` of statements names them."""
        return {place: number for number, place in enumerate(self.all_mappings)}

    @cached_property
    def autocreated(self) -> set[str]:
        """The targets that links make if they are missing."""
        return {entity for place in self.all_mappings for entity in self._made_targets(place)}

    def _made_targets(self, place: Place) -> set[str]:
        """The targets that links of the mapping at *place* make if they are missing."""
        links = self.mapping(place).links
        return {self.key_plan(place, link).entity for link in links if link.autocreate}

    def children(self, place: Place) -> Iterator[tuple[FieldMapping, Place]]:
        """The children fields of a mapping, each with the mappings of what it holds."""
        for field in self.mapping(place).children:
            assert field.child_entity is not None
            for index, _ in enumerate(self.systems[place.system].mappings.get(field.child_entity, ())):
                yield field, Place(place.system, field.child_entity, index)

    def may_fail_lookup(self, place: Place) -> bool:
        """Tell whether a record may be in error once it is looked up whom its key and links mean."""
        mapping = self.mapping(place)
        is_whole = (self.key_plan(place, link).whole for link in mapping.links)
        return self.targets[mapping.reference].weak or not all(is_whole)

    def has_computed_guid(self, place: Place, parent_field: str | None = None) -> bool:
        """
        Tell whether the keys of its records alone give their guids.

        The link of children to the parent that holds them, *parent_field*, is known with the parent.
        """
        mapping = self.mapping(place)
        links = (link for link in mapping.links if link.key and link.reference != parent_field)
        is_whole = (self.key_plan(place, link).whole for link in links)
        return self.targets[mapping.reference].strict and all(is_whole)

    def parent_fields(self, entity: str) -> dict[str, dict[Place, Place]]:
        """The fields of a target that lead to parents: by the mapping of children that of their parents."""
        fields: dict[str, dict[Place, Place]] = {}
        for place in self.all_mappings:
            for field, child in self.children(place):
                if self.mapping(child).reference == entity and field.parent_identifier is not None:
                    fields.setdefault(field.parent_identifier, {})[child] = place
        return fields

    @cached_property
    def linked(self) -> set[str]:
        """The targets to which links lead."""
        return {
            self.key_plan(place, link).entity
            for place, mapping in self.all_mappings.items()
            for link in mapping.links
        }

    def parents(self, entity: str) -> set[str]:
        """The targets whose records hold those of a target."""
        fields = self.parent_fields(entity).values()
        return {self.mapping(place).reference for held_by in fields for place in held_by.values()}

    def is_within(self, entity: str) -> bool:
        """Tell whether what is said of a target can come from what another record holds or makes."""
        return bool(self.parent_fields(entity)) or entity in self.autocreated

    def deciding_targets(self, entity: str) -> list[str]:
        """The targets that decide about *entity*: where its links lead, what holds or makes it, and so on."""
        deciding = _follow([entity], self._leads(lambda link: True))
        return [target for target in self.targets if target in deciding]

    @cached_property
    def circular(self) -> frozenset[str]:
        """The targets whose records may wait for each other in a circle: what one needs leads back to it."""
        needs = self._leads(lambda link: link.is_needed)
        return frozenset(entity for entity in needs if entity in _follow(needs[entity], needs))

    def _leads(self, counts: Callable[[FieldMapping], bool]) -> dict[str, set[str]]:
        """By target those to which its links lead that count, and those whose records hold or make it."""
        leads: dict[str, set[str]] = {name: set() for name in self.targets}
        for place, mapping in self.all_mappings.items():
            links = filter(counts, mapping.links)
            leads[mapping.reference] |= {self.key_plan(place, link).entity for link in links}
            for below in self.reachable_targets(place) - {mapping.reference}:
                leads[below].add(mapping.reference)
        return leads

    def key_plan(self, place: Place, field: FieldMapping) -> KeyPlan:
        """Plan how the link *field* of the mapping at *place* is looked up."""
        return self._plans[place, field.reference]

    @cached_property
    def fingerprint(self) -> str:
        """A text that is another one for another schema, or where records are read by other rules."""
        return sha256(f"{_RULES} {self.systems!r}".encode()).hexdigest()

    @cached_property
    def lookup_keys(self) -> dict[str, set[tuple[str, ...]]]:
        """For each target the sets of key fields by which links look it up other than by its guid."""
        keys: dict[str, set[tuple[str, ...]]] = {}
        for plan in with_inner(self._plans.values()):
            if not plan.whole:
                keys.setdefault(plan.entity, set()).add(tuple(part.field for part in plan.parts))
        return keys

    @property
    def families(self) -> list[str]:
        """The targets that are merged, parents before their children."""
        return [entity for generation in self.generations for entity in generation]

    @cached_property
    def generations(self) -> list[list[str]]:
        """The same, those together that need not wait for each other."""
        parents = {name: self.parents(name) for name, target in self.targets.items() if not target.export}
        return _sort_generations(parents, "free of children that hold their parents")

    @cached_property
    def _plans(self) -> dict[tuple[Place, str], KeyPlan]:
        planner = Planner(self.systems, self.targets)
        return {
            (place, field.reference): planner.plan(place, field, field.source_link_key)
            for place, mapping in self.all_mappings.items()
            for field in mapping.links
        }

    def _target(self, entity: str) -> Target:
        fields: dict[str, FieldType] = {}
        spelled, first = dict[str, str](), dict[str, str]()
        keys: dict[frozenset[str], tuple[str, ...]] = {}
        mappings = {
            place: mapping for place, mapping in self.all_mappings.items() if mapping.reference == entity
        }
        export = next(iter(mappings.values())).export
        for place, mapping in mappings.items():
            for field in mapping.columns:
                name, kind, path = field.reference, field.type, place.path(mapping, field)
                type_before = fields.setdefault(name, kind)
                same = type_before.spark == kind.spark and (type_before.name == LINK) == (kind.name == LINK)
                needed = f"{type_before.name}, as in {first.setdefault(name, path)}"
                require(same, f"{path}.type", needed, kind.name)
                written = spelled.setdefault(name.lower(), name)
                require(written == name, path, f"spelled {written!r} everywhere", name)
            for alternative in mapping.alternatives:
                keys.setdefault(frozenset(alternative), alternative)
            needed = f"the same in all mappings of {entity}"
            require(mapping.export == export, f"{place}.export", needed, mapping.export)
        order = {name: index for index, name in enumerate(fields)}
        sorted_keys = (tuple(sorted(key, key=order.__getitem__)) for key in keys.values())
        alternatives = tuple(sorted(sorted_keys, key=lambda names: [order[name] for name in names]))
        return Target(entity, fields, alternatives, mappings, export)

    def _require_sound_links(self) -> None:
        links_in_keys: dict[str, set[str]] = {name: set() for name in self.targets}
        for (place, reference), plan in self._plans.items():
            if any(reference in alternative for alternative in self.mapping(place).alternatives):
                links_in_keys[self.mapping(place).reference].add(plan.entity)
        _sort_generations(links_in_keys, "free of keys that lead back to themselves")

    def _require_sound_children(self) -> None:
        for place, mapping in self.all_mappings.items():
            for field in mapping.children:
                self._require_sound_child(place, field)
        for place in self.all_mappings:
            self.reachable_targets(place)
        _ = self.generations

    def _require_sound_child(self, place: Place, field: FieldMapping) -> None:
        path = place.path(self.mapping(place), field)
        child, up = f"{path}.childEntity", f"{path}.parentIdentifier"
        mappings = [there for field_, there in self.children(place) if field_ is field]
        others = {
            (self.mapping(there).reference, other.parent_identifier)
            for other, there in self.children(place)
            if other is not field
        }
        require(mappings, child, "a source entity of the same system", field.child_entity)
        parent = self.targets[self.mapping(place).reference]
        needed = "in an entity with one key, whose links lead to such entities"
        require(self.has_computed_guid(place), path, needed, parent.alternatives)
        for there in mappings:
            mapping = self.mapping(there)
            entity = self.targets[mapping.reference]
            links = [link for link in mapping.links if link.key and link.reference == field.parent_identifier]
            needed = f"a field of {mapping.reference} that is a link and part of its key"
            require(links, up, needed, field.parent_identifier)
            needed = "an entity with one key: a list could not say what is not in it"
            require(entity.strict, child, needed, entity.alternatives)
            leads = self.key_plan(there, links[0]).entity == parent.entity
            require(leads, up, f"a link that leads to {parent.entity}", field.parent_identifier)
            require(not mapping.export, child, "an entity that is not exported", mapping.reference)
            needed = f"an entity that no other list of the record names by {field.parent_identifier!r}"
            is_alone = (mapping.reference, field.parent_identifier) not in others
            require(is_alone, child, needed, mapping.reference)
        if field.source_child_sequence is not None:
            columns = (column for there in mappings for column in self.mapping(there).columns)
            sources = {column.source for column in columns if column.reference == field.child_sequence}
            needed = f"a field of {field.child_entity} that is read from {field.source_child_sequence!r}"
            is_read = sources == {field.source_child_sequence}
            require(is_read, f"{path}.childSequence", needed, field.child_sequence)

    def reachable_targets(self, place: Place, above: tuple[Place, ...] = ()) -> set[str]:
        """The targets of which a message can bring records that enters at the mapping at *place*."""
        needed = "free of children that hold their parents"
        require(place not in above, f"{place}.fields", needed, str(place))
        targets = {self.mapping(place).reference, *self._made_targets(place)}
        for _, child in self.children(place):
            targets |= self.reachable_targets(child, (*above, place))
        return targets


def _follow(names: Iterable[str], leads: Mapping[str, set[str]]) -> list[str]:
    """Find where names lead, directly or through others; themselves too."""
    found = list(names)
    for name in found:
        found += leads[name].difference(found)
    return found


def _sort_generations(above: Mapping[str, set[str]], needed: str) -> list[list[str]]:
    """The names in generations, each after those *above* it; raises `InvalidSchema` if they go round."""
    sorter = TopologicalSorter(above)
    try:
        sorter.prepare()
    except CycleError as error:
        raise InvalidSchema("mappings", needed, error.args[1]) from None
    generations = []
    while sorter.is_active():
        generations.append(list(sorter.get_ready()))
        sorter.done(*generations[-1])
    return generations


def schema(*documents: Mapping[str, Any]) -> Schema:
    """
    The schema that documents describe, one per source system.

    Args:
        documents: JSON documents as dictionaries, one for each source system.  Whatever is not listed here
            is refused; `name` and `description` may stand everywhere, and mean nothing.

            A system: `reference` (`*` is the one of messages that name none), `mappings` (by source
            entity a list of mappings).

            A mapping: `reference` (the target), `fields`, `priority` (0; the greater is heard),
            `messageReader` ("json", "csv", "file", or one that the hub is given) with
            `messageReaderConfig` (what the reader is told; with every reader, `timestamp` names the property
            in which a record says from when on it is true, so that a dump of many days is one message:
            then each must say it, children have the time of their parent, and a refresh is an error,
            DATA_INVALID), `messageFilters` (names, or objects of `name` and `config`); `unique`,
            with `uniqueIdentifier` and `uniqueSequence`, the key fields that hold the message and the
            number of the record; `export`, `exportIdentifier`, `exportStandardFields`.

            A field: `reference` (in the target), `sourceReference` (in the record; the same), `type`
            (text; the others are number, double, smallint, integer, bigint, decimal, date, timestamp,
            boolean, link, children), `length` (of a text), `scale` and `precision` (of a decimal: digits
            in all, and after the point), `key` (true, or the name of an alternative key), `priority`.

            A link: `linkEntity` (a source entity of the same system, else a target), `linkKey` (its key
            fields, by their names there), `sourceLinkKey` (the same in this record), `autocreate`.

            Children: `childEntity` (a source entity), `parentIdentifier` (its field that leads here),
            `childSequence` (its field that is to hold the number in the list; `sourceChildSequence`, the
            property by which that is read).  A list names all children that its parent has: those that are
            not in it are deleted, and `[]` says that there are none.  So no two fields of a mapping may
            hold children of one target by one `parentIdentifier`.
            A record without the property says nothing of them; null is an error (CHILDREN_INVALID).
            Children go with their parent, whichever system deletes it.

    Returns:
        A value to be given to a hub.

    A message that names no system is read by the system `*`.  Decision: the default mapping, by which source
    and target have the same names, is such a document too, since types and keys must be stated somewhere;
    without it these messages are in error (status 23, SYSTEM_NOT_FOUND).

    Values are converted before keys are compared: a key of type integer is rounded, a text with `length`
    is cut.  Of a key of several fields one may be null, not all.  Where mappings find an entity by several
    keys, a record means the entity that holds one of its keys at its time (the rules are in
    `cdckit.datahub.weak_keys`).
    A link leads to whatever was ever spoken of, deleted or not; so `autocreate` revives nobody.

    Raises:
        InvalidSchema: A document cannot be followed; the error names the path in it.
        InvalidArgument: There is no document.

    Source:
        Data hub, sections on source systems and mappings.

    >>> fields = [{"reference": "number", "type": "integer", "key": True}, {"reference": "name"}]
    >>> product = {"reference": "product", "fields": fields}
    >>> shop = schema({"reference": "*", "mappings": {"product": [product]}})
    >>> shop.targets["product"].data.simpleString()
    'struct<number:int,name:string>'
    >>> schema({"reference": "*", "mappings": {"product": [{"reference": "product", "fields": [{}]}]}})
    Traceback (most recent call last):
    ...
    cdckit.datahub.mappings.InvalidSchema: *:mappings.product[0].fields[0].reference must be a text that ...
    """
    if not documents:
        raise InvalidArgument("schema", "documents", "one or more documents of source systems", documents)
    return Schema([source_system(document) for document in documents])


def read_schema(folder: str | Path) -> Schema:
    """
    The schema in a folder: every file `*.json` in it is the document of one source system.

    Raises:
        InvalidSchema: A document cannot be followed, or is no JSON, or an object in it has a name twice.
        InvalidArgument: The folder holds none.

    >>> from tempfile import TemporaryDirectory
    >>> fields = [{"reference": "number", "type": "integer", "key": True}]
    >>> shop = {"reference": "shop", "mappings": {"item": [{"reference": "product", "fields": fields}]}}
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "shop.json").write_text(json.dumps(shop))
    ...     list(read_schema(folder).targets)
    ['product']
    """
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise InvalidArgument("read_schema", "folder", "a folder with files *.json", str(folder))
    return Schema([_source_system_in(file) for file in files])


def _source_system_in(file: Path) -> SourceSystem:
    try:
        document = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=each_name_once)
        return source_system(document)
    except InvalidSchema as error:
        raise InvalidSchema(f"{file.name}: {error.path}", error.needed, error.found) from None
    except (ValueError, RecursionError) as error:
        is_repeated = isinstance(error, RepeatedName)
        needed = "JSON that has each name of an object once" if is_repeated else "JSON text in UTF-8"
        raise InvalidSchema(file.name, needed, str(error)) from None
