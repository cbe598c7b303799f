"""One run of a hub: what new messages say, whom it touches, and what they look like now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property, partial, reduce
from typing import NamedTuple
from urllib.parse import quote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.absences import absences, cascade_events, list_events, parent_fields, refresh_events
from cdckit.datahub.changes import absence_changes, record_changes
from cdckit.datahub.existence import STATEMENT_KEY, waiting_statements, with_statement_key, without_waiting
from cdckit.datahub.exports import export_rows, newly_exported, with_positions
from cdckit.datahub.message_store import MESSAGE_SCHEMA
from cdckit.datahub.outcomes import Retry, problems, routed, statuses
from cdckit.datahub.readers import Filter, Reader
from cdckit.datahub.resolution import ANSWERS, BY_LOOKING, HELD, UNPROCESSED, Resolution
from cdckit.datahub.sought import with_sought
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import statement_schema, statements
from cdckit.datahub.statuses import Status
from cdckit.datahub.tables import Tables
from cdckit.datahub.threads import at_once
from cdckit.datahub.weak import without_instant
from cdckit.merging import versions_by_guid
from cdckit.parts.arguments import require_instant
from cdckit.parts.schemas import quoted

INBOX, RECEIVED, STATUSES, WAITING, AMBIGUOUS = "inbox", "received", "statuses", "waiting", "ambiguous"

_EXPORTED = "exported"
"""The kind of the tables that say since which run a record is exported as it is."""

_LAST_POSITION = "last position"

_REFRESHED = "refreshed"
"""The note of the targets of which there ever was a refresh."""


class _Moved(NamedTuple):
    """Whom a run moves before anything is merged: `entity`, `guid` (null for ends of lists), `parents`."""

    rows: DataFrame
    entities: set[str]


_Touched = Mapping[str, DataFrame | None]
"""By target the guids of the entities that are merged anew; None for all of them."""


def table(kind: str, entity: str) -> str:
    """The name of a target's table: an entity may have any name, a folder may not."""
    return f"{kind}.{quote(entity, safe='')}"


