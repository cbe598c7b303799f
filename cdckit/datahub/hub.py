"""The hub: messages in, and histories kept up; what it answers is in `answers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.message_store import decode
from cdckit.datahub.questions import Answers
from cdckit.datahub.runs import Run, identified
from cdckit.datahub.state import HUB, MESSAGES, PROCESSED, RECEIVED, RUN, SCHEMA, State, appended
from cdckit.datahub.statuses import DUE, EVERYTHING
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import microseconds, require_batch_id
from cdckit.parts.documents import Document, as_records, sink_of
from cdckit.parts.workers import doing
from cdckit.store import Transaction
from cdckit.store.files import digest_of
from cdckit.store.store import committed, note, noted


class Hub(Answers):
    """
    Messages in, histories out, and what became of each message.

    A hub is a store of Delta tables (`cdckit.store`): the messages as they came, what their records say
    (typed, by target), the histories that this makes, and the status of each message.  Everything but the
    messages can be made anew from them (`rebuild`), and is then what it was.

    `receive`, `process`, `reprocess` and `rebuild` are one commit each: all or nothing.  Several programs may
    use one place.  Messages that come during a run land, and are for the next run; where two do the same,
    the later one does it again on what the other has committed.  In a local folder runs wait for each other.

    Opening a hub, and every question to it (see `Answers`), writes and deletes nothing.

    Args:
        spark: The session that does the work.
        schema: The source systems (see `schema` and `read_schema`).
        location: A folder, which need not be there, or a URI such as `s3://bucket/hub`.  On a cluster driver
            and workers must all reach it, under the same name.
        readers: Readers of your own, by the names that mappings call them.
        filters: Filters of your own, likewise.
        files: The folder to which readers of files are confined.
        retry: When messages that wait are tried again, and when they are given up.
        storage_options: What deltalake calls so, for a URI; Spark takes its own from its session.

    Raises:
        InvalidArgument: A mapping names a reader or a filter that is not given; or *schema* is none, or
            *retry*.
        OtherKind: Something else is kept there.
        NoFileSystem: Spark or deltalake lacks a file system for the URI's scheme.
        DamagedTable: The store cannot be read.

    Cost: a run reads the new messages once, writes what they say of each target, looks at the guids and
    links of all statements, and merges the entities that are touched; in a hub with at most 10,000
    statements, this program merges all entities of the targets that the messages speak of.  The number
    of Spark jobs depends on the schema, not on messages, entities or keys; what waits adds rounds of a few
    jobs each, three at most and one (see `waiting_statements`).

    A message or schema that changes what earlier records mean, as a late one of an entity with weak keys
    can, lets everything be merged anew.

    Source:
        Data hub specification.

    >>> from datetime import datetime, timezone
    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.datahub import schema
    >>> fields = [{"reference": "number", "type": "integer", "key": True}, {"reference": "name"}]
    >>> product = {"reference": "product", "fields": fields}
    >>> shop = schema({"reference": "*", "mappings": {"product": [product]}})
    >>> at = datetime(2024, 1, 1, 9, tzinfo=timezone.utc)
    >>> data = [{"number": 1, "name": "kettle"}, {"name": "mug"}]
    >>> message = {"entity": "product", "guid": "m1", "data": data}
    >>> with TemporaryDirectory() as folder:
    ...     hub = Hub(session(), shop, folder)
    ...     _ = hub.receive([message], at=at)
    ...     hub.process(now=at)
    ...     hub.history("product").select("number", "name", "source_message").show()
    ...     hub.messages().select("message_identifier", "status").show()
    ...     hub.rejects().select("record", "record_text", "error_code", "entities").show()
    +------+------+--------------+
    |number|  name|source_message|
    +------+------+--------------+
    |     1|kettle|            m1|
    +------+------+--------------+
    <BLANKLINE>
    +------------------+------+
    |message_identifier|status|
    +------------------+------+
    |                m1|    25|
    +------------------+------+
    <BLANKLINE>
    +------+---------------+-----------+---------+
    |record|    record_text| error_code| entities|
    +------+---------------+-----------+---------+
    |     2|{"name": "mug"}|KEY_MISSING|[product]|
    +------+---------------+-----------+---------+
    <BLANKLINE>
    """

    @doing("hub: take messages")
    def receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None = None,
        *,
        at: datetime | None = None,
    ) -> DataFrame:
        """
        Store messages; `process` is called when you like.

        Args:
            records: One row per record, `value` one JSON document (see `decode`); `files` makes such a
                table.  Or a list of documents, which become records as by `datahub.records`.
            batch: An id: of one id, records are received once, however often they are given.
            at: When documents of a list are stored, an aware datetime; without it the clock's time.  Those
                that name no `guid` are told apart by it: passed on again at another time, they are others.

        Returns:
            One receipt per record: `topic`, `partition`, `offset`, `message_identifier`, `status` (0 not
            processed yet; 5 previously received, which changes nothing; 22 message invalid, kept as a
            reject), `error_code`, `error_description`.  Of a batch that was received before, the receipts
            of that time.

        Raises:
            MissingColumns, WrongColumnType: *records* is not a table of records.
            InvalidArgument: *records* is neither a table nor a list of documents, or a stream (see `sink`);
                *at* is naive, or given with a table, whose rows say when they were stored; *batch* is empty.
            BatchIdReused: The batch id was received with other keys or values.
            ConflictingCommit: Others have received messages each time that this was tried.

        Cost: the identifiers of all messages that were ever received are read; with a batch id, *records*
        are read a second time.
        """
        given = as_records(self._spark, records, at, shell="hub")
        id_ = require_batch_id(batch, function="receive")
        digest = None if id_ is None else digest_of(given, F.xxhash64("key", "value"))
        number = None
        if id_ is None or self.store.batch(id_) != digest:
            append = partial(appended, schema=self.schema, decoded=decode(given), batch=id_)
            # What was compared with must stand still: of one message only one may be the first.
            number = committed(self.store, HUB, append, reads=[MESSAGES], batch=id_, digest=digest)
        return State(self.schema, self._tables()).receipts(number, id_)

    def sink(self, name: str) -> Callable[[DataFrame, int], DataFrame]:
        """
        `receive` for a stream, each record exactly once, also after a restart::

            records = spark.readStream.format("kafka").option("subscribe", "hub").load()
            writer = records.writeStream.option("checkpointLocation", "hub-checkpoint")
            writer.foreachBatch(hub.sink("hub")).start()

        Args:
            name: Of the stream, always the same: the batches that Spark counts are those of this name.  A
                stream that begins anew, with another checkpoint, needs another name.
        """
        return sink_of(self.receive, name)

    @doing("hub: apply what is due")
    def process(self, *, now: datetime | None = None) -> None:
        """
        Process what was received since the last run, and the messages that wait and are due again.

        With another schema than in the run before, all messages are read anew, and all that wait are tried.
        Where nothing came and nothing is due, nothing is done.

        Args:
            now: The time of the run, aware; without it the clock's.  It decides which messages are due
                and which are given up, nothing else.

        Raises:
            ConflictingCommit: Others have processed messages each time that this was tried.
        """
        self._run("process", DUE, now)

    @doing("hub: try messages again")
    def reprocess(self, messages: str | Iterable[str], *, now: datetime | None = None) -> None:
        """
        Read messages again, by the schema as it is now; with the same schema no table of theirs changes.

        Messages that were given up are given a new chance; attempts are counted anew.

        Args:
            messages: The identifiers.
            now: The time of the run.

        Raises:
            InvalidArgument: One of them is not in the store (status 21, message not found).
            ConflictingCommit: As for `process`.
        """
        listed = [messages] if isinstance(messages, str) else sorted(set(messages))
        tables = self._tables()
        stored = State(self.schema, tables).stored(last=noted(tables, PROCESSED, 0))
        unknown = identified(self._spark, listed).join(stored, "message_identifier", "left_anti").first()
        if unknown is not None:
            needed = "identifiers of processed messages (status 21)"
            raise InvalidArgument("reprocess", "messages", needed, unknown[0])
        self._run("reprocess", listed, now)

    @doing("hub: make all tables anew")
    def rebuild(self, *, now: datetime | None = None) -> None:
        """
        Make everything anew from the messages, by the schema as it is now.

        Messages that were given up stay given up, and those that are not due wait on: with the same
        schema, tables and statuses are what they were.

        Raises:
            ConflictingCommit: As for `process`.
        """
        self._run("rebuild", EVERYTHING, now)

    def _run(self, function: str, chosen: str | list[str], now: datetime | None) -> None:
        """Commit what a run of that time does with the *chosen* messages; by another schema, with all."""
        at = datetime.now(UTC) if now is None else now
        instant = microseconds(at, "now", function=function)
        if self._tables().version is None:
            return
        with self._under_way.alone() as say:

            def written(tables: Transaction) -> bool:
                first, last = noted(tables, PROCESSED, 0) + 1, noted(tables, RECEIVED, 0)
                anew = noted(tables, SCHEMA, None) not in (None, self.schema.fingerprint)
                everything = anew or chosen != DUE
                name, messages = uuid4().hex, EVERYTHING if anew else chosen
                known = last if anew or chosen == DUE else first - 1
                say({"run": name, "messages": messages, "now": instant, "last": known})
                run = Run(self._work, tables, self._retry, instant)
                stored = run.stored(None if everything else first, known)
                if anew:
                    run.forget_schema()
                elif chosen == EVERYTHING:
                    run.forget(None)
                if isinstance(chosen, list):
                    listed = identified(self._spark, chosen)
                    run.forget(listed)
                    if not anew:
                        stored = stored.join(F.broadcast(listed), "message_identifier", "left_semi")
                came = run.read_messages(stored, attempt=anew or chosen != EVERYTHING)
                if not (everything or came or run.has_due()):
                    return False
                run.settle(everything=everything)
                note(tables, PROCESSED, known)
                note(tables, SCHEMA, self.schema.fingerprint)
                # Of two runs at once, which both note their names, the second is told of the first.
                note(tables, RUN, name)
                return True

            # What a run goes by, only runs change; messages that come meanwhile are for the next one.
            committed(self.store, HUB, written)
