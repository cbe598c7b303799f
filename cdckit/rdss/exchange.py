"""An exchange that is kept up: messages in; out a ledger for each type of object, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.ledger.columns import BUCKET
from cdckit.ledger.erasure.bucket_erasure import KNOWN
from cdckit.ledger.erasure.erasure_requests import Request
from cdckit.ledger.erasure.forgotten_entities import ForgottenEntities, forget_entities, with_known
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.model.documents import Document, as_records
from cdckit.model.faults import ERROR_CODE
from cdckit.model.records import RECORD_COLUMNS
from cdckit.model.rejected_records import REJECT_SCHEMA
from cdckit.parts.argument_forms import FLAG, instance_of, takes
from cdckit.parts.guids import guid
from cdckit.parts.job_descriptions import describe_jobs
from cdckit.rdss.decoding import queue_records, with_body
from cdckit.rdss.exchange_erasure import forget_objects, object_uuids
from cdckit.rdss.exchange_intake import Intake
from cdckit.rdss.exchange_tables import (
    MESSAGES,
    MESSAGES_SCHEMA,
    Settings,
    is_erased,
    last_status,
    own_messages,
    whole_messages,
    with_outcomes,
)
from cdckit.rdss.message_assembly import overdue_verdict
from cdckit.rdss.message_rows import VERDICT
from cdckit.rdss.message_types import PRESERVATION, READ, UNKNOWN_CODES
from cdckit.rdss.object_bodies import KEY
from cdckit.rdss.objects import (
    ObjectType,
    preservation_events,
    preservation_history,
    read_requests,
    require_object_type,
)
from cdckit.rdss.outcomes import Outcome, Status
from cdckit.rdss.reading import RULES, Rules
from cdckit.shell.shell import Shell, WorkResult
from cdckit.shell.states_and_outcomes import give_up_records
from cdckit.store import Snapshot, Transaction

_TOLD = (
    *("message_id", "correlation_id", "message_class", "message_type", "sequence_id", "sequence_position"),
    *("sequence_total", "published_timestamp", "generator", "tenant_jisc_id", "object_uuid"),
)


class Exchange(Shell):
    """
    The messages of an RDSS exchange, kept up as they come: a ledger for each type of object, in one store.

    Messages may come in any order and any batches: an update before the create, the parts of a longer message
    in different batches, everything twice.  Where messages contradict each other, what came first stands:
    batch after batch, and in a batch by record time, topic, partition and offset.  That is so for two
    contents under one `messageId`, for two in one place of a sequence, and for a sequence and a message of
    one id, of which the one counts that was whole first.  So batches that follow each other give what one
    batch of all gives, and so does `rebuild`.

    Every message that came has one outcome: *processed*; *invalid* or an *error*, by the queue that takes it;
    a *duplicate* of one that came before, or of one of our own (see `note_own`); *waiting*, a part whose
    sequence is not all there; or *erased*.  `waiting` shows such parts with `message_id` and their place in
    the sequence; they wait from the record time of its first part on.  Given up, they are rejects
    (GENERR001).

    An update, a delete and a read of an unknown object are rejects (APPERRMET001 to 003) until a create of it
    comes that was published before them.  Whether an object exists is settled by the last create or delete
    of it that was published before the message; of messages of one instant, that which arrived before.  A
    create never is an error: an object that is known to some already, and becomes public, comes as a create.
    Each version of an object has an `objectUUID` of its own, and comes as an update: it is right too if it
    says, by isNewVersionOf or isPreviousVersionOf, that it is a version of an object that exists.  One that
    is refused makes no object exist, so a chain of versions that leads to no create is refused whole.

    Its verbs and most of its questions are those of every `Shell`; how a message expires is judged by the
    `timestamp` of its record.  `rebuild` keeps what came first; a message of our own is a duplicate then also
    where it came before it was noted.

    `erase` takes an object out of all ledgers, whichever is named, and all messages about it.  Other objects
    that are versions of it are judged as if it had stayed as it was when it was erased.

    Args:
        spark, location, storage_options: As for `Shell`.
        types: The types of objects of which a ledger is kept (`ObjectType`); all of them without it.
        keeps_deleted: Whether this is a preservation system, which keeps what is deleted: then an object that
            was deleted can be updated and read all the same, and `history` marks it.
        rules: The limits that messages are validated against.

    Raises:
        InvalidArgument: An argument is not of its form.
        OtherKind, NoFileSystem, DamagedTable: As for `Shell`.

    Cost:
        `receive` reads and validates the messages once, in Python, and writes them once.  What is known of
        messages, sequences and objects stands in buckets, of which those are read that the batch names; of
        few messages (a thousand, or a megabyte) this program does it, of more Spark's workers, with a shuffle
        for each of three folds.  Then two jobs for the ledger of each type.  A message that comes late, and
        shows that others were about an unknown object when they were published, takes them back: the buckets
        of those objects are written anew.  Where such a message is a version of another, those about that
        version are looked at, too, step by step.  Once an object was erased, workers are told the names of
        all that were.

    Source:
        RDSS, "Local Data Repository", "Receiving", "Multi-Message Sequence", "Metadata Error Codes",
        "Metadata Update", "Digital Object Versioning".

    An object that is created after it was updated; the update waits for nothing, it is refused and heals:

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.model.records import RECORD_COLUMNS
    >>> sent = decoded.select(*RECORD_COLUMNS)
    >>> with TemporaryDirectory() as folder:
    ...     exchange = Exchange(session(), folder, types=["Dataset"])
    ...     _ = exchange.receive(sent.where("offset > 0"), "monday")
    ...     print([row["error_code"] for row in exchange.rejects().orderBy("offset").collect()])
    ...     _ = exchange.receive(sent.where("offset = 0"), "tuesday")
    ...     exchange.messages().groupBy("outcome").count().show()
    ...     versions = exchange.history("Dataset").orderBy("valid_from_timestamp")
    ...     versions.select("valid_from_timestamp", "objectTitle", "deleted_indicator").show()
    ['APPERRMET001', 'APPERRMET002']
    +---------+-----+
    |  outcome|count|
    +---------+-----+
    |processed|    3|
    +---------+-----+
    <BLANKLINE>
    +--------------------+------------+-----------------+
    |valid_from_timestamp| objectTitle|deleted_indicator|
    +--------------------+------------+-----------------+
    | 2024-03-01 12:00:00|       Tides|            false|
    | 2024-03-01 13:00:00|Tides, again|            false|
    | 2024-03-01 14:00:00|        NULL|             true|
    +--------------------+------------+-----------------+
    <BLANKLINE>
    """

    kind = "RDSS exchange (form 8)"

    @takes(keeps_deleted=FLAG, rules=instance_of(Rules, "an rdss.Rules"))
    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        types: Iterable[str] | None = None,
        keeps_deleted: bool = False,
        rules: Rules = RULES,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        if isinstance(types, str):
            raise InvalidArgument(None, "types", "a list of object types", types)
        chosen = list(ObjectType) if types is None else types
        kinds = tuple(dict.fromkeys(require_object_type(name) for name in chosen))
        self._settings = Settings(kinds, keeps_deleted, rules)
        super().__init__(spark, location, storage_options)

    # What the shell asks for -------------------------------------------------------------------------------

    def _take(self, tables: Transaction, records: DataFrame) -> WorkResult:
        self._settings.require_same(tables)
        intake = Intake(tables, self._settings)
        written = intake.keep(records)
        intake.take(written)
        self._settings.note(tables)
        return WorkResult(written.rows)

    def _expire(self, tables: Transaction, now: datetime, wait: timedelta) -> int:
        verdict = overdue_verdict()
        return give_up_records(tables, now, wait, {"outcome": verdict.pop("queue"), **verdict})

    def _rebuild(self, tables: Transaction) -> WorkResult | None:
        if not tables.has(MESSAGES):
            return None
        Intake(tables, self._settings).rebuild()
        self._settings.note(tables)
        return WorkResult()

    def _kinds(self, tables: Snapshot) -> Mapping[str, Kind]:
        return {str(object_type): self._settings.kind(object_type) for object_type in self._settings.types}

    def _forget_entities(
        self, tables: Transaction, kind: Kind, request: Request, entities: DataFrame
    ) -> ForgottenEntities:
        """Messages, each about one object, go with the objects, which all ledgers have."""
        named = object_uuids(tables).withColumn(GUID, guid(kind.entity, {KEY: F.col("object_uuid")}))
        objects = tables.scratch(named.join(entities, GUID, "left_semi").select("object_uuid", GUID))
        with_objects = entities.join(objects, GUID, "left").select(
            GUID, BUCKET, (F.col(KNOWN) | F.col("object_uuid").isNotNull()).alias(KNOWN)
        )
        forgotten = forget_entities(tables, kind, with_objects)._replace(
            found=entities.where(~F.col(KNOWN)).count()
        )
        if forgotten.unknown or not forgotten.found:
            return forgotten
        elsewhere = self._elsewhere(tables, kind, objects)
        # These need not all have them.
        others = [
            forget_entities(tables, other, some.withColumn(KNOWN, F.lit(True))) for other, some in elsewhere
        ]
        self._settings.require_same(tables)
        parts = forget_objects(tables, self._settings, objects, request.later)
        return forgotten._replace(
            parts=(*(part for result in (forgotten, *others) for part in result.parts), *parts),
            tables=tuple(name for result in (forgotten, *others) for name in result.tables),
            not_erased=self._unread(tables),
            elsewhere=tuple(elsewhere),
        )

    def _elsewhere(self, tables: Transaction, kind: Kind, objects: DataFrame) -> list[tuple[Kind, DataFrame]]:
        """The other ledgers, and which entities objects are there."""
        kinds = [other.stored_kind(tables.base) for other in self._kinds(tables.base).values()]
        return [
            (other, with_known(_guids(objects, other), tables, other))
            for other in kinds
            if other.name != kind.name and tables.has(other.changes)
        ]

    def _unreadable(self, tables: Snapshot) -> DataFrame:
        is_known = F.col("object_uuid").isNotNull() | F.col(ERROR_CODE).isin(*UNKNOWN_CODES)
        return with_outcomes(tables).where(_is_reject() & ~is_known)

    def _waiting(self, tables: Snapshot) -> DataFrame:
        waiting = with_outcomes(tables).where(F.col("outcome") == Outcome.WAITING.value)
        place = ("message_id", "sequence_id", "sequence_position", "sequence_total")
        return waiting.select(*RECORD_COLUMNS, *place, "waiting_since", "waiting_for")

    def _rejects(self, tables: Snapshot) -> DataFrame:
        return with_outcomes(tables).where(_is_reject()).select(*REJECT_SCHEMA.names)

    def _contracts(self, tables: Snapshot) -> dict[str, object]:
        # Of what comes again, or was erased, nothing is said but that.
        first = with_outcomes(tables).where((F.col("outcome") != Outcome.DUPLICATE.value) & ~is_erased())
        return {"messages": (first, "rdss_messages"), "queued": (self._queue_refused(tables), "rdss_queues")}

    def _queue_refused(self, tables: Snapshot) -> DataFrame:
        refused = with_outcomes(tables).where(F.col(ERROR_CODE).isNotNull() & ~is_erased())
        return queue_records(with_body(refused), rules=self._settings.rules)

    # Its own ----------------------------------------------------------------------------------------------

    @describe_jobs("exchange: note messages of our own")
    def note_own(
        self,
        records: DataFrame | Iterable[Document],
        status: Status = Status.SENT,
        *,
        received_at: datetime | None = None,
    ) -> int:
        """
        Note messages of our own, in one transaction: one that comes back is a duplicate, and not processed.

        Whoever sends through a queue gets it back.  The order of the specification is: note them as TO_SEND,
        send them, and note them as SENT once the queue has acknowledged them.

        Args:
            records: The messages as they are sent (`cdckit.model.RECORD_SCHEMA`), or a list of documents;
                of a longer message, its parts.
            status: TO_SEND or SENT.  A message that was SENT stays so.
            received_at: As for `receive`.

        Returns:
            How many messages were noted; what is no valid message cannot come back as one, and is not.

        Raises:
            MissingColumns, WrongColumnType: *records* are not records.
            InvalidArgument: They are a stream; *status* is another; or as for `receive`.

        Cost: the messages are read and validated once; their ids come to this program, which writes them.

        Source:
            RDSS, "Sending", "Local Data Repository".
        """
        if status not in (Status.TO_SEND, Status.SENT):
            raise InvalidArgument(None, "status", "TO_SEND or SENT", status)
        given = as_records(self._spark, records, received_at, shell=self._door)

        def work(tables: Transaction) -> WorkResult:
            self._settings.require_same(tables)
            noted = Intake(tables, self._settings).own(given, status)
            self._settings.note(tables)
            return WorkResult(noted)

        return self._commit(work).records

    def messages(self) -> DataFrame:
        """
        Every message that came, and what became of it: the local data repository of the specification.

        Returns:
            One row per message that came: the columns of its record; of its header `message_id`,
            `correlation_id`, `message_class`, `message_type`, `sequence_id`, `sequence_position`,
            `sequence_total`, `published_timestamp`, `generator`, `tenant_jisc_id`; `object_uuid`; `status`
            (RECEIVED); `outcome` (`Outcome`, or `erased`); and of what is invalid or an error `queue`,
            `error_code` and `error_description`.  The parts of a longer message have one outcome each: all
            that of the whole, once it is whole.  Of one that was erased its record's place is left.
        """
        status = F.lit(Status.RECEIVED.value).alias("status")
        return with_outcomes(self._snapshot()).select(*RECORD_COLUMNS, *_TOLD, status, "outcome", *VERDICT)

    def own_messages(self) -> DataFrame:
        """
        The messages of our own that were noted (see `Exchange.note_own`).

        Returns:
            One row per message: `message_id`, `message_class`, `message_type`, `sequence_id`,
            `sequence_position` and `status`, TO_SEND or SENT.
        """
        return own_messages(self._snapshot())

    def status(self, message_id: str) -> Status | None:
        """
        Tell what is known of a message: RECEIVED, or of one of our own TO_SEND or SENT; None if nothing is.

        So says a gateway's repository, too.

        Cost: no job; the files of one bucket are read by this program.
        """
        return last_status(self._snapshot(), message_id)

    def queued_records(self) -> DataFrame:
        """
        List what the queues take, decorated with their errors (see `queue_records`).

        Cost: they are read once more, in Python.
        """
        return self._queue_refused(self._snapshot())

    def history(self, object_type: str = ObjectType.RESEARCH_OBJECT) -> DataFrame:
        """
        Every version of the objects of one type: of a preservation system as `preservation_history` has them.

        Raises:
            InvalidArgument: No ledger is kept of that type.
            NoSuchTable: No message has said anything of objects yet.
        """
        versions = self.ledgers()[require_object_type(object_type)].history()
        return preservation_history(versions) if self._settings.keeps_deleted else versions

    def read_requests(self) -> DataFrame:
        """The requests to read an object, each with its response (see `read_requests`)."""
        return read_requests(self._processed_messages(READ))

    def preservation_events(self) -> DataFrame:
        """List what preservation systems did with objects, each message once (`preservation_events`)."""
        return preservation_events(self._processed_messages(PRESERVATION))

    def _processed_messages(self, message_type: str) -> DataFrame:
        """The whole messages of one type that were processed, in the columns of `decode`."""
        snapshot = self._snapshot()
        rows = with_outcomes(snapshot).where(F.col("outcome") == Outcome.PROCESSED.value)
        some = rows.where(F.col("message_type") == message_type).select(*MESSAGES_SCHEMA.fieldNames())
        return whole_messages(some, snapshot, self._settings.rules)


def _is_reject() -> Column:
    return F.col("outcome").isin(Outcome.INVALID.value, Outcome.ERROR.value)


def _guids(objects: DataFrame, kind: Kind) -> DataFrame:
    """The entities that objects are in a ledger, and their buckets."""
    guids = guid(kind.entity, {KEY: F.col("object_uuid")})
    return objects.select(guids.alias(GUID)).withColumn(BUCKET, kind.bucket_column(F.col(GUID)))
