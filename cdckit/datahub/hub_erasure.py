"""What a hub forgets of entities: their records go out of the messages, and all is made of what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.erased_records import mask_records
from cdckit.datahub.mappings import Target
from cdckit.datahub.messages import Status
from cdckit.datahub.runs import Run
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.state import EXPORTED, HISTORY, MESSAGES, STATEMENTS, UNAPPLIED, State, table_name
from cdckit.datahub.statements import IS_RECORD, NAMES_ENTITY, source_sql
from cdckit.errors import CdcError
from cdckit.ledger.columns import Kind
from cdckit.ledger.erasure import ForgottenEntities, Request, count_named
from cdckit.ledger.places import SharedRecords, digest_rows, rewrite_rows
from cdckit.ledger.receipts import ErasedPart
from cdckit.ledger.tombstones import Erasures, erased_changes, note_refused
from cdckit.merging.arrow_changes import GUID
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import WorkerPlan, compute_once
from cdckit.store import File, Transaction
from cdckit.store.store import replace_rows

NOT_ERASED = (
    "Identifiers of the messages that spoke of them, who sent these, and their options.",
    "Messages that no run has read yet: the next one takes the erased out of them.",
    "Messages in CSV, and files, that come later: their rows are not taken, and stay where they are; "
    "`refused` tells of each (ENTITY_KEPT).",
)
"""What is left by a hub, beside what is left by every erasure."""


class UnmaskableRecords(CdcError, ValueError):
    """Messages speak of entities to be erased, and not in JSON, or in records that a filter makes."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        super().__init__(messages)

    def __str__(self) -> str:
        return (
            f"erase() needs records that stand in the messages as JSON; in {self.messages} messages of the "
            "entities they do not: these are CSV, or name a file, or a filter makes the records. Nothing was "
            "erased: begin the hub anew in another location, from messages without them."
        )


class DependentEntities(CdcError, ValueError):
    """Entities that would not be what they were without those to be erased."""

    def __init__(self, entities: int, target: str) -> None:
        self.entities, self.target = entities, target
        super().__init__(entities, target)

    def __str__(self) -> str:
        return (
            "erase() needs everybody else to stay as they are; without those that were named, "
            f"{self.entities} of {self.target!r} would not be what they were: their links lead to them, or "
            "the same records or links make them. Nothing was erased: erase these first, or let the source "
            "send what is to stay again."
        )


def erasable_kinds(schema: Schema) -> dict[str, Kind]:
    """The targets whose one key alone gives the guids: by another one, an entity would come back."""
    own = (schema.targets[name] for name in schema.families if _has_own_key(schema, schema.targets[name]))
    return {each.entity: Kind(each.entity, each.alternatives[0], 1, False, each.entity) for each in own}


def _has_own_key(schema: Schema, target: Target) -> bool:
    links = [
        schema.key_plan(place, each)
        for place, mapping in target.mappings.items()
        for each in mapping.links
        if each.reference in target.keys
    ]
    return target.strict and all(plan.whole for plan in links)


def forget_records(run: Run, tables: Transaction, kind: Kind, entities: DataFrame) -> ForgottenEntities:
    """
    Write all tables without entities of a target.

    Their records are taken out of the messages, which are read again; what others are then must be what they
    were, or it raises.
    """
    known = State(run.schema, tables)
    statements = compute_once(_statements_of(known, kind.entity).join(entities, GUID, "left_semi"))
    counts = count_named(entities, statements)
    if statements is None or counts.unknown:
        return counts
    return counts._replace(parts=_Erasure(run, tables, known, kind.entity, statements).run())


def drop_erased_records(run: Run, tables: Transaction, messages: DataFrame) -> None:
    """
    Take out of what a run has read of *messages* what speaks of entities that were erased, and note which
    are refused; the messages keep a mark in its place.  One that is no JSON keeps all, which is noted too.

    Cost: nothing, until something was erased; then a look at the new statements of its target.
    """
    found = _erased_statements(run.schema, tables, messages)
    cuts = [rows.where(IS_RECORD).select("message_id", "record") for _, rows in found]
    records = compute_once(reduce(DataFrame.unionByName, cuts).distinct()) if cuts else None
    if records is not None:
        _drop_records(run, tables, records, found)
    for kind, rows in found:
        replace_rows(tables, table_name(STATEMENTS, kind.entity), rows.select("message_id", GUID).distinct())
    if found:
        run.discard_unused()


