"""A feed that is kept up: records in; out a ledger for each table, what waits, and what is rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger import View
from cdckit.ledger.kind import Kind
from cdckit.model.faults import ERROR_CODE
from cdckit.model.rejected_records import usable_changes
from cdckit.parts.job_descriptions import describe_jobs
from cdckit.parts.workers import local_frame
from cdckit.replicate.decoding import WAIT
from cdckit.replicate.intake import RECEIVED_SCHEMA, FeedTable, Intake, feed_tables, read_zone, require_topics
from cdckit.replicate.row_changes import TableName, TableSettings, changes, find_without_key
from cdckit.shell.shell import WorkResult
from cdckit.shell.table_feed import RECORDS, TableFeed
from cdckit.store import Snapshot, Transaction
from cdckit.store.store import read_rows

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


class Feed(TableFeed):
    """
    What Replicate sends, kept up as it comes: a ledger for each table, in one store.

    Records may come in any order and any batches, of all tables together: metadata in mid-stream, DDL,
    data before its metadata.  What the ledgers hold is at any time what `table_changes` and `merge` would
    give for all records that were received; but of two layouts of one schema id the one that came first to
    the feed stands.  Everything that came is kept, so everything can be made anew.

    What waits are the data that no table reads: they came before their metadata, or on a topic that the
    settings of no table name; or their schema id is that of several tables, which stay as they are until the
    settings name the topics of each: until then nobody can be erased from these.  They wait for ten seconds
    from the time of their records on, or as long as `expire` is told; `waiting` shows them with `form` and
    `schema_id`, each record once, however often it came.  Given up, they are rejects (METADATA_MISSING), also
    if they come again.

    Rejects are also the rows that do not say their key; those of a table that has none are in no ledger
    (`without_key`).  The result's `notes` and a warning count both.

    Its verbs and most of its questions are those of every `Shell`.

    Args:
        spark, location, storage_options: As for `Shell`.
        tables: What is to be known of single tables beyond their metadata.

    Raises:
        InvalidArgument: *tables* is no mapping of names to settings.
        OtherKind, NoFileSystem, DamagedTable: As for `Shell`.

    Cost:
        `receive` is two small jobs, in which the records are kept; one in every sixteenth batch or so,
        which writes small files of earlier ones together; some six more if metadata came; two if some of
        the batch's data has to wait, which is written once more; one as long as data waits, which reads
        three columns of it, and two more when some waits no longer.  Then, for each table of which rows
        came, its rows are written once more, in two jobs, and two jobs of its ledger; of few rows one each.
        A table whose older rows read otherwise by new metadata, as after a change of its key or of a type, or
        after any change of it where its messages are in JSON form, is made anew from its records.

    Source:
        Replicate, "Typical consumer logic" and "wait a reasonable amount of time … activate the planned
        error policy".

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import samples
    >>> records = session().read.parquet(samples("replicate/{metadata,schedule}.parquet"))
    >>> some = records.where("topic in ('flights.metadata', 'schedule.airlines')")
    >>> with TemporaryDirectory() as folder:
    ...     feed = Feed(session(), folder)
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

    kind = "Replicate feed (form 3)"
    received = RECEIVED_SCHEMA
    wait = WAIT

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        tables: Mapping[TableName, TableSettings] | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self._tables = dict(tables or {})
        for name, settings in self._tables.items():
            if not isinstance(name, TableName) or not isinstance(settings, TableSettings):
                needed = "a mapping of TableName to TableSettings"
                raise InvalidArgument(None, "tables", needed, (name, settings))
        named = Counter(topic for settings in self._tables.values() for topic in {*settings.json_topics})
        if twice := [topic for topic, count in named.items() if count > 1]:
            needed = "each topic among the json_topics of one table: a message in JSON form names none"
            raise InvalidArgument(None, "tables", needed, twice)
        super().__init__(spark, location, storage_options)

    # What the shell asks for -------------------------------------------------------------------------------

    def _take(self, tables: Transaction, records: DataFrame) -> WorkResult:
        intake = Intake(tables, self._tables)
        written = intake.keep(records)
        intake.take(written)
        return WorkResult(written.rows, intake.reads, intake.notes)

    def _rebuild(self, tables: Transaction, table: TableName | None = None) -> WorkResult:
        intake = Intake(tables, self._tables)
        intake.rebuild(None if table is None else [table])
        return WorkResult(reads=intake.reads)

    def _kinds(self, tables: Snapshot) -> Mapping[str, Kind]:
        with_key = [table for table in feed_tables(tables, self._tables).values() if table.keys]
        return {str(table): table.kind for table in with_key}

    def _changes_of(self, tables: Transaction, name: str) -> DataFrame:
        table = {str(table): table for table in feed_tables(tables, self._tables).values()}[name]
        require_topics([table])
        return usable_changes(changes(table.rows(tables.read(RECORDS)), keys=table.keys))

    def _shown(self) -> Sequence[str]:
        return "form", "schema_id"

    def _contracts(self, tables: Snapshot) -> dict[str, object]:
        return {**super()._contracts(tables), "schema_zone": (read_zone(tables), "schema_zone")}

    # Its own ----------------------------------------------------------------------------------------------

    @describe_jobs("feed: make ledgers anew")
    def rebuild(self, table: TableName | None = None) -> None:
        """
        Make the ledger of a table anew from the records; without one as `Shell.rebuild`.

        Those of tables that have other settings than before are made anew with it, and of those that read
        now what these may have read.

        Cost: as for receiving all its records at once.
        """
        self._commit(lambda tables: self._rebuild(tables, table))

    def schema_zone(self) -> DataFrame:
        """Tell what each schema id stands for (see `schema_zone`)."""
        return read_zone(self._snapshot())

    def tables(self) -> DataFrame:
        """One row per table that the metadata knows (`TABLES_SCHEMA`)."""
        snapshot = self._snapshot()
        tables = feed_tables(snapshot, self._tables)
        rows = [
            (*table.name, table.entity, list(table.keys), snapshot.has(table.kind.changes))
            for table in tables.values()
        ]
        return local_frame(self._spark, rows, TABLES_SCHEMA)

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
        snapshot = self._snapshot(version, timestamp)
        # By the metadata of that commit: the table may have had another key then.
        feed_table = self._find_table(snapshot, table, task, server, schema)
        if not feed_table.keys:
            needed = "a table with a key: give it one in TableSettings(keys=...) and rebuild"
            raise InvalidArgument(None, "table", needed, str(feed_table))
        return View(snapshot, feed_table.kind.stored_kind(snapshot))

    def without_key(
        self, table: str, *, task: str | None = None, server: str | None = None, schema: str | None = None
    ) -> DataFrame:
        """
        The rows of a table that do not say which entity they are about (see `find_without_key`).

        Cost: reads all records of the table.
        """
        snapshot = self._snapshot()
        feed_table = self._find_table(snapshot, table, task, server, schema)
        received = read_rows(snapshot, RECORDS, RECEIVED_SCHEMA)
        rows = feed_table.rows(received)
        if not feed_table.keys:
            return rows.where(F.col(ERROR_CODE).isNull())
        return find_without_key(rows, keys=feed_table.keys)

    def _find_table(
        self,
        snapshot: Snapshot,
        table: str,
        task: str | None,
        server: str | None,
        schema: str | None,
    ) -> FeedTable:
        wanted = {"table": table, "task": task, "server": server, "schema": schema}
        tables = feed_tables(snapshot, self._tables)
        matches = [
            feed_table
            for name, feed_table in tables.items()
            if all(value is None or getattr(name, part) == value for part, value in wanted.items())
        ]
        if len(matches) != 1:
            which = f"several: {', '.join(map(str, matches[:9]))}" if matches else "none"
            names = ", ".join(map(str, [*tables.values()][:20])) or "no table yet"
            raise InvalidArgument(None, "table", f"one of {names}", f"{which} of {wanted}")
        return matches[0]
