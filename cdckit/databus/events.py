"""Events: what the JSON of each record says, in the form in which relays write and read events."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from cdckit.databus.plain_values import plain_datum
from cdckit.databus.sources import Source
from cdckit.model.faults import Fault
from cdckit.parts import avro
from cdckit.parts.instants import INSTANT
from cdckit.parts.json_objects import STRICT_JSON, ObjectReader, json_text, json_value
from cdckit.parts.json_text import RepeatedName

UPSERT, DELETE = "UPSERT", "DELETE"
ERASED = "ERASED"
"""In place of an opcode: of data events of which nothing is left but their place, their source and SCN, by
which windows are told."""
DATA, END, ROLLBACK, CHECKPOINT, ERROR, SYSTEM = "data", "end", "rollback", "checkpoint", "error", "system"
KINDS = (DATA, END, ROLLBACK, CHECKPOINT, ERROR, SYSTEM)
"""What an event is.  `data` is a change; `end` the end of a period, which ends a window; `rollback` says
that the source went back to an SCN; the rest come and go anywhere and change nothing."""

_KINDS_BY_ID = {-2: END, -3: CHECKPOINT, -51: ROLLBACK} | dict.fromkeys(range(-50, -3), ERROR)


class DatabusFault(Fault):
    """
    The codes of the door's rejects, in the order in which an event is looked at.

    >>> DatabusFault.SCN_FELL.describe("Expected 7 or more, found 6.")
    'Within a window the SCN of a source must not fall. Expected 7 or more, found 6.'
    >>> [str(fault) for fault in DatabusFault if fault.heals]
    ['SOURCE_UNKNOWN', 'SCHEMA_UNKNOWN', 'WINDOW_OPEN']
    """

    NO_VALUE = "NO_VALUE", "The record has no value (a tombstone of the topic, not a Databus event)."
    NOT_AN_EVENT = "NOT_AN_EVENT", "A Databus event is one JSON object."
    FIELD_TYPE = "FIELD_TYPE", "A field of the event is not of its type."
    FIELD_MISSING = "FIELD_MISSING", "The event lacks a field that it needs."
    SCN_NEGATIVE = "SCN_NEGATIVE", "An SCN (the field sequence) is 0 or more."
    OPCODE_UNKNOWN = "OPCODE_UNKNOWN", "The opcode must be UPSERT or DELETE."
    KEY_INVALID = "KEY_INVALID", "A data event has one key: the number key, or keyBytes in base64."
    ENCODING_UNKNOWN = "ENCODING_UNKNOWN", "valueEnc must be JSON (base64) or JSON_PLAIN_VALUE (JSON_PLAIN)."
    SOURCE_UNKNOWN = "SOURCE_UNKNOWN", "No source with this srcId is known.", True
    SCHEMA_UNKNOWN = "SCHEMA_UNKNOWN", "The source has no schema with this id.", True
    VALUE_UNREADABLE = "VALUE_UNREADABLE", "The value does not decode with the schema of its id."
    SCN_FELL = "SCN_FELL", "Within a window the SCN of a source must not fall."
    END_TOO_LOW = "END_TOO_LOW", "The end of a window must not stand below the SCNs of its events."
    ROLLBACK_TOO_LATE = "ROLLBACK_TOO_LATE", "A rollback must go to the start of its window, or before it."
    START_TOO_LATE = (
        "START_TOO_LATE",
        "After a rollback the next events must start where the window did that was rolled back, or before.",
    )
    EVENT_LATE = (
        "EVENT_LATE",
        "The event comes behind windows of greater SCNs, and is no repeat: it can be applied no more.",
    )
    PLACE_TAKEN = (
        "PLACE_TAKEN",
        "The record stands where another one came, or behind the last one that came of its partition, or "
        "has no offset: it cannot be put in order.",
    )
    WINDOW_OPEN = "WINDOW_OPEN", "The window of the event has not ended in time.", True


class Fields(msgspec.Struct, gc=False, rename="camel"):
    """The fields of an event, in the order in which a relay writes them; others are passed over."""

    opcode: Any = None
    key: Any = None
    key_bytes: Any = None
    sequence: Any = None
    logical_partition_id: Any = None
    physical_partition_id: Any = None
    timestamp_in_nanos: Any = None
    src_id: Any = None
    schema_id: Any = None
    value_enc: Any = None
    is_replicated: Any = None
    end_of_period: Any = None
    value: Any = None


_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(Fields)}
_TYPES: dict[str, tuple[Any, int]] = {
    "opcode": (str, 0), "key": (int, 64), "key_bytes": (str, 0), "sequence": (int, 64),
    "logical_partition_id": (int, 32), "physical_partition_id": (int, 32), "timestamp_in_nanos": (int, 64),
    "src_id": (int, 32), "schema_id": (str, 0), "value_enc": (str, 0), "is_replicated": (bool, 0),
    "end_of_period": (bool, 0), "value": (str, 0),
}  # fmt: skip
"""By field its type, and how many bits a number has."""
_TYPE_NAMES = {int: "a number", str: "text", bool: "true or false"}


class ReadEvent(msgspec.Struct, gc=False):
    """What one record says, in the columns of `EVENT` and of errors."""

    kind: str | None = None
    opcode: str | None = None
    scn: int | None = None
    physical_partition: int | None = None
    logical_partition: int | None = None
    source_id: int | None = None
    source: str | None = None
    long_key: int | None = None
    string_key: str | None = None
    micros: int | None = None
    schema_id: str | None = None
    value_encoding: str | None = None
    payload: bytes | None = None
    is_replicated: bool | None = None
    error_code: str | None = None
    error_description: str | None = None

    def refuse(self, fault: Fault, finding: str = "") -> None:
        """Note what is wrong, if nothing was before."""
        if self.error_code is None:
            self.error_code, self.error_description = fault.value, fault.describe(finding)


EVENT = pa.schema(
    [
        ("kind", pa.string()),
        ("opcode", pa.string()),
        ("scn", pa.int64()),
        ("physical_partition", pa.int32()),
        ("logical_partition", pa.int32()),
        ("source_id", pa.int32()),
        ("source", pa.string()),
        ("long_key", pa.int64()),
        ("string_key", pa.string()),
        ("event_timestamp", INSTANT),
        ("schema_id", pa.string()),
        ("value_encoding", pa.string()),
        ("payload", pa.binary()),
        ("is_replicated", pa.bool_()),
    ]
)
_TEXT = pa.string()


def event_columns(values: pa.Array, sources: Mapping[int, Source]) -> list[pa.Array]:
    """
    Read the texts of some events into the columns of `EVENT` and the two of errors.

    >>> columns = event_columns(pa.array([b'{"sequence": 5}', b"?", b'{"sequence": "5"}']), {})
    >>> columns[2].to_pylist(), columns[14].to_pylist()
    ([5, None, None], ['FIELD_MISSING', 'NOT_AN_EVENT', 'FIELD_TYPE'])
    """
    events, kinds = read_events(values, sources), [*EVENT.types, _TEXT, _TEXT]
    columns = zip(*map(msgspec.structs.astuple, events), strict=True) if events else [()] * len(kinds)
    return [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]


def read_events(values: pa.Array, sources: Mapping[int, Source]) -> list[ReadEvent]:
    """Read the event of each text.  Total: where it is in error, it has what could be read."""
    events: list[ReadEvent] = []
    by_schema: dict[str, list[ReadEvent]] = {}
    for value, fields in zip(values.to_pylist(), _READER.read(values), strict=True):
        event = _no_event(value) if fields is None else _event(fields, sources)
        if fields is not None and (repeated := _repeated_name(value, fields)):
            event = ReadEvent()
            event.refuse(DatabusFault.NOT_AN_EVENT, f"In it {repeated}.")
        events.append(event)
        if event.payload is not None and event.source_id is not None and event.schema_id is not None:
            schema = sources[event.source_id].texts[event.schema_id]
            by_schema.setdefault(schema, []).append(event)
    for schema, schema_events in by_schema.items():
        _check_payloads(schema_events, avro.parse_schema(schema))
    return events


_READER = ObjectReader(Fields)


def _repeated_name(value: bytes, fields: Fields) -> RepeatedName | None:
    """Find a name that comes twice in an event: of its values all but the last would be dropped."""
    # As many colons as fields that were read, but for those behind a quote within a text: each came once.
    values = msgspec.structs.astuple(fields)
    if value.count(b":") - value.count(b'\\":') > len(values) - values.count(None):
        try:
            STRICT_JSON.decode(value.decode())
        except RepeatedName as error:
            return error
        except (ValueError, RecursionError):
            pass  # such as a number of thousands of digits, which the other reader takes
    return None


def _no_event(value: bytes | None) -> ReadEvent:
    event = ReadEvent()
    if value is None:
        event.refuse(DatabusFault.NO_VALUE)
        return event
    try:
        json_value(value.decode())
        event.refuse(DatabusFault.NOT_AN_EVENT, f"It is JSON, but no object: {value[:40]!r}.")
    except (ValueError, RecursionError) as error:
        event.refuse(DatabusFault.NOT_AN_EVENT, f"It is not JSON: {error!s:.120}.")
    return event


def _event(fields: Fields, sources: Mapping[int, Source]) -> ReadEvent:
    event = ReadEvent()
    _check_types(fields, event)
    source = sources.get(fields.src_id)
    event.kind, event.scn, event.source_id = _kind(fields), fields.sequence, fields.src_id
    event.physical_partition = fields.physical_partition_id
    event.logical_partition = fields.logical_partition_id
    event.long_key, event.schema_id, event.value_encoding = fields.key, fields.schema_id, fields.value_enc
    event.source = None if source is None else source.name
    event.is_replicated = fields.is_replicated
    if fields.timestamp_in_nanos is not None:
        # Towards the past: an instant must not move on, before 1970 neither.
        event.micros = fields.timestamp_in_nanos // 1000
    for name in ("sequence", "physical_partition_id", "timestamp_in_nanos"):
        if getattr(fields, name) is None:
            event.refuse(DatabusFault.FIELD_MISSING, f"It has no {_NAMES[name]}.")
    if event.kind is None:
        event.refuse(DatabusFault.FIELD_MISSING, "It has no srcId and is no end of a period.")
    if event.scn is not None and event.scn < 0:
        event.refuse(DatabusFault.SCN_NEGATIVE, f"It is {event.scn}.")
    if event.kind == DATA:
        _read_data(event, fields, source)
    return event


def _check_types(fields: Fields, event: ReadEvent) -> None:
    """Leave out what is not of its field's type; the first such field is an error."""
    for name, (kind, bits) in _TYPES.items():
        value = getattr(fields, name)
        if value is None or (value.__class__ is kind and (not bits or -(1 << bits) <= 2 * value < 1 << bits)):
            continue
        # A relay's own reader takes the text "true" too.
        if kind is bool and value.__class__ is str and value.lower() in ("true", "false"):
            setattr(fields, name, value.lower() == "true")
            continue
        setattr(fields, name, None)
        if value.__class__ is kind:
            event.refuse(DatabusFault.FIELD_TYPE, f"{_NAMES[name]} has more than {bits} bits.")
        finding = f"{_NAMES[name]} must be {_TYPE_NAMES[kind]}; it is {json_text(value):.60}."
        event.refuse(DatabusFault.FIELD_TYPE, finding)


