"""What a hub forgets of entities: their records go out of the messages, and all is made of what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.erased_records import mask_records
from cdckit.datahub.messages import IS_STORED
from cdckit.datahub.readers import MESSAGE_VALUES, Message, ReaderSettings, counts_inside
from cdckit.datahub.runs import Run
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.state import EXPORTED, HISTORY, MESSAGES, STATEMENTS, UNAPPLIED, State, table_name
from cdckit.datahub.statements import IS_RECORD, NAMES_ENTITY, source_sql
from cdckit.errors import ErrorWithFacts
from cdckit.ledger.erasure.erasure_requests import Request
from cdckit.ledger.erasure.forgotten_entities import ForgottenEntities, count_named
from cdckit.ledger.erasure.receipts import ErasedPart
from cdckit.ledger.erasure.tombstones import Erasures, erased_changes, note_refused
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.parts.arguments import typed_nulls
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import WorkerPlan, compute_once
from cdckit.shell.record_places import SharedRecords, digest_rows, rewrite_rows
from cdckit.store import File, Transaction
from cdckit.store.store import replace_rows

NOT_ERASED = (
    "Identifiers of the messages that spoke of them, who sent these, and their options.",
    "Messages that no run has read yet: the next one takes the erased out of them.",
    "Messages that come later in CSV, or name a file, or are read by a reader of your own, and records "
    "inside one that goes through a filter: nothing of them is taken, and they stay where they are; "
    "`refused` tells of each (ENTITY_KEPT).",
)
"""What is left by a hub, beside what is left by every erasure."""


class UnmaskableRecords(ErrorWithFacts, ValueError):
    """Messages speak of entities to be erased, and nobody can tell where in their JSON."""

    messages: int
    sentence = (
        "erase() needs records of which it is known where they stand in the JSON of their messages; in "
        "{messages} messages of the entities it is not: these are CSV, or name a file, or are read "
        "by a reader of your own, or the records are inside one that goes through a filter. Nothing was "
        "erased: begin the hub anew in another location, from messages without them."
    )


class DependentEntities(ErrorWithFacts, ValueError):
    """Entities that would not be what they were without those to be erased."""

    entities: int
    target: str
    sentence = (
        "erase() needs everybody else to stay as they are; without those that were named, "
        "{entities} of {target!r} would not be what they were: their links lead to them, or "
        "the same records or links make them. Nothing was erased: erase these first, or let the source "
        "send what is to stay again."
    )


def erasable_kinds(schema: Schema) -> dict[str, Kind]:
    """The targets whose one key alone gives the guids: by another one, an entity would come back."""
    targets = (schema.targets[name] for name in schema.families)
    return {
        target.entity: Kind(target.entity, target.alternatives[0], by_guid=False, name=target.entity)
        for target in targets
        if all(map(schema.has_computed_guid, target.mappings))
    }


def forget_records(run: Run, tables: Transaction, kind: Kind, entities: DataFrame) -> ForgottenEntities:
    """
    Write all tables without entities of a target.

    Their records are taken out of the messages, which are read again; what others are then must be what they
    were, or it raises.
    """
    state = State(run.schema, tables)
    statements = compute_once(_statements_of(state, kind.entity).join(entities, GUID, "left_semi"))
    counts = count_named(entities, statements)
    if statements is None or counts.unknown:
        return counts
    return counts._replace(parts=_Erasure(run, tables, state, kind.entity, statements).run())


def drop_erased_records(run: Run, tables: Transaction, messages: DataFrame) -> None:
    """
    Take out of what a run has read of *messages* what speaks of entities that were erased, and note which
    are refused; the messages keep a mark in its place.  One of which it cannot be cut keeps all, which is
    noted too.

    Cost: nothing, until something was erased; then a look at the new statements of its target.  Where any
    go, the run looks at all statements.
    """
    erased = _erased_statements(run.schema, tables, messages)
    cuts = [rows.where(IS_RECORD).select("message_id", "record") for _, rows in erased]
    records = compute_once(reduce(DataFrame.unionByName, cuts).distinct()) if cuts else None
    if records is not None:
        _drop_records(run, tables, records, erased)
    for kind, rows in erased:
        replace_rows(tables, table_name(STATEMENTS, kind.entity), rows.select("message_id", GUID).distinct())
    if erased:
        run.note_dropped()


def _drop_records(
    run: Run, tables: Transaction, records: DataFrame, refused: list[tuple[Kind, DataFrame]]
) -> None:
    """Take records out of messages that were read, and what is inside them; *refused* is noted as such."""
    state = State(run.schema, tables)
    masked = _mask_messages(run, tables, records)
    kept = masked.where("data IS NULL").select(F.col("message_identifier").alias("message_id"))
    marked = kept.withColumn("is_kept", F.lit(True))
    for kind, rows in refused:
        named = rows.where(IS_RECORD).join(marked, "message_id", "left")
        note_refused(tables, kind, named, kept=F.coalesce("is_kept", F.lit(False)))
    _write_masked(tables, masked)
    for entity in state.entities:
        inside = _rows_within(state.statements(entity), records).select("message_id", "record").distinct()
        replace_rows(tables, table_name(STATEMENTS, entity), inside)


def _erased_statements(
    schema: Schema, tables: Transaction, messages: DataFrame
) -> list[tuple[Kind, DataFrame]]:
    """Find by target what messages say of its erased entities, where they say something of such."""
    ids = messages.select(F.col("message_identifier").alias("message_id"))
    state, erased_rows = State(schema, tables), list[tuple[Kind, DataFrame]]()
    for kind in erasable_kinds(schema).values():
        if kind.entity in state.entities and Erasures.of(tables, kind) is not None:
            named = _statements_of(
                state, kind.entity, "effective_timestamp", f"{source_sql(schema)} AS source"
            )
            fresh = named.join(ids, "message_id", "left_semi")
            erased = erased_changes(fresh, tables, replace(kind, by_guid=True))
            rows = None if erased is None else compute_once(erased)
            if rows is not None:
                erased_rows.append((kind, rows))
    return erased_rows


# Which entities, and where they stand ----------------------------------------------------------------------


def asked_entities(state: State, tables: Transaction, kind: Kind, request: Request) -> DataFrame:
    """The guids of the entities that are to be erased, each once."""
    entities = (
        request.among(state.history(kind.entity)) if request.keys is None else request.named(tables, kind)
    )
    return entities.select(GUID).distinct()


def _statements_of(state: State, entity: str, *more: str) -> DataFrame:
    """The statements that are about entities of a target."""
    rows = state.statements(entity)
    if entity in state.entities:
        rows = state.derived.resolved_statements(entity).where(f"guid IS NOT NULL AND {NAMES_ENTITY}")
    return rows.selectExpr("message_id", "record", "operation", GUID, "arrival", *more)


def _rows_within(rows: DataFrame, records: DataFrame) -> DataFrame:
    """The rows at records (`message_id`, `record`), and at what is inside them."""
    cut = records.select(F.col("message_id").alias("_message"), F.col("record").alias("_record"))
    return rows.join(cut, _stands_within(), "left_semi")


def _stands_within() -> Column:
    """Tell whether a row is at a record (`_message`, `_record`), or at what is inside it."""
    below = F.expr("startswith(record, concat(_record, '/'))")
    # No more is compared than what one outermost record holds.
    outermost = (F.substring_index(name, "/", 1) for name in ("record", "_record"))
    in_one = (F.col("message_id") == F.col("_message")) & reduce(Column.__eq__, outermost)
    return in_one & (below | (F.col("record") == F.col("_record")))


_CUTS = "records that go"


def _mask_messages(run: Run, tables: Transaction, records: DataFrame) -> DataFrame:
    """The data of messages without records; null where these cannot be taken out of it."""
    named = records.groupBy(F.col("message_id").alias("message_identifier"))
    cuts = named.agg(F.collect_list("record").alias(_CUTS))
    stored = tables.read(MESSAGES).where(IS_STORED)
    given = stored.join(cuts, "message_identifier", "inner").select(*MESSAGE_VALUES, _CUTS)
    return tables.scratch(WorkerPlan(given, partial(_mask_batches, work=run.work), _MASKED).rows())


def _write_masked(tables: Transaction, masked: DataFrame) -> list[ErasedPart]:
    """Let messages have the data that `_mask_messages` returned."""
    chosen = compute_once(masked.where("data IS NOT NULL").select("message_identifier"))
    if chosen is None:
        return []

    def change(messages: DataFrame) -> DataFrame:
        data = masked.withColumnRenamed("data", "_data")
        joined = messages.join(data, "message_identifier", "left")
        nothing = typed_nulls(messages.schema, ("key", "headers"))
        return joined.withColumns({**nothing, "data": F.when(F.expr(IS_STORED), F.col("_data"))})

    return rewrite_rows(tables, MESSAGES, chosen, change)


_MASKED = T.StructType(
    [T.StructField("message_identifier", T.StringType()), T.StructField("data", T.StringType())]
)


def _mask_batches(batches: Iterable[pa.RecordBatch], work: ReaderSettings) -> Iterator[pa.RecordBatch]:
    types = arrow_schema(_MASKED)
    for batch in batches:
        values = (batch.column(name).to_pylist() for name in (*MESSAGE_VALUES, _CUTS))
        data = [mask_data(work, Message(0, *parts), paths) for *parts, paths in zip(*values, strict=True)]
        columns = [batch.column("message_identifier"), pa.array(data, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=types.names)


def mask_data(work: ReaderSettings, message: Message, paths: list[str]) -> str | None:
    """The data of a message without the records at these paths; None where they cannot be cut out of it."""
    try:
        counts = counts_inside(work, message, paths)
        return None if message.data is None else mask_records(message.data, counts.items())
    except (ValueError, RecursionError):
        return None


# What becomes of the tables --------------------------------------------------------------------------------


class _Erasure:
    """Takes the records of entities of one target, which all have *statements*, out of a hub."""

    def __init__(
        self, run: Run, tables: Transaction, state: State, entity: str, statements: DataFrame
    ) -> None:
        self._run, self._tables, self._state = run, tables, state
        self._entity, self._statements = entity, statements
        self._before = {name: tables.files(name) for name in tables.names() if name.startswith(f"{HISTORY}.")}

    def run(self) -> tuple[ErasedPart, ...]:
        """Write all tables anew of which something goes, as if the records had never come."""
        run, tables, state = self._run, self._tables, self._state
        cuts = self._statements.where(IS_RECORD).select("message_id", "record").distinct()
        records = compute_once(cuts)
        touched = self._touched_statements(cuts if records is None else records)
        self._require_own(touched)
        assert records is not None
        masked = _mask_messages(run, tables, records)
        if left := masked.where("data IS NULL").count():
            raise UnmaskableRecords(left)
        parts = _write_masked(tables, masked)
        messages = compute_once(records.select("message_id").distinct())
        assert messages is not None
        # What they said touches entities as what they say now does.
        forgotten = state.named_entities(messages)
        for name, rows in self._rows_beside(records):
            replace_rows(tables, name, rows)
        ids = messages.withColumnRenamed("message_id", "message_identifier")
        run.forget(ids)
        stored = run.stored_messages().join(F.broadcast(ids), "message_identifier", "left_semi")
        # What waits is not tried for that.
        run.read_messages(stored, attempt=False)
        # Nor does a link make anew who was erased before.
        drop_erased_records(run, tables, stored)
        run.settle(forgotten=forgotten)
        forgotten_entities = (
            touched.groupBy("entity", GUID).agg(F.every("is_inside").alias("is_gone")).where("is_gone")
        )
        return (*parts, *self._prove_others(forgotten_entities))

    def _touched_statements(self, records: DataFrame) -> DataFrame:
        """
        The statements about these entities, and about others that the records speak of too.

        `is_inside` says of each whether it goes with a record, and `is_it` whether it is the record's own.
        """
        about = [
            _statements_of(self._state, entity).withColumn("entity", F.lit(entity))
            for entity in self._state.stated_targets
        ]
        rows = reduce(DataFrame.unionByName, about)
        inside = _rows_within(rows, records).select("entity", GUID).distinct()
        asked = self._statements.select(F.lit(self._entity).alias("entity"), GUID)
        guids = inside.unionByName(asked).distinct()
        cut = records.select(F.col("message_id").alias("_message"), F.col("record").alias("_record"))
        marked = (
            rows.join(guids, ["entity", GUID], "left_semi")
            .join(cut, _stands_within(), "left")
            .withColumns({"is_inside": F.col("_record").isNotNull(), "is_it": F.expr("record <=> _record")})
        )
        touched = compute_once(
            marked.select("entity", GUID, "message_id", "record", "operation", "is_inside", "is_it")
        )
        assert touched is not None
        return touched

    def _require_own(self, touched: DataFrame) -> None:
        """Raise where links of other records make the entities too, or where records speak of others too."""
        ours = F.col("entity") == self._entity
        # They would come back.
        linked = touched.where(ours & ~F.col("is_inside")).join(
            self._statements.select(GUID), GUID, "left_semi"
        )
        if count := linked.select(GUID).distinct().count():
            raise DependentEntities(count, self._entity)
        shared = touched.where(~ours & F.col("is_it") & F.expr(IS_RECORD))
        if count := shared.select("entity", "message_id", "record").distinct().count():
            raise SharedRecords(count, self._entity)

    def _rows_beside(self, records: DataFrame) -> Iterator[tuple[str, DataFrame]]:
        """Find by table the keys of what goes beside statements: what was exported, and what waited."""
        for entity in self._state.entities:
            if self._tables.has(name := table_name(EXPORTED, entity)):
                rows = _rows_within(self._state.statements(entity), records)
                yield name, rows.selectExpr("message_id", "arrival.record_number AS number").distinct()
        if self._tables.has(UNAPPLIED):
            rows = self._tables.read(UNAPPLIED).selectExpr("*", "statement.message_id", "statement.record")
            yield UNAPPLIED, _rows_within(rows, records).select("statement").distinct()

    def _prove_others(self, forgotten: DataFrame) -> list[ErasedPart]:
        """
        Prove what was rewritten of the histories; raises where one of another entity is not what it was.

        *forgotten* are those of which nothing is left: these, and what they alone hold or link to.
        """
        parts = []
        for name, files in self._before.items():
            entity = name.removeprefix(f"{HISTORY}.")
            theirs = forgotten.where(F.col("entity") == entity).select(GUID)
            parts.append(self._prove_history(name, entity, files, theirs))
        return [part for part in parts if part is not None]

    def _prove_history(
        self, name: str, entity: str, files: list[File], theirs: DataFrame
    ) -> ErasedPart | None:
        tables = self._tables
        now = tables.files(name) if tables.has(name) else []
        kept = {file.path for file in now} & {file.path for file in files}
        removed, added = ([file for file in files_of if file.path not in kept] for files_of in (files, now))
        if not removed and not added:
            return None
        rows = tables.base.read(name, files=removed)
        before = rows.join(theirs, GUID, "left_anti")
        after = tables.read(name, files=added) if added else rows.limit(0)
        erased = rows.join(theirs, GUID, "left_semi").count()
        was, is_ = digest_rows(before), digest_rows(after)
        if was != is_:
            changed = before.exceptAll(after).select(GUID).unionByName(after.exceptAll(before).select(GUID))
            raise DependentEntities(changed.distinct().count(), entity)
        removed_paths, added_paths = (tuple(file.path for file in files_of) for files_of in (removed, added))
        return ErasedPart(
            name, None, removed_paths, added_paths, sum(file.rows for file in removed), erased, was, is_
        )
