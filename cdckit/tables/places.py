"""Values as texts that sort as the values do: what a table is sequenced by becomes `sequence`."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import number_in_order
from cdckit.parts.values import decimal_text
from cdckit.tables.times import TEXTS, as_instant, is_time

NEEDED = (
    "whole numbers, decimals, times, texts, booleans or bytes, or a struct of these; "
    "cast floats, such as `F.col('a_column').cast('bigint')` or, in pandas, `frame.convert_dtypes()`"
)

_END = "\u0000"
_AFTER_EVERY_PART = "\uffff"


class Typed(NamedTuple):
    """A column and the type that it has."""

    value: Column
    kind: T.DataType


def in_order(parts: list[Typed]) -> Column | None:
    """
    The text that sorts as the parts do, one after the other; empty, and so first, where it is one null.

    None where a part is of a type that has no order here.  Text sorts by its bytes, as in Spark.
    """
    if not parts:
        return F.lit("")
    if len(parts) == 1 and not isinstance(parts[0].kind, T.StructType):
        alone = _text(*parts[0])
        return None if alone is None else F.coalesce(alone, F.lit(""))
    return _joined(parts)


def _joined(parts: list[Typed]) -> Column | None:
    written = [_part(each) for each in parts]
    known = [each for each in written if each is not None]
    return F.concat(*known) if len(known) == len(written) else None


def _part(part: Typed) -> Column | None:
    """One of several: it says itself where it ends.  A blank, for null, stands before all values."""
    text = _text(*part)
    if text is None:
        return None
    if _has_any_length(part.kind):
        # A text that goes on after one like it is the later one, whatever the next part is.
        text = F.concat(
            F.lit("!"), F.replace(text, F.lit(_END), F.lit(_END + _AFTER_EVERY_PART)), F.lit(_END)
        )
    return F.coalesce(text, F.lit(" "))


def _has_any_length(kind: T.DataType) -> bool:
    return isinstance(kind, (*TEXTS, T.BinaryType))


def _text(value: Column, kind: T.DataType) -> Column | None:
    if isinstance(kind, T.StructType):
        parts = [Typed(value.getField(each.name), each.dataType) for each in kind]
        inside = _joined(parts)
        return None if inside is None else F.when(value.isNotNull(), inside)
    if isinstance(kind, T.IntegralType):
        return number_in_order(value)
    if isinstance(kind, T.DecimalType):
        return _decimal(value, kind)
    if is_time(kind):
        instant = as_instant(value, kind)
        assert instant is not None
        return number_in_order(F.unix_micros(instant))
    if isinstance(kind, TEXTS):
        return value.cast("string")
    if isinstance(kind, T.BooleanType):
        return value.cast("int").cast("string")
    return F.lower(F.hex(value)) if isinstance(kind, T.BinaryType) else None


def _decimal(value: Column, kind: T.DecimalType) -> Column:
    """The whole number below, then what is more: that is never negative, and as long in every row."""
    whole = F.floor(value)
    if kind.scale == 0:
        return number_in_order(value)
    more = decimal_text((value - whole).cast(T.DecimalType(38, kind.scale)))
    return F.concat(number_in_order(whole), F.rpad(F.regexp_replace(more, r"^0\.?", ""), kind.scale, "0"))
