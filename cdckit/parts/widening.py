"""
The type of a column about which two tables disagree: numbers and times stay such where that loses nothing.

This rule is used wherever two types of one column meet.  Where no type holds all numbers of both, two tables
of changes have doubles, and refuse a number that would lose digits; two versions of a source's table have
texts, since what a feed sent must not be refused.  Dates and instants share a type, in which a date is its
midnight in UTC.  All else becomes text, but where tables are united by who reads them: he can read them
alike, so that is refused.  Decision: no specification says what a consumer should do here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.values import as_text, as_utc_instant, decimal_digits, decimal_text

MAX_DIGITS = 38
"""The most digits of a decimal, in Spark and in Arrow's decimal128."""

_DIGITS_OF_BITS = {8: 3, 16: 5, 32: 10, 64: 19}
_EXACT_BITS_OF_FLOAT = {32: 24, 64: 53}


class Number(NamedTuple):
    """A type of numbers: an integer or a float of *size* bits, or a decimal of *size* digits."""

    kind: Literal["integer", "decimal", "float"]
    size: int
    scale: int = 0


DOUBLE = Number("float", 64)


def wider(left: Number, right: Number) -> Number | None:
    """
    The narrowest type that holds every number of both, or nothing where none does.

    >>> wider(Number("integer", 32), Number("decimal", 7, 2))
    Number(kind='decimal', size=12, scale=2)
    >>> wider(Number("integer", 64), Number("float", 64)) is None
    True
    """
    if left.kind == right.kind != "decimal":
        return max(left, right)
    if "float" in (left.kind, right.kind):
        return _wider_float(*((left, right) if right.kind == "float" else (right, left)))
    one, other = _as_decimal(left), _as_decimal(right)
    scale = max(one.scale, other.scale)
    digits = max(one.size - one.scale, other.size - other.scale) + scale
    return Number("decimal", digits, scale) if digits <= MAX_DIGITS else None


def _wider_float(other: Number, floating: Number) -> Number | None:
    """Every integer of few enough bits is a float; a decimal with a fraction hardly ever is."""
    if other.kind == "integer":
        for size, exact in _EXACT_BITS_OF_FLOAT.items():
            if size >= floating.size and other.size < exact:
                return Number("float", size)
    return None


def _as_decimal(number: Number) -> Number:
    return number if number.kind == "decimal" else Number("decimal", _DIGITS_OF_BITS[number.size])


_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
_TIMES: tuple[T.DataType, ...] = (T.DateType(), T.TimestampNTZType(), T.TimestampType())
"""Each holds what stands before it."""

_INTEGERS: dict[int, T.DataType] = {8: T.ByteType(), 16: T.ShortType(), 32: T.IntegerType(), 64: T.LongType()}
_FLOATS: dict[int, T.DataType] = {32: T.FloatType(), 64: T.DoubleType()}


def common_spark_type(left: T.DataType, right: T.DataType, *, as_double: bool = False) -> T.DataType | None:
    """
    The type that holds what *left* and *right* hold: numbers by `wider`, times the more exact one, else text.

    Of several types it is one, in whatever order they meet.

    Args:
        as_double: Whether numbers become doubles where no type holds all of both; `as_type` then refuses
            a value that would lose digits.

    Returns:
        Nothing where one of two types that differ is nested, and not by parts alone in which nothing stands:
        its text would not be its value.

    >>> common_spark_type(T.LongType(), T.DecimalType(7, 2))
    DecimalType(21,2)
    >>> common_spark_type(T.LongType(), T.DoubleType()), common_spark_type(T.DateType(), T.LongType())
    (StringType(), StringType())
    >>> common_spark_type(T.TimestampType(), T.DateType())
    TimestampType()
    >>> common_spark_type(T.LongType(), T.DoubleType(), as_double=True)
    DoubleType()
    """
    if left.simpleString() == right.simpleString() or isinstance(right, T.NullType):
        return left
    if isinstance(left, T.NullType):
        return right
    if isinstance(left, _NESTED) or isinstance(right, _NESTED):
        return fill_void(left, right)
    if left in _TIMES and right in _TIMES:
        return max(left, right, key=_TIMES.index)
    one, other = _number(left), _number(right)
    if one is None or other is None:
        return T.StringType()
    found = wider(one, other) or (DOUBLE if as_double else None)
    return T.StringType() if found is None else _spark_type(found)


