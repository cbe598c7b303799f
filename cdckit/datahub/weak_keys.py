"""
Weak keys: which entity a record means, where any of several keys finds it.

An entity *holds* a key at some time if its key fields have those values then, by the rules of the merge:
what a record carries is taken by priorities, and a delete keeps key fields.  The records of a target are
read in the merge's order, which is effective time, then arrival as the message carries it, then the number
of the record.  A record means the entities that hold one of its keys at its place in that order:

- none: an upsert begins a new entity, a delete means none;
- one: that entity, and what the record says may change which keys it holds from there on;
- several: the record is in error, KEY_AMBIGUOUS, and leaves no trace.

So a key that was corrected finds its entity no more, and nothing depends on what was received first, or
together: where a message arrives late, everything is as if it had arrived in time.

The guid of a new entity is that of the record's first key.  If an earlier entity has it (it held that key
once), the guid is made of the key, the message, and the record in it.

A record in error only looks: a refresh has seen its entity.  But a record that means several has seen none,
and a refresh deletes them if nothing else in it names them.  A record that waits, or whose link is
ambiguous, counts as if it were applied: which entity it means does not depend on where links lead.  A refresh
deletes the entities that it does not name; with its priority, it decides whether later keys are taken.

A link leads to the entity that holds its key at the end of the linking record's instant, as the history would
show it.  If there is none, to the one that holds it at any time; if there are several, the link is ambiguous.

A *family* is all records that share key values, directly or through others.  Families never meet, so each is
gone through by itself.

Source:
    Data hub, weak composite keys ("employee number or national insurance number"), and out of sequence
    processing ("as if the records had been processed in sequence").  Decision: how keys and time go together
    is not said there.  Nor is it plain what a delete does that carries another value in a key field than its
    entity has: there, key fields are "not updated unless they have changed, using the same rules as update",
    and the example has one key, by which the entity was found.  Decision: a delete changes no key field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.columns import AT, LOOKED_UP
from cdckit.datahub.mappings import Target
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import DELETE, IS_RECORD, REFRESH, UPSERT, priority_sql
from cdckit.parts.arguments import flat_columns, quoted
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.families import FAMILY, NODE, find_families, share_rows
from cdckit.parts.guids import NAME_END, name_parts, name_start, uuid5
from cdckit.parts.workers import WorkerPlan

HAS_INSTANT = f"text RLIKE '{AT}-?[0-9]+$'"
"""Whether a text stands for the entity that holds a weak key at an instant: others end otherwise."""

LOOKS = "looks"
"""What a record in error does; the others upsert, delete or refresh."""


@dataclass(frozen=True)
class WeakKeys:
    """What the task knows of the target: fields and keys by position."""

    entity: str
    fields: tuple[str, ...]
    keys: tuple[tuple[int, ...], ...]
    """The alternative keys, by which records find entities, in their order; then what else links look up."""
    alternatives: int
    """How many of them are alternative keys."""
    looked_up: Mapping[int, str]
    """Of the keys that links look up, the beginning of their marked texts."""
    connecting: tuple[int, ...]
    """Fields of which any two entities that hold an equal key share a value in one."""
    priorities: Mapping[int, tuple[int | None, ...]]
    """By mapping the priorities of the fields that have one of their own."""

    @classmethod
    def from_schema(cls, schema: Schema, target: Target) -> WeakKeys:
        lookups = schema.lookup_keys.get(target.entity, set())
        keys = [*target.alternatives, *sorted(lookups - set(target.alternatives))]
        position = {name: at for at, name in enumerate(target.keys)}
        priorities = {}
        for place, mapping in target.mappings.items():
            priorities_ = {column.reference: column.priority for column in mapping.columns}
            priorities[schema.numbers[place]] = tuple(priorities_.get(name) for name in target.keys)
        return cls(
            target.entity,
            target.keys,
            tuple(tuple(position[name] for name in key) for key in keys),
            len(target.alternatives),
            {
                at: f"{LOOKED_UP}{','.join(key)}{name_start(target.entity)}"
                for at, key in enumerate(keys)
                if key in lookups
            },
            tuple(position[name] for name in connecting_fields(target, lookups)),
            priorities,
        )


def connecting_fields(target: Target, lookups: Set[tuple[str, ...]]) -> list[str]:
    """
    Choose fields so that entities that ever hold a key with equal values have one of these in common.

    It may be put together by several records, each of which has sent a part.  Of an alternative key, all of
    whose fields have values, any field serves, and of what else links look up, all of them together.

    Decision: of several it is the last; the first ones often say of what kind that is, as a country does of
    a number.
    """
    fields = {name for key in lookups - set(target.alternatives) for name in key}
    for key in sorted(target.alternatives, key=len):
        if not fields.intersection(key):
            fields.add(key[-1])
    return sorted(fields, key=target.keys.index)


@dataclass(slots=True, eq=False)
class _Entity:
    """What the merge believes of one entity so far, as far as keys depend on it."""

    guid: str
    values: list[str | None]
    priorities: list[int | None]
    priority: int
    refreshes: int
    """Of how many refreshes it is known whether they have deleted it."""
    deleted: bool = False
    seen_in: str = ""


class KeyRecord(NamedTuple):
    """One record, or the end of a list of all entities: key fields are parts of JSON texts."""

    instant: int
    message: str
    number: int
    place: int
    record: str
    kind: str
    priority: int
    values: tuple[str | None, ...]
    carried: tuple[bool, ...]


class KeyWalk:
    """
    The entities of a target, or of some families of it, while their records are gone through.

    What `_take`, `_catch_up` and `_delete` do to one entity are the rules of the merge, which
    `cdckit.merging.precedence` has for columns of entities: who changes one changes the other.
    """

    def __init__(self, keys: WeakKeys) -> None:
        self._keys = keys
        self._entities: dict[str, _Entity] = {}
        self._holders: list[dict[str, tuple[_Entity, ...]]] = [{} for _ in keys.keys]
        self._refreshes: list[tuple[str, int]] = []
        self.changes: dict[tuple[str, int], tuple[str | None, bool]] = {}
        """By the marked text of a key that links look up, and the instant at the end of which it has other
        holders: the guid of the only one, and whether there are several."""

    def refresh(self, message: str, priority: int) -> None:
        """The end of a list of all entities; of one that comes several times, once (`share_rows`)."""
        if self._refreshes[-1:] != [(message, priority)]:
            self._refreshes.append((message, priority))

    def record(self, record: KeyRecord) -> tuple[str | None, bool]:
        """The guid of the entity that a record means, if it means one, and whether it means several."""
        entities = self._find_entities(record.values)
        if len(entities) > 1:
            return None, True
        if entities:
            entity = entities[0]
            self._catch_up(entity)
        elif record.kind == UPSERT:
            entity = self._begin_entity(record)
        else:
            return None, False
        entity.seen_in = record.message
        if record.kind == DELETE:
            _delete(entity, record.priority)
        elif record.kind == UPSERT:
            self._take(entity, record)
        return entity.guid, False

    def _find_entities(self, values: tuple[str | None, ...]) -> list[_Entity]:
        entities: list[_Entity] = []
        for at in range(self._keys.alternatives):
            key = _key_text(values, self._keys.keys[at], whole=True)
            if key is not None:
                entities += [entity for entity in self._holders[at].get(key, ()) if entity not in entities]
        return entities

    def _begin_entity(self, key_record: KeyRecord) -> _Entity:
        keys = self._keys.keys[: self._keys.alternatives]
        key = next(filter(None, (_key_text(key_record.values, key, whole=True) for key in keys)))
        name = f"{name_start(self._keys.entity)}{key}{NAME_END}"
        guid = uuid5(name)
        if guid in self._entities:
            [message] = name_parts("message", pa.array([key_record.message]))
            [record] = name_parts("record", pa.array([key_record.record]))
            guid = uuid5(f"{name[:-1]},{message},{record}}}")
        fields, refreshes = len(self._keys.fields), len(self._refreshes)
        self._entities[guid] = _Entity(guid, [None] * fields, [None] * fields, key_record.priority, refreshes)
        return self._entities[guid]

    def _catch_up(self, entity: _Entity) -> None:
        """Apply the refreshes since the entity was named last; that of the same message has named it."""
        for message, priority in self._refreshes[entity.refreshes :]:
            if not entity.deleted and message != entity.seen_in and priority >= entity.priority:
                entity.deleted, entity.priority = True, priority
        entity.refreshes = len(self._refreshes)

    def _take(self, entity: _Entity, record: KeyRecord) -> None:
        revived = entity.deleted
        if revived and record.priority < entity.priority:
            return
        entity.deleted = False
        entity.priority = record.priority if revived else max(entity.priority, record.priority)
        before = tuple(entity.values)
        for at, value in enumerate(record.values):
            if not record.carried[at]:
                continue
            own_priority, current = self._keys.priorities[record.place][at], entity.priorities[at]
            offered = record.priority if own_priority is None else own_priority
            # The merge takes an equal value only for a greater priority, which is the same here.
            if revived or current is None or offered >= current:
                entity.values[at], entity.priorities[at] = value, offered
        if tuple(entity.values) != before:
            self._hold(entity, before, record.instant)

    def _hold(self, entity: _Entity, before: tuple[str | None, ...], instant: int) -> None:
        for at, positions in enumerate(self._keys.keys):
            whole = at < self._keys.alternatives
            old, new = (_key_text(values, positions, whole=whole) for values in (before, entity.values))
            if old == new:
                continue
            for key in filter(None, (old, new)):
                others = (holder for holder in self._holders[at].get(key, ()) if holder is not entity)
                holders = self._holders[at][key] = (*others, *([entity] if key == new else []))
                if start := self._keys.looked_up.get(at):
                    guid = holders[0].guid if len(holders) == 1 else None
                    self.changes[start + key + NAME_END, instant] = guid, len(holders) > 1


def _delete(entity: _Entity, priority: int) -> None:
    if priority > entity.priority or (priority == entity.priority and not entity.deleted):
        entity.deleted, entity.priority = True, priority


def _key_text(values: Sequence[str | None], positions: tuple[int, ...], *, whole: bool) -> str | None:
    """The key as JSON text; None unless any of its fields has a value, or for a *whole* one all have."""
    if len(positions) == 1:
        return values[positions[0]]
    parts = [values[at] for at in positions]
    return None if whole and None in parts else ",".join(filter(None, parts)) or None


def key_parts(name: str, values: pa.Array) -> list[str | None]:
    """Each value as the part of a key's JSON text that names it; None for null."""
    distinct = values.dictionary_encode(null_encoding="encode")
    texts = [text or None for text in name_parts(name, distinct.dictionary)]
    return [texts[at] for at in distinct.indices.to_pylist()]


