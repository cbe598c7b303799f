"""The tables of a relay: every event and what became of it, those that wait, and where streams stand."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.event_values import Source
from cdckit.databus.events import EVENT_FIELDS
from cdckit.databus.window_batches import COVERED, EVENT_WINDOW, IS_LATE, STREAM, Key, Mark
from cdckit.databus.window_machine import OpenWindow, StreamPosition
from cdckit.errors import InvalidArgument
from cdckit.ledger.columns import Kind
from cdckit.ledger.shell import GIVEN_UP, WAITING
from cdckit.model.records import ERROR_FIELDS, RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.parts.arrow_types import spark_columns
from cdckit.store import DamagedTable, Snapshot, Store, Transaction
from cdckit.store.locations import locate
from cdckit.store.store import Tables, read_note, read_rows, write_note
from cdckit.store.writing import Rows

EVENTS = "events"


@dataclass(frozen=True)
class Place:
    """
    Where events are put down.

    Args:
        folder: A folder or a URI, as for `cdckit.store.Store`; without it the folder for temporary files of
            this machine, which is enough where the workers are on it too.
        storage_options: What deltalake calls so, for a URI.
    """

    folder: str | Path | None = None
    storage_options: Mapping[str, str] | None = None

    @contextmanager
    def with_events(self, spark: SparkSession | None, rows: Rows, *, function: str) -> Iterator[Snapshot]:
        """
        A store of its own that holds the rows in its table of events, deleted at the end.

        Raises:
            InvalidArgument: What the workers wrote cannot be reached from here.
            NoFileSystem: As for `cdckit.store.Store`.
        """
        options = dict(self.storage_options or {}) or None
        if self.folder is None:
            folder = tempfile.mkdtemp(prefix="databus-")  # which nobody else can read
        else:
            folder = f"{str(self.folder).rstrip('/')}/databus-{uuid4().hex}"
        store, location = Store(spark, folder, options), locate(folder, options, spark)
        try:
            with store.begin() as transaction:
                transaction.append(EVENTS, rows, partition_by=STREAM)
                transaction.commit()
            yield store.snapshot()
        except DamagedTable as error:
            needed = "a folder or a URI that this program and Spark's workers both reach"
            raise InvalidArgument(function, "folder", needed, self.folder or tempfile.gettempdir()) from error
        finally:
            location.delete_all()


STREAMS, TAKEN = "streams", "taken"
_NOTE = "cdckit.databus"

_OWN = {field.name: field for field in [*RECORD_SCHEMA.fields, *EVENT_FIELDS, *spark_columns(EVENT_WINDOW)]}
_FIRST = (
    *STREAM, "offset", *EVENT_WINDOW.names, "kind", "source_id", "scn", "opcode", "long_key", "string_key",
    "event_timestamp", "schema_id",
)  # fmt: skip

STORED_SCHEMA = T.StructType(
    [
        # The log tells bounds of the first columns only: those by which rows are looked for.
        *(_OWN[name] for name in _FIRST),
        *spark_columns(COVERED),
        T.StructField(TAKEN, T.LongType()),
        *ERROR_FIELDS,
        *(field for name, field in _OWN.items() if name not in _FIRST),
    ]
)
"""One row is one record as it came, its event, and what became of its window.  `taken` is the commit that
told it."""

WAITING_SCHEMA = T.StructType(
    [
        *STORED_SCHEMA.fields,
        T.StructField(IS_LATE, T.BooleanType()),
        T.StructField(GIVEN_UP, T.TimestampType()),
    ]
)
"""The same of a window that is open, as it was known when the record came: where its window starts is told by
`STREAMS`.  Each file is of one stream, in the order of offsets."""

STREAMS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("physical_partition", pa.int32()),
        ("windows", pa.int64()),
        ("passed_scn", pa.int64()),
        ("needed_scn", pa.int64()),
        ("after_rollback", pa.bool_()),
        ("passed_micros", pa.int64()),
        ("lost", pa.int64()),
        ("last_offset", pa.int64()),
        ("open_start_scn", pa.int64()),
        ("open", pa.string()),
    ]
)
"""One row is where one stream stands, and what is known of its open window, for people and in JSON for who
goes on; without a physical partition, where a partition of a topic does."""

Last = dict[tuple[str, int], int]
"""By topic and partition the offset of the last record that came."""


@dataclass(frozen=True)
class Settings:
    """What a relay goes by."""

    sources: Mapping[int, Source]
    keys: Mapping[str, tuple[str, ...]]
    skipped: frozenset[int]
    buckets: int
    named: Mapping[str, Source] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "named", {each.name: each for each in self.sources.values()})

    def kind(self, name: str) -> Kind:
        """What the ledger of a source is about."""
        return Kind(name, self.keys[name], self.buckets, False, name)

    def check_store(self, transaction: Transaction) -> None:
        """Let the store know it; raises where a ledger was made by another key."""
        before: dict[str, Any] = read_note(transaction, _NOTE, {})
        own_keys = {name: list(keys) for name, keys in self.keys.items()}
        for name, keys in before.items():
            if own_keys.get(name, keys) != keys:
                needed = f"{name}: {keys}, as its ledger was made; rebuild makes it anew"
                raise InvalidArgument("receive", "keys", needed, f"{name}: {own_keys[name]}")
        if not own_keys.keys() <= before.keys():
            write_note(transaction, _NOTE, {**before, **own_keys})

    def forget(self, transaction: Transaction) -> None:
        """Let there be no ledgers: they are begun anew."""
        before: dict[str, Any] = read_note(transaction, _NOTE, {})
        for name, keys in before.items():
            Kind(name, tuple(keys), self.buckets, False, name).forget(transaction)
        write_note(transaction, _NOTE, {})


def to_stored_rows(decoded: DataFrame) -> DataFrame:
    """What `decode` returned, in the columns in which it is kept; those of windows are null."""
    found = {name: F.col(name) for name in decoded.columns}
    return decoded.select(
        *(found.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in STORED_SCHEMA)
    )


def to_event_rows(kept: DataFrame) -> DataFrame:
    """Kept rows in the columns of `with_windows`."""
    columns = [*RECORD_COLUMNS, *(each.name for each in [*EVENT_FIELDS, *ERROR_FIELDS]), *EVENT_WINDOW.names]
    return kept.select(*columns)


def read_events(tables: Tables) -> DataFrame:
    """All that came, those of open windows included."""
    names = STORED_SCHEMA.fieldNames()
    waiting = read_waiting(tables).select(*names)
    return read_rows(tables, EVENTS, STORED_SCHEMA).select(*names).unionByName(waiting)


def read_waiting(tables: Tables) -> DataFrame:
    """The events of open windows, with what is known of these now."""
    starts = read_rows(tables, STREAMS, spark_columns(STREAMS_SCHEMA)).select(*STREAM, "open_start_scn")
    found = read_rows(tables, WAITING, WAITING_SCHEMA).join(F.broadcast(starts), list(STREAM), "left")
    waiting = found.withColumn("window_start_scn", F.col("open_start_scn"))
    return waiting.select(*WAITING_SCHEMA.fieldNames())


def read_marks(tables: Transaction) -> tuple[dict[Key, Mark], Last]:
    """Where the streams stand."""
    if not tables.has(STREAMS):
        return {}, {}
    tables.files(STREAMS)
    marks, last = {}, {}
    for row in tables.base.arrow(STREAMS).to_pylist():
        key = tuple(row[name] for name in STREAM)
        standing = StreamPosition(
            row["passed_scn"], row["needed_scn"], row["after_rollback"], row["passed_micros"]
        )
        marks[key] = Mark(standing, parse_open_window(row["open"]), row["lost"])
        if key[2] is None:
            last[key[:2]] = row["last_offset"]
    return marks, last


def mark_rows(marks: Mapping[Key, Mark], last: Mapping[tuple[str, int], int]) -> pa.Table:
    """The same as rows of `STREAMS`."""
    listed = []
    for key in sorted({*marks, *((*place, None) for place in last)}, key=repr):
        mark = marks.get(key, Mark())
        offset = None if key[2] is not None else last[key[:2]]
        window = mark.open
        standing = (window.number - 1, *mark.position, mark.lost, offset)
        values = (*standing, window.start_scn, open_window_text(window))
        listed.append((*key, *values))
    columns = zip(*listed, strict=True) if listed else [[]] * len(STREAMS_SCHEMA)
    arrays = [pa.array(list(each), field.type) for each, field in zip(columns, STREAMS_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=STREAMS_SCHEMA)


def open_window_text(window: OpenWindow) -> str:
    """What is known of an open window, as JSON."""
    return json.dumps(asdict(window))


def parse_open_window(text: str) -> OpenWindow:
    """The same back: the numbers of sources are keys, which in JSON are texts."""
    document = json.loads(text)
    of_source = {int(number): scn for number, scn in document.pop("of_source").items()}
    return OpenWindow(**document, of_source=of_source)
