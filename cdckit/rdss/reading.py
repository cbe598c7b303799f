"""From bytes to the header and body of a message, whatever the bytes are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cdckit.parts.json_text import RepeatedName, each_name_once, members, refuse_constant
from cdckit.rdss.findings import BODY, HEADER, Finding, Path, RdssFault, make_finding, show_value


@dataclass(frozen=True)
class Rules:
    """
    The limits that messages are validated against.

    Args:
        max_bytes: The most bytes of a serialised message; 1000KB, as the text counts them.
        max_whole_bytes: The most bytes of a message that is sent in parts, or put together of them: a limit
            of ours, since the text has none.
        checksum_form: Whether a checksum must have the form of its type: 32 hexadecimal digits for md5, 64
            for sha256.  The published schemas take any text, and their examples hold one that is none.

    Source:
        RDSS, "Message Structure", "Multi-Message Sequence", "Metadata Error Codes".

    >>> Rules(), Rules(checksum_form=False).checksum_form
    (Rules(max_bytes=1000000, max_whole_bytes=100000000, checksum_form=True), False)
    """

    max_bytes: int = 1_000_000
    max_whole_bytes: int = 100_000_000
    checksum_form: bool = True


RULES = Rules()
"""The limits as the specification has them; that of a whole message is ours."""


DEEPEST = 100
"""How deep a message may be nested: ten times what the schemas have room for."""

_MOST_DIGITS = 4300
_LARGEST: int = 10**_MOST_DIGITS - 1


class ParsedMessage(NamedTuple):
    """A message that is well-formed: its header and body as they came, and the text of the body."""

    header: Any
    body: Any
    body_text: str


class Unreadable(Exception):
    """The bytes hold no message."""

    def __init__(self, finding: Finding, header: object = None) -> None:
        self.finding, self.header = finding, header
        super().__init__(finding)


def parse_message(value: bytes | None, rules: Rules) -> ParsedMessage:
    """
    The message that the bytes hold.

    Raises:
        Unreadable: There are none, or too many; or they are not UTF-8, not JSON (in which no object has a
            name twice, no text half a character, and NaN is no number), no object, or an object without a
            header or a body, or with more than these.

    Cost: one pass of Python's own parser; of bytes over the limit nothing is looked at.
    """
    if value is None:
        raise Unreadable(make_finding(RdssFault.MALFORMED, (), "the record has no value."))
    if len(value) > rules.max_bytes:
        many = f"{len(value):,} bytes are more than {rules.max_bytes:,}."
        raise Unreadable(make_finding(RdssFault.SYSTEM_FAILED, (), many))
    try:
        text = value.decode()
        values, places = members(text, _STRICT, once=True)
    except (ValueError, RecursionError) as error:
        raise Unreadable(_malformed_finding(value, error)) from None
    header = values.get(*HEADER)
    if "\\u" in text:
        _require_characters(values)
    if values.keys() != {*HEADER, *BODY}:
        raise Unreadable(_incomplete(values), header)
    return ParsedMessage(header, values["messageBody"], text[places["messageBody"]])


def walk_values(value: object) -> Iterator[tuple[Path, Any]]:
    """Every value inside *value*, with the path to it; itself first."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        at, inner_value = waiting.pop()
        yield at, inner_value
        waiting += [((*at, step), inner) for step, inner in _children(inner_value)]


def _children(value: object) -> list[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _whole_number(text: str) -> int:
    # Python refuses to make a number of more digits, and would take minutes for a million; it is one still.
    digits = text.lstrip("-")
    if len(digits) <= _MOST_DIGITS:
        return int(text)
    return -_LARGEST if text.startswith("-") else _LARGEST


_STRICT = json.JSONDecoder(
    object_pairs_hook=each_name_once, parse_constant=refuse_constant, parse_int=_whole_number
)


def _malformed_finding(value: bytes, error: Exception) -> Finding:
    path: Path = ()
    if isinstance(error, RepeatedName):
        try:
            path, name = _first_twice(value.decode())
        except (ValueError, RecursionError) as another:
            return _malformed_finding(value, another)
        sentence = f"the name {show_value(name)} comes twice."
    elif isinstance(error, UnicodeDecodeError):
        sentence = f"byte {error.start} is not UTF-8."
    elif isinstance(error, RecursionError):
        sentence = f"it is nested deeper than {DEEPEST} levels."
    elif _is_json(value):
        return make_finding(RdssFault.INVALID_HEADER, (), "the message is no object, so it has no header.")
    else:
        sentence = f"{error_text(error)}."
    return make_finding(RdssFault.MALFORMED, path, sentence)


def error_text(error: Exception) -> str:
    """Say what Python's reader says, without lines and columns: messages have one line."""
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
    """Read a text once more: where it has an object with a name twice, and the name."""
    repeats = dict[int, tuple[dict[str, Any], str]]()

    def note_repeat(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict[str, Any]()
        for name, value in pairs:
            if name in members:
                repeats.setdefault(id(members), (members, name))
            members[name] = value
        return members

    decoder = json.JSONDecoder(object_pairs_hook=note_repeat, parse_constant=refuse_constant, parse_int=float)
    for path, value in walk_values(decoder.decode(text)):
        if id(value) in repeats:
            return path, repeats[id(value)][1]
    raise AssertionError("no object has a name twice")


def _require_characters(values: dict[str, Any]) -> None:
    """Refuse texts, and names of fields, with half a character, which only an escape can spell."""
    for path, inner_value in walk_values(values):
        names = list(inner_value) if isinstance(inner_value, dict) else []
        for text in [inner_value, *names] if isinstance(inner_value, str) else names:
            try:
                text.encode()
            except UnicodeEncodeError:
                finding = make_finding(
                    RdssFault.MALFORMED, path, f"{show_value(text)} holds half a character."
                )
                raise Unreadable(finding) from None


def _incomplete(values: dict[str, Any]) -> Finding:
    for name, code in ((*HEADER, RdssFault.INVALID_HEADER), (*BODY, RdssFault.INVALID_BODY)):
        if name not in values:
            return make_finding(code, (), f"the field {name} is missing.")
    unknown = sorted(values.keys() - {*HEADER, *BODY})[0]
    return make_finding(RdssFault.INVALID_BODY, (), f"the field {show_value(unknown)} is not known here.")


def whole_header(first: Mapping[str, Any]) -> dict[str, Any]:
    """The header of the message whose first part has the header *first*."""
    return {**first, "messageSequence": {**first["messageSequence"], "position": 1, "total": 1}}
