"""Debezium's events: what an envelope says, in JSON with and without a schema beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from cdckit.debezium.column_types import types_of
from cdckit.debezium.events import (
    MESSAGE,
    MONGODB,
    OF_ROWS,
    TRUNCATE,
    Event,
    EventFault,
    Image,
    Kind,
    Record,
    check_row,
    image_of,
    set_time,
    text_of,
)
from cdckit.debezium.positions import position
from cdckit.debezium.unsent_values import keep_sent_columns
from cdckit.parts.json_objects import ObjectReader, json_value, plain_text

_ID = "_id"


_JSON_NAMES = {
    "tx_id": "txId",
    "tx_seq": "txSeq",
    "txn_number": "txnNumber",
    "wall_time": "wallTime",
    "database_name": "databaseName",
    "schema_name": "schemaName",
}


class Source(msgspec.Struct, gc=False, rename=_JSON_NAMES):
    """What is read of a source block; fields that stand in the order of the JSON are found at once."""

    version: Any = None
    connector: Any = None
    name: Any = None
    ts_ms: Any = None
    snapshot: Any = None
    db: Any = None
    sequence: Any = None
    ts_us: Any = None
    ts_ns: Any = None
    schema: Any = None
    table: Any = None
    collection: Any = None
    tx_id: Any = None
    lsn: Any = None
    gtid: Any = None
    file: Any = None
    pos: Any = None
    row: Any = None
    commit_lsn: Any = None
    change_lsn: Any = None
    event_serial_no: Any = None
    commit_scn: Any = None
    scn: Any = None
    tx_seq: Any = None
    lcr_position: Any = None
    rs_id: Any = None
    ssn: Any = None
    ord: Any = None
    txn_number: Any = None
    wall_time: Any = None
    value_capture_type: Any = None
    keyspace: Any = None


class Transaction(msgspec.Struct, gc=False):
    """What is read of an event's transaction block."""

    id: Any = None


class Envelope(msgspec.Struct, gc=False, rename=_JSON_NAMES):
    """What is read of an event's envelope, and of what is not about a row."""

    before: Any = None
    after: Any = None
    source: Source | None = None
    transaction: Transaction | None = None
    op: Any = None
    ts_ms: Any = None
    ts_us: Any = None
    ts_ns: Any = None
    status: Any = None
    id: Any = None
    database_name: Any = None
    schema_name: Any = None
    ddl: Any = None


class _Value(Envelope, gc=False, rename=_JSON_NAMES):
    """An envelope, or one as the payload beside its schema."""

    payload: Envelope | None = None
    schema: msgspec.Raw = msgspec.Raw()


_NO_SOURCE, _NOTHING = Source(), b"null"
_read_value, _read_object = ObjectReader(_Value), ObjectReader(dict)


def read_records(values: pa.Array, records: Sequence[Record]) -> list[Event]:
    """The event of each record."""
    return [_event(value, record) for value, record in zip(_read_value.read(values), records, strict=True)]


def _event(value: _Value | None, record: Record) -> Event:
    if value is None:
        return unread_event(record, read_key(record.key), EventFault.NOT_JSON, text_of(record.value))
    envelope = value if value.payload is None else value.payload
    schema = bytes(value.schema)
    types = types_of(schema) if schema and schema != _NOTHING else None
    return event_of(envelope, record, read_key(record.key), types, "json")


def unread_event(record: Record, row_key: Image | None, fault: EventFault, shown: str | None) -> Event:
    """The event of a record without a value, or with one that cannot be read."""
    event = Event(row_key=row_key, new_key=record.new_key, old_key=record.old_key)
    set_time(event, (("record", record.at),))
    if record.value is not None:
        return event.refuse(fault, shown)
    event.kind = Kind.TOMBSTONE
    return event


def read_key(key: bytes | None) -> Image | None:
    """The columns of a key in JSON, with or without a schema; None for any other key."""
    if key is None:
        return None
    columns = _read_object.object(key)
    if columns is not None and "schema" in columns and isinstance(columns.get("payload"), dict):
        # Beside a schema alone: a column may have the name of the payload.
        columns = columns["payload"]
    return columns  # type: ignore[no-any-return]


