"""The services of the page as one that is kept up: requests in; out every stream that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_batch, require_batch_id, require_instant, require_types
from cdckit.parts.documents import Document, as_records, sink_of
from cdckit.parts.workers import doing
from cdckit.records import ERROR_CODE
from cdckit.store import Transaction
from cdckit.store.files import digest_of
from cdckit.store.store import committed, rows_of
from cdckit.streams.catalogue import Stream, require_stream
from cdckit.streams.responses import waiting
from cdckit.streams.service_answers import SERVICE, Answers
from cdckit.streams.service_intake import (
    MANY_FILES,
    PARTS,
    PARTS_SCHEMA,
    RECORDS,
    SEEN,
    SEEN_SCHEMA,
    TAKES,
    Intake,
)


@dataclass(frozen=True)
class Received:
    """
    What `Service.receive` did.

    Args:
        number: That of the batch, counted from 1: `messages(…, after=number)` tells what came later.
        messages: How many messages came.
        repeated: Whether nothing was done, because the batch had been received before.

    >>> said = Received(number=3, messages=40, repeated=True)
    >>> "received before" if said.repeated else f"{said.messages} messages in batch {said.number}"
    'received before'
    """

    number: int
    messages: int
    repeated: bool = False


class Service(Answers):
    """
    The streams of the page, kept up as requests come: what is known of entities, schemas and entity types,
    the responses that wait, and a ledger of subscriptions, in one store.

    The requests of an entity must come in their order, in whatever batches; then what the service answers is
    at any time what one batch of all messages would have given.  Two things depend on what comes first all
    the same: what is told of an entity type on the way (not what it is in the end), and a request that
    contradicts itself after it was complete: it stays complete.

    Each call of `receive`, `acknowledge`, `process` and `rebuild` is one transaction: seen whole or not at
    all, whatever dies meanwhile.  Opening a service, and every question to it, writes and deletes nothing; a
    question is answered from the newest commit.

    The state is kept here, for batches and for streams (`sink`), and not in Spark's own state: so a commit
    has the state and the answers together, batches and streams go on from each other, others can read what is
    known of entities, and a stream may begin anew without its checkpoint.

    Args:
        spark: The session that does the work.
        location: A local folder or a URI, as for `cdckit.store.Store`; new, or this service's.
        databases: Those that are served; all by default (see `entity_patches`).
        most_characters, remember: As for `apply_patches`.
        buckets: Into how many parts what is known of entities is cut: a batch reads and writes the parts of
            the entities that it names.
        storage_options: What deltalake calls so, for a URI.

    Raises:
        InvalidArgument: An argument is not of its form.
        OtherKind: The location holds something else than a service.
        NoFileSystem, DamagedTable: As for `cdckit.store.Store`.

    Source:
        Debezium streams; all of them.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import streams
    >>> mug = {"db": "shop", "clientid": "c", "user": "ann", "begun": 7, "part": 1, "parts": 1,
    ...        "collection": "Mugs", "zone": "z", "entity": "m1"}
    >>> made = {**mug, "request": 1, "ops": [{"op": "add", "path": "cl", "value": 25}]}
    >>> more = {**mug, "request": 2, "ops": [{"op": "inc", "path": "cl", "value": 5}]}
    >>> with TemporaryDirectory() as folder:
    ...     service = Service(session(), folder, buckets=1)
    ...     monday = service.receive([made], "monday", stream=streams.ENTITY_PATCHES).number
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

    @doing("service: take a batch of messages")
    def receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None = None,
        *,
        stream: Stream | None = None,
        at: datetime | None = None,
    ) -> Received:
        """
        Take messages, and bring everything up to them, in one transaction.

        Args:
            records: One row per transported message (`cdckit.records.RECORD_SCHEMA`), a batch or a list of
                documents; of a stream, see `sink`.
            batch: An id of the batch: of one id, one batch is received.
            stream: Which stream they are of: entity-batches, entity-patches, schema-patches or connections.
                Without it the topic of each says so; a record of another topic is a reject (OTHER_STREAM).
            at: When the documents of a list were delivered, an aware datetime; without it the clock's time.

        Raises:
            MissingColumns, WrongColumnType: *records* are not records.
            InvalidArgument: They are a stream, or no list of documents; *stream* is none that is taken; or
                the service was made by other settings (`rebuild` makes it anew by these).
            BatchIdReused: The batch id was received with other content.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.

        Cost: the messages are read once, in Python, and patches are applied as `apply_patches` does.  Of what
            is known of entities, the buckets of those that the batch names are read and written anew.  Of the
            requests that were complete before, the columns that name them are read.
        """
        named = None if stream is None else require_stream(stream, function="receive").name
        if named is not None and named not in TAKES:
            raise InvalidArgument("receive", "stream", f"one of {', '.join(sorted(TAKES))}", named)
        given = as_records(self._spark, records, at, shell="service")
        key = require_batch_id(batch, function="receive")
        digest = None if key is None else digest_of(given, F.xxhash64("topic", "key", "value"))

        def work(tables: Transaction) -> Received:
            settings = self._settings.within(tables)
            intake = Intake(tables, settings)
            written = intake.keep(given, named)
            intake.take(written, named)
            settings.note(tables)
            return Received(intake.number, written.rows)

        # To do the work again would show as well that a batch came before, but take its time.
        came_before = key is not None and self.store.batch(key) is not None
        once = _nothing if came_before else work
        done = committed(self.store, SERVICE, once, reads=[RECORDS], batch=key, digest=digest)
        return done or Received(self.taken(), 0, repeated=True)

    def sink(self, name: str) -> Callable[[DataFrame, int], Received]:
        """
        `receive` for a stream: `stream.writeStream.foreachBatch(service.sink("requests")).start()`.

        Args:
            name: Of the stream, always the same: the batches that Spark counts are those of this name.  A
                stream that begins anew, with another checkpoint, needs another name.
        """
        return sink_of(self.receive, name)

    @doing("service: note what devices have acknowledged")
    def acknowledge(self, notifications: DataFrame, batch: str | int | None = None) -> None:
        """
        Note which notifications devices have acknowledged.

        Args:
            notifications: One row per acknowledgement: `device` and `notification`, texts.  One that is not
                known, or comes twice, has no effect.
            batch: As for `receive`; an acknowledgement that comes again does nothing either way.

        Raises:
            MissingColumns, WrongColumnType: It is no such table.
            InvalidArgument: It is a stream.
        """
        require_types(notifications, SEEN_SCHEMA, function="acknowledge")
        require_batch(notifications, "notifications", "hand its batches over", function="acknowledge")
        key = require_batch_id(batch, function="acknowledge")

        rows = notifications.select(*SEEN_SCHEMA.fieldNames())

        def work(tables: Transaction) -> None:
            tables.append(SEEN, rows, compact_at=MANY_FILES)

        committed(self.store, SERVICE, work, batch=key)

    @doing("service: give up what waited too long")
    def process(self, *, now: datetime | None = None, wait: timedelta = timedelta(hours=1)) -> int:
        """
        Give up the responses whose requests have been incomplete for too long; returns how many that are.

        They are rejects then (MISSING_PART), until a missing part comes all the same.

        Args:
            now: The instant at which waiting is measured, aware; without it the clock's.
            wait: How long a request may be incomplete, from the record time of its first response on.
        """
        at = datetime.now(UTC) if now is None else now
        require_instant(at, "now", function="process")

        def work(tables: Transaction) -> int:
            rows = rows_of(tables, PARTS, PARTS_SCHEMA)
            is_wrong = F.col(ERROR_CODE).isNotNull()
            judged = waiting(rows.where(~is_wrong), now=at, wait=wait, overdue="reject")
            found = judged.where("is_overdue").count()
            if found:
                columns = PARTS_SCHEMA.fieldNames()
                before = rows.where(is_wrong).select(*columns)
                tables.replace(PARTS, judged.select(*columns).unionByName(before))
            return found or False

        return committed(self.store, SERVICE, work) or 0

    @doing("service: make all tables anew")
    def rebuild(self) -> None:
        """
        Make everything anew from the messages as they came, by the settings as they are now.

        By the same settings nothing changes, but that what was given up waits again, until `process`, and
        that messages that came out of their order are taken in it.

        Cost: as for receiving all messages at once.
        """

        def work(tables: Transaction) -> None:
            Intake(tables, self._settings).rebuild()
            self._settings.note(tables)

        if self.taken():
            committed(self.store, SERVICE, work, reads=[RECORDS])


def _nothing(tables: Transaction) -> None:
    """What is left to do for a batch that came before."""
