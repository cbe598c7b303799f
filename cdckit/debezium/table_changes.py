"""From events to the rows and the changes of one table: what the door hands over to the spine."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.connect_values import (
    UNTYPED,
    encoding,
    field_names,
    is_schema,
    known_encoding,
    type_name,
)
from cdckit.debezium.decoding import EVENTS, by_batch, read_by
from cdckit.debezium.event_tables import Events, of_records, read_table, report_types
from cdckit.debezium.events import EVENT_TYPES, READ_COLUMNS
from cdckit.debezium.row_changes import change_batch, change_types
from cdckit.debezium.rows import TablePlan, row_batch, row_types
from cdckit.debezium.snapshots import ended_snapshots, find_absences
from cdckit.debezium.unsent_values import PLACEHOLDER
from cdckit.errors import InvalidArgument
from cdckit.model.changes import UNTYPED as UNTYPED_FIELDS
from cdckit.model.faults import ERROR_CODE
from cdckit.model.records import RECORD_COLUMNS, decoded_columns
from cdckit.parts.argument_forms import NAME, one_of, takes
from cdckit.parts.arguments import microseconds, require_batch, require_keys
from cdckit.parts.arrow_types import arrow_type, spark_columns, spark_type
from cdckit.parts.widening import common_spark_type, is_number_beside_time
from cdckit.parts.workers import WorkerPlan, worker_reports

Columns = Mapping[str, str | Sequence[str]]
"""By column the name of its type, or of several where its events differ."""

_UNREADABLE = one_of("reject", "null")
"""What a value that its column's type cannot hold costs: its row, or itself alone."""


@takes(decoded=EVENTS, table=NAME, unreadable=_UNREADABLE)
def table_rows(
    decoded: DataFrame,
    table: str,
    *,
    keys: Sequence[str] | None = None,
    columns: Columns | None = None,
    placeholder: str = PLACEHOLDER,
    unreadable: str = "reject",
) -> DataFrame:
    """
    The rows of one table, typed; what cannot be a change of it is in error.

    `changes` is made of these; ask for them yourself to see the rejects: `rejects(table_rows(…))`.

    Args:
        decoded, table, keys, columns, placeholder, unreadable: As for `changes`.

    Returns:
        One row per record that is about a row of the table, in no order: the columns of the record; of the
        event (`cdckit.debezium.EVENT_SCHEMA`) `source`, `operation`, `snapshot`, `event_timestamp`,
        `time_taken_from`, `position`, `transaction_id`, `new_key` and `old_key`; `data`, the row, of a
        delete the row that was; `carried`, whether each column was sent; `old`, the key columns as they
        were; `moved`, whether this event gave the row another key; `faults`, with `unreadable="null"` the
        values that their columns' types cannot hold, each behind the name of its column, null without one;
        `error_code` and `error_description`.

    Raises:
        As `changes`.

    Cost: a projection, no shuffle; with `decode` three to four times the processor time that `from_json` of
        the same text takes (seen with 1,000,000 events of ten columns).

    >>> from cdckit import debezium
    >>> rows = debezium.table_rows(decoded, "products", keys=["id"])
    >>> rows.orderBy("offset").select("operation", "data", "carried.name", "error_code").show(truncate=False)
    +---------+------------------+-----+----------+
    |operation|data              |name |error_code|
    +---------+------------------+-----+----------+
    |c        |{1, kettle, 19.90}|true |NULL      |
    |u        |{1, NULL, 17.50}  |false|NULL      |
    |d        |{1, NULL, NULL}   |false|NULL      |
    +---------+------------------+-----+----------+
    <BLANKLINE>
    """
    plan = _table_plan(decoded, table, keys, columns, placeholder, unreadable)
    source, events = _events(decoded, RECORD_COLUMNS)
    work = partial(row_batch, events=events, plan=plan)
    rows = WorkerPlan(source, partial(by_batch, work=work), decoded_columns(row_types(plan))).rows()
    return _with_untyped(rows, plan)


