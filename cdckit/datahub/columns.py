"""The records of one mapping as columns: converted, their keys and links computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.datahub.faults import HubFault
from cdckit.datahub.mappings import LINK, FieldMapping, FieldType
from cdckit.datahub.plans import KeyPlan
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.walk import Fault, Nodes
from cdckit.parts.identifiers import names, uuid5

LOOKED_UP = "?"
"""What a text begins with that stands for a guid which only a look at all entities can tell."""

_TEXTS = pa.list_(pa.string())
_GUIDS_KEPT = 1 << 18

_known_guids: dict[tuple[object, ...], dict[Any, str]] = {}
"""By entity, key fields and types the guids that a worker has made: the same keys come again and again."""


class Autocreated(NamedTuple):
    """The entities that a link makes if they are missing."""

    plan: KeyPlan
    guid: pa.Array
    key: dict[str, pa.Array]


class Values(NamedTuple):
    """A field of all records, and which of them carried it (None for all)."""

    values: pa.Array
    carried: pa.Array | None


@dataclass
class Columns:
    """Records as columns, by position; a faulty one keeps its place, with what of it could be read."""

    faults: dict[int, Fault]
    processed: pa.Array
    """False where the record that holds it is in error, was dropped, or deletes."""
    sound: pa.Array
    """False where the record itself is in error or was dropped."""
    deleted: pa.Array
    fields: dict[str, Values]
    guid: pa.Array
    """Null where it must be looked up, or cannot be known."""
    claims: pa.Array
    """By what the entity is found (a weak key), or can be found by links: marked texts."""
    inherited: pa.Array
    """The guids that must exist for the records that hold this one to be applied."""
    needs: pa.Array
    """The guids that must exist for what the record holds or makes to be applied."""
    within: pa.Array
    """The records that hold this one and may turn out to be in error, from the outermost."""
    holds: pa.Array
    """The same for what the record holds or makes: itself may be among them."""
    sought: Mapping[str, pa.Array]
    """What links lead to that must exist, by its key: texts for people."""
    named: pa.Array | None
    """The record's own entity likewise, if records may hold others; they lead to it."""
    autocreated: list[Autocreated] = field(default_factory=list)


def read_columns(nodes: Nodes, schema: Schema, above: Columns | None) -> Columns:
    """The records of *nodes*; those that hold them have been read already, into *above*."""
    reading = _Reading(nodes, schema, above)
    deleted = reading.deleted()
    fields = reading.fields()
    reading.note_lists(deleted)
    inherited = reading.inherited()
    within = reading.within()
    needs, holds = inherited, within
    if reading.autocreated or reading.mapping.children:
        needs = _lists_joined(inherited, [fields[name].values for name in reading.needed], len(nodes))
        if schema.uncertain(nodes.place):
            holds = _lists_joined(within, [reading.names()], len(nodes))
    guid, claims = reading.identity(fields)
    processed, sound = reading.processed(), reading.sound()
    return Columns(
        faults=reading.faults,
        processed=processed,
        sound=sound,
        deleted=deleted,
        fields=fields,
        guid=guid,
        claims=claims,
        inherited=inherited,
        needs=needs,
        within=within,
        holds=holds,
        sought=reading.sought,
        named=reading.named(fields) if reading.mapping.children else None,
        autocreated=reading.autocreated,
    )


