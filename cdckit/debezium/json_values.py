"""JSON text to columns, with every digit of its numbers."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

_STRICT = {"allowSingleQuotes": "false"}

_LONG = r"(?<=\d{8}\.)\d|\d{8}|000|\d+0(?!\d)|\d+[eE]"
MAY_BE_CUT = rf"[.eE](?:(?<=\.)(?:{_LONG})|(?<=\d[eE])[-+]?\d)"
"""Of what a double does not write as it stands: many digits, zeros behind the last one, an exponent."""
MANY_DIGITS = r"[.eE](?:(?<=\.)(?:(?<=\d{8}\.)\d|\d{8})|(?<=\d{8}[eE])[-+]?\d|(?<=\d[eE])[-+]?\d{3})"
"""Of what may have more digits than a double, or be beyond all of them."""

# Possessive throughout: the JVM would keep a place on its stack for each turn of any other loop.
_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OTHER = rf'[^"\d-]*+(?:(?:{_TEXT}|-(?!\d)|-?(?:0|[1-9]\d*+)(?![\d.eE]))[^"\d-]*+)*+'
_NUMBER = r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?(?=\s*+[,}\]])"
_NEXT_NUMBER = rf"\G({_OTHER})({_NUMBER})"
"""All up to the next number that is no whole one, and that number; never within a text."""
_NO_NUMBER = rf'[^"\dt-]*+(?:(?:{_TEXT}|-(?!\d)|-0(?![\d.eE]))[^"\dt-]*+)*+'
_ANY_NUMBER = rf"\G({_NO_NUMBER})({_NUMBER}|true)"
"""
The same of every number; but a zero below zero is left to the reader, which makes it plain.

And of `true`, the one other word of JSON that may be Base64.
"""

_MARK = "\ufdd0\ufdd1"
"""Before a number that is written as a text: Unicode leaves these two to programs' own use."""
_MARKED = rf'"?{_MARK}([-+.0-9eE]++|true)"?'


def _itself(text: Column) -> Column:
    return text


def read_quickly(text: Column, kind: T.DataType, *, chosen: Callable[[Column], Column]) -> Column:
    """As `read_json`; of a number that becomes a text, the digits that its double has."""
    return F.from_json(chosen(text), kind.json(), _STRICT)


def read_json(text: Column, kind: T.DataType, *, chosen: Callable[[Column], Column]) -> Column:
    """
    What JSON text says, whose numbers stay as they were written where the type has a text.

    Spark's reader makes a double of a fraction before it makes a text of it, so what a double would change
    is written as a text, with a mark before it, and the mark is taken away behind the reader.

    Args:
        text: The text; null where it is none.
        kind: The type that is read.
        chosen: What of the text is read, as JSON text.
    """
    marked = F.regexp_replace(text, _NEXT_NUMBER, f'$1"{_MARK}$2"')
    return F.when(
        text.rlike(MAY_BE_CUT), _unmarked(read_quickly(marked, kind, chosen=chosen), kind)
    ).otherwise(read_quickly(text, kind, chosen=chosen))


def read_marked(text: Column, kind: T.DataType, *, chosen: Callable[[Column], Column] = _itself) -> Column:
    """What JSON text says, each number and `true` as a text with a mark, for `digits` or for `pointed`."""
    marked = F.regexp_replace(text, _ANY_NUMBER, f'$1"{_MARK}$2"')
    return read_quickly(marked, kind, chosen=chosen)


def digits(value: Column) -> Column:
    """A text that was read with marks, without them: numbers are as they were written."""
    plain = F.regexp_replace(value, _MARKED, "$1")
    return F.when(F.contains(value, F.lit(_MARK)), plain).otherwise(value)


def pointed(value: Column) -> Column:
    """As `digits`; but a whole number and `true` have a point behind them, which no Base64 has."""
    return digits(F.regexp_replace(value, rf"^{_MARK}(\d++|true)(?!\.)", "$1."))


def without_point(text: Column) -> Column:
    """A text as it was sent, without the point that `pointed` gave it."""
    return F.regexp_replace(text, r"\.(?!\d)", "")


def _unmarked(value: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.StringType):
        return digits(value)
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda each: _unmarked(each, kind.elementType))
    if isinstance(kind, T.MapType):
        return F.transform_values(value, lambda name, each: _unmarked(each, kind.valueType))
    if isinstance(kind, T.StructType):
        fields = (_unmarked(value[each.name], each.dataType).alias(each.name) for each in kind)
        return F.when(value.isNotNull(), F.struct(*fields))
    return value
