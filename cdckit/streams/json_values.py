"""JSON documents as Python values and back: every digit is kept, and what would not end is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec

from cdckit.parts.json_text import RepeatedName, each_name_once, exact_json, storable

DEEPEST = 100
"""How deep a document may be nested."""


def read(text: str) -> Any:
    """
    The value of a JSON text: fractions as decimals.

    Raises:
        ValueError: It is no JSON, nested too deep for Python's reader, or has a number beyond what decimals
            hold, or of more than 4,300 digits.

    >>> read('{"a": 1.10}')
    {'a': Decimal('1.10')}
    """
    try:
        # The same value as the other's, in a fifth of the time.
        return _QUICK_READER(text)
    except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
        return read_strictly(text)  # no JSON, or half a character: the other tells them apart


def read_strictly(text: str) -> Any:
    """
    Read a JSON text as `read` does, for text of others: an object in which a name comes twice is an error.

    Raises:
        ValueError: As `read`; or a name comes twice.
    """
    try:
        return _EXACT_READER(text)
    except (json.JSONDecodeError, RepeatedName):
        raise
    except RecursionError:
        raise ValueError("nested too deep") from None
    except (ValueError, ArithmeticError):
        raise ValueError("a number is out of range") from None


def _refuse_constant(name: str) -> Any:
    raise json.JSONDecodeError(f"{name} is no number of JSON", name, 0)


_QUICK_READER = msgspec.json.Decoder(float_hook=Decimal).decode
# Made once: `json.loads` with these options would make one for every text.
_EXACT_READER = json.JSONDecoder(
    parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=each_name_once
).decode


def to_text(value: Any) -> str:
    """
    A value as compact JSON text.  Half a character, which only an escape can spell, is spelled so again.

    >>> to_text({"a": Decimal("1.10"), "b": None})
    '{"a":1.10,"b":null}'
    """
    try:
        # The same text as the other's, in a fifth of the time.
        return _QUICK_WRITER(value).decode()
    except (TypeError, ValueError):  # half a character
        # No document of ours holds itself: what is changed is copied.
        return exact_json(value, str, separators=(",", ":"), check_circular=False)


_QUICK_WRITER = msgspec.json.Encoder(decimal_format="number").encode


def column_text(text: str | None) -> str | None:
    """The text as a column can hold it: half a character is written out."""
    return text if text is None or text.isascii() else storable(text)


def same(first: Any, second: Any) -> bool:
    """
    Compare two JSON values: numbers by their value, objects in any order, true is no 1.

    >>> same([1, {"a": None}], [Decimal("1.0"), {"a": None}]), same(True, 1)
    (True, False)
    """
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(value, second[key]) for key, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)
