"""JSON values into the types of their fields, a column at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import isinf
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.datahub.mappings import DECIMAL, LINK, TEXT, FieldType
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.instants import parse_instant

TRUE = frozenset({"true", "t", "yes", "y", "on", "1"})
FALSE = frozenset({"false", "f", "no", "n", "off", "0"})
"""The texts that are true and false, in any case; the numbers 1 and 0 are too.  Decision: the
specification's own list is lost; these are the ones that PostgreSQL knows, one-letter prefixes aside."""

INTEGERS = {"smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64()}

NATURAL: Mapping[str, pa.DataType] = {
    **INTEGERS, TEXT: pa.string(), LINK: pa.string(), "date": pa.string(), "timestamp": pa.string(),
    "number": pa.float64(), "double": pa.float64(), "boolean": pa.bool_(),
}  # fmt: skip
"""By field type the one in which JSON has most of its values; a decimal always needs a rule."""

_PYTHON: Mapping[pa.DataType, set[type]] = {
    pa.string(): {str, type(None)},
    pa.bool_(): {bool, type(None)},
    pa.float64(): {int, Decimal, float, type(None)},
    **{key: {int, type(None)} for key in INTEGERS.values()},
}

_NUMBER = re.compile(r" *[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)? *", re.ASCII)
_PLAIN = {
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$",
}
_DATE = re.compile(_PLAIN["date"])

# A number such as 1e999999999 is nine characters of message, and a gigabyte when written out.
_MAX_EXPONENT = 400

_EXACT = Context(prec=1000)


class ConvertedColumn(NamedTuple):
    """A column of values, and by position what was wrong with those that are null for it."""

    values: pa.Array
    errors: dict[int, str]


def convert_values(values: Sequence[Any], kind: FieldType) -> ConvertedColumn:
    """
    JSON values (as `json` reads them, but floats as `Decimal`) as a column of type *kind*.

    Null stays null; a value that does not convert is null and named in the errors.

    Source:
        Data hub, section on conversions; what it leaves open is decided in the functions below.
    """
    direct = _convert_directly(values, kind)
    if direct is not None:
        return ConvertedColumn(direct, {})
    conversion, errors, converted = _CONVERSIONS[kind.name], {}, []
    for position, value in enumerate(values):
        try:
            converted.append(None if value is None else conversion(value, kind))
        except _Unfit as error:
            errors[position] = str(error)
            converted.append(None)
    return ConvertedColumn(pa.array(converted, arrow_type(kind.spark)), errors)


def _convert_directly(values: Sequence[Any], kind: FieldType) -> pa.Array | None:
    """The column if no value needs a rule: this is what nearly all data is."""
    natural = NATURAL.get(kind.name)
    if natural is None or not set(map(type, values)) <= _PYTHON[natural]:
        return None
    try:
        if natural == pa.float64():
            values = [None if value is None else float(value) for value in values]
        return convert_natural(pa.array(values, natural), kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None


def convert_natural(values: pa.Array, kind: FieldType) -> pa.Array | None:
    """A column of values that JSON itself has in the `NATURAL` type; None if one of them needs a rule."""
    if kind.name in (TEXT, LINK) and kind.length is not None:
        return pc.utf8_slice_codeunits(values, 0, kind.length)
    if pa.types.is_floating(values.type):
        return values if pc.all(pc.is_finite(values), min_count=0).as_py() else None
    if kind.name in ("date", "timestamp"):
        return _convert_plain_times(values, kind)
    return values


def _convert_plain_times(texts: pa.Array, kind: FieldType) -> pa.Array | None:
    """Texts that are all written in the plainest form; None if one of them is not, or is no time at all."""
    plain = pc.match_substring_regex(texts, _PLAIN[kind.name])
    with suppress(pa.ArrowInvalid):
        if pc.all(plain, min_count=0).as_py():
            instants = texts.cast(pa.timestamp("us"))
            if pc.min(pc.year(instants)).as_py() != 0:
                return (
                    instants.cast(pa.date32()) if kind.name == "date" else pc.assume_timezone(instants, "UTC")
                )
    return None


class _Unfit(ValueError):
    """A value that its field's type cannot hold."""


def _text(value: Any, kind: FieldType) -> str:
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int | Decimal | float):
        text = _without_exponent(_exact_decimal(value))
    elif isinstance(value, str):
        text = value
    else:
        raise _unfit(value, "a text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _unfit(value, "a text of whole characters") from None
    return text[: kind.length]


def _number(value: Any, within: str) -> Decimal:
    """A number, also of a text; one that no field could hold is not *within* what is needed."""
    number = None
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        with suppress(InvalidOperation):
            number = Decimal(value.strip())
    elif isinstance(value, int | Decimal | float) and not isinstance(value, bool):
        number = _exact_decimal(value)
    if number is None or not number.is_finite():
        raise _unfit(value, "a number")
    if number and number.adjusted() > _MAX_EXPONENT:
        raise _unfit(value, within)
    return number


def _exact_decimal(value: float | Decimal) -> Decimal:
    """A number as a decimal; of a float the shortest one that stands for it."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _without_exponent(number: Decimal) -> str:
    """A number without an exponent, as long as that can be written down."""
    exponent = number.as_tuple().exponent
    if isinstance(exponent, str) or abs(number.adjusted()) > _MAX_EXPONENT or exponent < -_MAX_EXPONENT:
        if number == 0:
            return "0"
        raise _Unfit("the number is too long to be written out")
    return format(number, "f")


def _double(value: Any, kind: FieldType) -> float:
    double = float(_number(value, needed := "a number that a double can hold"))
    if isinf(double):
        raise _unfit(value, needed)
    return double


def _integer(value: Any, kind: FieldType) -> int:
    number = _number(value, needed := f"a number within the range of a {kind.name}")
    end = 1 << (INTEGERS[kind.name].bit_width - 1)
    # Halves go away from zero (decision: the text says "nearest").
    whole_number = int(number.to_integral_value(ROUND_HALF_UP))
    if not -end <= whole_number < end:
        raise _unfit(value, needed)
    return whole_number


def _decimal(value: Any, kind: FieldType) -> Decimal:
    assert kind.scale is not None
    assert kind.precision is not None
    digits = f"a number of at most {kind.scale - kind.precision} digits before the point"
    # In the order in which the text says it: truncated to its digits, then rounded to its decimals.
    cut = Context(prec=kind.scale, rounding=ROUND_DOWN).create_decimal(_number(value, digits))
    rounded = cut.quantize(Decimal(1).scaleb(-kind.precision), ROUND_HALF_UP, _EXACT)
    if rounded and rounded.adjusted() >= kind.scale - kind.precision:
        raise _unfit(value, digits)
    return rounded


def _boolean(value: Any, kind: FieldType) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | Decimal) and value in (0, 1):
        return value == 1
    if isinstance(value, str) and value.lower() in TRUE | FALSE:
        return value.lower() in TRUE
    raise _unfit(value, "true or false")


def _date(value: Any, kind: FieldType) -> date:
    if isinstance(value, str) and _DATE.fullmatch(value):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise _unfit(value, "a date, YYYY-MM-DD")


def _timestamp(value: Any, kind: FieldType) -> datetime:
    instant = parse_instant(value)
    if instant is None:
        raise _unfit(value, "a timestamp, YYYY-MM-DDTHH:MM:SS")
    return instant


def _unfit(value: Any, needed: str) -> _Unfit:
    try:
        text = str(value) if isinstance(value, Decimal) else ascii(value)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        text = f"a value of the type {type(value).__name__}"
    # The end of a long value is as likely to be what is wrong with it as its beginning.
    return _Unfit(f"{text if len(text) <= 80 else f'{text[:38]}...{text[-39:]}'} is not {needed}")


_CONVERSIONS: dict[str, Callable[[Any, FieldType], Any]] = {
    TEXT: _text,
    LINK: _text,
    "number": _double,
    "double": _double,
    **dict.fromkeys(INTEGERS, _integer),
    DECIMAL: _decimal,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
}
