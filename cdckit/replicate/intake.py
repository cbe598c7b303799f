"""One batch of records on its way into a feed's tables, and rows that wait for their metadata."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.kind import Kind
from cdckit.model.faults import ERROR_CODE
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.model.rejected_records import ERROR_FIELDS, REJECT
from cdckit.parts.workers import local_frame, run_together
from cdckit.replicate.decoding import ZONE_SCHEMA, decode, describe_missing, is_sound, metadata, schema_zone
from cdckit.replicate.envelopes import DATA, METADATA, ReplicateFault
from cdckit.replicate.metadata_messages import table_text
from cdckit.replicate.row_changes import TableName, TableSettings, by_table, changes
from cdckit.replicate.table_rows import collect_zone, rows_of_table
from cdckit.replicate.table_versions import Table, make_table
from cdckit.shell.table_feed import RECORDS, WAITING_FOR, TableIntake, waiting_schema
from cdckit.shell.waiting import GIVEN_UP, WAITING
from cdckit.store import Transaction
from cdckit.store.reading import hold_few_rows
from cdckit.store.store import Tables, read_rows
from cdckit.store.writing import WriteResult

ZONE = "schema_zone"

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
    shares_topic: bool = False
    """Whether another table that has a schema id of it is told to read the same topic."""

    @property
    def entity(self) -> str:
        """The name of the kind of entity."""
        return self.settings.entity or self.name.table

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; none if there is none."""
        return tuple(self.settings.keys or self.table.keys)

    @cached_property
    def schema_ids(self) -> frozenset[str]:
        """The schema ids of its versions."""
        return frozenset(version.schema_id for version in self.table.versions)

    @property
    def kind(self) -> Kind:
        """Its ledger."""
        return Kind(self.entity, self.keys, by_guid=False, name=str(self))

    @property
    def is_ambiguous(self) -> bool:
        """Whether a schema id of it is another table's too, and nobody said which topics are its own."""
        return bool(self.table.shared) and (self.settings.topics is None or self.shares_topic)

    @property
    def topics(self) -> Collection[str] | None:
        """The topics of its data in Avro form; all for None."""
        return () if self.is_ambiguous else self.settings.topics

    def reads(self, address: Address) -> bool:
        """Tell whether data with this address can be of this table."""
        if address.form == "json":
            return address.topic in self.settings.json_topics
        topics = self.topics
        return address.schema_id in self.schema_ids and (topics is None or address.topic in topics)

    def keep_own(self, received: DataFrame) -> DataFrame:
        """Keep the data among received records that can be of this table: those whose address it `reads`."""
        in_avro = (F.col("form") == "avro") & F.col("schema_id").isin(sorted(self.schema_ids))
        if self.topics is not None:
            in_avro &= F.col("topic").isin([*self.topics])
        in_json = (F.col("form") == "json") & F.col("topic").isin([*self.settings.json_topics])
        return received.where(is_sound(DATA) & (in_avro | in_json))

    def rows(self, received: DataFrame) -> DataFrame:
        """Read its `data` among received records."""
        settings = self.settings
        return rows_of_table(
            self.keep_own(received).select(*RECORD_COLUMNS),
            self.table,
            json_topics=settings.json_topics,
            topics=self.topics,
            loaded_at=settings.load_time(),
            keys=settings.keys or (),
        )

    def continues(self, before: FeedTable) -> bool:
        """Tell whether rows that were read as of *before* read the same now, but for columns that came."""
        if self.settings.json_topics and self.table != before.table:
            # Their names, masks and key are read by what was said of the table before they came.
            return False
        types = {field.name: field.type for field in self.table.fields}
        return (
            self.keys == before.keys
            and all(version in self.table.versions for version in before.table.versions)
            and all(types.get(field.name) == field.type for field in before.table.fields)
        )

    def __str__(self) -> str:
        return table_text(self.name._asdict())


def read_zone(tables: Tables) -> DataFrame:
    """The schema zone of a feed."""
    return read_rows(tables, ZONE, ZONE_SCHEMA)


