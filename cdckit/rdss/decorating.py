"""Messages for the error queues: the header says what is wrong."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from cdckit.rdss.codes import RdssFault
from cdckit.rdss.rules import RULES, Rules
from cdckit.rdss.validation import Verdict


def decorated(message: Mapping[str, Any], code: RdssFault, description: str) -> dict[str, Any]:
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
    >>> decorated(message, RdssFault.EXPIRED, "Too late.")["messageHeader"]
    {'messageId': 'm1', 'errorCode': 'GENERR003', 'errorDescription': 'Too late.'}
    """
    header = message.get("messageHeader")
    known = header if isinstance(header, Mapping) else {}
    error = {"errorCode": code.value, "errorDescription": description}
    return {**message, "messageHeader": {**known, **error}}


def decorated_value(value: bytes, verdict: Verdict, rules: Rules = RULES) -> bytes:
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
    >>> made = json.loads(decorated_value(b"?", verdict))
    >>> made["messageHeader"]["errorCode"], made["messageBody"]["base64"]
    ('GENERR007', 'Pw==')
    """
    if verdict.code is None or verdict.description is None:
        raise ValueError("decorated_value() needs a refused message; this one is valid.")
    message = {} if verdict.header is None else {"messageHeader": verdict.header}
    header = decorated(message, verdict.code, verdict.description)["messageHeader"]
    if verdict.body_text is not None:
        whole = _message(header, verdict.body_text)
        if len(whole) <= rules.max_bytes:
            return whole
    told = {"bytes": len(value), "sha256": sha256(value).hexdigest()}
    for body in ({**told, "base64": _base64(value)} if len(value) <= rules.max_bytes else told, told):
        made = _message(header, json.dumps(body))
        if len(made) <= rules.max_bytes:
            return made
    alone = decorated({}, verdict.code, verdict.description)["messageHeader"]
    return _message(alone, json.dumps(told))


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _message(header: Mapping[str, Any], body: str) -> bytes:
    # With escapes, so that half a character in a header can be written too.
    return f'{{"messageHeader": {json.dumps(header)}, "messageBody": {body}}}'.encode()
