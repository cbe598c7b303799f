"""The values of an object's fields, from the text of a message's body."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from cdckit.rdss.object_types import NESTED


def object_reader() -> Callable[[str], dict[str, Any]]:
    """
    What makes the values of an object's fields of the text of a body.

    A nested value is JSON text in one form, whatever the message had: no space between its parts, names in
    their order, no sign escaped that needs it not, and every number in the digits that were sent.  So an
    object that is sent anew by another program has no other values.

    >>> read = object_reader()
    >>> read('{"objectTitle": "A", "coverage": { "b": 1.10, "a": [] } }')
    {'objectTitle': 'A', 'coverage': '{"a":[],"b":1.10}'}
    """
    # Nobody can have put it into a text: it is drawn anew for each reader.
    mark = f"number {uuid4()} "
    decoder = json.JSONDecoder(parse_int=mark.__add__, parse_float=mark.__add__)
    write = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
    marked = re.compile(f'"{mark}([^"]*)"')

    def values(body: str) -> dict[str, Any]:
        found: dict[str, Any] = decoder.decode(body)
        for name in found.keys() & NESTED:
            text = write(found[name])
            found[name] = marked.sub(r"\1", text) if mark in text else text
        return found

    return values
