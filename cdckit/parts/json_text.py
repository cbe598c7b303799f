"""JSON text: its values with every digit, its properties and where each stands, and values as such text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import uuid4

_SPACE = re.compile(r"[ \t\n\r]*")

# As a tuple: to look into `dict | list` takes twice the time.
_CONTAINERS = (dict, list)


def refuse_constant(name: str) -> Any:
    """Refuse NaN and the infinities, which Python's reader of JSON would take."""
    raise ValueError(f"{name} is no number of JSON")


class RepeatedName(ValueError):
    """An object has a name twice: of its two values a reader of JSON would drop one without a word."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the name {name!r:.80} comes twice")


def each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """
    The members of an object, for `object_pairs_hook`.

    Raises:
        RepeatedName: A name comes twice.
    """
    values = dict(pairs)
    if len(values) < len(pairs):
        raise RepeatedName(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return values


# What the numbers are is not asked here, so the longest one is no error.
_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_int=float)


def members(
    text: str, decoder: json.JSONDecoder = _DECODER, *, once: bool = False
) -> tuple[dict[str, Any], dict[str, slice]]:
    """
    The properties of the one JSON object that *text* holds: their values, and where these stand in it.

    `json` alone gives the values, and written anew a number may lose digits: what is handed on must be
    the text.  Of a name that comes twice the last counts, as for `json`; with *once* it is an error.

    Raises:
        ValueError: It is no JSON object, or more than one.

    >>> text = '{"a": 1.10, "b": [1.10]}'
    >>> values, places = members(text)
    >>> values, text[places["b"]]
    ({'a': 1.1, 'b': [1.1]}, '[1.10]')
    """
    if text.startswith("\ufeff"):
        raise ValueError("a byte order mark stands before the object")
    if text[_skip_space(text, 0) :][:1] != "{":
        raise ValueError("it is no JSON object" if text.strip() else "it is empty")
    at = _pass_sign(text, 0, "{")
    values: dict[str, Any] = {}
    places: dict[str, slice] = {}
    if text[at : at + 1] != "}":
        while True:
            quote = _skip_space(text, at)
            if text[quote : quote + 1] != '"':
                raise ValueError(f"a name is missing at character {quote}")
            name, at = decoder.raw_decode(text, quote)
            if once and name in values:
                raise RepeatedName(name)
            start = _pass_sign(text, at, ":")
            values[name], at = decoder.raw_decode(text, start)
            places[name] = slice(start, at)
            at = _skip_space(text, at)
            if text[at : at + 1] != ",":
                break
            at = _skip_space(text, at + 1)
    at = _pass_sign(text, at, "}")
    if at != len(text):
        raise ValueError(f"there is more after the object, at character {at}")
    return values, places


def elements(text: str) -> list[slice]:
    """
    Find where the elements of the one JSON array that *text* holds stand in it.

    Raises:
        ValueError: It is no JSON array, or more than one.

    >>> text = '[1.10, [2]]'
    >>> [text[place] for place in elements(text)]
    ['1.10', '[2]']
    """
    at = _pass_sign(text, 0, "[")
    places: list[slice] = []
    while text[at : at + 1] != "]":
        _, end = _DECODER.raw_decode(text, at)
        places.append(slice(at, end))
        at = _skip_space(text, end)
        if text[at : at + 1] != "]":
            at = _pass_sign(text, at, ",")
    if _pass_sign(text, at, "]") != len(text):
        raise ValueError("there is more after the array")
    return places


def _pass_sign(text: str, at: int, needed: str) -> int:
    """Pass the sign that is needed here, and the space around it: where the text goes on."""
    at = _skip_space(text, at)
    if text[at : at + 1] != needed:
        raise ValueError(f"{needed} is missing at character {at}")
    return _skip_space(text, at + 1)


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def as_json(value: Any) -> str:
    """
    A value as JSON text, with every digit of a `Decimal`, which `json` itself refuses.

    Raises:
        TypeError, ValueError, RecursionError: It has no such text.
    """
    return exact_json(value, _digits)


def exact_json(value: Any, number: Callable[[Any], str], **style: Any) -> str:
    """A value as JSON text, what `json` refuses as the *number* that it is; *style* as for `json.dumps`."""
    # Nobody can have put it into a text: it is drawn anew each time.
    mark = f"number {uuid4()} "
    text = json.dumps(value, ensure_ascii=False, default=lambda other: f"{mark}{number(other)}", **style)
    return re.sub(f'"{mark}([^"]*)"', r"\1", text)


def _digits(value: Any) -> str:
    if not isinstance(value, Decimal):
        raise TypeError(f"{type(value).__name__} is no type of JSON")
    return str(value)


def nesting_depth(value: Any) -> int:
    """
    Tell how deep a value is nested: 0 for one that is no array and no object.

    >>> nesting_depth(1), nesting_depth([]), nesting_depth({"a": [1]})
    (0, 1, 2)
    """
    return depth_and_size(value)[0]


def depth_and_size(value: Any) -> tuple[int, int]:
    """
    Tell how deep a value is nested, and how many values it has within it, itself among them.

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


def storable(text: str) -> str:
    """The text with what is half a character written out: no file can hold it otherwise."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
