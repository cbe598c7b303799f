"""A feed that is kept up: records in; out a ledger for each table, what waits, and what is rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger import View
from cdckit.parts.arguments import require_batch_id, require_instant
from cdckit.parts.documents import sink_of
from cdckit.parts.workers import doing
from cdckit.records import ERROR_CODE, ERROR_DESCRIPTION, RECORD_COLUMNS, REJECT_SCHEMA, require_records
from cdckit.replicate.envelope import ReplicateFault
from cdckit.replicate.intake import (
    GIVEN_UP,
    RECEIVED_SCHEMA,
    RECORDS,
    REJECTS,
    WAITING,
    ZONE,
    FeedTable,
    Intake,
    feed_tables,
)
from cdckit.replicate.many_tables import TableName, TableSettings
from cdckit.replicate.row_changes import find_without_key
from cdckit.replicate.schema_messages import ZONE_SCHEMA
from cdckit.replicate.table_rows import rows_of_table
from cdckit.store import Snapshot, Store, Transaction
from cdckit.store.files import digest_of
from cdckit.store.store import KIND, require_kind, rows_of

_Answer = TypeVar("_Answer")

FEED = "Replicate feed (form 1)"
"""What its store is noted to hold."""

TABLES_SCHEMA = T.StructType(
    [
        *(T.StructField(name, T.StringType()) for name in TableName._fields),
        T.StructField("entity", T.StringType()),
        T.StructField("keys", T.ArrayType(T.StringType())),
        T.StructField("has_ledger", T.BooleanType()),
    ]
)
"""One row is one table of a feed: its name, its entity, its key (none: its rows cannot become changes), and
whether there are changes of it."""


@dataclass(frozen=True)
class Received:
    """
    What `Feed.receive` did.

    Args:
        version: The commit by which it is seen.
        records: How many records came.
        repeated: Whether nothing was done, because the batch had been received before.

    >>> said = Received(version=7, records=1000, repeated=True)
    >>> "received before" if said.repeated else f"{said.records} records, seen from commit {said.version} on"
    'received before'
    """

    version: int
    records: int
    repeated: bool = False


class Feed:
    """
    What Replicate sends, kept up as it comes: a ledger for each table, in one store.

    Records may come in any order and any batches, of all tables together: metadata in mid-stream, DDL,
    data before its metadata.  What the ledgers hold is at any time what `table_changes` and `merge` would
    give for all records that were received.  Everything that came is kept, so everything can be made anew.

    Each call of `receive`, `process` and `rebuild` is one transaction: seen whole or not at all, whatever
    dies meanwhile.  Opening a feed, and every question to it, writes and deletes nothing; a question is
    answered from the newest commit.

    Args:
        spark: The session that does the work.
        location: A local folder or a URI, as for `cdckit.store.Store`; new, or this feed's.
        tables: What is to be known of single tables beyond their metadata.
        buckets: For new ledgers, as for `cdckit.Ledger`.
        storage_options: What deltalake calls so, for a URI.

    Raises:
        InvalidArgument: *tables* is no mapping of names to settings.
        OtherKind: The location holds something else than a feed.
        NoFileSystem, DamagedTable: As for `cdckit.store.Store`.

    Source:
        Replicate, "Typical consumer logic" and "wait a reasonable amount of time … activate the planned
        error policy".

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import samples
    >>> records = session().read.parquet(samples("replicate/{metadata,schedule}.parquet"))
    >>> some = records.where("topic in ('flights.metadata', 'schedule.airlines')")
    >>> with TemporaryDirectory() as folder:
    ...     feed = Feed(session(), folder, buckets=2)
    ...     _ = feed.receive(some, "monday")
    ...     print(feed.receive(some, "monday").repeated)
    ...     feed.tables().where("has_ledger").select("task", "table", "keys").show()
    ...     airlines = feed.table("AIRLINES", task="schedule").history().where("carrier = 'AA'")
    ...     airlines.select("carrier", "name", "deleted_indicator").show(truncate=False)
    True
    +--------+--------+---------+
    |    task|   table|     keys|
    +--------+--------+---------+
    |schedule|AIRLINES|[carrier]|
    +--------+--------+---------+
    <BLANKLINE>
    +-------+----------------------+-----------------+
    |carrier|name                  |deleted_indicator|
    +-------+----------------------+-----------------+
    |AA     |American Airlines Inc.|false            |
    +-------+----------------------+-----------------+
    <BLANKLINE>
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        tables: Mapping[TableName, TableSettings] | None = None,
        buckets: int | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self._tables = dict(tables or {})
        for name, settings in self._tables.items():
            if not isinstance(name, TableName) or not isinstance(settings, TableSettings):
                raise InvalidArgument(
                    "Feed", "tables", "a mapping of TableName to TableSettings", (name, settings)
                )
        self.location, self._buckets = str(location), buckets
        self._spark, self.store = spark, Store(spark, location, storage_options)
        self._snapshot()

    # Asking ----------------------------------------------------------------------------------------------

    def schema_zone(self) -> DataFrame:
        """What each schema id stands for (see `schema_zone`)."""
        return rows_of(self._snapshot(), ZONE, ZONE_SCHEMA)

    def tables(self) -> DataFrame:
        """One row per table that the metadata knows (`TABLES_SCHEMA`)."""
        snapshot = self._snapshot()
        known = self._known(snapshot)
        rows = [
            (*each.name, each.entity, list(each.keys), snapshot.has(each.kind(self._buckets).changes))
            for each in known.values()
        ]
        return self._spark.createDataFrame(rows, TABLES_SCHEMA)

    def table(
        self,
        table: str,
        *,
        task: str | None = None,
        server: str | None = None,
        schema: str | None = None,
        version: int | None = None,
        timestamp: datetime | None = None,
    ) -> View:
        """
        The ledger of one table: its `history`, its `changes`, its `as_of`.

        Args:
            table: The name of the table.
            task: The task that replicates it, where several replicate one of that name.
            server: The server, likewise.
            schema: The schema of the source, likewise.
            version: The commit that is meant; the newest without it.
            timestamp: An instant, instead: the last commit until then.

        Raises:
            InvalidArgument: There was no such table with a key, or there were several; or there is no such
                commit, or *timestamp* is naive.
            OtherKind: Its ledger was made by another key than its settings say (`rebuild` makes it anew).
        """
        snapshot = self.store.snapshot(version, timestamp, function="table")
        # By the metadata of that commit: the table may have had another key then.
        found = self._one(snapshot, table, task, server, schema, function="table")
        if not found.keys:
            needed = "a table with a key: give it one in TableSettings(keys=...) and rebuild"
            raise InvalidArgument("table", "table", needed, str(found))
        return View(snapshot, found.kind(self._buckets).noted(snapshot))

    def contracts(self) -> dict[str, object]:
        """
        The tables that have a suite of sentences, with its name, the ledgers by name: for `check_all`.

        All are of one commit.
        """
        snapshot = self._snapshot()
        kinds = {str(each): each.kind(self._buckets) for each in self._known(snapshot).values() if each.keys}
        ledgers = {name: View(snapshot, kind.noted(snapshot)) for name, kind in kinds.items()}
        return {
            "records": (rows_of(snapshot, RECORDS, RECEIVED_SCHEMA).select(*RECORD_COLUMNS), "records"),
            "schema_zone": (rows_of(snapshot, ZONE, ZONE_SCHEMA), "schema_zone"),
            "rejects": (_rejected(snapshot), "rejects"),
            "tables": ledgers,
        }

    def without_key(
        self, table: str, *, task: str | None = None, server: str | None = None, schema: str | None = None
    ) -> DataFrame:
        """
        The rows of a table that do not say which entity they are about (see `find_without_key`).

        Cost: reads all records of the table.
        """
        snapshot = self._snapshot()
        found = self._one(snapshot, table, task, server, schema, function="without_key")
        records = found.of(rows_of(snapshot, RECORDS, RECEIVED_SCHEMA)).select(*RECORD_COLUMNS)
        rows = rows_of_table(records, found.table, function="without_key", **found.reading)
        return (
            find_without_key(rows, keys=found.keys) if found.keys else rows.where(F.col(ERROR_CODE).isNull())
        )

    def waiting(self) -> DataFrame:
        """
        The data that came before its metadata.

        Returns:
            One row per record, however often it came: its columns, `form`, `schema_id`.  It becomes part
            of its table's ledger with the batch that brings the metadata.  One that was given up is among
            `rejects`, also if it came again since.
        """
        found = _waiting(rows_of(self._snapshot(), WAITING, _WAITING_SCHEMA)).where(F.col(GIVEN_UP).isNull())
        return found.select(*RECORD_COLUMNS, "form", "schema_id")

    def rejects(self) -> DataFrame:
        """
        The records that cannot be used: envelopes, metadata and rows in error, and data that was given up.

        Returns:
            One row per record (`cdckit.records.REJECT_SCHEMA`), which can be fed again once it is mended.
            Data that was given up (METADATA_MISSING) is used all the same if its metadata comes at last.
        """
        return _rejected(self._snapshot())

    # Writing ---------------------------------------------------------------------------------------------

    @doing("feed: take a batch of records")
    def receive(self, records: DataFrame, batch: str | int | None = None) -> Received:
        """
        Take records, and bring zone, ledgers, rejects and what waits up to them, in one transaction.

        Args:
            records: One row per transported message (`cdckit.records.RECORD_SCHEMA`), of any topics; a
                batch, not a stream (see `sink`).
            batch: An id of the batch: of one id, one batch is received.

        Raises:
            MissingColumns, WrongColumnType: *records* are not records.
            InvalidArgument: They are a stream; or a table has other settings than those that its ledger was
                made with (`rebuild` makes it anew).
            BatchIdReused: The batch id was received with other content.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.

        Cost: two small jobs, in which the records are kept; with a batch id, one that reads them before; and
            one in every sixteenth batch or so, which writes small files of earlier ones together; some six
            more if metadata came; two if some of the batch's data has to wait, which is written once more;
            one as long as data waits, which reads three columns of it, and two more when some waits no
            longer.  Then, for each table of which rows came, its rows are written once more, and two jobs of
            its ledger.  A table whose older rows read otherwise by new metadata, as after a change of its key
            or of a type, is made anew from its records.
        """
        require_records(records, function="receive")
        if records.isStreaming:
            needed = "a batch: of a stream, let writeStream.foreachBatch(feed.sink('a name')) hand them over"
            raise InvalidArgument("receive", "records", needed, "a stream")
        key = require_batch_id(batch, function="receive")
        digest = None if key is None else digest_of(records, F.xxhash64("topic", "key", "value"))

        def work(transaction: Transaction) -> Received:
            if key is not None and self.store.batch(key) is not None:
                done = transaction.commit(batch=key, digest=digest, reads=())
                return Received(done.version, 0, repeated=True)
            intake = Intake(transaction, self._tables, self._buckets)
            written = intake.keep(records)
            intake.take(written)
            done = transaction.commit(batch=key, digest=digest, reads=intake.reads)
            return Received(done.version, 0 if done.repeated else written.rows, done.repeated)

        return self._atomically(work)

    def sink(self, name: str) -> Callable[[DataFrame, int], Received]:
        """
        `receive` for a stream: `stream.writeStream.foreachBatch(feed.sink("orders")).start()`.

        Args:
            name: Of the stream, always the same: the batches that Spark counts are those of this name.  A
                stream that begins anew, with another checkpoint, needs another name.
        """
        return sink_of(self.receive, name)

    @doing("feed: give up what waited too long")
    def process(self, *, now: datetime | None = None, wait: timedelta = timedelta(seconds=10)) -> int:
        """
        Give up the data that has waited for its metadata for too long; returns how many records that are.

        They are rejects then, with the code METADATA_MISSING, until their metadata comes all the same.

        Args:
            now: The instant at which waiting is measured, aware; without it the clock's.
            wait: How long a record may wait, from its `timestamp` on.
        """
        at = datetime.now(UTC) if now is None else now
        instant = require_instant(at, "now", function="process")

        def work(transaction: Transaction) -> int:
            if not transaction.has(WAITING):
                return 0
            rows = _waiting(transaction.read(WAITING))
            overdue = F.col(GIVEN_UP).isNull() & (instant - F.col("timestamp") > F.lit(wait))
            found = rows.where(overdue).count()
            if found:
                given_up = F.when(overdue, instant).otherwise(F.col(GIVEN_UP))
                transaction.replace(WAITING, rows.withColumn(GIVEN_UP, given_up))
                transaction.commit()
            return found

        return self._atomically(work)

    @doing("feed: make ledgers anew")
    def rebuild(self, table: TableName | None = None) -> None:
        """
        Make the ledger of a table, or of all, anew from the records, by the settings as they are now.

        Cost: as for receiving all its records at once.
        """

        def work(transaction: Transaction) -> None:
            intake = Intake(transaction, self._tables, self._buckets)
            intake.rebuild(None if table is None else [table])
            transaction.commit(reads=intake.reads)

        self._atomically(work)

    # -----------------------------------------------------------------------------------------------------

    def _atomically(self, work: Callable[[Transaction], _Answer]) -> _Answer:
        def of_a_feed(transaction: Transaction) -> _Answer:
            require_kind(transaction.base, FEED)
            transaction.note(KIND, FEED)
            return work(transaction)

        return self.store.atomically(of_a_feed)

    def _snapshot(self) -> Snapshot:
        found = self.store.snapshot()
        require_kind(found, FEED)
        return found

    def _known(self, snapshot: Snapshot) -> dict[TableName, FeedTable]:
        return feed_tables(rows_of(snapshot, ZONE, ZONE_SCHEMA), self._tables)

    def _one(
        self,
        snapshot: Snapshot,
        table: str,
        task: str | None,
        server: str | None,
        schema: str | None,
        *,
        function: str,
    ) -> FeedTable:
        asked = {"table": table, "task": task, "server": server, "schema": schema}
        known = self._known(snapshot)
        found = [
            each
            for name, each in known.items()
            if all(value is None or getattr(name, part) == value for part, value in asked.items())
        ]
        if len(found) != 1:
            which = f"several: {', '.join(str(each) for each in found[:9])}" if found else "none"
            names = ", ".join(str(each) for each in list(known.values())[:20]) or "no table yet"
            raise InvalidArgument(function, "table", f"one of {names}", f"{which} of {asked}")
        return found[0]