class _Reading:
    """The records of one mapping while they are read; faults are noted as they are met, the first counts."""

    def __init__(self, nodes: Nodes, schema: Schema, above: Columns | None) -> None:
        self.nodes, self.schema, self.above = nodes, schema, above
        self.mapping = schema.mapping(nodes.place)
        self.target = schema.targets[self.mapping.reference]
        self.count = len(nodes)
        self.parent = pa.array(nodes.parent, pa.int64())
        self.faults: dict[int, Fault] = dict(nodes.faults)
        self.autocreated: list[Autocreated] = []
        self.unkeyed: set[int] = set()
        """The records of whose key a value did not convert: whom they mean is not known."""
        self._in_key = False
        self.needed: list[str] = []
        """The links that must lead to what exists."""
        self.sought: dict[str, pa.Array] = {}
        """What these links lead to, by its key."""

    def fields(self) -> dict[str, Values]:
        """All fields of the mapping that are columns."""
        found = {}
        for each in self.mapping.columns:
            self._in_key = each.key is not None
            if self.above is not None and each.reference == self.nodes.parent_field:
                found[each.reference] = Values(self.above.guid.take(self.parent), None)
                assert self.above.named is not None
                self.sought[each.reference] = self.above.named.take(self.parent)
            elif each.type.name == LINK:
                found[each.reference] = self._link(each)
            else:
                found[each.reference] = self._plain(each.source, each.type)
            if each.type.name == LINK and not each.autocreate:
                self.needed.append(each.reference)
        return found

    def note_lists(self, deleted: pa.Array) -> None:
        """What is wrong with lists of children: those of a record that deletes are not looked at."""
        for at, fault in self.nodes.children_faults.items():
            if not deleted[at].as_py():
                self.faults.setdefault(at, fault)

    def deleted(self) -> pa.Array:
        """Which records delete."""
        source = self.mapping.deleted_source
        if not self.nodes.mention(source):
            return pa.array(np.zeros(self.count, bool))
        return pc.fill_null(self._plain(source, FieldType("boolean")).values, False)

    def inherited(self) -> pa.Array:
        if self.above is None:
            return pa.nulls(self.count, _TEXTS)
        return self.above.needs.take(self.parent)

    def within(self) -> pa.Array:
        if self.above is None:
            return pa.nulls(self.count, _TEXTS)
        return self.above.holds.take(self.parent)

    def names(self) -> pa.Array:
        """What tells the records of a message apart: one may be read by several mappings."""
        return pc.binary_join_element_wise(str(self.nodes.place), self.nodes.paths, " ")

    def processed(self) -> pa.Array:
        if self.above is None:
            return pa.array(np.ones(self.count, bool))
        above = self.above
        return pc.and_(pc.and_(above.processed, above.sound), pc.invert(above.deleted)).take(self.parent)

    def sound(self) -> pa.Array:
        sound = np.ones(self.count, bool)
        sound[list(self.faults)] = False
        sound[list(self.nodes.dropped)] = False
        return pa.array(sound)

    def named(self, fields: Mapping[str, Values]) -> pa.Array:
        """The entity of each record by its key."""
        key = [(name, self.sought.get(name, fields[name].values)) for name in self.target.keys]
        return named(self.target.entity, key)

    def identity(self, fields: Mapping[str, Values]) -> tuple[pa.Array, pa.Array]:
        """The guid of each record's entity as far as it can be computed, and its claims."""
        entity, claims = self.target.entity, pa.nulls(self.count, _TEXTS)
        own = self.target.alternatives if self.target.strict else self.mapping.alternatives
        keys = [{name: fields[name].values for name in each} for each in own]
        if not keys or self.target.export:
            return pa.nulls(self.count, pa.string()), claims
        if not self.target.strict:
            return pa.nulls(self.count, pa.string()), self._weak_claims(fields, keys)
        present = _any_valid(list(keys[0].values()))
        self._note(pc.invert(present), HubFault.KEY_MISSING, ", ".join(keys[0]))
        looked_up = self.schema.looked_up.get(entity, ())
        if looked_up:
            parts = [self._claim(fields, each, some=True) for each in sorted(looked_up)]
            claims = _lists_joined(None, parts, self.count)
        links = [each for each in self.mapping.columns if each.key and each.type.name == LINK]
        given = {self.nodes.parent_field} if self.above is not None else set()
        if any(
            each.reference not in given and not self.schema.key_plan(self.nodes.place, each).whole
            for each in links
        ):
            return pa.nulls(self.count, pa.string()), claims
        guids = _guids(entity, keys[0])
        return pc.if_else(pc.and_(present, self._keyed()), guids, None), claims

    def _weak_claims(self, fields: Mapping[str, Values], own: Sequence[Mapping[str, pa.Array]]) -> pa.Array:
        """Every key of which the record carries all fields, by whatever mapping it is one."""
        complete = pa.array(np.zeros(self.count, bool))
        for key in own:
            complete = pc.or_(complete, _all_valid(list(key.values())))
        stated = " or ".join(", ".join(key) for key in own)
        self._note(pc.invert(complete), HubFault.KEY_MISSING, stated)
        alternatives = self.target.alternatives
        partial = sorted(self.schema.looked_up.get(self.target.entity, set()) - set(alternatives))
        parts = [
            *(self._claim(fields, each, some=False) for each in alternatives if set(each) <= set(fields)),
            *(self._claim(fields, each, some=True) for each in partial),
        ]
        # Whom a record means that has no key of its own is not known, whatever else it carries.
        return pc.if_else(pc.and_(complete, self._keyed()), _lists_joined(None, parts, self.count), None)

    def _keyed(self) -> pa.Array:
        keyed = np.ones(self.count, bool)
        keyed[list(self.unkeyed)] = False
        return pa.array(keyed)

    def _claim(self, fields: Mapping[str, Values], key: Sequence[str], *, some: bool) -> pa.Array:
        """The marked text of these key fields; null unless all (or *some*) of them have values."""
        values = {name: fields[name].values for name in key if name in fields}
        if not values:
            return pa.nulls(self.count, pa.string())
        there = _any_valid(list(values.values())) if some else _all_valid(list(values.values()))
        return pc.if_else(there, looked_up_by(self.target.entity, key, values), None)

    def _plain(self, source: str, kind: FieldType) -> Values:
        column, carried = self.nodes.column(source, kind)
        if self._in_key:
            self.unkeyed.update(column.errors)
        for at, text in column.errors.items():
            if at not in self.nodes.dropped:
                self.faults.setdefault(at, Fault(HubFault.VALUE_INVALID, f"{source}: {text}"))
        return Values(column.values, carried)

    def _link(self, each: FieldMapping) -> Values:
        plan = self.schema.key_plan(self.nodes.place, each)
        read: list[tuple[str, pa.Array]] = []
        guid, key, carried = self._followed(plan, read)
        if each.autocreate:
            self.autocreated.append(Autocreated(plan, guid, key))
        else:
            self.sought[each.reference] = pc.if_else(pc.is_valid(guid), named(plan.entity, read), None)
        return Values(guid, carried)

    def _followed(
        self, plan: KeyPlan, read: list[tuple[str, pa.Array]]
    ) -> tuple[pa.Array, dict[str, pa.Array], pa.Array | None]:
        """
        Where a link leads, the key it was found by, and which records carried any part of that.

        Key fields that are no links themselves are added to *read*.
        """
        key: dict[str, pa.Array] = {}
        carried: list[pa.Array | None] = []
        for part in plan.parts:
            if part.inner is not None:
                key[part.field], _, inner_carried = self._followed(part.inner, read)
                carried.append(inner_carried)
            else:
                assert part.source is not None
                key[part.field], part_carried = self._plain(part.source, part.type)
                carried.append(part_carried)
                read.append((part.field, key[part.field]))
        values = list(key.values())
        fields = tuple(key)
        found = _guids(plan.entity, key) if plan.whole else looked_up_by(plan.entity, fields, key)
        guid = pc.if_else(_any_valid(values), found, None)
        return guid, key, _any_carried(carried)

    def _note(self, where: pa.Array, problem: HubFault, text: str) -> None:
        for at in np.flatnonzero(np.asarray(where)):
            if int(at) not in self.nodes.dropped:
                self.faults.setdefault(int(at), Fault(problem, text))