def _drop_records(
    run: Run, tables: Transaction, records: DataFrame, found: list[tuple[Kind, DataFrame]]
) -> None:
    """Take records out of messages that were read, and what is inside them; *found* is refused."""
    state = State(run.schema, tables)
    masked = _mask_messages(tables, _with_counts(state, records))
    kept = masked.where("data IS NULL").select(F.col("message_identifier").alias("message_id"))
    marked = kept.withColumn("is_kept", F.lit(True))
    for kind, rows in found:
        named = rows.where(IS_RECORD).join(marked, "message_id", "left")
        note_refused(tables, kind, named, kept=F.coalesce("is_kept", F.lit(False)))
    _write_masked(tables, masked)
    for entity in state.entities:
        inside = _rows_within(state.statements(entity), records).select("message_id", "record").distinct()
        replace_rows(tables, table_name(STATEMENTS, entity), inside)


def _erased_statements(
    schema: Schema, tables: Transaction, messages: DataFrame
) -> list[tuple[Kind, DataFrame]]:
    """By target what messages say of entities of it that were erased, where they say something of such."""
    ids = messages.select(F.col("message_identifier").alias("message_id"))
    state, found = State(schema, tables), list[tuple[Kind, DataFrame]]()
    for kind in erasable_kinds(schema).values():
        if kind.entity in state.entities and Erasures.of(tables, kind) is not None:
            named = _statements_of(
                state, kind.entity, "effective_timestamp", f"{source_sql(schema)} AS source"
            )
            fresh = named.join(ids, "message_id", "left_semi")
            erased = erased_changes(fresh, tables, replace(kind, by_guid=True))
            rows = None if erased is None else compute_once(erased)
            if rows is not None:
                found.append((kind, rows))
    return found


# Which entities, and where they stand ----------------------------------------------------------------------


def asked_entities(known: State, tables: Transaction, kind: Kind, request: Request) -> DataFrame:
    """The guids of the entities that are to be erased, each once."""
    found = request.among(known.history(kind.entity)) if request.keys is None else request.named(tables, kind)
    return found.select(GUID).distinct()


def _statements_of(state: State, entity: str, *more: str) -> DataFrame:
    """The statements that are about entities of a target."""
    rows = state.statements(entity)
    if entity in state.entities:
        rows = state.resolved_statements(entity).where(f"guid IS NOT NULL AND {NAMES_ENTITY}")
    return rows.selectExpr("message_id", "record", "operation", GUID, "arrival", *more)


def _rows_within(rows: DataFrame, records: DataFrame, *, itself: bool = True) -> DataFrame:
    """The rows at records (`message_id`, `record`), and at what is inside them, or at that alone."""
    cut = records.select(F.col("message_id").alias("_message"), F.col("record").alias("_record"))
    below = F.expr("startswith(record, concat(_record, '/'))")
    stands_there = below | (F.col("record") == F.col("_record")) if itself else below
    return rows.join(cut, _of_one_record("_message", "_record") & stands_there, "left_semi")


def _of_one_record(message: str, record: str) -> Column:
    """Whether two stand in one record of a message: what is to be compared is no more than that holds."""
    outermost = (F.substring_index(name, "/", 1) for name in ("record", record))
    return (F.col("message_id") == F.col(message)) & reduce(Column.__eq__, outermost)


def _with_counts(state: State, records: DataFrame) -> DataFrame:
    """Records, and how many others stand inside each: `inside`."""
    found = []
    for entity in state.entities:
        rows = state.statements(entity).where("record IS NOT NULL").select("message_id", "record")
        found.append(_rows_within(rows, records, itself=False))
    inner = reduce(DataFrame.unionByName, found).distinct().withColumnRenamed("record", "inner")
    is_below = F.expr("startswith(inner, concat(record, '/'))")
    named = inner.withColumnRenamed("message_id", "_message")
    counted = records.join(named, _of_one_record("_message", "inner") & is_below, "left")
    return counted.groupBy("message_id", "record").agg(F.count("inner").cast("int").alias("inside"))


_CUTS = "records that go"


