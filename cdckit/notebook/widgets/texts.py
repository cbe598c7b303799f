"""Answers that give values of all fields as text, with the instants among them on the clock of a zone."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone, tzinfo
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import quoted


def on_the_clock_of(
    zone: tzinfo, told: DataFrame, fields: T.StructType, *columns: str, field: str = "field"
) -> DataFrame:
    """
    *told*, the values of *fields* that are instants written as *zone*'s clocks show them.

    `diff` and `blame` write them in UTC.  One view has one clock: beside it the beginnings of versions stand.
    """
    instants = [each.name for each in fields if isinstance(each.dataType, T.TimestampType)]
    for column in columns if instants else ():
        text = F.col(quoted(column))
        is_instant = F.col(quoted(field)).isin(instants)
        told = told.withColumn(column, F.when(is_instant, instant_of(text, zone)).otherwise(text))
    return told


def instant_of(text: Column, zone: tzinfo) -> Column:
    """
    An instant that is written in UTC, as *zone*'s clocks show it: like `show`, without seconds that are zero.

    A time that happens twice, since clocks are put back, has its offset.  What is no instant stays as it is;
    for a zone that Spark does not know, an instant stays in UTC and says so.
    """
    there, name = text.try_cast("timestamp_ntz"), _name_of(zone)
    if name is None:
        return F.when(there.isNotNull(), F.concat(_short(there), F.lit(" UTC"))).otherwise(text)
    here = _moved(there, name)
    twice = reduce(
        Column.__or__,
        (here == _moved(there + F.lit(timedelta(minutes=shift)), name) for shift in (-60, -30, 30, 60)),
    )
    written = F.when(twice, F.concat(_short(here), _offset(here - there))).otherwise(_short(here))
    return F.coalesce(written, text)


def _moved(there: Column, name: str) -> Column:
    return there if name == "UTC" else F.convert_timezone(F.lit("UTC"), F.lit(name), there)


def _short(wall: Column) -> Column:
    return F.regexp_replace(wall.cast("string"), r"^(\S+ \d\d:\d\d):00$", "$1")


def _offset(ahead: Column) -> Column:
    """How far clocks are ahead of UTC, as ISO 8601 writes it."""
    hours, minutes = (F.abs(F.extract(F.lit(unit), ahead)) for unit in ("HOUR", "MINUTE"))
    sign = F.when(ahead < F.lit(timedelta(0)), F.lit("-")).otherwise(F.lit("+"))
    return F.format_string("%s%02d:%02d", sign, hours, minutes)


def _name_of(zone: tzinfo) -> str | None:
    """What Spark calls the zone."""
    if zone is UTC:
        return "UTC"
    if isinstance(zone, timezone):
        minutes = zone.utcoffset(None) // timedelta(minutes=1)
        return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    # `key` is what zoneinfo calls its name, `zone` what pytz does.
    name: str | None = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return name
