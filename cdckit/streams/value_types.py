"""The types that schema learning knows: that of a value, and that of several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from cdckit.parts.instants import instant
from cdckit.streams.paths import step_text

STRING, BOOLEAN, INTEGER, LONG, DOUBLE = "STRING", "BOOLEAN", "INTEGER", "LONG", "DOUBLE"
BIG_INTEGER, DECIMAL, TIMESTAMP, UUID, DOCUMENT = "BIG_INTEGER", "DECIMAL", "TIMESTAMP", "UUID", "DOCUMENT"

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WIDER = {frozenset((INTEGER, LONG)): LONG, frozenset((INTEGER, DOUBLE)): DOUBLE}
_SHORTEST_INSTANT = len("2024-01-01T10:00Z")


def type_of(value: Any) -> str | None:
    """
    The type of a JSON value; None for null, which is of every type.

    An array is a STRING: the page's types have none for it.

    >>> [type_of(each) for each in (1, 2**40, 2**70, Decimal("0.5"), "2024-01-01T10:00:00Z", "x", {}, None)]
    ['INTEGER', 'LONG', 'BIG_INTEGER', 'DOUBLE', 'TIMESTAMP', 'STRING', 'DOCUMENT', None]
    """
    if value is None or isinstance(value, bool):
        return None if value is None else BOOLEAN
    if isinstance(value, int):
        bits = (value if value >= 0 else ~value).bit_length()
        return INTEGER if bits < 32 else LONG if bits < 64 else BIG_INTEGER
    if isinstance(value, Decimal):
        return DOUBLE if Decimal(repr(float(value))) == value else DECIMAL
    if isinstance(value, str):
        if _UUID.fullmatch(value):
            return UUID
        is_instant = len(value) >= _SHORTEST_INSTANT and instant(value) is not None
        return TIMESTAMP if is_instant else STRING
    return DOCUMENT if isinstance(value, dict) else STRING


def common_type(types: Iterable[str]) -> str:
    """
    The one type of a field that was of these: a matter of the set, not of the order.

    >>> common_type(["LONG", "INTEGER"]), common_type(["INTEGER", "DOUBLE", "LONG"]), common_type([])
    ('LONG', 'STRING', 'STRING')
    """
    found = frozenset(types)
    return next(iter(found)) if len(found) == 1 else _WIDER.get(found, STRING)


def typed_paths(document: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """
    The fields of a document with their types, nested ones under the path to them.

    >>> dict(typed_paths({"phone": {"home": "1"}, "age": 3}))
    {'phone': 'DOCUMENT', 'age': 'INTEGER', 'phone/home': 'STRING'}
    """
    inside = [("", document)]
    while inside:
        before, holder = inside.pop(0)
        for name, value in holder.items():
            path = before + step_text(name)
            yield path, type_of(value)
            if isinstance(value, dict):
                inside.append((f"{path}/", value))