@takes(decoded=EVENTS, table=NAME, unreadable=_UNREADABLE)
def changes(
    decoded: DataFrame,
    table: str,
    *,
    keys: Sequence[str] | None = None,
    columns: Columns | None = None,
    snapshot_at: datetime | None = None,
    source: str | None = None,
    placeholder: str = PLACEHOLDER,
    unreadable: str = "reject",
    complete_snapshots: bool = False,
) -> DataFrame:
    """
    Make changes of the events of one table.

    A create, an update and a read of a snapshot are upserts, a delete is a delete.  What an event did not
    send, such as a large value that did not change, is not carried; where the event says what it was before,
    it is that.  An update that gives a row another key is two changes: a delete of the old one (record
    number 1) and an upsert of the new one (2).  Debezium itself sends a delete and a create then, each of
    which names the other key.

    **Their order is that of the source's log.**  A clock cannot give it: a snapshot, incremental or not, says
    when it read a row, while changes that came after it, and are delivered after it, say earlier times, of
    their commits; MySQL says when a statement began, which can be before one whose commit it waited for.
    So the changes of a row count in the order of their positions, and their times follow, in `merge` and in a
    `Ledger`, in whatever batches they come.  What the log says is not true before what stands ahead of it.
    A row that a snapshot read is true from the time on that its event says, or from *snapshot_at* on; but
    not before what the log says ahead of it, and no later than what the log says behind it.  Events without a
    position count by their times.  Within a commit of SQL Server, and of MongoDB where the time of an event
    is that of a server's clock (since Debezium 3.4), the order is that of delivery.

    **A truncate** ends every row that its source had said by then, of this call and of all that a `Ledger`
    has and will be given.  So of several tables of one connector that speak of one entity, such as the
    partitions of a table, give each a *source* of its own, or the truncate of one ends the rows of all.

    A source whose log begins anew (MySQL without GTIDs on another server, a restored cluster) is another
    source: its positions mean nothing beside those before.  Say so by *source*.

    Args:
        decoded: What `decode`, `decode_maxwell` or `decode_wal2json` returned.  Passed over is what is not
            about a row or a truncate, or about another table.
        table: The name of the table, with as much before it as is needed: `orders`, `public.orders`,
            `shop.public.orders`.  Tables of several databases whose names end so are taken for one.
        keys: The key columns; without them, those that the keys of the records have, which are collected.
        columns: By column its type (see `columns`); others are not read.  Without it, what `columns` says.
            Where *decoded* is a stream, keys and columns must be said.  It must be said, too, where some
            events of a column say its type and others none, as after the converter of a connector was told
            `schemas.enable=false`.  A column that is `untyped` is text as it was sent, such as 19800 for a
            day, and a `Ledger` takes no values of a type beside it.  If your type, or a part of
            it, has a scale or a unit, an event that names another is read by its own.  Of several types, each
            event is read by the one that it says; one that says none cannot be read.  Of names that differ in
            case alone, which are one to Spark, the later is a field with a number: `Price_2` beside `price`.
        snapshot_at: From when on the rows that a snapshot read are true: an instant from which on the
            stream has all changes, or at which the snapshot had not begun.  Without it, what their events
            say: a row of which the stream had said nothing is then not there before it was read.
        source: The name of the source; without it, what the events say.
        placeholder: What the connector writes for a value that is not available, if it was told otherwise.
        unreadable: What a value that its column's type cannot hold, such as 19.999 in a `decimal(10,2)`,
            costs: `reject`, its row (`VALUE_INVALID`); or `null`, itself alone: it is null, and `faults`
            says it.  A row whose key cannot be read, or could not be before, is always rejected.
        complete_snapshots: Whether a snapshot that ended is a full list of the tables that it read: rows that
            the source had said before, and that it did not read, are deleted at its place in the log, as
            after a time in which the connector saw no changes.  It compares all of *decoded*, so give it
            everything of the table; a `Feed` does so in any batches.  Not of incremental snapshots, of those
            without a place in the log (MongoDB), nor where some of what was read may be in error.

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`).  `effective_timestamp` is the time of the event
        at its source (see `time_taken_from` in `table_rows`).  `sequence` is its position, and of a create
        that a changed key brought the place right behind its delete.  `message_id` is the source and the
        position, so that a redelivered event is the same message (where there is no position, topic,
        partition, offset and timestamp of its record; without an offset, what it says, too); of a read and a
        delete the operation too, since they may stand at the position of another change of the row; of a
        read the table, since a snapshot reads all of them at one position; and of MySQL a hash of the row
        before and after, since the events of a compressed transaction may share a position (two that say the
        same of one row are then one).  A redelivered change of a transaction of MongoDB, or of Oracle by
        OpenLogReplicator, is another message, which says the same behind the first: those events have no
        number of their own.  `snapshot` says whether a snapshot read the row.  `moved` says the old key and
        the new one where the key of a row changed: so a value that did not change and was not sent with the
        new key is that of the old one.
        Beside them stands `faults`: the values that could not be read and are null therefore, each behind the
        name of its column; and `reject`: an event of the table, or of nobody knows which, that cannot be used
        is a row that says nothing but its record and why (see `cdckit.model.CHANGE_SCHEMA`).

        PostgreSQL's `infinity` and `-infinity` are 9999-12-31 and 0001-01-02, of a timestamp midnight in UTC,
        however the connector writes them.  A timestamp without a zone is taken for one in UTC.  Times of day
        are microseconds since midnight; those that the connector writes as texts (`IsoTime`, `ZonedTime`)
        stay so, and what it writes as structs (`time.precision.mode=structured`) stays structs.
        A decimal that may have more than 38 digits, such as `DECIMAL(65,30)`, stays text as it was sent, in
        Base64, unless *columns* says a type for it: `org.apache.kafka.connect.data.Decimal(38,30)`.
        Decimals of Kafka Connect may be Base64 or numbers (`decimal.format=NUMERIC`): a JSON text is Base64,
        a JSON number is one.  No number is rounded: one with more digits than its type has, on either side
        of the point, zeros at the end aside, cannot be read.

        Arrays, maps and structs, nested too, are such of Spark, a `VariableScaleDecimal` the text of its
        digits; a part that cannot be read makes the whole value one that cannot.  A map whose keys are no
        text, and any of them where *columns* says `string`, stays JSON text.

    Raises:
        InvalidArgument: There is no such table; *keys* or *columns* are not of their form, or are needed; a
            type is unknown; two types of one column have none in common, as two arrays of different types,
            or a number and a date (`string` reads both as they were sent); *snapshot_at* is
            naive.

    Cost: as for `table_rows`, no shuffle.  Without *keys* or *columns* a job first, for each of them.

    >>> from cdckit import debezium
    >>> changed = debezium.changes(decoded, "products", keys=["id"]).orderBy("arrival.offset")
    >>> changed.select("operation", "effective_timestamp", "data", "carried").show(truncate=False)
    +---------+-------------------+------------------+--------------------+
    |operation|effective_timestamp|data              |carried             |
    +---------+-------------------+------------------+--------------------+
    |upsert   |2024-03-01 12:00:00|{1, kettle, 19.90}|{true, true, true}  |
    |upsert   |2024-03-01 12:00:01|{1, NULL, 17.50}  |{true, false, true} |
    |delete   |2024-03-01 12:00:02|{1, NULL, NULL}   |{true, false, false}|
    +---------+-------------------+------------------+--------------------+
    <BLANKLINE>
    """
    plan = _table_plan(decoded, table, keys, columns, placeholder, unreadable)
    at = None if snapshot_at is None else microseconds(snapshot_at, "snapshot_at")
    rows, events = _events(decoded, RECORD_COLUMNS)
    work = partial(change_batch, events=events, plan=plan, source=source, read_at=at)
    kind = spark_columns(pa.schema(change_types(plan).items()))
    stated = _with_untyped(WorkerPlan(rows, partial(by_batch, work=work), kind).rows(), plan)
    if not complete_snapshots:
        return stated
    require_batch(decoded, "decoded", "a Feed completes snapshots of streams")
    is_wrong = F.col(ERROR_CODE).isNotNull()
    refused = table_rows(
        decoded, table, keys=keys, columns=columns, placeholder=placeholder, unreadable=unreadable
    )
    unread = decoded.where(is_wrong)
    ended = ended_snapshots(decoded, source)
    absences = find_absences(stated, plan.keys, ended, refused.where(is_wrong), unread, source)
    return stated.unionByName(absences)


