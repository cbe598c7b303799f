"""How values are written in events, and what they are read as."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument

_STRICT = {"allowSingleQuotes": "false"}

# Possessive throughout: the JVM would keep a place on its stack for each turn of any other loop.
_JSON_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NO_NUMBER = rf'[^"\dt-]*+(?:(?:{_JSON_TEXT}|-(?!\d)|-0(?![\d.eE]))[^"\dt-]*+)*+'
_NUMBER = r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?(?=\s*+[,}\]])"
_ANY_NUMBER = rf"\G({_NO_NUMBER})({_NUMBER}|true)"
"""
All up to the next number, or `true`, the one other word of JSON that may be Base64; never within a text.

A zero below zero is left to the reader, which makes it plain.
"""

_MARK = "\ufdd0\ufdd1"
"""Before a number that is written as a text: Unicode leaves these two to programs' own use."""
_MARKED = rf'"?{_MARK}([-+.0-9eE]++|true)"?'


def _same_text(text: Column) -> Column:
    return text


def read_marked(text: Column, kind: T.DataType, *, chosen: Callable[[Column], Column] = _same_text) -> Column:
    """
    What JSON text says, each number and `true` as a text with a mark, for `digits` or for `with_points`.

    Spark's reader alone makes a double of a fraction before it makes a text of it, and does not say whether
    a text was one or a number.

    Args:
        text: The text; null where it is none.
        kind: The type that is read.
        chosen: What of the text is read, as JSON text.
    """
    marked = F.regexp_replace(text, _ANY_NUMBER, f'$1"{_MARK}$2"')
    return F.from_json(chosen(marked), kind.json(), _STRICT)


def digits(value: Column) -> Column:
    """A text that was read with marks, without them: numbers are as they were written."""
    plain = F.regexp_replace(value, _MARKED, "$1")
    return F.when(F.contains(value, F.lit(_MARK)), plain).otherwise(value)


def with_points(value: Column) -> Column:
    """As `digits`; but a whole number and `true` have a point behind them, which no Base64 has."""
    return digits(F.regexp_replace(value, rf"^{_MARK}(\d++|true)(?!\.)", "$1."))


def without_point(text: Column) -> Column:
    """A text as it was sent, without the point that `with_points` gave it."""
    return F.regexp_replace(text, r"\.(?!\d)", "")


_NAMED = re.compile(
    r"\s*([\w .]*\w)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*((?:with(?:out)? time zone)?(?:\[\])?)\s*"
)


class Encoding(NamedTuple):
    """
    What the values of a column become, and how: from the text of a JSON value, null for null.

    Where it is *coded*, a JSON text is Base64, and a JSON number is one.
    """

    type: T.DataType
    read: Callable[[Column], Column]
    coded: bool = False


_Test = Callable[[Column], Column]


def plain_encoding(type_text: str, *, function: str) -> Encoding:
    """
    The encoding that the name of a type without parts stands for.

    Names are those of Debezium and Kafka Connect (`io.debezium.time.MicroTimestamp`, `int32`,
    `org.apache.kafka.connect.data.Decimal(10,2)`), of PostgreSQL (`timestamp without time zone`) and of
    Spark (`decimal(10,2)`), whose types are read by its casts.

    Raises:
        InvalidArgument: It is none of them.

    >>> plain_encoding("io.debezium.time.Date", function="f").type
    DateType()
    >>> plain_encoding("numeric(8,2)", function="f").type
    DecimalType(8,2)
    """
    parts = _NAMED.fullmatch(type_text)
    if parts is not None:
        name, first, second, more = parts.groups()
        base = f"{name} {more}".strip().lower()
        digits = [int(number) for number in (first, second) if number is not None]
        if base in _SIMPLE:
            return _SIMPLE[base]
        if base in _WITH_DIGITS:
            return _WITH_DIGITS[base](digits)
        if base.startswith(("io.debezium.", "org.apache.kafka.")) or base.endswith("[]"):
            # A geometry, a range, a vector, …: left as it was sent.
            return AS_SENT
        if base.startswith("interval"):
            # PostgreSQL writes `1 day 02:03:04` for every kind; Spark's types of that name do not read it.
            return AS_SENT
    return cast_encoding(spark_type(type_text, function=function))


def spark_type(name: str, *, function: str) -> T.DataType:
    """
    The type that Spark knows by this name.

    Raises:
        InvalidArgument: It knows none.
    """
    try:
        return T.DataType.fromDDL(name)
    except Exception:
        needed = "the name of a type of Debezium, Kafka Connect, PostgreSQL or Spark"
        raise InvalidArgument(function, "columns", needed, name) from None