def event_of(
    envelope: Envelope,
    record: Record,
    row_key: Image | None,
    types: Mapping[str, str | None] | None,
    form: str,
    text: str | None = None,
) -> Event:
    """Read an envelope, in whatever *form* it was; *text* is the value as JSON, if its bytes are not."""
    source, op = envelope.source or _NO_SOURCE, plain_text(envelope.op)
    connector = plain_text(source.connector)
    event = Event(
        form=form,
        connector=connector,
        source=plain_text(source.name),
        db=plain_text(source.db or source.keyspace or envelope.database_name),
        schema=plain_text(envelope.schema_name if source.schema is None else source.schema),
        table=plain_text(source.collection if source.table is None else source.table) or None,
        operation=op,
        snapshot=plain_text(source.snapshot),
        position=position(connector, source, record.offset),
        transaction_id=_transaction_id(envelope, source),
        row_key=row_key,
        before=image_of(envelope.before),
        after=image_of(envelope.after),
        new_key=record.new_key,
        old_key=record.old_key,
    )
    set_time(event, _times(source, envelope, record))
    if op in OF_ROWS:
        event.kind, event.types = Kind.ROW, types
        if connector == MONGODB:
            _set_document(event, envelope)
        elif (unknown := keep_sent_columns(event, plain_text(source.value_capture_type))) is not None:
            return event.refuse(EventFault.OTHER_ENVELOPE, unknown)
        return check_row(event, has_key=record.key is not None)
    value = text_of(record.value) if text is None else text
    event.kind = _other_kind(envelope, op, value)
    event.types = types if op == TRUNCATE else None
    if connector == MONGODB:
        event.row_key = _document_key(row_key)
    if event.kind is not None:
        event.said = value
        return check_row(event)
    return _refuse_row(event, value) if op is None else event.refuse(EventFault.UNKNOWN_OPERATION, op)


def _other_kind(envelope: Envelope, op: str | None, value: str | None) -> str | None:
    """Tell what a record is about that is not about a row."""
    if op == TRUNCATE:
        return Kind.TRUNCATE
    if op == MESSAGE:
        return Kind.MESSAGE
    if value is not None and _TOMBSTONE.fullmatch(value):
        return Kind.TOMBSTONE
    if op is not None:
        return None
    # Strictly: a row that was taken out of its envelope may have columns of these names.
    if envelope.status in ("BEGIN", "END") and envelope.id is not None:
        return Kind.TRANSACTION
    if envelope.source is not None and (envelope.database_name, envelope.ddl) != (None, None):
        return Kind.SCHEMA_CHANGE
    if envelope.ts_ms is not None and _has_only_times(value):
        return Kind.HEARTBEAT
    return None


_TOMBSTONE = re.compile(r'\s*\{\s*"schema"\s*:\s*null\s*,\s*"payload"\s*:\s*null\s*\}\s*')


def _payload(text: str | None) -> Image | None:
    """The object that a text is, or that stands in it beside a schema; None where it is too deep."""
    value: Image | None = _read_object.object((text or "{}").encode())
    payload = (value or {}).get("payload")
    return payload if isinstance(payload, dict) else value


def _has_only_times(value: str | None) -> bool:
    """Tell whether a value, or its payload, says nothing else, as a heartbeat."""
    payload = _payload(value)
    return payload is not None and not payload.keys() - {"ts_ms", "ts_us", "ts_ns"}


def _refuse_row(event: Event, value: str | None) -> Event:
    """The event of a value that has no envelope: a row that was taken out of it, or something else."""
    row = _payload(value) or {}
    if not any(name.startswith("__") and name[2:] in _MARKS for name in row):
        return event.refuse(EventFault.NOT_AN_EVENT, value)
    return event.refuse(
        EventFault.UNWRAPPED, finding=f"A call that would do: {_row_call(row, event.row_key)}"
    )