class Run:
    """
    The tables of a hub during one run.

    Args:
        schema: The schema.
        tables: The tables; nothing is committed here.
        readers: By name.
        filters: By name.
        files: The folder of the files.
        retry: When messages that wait are tried again.
        now: The time of the run.
    """

    def __init__(
        self,
        schema: Schema,
        tables: Tables,
        readers: Mapping[str, Reader],
        filters: Mapping[str, Filter],
        files: str | None,
        retry: Retry,
        now: datetime,
    ) -> None:
        self._schema, self._tables, self._retry, self._now = schema, tables, retry, now
        self._readers, self._filters, self._files = readers, filters, files
        self._at = require_instant(now, "now", function="process")
        self._fresh: DataFrame | None = None
        self._refreshed: set[str] = set()
        self._attempt = True

    def has_due(self) -> bool:
        """Whether a message that waits is to be tried again."""
        known = self._tables.read(STATUSES)
        return known is not None and not self._due(known).isEmpty()

    def read(self, messages: DataFrame, *, attempt: bool = True) -> None:
        """Write what *messages* say; an *attempt* counts as one for those that come to wait."""
        self._fresh, self._attempt = routed(messages, self._schema), attempt
        readable = self._fresh.where(F.col("refused").isNull())
        # As many rows as the schema has source entities, at most twice.
        said = readable.select("source_system", "source_entity", "refresh").distinct().collect()
        senders = {(row["source_system"], row["source_entity"]) for row in said}
        refreshing = {(row["source_system"], row["source_entity"]) for row in said if row["refresh"]}
        self._refreshed = {
            mapping.reference
            for place, mapping in self._schema.all_mappings.items()
            if (place.system, place.entity) in refreshing
        }
        known = self._tables.noted(_REFRESHED)
        self._tables.note(_REFRESHED, sorted({*known, *self._refreshed}))
        spoken_of = [
            entity
            for entity in self._schema.targets
            if any((place.system, place.entity) in senders for place in self._schema.roots(entity))
        ]
        at_once(self._tables.spark, partial(self._read_of, readable), spoken_of)

    def _read_of(self, messages: DataFrame, entity: str) -> None:
        said = statements(
            messages,
            self._schema,
            entity,
            readers=self._readers,
            filters=self._filters,
            files=self._files,
        )
        self._tables.append(table("statements", entity), said)

    def forget(self, chosen: DataFrame | None) -> None:
        """Forget what the *chosen* messages said and came to; without them, what all said."""
        for name in self._tables.names("statements"):
            before = self._tables.read(name)
            if chosen is None or before is None:
                self._tables.drop(name)
            else:
                ids = F.broadcast(chosen.withColumnRenamed("message_identifier", "message_id"))
                self._tables.replace(name, before.join(ids, "message_id", "left_anti"))
        if chosen is None:
            self._tables.note(_REFRESHED, [])
            for name in (*self._tables.names(HELD), *self._tables.names(ANSWERS)):
                self._tables.drop(name)
        known = self._tables.read(STATUSES)
        if chosen is not None and known is not None:
            self._tables.replace(STATUSES, known.join(F.broadcast(chosen), "message_identifier", "left_anti"))

    def settle(self, *, everything: bool = False) -> None:
        """Find out who can be applied, merge whom this touches (or *everything*), and set the statuses."""
        before = self._tables.read(WAITING), self._tables.read(AMBIGUOUS)
        found = {name: self._tables.read(name) for name in self._looked_up}
        waiting = waiting_statements(
            self._schema, self._resolution, self._stated_everywhere, self._held, self._tables
        )
        ambiguous = self._ambiguous()
        if waiting is not None:
            waiting = with_sought(self._schema, self._resolution, self._stated_everywhere, waiting)
        turned = self._turned(before, (waiting, ambiguous))
        self._keep(WAITING, waiting)
        self._keep(AMBIGUOUS, ambiguous)
        self._merge(turned, everything or self._found_otherwise(found))
        self._set_statuses(turned)
        self._number_exports()

    def resolved(self, entity: str) -> DataFrame:
        """The statements of a target that are processed, with their guids and links."""
        rows = self._resolution.resolved(entity)
        return rows.where(~F.col("error_code").eqNullSafe(UNPROCESSED))

    def waiting(self) -> DataFrame | None:
        """The statements that wait; None if there are none."""
        found = self._tables.read(WAITING)
        return None if found is None else found.withColumn("missing", without_instant(F.col("missing")))

    def _keep(self, name: str, rows: DataFrame | None) -> None:
        if rows is None:
            self._tables.drop(name)
        else:
            self._tables.replace(name, rows)

    def applied(self, entity: str) -> DataFrame:
        """The statements of a target that are applied."""
        valid = self.resolved(entity).where(F.col("error_code").isNull())
        return without_waiting(valid, self.waiting(), entity)

    def exported(self, entity: str) -> DataFrame:
        """The records of an export target, each with its position."""
        rows = export_rows(self._schema, entity, self.applied(entity))
        return with_positions(rows, self._tables.read(table(_EXPORTED, entity)))

    def _number_exports(self) -> None:
        """Give what is exported now, and was not or not so before, the next position."""
        last = self._tables.noted(_LAST_POSITION)
        position = int(last[0]) + 1 if last else 1
        for entity in self._stated_everywhere:
            if self._schema.targets[entity].export:
                rows = export_rows(self._schema, entity, self.applied(entity))
                known = self._tables.read(table(_EXPORTED, entity))
                new = newly_exported(rows, known, position)
                if not new.isEmpty():
                    self._tables.append(table(_EXPORTED, entity), new)
                    self._tables.note(_LAST_POSITION, [str(position)])

    def changes(self, entity: str, touched: DataFrame | None = None) -> DataFrame:
        """The changes of a target; of the entities *touched* alone, where they are given."""
        applied = self.applied(entity)
        own = record_changes(self._schema, entity, _of(applied, touched))
        events = self._events(entity, applied)
        if not events:
            return own
        missed = absences(_of(self.resolved(entity), touched), events)
        return own.unionByName(absence_changes(self._schema.targets[entity], missed, own))

    @cached_property
    def _resolution(self) -> Resolution:
        said = {entity: self._statements(entity) for entity in self._schema.targets}
        return Resolution(self._schema, said, self._kept)

    def _kept(self, kind: str, entity: str, rows: DataFrame) -> DataFrame:
        """A table that a run writes, and that is read until the next one."""
        name = table(kind, entity)
        if self._fresh is None:
            found = self._tables.read(name)
            return rows if found is None else found
        return self._tables.replace(name, rows)

    def _statements(self, entity: str) -> DataFrame:
        found = self._tables.read(table("statements", entity))
        if found is None:
            return self._tables.empty(statement_schema(self._schema.targets[entity]))
        return found

    def _no_statements(self) -> DataFrame:
        return self._tables.empty(
            "entity string, message_id string, number int, operation string, place int, made string"
        )

    @cached_property
    def _held(self) -> DataFrame | None:
        """The statements that are not tried in this run: their messages are not due, or were given up."""
        known, waiting = self._tables.read(STATUSES), self._tables.read(WAITING)
        if known is None or waiting is None:
            return None
        later = (F.col("next_attempt_timestamp") > self._at) | F.lit(not self._attempt)
        not_due = (F.col("status") == int(Status.REQUIRES_REPROCESSING)) & later
        given_up = F.col("status") == int(Status.REPROCESS_TIMEOUT)
        messages = known.where(not_due | given_up).select(F.col("message_identifier").alias("message_id"))
        held = waiting.join(messages, "message_id", "left_semi").select(*STATEMENT_KEY, "missing", "record")
        return None if held.isEmpty() else self._tables.scratch("held", held)

    def _ambiguous(self) -> DataFrame | None:
        """
        The statements whose keys or links lead to several entities, and those unprocessed for it.

        None if there can be none.  Other messages may bring them into this, and out of it again.
        """
        found = self._no_statements()
        weak = any(len(each.alternatives) > 1 for each in self._schema.targets.values())
        if not self._resolution.looks_up and not weak:
            return None
        for entity in self._stated_everywhere:
            rows = with_statement_key(self._resolution.resolved(entity))
            rows = rows.where(F.col("error_code").isin(*BY_LOOKING, UNPROCESSED))
            found = found.unionByName(rows.select(F.lit(entity).alias("entity"), *STATEMENT_KEY[1:]))
        return self._tables.scratch("found", found)

    def _turned(
        self,
        before: tuple[DataFrame | None, DataFrame | None],
        now: tuple[DataFrame | None, DataFrame | None],
    ) -> DataFrame | None:
        """The statements that are applied now and were not, or the other way round; None for none."""
        found = []
        for earlier, later in zip(before, now, strict=True):
            if earlier is not None or later is not None:
                nobody = self._no_statements()
                one, other = (
                    (nobody if each is None else each).select(*STATEMENT_KEY) for each in (earlier, later)
                )
                found += [one.exceptAll(other), other.exceptAll(one)]
        return self._tables.scratch("turned", reduce(DataFrame.unionByName, found)) if found else None

    def _merge(self, turned: DataFrame | None, everything: bool) -> None:
        begun = any(self._tables.has(table("history", entity)) for entity in self._stated)
        moved = self._moved(turned) if begun and not everything else None
        touched: _Touched = {}
        stated = set(self._stated)
        for generation in self._schema.generations:
            merge_one = partial(self._merge_one, moved=moved, touched=touched)
            for some in at_once(
                self._tables.spark, merge_one, [entity for entity in generation if entity in stated]
            ):
                touched = {**touched, **some}

    def _merge_one(self, entity: str, moved: _Moved | None, touched: _Touched) -> _Touched:
        """Merge a target; the entities of it that this run touches."""
        before = self._history_of(entity)
        keys = self._schema.targets[entity].keys
        if moved is None or before is None or entity in self._refreshed:
            history = versions_by_guid(self.changes(entity), entity=entity, keys=keys)
            self._tables.replace(table("history", entity), history)
            return {entity: None}
        some = self._touched(entity, moved, touched)
        if some is None:
            return {}
        rest = before.join(some, "guid", "left_anti").select(*map(quoted, before.columns))
        history = versions_by_guid(self.changes(entity, some), entity=entity, keys=keys)
        self._tables.replace(table("history", entity), rest, history)
        return {entity: some}

    @property
    def _stated_everywhere(self) -> list[str]:
        """The targets of which anything was said, exported ones too."""
        return [each for each in self._schema.targets if self._tables.has(table("statements", each))]

    @property
    def _stated(self) -> list[str]:
        """The targets of which anything was said, parents before their children."""
        return [each for each in self._schema.families if self._tables.has(table("statements", each))]

    @property
    def _looked_up(self) -> dict[str, Column]:
        """The tables of what keys and links find, with the condition of the rows that say so."""
        weak = [name for name, target in self._schema.targets.items() if len(target.alternatives) > 1]
        keys = {table(HELD, name): F.col("message_id").isNotNull() for name in weak}
        return keys | {table(ANSWERS, name): F.lit(True) for name in self._schema.looked_up}

    def _found_otherwise(self, before: Mapping[str, DataFrame | None]) -> bool:
        """Whether a key or link finds another entity than it did: then anybody may have been moved."""
        for name, earlier in before.items():
            later, says = self._tables.read(name), self._looked_up[name]
            if earlier is None or later is None:
                continue
            if not earlier.where(says).exceptAll(later.where(says)).isEmpty():
                return True
        return False

    def _moved(self, turned: DataFrame | None) -> _Moved:
        """Whom what came in this run speaks of, and whom what is applied now, or no longer, speaks of."""
        assert self._fresh is not None
        fresh = self._fresh.select(F.col("message_identifier").alias("message_id"))
        found = []
        for entity in self._stated:
            rows = with_statement_key(self._resolution.resolved(entity))
            some = [rows.join(fresh, "message_id", "left_semi")]
            if turned is not None:
                columns = ["message_id", "number", "operation", "place"]
                ours = turned.where(F.col("entity") == entity).select(*columns)
                some.append(rows.join(ours, columns, "left_semi"))
            fields = list(parent_fields(self._schema, entity))
            parents = F.array(*(F.col("data").getField(name) for name in fields)).cast("array<string>")
            found += [
                each.select(F.lit(entity).alias("entity"), "guid", parents.alias("parents")) for each in some
            ]
        if not found:
            return _Moved(self._no_statements(), set())
        table_ = self._tables.scratch("moved", reduce(DataFrame.unionByName, found))
        # As many rows as there are targets, at most.
        names = {row["entity"] for row in table_.select("entity").distinct().collect()}
        return _Moved(table_, names)

    def _touched(self, entity: str, moved: _Moved, touched: _Touched) -> DataFrame | None:
        """The guids whose versions may have changed; None if there are none."""
        ours = moved.rows.where(F.col("entity") == entity)
        found = [ours.select("guid")] if entity in moved.entities else []
        rows = self._resolution.resolved(entity)
        for place, (field, held_by) in enumerate(parent_fields(self._schema, entity).items()):
            scopes = [ours.select(F.col("parents").getItem(place).alias("scope"))] if found else []
            for parent in {self._schema.mapping(each).reference for each in held_by.values()}:
                changed = touched.get(parent, self._tables.empty("guid string"))
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
        return self._tables.scratch("touched", guids)

    def _events(self, entity: str, applied: DataFrame) -> list[tuple[str | None, DataFrame]]:
        """The ends of all complete lists that may not have named an entity of the target."""
        found: list[tuple[str | None, DataFrame]] = []
        if entity in self._tables.noted(_REFRESHED):
            found.append((None, refresh_events(self._schema, applied)))
        for field in parent_fields(self._schema, entity):
            found.append((field, list_events(self._schema, applied, field)))
            cascade = cascade_events(self._schema, entity, field, self._history_of, self._messages)
            if cascade is not None:
                found.append((field, cascade))
        return found

    def _history_of(self, entity: str) -> DataFrame | None:
        return self._tables.read(table("history", entity))

    @cached_property
    def _messages(self) -> DataFrame:
        parts = [each for each in (self._tables.read(RECEIVED), self._tables.read(INBOX)) if each is not None]
        if not parts:
            return self._tables.empty(MESSAGE_SCHEMA)
        stored = reduce(DataFrame.unionByName, parts)
        return stored.where(F.col("status") == int(Status.NOT_PROCESSED)).select(*MESSAGE_SCHEMA.names)

    def _due(self, known: DataFrame) -> DataFrame:
        waits = F.col("status") == int(Status.REQUIRES_REPROCESSING)
        return known.where(waits & (F.col("next_attempt_timestamp") <= self._at))

    def _set_statuses(self, turned: DataFrame | None) -> None:
        assert self._fresh is not None
        known = self._tables.read(STATUSES)
        fresh = self._fresh.select("message_identifier", "message_timestamp", "refused", "refusal")
        processed = fresh
        if known is not None and self._attempt:
            due = self._due(known).select("message_identifier")
            if turned is not None:
                due = due.unionByName(turned.select(F.col("message_id").alias("message_identifier")))
            again = due.distinct().join(fresh, "message_identifier", "left_anti")
            retried = routed(self._messages, self._schema).join(again, "message_identifier", "left_semi")
            processed = processed.unionByName(retried.select(*fresh.columns))
        found = problems(map(self.resolved, self._stated_everywhere), self.waiting())
        now = statuses(processed, found, known, now=self._now, retry=self._retry)
        if known is not None:
            if not self._attempt:
                return
            rest = known.join(now.select("message_identifier"), "message_identifier", "left_anti")
            now = now.unionByName(rest.select(*now.columns))
        self._tables.replace(STATUSES, now)


def _of(statements: DataFrame, touched: DataFrame | None) -> DataFrame:
    """The statements about the entities *touched*; ends of lists are about none."""
    return statements if touched is None else statements.join(touched, "guid", "left_semi")
