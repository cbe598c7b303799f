"""The hub: messages in, histories out, and what became of each message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.datahub.attempts import committed
from cdckit.datahub.exports import Sink
from cdckit.datahub.intake import Work
from cdckit.datahub.keeping import grow
from cdckit.datahub.mappings import EntityMapping
from cdckit.datahub.message_store import (
    MESSAGE_SCHEMA,
    Document,
    decode,
    identity,
    records_of,
    with_statuses,
)
from cdckit.datahub.outcomes import (
    DUE,
    EVERYTHING,
    Retry,
    rejected,
    with_being_processed,
    with_status,
)
from cdckit.datahub.questions import query
from cdckit.datahub.readers import READERS, Filter, Reader
from cdckit.datahub.runs import Run
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.state import MESSAGES, PROCESSED, RECEIVED, RUN, SCHEMA, STATUSES, State, note, noted
from cdckit.datahub.statuses import Status
from cdckit.datahub.under_way import UnderWay
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_instant
from cdckit.parts.instants import microseconds
from cdckit.records import require_records
from cdckit.store import OtherKind, Snapshot, Store, Transaction
from cdckit.store.kinds import require_kind
from cdckit.store.locations import locate

_KIND = "data hub (form 1)"
"""What is noted in the store: the kind of what is kept there, and the version of its form."""


class Hub:
    """
    Messages in, histories out, and what became of each message.

    A hub is a store of Delta tables (`cdckit.store`): the messages as they came, what their records say
    (typed, by target), the histories that this makes, and the status of each message.  Everything but the
    messages can be made anew from them (`rebuild`), and is then what it was.

    `receive`, `process`, `reprocess` and `rebuild` are one commit each: all or nothing.  Several programs may
    use one place.  Messages that come during a run land, and are for the next run; where two do the same,
    the later one does it again on what the other has committed.  In a local folder runs wait for each other.

    Opening a hub, and every question to it, writes and deletes nothing.  A question is answered from the
    newest commit, and the answer stays what it was while others write, until `store.vacuum()` deletes what
    it needs.

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

    Attributes:
        schema: The schema.
        store: The store: `commits`, `compact`, `vacuum` and `check` are its own.

    Raises:
        InvalidArgument: A mapping names a reader or a filter that is not given; or *schema* is none, or
            *retry*.
        OtherKind: Something else is kept there.
        NoFileSystem: Spark or deltalake lacks a file system for the URI's scheme.
        DamagedTable: The store cannot be read.

    Cost: a run reads the new messages once, writes what they say of each target, looks at the guids and
    links of all statements, and merges the entities that are touched; in a hub with at most 10,000
    statements, all entities of the targets that the messages speak of.  The number of Spark jobs depends on
    the schema, not on messages, entities or keys; what waits adds rounds of a few jobs each, three at most
    and one (see `waiting_statements`).

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

    def __init__(
        self,
        spark: SparkSession,
        schema: Schema,
        location: str | Path,
        *,
        readers: Mapping[str, Reader] | None = None,
        filters: Mapping[str, Filter] | None = None,
        files: str | Path | None = None,
        retry: Retry | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        if not isinstance(schema, Schema):
            needed = "what datahub.schema or datahub.read_schema returns"
            raise InvalidArgument("Hub", "schema", needed, type(schema).__name__)
        if not isinstance(retry, Retry | None):
            raise InvalidArgument("Hub", "retry", "a datahub.Retry", retry)
        self.schema = schema
        self._spark, self.store = spark, Store(spark, location, storage_options)
        place = locate(location, storage_options, None)
        folder = Path(place.root) if place.local else None
        if folder is not None and (folder / "current.json").exists():
            raise OtherKind(place.root, _KIND, "the tables of a hub of an earlier form (current.json)")
        self._under_way = UnderWay(folder)
        confined = None if files is None else str(files)
        self._work = Work(schema, {**READERS, **(readers or {})}, dict(filters or {}), confined)
        self._retry = retry or Retry()
        for path, mapping in schema.all_mappings.items():
            self._require_known(str(path), mapping)
        self._tables()

    def receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None = None,
        *,
        at: datetime | None = None,
    ) -> DataFrame:
        """
        Store messages.

        A stream hands on its batches with their numbers, and receives each record exactly once, also after
        a restart::

            records = spark.readStream.format("kafka").option("subscribe", "hub").load()
            writer = records.writeStream.option("checkpointLocation", "hub-checkpoint")
            writer.foreachBatch(lambda frame, number: hub.receive(frame, batch=number)).start()

        `process` is called when you like, in the same function or on its own.

        Args:
            records: One row per record, `value` one JSON document (see `decode`); `files` makes such a
                table.  Or a list of documents, which become records as by `datahub.records`.
            batch: An id: of one id, records are received once, however often they are given.  Of two streams
                into one hub, one must give its ids another form, such as `f"web/{number}"`.
            at: When documents of a list are stored, an aware datetime; without it the clock's time.  Those
                that name no `guid` are told apart by it: passed on again at another time, they are others.

        Returns:
            One receipt per record: `topic`, `partition`, `offset`, `message_identifier`, `status` (0 not
            processed yet; 5 previously received, which changes nothing; 22 message invalid, kept as a
            reject), `error_code`, `error_description`.  Of a batch that was received before, the receipts
            of that time.

        Raises:
            MissingColumns, WrongColumnType: *records* is not a table of records.
            InvalidArgument: *records* is neither a table nor a list of documents; *at* is naive, or is given
                with a table, whose rows say when they were stored; *batch* is empty.
            BatchIdReused: The batch id was received with other keys or values.
            ConflictingCommit: Others have received messages each time that this was tried.

        Cost: the identifiers of all messages that were ever received are read; with a batch id, *records*
        are read a second time.
        """
        records, id_ = self._as_records(records, at), _batch_id(batch)
        digest = None if id_ is None else _digest(records)
        if id_ is None or self.store.batch(id_) != digest:
            number = self._received(records, id_, digest)
            rows = State(self.schema, self._tables()).received(number, number)
        else:
            rows = State(self.schema, self._tables()).received()
        if id_ is not None:
            rows = rows.where(F.col("batch") == id_)
        return rows.select(
            "topic", "partition", "offset", "message_identifier", "status", "error_code", "error_description"
        )

    def _received(self, records: DataFrame, batch: str | None, digest: int | None) -> int:
        """Append the records to those that were received; the number of the receipt."""
        decoded = decode(records)

        def append(tables: Transaction) -> int:
            state = State(self.schema, tables)
            number = int(noted(tables, RECEIVED, 0)) + 1
            known = state.received().where(F.col("status") != int(Status.PREVIOUSLY_RECEIVED))
            said = with_statuses(decoded, known.select(identity().alias("identity")))
            numbered = said.withColumns(
                {"received": F.lit(number).cast("long"), "batch": F.lit(batch).cast("string")}
            )
            grow(tables, MESSAGES, numbered)
            note(tables, RECEIVED, number)
            return number

        # What was compared with must stand still: of one message only one may be the first.
        return committed(self.store, _KIND, append, reads=[MESSAGES], batch=batch, digest=digest)

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

        def work(run: Run, first: int, last: int) -> bool:
            came = run.read_messages(run.stored(first, last) if first <= last else run.stored(1, 0))
            if not came and not run.has_due():
                return False
            run.settle()
            return True

        self._run("process", DUE, now, work)

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
        chosen = self._spark.createDataFrame([(each,) for each in listed], "message_identifier string")
        tables = self._tables()
        stored = State(self.schema, tables).stored(last=noted(tables, PROCESSED, 0))
        unknown = chosen.join(stored, "message_identifier", "left_anti").first()
        if unknown is not None:
            raise InvalidArgument(
                "reprocess", "messages", "identifiers of processed messages (status 21)", unknown[0]
            )

        def work(run: Run, first: int, last: int) -> bool:
            run.forget(chosen)
            stored = run.stored(last=first - 1)
            run.read_messages(stored.join(F.broadcast(chosen), "message_identifier", "left_semi"))
            run.settle(everything=True)
            return True

        self._run("reprocess", listed, now, work)

    def rebuild(self, *, now: datetime | None = None) -> None:
        """
        Make everything anew from the messages, by the schema as it is now.

        Messages that were given up stay given up, and those that are not due wait on: with the same
        schema, tables and statuses are what they were.

        Raises:
            ConflictingCommit: As for `process`.
        """

        def work(run: Run, first: int, last: int) -> bool:
            run.forget(None)
            run.read_messages(run.stored(last=first - 1), attempt=False)
            run.settle(everything=True)
            return True

        self._run("rebuild", EVERYTHING, now, work)

    def messages(self) -> DataFrame:
        """
        One row per message of the store (`MESSAGE_SCHEMA`) with `status`, `error_message`, `attempts` and
        `next_attempt_timestamp`.

        While a run is under way in a local folder, be it of another hub in this program or another one, the
        messages that it has chosen are BEING_PROCESSED, and everything else is as it was before the run.
        Elsewhere nobody is told of runs, and all is as it was.
        """
        run = self._under_way.found()
        tables = self._tables()
        state = State(self.schema, tables)
        stored = state.received().where(F.col("status") == int(Status.NOT_PROCESSED))
        found = with_status(stored.select(*MESSAGE_SCHEMA.names, "received"), state.read(STATUSES))
        # A run that has just been committed may still be told of.
        if run is not None and run["run"] != noted(tables, RUN, None):
            found = with_being_processed(found, run["messages"], run["now"], run["last"])
        return found.drop("received")

    def log(self) -> DataFrame:
        """
        What became of each record of the processed messages.

        Returns:
            One row per record and mapping: `message_identifier`, `record` ("2", "2/order_lines/1"; null
            for the data of a whole message), `entity`, `outcome` (`Outcome`), `error_code` (`HubFault`),
            `error_description`, `guid`.  What a record in error holds is not looked at, and has no row.
        """
        return self._state().log().drop("raw", "number")

    def rejects(self) -> DataFrame:
        """
        Everything that could not be applied and never will as it is, with the reason.

        Returns:
            One row per message or record in error: the record that was received, all its columns as they
            came; of a message `message_identifier`, `source_system` and `source_entity`; `record`, the place
            in it ("2", "2/order_lines/1"; null where all of the message is meant); `entities`, the targets
            whose mappings found the error, which is one row for all of them; `record_text`, JSON text of
            what stands in that place, after its filters (null where the error was found by a look at all
            entities); `error_code`, `error_description`.

            So it is a table of records, which can be received again: by a hub whose schema can use them.
            This hub has received its messages already, and reads them all anew when its schema is another;
            a message whose `value` was corrected it takes under another `guid`, or one that was none
            before under any.
        """
        state = self._state()
        return rejected(state.received(), state.log())

    def history(self, entity: str) -> DataFrame:
        """The history of a target, as `merge` gives it, as it stands now."""
        return self._state().history(self._target(entity, export=False, function="history"))

    def changes(self, entity: str) -> DataFrame:
        """The changes of which a target's history is made, with their `guid`: for `why` and `bitemporal`."""
        return self._state().changes(self._target(entity, export=False, function="changes"))

    def exports(self, entity: str, *, after: int | None = None) -> DataFrame:
        """
        The records of an export target, each an insert or a delete.

        An export hands on what each record says, and merges nothing: priorities do not count, a record
        with some of the fields replaces one with others, and a refresh deletes nothing.

        Args:
            entity: The target.
            after: The greatest `position` that was handed on so far; None for all records.

        Returns:
            One row per record that is applied (see `cdckit.datahub.exports.export_rows`), with `position`,
            which counts the runs in which there was anything new to export.  It is the run since which the
            record is exported as it is, whenever it arrived: one that had to wait comes late, and one that
            another schema or link changed comes again, with its new document.  So whoever asks each time
            for what is *after* the greatest position that it has taken gets all there is, each at least
            once; a run is taken whole.  Rows have no order but by `version` and `arrival`, and a later
            position may hold an earlier version.  A record that is no longer applied is not taken back.

        Raises:
            InvalidArgument: *entity* is no export target, or *after* no position.
        """
        target = self._target(entity, export=True, function="exports")
        return self._exported(target, after, "exports")

    def export(self, entity: str, sink: Sink, *, after: int | None = None) -> None:
        """Hand the records of an export target to *sink*, those *after* a position (see `exports`)."""
        sink(self._exported(self._target(entity, export=True, function="export"), after, "export"))

    def query(self, question: Mapping[str, Any], *, now: datetime | None = None) -> DataFrame:
        """Answer a question about one target (see `query`)."""
        state = self._state()
        histories = {entity: state.history(entity) for entity in self.schema.families}
        return query(histories, question, now=datetime.now(UTC) if now is None else now)

    def _as_records(self, records: DataFrame | Iterable[Document], at: datetime | None) -> DataFrame:
        if not isinstance(records, DataFrame):
            stored = datetime.now(UTC) if at is None else at
            return records_of(self._spark, records, stored, argument="records", function="receive")
        if at is not None:
            raise InvalidArgument("receive", "at", "left out for a table: its rows have a timestamp", at)
        require_records(records, function="receive")
        return records

    def _exported(self, target: str, after: int | None, function: str) -> DataFrame:
        if isinstance(after, bool) or not isinstance(after, int | None):
            raise InvalidArgument(function, "after", "a position: a whole number, or None", after)
        rows = self._state().exported(target)
        return rows if after is None else rows.where(F.col("position") > after)

    def _tables(self) -> Snapshot:
        """The tables at the newest commit."""
        tables = self.store.snapshot()
        require_kind(tables, _KIND)
        return tables

    def _state(self) -> State:
        return State(self.schema, self._tables())

    def _run(
        self,
        function: str,
        chosen: str | list[str],
        now: datetime | None,
        work: Callable[[Run, int, int], bool],
    ) -> None:
        """
        Commit what a run of that time does, which is *work*; or, with another schema, to read all anew.

        It is given the run and the first and the last receipt that no run has read, and says whether it has
        done anything.
        """
        at = datetime.now(UTC) if now is None else now
        require_instant(at, "now", function=function)
        if self._tables().version is None:
            return
        with self._under_way.alone() as say:

            def written(tables: Transaction) -> bool:
                first, last = noted(tables, PROCESSED, 0) + 1, noted(tables, RECEIVED, 0)
                anew = noted(tables, SCHEMA, None) not in (None, self.schema.fingerprint)
                name, messages = uuid4().hex, EVERYTHING if anew else chosen
                known = last if anew or chosen == DUE else first - 1
                say({"run": name, "messages": messages, "now": microseconds(at), "last": known})
                run = Run(self._work, tables, self._retry, at)
                if anew:
                    run.forget_schema()
                    run.read_messages(run.stored())
                    run.settle(everything=True)
                elif not work(run, first, last):
                    return False
                note(tables, PROCESSED, known)
                note(tables, SCHEMA, self.schema.fingerprint)
                # Of two runs at once, which both note their names, the second is told of the first.
                note(tables, RUN, name)
                return True

            # What a run goes by, only runs change; messages that come meanwhile are for the next one.
            committed(self.store, _KIND, written, reads=[])

    def _target(self, entity: str, *, export: bool, function: str) -> str:
        known = [name for name, target in self.schema.targets.items() if target.export == export]
        if entity not in known:
            raise InvalidArgument(function, "entity", f"one of {', '.join(sorted(known))}", entity)
        return entity

    def _require_known(self, path: str, mapping: EntityMapping) -> None:
        if mapping.reader not in self._work.readers:
            needed = f"given for {path}.messageReader"
            raise InvalidArgument("Hub", f"readers[{mapping.reader!r}]", needed, sorted(self._work.readers))
        for each in mapping.filters:
            if each.name not in self._work.filters:
                needed = f"given for {path}.messageFilters"
                raise InvalidArgument("Hub", f"filters[{each.name!r}]", needed, sorted(self._work.filters))


def _batch_id(batch: str | int | None) -> str | None:
    if batch is None or (isinstance(batch, str) and batch):
        return batch
    if isinstance(batch, int) and not isinstance(batch, bool):
        return str(batch)
    raise InvalidArgument("receive", "batch", "a text that is not empty, a whole number or None", batch)


def _digest(records: DataFrame) -> int:
    """Of the keys and values of records, whatever their order, in 64 bits with a sign."""
    each = F.xxhash64("key", "value").cast("decimal(38,0)")
    found = int(records.select(F.coalesce(F.sum(each), F.lit(0))).first()[0])  # type: ignore[index]
    return (found + (1 << 63)) % (1 << 64) - (1 << 63)