_MARKS = ("deleted", "op", "table", "lsn", "source_ts_ms", "source_ts_us", "source_ts_ns", "ts_ms")


def _row_call(row: Image, key: Image | None) -> str:
    """
    The call of `changes_from` that reads rows such as this one.

    Numbers are texts there: one row does not say whether all are whole, or how many digits they have.
    """
    columns = ", ".join(f"`{name}` {_sql_type(name, value)}" for name, value in row.items())
    times = {"__source_ts_ms": "timestamp_millis(__source_ts_ms)", "__ts_ms": "timestamp_millis(__ts_ms)"}
    at = next((sql for name, sql in times.items() if name in row), "timestamp")
    marks = [name for name in row if name.startswith("__")]
    call = {
        "keys": sorted(key or {}) or ["…"],
        "effective": at,
        "sequence_by": "offset",
        "apply_as_deletes": "__deleted = 'true'" if "__deleted" in row else "__op = 'd'",
        "except_column_list": ["timestamp", "offset", *marks],
    }
    if not {"__deleted", "__op"} & row.keys():
        del call["apply_as_deletes"]
    return (
        f"""rows = records.selectExpr("from_json(cast(value AS string), '{columns}') AS row", "timestamp", """
        f""""offset").select("row.*", "timestamp", "offset"); """
        f"changes_from(rows, {', '.join(f'{name}={value!r}' for name, value in call.items())})"
    )


def _sql_type(name: str, value: Any) -> str:
    if value.__class__ is bool:
        return "boolean"
    return "bigint" if value.__class__ is int and name.startswith("__") else "string"


def _transaction_id(envelope: Envelope, source: Source) -> str | None:
    """
    Name the transaction, in the same words in its events and in its begin and end.

    Behind PostgreSQL's number Debezium says the LSN of each event (https://github.com/debezium/debezium/pull/3945).
    """
    block = envelope.transaction
    for id_ in (None if block is None else block.id, source.tx_id, source.gtid, envelope.id):
        if id_ is not None:
            text = plain_text(id_) or ""
            return text.partition(":")[0] if ":" in text and _WITH_LSN.fullmatch(text) else text
    return None


_WITH_LSN = re.compile(r"\d+:\d+")


def _times(source: Source, envelope: Envelope, record: Record) -> Iterator[tuple[str, int | None]]:
    """Read when it was so, by who says it."""
    yield "source", _micros(source)
    yield "event", _micros(envelope)
    yield "record", record.at


def _micros(block: Source | Envelope) -> int | None:
    """An instant that is told in three precisions; 0 is none: old connectors said so of snapshots."""
    micros, nanos, millis = block.ts_us, block.ts_ns, block.ts_ms
    if micros.__class__ is int and -_MOST <= micros < _MOST:
        return micros or None
    if nanos.__class__ is int and -_MOST <= nanos // 1000 < _MOST:
        return nanos // 1000 or None
    if millis.__class__ is int and -_MOST <= millis * 1000 < _MOST:
        return millis * 1000 or None
    return None


_MOST = 1 << 63


def _set_document(event: Event, envelope: Envelope) -> None:
    """
    Give an event of MongoDB its document, whose fields are JSON text within the text, and its key.

    Its `_id` is what the record's key says, where there is one: the two write it by different rules, such as
    `{"$numberLong": "7"}` and `7`, and a delete has the key alone.
    """
    event.row_key = _document_key(event.row_key)
    if event.after is None and isinstance(envelope.after, str):
        try:
            event.after = image_of(json_value(envelope.after))
        except (ValueError, RecursionError):
            return
        if event.after is not None and event.row_key is not None and _ID in event.after:
            document_id = event.row_key[_ID]
            event.after[_ID] = event.after[_ID] if document_id is None else document_id


def _document_key(row_key: Image | None) -> Image | None:
    """The key `{"id": "…"}` of a document, whose value is JSON text, under the name that documents have."""
    text = None if row_key is None else plain_text(row_key.get("id"))
    try:
        return None if text is None else {_ID: json_value(text)}
    except (ValueError, RecursionError):
        return None