def feed_tables(tables: Tables, settings: Mapping[TableName, TableSettings]) -> dict[TableName, FeedTable]:
    """The tables that the zone of a feed knows; collects it."""
    found = {
        name: FeedTable(name, make_table(statements), settings.get(name, TableSettings()))
        for name, statements in by_table(collect_zone(read_zone(tables))).items()
    }
    places = {
        name: {(schema_id, topic) for schema_id in table.table.shared for topic in table.topics or ()}
        for name, table in found.items()
    }
    readers = Counter(place for of_table in places.values() for place in of_table)
    return {
        name: replace(table, shares_topic=any(readers[place] > 1 for place in places[name]))
        for name, table in found.items()
    }


def require_topics(tables: Iterable[FeedTable]) -> None:
    """Raise for tables whose records cannot be read again: what came cannot be told from another's now."""
    lacking = ", ".join(sorted(str(table) for table in tables if table.is_ambiguous))
    if lacking:
        needed = f"settings that name the topics of {lacking} alone: another table has its schema id"
        raise InvalidArgument(None, "tables", needed, None)


class Address(NamedTuple):
    """What says of which table a data message is: columns of its received record."""

    form: str | None
    schema_id: str | None
    topic: str | None


Readers = dict[Address, list[TableName]]
"""The tables that read data with an address; those that no table reads wait."""


class _Ready(NamedTuple):
    """Data that have come, those that can be read now among them, and who reads which of these."""

    data: DataFrame
    readers: Readers


_NOTE = "cdckit.feed"


