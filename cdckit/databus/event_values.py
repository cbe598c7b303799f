"""The values of events: read from JSON by Arrow, or from the Avro datum of each, by its schema."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from cdckit.errors import InvalidArgument
from cdckit.model.faults import Fault, Findings, FoundFault
from cdckit.parts import avro
from cdckit.parts.arrays import Bools

UPSERT, DELETE = "UPSERT", "DELETE"
DATA, END, ROLLBACK, CHECKPOINT, ERROR, SYSTEM = "data", "end", "rollback", "checkpoint", "error", "system"
KINDS = (DATA, END, ROLLBACK, CHECKPOINT, ERROR, SYSTEM)
"""What an event is.  `data` is a change; `end` the end of a period, which ends a window; `rollback` says
that the source went back to an SCN; the rest come and go anywhere and change nothing."""


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
        "The record stands where another one came, or behind the last one that came of its partition: "
        "it cannot be put in order.",
    )
    WINDOW_OPEN = "WINDOW_OPEN", "The window of the event has not ended in time.", True


@dataclass(frozen=True)
class Source:
    """
    One Databus source, such as a table: its number in events, its name, and the schemas of its values.

    Args:
        id: The srcId of its events.
        name: Its name, unique among the sources.
        schemas: Avro schemas of records as JSON text, oldest first: a mapping of schema id (base64) to text,
            or texts alone, whose ids are then `schema_id` of them.

    Raises:
        InvalidArgument: The id is no number from 0 on, the name is no text, or there is no schema.
        SchemaRefused: A text is no schema that can be used; its reason says why.

    Source:
        Databus, "Source event type"; the id of a schema is the MD5 of its text.

    >>> text = '{"type": "record", "name": "Plane", "fields": [{"name": "tail", "type": "string"}]}'
    >>> plane = Source(3, "planes", [text])
    >>> list(plane.schemas)
    ['S6KYUtsRb0m2xD9AWj3IzA==']
    """

    id: int
    name: str
    schemas: Mapping[str, str] | Sequence[str]

    def __post_init__(self) -> None:
        if not isinstance(self.id, int) or isinstance(self.id, bool) or self.id < 0:
            raise InvalidArgument(
                "Source", "id", "a number from 0 on: system events have those below", self.id
            )
        if not isinstance(self.name, str) or not self.name:
            raise InvalidArgument("Source", "name", "a text that is not empty", self.name)
        given = self.schemas
        if isinstance(given, str) or not given:
            raise InvalidArgument("Source", "schemas", "one schema or more, as a list or by id", given)
        texts = dict(given) if isinstance(given, Mapping) else {schema_id(text): text for text in given}
        for text in texts.values():
            if not pa.types.is_struct(avro.parse_schema(text).arrow_type):
                raise InvalidArgument("Source", "schemas", "schemas of records", text)
        object.__setattr__(self, "schemas", texts)

    @property
    def texts(self) -> dict[str, str]:
        """The schemas by id, oldest first."""
        return dict(self.schemas)  # type: ignore[arg-type]  # __post_init__ made a mapping of it


def schema_id(text: str) -> str:
    """
    The id under which events refer to a schema of this text: the base64 of the MD5 of its bytes.

    A Databus relay takes the MD5 of the text as its Avro library writes the schema, which may differ from the
    file in spaces and order: where ids do not meet, give `Source` the ids that the events have.

    >>> schema_id('"long"')
    '4d2aHvmLRRtTaQNws5OWaw=='
    """
    return base64.b64encode(hashlib.md5(text.encode(), usedforsecurity=False).digest()).decode()


def sources_by_id(sources: Iterable[Source], *, function: str) -> dict[int, Source]:
    """The sources by id; raises `InvalidArgument` where an id or a name comes twice, or one is no source."""
    listed = list(sources)
    for each in listed:
        if not isinstance(each, Source):
            raise InvalidArgument(function, "sources", "a list of Source", each)
    found = {each.id: each for each in listed}
    if len(found) < len(listed) or len({each.name for each in listed}) < len(listed):
        raise InvalidArgument(
            function, "sources", "of distinct ids and names", [each.name for each in listed]
        )
    return found


FIELDS = pa.schema(
    [
        ("opcode", pa.string()),
        ("key", pa.int64()),
        ("keyBytes", pa.string()),
        ("sequence", pa.int64()),
        ("logicalPartitionId", pa.int32()),
        ("physicalPartitionId", pa.int32()),
        ("timestampInNanos", pa.int64()),
        ("srcId", pa.int32()),
        ("schemaId", pa.string()),
        ("valueEnc", pa.string()),
        ("isReplicated", pa.bool_()),
        ("endOfPeriod", pa.bool_()),
        ("traceEnabled", pa.bool_()),
        ("value", pa.string()),
    ]
)
"""The fields of an event, in the order in which a relay writes them; others are passed over."""

_LIMITS = {pa.int32(): 1 << 31, pa.int64(): 1 << 63}


class ParsedEvents(NamedTuple):
    """The fields of some events, column by column, null where one is not there; and what is wrong."""

    fields: dict[str, pa.Array]
    findings: Findings


def parse_events(values: pa.Array) -> ParsedEvents:
    """
    What the JSON of every one of *values* says.  Total: what cannot be read becomes a finding.

    >>> parsed = parse_events(pa.array([b'{"sequence": 5}', b"?", b'{"sequence": "5"}']))
    >>> parsed.fields["sequence"].to_pylist(), [str(fault) for fault, _ in parsed.findings.values()]
    ([5, None, None], ['NOT_AN_EVENT', 'FIELD_TYPE'])
    """
    at_once = _parse_together(values)
    return ParsedEvents(at_once, {}) if at_once is not None else _parse_singly(values)


def _parse_together(values: pa.Array) -> dict[str, pa.Array] | None:
    """The fields as Arrow reads them; nothing where one of the texts must be looked at by itself."""
    if values.null_count or not len(values):
        return None
    try:
        # What is white space to JSON: Arrow would trim other signs too.
        texts = pc.utf8_trim(values.cast(pa.string()), " \t\r\n")
    except pa.ArrowInvalid:
        return None
    # Wrapped, a text that holds more than one object is no JSON any more.
    if pc.any(pc.match_substring(texts, "\n")).as_py():
        return None
    lines = pc.binary_join_element_wise('{"of":', texts, "}\n", "")
    buffers = lines.buffers()[2]
    start, stop = lines.offset, lines.offset + len(lines)
    offsets = pa.Array.from_buffers(pa.int32(), stop + 1, [None, lines.buffers()[1]])
    block = buffers.slice(offsets[start].as_py(), offsets[stop].as_py() - offsets[start].as_py())
    try:
        found = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([("of", pa.struct(list(FIELDS)))]),
                unexpected_field_behavior="error",
            ),
        )
    except pa.ArrowException:
        return None
    if found.num_rows != len(values):
        return None
    events = found.column("of").combine_chunks()
    if events.null_count:
        return None
    return {field.name: events.field(field.name) for field in FIELDS}


def _parse_singly(values: pa.Array) -> ParsedEvents:
    findings: Findings = {}
    columns: dict[str, list[Any]] = {name: [None] * len(values) for name in FIELDS.names}
    for row, value in enumerate(values.to_pylist()):
        try:
            event = _parse_event(value)
            for field in FIELDS:
                json_value = event.get(field.name)
                if json_value is not None:
                    try:
                        columns[field.name][row] = _convert_field(field, json_value)
                    except FoundFault as wrong:
                        findings.setdefault(row, (wrong.fault, wrong.finding))
        except FoundFault as wrong:
            findings[row] = (wrong.fault, wrong.finding)
    return ParsedEvents({field.name: pa.array(columns[field.name], field.type) for field in FIELDS}, findings)


def _parse_event(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise FoundFault(DatabusFault.NO_VALUE)
    try:
        event = json.loads(value.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise FoundFault(DatabusFault.NOT_AN_EVENT, f"It is not JSON: {error!s:.120}.") from error
    if not isinstance(event, dict):
        raise FoundFault(DatabusFault.NOT_AN_EVENT, f"It is JSON, but no object: {value[:40]!r}.")
    return event


def _convert_field(field: pa.Field, value: Any) -> Any:
    if pa.types.is_boolean(field.type):
        # A relay's own reader takes the text "true" too.
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if isinstance(value, bool):
            return value
    elif pa.types.is_string(field.type):
        if isinstance(value, str) and _is_encodable(value):
            return value
    elif isinstance(value, int) and not isinstance(value, bool):
        if -_LIMITS[field.type] <= value < _LIMITS[field.type]:
            return value
        raise FoundFault(DatabusFault.FIELD_TYPE, f"{field.name} has more than {field.type.bit_width} bits.")
    raise FoundFault(
        DatabusFault.FIELD_TYPE, f"{field.name} must be {_KINDS[field.type]}; it is {value!r:.60}."
    )


def _is_encodable(text: str) -> bool:
    """Whether a column can hold the text: an escape can spell half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_KINDS = {pa.bool_(): "true or false", pa.string(): "text", pa.int32(): "a number", pa.int64(): "a number"}


