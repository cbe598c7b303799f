"""The services of the page, kept up: requests in; out every stream that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger import View
from cdckit.ledger.erasure.erasure_requests import Request
from cdckit.ledger.erasure.forgotten_entities import ForgottenEntities
from cdckit.ledger.kind import Kind
from cdckit.merging.merge import merge
from cdckit.model.documents import Document
from cdckit.model.faults import ERROR_CODE
from cdckit.model.records import RECORD_SCHEMA
from cdckit.model.rejected_records import REJECT_SCHEMA
from cdckit.parts.argument_forms import INT, no_stream, rows_of, takes
from cdckit.parts.arguments import typed_nulls, wrong_argument
from cdckit.parts.job_descriptions import describe_jobs
from cdckit.shell.shell import MANY_FILES, ReceiveResult, Shell, WorkResult
from cdckit.shell.states_and_outcomes import PLACE, give_up_records, last_outcomes
from cdckit.store import Snapshot, Transaction
from cdckit.store.store import read_rows
from cdckit.streams.catalogue import (
    ARRIVAL,
    CHANGES_BY_DEVICE,
    COMPLETE_RESPONSES,
    CONNECTIONS,
    DEVICE_NOTIFICATIONS,
    ENTITY,
    ENTITY_BATCHES,
    ENTITY_PATCHES,
    ENTITY_UPDATES,
    PARTIAL_RESPONSES,
    SCHEMA_LEARNING,
    SCHEMA_PATCHES,
    SCHEMA_UPDATES,
    ZONE_CHANGES,
    Stream,
    StreamFault,
)
from cdckit.streams.decoding import STREAM, with_record
from cdckit.streams.documents import MOST_CHARACTERS, REMEMBERED
from cdckit.streams.entity_changes import Nested, changes
from cdckit.streams.request_parts import GIVEN_UP, WAITING
from cdckit.streams.requests import (
    ENTITY_SCHEMA,
    LIMITS,
    PATCH_SCHEMA,
    entity_updates,
    require_databases,
    schema_updates,
)
from cdckit.streams.responses import (
    REQUEST_SCHEMA,
    overdue_error,
    partial_responses,
    response_rows,
    with_message,
)
from cdckit.streams.service_erasure import ENTITY_KIND, asked_entities, forget_named
from cdckit.streams.service_intake import Intake
from cdckit.streams.service_rules import TAKES, CompleteResponse, LearnedType, ServiceRules
from cdckit.streams.service_tables import (
    RECORDS,
    RECORDS_SCHEMA,
    SEEN,
    SEEN_SCHEMA,
    SUBSCRIPTIONS_KIND,
    TAKEN,
    Settings,
    count_batches,
    known_documents,
    known_types,
    read_answers,
    read_made,
    read_messages,
    taken_after,
)
from cdckit.streams.type_learning import LEARNED_SCHEMA, schema_learning
from cdckit.streams.zones import (
    changes_by_device,
    device_notifications,
    subscription_changes,
    user_devices,
    zone_changes,
)

StreamReader = Callable[[Snapshot, int | None], DataFrame]
"""A stream: of the tables as a commit has them, what has come after another commit, or all."""


def subscriptions(tables: Snapshot) -> DataFrame:
    """The history of subscriptions, of which there may be none."""
    kind = SUBSCRIPTIONS_KIND
    if tables.has(kind.history):
        return View(tables, kind.stored_kind(tables)).history()
    nothing = subscription_changes(zone_changes(read_answers(tables).where(F.lit(False))))
    return merge(nothing, entity=kind.entity, keys=list(kind.keys))


def connections(tables: Snapshot, after: int | None = None) -> DataFrame:
    """The connections that came."""
    return read_messages(tables, CONNECTIONS, after).select(*ARRIVAL.names, *CONNECTIONS.columns().names)


def _answers(tables: Snapshot, after: int | None) -> tuple[DataFrame, DataFrame]:
    """The answers to patches of entities, and to those of schemas."""
    where = taken_after(after)
    return read_answers(tables, where), read_answers(tables, where, schemas=True)


def _patches(tables: Snapshot, after: int | None) -> DataFrame:
    # One that names no entity has a response, and no place in a stream whose key is the entity.
    named = reduce(Column.__and__, (F.col(name).isNotNull() for name in (*ENTITY, "ops")))
    return _answers(tables, after)[0].where(named).select(*PATCH_SCHEMA.fieldNames())


def _schema_patches(tables: Snapshot, after: int | None) -> DataFrame:
    columns = (*ARRIVAL.names, *SCHEMA_PATCHES.columns().names, "errors")
    return _answers(tables, after)[1].select(*columns)


def _learning(tables: Snapshot, after: int | None) -> DataFrame:
    return schema_learning(*_answers(tables, after))


def _partial(tables: Snapshot, after: int | None) -> DataFrame:
    return partial_responses(*_answers(tables, after))


def _complete(tables: Snapshot, after: int | None) -> DataFrame:
    return with_message(read_made(tables, CompleteResponse, taken_after(after)).drop(TAKEN))


def _by_zone(tables: Snapshot, after: int | None) -> DataFrame:
    return zone_changes(_answers(tables, after)[0])


def _by_device(tables: Snapshot, after: int | None) -> DataFrame:
    return changes_by_device(_by_zone(tables, after), subscriptions(tables))


def _notifications(tables: Snapshot, after: int | None) -> DataFrame:
    seen = read_rows(tables, SEEN, SEEN_SCHEMA)
    return device_notifications(_by_device(tables, None), user_devices(connections(tables)), seen)


STREAM_READERS: Mapping[str, StreamReader] = {
    ENTITY_BATCHES.name: lambda tables, after: read_messages(tables, ENTITY_BATCHES, after),
    ENTITY_PATCHES.name: _patches,
    ENTITY_UPDATES.name: lambda tables, after: entity_updates(_answers(tables, after)[0]),
    SCHEMA_PATCHES.name: _schema_patches,
    SCHEMA_UPDATES.name: lambda tables, after: schema_updates(_answers(tables, after)[1]),
    SCHEMA_LEARNING.name: _learning,
    PARTIAL_RESPONSES.name: _partial,
    COMPLETE_RESPONSES.name: _complete,
    CONNECTIONS.name: connections,
    ZONE_CHANGES.name: _by_zone,
    CHANGES_BY_DEVICE.name: _by_device,
    DEVICE_NOTIFICATIONS.name: _notifications,
}
"""By the name of a stream, how it is made."""


class Service(Shell):
    """
    The streams of the page, kept up as requests come: what is known of entities, schemas and entity types,
    the responses that wait, and a ledger of subscriptions, in one store.

    The requests of an entity must come in their order, in whatever batches; then what the service answers
    is at any time what one batch of all messages would have given.  That order is batch after batch, and in
    a partition offset after offset, whatever the clocks of its producers say; between partitions record times
    decide, of each partition the latest so far.  `rebuild` takes them as they came.  A record that an earlier
    batch brought is passed over, as when a stream begins anew.  Two things depend on what comes first all
    the same: what is told of an entity type on the way (not what it is in the end), and a request that
    contradicts itself after it was complete: it stays complete.

    What waits are the partial responses whose requests are not complete, from the record time of the first of
    them on: `waiting` shows them as the records that they would be, without an offset, with the columns of
    `REQUEST_SCHEMA`.  Given up, they are rejects (MISSING_PART); so is one whose others contradict it.

    `erase("entity", …)` forgets entities: their patches keep their places in their requests, as such that
    were refused, and so does what comes of them later (`refused`).

    Its verbs and most of its questions are those of every `Shell`.

    The state is kept here, for batches and for streams (`sink`), and not in Spark's own state: so a commit
    has the state and the answers together, batches and streams go on from each other, others can read what is
    known of entities, and a stream may begin anew without its checkpoint.

    Args:
        spark, location, storage_options: As for `Shell`.
        databases: Those that are served; all by default (see `entity_patches`).
        most_characters, remember: As for `apply_patches`.

    Raises:
        InvalidArgument: An argument is not of its form.
        OtherKind, NoFileSystem, DamagedTable: As for `Shell`.

    Cost:
        `receive` reads the messages in Python.  What is known of entities, schemas, entity types and requests
        stands in buckets, of which those are read that the batch names; of few messages (a thousand, or a
        megabyte) this program does it, of more Spark's workers, with a shuffle for each of four folds.

    Source:
        Debezium streams; all of them.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import streams
    >>> mug = {"db": "shop", "clientid": "c", "user": "ann", "begun": 7, "part": 1, "parts": 1,
    ...        "collection": "Mugs", "zone": "z", "entity": "m1"}
    >>> made = {**mug, "request": 1, "ops": [{"op": "add", "path": "cl", "value": 25}]}
    >>> more = {**mug, "request": 2, "ops": [{"op": "inc", "path": "cl", "value": 5}]}
    >>> with TemporaryDirectory() as folder:
    ...     service = Service(session(), folder)
    ...     _ = service.receive([made], "monday", stream=streams.ENTITY_PATCHES)
    ...     monday = service.newest_batch()
    ...     _ = service.receive([more], "tuesday", stream=streams.ENTITY_PATCHES)
    ...     print(service.receive([more], "tuesday", stream=streams.ENTITY_PATCHES).repeated)
    ...     service.entities().select("entity", "document", "revision").show()
    ...     service.messages(streams.ENTITY_UPDATES, after=monday).select("request", "action").show()
    True
    +------+---------+--------+
    |entity| document|revision|
    +------+---------+--------+
    |    m1|{"cl":30}|       2|
    +------+---------+--------+
    <BLANKLINE>
    +-------+-------+
    |request| action|
    +-------+-------+
    |      2|updated|
    +-------+-------+
    <BLANKLINE>
    """

    kind = "Debezium streams (form 3)"

    @takes(**LIMITS)
    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        databases: Iterable[str] | None = None,
        most_characters: int = MOST_CHARACTERS,
        remember: int = REMEMBERED,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        rules = ServiceRules(require_databases(databases), most_characters, remember)
        self._settings = Settings(rules)
        super().__init__(spark, location, storage_options)

    # What the shell asks for -------------------------------------------------------------------------------

    def _take(self, tables: Transaction, records: DataFrame, stream: str | None = None) -> WorkResult:
        self._settings.require_same(tables)
        intake = Intake(tables, self._settings)
        written = intake.keep(records, stream)
        intake.take(written.files)
        self._settings.note(tables)
        return WorkResult(written.rows)

    def _expire(self, tables: Transaction, now: datetime, wait: timedelta) -> int:
        return give_up_records(tables, now, wait, {"outcome": F.lit(GIVEN_UP), **overdue_error()})

    def _rebuild(self, tables: Transaction) -> WorkResult | None:
        if not count_batches(tables):
            return None
        Intake(tables, self._settings).rebuild()
        self._settings.note(tables)
        return WorkResult()

    def _kinds(self, tables: Snapshot) -> Mapping[str, Kind]:
        kind = SUBSCRIPTIONS_KIND
        return {kind.entity: kind} if tables.has(kind.history) else {}

    def _erasable(self, tables: Snapshot) -> Mapping[str, Kind]:
        return {ENTITY_KIND.name: ENTITY_KIND}

    def _key_columns(self, name: str) -> T.StructType | None:
        return T.StructType([ENTITY_SCHEMA[name] for name in ENTITY])

    def _asked_entities(self, tables: Transaction, kind: Kind, request: Request) -> DataFrame:
        return asked_entities(tables, request)

    def _forget_entities(
        self, tables: Transaction, kind: Kind, request: Request, entities: DataFrame
    ) -> ForgottenEntities:
        self._settings.require_same(tables)
        return forget_named(tables, self._settings, entities)

    def _waiting(self, tables: Snapshot) -> DataFrame:
        waits = _responses_with_outcomes(tables).where(F.col("part_is") == WAITING)
        return waits.select(*RECORD_SCHEMA.names, *_OF_REQUESTS)

    def _rejects(self, tables: Snapshot) -> DataFrame:
        faults = [fault.value for fault in StreamFault]
        records = read_rows(tables, RECORDS, RECORDS_SCHEMA, {ERROR_CODE: faults})
        responses = _responses_with_outcomes(tables).where(F.col(ERROR_CODE).isNotNull())
        return records.select(*REJECT_SCHEMA.names).unionByName(responses.select(*REJECT_SCHEMA.names))

    def _contracts(self, tables: Snapshot) -> dict[str, object]:
        return {"updates": (STREAM_READERS[ENTITY_UPDATES.name](tables, None), "debezium_updates")}

    # Verbs of its own --------------------------------------------------------------------------------------

    @takes(stream=STREAM.or_none())
    def receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None = None,
        *,
        stream: Stream | None = None,
        received_at: datetime | None = None,
    ) -> ReceiveResult:
        """
        `Shell.receive`, of one *stream*.

        Args:
            records, batch, received_at: As for `Shell.receive`.
            stream: Which stream they are of: entity-batches, entity-patches, schema-patches or connections.
                Without it the topic of each says so; a record of another topic is a reject (OTHER_STREAM).

        Raises:
            InvalidArgument: *stream* is none that is taken; or as for `Shell.receive`.
        """
        named = None if stream is None else stream.name
        if named is not None and named not in TAKES:
            raise wrong_argument("stream", f"one of {', '.join(sorted(TAKES))}", named)
        return self._receive(records, batch, received_at, partial(self._take, stream=named))

    @takes(notifications=[rows_of(SEEN_SCHEMA, "{} is no such table"), no_stream("hand its batches over")])
    @describe_jobs("service: note what devices have acknowledged")
    def acknowledge(self, notifications: DataFrame, batch: str | int | None = None) -> None:
        """
        Note which notifications devices have acknowledged.

        Args:
            notifications: One row per acknowledgement: `device` and `notification`, texts.  One that is not
                known, or comes twice, has no effect.
            batch: As for `receive`; an acknowledgement that comes again does nothing either way.
        """
        rows = notifications.select(*SEEN_SCHEMA.fieldNames())

        def work(tables: Transaction) -> WorkResult:
            return WorkResult(tables.append(SEEN, rows, compact_at=MANY_FILES).rows, ())

        self._commit(work, batch, rows)

    # Questions of its own ----------------------------------------------------------------------------------

    @takes(stream=STREAM, after=INT.or_none())
    def messages(self, stream: Stream, *, after: int | None = None) -> DataFrame:
        """
        The messages of one stream: of those that came, or of those that are made of them.

        Args:
            stream: Any stream of the page.
            after: The number of a batch, as `newest_batch` gave it: only what was taken since is told, so
                that each batch can be sent on.  Of changes-by-device that is what follows from updates that
                were taken since; device-notifications are always as they are now.

        Returns:
            One row per message, in the columns that the function of that stream returns (`entity_updates`,
            `partial_responses` and so on): `to_records` makes records of them.

        Cost: a filter of the answers, no shuffle; of changes-by-device and device-notifications, which are
        made anew each time since a subscription may come late, what the functions say.
        """
        return STREAM_READERS[stream.name](self._snapshot(), after)

    def newest_batch(self) -> int:
        """The number of the newest batch, counted from 1; `rebuild` counts as one, since all is made anew."""
        return count_batches(self._snapshot())

    def entities(self) -> DataFrame:
        """One row per entity that exists: its identity, `document` (JSON text), `revision`, `changed`."""
        documents = known_documents(self._snapshot()).where(F.col("document").isNotNull())
        return documents.select(*ENTITY, "document", "revision", "changed")

    def schemas(self) -> DataFrame:
        """One row per database that has a schema: `db`, `document` (JSON text), `revision`, `changed`."""
        documents = known_documents(self._snapshot(), schemas=True).where(F.col("document").isNotNull())
        return documents.select("db", "document", "revision", "changed")

    def entity_types(self) -> DataFrame:
        """One row per entity type: `db`, `collection`, `entity_type` (JSON text), as it is known now."""
        return known_types(self._snapshot()).select("db", "collection", "entity_type")

    def learned_types(self, *, after: int | None = None) -> DataFrame:
        """The entity types as they were learnt, a row for each change (see `learned_types`)."""
        learned = read_made(self._snapshot(), LearnedType, taken_after(after))
        return learned.select(*LEARNED_SCHEMA.fieldNames())

    def erased(self) -> DataFrame:
        """The tombstones of entities that were erased (see `View.erased`)."""
        return View(self._snapshot(), ENTITY_KIND).erased()

    def refused(self) -> DataFrame:
        """The patches that were refused, since their entity was erased (see `View.refused`)."""
        return View(self._snapshot(), ENTITY_KIND).refused()

    def changes(self, collection: str, fields: T.StructType, *, nested: Nested = "dotted") -> DataFrame:
        """The changes of the entities of one collection, for `merge` or a ledger (see `changes`)."""
        return changes(read_answers(self._snapshot()), collection, fields, nested=nested)

    def subscriptions(self) -> DataFrame:
        """The history of subscriptions to zones, kept in a ledger: one row per version."""
        return subscriptions(self._snapshot())

    def devices(self) -> DataFrame:
        """The devices of each user (see `user_devices`)."""
        return user_devices(connections(self._snapshot()))


_OF_REQUESTS = [name for name in REQUEST_SCHEMA.names if name not in RECORD_SCHEMA.names]


def _responses_with_outcomes(tables: Snapshot) -> DataFrame:
    """
    The responses that wait, or did, with what became of them, and the columns of the records that they would
    be: such a one has no offset.
    """
    outcomes = last_outcomes(tables).drop("about").withColumnRenamed("outcome", "part_is")
    answers = _answers(tables, None)
    rows = (response_rows(patches.join(outcomes, [*PLACE]), *outcomes.columns) for patches in answers)
    responses = reduce(DataFrame.unionByName, rows)
    unwritten = ("partition", "offset", "timestampType", "headers")
    nothing = typed_nulls(RECORD_SCHEMA, unwritten)
    return with_record(responses, PARTIAL_RESPONSES).withColumns(nothing)
