"""
How values are written in events, and what they are read as: a table of types, and a function for each.

A function takes a value as `cdckit.parts.json_objects` reads it, or its text, and gives one that Arrow makes
its type of; of a value that the type cannot hold exactly it raises `Unreadable`.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from cdckit.debezium.column_types import VARIABLE, with_digits
from cdckit.debezium.events import INSTANT
from cdckit.errors import InvalidArgument
from cdckit.parts.arrow_widening import common_type, to_common_type
from cdckit.parts.instants import FIRST_MICROSECOND, LAST_MICROSECOND, microseconds
from cdckit.parts.json_objects import json_value
from cdckit.parts.text_values import EXACT, Read, Unreadable, boolean, exact_decimal, floating, letters, whole


class Encoding(NamedTuple):
    """What the values of a column become, and how; of null nothing is asked."""

    type: pa.DataType
    read: Read


_TIME, _DATA = "io.debezium.time.", "org.apache.kafka.connect.data."
UNTYPED = "untyped"
"""The name of no type: of a column whose events do not say how it is written."""


# Decimals -------------------------------------------------------------------------------------------------


_long, _int = whole(64), whole(32)
_MOST_BYTES, _MOST_BYTES_OF_TEXT, _MOST_SCALE = 16, 62_000, 16_383
"""Of a decimal of Arrow; and of PostgreSQL's `numeric`, with 131,072 digits before the point at most."""


def _unscaled(text: str, most: int = _MOST_BYTES) -> int:
    """The whole number of Connect's decimal: Base64 of its bytes, the highest first."""
    raw = _bytes_of(text)
    if not 0 < len(raw) <= most:
        raise Unreadable
    return int.from_bytes(raw, "big", signed=True)


