"""Instants as Arrow and Spark keep them, and as texts say them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

INSTANT = pa.timestamp("us", tz="UTC")

FIRST_MICROSECOND, LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Of the years 1 to 9999, which are those that there are here: Python could show no other instant."""

_MOST = 2**63 - 1
_MICROSECONDS_OF = {"s": 1_000_000, "ms": 1_000, "us": 1}


def is_datetime(at: object) -> TypeGuard[datetime]:
    """Tell whether this is a datetime: pandas' NaT is one by its class, and no time at all."""
    # It is not equal to itself, as NaN is not.
    return isinstance(at, datetime) and at == at


def is_within_years(at: datetime) -> bool:
    """
    Tell whether an instant is in the years 1 to 9999 of UTC: another zone's clock may say more at either end.

    >>> is_within_years(datetime.max.replace(tzinfo=UTC))
    True
    >>> is_within_years(datetime.fromisoformat("9999-12-31T23:30:00-01:00"))
    False
    """
    try:
        # Of pandas, a timestamp in seconds may be of any year.
        return FIRST_MICROSECOND <= microseconds(at) <= LAST_MICROSECOND
    except (OverflowError, ValueError):
        return False


def microseconds(at: datetime) -> int:
    """An instant as Arrow and Spark keep it: microseconds since 1970."""
    return (at - EPOCH) // timedelta(microseconds=1)


def as_instants(timestamps: pa.Array) -> pa.Array:
    """
    Timestamps of any unit and zone as instants; those without a zone are of UTC.

    What is below a microsecond is cut, to the earlier one.  A timestamp beyond what microseconds hold, such
    as an infinity in seconds, is the first or last that they do, and so still outside the years 1 to 9999;
    so is an infinity in nanoseconds.

    >>> as_instants(pa.array([0, 2**63 - 1], pa.timestamp("s"))).cast(pa.int64()).to_pylist()
    [0, 9223372036854000000]
    """
    numbers, unit = timestamps.cast(pa.int64()), timestamps.type.unit
    if unit == "ns":
        cut = pc.divide(numbers, 1_000)
        cut = pc.subtract(cut, pc.less(numbers, pc.multiply(cut, 1_000)).cast(pa.int64()))
        is_infinity = pc.is_in(numbers, pa.array([_MOST, -_MOST]))
        return pc.if_else(is_infinity, numbers, cut).cast(INSTANT)
    size = _MICROSECONDS_OF[unit]
    numbers = pc.min_element_wise(numbers, _MOST // size, skip_nulls=False)
    numbers = pc.max_element_wise(numbers, -(_MOST // size), skip_nulls=False)
    return pc.multiply(numbers, size).cast(INSTANT)


def instant_literal(at: object) -> str:
    """
    An instant as a program says it, in UTC where it has no zone; 1 January 2024 for what is no time at all.

    >>> print(instant_literal(datetime(2024, 2, 1, 9, 30)), instant_literal("2024-02-01T10:00+02:00"))
    datetime(2024, 2, 1, 9, 30, tzinfo=UTC) datetime(2024, 2, 1, 8, 0, tzinfo=UTC)
    """
    instant = parse_instant(at) if isinstance(at, str) else at
    if is_datetime(instant):
        instant = instant.replace(tzinfo=UTC) if instant.utcoffset() is None else instant.astimezone(UTC)
    elif isinstance(instant, date) and not isinstance(instant, datetime):
        instant = datetime(instant.year, instant.month, instant.day, tzinfo=UTC)
    else:
        instant = datetime(2024, 1, 1, tzinfo=UTC)
    parts = [*instant.timetuple()[:6], instant.microsecond]
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
