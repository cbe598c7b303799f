"""
The type of a column about which two tables disagree: numbers and times stay such where that loses nothing.

This rule is used wherever two types of one column meet.  Where no type holds all numbers of both, two tables
of changes have doubles, and refuse a number that would lose digits; two versions of a source's table have
texts, since what a feed sent must not be refused.  Dates and instants share a type, in which a date is its
midnight in UTC.  All else becomes text, but where tables are united by who reads them: he can read them
alike, so that is refused.  Decision: no specification says what a consumer should do here.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arrow_widening import DIGITS_OF_BITS, DOUBLE, WHOLE_BELOW, Number, wider
from cdckit.parts.values import as_text, as_utc_instant, decimal_text

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
    left_digits, other = _number(left), _number(right)
    if left_digits is None or other is None:
        return T.StringType()
    common = wider(left_digits, other) or (DOUBLE if as_double else None)
    return T.StringType() if common is None else _spark_type(common)


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
        parts = {field.name: fill_void(field.dataType, right[field.name].dataType) for field in left}
        filled = [T.StructField(name, kind) for name, kind in parts.items() if kind is not None]
        return T.StructType(filled) if len(filled) == len(parts) else None
    return None


def has_void(kind: T.DataType) -> bool:
    """Tell whether a type leaves open what a value, or a part of one, would be."""
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
        typed = T.StructType()
        for field in kind:
            typed.add(field.name, void_as_text(field.dataType), field.nullable, field.metadata)
        return typed
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
            as_filled(value.getField(name), kind[name].dataType, filled[name].dataType).alias(name)
            for name in kind.names
        )
        return F.when(value.isNotNull(), F.struct(*fields))
    return F.lit(None).cast(filled)


def is_made_text(common: T.DataType | None, *kinds: T.DataType) -> bool:
    """
    Tell whether `common_spark_type` has found text although one of the *kinds* is none: 10 is to be "10".

    >>> text = T.StringType()
    >>> is_made_text(text, T.LongType(), text), is_made_text(text, text, text)
    (True, False)
    """
    texts = (T.StringType, T.VarcharType, T.CharType, T.NullType)
    return isinstance(common, T.StringType) and not all(isinstance(kind, texts) for kind in kinds)


WHOLE_KEYS = (
    "If a cell is empty, pandas turns whole numbers into floats: `frame.convert_dtypes()` makes them whole "
    "again.  Otherwise cast the key, such as to bigint or string."
)
"""What to do where a key is a float."""

TIMES_IN_LISTS = (
    "Lists are compared value by value: read the column of every list in the same way, such as by "
    "`pandas.to_datetime(…, errors='coerce')` or `parse_dates=`."
)
"""What to do where a column of lists holds times once, and texts or numbers another time."""


def is_number_beside_time(left: T.DataType, right: T.DataType) -> bool:
    """
    Tell whether one of two types is of numbers and the other of dates or instants, or they have such parts.

    As text, 19800 would stand beside 2024-03-18: most often one thing, written in two ways.

    >>> is_number_beside_time(T.DateType(), T.LongType()), is_number_beside_time(T.DateType(), T.StringType())
    (True, False)
    """
    return _is_beside_time(left, right, lambda kind: _number(kind) is not None)


def is_other_beside_time(left: T.DataType, right: T.DataType) -> bool:
    """
    Tell whether one is no time and the other is: 2024-03-18 as a text and as an instant would be two values.

    >>> date, instant, text = T.DateType(), T.TimestampType(), T.StringType()
    >>> is_other_beside_time(date, text), is_other_beside_time(date, instant)
    (True, False)
    """
    return _is_beside_time(left, right, lambda kind: kind not in _TIMES and not isinstance(kind, T.NullType))


def _is_beside_time(left: T.DataType, right: T.DataType, is_other: Callable[[T.DataType], bool]) -> bool:
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        later = {field.name: field.dataType for field in right}
        return any(
            _is_beside_time(field.dataType, later.get(field.name, field.dataType), is_other) for field in left
        )
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        return _is_beside_time(left.elementType, right.elementType, is_other)
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        return _is_beside_time(left.valueType, right.valueType, is_other)
    pairs = ((left, right), (right, left))
    return any(is_other(type_) and other in _TIMES for type_, other in pairs)


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
    exact = kind if isinstance(kind, T.DecimalType) else T.DecimalType(DIGITS_OF_BITS[64], 0)
    double = value.cast("double")
    before = F.lit(f"{column} has numbers of several types that have only double in common, and ")
    example = f"{exact.simpleString()}, in every table."
    behind = F.lit(f" has more digits than that holds: cast {column} to one type, such as {example}")
    refused = F.raise_error(F.concat(before, value.cast("string"), behind))
    if isinstance(kind, T.DecimalType):
        again = double.try_cast(kind)
    else:
        # The greatest long has no double, and a cast back from the one above it gives the greatest again.
        again = F.when(F.abs(double) < F.lit(WHOLE_BELOW), double.try_cast("bigint"))
    return F.when(value.isNull() | (again == value), double).otherwise(refused)


def _as_text(value: Column, kind: T.DataType) -> Column:
    """
    Write as `cdckit.parts.values.as_text`; but a number has one text, whatever types it was of on the way.

    So a whole one is written without a point, and a float as the double that it is: a column that became
    double before it became text must not differ from one that became text at once.
    """
    if isinstance(kind, T.DecimalType):
        return decimal_text(value)
    if isinstance(kind, T.FloatType | T.DoubleType):
        number = value.cast("double")
        is_whole = (F.rint(number) == number) & (F.abs(number) < F.lit(WHOLE_BELOW))
        return F.when(is_whole, number.cast("bigint").cast("string")).otherwise(
            as_text(number, T.DoubleType())
        )
    return as_text(value, kind)


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