def _bytes_of(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise Unreadable from None


def _connect_decimal(digits: list[int]) -> Encoding:
    """
    Read the scale alone, or precision and scale; more digits than Spark has leave the text as it is.

    A JSON text is Base64, or else a number in letters; a JSON number is one.
    """
    if not digits:
        raise _NoType
    *precision, scale = digits
    most = precision[0] if precision else 38
    if not scale <= most <= 38:
        return AS_SENT
    of_number, bound = exact_decimal(most, scale), 10**most

    def read(value: Any) -> Decimal:
        if value.__class__ is not str:
            return of_number(value)  # type: ignore[no-any-return]
        try:
            unscaled = _unscaled(value)
        except Unreadable:
            return of_number(value)  # type: ignore[no-any-return]
        if not -bound < unscaled < bound:
            raise Unreadable
        return Decimal(unscaled).scaleb(-scale, EXACT)

    return Encoding(pa.decimal128(most, scale), read)


def _numeric(digits: list[int]) -> Encoding:
    """A number in plain digits: PostgreSQL's `numeric`, which without digits is text: its scale varies."""
    if not digits:
        return AS_SENT
    precision, scale = digits[0], digits[1] if len(digits) > 1 else 0
    return _decimal([precision, scale]) if scale <= precision <= 38 else AS_SENT


def _decimal(digits: list[int]) -> Encoding:
    precision, scale = (*digits, *(10, 0)[len(digits) :])
    if not 0 <= scale <= precision <= 38 or not precision:
        raise _NoType
    return Encoding(pa.decimal128(precision, scale), exact_decimal(precision, scale))


def _variable(value: Any) -> str:
    """The digits of a VariableScaleDecimal, `{"scale": 2, "value": "…"}`, as text: each has its own scale."""
    parts = _parsed(value)
    if not isinstance(parts, dict) or not isinstance(parts.get("value"), str):
        raise Unreadable
    unscaled, scale = _unscaled(parts["value"], _MOST_BYTES_OF_TEXT), _int(parts.get("scale"))
    if not -_MOST_SCALE <= scale <= _MOST_SCALE:
        raise Unreadable
    # Python writes no whole number of more than 4,300 digits, but any decimal.
    digits, sign = str(Decimal(abs(unscaled))), "-" if unscaled < 0 else ""
    if scale <= 0:
        return f"{sign}{digits}{'0' * -scale if unscaled else ''}"
    digits = digits.rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


# Bytes ----------------------------------------------------------------------------------------------------


def _base64(value: Any) -> bytes:
    return _bytes_of(letters(value))


def _hex(value: Any) -> bytes:
    """Bytes as PostgreSQL's plugins write them, with or without the sign in front."""
    try:
        return bytes.fromhex(letters(value).removeprefix("\\x"))
    except ValueError:
        raise Unreadable from None


# Times ----------------------------------------------------------------------------------------------------

# What Debezium writes for PostgreSQL's infinities, the later one first: its driver's milliseconds of them, as
# they are or as microseconds; nanoseconds, cut to what a long holds; days, for which an int is too small, so
# that the later one is the smaller but in newer releases; or a text.
_MICROS = (9223372036825200000,), (-9223372036832400000,)
_MILLIS = (9223372036825200000, 9223372036825200), (-9223372036832400000, -9223372036832400)
_NANOS = (9223372036854775807,), (-9223372036854775808,)
_DAYS = (-2147472692, 2146033979), (-2147472691,)
_ISO = (
    re.compile(r"infinity$|\+294247-01-10T04:00:25\.2|\+292278994-|[-+]5877611-06-21"),
    re.compile(r"-infinity$|-290308-12-21T19:59:27\.6|-292275055-|-5877611-06-22"),
)
# Not 0001-01-01: Python's datetime cannot be made of its first instant, so `collect` would fail.
_LATEST, _EARLIEST = 253_402_214_400_000_000, -62_135_510_400_000_000
_MICROS_OF_DAY = 86_400_000_000


def _count(
    bits: int, unit: Callable[[int], int], infinities: tuple[tuple[int, ...], tuple[int, ...]], day: int = 1
) -> Read:
    """A time as a whole number in some *unit*, from 1970 on."""
    number_of = whole(bits)
    later, earlier = map(frozenset, infinities)

    def read(value: Any) -> int:
        number: int = number_of(value)
        if number in later:
            return _LATEST // day
        if number in earlier:
            return _EARLIEST // day
        return _within_years(unit(number), day)

    return read


def _within_years(number: int, day: int = 1) -> int:
    """Microseconds since 1970, or days if *day* has so many, that are in the years 1 to 9999."""
    if not FIRST_MICROSECOND <= number * day <= LAST_MICROSECOND:
        raise Unreadable
    return number


def _parse(text: str) -> datetime:
    """A day, or a time of one, as ISO 8601 or PostgreSQL writes it; a plain number, such as days, is none."""
    plain = text.strip()
    if "-" not in plain[1:] and "T" not in plain:
        raise Unreadable
    try:
        return datetime.fromisoformat(plain)
    except ValueError:
        pass
    try:
        day, time = _SHORT_DAY.fullmatch(plain).groups()  # type: ignore[union-attr]
        year, month, date = day.split("-")
        later = timedelta(days=1 if _MIDNIGHT.match(time) else 0)
        at = datetime.fromisoformat(f"{year}-{month:0>2}-{date:0>2}{_MIDNIGHT.sub('T00:00', time)}")
        return at + later
    except (AttributeError, ValueError, OverflowError):
        raise Unreadable from None


_SHORT_DAY = re.compile(r"(\d{4}-\d{1,2}-\d{1,2})(.*)", re.ASCII)
_MIDNIGHT = re.compile("[T ]24:00(?=$|:00(?:[.,]0+)?)")


def _instant(value: Any) -> int:
    """An instant that a text says, in UTC where it says no zone."""
    text = letters(value)
    if _ISO[0].match(text):
        return _LATEST
    if _ISO[1].match(text):
        return _EARLIEST
    at = _parse(text)
    return _within_years(microseconds(at if at.tzinfo is not None else at.replace(tzinfo=UTC)))


def _local(value: Any) -> int:
    """The clock that a text says, whatever its zone."""
    text = letters(value)
    is_end = _ISO[0].match(text) or _ISO[1].match(text)
    return _instant(text) if is_end else microseconds(_parse(text).replace(tzinfo=UTC))


def _day(value: Any) -> int:
    """The day that a text says, whatever its zone."""
    return _local(letters(value).removesuffix("Z")) // _MICROS_OF_DAY


_NEVER: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

# The table ------------------------------------------------------------------------------------------------

AS_SENT, _BASE64 = Encoding(pa.string(), letters), Encoding(pa.binary(), _base64)

# Dates are days, times of day become microseconds, as in the Avro of other doors.
_NAMES: list[tuple[pa.DataType, Read, list[str]]] = [
    (pa.bool_(), boolean, ["boolean"]),
    (pa.int8(), whole(8), ["int8", "tinyint", "byte"]),
    (pa.int16(), whole(16), ["int16", "smallint", "short"]),
    (pa.int32(), _int, ["int32", "int", "integer", f"{_TIME}year"]),
    (pa.int64(), _long, ["int64", "bigint", "long"]),
    (pa.int64(), _long, [f"{_TIME}microtime", f"{_TIME}microduration", f"{_TIME}nanoduration"]),
    (pa.float32(), floating(32), ["float32", "float", "real"]),
    (pa.float64(), floating(64), ["float64", "double", "double precision"]),
    (pa.date32(), _count(32, lambda days: days, _DAYS, _MICROS_OF_DAY), [f"{_TIME}date", f"{_DATA}date"]),
    # With an offset behind the day, which is always that of UTC.
    (pa.date32(), _day, ["date", f"{_TIME}isodate"]),
    (INSTANT, _count(64, lambda ms: ms * 1000, _MILLIS), [f"{_TIME}timestamp", f"{_DATA}timestamp"]),
    (INSTANT, _count(64, lambda micros: micros, _MICROS), [f"{_TIME}microtimestamp"]),
    (INSTANT, _count(64, lambda nanos: nanos // 1000, _NANOS), [f"{_TIME}nanotimestamp"]),
    (INSTANT, _instant, ["timestamp", "timestamp_ltz", f"{_TIME}zonedtimestamp", f"{_TIME}isotimestamp"]),
    (INSTANT, _instant, ["timestamp without time zone", "timestamp with time zone"]),
    (pa.timestamp("us"), _local, ["timestamp_ntz"]),
    (pa.int64(), _count(64, lambda ms: ms * 1000, _NEVER), [f"{_TIME}time", f"{_DATA}time"]),
    (pa.int64(), _count(64, lambda nanos: nanos // 1000, _NEVER), [f"{_TIME}nanotime"]),
    (pa.binary(), _base64, ["bytes", "binary"]),
    (pa.binary(), _hex, ["bytea"]),
    (pa.string(), _variable, [VARIABLE.lower()]),
    (pa.string(), letters, [UNTYPED, "string", "varchar", "char", "array", "map", "struct"]),
    (pa.string(), letters, ["text", "citext", "character varying", "character", "bpchar", "name", "uuid"]),
    (pa.string(), letters, ["json", "jsonb", "xml", "inet", "interval"]),
    (pa.string(), letters, ["time without time zone", "time with time zone"]),
]
_SIMPLE = {name: Encoding(kind, read) for kind, read, names in _NAMES for name in names}
_WITH_DIGITS: dict[str, Callable[[list[int]], Encoding]] = {
    f"{_DATA}decimal": _connect_decimal,
    "io.debezium.data.bits": lambda digits: _BASE64,
    "numeric": _numeric,
    "decimal": _decimal,
    "dec": _decimal,
}
_NAMED = re.compile(
    r"\s*([\w .]*\w)\s*(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\))?\s*"
    r"((?:with(?:out)? time zone)?(?:\[\])?)\s*"
)


class _NoType(ValueError):
    """There is no type of this name."""


def encoding(name: str) -> Encoding:
    """
    The encoding that a type's name stands for, or the schema of Kafka Connect that an event has of a column.

    Names are those of Debezium and Kafka Connect (`io.debezium.time.MicroTimestamp`, `int32`,
    `org.apache.kafka.connect.data.Decimal(10,2)`), of PostgreSQL (`timestamp without time zone`) and of
    Spark (`decimal(10,2)`), and `array<…>`, `map<…, …>` and `struct<name: …, …>` of such.

    Raises:
        InvalidArgument: It is none of them.

    >>> encoding("array<org.apache.kafka.connect.data.Decimal(10,2)>").type.value_type
    Decimal128Type(decimal128(10, 2))
    """
    try:
        return _encoding(type_name(name))
    except _NoType:
        needed = "the name of a type of Debezium, Kafka Connect (Decimal with its scale), PostgreSQL or Spark"
        raise InvalidArgument(None, "columns", needed, name) from None


def _encoding(name: str) -> Encoding:
    match = _WITH_PARTS.fullmatch(name)
    if match is None:
        return _plain(name)
    kind = match[1].lower()
    return _nested(kind, [(part, _encoding(inner)) for part, inner in _parts(kind, match[2])])


def _plain(name: str) -> Encoding:
    match = _NAMED.fullmatch(name)
    if match is None:
        raise _NoType
    word, first, second, more = match.groups()
    base = f"{word} {more}".strip().lower()
    if base in _SIMPLE:
        return _SIMPLE[base]
    if base in _WITH_DIGITS:
        return _WITH_DIGITS[base]([int(digits) for digits in (first, second) if digits is not None])
    # A geometry, a range, a vector, …, and intervals, which PostgreSQL writes as `1 day 02:03:04`.
    if base.startswith(("io.debezium.", "org.apache.kafka.", "interval")) or base.endswith("[]"):
        return AS_SENT
    raise _NoType


def unit_encoding(name: str, field_type: pa.DataType, column: str | None = None) -> Encoding | None:
    """
    Find the encoding that an event's type names, if it is Connect's decimal or a counted time.

    None for any other, and for a column of text.  An array, a map or a struct has such parts.

    Args:
        name: The type that the event names.
        field_type: The type of the column's field.
        column: The column's type, if it has only one, whose parts are then read as those of the event are
            written.  If it names no unit, it takes counts as they are, but no decimals.
    """
    if pa.types.is_string(field_type):
        return None
    name = type_name(known_encoding(name))
    if _WITH_PARTS.fullmatch(name) is not None:
        has_unit = _TIME in name.lower() or _DATA in name.lower()
        return _with_units(type_name(column or name), name) if has_unit else None
    match = _NAMED.fullmatch(name)
    base = "" if match is None else match[1].lower()
    unit = _SIMPLE.get(base) if base.startswith((_TIME, _DATA)) else None
    if match and match[2] and base == f"{_DATA}decimal":
        scale = int(match[3] or match[2])
        is_alike = pa.types.is_decimal(field_type) and field_type.scale == scale
        unit = _connect_decimal([field_type.precision if is_alike else 38, scale])
        column = None if has_places(field_type) else column
    return unit if column is None or unit_encoding(column, field_type) else None


def has_places(field_type: pa.DataType) -> bool:
    """Tell whether a type is that of numbers with places behind the point."""
    return bool(pa.types.is_decimal(field_type) or pa.types.is_floating(field_type))


def _with_units(column: str, name: str) -> Encoding:
    """The encoding of a column's type, with such parts written as an event's type names them."""
    match, event_match = _WITH_PARTS.fullmatch(column), _WITH_PARTS.fullmatch(name)
    if match is None or event_match is None:
        own = _encoding(column)
        unit = None if event_match else unit_encoding(name, own.type, column)
        return own if unit is None else Encoding(own.type, field_reader(unit, own.type) or refuse)
    of_event, kind = dict(_parts(event_match[1].lower(), event_match[2])), match[1].lower()
    parts = _parts(kind, match[2])
    return _nested(kind, [(part, _with_units(inner, of_event.get(part, UNTYPED))) for part, inner in parts])


def field_reader(encoding: Encoding, field_type: pa.DataType) -> Read | None:
    """Choose what reads the values of an encoding in the type of a field; None if that does not hold them."""
    # Whether a decimal is held each value tells; as a float it is rounded.
    is_held = (pa.types.is_decimal(encoding.type) and has_places(field_type)) or (
        common_type(encoding.type, field_type) == field_type
    )
    return common_reader(encoding, field_type) if is_held else None


def common_reader(encoding: Encoding, common: pa.DataType) -> Read:
    """Choose what reads a value written in one of several ways, in the type that all have in common."""
    return encoding.read if encoding.type == common else partial(_read_common, encoding, common)


def _read_common(encoding: Encoding, common: pa.DataType, value: Any) -> Any:
    try:
        (common_value,) = to_common_type(pa.array([encoding.read(value)], encoding.type), common)
    except pa.ArrowInvalid:
        raise Unreadable from None
    return (common_value.cast(pa.int64()) if pa.types.is_timestamp(common) else common_value).as_py()


def refuse(value: Any) -> Any:
    """Read no value."""
    raise Unreadable


# What has parts -------------------------------------------------------------------------------------------

_WITH_PARTS = re.compile(r"\s*(array|map|struct)\s*<(.*)>\s*", re.IGNORECASE | re.DOTALL)


def _parts(kind: str, inside: str) -> list[tuple[str, str]]:
    """The types of what has parts, each behind its name in a struct, or its place."""
    parts = _split(inside, ",")
    if kind == "struct":
        return [_named_part(part) for part in parts if part]
    return [(str(place), part) for place, part in enumerate(parts)]


def _nested(kind: str, parts: list[tuple[str, Encoding]]) -> Encoding:
    if kind == "struct":
        return _struct(parts)
    if len(parts) != {"array": 1, "map": 2}[kind]:
        raise _NoType
    inner = [part for _, part in parts]
    return _array(*inner) if kind == "array" else _map(*inner)


def _named_part(part: str) -> tuple[str, str]:
    """The name and the type of a part of a struct: between them stands a colon, or a space, as in Spark's."""
    pieces = _split(part, ":")
    if len(pieces) != 2:
        pieces = [piece for piece in _split(part, " ") if piece]
    if len(pieces) != 2 or not all(pieces):
        raise _NoType
    name = pieces[0]
    return name[1:-1].replace("``", "`") if name.startswith("`") else name, pieces[1]


def _split(text: str, separator: str) -> list[str]:
    """The pieces between separators that stand within no brackets and no backticks."""
    pieces, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == "`"
        depth += 0 if is_quoted else (letter in "<(") - (letter in ">)")
        if letter == separator and depth == 0 and not is_quoted:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]


def _parsed(value: Any) -> Any:
    """A value with parts; of a text, such as Avro's have, what its JSON says."""
    if value.__class__ is not str:
        return value
    try:
        return json_value(value)
    except (ValueError, RecursionError):
        raise Unreadable from None


def _array(items: Encoding) -> Encoding:
    read = items.read

    def of_list(value: Any) -> list[Any]:
        parts = _parsed(value)
        if not isinstance(parts, list):
            raise Unreadable
        return [None if part is None else read(part) for part in parts]

    return Encoding(pa.list_(pa.field("element", items.type)), of_list)


def _map(keys: Encoding, values: Encoding) -> Encoding:
    if not pa.types.is_string(keys.type):
        # Kafka Connect writes it as pairs, in JSON and in Avro each in its own way.
        return AS_SENT
    read = values.read

    def of_object(value: Any) -> list[tuple[str, Any]]:
        return [(name, None if part is None else read(part)) for name, part in _object(value).items()]

    return Encoding(pa.map_(pa.string(), values.type), of_object)


def _struct(fields: list[tuple[str, Encoding]]) -> Encoding:
    if not fields or len({name.lower() for name, _ in fields}) < len(fields):
        # Spark has no struct of nothing, and cannot tell apart names that differ in case alone.
        return AS_SENT

    def of_object(value: Any) -> dict[str, Any]:
        parts = _object(value)
        return {name: None if (part := parts.get(name)) is None else by.read(part) for name, by in fields}

    return Encoding(pa.struct([(name, by.type) for name, by in fields]), of_object)


def _object(value: Any) -> dict[str, Any]:
    parts = _parsed(value)
    if not isinstance(parts, dict):
        raise Unreadable
    return parts


# Names ----------------------------------------------------------------------------------------------------


def is_schema(type_text: str) -> bool:
    """Tell whether a type is said by its schema, and not by a name."""
    return type_text.startswith("{")


def known_encoding(name: str) -> str:
    """The name itself if it is that of an encoding; `string` for a type of the database's own, an enum."""
    try:
        _encoding(type_name(name))
    except (_NoType, RecursionError):
        return "string"
    return name


def type_name(type_text: str) -> str:
    """
    The name of a type that is said by its schema; any other as it is.

    >>> type_name('{"type": "array", "items": {"type": "bytes", "name": "io.debezium.data.Bits"}}')
    'array<io.debezium.data.Bits>'
    """
    if not is_schema(type_text):
        return type_text
    try:
        return _name_of(json.loads(type_text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return type_text


_NAMES_OF_JSON = {"double": "float64", "float": "float32"}


def _name_of(schema: Mapping[str, Any]) -> str:
    name, kind = schema.get("name"), schema["type"]
    if name == VARIABLE:
        return VARIABLE
    if kind == "array":
        return f"array<{_name_of(schema['items'])}>"
    if kind == "map":
        return f"map<{_name_of(schema['keys'])}, {_name_of(schema['values'])}>"
    if kind == "struct":
        fields = (f"{_quoted(part['field'])}: {_name_of(part)}" for part in schema["fields"])
        return f"struct<{', '.join(fields)}>"
    if name is not None:
        meaning = with_digits(str(name), schema.get("parameters"))
        if known_encoding(meaning) == meaning:
            return meaning
    return _NAMES_OF_JSON.get(kind, str(kind))


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else f"`{name.replace('`', '``')}`"


def field_names(columns: Iterable[str]) -> dict[str, str]:
    """
    Name each column's field: of names that differ in case alone, one to Spark, the later get a number.

    >>> field_names(["price", "Price"])
    {'price': 'price', 'Price': 'Price_2'}
    """
    columns = list(columns)
    taken, fields = {column.lower() for column in columns}, dict[str, str]()
    for place, column in enumerate(columns):
        field, number = column, 2
        if column.lower() in {other.lower() for other in columns[:place]}:
            while field.lower() in taken:
                field, number = f"{column}_{number}", number + 1
        fields[column] = field
        taken.add(field.lower())
    return fields