def _kind(fields: Fields) -> str | None:
    number = fields.src_id
    if fields.end_of_period:
        return END
    if number is None:
        return None
    return DATA if number >= 0 else _KINDS_BY_ID.get(number, SYSTEM)


def _read_data(event: ReadEvent, fields: Fields, source: Source | None) -> None:
    """Read what a data event says, with the Avro datum of its value, which is not looked into."""
    # A relay's own reader takes an event that says no opcode for an upsert.
    event.opcode = UPSERT if fields.opcode is None else fields.opcode
    if event.opcode not in (UPSERT, DELETE):
        event.refuse(DatabusFault.OPCODE_UNKNOWN, f"It is {event.opcode!r:.60}.")
    if (fields.key is None) == (fields.key_bytes is None):
        event.refuse(DatabusFault.KEY_INVALID, f"It has {'none' if fields.key is None else 'both'}.")
    if fields.key_bytes is not None:
        event.string_key = _utf_8(decode_base64(fields.key_bytes))
        if event.string_key is None:
            finding = f"keyBytes is not the base64 of UTF-8 text: {fields.key_bytes!r:.60}."
            event.refuse(DatabusFault.KEY_INVALID, finding)
    if source is None:
        event.refuse(DatabusFault.SOURCE_UNKNOWN, f"srcId is {fields.src_id}.")
    elif event.error_code is None and not (event.opcode == DELETE and not fields.value):
        _read_value(event, fields, source)


