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

A record in error only looks: a refresh has seen its entity.  A record that waits, or whose link is
ambiguous, counts as if it were applied: which entity it means does not depend on where links lead.  A refresh
deletes the entities that it does not name; with its priority, it decides whether later keys are taken.

A link leads to the entity that holds its key at the end of the linking record's instant, as the history would
show it.  If there is none, to the one that holds it at any time; if there are several, the link is ambiguous.

Source:
    Data hub, weak composite keys ("employee number or national insurance number"), and out of sequence
    processing ("as if the records had been processed in sequence").  Decision: how keys and time go together
    is not said there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.record_keys import LOOKED_UP, as_text
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import DELETE, REFRESH, UPSERT, by_place, place_numbers
from cdckit.datahub.targets import Target
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.identifiers import names, uuid5
from cdckit.parts.workers import Made

_LOOKS, _UPSERTS, _DELETES, _REFRESHES = range(4)

_RECORD = ("message_id", "number", "place")
"""What tells the records of a target with weak keys apart."""

_COLUMNS = T.StructType(
    [
        T.StructField("message_id", T.StringType()),
        T.StructField("number", T.IntegerType()),
        T.StructField("place", T.IntegerType()),
        T.StructField("guid", T.StringType()),
        T.StructField("several", T.BooleanType()),
        T.StructField("text", T.StringType()),
        T.StructField("at", T.TimestampType()),
    ]
)

_END = "}}"
"""What the texts that guids are made of end in."""

_AT = "@"
"""What follows the marked text of a link to a target with weak keys: its instant, in microseconds."""


def held_keys(statements: DataFrame, schema: Schema, target: Target) -> DataFrame:
    """
    Find the entity of every record of a target with weak keys, and those that hold the keys of links.

    Args:
        statements: All of the target.
        schema: The schema; its mappings give the priorities.
        target: The target.

    Returns:
        Two kinds of rows.  One per record that has a key: `message_id`, `number` and `place`, which tell it
        from others, `guid`, null where it means none, and `several`, whether it means several entities.
        And one for each instant at the end of which a key that links look up is held by another entity than
        before: its marked `text`, `at`, and the holder: `guid`, null for none, or `several`.

    Cost: all records of the target that were ever received are sorted in each run, as their keys alone, and
    gone through in one task: ten to twenty microseconds a record, one or two kilobytes an entity.  That
    is minutes for ten million records, whatever the cluster; a target with one key costs nothing of this.
    """
    work = _Work.of(schema, target)
    numbers = place_numbers(schema)
    priorities = {numbers[place]: mapping.priority for place, mapping in target.mappings.items()}
    is_record = F.col("operation").isin(UPSERT, DELETE)
    kind = (
        F.when(F.col("operation") == REFRESH, _REFRESHES)
        .when(F.col("error_code").isNotNull(), _LOOKS)
        .when(F.col("operation") == DELETE, _DELETES)
        .otherwise(_UPSERTS)
    )
    rows = statements.where((is_record & F.col("claims").isNotNull()) | (F.col("operation") == REFRESH))
    sent = rows.select(
        F.unix_micros("effective_timestamp").alias("at"),
        "arrival",
        "message_id",
        F.col("arrival.record_number").alias("number"),
        "place",
        "record",
        kind.alias("kind"),
        by_place(priorities, "int").alias("priority"),
        *(F.col("data").getField(name).alias(f"value {at}") for at, name in enumerate(work.fields)),
        *(F.col("carried").getField(name).alias(f"carried {at}") for at, name in enumerate(work.fields)),
    )
    # Of refreshes in one place the strongest counts.
    in_order = ("at", "arrival", "message_id", F.desc("priority"))
    single = sent.repartition(1).sortWithinPartitions(*in_order).drop("arrival")
    return Made(single, partial(_walked, work=work), _COLUMNS).rows()


def with_weak_guids(statements: DataFrame, held: DataFrame | None) -> DataFrame:
    """The statements with `guid` and `several`, as `held_keys` has found them; None if it found nothing."""
    if held is None:
        return statements.withColumns({"guid": F.lit(None).cast("string"), "several": F.lit(False)})
    # Claims are null where a key cannot be read: the record finds nothing.
    means = held.where(F.col("message_id").isNotNull()).select(*_RECORD, "guid", "several")
    named = statements.withColumn("number", F.col("arrival.record_number")).drop("guid")
    return named.join(means, [*_RECORD], "left").drop("number")


