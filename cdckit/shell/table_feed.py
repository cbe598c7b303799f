"""A door whose records are of tables: what it keeps of them, and how each table gets a ledger."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import ClassVar

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.erasure.receipts import ErasedPart
from cdckit.ledger.erasure.tombstones import erased_changes
from cdckit.ledger.intake import apply_within
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.model.rejected_records import ERROR_FIELDS, REJECT_SCHEMA
from cdckit.parts.arguments import typed_nulls
from cdckit.parts.guids import guid
from cdckit.parts.workers import compute_once
from cdckit.shell.record_places import PLACE, record_place, rewrite_places
from cdckit.shell.shell import MANY_FILES, Shell, content_hash
from cdckit.shell.waiting import GIVEN_UP, WAITING, give_up_overdue
from cdckit.store import Snapshot, Transaction
from cdckit.store.conflicts import Scope
from cdckit.store.store import Tables, read_rows, read_some
from cdckit.store.writing import WriteResult

RECORDS, REJECTS = "records", "rejects"

OF_TABLE = "of_table"
"""The column that says of which table something is, by its name; null where it is of none."""

WAITING_FOR = "waiting_for"
"""The column of a sentence."""

ERASED = "ERASED"
"""In place of an error's code: of records that are no more than the places where they stood."""

REJECTED_SCHEMA = T.StructType([*REJECT_SCHEMA.fields, T.StructField(OF_TABLE, T.StringType())])

PLACES = ("topic", "partition", "offset")
_VALUES = ("key", "value", "headers")


def waiting_schema(received: T.StructType) -> T.StructType:
    """Build the schema of records that wait: for what, what is wrong if given up, and when they were."""
    errors = [field for field in ERROR_FIELDS if field.name not in received.names]
    more = [T.StructField(WAITING_FOR, T.StringType()), T.StructField(GIVEN_UP, T.TimestampType())]
    return T.StructType([*received.fields, *errors, *more])


def without_values(received: DataFrame) -> DataFrame:
    """Received records that were erased: where each stood, and that it was erased."""
    nothing = typed_nulls(RECORD_SCHEMA, _VALUES)
    error = {ERROR_CODE: F.lit(ERASED), ERROR_DESCRIPTION: F.lit("The record spoke of what was erased.")}
    named = {name: column for name, column in error.items() if name in received.columns}
    return received.withColumns({**nothing, **named})


def content_of_record() -> Column:
    """Part of which record it is: a topic that was made anew counts its offsets from 0 again."""
    return content_hash(["key", "value"])


def each_once(rows: DataFrame, *by: str) -> DataFrame:
    """Rows of records, each record once, or once for each of some columns."""
    named = rows.withColumn("content", content_of_record())
    return named.dropDuplicates([*PLACES, "content", *by]).drop("content")


class TableFeed(Shell):
    """A shell of a ledger for each table, with records as they came, those that wait, and what is refused."""

    received: ClassVar[T.StructType]
    """What is kept of a record: its columns, and those by which it is found again."""

    @abstractmethod
    def _shown(self) -> Sequence[str | Column]:
        """Show in `waiting` these columns beside those of a record."""

    def _expire(self, tables: Transaction, now: datetime, wait: timedelta) -> int:
        if not tables.has(WAITING):
            return 0
        rows, count = give_up_overdue(self._read_waiting(tables), F.col("timestamp"), now, wait)
        if count:
            tables.replace(WAITING, rows)
        return count

    def _waiting(self, tables: Snapshot) -> DataFrame:
        waiting = self._read_waiting(tables).where(F.col(GIVEN_UP).isNull())
        since = F.col("timestamp").alias("waiting_since")
        return waiting.select(*RECORD_COLUMNS, *self._shown(), since, WAITING_FOR)

    @abstractmethod
    def _changes_of(self, tables: Transaction, name: str) -> DataFrame:
        """Read the changes of the ledger *name* from all records, repeats included."""

    def _places(self, tables: Transaction, kind: Kind, entities: DataFrame) -> DataFrame:
        """The places of all records of entities: a log keeps one of several that are one message."""
        key = {name: F.col("data").getField(name) for name in kind.keys}
        named = self._changes_of(tables, kind.name).withColumn(GUID, guid(kind.entity, key))
        of_them = named.join(entities.select(GUID), GUID, "left_semi")
        return of_them.select(record_place("arrival.").alias(PLACE)).distinct()

    def _rejects(self, tables: Snapshot) -> DataFrame:
        given_up = self._read_waiting(tables).where(F.col(GIVEN_UP).isNotNull())
        rejected = read_rows(tables, REJECTS, REJECTED_SCHEMA)
        rows = (rejects.select(*REJECT_SCHEMA.names) for rejects in (rejected, given_up))
        return each_once(reduce(DataFrame.unionByName, rows), ERROR_CODE)

    def _read_waiting(self, tables: Tables) -> DataFrame:
        """Read what waits, each record once: if it came again after it was given up, it is given up."""
        rows = read_rows(tables, WAITING, waiting_schema(self.received))
        record = Window.partitionBy(*PLACES, content_of_record())
        return each_once(rows.withColumn(GIVEN_UP, F.max(GIVEN_UP).over(record)))

    def _forget(self, tables: Transaction, places: DataFrame) -> list[ErasedPart]:
        changes = {RECORDS: without_values, REJECTS: None, WAITING: None}
        rewritten = (rewrite_places(tables, name, places, change) for name, change in changes.items())
        return [part for parts in rewritten for part in parts]

    def _contracts(self, tables: Snapshot) -> dict[str, object]:
        return {"records": (read_rows(tables, RECORDS, self.received).select(*RECORD_COLUMNS), "records")}


