"""
Values of any type: when two are equal, their text, and the guid of an entity that is computed of them.

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

import re
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from hashlib import sha1
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arrow_widening import decimal_digits
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


NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "cdckit")


def guid(entity: str, key: Mapping[str, Column]) -> Column:
    """
    The identifier of the entity with that key: the same on every machine and in every run.

    It is the version 5 UUID, in the namespace `NAMESPACE`, of the compact JSON text
    `{"entity": …, "key": {…}}`: keys in the order given, parts that are null left out, instants in
    UTC and local timestamps with six decimals, binary in base64.  Decimals are without zeros at their
    end, so that a number has one guid whatever type its column has or gets: 1, 1.0 and 1.00.

    Args:
        entity: The name of the kind of entity: equal keys of two kinds have two guids.
        key: The key columns by name.  A number and the text of that number are different keys.

    Cost: one SHA-1 a row, in the JVM.

    Source:
        RFC 9562, section 5.5.

    >>> session().range(1).select(guid("product", {"product_number": F.lit(1234567)})).first()[0]
    'e5d2e9d5-3392-53e3-8df4-cbded0d4a616'
    >>> str(uuid.uuid5(NAMESPACE, '{"entity":"product","key":{"product_number":1234567}}'))
    'e5d2e9d5-3392-53e3-8df4-cbded0d4a616'
    """
    return from_digest(key_digest(entity, key))


def key_digest(entity: str, key: Mapping[str, Column]) -> Column:
    """The SHA-1 of the text that a guid is made of: 40 hexadecimal digits, as bytes."""
    parts = (_json_part(name, column) for name, column in key.items())
    name = F.concat(F.lit(name_start(entity)), F.concat_ws(",", *parts), F.lit(NAME_END))
    # As bytes: to cut a text, Spark counts its characters from the beginning each time.
    return F.sha1(F.concat(F.lit(NAMESPACE.bytes), name.cast("binary"))).cast("binary")


def from_digest(digest: Column) -> Column:
    """The guid: the first 128 bits, but for version and variant, in the form that UUIDs have."""
    # The 13th hex digit is the version; the top two bits of the 17th are the variant, 10.
    variant = F.translate(F.substring(digest, 17, 1).cast("string"), "0123456789abcdef", "89ab89ab89ab89ab")
    return F.concat(
        F.substring(digest, 1, 8),
        F.lit(b"-"),
        F.substring(digest, 9, 4),
        F.lit(b"-5"),
        F.substring(digest, 14, 3),
        F.lit(b"-"),
        variant.cast("binary"),
        F.substring(digest, 18, 3),
        F.lit(b"-"),
        F.substring(digest, 21, 12),
    ).cast("string")


_PLAIN = ("boolean", "tinyint", "smallint", "int", "bigint")


def _json_part(name: str, column: Column) -> Column:
    """The column as a member of a JSON object, null where it is null."""
    whole = F.to_json(F.struct(column.alias(name)), EXACT_JSON)
    member = F.nullif(F.substring(whole, F.lit(2), F.length(whole) - 2), F.lit(""))
    # Spark decides these once, by the type.  The JSON of a whole number is its text: no need to write JSON.
    start, kind = F.lit(_quoted(name) + ":"), F.typeof(column)
    decimal, plain = F.concat(start, decimal_text(column)), F.concat(start, column.cast("string"))
    return F.when(kind.startswith("decimal"), decimal).when(kind.isin(*_PLAIN), plain).otherwise(member)


def can_be_guids(types: Mapping[str, pa.DataType]) -> bool:
    """Tell whether `guids` knows the text of all such keys; see `as_text` for dates and instants."""
    written_alike = pa.types.is_string, pa.types.is_boolean, pa.types.is_integer, pa.types.is_decimal
    return all(any(is_one(type_) for is_one in written_alike) for type_ in types.values())


def guids(entity: str, key: Mapping[str, pa.Array]) -> pa.Array:
    """
    Compute `guid` where the keys are at hand as Arrow arrays: for workers that see each key once.

    Cost: two to three microseconds a row.

    >>> guids("product", {"product_number": pa.array([1234567])}).to_pylist()
    ['e5d2e9d5-3392-53e3-8df4-cbded0d4a616']
    """
    return pa.array([uuid5(name) for name in guid_names(entity, key)], pa.string())


def guid_names(entity: str, key: Mapping[str, pa.Array]) -> list[str]:
    """The texts that guids are made of, one for each row of the keys' arrays."""
    start = name_start(entity)
    columns = [name_parts(name, array) for name, array in key.items()]
    return [start + ",".join(filter(None, parts)) + NAME_END for parts in zip(*columns, strict=True)]


NAME_END = "}}"
"""What these texts end in."""


def name_start(entity: str) -> str:
    """Write the text with which the names of a kind of entity begin."""
    return f'{{"entity":{_quoted(entity)},"key":{{'


def name_parts(name: str, values: pa.Array) -> list[str]:
    """Write the parts between, with commas, of one key field in each row: empty for null."""
    start, values = _quoted(name) + ":", key_text(values)
    text = _json_text(values.type)
    return ["" if value is None else start + text(value) for value in _python_values(values)]


def key_text(values: pa.Array) -> pa.Array:
    """Dates and instants as texts, if their years have four digits; other values as they are."""
    if pa.types.is_date(values.type):
        return values.cast(pa.string())
    if pa.types.is_timestamp(values.type):
        return pc.strftime(values.cast(pa.timestamp("us", tz="UTC")), "%Y-%m-%dT%H:%M:%SZ")
    return values


def uuid5(name: str) -> str:
    """The version 5 UUID of that name in `NAMESPACE`."""
    digest = sha1(NAMESPACE.bytes + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def _json_text(kind: pa.DataType) -> Callable[[Any], str]:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted
    if pa.types.is_decimal(kind):
        return decimal_digits
    return _boolean if pa.types.is_boolean(kind) else str


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _python_values(values: pa.Array) -> list[str | int | bool | Decimal | None]:
    try:
        python_values: list[str | int | bool | Decimal | None] = values.to_pylist()
    except UnicodeDecodeError:  # Spark lets bytes of any kind pass as a string; Java reads them as U+FFFD
        python_values = [
            value and _as_java_reads(value) for value in values.cast(pa.large_binary()).to_pylist()
        ]
    return python_values


def _as_java_reads(value: bytes) -> str:
    # Half a surrogate pair, spelled in bytes, is one fault to Java and two or three to Python.
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", "\ufffd".encode(), value).decode(errors="replace")


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


# As Jackson writes them, which is behind Spark's to_json; everything else stands for itself.
_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord(char): f"\\{letter}" for char, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)
}
