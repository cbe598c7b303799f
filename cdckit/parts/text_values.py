"""
Numbers and truth values in JSON and in texts, exactly: functions that make a value of Arrow's types of one.

Each takes a value as `cdckit.parts.json_objects` reads it, or its text, which may have space around it; for a
value that its type cannot hold exactly it raises `Unreadable`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal
from math import inf
from typing import Any

from cdckit.parts.json_objects import plain_text

Read = Callable[[Any], Any]


class Unreadable(ValueError):
    """A value that its type cannot hold."""


def letters(value: Any) -> str:
    """The letters of a text, and of any other value but null its JSON."""
    text = plain_text(value)
    assert text is not None
    return text


_WHOLE = re.compile(r"\s*([+-]?\d{1,40})\s*", re.ASCII)


def whole(bits: int) -> Read:
    """A whole number of so many bits; also one in a text."""
    most = 1 << bits - 1

    def read(value: Any) -> int:
        if value.__class__ is not int:
            match = _WHOLE.fullmatch(letters(value))
            if match is None:
                raise Unreadable
            value = int(match[1])
        if -most <= value < most:
            return value  # type: ignore[no-any-return]
        raise Unreadable

    return read


_FLOAT = re.compile(
    r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)\s*", re.ASCII | re.IGNORECASE
)


_BEYOND = {32: 2.0**128 - 2.0**103, 64: inf}
"""By its bits the first number that is nearer to infinity than to the largest float."""


def floating(bits: int) -> Read:
    """A number as the nearest float of so many bits; also one in a text, an infinity, or NaN."""
    beyond = _BEYOND[bits]

    def read(value: Any) -> float:
        text = letters(value)
        if _FLOAT.fullmatch(text) is None:
            raise Unreadable
        number = float(text)
        if abs(number) >= beyond and "n" not in text.lower():  # no "inf"
            raise Unreadable
        return number

    return read


_BOOLEANS = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(
    ("f", "false", "n", "no", "0"), False
)


def boolean(value: Any) -> bool:
    """A truth value; also the first letter of one, yes and no, and 1 and 0, in a text."""
    if value.__class__ is bool:
        return value
    try:
        return _BOOLEANS[letters(value).strip().lower()]
    except KeyError:
        raise Unreadable from None


_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?\s*", re.ASCII)
EXACT = Context(prec=200)
"""More digits than any decimal of Arrow has, so nothing is rounded."""


def exact_decimal(precision: int, scale: int) -> Read:
    """
    The decimal that a number, or a text, says, digit by digit.

    One that has digits behind the last place, zeros aside, or too many before the point, is not rounded.

    >>> read = exact_decimal(5, 2)
    >>> read("19.90"), read("1E+2"), read(7)
    (Decimal('19.90'), Decimal('100.00'), Decimal('7.00'))
    """
    place, most, zero = Decimal(1).scaleb(-scale), precision - scale, Decimal(0).scaleb(-scale)

    def read(value: Any) -> Decimal:
        text = letters(value)
        if _NUMBER.fullmatch(text) is None:
            raise Unreadable
        number = Decimal(text)
        if not number:
            return zero
        if not -scale <= number.adjusted() < most:
            raise Unreadable
        exact = EXACT.quantize(number, place)
        if exact != number:
            raise Unreadable
        return exact

    return read
