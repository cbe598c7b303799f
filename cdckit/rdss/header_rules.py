"""RDSS, "Message Header": what is asked of a header beyond its form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cdckit.rdss.findings import CODES, HEADER, Finding, RdssFault, make_finding, show_value
from cdckit.rdss.message_types import BODIES, READ
from cdckit.rdss.validators import parse_major

LONGEST_SEQUENCE = (1 << 31) - 1
_MAJOR = 4
"""The major version of the specification: the schemas are of it."""


def parse_instant(text: str | None) -> datetime | None:
    """
    The instant, in UTC, of a text in the form of RFC 3339; None for no text, and for the years 0 and 10000.

    A leap second is the beginning of the next minute; digits after the sixth of a second are cut.

    >>> print(parse_instant("2016-12-31t23:59:60z"), parse_instant("2024-01-01T00:00:00.5-00:00"))
    2017-01-01 00:00:00+00:00 2024-01-01 00:00:00.500000+00:00
    """
    if text is None:
        return None
    leaps = text[17:19] == "60"
    try:
        instant = datetime.fromisoformat((f"{text[:17]}59{text[19:]}" if leaps else text).upper())
        instant += timedelta(seconds=leaps)
        # One without a zone is of a header that is refused.
        return instant if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def rule_finding(header: Mapping[str, Any]) -> Finding | None:
    """The first rule that a header breaks whose fields all have their form; None if it keeps all."""
    return (
        _version(header)
        or _pairing(header)
        or _sequence(header["messageSequence"])
        or _timings(header["messageTimings"])
        or _code(header)
    )


def expiry_finding(header: Mapping[str, Any], now: datetime) -> Finding | None:
    """That the message had expired at *now*; at the very instant of its expiry it has not."""
    text = header["messageTimings"].get("expirationTimestamp")
    ends = parse_instant(text)
    if ends is None or now <= ends:
        return None
    path = (*HEADER, "messageTimings", "expirationTimestamp")
    return make_finding(RdssFault.EXPIRED, path, f"{text} is before {now.isoformat()}.")


def _header_finding(field: str | tuple[str, ...], sentence: str) -> Finding:
    steps = (field,) if isinstance(field, str) else field
    return make_finding(RdssFault.INVALID_HEADER, (*HEADER, *steps), sentence)


def _version(header: Mapping[str, Any]) -> Finding | None:
    version = header["version"]
    if parse_major(version) == _MAJOR:
        return None
    return _header_finding("version", f"{show_value(version)} is no version {_MAJOR} of the specification.")


def _pairing(header: Mapping[str, Any]) -> Finding | None:
    kind, group = header["messageType"], header["messageClass"]
    if (kind, group) not in BODIES:
        fitting = " or ".join(of_class for of_type, of_class in BODIES if of_type == kind)
        return _header_finding("messageClass", f"a {kind} is a {fitting}, no {group}.")
    if (kind, group) == (READ, "Document") and "correlationId" not in header:
        return _header_finding((), "the field correlationId is missing, which a response needs.")
    return None


def _sequence(sequence: Mapping[str, Any]) -> Finding | None:
    position, total = sequence["position"], sequence["total"]
    if 1 <= position <= total <= LONGEST_SEQUENCE:
        return None
    return _header_finding(
        ("messageSequence", "position"),
        f"{show_value(position)} is no place in a sequence of {show_value(total)}.",
    )


def _timings(timings: Mapping[str, Any]) -> Finding | None:
    for name, text in timings.items():
        if parse_instant(text) is None:
            return _header_finding(
                ("messageTimings", name), f"{show_value(text)} is in no year from 1 to 9999 of UTC."
            )
    return None


def _code(header: Mapping[str, Any]) -> Finding | None:
    if "errorCode" in header and header["errorCode"] not in CODES:
        return _header_finding("errorCode", f"{show_value(header['errorCode'])} is no error code.")
    return None