class Intake(TableIntake):
    """What a transaction does with records: first `keep`, then `take`; or `rebuild` alone."""

    received = RECEIVED_SCHEMA

    def __init__(self, transaction: Transaction, settings: Mapping[TableName, TableSettings]) -> None:
        super().__init__(transaction)
        self._settings = settings
        self.reads.append(ZONE)

    def keep(self, records: DataFrame) -> WriteResult:
        """Write the records as they came, with what their envelopes say."""
        return self._keep(decode(records.select(*RECORD_COLUMNS)))

    def take(self, written: WriteResult) -> None:
        """Bring the other tables up to records that were kept."""
        if not written.files:
            return
        received = self._transaction.read(RECORDS, files=written.files)
        columns = received.select("type", F.col(ERROR_CODE).isNull().alias("is_sound"), *Address._fields)
        # Few rows are in the plan already: they need no job.
        sorts = (columns if hold_few_rows(written.files) else columns.distinct()).collect()
        before = self._tables()
        learns = any(sort["is_sound"] and sort["type"] == METADATA for sort in sorts)
        if learns:
            self._learn(received)
        if not all(sort["is_sound"] for sort in sorts):
            self._reject(received.where(F.col(ERROR_CODE).isNotNull()))
        tables = self._tables() if learns else before
        addresses = {_address(sort) for sort in sorts if sort["is_sound"] and sort["type"] == DATA}
        readers = _find_readers(addresses, tables)
        waited = self._take_ready(tables)
        self._let_unread_wait(received, readers, tables)
        self._require_settings(tables)
        # The ledger of a table without topics of its own stays: its older rows cannot be read again.
        changed = [
            name
            for name, earlier in before.items()
            if self._is_begun(table := tables[name]) and not (table.is_ambiguous or table.continues(earlier))
        ]
        for name in changed:
            self._make_anew(tables[name])
        self._add_ready([_Ready(received, readers), *waited], tables, but=changed)
        self._finish(written)

    def rebuild(self, names: Iterable[TableName] | None) -> None:
        """Make the ledgers of these tables anew, of all for None; by the settings as they are now."""
        tables = self._tables()
        waited = self._read(WAITING)
        if names is None and waited is not None:
            self._transaction.replace(WAITING, waited.withColumn(GIVEN_UP, F.lit(None).cast("timestamp_ltz")))
        named = {*(names or ()), *self._with_other_settings(tables)}
        for name in named - tables.keys():
            raise InvalidArgument("rebuild", "table", "one that the metadata knows", str(name))
        require_topics(tables[name] for name in named)
        ambiguous = {name for name, table in tables.items() if table.is_ambiguous}
        chosen = (tables.keys() if names is None else named) - ambiguous
        kept = {id_ for name in ambiguous if self._is_begun(tables[name]) for id_ in tables[name].schema_ids}
        # By other settings than before a table may read what waited for it, and no longer what it read.
        ready = self._take_ready(tables)
        received = self._read(RECORDS)
        if received is not None:
            waiting = read_rows(self._transaction, WAITING, waiting_schema(self.received))
            addresses = _addresses(received.where(is_sound(DATA))) - _addresses(waiting)
            readers = _find_readers(addresses, tables)
            chosen = {*chosen, *self._find_new_readers(readers, tables)} - ambiguous
            readers = {address: names for address, names in readers.items() if address.schema_id not in kept}
            self._let_unread_wait(received, readers, tables)
        for name in chosen:
            self._make_anew(tables[name])
        self._add_ready(ready, tables, but=chosen)
        self._finish()

    # -----------------------------------------------------------------------------------------------------

    def _tables(self) -> dict[TableName, FeedTable]:
        return feed_tables(self._transaction, self._settings)

    def _learn(self, received: DataFrame) -> None:
        """Read the metadata messages, and let the zone know what they say."""
        zone = self._read(ZONE)
        messages = received.where(is_sound(METADATA)).select(*RECORD_COLUMNS)
        learnt = self._transaction.scratch(metadata(decode(messages), zone=zone))
        self._transaction.replace(ZONE, schema_zone(learnt, zone=zone))
        self._reject(learnt.where(F.col(ERROR_CODE).isNotNull()))

    def _let_unread_wait(
        self, received: DataFrame, readers: Readers, tables: Mapping[TableName, FeedTable]
    ) -> None:
        """Let the data wait that no table reads."""
        unread = _describe_unread(readers, tables)
        if unread:
            rows = self._with_waiting_for(received.where(is_sound(DATA)), unread)
            rows = rows.where(F.col(WAITING_FOR).isNotNull())
            fault = F.lit(ReplicateFault.METADATA_MISSING.value)
            self._let_wait(rows, F.col(WAITING_FOR), fault, describe_missing())

    def _take_ready(self, tables: Mapping[TableName, FeedTable]) -> list[_Ready]:
        """Take out of what waits what waits no longer, if there is any."""
        waited = self._read(WAITING)
        if waited is None:
            return []
        # Each batch reads three columns of what waits; rows are written only where some wait no longer.
        readers = _find_readers(_addresses(waited), tables)
        unread = _describe_unread(readers, tables)
        if len(unread) == len(readers):
            return []
        waiting = self._with_waiting_for(waited, unread)
        return [_Ready(self._take_waiting(waiting, F.col(WAITING_FOR).isNull()), readers)]

    def _with_waiting_for(self, data: DataFrame, unread: Mapping[Address, str]) -> DataFrame:
        """Say of data what they wait for, in the column `waiting_for`: null for what some table reads."""
        rows = [(*address, text) for address, text in unread.items()]
        columns = T.StructType([T.StructField(name, T.StringType()) for name in (*_SOUGHT, WAITING_FOR)])
        sought = F.broadcast(local_frame(self._transaction.spark, rows, columns))
        same = [F.col(name).eqNullSafe(F.col(sought_name)) for sought_name, name in _SOUGHT.items()]
        return data.drop(WAITING_FOR).join(sought, on=same, how="left").drop(*_SOUGHT)

    def _add_ready(
        self, ready: Sequence[_Ready], tables: Mapping[TableName, FeedTable], but: Collection[TableName]
    ) -> None:
        """Let all tables *but* some take their rows; side by side, since most of that is planning."""
        readers = {name for some in ready for names in some.readers.values() for name in names}
        taking = [table for name, table in tables.items() if name in readers and name not in but]
        if taking:
            data = reduce(DataFrame.unionByName, (some.data for some in ready))
            run_together(self._transaction.spark, lambda table: self._add(table, data), taking)

    def _add(self, table: FeedTable, received: DataFrame) -> None:
        """Take the rows of a table: its changes into its ledger, what is in error to the rejects."""
        self._transaction.note(self._note(table), table.settings.text())
        rows, of_table = table.rows(received), F.lit(str(table))
        if not table.keys:
            self._reject(rows.where(F.col(ERROR_CODE).isNotNull()), of_table)
            self.notes.append(
                f"rows of {table} are in no ledger, since it has no key: TableSettings(keys=…) can name one, "
                "and without_key() shows them"
            )
            return
        stated = changes(rows, keys=table.keys).withColumn(ERROR_CODE, F.col(f"{REJECT}.{ERROR_CODE}"))
        sound, refused = self._transaction.scratch_by_null(stated, ERROR_CODE)
        if refused is not None:
            self._reject(refused.select(f"{REJECT}.*"), of_table)
        if sound is not None:
            self._apply(table.kind, sound.drop(ERROR_CODE, REJECT))

    def _make_anew(self, table: FeedTable) -> None:
        self._drop_ledger(table.kind, str(table))
        received = self._read(RECORDS)
        if received is not None:
            self._add(table, received)

    def _is_begun(self, table: FeedTable) -> bool:
        return self._transaction.note_of(self._note(table)) is not None

    def _with_other_settings(self, tables: Mapping[TableName, FeedTable]) -> set[TableName]:
        return {name for name, table in tables.items() if self._has_other_settings(table)}

    def _has_other_settings(self, table: FeedTable) -> bool:
        """Tell whether the ledger of a table was made by other settings than those of now."""
        return self._transaction.note_of(self._note(table)) not in (None, table.settings.text())

    def _find_new_readers(
        self, readers: Readers, tables: Mapping[TableName, FeedTable]
    ) -> Iterator[TableName]:
        """Find the tables that read what another may have read by other settings: they may lack it."""
        for table in map(tables.__getitem__, self._with_other_settings(tables)):
            before = json.loads(self._transaction.note_of(self._note(table)) or "")
            for (form, schema_id, topic), names in readers.items():
                did_read = topic in before["json_topics"] if form == "json" else schema_id in table.schema_ids
                yield from names if did_read else ()

    def _require_settings(self, tables: Mapping[TableName, FeedTable]) -> None:
        for table in tables.values():
            if self._has_other_settings(table):
                needed = f"settings for {table} as its ledger was made with; rebuild makes it anew by these"
                raise InvalidArgument(None, "tables", needed, table.settings)

    def _note(self, table: FeedTable) -> str:
        return f"{_NOTE}:{table}"


