"""One batch of records on its way into a feed's tables, within a transaction of its store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.ledger.shared_transaction import apply_within
from cdckit.records import RECORD_COLUMNS
from cdckit.rejected import ERROR_CODE, REJECT_SCHEMA
from cdckit.replicate.envelope import DATA, METADATA, decode
from cdckit.replicate.feed_tables import (
    ADDRESS,
    GIVEN_UP,
    RECEIVED_SCHEMA,
    RECORDS,
    REJECTS,
    WAITING,
    ZONE,
    FeedTable,
    feed_tables,
    is_data,
    json_topics,
)
from cdckit.replicate.many_tables import TableName
from cdckit.replicate.row_changes import changes
from cdckit.replicate.schema_messages import ZONE_SCHEMA, metadata, schema_zone
from cdckit.replicate.settings import TableSettings
from cdckit.replicate.table_rows import rows_of_table
from cdckit.replicate.waiting_rows import with_waits
from cdckit.store import Transaction
from cdckit.store.store import read_some, rows_of
from cdckit.store.transaction import Scope
from cdckit.store.writing import Written

MANY_FILES = 16
"""So many small files of the records, or of the rejects, are written together: each batch adds some."""

_NOTE = "cdckit.feed"


_Address = tuple[str | None, str | None, str]
"""What says of which table a data message is: its form, its schema id, and its topic."""


class _Ready(NamedTuple):
    """The data that can be read now, and what addresses are among it."""

    data: DataFrame
    addresses: set[_Address]


class Intake:
    """
    What a transaction does with records: first `keep`, then `take`; or `rebuild` alone.

    Attributes:
        reads: What the transaction has gone by, for its commit.
    """

    def __init__(
        self, transaction: Transaction, settings: Mapping[TableName, TableSettings], buckets: int | None
    ) -> None:
        self._transaction, self._settings, self._buckets = transaction, settings, buckets
        self.reads: list[Scope] = [ZONE, WAITING]

    def keep(self, records: DataFrame) -> Written:
        """Write the records as they came, with what their envelopes say."""
        opened = decode(records.select(*RECORD_COLUMNS)).select(*RECEIVED_SCHEMA.fieldNames())
        return self._transaction.append(RECORDS, opened)

    def take(self, written: Written) -> None:
        """Bring the other tables up to records that were kept."""
        if not written.files:
            return
        came = self._transaction.read(RECORDS, files=written.files)
        is_sound = F.col(ERROR_CODE).isNull().alias("is_sound")
        sorts = came.select("type", is_sound, *ADDRESS).distinct().collect()
        before = self._tables()
        learns = any(row["type"] == METADATA and row["is_sound"] for row in sorts)
        if learns:
            self._learn(came)
        if any(not row["is_sound"] for row in sorts):
            self._reject(came.where(F.col(ERROR_CODE).isNotNull()))
        now = self._tables() if learns else before
        addresses = {_address(row) for row in sorts if row["type"] == DATA and row["is_sound"]}
        ready = self._sort_out(came, addresses, now)
        self._require_settings(now)
        for name, table in now.items():
            earlier = before.get(name)
            if earlier is not None and self._is_begun(table) and not table.goes_on_from(earlier):
                self._make_anew(table)
            elif table.is_among(ready.addresses):
                self._add(table, table.of(ready.data))
        for grown in (RECORDS, REJECTS):
            if self._transaction.has(grown):
                self._transaction.compact(grown, files=MANY_FILES)

    def rebuild(self, names: Iterable[TableName] | None) -> None:
        """Make the ledgers of these tables anew, of all for None; by the settings as they are now."""
        known = self._tables()
        chosen = set(known if names is None else names)
        for name in chosen - set(known):
            raise InvalidArgument("rebuild", "table", "one that the metadata knows", str(name))
        # By other settings than before, messages in JSON form may have a table that they waited for.
        healed = self._healed(known)
        for name, table in known.items():
            if name in chosen:
                self._make_anew(table)
            elif healed is not None and table.is_among(healed.addresses):
                self._add(table, table.of(healed.data))

    # -----------------------------------------------------------------------------------------------------

    def _tables(self) -> dict[TableName, FeedTable]:
        zone = self._read(ZONE)
        return {} if zone is None else feed_tables(zone, self._settings)

    def _learn(self, came: DataFrame) -> None:
        """Read the metadata messages, and let the zone know what they say."""
        zone = self._read(ZONE)
        messages = came.where((F.col("type") == METADATA) & F.col(ERROR_CODE).isNull())
        said = self._transaction.scratch(metadata(decode(messages.select(*RECORD_COLUMNS)), known=zone))
        self._transaction.replace(ZONE, schema_zone(said, known=zone))
        self._reject(said.where(F.col(ERROR_CODE).isNotNull()))

    def _sort_out(
        self, came: DataFrame, addresses: set[_Address], tables: Mapping[TableName, FeedTable]
    ) -> _Ready:
        """Let what has no schema wait, and return what has one now, what waited for it among it."""
        healed = self._healed(tables)
        data = came.where(is_data())
        if all(any(each.is_meant(*address) for each in tables.values()) for address in addresses):
            return _together(_Ready(data, addresses), healed)
        sorted_out = self._transaction.scratch(self._with_waits(data, tables))
        found = _by_waiting(sorted_out)
        if found[True]:
            waits = sorted_out.where("waits").drop("waits")
            in_time = waits.withColumn(GIVEN_UP, F.lit(None).cast("timestamp"))
            self._transaction.append(WAITING, in_time, compact_at=MANY_FILES)
        ready = sorted_out.where("not waits").drop("waits")
        return _together(_Ready(ready, found[False]), healed)

    def _healed(self, tables: Mapping[TableName, FeedTable]) -> _Ready | None:
        """What waited and waits no longer: it is taken out of what waits."""
        waited = self._read(WAITING)
        if waited is None:
            return None
        sorted_out = self._with_waits(waited, tables)
        # Each batch reads three columns of what waits; rows are written only where some wait no longer.
        healed = _by_waiting(sorted_out)[False]
        if not healed:
            return None
        kept = self._transaction.scratch(sorted_out)
        self._transaction.replace(WAITING, kept.where("waits").drop("waits"))
        return _Ready(kept.where("not waits").drop("waits", GIVEN_UP), healed)

    def _with_waits(self, data: DataFrame, tables: Mapping[TableName, FeedTable]) -> DataFrame:
        zone = rows_of(self._transaction, ZONE, ZONE_SCHEMA)
        return with_waits(data, zone, json_topics(tables.values()))

    def _add(self, table: FeedTable, received: DataFrame) -> None:
        """Take the rows of a table: its changes into its ledger, what is in error to the rejects."""
        self._transaction.note(self._note(table), table.settings.text())
        read = rows_of_table(
            received.select(*RECORD_COLUMNS), table.table, function="receive", **table.reading
        )
        rows = self._transaction.scratch(read)
        found = {
            row["is_sound"]
            for row in rows.select(F.col(ERROR_CODE).isNull().alias("is_sound")).distinct().collect()
        }
        if False in found:
            self._reject(rows.where(F.col(ERROR_CODE).isNotNull()), table)
        if True in found and table.keys:
            kind = table.kind(self._buckets)
            self.reads += apply_within(self._transaction, kind, changes(rows, keys=table.keys))

    def _make_anew(self, table: FeedTable) -> None:
        kind = table.kind(self._buckets)
        for name in (kind.changes, kind.history, kind.unborn):
            self._transaction.drop(name)
        kind.forget(self._transaction)
        rejects = self._read(REJECTS)
        if rejects is not None:
            self._transaction.replace(REJECTS, rejects.where(~F.col("of_table").eqNullSafe(str(table))))
        self.reads += [RECORDS, REJECTS]
        received = self._read(RECORDS)
        if received is not None:
            self._add(table, table.of(received))

    def _reject(self, rows: DataFrame, table: FeedTable | None = None) -> None:
        of_table = F.lit(None if table is None else str(table)).cast("string").alias("of_table")
        self._transaction.append(REJECTS, rows.select(*REJECT_SCHEMA.fieldNames(), of_table))

    def _read(self, name: str) -> DataFrame | None:
        return read_some(self._transaction, name)

    def _is_begun(self, table: FeedTable) -> bool:
        return self._transaction.note_of(self._note(table)) is not None

    def _require_settings(self, tables: Mapping[TableName, FeedTable]) -> None:
        for table in tables.values():
            noted = self._transaction.note_of(self._note(table))
            if noted not in (None, table.settings.text()):
                needed = f"settings for {table} as its ledger was made with; rebuild makes it anew by these"
                raise InvalidArgument("receive", "tables", needed, table.settings)

    def _note(self, table: FeedTable) -> str:
        return f"{_NOTE}:{table}"


def _together(came: _Ready, healed: _Ready | None) -> _Ready:
    if healed is None:
        return came
    return _Ready(came.data.unionByName(healed.data), came.addresses | healed.addresses)


def _by_waiting(sorted_out: DataFrame) -> dict[bool, set[_Address]]:
    """The addresses of the data that waits, and of the data that does not."""
    found: dict[bool, set[_Address]] = {True: set(), False: set()}
    for row in sorted_out.select("waits", *ADDRESS).distinct().collect():
        found[row["waits"]].add(_address(row))
    return found


def _address(row: Row) -> _Address:
    form, schema_id, topic = (row[name] for name in ADDRESS)
    return form, schema_id, topic
