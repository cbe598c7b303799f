"""Answers of a hub: messages and records with what became of them, histories; and the query object."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.conversions import converted
from cdckit.datahub.mappings import DECIMAL, SPARK_TYPES, FieldType
from cdckit.datahub.message_store import MESSAGE_SCHEMA
from cdckit.datahub.outcomes import Sink, rejected, waiting_records
from cdckit.datahub.readers import Filter, Reader, Work
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.state import HUB, RUN, SCHEMA, State, UnderWay
from cdckit.datahub.statuses import Retry, Status, with_being_processed, with_status
from cdckit.errors import CdcError, InvalidArgument
from cdckit.history import DELETED, VALID_FROM, VALID_TO, business_fields
from cdckit.kernel.changes import GUID, KEYS
from cdckit.parts.arguments import quoted, require_columns, require_fields, require_instant
from cdckit.parts.instants import instant
from cdckit.query.as_of import as_of
from cdckit.store import OtherKind, Snapshot, Store
from cdckit.store.locations import locate
from cdckit.store.store import noted, require_kind

_PROPERTIES = ("entity", "timestamp", "where", "fields", "deletes")


def query(histories: Mapping[str, DataFrame], question: Mapping[str, Any], *, now: datetime) -> DataFrame:
    """
    Answer a question about one entity from its history.

    Args:
        histories: By entity.
        question: `entity` (needed); `timestamp` (ISO 8601: what was in force then; *now* without it);
            `where`, field: value, all of which must hold (a list means any of them, null that there is
            no value); `fields`, a list of the fields to return, all of them without it; `deletes`, true
            to return deleted rows too.
        now: The time that is asked about where the question says none; aware.

    Returns:
        One row per entity, with the fields asked for: business fields and the standard columns of a
        history alike.

    Raises:
        InvalidArgument: The question has another property, asks about what is not there, or is not of
            the needed form.

    Cost: one filter over the history, no shuffle.

    Source:
        Data hub, query object; facts on its properties.

    >>> from datetime import datetime, timezone
    >>> now = datetime(2024, 1, 2, tzinfo=timezone.utc)
    >>> question = {"entity": "product", "where": {"number": [1, 2]}, "fields": ["number", "name"]}
    >>> query({"product": history}, question, now=now).show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    """
    _require(isinstance(question, Mapping), "question", f"an object of {', '.join(_PROPERTIES)}", question)
    unknown = sorted(set(question) - set(_PROPERTIES), key=str)
    _require(not unknown, "question", f"an object of {', '.join(_PROPERTIES)}", unknown)
    entity, deletes = question.get("entity"), question.get("deletes", False)
    known = isinstance(entity, str) and entity in histories
    _require(known, "question['entity']", f"one of {', '.join(sorted(histories))}", entity)
    history = histories[str(entity)]
    require_columns(history, [VALID_FROM, VALID_TO, DELETED], function="query")
    _require(isinstance(deletes, bool), "question['deletes']", "true or false", deletes)
    rows = as_of(history, _at(question.get("timestamp"), now), deletes=deletes)
    for condition in _conditions(history, question.get("where")):
        rows = rows.where(condition)
    return rows.select(*(quoted(name) for name in _fields(history, question.get("fields"))))


def _require(sound: bool, argument: str, needed: str, found: object) -> None:
    if not sound:
        raise InvalidArgument("query", argument, needed, found)


def _at(timestamp: Any, now: datetime) -> datetime:
    argument = "now" if timestamp is None else "question['timestamp']"
    said = now if timestamp is None else timestamp
    found = said if timestamp is None or isinstance(said, datetime) else instant(said)
    if found is None:
        raise InvalidArgument("query", argument, "an instant, YYYY-MM-DDTHH:MM:SS", said)
    require_instant(found, argument, function="query")
    return found


def _conditions(history: DataFrame, where: Any) -> list[Column]:
    if where is None:
        return []
    _require(isinstance(where, Mapping), "question['where']", "an object of field: value", where)
    known = {each.name: each.dataType for each in (history.schema["guid"], *business_fields(history))}
    found = []
    for name, value in where.items():
        _require(name in known, "question['where']", f"of fields among {', '.join(known)}", name)
        column, values = F.col(quoted(name)), value if isinstance(value, list | tuple) else [value]
        either = (column.eqNullSafe(_literal(name, known[name], each)) for each in values)
        found.append(reduce(Column.__or__, either, F.lit(False)))
    return found


def _literal(name: str, kind: T.DataType, value: Any) -> Column:
    """The value as the field's type converts it in a message."""
    argument = f"question['where'][{name!r}]"
    needed = f"a value of the type {kind.simpleString()}"
    if isinstance(value, int) and abs(value) >= 10**400:
        raise InvalidArgument("query", argument, needed, "a number of hundreds of digits")
    column = converted([value], _field_type(kind))
    if column.errors:
        raise InvalidArgument("query", argument, needed, value)
    found = column.values[0].as_py()
    if isinstance(found, datetime):
        return require_instant(found, argument, function="query")
    return F.lit(found).cast(kind)


def _field_type(kind: T.DataType) -> FieldType:
    if isinstance(kind, T.DecimalType):
        return FieldType(DECIMAL, None, kind.precision, kind.scale)
    return FieldType(next(name for name, each in SPARK_TYPES.items() if each == kind))


