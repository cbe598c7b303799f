"""Instants of whatever a table has for a time."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

NEEDED = "a timestamp, a date, or ISO 8601 text; seconds since 1970 are `F.timestamp_seconds('a_column')`"

TEXTS = (T.StringType, T.VarcharType, T.CharType)
TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)

_MICROSECONDS_A_DAY = 86_400_000_000
_CLOCK = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
_MINUTE = r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2})(?!:)"


def is_time(kind: T.DataType) -> bool:
    """Whether its values are times by their type."""
    return isinstance(kind, TIMES)


def as_instant(value: Column, kind: T.DataType) -> Column | None:
    """
    The instant that a value names, in UTC where it says no zone, whatever the zone of the session is.

    A date is the instant at which it begins, so is a day or a minute as text; digits after the sixth of a
    second are cut.  Null where a text is no ISO 8601; None for types that name no instant.
    """
    if isinstance(kind, T.TimestampType):
        return value
    if isinstance(kind, T.TimestampNTZType):
        return F.concat(value.cast("string"), F.lit("Z")).cast("timestamp")
    if isinstance(kind, T.DateType):
        return F.timestamp_micros(F.unix_date(value).cast("bigint") * F.lit(_MICROSECONDS_A_DAY))
    return _of_text(F.trim(value.cast("string"))) if isinstance(kind, TEXTS) else None


def _of_text(text: Column) -> Column:
    # Spark's cast takes more, and what says no zone for a time of the session's.
    text = F.regexp_replace(text, _MINUTE, "$1:00")
    full = (
        F.when(text.rlike(_CLOCK + r"(Z|[+-]\d{2}:\d{2})$"), text)
        .when(text.rlike(_CLOCK + "$"), F.concat(text, F.lit("Z")))
        .when(text.rlike(r"^\d{4}-\d{2}-\d{2}$"), F.concat(text, F.lit("T00:00:00Z")))
    )
    return full.try_cast("timestamp")
