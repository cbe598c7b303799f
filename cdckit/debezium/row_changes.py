"""The changes that the rows of a table are, and among them what cannot be used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cdckit.debezium.events import (
    DELETE,
    INSTANT,
    OF_ROWS,
    READ,
    RECORD_TYPES,
    TRUNCATE,
    Event,
    is_of_table,
    source_name,
    table_name,
)
from cdckit.debezium.positions import without_offset
from cdckit.debezium.rows import FAULTS, Rows, TablePlan, read_rows
from cdckit.model.places import RECORD_PLACE
from cdckit.parts.json_objects import plain_text

ARRIVAL = ("timestamp", "topic", "partition", "offset")
_ARRIVAL_TYPE = pa.struct([*((name, RECORD_TYPES[name]) for name in ARRIVAL), ("record_number", pa.int32())])
_REJECT_TYPE = pa.struct(
    [*RECORD_TYPES.items(), ("error_code", pa.string()), ("error_description", pa.string())]
)


def change_types(plan: TablePlan) -> dict[str, pa.DataType]:
    """The columns of changes, and their types."""
    keys = [("id", pa.string()), ("old_key", plan.key_type), ("new_key", plan.key_type)]
    return {
        "operation": pa.string(),
        "effective_timestamp": INSTANT,
        "sequence": pa.string(),
        "arrival": _ARRIVAL_TYPE,
        "message_id": pa.string(),
        "source": pa.string(),
        "priority": pa.int32(),
        "data": plan.data_type,
        "carried": plan.carried_type,
        "snapshot": pa.bool_(),
        "moved": pa.struct(keys),
        "faults": FAULTS,
        "reject": _REJECT_TYPE,
    }


class RecordPlace(NamedTuple):
    """Where a record stands: see `RECORD_PLACE`."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None


class _Change(NamedTuple):
    """A change, but for its data, those of a *row*; or a reject, which has an *error*."""

    record: int
    """The place of its record in the batch."""
    row: int | None
    operation: str | None
    effective_timestamp: int | None
    sequence: str
    message_id: str
    source: str | None
    snapshot: bool
    number: int = 1
    moved: dict[str, Any] | None = None
    faults: list[str] | None = None
    error: tuple[str | None, str | None] | None = None


def change_batch(
    batch: pa.RecordBatch,
    events: Callable[[pa.RecordBatch], list[Event]],
    plan: TablePlan,
    source: str | None,
    read_at: int | None,
) -> pa.RecordBatch:
    """
    The columns of `change_types`, a row for each change and for each event that cannot be one.

    Args:
        batch: The records.
        events: Gives what they say.
        plan: How the rows of the table are read.
        source: Its name; without it, what each event says, or else its topic.
        read_at: From when on rows that a snapshot read are true; without it, as the events say.
    """
    event_rows = events(batch)
    rows = read_rows(event_rows, plan, (*OF_ROWS, TRUNCATE))
    at = batch.column("timestamp").cast(pa.int64())
    parts = [at if name == "timestamp" else batch.column(name) for name in RECORD_PLACE]
    places = list(map(RecordPlace, *(part.to_pylist() for part in parts)))
    changes = [
        *_unread_events(event_rows, plan.table, places, source),
        *_row_changes(rows, plan, places, source, read_at),
    ]
    fields = zip(*changes, strict=True) if changes else [()] * len(_Change._fields)
    columns: dict[str, Any] = dict(zip(_Change._fields, fields, strict=True))
    types, of_rows = change_types(plan), pa.array(columns["row"], pa.int64())
    data, carried = (image.take(of_rows) for image in rows.structs(plan))
    records, numbers = pa.array(columns["record"], pa.int64()), pa.array(columns["number"], pa.int32())
    arrival = [*(batch.column(name).take(records) for name in ARRIVAL), numbers]
    columns |= {
        "arrival": pa.StructArray.from_arrays(arrival, fields=list(_ARRIVAL_TYPE)),
        "priority": [0] * len(changes),
        "data": data,
        "carried": carried,
        "reject": _rejects(columns["record"], columns["error"], batch),
    }
    arrays = [
        columns[name] if isinstance(columns[name], pa.Array) else pa.array(columns[name], kind)
        for name, kind in types.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(types.items()))


def _unread_events(
    events: Sequence[Event], table: str, places: Sequence[RecordPlace], source: str | None
) -> Iterator[_Change]:
    """The events in error, of the table or of nobody knows which."""
    for record, event in enumerate(events):
        if event.error_code is not None and (event.table is None or is_of_table(event, table)):
            error = event.error_code, event.error_description
            yield _reject(record, event, error, places[record], source)