_RECORD = ("message_id", "number", "place")
"""What tells the records of a target with weak keys apart."""

FOUND_COLUMNS = flat_columns(
    """message_id string, number integer, place integer, guid string, several boolean, text string,
    at timestamp"""
)
"""What is found of records (`message_id`, `number`, `place`), and of the keys that links look up (`text`)."""


def find_key_holders(statements: DataFrame, schema: Schema, target: Target, *, few: bool) -> DataFrame:
    """
    Find the entity of every record of a target with weak keys, and those that hold the keys of links.

    The statements are all of the target; where they are *few*, one task goes through them.

    Returns:
        Two kinds of rows.  One per record that has a key: `message_id`, `number` and `place`, which tell it
        from others, `guid`, null where it means none, and `several`, whether it means several entities.
        And one for each instant at which a key that links look up got another holder: its marked `text`,
        `at`, and who holds it at the end of that: `guid`, null for none, or `several`.

    Cost: all records of the target that were ever received are sorted in each run, as their keys alone, and
    gone through family by family: ten to twenty microseconds a record, one or two kilobytes an entity.  Which
    keys are of one family is found in one task, which holds two numbers for each two values that records name
    together.  A family is for one task, and there may be few where a key has several fields: those that have
    the last of these in common are one.  A target with one key costs nothing of this.
    """
    keys = WeakKeys.from_schema(schema, target)
    is_record = f"{IS_RECORD} AND claims IS NOT NULL"
    sent = statements.where(f"({is_record}) OR operation = '{REFRESH}'").selectExpr(
        "unix_micros(effective_timestamp) AS at",
        "arrival",
        "message_id",
        "arrival.record_number AS number",
        "place",
        "record",
        f"if({IS_RECORD} AND error_code IS NOT NULL, '{LOOKS}', operation) AS kind",
        f"{priority_sql(schema)} AS priority",
        *(f"data.{quoted(name)} AS `value {at}`" for at, name in enumerate(keys.fields)),
        *(f"carried.{quoted(name)} AS `carried {at}`" for at, name in enumerate(keys.fields)),
    )
    # Of refreshes in one place the strongest counts.
    in_order = ("at", "arrival", "message_id", F.desc("priority"))
    together = sent.coalesce(1) if few else _share_families(sent, keys)
    ordered = together.sortWithinPartitions(*in_order).drop("arrival")
    return WorkerPlan(ordered, partial(walk_records, keys=keys), FOUND_COLUMNS).rows()


