"""One run of a hub: what new messages say, which entities it touches, and what they look like now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.absences import parent_fields
from cdckit.datahub.existence import STATEMENT_KEY, waiting_statements, with_statement_key
from cdckit.datahub.exports import export_rows, newly_exported
from cdckit.datahub.outcomes import Retry, problems, routed, statuses
from cdckit.datahub.readers import Filter, Reader
from cdckit.datahub.resolution import ANSWERS, BY_LOOKING, HELD, UNPROCESSED
from cdckit.datahub.sought import with_sought
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.state import (
    AMBIGUOUS,
    EXPORTED,
    HISTORY,
    REFRESHED,
    STATEMENTS,
    STATUSES,
    WAITING,
    State,
    noted,
    table,
)
from cdckit.datahub.statements import statements
from cdckit.datahub.statuses import Status
from cdckit.datahub.threads import at_once
from cdckit.merging import made_versions
from cdckit.parts.arguments import require_instant
from cdckit.parts.schemas import quoted
from cdckit.store import File, Transaction
from cdckit.store.writing import Rows

_LAST_POSITION = "last position"

_FEW = 1_000
"""So many guids, or keys of statements, this program may hold; more stay with the executors."""

_SMALL, _MANY = 4 << 20, 16
"""So many files of fewer bytes are written together: a table that grows by the run has a bounded number."""


class _Moved(NamedTuple):
    """What a run moves before anything is merged: `entity`, `guid` (null for ends of lists), `parents`."""

    rows: DataFrame
    entities: set[str]


_Touched = Mapping[str, DataFrame | None]
"""By target the guids of the entities that are merged anew; None for all of them."""


def grow(tables: Transaction, name: str, rows: Rows) -> None:
    """Append rows to a table, and write its small files together when there are many."""
    tables.append(name, rows)
    tables.compact(name, below=_SMALL, files=_MANY)


def computed(rows: DataFrame) -> DataFrame:
    """
    Rows computed once and looked at again: without files, and if they are few as rows of Spark's plans.

    Of more, an executor that dies takes its part along: the run fails, and can be run again.

    Cost: a job, and another one that looks whether there are more than a few.
    """
    kept = rows.localCheckpoint()
    some = kept.limit(_FEW + 1).toArrow()
    return kept if some.num_rows > _FEW else rows.sparkSession.createDataFrame(some, rows.schema)


def note(tables: Transaction, key: str, value: Any) -> None:
    """Note a value beside the tables, as JSON; see `noted`."""
    tables.note(key, json.dumps(value))


class Run(State):
    """
    The tables of a hub during one run.

    Args:
        schema: The schema.
        tables: A transaction; nothing is committed here.
        readers: By name.
        filters: By name.
        files: The folder of the files.
        retry: When messages that wait are tried again.
        now: The time of the run.
    """

    def __init__(
        self,
        schema: Schema,
        tables: Transaction,
        readers: Mapping[str, Reader],
        filters: Mapping[str, Filter],
        files: str | None,
        retry: Retry,
        now: datetime,
    ) -> None:
        super().__init__(schema, tables)
        self._writes, self._retry, self._now = tables, retry, now
        self._readers, self._filters, self._files = readers, filters, files
        self._at = require_instant(now, "now", function="process")
        self._fresh: DataFrame | None = None
        self._refreshed: set[str] = set()
        self._attempt, self._forgot = True, False

    def has_due(self) -> bool:
        """Whether a message that waits is to be tried again."""
        known = self.read(STATUSES)
        return known is not None and self.some(WAITING) is not None and not self._due(known).isEmpty()

    def read_messages(self, messages: DataFrame, *, attempt: bool = True) -> bool:
        """
        Write what *messages* say; whether there are any.

        An *attempt* counts as one for those that come to wait.
        """
        self._fresh, self._attempt = routed(messages, self.schema), attempt
        # As many rows as the schema has source entities, at most twice; and of others one that says so.
        readable = F.col("refused").isNull()
        sender = [F.when(readable, F.col(name)).alias(name) for name in ("source_system", "source_entity")]
        said = (
            self._fresh.select(*sender, (readable & F.col("refresh")).alias("refresh")).distinct().collect()
        )
        senders = {(row["source_system"], row["source_entity"]) for row in said}
        refreshing = {(row["source_system"], row["source_entity"]) for row in said if row["refresh"]}
        self._refreshed = {
            mapping.reference
            for place, mapping in self.schema.all_mappings.items()
            if (place.system, place.entity) in refreshing
        }
        known = noted(self._writes, REFRESHED, [])
        note(self._writes, REFRESHED, sorted({*known, *self._refreshed}))
        spoken_of = [
            entity
            for entity in self.schema.targets
            if any((place.system, place.entity) in senders for place in self.schema.roots(entity))
        ]
        at_once(self._writes.spark, partial(self._read_of, self._fresh.where(readable)), spoken_of)
        return bool(said)

    def _read_of(self, messages: DataFrame, entity: str) -> None:
        said = statements(
            messages,
            self.schema,
            entity,
            readers=self._readers,
            filters=self._filters,
            files=self._files,
        )
        grow(self._writes, table(STATEMENTS, entity), said)

    def forget(self, chosen: DataFrame | None) -> None:
        """Forget what the *chosen* messages said and came to; without them, what all said."""
        self._forgot = True
        known = self.read(STATUSES)
        if chosen is None:
            self._drop(STATEMENTS, HELD, ANSWERS)
            note(self._writes, REFRESHED, [])
            return
        ids = F.broadcast(chosen)
        for name in self._names(STATEMENTS):
            said = F.broadcast(chosen.withColumnRenamed("message_identifier", "message_id"))
            self._writes.replace(name, self._writes.read(name).join(said, "message_id", "left_anti"))
        if known is not None:
            self._writes.replace(STATUSES, known.join(ids, "message_identifier", "left_anti"))

    def forget_schema(self) -> None:
        """Forget what was read by another schema: it says nothing by this one, nor what had to wait by it."""
        self.forget(None)
        self._drop(HISTORY)
        for name in (WAITING, AMBIGUOUS):
            self._keep(name, None)

    def settle(self, *, everything: bool = False) -> None:
        """Find out what can be applied, merge what this touches (or *everything*), and set the statuses."""
        before = self.some(WAITING), self.some(AMBIGUOUS)
        found = {name: self.read(name) for name in self._looked_up}
        waiting = waiting_statements(
            self.schema, self.resolution, self._stated_everywhere, self._held, computed
        )
        ambiguous = self._ambiguous()
        if waiting is not None:
            waiting = with_sought(self.schema, self.resolution, self._stated_everywhere, waiting)
        turned = self._turned(before, (waiting, ambiguous))
        self._keep(WAITING, waiting)
        self._keep(AMBIGUOUS, ambiguous)
        self._merge(turned, everything or self._found_otherwise(found))
        self._set_statuses(turned, had_waiting=before[0] is not None)
        self._number_exports()

    def looked_up(self, kind: str, entity: str, rows: DataFrame) -> DataFrame:
        """A table that a run writes, and that is read until the next one."""
        name = table(kind, entity)
        self._writes.replace(name, rows)
        return self._writes.read(name)

    def _names(self, kind: str) -> list[str]:
        return [name for name in self._writes.names() if name.startswith(f"{kind}.")]

    def _drop(self, *kinds: str) -> None:
        for name in [name for kind in kinds for name in self._names(kind)]:
            self._writes.drop(name)

    def _keep(self, name: str, rows: DataFrame | None) -> None:
        if rows is not None:
            self._writes.replace(name, rows)
        elif self._writes.has(name):
            self._writes.swap(name, self._writes.files(name))

    def _number_exports(self) -> None:
        """Give what is exported now, and was not or not so before, the next position."""
        position = int(noted(self._writes, _LAST_POSITION, 0)) + 1
        for entity in self._stated_everywhere:
            if self.schema.targets[entity].export:
                rows = export_rows(self.schema, entity, self.applied(entity))
                name = table(EXPORTED, entity)
                new = computed(newly_exported(rows, self.read(name), position))
                if not new.isEmpty():
                    grow(self._writes, name, new)
                    note(self._writes, _LAST_POSITION, position)

    def _no_statements(self) -> DataFrame:
        return self._empty(
            "entity string, message_id string, number int, operation string, place int, made string"
        )

    @cached_property
    def _held(self) -> DataFrame | None:
        """The statements that are not tried in this run: their messages are not due, or were given up."""
        known, waiting = self.read(STATUSES), self.some(WAITING)
        if known is None or waiting is None:
            return None
        later = (F.col("next_attempt_timestamp") > self._at) | F.lit(not self._attempt)
        not_due = (F.col("status") == int(Status.REQUIRES_REPROCESSING)) & later
        given_up = F.col("status") == int(Status.REPROCESS_TIMEOUT)
        messages = known.where(not_due | given_up).select(F.col("message_identifier").alias("message_id"))
        held = waiting.join(messages, "message_id", "left_semi").select(*STATEMENT_KEY, "missing", "record")
        kept = computed(held)
        return None if kept.isEmpty() else kept

    def _ambiguous(self) -> DataFrame | None:
        """
        The statements whose keys or links lead to several entities, and those unprocessed for it.

        None if there can be none.  Other messages may bring them into this, and out of it again.
        """
        found = self._no_statements()
        weak = any(len(each.alternatives) > 1 for each in self.schema.targets.values())
        if not self.resolution.looks_up and not weak:
            return None
        for entity in self._stated_everywhere:
            rows = with_statement_key(self.resolution.resolved(entity))
            rows = rows.where(F.col("error_code").isin(*BY_LOOKING, UNPROCESSED))
            found = found.unionByName(rows.select(F.lit(entity).alias("entity"), *STATEMENT_KEY[1:]))
        return computed(found)

    def _turned(
        self,
        before: tuple[DataFrame | None, DataFrame | None],
        now: tuple[DataFrame | None, DataFrame | None],
    ) -> DataFrame | None:
        """The statements that are applied now and were not, or the other way round; None for none."""
        found = []
        for earlier, later in zip(before, now, strict=True):
            if earlier is not None or later is not None:
                nothing = self._no_statements()
                one, other = (
                    (nothing if each is None else each).select(*STATEMENT_KEY) for each in (earlier, later)
                )
                found += [one.exceptAll(other), other.exceptAll(one)]
        if not found:
            return None
        turned = computed(reduce(DataFrame.unionByName, found))
        return None if turned.isEmpty() else turned

    def _merge(self, turned: DataFrame | None, everything: bool) -> None:
        begun = any(self._writes.has(table(HISTORY, entity)) for entity in self._stated)
        moved = self._moved(turned) if begun and not everything else None
        touched: _Touched = {}
        stated = set(self._stated)
        for generation in self.schema.generations:
            merge_one = partial(self._merge_one, moved=moved, touched=touched)
            for some in at_once(
                self._writes.spark, merge_one, [entity for entity in generation if entity in stated]
            ):
                touched = {**touched, **some}

    def _merge_one(self, entity: str, moved: _Moved | None, touched: _Touched) -> _Touched:
        """Merge a target; the entities of it that this run touches."""
        name, keys = table(HISTORY, entity), self.schema.targets[entity].keys
        before = self.read(name)
        if moved is None or before is None or entity in self._refreshed:
            self._writes.replace(name, made_versions(self.changes(entity), entity=entity, keys=keys))
            return {entity: None}
        some = self._touched(entity, moved, touched)
        if some is None:
            return {}
        touches = self._files_with(name, some)
        rest = self._writes.read(name, files=touches).join(some, "guid", "left_anti")
        history = made_versions(self.changes(entity, some), entity=entity, keys=keys)
        if touches:
            self._writes.swap(name, touches, rest.select(*map(quoted, before.columns)), history)
        else:
            self._writes.append(name, history)
        self._writes.compact(name, below=_SMALL, files=_MANY)
        return {entity: some}

    def _files_with(self, name: str, guids: DataFrame) -> list[File]:
        """The files of a history that have versions of these entities: the others stay as they are."""
        rows = self._writes.read(name).select("guid", F.input_file_name().alias("file"))
        # As many rows as there are files, at most.
        found = rows.join(guids, "guid", "left_semi").select("file").distinct().collect()
        paths = {row["file"].rsplit("/", 1)[-1] for row in found}
        return [one for one in self._writes.files(name) if one.path in paths]

    @property
    def _stated_everywhere(self) -> list[str]:
        """The targets of which anything was said, exported ones too."""
        return [each for each in self.schema.targets if self._writes.has(table(STATEMENTS, each))]

    @property
    def _stated(self) -> list[str]:
        """The targets of which anything was said, parents before their children."""
        return [each for each in self.schema.families if self._writes.has(table(STATEMENTS, each))]

    @property
    def _looked_up(self) -> dict[str, Column]:
        """The tables of what keys and links find, with the condition of the rows that say so."""
        weak = [name for name, target in self.schema.targets.items() if len(target.alternatives) > 1]
        keys = {table(HELD, name): F.col("message_id").isNotNull() for name in weak}
        return keys | {table(ANSWERS, name): F.lit(True) for name in self.schema.looked_up}

    def _found_otherwise(self, before: Mapping[str, DataFrame | None]) -> bool:
        """Whether a key or link finds another entity than it did: then any entity may have been moved."""
        for name, earlier in before.items():
            later, says = self.read(name), self._looked_up[name]
            if earlier is None or later is None:
                continue
            if not earlier.where(says).exceptAll(later.where(says)).isEmpty():
                return True
        return False

    def _moved(self, turned: DataFrame | None) -> _Moved:
        """What came in this run speaks of, and what is applied now, or no longer, speaks of."""
        assert self._fresh is not None
        fresh = self._fresh.select(F.col("message_identifier").alias("message_id"))
        found = []
        for entity in self._stated:
            rows = with_statement_key(self.resolution.resolved(entity))
            some = [rows.join(fresh, "message_id", "left_semi")]
            if turned is not None:
                columns = ["message_id", "number", "operation", "place"]
                ours = turned.where(F.col("entity") == entity).select(*columns)
                some.append(rows.join(ours, columns, "left_semi"))
            fields = list(parent_fields(self.schema, entity))
            parents = F.array(*(F.col("data").getField(name) for name in fields)).cast("array<string>")
            found += [
                each.select(F.lit(entity).alias("entity"), "guid", parents.alias("parents")) for each in some
            ]
        if not found:
            return _Moved(self._no_statements(), set())
        rows = computed(reduce(DataFrame.unionByName, found))
        # As many rows as there are targets, at most.
        return _Moved(rows, {row["entity"] for row in rows.select("entity").distinct().collect()})

    def _touched(self, entity: str, moved: _Moved, touched: _Touched) -> DataFrame | None:
        """The guids whose versions may have changed; None if there are none."""
        ours = moved.rows.where(F.col("entity") == entity)
        found = [ours.select("guid")] if entity in moved.entities else []
        rows = self.resolution.resolved(entity)
        for place, (field, held_by) in enumerate(parent_fields(self.schema, entity).items()):
            scopes = [ours.select(F.col("parents").getItem(place).alias("scope"))] if found else []
            for parent in {self.schema.mapping(each).reference for each in held_by.values()}:
                changed = touched.get(parent, self._empty("guid string"))
                if changed is None:
                    return rows.select("guid").where(F.col("guid").isNotNull()).distinct()
                if parent in touched:
                    scopes.append(changed.select(F.col("guid").alias("scope")))
            if scopes:
                below = rows.withColumn("scope", F.col("data").getField(field))
                united = reduce(DataFrame.unionByName, scopes)
                found.append(below.join(united, "scope", "left_semi").select("guid"))
        if not found:
            return None
        guids = reduce(DataFrame.unionByName, found).where(F.col("guid").isNotNull()).distinct()
        return computed(guids)

    def _due(self, known: DataFrame) -> DataFrame:
        waits = F.col("status") == int(Status.REQUIRES_REPROCESSING)
        return known.where(waits & (F.col("next_attempt_timestamp") <= self._at))

    def _set_statuses(self, turned: DataFrame | None, *, had_waiting: bool) -> None:
        assert self._fresh is not None
        known = self.read(STATUSES)
        fresh = self._fresh.select("message_identifier", "message_timestamp", "refused", "refusal")
        processed, again = fresh, []
        if known is not None and self._attempt:
            again += [self._due(known).select("message_identifier")] if had_waiting else []
            if turned is not None:
                again.append(turned.select(F.col("message_id").alias("message_identifier")))
        if again:
            ids = reduce(DataFrame.unionByName, again).distinct()
            others = ids.join(fresh, "message_identifier", "left_anti")
            retried = routed(self.stored(), self.schema).join(others, "message_identifier", "left_semi")
            processed = processed.unionByName(retried.select(*fresh.columns))
        found = problems(map(self.resolved, self._stated_everywhere), self.waiting())
        now = statuses(processed, found, known, now=self._now, retry=self._retry)
        if known is None or (self._attempt and not again and not self._forgot):
            # None of them was known before.
            grow(self._writes, STATUSES, now)
        elif self._attempt:
            rest = known.join(now.select("message_identifier"), "message_identifier", "left_anti")
            self._writes.replace(STATUSES, now.unionByName(rest.select(*now.columns)))