def cast_encoding(kind: T.DataType) -> Encoding:
    """The encoding of a type without parts whose values Spark's casts read."""
    if isinstance(kind, T.BinaryType):
        return Encoding(kind, _decode_base64)
    if isinstance(kind, T.DecimalType):
        return Encoding(kind, lambda text: _exact_decimal(text, kind))
    if isinstance(kind, T.StringType):
        return Encoding(kind, lambda text: text.try_cast(kind))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType):
        return _or_infinity(Encoding(kind, lambda text: _if_iso(text).try_cast(kind)), *_ISO)
    return Encoding(kind, lambda text: text.try_cast(kind))


def _if_iso(text: Column) -> Column:
    """The text of a date, which names a month: of a plain number, such as days, Spark would make a year."""
    return F.when(F.contains(F.substr(text, F.lit(2)), F.lit("-")), text)


def _exact_decimal(text: Column, kind: T.DecimalType) -> Column:
    """The decimal that a text says; null if it has digits behind the last place, which a cast would round."""
    value = text.try_cast(kind).cast("string")
    is_longer = text.rlike(rf"\.\d{{{kind.scale}}}\d|[eE]")
    is_same = _significant_digits(text) == _significant_digits(value)
    # Asked before the cast: behind it, Spark would work out the value once more to ask whether it is null.
    return F.when(~is_longer | is_same, text).try_cast(kind)


def _significant_digits(number: Column) -> Column:
    """The digits of a number from the first to the last that is no zero; rounded, it has others."""
    return F.regexp_replace(number, r"^[-+0.]+|\.|[0.]*[eE].*$|[0.]+$", "")


def _or_infinity(of: Encoding, later: _Test, earlier: _Test) -> Encoding:
    """An encoding that reads PostgreSQL's infinities, too: as 9999-12-31 and 0001-01-02."""

    def read(text: Column) -> Column:
        # Not 0001-01-01: Python's datetime cannot be made of its first instant, so `collect` would fail.
        last, first = (F.lit(f"{day}T00:00:00Z").cast(of.type) for day in ("9999-12-31", "0001-01-02"))
        # Not as branches of one case: Spark would move into it the question whether it is null, and work out
        # the value once more for the answer.
        return F.coalesce(F.when(later(text), last), F.when(earlier(text), first), of.read(text))

    return Encoding(of.type, read)


def _equals_any(*texts: str) -> _Test:
    return lambda text: text.isin(*texts)


def _matches_any(*patterns: str) -> _Test:
    return lambda text: text.rlike("^(?:" + "|".join(patterns) + ")")


def _long(text: Column) -> Column:
    return text.try_cast("long")


def _micros(micros: Column) -> Column:
    return F.timestamp_micros(micros)


def _decode_base64(text: Column) -> Column:
    return F.try_to_binary(text, F.lit("base64"))


def _micros_of_nanos(nanos: Column) -> Column:
    """Microseconds of nanoseconds, cut towards the past."""
    # As decimals: the quotient of two longs is a double, which has fewer digits.
    return F.floor(nanos.cast("decimal(20,0)") / 1000).cast("long")


def _decode_hex(text: Column) -> Column:
    """Bytes as PostgreSQL's plugins write them, with or without the sign in front."""
    return F.try_to_binary(F.regexp_replace(text, r"^\\x", ""), F.lit("hex"))