def _with_untyped(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """The rows, whose data say which columns are texts as they were sent."""
    return rows.withMetadata(
        "data", {UNTYPED_FIELDS: [name for name, (kinds, _) in plan.columns.items() if UNTYPED in kinds]}
    )


# The events that rows are made of -------------------------------------------------------------------------


def _events(decoded: DataFrame, names: Sequence[str]) -> tuple[DataFrame, Events]:
    """The rows of which workers make events, with the columns *names*, and how they do."""
    note = read_by(decoded)
    if note is not None:
        return note[0].selectExpr(*names), of_records(note[1])
    return decoded.selectExpr(*names, *EVENT_TYPES), read_table


# Columns and their types ----------------------------------------------------------------------------------


def _table_plan(
    decoded: DataFrame,
    table: str,
    keys: Sequence[str] | None,
    columns: Columns | None,
    placeholder: str,
    unreadable: str,
) -> TablePlan:
    survey = _survey(decoded, table) if keys is None or columns is None else None
    if keys is None:
        assert survey is not None
        keys = survey.key()
    types = (
        _given_columns(columns) if survey is None or columns is not None else survey.columns(decoded, table)
    )
    if columns is None:
        _warn_of_texts(table, types)
        # Deletes of MongoDB alone have a key and no more; a truncate alone may have not even that.
        types = types or dict.fromkeys(keys, (UNTYPED,))
    named = require_keys(keys, list(types))
    return table_plan(table, named, _require_one_writing(types), placeholder, reject=unreadable == "reject")


def table_plan(
    table: str,
    keys: Sequence[str],
    types: Mapping[str, tuple[str, ...]],
    placeholder: str = PLACEHOLDER,
    *,
    reject: bool = True,
) -> TablePlan:
    """Plan how the rows of a table are read, by the types of its columns."""
    fields = field_names(types)
    columns = {fields[name]: (kinds, arrow_type(common_type(name, kinds))) for name, kinds in types.items()}
    sent_as = {field: column for column, field in fields.items()}
    return TablePlan(table, columns, sent_as, tuple(fields[key] for key in keys), placeholder, reject)


def _given_columns(given: Columns | None) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping) or not given:
        needed = 'a mapping of column to type, such as {"id": "int64"}'
        raise InvalidArgument(None, "columns", needed, given)
    return {name: (types,) if isinstance(types, str) else tuple(types) for name, types in given.items()}