_SOUGHT = {f"sought_{name}": name for name in Address._fields}


def _find_readers(addresses: Iterable[Address], tables: Mapping[TableName, FeedTable]) -> Readers:
    return {
        address: [name for name, table in tables.items() if table.reads(address)] for address in addresses
    }


def _describe_unread(readers: Readers, tables: Mapping[TableName, FeedTable]) -> dict[Address, str]:
    """Tell what data wait for, by the addresses that no table reads."""
    known_ids = frozenset[str]().union(*(table.schema_ids for table in tables.values()))
    ambiguous = [table for table in tables.values() if table.is_ambiguous]
    texts = {}
    for address, names in readers.items():
        if names:
            continue
        form, schema_id, topic = address
        if form == "json":
            texts[address] = f"the table of topic {topic}"
        elif sharing := [str(table) for table in ambiguous if schema_id in table.schema_ids]:
            needed = f"the topics of each in TableSettings: {' and '.join(sharing)} have one schema id"
            texts[address] = f"{needed}, {schema_id}, and data of it came from topic {topic}"
        elif schema_id in known_ids:
            texts[address] = f"a table that reads schema id {schema_id} from topic {topic}"
        else:
            texts[address] = f"the metadata of schema id {schema_id}"
    return texts


def _addresses(data: DataFrame) -> set[Address]:
    return set(map(_address, data.select(*Address._fields).distinct().collect()))


def _address(row: Row) -> Address:
    return Address(*(row[name] for name in Address._fields))