_BASE64, _PLAIN = ("JSON",), ("JSON_PLAIN_VALUE", "JSON_PLAIN")


def event_payloads(
    parsed: ParsedEvents, is_data: Bools, is_delete: Bools, sources: dict[int, Source]
) -> pa.Array:
    """The Avro datum of each value, each checked against the schema of its id."""
    field, findings = parsed.fields, parsed.findings
    encodings, ids = field["valueEnc"].to_pylist(), field["schemaId"].to_pylist()
    numbers, texts = field["srcId"].to_pylist(), field["value"].to_pylist()
    datums: list[bytes | None] = [None] * len(texts)
    of_schema: dict[tuple[int, str], list[int]] = {}
    schemas = {number: each.texts for number, each in sources.items()}
    for row in np.flatnonzero(is_data).tolist():
        if row in findings or (is_delete[row] and not texts[row]):
            continue
        text, encoding = texts[row], encodings[row]
        missing = [
            name
            for name, value in (("value", text), ("schemaId", ids[row]), ("valueEnc", encoding))
            if value is None
        ]
        if missing:
            findings[row] = (DatabusFault.FIELD_MISSING, f"It has no {missing[0]}.")
            continue
        schema = schemas[numbers[row]].get(ids[row])
        if schema is None:
            findings[row] = (DatabusFault.SCHEMA_UNKNOWN, f"It is {ids[row]!r:.60}.")
        elif encoding in _BASE64:
            datums[row] = decode_base64(text)
            if datums[row] is None:
                findings[row] = (DatabusFault.VALUE_UNREADABLE, "It is not base64.")
            else:
                of_schema.setdefault((numbers[row], ids[row]), []).append(row)
        elif encoding in _PLAIN:
            try:
                datums[row] = plain_datum(text, schema)
                of_schema.setdefault((numbers[row], ids[row]), []).append(row)
            except ValueError as error:
                findings[row] = (DatabusFault.VALUE_UNREADABLE, f"As plain JSON: {error}.")
        else:
            findings[row] = (DatabusFault.ENCODING_UNKNOWN, f"It is {encoding!r:.60}.")
    payloads = pa.array(datums, pa.binary())
    for (number, schema_id), rows in of_schema.items():
        of_id = avro.parse_schema(schemas[number][schema_id])
        start = 0
        for decoded in avro.decode_parts(payloads.take(pa.array(rows)), of_id):
            for place in np.flatnonzero(decoded.errors.is_valid()).tolist():
                findings[rows[start + place]] = (DatabusFault.VALUE_UNREADABLE, decoded.errors[place].as_py())
            start += len(decoded.errors)
    return payloads


