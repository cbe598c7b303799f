"""Events of other producers than Debezium: Maxwell's of MySQL, and wal2json's of PostgreSQL, in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from cdckit.debezium.envelopes import unread_event
from cdckit.debezium.events import (
    CREATE,
    DELETE,
    MESSAGE,
    READ,
    TRUNCATE,
    UPDATE,
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
from cdckit.debezium.positions import lsn_position, maxwell_position
from cdckit.parts.instants import microseconds
from cdckit.parts.json_objects import ObjectReader, plain_text


class _MaxwellRow(msgspec.Struct, gc=False):
    type: Any = None
    database: Any = None
    table: Any = None
    ts: Any = None
    xid: Any = None
    xoffset: Any = None
    position: Any = None
    commit: Any = None
    data: Any = None
    old: Any = None


_read_maxwell = ObjectReader(_MaxwellRow)
_NONE = None, None
_MAXWELL_TYPES: Mapping[str | None, tuple[Kind | None, str | None]] = {
    "insert": (Kind.ROW, CREATE),
    "update": (Kind.ROW, UPDATE),
    "delete": (Kind.ROW, DELETE),
    "bootstrap-insert": (Kind.ROW, READ),
    "bootstrap-start": (Kind.HEARTBEAT, None),
    "bootstrap-complete": (Kind.HEARTBEAT, None),
    **{
        f"{what}-{how}": (Kind.SCHEMA_CHANGE, None)
        for what in ("database", "table")
        for how in ("create", "alter", "drop")
    },
}
"""By type of a record what it is about, and what happened to the row."""
_BEHIND_ALL = "9" * 20
"""The number of the last row of a transaction, which says that it is, and no number."""


def read_maxwell(values: pa.Array, records: Sequence[Record]) -> list[Event]:
    """The event of each record of Maxwell."""
    rows = _read_maxwell.read(values)
    return [_maxwell_event(row, record) for row, record in zip(rows, records, strict=True)]


def _maxwell_event(row: _MaxwellRow | None, record: Record) -> Event:
    if row is None:
        return unread_event(record, None, EventFault.NOT_JSON, text_of(record.value))
    word, data = plain_text(row.type), image_of(row.data)
    kind, operation = _MAXWELL_TYPES.get(word, _NONE)
    event = Event(
        form="json",
        kind=kind,
        db=plain_text(row.database),
        table=plain_text(row.table),
        operation=operation,
        snapshot="true" if operation == READ else None,
        transaction_id=plain_text(row.xid),
    )
    number = plain_text(row.xoffset) or (_BEHIND_ALL if row.commit is True else "")
    event.position = maxwell_position(row.position, number)
    # Rows say seconds, DDL milliseconds.
    unit = 1000 if kind == Kind.SCHEMA_CHANGE else 1_000_000
    at = row.ts * unit if row.ts.__class__ is int else None
    set_time(event, (("source", at), ("record", None if word is None else record.at)))
    if operation == DELETE:
        event.before = data
    else:
        event.before = image_of(row.old)
        # With the option `output_nulls=false` nulls are left out, and so is a column that became null.
        left_out = {name: None for name in event.before or () if name not in (data or ())}
        event.after = None if data is None else data | left_out
    return _check(event, "mysql", word, record)


def _check(event: Event, connector: str, word: str | None, record: Record) -> Event:
    """The event, of a database of this kind; refused where no *word* says what happened, or another one."""
    value = text_of(record.value)
    if word is None:
        return event.refuse(EventFault.NOT_AN_EVENT, value)
    if event.kind is None:
        return event.refuse(EventFault.UNKNOWN_OPERATION, word)
    event.connector, event.said = connector, None if event.kind == Kind.ROW else value
    return check_row(event)


class _Column(msgspec.Struct, gc=False):
    name: Any = None
    type: Any = None
    value: Any = None


class _Wal2jsonRow(msgspec.Struct, gc=False):
    action: Any = None
    xid: Any = None
    timestamp: Any = None
    lsn: Any = None
    schema: Any = None
    table: Any = None
    columns: list[_Column | None] | None = None
    identity: list[_Column | None] | None = None


_read_wal2json = ObjectReader(_Wal2jsonRow)
_WAL2JSON_ACTIONS: Mapping[str | None, tuple[Kind | None, str | None]] = {
    "I": (Kind.ROW, CREATE),
    "U": (Kind.ROW, UPDATE),
    "D": (Kind.ROW, DELETE),
    "T": (Kind.TRUNCATE, TRUNCATE),
    "M": (Kind.MESSAGE, MESSAGE),
    "B": (Kind.TRANSACTION, None),
    "C": (Kind.TRANSACTION, None),
}


def read_wal2json(values: pa.Array, records: Sequence[Record]) -> list[Event]:
    """The event of each record of wal2json."""
    rows = _read_wal2json.read(values)
    return [_wal2json_event(row, record) for row, record in zip(rows, records, strict=True)]


def _wal2json_event(row: _Wal2jsonRow | None, record: Record) -> Event:
    if row is None:
        return unread_event(record, None, EventFault.NOT_JSON, text_of(record.value))
    action = plain_text(row.action)
    kind, operation = _WAL2JSON_ACTIONS.get(action, _NONE)
    event = Event(
        form="json",
        kind=kind,
        schema=plain_text(row.schema),
        table=plain_text(row.table),
        operation=operation,
        position=lsn_position(row.lsn),
        transaction_id=plain_text(row.xid),
        before=_by_name(row.identity, "value"),
        after=_by_name(row.columns, "value"),
    )
    at = None if action is None else record.at
    set_time(event, (("source", _commit_time(row.timestamp)), ("record", at)))
    if kind == Kind.ROW:
        types = _by_name(row.identity if row.columns is None else row.columns, "type")
        event.types = None if types is None else {name: plain_text(type_) for name, type_ in types.items()}
    return _check(event, "postgresql", action, record)


def _commit_time(value: Any) -> int | None:
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return microseconds(at if at.tzinfo is not None else at.replace(tzinfo=UTC))


def _by_name(columns: list[_Column | None] | None, part: str) -> Image | None:
    """Find by name one thing that is said of each column; None where a name is missing or there twice."""
    if columns is None or any(column is None or column.name is None for column in columns):
        return None
    values = {plain_text(column.name): getattr(column, part) for column in columns if column is not None}
    return values if len(values) == len(columns) else None  # type: ignore[return-value]
