"""The hub: messages in, histories out, and what became of each message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.exports import Sink
from cdckit.datahub.mappings import EntityMapping
from cdckit.datahub.message_store import (
    DECODED_SCHEMA,
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
    message_log,
    record_log,
    rejected,
    with_being_processed,
    with_status,
)
from cdckit.datahub.questions import query
from cdckit.datahub.readers import READERS, Filter, Reader
from cdckit.datahub.runs import AMBIGUOUS, INBOX, RECEIVED, STATUSES, WAITING, Run, table
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statuses import Status
from cdckit.datahub.tables import Tables
from cdckit.errors import InvalidArgument
from cdckit.merging import history_schema
from cdckit.parts.arguments import require_instant
from cdckit.parts.instants import microseconds
from cdckit.records import require_records

_FINGERPRINT = "schema"
_IS_STORED = f"status = {int(Status.NOT_PROCESSED)}"


class Hub:
    """
    Messages in, histories out, and what became of each message.

    A hub is a folder of tables: the messages as they came, what their records say (typed, by target),
    the histories that this makes, and the status of each message.  Everything but the messages can be
    made anew from them (`rebuild`), and is then what it was.

    Args:
        spark: The session that does the work.
        schema: The source systems (see `schema` and `read_schema`).
        tables: The folder of the hub's tables; made if it is not there.  On a cluster driver and workers must
            all see it, under the same name.
        readers: Readers of your own, by the names that mappings call them.
        filters: Filters of your own, likewise.
        files: The folder to which readers of files are confined.
        retry: When messages that wait are tried again, and when they are given up.

    Raises:
        InvalidArgument: A mapping names a reader or a filter that is not given; or *schema* is none, or
            *retry*.

    Cost: a run reads the new messages once for each target that they can bring records of, writes what
    they say, looks at the guids and links of all statements, and merges the entities that are touched.
    The number of Spark jobs depends on the schema, not on messages, entities or keys; what waits adds
    rounds of a few jobs each, three at most and one (see `waiting_statements`).

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
        tables: str | Path,
        *,
        readers: Mapping[str, Reader] | None = None,
        filters: Mapping[str, Filter] | None = None,
        files: str | Path | None = None,
        retry: Retry | None = None,
    ) -> None:
        if not isinstance(schema, Schema):
            needed = "what datahub.schema or datahub.read_schema returns"
            raise InvalidArgument("Hub", "schema", needed, type(schema).__name__)
        if not isinstance(retry, Retry | None):
            raise InvalidArgument("Hub", "retry", "a datahub.Retry", retry)
        self.schema = schema
        self._spark, self._tables = spark, Tables(spark, tables)
        self._readers, self._filters = {**READERS, **(readers or {})}, dict(filters or {})
        self._writes = False
        self._files, self._retry = None if files is None else str(files), retry or Retry()
        for place, mapping in schema.all_mappings.items():
            self._require_known(str(place), mapping)

    def receive(self, records: DataFrame | Iterable[Document], *, at: datetime | None = None) -> DataFrame:
        """
        Store messages.

        Args:
            records: One row per record, `value` one JSON document (see `decode`); `files` makes such a
                table.  Or a list of documents, which become records as by `datahub.records`.
            at: When documents of a list are stored, an aware datetime; without it the clock's time.  Those
                that name no `guid` are told apart by it: passed on again at another time, they are others.

        Returns:
            One receipt per record: `topic`, `partition`, `offset`, `message_identifier`, `status` (0 not
            processed yet; 5 previously received, which changes nothing; 22 message invalid, kept as a
            reject), `error_code`, `error_description`.

        Raises:
            MissingColumns, WrongColumnType: *records* is not a table of records.
            InvalidArgument: *records* is neither a table nor a list of documents; *at* is naive, or is given
                with a table, whose rows say when they were stored.
        """
        records = self._as_records(records, at)
        with self._atomic():
            kept = self._received().where(F.col("status") != int(Status.PREVIOUSLY_RECEIVED))
            known = kept.select(identity().alias("identity"))
            part = self._tables.append(INBOX, with_statuses(decode(records), known))
        return part.select(
            "topic", "partition", "offset", "message_identifier", "status", "error_code", "error_description"
        )

    def process(self, *, now: datetime | None = None) -> None:
        """
        Process what was received since the last run, and the messages that wait and are due again.

        With another schema than in the run before, all messages are read anew, and all that wait are tried.
        Where nothing came and nothing is due, nothing is done.

        Args:
            now: The time of the run, aware; without it the clock's.  It decides which messages are due
                and which are given up, nothing else.
        """
        run = self._run(now, "process")
        with self._marked(DUE, now), self._atomic():
            new = self._messages_of(INBOX)
            if self._schema_changed():
                self._read_all_anew(run)
            elif not new.isEmpty() or run.has_due():
                run.read(new)
                run.settle()
            self._tables.move(INBOX, RECEIVED)

    def reprocess(self, messages: str | Iterable[str], *, now: datetime | None = None) -> None:
        """
        Read messages again, by the schema as it is now; with the same schema no table of theirs changes.

        Messages that were given up are given a new chance; attempts are counted anew.

        Args:
            messages: The identifiers.
            now: The time of the run.

        Raises:
            InvalidArgument: One of them is not in the store (status 21, message not found).
        """
        run = self._run(now, "reprocess")
        self._see_others()
        listed = [messages] if isinstance(messages, str) else sorted(set(messages))
        chosen = self._spark.createDataFrame([(each,) for each in listed], "message_identifier string")
        stored = self._messages_of(RECEIVED)
        unknown = chosen.join(stored, "message_identifier", "left_anti").first()
        if unknown is not None:
            raise InvalidArgument(
                "reprocess", "messages", "identifiers of processed messages (status 21)", unknown[0]
            )
        with self._marked(listed, now), self._atomic():
            if self._schema_changed():
                self._read_all_anew(run)
                return
            run.forget(chosen)
            run.read(stored.join(F.broadcast(chosen), "message_identifier", "left_semi"))
            run.settle(everything=True)

    def rebuild(self, *, now: datetime | None = None) -> None:
        """
        Make everything anew from the messages, by the schema as it is now.

        Messages that were given up stay given up, and those that are not due wait on: with the same
        schema, tables and statuses are what they were.
        """
        run = self._run(now, "rebuild")
        with self._marked(EVERYTHING, now), self._atomic():
            if self._schema_changed():
                self._read_all_anew(run)
                return
            run.forget(None)
            run.read(self._messages_of(RECEIVED), attempt=False)
            run.settle(everything=True)

    def messages(self) -> DataFrame:
        """
        One row per message of the store (`MESSAGE_SCHEMA`) with `status`, `error_message`, `attempts` and
        `next_attempt_timestamp`.

        While a run is under way, be it of another hub on the same folder in this program or another one, the
        messages that it has chosen are BEING_PROCESSED, and everything else is as it was before the run.
        """
        run = self._tables.under_way()
        self._see_others()
        stored = self._received().where(F.col("status") == int(Status.NOT_PROCESSED))
        found = with_status(stored.select(*MESSAGE_SCHEMA.names), self._tables.read(STATUSES))
        return found if run is None else with_being_processed(found, run["messages"], run["now"])

    def log(self) -> DataFrame:
        """
        What became of each record of the processed messages.

        Returns:
            One row per record and mapping: `message_identifier`, `record` ("2", "2/order_lines/1"; null
            for the data of a whole message), `entity`, `outcome` (`Outcome`), `error_code` (`HubFault`),
            `error_description`, `guid`.  What a record in error holds is not looked at, and has no row.
        """
        return self._log().drop("raw", "number")

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
        return rejected(self._received(), self._log())

    def history(self, entity: str) -> DataFrame:
        """
        The history of a target, as `merge` gives it, as it stands now.

        The table can be read until the second run from now: ask for it again after a run.
        """
        target = self._target(entity, export=False, function="history")
        found = self._tables.read(table("history", entity))
        return self._empty(history_schema(self.schema.targets[target].data)) if found is None else found

    def changes(self, entity: str) -> DataFrame:
        """The changes of which a target's history is made, with their `guid`: for `why` and `bitemporal`."""
        return self._run(None, "changes").changes(self._target(entity, export=False, function="changes"))

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
        histories = {entity: self.history(entity) for entity in self.schema.families}
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
        rows = self._run(None, function).exported(target)
        return rows if after is None else rows.where(F.col("position") > after)

    def _run(self, now: datetime | None, function: str) -> Run:
        at = datetime.now(UTC) if now is None else now
        require_instant(at, "now", function=function)
        return Run(self.schema, self._tables, self._readers, self._filters, self._files, self._retry, at)

    def _schema_changed(self) -> bool:
        changed = self._schema_is_another()
        self._tables.note(_FINGERPRINT, [self.schema.fingerprint])
        return changed

    def _schema_is_another(self) -> bool:
        return self._tables.noted(_FINGERPRINT) not in ([], [self.schema.fingerprint])

    @contextmanager
    def _marked(self, chosen: str | list[str], now: datetime | None) -> Iterator[None]:
        """Meanwhile any reader sees that the *chosen* messages are being processed."""
        messages = EVERYTHING if self._schema_is_another() else chosen
        with self._tables.marked(
            {"messages": messages, "now": microseconds(datetime.now(UTC) if now is None else now)}
        ):
            yield

    def _read_all_anew(self, run: Run) -> None:
        """What was read by another schema says nothing by this one, nor who had to wait by it."""
        run.forget(None)
        for name in (*self._tables.names("history"), WAITING, AMBIGUOUS):
            self._tables.drop(name)
        run.read(self._received().where(_IS_STORED).select(*MESSAGE_SCHEMA.names))
        run.settle(everything=True)
        self._tables.move(INBOX, RECEIVED)

    def _received(self) -> DataFrame:
        found = [each for each in (self._tables.read(RECEIVED), self._tables.read(INBOX)) if each is not None]
        return reduce(DataFrame.unionByName, found) if found else self._empty(_received_schema())

    def _messages_of(self, name: str) -> DataFrame:
        found = self._tables.read(name)
        rows = self._empty(_received_schema()) if found is None else found
        return rows.where(F.col("status") == int(Status.NOT_PROCESSED)).select(*MESSAGE_SCHEMA.names)

    def _log(self) -> DataFrame:
        run = self._run(None, "log")
        waiting = run.waiting()
        parts = [record_log(run.resolved(entity), waiting, entity) for entity in self.schema.targets]
        known = self._tables.read(STATUSES)
        if known is not None:
            parts.append(message_log(known, parts[0].columns))
        return reduce(DataFrame.unionByName, parts)

    def _see_others(self) -> None:
        """See what other hubs on the folder have committed, unless this one is writing."""
        if not self._writes:
            self._tables.refresh()

    def _target(self, entity: str, *, export: bool, function: str) -> str:
        known = [name for name, target in self.schema.targets.items() if target.export == export]
        if entity not in known:
            raise InvalidArgument(function, "entity", f"one of {', '.join(sorted(known))}", entity)
        return entity

    def _require_known(self, path: str, mapping: EntityMapping) -> None:
        if mapping.reader not in self._readers:
            needed = f"given for {path}.messageReader"
            raise InvalidArgument("Hub", f"readers[{mapping.reader!r}]", needed, sorted(self._readers))
        for each in mapping.filters:
            if each.name not in self._filters:
                needed = f"given for {path}.messageFilters"
                raise InvalidArgument("Hub", f"filters[{each.name!r}]", needed, sorted(self._filters))

    def _empty(self, columns: T.StructType) -> DataFrame:
        return self._spark.createDataFrame([], columns)

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        """What happens inside goes on from what others did, and is seen when it has ended well, or never."""
        self._see_others()
        self._writes = True
        try:
            yield
            self._tables.commit()
        except BaseException:
            self._tables.rollback()
            raise
        finally:
            self._writes = False


def _received_schema() -> T.StructType:
    return T.StructType([*DECODED_SCHEMA.fields, T.StructField("status", T.IntegerType())])
