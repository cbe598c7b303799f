"""Instants as Arrow and Spark keep them, and as texts say them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.arrays import Bools

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

INSTANT = pa.timestamp("us", tz="UTC")
_FIRST = pa.scalar(datetime.min.replace(tzinfo=UTC), INSTANT)


def is_datetime(at: object) -> TypeGuard[datetime]:
    """Whether this is a datetime: pandas' NaT is one by its class, and no time at all."""
    # It is not equal to itself, as NaN is not.
    return isinstance(at, datetime) and at == at


def microseconds(at: datetime) -> int:
    """An instant as Arrow and Spark keep it: microseconds since 1970."""
    return (at - EPOCH) // timedelta(microseconds=1)


def parse_instants(texts: pa.Array) -> tuple[pa.Array, Bools]:
    """Instants of ISO 8601 *texts*, UTC where no zone is said; and which texts are none."""
    instants = _parse_common_form(texts)
    if instants is None:
        instants = pa.array([_instant(text) for text in texts.to_pylist()], INSTANT)
    return instants, instants.is_null().to_numpy(zero_copy_only=False)


def _parse_common_form(texts: pa.Array) -> pa.Array | None:
    """All instants at once, or nothing if one of *texts* has to be looked at by itself."""
    try:
        instants = texts.cast(pa.timestamp("us")).cast(INSTANT)
    except pa.ArrowInvalid:
        return None
    # Arrow reads a year 0, which no datetime can hold.
    return None if pc.any(pc.less(instants, _FIRST)).as_py() else instants


def _instant(text: str | None) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text or "")
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def instant_literal(at: object) -> str:
    """
    An instant as a program says it, in UTC where it has no zone; 1 January 2024 for what is no time at all.

    >>> print(instant_literal(datetime(2024, 2, 1, 9, 30)), instant_literal("2024-02-01T10:00+02:00"))
    datetime(2024, 2, 1, 9, 30, tzinfo=UTC) datetime(2024, 2, 1, 8, 0, tzinfo=UTC)
    """
    found = parse_instant(at) if isinstance(at, str) else at
    if is_datetime(found):
        found = found.replace(tzinfo=UTC) if found.utcoffset() is None else found.astimezone(UTC)
    elif isinstance(found, date) and not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day, tzinfo=UTC)
    else:
        found = datetime(2024, 1, 1, tzinfo=UTC)
    parts = [found.year, found.month, found.day, found.hour, found.minute, found.second, found.microsecond]
    while len(parts) > 3 and not parts[-1] and not (len(parts) == 5 and parts[3]):
        parts.pop()
    return f"datetime({', '.join(map(str, parts))}, tzinfo=UTC)"


def parse_instant(value: object) -> datetime | None:
    """
    The instant that an ISO 8601 text names, in UTC where it says no zone; None if it names none.

    A day, or a minute, is the instant at which it begins; digits after the sixth of a second are cut.

    >>> print(*map(parse_instant, ("2024-01-01T10:00+02:00", "2024-01-01", "2024-02-30")))
    2024-01-01 08:00:00+00:00 2024-01-01 00:00:00+00:00 None
    """
    match = _ISO_8601.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    day, minute, second, fraction, zone = match.groups()
    if fraction and not second:
        return None
    text = f"{day}T{minute or '00:00'}{second or ':00'}.{(fraction or '0')[:6]:0<6}{zone or 'Z'}"
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


_ISO_8601 = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(:\d{2})?(?:\.(\d{1,9}))?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)?)?",
    re.ASCII,
)
