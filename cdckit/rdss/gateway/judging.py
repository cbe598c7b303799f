"""What a gateway makes of bytes: a message to be stored, a refused one, or the message of all its parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cdckit.rdss.decoration import decorate_bytes
from cdckit.rdss.findings import RdssFault
from cdckit.rdss.gateway.repository import RefusedMessage, StoredMessage
from cdckit.rdss.reading import RULES, Rules, parse_message
from cdckit.rdss.sequence_rules import WholeMessage, content_digest, sequence_terms
from cdckit.rdss.validation import Verdict, validate


def judge_message(value: bytes, now: datetime, rules: Rules = RULES) -> StoredMessage | RefusedMessage:
    """
    Read a message as the repository takes it: to be processed, or refused with its code.

    Bytes on which the validation itself fails are refused as GENERR009: one message must not stop a queue.

    >>> from datetime import UTC
    >>> judge_message(b"{", datetime(2024, 2, 1, tzinfo=UTC)).error_code
    'GENERR007'
    """
    try:
        verdict = validate(value, now=now, rules=rules)
    except Exception as error:
        fault = RdssFault.UNEXPECTED
        description = fault.describe(f"The validation failed: {type(error).__name__}.")
        verdict = Verdict(fault, description, "$", None, None, None)
    header = verdict.header
    if verdict.code is not None or header is None:
        return refused_message(value, verdict, rules)
    sequence, is_part = header["messageSequence"], header["messageSequence"]["total"] > 1
    return StoredMessage(
        *(header["messageId"], header["messageClass"], header["messageType"], sequence["sequence"]),
        *(int(sequence["position"]), int(sequence["total"]), header.get("correlationId"), value),
        sequence_terms(header) if is_part else "",
        content_digest(verdict.body) if is_part else "",
    )


def assemble_message(parts: Sequence[StoredMessage], now: datetime, rules: Rules = RULES) -> Verdict:
    """
    Give the verdict on the message of all the parts of its sequence, by position.

    The header is that of the first part, as the message has it alone.  The message may have expired since it
    came.
    """
    if len(parts) == 1:
        return validate(parts[0].value, now=now, rules=rules)
    whole = WholeMessage(rules)
    for part in parts:
        whole.take(part.value if part.position == 1 else None, parse_message(part.value, rules).body_text)
    return whole.assemble(now)[1]


def refused_message(value: bytes, verdict: Verdict, rules: Rules) -> RefusedMessage:
    """A message that is refused, as the queue of its code takes it."""
    assert verdict.code is not None  # it is refused
    message_id = (verdict.header or {}).get("messageId")
    return RefusedMessage(
        value,
        decorate_bytes(value, verdict, rules),
        verdict.code.queue.value,
        verdict.code.value,
        verdict.description or "",
        message_id if isinstance(message_id, str) else None,
    )