_WAITING_SCHEMA = T.StructType([*RECEIVED_SCHEMA.fields, T.StructField(GIVEN_UP, T.TimestampType())])
_REJECTS_SCHEMA = T.StructType([*REJECT_SCHEMA.fields, T.StructField("of_table", T.StringType())])


def _rejected(snapshot: Snapshot) -> DataFrame:
    kept = rows_of(snapshot, REJECTS, _REJECTS_SCHEMA).select(*REJECT_SCHEMA.fieldNames())
    given_up = _waiting(rows_of(snapshot, WAITING, _WAITING_SCHEMA)).where(F.col(GIVEN_UP).isNotNull())
    fault = ReplicateFault.METADATA_MISSING
    named = given_up.withColumns({ERROR_CODE: F.lit(fault.value), ERROR_DESCRIPTION: F.lit(fault.sentence)})
    found = kept.unionByName(named.select(*REJECT_SCHEMA.fieldNames()))
    return found.withColumn("content", _content()).dropDuplicates([*_PLACE, ERROR_CODE]).drop("content")


def _waiting(rows: DataFrame) -> DataFrame:
    """The rows of what waits, each record once: if it came again after it was given up, it is given up."""
    given_up = F.max(GIVEN_UP).over(Window.partitionBy(*_PLACE))
    found = rows.withColumn("content", _content()).withColumn(GIVEN_UP, given_up)
    return found.dropDuplicates([*_PLACE]).drop("content")


_PLACE = ("topic", "partition", "offset", "content")


def _content() -> Column:
    """Part of which record it is: a topic that was made anew counts its offsets from 0 again."""
    return F.xxhash64("key", "value")
