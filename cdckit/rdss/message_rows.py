"""Messages as rows: the columns of a header, and what a verdict puts into them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.rdss.reading import Rules
from cdckit.rdss.validation import Verdict, validate
from cdckit.rdss.validators import parse_instant

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
_YEAR_1 = pa.scalar(datetime.min.replace(tzinfo=UTC), _INSTANT)

BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
"""An instant at which no message has expired."""

# A message may have a megabyte, and is held as bytes beside its column while it is read.
_ROWS_AT_ONCE = 1000


def decode_batches(
    batches: Iterable[pa.RecordBatch], *, now: datetime | None, rules: Rules
) -> Iterator[pa.RecordBatch]:
    """
    Records, and beside each the columns of `SLICED_MESSAGE`.

    Args:
        batches: The records: `value`, `timestamp`, and whatever stands beside them.
        now: When all of them were delivered; by default each was at its `timestamp`.
        rules: The limits.
    """
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            records = batch.slice(start, _ROWS_AT_ONCE)
            values, arrivals = records.column("value").to_pylist(), records.column("timestamp")
            delivered = [now] * len(values) if now else arrivals.to_pylist()
            columns = _message_columns(values, delivered, rules)
            names = [*records.schema.names, *SLICED_MESSAGE.names]
            yield pa.RecordBatch.from_arrays([*records.columns, *columns], names=names)


def _message_columns(
    values: Sequence[bytes | None], delivered: Sequence[datetime | None], rules: Rules
) -> list[pa.Array]:
    verdicts = [
        validate(value, now=instant or BEFORE_ALL, rules=rules)
        for value, instant in zip(values, delivered, strict=True)
    ]
    columns = _columns(list(map(_message_texts, verdicts)), MESSAGE)
    slices = [
        (None, None)
        if value is None or verdict.body_text is None
        else _slice(value, verdict.body_text.encode())
        for verdict, value in zip(verdicts, values, strict=True)
    ]
    return [*columns[:_BODY], *_columns(slices, pa.schema(_SLICE)), *columns[_BODY + 1 :]]


def _slice(value: bytes, text: bytes) -> tuple[int, int]:
    """Where the text stands in the value; most bodies stand before the last brace."""
    end, length = value.rfind(b"}"), len(text)
    if value.endswith(text, 0, end):
        return end - length + 1, length
    return value.find(text) + 1, length


def _columns(rows: Sequence[Row], schema: pa.Schema) -> list[pa.Array]:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return [
        _instants(pa.array(values, _TEXT)) if field.type == _INSTANT else pa.array(values, field.type)
        for values, field in zip(columns, schema, strict=True)
    ]


def _instants(texts: pa.Array) -> pa.Array:
    """A column of instants from their texts in the form of RFC 3339; null for what is none."""
    try:
        instants = pc.cast(texts, _INSTANT)
    except pa.ArrowInvalid:
        pass  # leap seconds, digits behind the sixth, …
    else:
        if not pc.any(pc.less(instants, _YEAR_1)).as_py():
            return instants
    return pa.array(map(parse_instant, texts.to_pylist()), _INSTANT)


def message_row(verdict: Verdict) -> Row:
    """The values of the columns of a message that has this verdict."""
    texts = zip(_message_texts(verdict), MESSAGE.types, strict=True)
    return tuple(parse_instant(value) if kind == _INSTANT else value for value, kind in texts)


def _message_texts(verdict: Verdict) -> Row:
    """The same with instants as texts: a column of them is read at once."""
    header = verdict.header or {}
    if verdict.valid:
        fields = {**header, **header["messageTimings"], **header["messageSequence"]}
        if abs(header["tenantJiscID"]) >= 1 << _BITS["tenantJiscID"]:
            del fields["tenantJiscID"]
        values = list(map(fields.get, _FIELDS))
    else:
        values = [_readable_value(header, path) for path in _PATHS]
    return (
        *values,
        _object(verdict.body),
        verdict.body_text,
        verdict.queue,
        verdict.code,
        verdict.description,
    )


_BITS = {"position": 31, "total": 31, "tenantJiscID": 63}


def _readable_value(header: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value of a field of a header that may be refused; None where it is not of the field's type."""
    value: Any = header
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if name in _BITS:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and abs(value) < 1 << _BITS[name] else None
    if name == "messageHistory":
        return value if isinstance(value, list) and all(map(_is_stop, value)) else None
    return value if isinstance(value, str) else None


def _is_stop(stop: object) -> bool:
    return isinstance(stop, dict) and all(isinstance(value, str) for value in stop.values())


def _object(body: object) -> str | None:
    uuid = body.get("objectUUID") if isinstance(body, dict) else None
    return uuid if isinstance(uuid, str) else None