def decimal_of_bytes(raw: Column, precision: int, scale: int) -> Column:
    """
    A decimal of its unscaled value, as the bytes of a whole number with its sign, the highest first.

    Null if it has more digits than *precision*, or more than 16 bytes.
    """
    # What is needed twice in any case, Spark works out once: so the digits are asked twice, the bytes never.
    digits = F.hex(raw)
    there = digits != ""
    is_negative = F.substring(digits, 1, 1) >= "8"
    fill = F.when(is_negative, F.lit("F")).otherwise(F.lit("0"))
    padded = F.lpad(F.when(there & (F.length(digits) <= 32), digits), 32, fill)
    high = F.conv(F.substring(padded, 1, 16), 16, -10).try_cast("decimal(20,0)")
    low = F.conv(F.substring(padded, 17, 16), 16, 10).try_cast("decimal(20,0)")
    # Of a number below zero one more of the higher half, and the lower one below zero: the product alone may
    # have a digit more than the sum.
    unit = F.lit(_TWO_TO_64).cast("decimal(20,0)")
    borrowed = is_negative.cast("int").cast("decimal(1,0)")
    product = F.try_multiply((high + borrowed).cast("decimal(20,0)"), unit)
    long = F.try_add(product, (low - borrowed * unit).cast("decimal(21,0)"))
    below_zero = F.conv(F.lpad(digits, 16, "F"), 16, -10)
    short = F.when(is_negative, below_zero).otherwise(F.conv(digits, 16, 10))
    # Two branches, neither of them a plain null: into such a one Spark moves the question whether it is null,
    # and works out the value once more for the answer.
    is_short = there & (F.length(digits) <= 16)
    whole = F.when(is_short, short).otherwise(long.cast("string"))
    # As text with an exponent: to divide would cost digits.
    return F.concat(whole, F.lit(f"E-{scale}")).try_cast(f"decimal({precision},{scale})")


_TWO_TO_64 = "18446744073709551616"


def _connect_decimal(digits: list[int]) -> Encoding:
    """Of the scale alone, or of precision and scale; more digits than Spark has leave the text as it is."""
    *precision, scale = digits or [0]
    most = precision[0] if precision else 38
    if not scale <= most <= 38:
        return AS_SENT
    kind = T.DecimalType(most, scale)
    # First Base64, which most are: in a branch Spark works out again whatever stands there twice.
    return Encoding(
        kind,
        lambda text: F.coalesce(
            decimal_of_bytes(_decode_base64(_mark_unpadded(text)), most, scale),
            _exact_decimal(F.when(text.rlike(_IS_NUMBER), text), kind),
        ),
        coded=True,
    )


def _mark_unpadded(text: Column) -> Column:
    """The text, made what no Base64 is if it is not filled up: Spark would read it, and so a number."""
    return F.concat(text, F.repeat(F.lit("."), F.octet_length(text) % 4))


# Base64 has neither a point nor a minus, and its letters are a multiple of four.
_IS_NUMBER = r"[.\-]|^(?:\d{4})*\d{1,3}$"


def _numeric(digits: list[int]) -> Encoding:
    """A number in plain digits: PostgreSQL's `numeric`, which without digits is text: its scale varies."""
    if not digits:
        return AS_SENT
    precision, scale = digits[0], digits[1] if len(digits) > 1 else 0
    return cast_encoding(T.DecimalType(precision, scale)) if scale <= precision <= 38 else AS_SENT


def _variable(text: Column) -> Column:
    """The digits of a VariableScaleDecimal, `{"scale": 2, "value": "…"}`, as text: each has its own scale."""
    parts = F.from_json(text, "scale int, value string")
    whole = decimal_of_bytes(_decode_base64(parts["value"]), 38, 0).cast("string")
    sign = F.when(F.startswith(whole, F.lit("-")), "-").otherwise("")
    plain, scale = F.regexp_replace(whole, "^-", ""), parts["scale"]
    enough = F.lpad(plain, F.greatest(F.length(plain), scale + 1), F.lit("0"))
    point = F.length(enough) - scale
    pointed = F.concat(
        sign, F.substring(enough, F.lit(1), point), F.lit("."), F.substring(enough, point + 1, scale)
    )
    filled = F.when(whole == "0", whole).otherwise(F.concat(whole, F.repeat(F.lit("0"), -scale)))
    # Whole numbers first, which are most: in a branch Spark works out again whatever stands there twice.
    return (
        F.when(scale == 0, whole).when(scale.between(-1000, -1), filled).when(scale.between(1, 1000), pointed)
    )


# What Debezium writes for PostgreSQL's infinities, the later one first: its driver's milliseconds of them, as
# they are or as microseconds; nanoseconds, cut to what a long holds; days, for which an int is too small, so
# that the later one is the smaller but in newer releases; or a text.
_MICROS = _equals_any("9223372036825200000"), _equals_any("-9223372036832400000")
_MILLIS = (
    _equals_any("9223372036825200000", "9223372036825200"),
    _equals_any("-9223372036832400000", "-9223372036832400"),
)
_NANOS = _equals_any("9223372036854775807"), _equals_any("-9223372036854775808")
_DAYS = _equals_any("-2147472692", "2146033979"), _equals_any("-2147472691")
_ISO = (
    _matches_any("infinity$", r"\+294247-01-10T04:00:25\.2", r"\+292278994-", "[-+]5877611-06-21"),
    _matches_any("-infinity$", r"-290308-12-21T19:59:27\.6", "-292275055-", "-5877611-06-22"),
)

