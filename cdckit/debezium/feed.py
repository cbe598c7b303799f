"""A captured database that is kept up: records in; out a ledger for each of its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.captured_tables import CapturedTable, is_name_of
from cdckit.debezium.decoding import decode as decode_json
from cdckit.debezium.intake import RECEIVED_SCHEMA, FeedSettings, Intake, captured_tables, events_of_table
from cdckit.debezium.table_changes import Columns
from cdckit.debezium.unsent_values import PLACEHOLDER
from cdckit.errors import InvalidArgument
from cdckit.ledger import View
from cdckit.ledger.kind import Kind
from cdckit.parts.workers import local_frame
from cdckit.shell.record_places import PLACE, record_place
from cdckit.shell.shell import WorkResult
from cdckit.shell.table_feed import OF_TABLE, RECORDS, TableFeed
from cdckit.store import Snapshot, Transaction
from cdckit.store.store import read_rows

_NAMES = T.ArrayType(T.StringType())
TABLES_SCHEMA = (
    T.StructType()
    .add("table", "string")
    .add("keys", _NAMES)
    .add("columns", _NAMES)
    .add("has_ledger", "boolean")
)
"""One row is one table of which events came: its full name, its key columns (none while nobody has said
them), its columns, and whether there is a ledger of it."""


class Feed(TableFeed):
    """
    A captured database, kept up as its change events come: a ledger for each table, in one store.

    Records may come in any batches, of all tables together, and again after a restart.  What the ledgers hold
    is at any time what `changes` and `merge` would give for all records that were received: rows that got
    another key, truncates, and the order of the log included.  Everything that came is kept, so everything
    can be made anew.

    **Nothing is lost.**  A record about a row is in a ledger, waits, or is a reject with its bytes and a
    sentence; all others are in `events`.  A column that comes later becomes a field, of the type that the
    events say, or else text as it was sent; the result's `notes` and a warning name it.  A column that is
    gone stays in the history.  Events of a column that say no type are read by the type that others of it
    say; where types have none in common, the column is text as it was sent.  Of columns whose names differ in
    case alone the later one is a field with a number, `Price_2`.  If rows read otherwise by what
    came, their table is made anew from its records.

    Each table has a ledger, also one that *tables* does not name, by the key that the keys of its records
    name.  The events of a table of which nobody says the key wait, and so do those in Avro whose schema
    *decode* does not have: say it, and they are taken with the next batch.  If a table's key was changed, so
    that its records name another one, its events wait too, from that batch on: name the key that counts in
    *tables*, and `rebuild` if it is not the one before.

    **A snapshot that ended** is a full list of the tables that it read: a row that the source had said
    before, and that it did not read, is deleted at its place in the log; the result's `notes` and a warning
    say how many.  A table is left alone of which it read no row, or of which a record cannot be read while
    it ran; and snapshots without a place in the log, as of MongoDB, and incremental ones are no lists.
    A snapshot that stands ahead of what had come before it says that its source's log begins anew: a note
    names it, since by their places new events then count before old ones.
    Whether a snapshot read some rows alone (`additional-conditions`, `snapshot.select.statement.overrides`)
    its events do not say: turn *complete_snapshots* off where there are such.

    Its verbs and most of its questions are those of every `Shell`.

    Args:
        spark, location, storage_options: As for `Shell`.
        tables: By table its key columns, where the keys of the records do not say them, or others are wanted.
            A name has as much before it as is needed: `orders`, `public.orders`, `shop.public.orders`.
        columns: By table the types of its columns, as for `changes`; of columns that are not among them, what
            the events say.
        decode: Gives the events of records: `debezium.decode`, `decode_maxwell`, `decode_wal2json`, or, for
            Avro, `functools.partial(debezium.decode_avro, schemas=…)`.
        placeholder: As for `changes`.
        complete_snapshots: Whether a snapshot that ended is such a list.

    Raises:
        InvalidArgument: *tables* or *columns* are not of their form.
        OtherKind, NoFileSystem, DamagedTable: As for `Shell`.

    Cost:
        `receive` decodes the records once and keeps them, with one small job to see of which tables they are,
        and one for what waits; then, for each of these tables, two jobs for its rows in error and for its
        changes, and one or two of its ledger.  As long as records wait for their schema, each batch decodes
        them once more.  Where a snapshot ended, or records come that are older than its end, the logs of
        the tables are read once.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import debezium, samples
    >>> records = session().read.parquet(samples("debezium/wal2json.parquet"))
    >>> keys = {"flights": ["flight_date", "carrier", "flight", "origin"]}
    >>> with TemporaryDirectory() as folder:
    ...     feed = debezium.Feed(session(), folder, tables=keys, decode=debezium.decode_wal2json)
    ...     for note in feed.receive(records, "monday").notes:
    ...         print(note)
    ...     feed.tables().select("table", "has_ledger").show()
    ...     print(feed.table("flights").history().count(), "versions")
    public.remarks is a table that was not named
    records that wait for the key columns of public.remarks, which tables= can name: 256
    +--------------+----------+
    |         table|has_ledger|
    +--------------+----------+
    |public.flights|      true|
    |public.remarks|     false|
    +--------------+----------+
    <BLANKLINE>
    508 versions
    """

    kind = "captured database (form 4)"
    received = RECEIVED_SCHEMA

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        tables: Mapping[str, Sequence[str]] | None = None,
        columns: Mapping[str, Columns] | None = None,
        decode: Callable[[DataFrame], DataFrame] = decode_json,
        placeholder: str = PLACEHOLDER,
        complete_snapshots: bool = True,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        named = _keys(tables), _columns(columns)
        self._settings = FeedSettings(decode, *named, placeholder, complete_snapshots)
        super().__init__(spark, location, storage_options)

    # What the shell asks for -------------------------------------------------------------------------------

    def _take(self, tables: Transaction, records: DataFrame) -> WorkResult:
        intake = Intake(tables, self._settings)
        count = intake.take(records)
        return WorkResult(count, intake.reads, intake.notes)

    def _rebuild(self, tables: Transaction) -> WorkResult:
        intake = Intake(tables, self._settings)
        intake.rebuild()
        return WorkResult(reads=intake.reads)

    def _kinds(self, tables: Snapshot) -> Mapping[str, Kind]:
        return {table.name: self._settings.kind(table) for table in _kept_tables(tables)}

    def _shown(self) -> Sequence[Column]:
        return [F.col(OF_TABLE).alias("table")]

    def _changes_of(self, tables: Transaction, name: str) -> DataFrame:
        table = captured_tables(tables.base)[name]
        return self._settings.changes(events_of_table(tables, self._settings, name), table)

    def _places(self, tables: Transaction, kind: Kind, entities: DataFrame) -> DataFrame:
        """The places of all records of entities, and of the tombstones behind their deletes."""
        places = super()._places(tables, kind, entities)
        records = tables.read(RECORDS)
        keys = records.withColumn(PLACE, record_place()).join(places, PLACE, "left_semi")
        tombstones = records.where(F.col("value").isNull()).join(
            keys.select("topic", "key").distinct(), ["topic", "key"], "left_semi"
        )
        return places.unionByName(tombstones.select(record_place().alias(PLACE))).distinct()

    # Its own ----------------------------------------------------------------------------------------------

    def events(self) -> DataFrame:
        """
        All records that came, decoded: what is not about a row among them (see `EVENT_SCHEMA`).

        `messages`, `find_missing_events` and `find_frontiers` go on from here.
        """
        return self._settings.events(read_rows(self._snapshot(), RECORDS, RECEIVED_SCHEMA)).drop(OF_TABLE)

    def tables(self) -> DataFrame:
        """One row per table of which events came (`TABLES_SCHEMA`)."""
        rows = [
            (table.name, list(_keys_of(table)), list(table.types), table.made_by is not None)
            for table in captured_tables(self._snapshot()).values()
        ]
        return local_frame(self._spark, rows, TABLES_SCHEMA)

    def table(self, name: str, *, version: int | None = None, timestamp: datetime | None = None) -> View:
        """
        The ledger of one table: its `history`, its `changes`, its `as_of`.

        Args:
            name: The name of the table, with as much before it as is needed.
            version: The commit that is meant; the newest without it.
            timestamp: An instant, instead: the last commit until then.

        Raises:
            InvalidArgument: There is no such table that has a ledger, or there are several; or there is no
                such commit, or *timestamp* is naive.
        """
        return self._ledger(self._snapshot(version, timestamp), name)

    def _ledger(self, tables: Snapshot, name: str) -> View:
        kept = {table.name: table for table in _kept_tables(tables)}
        chosen = [table for table in kept if is_name_of(name, table)]
        if len(chosen) != 1:
            which = f"{name}, which {', '.join(chosen[:9])} all end in" if chosen else name
            needed = f"one of {', '.join(list(kept)[:20]) or 'no table yet'}"
            raise InvalidArgument(None, "name", needed, which)
        return View(tables, self._settings.kind(kept[chosen[0]]).stored_kind(tables))


def _keys_of(table: CapturedTable) -> tuple[str, ...]:
    if table.made_by is not None:
        return table.made_by.keys
    return table.keys[0] if len(table.keys) == 1 else ()


def _kept_tables(snapshot: Snapshot) -> list[CapturedTable]:
    return [table for table in captured_tables(snapshot).values() if table.made_by is not None]


_Key = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


def _keys(tables: Mapping[str, Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    try:
        return msgspec.convert(tables or {}, dict[str, _Key])
    except msgspec.ValidationError as error:
        needed = 'by table its key columns, such as {"orders": ["id"]}'
        raise InvalidArgument(None, "tables", needed, tables, remedy=f"{error}.") from error


def _columns(columns: Mapping[str, Columns] | None) -> dict[str, dict[str, tuple[str, ...]]]:
    try:
        given = msgspec.convert(columns or {}, dict[str, dict[str, str | tuple[str, ...]]])
    except msgspec.ValidationError as error:
        needed = 'by table the types of its columns, such as {"orders": {"price": "decimal(10,2)"}}'
        raise InvalidArgument(None, "columns", needed, columns, remedy=f"{error}.") from error
    return {
        name: {column: (kinds,) if isinstance(kinds, str) else kinds for column, kinds in types.items()}
        for name, types in given.items()
    }
