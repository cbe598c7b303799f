"""
Of a column about which two tables in Arrow disagree the type, and its values in it, for workers.

The rule is that of `cdckit.parts.widening`.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

MAX_DIGITS = 38
"""The most digits of a decimal, in Spark and in Arrow's decimal128."""

DIGITS_OF_BITS = {8: 3, 16: 5, 32: 10, 64: 19}
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
    left_digits, other = _as_decimal(left), _as_decimal(right)
    scale = max(left_digits.scale, other.scale)
    digits = max(left_digits.size - left_digits.scale, other.size - other.scale) + scale
    return Number("decimal", digits, scale) if digits <= MAX_DIGITS else None


def _wider_float(other: Number, floating: Number) -> Number | None:
    """Every integer of few enough bits is a float; a decimal with a fraction hardly ever is."""
    if other.kind == "integer":
        for size, exact in _EXACT_BITS_OF_FLOAT.items():
            if size >= floating.size and other.size < exact:
                return Number("float", size)
    return None


def _as_decimal(number: Number) -> Number:
    return number if number.kind == "decimal" else Number("decimal", DIGITS_OF_BITS[number.size])


WHOLE_BELOW = 2.0**63


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
    left_digits, other = _arrow_number(left), _arrow_number(right)
    both = wider(left_digits, other) if left_digits and other else None
    if left_digits and other and as_double:
        both = both or DOUBLE
    return _arrow_type(both) if both else pa.string()


def _is_arrow_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _common_arrow_time(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Unite two dates to a date; else to the instant in the finer unit, of UTC where one has a zone."""
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
        if pa.types.is_decimal(values.type) and pa.types.is_floating(kind):
            values = values.cast(pa.string())  # Arrow's cast of 19.99 is not the float that is nearest to it
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


def number_texts(numbers: pa.Array) -> pa.Array:
    """
    Numbers as the texts that `as_type` makes of them, for workers that have them in Arrow.

    Arrow's own texts are others than Spark's: of 1.5e-5, and of small decimals.

    >>> number_texts(pa.array([1.0, 1e7, 1.5e-5, float("nan"), None])).to_pylist()
    ['1', '10000000', '1.5E-5', 'NaN', None]
    """
    if pa.types.is_decimal(numbers.type):
        texts = [None if number is None else decimal_digits(number) for number in numbers.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_floating(numbers.type):
        numbers = numbers.cast(pa.float64())
        shortest = numbers.cast(pa.string()).to_pylist()
        pairs = zip(numbers.to_pylist(), shortest, strict=True)
        return pa.array(
            [None if number is None else _float_text(number, text) for number, text in pairs], pa.string()
        )
    return numbers.cast(pa.string())


def _float_text(number: float, shortest: str) -> str:
    """Write a float as Java does, unless it is whole; *shortest* has the digits that tell it apart."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number.is_integer() and abs(number) < WHOLE_BELOW:
        return str(int(number))
    exact = Decimal(shortest)
    if 1e-3 <= abs(number) < 1e7:
        return f"{exact:f}"
    sign, digits, _ = exact.normalize().as_tuple()
    first, *digits_after = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(digits_after) or '0'}E{exact.adjusted()}"


def decimal_digits(value: Decimal) -> str:
    """Write a Python decimal as `cdckit.parts.values.decimal_text` does."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