def _fields(history: DataFrame, asked: Any) -> list[str]:
    if asked is None:
        return history.columns
    if not isinstance(asked, list | tuple):
        raise InvalidArgument("query", "question['fields']", "a list of fields", asked)
    return require_fields(asked, history.columns, "question['fields']", function="query")


class ReadByAnotherSchema(CdcError, RuntimeError):
    """A question about what messages say, and they were read by another schema than the hub's."""

    def __init__(self, location: str) -> None:
        self.location = location
        super().__init__(location)

    def __str__(self) -> str:
        return (
            f"The messages in {self.location} were read by another schema than this hub has. `process()` "
            "reads them anew by this one; a hub with the schema of the last run answers as that run left it."
        )


class Answers:
    """
    The questions to a hub.

    What depends on the schema is a `ReadByAnotherSchema` until a run has gone by it.  None of them writes.
    Each is answered from the newest commit, and the answer stays what it was while others write, until
    `store.vacuum()` deletes what it needs.

    Attributes:
        schema: The schema.
        store: The store: `commits`, `compact`, `vacuum` and `check` are its own.
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
        self._work = Work.by(schema, readers, filters, files, function="Hub")
        if not isinstance(retry, Retry | None):
            raise InvalidArgument("Hub", "retry", "a datahub.Retry", retry)
        self.schema, self._spark, self._retry = schema, spark, retry or Retry()
        self.store = Store(spark, location, storage_options)
        place = locate(location, storage_options, None)
        folder = Path(place.root) if place.local else None
        if folder is not None and (folder / "current.json").exists():
            raise OtherKind(place.root, f"a {HUB}", "the tables of a hub of an earlier form (current.json)")
        self._under_way = UnderWay(folder)
        self._tables()

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
        found = with_status(stored.select(*MESSAGE_SCHEMA.names, "received"), state.statuses())
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

    def waiting(self) -> DataFrame:
        """
        The records that cannot be applied yet, since a link of theirs leads to what is not there.

        Returns:
            One row per record and mapping: `message_identifier`, `record` ("2", "2/order_lines/1"), `entity`
            (the target), `missing` (for what it waits, by its key: "customer c = c9"), `since_timestamp`
            (when its message was stored), `attempts`, `next_attempt_timestamp` (null once it was given up)
            and `given_up_timestamp` (when it is given up, or was: by the `retry` of this hub).
        """
        state = self._state()
        return waiting_records(state.unapplied(), state.statuses(), self._retry)

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

    def contracts(self) -> dict[str, object]:
        """
        The tables that have a suite of sentences, with its name, targets by theirs: for `check_all`.

        All targets are of one commit; messages and rejects, which no suite compares with them, of the newest.
        """
        state = self._state()
        targets = {
            entity: {
                "changes": (_log(state, entity), "changes"),
                "history": (state.history(entity), "history"),
                "ledger": (state.history(entity), "ledger"),
            }
            for entity in state.stated
        }
        return {
            "messages": (self.messages(), "messages"),
            "rejects": (self.rejects(), "rejects"),
            "targets": targets,
        }

    def history(self, entity: str) -> DataFrame:
        """The history of a target, as `merge` gives it, as it stands now."""
        return self._state().history(self._target(entity, export=False, function="history"))

    def changes(self, entity: str) -> DataFrame:
        """The changes of which a target's history is made, with their `guid`: for `why` and `bitemporal`."""
        return _log(self._state(), self._target(entity, export=False, function="changes"))

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
        return self._exported(entity, after, "exports")

    def export(self, entity: str, sink: Sink, *, after: int | None = None) -> None:
        """Hand the records of an export target to *sink*, those *after* a position (see `exports`)."""
        sink(self._exported(entity, after, "export"))

    def query(self, question: Mapping[str, Any], *, now: datetime | None = None) -> DataFrame:
        """Answer a question about one target (see `query`)."""
        state = self._state()
        histories = {entity: state.history(entity) for entity in self.schema.families}
        return query(histories, question, now=datetime.now(UTC) if now is None else now)

    def _exported(self, entity: str, after: int | None, function: str) -> DataFrame:
        target = self._target(entity, export=True, function=function)
        if isinstance(after, bool) or not isinstance(after, int | None):
            raise InvalidArgument(function, "after", "a position: a whole number, or None", after)
        rows = self._state().exported(target)
        return rows if after is None else rows.where(F.col("position") > after)

    def _tables(self) -> Snapshot:
        """The tables at the newest commit."""
        tables = self.store.snapshot()
        require_kind(tables, HUB)
        return tables

    def _state(self) -> State:
        """What is known of the messages that were read, if they were read by this schema."""
        tables = self._tables()
        if noted(tables, SCHEMA, None) not in (None, self.schema.fingerprint):
            raise ReadByAnotherSchema(tables.location.root)
        return State(self.schema, tables)

    def _target(self, entity: str, *, export: bool, function: str) -> str:
        known = [name for name, target in self.schema.targets.items() if target.export == export]
        if entity not in known:
            raise InvalidArgument(function, "entity", f"one of {', '.join(sorted(known))}", entity)
        return entity


def _log(state: State, entity: str) -> DataFrame:
    """The changes of a target, which say in their metadata what its keys are."""
    keys = {KEYS: [*state.schema.targets[entity].keys]}
    return state.changes(entity).withColumn(GUID, F.col(GUID).alias(GUID, metadata=keys))
