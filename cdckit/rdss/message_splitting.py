"""RDSS, "Multi-Message Sequence": a message that is too large, cut into several."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cdckit.errors import InvalidArgument
from cdckit.rdss.reading import RULES, ParsedMessage, Rules, Unreadable, parse_message

_LEAST_ROOM = 16


def split(value: bytes, *, rules: Rules = RULES) -> list[bytes]:
    """
    The messages in which a message can be sent that may be larger than the limit.

    A message that fits is its own only part, as it came.  Otherwise the text of its body is cut by its bytes
    in UTF-8, never inside a character or an escape, so that each part, whose body is a piece as a JSON text,
    is within the limit with its header and braces.  The parts have the header of the message: its sequence,
    their position and total, and ids of their own; the first keeps the id of the message, so that whoever
    puts them together finds it.  The same message is always cut into the same parts, ids included.

    Args:
        value: The message: its header has a `messageId` and a `messageSequence`.
        rules: The limits.

    Raises:
        InvalidArgument: *value* is no message, or its header leaves no room for a body.

    Source:
        RDSS, "Multi-Message Sequence"; by bytes rather than by characters, as the limit is of bytes.

    >>> header = {"messageId": "m1", "messageSequence": {"sequence": "s1", "position": 1, "total": 1}}
    >>> value = json.dumps({"messageHeader": header, "messageBody": {"title": "é" * 30}}).encode()
    >>> parts = split(value, rules=Rules(max_bytes=200))
    >>> len(parts), max(map(len, parts)) <= 200, json.loads(parts[0])["messageBody"][:10]
    (6, True, '{"title": ')
    """
    message = _read_whole(value, rules)
    if len(value) <= rules.max_bytes:
        return [value]
    escaped = json.dumps(message.body_text, ensure_ascii=False)[1:-1].encode()
    digits = 1
    while True:
        widest = 10**digits - 1
        room = rules.max_bytes - len(_part(message.header, widest, widest, b""))
        if room < _LEAST_ROOM:
            needed = f"a message whose header leaves room for a body in {rules.max_bytes:,} bytes"
            raise InvalidArgument("split", "value", needed, f"a header with {-room:,} bytes too many")
        pieces = list(_pieces(escaped, room))
        if len(pieces) <= widest:
            break
        digits += 1
    return [_part(message.header, place, len(pieces), piece) for place, piece in enumerate(pieces, 1)]


def _read_whole(value: bytes, rules: Rules) -> ParsedMessage:
    try:
        message = parse_message(value, replace(rules, max_bytes=len(value)))
    except Unreadable as refused:
        raise InvalidArgument("split", "value", "a message", refused.finding.description) from None
    header = message.header
    if not isinstance(header, dict) or not isinstance(header.get("messageSequence"), dict):
        raise InvalidArgument("split", "value", "a message with a header that has a messageSequence", header)
    return message


def _part(header: Mapping[str, Any], position: int, total: int, piece: bytes) -> bytes:
    sequence = {**header["messageSequence"], "position": position, "total": total}
    message_id = header.get("messageId") if position == 1 else _part_id(header, position)
    header_text = json.dumps(
        {**header, "messageId": message_id, "messageSequence": sequence}, ensure_ascii=False
    )
    return b'{"messageHeader": %b, "messageBody": "%b"}' % (header_text.encode(), piece)


def _part_id(header: Mapping[str, Any], position: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{header.get('messageId')} {position}"))


def _pieces(text: bytes, room: int) -> Iterator[bytes]:
    """The inside of a JSON text in pieces of at most *room* bytes, none of which ends in a character."""
    start = 0
    while start < len(text):
        end = min(start + room, len(text))
        while end < len(text) and text[end] & 0b1100_0000 == 0b1000_0000:
            end -= 1  # what would come next goes on with a character
        end -= _open_escape(text[start:end])
        yield text[start:end]
        start = end


def _open_escape(piece: bytes) -> int:
    """Count the bytes at the end of a piece that begin an escape which is not over; JSON text has two."""
    backslashes = len(piece) - len(piece.rstrip(b"\\"))
    return backslashes % 2