def fill_void(left: T.DataType, right: T.DataType) -> T.DataType | None:
    """
    The type in which what *left* leaves open is that of *right*, and the other way round.

    Spark's void leaves open what a value would be: so is the element of lists that are all empty.

    Returns:
        Nothing where the two differ in anything else.

    >>> empty, full = T.ArrayType(T.NullType()), T.ArrayType(T.LongType())
    >>> fill_void(empty, full) == fill_void(full, empty) == full, fill_void(full, T.LongType())
    (True, None)
    """
    if isinstance(right, T.NullType) or left.simpleString() == right.simpleString():
        return left
    if isinstance(left, T.NullType):
        return right
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        element = fill_void(left.elementType, right.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        key, value = fill_void(left.keyType, right.keyType), fill_void(left.valueType, right.valueType)
        return None if key is None or value is None else T.MapType(key, value)
    if isinstance(left, T.StructType) and isinstance(right, T.StructType) and left.names == right.names:
        parts = {one.name: fill_void(one.dataType, right[one.name].dataType) for one in left}
        filled = [T.StructField(name, kind) for name, kind in parts.items() if kind is not None]
        return T.StructType(filled) if len(filled) == len(parts) else None
    return None


def has_void(kind: T.DataType) -> bool:
    """Whether a type leaves open what a value, or a part of one, would be."""
    return void_as_text(kind) != kind


def void_as_text(kind: T.DataType) -> T.DataType:
    """
    The type with text for what it leaves open, since nothing can be kept in void.

    >>> void_as_text(T.ArrayType(T.NullType())).simpleString()
    'array<string>'
    """
    if isinstance(kind, T.NullType):
        return T.StringType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(void_as_text(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        parts = void_as_text(kind.keyType), void_as_text(kind.valueType)
        return T.MapType(*parts, kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        return T.StructType(
            [T.StructField(one.name, void_as_text(one.dataType), one.nullable, one.metadata) for one in kind]
        )
    return kind


def as_filled(value: Column, kind: T.DataType, filled: T.DataType) -> Column:
    """
    A *value* of type *kind* in the type *filled*, which is another where nothing stands in it.

    Where the two differ the value has no parts, whatever type stands there in the place of void.
    """
    if kind.simpleString() == filled.simpleString():
        return value
    if isinstance(kind, T.ArrayType) and isinstance(filled, T.ArrayType):
        element, wanted = kind.elementType, filled.elementType
        return F.transform(value, lambda part: as_filled(part, element, wanted))
    if isinstance(kind, T.MapType) and isinstance(filled, T.MapType):
        parts = kind.valueType, filled.valueType
        return F.transform_values(value, lambda _, part: as_filled(part, *parts)).cast(filled)
    if isinstance(kind, T.StructType) and isinstance(filled, T.StructType) and kind.names == filled.names:
        fields = (
            as_filled(value.getField(one.name), one.dataType, filled[one.name].dataType).alias(one.name)
            for one in kind
        )
        return F.when(value.isNotNull(), F.struct(*fields))
    return F.lit(None).cast(filled)


def is_made_text(common: T.DataType | None, *kinds: T.DataType) -> bool:
    """
    Whether what `common_spark_type` found is text although one of the *kinds* is none: 10 is to be "10".

    >>> text = T.StringType()
    >>> is_made_text(text, T.LongType(), text), is_made_text(text, text, text)
    (True, False)
    """
    texts = (T.StringType, T.VarcharType, T.CharType, T.NullType)
    return isinstance(common, T.StringType) and not all(isinstance(each, texts) for each in kinds)


WHOLE_KEYS = (
    "Where a cell is empty, pandas makes floats of whole numbers: `frame.convert_dtypes()` makes them whole "
    "again.  Else cast the key, such as to bigint or string."
)
"""What to do where a key is a float."""

TIMES_IN_LISTS = (
    "Lists are compared value by value: read the column in each of them alike, such as by "
    "`pandas.to_datetime(…, errors='coerce')` or `parse_dates=`."
)
"""What to do where a column of lists holds times once, and texts or numbers another time."""


def is_number_beside_time(left: T.DataType, right: T.DataType) -> bool:
    """
    Whether one of two types is of numbers and the other of dates or instants, or they have such parts.

    As text, 19800 would stand beside 2024-03-18: most often one thing, written in two ways.

    >>> is_number_beside_time(T.DateType(), T.LongType()), is_number_beside_time(T.DateType(), T.StringType())
    (True, False)
    """
    return _is_beside_time(left, right, lambda kind: _number(kind) is not None)


def is_other_beside_time(left: T.DataType, right: T.DataType) -> bool:
    """
    The same of whatever is no time: 2024-03-18 read once as a text, once as an instant, would be two values.

    >>> date, instant, text = T.DateType(), T.TimestampType(), T.StringType()
    >>> is_other_beside_time(date, text), is_other_beside_time(date, instant)
    (True, False)
    """
    return _is_beside_time(left, right, lambda kind: kind not in _TIMES and not isinstance(kind, T.NullType))


def _is_beside_time(left: T.DataType, right: T.DataType, is_other: Callable[[T.DataType], bool]) -> bool:
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        later = {one.name: one.dataType for one in right}
        return any(_is_beside_time(one.dataType, later.get(one.name, one.dataType), is_other) for one in left)
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        return _is_beside_time(left.elementType, right.elementType, is_other)
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        return _is_beside_time(left.valueType, right.valueType, is_other)
    pairs = ((left, right), (right, left))
    return any(is_other(one) and other in _TIMES for one, other in pairs)


def as_type(value: Column, kind: T.DataType, common: T.DataType, column: str) -> Column:
    """A *value* of type *kind* of a *column* in the *common* type that `common_spark_type` found for it."""
    if kind.simpleString() == common.simpleString():
        return value
    if isinstance(common, T.StringType):
        return _as_text(value, kind)
    if isinstance(common, T.TimestampType) and kind in _TIMES:
        # Spark's cast would take a date for midnight in the zone of the session.
        return as_utc_instant(value, kind)
    if isinstance(common, T.DoubleType) and isinstance(kind, T.LongType | T.DecimalType):
        return _as_exact_double(value, kind, column)
    return value.cast(common)


def _as_exact_double(value: Column, kind: T.LongType | T.DecimalType, column: str) -> Column:
    """
    The double from which the same number is read again; the query fails where there is none.

    A text instead would hold every number, and would sort and add up wrongly without a word.
    """
    exact = kind if isinstance(kind, T.DecimalType) else T.DecimalType(_DIGITS_OF_BITS[64], 0)
    double = value.cast("double")
    refused = F.raise_error(
        F.concat(
            F.lit(f"{column} has numbers of several types that have only double in common, and "),
            value.cast("string"),
            F.lit(f" has more digits than that holds: cast {column} to one type, such as "),
            F.lit(f"{exact.simpleString()}, in every table."),
        )
    )
    if isinstance(kind, T.DecimalType):
        again = double.try_cast(kind)
    else:
        # The greatest long has no double, and a cast back from the one above it gives the greatest again.
        again = F.when(F.abs(double) < F.lit(_WHOLE_BELOW), double.try_cast("bigint"))
    return F.when(value.isNull() | (again == value), double).otherwise(refused)


def _as_text(value: Column, kind: T.DataType) -> Column:
    """
    As `cdckit.parts.values.as_text`; but a number has one text, whatever types it was of on the way.

    So a whole one is written without a point, and a float as the double that it is: a column that became
    double before it became text must not differ from one that became text at once.
    """
    if isinstance(kind, T.DecimalType):
        return decimal_text(value)
    if isinstance(kind, T.FloatType | T.DoubleType):
        number = value.cast("double")
        is_whole = (F.rint(number) == number) & (F.abs(number) < F.lit(_WHOLE_BELOW))
        return F.when(is_whole, number.cast("bigint").cast("string")).otherwise(
            as_text(number, T.DoubleType())
        )
    return as_text(value, kind)


_WHOLE_BELOW = 2.0**63


def number_texts(numbers: pa.Array) -> pa.Array:
    """
    Numbers as the texts that `as_type` makes of them, for workers that have them in Arrow.

    Arrow's own texts are others than Spark's: of 1.5e-5, and of small decimals.

    >>> number_texts(pa.array([1.0, 1e7, 1.5e-5, float("nan"), None])).to_pylist()
    ['1', '10000000', '1.5E-5', 'NaN', None]
    """
    if pa.types.is_decimal(numbers.type):
        texts = [None if each is None else decimal_digits(each) for each in numbers.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_floating(numbers.type):
        numbers = numbers.cast(pa.float64())
        shortest = numbers.cast(pa.string()).to_pylist()
        pairs = zip(numbers.to_pylist(), shortest, strict=True)
        return pa.array(
            [None if each is None else _float_text(each, text) for each, text in pairs], pa.string()
        )
    return numbers.cast(pa.string())


def _float_text(number: float, shortest: str) -> str:
    """As Java writes it, unless it is whole; *shortest* has the digits that tell it from other floats."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number.is_integer() and abs(number) < _WHOLE_BELOW:
        return str(int(number))
    exact = Decimal(shortest)
    if 1e-3 <= abs(number) < 1e7:
        return f"{exact:f}"
    sign, digits, _ = exact.normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{exact.adjusted()}"


def _number(kind: T.DataType) -> Number | None:
    if isinstance(kind, T.DecimalType):
        return Number("decimal", kind.precision, kind.scale)
    for size, integer in _INTEGERS.items():
        if kind == integer:
            return Number("integer", size)
    for size, floating in _FLOATS.items():
        if kind == floating:
            return Number("float", size)
    return None


def _spark_type(number: Number) -> T.DataType:
    if number.kind == "decimal":
        return T.DecimalType(number.size, number.scale)
    return (_INTEGERS if number.kind == "integer" else _FLOATS)[number.size]


def common_type(left: pa.DataType, right: pa.DataType, *, as_double: bool = False) -> pa.DataType:
    """
    The type that a column has when two versions of its table disagree.

    Numbers and times widen where that loses nothing (`cdckit.parts.widening`), null gives way; all else is
    text.

    Args:
        as_double: Whether numbers that no exact type holds become doubles.

    >>> common_type(pa.int32(), pa.int64()), common_type(pa.int64(), pa.date32())
    (DataType(int64), DataType(string))
    >>> common_type(pa.int64(), pa.decimal128(7, 2)), common_type(pa.date32(), pa.timestamp("us", "UTC"))
    (Decimal128Type(decimal128(21, 2)), TimestampType(timestamp[us, tz=UTC]))
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if _is_arrow_time(left) and _is_arrow_time(right):
        return _common_arrow_time(left, right)
    one, other = _arrow_number(left), _arrow_number(right)
    found = wider(one, other) if one and other else None
    if one and other and as_double:
        found = found or DOUBLE
    return _arrow_type(found) if found else pa.string()


def _is_arrow_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _common_arrow_time(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Of dates a date; else the instant in the finer unit, of UTC where one of the two has a zone."""
    instants = [kind for kind in (left, right) if pa.types.is_timestamp(kind)]
    if not instants:
        return pa.date32()
    unit = max((kind.unit for kind in instants), key=("s", "ms", "us", "ns").index)
    return pa.timestamp(unit, tz="UTC" if any(kind.tz for kind in instants) else None)


def _arrow_number(kind: pa.DataType) -> Number | None:
    if pa.types.is_decimal(kind):
        return Number("decimal", kind.precision, kind.scale)
    if pa.types.is_integer(kind):
        return Number("integer", kind.bit_width)
    return Number("float", kind.bit_width) if pa.types.is_floating(kind) else None


def _arrow_type(number: Number) -> pa.DataType:
    if number.kind == "decimal":
        return pa.decimal128(number.size, number.scale)
    if number.kind == "integer":
        return pa.int64() if number.size == 64 else pa.int32()
    return pa.float64() if number.size == 64 else pa.float32()


def to_common_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """
    The *values* of one version in the type that `common_type` found for all versions.

    Bytes become hex text, as in JSON form; nested values become JSON text; instants are in UTC, written
    as `cdckit.parts.values.as_text` does; numbers are written as `union_changes` does.

    >>> to_common_type(pa.array([b"\\xff", None]), pa.string()).to_pylist()
    ['ff', None]
    """
    if values.type == kind:  # Arrow's cast of a list of nulls to its own type loses items
        return values
    if not pa.types.is_string(kind):
        # Only who asks for doubles has numbers that a float does not hold.
        return values.cast(kind, safe=not pa.types.is_floating(kind))
    if pa.types.is_binary(values.type):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], kind)
    if pa.types.is_nested(values.type):
        texts = [None if value is None else json.dumps(value, default=str) for value in values.to_pylist()]
        return pa.array(texts, kind)
    if pa.types.is_timestamp(values.type):
        texts = values.cast(pa.timestamp("us")).cast(kind)
        whole = pc.replace_substring_regex(texts, r"\.0+$", "")
        return pc.replace_substring_regex(whole, r"(\.[0-9]*[1-9])0+$", r"\1")
    return number_texts(values) if _arrow_number(values.type) else values.cast(kind)
