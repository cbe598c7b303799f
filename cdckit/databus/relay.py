"""A relay that is kept up: events in; out a ledger for each source, all at one end of a window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.databus.relay_answers import RELAY, Answers
from cdckit.databus.relay_intake import Intake
from cdckit.databus.relay_tables import EVENTS, GIVEN_UP, WAITING
from cdckit.databus.window_rows import STREAM
from cdckit.parts.arguments import require_batch_id, require_instant
from cdckit.parts.documents import Document, as_records, sink_of
from cdckit.parts.workers import doing
from cdckit.store import Transaction
from cdckit.store.files import digest_of
from cdckit.store.store import KIND, read_some


@dataclass(frozen=True)
class Received:
    """
    What `Relay.receive` did.

    Args:
        version: The commit by which it is seen.
        records: How many records came that had not come before.
        repeated: Whether nothing was done, because the batch had been received before.

    >>> said = Received(version=7, records=352, repeated=True)
    >>> "received before" if said.repeated else f"{said.records} records, seen from {said.version} on"
    'received before'
    """

    version: int
    records: int
    repeated: bool = False


class Relay(Answers):
    """
    The events of Databus streams, kept up as they come: a ledger for each source, in one store.

    Only windows that are whole reach the ledgers, each once, however often the source rolls back or sends
    again, in the same batch or in a later one.  All ledgers move on in one commit, so whoever reads several
    of them at one commit (`tables`) sees them at the end of one window.  The events of a window that is open
    wait in a table of their own until its end comes.

    What the relay answers is at any time what one batch of all records would have given.  The batches must
    bring the records of a partition of a topic in the order of their offsets, as a structured stream does; a
    record that comes again is passed over, and one that comes behind others of its partition for the first
    time is a reject (PLACE_TAKEN), which finds its place with `rebuild`.  Everything is kept as it came.

    Each call of `receive`, `process` and `rebuild` is one transaction: seen whole or not at all, whatever
    dies meanwhile.  Opening a relay, and every question to it, writes and deletes nothing; a question is
    answered from the newest commit.

    Args:
        spark: The session that does the work.
        location: A local folder or a URI, as for `cdckit.store.Store`; new, or this relay's.
        sources: What the srcIds of events stand for (see `decode`).  More of them, and newer schemas, may be
            given when the relay is opened again.
        keys: By the name of a source, the fields of its key: of these sources a ledger is kept.
        skip_sources: The srcIds of sources that nobody needs here: their events are not kept.
        buckets: For new ledgers, as for `cdckit.Ledger`.
        storage_options: What deltalake calls so, for a URI.

    Raises:
        InvalidArgument: An argument is not of its form.
        OtherKind: The location holds something else than a relay.
        NoFileSystem, DamagedTable: As for `cdckit.store.Store`.

    Source:
        Databus, "Consistency window": "if one started from a consistent state of the data and applied all
        events, they will finish in a consistent state".

    Five windows that come in two batches, cut in the middle of the second one, which is rolled back:

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.records import RECORD_COLUMNS
    >>> sent = events.select(*RECORD_COLUMNS)
    >>> with TemporaryDirectory() as folder:
    ...     relay = Relay(session(), folder, [planes, flights], keys={"planes": ["tail"]}, buckets=1)
    ...     print(relay.receive(sent.where("offset < 4"), "monday").records)
    ...     print([row["offset"] for row in relay.waiting().collect()])
    ...     print(relay.receive(sent, "tuesday").records)
    ...     relay.streams().select("windows", "passed_scn", "needed_scn", "open_events").show()
    ...     relay.table("planes").history().select("tail", "seats", "deleted_indicator").show()
    4
    [3]
    7
    +-------+----------+----------+-----------+
    |windows|passed_scn|needed_scn|open_events|
    +-------+----------+----------+-----------+
    |      4|         6|      NULL|          1|
    +-------+----------+----------+-----------+
    <BLANKLINE>
    +----+-----+-----------------+
    |tail|seats|deleted_indicator|
    +----+-----+-----------------+
    | N12|   55|            false|
    +----+-----+-----------------+
    <BLANKLINE>
    """

    @doing("relay: take a batch of events")
    def receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None = None,
        *,
        at: datetime | None = None,
    ) -> Received:
        """
        Take records, and bring everything up to them, in one transaction.

        Args:
            records: One row per transported event (`cdckit.records.RECORD_SCHEMA`), a batch or a list of
                documents; of a stream, see `sink`.
            batch: An id of the batch: of one id, one batch is received.
            at: When the documents of a list were delivered, an aware datetime; without it the clock's time.

        Raises:
            MissingColumns, WrongColumnType: *records* are not records.
            InvalidArgument: They are a stream, or no list of documents; or the ledger of a source was made by
                another key (`rebuild` makes it anew by this one).
            BatchIdReused: The batch id was received with other content.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.

        Cost: one job, in which the records are decoded, shuffled by topic and partition, cut and written once
            (and one that reads them, with a batch id); then two jobs for each ledger of which a window
            passed.  Of what came before, the events of windows that are open are read when these end, and
            small files of a stream are written together now and then; and where the source sends again, two
            columns of the events from that SCN on are read.
        """
        given = as_records(self._spark, records, at, shell="relay")
        key = require_batch_id(batch, function="receive")
        digest = None if key is None else digest_of(given, F.xxhash64("key", "value"))

        def work(transaction: Transaction) -> Received:
            if key is not None and self.store.batch(key) is not None:
                done = transaction.commit(batch=key, digest=digest, reads=())
                return Received(done.version, 0, repeated=True)
            count = Intake(transaction, self._settings).take(given)
            transaction.note(KIND, RELAY)
            done = transaction.commit(batch=key, digest=digest)
            return Received(done.version, 0 if done.repeated else count, done.repeated)

        return self.store.atomically(work)

    def sink(self, name: str) -> Callable[[DataFrame, int], Received]:
        """
        `receive` for a stream: `stream.writeStream.foreachBatch(relay.sink("databus")).start()`.

        Args:
            name: Of the stream, always the same: the batches that Spark counts are those of this name.  A
                stream that begins anew, with another checkpoint, needs another name; what it brings again is
                passed over.
        """
        return sink_of(self.receive, name)

    @doing("relay: give up what waited too long")
    def process(self, *, now: datetime | None = None, wait: timedelta = timedelta(hours=1)) -> int:
        """
        Give up the events whose windows have been open for too long; returns how many that are.

        They are rejects then (WINDOW_OPEN), until the end of their window comes all the same.

        Args:
            now: The instant at which waiting is measured, aware; without it the clock's.
            wait: How long an event may wait, from the `timestamp` of its record on.
        """
        at = datetime.now(UTC) if now is None else now
        instant = require_instant(at, "now", function="process")

        def work(transaction: Transaction) -> int:
            rows = read_some(transaction, WAITING)
            if rows is None:
                return 0
            overdue = F.col(GIVEN_UP).isNull() & (instant - F.col("timestamp") > F.lit(wait))
            found = rows.where(overdue).count()
            if found:
                given_up = F.when(overdue, instant).otherwise(F.col(GIVEN_UP))
                in_order = rows.repartition(*STREAM).sortWithinPartitions(*STREAM, "offset")
                transaction.replace(WAITING, in_order.withColumn(GIVEN_UP, given_up))
                transaction.commit()
            return found

        return self.store.atomically(work)

    @doing("relay: make all tables anew")
    def rebuild(self) -> None:
        """
        Make everything anew from the records as they came, by the sources and keys as they are now.

        By the same ones nothing changes, but that records which came behind others of their partition find
        their place, if no other record stands there, and that what was given up waits again, until `process`.

        Cost: as for receiving all records at once.
        """

        def work(transaction: Transaction) -> None:
            if transaction.has(EVENTS):
                Intake(transaction, self._settings).rebuild()
                transaction.commit()

        self.store.atomically(work)
