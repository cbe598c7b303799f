"""RDSS, "Multi-Message Sequence": what becomes of the parts of a longer message, and the whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
import pyarrow as pa

from cdckit.parts.fold import Fold, FoldPlan, Result
from cdckit.rdss.findings import HEADER, Finding, RdssFault, make_finding
from cdckit.rdss.message_rows import BEFORE_ALL, MESSAGE, VERDICT, message_row, read_tenant
from cdckit.rdss.reading import Rules, parse_message, whole_header
from cdckit.rdss.validation import Verdict, validate


class PartOutcome(StrEnum):
    """What becomes of a part: the column `part`."""

    COMPLETE = "complete"
    WAITING = "waiting"
    DUPLICATE = "duplicate"
    CONTRADICTING = "contradicting"


def sequence_terms(header: Mapping[str, Any]) -> str:
    """
    Read what all parts of one sequence must say alike: its total, and the type, class, tenant and generator.

    >>> sequence_terms({"messageSequence": {"total": 2}, "messageType": "MetadataRead",
    ... "messageClass": "Command",     "tenantJiscID": 7, "generator": "g"})
    '2\\nMetadataRead\\nCommand\\n7\\ng'
    """
    total, tenant = int(header["messageSequence"]["total"]), int(header["tenantJiscID"])
    return join_terms(total, header["messageType"], header["messageClass"], tenant, header["generator"])


def join_terms(*values: int | str) -> str:
    """Join the total, and the type, class, tenant and generator."""
    return "\n".join(map(str, values))


def contradiction(sequence: str) -> Finding:
    """What is wrong with a part of *sequence* that is refused, since others came before it."""
    sentence = f"the part contradicts what came before it of the sequence {sequence}."
    return make_finding(RdssFault.INVALID_HEADER, (*HEADER, "messageSequence"), sentence)


def content_digest(body: str) -> str:
    """
    The digest of a piece of a body: of the text itself, however JSON has escaped it.

    >>> content_digest(json.loads('"\\\\u00e9"')) == content_digest("é")
    True
    """
    return sha256(body.encode()).hexdigest()


class SequenceParts(Fold):
    """
    The parts of one sequence: what came first stands, so a wrong part spoils no other.

    Args:
        terms: Those of the sequence; None before its first part.
        contents: The digest of each part that is there, by its place.
    """

    def __init__(self, terms: str | None = None, contents: Mapping[int, str] | None = None) -> None:
        self.terms, self.contents = terms, dict(contents or {})
        self._arrivals: list[datetime | None] = []

    def judge(self, terms: str, position: int, content: str) -> PartOutcome | None:
        """
        Say of a part whether it came before, or contradicts what did; None if it is new.

        The same content in its place is a duplicate, whatever its messageId.
        """
        self.terms = self.terms or terms
        if terms != self.terms or self.contents.get(position, content) != content:
            return PartOutcome.CONTRADICTING
        if position in self.contents:
            return PartOutcome.DUPLICATE
        self.contents[position] = content
        return None

    def take(
        self,
        sequence: str,
        position: int,
        total: int,
        message_type: str,
        message_class: str,
        tenant: int | None,
        generator: str,
        body: str,
        arrival: datetime | None,
        tenant_value: bytes | None,
    ) -> Result | None:
        """
        Judge a part; a new one is held, since whether it waits depends on those that follow.

        *tenant_value* is the message itself, where the column of its *tenant* has no room for that.
        """
        content = content_digest(msgspec.json.decode(body, type=str))
        if tenant is None and tenant_value is not None:
            tenant = read_tenant(tenant_value)
        assert tenant is not None
        terms = join_terms(total, message_type, message_class, tenant, generator)
        outcome = self.judge(terms, position, content)
        if outcome is None:
            self._arrivals.append(arrival)
            return None
        if outcome is PartOutcome.DUPLICATE:
            return outcome, None, None, *_NO_FAULT
        finding = contradiction(sequence)
        return outcome, None, None, finding.code.queue.value, finding.code.value, finding.description

    def settle(self) -> Iterable[Result]:
        """Say of the new parts whether their sequence is all there, or since when and for what they wait."""
        if not self._arrivals:
            return []
        lacking = self.lacking()
        if lacking is None:
            result: Result = (PartOutcome.COMPLETE, None, None, *_NO_FAULT)
        else:
            since = min((arrival for arrival in self._arrivals if arrival is not None), default=None)
            result = (PartOutcome.WAITING, since, lacking, *_NO_FAULT)
        return [result] * len(self._arrivals)

    @property
    def _total(self) -> int:
        return int((self.terms or "0").partition("\n")[0])

    @property
    def is_complete(self) -> bool:
        """Whether all parts are there."""
        return len(self.contents) == self._total

    def lacking(self) -> str | None:
        """Say how many parts are missing, and the first of them; None if all are there."""
        if self.is_complete:
            return None
        missing, places = self._total - len(self.contents), range(1, self._total + 1)
        first = next(place for place in places if place not in self.contents)
        return f"{missing} of {self._total} parts, the first of them part {first}"


_NO_FAULT = (None, None, None)

TENANT_VALUE = "value with the tenant"
"""The value of a message whose `tenant_jisc_id` is null, since the number has more than 64 bits."""

PARTS = FoldPlan(
    scope=("sequence_id",),
    reads=(
        *("sequence_id", "sequence_position", "sequence_total", "message_type", "message_class"),
        *("tenant_jisc_id", "generator", "body", "timestamp", TENANT_VALUE),
    ),
    makes=pa.schema(
        [
            ("part", pa.string()),
            ("waiting_since", pa.timestamp("us", "UTC")),
            ("waiting_for", pa.string()),
            *((name, pa.string()) for name in VERDICT),
        ]
    ),
    begin=lambda _: SequenceParts(),
)
"""How the parts of sequences are judged, in the order in which they came."""


class WholeMessage(Fold):
    """
    The parts of one sequence, all there and in their order; the first comes to the whole message.

    Args:
        rules: The limits; that of the size is the one of whole messages.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules, self._first, self._size = replace(rules, max_bytes=rules.max_whole_bytes), b"", 0
        self._pieces: list[str] = []

    @property
    def _fits(self) -> bool:
        return self._size <= _BYTES_FOR_ONE * self._rules.max_bytes

    def take(self, first: bytes | None, body: str) -> Result | None:
        """Take a part: of the *first* its bytes.  Of what is far too large nothing is held."""
        self._size += len(body.encode())
        if self._fits:
            self._pieces.append(body)
        else:
            self._pieces.clear()
        if first is None:
            return _NO_MESSAGE
        self._first = first
        return None

    def assemble(self, now: datetime) -> tuple[bytes, Verdict]:
        """Put the message together, and validate it as of *now*."""
        header = whole_header(
            parse_message(self._first, replace(self._rules, max_bytes=len(self._first))).header
        )
        if not self._fits:
            most = self._rules.max_bytes
            many = f"its parts have {self._size:,} bytes, and a message may have {most:,}."
            finding = make_finding(RdssFault.SYSTEM_FAILED, (), many)
            return self._first, Verdict(finding.code, finding.description, finding.path, header, None, None)
        body = json.loads(f'"{"".join(piece[1:-1] for piece in self._pieces)}"')
        text = json.dumps(header, ensure_ascii=False)
        value = f'{{"messageHeader": {text}, "messageBody": {body}}}'.encode()
        verdict = validate(value, now=now, rules=self._rules)
        # Its body may be no JSON, or too large.
        return value, verdict if verdict.header is not None else replace(verdict, header=header)

    def settle(self) -> Iterable[Result]:
        """Give the message that is put together, and the verdict on it."""
        # Each part was delivered in time, by the time of its own record.
        value, verdict = self.assemble(BEFORE_ALL)
        return [(value, *message_row(verdict))]


# In a part most of what is escaped takes two bytes for one.
_BYTES_FOR_ONE = 2
_NO_MESSAGE = (None,) * (1 + len(MESSAGE))


def assembly_plan(rules: Rules) -> FoldPlan:
    """Plan how whole messages are made of parts that are all there, in the order of their places."""
    return FoldPlan(
        scope=("sequence_id",),
        reads=("first_value", "body"),
        makes=pa.schema([("value", pa.binary()), *MESSAGE]),
        begin=lambda _: WholeMessage(rules),
    )
