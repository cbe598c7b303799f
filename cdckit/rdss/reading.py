"""From bytes to the header and the body of a message, whatever the bytes are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from cdckit.parts.json_text import members
from cdckit.rdss.codes import RdssFault
from cdckit.rdss.findings import BODY, HEADER, Finding, Path, found, shown
from cdckit.rdss.rules import Rules

DEEPEST = 100
"""How deep a message may be nested: ten times what the schemas have room for."""

_MOST_DIGITS = 4300
_LARGEST: int = 10**_MOST_DIGITS - 1


class Read(NamedTuple):
    """A message that is well-formed: its header and body as they came, and the text of the body."""

    header: Any
    body: Any
    body_text: str


class Unreadable(Exception):
    """The bytes hold no message."""

    def __init__(self, finding: Finding, header: object = None) -> None:
        self.finding, self.header = finding, header
        super().__init__(finding)


def read(value: bytes | None, rules: Rules) -> Read:
    """
    The message that the bytes hold.

    Raises:
        Unreadable: There are none, or too many; or they are not UTF-8, not JSON (in which no object has a
            name twice, no text half a character, and NaN is no number), no object, or an object without a
            header or a body, or with more than these.

    Cost: one pass of Python's own reader; of bytes over the limit nothing is looked at.
    """
    if value is None:
        raise Unreadable(found(RdssFault.MALFORMED, (), "the record has no value."))
    if len(value) > rules.max_bytes:
        many = f"{len(value):,} bytes are more than {rules.max_bytes:,}."
        raise Unreadable(found(RdssFault.SYSTEM_FAILED, (), many))
    try:
        text = value.decode()
        usual = _usual(text)
        if usual is not None:
            return usual
        values, places = members(text, _STRICT, once=True)
    except (ValueError, RecursionError) as error:
        raise Unreadable(_malformed(value, error)) from None
    header = values.get(*HEADER)
    if "\\u" in text:
        _require_characters(values, header)
    if values.keys() != {*HEADER, *BODY}:
        raise Unreadable(_incomplete(values), header)
    return Read(header, values["messageBody"], text[places["messageBody"]])


_BEFORE_HEADER = re.compile(r'[ \t\n\r]*\{[ \t\n\r]*"messageHeader"[ \t\n\r]*:[ \t\n\r]*')
_BEFORE_BODY = re.compile(r'[ \t\n\r]*,[ \t\n\r]*"messageBody"[ \t\n\r]*:[ \t\n\r]*')
_BEHIND = re.compile(r"[ \t\n\r]*\}[ \t\n\r]*")


def _usual(text: str) -> Read | None:
    """A message whose header comes first, and no escape of a character: nothing has to be searched for."""
    begins = _BEFORE_HEADER.match(text)
    if begins is None or "\\u" in text:
        return None
    header, at = _STRICT.raw_decode(text, begins.end())
    goes_on = _BEFORE_BODY.match(text, at)
    if goes_on is None:
        return None
    body, end = _STRICT.raw_decode(text, goes_on.end())
    if _BEHIND.fullmatch(text, end) is None:
        return None
    return Read(header, body, text[goes_on.end() : end])


def deepest(value: object) -> int:
    """
    How deep a value is nested: 0 for one that is no list and no object.

    >>> deepest("a"), deepest([]), deepest({"a": [1]})
    (0, 1, 2)
    """
    depth, level = 0, [value]
    while containers := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [inner for each in containers for _, inner in _inside(each)]
    return depth


def places(value: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value inside *value*, with the path to it; itself first."""
    waiting = [(path, value)]
    while waiting:
        at, each = waiting.pop()
        yield at, each
        waiting += [((*at, step), inner) for step, inner in _inside(each)]


def _inside(value: object) -> list[tuple[str | int, Any]]:
    if isinstance(value, _Pairs | dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


class _Twice(ValueError):
    """An object has a name twice."""


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, those with one name all of them."""

    def items(self) -> list[tuple[str, Any]]:
        return self


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Twice
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _whole_number(text: str) -> int:
    # Python refuses to make a number of more digits, and would take minutes for a million; it is one still.
    digits = text.lstrip("-")
    if len(digits) <= _MOST_DIGITS:
        return int(text)
    return -_LARGEST if text.startswith("-") else _LARGEST


_STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_whole_number)
_ANY = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_no_constant, parse_int=float)


def _malformed(value: bytes, error: Exception) -> Finding:
    path: Path = ()
    if isinstance(error, _Twice):
        try:
            path, name = _first_twice(value.decode())
        except (ValueError, RecursionError) as another:
            return _malformed(value, another)
        sentence = f"the name {shown(name)} comes twice."
    elif isinstance(error, UnicodeDecodeError):
        sentence = f"byte {error.start} is not UTF-8."
    elif isinstance(error, RecursionError):
        sentence = f"it is nested deeper than {DEEPEST} levels."
    elif _is_json(value):
        return found(RdssFault.INVALID_HEADER, (), "the message is no object, so it has no header.")
    else:
        sentence = f"{shown_error(error)}."
    return found(RdssFault.MALFORMED, path, sentence)


def shown_error(error: Exception) -> str:
    """What Python's reader says, without lines and columns: messages have one line."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:].removesuffix(' at')} at character {error.pos}"
    return str(error)


def _is_json(value: bytes) -> bool:
    text = value.decode()
    if text.startswith("\ufeff"):
        return False
    try:
        return not isinstance(_STRICT.decode(text), dict)
    except (ValueError, RecursionError):
        return False


def _first_twice(text: str) -> tuple[Path, str]:
    for path, each in places(_ANY.decode(text)):
        if isinstance(each, _Pairs):
            names = [name for name, _ in each]
            for name in names:
                if names.count(name) > 1:
                    return path, name
    raise AssertionError("no object has a name twice")


def _require_characters(values: dict[str, Any], header: object) -> None:
    """Refuse texts, and names of fields, with half a character, which only an escape can spell."""
    for path, each in places(values):
        names = list(each) if isinstance(each, dict) else []
        for text in [each, *names] if isinstance(each, str) else names:
            try:
                text.encode()
            except UnicodeEncodeError:
                finding = found(RdssFault.MALFORMED, path, f"{shown(text)} holds half a character.")
                raise Unreadable(finding) from None


def _incomplete(values: dict[str, Any]) -> Finding:
    for name, code in ((*HEADER, RdssFault.INVALID_HEADER), (*BODY, RdssFault.INVALID_BODY)):
        if name not in values:
            return found(code, (), f"the field {name} is missing.")
    unknown = sorted(values.keys() - {*HEADER, *BODY})[0]
    return found(RdssFault.INVALID_BODY, (), f"the field {shown(unknown)} is not known here.")
