"""An exchange that is kept up: messages in; out a ledger for each type of object, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.ledger import View
from cdckit.ledger.kinds import BUCKETS
from cdckit.parts.arguments import require_batch_id, require_flag, require_instant
from cdckit.parts.documents import Document
from cdckit.parts.receiving import as_records, sink_of
from cdckit.parts.steps import doing
from cdckit.rdss.exchange_intake import Intake
from cdckit.rdss.exchange_tables import (
    GIVEN_UP,
    MESSAGES,
    MESSAGES_SCHEMA,
    VERDICT,
    WAITING,
    WAITING_SCHEMA,
    Settings,
    wholes_of,
    with_body,
    with_fates,
)
from cdckit.rdss.fates import Fate
from cdckit.rdss.object_types import ObjectType, require_object_type
from cdckit.rdss.preservation import as_preserved, preservation_events
from cdckit.rdss.queues import queued
from cdckit.rdss.read_requests import reads
from cdckit.rdss.rules import RULES, Rules
from cdckit.rdss.sequences import waiting
from cdckit.rdss.statements import PRESERVATION, READ
from cdckit.records import RECORD_COLUMNS
from cdckit.rejected import ERROR_CODE, REJECT_SCHEMA
from cdckit.store import Snapshot, Store, Transaction
from cdckit.store.digests import digest_of
from cdckit.store.keeping import read_some, rows_of
from cdckit.store.kinds import KIND, require_kind

_Answer = TypeVar("_Answer")

EXCHANGE = "RDSS exchange (form 1)"

_TOLD = (
    *("message_id", "correlation_id", "message_class", "message_type", "sequence_id", "sequence_position"),
    *("sequence_total", "published_timestamp", "generator", "tenant_jisc_id", "object_uuid"),
)


@dataclass(frozen=True)
class Received:
    """
    What `Exchange.receive` did.

    Args:
        version: The commit by which it is seen.
        messages: How many messages came.
        repeated: Whether nothing was done, because the batch had been received before.

    >>> said = Received(version=7, messages=352, repeated=True)
    >>> "received before" if said.repeated else f"{said.messages} messages, seen from {said.version} on"
    'received before'
    """

    version: int
    messages: int
    repeated: bool = False


class Exchange:
    """
    The messages of an RDSS exchange, kept up as they come: a ledger for each type of object, in one store.

    Messages may come in any order and any batches: an update before the create, the parts of a longer message
    in different batches, everything twice.  What the exchange answers is at any time what one batch of all
    messages would have given, but for this: of two contents under one `messageId`, or in one place of a
    sequence that was whole, the one that came first counts.  Everything is kept as it came.

    Each call of `receive`, `process` and `rebuild` is one transaction: seen whole or not at all, whatever
    dies meanwhile.  Opening an exchange, and every question to it, writes and deletes nothing; a question is
    answered from the newest commit.

    Every message that came has one fate: *processed*; *invalid* or an *error*, by the queue that takes it; a
    *duplicate* of one that came before; or *waiting*, a part whose sequence is not all there.

    Args:
        spark: The session that does the work.
        location: A local folder or a URI, as for `cdckit.store.Store`; new, or this exchange's.
        types: The types of objects of which a ledger is kept (`ObjectType`); all of them without it.
        keeps_deleted: Whether this is a preservation system, which keeps what is deleted: then an object that
            was deleted can be updated and read all the same (see `with_unknown`), and `history` marks it.
        rules: The limits that messages are validated against.
        buckets: For new ledgers, as for `cdckit.Ledger`.
        storage_options: What deltalake calls so, for a URI.

    Raises:
        InvalidArgument: An argument is not of its form.
        OtherKind: The location holds something else than an exchange.
        NoFileSystem, DamagedTable: As for `cdckit.store.Store`.

    Source:
        RDSS, "Local Data Repository", "Receiving", "Multi-Message Sequence".

    An object that is created after it was updated; the update waits for nothing, it is refused and heals:

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.records import RECORD_COLUMNS
    >>> sent = decoded.select(*RECORD_COLUMNS)
    >>> with TemporaryDirectory() as folder:
    ...     exchange = Exchange(session(), folder, types=["Dataset"], buckets=1)
    ...     _ = exchange.receive(sent.where("offset > 0"), "monday")
    ...     print([row["error_code"] for row in exchange.rejects().orderBy("offset").collect()])
    ...     _ = exchange.receive(sent.where("offset = 0"), "tuesday")
    ...     exchange.messages().groupBy("fate").count().show()
    ...     versions = exchange.history("Dataset").orderBy("valid_from_timestamp")
    ...     versions.select("valid_from_timestamp", "objectTitle", "deleted_indicator").show()
    ['APPERRMET001', 'APPERRMET002']
    +---------+-----+
    |     fate|count|
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

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        types: Iterable[str] | None = None,
        keeps_deleted: bool = False,
        rules: Rules = RULES,
        buckets: int | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        if isinstance(types, str):
            raise InvalidArgument("Exchange", "types", "a list of object types", types)
        chosen = list(ObjectType) if types is None else types
        kinds = tuple(dict.fromkeys(require_object_type(each, function="Exchange") for each in chosen))
        require_flag(keeps_deleted, "keeps_deleted", function="Exchange")
        if not isinstance(rules, Rules):
            raise InvalidArgument("Exchange", "rules", "an rdss.Rules", rules)
        self._settings = Settings(kinds, keeps_deleted, rules, buckets or BUCKETS)
        self.location = str(location)
        self._spark, self.store = spark, Store(spark, location, storage_options)
        self._snapshot()

    # Asking ----------------------------------------------------------------------------------------------

    def messages(self) -> DataFrame:
        """
        Every message that came, and what became of it: the local data repository of the specification.

        Returns:
            One row per message that came: the columns of its record; of its header `message_id`,
            `correlation_id`, `message_class`, `message_type`, `sequence_id`, `sequence_position`,
            `sequence_total`, `published_timestamp`, `generator`, `tenant_jisc_id`; `object_uuid`; `status`
            (RECEIVED); `fate` (`Fate`); and of what is invalid or an error `queue`, `error_code` and
            `error_description`.  The parts of a longer message have one fate each: all that of the whole,
            once it is whole.
        """
        return with_fates(self._snapshot()).select(*RECORD_COLUMNS, *_TOLD, "status", "fate", *VERDICT)

    def waiting(self) -> DataFrame:
        """
        The parts whose sequences are not all there.

        Returns:
            One row per part: the columns of its record, `message_id`, `sequence_id`, `sequence_position`,
            `sequence_total`, `waiting_since` (when the first part of the sequence came) and `waiting_for`
            (how many parts are missing, and the first of them).  Those that were given up are not among them.
        """
        found = rows_of(self._snapshot(), WAITING, WAITING_SCHEMA).where(F.col(GIVEN_UP).isNull())
        place = ("message_id", "sequence_id", "sequence_position", "sequence_total")
        return found.select(*RECORD_COLUMNS, *place, "waiting_since", "waiting_for")

    def rejects(self) -> DataFrame:
        """
        The messages that cannot be used.

        Returns:
            One row per message (`cdckit.rejected.REJECT_SCHEMA`) as it came, which can be fed again once it
            is mended.  A message about an unknown object is used all the same if the object's create comes at
            last, and was published before it; a part that was given up, if the others come.
        """
        found = self.messages().where(F.col("fate").isin(Fate.INVALID.value, Fate.ERROR.value))
        return found.select(*REJECT_SCHEMA.fieldNames())

    def queued(self) -> DataFrame:
        """
        The same as the queues take them, decorated with their errors (see `queued`).

        Cost: they are read once more, in Python.
        """
        found = with_fates(self._snapshot()).where(F.col(ERROR_CODE).isNotNull())
        return queued(with_body(found), rules=self._settings.rules)

    def objects(
        self,
        object_type: str = ObjectType.RESEARCH_OBJECT,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
    ) -> View:
        """
        The ledger of one type of object: its `history`, its `changes`, its `as_of`.

        Args:
            object_type: The type (see `ObjectType`).
            version: The commit that is meant; the newest without it.
            timestamp: An instant, instead: the last commit until then.

        Raises:
            InvalidArgument: No ledger is kept of that type, there is no such commit, or *timestamp* is naive.
        """
        kind = self._settings.kind(self._type(object_type, "objects"))
        snapshot = self.store.snapshot(version, timestamp)
        return View(snapshot, kind.noted(snapshot, self.location, None))

    def history(self, object_type: str = ObjectType.RESEARCH_OBJECT) -> DataFrame:
        """
        Every version of the objects of one type: of a preservation system as `as_preserved` has them.

        Raises:
            InvalidArgument: No ledger is kept of that type.
            NoSuchTable: No message has said anything of objects yet.
        """
        found = self.objects(object_type).history()
        return as_preserved(found) if self._settings.keeps_deleted else found

    def reads(self) -> DataFrame:
        """The requests to read an object, each with its response (see `reads`)."""
        return reads(self._processed(READ))

    def preservation_events(self) -> DataFrame:
        """What preservation systems have done with objects, each message once (see `preservation_events`)."""
        return preservation_events(self._processed(PRESERVATION))

    # Writing ---------------------------------------------------------------------------------------------

    @doing("exchange: take a batch of messages")
    def receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None = None,
        *,
        at: datetime | None = None,
    ) -> Received:
        """
        Take messages, and bring everything up to them, in one transaction.

        Args:
            records: One row per transported message (`cdckit.records.RECORD_SCHEMA`), a batch or a list of
                documents; of a stream, see `sink`.  Expiry is judged by the record's own `timestamp`.
            batch: An id of the batch: of one id, one batch is received.
            at: When the documents of a list were delivered, an aware datetime; without it the clock's time.

        Raises:
            MissingColumns, WrongColumnType: *records* are not records.
            InvalidArgument: They are a stream, or no list of documents; or the exchange was made by other
                settings (`rebuild` makes it anew by these).
            BatchIdReused: The batch id was received with other content.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.

        Cost: the messages are read and validated once, in Python (see `decode`), and written once; with a
            batch id *records* are read a second time.  The identifiers of all messages that ever came are
            read, one column.  Of what is known of objects, the buckets are read of those that the batch
            names.  Then two jobs for the ledger of each type.  A message that comes late, and shows that
            others were about an unknown object when they were published, takes them back: the buckets
            of those objects are written anew.
        """
        given = as_records(self._spark, records, at, shell="exchange")
        key = require_batch_id(batch, function="receive")
        digest = None if key is None else digest_of(given, F.xxhash64("key", "value"))

        def work(transaction: Transaction) -> Received:
            if key is not None and self.store.batch(key) is not None:
                done = transaction.commit(batch=key, digest=digest, reads=())
                return Received(done.version, 0, repeated=True)
            settings = self._settings.within(transaction)
            intake = Intake(transaction, settings)
            written = intake.keep(given)
            intake.take(written)
            settings.note(transaction)
            transaction.note(KIND, EXCHANGE)
            done = transaction.commit(batch=key, digest=digest)
            return Received(done.version, 0 if done.repeated else written.rows, done.repeated)

        return self._atomically(work)

    def sink(self, name: str) -> Callable[[DataFrame, int | str], Received]:
        """
        `receive` for a stream: `stream.writeStream.foreachBatch(exchange.sink("rdss")).start()`.

        Args:
            name: Of the stream, always the same: the batches that Spark counts are those of this name.  A
                stream that begins anew, with another checkpoint, needs another name.
        """
        return sink_of(self.receive, name)

    @doing("exchange: give up what waited too long")
    def process(self, *, now: datetime | None = None, wait: timedelta = timedelta(hours=1)) -> int:
        """
        Give up the parts whose sequences have been incomplete for too long; returns how many that are.

        They are rejects then (GENERR001), until a missing part comes all the same.

        Args:
            now: The instant at which waiting is measured, aware; without it the clock's.
            wait: How long a sequence may be incomplete, from the record time of its first part on.
        """
        at = datetime.now(UTC) if now is None else now
        instant = require_instant(at, "now", function="process")

        def work(transaction: Transaction) -> int:
            rows = read_some(transaction, WAITING)
            if rows is None:
                return 0
            given_up = F.col(GIVEN_UP).isNotNull()
            still = rows.where(~given_up)
            judged = waiting(still, now=at, wait=wait, overdue="reject")
            found = judged.where("is_overdue").count()
            if found:
                told = judged.withColumn(GIVEN_UP, F.when(F.col("is_overdue"), instant))
                columns = WAITING_SCHEMA.fieldNames()
                before = rows.where(given_up).select(*columns)
                transaction.replace(WAITING, told.select(*columns).unionByName(before))
                transaction.commit()
            return found

        return self._atomically(work)

    @doing("exchange: make all tables anew")
    def rebuild(self) -> None:
        """
        Make everything anew from the messages as they came, by the settings as they are now.

        By the same settings nothing changes, but that parts which were given up wait again, until `process`.

        Cost: as for receiving all messages at once.
        """

        def work(transaction: Transaction) -> None:
            if transaction.has(MESSAGES):
                Intake(transaction, self._settings).rebuild()
                self._settings.note(transaction)
                transaction.commit()

        self._atomically(work)

    # -----------------------------------------------------------------------------------------------------

    def _processed(self, message_type: str) -> DataFrame:
        """The whole messages of one type that were processed, in the columns of `decode`."""
        snapshot = self._snapshot()
        rows = with_fates(snapshot).where(F.col("fate") == Fate.PROCESSED.value)
        some = rows.where(F.col("message_type") == message_type).select(*MESSAGES_SCHEMA.fieldNames())
        return wholes_of(some, snapshot, self._settings.rules)

    def _type(self, object_type: str, function: str) -> ObjectType:
        found = require_object_type(object_type, function=function)
        if found not in self._settings.types:
            needed = f"one that the exchange keeps: {', '.join(self._settings.types)}"
            raise InvalidArgument(function, "object_type", needed, object_type)
        return found

    def _atomically(self, work: Callable[[Transaction], _Answer]) -> _Answer:
        self._snapshot()
        return self.store.atomically(work)

    def _snapshot(self) -> Snapshot:
        found = self.store.snapshot()
        require_kind(found, EXCHANGE)
        return found
