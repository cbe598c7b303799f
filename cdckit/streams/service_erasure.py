"""What a service forgets of entities: where a patch stands in its request stays, and what it said goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.ledger.columns import BUCKET as LEDGER_BUCKET
from cdckit.ledger.erasure.bucket_erasure import KNOWN
from cdckit.ledger.erasure.erasure_requests import Request
from cdckit.ledger.erasure.forgotten_entities import ForgottenEntities, count_named, forget_entities
from cdckit.ledger.erasure.receipts import ErasedPart
from cdckit.ledger.erasure.tombstones import HASH, Erasures, erased_changes, note_refused
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.arguments import typed_nulls
from cdckit.parts.fold import Result
from cdckit.parts.folded_rows import explode_rule, with_rule
from cdckit.parts.guids import guid
from cdckit.parts.workers import compute_once
from cdckit.shell.record_places import SharedRecords, rewrite_rows
from cdckit.shell.states_and_outcomes import PLACE, StatesAndOutcomes
from cdckit.store import Transaction
from cdckit.store.store import read_rows
from cdckit.streams.catalogue import (
    ARRIVAL,
    ENTITY,
    ENTITY_BATCHES,
    ENTITY_PATCHES,
    ERASED_PATCHES,
    REQUEST,
    STREAMS,
    SUBSCRIPTIONS,
    Status,
)
from cdckit.streams.collection_types import TYPE_PLAN
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.messages import message
from cdckit.streams.request_parts import ERASED, ERASED_REASON, read_patch
from cdckit.streams.requests import is_update
from cdckit.streams.service_rules import (
    Answer,
    ForgetEntity,
    ForgetResponses,
    ForgetType,
    LearnedType,
    Row,
    mask_response,
    read_lessons,
)
from cdckit.streams.service_tables import (
    ANSWERS,
    LEARNED,
    RECORDS,
    RECORDS_SCHEMA,
    RESPONSES,
    SEEN,
    STREAM,
    SUBSCRIPTIONS_KIND,
    Settings,
    known_documents,
    read_answers,
    read_made,
    table_rows,
)
from cdckit.streams.zones import notification_id

ENTITY_KIND = Kind("entity", ENTITY, by_guid=False, name="entity")
"""The entities of a service, which have no ledger."""

NOT_ERASED = (
    "Who sent a patch of the erased entities, and in which request: users, clients, numbers and times.",
    "Rejects of which nobody can tell of whom they speak: look at `rejects`.",
)
"""What is left by a service, beside what is left by every erasure."""

_PARTS, _DIGEST = "erased parts", "digest of the value"
_OF_ENTITIES = (ENTITY_BATCHES.name, ENTITY_PATCHES.name)


def forget_named(tables: Transaction, settings: Settings, entities: DataFrame) -> ForgottenEntities:
    """Take entities out of all tables."""
    documents = known_documents(tables).select(*ENTITY, _guid().alias(GUID))
    named = documents.join(entities, GUID, "left_semi")
    # Those of which nothing was ever taken may stand in a reject all the same.
    rejected = compute_once(_named_rejects(tables).join(entities, GUID, "left_semi"))
    if rejected is not None:
        named = named.unionByName(rejected.select(*ENTITY, GUID))
    names = compute_once(named.distinct())
    counts = count_named(entities, names)
    if names is None or counts.unknown:
        return counts
    parts = _Erasure(tables, settings, entities, names.select(*ENTITY), rejected).run()
    return counts._replace(parts=parts, not_erased=NOT_ERASED)


def drop_erased_patches(records: DataFrame, tables: Transaction) -> DataFrame:
    """
    Records that come, without patches of entities that were erased; those that are refused are noted.

    Cost: nothing, until something was erased; then each message is read once more, and they are shuffled by
    a hash of their values.
    """
    if Erasures.of(tables, ENTITY_KIND) is None:
        return records
    named = _read_names(records).withColumn("data", F.struct(*ENTITY))
    erased = erased_changes(named, tables, ENTITY_KIND)
    assert erased is not None
    # Without their names, since it is written.
    patches = tables.scratch(erased.select(STREAM, _DIGEST, "db", "part", HASH))
    arrival = F.struct("topic", "partition", "offset", "timestamp", F.col("part").alias("record_number"))
    refused = _with_digest(records).join(patches, [STREAM, _DIGEST], "inner")
    note_refused(tables, ENTITY_KIND, refused.withColumns({"arrival": arrival, "source": F.col("db")}))
    return _without_patches(records, patches)


# Which entities -------------------------------------------------------------------------------------------


def asked_entities(tables: Transaction, request: Request) -> DataFrame:
    """The guids of the entities that are asked for, each once."""
    if request.keys is not None:
        return request.named(tables, ENTITY_KIND).select(GUID).distinct()
    answers = read_answers(tables).where(F.col("status") == Status.DONE)
    state = {"document": F.col("after"), "revision": F.col("revision_after"), "changed": F.col("ended")}
    versions = answers.select(*ENTITY, *(column.alias(name) for name, column in state.items()))
    chosen = versions if request.where is None else versions.where(request.where)
    if request.keep is not None:
        last = request.at.astimezone(UTC).timestamp() * 1000 - request.keep.total_seconds() * 1000
        overdue = known_documents(tables).where(F.col("document").isNull() & (F.col("changed") < last))
        chosen = overdue if request.where is None else overdue.join(chosen, list(ENTITY), "left_semi")
    return chosen.select(_guid().alias(GUID)).distinct()


def _guid() -> Column:
    return guid(ENTITY_KIND.entity, {name: F.col(name) for name in ENTITY})


# What becomes of the tables --------------------------------------------------------------------------------


class _Erasure:
    """
    Takes entities with certain *names* out of all tables.

    All that is to be known of their answers is described before the first table is written.
    """

    def __init__(
        self,
        tables: Transaction,
        settings: Settings,
        entities: DataFrame,
        names: DataFrame,
        rejected: DataFrame | None,
    ) -> None:
        self._tables, self._settings = tables, settings
        self._entities, self._names, self._rejected = entities, names, rejected
        columns = (*ARRIVAL.names, *PLACE, *ENTITY, *REQUEST, "part", "parts", "learning", "action")
        answers = read_answers(tables).select(*columns)
        self._theirs = compute_once(answers.join(names, list(ENTITY), "left_semi"))

    def run(self) -> tuple[ErasedPart, ...]:
        """Write all tables anew of which something goes."""
        parts = [*self._forget_subscriptions(), *self._forget_records()]
        if self._theirs is not None:
            parts += self._forget_acknowledged(self._theirs) + self._mask_responses(self._theirs)
        parts += rewrite_rows(self._tables, ANSWERS, self._names, _without_words)
        self._forget_states()
        if self._theirs is not None:
            parts += self._learn_again(self._theirs)
        return tuple(parts)

    def _forget_records(self) -> list[ErasedPart]:
        """Take the patches out of the records as they came."""
        places = [rows.select(*PLACE) for rows in (self._theirs, self._rejected) if rows is not None]
        if not places:
            return []
        place = compute_once(reduce(DataFrame.unionByName, places).distinct())
        assert place is not None

        def change(records: DataFrame) -> DataFrame:
            named = _read_names(records).join(self._entities, GUID, "left_semi")
            return _without_patches(records, named.select(STREAM, _DIGEST, "part"))

        return rewrite_rows(self._tables, RECORDS, place, change)

    def _forget_states(self) -> None:
        """Let nothing be known of them, and no response that waits have a word of theirs."""
        rows: list[Row] = [ForgetEntity(row.asDict()) for row in self._names.collect()]
        if self._theirs is not None:
            requests = self._theirs.where("parts > 1").select(*REQUEST, *ENTITY).distinct().collect()
            rows += [ForgetResponses(tuple(row[:2]), tuple(row[2:])) for row in requests]
        # What was written of them before goes with the files.
        self._folds().take_rows(rows, rewrites=1)

    def _folds(self) -> StatesAndOutcomes:
        # What is made anew of earlier batches says of which.
        return StatesAndOutcomes(self._tables, self._settings.folds(0))

    def _forget_acknowledged(self, erased: DataFrame) -> list[ErasedPart]:
        """Take out which notifications of their updates devices have acknowledged."""
        if not self._tables.has(SEEN):
            return []
        seen = self._tables.read(SEEN)
        # An id is a hash: of each update and device it is made again, and those that are there are kept.
        pairs = erased.where(is_update()).crossJoin(F.broadcast(seen.select("device").distinct()))
        ids = pairs.select(notification_id().alias("notification"))
        notifications = compute_once(
            seen.join(ids, "notification", "left_semi").select("notification").distinct()
        )
        return [] if notifications is None else rewrite_rows(self._tables, SEEN, notifications)

    def _mask_responses(self, erased: DataFrame) -> list[ErasedPart]:
        """Let complete responses have no word of theirs."""
        named = F.collect_set(F.array(*ENTITY)).alias("theirs")
        requests = compute_once(erased.groupBy(*REQUEST).agg(named))
        assert requests is not None

        def change(responses: DataFrame) -> DataFrame:
            joined = responses.join(requests, list(REQUEST), "left")
            kept = [name for name in responses.columns if name != "responses"]
            masked = with_rule(joined, kept, ("responses", "theirs"), _mask_responses, _TEXTS)
            return masked.select(*responses.columns)

        return rewrite_rows(self._tables, RESPONSES, requests.select(*REQUEST), change)

    def _forget_subscriptions(self) -> tuple[ErasedPart, ...]:
        """Take those that are subscriptions out of their ledger."""
        if not self._tables.has(SUBSCRIPTIONS_KIND.history):
            return ()
        kind = SUBSCRIPTIONS_KIND.with_buckets_of(self._tables)
        key = {"db": F.col("db"), "subscription": F.col("entity")}
        subscribes = F.col("collection").isin(*SUBSCRIPTIONS)
        named = compute_once(self._names.where(subscribes))
        if named is None:
            return ()
        answers = read_answers(self._tables).where(subscribes)
        others = answers.join(self._names, list(ENTITY), "left_anti")
        shared = others.join(named.select("db", "entity"), ["db", "entity"], "left_semi").count()
        if shared:
            raise SharedRecords(shared, kind.name)
        guids = named.select(guid(kind.entity, key).alias(GUID)).distinct()
        ledger_columns = {LEDGER_BUCKET: kind.bucket_column(F.col(GUID)), KNOWN: F.lit(True)}
        return forget_entities(self._tables, kind, guids.withColumns(ledger_columns)).parts

    def _learn_again(self, erased: DataFrame) -> list[ErasedPart]:
        """Let the entity types be what all others teach."""
        tables, is_taught = self._tables, F.col("learning") & is_update()
        types = compute_once(erased.where(is_taught).select(*TYPE_PLAN.scope).distinct())
        if types is None:
            return []
        keys = [row.asDict() for row in types.collect()]
        self._folds().take_rows(list(map(ForgetType, keys)), rewrites=1)
        taught = frozenset((key["db"], key["collection"]) for key in keys)
        answers = read_made(tables, Answer, {}).where(is_update()).drop("ops", "errors")
        folded = self._folds().take_many(answers, partial(read_lessons, types=taught))
        learned = tables.scratch(table_rows(folded, LearnedType))
        return rewrite_rows(tables, LEARNED, types, lambda rows: learned)


def _without_words(answers: DataFrame) -> DataFrame:
    """Answers as if their patches had named no entity; one that came again has no outcome."""
    words = (*ENTITY[1:], "ops", "before", "after", "action", "taught_before")
    nothing = typed_nulls(answers.schema, words)
    refused = {
        "status": F.lit(Status.NOT_APPLIED.value),
        "errors": F.array(F.lit(ERASED_REASON)),
        "revision_after": F.lit(0).cast("long"),
    }
    outcome = {name: F.when(~F.col("is_repeat"), column) for name, column in refused.items()}
    return answers.withColumns({**nothing, **outcome})


_TEXTS = pa.schema([("responses", pa.list_(pa.string()))])


def _mask_responses(responses: list[str], erased_ids: list[list[str]]) -> Result:
    """The texts of responses; without their words, those whose entity is one of *erased_ids*."""
    return ([mask_response(text) if _entity_of(text) in erased_ids else text for text in responses],)


def _entity_of(response: str) -> list[Any]:
    members = read(response)
    return [members.get(name) for name in ENTITY]


# Records ---------------------------------------------------------------------------------------------------


def _named_rejects(tables: Transaction) -> DataFrame:
    """Find which entities rejects name, and where these stand."""
    rejects = read_rows(tables, RECORDS, RECORDS_SCHEMA).where(F.col(ERROR_CODE).isNotNull())
    return _read_names(rejects, PLACE)


def _digest() -> Column:
    return F.sha2("value", 256)


def _with_digest(records: DataFrame) -> DataFrame:
    return records.withColumn(_DIGEST, _digest())


_NAMES = pa.schema([("part", pa.int32()), *((name, pa.string()) for name in ENTITY)])


def _read_names(records: DataFrame, keeps: Sequence[str] = ()) -> DataFrame:
    """Find which entities the records of requests name, in which part: each with its guid."""
    requests = records.where(F.col(STREAM).isin(*_OF_ENTITIES) & F.col("value").isNotNull())
    kept = [STREAM, _DIGEST, *keeps]
    named = explode_rule(_with_digest(requests), kept, [STREAM, "value"], _named_parts, _NAMES)
    whole = reduce(Column.__and__, (F.col(name).isNotNull() for name in ENTITY))
    return named.where(whole).distinct().withColumn(GUID, _guid())


def _named_parts(stream: str, value: bytes) -> Iterator[Result]:
    """The parts of a message that name something, and what (`_NAMES`)."""
    columns = message(value, STREAMS[stream])
    if stream == ENTITY_PATCHES.name:
        yield 1, *(columns.get(name) for name in ENTITY)
    for part, text in enumerate(columns.get("patches") or (), 1):
        patch = read_patch(text or "null")
        yield part, columns.get("db"), *(patch.get(name) for name in ENTITY[1:])


_MASKED = pa.schema([(f"masked {STREAM}", pa.string()), ("masked value", pa.binary())])


def _without_patches(records: DataFrame, erased: DataFrame) -> DataFrame:
    """Records without the words of erased parts: by stream and digest of the value, which `part`."""
    parts = erased.groupBy(STREAM, _DIGEST).agg(F.collect_set("part").alias(_PARTS))
    joined = _with_digest(records).join(parts, [STREAM, _DIGEST], "left")
    others = joined.where(F.col(_PARTS).isNull()).select(*records.columns)
    named = joined.where(F.col(_PARTS).isNotNull())
    masked = with_rule(named, records.columns, [STREAM, "value", _PARTS], _mask_message, _MASKED)
    blanked = [name for name in ("key", "headers", ERROR_CODE, ERROR_DESCRIPTION) if name in records.columns]
    stream, value = (F.col(name) for name in _MASKED.names)
    masked = masked.withColumns({**typed_nulls(records.schema, blanked), STREAM: stream, "value": value})
    return others.unionByName(masked.select(*records.columns))


def _mask_message(stream: str, value: bytes, parts: list[int]) -> Result:
    """Keep what is not erased of a message: of a batch the other patches, of a patch its place."""
    if ERROR_CODE in message(value, STREAMS[stream]):
        return ERASED_PATCHES.name, None
    document = read(value.decode())
    if stream == ENTITY_PATCHES.name:
        # The samples of the page call the database so.
        kept = (*ERASED_PATCHES.fields, "dbid")
        return ERASED_PATCHES.name, _bytes({name: document[name] for name in kept if name in document})
    for part in parts:
        document["patches"][part - 1] = ERASED
    return stream, _bytes(document)


def _bytes(document: dict[str, Any]) -> bytes:
    return (column_text(to_text(document)) or "").encode()
