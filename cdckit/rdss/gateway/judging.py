"""What a gateway makes of bytes from a queue, of parts of a sequence, and of messages that failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cdckit.rdss.codes import RdssFault
from cdckit.rdss.decorating import decorated_value
from cdckit.rdss.gateway.messages import Message
from cdckit.rdss.gateway.repository import Incoming, Refused
from cdckit.rdss.header_rules import expired
from cdckit.rdss.rules import RULES, Rules
from cdckit.rdss.sequence_rule import content_of, terms_of
from cdckit.rdss.splitting import whole_header
from cdckit.rdss.validation import Verdict, body_finding, validate


def judged(value: bytes, now: datetime, rules: Rules = RULES) -> Incoming | Refused:
    """
    A message as the repository takes it: to be processed, or refused with its code.

    Bytes on which the validation itself fails are refused as GENERR009: one message must not stop a queue.

    >>> from datetime import UTC
    >>> judged(b"{", datetime(2024, 2, 1, tzinfo=UTC)).error_code
    'GENERR007'
    """
    try:
        verdict = validate(value, now=now, rules=rules)
    except Exception as error:
        found = RdssFault.UNEXPECTED.describe(f"The validation failed: {type(error).__name__}.")
        return _refused(value, Verdict(RdssFault.UNEXPECTED, found, "$", None, None, None), rules)
    if verdict.code is not None:
        return _refused(value, verdict, rules)
    header = verdict.header
    assert header is not None  # a valid message has one
    sequence = header["messageSequence"]
    is_part = int(sequence["total"]) > 1
    return Incoming(
        header["messageId"],
        header["messageClass"],
        header["messageType"],
        sequence["sequence"],
        int(sequence["position"]),
        int(sequence["total"]),
        header.get("correlationId"),
        value,
        terms_of(header) if is_part else "",
        content_of(verdict.body) if is_part else "",
    )


def refusal(value: bytes, code: RdssFault, finding: str, now: datetime, rules: Rules = RULES) -> Refused:
    """A message that was valid when it came, as the queue of *code* takes it."""
    verdict = validate(value, now=now, rules=rules)
    return _refused(value, replace(verdict, code=code, description=code.describe(finding)), rules)


def whole(parts: Sequence[Incoming], now: datetime, rules: Rules = RULES) -> Message | tuple[RdssFault, str]:
    """
    The message of all the parts of its sequence, by position; or what is wrong with its body.

    The header is that of the first part, as the message has it alone.  The message may have expired since it
    came.
    """
    verdicts = [validate(each.value, now=now, rules=rules) for each in parts]
    header, body = verdicts[0].header, verdicts[0].body
    assert header is not None  # it was valid when it came
    late = expired(header, now)
    if late is not None:
        return late.code, f"At {late.path}: {late.sentence}"
    if len(parts) == 1:
        return Message(header, body)
    header = whole_header(header)
    try:
        body = json.loads("".join(each.body for each in verdicts))
    except (ValueError, RecursionError) as error:
        return RdssFault.MALFORMED, f"The {len(parts)} parts together: {str(error)[:200]}."
    finding = body_finding(header, body, rules)
    return (
        Message(header, body) if finding is None else (finding.code, f"At {finding.path}: {finding.sentence}")
    )


def _refused(value: bytes, verdict: Verdict, rules: Rules) -> Refused:
    code, description = verdict.code, verdict.description
    assert code is not None  # it is refused
    assert description is not None
    named = (verdict.header or {}).get("messageId")
    return Refused(
        value,
        decorated_value(value, verdict, rules),
        code.queue.value,
        code.value,
        description,
        named if isinstance(named, str) else None,
    )
