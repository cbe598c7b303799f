"""One batch of a captured database's records on its way into the tables of a feed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from itertools import groupby
from operator import and_
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.captured_tables import (
    CapturedTable,
    Mention,
    Reading,
    Types,
    describe_news,
    describe_unused,
    read_captured_table,
)
from cdckit.debezium.connect_values import UNTYPED, field_names
from cdckit.debezium.decoding import EVENT_SCHEMA
from cdckit.debezium.events import OF_TABLES, EventFault
from cdckit.debezium.snapshots import (
    ENDED_SCHEMA,
    ended_snapshots,
    find_absences,
    find_new_logs,
    is_absence,
    is_last_read,
)
from cdckit.debezium.table_changes import changes, common_type, distinct_types, table_rows
from cdckit.errors import InvalidArgument
from cdckit.ledger.intake import apply_within, withdraw_within
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import visible_changes
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.model.rejected_records import usable_changes
from cdckit.parts.workers import run_together
from cdckit.shell.table_feed import (
    OF_TABLE,
    PLACES,
    RECORDS,
    REJECTED_SCHEMA,
    REJECTS,
    TableIntake,
    content_of_record,
    waiting_schema,
)
from cdckit.shell.waiting import WAITING
from cdckit.store import Snapshot, Transaction
from cdckit.store.store import read_rows

TABLES, SNAPSHOTS = "tables", "snapshots"

RECEIVED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, T.StructField(OF_TABLE, T.StringType())])
"""One row is one record as it came, and of which table it is; what waits for the schema that it was written
by is of no table yet."""


@dataclass(frozen=True)
class FeedSettings:
    """
    What a feed goes by.

    Args:
        decode: Gives the events of records, as `cdckit.debezium.decode` does.
        keys: By the name of a table its key columns.
        columns: By the name of a table the types of its columns, as for `changes`.
        placeholder: What the connector writes for a value that is not available.
        complete_snapshots: Whether a snapshot that ended has read all rows of its tables.
    """

    decode: Callable[[DataFrame], DataFrame]
    keys: Mapping[str, Sequence[str]]
    columns: Mapping[str, Types]
    placeholder: str
    complete_snapshots: bool

    def rows(self, events: DataFrame, table: CapturedTable) -> DataFrame:
        """The rows of a table, in error where they cannot be changes."""
        return table_rows(events, table.name, **self._arguments(table))

    def changes(self, events: DataFrame, table: CapturedTable) -> DataFrame:
        """Make changes of the events of a table, but for those in error."""
        return usable_changes(changes(events, table.name, **self._arguments(table))).drop("faults")

    def _arguments(self, table: CapturedTable) -> dict[str, Any]:
        assert table.made_by is not None
        reading = {"keys": table.made_by.keys, "columns": table.made_by.columns}
        return {**reading, "placeholder": self.placeholder}

    def kind(self, table: CapturedTable) -> Kind:
        """Describe the ledger of a table."""
        assert table.made_by is not None
        entity, fields = table.name.rsplit(".", 1)[-1], field_names(table.made_by.columns)
        keys = tuple(fields[key] for key in table.made_by.keys)
        return Kind(entity, keys, by_guid=False, name=table.name)

    def events(self, records: DataFrame) -> DataFrame:
        """The events of records, and of which table each is that is about a row or could not be read."""
        table = F.concat_ws(".", "db", "schema", "table")
        # A change of a schema names its table, too, and its key says nothing of that of the table.
        is_of_table = F.col("kind").isin(*OF_TABLES) | F.col(ERROR_CODE).isNotNull()
        of_table = F.when(F.col("table").isNotNull() & is_of_table, table).alias(OF_TABLE)
        return self.decode(records.select(*RECORD_COLUMNS)).select(*EVENT_SCHEMA.fieldNames(), of_table)


def captured_tables(base: Snapshot) -> dict[str, CapturedTable]:
    """The tables of which events have come, by their full names."""
    texts = base.arrow(TABLES).column("text").to_pylist() if base.has(TABLES) else []
    return {table.name: table for table in map(read_captured_table, texts)}


class Intake(TableIntake):
    """What a transaction does with records: `take` them, or `rebuild` all of those that came."""

    received = RECEIVED_SCHEMA

    def __init__(self, transaction: Transaction, settings: FeedSettings) -> None:
        super().__init__(transaction)
        self._settings = settings
        self._before = captured_tables(transaction.base)
        self._tables = dict(self._before)
        self.reads += [TABLES, SNAPSHOTS]

    def take(self, records: DataFrame) -> int:
        """Keep records, and bring all tables up to them; how many they are."""
        events = self._transaction.scratch(self._settings.events(records))
        written = self._keep(events)
        if written.files or self._read(WAITING) is not None:
            self._bring_up(events)
            self._finish(written)
        return written.rows

    def rebuild(self) -> None:
        """Make all ledgers anew, by the settings as they are now."""
        for table in self._before.values():
            if table.made_by is not None:
                self._settings.kind(table).forget(self._transaction)
        for name in (REJECTS, WAITING, SNAPSHOTS):
            self._transaction.drop(name)
        self._before = {}
        self._tables = {name: CapturedTable.new(name) for name in self._tables}
        records = self._read(RECORDS)
        self.reads += [RECORDS, REJECTS]
        if records is not None:
            self._bring_up(self._transaction.scratch(self._settings.events(records)))
        self._finish()
        self.notes = []

    # -----------------------------------------------------------------------------------------------------

    def _bring_up(self, events: DataFrame) -> None:
        events = self._with_unread(events)
        facts = _find_facts(events)
        errors = events.where(F.col(ERROR_CODE).isNotNull())
        if EventFault.UNKNOWN_SCHEMA in facts.errors:
            # A value that can be read says its table, and may wait for the schema of its key.
            of_no_table = F.lit(None).cast("string")
            unread = errors.where(_is_of_unknown_schema()).withColumn(OF_TABLE, of_no_table)
            error = [F.col(name) for name in (ERROR_CODE, ERROR_DESCRIPTION)]
            self._note_waits("their schema", self._let_wait(unread, F.col(ERROR_DESCRIPTION), *error))
        if facts.errors - {EventFault.UNKNOWN_SCHEMA}:
            self._reject(errors.where(~_is_of_unknown_schema()), F.col(OF_TABLE))
        names = self._learn(facts.mentions)
        readings = {name: self._reading(table) for name, table in self._tables.items()}
        self._require_settings(readings)
        for name in sorted(names):
            before = self._before.get(name, CapturedTable.new(name))
            self.notes += describe_news(before, self._tables[name], readings[name], self._settings.keys)
        new = names - self._before.keys()
        self.notes += describe_unused("tables", self._settings.keys, self._tables, new)
        self.notes += describe_unused("columns", self._settings.columns, self._tables, new)
        ready = {name: reading for name, reading in readings.items() if reading.is_ready}
        sound = events.where(F.col(ERROR_CODE).isNull())
        for name in sorted(names - ready.keys()):
            waiting_for = describe_wait(self._tables[name], readings[name])
            fault = EventFault.TABLE_WITHOUT_KEY
            texts = waiting_for, fault.value, f"{fault.sentence} It waited for {waiting_for}."
            count = self._let_wait(sound.where(F.col(OF_TABLE) == name), *map(F.lit, texts))
            self._note_waits(waiting_for, count)
        healed, healed_names = self._take_ready(ready)
        self._tables |= {
            name: replace(self._tables[name], made_by=reading) for name, reading in ready.items()
        }
        changed = {name for name in (names | healed_names) & ready.keys() if not self._continues(name)}
        for name in sorted(changed):
            self._make_anew(name)

        def add(name: str) -> None:
            parts = [some for some, of in ((sound, names), (healed, healed_names)) if some and name in of]
            share = facts.shares[name] if name not in healed_names else 1
            self._add(name, reduce(DataFrame.unionByName, parts).where(F.col(OF_TABLE) == name), share)

        touched = (names | healed_names) & ready.keys()
        run_together(self._transaction.spark, add, sorted(touched - changed))
        self._note_tables()
        self._take_lists(sound, facts, touched, ready)

    def _learn(self, mentions: Iterable[Mention]) -> set[str]:
        """Let the tables know what events say of them; the names of these tables."""
        names = set()
        for name, some in groupby(mentions, lambda mention: mention.table):
            self._tables[name] = self._tables.get(name, CapturedTable.new(name)).learn(some)
            names.add(name)
        return names

    def _reading(self, table: CapturedTable) -> Reading:
        return table.reading(self._settings.keys, self._settings.columns, _name_types)

    def _require_settings(self, readings: Mapping[str, Reading]) -> None:
        for name, table in self._before.items():
            made_by, now = table.made_by, readings[name]
            if made_by is not None and (made_by.keys, made_by.given) != (now.keys or made_by.keys, now.given):
                needed = (
                    f"of {name} the keys {', '.join(made_by.keys)} and the columns {dict(made_by.given)}, "
                    "by which its ledger was made; rebuild makes it anew by others"
                )
                raise InvalidArgument(None, "tables and columns", needed, (now.keys, dict(now.given)))

    def _continues(self, name: str) -> bool:
        before, table = self._before.get(name), self._tables[name]
        if before is None or before.made_by is None:
            return True
        assert table.made_by is not None
        return table.continues(before, table.made_by)

    def _note_tables(self) -> None:
        if self._tables != self._before:
            texts = [self._tables[name].text() for name in sorted(self._tables)]
            self._transaction.replace(TABLES, pa.table({"text": texts}))

    # What waits, and what is refused ---------------------------------------------------------------------

    def _note_waits(self, waiting_for: str, count: int) -> None:
        if count:
            self.notes.append(f"records that wait for {waiting_for}: {count}")

    def _with_unread(self, events: DataFrame) -> DataFrame:
        """The events, and those that could not be read before and can be read now."""
        waiting = self._read(WAITING)
        if waiting is None:
            return events
        unread = waiting.where(F.col(OF_TABLE).isNull())
        again = self._transaction.scratch(self._settings.events(unread))
        readable = again.where(~_is_of_unknown_schema())
        if readable.isEmpty():
            return events
        by = {name: F.col(name) for name in PLACES} | {"content": content_of_record()}
        places = readable.select(*(column.alias(f"read {name}") for name, column in by.items())).distinct()
        # A record without a place is told by what it holds.
        is_read = reduce(and_, (column.eqNullSafe(F.col(f"read {name}")) for name, column in by.items()))
        left = waiting.join(places, is_read, "left_anti")
        self._transaction.replace(WAITING, left)
        self._has_healed = True
        return events.unionByName(readable)

    def _take_ready(self, ready: Iterable[str]) -> tuple[DataFrame | None, set[str]]:
        """The events of tables that waited and wait no longer, and of which tables they are."""
        waiting = self._read(WAITING)
        if waiting is None:
            return None, set()
        some = waiting.where(F.col(OF_TABLE).isin(list(ready)))
        names = {row[0] for row in some.select(OF_TABLE).distinct().collect()}
        if not names:
            return None, names
        is_ready = F.coalesce(F.col(OF_TABLE).isin(sorted(names)), F.lit(False))
        return self._transaction.scratch(self._settings.events(self._take_waiting(waiting, is_ready))), names

    # The ledger of a table -------------------------------------------------------------------------------

    def _add(self, name: str, events: DataFrame, share: float = 1) -> None:
        """
        Take the events of a table, this *share* of what is read of the batch.

        Its changes go into its ledger, rows in error to the rejects.
        """
        table = self._tables[name]
        rows = self._settings.rows(events, table).where(F.col(ERROR_CODE).isNotNull())
        self._reject(rows, F.lit(name))
        self._apply(self._settings.kind(table), self._settings.changes(events, table), share)

    def _make_anew(self, name: str) -> None:
        """Make the ledger of a table anew from all records, since they read otherwise by now."""
        self._drop_ledger(self._settings.kind(self._before[name]), name)
        events = self._transaction.scratch(events_of_table(self._transaction, self._settings, name))
        is_wrong = F.col(ERROR_CODE).isNotNull() & ~_is_of_unknown_schema()
        self._reject(events.where(is_wrong), F.lit(name))
        self._add(name, events.where(F.col(ERROR_CODE).isNull()))

    # Snapshots as lists ----------------------------------------------------------------------------------

    def _take_lists(self, sound: DataFrame, facts: _Facts, touched: set[str], ready: Iterable[str]) -> None:
        """Let what a snapshot which ended did not read be gone, in each table of which that may be news."""
        if not self._settings.complete_snapshots:
            if facts.ends_snapshot:
                self._note_new_logs(ready, ended_snapshots(sound))
            return
        snapshots = read_rows(self._transaction, SNAPSHOTS, ENDED_SCHEMA)
        ends = False
        if facts.ends_snapshot:
            both = self._transaction.scratch(snapshots.unionByName(ended_snapshots(sound)))
            earliest = both.groupBy("source", "position").agg(
                *(F.min(name).alias(name) for name in ("ended_timestamp", "taken_timestamp"))
            )
            ended = self._transaction.scratch(earliest)
            news = self._transaction.scratch(ended.exceptAll(snapshots))
            ends = not news.isEmpty()
            if ends:
                self._note_new_logs(ready, news)
                self._transaction.replace(SNAPSHOTS, ended)
                snapshots = ended
        elif self._read(SNAPSHOTS) is None or facts.since is None:
            return
        if ends or facts.errors:
            # What was read of the others waits.
            touched = set(ready)
        due = snapshots if ends else snapshots.where(F.col("ended_timestamp") >= F.lit(facts.since))
        if touched and (ends or not due.isEmpty()):
            for name in sorted(touched):
                self._take_list(name, due)

    def _note_new_logs(self, names: Iterable[str], ended: DataFrame) -> None:
        """Note whose log begins anew, by the snapshots that ended."""
        kinds = [self._settings.kind(self._tables[name]) for name in names]
        logs = [self._transaction.read(kind.changes) for kind in kinds if self._transaction.has(kind.changes)]
        for row in find_new_logs(logs, ended).collect() if logs else ():
            self.notes.append(
                f"the log of {row['source']} begins anew: a snapshot stands at {row['position']}, but "
                f"{row['last_place']} had come before. By their places all that follows counts before that; "
                "read it under another topic.prefix, or by a feed of its own"
            )

    def _take_list(self, name: str, snapshots: DataFrame) -> None:
        table, transaction = self._tables[name], self._transaction
        kind = self._settings.kind(table).with_buckets_of(transaction)
        if not transaction.has(kind.changes):
            return
        log = visible_changes(transaction.read(kind.changes), kind)
        rejected = read_rows(transaction, REJECTS, REJECTED_SCHEMA)
        of_it = self._settings.events(rejected.where(F.col(OF_TABLE) == name))
        refused = self._settings.rows(of_it, table)
        # What waits for its schema may be a read, too, and so may what is in error before it has a row.
        waiting = read_rows(transaction, WAITING, waiting_schema(RECEIVED_SCHEMA))
        of_no_table = (rows.where(F.col(OF_TABLE).isNull()) for rows in (rejected, waiting))
        unread_rows = (*of_no_table, of_it.where(F.col(ERROR_CODE).isNotNull()))
        unread = reduce(DataFrame.unionByName, (rows.select(*RECORD_COLUMNS) for rows in unread_rows))
        absences = transaction.scratch(find_absences(log, kind.keys, snapshots, refused, unread))
        key = [F.col("data").getField(key).alias(key) for key in kind.keys]
        of_these = snapshots.select("source", F.col("position").alias("sequence"))
        stored = log.where(is_absence()).join(of_these, ["source", "sequence"], "left_semi")
        by = [*kind.keys, "message_id"]
        stale = transaction.scratch(
            stored.select(*key, "message_id").join(absences.select(*key, "message_id"), by, "left_anti")
        )
        if not stale.isEmpty():
            self.reads += withdraw_within(transaction, kind, stale)
        if not absences.isEmpty():
            known = transaction.scratch(stored.select(*key, "message_id"))
            count = absences.select(*key, "message_id").join(known, by, "left_anti").count()
            if count:
                self.notes.append(
                    f"rows of {name} that are deleted, as a snapshot did not read them: {count}"
                )
            self.reads += apply_within(transaction, kind, absences)


def events_of_table(tables: Any, settings: FeedSettings, name: str) -> DataFrame:
    """The events of a table among all records; those that had no schema did not say their table."""
    records = read_rows(tables, RECORDS, RECEIVED_SCHEMA)
    of_it = records.where(F.col(OF_TABLE).isNull() | (F.col(OF_TABLE) == name))
    return settings.events(of_it).where(F.col(OF_TABLE) == name)


def _name_types(types: Sequence[str]) -> tuple[str, ...]:
    """Write what `changes` calls the types of a column: `string` for some that have no type in common."""
    names = distinct_types(types) or (UNTYPED,)
    try:
        common_type("column", names)
    except InvalidArgument:
        return ("string",)
    return names


def describe_wait(table: CapturedTable, reading: Reading) -> str:
    """Say what the events of a table wait for that cannot be read yet."""
    if reading.keys:
        return f"an event of {table.name} that has its key, {', '.join(reading.missing_keys)}"
    wait = f"the key columns of {table.name}, which tables= can name"
    if len(table.keys) < 2:
        return wait
    named = " and ".join(f"({', '.join(key)})" for key in table.keys)
    again = "" if table.made_by is None else ", and rebuild by others than its ledger was made by"
    return f"{wait}{again}: its records name {named}"


def _is_of_unknown_schema() -> Column:
    return F.col(ERROR_CODE).eqNullSafe(F.lit(EventFault.UNKNOWN_SCHEMA.value))


class _Facts(NamedTuple):
    """What a batch says of tables, in order of these, the codes of its errors, and what else is in it."""

    mentions: list[Mention]
    errors: set[str]
    shares: Mapping[str, float]
    """By table, which part of the events is about it."""
    since: datetime | None
    ends_snapshot: bool


def _find_facts(events: DataFrame) -> _Facts:
    """Collect what events say of tables: a row for each column and type of each."""
    typed = F.when(F.size("types") > 0, F.map_entries("types"))
    untyped = F.transform(
        F.map_keys(F.coalesce("after", "before", "row_key")),
        lambda key: F.struct(key.alias("key"), F.lit(None).cast("string").alias("value")),
    )
    is_sound = F.col(ERROR_CODE).isNull()
    exploded = events.select(
        F.when(is_sound, F.col(OF_TABLE)).alias(OF_TABLE),
        ERROR_CODE,
        F.when(is_sound, F.map_keys("row_key")).alias("keys"),
        F.when(is_sound & F.col(OF_TABLE).isNotNull(), F.col("source")).alias("source"),
        "timestamp",
        is_last_read().alias("is_last"),
        F.posexplode_outer(F.when(is_sound, F.coalesce(typed, untyped))).alias("place", "column"),
    )
    rows = (
        exploded.groupBy(OF_TABLE, ERROR_CODE, "keys", "source", "column.key", "column.value")
        .agg(
            F.min("place").alias("place"),
            F.min("timestamp").alias("since"),
            F.max("is_last").alias("is_last"),
            F.count_if(F.coalesce("place", F.lit(0)) == 0).alias("events"),
        )
        .collect()
    )
    errors = {row[ERROR_CODE] for row in rows} - {None}

    def order(row: Row) -> tuple[Any, ...]:
        since = row["since"].timestamp() if row["since"] else 0
        place, column = (row["place"] or 0, since), (row["key"] or "", row["value"] or "")
        return row[OF_TABLE], *place, *column, row["keys"] or [], row["source"] or ""

    of_tables = sorted((row for row in rows if row[OF_TABLE] is not None), key=order)
    mentions = [
        Mention(row[OF_TABLE], tuple(row["keys"] or ()) or None, row["key"], row["value"], row["source"])
        for row in of_tables
    ]
    counts = Counter[str | None]()
    for row in rows:
        counts[row[OF_TABLE]] += row["events"]
    shares = {name: count / counts.total() for name, count in counts.items() if name is not None}
    times = [row["since"] for row in rows if row["since"] is not None]
    return _Facts(mentions, errors, shares, min(times, default=None), any(row["is_last"] for row in rows))