def _share_families(sent: DataFrame, keys: WeakKeys) -> DataFrame:
    """The records of a family in one partition, and in every partition all refreshes."""
    values = ((at, f"`value {at}`") for at in keys.connecting)
    # Values that have one number by chance only join families that could be apart.
    numbers = ", ".join(f"if({value} IS NULL, NULL, xxhash64({at}, {value}))" for at, value in values)
    nodes = sent.selectExpr("*", f"coalesce({numbers}) AS {NODE}")
    edges = nodes.selectExpr(NODE, f"explode(array({numbers})) AS other").where(f"other <> {NODE}")
    families = nodes.join(find_families(edges.distinct()), NODE, "left")
    shared = share_rows(families, F.coalesce(FAMILY, NODE), everywhere=F.col("kind") == REFRESH)
    return shared.select(*sent.columns)


def walk_records(batches: Iterable[pa.RecordBatch], keys: WeakKeys) -> Iterator[pa.RecordBatch]:
    """
    Walk the rows in their order; what is found of them, in `FOUND_COLUMNS`.

    They are `KeyRecord` in columns, but with the values of key fields one by one, then whether each was
    carried.
    """
    walk, schema = KeyWalk(keys), arrow_schema(FOUND_COLUMNS)
    for batch in batches:
        rows = []
        for record in _key_records(batch, keys):
            if record.kind == REFRESH:
                walk.refresh(record.message, record.priority)
            else:
                guid, several = walk.record(record)
                found = (record.message, record.number, record.place, guid, several)
                rows.append(dict(zip(schema.names, found, strict=False)))
        yield pa.RecordBatch.from_pylist(rows, schema)
    changes = [
        {"text": text, "at": at, "guid": guid, "several": several}
        for (text, at), (guid, several) in walk.changes.items()
    ]
    yield pa.RecordBatch.from_pylist(changes, schema)


