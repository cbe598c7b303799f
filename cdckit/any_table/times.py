"""Instants of whatever a table has for a time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts import instants

NEEDED = "a timestamp, a date, or ISO 8601 text; seconds since 1970 are `F.timestamp_seconds('a_column')`"

# How a time is written that is no ISO 8601: a sign between the parts of its day, and what Spark calls that.
_FORMATS = ((r"^\d{1,2}\.\d{1,2}\.\d{4}", "d.M.yyyy"), (r"^\d{1,2}/\d{1,2}/\d{4}", "M/d/yyyy"))
_CLOCKS = ((r" \d{1,2}:\d{2}:\d{2}$", " H:mm:ss"), (r" \d{1,2}:\d{2}$", " H:mm"))
_OTHER_FORMAT = "dd.MM.yyyy HH:mm"

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


def format_of(texts: Iterable[str]) -> str | None:
    """
    How all of these texts write a time, as Spark's `to_timestamp` wants it said; None where they do not.

    It is empty where they are ISO 8601, which needs nothing said.

    >>> format_of(["1.3.2024 9:00", "31.12.2024 23:59"]), format_of(["2024-03-01 09:00"]), format_of(["a"])
    ('d.M.yyyy H:mm', '', None)
    """
    said = [text.strip() for text in texts]
    if all(instants.instant(text) for text in said):
        return ""
    for day, written in _FORMATS:
        for clock, with_clock in (*_CLOCKS, ("$", "")):
            if all(re.fullmatch(day.removeprefix("^") + clock, text) for text in said):
                # 13/2 can only be a day; 1/2 is a month first, as Americans write it, or nobody knows.
                is_day_first = "/" in written and any(int(text.split("/")[0]) > 12 for text in said)
                return ("d/M/yyyy" if is_day_first else written) + with_clock
    return None


class Unreadable(NamedTuple):
    """
    What to say where a row has no time that can be read.

    `argument` is that of the call, `said` what was said for it, as in SQL; `value` is what stands in a row,
    as text, and `left_out` a call that leaves out the rows without one.
    """

    argument: str
    said: str
    value: Column
    left_out: str

    def sentence(self, function: str, row: Column) -> Column:
        """The sentence that ends the job: the first such value, and how its time can be read."""
        needs = f"{function}() needs a time for every row, and {self.said} is "
        null = F.lit(f"{needs}null: leave such rows out, `{self.left_out}`, or name another time.  The row: ")
        way = F.concat(
            F.lit(f"which is no ISO 8601, such as 2024-12-31 23:59: say how it is written, "
                  f'{self.argument}="to_timestamp({self.said}, \''),
            _format(self.value),
            F.lit("')\".  The row: "),
        )  # fmt: skip
        wrong = F.concat(F.lit(f"{needs}'"), self.value, F.lit("', "), way)
        return F.concat(F.when(self.value.isNull(), null).otherwise(wrong), row)


def _format(value: Column) -> Column:
    day = F.lit(None).cast("string")
    for pattern, written in _FORMATS:
        second = F.split(value, "[./]")[0].try_cast("int") > 12
        first = written if "." in written else F.when(second, "d/M/yyyy").otherwise(written)
        day = F.when(value.rlike(pattern), first).otherwise(day)
    clock = F.lit("")
    for pattern, written in _CLOCKS:
        clock = F.when(value.rlike(pattern), written).otherwise(clock)
    return F.coalesce(F.concat(day, clock), F.lit(_OTHER_FORMAT))