class UntypedColumns(UserWarning):
    """The events of a table say no types: its columns are texts as they were sent."""


def _warn_of_texts(table: str, types: Mapping[str, Sequence[str]]) -> None:
    if types and all(tuple(kinds) == (UNTYPED,) for kinds in types.values()):
        example = ", ".join(f'"{name}": "…"' for name in list(types)[:3])
        warnings.warn(
            f"The events of {table} say no types, so all columns are read as texts, as they were sent. "
            f"Say the types, as in `columns={{{example}}}`; docs/types.md lists them, and with "
            "`untyped` a column stays text.",
            UntypedColumns,
            stacklevel=5,
        )


def common_type(name: str, kinds: Sequence[str]) -> T.DataType:
    """The type of all values of a column; raises `InvalidArgument` where its types have none in common."""
    types = [spark_type(encoding(kind).type) for kind in kinds]
    has_parts = any(isinstance(kind, T.ArrayType | T.MapType | T.StructType) for kind in types)
    if has_parts and len(types) > 1 and not all(map(is_schema, kinds)):
        needed = "of several types with parts as columns names them: by the schemas, which tell them apart"
        raise InvalidArgument(None, f"columns[{name!r}]", needed, list(kinds))
    common = types[0]
    for kind in types[1:]:
        wider = common_spark_type(common, kind)
        if wider is None or is_number_beside_time(common, kind):
            needed = (
                f"of types that have one in common: {common.simpleString()} is none of a value of that kind"
            )
            raise InvalidArgument(None, f"columns[{name!r}]", needed, kind.simpleString())
        common = wider
    return common


