"""The tables of a relay: every event and what became of it, those that wait, and where streams stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.decoding import EVENT_SCHEMA
from cdckit.databus.event_stream import EVENTS
from cdckit.databus.row_changes import row_fields
from cdckit.databus.sources import Source, schema_id
from cdckit.databus.window_batches import COVERED, EVENT_WINDOW, STREAM, PartitionState
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.ledger.columns import log_fields
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import require_keys_keep_their_texts
from cdckit.parts.arguments import schema_columns
from cdckit.parts.arrow_types import spark_columns, spark_type
from cdckit.parts.instants import EPOCH
from cdckit.parts.workers import local_frame
from cdckit.shell.settings import Settings
from cdckit.shell.waiting import GIVEN_UP, WAITING
from cdckit.store import Transaction
from cdckit.store.store import Tables, read_note, read_rows, write_note

STREAMS, TAKEN = "streams", "taken"

WINDOWED_SCHEMA = T.StructType([*EVENT_SCHEMA.fields, *spark_columns(EVENT_WINDOW)])
"""What `with_windows` returns."""

# The log tells bounds of the first 32 columns, by which files are found: of all but the last.
STORED_SCHEMA = T.StructType(
    [*WINDOWED_SCHEMA.fields, *spark_columns(COVERED), T.StructField(TAKEN, T.LongType())]
)
"""One row is one record as it came, its event, and what became of its window.  `taken` is the commit that
told it.  Each file has the rows of a stream in the order of their offsets."""

WAITING_SCHEMA = T.StructType([*STORED_SCHEMA.fields, T.StructField(GIVEN_UP, T.TimestampType())])
"""The same of a window that is open: where that starts is told by `STREAMS`."""

States = dict[tuple[str, int], str]
"""By topic and partition where its streams stand, a `PartitionState` in JSON: rows of `STREAMS`."""

_STREAM_ROWS = (
    "topic string, partition int, physical_partition int, windows bigint, passed_scn bigint, "
    "passed_timestamp timestamp, needed_scn bigint, open_start_scn bigint"
)


@dataclass(frozen=True)
class RelaySettings(Settings):
    """What a relay goes by; its ledgers are made by its keys."""

    sources: Mapping[int, Source]
    keys: Mapping[str, tuple[str, ...]]
    skipped: frozenset[int]
    note_key = "cdckit.databus"
    sources_note = "cdckit.databus.sources"

    @property
    def noted(self) -> dict[str, Any]:
        return {"keys": {name: list(fields) for name, fields in self.keys.items()}}

    def note(self, tables: Transaction) -> None:
        """Let the store know it, and by which sources and schemas its events are read."""
        super().note(tables)
        sources = {
            source.id: [source.name, {number: schema_id(text) for number, text in source.texts.items()}]
            for source in self.sources.values()
        }
        write_note(tables, self.sources_note, {"sources": sources, "skipped": sorted(self.skipped)})

    def require_same(self, tables: Transaction) -> None:
        """Raise where the tables were made by others; there may be more sources, and newer schemas."""
        super().require_same(tables)
        self.require_skipped(tables)
        self.require_sources(tables)
        self._require_key_types(tables)

    def require_skipped(self, tables: Tables) -> None:
        """Raise where a source is wanted that was skipped: what it sends again would count as repeated."""
        note = read_note(tables, self.sources_note, {"skipped": []})
        if lacking := sorted({*note["skipped"]} - self.skipped):
            needed = f"the sources that were skipped before, also {lacking}: their events were not kept"
            remedy = "Begin a relay in another location, with all records from the first one on."
            raise InvalidArgument(None, "skip_sources", needed, sorted(self.skipped), remedy=remedy)

    def require_sources(self, tables: Tables) -> None:
        """Raise where a source or a schema is not given by which events were read that are kept."""
        lacking = []
        noted_sources = read_note(tables, self.sources_note, {"sources": {}})["sources"]
        for number, (name, schemas) in noted_sources.items():
            source = self.sources.get(int(number))
            if int(number) in self.skipped:
                continue
            if source is None or source.name != name:
                lacking.append(f"the source {number}, {name!r}")
                continue
            given = {key: schema_id(text) for key, text in source.texts.items()}
            lacking += [
                f"the schema {key!r} of {name!r}" for key in schemas if given.get(key) != schemas[key]
            ]
        if lacking:
            needed = f"those by which the events were read before, also {', '.join(lacking)}"
            found = {source.name: list(source.texts) for source in self.sources.values()}
            raise InvalidArgument(None, "sources", f"{needed}; `rebuild` goes by new ones", found)

    def _require_key_types(self, tables: Transaction) -> None:
        """Raise where newer schemas give a key another text than its ledger has."""
        for name, kind in self.kinds.items():
            if not tables.has(kind.changes):
                continue
            fields = (
                T.StructField(field.name, spark_type(field.type)) for field in row_fields(self.named[name])
            )
            try:
                before = log_fields(tables.schema(kind.changes))
                require_keys_keep_their_texts(before, T.StructType(list(fields)), kind)
            except WrongColumnType as error:
                remedy = "`rebuild` makes the ledgers anew with the type that holds the keys of all schemas."
                facts = (error.function, error.column, error.needed, error.found)
                raise WrongColumnType(*facts, remedy) from None

    @cached_property
    def named(self) -> Mapping[str, Source]:
        """The sources by name."""
        return {source.name: source for source in self.sources.values()}

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """What the ledgers are about, by the names of their sources."""
        return {name: self._kind(name, keys) for name, keys in self.keys.items()}

    def _kind(self, name: str, keys: Sequence[str]) -> Kind:
        return Kind(name, tuple(keys), by_guid=False, name=name)

    def forget_ledgers(self, transaction: Transaction) -> None:
        """Forget the ledgers, by whichever keys they were made: they are begun anew."""
        for name, keys in read_note(transaction, self.note_key, {"keys": {}})["keys"].items():
            self._kind(name, keys).forget(transaction)


def to_stored_rows(decoded: DataFrame) -> DataFrame:
    """Bring what `decode` returned into the columns in which it is kept; those of windows are null."""
    return decoded.select(*schema_columns(STORED_SCHEMA, {name: F.col(name) for name in decoded.columns}))


def read_windowed_events(tables: Tables) -> DataFrame:
    """Read what `with_windows` returns for all that came, the events of open windows included."""
    names = WINDOWED_SCHEMA.fieldNames()
    waiting = read_waiting(tables).select(*names)
    return read_rows(tables, EVENTS, STORED_SCHEMA).select(*names).unionByName(waiting)


def read_waiting(tables: Tables) -> DataFrame:
    """Read the events of open windows, with what is known of these now."""
    starts = stream_rows(tables).select(*STREAM, "open_start_scn")
    waiting = read_rows(tables, WAITING, WAITING_SCHEMA).join(F.broadcast(starts), list(STREAM), "left")
    return waiting.withColumn("window_start_scn", F.col("open_start_scn")).drop("open_start_scn")


def stream_rows(tables: Tables) -> DataFrame:
    """Read where each stream stands."""
    rows = [
        (
            *place, number, stream.window.number - 1, stream.passed_scn,
            None if stream.passed_scn < 0 else EPOCH + timedelta(microseconds=stream.micros),
            stream.needed_scn, stream.window.start_scn,
        )
        for place, text in read_states(tables).items()
        for number, stream in msgspec.json.decode(text, type=PartitionState).streams.items()
    ]  # fmt: skip
    return local_frame(tables.spark, rows, _STREAM_ROWS)


def read_states(tables: Tables) -> States:
    """Read where the streams of each partition stand."""
    if not tables.has(STREAMS):
        return {}
    tables.files(STREAMS)
    snapshot = tables.base if isinstance(tables, Transaction) else tables
    rows = snapshot.arrow(STREAMS).to_pylist()
    return {(row["topic"], row["partition"]): row["state"] for row in rows}


def state_rows(states: States) -> pa.Table:
    """Make rows of `STREAMS` of them."""
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("state", pa.string())])
    rows = [dict(zip(schema.names, (*place, text), strict=True)) for place, text in sorted(states.items())]
    return pa.Table.from_pylist(rows, schema)
