"""Events: what one record says of a database, in the same form whoever produced it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from cdckit.model.faults import Fault
from cdckit.parts.json_objects import plain_text

CREATE, UPDATE, DELETE, READ, TRUNCATE, MESSAGE = "c", "u", "d", "r", "t", "m"
OF_ROWS = (CREATE, UPDATE, DELETE, READ)
"""What can happen, in Debezium's letters: *read* is a row that a snapshot found."""

MONGODB = "mongodb"


class EventFault(Fault):
    """
    The codes of the rejects among change events, in the order in which an event is looked at.

    >>> EventFault.UNKNOWN_OPERATION.describe("It is x.")
    'The operation of a change event must be one of c, u, d, r, t and m. It is x.'
    """

    NOT_JSON = "NOT_JSON", "The value is not one JSON object, whole and with nothing after it."
    NOT_FRAMED = (
        "NOT_FRAMED",
        "The value does not begin with a zero byte and the id of a schema, so it is no Avro of a registry.",
    )
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA", "The schema of that id is not among the given ones.", True
    SCHEMA_UNUSABLE = "SCHEMA_UNUSABLE", "The schema of that id cannot be used."
    DATUM_UNREADABLE = "DATUM_UNREADABLE", "The datum does not decode with the schema of its id."
    OTHER_ENVELOPE = (
        "OTHER_ENVELOPE",
        "Nothing known says which values of a row this event sent: its connector wraps each in a cell, or "
        "writes null for what did not change.",
    )
    UNWRAPPED = ("UNWRAPPED", "The value is a row that `ExtractNewRecordState` took out of its envelope.")
    NOT_AN_EVENT = (
        "NOT_AN_EVENT",
        "The value is JSON, but no event of this producer: what says its kind is not there.",
    )
    UNKNOWN_OPERATION = (
        "UNKNOWN_OPERATION",
        "The operation of a change event must be one of c, u, d, r, t and m.",
    )
    NO_TABLE = "NO_TABLE", "The event does not say of which table it is."
    NO_ROW = "NO_ROW", "The event has no row: a delete needs before, or a key; any other change needs after."
    NO_TIME = "NO_TIME", "The event says no time that an instant can hold, and its record has none."
    TABLE_WITHOUT_KEY = "TABLE_WITHOUT_KEY", "Nothing says which columns are the key of the table."
    KEY_MISSING = "KEY_MISSING", "A key column is null or was not sent."
    VALUE_INVALID = "VALUE_INVALID", "A value does not convert to the type of its column."


class Kind(StrEnum):
    """
    What a record is about.

    >>> Kind.ROW == "row"
    True
    """

    ROW = "row"
    TRUNCATE = "truncate"
    MESSAGE = "message"
    TRANSACTION = "transaction"
    SCHEMA_CHANGE = "schema_change"
    TOMBSTONE = "tombstone"
    HEARTBEAT = "heartbeat"


ROW, TRUNCATED = Kind.ROW, Kind.TRUNCATE
OF_TABLES = (ROW, TRUNCATED)

INSTANT = pa.timestamp("us", "UTC")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
RECORD_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": INSTANT,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}
"""The columns of records, and their types."""
READ_COLUMNS = ("key", "value", "offset", "timestamp", "headers")
"""What is read of a record."""


class Record(NamedTuple):
    """What is read of a record."""

    key: bytes | None
    value: bytes | None
    offset: int | None
    at: int | None
    """Its own time, in microseconds."""
    new_key: str | None
    old_key: str | None
    """The keys that its headers name."""


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """Read the records of a batch."""
    columns = [batch.column(name).to_pylist() for name in ("key", "value", "offset")]
    at = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = batch.column("headers")
    if len(headers.flatten()) == 0:
        return list(map(Record, *columns, at, repeat(None), repeat(None)))
    named = [
        [_last_header(header or (), f"__debezium.{name}") for header in headers.to_pylist()]
        for name in ("newkey", "oldkey")
    ]
    return list(map(Record, *columns, at, *named))


def _last_header(headers: Sequence[Mapping[str, Any]], name: str) -> str | None:
    """The text of the last header of this name."""
    values = [header["value"] for header in headers if header["key"] == name]
    return text_of(values[-1]) if values else None


Image = dict[str, Any]
"""A row as it was sent: each column that was sent, with its value as `cdckit.parts.json_objects` reads it."""


def image_of(row: Any) -> Image | None:
    """A row that is one; None for anything else."""
    return row if isinstance(row, dict) else None


