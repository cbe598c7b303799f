"""Key plans: how the key by which a link finds its entity is put together from a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cdckit.datahub.documents import require
from cdckit.datahub.mappings import LINK, EntityMapping, FieldMapping, FieldType, Place, SourceSystem, Target


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
    autocreate: bool
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

        def must(holds: object, name: str, needed: str, found: object = field.link_key) -> None:
            require(holds, f"{path}.{name}", needed, found)

        here, named = (place, field.reference), dict(zip(field.link_key, sources, strict=True))
        must(here not in above, "linkKey", "of fields that do not lead back to this link")
        assert field.link_entity is not None
        # A link may name a target, where its system has no source entity of that name.
        translators = self._systems[place.system].mappings.get(field.link_entity)
        there = Place(place.system, field.link_entity, 0) if translators else None
        entity = translators[0].reference if translators else field.link_entity
        needed = f"an entity among {', '.join(sorted(self._targets))}"
        must(entity in self._targets, "linkEntity", needed, entity)
        target = self._targets[entity]
        if there is None:
            used = {name for name in target.keys if name in named}
            parts = [KeyPart(name, target.fields[name], named[name]) for name in used]
        else:
            parts, used = self._translated(there, target, named, (*above, here))
        order = list(target.fields)
        parts.sort(key=lambda part: order.index(part.field))
        fields = tuple(part.field for part in parts)
        whole = target.strict and fields == target.alternatives[0]
        [own] = [each for each in self._targets.values() if place in each.mappings]
        whose = "" if there else "the target "
        unknown = [name for name in field.link_key if name not in used]
        needed = f"of key fields of {whose}{entity}, which are {', '.join(target.keys) or 'none'}"
        must(not unknown, "linkKey", needed, unknown)
        must(not target.export, "linkEntity", "an entity that is not exported", entity)
        needed = f"all of a key of {entity}, the link being a key itself"
        must(field.key is None or fields in target.alternatives, "linkKey", needed)
        needed = f"the one whole key of {entity}, the link being part of a weak key"
        must(field.key is None or own.strict or whole, "linkKey", needed)
        needed = "of fields that lead on by whole keys of entities with one key"
        must(all(part.inner is None or part.inner.whole for part in parts), "linkKey", needed)
        must(whole or not field.autocreate, "autocreate", f"with the one whole key of {entity}")
        return KeyPlan(entity, tuple(parts), whole, field.autocreate, there)

    def _translated(
        self, there: Place, target: Target, named: dict[str, str], above: tuple[tuple[Place, str], ...]
    ) -> tuple[list[KeyPart], set[str]]:
        """The parts of the key, as the mapping *there* names them, and the names that were used for it."""
        parts, used = [], set()
        for each in self._mapping(there).columns:
            if each.reference not in target.keys:
                continue
            inner = each.source_link_key
            if each.source in named:
                parts.append(KeyPart(each.reference, each.type, named[each.source]))
                used.add(each.source)
            elif each.type.name == LINK and named.keys() >= set(inner):
                plan = self.plan(there, each, tuple(named[name] for name in inner), above)
                parts.append(KeyPart(each.reference, each.type, None, plan))
                used.update(inner)
        return parts, used


def with_inner(plans: Iterable[KeyPlan]) -> Iterator[KeyPlan]:
    """The plans, each with those of the links in its key."""
    for plan in plans:
        yield plan
        yield from with_inner(part.inner for part in plan.parts if part.inner)
