"""
Values of any type: when two of them are equal, the form in which Spark compares them, and their text.

There is one equality, for `merge` and for every question, and also inside of arrays, maps and structs:

- null equals null, NaN equals NaN, and 0.0 equals -0.0;
- two maps are equal if their entries are, in whatever order they are written;
- text is equal if its bytes are, whatever the collation of its column: a change of case is a change,
  and a key in another case is another key;
- variants are equal if their JSON is;
- of everything else the type says what is equal.

Here the rule is for Spark (`comparable`), in `cdckit.kernel.arrays` for the workers' Arrow (`same_values`).
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

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
        return F.to_json(_in_order(value, kind), EXACT_JSON)
    if isinstance(kind, T.TimestampType):
        return utc_clock(value).cast("string")
    if isinstance(kind, T.BinaryType):
        return F.lower(F.hex(value))
    return _in_order(value, kind).cast("string")


def decimal_text(number: Column) -> Column:
    """A decimal in digits alone, without zeros at its end: one text for 1, 1.0 and 1.00."""
    return _without_end_zeros(_without_exponent(number.cast("string")))


def _without_exponent(number: Column) -> Column:
    """A decimal's text in digits alone: a session that is not ANSI writes small ones as 1.5E-7."""
    small = r"^(-?)([0-9])(?:\.([0-9]+))?E-([0-9]+)$"
    sign, first, rest, exponent = (F.regexp_extract(number, small, part) for part in (1, 2, 3, 4))
    zeros = F.repeat(F.lit("0"), F.coalesce(exponent.try_cast("int"), F.lit(1)) - 1)
    plain = F.concat(sign, F.lit("0."), zeros, first, rest)
    return F.when(number.rlike(small), plain).otherwise(number)


def _without_end_zeros(number: Column) -> Column:
    """Of a number's text with a point, without the zeros at its end and a point that is left there."""
    return F.regexp_replace(number, r"\.0+$|(\.[0-9]*[1-9])0+$", "$1")


def utc_clock(instant: Column) -> Column:
    """The wall clock of UTC: an interval from 1970 on, since every cast would go by the session's zone."""
    whole = F.unix_seconds(instant)
    # In days and the rest: seconds alone would leave no room for their fractions after the year 33,658.
    days = F.floor(whole / F.lit(_SECONDS_A_DAY))
    within = (whole - days * F.lit(_SECONDS_A_DAY)) * F.lit(1_000_000)
    rest = within + F.pmod(F.unix_micros(instant), F.lit(1_000_000))
    seconds = rest.cast("decimal(18,0)") / F.lit(1_000_000).cast("decimal(7,0)")
    nothing = F.lit(0)
    since_1970 = F.make_dt_interval(days.cast("int"), nothing, nothing, seconds.cast("decimal(18,6)"))
    return F.expr("timestamp_ntz'1970-01-01 00:00:00'") + since_1970


_SECONDS_A_DAY = 86_400


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
    if _holds(kind, lambda part: isinstance(part, T.MapType | T.VariantType) or is_collated(part)):
        return _within(value, kind, comparable)
    return value


def _in_order(value: Column, kind: T.DataType) -> Column:
    """The same value, written in one way of several: maps with their keys sorted, 0.0 for -0.0."""
    if isinstance(kind, T.FloatType | T.DoubleType):
        return F.when(value == 0, F.lit(0.0).cast(kind)).otherwise(value)
    if _holds(kind, lambda part: isinstance(part, T.MapType | T.FloatType | T.DoubleType)):
        written = _within(value, kind, _in_order)
        return F.map_from_entries(written) if isinstance(kind, T.MapType) else written
    return value


_Form = Callable[[Column, T.DataType], Column]


def _within(value: Column, kind: T.DataType, form: _Form) -> Column:
    """An array or a struct with its elements, or its fields, in another form; of a map, its entries."""
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(value, lambda each: form(each, element))
    if isinstance(kind, T.MapType):
        return _entries(value, kind, form)
    assert isinstance(kind, T.StructType)
    parts = (form(value.getField(each.name), each.dataType).alias(each.name) for each in kind)
    return F.when(value.isNotNull(), F.struct(*parts))


def _entries(value: Column, kind: T.MapType, form: _Form) -> Column:
    """The entries of a map by their keys: of one map, no two keys are equal, so the values need no order."""
    key, entry = kind.keyType, kind.valueType

    def formed(pair: Column) -> Column:
        parts = form(pair.getField("key"), key), form(pair.getField("value"), entry)
        return F.struct(parts[0].alias("key"), parts[1].alias("value"))

    def by_key(one: Column, other: Column) -> Column:
        a, b = one.getField("key"), other.getField("key")
        return F.when(a < b, -1).when(a > b, 1).otherwise(0)

    return F.array_sort(F.transform(F.map_entries(value), formed), by_key)


def _holds(kind: T.DataType, is_one: Callable[[T.DataType], bool]) -> bool:
    """Whether the type, or a part of it, is one of those."""
    if isinstance(kind, T.StructType):
        return any(_holds(field.dataType, is_one) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _holds(kind.elementType, is_one)
    if isinstance(kind, T.MapType):
        return is_one(kind) or _holds(kind.keyType, is_one) or _holds(kind.valueType, is_one)
    return is_one(kind)


def is_collated(kind: T.DataType) -> bool:
    """Whether this is text that has an order and an equality of its own."""
    return " collate " in kind.simpleString() and not isinstance(kind, T.StructType | T.ArrayType | T.MapType)
