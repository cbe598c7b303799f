"""
Values of any type: when two are equal, and their text.

There is one equality, for `merge` and for every question, and also inside of arrays, maps and structs:

- null equals null, NaN equals NaN, and 0.0 equals -0.0;
- two maps are equal if their entries are, in whatever order they are written;
- text is equal if its bytes are, whatever the collation of its column: a change of case is a change,
  and a key in another case is another key;
- variants are equal if their JSON is;
- of everything else the type says what is equal.

Here the rule is for Spark (`comparable`), in `cdckit.parts.arrays` for the workers' Arrow (`same_values`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.instants import FIRST_MICROSECOND, LAST_MICROSECOND

EXACT_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    # Spark's own cuts a timestamp without a zone to milliseconds: two values would share a text.
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "ignoreNullFields": "true",
}
"""Options for `to_json`, spelled out because Spark's defaults follow the session, and a text must not."""


def as_text(value: Column, kind: T.DataType) -> Column:
    """
    A value of any type as text, null for null; equal values have one text, different values different ones.

    Instants are in UTC whatever the session's zone, nested values are JSON, binary is hex digits.
    """
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType | T.VariantType):
        return F.to_json(_canonical(value, kind), EXACT_JSON)
    if isinstance(kind, T.TimestampType):
        return utc_clock(value).cast("string")
    if isinstance(kind, T.BinaryType):
        return F.lower(F.hex(value))
    return _canonical(value, kind).cast("string")


def decimal_text(number: Column) -> Column:
    """A decimal in digits alone, without zeros at its end: one text for 1, 1.0 and 1.00."""
    return F.regexp_replace(_without_exponent(number.cast("string")), r"\.0+$|(\.[0-9]*[1-9])0+$", "$1")


def _without_exponent(number: Column) -> Column:
    """A decimal's text in digits alone: a session that is not ANSI writes small ones as 1.5E-7."""
    small = r"^(-?)([0-9])(?:\.([0-9]+))?E-([0-9]+)$"
    sign, first, digits, exponent = (F.regexp_extract(number, small, part) for part in (1, 2, 3, 4))
    zeros = F.repeat(F.lit("0"), F.coalesce(exponent.try_cast("int"), F.lit(1)) - 1)
    plain = F.concat(sign, F.lit("0."), zeros, first, digits)
    return F.when(number.rlike(small), plain).otherwise(number)


def time_between(start: Column, end: Column) -> Column:
    """The time between two instants; Spark's own difference is that of the clocks in the session's zone."""
    return utc_clock(end) - utc_clock(start)


def utc_clock(instant: Column) -> Column:
    """The wall clock of UTC: an interval from 1970 on, since every cast would go by the session's zone."""
    whole = F.unix_seconds(instant)
    # In days and the rest: seconds alone would leave no room for their fractions after the year 33,658.
    # Cut towards 1970: an interval does not hold all of the first day that microseconds do.
    days = (whole / F.lit(_SECONDS_A_DAY)).cast("bigint")
    within = (whole - days * F.lit(_SECONDS_A_DAY)) * F.lit(1_000_000)
    remainder = within + F.pmod(F.unix_micros(instant), F.lit(1_000_000))
    seconds = remainder.cast("decimal(18,0)") / F.lit(1_000_000).cast("decimal(7,0)")
    nothing = F.lit(0)
    since_1970 = F.make_dt_interval(days.cast("int"), nothing, nothing, seconds.cast("decimal(18,6)"))
    return F.expr("timestamp_ntz'1970-01-01 00:00:00'") + since_1970


_SECONDS_A_DAY = 86_400


def as_utc_instant(value: Column, kind: T.DataType) -> Column:
    """A date or timestamp as an instant: a date begins at midnight, and what says no zone is of UTC."""
    if isinstance(kind, T.TimestampNTZType):
        return F.concat(value.cast("string"), F.lit("Z")).cast("timestamp_ltz")
    if isinstance(kind, T.DateType):
        # Beyond what microseconds hold, such as an infinity, it is the first or last day that they do.
        days = F.greatest(F.least(F.unix_date(value), F.lit(_LAST_DAY)), F.lit(-_LAST_DAY))
        instant = F.timestamp_micros(days.cast("bigint") * F.lit(_MICROSECONDS_A_DAY))
        return F.when(value.isNotNull(), instant)
    return value


_MICROSECONDS_A_DAY = 86_400_000_000
_LAST_DAY = (2**63 - 1) // _MICROSECONDS_A_DAY


def has_times(kind: T.DataType) -> bool:
    """Tell whether there are dates or timestamps in values of the type, at any depth."""
    return has_part(kind, lambda part: isinstance(part, T.TimestampType | T.TimestampNTZType | T.DateType))