def marks(schema: Schema, entity: str) -> list[str]:
    """What the marked texts of links begin with that look up *entity*."""
    start = _start(entity)
    return [f"{LOOKED_UP}{','.join(fields)}{start}" for fields in sorted(schema.looked_up.get(entity, ()))]


def marked(text: Column, starts: Iterable[str]) -> Column:
    """Whether a text is one of those that begin so."""
    return reduce(Column.__or__, (text.startswith(start) for start in starts), F.lit(False))


def with_instant(text: Column) -> Column:
    """A marked text with the instant of the record in which it stands: what holds a key depends on it."""
    return F.concat(text, F.lit(_AT), F.unix_micros("effective_timestamp").cast("string"))


def without_instant(text: Column) -> Column:
    """A marked text as it was, and any other one as it is."""
    return F.regexp_replace(text, rf"^(\{LOOKED_UP}.*}}){_AT}-?[0-9]+$", "$1")


def holders(held: DataFrame, questions: DataFrame) -> DataFrame:
    """
    The entities that hold the keys of links.

    Args:
        held: As `held_keys` gives it.
        questions: `text`, marked, and `effective_timestamp`; no two the same.

    Returns:
        One row per question that leads somewhere: `text`, with its instant, `found` (a guid, null where
        there are several) and `several`.

    Cost: one shuffle of questions and changes by text, and one sort: a key that is asked for, or changes
    hands, however often is no more than so many rows of it.
    """
    nothing = F.lit(None).cast("string")
    holder = F.struct("guid", "several")
    changes = held.where(F.col("text").isNotNull()).select(
        "text", "at", holder.alias("holder"), nothing.alias("asked")
    )
    asked = questions.select(
        "text",
        F.col("effective_timestamp").alias("at"),
        F.lit(None).cast(changes.schema["holder"].dataType).alias("holder"),
        with_instant(F.col("text")).alias("asked"),
    )
    by_text = Window.partitionBy("text")
    so_far = by_text.orderBy("at", F.col("asked").isNotNull()).rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )
    ever = F.col("holder")
    united = changes.unionByName(asked).select(
        "asked",
        F.last("holder", ignorenulls=True).over(so_far).alias("then"),
        F.min(ever.getField("guid")).over(by_text).alias("least"),
        F.max(ever.getField("guid")).over(by_text).alias("greatest"),
        F.max(ever.getField("several")).over(by_text).alias("shared"),
    )
    one, several = F.col("then").getField("guid"), F.coalesce(F.col("then").getField("several"), F.lit(False))
    only = ~F.col("shared") & (F.col("least") == F.col("greatest"))
    found = F.when(several, None).otherwise(F.coalesce(one, F.when(only, F.col("least"))))
    many = several | (one.isNull() & ~only)
    return (
        united.where(F.col("asked").isNotNull() & F.col("shared").isNotNull())
        .select(
            F.col("asked").alias("text"), found.alias("found"), F.coalesce(many, several).alias("several")
        )
        .where(F.col("found").isNotNull() | F.col("several"))
    )


@dataclass(frozen=True)
class _Work:
    """What the task knows of the target: fields and keys by position."""

    entity: str
    start: str
    """What the texts of all of its keys begin with."""
    fields: tuple[str, ...]
    keys: tuple[tuple[int, ...], ...]
    """The alternative keys, by which records find entities, in their order; then what else links look up."""
    alternatives: int
    """How many of them are alternative keys."""
    looked_up: Mapping[int, str]
    """Of the keys that links look up, the beginning of their marked texts."""
    priorities: Mapping[int, tuple[int | None, ...]]
    """By mapping the priorities of the fields that have one of their own."""

    @classmethod
    def of(cls, schema: Schema, target: Target) -> _Work:
        asked = schema.looked_up.get(target.entity, set())
        keys = [*target.alternatives, *sorted(asked - set(target.alternatives))]
        position = {name: at for at, name in enumerate(target.keys)}
        start = _start(target.entity)
        numbers = place_numbers(schema)
        priorities = {}
        for place, mapping in target.mappings.items():
            own = {each.reference: each.priority for each in mapping.columns}
            priorities[numbers[place]] = tuple(own.get(name) for name in target.keys)
        return cls(
            target.entity,
            start,
            target.keys,
            tuple(tuple(position[name] for name in key) for key in keys),
            len(target.alternatives),
            {at: f"{LOOKED_UP}{','.join(key)}{start}" for at, key in enumerate(keys) if key in asked},
            priorities,
        )


