"""What the specification asks of a header beyond the form of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cdckit.rdss.codes import RdssFault
from cdckit.rdss.findings import HEADER, Finding, found, shown
from cdckit.rdss.rules import Rules
from cdckit.rdss.validators import BODIES, major_of

LONGEST_SEQUENCE = (1 << 31) - 1
_CODES = frozenset(RdssFault)


def instant_of(text: str | None) -> datetime | None:
    """
    The instant of a text in the form of RFC 3339; None for no text, and for the year 0.

    A leap second is the beginning of the next minute; digits after the sixth of a second are cut.

    >>> print(instant_of("2016-12-31t23:59:60z"), instant_of("2024-01-01T00:00:00.5-00:00"))
    2017-01-01 00:00:00+00:00 2024-01-01 00:00:00.500000+00:00
    """
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        if text[17:19] != "60":
            return None
    try:
        return datetime.fromisoformat(f"{text[:17]}59{text[19:]}".upper()) + timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None


def breach(header: Mapping[str, Any], rules: Rules) -> Finding | None:
    """The first rule that a header breaks whose fields all have their form; None if it keeps all."""
    return (
        _version(header, rules)
        or _pairing(header)
        or _sequence(header["messageSequence"])
        or _timings(header["messageTimings"])
        or _code(header)
    )


def expired(header: Mapping[str, Any], now: datetime) -> Finding | None:
    """That the message had expired at *now*; at the very instant of its expiry it has not."""
    text = header["messageTimings"].get("expirationTimestamp")
    ends = instant_of(text)
    if ends is None or now <= ends:
        return None
    path = (*HEADER, "messageTimings", "expirationTimestamp")
    return found(RdssFault.EXPIRED, path, f"{text} is before {now.isoformat()}.")


def _wrong(field: str | tuple[str, ...], sentence: str) -> Finding:
    steps = (field,) if isinstance(field, str) else field
    return found(RdssFault.INVALID_HEADER, (*HEADER, *steps), sentence)


def _version(header: Mapping[str, Any], rules: Rules) -> Finding | None:
    version = header["version"]
    if major_of(version) == rules.major:
        return None
    return _wrong("version", f"{shown(version)} is no version {rules.major} of the specification.")


def _pairing(header: Mapping[str, Any]) -> Finding | None:
    kind, group = header["messageType"], header["messageClass"]
    if (kind, group) not in BODIES:
        fitting = " or ".join(of_class for of_type, of_class in BODIES if of_type == kind)
        return _wrong("messageClass", f"a {kind} is a {fitting}, no {group}.")
    if (kind, group) == ("MetadataRead", "Document") and "correlationId" not in header:
        return _wrong((), "the field correlationId is missing, which a response needs.")
    return None


def _sequence(sequence: Mapping[str, Any]) -> Finding | None:
    position, total = sequence["position"], sequence["total"]
    if 1 <= position <= total <= LONGEST_SEQUENCE:
        return None
    return _wrong(
        ("messageSequence", "position"), f"{shown(position)} is no place in a sequence of {shown(total)}."
    )


def _timings(timings: Mapping[str, Any]) -> Finding | None:
    for name, text in timings.items():
        if instant_of(text) is None:
            return _wrong(("messageTimings", name), f"{shown(text)} is in no year from 1 to 9999.")
    return None


def _code(header: Mapping[str, Any]) -> Finding | None:
    if "errorCode" in header and header["errorCode"] not in _CODES:
        return _wrong("errorCode", f"{shown(header['errorCode'])} is no error code.")
    return None
