"""One batch of messages on its way into a service's tables: what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.ledger.shell import MANY_FILES
from cdckit.ledger.tombstones import Erasures
from cdckit.ledger.upkeep import apply_within
from cdckit.model.records import (
    ERROR_CODE,
    ERROR_DESCRIPTION,
    RECORD_COLUMNS,
    rejects,
)
from cdckit.parts.folded_rows import rule_column
from cdckit.parts.workers import local_frame, run_together
from cdckit.store import Transaction
from cdckit.store.store import read_rows
from cdckit.store.writing import Rows, WriteResult
from cdckit.streams.catalogue import (
    CONNECTIONS,
    ENTITY,
    ENTITY_BATCHES,
    ENTITY_PATCHES,
    ERASED_PATCHES,
    REQUEST,
    SCHEMA_PATCHES,
    STREAMS,
    SUBSCRIPTIONS,
    StreamFault,
)
from cdckit.streams.decoding import decode
from cdckit.streams.request_parts import PATCH, served_errors
from cdckit.streams.requests import (
    ANSWER_SCHEMA,
    ENTITY_SCHEMA,
    PATCH_SCHEMA,
    SCHEMA_ANSWER_SCHEMA,
    SCHEMA_SCHEMA,
    apply_patches,
    apply_schema_patches,
    entities,
    entity_patches,
)
from cdckit.streams.responses import (
    RESPONSE_SCHEMA,
    complete_responses,
    partial_responses,
    response_parts,
)
from cdckit.streams.service_erasure import ENTITY_KIND, drop_erased_patches, nameless_patches
from cdckit.streams.service_tables import (
    ANSWERS,
    BUCKET,
    CAME,
    CAME_SCHEMA,
    ENTITIES,
    LEARNED,
    MADE,
    PARTS,
    PARTS_SCHEMA,
    RECORDS,
    RECORDS_SCHEMA,
    REJECTS,
    REJECTS_SCHEMA,
    RESPONSES,
    RESPONSES_SCHEMA,
    SCHEMA_ANSWERS,
    SCHEMAS,
    STREAM,
    TAKEN,
    TAKES,
    TYPES,
    Settings,
    count_batches,
    note_batch_count,
    subscriptions_kind,
    to_stored_answers,
)
from cdckit.streams.type_learning import (
    TYPE_SCHEMA,
    entity_types,
    learn,
    learned_types,
    schema_learning,
)
from cdckit.streams.zones import subscription_changes, zone_changes

_READS = TAKES | {ERASED_PATCHES.name}


class Intake:
    """
    What a transaction does with messages: first `keep`, then `take`; or `rebuild` alone.

    All that it makes has the `number` of the batch.  It reads the table of records, so of two that are under
    way at once one begins again, and a number is of one batch.
    """

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._tables, self._settings = transaction, settings
        self.number = count_batches(transaction) + 1
        self._taken = F.lit(self.number).cast("long")
        self._touched: list[int] = []

    def keep(self, records: DataFrame, stream: str | None) -> WriteResult:
        """
        Write the records as they came, with the stream that they are of: by their topics without one; but of
        patches of entities that were erased, what `drop_erased_patches` leaves of them.

        Cost: of earlier records those are read that have times and offsets such as these have.
        """
        named = F.when(F.col("topic").isin(*STREAMS), F.col("topic")) if stream is None else F.lit(stream)
        came = records.select(*RECORD_COLUMNS).withColumns({STREAM: named, TAKEN: self._taken})
        kept = drop_erased_patches(came.select(*RECORDS_SCHEMA.fieldNames()), self._tables)
        note_batch_count(self._tables, self.number)
        written = self._drop_repeats(self._tables.append(RECORDS, kept))
        self._tables.compact(RECORDS, files=MANY_FILES)
        return written

    def _drop_repeats(self, written: WriteResult) -> WriteResult:
        """Take out records that an earlier batch has brought, as where a stream begins anew."""
        bounds = {
            name: (min(one.low[name] for one in some), max(one.high[name] for one in some))
            for name in ("timestamp", "offset")
            if (some := [one for one in written.files if name in one.low])
        }
        earlier = [one for one in self._tables.files(RECORDS, bounds) if one not in written.files]
        if not written.files or not earlier:
            return written
        came = self._tables.read(RECORDS, files=written.files)
        known = self._tables.read(RECORDS, bounds, earlier)
        # What was of no stream, or says something else, comes for the first time.
        compared = ("topic", "partition", "offset", "timestamp", "key", "value", STREAM)
        is_same = [came[name].eqNullSafe(known[name]) for name in compared]
        if came.join(known, is_same, "left_semi").isEmpty():
            return written
        kept = self._tables.swap(RECORDS, written.files, came.join(known, is_same, "left_anti"))
        self._tables.discard(RECORDS, written.files)
        return kept

    def take(self, written: WriteResult, stream: str | None) -> None:
        """Bring the other tables up to records that were kept, as of this stream."""
        if written.files:
            erases = Erasures.of(self._tables, ENTITY_KIND) is not None
            self._take(self._tables.read(RECORDS, files=written.files), None if erases else stream)

    def rebuild(self) -> None:
        """Make everything anew from the records as they came, by the settings as they are now."""
        for name in MADE:
            self._tables.drop(name)
        subscriptions_kind(self._settings.buckets).forget(self._tables)
        note_batch_count(self._tables, self.number)
        self._take(self._tables.read(RECORDS))

    # -----------------------------------------------------------------------------------------------------

    def _take(self, came: DataFrame, stream: str | None = None) -> None:
        # As many rows as there are streams.
        there = {stream} if stream else {row[0] for row in came.select(STREAM).distinct().collect()}
        kept = {**STREAMS, ERASED_PATCHES.name: ERASED_PATCHES}
        decoded = {
            name: self._tables.scratch(decode(came.where(F.col(STREAM) == name), kept[name]))
            for name in sorted(there & _READS)
        }
        refused = [rejects(each) for name, each in decoded.items() if name in TAKES]
        if there - _READS:
            refused.append(_stray_rejects(came.where(~F.coalesce(F.col(STREAM).isin(*_READS), F.lit(False)))))
        self._append(REJECTS, *(each.withColumn(TAKEN, self._taken) for each in refused))
        sound = {name: each.where(F.col(ERROR_CODE).isNull()) for name, each in decoded.items()}
        if CONNECTIONS.name in sound:
            found = sound[CONNECTIONS.name].withColumn(TAKEN, self._taken)
            self._append(CAME, found.select(*CAME_SCHEMA.fieldNames()))
        answers = self._entities(sound)
        self._make(answers, self._schemas(sound))

    def _entities(self, sound: dict[str, DataFrame]) -> DataFrame | None:
        """The answers to the patches of entities, computed once; None if there are no such patches."""
        found = []
        if ENTITY_BATCHES.name in sound:
            found.append(entity_patches(sound[ENTITY_BATCHES.name], databases=self._settings.databases))
        if ENTITY_PATCHES.name in sound:
            found.append(sound[ENTITY_PATCHES.name].withColumn("errors", self._foreign_reasons()))
        if ERASED_PATCHES.name in sound:
            found.append(nameless_patches(sound[ERASED_PATCHES.name]))
        if not found:
            return None
        rows = [each.select(*PATCH_SCHEMA.fieldNames()) for each in found]
        patches = self._tables.scratch(reduce(DataFrame.unionByName, rows))
        return self._tables.scratch(
            apply_patches(
                patches,
                entities=self._known_entities(patches),
                documents=True,
                most_characters=self._settings.most_characters,
                remember=self._settings.remember,
            )
        )

    def _buckets_of(self, patches: DataFrame) -> list[int]:
        """The buckets of the entities that these name; none while no entity is kept."""
        if not self._tables.has(ENTITIES):
            return []
        named = patches.where(F.forall(F.array(*ENTITY), lambda part: part.isNotNull()))
        # As many rows as there are buckets, at most.
        return [row[0] for row in named.select(self._settings.bucket()).distinct().collect()]

    def _known_entities(self, patches: DataFrame) -> DataFrame | None:
        """What is known of the entities that these name; None where nothing can be."""
        self._touched = self._buckets_of(patches)
        if not self._touched:
            return None
        near = self._tables.read(ENTITIES, {BUCKET: self._touched})
        return near.join(patches, list(ENTITY), "left_semi").select(*ENTITY_SCHEMA.fieldNames())

    def _schemas(self, sound: dict[str, DataFrame]) -> DataFrame | None:
        """The answers to the patches of schemas, computed once; None if there are no such patches."""
        if SCHEMA_PATCHES.name not in sound:
            return None
        patches = sound[SCHEMA_PATCHES.name].drop(ERROR_CODE)  # none of them is a reject
        return self._tables.scratch(
            apply_schema_patches(
                patches.withColumn("errors", self._foreign_reasons()),
                schemas=read_rows(self._tables, SCHEMAS, SCHEMA_SCHEMA),
                most_characters=self._settings.most_characters,
                remember=self._settings.remember,
            )
        )

    def _foreign_reasons(self) -> Column:
        """Why patches that came by themselves cannot be applied: those of databases that are not served."""
        if self._settings.databases is None:
            return F.lit(None).cast("array<string>")
        rule = partial(served_errors, databases=frozenset(self._settings.databases))
        return rule_column(("db", "client_id"), rule, pa.schema([PATCH.field("errors")]))["errors"]

    def _make(self, answers: DataFrame | None, schemas: DataFrame | None) -> None:
        """Bring all that follows from answers up to these: each job writes to tables of its own."""
        jobs: list[Callable[[], object]] = []
        teaches = schemas is not None
        if answers is not None:
            subscribes = F.coalesce(F.col("collection").isin(*SUBSCRIPTIONS), F.lit(False))
            [found] = answers.agg(F.bool_or("learning"), F.bool_or(subscribes)).collect()
            teaches = teaches or bool(found[0])
            jobs += [partial(self._keep_entities, answers), partial(self._keep_answers, ANSWERS, answers)]
            if found[1]:
                changes = subscription_changes(zone_changes(answers))
                kind = subscriptions_kind(self._settings.buckets)
                jobs.append(lambda: apply_within(self._tables, kind, changes))
        if schemas is not None:
            jobs += [partial(self._keep_schemas, schemas)]
            jobs += [partial(self._keep_answers, SCHEMA_ANSWERS, schemas)]
        if jobs:
            jobs.append(partial(self._respond, [each for each in (answers, schemas) if each is not None]))
        if teaches:
            jobs.append(partial(self._learn, answers, schemas))
        run_together(self._tables.spark, lambda job: job(), jobs)

    def _keep_entities(self, answers: DataFrame) -> None:
        found = entities(answers).withColumn(BUCKET, self._settings.bucket())
        if not self._tables.has(ENTITIES):
            self._tables.append(ENTITIES, found.repartition(BUCKET), partition_by=[BUCKET])
        elif self._touched:
            where = {BUCKET: self._touched}
            others = self._tables.read(ENTITIES, where).join(found.select(*ENTITY), list(ENTITY), "left_anti")
            rows = found.unionByName(others.select(*found.columns))
            self._tables.swap(ENTITIES, self._tables.files(ENTITIES, where), rows.repartition(BUCKET))

    def _keep_schemas(self, answers: DataFrame) -> None:
        known = read_rows(self._tables, SCHEMAS, SCHEMA_SCHEMA)
        self._tables.replace(SCHEMAS, entities(answers, known))

    def _keep_answers(self, name: str, answers: DataFrame) -> None:
        self._append(name, to_stored_answers(answers, self.number))

    def _learn(self, answers: DataFrame | None, schemas: DataFrame | None) -> None:
        tables = self._tables
        taught = schema_learning(
            local_frame(tables.spark, [], ANSWER_SCHEMA) if answers is None else answers,
            local_frame(tables.spark, [], SCHEMA_ANSWER_SCHEMA) if schemas is None else schemas,
        )
        known = read_rows(tables, TYPES, TYPE_SCHEMA)
        lessons = tables.scratch(learn(taught, known=known))
        self._append(LEARNED, learned_types(lessons).withColumn(TAKEN, self._taken))
        tables.replace(TYPES, entity_types(lessons, known))

    def _respond(self, answers: list[DataFrame]) -> None:
        tables = self._tables
        fresh = partial_responses(*answers)
        requests = fresh.select(*REQUEST)
        before = read_rows(tables, PARTS, PARTS_SCHEMA)
        again = before.join(requests, list(REQUEST), "left_semi").select(*RESPONSE_SCHEMA.fieldNames())
        over = read_rows(tables, RESPONSES, RESPONSES_SCHEMA).select(*REQUEST)
        completed = over.join(requests, list(REQUEST), "left_semi")
        parts = tables.scratch(response_parts(fresh.unionByName(again), completed=completed))
        columns = RESPONSES_SCHEMA.fieldNames()
        self._append(RESPONSES, complete_responses(parts).withColumn(TAKEN, self._taken).select(*columns))
        left = parts.where(F.col("part_is").isin("waiting", "contradicting"))
        others = before.join(requests, list(REQUEST), "left_anti")
        names = PARTS_SCHEMA.fieldNames()
        tables.replace(PARTS, left.select(*names).unionByName(others.select(*names)))

    def _append(self, name: str, *rows: Rows) -> None:
        if rows:
            self._tables.append(name, *rows, compact_at=MANY_FILES)


def _stray_rejects(records: DataFrame) -> DataFrame:
    """Records of no stream that is taken, as rejects."""
    fault = StreamFault.OTHER_STREAM
    error = {ERROR_CODE: F.lit(fault.value), ERROR_DESCRIPTION: F.lit(fault.describe())}
    return records.withColumns(error).select(*(name for name in REJECTS_SCHEMA.fieldNames() if name != TAKEN))