def _start(entity: str) -> str:
    """What the texts that guids are made of begin with; they end in two braces."""
    [name] = names(entity, {"": pa.nulls(1, pa.string())})
    return name[: -len(_END)]


class _Entity:
    """What the merge believes of one entity so far, as far as keys depend on it."""

    __slots__ = ("deleted", "guid", "priorities", "priority", "refreshes", "seen_in", "values")

    def __init__(self, guid: str, fields: int) -> None:
        self.guid, self.deleted, self.priority = guid, False, 0
        self.values: list[str | None] = [None] * fields
        self.priorities: list[int | None] = [None] * fields
        self.seen_in = ""
        self.refreshes = 0
        """Of how many refreshes it is known whether they have deleted it."""


@dataclass
class _Said:
    """One record: its key fields as parts of JSON texts, and which of them it carried."""

    message: str
    record: str
    kind: int
    priority: int
    values: tuple[str | None, ...]
    carried: tuple[bool, ...]
    priorities: tuple[int | None, ...]


class _Walk:
    """All entities of a target while its records are gone through."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._entities: dict[str, _Entity] = {}
        self._held: list[dict[str, tuple[_Entity, ...]]] = [{} for _ in work.keys]
        self._refreshes: list[tuple[str, int]] = []
        self._instant: int | None = None
        self._before: dict[tuple[int, str], tuple[_Entity, ...]] = {}
        """Of the keys that other entities hold within the instant, the holders before it."""
        self.changes: list[tuple[str, int | None, str | None, bool]] = []

    def begin(self, instant: int | None) -> None:
        """What was true at the end of the instant before is what its links find."""
        if instant == self._instant:
            return
        for (at, key), before in self._before.items():
            now = self._held[at].get(key, ())
            if now != before:
                guid = now[0].guid if len(now) == 1 else None
                self.changes.append(
                    (self._work.looked_up[at] + key + _END, self._instant, guid, len(now) > 1)
                )
        self._before.clear()
        self._instant = instant

    def refresh(self, message: str, priority: int) -> None:
        """The end of a list of all entities."""
        self._refreshes.append((message, priority))

    def record(self, said: _Said) -> tuple[str | None, bool]:
        """The guid of the entity that a record means, if it means one, and whether it means several."""
        found = self._found(said.values)
        if len(found) > 1:
            return None, True
        if found:
            entity = found[0]
            self._catch_up(entity)
        elif said.kind == _UPSERTS:
            entity = self._begun(said)
        else:
            return None, False
        entity.seen_in = said.message
        if said.kind == _DELETES:
            _delete(entity, said.priority)
        elif said.kind == _UPSERTS:
            self._take(entity, said)
        return entity.guid, False

    def _found(self, values: tuple[str | None, ...]) -> list[_Entity]:
        found: list[_Entity] = []
        for at in range(self._work.alternatives):
            key = _whole(values, self._work.keys[at])
            if key is not None:
                found += [each for each in self._held[at].get(key, ()) if each not in found]
        return found

    def _begun(self, said: _Said) -> _Entity:
        wholes = (_whole(said.values, key) for key in self._work.keys[: self._work.alternatives])
        key = next(filter(None, wholes))
        name = f"{self._work.start}{key}{_END}"
        guid = uuid5(name)
        if guid in self._entities:
            [message] = _parts(self._work, "message", pa.array([said.message]))
            [record] = _parts(self._work, "record", pa.array([said.record]))
            guid = uuid5(f"{name[:-1]},{message},{record}}}")
        entity = self._entities[guid] = _Entity(guid, len(self._work.fields))
        entity.priority, entity.refreshes = said.priority, len(self._refreshes)
        return entity

    def _catch_up(self, entity: _Entity) -> None:
        """Apply the refreshes since the entity was named last; that of the same message has named it."""
        for message, priority in self._refreshes[entity.refreshes :]:
            if not entity.deleted and message != entity.seen_in and priority >= entity.priority:
                entity.deleted, entity.priority = True, priority
        entity.refreshes = len(self._refreshes)

    def _take(self, entity: _Entity, said: _Said) -> None:
        revived = entity.deleted
        if revived and said.priority < entity.priority:
            return
        entity.deleted = False
        entity.priority = said.priority if revived else max(entity.priority, said.priority)
        before = tuple(entity.values)
        for at, value in enumerate(said.values):
            if not said.carried[at]:
                continue
            own, current = said.priorities[at], entity.priorities[at]
            offered = said.priority if own is None else own
            # The merge takes an equal value only for a greater priority, which is the same here.
            if revived or current is None or offered >= current:
                entity.values[at], entity.priorities[at] = value, offered
        if tuple(entity.values) != before:
            self._hold(entity, before, tuple(entity.values))

    def _hold(self, entity: _Entity, before: tuple[str | None, ...], now: tuple[str | None, ...]) -> None:
        for at, positions in enumerate(self._work.keys):
            text = _whole if at < self._work.alternatives else _some
            old, new = text(before, positions), text(now, positions)
            if old == new:
                continue
            for key in (old, new):
                if key is not None:
                    holding = self._held[at].get(key, ())
                    if at in self._work.looked_up:
                        self._before.setdefault((at, key), holding)
                    rest = tuple(each for each in holding if each is not entity)
                    after = (*rest, entity) if key == new else rest
                    if after:
                        self._held[at][key] = after
                    else:
                        del self._held[at][key]


def _delete(entity: _Entity, priority: int) -> None:
    if priority > entity.priority or (priority == entity.priority and not entity.deleted):
        entity.deleted, entity.priority = True, priority


def _whole(values: tuple[str | None, ...], positions: tuple[int, ...]) -> str | None:
    """The key as JSON text; None unless all of its fields have values."""
    if len(positions) == 1:
        return values[positions[0]]
    parts = [values[at] for at in positions]
    return None if None in parts else ",".join(filter(None, parts))


def _some(values: tuple[str | None, ...], positions: tuple[int, ...]) -> str | None:
    """The same; None unless any of its fields has a value."""
    return ",".join(filter(None, (values[at] for at in positions))) or None


def _walked(batches: Iterable[pa.RecordBatch], work: _Work) -> Iterator[pa.RecordBatch]:
    walk = _Walk(work)
    for batch in batches:
        found = [row for row in map(partial(_step, walk, work), _rows(batch, work)) if row is not None]
        yield _output(found, walk)
    walk.begin(None)
    yield _output([], walk)


def _rows(batch: pa.RecordBatch, work: _Work) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch: instant, message, number, place, record, kind, priority, values, carried."""
    standard = [column.to_pylist() for column in batch.columns[:7]]
    fields = len(work.fields)
    values = [_parts(work, name, batch.column(7 + at)) for at, name in enumerate(work.fields)]
    carried = [batch.column(7 + fields + at).to_pylist() for at in range(fields)]
    return zip(*standard, zip(*values, strict=True), zip(*carried, strict=True), strict=True)


def _step(walk: _Walk, work: _Work, row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    instant, message, number, place, record, kind, priority, values, carried = row
    walk.begin(instant)
    if kind == _REFRESHES:
        walk.refresh(message, priority)
        return None
    said = _Said(message, record, kind, priority, values, carried, work.priorities[place])
    return (message, number, place, *walk.record(said))


def _parts(work: _Work, name: str, values: pa.Array) -> list[str | None]:
    """Each value as the part of a key's JSON text that names it; None for null."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", tz="UTC"))
    distinct = as_text(values).dictionary_encode(null_encoding="encode")
    start, end = len(work.start), -len(_END)
    texts = [text[start:end] or None for text in names(work.entity, {name: distinct.dictionary})]
    return [texts[at] for at in distinct.indices.to_pylist()]


def _output(found: list[tuple[Any, ...]], walk: _Walk) -> pa.RecordBatch:
    rows = [(*row, None, None) for row in found]
    rows += [(None, None, None, guid, several, text, at) for text, at, guid, several in walk.changes]
    walk.changes.clear()
    schema = arrow_schema(_COLUMNS)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
