"""The hub: messages in, histories kept up, and what became of each message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.backoff import Backoff
from cdckit.datahub.hub_erasure import (
    NOT_ERASED,
    asked_entities,
    drop_erased_records,
    erasable_kinds,
    forget_records,
)
from cdckit.datahub.messages import (
    DUE,
    EVERYTHING,
    IS_STORED,
    MESSAGE_SCHEMA,
    Status,
    decode,
    given_up,
    with_being_processed,
    with_status,
)
from cdckit.datahub.outcomes import Exporter, find_rejects, waiting_records
from cdckit.datahub.questions import SchemaMismatch, TargetView, query
from cdckit.datahub.readers import Filter, Reader, ReaderSettings
from cdckit.datahub.runs import Run, message_rows
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.state import (
    MESSAGES,
    PROCESSED,
    RECEIVED,
    RUN,
    SCHEMA,
    STATUSES,
    UNAPPLIED,
    RunFile,
    State,
    append_records,
)
from cdckit.datahub.waiting import UNAPPLIED_COLUMNS
from cdckit.errors import InvalidArgument
from cdckit.ledger.erasure.erasure_requests import Request
from cdckit.ledger.erasure.forgotten_entities import ForgottenEntities
from cdckit.ledger.kind import Kind
from cdckit.model.documents import Document
from cdckit.parts.argument_forms import instance_of, takes
from cdckit.parts.arguments import microseconds, require_batch_id, require_instant
from cdckit.parts.job_descriptions import describe_jobs
from cdckit.shell.shell import Ledgers, ReceiveResult, Shell, WorkResult
from cdckit.store import OtherKind, Snapshot, Transaction
from cdckit.store.locations import locate
from cdckit.store.store import read_note, read_rows, write_note

Say = Callable[[Mapping[str, Any]], None]
"""Tells other programs what is under way."""
Attempt = Callable[[Transaction, datetime, Say], WorkResult | None]
"""What a run does at a time within a transaction."""


class Hub(Shell):
    """
    Messages in, histories out, and what became of each message.

    A hub is a store of Delta tables (`cdckit.store`): the messages as they came, what their records say
    (typed, by target), the histories that this makes, and the status of each message.  Everything but the
    messages can be made anew from them (`rebuild`), and is then what it was.

    `receive` stores messages, and `run` applies what is due: those that came, and those that wait and are due
    again.  A message that comes during a run is for the next one.  Several programs may use one place: where
    two do the same, the later one does it again on what the other has committed; in a local folder runs wait
    for each other.

    What waits are the records whose links lead to what is not there: `waiting` shows each, by mapping, with
    `message_identifier`, `record` ("2", "2/order_lines/1"), `entity` (the target), `attempts`,
    `next_attempt_timestamp` and `given_up_timestamp`, when it is given up by the *backoff* of this hub, or by
    `expire`.  Given up, it is a reject (LINK_MISSING), until `reprocess` gives its message a new chance.
    Where records of several messages wait for each other, all of these are tried as soon as one is.

    Rejects are records that can be received again, by a hub whose schema can use them: this one has received
    its messages already, and reads them all anew when its schema is another.  `rejects` names with each
    `message_identifier`, `source_system` and `source_entity`; `record`, the place in it, null where all of
    the message is meant; `entities`, the targets whose mappings found the error; and `record_text`, JSON text
    of what stands in that place after its filters, null where the error was found by a look at all entities.

    `erase` forgets entities of a target: their records go out of the messages, and what is sent of them later
    is refused by the run that reads it (`ledgers()[target].refused()`).

    What depends on the schema is a `SchemaMismatch` until a run has gone by it.

    Its verbs and most of its questions are those of every `Shell`.

    Args:
        spark, location, storage_options: As for `Shell`.
        schema: The source systems (see `schema` and `read_schema`).
        readers: Readers of your own, by the names that mappings call them.
        filters: Filters of your own, likewise.
        files: The folder to which readers of files are confined.  A message holds only the name of such a
            file, and `rebuild`, `reprocess` and another schema read the file again: do not change it.
        backoff: When messages that wait are tried again, and how long after the first attempt they are given
            up, however old they are: a topic may be read from its beginning.

    Raises:
        InvalidArgument: A mapping names a reader or a filter that is not given; or *schema* is none, or
            *backoff*.
        OtherKind, NoFileSystem, DamagedTable: As for `Shell`.

    Cost: a run reads the new messages once, writes what they say of each target, looks at the guids and
    links of all statements, and merges the entities that are touched; in a hub with at most 10,000
    statements, this program merges all entities of the targets that the messages speak of.  The number
    of Spark jobs depends on the schema, not on messages, entities or keys.  If a link leads to what is
    not there, what must wait is found in one task, of more than a million statements after up to three
    rounds.

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
    ...     _ = hub.receive([message], received_at=at)
    ...     hub.run(now=at)
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

    kind = "data hub (form 1)"

    @takes(backoff=instance_of(Backoff, "a datahub.Backoff").or_none())
    def __init__(
        self,
        spark: SparkSession,
        schema: Schema,
        location: str | Path,
        *,
        readers: Mapping[str, Reader] | None = None,
        filters: Mapping[str, Filter] | None = None,
        files: str | Path | None = None,
        backoff: Backoff | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self._work = ReaderSettings.create(schema, readers, filters, files)
        self.schema, self._retry = schema, backoff or Backoff()
        self.wait = self._retry.give_up_after
        store_location = locate(location, storage_options, None)
        folder = Path(store_location.root) if store_location.local else None
        if folder is not None and (folder / "current.json").exists():
            raise OtherKind(
                store_location.root, f"a {self.kind}", "the tables of a hub of an earlier form (current.json)"
            )
        self._under_way = RunFile(folder)
        super().__init__(spark, location, storage_options)

    # What the shell asks for -------------------------------------------------------------------------------

    def _take(self, tables: Transaction, records: DataFrame, batch: str | None = None) -> WorkResult:
        # What is compared with must stand still: of one message only one may be the first.
        return WorkResult(append_records(tables, self.schema, decode(records), batch), [MESSAGES])

    def _expire(self, tables: Transaction, now: datetime, wait: timedelta) -> int:
        if not tables.has(STATUSES):
            return 0
        rows, late = given_up(tables.read(STATUSES), now, wait)
        if late:
            tables.replace(STATUSES, rows)
        return late

    def _rebuild(
        self, tables: Transaction, now: datetime | None = None, say: Say = lambda run: None
    ) -> WorkResult | None:
        return self._apply(tables, datetime.now(UTC) if now is None else now, say, chosen=EVERYTHING)

    def _ledgers(self, tables: Snapshot) -> Ledgers:
        state = self._state_of(tables)
        return Ledgers({entity: TargetView(state, tables, entity) for entity in state.stated_targets})

    def _erasable(self, tables: Snapshot) -> Mapping[str, Kind]:
        return erasable_kinds(self.schema)

    def _key_columns(self, name: str) -> T.StructType | None:
        kind = erasable_kinds(self.schema).get(name)
        keys = () if kind is None else kind.keys
        return T.StructType([self.schema.targets[name].data[key] for key in keys])

    def _asked_entities(self, tables: Transaction, kind: Kind, request: Request) -> DataFrame:
        return asked_entities(self._state_of(tables.base), tables, kind, request)

    def _forget_entities(
        self, tables: Transaction, kind: Kind, request: Request, entities: DataFrame
    ) -> ForgottenEntities:
        run = Run(self._work, tables, self._retry, microseconds(request.at, "at"))
        forgotten = forget_records(run, tables, kind, entities)
        if forgotten.unknown or not forgotten.found:
            return forgotten
        write_note(tables, RUN, uuid4().hex)
        return forgotten._replace(not_erased=(*NOT_ERASED, *self._unread(tables)))

    def _lock(self) -> AbstractContextManager[object]:
        return self._under_way.lock()

    def _waiting(self, tables: Snapshot) -> DataFrame:
        state, unapplied = self._state_of(tables), read_rows(tables, UNAPPLIED, UNAPPLIED_COLUMNS)
        return waiting_records(unapplied, state.statuses(), state.received_records(), self._retry)

    def _rejects(self, tables: Snapshot) -> DataFrame:
        state = self._state_of(tables)
        return find_rejects(state.received_records(), state.log(), state.statuses())

    def _contracts(self, tables: Snapshot) -> dict[str, object]:
        return {"messages": (self.messages(), "messages")}

    # Verbs ------------------------------------------------------------------------------------------------

    def receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None = None,
        *,
        received_at: datetime | None = None,
    ) -> ReceiveResult:
        """
        Store messages; `run` is called when you like, and `receipts` says how each was received.

        Args:
            records: As for `Shell.receive`, `value` one JSON document (see `decode`); `files` makes such a
                table.  Documents become records as by `datahub.records`.
            batch: As for `Shell.receive`.
            received_at: Likewise.  Documents that name no `guid` are told apart by it: passed on again at
                another time, they are others.

        Raises:
            As `Shell.receive`.

        Cost: the identifiers of all messages that were ever received are read.
        """
        named = partial(self._take, batch=require_batch_id(batch))
        return self._receive(records, batch, received_at, named)

    @describe_jobs("hub: apply what is due")
    def run(self, now: datetime | None = None) -> None:
        """
        Apply what was received since the last run, and the messages that wait and are due again.

        With another schema than in the run before, all messages are read anew, and all that wait are tried.
        Where nothing came and nothing is due, nothing is done.

        Args:
            now: The time of the run, aware; without it the clock's.  It decides which messages are due
                and which are given up, nothing else.

        Raises:
            ConflictingCommit: Others have processed messages each time that this was tried.

        Cost: where every link leads to a whole key, what came and what is due is looked at; what their links
        lead to is sought among the guids of the histories, and their entities among all statements: a pass
        over each.  Where keys or links must be looked up, all statements are looked at again.  Where links
        can lead in a circle and something comes to wait, another pass over the statements of their targets.
        """
        self._run_alone(now, partial(self._apply, chosen=DUE))

    @describe_jobs("hub: try messages again")
    def reprocess(self, messages: str | Iterable[str], *, now: datetime | None = None) -> None:
        """
        Read messages again, by the schema as it is now; with the same schema no table of theirs changes.

        Messages that were given up are given a new chance; attempts are counted anew.

        Args:
            messages: The identifiers.
            now: The time of the run.

        Raises:
            InvalidArgument: One of them is not in the store (status 21, message not found).
            ConflictingCommit: As for `run`.
        """
        listed = [messages] if isinstance(messages, str) else sorted(set(messages))
        tables = self._snapshot()
        stored = State(self.schema, tables).stored_messages(last=read_note(tables, PROCESSED, 0))
        unknown = message_rows(self._spark, listed).join(stored, "message_identifier", "left_anti").first()
        if unknown is not None:
            needed = f"identifiers of processed messages (status {int(Status.MESSAGE_NOT_FOUND)})"
            raise InvalidArgument(None, "messages", needed, unknown[0])
        self._run_alone(now, partial(self._apply, chosen=listed))

    @describe_jobs("hub: make all tables anew")
    def rebuild(self, *, now: datetime | None = None) -> None:
        """
        Make everything anew from the messages, by the schema as it is now.

        Messages that were given up stay given up, and those that are not due wait on: with the same
        schema, readers and filters, tables and statuses are what they were.

        Raises:
            ConflictingCommit: As for `run`.
        """
        self._run_alone(now, self._rebuild)

    def _run_alone(self, now: datetime | None, work: Attempt) -> None:
        """Commit what a run at that time does, when those of others have ended."""
        at = datetime.now(UTC) if now is None else now
        require_instant(at, "now")
        if self._snapshot().version is not None:
            with self._under_way.lock() as say:
                self._commit(lambda tables: work(tables, at, say))

    def _apply(
        self, tables: Transaction, now: datetime, say: Say, *, chosen: str | list[str]
    ) -> WorkResult | None:
        """Do what a run of that time does with the *chosen* messages; by another schema, with all."""
        instant = microseconds(now, "now")
        first, last = read_note(tables, PROCESSED, 0) + 1, read_note(tables, RECEIVED, 0)
        anew = read_note(tables, SCHEMA, None) not in (None, self.schema.fingerprint)
        is_repeat = anew or chosen != DUE
        name, messages = uuid4().hex, EVERYTHING if anew else chosen
        last_known = last if anew or chosen == DUE else first - 1
        say({"run": name, "messages": messages, "now": instant, "last": last_known})
        run = Run(self._work, tables, self._retry, instant)
        stored = run.stored_messages(None if is_repeat else first, last_known)
        if anew:
            run.forget_schema()
        elif chosen == EVERYTHING:
            run.forget(None)
        if isinstance(chosen, list):
            listed = message_rows(self._spark, chosen)
            run.forget(listed)
            run.forget_statuses(listed)
            if not anew:
                stored = stored.join(F.broadcast(listed), "message_identifier", "left_semi")
        has_messages = run.read_messages(stored, attempt=anew or chosen != EVERYTHING)
        if not (is_repeat or has_messages or run.has_due()):
            return None
        if has_messages:
            drop_erased_records(run, tables, stored)
        run.settle(merge_all=is_repeat)
        write_note(tables, PROCESSED, last_known)
        write_note(tables, SCHEMA, self.schema.fingerprint)
        # Of two runs at once, which both note their names, the second is told of the first.
        write_note(tables, RUN, name)
        # What a run goes by, only runs change; messages that come meanwhile are for the next one.
        return WorkResult(reads=())

    # Questions --------------------------------------------------------------------------------------------

    def receipts(self, version: int | None = None, *, batch: str | int | None = None) -> DataFrame:
        """
        Tell how records were received: all of them, those of one commit, or those of one batch.

        Args:
            version: The commit by which they are seen, as `receive` returns it.
            batch: The id of the batch, whenever it was received.

        Returns:
            One row per record: `topic`, `partition`, `offset`, `message_identifier`, `status` (0 not
            processed yet; 5 previously received, which changes nothing; 22 message invalid, kept as a
            reject), `error_code`, `error_description`.
        """
        number = None
        if version is not None:
            number = read_note(self._snapshot(version), RECEIVED, 0)
        name = require_batch_id(batch)
        return State(self.schema, self._snapshot()).receipts(number, name)

    def messages(self) -> DataFrame:
        """
        One row per message of the store (`MESSAGE_SCHEMA`) with `status`, `error_message`, `attempts` and
        `next_attempt_timestamp`.

        While a run is under way in a local folder, be it of another hub in this program or another one, the
        messages that it has chosen are BEING_PROCESSED, and everything else is as it was before the run.
        Elsewhere nobody is told of runs, and all is as it was.
        """
        run = self._under_way.read()
        tables = self._snapshot()
        state = State(self.schema, tables)
        stored = state.received_records().where(IS_STORED)
        messages = with_status(stored.select(*MESSAGE_SCHEMA.names, "received"), state.statuses())
        # A run that has just been committed may still be told of.
        if run is not None and run["run"] != read_note(tables, RUN, None):
            messages = with_being_processed(messages, run["messages"], run["now"], run["last"])
        return messages.drop("received")

    def log(self) -> DataFrame:
        """
        Tell what became of each record of the processed messages.

        Returns:
            One row per record and mapping: `message_identifier`, `record` ("2", "2/order_lines/1"; null
            for the data of a whole message), `entity`, `outcome` (`Outcome`), `error_code` (`HubFault`),
            `error_description`, `guid`.  What a record in error holds is not looked at, and has no row.
        """
        return self._state().log().drop("raw", "number")

    def history(self, entity: str) -> DataFrame:
        """The history of a target, as `merge` gives it, as it stands now."""
        return self._view(entity).history()

    def changes(self, entity: str) -> DataFrame:
        """The changes of which a target's history is made, with their `guid`: for `why` and `bitemporal`."""
        return self._view(entity).changes()

    def _view(self, entity: str) -> TargetView:
        tables, target = self._snapshot(), self._target(entity, export=False)
        return TargetView(self._state_of(tables), tables, target)

    def exports(self, entity: str, *, after: int | None = None) -> DataFrame:
        """
        The records of an export target, each an insert or a delete.

        An export hands on what each record says, and merges nothing: priorities do not count, a record
        with some of the fields replaces one with others, and a refresh deletes nothing.

        Args:
            entity: The target.
            after: The greatest `position` that was handed on so far; None for all records.

        Returns:
            One row per record that is applied (see `cdckit.datahub.outcomes.export_rows`), with `position`,
            which counts the runs in which there was anything new to export.  It is the run since which the
            record is exported as it is, whenever it arrived: one that had to wait comes late, and one that
            another schema or link changed comes again, with its new document.  So whoever asks each time
            for what is *after* the greatest position that it has taken gets all there is, each at least
            once; a run is taken whole.  Rows have no order but by `version` and `arrival`, and a later
            position may hold an earlier version.  A record that is no longer applied is not taken back.

        Raises:
            InvalidArgument: *entity* is no export target, or *after* no position.
        """
        return self._exported(entity, after)

    def export(self, entity: str, exporter: Exporter, *, after: int | None = None) -> None:
        """Hand the records of an export target to *exporter*, those *after* a position (see `exports`)."""
        exporter(self._exported(entity, after))

    def query(self, question: Mapping[str, Any], *, now: datetime | None = None) -> DataFrame:
        """Answer a question about one target (see `query`)."""
        state = self._state()
        histories = {entity: state.history(entity) for entity in self.schema.families}
        return query(histories, question, now=datetime.now(UTC) if now is None else now)

    def _exported(self, entity: str, after: int | None) -> DataFrame:
        target = self._target(entity, export=True)
        if isinstance(after, bool) or not isinstance(after, int | None):
            raise InvalidArgument(None, "after", "a position: a whole number, or None", after)
        rows = self._state().read_exports(target)
        return rows if after is None else rows.where(F.col("position") > after)

    def _state(self) -> State:
        return self._state_of(self._snapshot())

    def _state_of(self, tables: Snapshot) -> State:
        """Read what is known of the messages that were read, if they were read by this schema."""
        if read_note(tables, SCHEMA, None) not in (None, self.schema.fingerprint):
            raise SchemaMismatch(tables.location.root)
        return State(self.schema, tables)

    def _target(self, entity: str, *, export: bool) -> str:
        targets = [name for name, target in self.schema.targets.items() if target.export == export]
        if entity not in targets:
            raise InvalidArgument(None, "entity", f"one of {', '.join(sorted(targets))}", entity)
        return entity