def _mask_messages(tables: Transaction, records: DataFrame) -> DataFrame:
    """The data of messages without records; null where these cannot be taken out of it."""
    cuts = records.groupBy("message_id").agg(F.collect_list(F.struct("record", "inside")).alias(_CUTS))
    named = cuts.withColumnRenamed("message_id", "message_identifier")
    stored = tables.read(MESSAGES).where(F.col("status") == int(Status.NOT_PROCESSED))
    given = stored.join(named, "message_identifier", "inner").select("message_identifier", "data", _CUTS)
    return tables.scratch(WorkerPlan(given, _mask_batches, _MASKED).rows())


def _write_masked(tables: Transaction, masked: DataFrame) -> list[ErasedPart]:
    """Let messages have the data that `_mask_messages` returned."""
    chosen = compute_once(masked.where("data IS NOT NULL").select("message_identifier"))
    if chosen is None:
        return []

    def change(messages: DataFrame) -> DataFrame:
        data = masked.withColumnRenamed("data", "_data")
        joined = messages.join(data, "message_identifier", "left")
        is_stored = F.col("status") == int(Status.NOT_PROCESSED)
        nothing = {name: F.lit(None).cast(messages.schema[name].dataType) for name in ("key", "headers")}
        return joined.withColumns({**nothing, "data": F.when(is_stored, F.col("_data"))})

    return rewrite_rows(tables, MESSAGES, chosen, change)


_MASKED = T.StructType(
    [T.StructField("message_identifier", T.StringType()), T.StructField("data", T.StringType())]
)