class TableIntake:
    """
    What a transaction does with records of tables, which are kept with the columns *received*.

    Attributes:
        reads: What it has gone by, for its commit.
        notes: What its caller should know of the batch, in sentences.
    """

    received: ClassVar[T.StructType]

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.reads: list[Scope] = [WAITING]
        self._erased: list[DataFrame] = []
        self._has_healed = False
        """Whether records that came with earlier batches are read."""
        self._rejected: list[int] = []  # by tables that are taken side by side
        self.notes: list[str] = []

    def _keep(self, rows: DataFrame) -> WriteResult:
        """Write records as they came."""
        return self._transaction.append(RECORDS, rows.select(*self.received.fieldNames()))

    def _let_wait(self, rows: DataFrame, waiting_for: Column, code: Column, description: Column) -> int:
        """Let records wait, which are in error if they are given up; how many they are."""
        columns = {
            WAITING_FOR: waiting_for,
            ERROR_CODE: code,
            ERROR_DESCRIPTION: description,
            GIVEN_UP: F.lit(None).cast("timestamp_ltz"),
        }
        waiting_rows = rows.withColumns(columns).select(*waiting_schema(self.received).fieldNames())
        return self._transaction.append(WAITING, waiting_rows, compact_at=MANY_FILES).rows

    def _take_waiting(self, waiting: DataFrame, is_ready: Column) -> DataFrame:
        """Take what is ready out of what waits, and return it as it had come."""
        self._has_healed = True
        # The table's old files stay on disk, so what they hold can be read after it has others.
        names = waiting_schema(self.received).fieldNames()
        self._transaction.replace(WAITING, waiting.where(~is_ready).select(*names))
        sound = typed_nulls(REJECT_SCHEMA, (ERROR_CODE, ERROR_DESCRIPTION))
        return waiting.where(is_ready).withColumns(sound).select(*self.received.fieldNames())

    def _reject(self, rows: DataFrame, of_table: Column | None = None) -> None:
        """Keep rows in error, and of which tables they are."""
        named = (F.lit(None) if of_table is None else of_table).cast("string").alias(OF_TABLE)
        written = self._transaction.append(REJECTS, rows.select(*REJECT_SCHEMA.names, named))
        self._rejected.append(written.rows)

    def _apply(self, kind: Kind, stated: DataFrame, share: float = 1) -> None:
        """Take changes into a ledger, which are this *share* of what their plan reads."""
        erased = erased_changes(stated, self._transaction, kind)
        if erased is not None:
            self._erased.append(erased.select(record_place("arrival.").alias(PLACE)))
        self.reads += apply_within(self._transaction, kind, stated, share)

    def _drop_ledger(self, kind: Kind, of_table: str) -> None:
        """Let there be no ledger of a table, and no rejects of it: it is made anew from its records."""
        self._has_healed = True
        kind.forget(self._transaction)
        rejects = self._read(REJECTS)
        if rejects is not None:
            self._transaction.replace(REJECTS, rejects.where(~F.col(OF_TABLE).eqNullSafe(of_table)))
        self.reads += [RECORDS, REJECTS]

    def _finish(self, written: WriteResult | None = None) -> None:
        """
        Let records of entities that were erased be their places alone, and write small files together.

        It looks at the records *written* now; without them at all, as in a rebuild.
        """
        if any(self._rejected):
            self.notes.append(f"records that cannot be used, see rejects(): {sum(self._rejected)}")
        if self._erased:
            places = compute_once(reduce(DataFrame.unionByName, self._erased).distinct())
            # A record that waited has come into the table with an earlier batch.
            among = None if written is None or self._has_healed else list(written.files)
            if places is not None:
                rewrite_places(self._transaction, RECORDS, places, without_values, among)
        for grown in (RECORDS, REJECTS):
            if self._transaction.has(grown):
                self._transaction.compact(grown, files=MANY_FILES)

    def _read(self, name: str) -> DataFrame | None:
        return read_some(self._transaction, name)