_BYTES = "ISO-8859-1"


def plain_datum(text: str, schema: str) -> bytes:
    """
    The Avro datum of a record that is written as JSON text.

    A value of a union may be written as Avro's JSON encoding has it, `{"string": "x"}`, or bare, `"x"`.
    Bytes are text of one character each, as in Avro's JSON encoding.

    Raises:
        ValueError: The text is no such record; it says why.

    >>> schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]}]}'
    >>> plain_datum('{"a": "x"}', schema) == plain_datum('{"a": {"string": "x"}}', schema)
    True
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error!s:.100}") from None
    parsed = _parse_schema(schema)
    written = io.BytesIO()
    try:
        fastavro.schemaless_writer(
            written,
            parsed,
            _avro_value(document, parsed),
            strict_allow_default=True,
            disable_tuple_notation=True,
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise ValueError(f"{type(error).__name__}: {error!s:.160}") from None
    return written.getvalue()


def decode_base64(text: str) -> bytes | None:
    """The bytes that a text in base64 stands for; nothing where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


@lru_cache(maxsize=512)
def _parse_schema(schema: str) -> Any:
    # Logical types stay what they are written on: a plain value is a number there, as in Avro's JSON.
    return fastavro.parse_schema(json.loads(schema, object_hook=_without_logical_type))


def _without_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in found.items() if name != "logicalType"}


def _avro_value(value: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        return _union_value(value, schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record" and isinstance(value, dict):
        fields = {field["name"]: field for field in schema["fields"]}
        if more := sorted(value.keys() - fields.keys()):
            raise ValueError(f"the schema has no field {', '.join(more)}")
        return {name: _avro_value(each, fields[name]["type"]) for name, each in value.items()}
    if kind == "array" and isinstance(value, list):
        return [_avro_value(each, schema["items"]) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _avro_value(each, schema["values"]) for name, each in value.items()}
    if kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode(_BYTES)
    if kind in ("int", "long") and not (isinstance(value, int) and not isinstance(value, bool)):
        raise ValueError(f"{value!r:.60} is no whole number")
    return value


def _union_value(value: Any, branches: list[Any]) -> Any:
    if value is None:
        if "null" not in branches:
            raise ValueError("null is no value here")
        return None
    names = {_branch_name(branch): branch for branch in branches}
    if isinstance(value, dict) and len(value) == 1 and (name := next(iter(value))) in names:
        return _avro_value(value[name], names[name])
    others = [branch for branch in branches if branch != "null"]
    return _avro_value(value, others[0]) if len(others) == 1 else value


def _branch_name(branch: Any) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"]))
    return str(branch)