def _mask_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    types = arrow_schema(_MASKED)
    for batch in batches:
        data = [
            _masked(text, [(each["record"], each["inside"]) for each in cuts])
            for text, cuts in zip(*(batch.column(name).to_pylist() for name in ("data", _CUTS)), strict=True)
        ]
        columns = [batch.column("message_identifier"), pa.array(data, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=types.names)


def _masked(data: str | None, cuts: list[tuple[str, int]]) -> str | None:
    try:
        return None if data is None else mask_records(data, cuts)
    except (ValueError, RecursionError):
        return None


# What becomes of the tables --------------------------------------------------------------------------------


class _Erasure:
    """Takes the records of entities of one target, which all have *statements*, out of a hub."""

    def __init__(
        self, run: Run, tables: Transaction, known: State, entity: str, statements: DataFrame
    ) -> None:
        self._run, self._tables, self._known = run, tables, known
        self._entity, self._statements = entity, statements
        self._before = {name: tables.files(name) for name in tables.names() if name.startswith(f"{HISTORY}.")}

    def run(self) -> tuple[ErasedPart, ...]:
        """Write all tables anew of which something goes, as if the records had never come."""
        records = compute_once(self._statements.where(IS_RECORD).select("message_id", "record").distinct())
        if linked := self._count_linked(records):
            raise DependentEntities(linked, self._entity)
        assert records is not None
        self._require_own(records)
        forgotten = self._find_forgotten(records)
        exports = self._find_exports(records)
        masked = _mask_messages(self._tables, _with_counts(self._known, records))
        if left := masked.where("data IS NULL").count():
            raise UnmaskableRecords(left)
        parts = _write_masked(self._tables, masked)
        self._read_again(records)
        for entity, guids in forgotten.items():
            self._drop(table_name(HISTORY, entity), guids)
        for entity, rows in exports.items():
            self._drop(table_name(EXPORTED, entity), rows)
        self._forget_waiting(records)
        self._run.settle(everything=self._have_links(records))
        self._run.amend_statuses(records.select(F.col("message_id").alias("message_identifier")).distinct())
        return (*parts, *self._prove_others(forgotten))

    def _drop(self, name: str, rows: DataFrame) -> None:
        if self._tables.has(name):
            replace_rows(self._tables, name, rows)

    def _count_linked(self, records: DataFrame | None) -> int:
        """How many of the entities the links of other records make, too: they would come back."""
        links = self._statements.where(f"NOT {IS_RECORD}")
        if records is not None:
            own = _rows_within(links, records).select("message_id", "record")
            links = links.join(own, ["message_id", "record"], "left_anti")
        return links.select(GUID).distinct().count()

    def _require_own(self, records: DataFrame) -> None:
        """Raise where a record is about something else too, by another mapping."""
        others = [
            _statements_of(self._known, entity)
            .where(IS_RECORD)
            .join(records, ["message_id", "record"], "left_semi")
            for entity in self._known.stated_targets
            if entity != self._entity
        ]
        count = sum(each.select("message_id", "record").distinct().count() for each in others)
        if count:
            raise SharedRecords(count, self._entity)

    def _find_forgotten(self, records: DataFrame) -> dict[str, DataFrame]:
        """By target the guids of which nothing is left: the entities, and what they alone hold or link to."""
        forgotten = {self._entity: self._statements.select(GUID).distinct()}
        for entity in self._known.stated_targets:
            rows = _statements_of(self._known, entity)
            inside = _rows_within(rows, records)
            named = compute_once(inside.select("message_id", "record", GUID).distinct())
            if named is not None:
                elsewhere = rows.join(
                    named.select("message_id", "record"), ["message_id", "record"], "left_anti"
                )
                alone = named.select(GUID).distinct().join(elsewhere, GUID, "left_anti")
                forgotten[entity] = (
                    forgotten[entity].unionByName(alone).distinct() if entity in forgotten else alone
                )
        found = {entity: compute_once(guids) for entity, guids in forgotten.items()}
        return {entity: guids for entity, guids in found.items() if guids is not None}

    def _have_links(self, records: DataFrame) -> bool:
        """Whether a link of the records makes an entity, whose history may begin later without it."""
        links = (
            _rows_within(_statements_of(self._known, entity).where(f"NOT {IS_RECORD}"), records).select(
                "message_id"
            )
            for entity in self._known.stated_targets
        )
        return not reduce(DataFrame.unionByName, links).isEmpty()

    def _find_exports(self, records: DataFrame) -> dict[str, DataFrame]:
        """By exported target which of its records they were."""
        found = {}
        for entity in self._known.entities:
            if self._run.schema.targets[entity].export:
                rows = _rows_within(self._known.statements(entity), records)
                named = compute_once(
                    rows.selectExpr("message_id", "arrival.record_number AS number").distinct()
                )
                if named is not None:
                    found[entity] = named
        return found

    def _read_again(self, records: DataFrame) -> None:
        """Let the run read the messages of the records as they are now."""
        ids = records.select(F.col("message_id").alias("message_identifier")).distinct()
        self._run.forget(ids, statuses=False)
        stored = self._run.stored_messages().join(F.broadcast(ids), "message_identifier", "left_semi")
        # What waits is not tried for that.
        self._run.read_messages(stored, attempt=False)

    def _forget_waiting(self, records: DataFrame) -> None:
        """Let nothing of them wait."""
        tables = self._tables
        if not tables.has(UNAPPLIED):
            return
        rows = tables.read(UNAPPLIED).selectExpr("*", "statement.message_id", "statement.record")
        inside = compute_once(_rows_within(rows, records).select("statement").distinct())
        if inside is not None:
            rest = tables.read(UNAPPLIED).join(inside, "statement", "left_anti")
            tables.swap(UNAPPLIED, tables.files(UNAPPLIED), rest.select("statement", "missing"))

    def _prove_others(self, forgotten: dict[str, DataFrame]) -> list[ErasedPart]:
        """What was rewritten of the histories; raises where one of another entity is not what it was."""
        return [
            part
            for name, files in self._before.items()
            if (part := self._prove_history(name, files, forgotten)) is not None
        ]

    def _prove_history(
        self, name: str, files: list[File], forgotten: dict[str, DataFrame]
    ) -> ErasedPart | None:
        tables, entity = self._tables, name.removeprefix(f"{HISTORY}.")
        now = tables.files(name) if tables.has(name) else []
        kept = {one.path for one in now} & {one.path for one in files}
        removed, added = ([one for one in each if one.path not in kept] for each in (files, now))
        if not removed and not added:
            return None
        rows = tables.base.read(name, files=removed)
        theirs = forgotten.get(entity, self._statements.select(GUID).limit(0))
        before = rows.join(theirs, GUID, "left_anti")
        after = tables.read(name, files=added) if added else rows.limit(0)
        erased = rows.join(theirs, GUID, "left_semi").count()
        was, is_ = digest_rows(before), digest_rows(after)
        if was != is_:
            changed = before.exceptAll(after).select(GUID).unionByName(after.exceptAll(before).select(GUID))
            raise DependentEntities(changed.distinct().count(), entity)
        went, came = (tuple(one.path for one in each) for each in (removed, added))
        return ErasedPart(name, None, went, came, sum(one.rows for one in removed), erased, was, is_)