UNTYPED = "untyped"
"""The name of no type: of a column whose events do not say how it is written."""

AS_SENT = Encoding(T.StringType(), lambda text: text)
_LONG = Encoding(T.LongType(), _long)
_DATE = _or_infinity(
    Encoding(T.DateType(), lambda text: F.date_from_unix_date(text.try_cast("int"))),
    *_DAYS,
)
_OF_MILLIS = _or_infinity(
    Encoding(T.TimestampType(), lambda text: _micros(F.try_multiply(_long(text), F.lit(1000)))),
    *_MILLIS,
)
_BASE64 = Encoding(T.BinaryType(), _decode_base64)
_MILLIS_OF_DAY = Encoding(T.LongType(), lambda text: F.try_multiply(_long(text), F.lit(1000)))
_INSTANT = cast_encoding(T.TimestampType())
_INT, _SMALL = cast_encoding(T.IntegerType()), cast_encoding(T.ShortType())

_SIMPLE: dict[str, Encoding] = {
    UNTYPED: AS_SENT,
    # Kafka Connect
    "int8": cast_encoding(T.ByteType()),
    "int16": _SMALL,
    "int32": _INT,
    "int64": _LONG,
    "float32": cast_encoding(T.FloatType()),
    "float64": cast_encoding(T.DoubleType()),
    "bytes": _BASE64,
    "array": AS_SENT,
    "map": AS_SENT,
    "struct": AS_SENT,
    "org.apache.kafka.connect.data.date": _DATE,
    "org.apache.kafka.connect.data.time": _MILLIS_OF_DAY,
    "org.apache.kafka.connect.data.timestamp": _OF_MILLIS,
    # Debezium: dates are days, times of day become microseconds, as in the Avro of other doors.
    "io.debezium.time.date": _DATE,
    "io.debezium.time.timestamp": _OF_MILLIS,
    "io.debezium.time.microtimestamp": _or_infinity(
        Encoding(T.TimestampType(), lambda text: _micros(_long(text))), *_MICROS
    ),
    "io.debezium.time.nanotimestamp": _or_infinity(
        Encoding(T.TimestampType(), lambda text: _micros(_micros_of_nanos(_long(text)))), *_NANOS
    ),
    "io.debezium.time.zonedtimestamp": _INSTANT,
    "io.debezium.time.isotimestamp": _INSTANT,
    # With an offset behind the day, which is always that of UTC.
    "io.debezium.time.isodate": _or_infinity(
        Encoding(T.DateType(), lambda text: F.rtrim(text, F.lit("Z")).try_cast("date")),
        *_ISO,
    ),
    "io.debezium.time.time": _MILLIS_OF_DAY,
    "io.debezium.time.microtime": _LONG,
    "io.debezium.time.nanotime": Encoding(T.LongType(), lambda text: _micros_of_nanos(_long(text))),
    "io.debezium.time.microduration": _LONG,
    "io.debezium.time.nanoduration": _LONG,
    "io.debezium.time.year": _INT,
    "io.debezium.data.variablescaledecimal": Encoding(T.StringType(), _variable),
    # PostgreSQL, as its plugins name them
    "integer": _INT,
    "real": cast_encoding(T.FloatType()),
    "double precision": cast_encoding(T.DoubleType()),
    "text": AS_SENT,
    "citext": AS_SENT,
    "character varying": AS_SENT,
    "character": AS_SENT,
    "bpchar": AS_SENT,
    "name": AS_SENT,
    "uuid": AS_SENT,
    "json": AS_SENT,
    "jsonb": AS_SENT,
    "xml": AS_SENT,
    "inet": AS_SENT,
    "interval": AS_SENT,
    "bytea": Encoding(T.BinaryType(), _decode_hex),
    "time without time zone": AS_SENT,
    "time with time zone": AS_SENT,
    "timestamp without time zone": _INSTANT,
    "timestamp with time zone": _INSTANT,
}


def _without_digits(found: Encoding) -> Callable[[list[int]], Encoding]:
    return lambda digits: found


_BITS = _without_digits(_BASE64)
_WITH_DIGITS: dict[str, Callable[[list[int]], Encoding]] = {
    "org.apache.kafka.connect.data.decimal": _connect_decimal,
    "io.debezium.data.bits": _BITS,
    "numeric": _numeric,
}
