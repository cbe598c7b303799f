"""What questions have in common: instants, keys and fields, checked when a function is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from numbers import Integral, Real
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.schemas import quoted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def require_instant(at: datetime, argument: str, *, function: str) -> Column:
    """The instant as a column; raises `InvalidArgument` for a naive datetime: no instant without its zone."""
    return F.timestamp_micros(F.lit(microseconds(at, argument, function=function)))


def microseconds(at: datetime, argument: str, *, function: str) -> int:
    """
    The instant as microseconds since 1970.

    Not by Spark's own literal, which counts instants before 1582 by another calendar.
    """
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidArgument(function, argument, "an aware datetime (one with tzinfo)", at)
    return (at - EPOCH) // timedelta(microseconds=1)


def require_period(start: datetime, end: datetime | None, *, function: str) -> tuple[Column, Column]:
    """Start and end of a half-open period as columns; an end of None is open, a null column."""
    first = require_instant(start, "start", function=function)
    if end is None:
        return first, F.lit(None).cast("timestamp")
    last = require_instant(end, "end", function=function)
    # In UTC: Python compares two instants of one zone by their wall clocks, even in an hour that comes twice.
    if end.astimezone(UTC) <= start.astimezone(UTC):
        raise InvalidArgument(function, "end", f"after start, {start.isoformat()}", end.isoformat())
    return first, last


def require_fields(fields: Iterable[str], known: Sequence[str], argument: str, *, function: str) -> list[str]:
    """The fields as a list; raises `InvalidArgument` for none, for one twice, for one that is not known."""
    found = [fields] if isinstance(fields, str) else list(fields)
    if not found or set(found) - set(known) or len(set(found)) != len(found):
        raise InvalidArgument(function, argument, f"one or more fields among {', '.join(known)}", found)
    return found


def of_entity(key: Mapping[str, Any], known: T.StructType, *, within: str = "", function: str) -> Column:
    """
    The condition that a row is of the entity with that key, null being a value like any other.

    Args:
        key: Value by field, of the field's type.  A part of the key speaks of every entity that has
            these values.
        known: The fields that a key may name, with their types.
        within: The struct column that holds them; without it they are columns of the frame.
        function: Who asks, for errors.
    """
    if not isinstance(key, Mapping):
        raise InvalidArgument(function, "key", "a mapping of field to value", key)
    require_fields(key, known.fieldNames(), "key", function=function)
    conditions = []
    for name, value in key.items():
        literal = _literal(value, known[name].dataType, f"key[{name!r}]", function)
        inside = within and name != "guid"
        column = F.col(within).getField(name) if inside else F.col(quoted(name))
        conditions.append(column.eqNullSafe(literal))
    return reduce(Column.__and__, conditions)


def _literal(value: Any, kind: T.DataType, argument: str, function: str) -> Column:
    """The value as a column of its field's type: Spark itself would take the text "01" for the number 1."""
    if value is None:
        return F.lit(None)
    if isinstance(kind, T.TimestampType):
        return require_instant(value, argument, function=function)
    needed = next((classes for kinds, classes in _PYTHON.items() if isinstance(kind, kinds)), (object,))
    # A bool is an int to Python, and a datetime a date.
    if not isinstance(value, needed) or (type(value) in (bool, datetime) and type(value) not in needed):
        raise InvalidArgument(function, argument, f"a value of the type {kind.simpleString()}", value)
    return F.lit(value)


_PYTHON: dict[Any, tuple[type, ...]] = {
    (T.StringType, T.VarcharType, T.CharType): (str,),
    T.BooleanType: (bool,),
    T.IntegralType: (Integral,),
    T.DecimalType: (Decimal, Integral),
    T.FractionalType: (Real,),
    T.DateType: (date,),
    T.TimestampNTZType: (datetime,),
    T.BinaryType: (bytes, bytearray),
}


def require_instants(frame: DataFrame, at: Column, argument: str, *, function: str) -> Column:
    """*at* itself; raises `WrongColumnType` unless it is a column of timestamps over *frame*."""
    found = frame.select(at.alias("at")).schema["at"].dataType
    if not isinstance(found, T.TimestampType):
        raise WrongColumnType(function, argument, "timestamp", found.simpleString())
    return at