def looked_up_by(entity: str, fields: Sequence[str], key: Mapping[str, pa.Array]) -> pa.Array:
    """The marked texts that stand for entities with these values in these fields."""
    start = f"{LOOKED_UP}{','.join(fields)}"
    return pa.array([start + name for name in names(entity, _as_texts(key))], pa.string())


def named(entity: str, key: Sequence[tuple[str, pa.Array]]) -> pa.Array:
    """Entities by their keys, for people: "order number = 5, line = 2"."""
    parts = []
    for name, values in key:
        text = pc.fill_null(_as_texts({name: values})[name].cast(pa.string()), "null")
        parts.append(pc.binary_join_element_wise(f"{name} = ", text, ""))
    return pc.binary_join_element_wise(f"{entity} ", pc.binary_join_element_wise(*parts, ", "), "")


def _guids(entity: str, key: Mapping[str, pa.Array]) -> pa.Array:
    """What `cdckit.parts.identifiers.guids` gives, each made once a worker."""
    if sum(map(len, _known_guids.values())) > _GUIDS_KEPT:
        _known_guids.clear()
    kinds = tuple(values.type for values in key.values())
    known = _known_guids.setdefault((entity, tuple(key), kinds), {})
    if len(key) > 1:
        return pa.array(_remembered(known, names(entity, _as_texts(key))), pa.string())
    [(field, values)] = _as_texts(key).items()
    distinct = values.dictionary_encode(null_encoding="encode")
    if pa.types.is_string(values.type) or pa.types.is_integer(values.type):
        found = _made_once(known, entity, field, distinct.dictionary)
    else:
        found = _remembered(known, names(entity, {field: distinct.dictionary}))
    return pa.array(found, pa.string()).take(distinct.indices)