def _read_value(event: ReadEvent, fields: Fields, source: Source) -> None:
    for name in ("value", "schema_id", "value_enc"):
        if getattr(fields, name) is None:
            return event.refuse(DatabusFault.FIELD_MISSING, f"It has no {_NAMES[name]}.")
    schema = source.texts.get(fields.schema_id)
    if schema is None:
        return event.refuse(DatabusFault.SCHEMA_UNKNOWN, f"It is {fields.schema_id!r:.60}.")
    if fields.value_enc == "JSON":
        event.payload = decode_base64(fields.value)
        if event.payload is None:
            event.refuse(DatabusFault.VALUE_UNREADABLE, "It is not base64.")
    elif fields.value_enc in ("JSON_PLAIN_VALUE", "JSON_PLAIN"):
        try:
            event.payload = plain_datum(fields.value, schema)
        except ValueError as error:
            event.refuse(DatabusFault.VALUE_UNREADABLE, f"As plain JSON: {error}.")
    else:
        event.refuse(DatabusFault.ENCODING_UNKNOWN, f"It is {fields.value_enc!r:.60}.")
    return None


def _check_payloads(events: list[ReadEvent], schema: avro.AvroSchema) -> None:
    """Refuse the events whose datums the schema does not read from end to end."""
    start = 0
    for decoded in avro.decode_parts(pa.array([event.payload for event in events], pa.binary()), schema):
        for place in np.flatnonzero(decoded.errors.is_valid()).tolist():
            finding = decoded.errors[place].as_py()
            events[start + place].refuse(DatabusFault.VALUE_UNREADABLE, finding)
        start += len(decoded.errors)


def decode_base64(text: str) -> bytes | None:
    """Decode a text in base64; None where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _utf_8(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None
