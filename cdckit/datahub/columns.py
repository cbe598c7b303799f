"""The records of one mapping as columns: converted, their keys and links computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.datahub.mappings import LINK, FieldMapping, FieldType
from cdckit.datahub.messages import HubFault
from cdckit.datahub.readers import Nodes, ReadFault
from cdckit.datahub.source_systems import KeyPlan, Schema
from cdckit.parts.guids import guid_names, key_text, uuid5

LOOKED_UP = "?"
"""What a text begins with that stands for a guid which only a look at all entities can tell."""
AT = "@"
"""Stands between such a text and an instant: a link to a weak key leads to whoever held the key then."""

_uuid5 = lru_cache(1 << 18)(uuid5)
"""The same keys come again and again; so many are remembered."""


def lookup_texts(entity: str, fields: Sequence[str], key: Mapping[str, pa.Array]) -> pa.Array:
    """The marked texts that stand for entities with these values in these fields."""
    start = f"{LOOKED_UP}{','.join(fields)}"
    return pa.array([start + name for name in guid_names(entity, key)], pa.string())


def describe_entities(entity: str, key: Sequence[tuple[str, pa.Array]]) -> pa.Array:
    """Entities by their keys, for people: "order number = 5, line = 2"."""
    parts = []
    for name, values in key:
        text = pc.fill_null(key_text(values).cast(pa.string()), "null")
        parts.append(pc.binary_join_element_wise(f"{name} = ", text, ""))
    return pc.binary_join_element_wise(f"{entity} ", pc.binary_join_element_wise(*parts, ", "), "")


def known_guids(entity: str, key: Mapping[str, pa.Array]) -> pa.Array:
    """Compute `cdckit.parts.guids.guids`; each is made once a worker."""
    return pa.array(map(_uuid5, guid_names(entity, key)), pa.string())


def any_valid(values: Iterable[pa.Array]) -> pa.Array:
    """Tell where any of these columns has a value."""
    return reduce(pc.or_, map(pc.is_valid, values))


_TEXTS = pa.list_(pa.string())


class Autocreated(NamedTuple):
    """The entities that a link makes if they are missing."""

    plan: KeyPlan
    guid: pa.Array
    key: dict[str, pa.Array]


class Values(NamedTuple):
    """A field of all records, and which of them carried it (None for all)."""

    values: pa.Array
    carried: pa.Array | None


class Conditions(NamedTuple):
    """What must be for records to be applied: lists of texts, null for none."""

    inherited: pa.Array
    """The guids that must exist."""
    within: pa.Array
    """The records that must not turn out to be in error, from the outermost."""


class Columns:
    """
    Records as columns, by position; a faulty one keeps its place, with what of it could be read.

    Faults are noted as they are met: of each record the first counts.  The records that hold them, those
    *above*, were read already.

    Attributes:
        processed: False where the record that holds it is in error, was dropped, or deletes.
        sound: False where the record itself is in error or was dropped.
        guid: Null where it must be looked up, or cannot be known.
        claims: By what links can find the entity other than by its guid: marked texts.  Where several keys
            find it, an empty list: its fields tell; null where the record has none of its mapping's keys.
        conditions: What must be for the records that hold this one to be applied.
        inner_conditions: What must be for what it holds or makes: the same, and what itself needs beside.
        sought: What links lead to that must exist, by its key: texts for people.
        instants: From when on each record is true: where it does not say so itself, the time of its message.
        named: The record's own entity likewise, if records may hold others; they lead to it.
    """

    def __init__(self, nodes: Nodes, schema: Schema, above: Columns | None, message_times: pa.Array) -> None:
        self._nodes, self._schema, self._above = nodes, schema, above
        self._mapping = schema.mapping(nodes.place)
        self._target = schema.targets[self._mapping.reference]
        self._count = len(nodes)
        self._parent = pa.array(nodes.parent, pa.int64())
        self._unkeyed: set[int] = set()
        """The records of whose key a value did not convert: whom they mean is not known."""
        self.faults: dict[int, ReadFault] = dict(nodes.faults)
        self.autocreated: list[Autocreated] = []
        self.sought: dict[str, pa.Array] = {}
        self.deleted = self._deletes()
        self.instants = self._find_instants(message_times)
        self.fields = {column.reference: self._field(column) for column in self._mapping.columns}
        for at, fault in nodes.children_faults.items():
            # The lists in a record that deletes are not looked at.
            if not self.deleted[at].as_py():
                self.faults.setdefault(at, fault)
        self.guid, self.claims = self._identity()
        # From here on all faults are known.
        self.processed = self._flags() if above is None else above.alive.take(self._parent)
        self.sound = self._flags([*self.faults, *nodes.dropped])
        self.conditions = self._outer_conditions()
        self.inner_conditions = self._inner_conditions()
        if self._mapping.children:
            keys = [(name, self.sought.get(name, self.fields[name].values)) for name in self._target.keys]
            self.named = describe_entities(self._target.entity, keys)

    def _outer_conditions(self) -> Conditions:
        if self._above is None:
            nothing = pa.nulls(self._count, _TEXTS)
            return Conditions(nothing, nothing)
        return Conditions(*(texts.take(self._parent) for texts in self._above.inner_conditions))

    def _inner_conditions(self) -> Conditions:
        inherited, within = self.conditions
        if self._mapping.brings_others:
            links = [self.fields[link.reference].values for link in self._mapping.columns if link.is_needed]
            inherited = _join_lists(inherited, links, self._count)
            if self._schema.may_fail_lookup(self._nodes.place):
                # Its path and its mapping tell a record from others: it may be read by several mappings.
                names = pc.binary_join_element_wise(str(self._nodes.place), self._nodes.paths, " ")
                within = _join_lists(within, [names], self._count)
        return Conditions(inherited, within)

    @property
    def alive(self) -> pa.Array:
        """Whether what a record holds or makes is processed."""
        return pc.and_(pc.and_(self.processed, self.sound), pc.invert(self.deleted))

    def _flags(self, but: Sequence[int] | set[int] = ()) -> pa.Array:
        """True for all records *but* these."""
        flags = np.ones(self._count, bool)
        flags[list(but)] = False
        return pa.array(flags)

    def _deletes(self) -> pa.Array:
        source = self._mapping.deleted_source
        if not self._nodes.has_property(source):
            return pa.array(np.zeros(self._count, bool))
        return pc.fill_null(self._plain_values(source, FieldType("boolean")).values, False)

    def _find_instants(self, message_times: pa.Array) -> pa.Array:
        if self._above is not None:
            return self._above.instants.take(self._parent)
        instants = message_times.take(pa.array(self._nodes.message, pa.int64()))
        source = self._mapping.time_source
        if source is None:
            return instants
        times = self._plain_values(source, FieldType("timestamp")).values
        for at in np.flatnonzero(~np.asarray(times.is_valid())):
            self._note(
                int(at), HubFault.VALUE_INVALID, f"{source}: the record does not say from when on it is true"
            )
        return pc.coalesce(times.cast(instants.type), instants)

    def _field(self, field: FieldMapping) -> Values:
        if self._above is not None and field.reference == self._nodes.parent_field:
            self.sought[field.reference] = self._above.named.take(self._parent)
            return Values(self._above.guid.take(self._parent), None)
        if field.type.name == LINK:
            return self._link(field)
        return self._plain_values(field.source, field.type, is_key=field.key is not None)

    def _plain_values(self, source: str, kind: FieldType, *, is_key: bool = False) -> Values:
        column, carried = self._nodes.column(source, kind)
        if is_key:
            self._unkeyed.update(column.errors)
        for at, text in column.errors.items():
            self._note(at, HubFault.VALUE_INVALID, f"{source}: {text}")
        return Values(column.values, carried)

    def _link(self, link: FieldMapping) -> Values:
        plan = self._schema.key_plan(self._nodes.place, link)
        read: list[tuple[str, pa.Array]] = []
        guid, key, carried = self._follow_link(plan, read, is_key=link.key is not None)
        if not self._schema.targets[plan.entity].strict:
            instants = self.instants.cast(pa.int64()).cast(pa.string())
            guid = pc.binary_join_element_wise(guid, instants, AT)
        if link.autocreate:
            self.autocreated.append(Autocreated(plan, guid, key))
        else:
            self.sought[link.reference] = pc.if_else(
                pc.is_valid(guid), describe_entities(plan.entity, read), None
            )
        return Values(guid, carried)

    def _follow_link(
        self, plan: KeyPlan, read: list[tuple[str, pa.Array]], *, is_key: bool
    ) -> tuple[pa.Array, dict[str, pa.Array], pa.Array | None]:
        """
        Find where a link leads, the key it was found by, and which records carried any part of that.

        Key fields that are no links themselves are added to *read*.
        """
        key: dict[str, pa.Array] = {}
        carried: list[pa.Array | None] = []
        for part in plan.parts:
            if part.inner is not None:
                key[part.field], _, part_carried = self._follow_link(part.inner, read, is_key=is_key)
            else:
                assert part.source is not None
                key[part.field], part_carried = self._plain_values(part.source, part.type, is_key=is_key)
                read.append((part.field, key[part.field]))
            carried.append(part_carried)
        guids = known_guids(plan.entity, key) if plan.whole else lookup_texts(plan.entity, tuple(key), key)
        carried_by_any = None if any(flags is None for flags in carried) else reduce(pc.or_, carried)
        return pc.if_else(any_valid(key.values()), guids, None), key, carried_by_any

    def _identity(self) -> tuple[pa.Array, pa.Array]:
        """The guid of each record's entity as far as it can be computed, and its claims."""
        target, unknown = self._target, pa.nulls(self._count, pa.string())
        alternatives = target.alternatives if target.strict else self._mapping.alternatives
        keys = [{name: self.fields[name].values for name in alternative} for alternative in alternatives]
        if not keys or target.export:
            return unknown, pa.nulls(self._count, _TEXTS)
        if not target.strict:
            return unknown, self._weak_claims(keys)
        [key] = keys
        present = any_valid(key.values())
        self._note_missing(present, ", ".join(key))
        looked_up = sorted(self._schema.lookup_keys.get(target.entity, ()))
        claims = _join_lists(None, list(map(self._claim, looked_up)), self._count)
        if not self._schema.has_computed_guid(self._nodes.place, self._nodes.parent_field):
            return unknown, claims
        is_known = pc.and_(present, self._flags(self._unkeyed))
        return pc.if_else(is_known, known_guids(target.entity, key), None), claims

    def _weak_claims(self, keys: Sequence[Mapping[str, pa.Array]]) -> pa.Array:
        """An empty list for each record that has a key of its own mapping: its values say which."""
        complete = reduce(pc.or_, (reduce(pc.and_, map(pc.is_valid, key.values())) for key in keys))
        self._note_missing(complete, " or ".join(", ".join(key) for key in keys))
        is_known = pc.and_(complete, self._flags(self._unkeyed))
        return pc.if_else(is_known, pa.scalar([], _TEXTS), None)

    def _claim(self, key: Sequence[str]) -> pa.Array:
        """The marked text of these key fields; null where none of them has a value."""
        values = {name: self.fields[name].values for name in key if name in self.fields}
        if not values:
            return pa.nulls(self._count, pa.string())
        texts = lookup_texts(self._target.entity, key, values)
        return pc.if_else(any_valid(values.values()), texts, None)

    def _note(self, at: int, problem: HubFault, text: str) -> None:
        if at not in self._nodes.dropped:
            self.faults.setdefault(at, ReadFault(problem, text))

    def _note_missing(self, present: pa.Array, fields: str) -> None:
        for at in np.flatnonzero(~np.asarray(present)):
            self._note(int(at), HubFault.KEY_MISSING, fields)


def _join_lists(lists: pa.Array | None, more: Sequence[pa.Array], count: int) -> pa.Array:
    """Join for each row the texts of its list and of these columns, without nulls; null for none."""
    columns = [texts.to_pylist() for texts in more if texts.null_count < count]
    if not columns:
        return pa.nulls(count, _TEXTS) if lists is None else lists
    above = [None] * count if lists is None else lists.to_pylist()
    joined = [
        [*(first or ()), *(text for text in others if text is not None)] or None
        for first, *others in zip(above, *columns, strict=True)
    ]
    return pa.array(joined, _TEXTS)