def _remembered(known: dict[Any, str], all_names: list[str]) -> list[str]:
    """The guids of these names."""
    return [known.get(name) or known.setdefault(name, uuid5(name)) for name in all_names]


def _made_once(known: dict[Any, str], entity: str, field: str, values: pa.Array) -> list[str]:
    """The guids of keys of one field, remembered by the key itself: its name is longer than its value."""
    keys = values.to_pylist()
    new = [at for at, value in enumerate(keys) if value not in known]
    if new:
        made = map(uuid5, names(entity, {field: values.take(pa.array(new))}))
        known.update(zip((keys[at] for at in new), made, strict=True))
    return [known[value] for value in keys]


def _as_texts(key: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Dates and instants as the texts that guids have them in; years are of four digits here."""
    return {name: as_text(values) for name, values in key.items()}


def as_text(values: pa.Array) -> pa.Array:
    """Values of a key as the guids have them in their texts."""
    if pa.types.is_date(values.type):
        return values.cast(pa.string())
    if pa.types.is_timestamp(values.type):
        return pc.strftime(values, "%Y-%m-%dT%H:%M:%SZ")
    return values


def _any_valid(values: list[pa.Array]) -> pa.Array:
    found = pc.is_valid(values[0])
    for each in values[1:]:
        found = pc.or_(found, pc.is_valid(each))
    return found


def _all_valid(values: list[pa.Array]) -> pa.Array:
    found = pc.is_valid(values[0])
    for each in values[1:]:
        found = pc.and_(found, pc.is_valid(each))
    return found


def _any_carried(carried: list[pa.Array | None]) -> pa.Array | None:
    flags = [each for each in carried if each is not None]
    if len(flags) < len(carried):
        return None
    found = flags[0]
    for each in flags[1:]:
        found = pc.or_(found, each)
    return found


def _lists_joined(lists: pa.Array | None, more: Sequence[pa.Array], count: int) -> pa.Array:
    """For each row the texts of its list and of these columns, without nulls; null where there are none."""
    if not more and lists is not None:
        return lists
    if lists is None or lists.null_count == count:
        if not any(each.null_count < count for each in more):
            return pa.nulls(count, _TEXTS)
        above: list[list[str] | None] = [None] * count
    else:
        above = lists.to_pylist()
    columns = [each.to_pylist() for each in more]
    found = [
        [*(first or ()), *(each for each in rest if each is not None)] or None
        for first, *rest in zip(above, *columns, strict=True)
    ]
    return pa.array(found, _TEXTS)