def _require_one_writing(writings: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Raise where events with types and events without any are about one column."""
    mixed = {name: kinds for name, kinds in writings.items() if UNTYPED in kinds and len(kinds) > 1}
    if mixed:
        needed = "given: some events do not say how they write a column of which others say it"
        stated = {
            name: tuple(kind for kind in kinds if kind != UNTYPED) or kinds
            for name, kinds in writings.items()
        }
        given = {name: kinds[0] if len(kinds) == 1 else kinds for name, kinds in stated.items()}
        example = f"changes(…, columns={given}), if all of them write so"
        raise InvalidArgument(None, "columns", needed, mixed, example)
    return writings


@takes(decoded=EVENTS, table=NAME)
def columns(decoded: DataFrame, table: str) -> dict[str, tuple[str, ...]]:
    """
    The columns of a table and the types that its events give them.

    Args:
        decoded: What `decode`, `decode_maxwell` or `decode_wal2json` returned.
        table: The name of the table (see `changes`).

    Returns:
        By column the names of its types: one, or several where the table was altered in between.  In the
        order in which the columns are first named.  A type that only that database knows, such as an
        enumeration, is `string`.  Of events that say no types, such as JSON without a schema and
        Maxwell's, every column is `untyped`: give `changes` the types that you know.
        Arrays, maps and structs are named by their parts: `array<…>`, `map<string, …>`,
        `struct<name: …, …>`; several types of such a column are the schemas that events say, as JSON.

    Raises:
        InvalidArgument: No event is about such a table, or events are about several of that name; or
            *decoded* is a stream.

    Cost: a job that reads all of *decoded*; what is collected is one row for each column and type.

    >>> from cdckit import debezium
    >>> debezium.columns(decoded, "products")
    {'id': ('int32',), 'name': ('string',), 'price': ('org.apache.kafka.connect.data.Decimal(2)',)}
    """
    return _survey(decoded, table).columns(decoded, table)


@dataclass(frozen=True)
class _Survey:
    """What the events of a table say of its columns and its key: by column the least place and the types."""

    tables: tuple[str, ...]
    types: tuple[tuple[int, str, str], ...]
    keys: tuple[tuple[str, ...], ...]

    def columns(self, decoded: DataFrame, table: str) -> dict[str, tuple[str, ...]]:
        """The types of each column, in the order in which the columns are first named."""
        _require_one(table, self.tables, decoded)
        types_by_name: dict[str, list[str]] = {}
        for _, name, kind in self.types:
            types_by_name.setdefault(name, []).append(kind)
        return {name: distinct_types(types_of) for name, types_of in types_by_name.items()}

    def key(self) -> list[str]:
        """The key columns, as the keys of records name them; raises `InvalidArgument` if not all alike."""
        if len(self.keys) != 1 or not self.keys[0]:
            needed = "given: the key columns, which the keys of the records do not name, or not all alike"
            raise InvalidArgument(None, "keys", needed, [list(key) for key in self.keys])
        return list(self.keys[0])


def _survey(decoded: DataFrame, table: str) -> _Survey:
    """Survey what events say of a table's columns and key; a job that brings a row for each type."""
    require_batch(decoded, "decoded", "say its columns yourself")
    source, events = _events(decoded, READ_COLUMNS)
    reports = worker_reports(source, partial(report_types, events=events, table=table))
    places: dict[tuple[str, str], int] = {}
    for report in reports:
        for place, name, kind in report["types"]:
            places[name, kind] = min(place, places.get((name, kind), place))
    return _Survey(
        tuple(sorted({name for report in reports for name in report["tables"]})),
        tuple(sorted((place, name, kind) for (name, kind), place in places.items())),
        tuple(sorted({tuple(key) for report in reports for key in report["keys"]})),
    )


def distinct_types(type_texts: Sequence[str]) -> tuple[str, ...]:
    """Each type once: by its name, but of several that have parts by what events say, to tell them apart."""
    types = tuple(dict.fromkeys(map(known_encoding, type_texts)))
    names = tuple(dict.fromkeys(map(type_name, types)))
    return names if len(names) == 1 else types


def _require_one(table: str, writings: Sequence[str], decoded: DataFrame) -> None:
    if len(writings) == 1:
        return
    if writings:
        needed = f"that of one table: {', '.join(writings[:10])} all end so"
        raise InvalidArgument(None, "table", needed, table)
    name = F.concat_ws(".", "db", "schema", "table").alias("name")
    others = decoded.where(F.col("table").isNotNull()).select(name).distinct().orderBy("name").limit(10)
    names = ", ".join(row["name"] for row in others.collect())
    raise InvalidArgument(None, "table", f"the name of a table among {names or 'none at all'}", table)