def is_outside_years(value: Column, kind: T.DataType) -> Column:
    """
    Tell whether a time in a value, at any depth, is not in the years 1 to 9999; never null.

    Spark has such times, and databases write infinities as such; Python could not show them.

    >>> times = session().createDataFrame([("2024-01-01",), ("+12024-01-01",)], "at string")
    >>> times.select(is_outside_years(F.col("at").cast("date"), T.DateType()).alias("outside")).show()
    +-------+
    |outside|
    +-------+
    |  false|
    |   true|
    +-------+
    <BLANKLINE>
    """
    if not has_times(kind):
        return F.lit(False)
    if isinstance(kind, T.StructType):
        parts = [is_outside_years(value.getField(field.name), field.dataType) for field in kind]
        return reduce(or_, parts)
    if isinstance(kind, T.MapType):
        sides = ((F.map_keys(value), kind.keyType), (F.map_values(value), kind.valueType))
        return reduce(or_, (is_outside_years(side, T.ArrayType(part)) for side, part in sides))
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        outside = F.exists(value, lambda item: is_outside_years(item, element))
    elif isinstance(kind, T.TimestampType):
        outside = ~F.unix_micros(value).between(FIRST_MICROSECOND, LAST_MICROSECOND)
    else:
        outside = ~F.year(value).between(1, 9999)
    return F.coalesce(outside, F.lit(False))


def within_years(value: Column, kind: T.DataType) -> Column:
    """The value; null where a time in it is not in the years 1 to 9999."""
    return F.when(~is_outside_years(value, kind), value) if has_times(kind) else value


def comparable(value: Column, kind: T.DataType) -> Column:
    """
    A value in a form whose `eqNullSafe`, partitions and groups in Spark go by the one equality.

    Maps are their sorted entries, variants their JSON, text with a collation is text without.  A float is
    hidden in an expression: by the bounds that Parquet files and cached tables have of a column, which leave
    NaN out, Spark would pass over the rows that have it.
    """
    if isinstance(kind, T.FloatType | T.DoubleType):
        return F.nanvl(value, F.lit(float("nan")).cast(kind))
    if is_collated(kind):
        return value.cast("string")
    if isinstance(kind, T.VariantType):
        return F.to_json(value, EXACT_JSON)
    if has_part(kind, lambda part: isinstance(part, T.MapType | T.VariantType) or is_collated(part)):
        return _convert_parts(value, kind, comparable)
    return value


def _canonical(value: Column, kind: T.DataType) -> Column:
    """Write a value in one way of several: maps with their keys sorted, 0.0 for -0.0."""
    if isinstance(kind, T.FloatType | T.DoubleType):
        return F.when(value == 0, F.lit(0.0).cast(kind)).otherwise(value)
    if has_part(kind, lambda part: isinstance(part, T.MapType | T.FloatType | T.DoubleType)):
        written = _convert_parts(value, kind, _canonical)
        return F.map_from_entries(written) if isinstance(kind, T.MapType) else written
    return value


_Form = Callable[[Column, T.DataType], Column]


def _convert_parts(value: Column, kind: T.DataType, form: _Form) -> Column:
    """An array or a struct with its elements, or its fields, in another form; of a map, its entries."""
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(value, lambda item: form(item, element))
    if isinstance(kind, T.MapType):
        return _entries(value, kind, form)
    assert isinstance(kind, T.StructType)
    parts = (form(value.getField(field.name), field.dataType).alias(field.name) for field in kind)
    return F.when(value.isNotNull(), F.struct(*parts))


def _entries(value: Column, kind: T.MapType, form: _Form) -> Column:
    """The entries of a map by their keys: of one map, no two keys are equal, so the values need no order."""
    key, entry = kind.keyType, kind.valueType

    def formed(pair: Column) -> Column:
        parts = form(pair.getField("key"), key), form(pair.getField("value"), entry)
        return F.struct(parts[0].alias("key"), parts[1].alias("value"))

    def by_key(left: Column, right: Column) -> Column:
        a, b = left.getField("key"), right.getField("key")
        return F.when(a < b, -1).when(a > b, 1).otherwise(0)

    return F.array_sort(F.transform(F.map_entries(value), formed), by_key)


def has_part(kind: T.DataType, is_one: Callable[[T.DataType], bool]) -> bool:
    """Tell whether the type, or a part of it, is one of those."""
    if isinstance(kind, T.StructType):
        return any(has_part(field.dataType, is_one) for field in kind)
    if isinstance(kind, T.ArrayType):
        return has_part(kind.elementType, is_one)
    if isinstance(kind, T.MapType):
        return is_one(kind) or has_part(kind.keyType, is_one) or has_part(kind.valueType, is_one)
    return is_one(kind)


def is_collated(kind: T.DataType) -> bool:
    """Tell whether this is text that has an order and an equality of its own."""
    return " collate " in kind.simpleString() and not isinstance(kind, T.StructType | T.ArrayType | T.MapType)