class Event(msgspec.Struct, gc=False):
    """What one record says: see `cdckit.debezium.EVENT_SCHEMA`; its time is in microseconds."""

    form: str | None = None
    kind: str | None = None
    connector: str | None = None
    source: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    operation: str | None = None
    snapshot: str | None = None
    event_timestamp: int | None = None
    time_taken_from: str | None = None
    position: str | None = None
    transaction_id: str | None = None
    row_key: Image | None = None
    before: Image | None = None
    after: Image | None = None
    types: Mapping[str, str | None] | None = None
    new_key: str | None = None
    old_key: str | None = None
    said: str | None = None
    error_code: str | None = None
    error_description: str | None = None

    def refuse(self, fault: EventFault, shown: str | None = None, *, finding: str = "") -> Event:
        """The event with this fault, and what is *shown* of it, or another *finding*."""
        self.error_code = fault.value
        self.error_description = fault.describe(finding if shown is None else f"It says: {shown[:200]}")
        return self


TEXTS = pa.map_(pa.string(), pa.string())
_IMAGES = ("row_key", "before", "after", "types")
EVENT_TYPES: dict[str, pa.DataType] = {
    name: INSTANT if name == "event_timestamp" else TEXTS if name in _IMAGES else pa.string()
    for name in Event.__struct_fields__
}
"""The columns of events, and their types."""


Reader = Callable[[pa.Array, Sequence[Record]], list[Event]]
"""Makes events of the values of records, and of what else is read of them."""


def event_batch(batch: pa.RecordBatch, reader: Reader) -> pa.RecordBatch:
    """The columns of `EVENT_TYPES`, a row for each row of a batch of `READ_COLUMNS`."""
    records = batch.rename_columns(READ_COLUMNS)
    values = records.column("value")
    events = reader(values, records_of(records))
    try:
        columns = _columns_of(events)
    except RecursionError:
        # What can just be read is too deep to be written; that may not cost the others their values.
        columns = _columns_of([_or_refused(*pair) for pair in zip(events, values, strict=True)])
    return pa.RecordBatch.from_arrays(columns, list(EVENT_TYPES))


def _columns_of(events: Sequence[Event]) -> list[pa.Array]:
    fields = zip(*map(msgspec.structs.astuple, events), strict=True) if events else [()] * len(EVENT_TYPES)
    return [
        _maps(values) if kind == TEXTS else pa.array(values, kind)
        for values, kind in zip(fields, EVENT_TYPES.values(), strict=True)
    ]


def _maps(images: Sequence[Any]) -> pa.Array:
    entries = [
        None if image is None else [(name, plain_text(value)) for name, value in image.items()]
        for image in images
    ]
    return pa.array(entries, TEXTS)


def _or_refused(event: Event, value: pa.Scalar) -> Event:
    try:
        _columns_of([event])
    except RecursionError:
        refused = Event(event_timestamp=event.event_timestamp)
        return refused.refuse(EventFault.NOT_JSON, text_of(value.as_py()))
    return event


def table_name(event: Event) -> str:
    """The name of the table, with the database and the schema before it where they are said."""
    return ".".join(part for part in (event.db, event.schema, event.table) if part is not None)


def source_name(event: Event, topic: str | None, source: str | None) -> str | None:
    """Name the source of an event: the one that is given, else its own, else its topic."""
    return source or event.source or topic


def is_of_table(event: Event, table: str) -> bool:
    """Tell whether an event is of the table: its name, if wanted with schema and database before it."""
    if event.table == table:
        return True
    full = table_name(event)
    return full == table or full.endswith(f".{table}")


_FIRST, _LAST = -62_135_510_400_000_000, 253_402_128_000_000_000
"""The years 1 to 9999 but for a day at either end: Python could not show an instant outside of them."""


def set_time(event: Event, candidates: Iterable[tuple[str, int | None]]) -> None:
    """Give an event the first of the instants that is there, and say which it is."""
    for name, at in candidates:
        if at is not None and _FIRST <= at <= _LAST:
            event.event_timestamp, event.time_taken_from = at, name
            return


def text_of(value: bytes | None) -> str | None:
    """Bytes as text; None where they are none."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def check_row(event: Event, *, has_key: bool = False) -> Event:
    """The event, refused where it is about a row or a table and does not say which, or when."""
    is_row = event.kind == ROW
    if event.table is None and (is_row or event.kind == TRUNCATED):
        return event.refuse(EventFault.NO_TABLE)
    if not is_row:
        return event
    needed = event.before if event.operation == DELETE else event.after
    if needed is None and not (has_key and event.operation == DELETE):
        return event.refuse(EventFault.NO_ROW, finding=_CAPTURE_MODE if event.connector == MONGODB else "")
    return event.refuse(EventFault.NO_TIME) if event.event_timestamp is None else event


_CAPTURE_MODE = (
    "MongoDB's connector sends the document of an update where its `capture.mode` is "
    "`change_streams_update_full`, and null even then if it was deleted meanwhile."
)
