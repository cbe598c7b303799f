"""Records that were erased within the data of a message: a mark stays, so that all others count as before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.json_text import elements, members

MARK = "cdckit.erased"
"""The one property of what stands in the place of a record that was erased: `Inside`."""

Inside = int | dict[str, int]
"""How many records are inside one: for every mapping that reads it, or by mapping where these differ."""

_MASKED = f'{{"{MARK}": '
_WORD = "".join(f"(?:{re.escape(character)}|\\\\u00(?i:{ord(character):x}))" for character in MARK)
_PROPERTY = re.compile(f'"{_WORD}"\\s*:')

Tree = dict[int | str, Any]
"""By step of a path what is to be done below, or the mark that stands in the place of a record that goes."""


def count_inside(record: Any, mapping: str) -> int | None:
    """Count the records that were inside one that was erased, for a *mapping*; None for any other record."""
    if not isinstance(record, dict) or record.keys() != {MARK}:
        return None
    inside: Inside = record[MARK]
    # A mapping of another schema must not give the numbers of those inside to others.
    return inside if isinstance(inside, int) else inside.get(mapping, max(inside.values()))


def is_masked(data: str | None) -> bool:
    """Tell whether something was erased of the data of a message, which had no mark when it came."""
    return data is not None and _MASKED in data


def are_masked(texts: pa.Array) -> bool:
    """Tell whether something was erased of any of these texts."""
    return bool(pc.any(pc.match_substring(texts, _MASKED)).as_py())


def require_no_mark(data: str) -> None:
    """Raise `ValueError` where a sender has written the mark, however its characters are written."""
    if (MARK in data or "\\u00" in data) and _PROPERTY.search(data):
        raise ValueError(f"{MARK!r} stands in the place of what was erased; no record has such a property")


def mask_records(data: str, paths: Iterable[tuple[str, Inside]]) -> str:
    """
    The data of a message without some records; every byte of all others is what it was.

    Args:
        data: A JSON array of objects, or one object.
        paths: Where they stand ("2", "2/order_lines/1"), and how many records are inside each.

    Raises:
        ValueError: The data is no such JSON, or has nothing there.

    >>> mask_records('[{"n": 1.10}, {"n": 2, "lines": [{"k": 1}, {"k": 2}]}]', [("1", 0), ("2/lines/2", 0)])
    '[{"cdckit.erased": 0}, {"n": 2, "lines": [{"k": 1}, {"cdckit.erased": 0}]}]'
    """
    tree: Tree = {}
    for path, inside in sorted(paths, key=itemgetter(0)):
        steps = [int(step) if at % 2 == 0 else step for at, step in enumerate(path.split("/"))]
        below = tree
        for step in steps[:-1]:
            below = below.setdefault(step, {})
            if isinstance(below, str):
                break  # It goes with the record that holds it.
        else:
            below[steps[-1]] = json.dumps({MARK: inside})
    if data.lstrip()[:1] != "{":
        return _mask(data, tree)
    if set(tree) != {1}:
        raise ValueError(f"there is nothing at {', '.join(map(str, tree))}")
    return _mask(data, tree[1])


def _mask(text: str, tree: Tree | str) -> str:
    if isinstance(tree, str):
        return tree
    is_list = text.lstrip()[:1] == "["
    slices: Any = dict(enumerate(elements(text), 1)) if is_list else members(text, once=True)[1]
    if missing := tree.keys() - slices.keys():
        raise ValueError(f"there is nothing at {sorted(map(str, missing))[0]}")
    pieces, at = [], 0
    for step, below in sorted(tree.items(), key=lambda item: slices[item[0]].start):
        part = slices[step]
        pieces += [text[at : part.start], _mask(text[part], below)]
        at = part.stop
    return "".join([*pieces, text[at:]])
