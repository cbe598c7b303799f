"""A message read by a native parser, where its values are provably those of the exact reader."""

from __future__ import annotations

import re

import msgspec

from cdckit.rdss.reading import Read

_BEGINS = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"messageHeader"[ \t\n\r]*:').match
_BODY = b'"messageBody"'
_SPACE = b" \t\n\r"
_NAMES = 2

# Each hundredth byte of a number with a thousand digits: the exact reader makes no whole number of it.
_EVERY = 100
_MANY_DIGITS = re.compile(rb"[0-9]{9}").search

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def read_natively(value: bytes) -> Read | None:
    """
    What `reading.read` gives for the bytes; None if that cannot be told so quickly, whatever the reason.

    The bytes are cut where the body seems to begin. Two texts that are JSON, between `{"messageHeader":`,
    `, "messageBody":` and `}`, can be the pieces of one object only, so what could be cut was cut rightly.
    The parser takes what the exact reader takes, or less, but for a name that comes twice, of which it
    keeps the last, and for a number of a thousand digits.  A member that was dropped shows in the count of
    quotes: two for its name.

    Cost: about 0.01 milliseconds for 2 KB, half of the exact reader's time.

    >>> read_natively(b'{"messageHeader": {"a": 1}, "messageBody": [1.0]}')
    Read(header={'a': 1}, body=[1.0], body_text='[1.0]')
    >>> read_natively(b'{"messageHeader": {"a": 1, "a": 2}, "messageBody": [1.0]}') is None
    True
    """
    pieces = _cut(value)
    if pieces is None or _MANY_DIGITS(value[::_EVERY]):
        return None
    try:
        header, body = map(_decode, pieces)
        if _quotes(value) != _quotes(_encode((header, body))) + 2 * _NAMES:
            return None
    except (ValueError, RecursionError):
        return None
    return Read(header, body, pieces[1].decode())


def _cut(value: bytes) -> tuple[bytes, bytes] | None:
    """The text of the header and that of the body, if the header comes first."""
    begins = _BEGINS(value)
    name = value.find(_BODY)
    if begins is None or name < 0:
        return None
    comma, colon = value.rfind(b",", 0, name), value.find(b":", name)
    ends = value.rfind(b"}")
    if comma < 0 or colon < 0 or ends < colon:
        return None
    between = value[comma + 1 : name] + value[name + len(_BODY) : colon] + value[ends + 1 :]
    if between.strip(_SPACE):
        return None
    return value[begins.end() : comma], value[colon + 1 : ends].strip(_SPACE)


def _quotes(text: bytes) -> int:
    """How many quotes begin or end the texts of a JSON text: those without a backslash that escapes them."""
    if b"\\" not in text:
        return text.count(b'"')
    escapes = text.replace(b"\\\\", b"")
    return escapes.count(b'"') - escapes.count(b'\\"')
