"""Records of the RDSS door, each with its header and verdict; refused ones as the error queues take them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.records import ERROR_CODE, ERROR_FIELDS, RECORD_COLUMNS, RECORD_SCHEMA, require_records
from cdckit.parts.arguments import require_types
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.workers import WorkerPlan, without_garbage_collection
from cdckit.rdss.findings import CODES, RdssFault
from cdckit.rdss.reading import RULES, Rules, Unreadable, parse_message
from cdckit.rdss.validation import Verdict, validate
from cdckit.rdss.validators import parse_instant

_HISTORY = T.ArrayType(
    T.StructType(
        [T.StructField(name, T.StringType()) for name in ("machineId", "machineAddress", "timestamp")]
    )
)
_TEXT, _INSTANT, _NUMBER = T.StringType(), T.TimestampType(), T.IntegerType()

_HEADER: Mapping[str, tuple[str, T.DataType]] = {
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
    "message_history": ("messageHistory", _HISTORY),
    "version": ("version", _TEXT),
    "header_error_code": ("errorCode", _TEXT),
    "header_error_description": ("errorDescription", _TEXT),
    "generator": ("generator", _TEXT),
    "tenant_jisc_id": ("tenantJiscID", T.LongType()),
}
"""The columns of a header, and the field that each holds."""

HEADER_FIELDS = [T.StructField(name, kind) for name, (_, kind) in _HEADER.items()]
"""What the header of a message says."""

MESSAGE_FIELDS = [
    *HEADER_FIELDS,
    T.StructField("object_uuid", _TEXT),
    T.StructField("body", _TEXT),
    T.StructField("queue", _TEXT),
]

Row = tuple[Any, ...]
"""The values of `MESSAGE_FIELDS` and of the verdict."""

_MADE = [*MESSAGE_FIELDS, *ERROR_FIELDS]
_BODY = [field.name for field in _MADE].index("body")
_SLICE = [T.StructField(name, _NUMBER) for name in ("body_from", "body_length")]

WORKER_MESSAGE_FIELDS = [*_MADE[:_BODY], *_SLICE, *_MADE[_BODY + 1 :]]
"""The same with the place of the body for its text: its first byte in the value, from 1 on, and how many."""

_FIELDS = [path.rpartition(".")[2] for path, _ in _HEADER.values()]
_NO_FAULT = (None, None, None)
_YEAR_1 = pa.scalar(datetime.min.replace(tzinfo=UTC), pa.timestamp("us", "UTC"))
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


def message_columns(
    values: Sequence[bytes | None], arrivals: pa.Array, now: datetime | None, rules: Rules
) -> list[pa.Array]:
    """
    The columns of `WORKER_MESSAGE_FIELDS` for messages.

    Args:
        values: The messages.
        arrivals: When each was delivered; null for one that was delivered at no time.
        now: When all of them were, instead.
        rules: The limits.
    """
    delivered = [now] * len(values) if now else arrivals.to_pylist()
    verdicts = [
        validate(value, now=instant or _BEFORE_ALL, rules=rules)
        for value, instant in zip(values, delivered, strict=True)
    ]
    columns = row_columns([verdict_row(verdict) for verdict in verdicts])
    slices = [
        (None, None)
        if value is None or verdict.body_text is None
        else _slice(value, verdict.body_text.encode())
        for verdict, value in zip(verdicts, values, strict=True)
    ]
    return [*columns[:_BODY], *_slice_columns(slices), *columns[_BODY + 1 :]]


def _slice(value: bytes, text: bytes) -> tuple[int, int]:
    """Where the text stands in the value; most bodies stand before the last brace."""
    ends, length = value.rfind(b"}"), len(text)
    if value.endswith(text, 0, ends):
        return ends - length + 1, length
    return value.find(text) + 1, length


def _slice_columns(slices: Sequence[tuple[int | None, int | None]]) -> list[pa.Array]:
    return [pa.array(each, pa.int32()) for each in _transpose(slices, len(_SLICE))]


def row_columns(rows: Sequence[Row]) -> list[pa.Array]:
    """The columns of `MESSAGE_FIELDS` and of the verdict."""
    columns = _transpose(rows, len(_MADE))
    return [
        _instants(pa.array(each, pa.string()))
        if field.dataType is _INSTANT
        else pa.array(each, arrow_type(field.dataType))
        for each, field in zip(columns, _MADE, strict=True)
    ]


def _transpose(rows: Sequence[Row], width: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _instants(texts: pa.Array) -> pa.Array:
    """A column of instants from their texts in the form of RFC 3339; null for what is none."""
    kind = arrow_type(_INSTANT)
    try:
        instants = pc.cast(texts, kind)
    except pa.ArrowInvalid:
        pass  # leap seconds, digits behind the sixth, …
    else:
        if not pc.any(pc.less(instants, _YEAR_1)).as_py():
            return instants
    return pa.array([parse_instant(text) for text in texts.to_pylist()], kind)


def verdict_row(verdict: Verdict) -> Row:
    """The values of the columns of a message that has this verdict."""
    header = _readable(verdict)
    fields = {**header, **header.get("messageTimings", {}), **header.get("messageSequence", {})}
    values = (*map(fields.get, _FIELDS), _object(verdict.body), verdict.body_text)
    if verdict.code is None:
        return (*values, *_NO_FAULT)
    return (*values, verdict.code.queue.value, verdict.code.value, verdict.description)


def _readable(verdict: Verdict) -> Mapping[str, Any]:
    """The header, without the values that are not of their types where it is refused."""
    header = verdict.header or {}
    if verdict.code is None:
        tenant = header["tenantJiscID"]
        return header if _is_kept("tenantJiscID", int(tenant)) else {**header, "tenantJiscID": None}
    kept: dict[str, Any] = {name: header[name] for name in _TEXTS if isinstance(header.get(name), str)}
    for outer in ("messageTimings", "messageSequence"):
        inner = header.get(outer)
        if isinstance(inner, dict):
            kept[outer] = {name: each for name, each in inner.items() if _is_kept(name, each)}
    if _is_kept("tenantJiscID", tenant := header.get("tenantJiscID")):
        kept["tenantJiscID"] = tenant
    history = header.get("messageHistory")
    if isinstance(history, list) and all(map(_is_stop, history)):
        kept["messageHistory"] = history
    return kept


_TEXTS = (
    *("messageId", "correlationId", "messageClass", "messageType", "returnAddress"),
    *("version", "errorCode", "errorDescription", "generator"),
)
_BITS = {"position": 31, "total": 31, "tenantJiscID": 63}


def _is_kept(name: str, value: object) -> bool:
    if name not in _BITS:
        return isinstance(value, str)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << _BITS[name]


def _is_stop(stop: object) -> bool:
    return isinstance(stop, dict) and all(isinstance(each, str) for each in stop.values())


def _object(body: object) -> str | None:
    found = body.get("objectUUID") if isinstance(body, dict) else None
    return found if isinstance(found, str) else None


DECODED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *MESSAGE_FIELDS, *ERROR_FIELDS])
"""One row is one record, and the message that it holds; or why it holds none."""

# A message may have a megabyte, and is held as bytes beside its column while it is read.
_ROWS_AT_ONCE = 1000


def decode(records: DataFrame, *, now: datetime | None = None, rules: Rules = RULES) -> DataFrame:
    """
    Read and validate the message of every record.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`), a batch or a stream.
        now: The instant of delivery, at which a message may have expired; by default the record's own
            `timestamp`, so that the same records always give the same rows.
        rules: The limits.

    Returns:
        One row per record, in no order (`DECODED_SCHEMA`): the record's columns; the header, one column for
        each field; `object_uuid`, the object that the body is about; `body`, its JSON text as it came; and
        the verdict: `queue` (`invalid` or `error`), `error_code` and `error_description`, all null for a
        valid message.  It never fails on data: where an error stands, the columns hold what could be read;
        `tenant_jisc_id` is null where it has more than 64 bits.  A message that is one part of several holds
        a piece of a body: see `assemble_messages`.

    Raises:
        InvalidArgument: *now* has no zone.
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: one pass through Python in Arrow batches, no shuffle; about 0.05 milliseconds for a valid message
        of 2 KB, and twice that for another.

    Source:
        RDSS, "Message Header", "Message Body", "Error Codes".

    >>> decode(records_of(b"?", b'{"messageHeader": {"messageId": "m1"}, "messageBody": {}}')).select(
    ...     "message_id", "queue", "error_code"
    ... ).show()
    +----------+-------+----------+
    |message_id|  queue|error_code|
    +----------+-------+----------+
    |      NULL|invalid| GENERR007|
    |        m1|invalid| GENERR010|
    +----------+-------+----------+
    <BLANKLINE>
    """
    records = require_records(records, function="decode")
    if now is not None and (not isinstance(now, datetime) or now.utcoffset() is None):
        raise InvalidArgument("decode", "now", "an aware datetime (one with tzinfo)", now)
    return decode_with_columns(records, T.StructType(), now=now, rules=rules)


def decode_with_columns(
    records: DataFrame, beside: T.StructType, *, now: datetime | None = None, rules: Rules = RULES
) -> DataFrame:
    """What `decode` returns, and the columns *beside* of each record."""
    columns = T.StructType([*RECORD_SCHEMA.fields, *beside.fields, *WORKER_MESSAGE_FIELDS])
    plan = WorkerPlan(
        records.select(*RECORD_COLUMNS, *beside.fieldNames()),
        partial(_decode_batches, now=now, rules=rules, names=columns.fieldNames()),
        columns,
    )
    # The body is a piece of the value, which need not come twice from the workers.
    body = F.substring("value", F.col("body_from"), F.col("body_length")).cast("string")
    decoded = plan.rows().withColumn("body", body)
    return decoded.select(*DECODED_SCHEMA.fieldNames(), *beside.fieldNames())


def _decode_batches(
    batches: Iterable[pa.RecordBatch], *, now: datetime | None, rules: Rules, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for whole in batches:
        for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
            batch = whole.slice(start, _ROWS_AT_ONCE)
            with without_garbage_collection():
                values = batch.column("value").to_pylist()
                columns = message_columns(values, batch.column("timestamp"), now, rules)
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], names=names)


def decorate_message(message: Mapping[str, Any], code: RdssFault, description: str) -> dict[str, Any]:
    """
    The message with `errorCode` and `errorDescription` in its header, for one of the error queues.

    Args:
        message: A message as Python values; it is not altered.  A header that is no object, or is missing,
            becomes one that holds nothing but the error.
        code: What is wrong.
        description: The sentence about it, not empty.

    Source:
        RDSS, "Error Queues": the two fields MUST be in the header.

    >>> message = {"messageHeader": {"messageId": "m1"}, "messageBody": {}}
    >>> decorate_message(message, RdssFault.EXPIRED, "Too late.")["messageHeader"]
    {'messageId': 'm1', 'errorCode': 'GENERR003', 'errorDescription': 'Too late.'}
    """
    header = message.get("messageHeader")
    known = header if isinstance(header, Mapping) else {}
    error = {"errorCode": code.value, "errorDescription": description}
    return {**message, "messageHeader": {**known, **error}}


def decorate_bytes(value: bytes, verdict: Verdict, rules: Rules = RULES) -> bytes:
    """
    The bytes of a refused message as one of the error queues takes them.

    Where the message could be read, and fits with the two fields, it is that message, its body as it came.
    Otherwise its body tells of the bytes that came: how many they are, their SHA-256, and, where they fit,
    they themselves in base64.

    Args:
        value: The message as it came.
        verdict: Why it is refused.
        rules: The limits: what is made is no larger.

    Raises:
        ValueError: The verdict is that the message is valid.

    >>> from datetime import UTC, datetime
    >>> from cdckit.rdss.validation import validate
    >>> verdict = validate(b"?", now=datetime(2024, 1, 1, tzinfo=UTC))
    >>> made = json.loads(decorate_bytes(b"?", verdict))
    >>> made["messageHeader"]["errorCode"], made["messageBody"]["base64"]
    ('GENERR007', 'Pw==')
    """
    if verdict.code is None or verdict.description is None:
        raise ValueError("decorate_bytes() needs a refused message; this one is valid.")
    message = {} if verdict.header is None else {"messageHeader": verdict.header}
    header = decorate_message(message, verdict.code, verdict.description)["messageHeader"]
    if verdict.body_text is not None:
        whole = _message(header, verdict.body_text)
        if len(whole) <= rules.max_bytes:
            return whole
    facts = {"bytes": len(value), "sha256": sha256(value).hexdigest()}
    for body in ({**facts, "base64": _base64(value)} if len(value) <= rules.max_bytes else facts, facts):
        decorated = _message(header, json.dumps(body))
        if len(decorated) <= rules.max_bytes:
            return decorated
    alone = decorate_message({}, verdict.code, verdict.description)["messageHeader"]
    return _message(alone, json.dumps(facts))


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _message(header: Mapping[str, Any], body: str) -> bytes:
    # With escapes, so that half a character in a header can be written too.
    return f'{{"messageHeader": {json.dumps(header)}, "messageBody": {body}}}'.encode()


_QUEUE = T.StructField("queue", T.StringType())

QUEUED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, _QUEUE])
"""One row is one refused message as a record, its value decorated, and the queue that it goes to."""


def queue_records(decoded: DataFrame, *, rules: Rules = RULES) -> DataFrame:
    """
    The refused messages of a table, decorated with their error for the queue that each goes to.

    Args:
        decoded: What `decode` returned.
        rules: The limits: what is made is no larger.

    Returns:
        One row per refused message (`QUEUED_SCHEMA`): its record, whose `value` has `errorCode` and
        `errorDescription` in its header, and `queue`.  A value that is no message becomes one that
        tells of it (see `decorate_bytes`).  The original is in `cdckit.rejects(decoded)`.

    Raises:
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: the refused messages are read once more, in Python; no shuffle.

    Source:
        RDSS, "Error Queues".

    >>> from cdckit import rdss
    >>> row = queue_records(rdss.decode(records_of(b"?"))).first()
    >>> row["queue"], bytes(row["value"])[:45]
    ('invalid', b'{"messageHeader": {"errorCode": "GENERR007", ')
    """
    require_types(decoded, DECODED_SCHEMA, function="queue_records")
    refused = decoded.where(F.col(ERROR_CODE).isNotNull())
    columns = ["queue", *(field.name for field in ERROR_FIELDS)]
    given = refused.select(*RECORD_COLUMNS, *columns)
    found = T.StructType([*RECORD_SCHEMA.fields, _QUEUE])
    return WorkerPlan(given, partial(_queue_batches, rules=rules), found).rows()


def _queue_batches(batches: Iterable[pa.RecordBatch], *, rules: Rules) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        names = [*RECORD_COLUMNS, "queue"]
        errors = zip(
            *(batch.column(name).to_pylist() for name in ("value", "error_code", "error_description")),
            strict=True,
        )
        values = [_decorate(*each, rules=rules) for each in errors]
        columns = [pa.array(values, pa.binary()) if name == "value" else batch.column(name) for name in names]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _decorate(value: bytes | None, code: str, description: str, *, rules: Rules) -> bytes:
    try:
        message = parse_message(value, rules)
    except Unreadable as refused:
        header = refused.header if isinstance(refused.header, dict) else None
        verdict = Verdict(CODES[code], description, None, header, None, None)
    else:
        header = message.header if isinstance(message.header, dict) else None
        verdict = Verdict(CODES[code], description, None, header, message.body, message.body_text)
    return decorate_bytes(value or b"", verdict, rules)
