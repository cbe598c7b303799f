"""The schema of a hub: all source systems together, and the targets that they write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256

from cdckit.datahub.documents import InvalidSchema, require
from cdckit.datahub.mappings import (
    DEFAULT_SYSTEM,
    LINK,
    EntityMapping,
    FieldMapping,
    FieldType,
    Place,
    SourceSystem,
    Target,
)
from cdckit.datahub.plans import KeyPlan, Planner, with_inner

_RULES = 3
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
        listed = sorted(systems, key=lambda each: (each.reference != DEFAULT_SYSTEM, each.reference))
        self.systems: dict[str, SourceSystem] = {}
        for each in listed:
            require(each.reference not in self.systems, "reference", "of one document only", each.reference)
            self.systems[each.reference] = each
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
        return {plan.entity for plan in self._plans.values() if plan.autocreate}

    def children(self, place: Place) -> Iterator[tuple[FieldMapping, Place]]:
        """The children fields of a mapping, each with the mappings of what it holds."""
        for field in self.mapping(place).children:
            assert field.child_entity is not None
            for index, _ in enumerate(self.systems[place.system].mappings.get(field.child_entity, ())):
                yield field, Place(place.system, field.child_entity, index)

    def uncertain(self, place: Place) -> bool:
        """Whether a record may turn out to be in error when it is looked up whom its key and links mean."""
        mapping = self.mapping(place)
        is_whole = (self.key_plan(place, each).whole for each in mapping.links)
        return self.targets[mapping.reference].weak or not all(is_whole)

    def parent_fields(self, entity: str) -> dict[str, dict[Place, Place]]:
        """The fields of a target that lead to parents: by the mapping of children that of their parents."""
        found: dict[str, dict[Place, Place]] = {}
        for place in self.all_mappings:
            for each, child in self.children(place):
                if self.mapping(child).reference == entity and each.parent_identifier is not None:
                    found.setdefault(each.parent_identifier, {})[child] = place
        return found

    def parents(self, entity: str) -> set[str]:
        """The targets whose records hold those of a target."""
        fields = self.parent_fields(entity).values()
        return {self.mapping(place).reference for held_by in fields for place in held_by.values()}

    def is_within(self, entity: str) -> bool:
        """Whether what is said of a target can come from what another record holds or makes."""
        return bool(self.parent_fields(entity)) or entity in self.autocreated

    def leading_to(self, entity: str) -> list[str]:
        """The targets that decide about *entity*: where its links lead, what holds or makes it, and so on."""
        leads: dict[str, set[str]] = {name: set() for name in self.targets}
        for place, mapping in self.all_mappings.items():
            leads[mapping.reference] |= {self.key_plan(place, each).entity for each in mapping.links}
            for below in self.brought(place):
                leads[below].add(mapping.reference)
        found = [entity]
        for each in found:
            found += leads[each].difference(found)
        return [each for each in self.targets if each in found]

    def key_plan(self, place: Place, field: FieldMapping) -> KeyPlan:
        """How the link *field* of the mapping at *place* is looked up."""
        return self._plans[place, field.reference]

    @cached_property
    def fingerprint(self) -> str:
        """A text that is another one for another schema, or where records are read by other rules."""
        return sha256(f"{_RULES} {self.systems!r}".encode()).hexdigest()

    @cached_property
    def looked_up(self) -> dict[str, set[tuple[str, ...]]]:
        """For each target the sets of key fields by which links look it up other than by its guid."""
        found: dict[str, set[tuple[str, ...]]] = {}
        for plan in with_inner(self._plans.values()):
            if not plan.whole:
                found.setdefault(plan.entity, set()).add(tuple(part.field for part in plan.parts))
        return found

    @property
    def families(self) -> list[str]:
        """The targets that are merged, parents before their children."""
        return [entity for generation in self.generations for entity in generation]

    @cached_property
    def generations(self) -> list[list[str]]:
        """The same, those together that need not wait for each other."""
        parents = {name: self.parents(name) for name, each in self.targets.items() if not each.export}
        return _in_order(parents, "free of children that hold their parents")

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
        mappings = {place: each for place, each in self.all_mappings.items() if each.reference == entity}
        export = next(iter(mappings.values())).export
        for place, mapping in mappings.items():
            for field in mapping.columns:
                name, kind, path = field.reference, field.type, place.path(mapping, field)
                known = fields.setdefault(name, kind)
                same = known.spark == kind.spark and (known.name == LINK) == (kind.name == LINK)
                needed = f"{known.name}, as in {first.setdefault(name, path)}"
                require(same, f"{path}.type", needed, kind.name)
                written = spelled.setdefault(name.lower(), name)
                require(written == name, path, f"spelled {written!r} everywhere", name)
            for alternative in mapping.alternatives:
                keys.setdefault(frozenset(alternative), alternative)
            needed = f"the same in all mappings of {entity}"
            require(mapping.export == export, f"{place}.export", needed, mapping.export)
        order = {name: index for index, name in enumerate(fields)}
        sorted_keys = (tuple(sorted(each, key=order.__getitem__)) for each in keys.values())
        alternatives = tuple(sorted(sorted_keys, key=lambda names: [order[name] for name in names]))
        return Target(entity, fields, alternatives, mappings, export)

    def _require_sound_links(self) -> None:
        links_in_keys: dict[str, set[str]] = {name: set() for name in self.targets}
        for (place, reference), plan in self._plans.items():
            if any(reference in each for each in self.mapping(place).alternatives):
                links_in_keys[self.mapping(place).reference].add(plan.entity)
        _in_order(links_in_keys, "free of keys that lead back to themselves")

    def _require_sound_children(self) -> None:
        for place, mapping in self.all_mappings.items():
            for field in mapping.children:
                self._require_sound_child(place, field)
        for place in self.all_mappings:
            self.brought(place)
        _ = self.generations

    def _require_sound_child(self, place: Place, field: FieldMapping) -> None:
        path = place.path(self.mapping(place), field)
        child, up = f"{path}.childEntity", f"{path}.parentIdentifier"
        mappings = [there for each, there in self.children(place) if each is field]
        require(mappings, child, "a source entity of the same system", field.child_entity)
        parent = self.targets[self.mapping(place).reference]
        whole = all(self.key_plan(place, each).whole for each in self.mapping(place).links if each.key)
        needed = "in an entity with one key, whose links lead to such entities"
        require(parent.strict and whole, path, needed, parent.alternatives)
        for there in mappings:
            mapping = self.mapping(there)
            entity = self.targets[mapping.reference]
            links = [each for each in mapping.links if each.key and each.reference == field.parent_identifier]
            needed = f"a field of {mapping.reference} that is a link and part of its key"
            require(links, up, needed, field.parent_identifier)
            needed = "an entity with one key: a list could not say what is not in it"
            require(entity.strict, child, needed, entity.alternatives)
            leads = self.key_plan(there, links[0]).entity == parent.entity
            require(leads, up, f"a link that leads to {parent.entity}", field.parent_identifier)
            require(not mapping.export, child, "an entity that is not exported", mapping.reference)

    def brought(self, place: Place, above: tuple[Place, ...] = ()) -> set[str]:
        """The targets of which a message can bring records that enters at the mapping at *place*."""
        needed = "free of children that hold their parents"
        require(place not in above, f"{place}.fields", needed, str(place))
        found = {self.mapping(place).reference}
        found |= {
            self.key_plan(place, each).entity for each in self.mapping(place).columns if each.autocreate
        }
        for _, child in self.children(place):
            found |= self.brought(child, (*above, place))
        return found


def _in_order(above: Mapping[str, set[str]], needed: str) -> list[list[str]]:
    """The names in generations, each after those *above* it; raises `InvalidSchema` if they go round."""
    sorter = TopologicalSorter(above)
    try:
        sorter.prepare()
    except CycleError as error:
        raise InvalidSchema("mappings", needed, error.args[1]) from None
    found = []
    while sorter.is_active():
        found.append(list(sorter.get_ready()))
        sorter.done(*found[-1])
    return found
