"""JSON documents as Python values and back: every digit is kept, and what would not end is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec

from cdckit.parts.json_text import exact_json, storable

DEEPEST = 100
"""How deep a document may be nested."""

# As a tuple: to look into `dict | list` takes twice the time.
_CONTAINERS = (dict, list)


class NoSuchText(ValueError):
    """A value has no JSON text: a number beyond what decimals hold."""


class OutOfRange(ValueError):
    """A text is JSON; a number in it is beyond what decimals hold, or has more than 4,300 digits."""


class FarNumber:
    """
    A number of JSON that is beyond what decimals hold, or has more than 4,300 digits, as it came.

    >>> str(FarNumber("1e99999999999999999999"))
    'a number out of range'
    """

    # No dataclass: the quick writer would write one as an object.
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"FarNumber(text={self.text!r})"

    def __str__(self) -> str:
        return "a number out of range"


def read(text: str) -> Any:
    """
    The value of a JSON text: fractions as decimals.

    Raises:
        OutOfRange: It has a number beyond what decimals hold, or of more than 4,300 digits.
        ValueError: It is no JSON, or nested too deep for Python's reader.

    >>> read('{"a": 1.10}')
    {'a': Decimal('1.10')}
    """
    try:
        # The same value as the other's, in a fifth of the time.
        return _QUICK_READER(text)
    except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
        return _read_by(_EXACT, text)  # no JSON, a far number, half a character: the other tells them apart


def _read_by(reader: Callable[[str], Any], text: str) -> Any:
    try:
        return reader(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError("nested too deep") from None
    except (ValueError, ArithmeticError):
        raise OutOfRange("a number is out of range") from None


def read_all(text: str) -> Any:
    """
    The value of a JSON text, as `read` gives it; a number that it would refuse is a `FarNumber`.

    Raises:
        ValueError: It is no JSON, or nested too deep for Python's reader.

    >>> read_all('[1.10, 1e99999999999999999999]')
    [Decimal('1.10'), FarNumber(text='1e99999999999999999999')]
    """
    try:
        return read(text)
    except OutOfRange:
        return _read_by(_FAR, text)


def _number(text: str, kind: type[int] | type[Decimal]) -> Any:
    try:
        return kind(text)
    except (ValueError, ArithmeticError):
        return FarNumber(text)


def _refuse_constant(name: str) -> Any:
    raise json.JSONDecodeError(f"{name} is no number of JSON", name, 0)


_QUICK_READER = msgspec.json.Decoder(float_hook=Decimal).decode
# Made once: `json.loads` with these options would make one for every text.
_EXACT = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant).decode
_FAR = json.JSONDecoder(
    parse_float=partial(_number, kind=Decimal),
    parse_int=partial(_number, kind=int),
    parse_constant=_refuse_constant,
).decode


def to_text(value: Any) -> str:
    """
    A value as compact JSON text.  Half a character, which only an escape can spell, is spelled so again.

    Raises:
        NoSuchText: A number is beyond what decimals hold.

    >>> to_text({"a": Decimal("1.10"), "b": None})
    '{"a":1.10,"b":null}'
    """
    return _to_text(value, far=False)


def to_text_all(value: Any) -> str:
    """
    A value that `read_all` gave as compact JSON text: a `FarNumber` is written as it came.

    >>> to_text_all(read_all('[1e99999999999999999999]'))
    '[1e99999999999999999999]'
    """
    return _to_text(value, far=True)


def _to_text(value: Any, *, far: bool) -> str:
    try:
        # The same text as the others', in a fifth of the time.
        return _QUICK(value).decode()
    except (TypeError, ValueError):
        pass  # a far number, half a character, or a number of too many digits
    try:
        return _PLAIN(value)
    except TypeError:
        return _to_exact_text(value, far=far)
    except ValueError as error:
        raise NoSuchText("a number is out of range") from error


def _to_exact_text(value: Any, *, far: bool) -> str:
    def digits(number: Any) -> str:
        if far and isinstance(number, FarNumber):
            return number.text
        if not isinstance(number, Decimal) or not number.is_finite():
            raise NoSuchText("a number is out of range")
        return str(number)

    return exact_json(value, digits, separators=(",", ":"), check_circular=False)


_QUICK = msgspec.json.Encoder(decimal_format="number").encode
# No document of ours holds itself: what is changed is copied.
_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def column_text(text: str | None) -> str | None:
    """The text as a column can hold it: half a character is written out."""
    return text if text is None or text.isascii() else storable(text)


def depth(value: Any) -> int:
    """
    How deep a value is nested: 0 for one that is no array and no object.

    >>> depth(1), depth([]), depth({"a": [1]})
    (0, 1, 2)
    """
    return depth_and_size(value)[0]


def depth_and_size(value: Any) -> tuple[int, int]:
    """
    How deep a value is nested, and how many values it has within it, itself among them.

    >>> depth_and_size(1), depth_and_size({"a": [1]})
    ((0, 1), (2, 3))
    """
    deep, many, level = 0, 1, [value]
    while containers := [inner for inner in level if isinstance(inner, _CONTAINERS)]:
        deep += 1
        level = [
            inner for outer in containers for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        many += len(level)
    return deep, many


def same(first: Any, second: Any) -> bool:
    """
    Whether two JSON values are equal: numbers by their value, objects in any order, true is no 1.

    >>> same([1, {"a": None}], [Decimal("1.0"), {"a": None}]), same(True, 1)
    (True, False)
    """
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(value, second[key]) for key, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)
