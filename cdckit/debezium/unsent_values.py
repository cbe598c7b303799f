"""
Values that an event did not send, since they did not change, and what stands in their place.

Most connectors leave such a column out, or write a placeholder.  Some write null, which elsewhere is a value:
YugabyteDB's, whose rows have a cell for each column that was sent, and Spanner's.  `keep_sent_columns` takes
such nulls out of an event; what an image of it has from then on was sent, placeholders aside.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from typing import Any
from uuid import UUID

from cdckit.debezium.column_types import column_type
from cdckit.debezium.events import UPDATE, Event, Image
from cdckit.parts.json_objects import json_text

# Placeholders ---------------------------------------------------------------------------------------------

PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium writes, unless told otherwise, for a large value that did not change."""


def placeholders(placeholder: str) -> list[str]:
    """
    The texts by which Debezium says that a value is not available, by the type of its column.

    Text and JSON; bytes, in Base64 (two alphabets) or hexadecimal; lists of text and of Base64; a list of its
    bytes, as integers, as floats or as Connect's decimals; an hstore; a list of UUIDs, made of its bytes.

    >>> placeholders("p")[:4]
    ['p', 'cA==', 'cA==', '70']
    >>> placeholders("p")[4:8]
    ['["p"]', '["cA=="]', '[112]', '{"p":"p"}']
    >>> placeholders("p")[8:]
    ['["83878c91-1713-3890-ae0f-e0fb97a8c47a"]', '[112.0]', '["cA=="]']
    """
    raw = placeholder.encode()
    coded, coded_for_urls = base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()
    by_name = UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
    lists = [[placeholder], [coded], list(raw), {placeholder: placeholder}, [str(by_name)]]
    lists += [[float(byte) for byte in raw], [base64.b64encode(bytes([byte])).decode() for byte in raw]]
    texts = (json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in lists)
    return [placeholder, coded, coded_for_urls, raw.hex(), *texts]


_PARTS = frozenset({list, dict})


def is_placeholder(value: Any, texts: frozenset[str]) -> bool:
    """Tell whether a value is one of the placeholders."""
    if value.__class__ is str:
        return value in texts
    return value.__class__ in _PARTS and json_text(value) in texts


# Null for what did not change -----------------------------------------------------------------------------


def keep_sent_columns(event: Event, capture: str | None) -> str | None:
    """
    Take the columns that were not sent out of the row of an event; what it says, if that is not known.

    Args:
        event: An event of a row, as its envelope has it.
        capture: What a change stream of Spanner captures (`value_capture_type`).
    """
    if _has_cells(event.after or event.before or event.row_key or {}):
        if event.connector not in _OF_YUGABYTEDB:
            return event.connector
        _take_from_cells(event)
    elif event.connector == _SPANNER and event.operation == UPDATE:
        return _drop_unmodified(event, capture)
    return None


_OF_YUGABYTEDB = ("yugabytedb", "postgresql")
"""YugabyteDB's connectors: that of logical replication calls itself PostgreSQL's."""
_CELL = {"value", "set"}


def _has_cells(row: Image) -> bool:
    """Tell whether a row has a cell for each column; so have Cassandra's, by other rules."""
    cells = (cell for cell in row.values() if cell is not None)
    first = next(cells, None)
    return _is_cell(first) and all(map(_is_cell, cells))


def _is_cell(value: Any) -> bool:
    return value.__class__ is dict and value.keys() >= _CELL


def _take_from_cells(event: Event) -> None:
    """
    Give an event of YugabyteDB the values of its cells: `{"value": 7, "set": true}`.

    A column without a cell, or with one that is not set, did not change and was not sent.
    """
    for image in ("before", "after", "row_key"):
        setattr(event, image, _cell_values(getattr(event, image)))
    event.types = event.types and {name: _cell_type(kind) for name, kind in event.types.items()}


def _cell_values(row: Image | None) -> Image | None:
    if row is None or not _has_cells(row):
        return row
    return {name: cell["value"] for name, cell in row.items() if cell is not None and cell["set"]}


@lru_cache(maxsize=512)
def _cell_type(kind: str | None) -> str | None:
    """The type of a cell's value, of a cell's schema."""
    if kind is None or not kind.startswith('{"type":"struct"'):
        return kind
    fields = {field.get("field"): field for field in json.loads(kind)["fields"]}
    return column_type(fields["value"]) if "value" in fields else kind


_SPANNER = "spanner"
_WITH_OLD_VALUES = ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES", None)


def _drop_unmodified(event: Event, capture: str | None) -> str | None:
    """
    Take out of an update of Spanner the columns that are null before and after: they were not modified.

    Where old values are not captured (`NEW_VALUES`) nobody can tell such a null from one that was written;
    a `NEW_ROW` is whole.
    """
    before, after = event.before or {}, event.after or {}
    doubtful = {name for name, value in after.items() if value is None and before.get(name) is None}
    if not doubtful or capture == "NEW_ROW":
        return None
    if capture not in _WITH_OLD_VALUES:
        return f"{event.connector}, value_capture_type {capture}"
    event.after = {name: value for name, value in after.items() if name not in doubtful}
    return None
