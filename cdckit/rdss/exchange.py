"""An exchange that is kept up: messages in; out a ledger for each type of object, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_batch_id, require_instant
from cdckit.parts.documents import Document, as_records, sink_of
from cdckit.parts.workers import doing
from cdckit.rdss.exchange_answers import EXCHANGE, Answers
from cdckit.rdss.exchange_intake import Intake
from cdckit.rdss.exchange_tables import GIVEN_UP, MESSAGES, WAITING, WAITING_SCHEMA, Status
from cdckit.rdss.sequences import waiting
from cdckit.store import Transaction
from cdckit.store.files import digest_of
from cdckit.store.store import KIND, read_some


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


class Exchange(Answers):
    """
    The messages of an RDSS exchange, kept up as they come: a ledger for each type of object, in one store.

    Messages may come in any order and any batches: an update before the create, the parts of a longer message
    in different batches, everything twice.  Where messages contradict each other, what came first stands:
    batch after batch, and in a batch by record time, topic, partition and offset.  That is so for two
    contents under one `messageId`, for two in one place of a sequence, and for a sequence and a message of
    one id, of which the one counts that was whole first.  So batches that follow each other give what one
    batch of all gives, and so does `rebuild`.

    Each call of `receive`, `process` and `rebuild` is one transaction: seen whole or not at all, whatever
    dies meanwhile.  Opening an exchange, and every question to it, writes and deletes nothing; a question is
    answered from the newest commit.

    Every message that came has one fate: *processed*; *invalid* or an *error*, by the queue that takes it; a
    *duplicate* of one that came before, or of one of our own (see `note_own`); or *waiting*, a part whose
    sequence is not all there.

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
                documents: dictionaries, texts, or bytes as `split` gives them; of a stream, see `sink`.
                Expiry is judged by the record's own `timestamp`.
            batch: An id of the batch: of one id, one batch is received.
            at: When the documents of a list were delivered, an aware datetime; without it the clock's time.

        Raises:
            MissingColumns, WrongColumnType: *records* are not records.
            InvalidArgument: They are a stream, or no list of documents; or the exchange was made by other
                settings (`rebuild` makes it anew by these).
            BatchIdReused: The batch id was received with other content.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.

        Cost: the messages are read and validated once, in Python (see `decode`), and written once; with a
            batch id *records* are read a second time.  Of what is known of messages and of objects, the
            buckets are read of those that the batch names.  Then two jobs for the ledger of each type.  A
            message that comes late, and shows that others were about an unknown object when they were
            published, takes them back: the buckets of those objects are written anew.  Where such a message
            is a version of another, those about that version are looked at, too, step by step.
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

        return self.store.atomically(work)

    def sink(self, name: str) -> Callable[[DataFrame, int], Received]:
        """
        `receive` for a stream: `stream.writeStream.foreachBatch(exchange.sink("rdss")).start()`.

        Args:
            name: Of the stream, always the same: the batches that Spark counts are those of this name.  A
                stream that begins anew, with another checkpoint, needs another name.
        """
        return sink_of(self.receive, name)

    @doing("exchange: note messages of our own")
    def note_own(
        self,
        records: DataFrame | Iterable[Document],
        status: Status = Status.SENT,
        *,
        at: datetime | None = None,
    ) -> int:
        """
        Note messages of our own, in one transaction: one that comes back is a duplicate, and not processed.

        Whoever sends through a queue gets it back.  The order of the specification is: note them as TO_SEND,
        send them, and note them as SENT once the queue has acknowledged them.

        Args:
            records: The messages as they are sent (`cdckit.records.RECORD_SCHEMA`), or a list of documents;
                of a longer message, its parts.
            status: TO_SEND or SENT.  A message that was SENT stays so.
            at: As for `receive`.

        Returns:
            How many messages were noted; what is no valid message cannot come back as one, and is not.

        Raises:
            MissingColumns, WrongColumnType: *records* are not records.
            InvalidArgument: They are a stream; *status* is another; or as for `receive`.

        Cost: the messages are read and validated once, and a row for each is written.

        Source:
            RDSS, "Sending", "Local Data Repository".
        """
        if status not in (Status.TO_SEND, Status.SENT):
            raise InvalidArgument("note_own", "status", "TO_SEND or SENT", status)
        given = as_records(self._spark, records, at, shell="exchange")

        def work(transaction: Transaction) -> int:
            settings = self._settings.within(transaction)
            noted = Intake(transaction, settings).own(given, status)
            settings.note(transaction)
            transaction.note(KIND, EXCHANGE)
            transaction.commit()
            return noted

        return self.store.atomically(work)

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

        return self.store.atomically(work)

    @doing("exchange: make all tables anew")
    def rebuild(self) -> None:
        """
        Make everything anew from the messages as they came, by the settings as they are now.

        What came first stays first.  By the same settings nothing changes, but that parts which were given up
        wait again, until `process`, and that a message of our own is a duplicate also where it came before it
        was noted.

        Cost: as for receiving all messages at once.
        """

        def work(transaction: Transaction) -> None:
            if transaction.has(MESSAGES):
                Intake(transaction, self._settings).rebuild()
                self._settings.note(transaction)
                transaction.commit()

        self.store.atomically(work)
