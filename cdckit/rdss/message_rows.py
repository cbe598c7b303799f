"""Messages as rows: the columns of a header, and what a verdict puts into them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.rdss.header_rules import parse_instant
from cdckit.rdss.reading import Rules, parse_message
from cdckit.rdss.validation import Verdict, validate

_TEXT, _NUMBER, _INSTANT = pa.string(), pa.int32(), pa.timestamp("us", "UTC")
_STOP = pa.struct([(name, _TEXT) for name in ("machineId", "machineAddress", "timestamp")])

_HEADER: Mapping[str, tuple[str, pa.DataType]] = {
    "message_id": ("messageId", _TEXT),
    "correlation_id": ("correlationId", _TEXT),
    "message_class": ("messageClass", _TEXT),
    "message_type": ("messageType", _TEXT),
    "return_address": ("returnAddress", _TEXT),
    "published_timestamp": ("messageTimings.publishedTimestamp", _INSTANT),
    "expiration_timestamp": ("messageTimings.expirationTimestamp", _INSTANT),
    "sequence_id": ("messageSequence.sequence", _TEXT),
    "sequence_position": ("messageSequence.position", _NUMBER),
    "sequence_total": ("messageSequence.total", _NUMBER),
    "message_history": ("messageHistory", pa.list_(pa.field("element", _STOP))),
    "version": ("version", _TEXT),
    "header_error_code": ("errorCode", _TEXT),
    "header_error_description": ("errorDescription", _TEXT),
    "generator": ("generator", _TEXT),
    "tenant_jisc_id": ("tenantJiscID", pa.int64()),
}
"""The columns of a header, and the field that each holds."""

VERDICT = ("queue", ERROR_CODE, ERROR_DESCRIPTION)

MESSAGE = pa.schema(
    [
        *((name, kind) for name, (_, kind) in _HEADER.items()),
        *((name, _TEXT) for name in ("object_uuid", "body", *VERDICT)),
    ]
)
"""What the header of a message says, what its body is about, the body, and the verdict."""

_BODY = MESSAGE.get_field_index("body")
_SLICE = [pa.field("body_from", _NUMBER), pa.field("body_length", _NUMBER)]

SLICED_MESSAGE = pa.schema([*list(MESSAGE)[:_BODY], *_SLICE, *list(MESSAGE)[_BODY + 1 :]])
"""The same with the place of the body for its text: its first byte in the value, from 1 on, and how many."""

Row = tuple[Any, ...]
"""The values of `MESSAGE`."""

_PATHS = [tuple(path.split(".")) for path, _ in _HEADER.values()]
_FIELDS = [path[-1] for path in _PATHS]
_INSTANTS = [place for place, kind in enumerate(MESSAGE.types) if kind == _INSTANT]

BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
"""An instant at which no message has expired."""


def read_message(value: bytes | None, arrival: datetime | None, *, now: datetime | None, rules: Rules) -> Row:
    """
    The values of `SLICED_MESSAGE` of a record.

    Args:
        value: The message.
        arrival: When it was delivered.
        now: The same of all messages, instead.
        rules: The limits.
    """
    verdict = validate(value, now=now or arrival or BEFORE_ALL, rules=rules)
    row, body = message_row(verdict), verdict.body_text
    place = (None, None) if value is None or body is None else _slice(value, body.encode())
    return (*row[:_BODY], *place, *row[_BODY + 1 :])


def _slice(value: bytes, text: bytes) -> tuple[int, int]:
    """Find where the text stands in the value; most bodies stand before the last brace."""
    end, length = value.rfind(b"}"), len(text)
    if value.endswith(text, 0, end):
        return end - length + 1, length
    return value.find(text) + 1, length


def message_row(verdict: Verdict) -> Row:
    """The values of the columns of a message that has this verdict."""
    header = verdict.header or {}
    if verdict.valid:
        fields = {**header, **header["messageTimings"], **header["messageSequence"]}
        if not _has_room("tenantJiscID", header["tenantJiscID"]):
            del fields["tenantJiscID"]
        values = list(map(fields.get, _FIELDS))
    else:
        values = [_readable_value(header, path) for path in _PATHS]
    for place in _INSTANTS:
        values[place] = parse_instant(values[place])
    of_verdict = verdict.queue, verdict.code, verdict.description
    return (*values, _object(verdict.body), verdict.body_text, *of_verdict)


def read_tenant(value: bytes) -> int:
    """Read the tenant of a valid message whose column is null, since it has no room for the number."""
    return int(parse_message(value, Rules(max_bytes=len(value))).header["tenantJiscID"])


_BITS = {"position": 31, "total": 31, "tenantJiscID": 63}


def _has_room(name: str, number: float) -> bool:
    """Tell whether the column of a field has room for a number."""
    return -(1 << _BITS[name]) <= number < 1 << _BITS[name]


def _readable_value(header: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value of a field of a header that may be refused; None where it is not of the field's type."""
    value: Any = header
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if name in _BITS:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and _has_room(name, value) else None
    if name == "messageHistory":
        return value if isinstance(value, list) and all(map(_is_stop, value)) else None
    return value if isinstance(value, str) else None


def _is_stop(stop: object) -> bool:
    return isinstance(stop, dict) and all(isinstance(value, str) for value in stop.values())


def _object(body: object) -> str | None:
    uuid = body.get("objectUUID") if isinstance(body, dict) else None
    return uuid if isinstance(uuid, str) else None
