"""RDSS, "Error Queues": refused messages as the queues take them, with what is wrong in their headers."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from cdckit.rdss.findings import CODES, RdssFault
from cdckit.rdss.reading import RULES, Rules, Unreadable, parse_message
from cdckit.rdss.validation import Verdict


def decorate_bytes(value: bytes, verdict: Verdict, rules: Rules = RULES) -> bytes:
    """
    Write a refused message as one of the error queues takes it: its header has the code and the sentence.

    Where the message could be read, and fits with the two fields, it is that message, its body as it came.
    Otherwise its body tells of the bytes that came: how many they are, their SHA-256, and, where they fit,
    they themselves in base64.

    Args:
        value: The message as it came.
        verdict: Why it is refused.
        rules: The limits: what is made is no larger.

    Raises:
        ValueError: The verdict is that the message is valid.

    Source:
        RDSS, "Error Queues": `errorCode` and `errorDescription` MUST be in the header.

    >>> from datetime import UTC, datetime
    >>> from cdckit.rdss.validation import validate
    >>> verdict = validate(b"?", now=datetime(2024, 1, 1, tzinfo=UTC))
    >>> made = json.loads(decorate_bytes(b"?", verdict))
    >>> made["messageHeader"]["errorCode"], made["messageBody"]["base64"]
    ('GENERR007', 'Pw==')
    """
    if verdict.code is None or verdict.description is None:
        raise ValueError("decorate_bytes() needs a refused message; this one is valid.")
    error = {"errorCode": verdict.code.value, "errorDescription": verdict.description}
    header = {**(verdict.header or {}), **error}
    if verdict.body_text is not None:
        decorated = _message(header, verdict.body_text)
        if len(decorated) <= rules.max_bytes:
            return decorated
    facts = {"bytes": len(value), "sha256": sha256(value).hexdigest()}
    content = {"base64": b64encode(value).decode()} if len(value) <= rules.max_bytes else {}
    for body in ({**facts, **content}, facts):
        decorated = _message(header, json.dumps(body))
        if len(decorated) <= rules.max_bytes:
            return decorated
    return _message(error, json.dumps(facts))


def _message(header: Mapping[str, Any], body: str) -> bytes:
    # With escapes, so that half a character in a header can be written too.
    return f'{{"messageHeader": {json.dumps(header)}, "messageBody": {body}}}'.encode()


def refuse(value: bytes | None, code: RdssFault, description: str, rules: Rules = RULES) -> Verdict:
    """Make the verdict that a message has *code*, with what can be read of it."""
    try:
        message = parse_message(value, rules)
    except Unreadable as unreadable:
        header, body, text = unreadable.header, None, None
    else:
        header, body, text = message
    return Verdict(code, description, None, header if isinstance(header, dict) else None, body, text)


def decorate_refused(value: bytes | None, code: str, description: str, *, rules: Rules) -> tuple[bytes]:
    """Decorate a record's value, of which the code and the sentence are known."""
    return (decorate_bytes(value or b"", refuse(value, CODES[code], description, rules), rules),)
