"""One batch of records on its way into a feed's tables, and rows that wait for their metadata."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.kind import BUCKETS, Kind
from cdckit.ledger.shell import GIVEN_UP, WAITING
from cdckit.ledger.table_feed import RECORDS, TableIntake
from cdckit.model.records import ERROR_CODE, ERROR_FIELDS, RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.parts.workers import run_together
from cdckit.replicate.decoding import ZONE_SCHEMA, decode, metadata, schema_zone, with_waits
from cdckit.replicate.envelopes import DATA, METADATA, ReplicateFault
from cdckit.replicate.metadata_messages import table_text
from cdckit.replicate.row_changes import TableName, TableSettings, by_table, changes
from cdckit.replicate.table_rows import collect_zone, rows_of_table
from cdckit.replicate.table_versions import Table, make_table
from cdckit.store import Transaction
from cdckit.store.files import hold_few_rows
from cdckit.store.store import read_rows
from cdckit.store.writing import WriteResult

ZONE = "schema_zone"

ADDRESS = ("form", "schema_id", "topic")
"""The columns of a received record that say of which table it is."""

RECEIVED_SCHEMA = T.StructType(
    [
        *RECORD_SCHEMA.fields,
        T.StructField("form", T.StringType()),
        T.StructField("type", T.StringType()),
        T.StructField("schema_id", T.StringType()),
        *ERROR_FIELDS,
    ]
)
"""One row is one record as it came, and what its envelope says of it: enough to find it again."""


@dataclass(frozen=True)
class FeedTable:
    """One table as a feed reads it: what the metadata says, and what the feed was told."""

    name: TableName
    table: Table
    settings: TableSettings

    @property
    def entity(self) -> str:
        """The name of the kind of entity."""
        return self.settings.entity or self.name.table

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; none if there is none."""
        return tuple(self.settings.keys or self.table.keys)

    @property
    def reading(self) -> Mapping[str, Any]:
        """How its rows are read: arguments of `rows_of_table`."""
        settings = self.settings
        return {
            "json_topics": settings.json_topics,
            "topics": settings.topics,
            "loaded_at": settings.loaded_at,
        }

    def kind(self, buckets: int | None) -> Kind:
        """Describe its ledger."""
        return Kind(self.entity, self.keys, buckets or BUCKETS, False, str(self))

    @property
    def _addresses(self) -> list[dict[str, Collection[str]]]:
        """What the address of its data may be, in Avro and in JSON form: by column, the values."""
        in_avro: dict[str, Collection[str]] = {
            "form": ["avro"],
            "schema_id": [version.schema_id for version in self.table.versions],
        }
        if self.settings.topics is not None:
            in_avro["topic"] = self.settings.topics
        return [in_avro, {"form": ["json"], "topic": self.settings.json_topics}]

    def keep_own(self, received: DataFrame) -> DataFrame:
        """Keep the data among received records that can be of this table."""
        in_form = (
            reduce(and_, (F.col(name).isin([*values]) for name, values in address.items()))
            for address in self._addresses
        )
        return received.where(is_data() & reduce(or_, in_form))

    def reads_address(self, *address: str | None) -> bool:
        """Tell whether data with this address can be of this table."""
        parts = dict(zip(ADDRESS, address, strict=True))
        return any(all(parts[name] in values for name, values in form.items()) for form in self._addresses)

    def reads_any(self, addresses: Iterable[tuple[str | None, str | None, str]]) -> bool:
        """Tell whether data with one of these addresses can be of this table."""
        return any(self.reads_address(*address) for address in addresses)

    def continues(self, before: FeedTable) -> bool:
        """Tell whether rows that were read as of *before* read the same now, but for columns that came."""
        types = {field.name: field.type for field in self.table.fields}
        return (
            self.keys == before.keys
            and all(version in self.table.versions for version in before.table.versions)
            and all(types.get(field.name) == field.type for field in before.table.fields)
        )

    def __str__(self) -> str:
        return table_text(self.name._asdict())


def is_data() -> Column:
    """Tell whether a received record is a sound data message."""
    return (F.col("type") == DATA) & F.col(ERROR_CODE).isNull()


