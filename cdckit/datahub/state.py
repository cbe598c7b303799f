"""What a hub knows: its tables as one commit names them, and what follows from them."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.existence import UNAPPLIED_COLUMNS
from cdckit.datahub.exports import EXPORTED_COLUMNS, export_rows, with_positions
from cdckit.datahub.message_store import DECODED_SCHEMA, MESSAGE_SCHEMA, identity, with_statuses
from cdckit.datahub.outcomes import message_log, record_log
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statement_changes import Derived
from cdckit.datahub.statements import statement_schema
from cdckit.datahub.statuses import STATUS_SCHEMA, Status
from cdckit.merging import history_schema
from cdckit.parts.schemas import flat_columns
from cdckit.store import Transaction
from cdckit.store.store import Tables, note, noted, read_some, rows_of

HUB = "data hub (form 1)"
"""What is noted in the store: the kind of what is kept there, and the version of its form."""

MANY_FILES = 16
"""So many small files are written together: a table that grows by the run has a bounded number."""

MESSAGES, STATUSES, UNAPPLIED = "messages", "statuses", "unapplied"
STATEMENTS, HISTORY, EXPORTED = "statements", "history", "exported"
"""
The tables of which there is one (`UNAPPLIED` has what waits, and what looking at all found wrong), and the
kinds of those of which each target has its own.
"""

RECEIVED, PROCESSED, RUN, SCHEMA, REFRESHED = "received", "processed", "run", "schema", "refreshed"
"""
The notes: how many times messages were received, how many of those the runs have read, the name of the last
run, the schema by which it read, and the targets of which there ever was a refresh.

Messages are only ever appended, each with the number of its receipt: so whoever receives some while a run is
under way is not in its way.
"""

RECEIVED_SCHEMA = T.StructType(
    [*DECODED_SCHEMA.fields, *flat_columns("status integer, received long, batch string")]
)
"""One row is one record that was received: what it holds, its status then, in which receipt and batch."""


def table(kind: str, entity: str) -> str:
    """The name of a target's table."""
    return f"{kind}.{entity}"


class State(Derived):
    """What a hub knows, and what follows from it, by the schema by which its messages were read."""

    def __init__(self, schema: Schema, tables: Tables) -> None:
        super().__init__(schema)
        self._tables = tables

    def read(self, name: str) -> DataFrame | None:
        """A table; None if there is none of that name."""
        return self._tables.read(name) if self._tables.has(name) else None

    @property
    def stated(self) -> list[str]:
        """The targets of which anything was said that are merged, parents before their children."""
        return [each for each in self.schema.families if self._tables.has(table(STATEMENTS, each))]

    def received(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """All records that were received, or those of some receipts, in `RECEIVED_SCHEMA`."""
        return rows_of(self._tables, MESSAGES, RECEIVED_SCHEMA, {"received": (first, last)})

    def receipts(self, number: int | None, batch: str | None) -> DataFrame:
        """The receipts of one time, or of a batch, whenever it was received."""
        rows = self.received(number, number)
        ours = rows if batch is None else rows.where(F.col("batch") == batch)
        place = ("topic", "partition", "offset")
        return ours.select(*place, "message_identifier", "status", "error_code", "error_description")

    def stored(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """The messages among them, each once, in `MESSAGE_SCHEMA`."""
        is_stored = f"status = {int(Status.NOT_PROCESSED)}"
        return self.received(first, last).where(is_stored).select(*MESSAGE_SCHEMA.names)

    messages = stored

    def waiting(self) -> DataFrame | None:
        """The statements that wait, and for what: `statement`, `missing`; None if there are none."""
        found = read_some(self._tables, UNAPPLIED)
        return None if found is None else found.where("missing IS NOT NULL")

    def statuses(self) -> DataFrame:
        """The messages that runs have processed, and where they stand (`STATUS_SCHEMA`)."""
        return rows_of(self._tables, STATUSES, STATUS_SCHEMA)

    def exported(self, entity: str) -> DataFrame:
        """The records of an export target, each with its position."""
        rows = export_rows(self.schema, entity, self.applied(entity))
        return with_positions(rows, self.known_exports(entity))

    def known_exports(self, entity: str) -> DataFrame:
        """What the runs so far have exported of a target."""
        return rows_of(self._tables, table(EXPORTED, entity), EXPORTED_COLUMNS)

    def history(self, entity: str) -> DataFrame:
        """The history of a target."""
        return rows_of(self._tables, table(HISTORY, entity), history_schema(self.schema.targets[entity].data))

    def log(self) -> DataFrame:
        """What became of each record, and of the messages that the schema has no place for."""
        waiting, some = self.waiting(), self.entities or list(self.schema.targets)[:1]
        records = reduce(
            DataFrame.unionByName, (record_log(self.processed(each), waiting, each) for each in some)
        )
        return records.unionByName(message_log(self.statuses()), allowMissingColumns=True)

    @property
    def entities(self) -> list[str]:
        """The targets of which anything was said, exported ones too."""
        return [each for each in self.schema.targets if self._tables.has(table(STATEMENTS, each))]

    def statements(self, entity: str) -> DataFrame:
        """All statements about a target; none if nothing was ever said of it."""
        return rows_of(self._tables, table(STATEMENTS, entity), statement_schema(self.schema.targets[entity]))

    def looked_up(self, kind: str, entity: str, rows: DataFrame) -> DataFrame | None:
        """What the last run has found in the place of *rows*; themselves before the first one."""
        name = table(kind, entity)
        return read_some(self._tables, name) if self._tables.has(name) else rows

    def may_be_refreshed(self, entity: str) -> bool:
        """Whether there ever was a refresh of the target."""
        return entity in noted(self._tables, REFRESHED, [])

    def known_history(self, entity: str) -> DataFrame | None:
        """The history of a target as the last run has left it."""
        return self.read(table(HISTORY, entity))

    def unapplied(self) -> DataFrame:
        """The statements that wait, and those that a look at all entities found wrong."""
        return rows_of(self._tables, UNAPPLIED, UNAPPLIED_COLUMNS)


def appended(tables: Transaction, *, schema: Schema, decoded: DataFrame, batch: str | None) -> int:
    """Append decoded records to those that were received; the number of the receipt."""
    number = int(noted(tables, RECEIVED, 0)) + 1
    earlier = State(schema, tables).received().where(F.col("status") != int(Status.PREVIOUSLY_RECEIVED))
    said = with_statuses(decoded, earlier.select(identity().alias("identity")))
    receipt = {"received": F.lit(number).cast("long"), "batch": F.lit(batch).cast("string")}
    tables.append(MESSAGES, said.withColumns(receipt), compact_at=MANY_FILES)
    note(tables, RECEIVED, number)
    return number
