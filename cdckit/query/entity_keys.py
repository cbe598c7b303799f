"""Which entity a key names: Python values compared with the columns of a frame, by the one equality."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from numbers import Integral, Real
from struct import pack, unpack
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import quoted, require_fields, require_instant, wrong_argument
from cdckit.parts.instants import EPOCH, is_datetime
from cdckit.parts.values import comparable, utc_clock

_DIGITS = 38
_LONG = range(-(2**63), 2**63)


def is_entity(key: Mapping[str, Any], fields: T.StructType, *, within: str = "") -> Column:
    """
    The condition that a row is of the entity with that key, null being a value like any other.

    Args:
        key: Value by field, of the field's type (see `literal`).  A part of the key speaks of every
            entity that has these values.
        fields: The fields that a key may name, with their types.
        within: The struct column that holds them; without it they are columns of the frame.
    """
    if not isinstance(key, Mapping):
        raise wrong_argument("key", "a mapping of field to value", key)
    require_fields(key, fields.fieldNames(), "key")
    conditions = []
    for name, value in key.items():
        kind = fields[name].dataType
        try:
            wanted = literal(value, kind)
        except ValueError:
            raise wrong_argument(f"key[{name!r}]", _needed_form(kind), value) from None
        inside = within and name != "guid"
        column = F.col(within).getField(name) if inside else F.col(quoted(name))
        conditions.append(comparable(column, kind).eqNullSafe(comparable(wanted, kind)))
    return reduce(Column.__and__, conditions)


def _needed_form(kind: T.DataType) -> str:
    if isinstance(kind, T.TimestampType):
        return "an aware datetime (one with tzinfo)"
    if isinstance(kind, T.TimestampNTZType):
        return "a naive datetime (one without tzinfo)"
    return f"a value of the type {kind.simpleString()}"


def literal(value: Any, kind: T.DataType) -> Column:
    """
    The value as a column of the type *kind*; null for None.

    Spark's own `lit` will not do: it takes the text "01" for the number 1, a Python float for a double
    that no float equals, a wall clock for an instant in the zone of the session, and days before 1582
    for those of another calendar.

    Raises `ValueError` for what is not a value of that type: a number is one of every type of numbers
    that can hold it (no float is a decimal, 2**53 + 1 is no double), a naive datetime is a `timestamp_ntz`
    and an aware one a `timestamp`, and no type takes a bool for a number or a datetime for a date.
    """
    if not is_value(value, kind):
        raise ValueError(value)
    return F.lit(None).cast(kind) if value is None else _form(kind)[1](value, kind)


def is_value(value: Any, kind: T.DataType) -> bool:
    """Tell whether a value is null, or of a class of Python that stands for *kind*, as `literal` says."""
    if value is None:
        return True
    needed, _ = _form(kind)
    # A bool is an int to Python, and a datetime a date.
    for odd in (bool, datetime):
        if isinstance(value, odd) and needed is not odd:
            return False
    if isinstance(kind, T.TimestampType):
        return is_datetime(value) and value.utcoffset() is not None
    if isinstance(kind, T.TimestampNTZType):
        return is_datetime(value) and value.tzinfo is None
    return isinstance(value, needed)


def _form(kind: T.DataType) -> tuple[Any, Callable[[Any, T.DataType], Column]]:
    return next(form for kinds, form in _LITERALS.items() if isinstance(kind, kinds))


def _whole_number(value: Any, kind: T.DataType) -> Column:
    # Not of the field's own type, which has fewer: a number beyond them is just one that it never has.
    if int(value) not in _LONG:
        raise ValueError(value)
    return F.lit(int(value)).cast("bigint")


def _decimal(value: Any, kind: T.DataType) -> Column:
    exact = Decimal(int(value)) if isinstance(value, Integral) else value
    if not exact.is_finite():
        raise ValueError(value)
    digits = format(exact, "f")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    if sum(map(str.isdigit, digits.lstrip("-0."))) > _DIGITS or exact.adjusted() < -_DIGITS:
        raise ValueError(value)
    return F.lit(Decimal(digits))


def _float(value: Any, kind: T.DataType) -> Column:
    try:
        number = float(value)
        (stored,) = unpack("f", pack("f", number)) if isinstance(kind, T.FloatType) else (number,)
    except OverflowError:
        raise ValueError(value) from None
    # Rounded, a whole number would be that of another entity.
    if isinstance(value, Integral) and int(stored) != value:
        raise ValueError(value)
    return F.lit(number).cast(kind)


def _instant(value: Any, kind: T.DataType) -> Column:
    return require_instant(value, "key")


def _wall_clock(value: Any, kind: T.DataType) -> Column:
    return utc_clock(_instant(value.replace(tzinfo=UTC), kind))


def _array(value: Any, kind: Any) -> Column:
    return F.array(*(literal(item, kind.elementType) for item in value)).cast(kind)


def _map(value: Any, kind: Any) -> Column:
    keys = F.array(*(literal(item, kind.keyType) for item in value)).cast(T.ArrayType(kind.keyType))
    items = [literal(item, kind.valueType) for item in value.values()]
    return F.map_from_arrays(keys, F.array(*items).cast(T.ArrayType(kind.valueType))).cast(kind)


def _struct(value: Any, kind: Any) -> Column:
    if set(value) != set(kind.fieldNames()):
        raise ValueError(value)
    return F.struct(*(literal(value[field.name], field.dataType).alias(field.name) for field in kind)).cast(
        kind
    )


_LITERALS: dict[Any, tuple[Any, Callable[[Any, T.DataType], Column]]] = {
    (T.StringType, T.VarcharType, T.CharType): (str, lambda value, _: F.lit(str(value))),
    T.BooleanType: (bool, lambda value, _: F.lit(bool(value))),
    T.IntegralType: (Integral, _whole_number),
    T.DecimalType: ((Decimal, Integral), _decimal),
    T.FractionalType: (Real, _float),
    T.DateType: (date, lambda value, _: F.date_from_unix_date(F.lit((value - EPOCH.date()).days))),
    T.TimestampType: (datetime, _instant),
    T.TimestampNTZType: (datetime, _wall_clock),
    T.DayTimeIntervalType: (timedelta, lambda value, _: F.lit(value)),
    T.TimeType: (time, lambda value, _: F.lit(value)),
    T.BinaryType: ((bytes, bytearray), lambda value, _: F.lit(bytes(value))),
    T.ArrayType: ((list, tuple), _array),
    T.MapType: (Mapping, _map),
    T.StructType: (Mapping, _struct),
    T.DataType: ((), lambda value, _: F.lit(value)),  # no value is of any other
}
"""By type: the classes of its values in Python, and how a column is made of one."""