def feed_tables(zone: DataFrame, settings: Mapping[TableName, TableSettings]) -> dict[TableName, FeedTable]:
    """The tables that a zone knows; collects it."""
    tables = {}
    for name, statements in by_table(collect_zone(zone)).items():
        table_settings = settings.get(name, TableSettings())
        table = make_table(statements, function="Feed")
        tables[name] = FeedTable(name, table, table_settings)
    return tables


def json_topics(tables: Iterable[FeedTable]) -> list[str]:
    """The topics whose messages in JSON form have a table that is known."""
    return sorted({topic for table in tables for topic in table.settings.json_topics})


_NOTE = "cdckit.feed"


_Address = tuple[str | None, str | None, str]
"""What says of which table a data message is: its form, its schema id, and its topic."""


class _Ready(NamedTuple):
    """The data that can be read now, and what addresses are among it."""

    data: DataFrame
    addresses: set[_Address]


class Intake(TableIntake):
    """What a transaction does with records: first `keep`, then `take`; or `rebuild` alone."""

    received = RECEIVED_SCHEMA

    def __init__(
        self, transaction: Transaction, settings: Mapping[TableName, TableSettings], buckets: int | None
    ) -> None:
        super().__init__(transaction)
        self._settings, self._buckets = settings, buckets
        self.reads.append(ZONE)

    def keep(self, records: DataFrame) -> WriteResult:
        """Write the records as they came, with what their envelopes say."""
        return self._keep(decode(records.select(*RECORD_COLUMNS)))

    def take(self, written: WriteResult) -> None:
        """Bring the other tables up to records that were kept."""
        if not written.files:
            return
        received = self._transaction.read(RECORDS, files=written.files)
        sorted_by = received.select("type", F.col(ERROR_CODE).isNull().alias("is_sound"), *ADDRESS)
        # Few rows are in the plan already: they need no job.
        sorts = (sorted_by if hold_few_rows(written.files) else sorted_by.distinct()).collect()
        before = self._tables()
        learns = any(row["type"] == METADATA and row["is_sound"] for row in sorts)
        if learns:
            self._learn(received)
        if any(not row["is_sound"] for row in sorts):
            self._reject(received.where(F.col(ERROR_CODE).isNotNull()))
        now = self._tables() if learns else before
        addresses = {_address(row) for row in sorts if row["type"] == DATA and row["is_sound"]}
        ready = self._sort_out(received, addresses, now)
        self._require_settings(now)
        changed = {
            name
            for name, earlier in before.items()
            if self._is_begun(now[name]) and not now[name].continues(earlier)
        }
        for name in changed:
            self._make_anew(now[name])
        self._add_ready(ready, (table for name, table in now.items() if name not in changed))
        self._finish(written)

    def rebuild(self, names: Iterable[TableName] | None) -> None:
        """Make the ledgers of these tables anew, of all for None; by the settings as they are now."""
        tables = self._tables()
        waited = self._read(WAITING)
        if names is None and waited is not None:
            self._transaction.replace(WAITING, waited.withColumn(GIVEN_UP, F.lit(None).cast("timestamp_ltz")))
        chosen = set(tables if names is None else names)
        for name in chosen - set(tables):
            raise InvalidArgument("rebuild", "table", "one that the metadata knows", str(name))
        # By other settings than before, messages in JSON form may have a table that they waited for.
        healed = self._take_ready(tables)
        for name in chosen:
            self._make_anew(tables[name])
        if healed is not None:
            self._add_ready(healed, (table for name, table in tables.items() if name not in chosen))

    # -----------------------------------------------------------------------------------------------------

    def _tables(self) -> dict[TableName, FeedTable]:
        zone = self._read(ZONE)
        return {} if zone is None else feed_tables(zone, self._settings)

    def _learn(self, received: DataFrame) -> None:
        """Read the metadata messages, and let the zone know what they say."""
        zone = self._read(ZONE)
        messages = received.where((F.col("type") == METADATA) & F.col(ERROR_CODE).isNull())
        learnt = self._transaction.scratch(metadata(decode(messages.select(*RECORD_COLUMNS)), zone=zone))
        self._transaction.replace(ZONE, schema_zone(learnt, zone=zone))
        self._reject(learnt.where(F.col(ERROR_CODE).isNotNull()))

    def _sort_out(
        self, received: DataFrame, addresses: set[_Address], tables: Mapping[TableName, FeedTable]
    ) -> _Ready:
        """Let what has no schema wait, and return what has one now, what waited for it among it."""
        healed = self._take_ready(tables)
        data = received.where(is_data())
        if all(any(table.reads_address(*address) for table in tables.values()) for address in addresses):
            return _unite(_Ready(data, addresses), healed)
        # Found anew for each use, from three columns of it: to write all rows once more takes longer.
        sorted_out = self._with_waits(data, tables)
        by_waiting = _addresses_by_waiting(sorted_out)
        if by_waiting[True]:
            fault = ReplicateFault.METADATA_MISSING
            error = F.lit(fault.value), F.lit(fault.sentence)
            self._let_wait(sorted_out.where("waits"), _waiting_for(), *error)
        ready = sorted_out.where("not waits").drop("waits")
        return _unite(_Ready(ready, by_waiting[False]), healed)

    def _take_ready(self, tables: Mapping[TableName, FeedTable]) -> _Ready | None:
        """Take out of what waits what waits no longer."""
        waited = self._read(WAITING)
        if waited is None:
            return None
        sorted_out = self._with_waits(waited, tables)
        # Each batch reads three columns of what waits; rows are written only where some wait no longer.
        healed = _addresses_by_waiting(sorted_out)[False]
        if not healed:
            return None
        return _Ready(self._take_waiting(sorted_out, ~F.col("waits")), healed)

    def _with_waits(self, data: DataFrame, tables: Mapping[TableName, FeedTable]) -> DataFrame:
        zone = read_rows(self._transaction, ZONE, ZONE_SCHEMA)
        return with_waits(data, zone, json_topics(tables.values()))

    def _add_ready(self, ready: _Ready, tables: Iterable[FeedTable]) -> None:
        """Let each of these tables take its rows; side by side, since most of that is planning."""

        def add(table: FeedTable) -> None:
            self._add(table, table.keep_own(ready.data))

        some = [table for table in tables if table.reads_any(ready.addresses)]
        run_together(self._transaction.spark, add, some)

    def _add(self, table: FeedTable, received: DataFrame) -> None:
        """Take the rows of a table: its changes into its ledger, what is in error to the rejects."""
        self._transaction.note(self._note(table), table.settings.text())
        read = rows_of_table(
            received.select(*RECORD_COLUMNS), table.table, function="receive", **table.reading
        )
        sound, refused = self._transaction.scratch_by_null(read, ERROR_CODE)
        if refused is not None:
            self._reject(refused, F.lit(str(table)))
        if sound is not None and table.keys:
            self._apply(table.kind(self._buckets), changes(sound, keys=table.keys))

    def _make_anew(self, table: FeedTable) -> None:
        self._drop_ledger(table.kind(self._buckets), str(table))
        received = self._read(RECORDS)
        if received is not None:
            self._add(table, table.keep_own(received))

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


def _waiting_for() -> Column:
    """Tell what data messages wait for."""
    of_json = F.concat(F.lit("the table of topic "), "topic")
    of_avro = F.concat(F.lit("the metadata of schema id "), F.coalesce("schema_id", F.lit("none")))
    return F.when(F.col("form") == "json", of_json).otherwise(of_avro)


def _unite(ready: _Ready, healed: _Ready | None) -> _Ready:
    if healed is None:
        return ready
    return _Ready(ready.data.unionByName(healed.data), ready.addresses | healed.addresses)


def _addresses_by_waiting(sorted_out: DataFrame) -> dict[bool, set[_Address]]:
    """The addresses of the data that waits, and of the data that does not."""
    by_waiting: dict[bool, set[_Address]] = {True: set(), False: set()}
    for row in sorted_out.select("waits", *ADDRESS).distinct().collect():
        by_waiting[row["waits"]].add(_address(row))
    return by_waiting


def _address(row: Row) -> _Address:
    form, schema_id, topic = (row[name] for name in ADDRESS)
    return form, schema_id, topic
