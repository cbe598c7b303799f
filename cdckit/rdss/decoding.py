"""Records of the RDSS door, each with its header and verdict; refused ones as the error queues take them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, RECORD_COLUMNS, RECORD_SCHEMA, require_records
from cdckit.parts.arguments import require_types
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.folded_rows import with_rule
from cdckit.rdss.findings import CODES, RdssFault
from cdckit.rdss.message_rows import MESSAGE, SLICED_MESSAGE, read_message
from cdckit.rdss.reading import RULES, Rules, Unreadable, parse_message
from cdckit.rdss.validation import Verdict

DECODED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *spark_columns(MESSAGE).fields])
"""One row is one record, and the message that it holds; or why it holds none."""


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
    rule = partial(read_message, now=now, rules=rules)
    return with_body(with_rule(records, RECORD_COLUMNS, ["value", "timestamp"], rule, SLICED_MESSAGE))


def with_body(sliced: DataFrame, *beside: str) -> DataFrame:
    """Rows that know where in the value the body stands, as `DECODED_SCHEMA`, and some columns beside it."""
    # The body is a piece of the value, which need not come back from the workers.
    body = F.substring("value", F.col("body_from"), F.col("body_length")).cast("string")
    return sliced.withColumn("body", body).select(*DECODED_SCHEMA.fieldNames(), *beside)


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


QUEUED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, T.StructField("queue", T.StringType())])
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
    kept = [*(name for name in RECORD_COLUMNS if name != "value"), "queue"]
    reads = ["value", ERROR_CODE, ERROR_DESCRIPTION]
    decorated = with_rule(refused, kept, reads, partial(_decorate, rules=rules), _DECORATED)
    return decorated.select(*QUEUED_SCHEMA.fieldNames())


_DECORATED = pa.schema([("value", pa.binary())])


def _decorate(value: bytes | None, code: str, description: str, *, rules: Rules) -> tuple[bytes]:
    try:
        message = parse_message(value, rules)
    except Unreadable as refused:
        header = refused.header if isinstance(refused.header, dict) else None
        verdict = Verdict(CODES[code], description, None, header, None, None)
    else:
        header = message.header if isinstance(message.header, dict) else None
        verdict = Verdict(CODES[code], description, None, header, message.body, message.body_text)
    return (decorate_bytes(value or b"", verdict, rules),)
