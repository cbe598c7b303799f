"""A JSON object's properties, and where the text of each stands as it was written."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any
from uuid import uuid4

_SPACE = re.compile(r"[ \t\n\r]*")


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


# What the numbers are is not asked here, so the longest one is no error.
_DECODER = json.JSONDecoder(parse_constant=_refused, parse_int=float)


def members(text: str) -> tuple[dict[str, Any], dict[str, slice]]:
    """
    The properties of the one JSON object that *text* holds: their values, and where these stand in it.

    `json` alone gives the values, and written anew a number may lose digits: what is handed on must be
    the text.  Of a name that comes twice the last counts, as for `json`.

    Raises:
        ValueError: It is no JSON object, or more than one.

    >>> text = '{"a": 1.10, "b": [1.10]}'
    >>> values, places = members(text)
    >>> values, text[places["b"]]
    ({'a': 1.1, 'b': [1.1]}, '[1.10]')
    """
    if text.startswith("\ufeff"):
        raise ValueError("a byte order mark stands before the object")
    if text[_skipped(text, 0) :][:1] != "{":
        raise ValueError("it is no JSON object" if text.strip() else "it is empty")
    at = _past(text, 0, "{")
    values: dict[str, Any] = {}
    places: dict[str, slice] = {}
    if text[at : at + 1] != "}":
        while True:
            quote = _skipped(text, at)
            if text[quote : quote + 1] != '"':
                raise ValueError(f"a name is missing at character {quote}")
            name, at = _DECODER.raw_decode(text, quote)
            start = _past(text, at, ":")
            values[name], at = _DECODER.raw_decode(text, start)
            places[name] = slice(start, at)
            at = _skipped(text, at)
            if text[at : at + 1] != ",":
                break
            at = _skipped(text, at + 1)
    at = _past(text, at, "}")
    if at != len(text):
        raise ValueError(f"there is more after the object, at character {at}")
    return values, places


def _past(text: str, at: int, needed: str) -> int:
    """Where the text goes on behind the sign that is needed here, and the space around it."""
    at = _skipped(text, at)
    if text[at : at + 1] != needed:
        raise ValueError(f"{needed} is missing at character {at}")
    return _skipped(text, at + 1)


def _skipped(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def as_json(value: Any) -> str:
    """
    A value as JSON text, with every digit of a `Decimal`, which `json` itself refuses.

    Raises:
        TypeError, ValueError, RecursionError: It has no such text.
    """
    # Nobody can have put it into a text: it is drawn anew each time.
    mark = f"number {uuid4()} "

    def marked(value: Any) -> str:
        if not isinstance(value, Decimal):
            raise TypeError(f"{type(value).__name__} is no type of JSON")
        return f"{mark}{value}"

    text = json.dumps(value, ensure_ascii=False, default=marked)
    return re.sub(f'"{mark}([^"]*)"', r"\1", text)


def storable(text: str) -> str:
    """The text with what is half a character written out: no file can hold it otherwise."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