def _reject(
    record: int,
    event: Event,
    error: tuple[str | None, str | None],
    place: RecordPlace,
    source: str | None,
) -> _Change:
    name = source_name(event, place.topic, source)
    return _Change(record, None, None, None, "", f"{name}:{_text(place)}", name, False, error=error)


def _text(place: RecordPlace) -> str:
    return "/".join(str(part) for part in place if part is not None)


UPSERT, DELETED = "upsert", "delete"
_OPERATIONS = {DELETE: DELETED, TRUNCATE: "truncate"}


def _row_changes(
    rows: Rows,
    plan: TablePlan,
    places: Sequence[RecordPlace],
    source: str | None,
    read_at: int | None,
) -> Iterator[_Change]:
    """The change that each row is; where an update moved it, one more says that the old key is left."""
    for row, (record, event, error) in enumerate(zip(rows.places, rows.events, rows.errors, strict=True)):
        place = places[record]
        if error is not None:
            yield _reject(record, event, error, place, source)
            continue
        name, is_read = source_name(event, place.topic, source), event.operation == READ
        at = event.event_timestamp if read_at is None or not is_read else read_at
        change = _Change(
            record,
            row,
            _OPERATIONS.get(event.operation or "", UPSERT),
            at,
            _sequence(event),
            _message_id(event, name, place),
            name,
            is_read,
            1,
            _move(rows, row, plan, place),
            rows.faults[row],
        )
        if rows.moved[row]:
            yield change._replace(operation=DELETED, row=rows.leave(row, plan))
            change = change._replace(number=2)
        yield change


def _sequence(event: Event) -> str:
    """The position; of a create that a changed key brought, the one behind that of its delete."""
    if event.position is None:
        return ""
    return event.position if event.old_key is None else f"{event.position}/1"


def _message_id(event: Event, source: str | None, place: RecordPlace) -> str:
    """
    Name an event of its source: by its position where it has one, else by its record.

    A queue may not number its records as Kafka does: then what an event says tells it from others.
    The row that an incremental snapshot read may stand at the position of a change of the same row; and a
    delete at that of a create, where the key that changed is not, or not all of, the key that is asked for.
    Of MySQL a hash of both rows tells events of a compressed transaction apart, which may share a position;
    of what a snapshot read the table: it has one position for all of them, and two may be of one entity.
    """
    position = event.position
    if position is None:
        said = f"/{event.operation}/{event.event_timestamp}#{_digest(event)}" if place.offset is None else ""
        return f"{source}:{_text(place)}{said}"
    of_operation = f"{event.operation}/" if event.operation in (READ, DELETE) else ""
    without = without_offset(position)
    if event.connector in ("mysql", "mariadb") or (without != position and place.offset is None):
        apart = f"#{_digest(event)}"
    else:
        apart = f"#{table_name(event)}" if event.operation == READ else ""
    return f"{source}:{of_operation}{without if event.connector == 'sqlserver' else position}{apart}"


def _digest(event: Event) -> str:
    images = [
        row and {name: plain_text(value) for name, value in row.items()}
        for row in (event.before, event.after)
    ]
    return hashlib.blake2b(json.dumps(images).encode(), digest_size=8).hexdigest().upper()


def _move(rows: Rows, row: int, plan: TablePlan, place: RecordPlace) -> dict[str, Any] | None:
    """Find how the row came to another key: in an update, or a delete and a create that name each other."""
    event, key, old, other = rows.events[row], rows.keys[row], rows.old_keys[row], rows.other_keys[row]
    if not rows.moved[row]:
        if other is None:
            return None
        old, key = (key, other) if event.operation == DELETE else (other, key)
    # Without the offset that a position may need: its delete and its create are one move.
    id_ = None if event.position is None else without_offset(event.position)
    if id_ is None and rows.moved[row]:
        id_ = _text(place)
    elif id_ is None and event.event_timestamp is not None:
        id_ = str(event.event_timestamp)
    return {"id": id_, "old_key": plan.key_struct(old), "new_key": plan.key_struct(key)}


def _rejects(
    records: Sequence[int], errors: Sequence[tuple[str | None, str | None] | None], batch: pa.RecordBatch
) -> pa.StructArray:
    """The records of what is no change, and why; null for a change."""
    if not any(errors):
        return pa.nulls(len(errors), _REJECT_TYPE)
    of_rejects = pa.array(
        [None if error is None else record for record, error in zip(records, errors, strict=True)], pa.int64()
    )
    columns = [batch.column(name).take(of_rejects).cast(kind) for name, kind in RECORD_TYPES.items()]
    codes = [pa.array([error and error[part] for error in errors], pa.string()) for part in (0, 1)]
    mask = pa.array([error is None for error in errors], pa.bool_())
    return pa.StructArray.from_arrays([*columns, *codes], fields=list(_REJECT_TYPE), mask=mask)