def _key_records(batch: pa.RecordBatch, keys: WeakKeys) -> Iterator[KeyRecord]:
    standard, fields = len(KeyRecord._fields) - 2, len(keys.fields)
    columns = batch.columns
    values = [key_parts(name, columns[standard + at]) for at, name in enumerate(keys.fields)]
    carried = [column.to_pylist() for column in columns[standard + fields :]]
    plain = (column.to_pylist() for column in columns[:standard])
    return map(KeyRecord, *plain, zip(*values, strict=True), zip(*carried, strict=True))


def with_weak_guids(statements: DataFrame, key_holders: DataFrame | None) -> DataFrame:
    """
    The statements with `guid` and `several`, as `find_key_holders` has found them; None if it found nothing.
    """
    if key_holders is None:
        return statements.withColumns({"guid": F.lit(None).cast("string"), "several": F.lit(False)})
    # Claims are null where a key cannot be read: the record finds nothing.
    means = key_holders.where("message_id IS NOT NULL").select(*_RECORD, "guid", "several")
    named = statements.withColumn("number", F.col("arrival.record_number")).drop("guid")
    return named.join(means, [*_RECORD], "left").drop("number")


def holders(key_holders: DataFrame, questions: DataFrame) -> DataFrame:
    """
    The entities that hold the keys of links, by what `find_key_holders` gives.

    One row per question (`text`, marked and with its instant; no two the same) that leads somewhere: `text`,
    `found` (a guid, null where there are several) and `several`.

    Cost: one shuffle of questions and changes by text, and one sort: a key that is asked for, or changes
    hands, however often is no more than so many rows of it.
    """
    changes = key_holders.where("text IS NOT NULL").selectExpr(
        "text", "at", "struct(guid, several) AS holder", "CAST(NULL AS string) AS asked"
    )
    dated = questions.selectExpr("text AS asked", f"substring_index(text, '{AT}', -1) AS at")
    needs = dated.selectExpr(
        f"left(asked, length(asked) - length(at) - {len(AT)}) AS text",
        "timestamp_micros(CAST(at AS long)) AS at",
        "CAST(NULL AS struct<guid: string, several: boolean>) AS holder",
        "asked",
    )
    so_far = "ORDER BY at, asked IS NOT NULL ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    united = changes.unionByName(needs).selectExpr(
        "asked",
        f"last(holder, true) OVER (PARTITION BY text {so_far}) AS at_that_time",
        "min(holder.guid) OVER (PARTITION BY text) AS least",
        "max(holder.guid) OVER (PARTITION BY text) AS greatest",
        "max(holder.several) OVER (PARTITION BY text) AS shared",
    )
    return united.where("asked IS NOT NULL AND (shared OR least IS NOT NULL)").selectExpr(
        "asked AS text",
        # If there is none at that time, the one that holds it at any time.
        """CASE WHEN coalesce(at_that_time.several, false) THEN NULL
            WHEN at_that_time.guid IS NOT NULL THEN at_that_time.guid
            WHEN NOT shared AND least = greatest THEN least END AS found""",
        "found IS NULL AS several",
    )
