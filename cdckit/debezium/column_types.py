"""What the schema beside an event says of its columns: the name of a meaning, or else of a type."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cdckit.parts.json_objects import ObjectReader, json_text, plain_text

VARIABLE = "io.debezium.data.VariableScaleDecimal"
"""A struct that is one value: a decimal that has its own scale."""

_read_object = ObjectReader(dict)


@lru_cache(maxsize=512)
def types_of(schema: bytes) -> dict[str, str | None] | None:
    """
    Read what the schema beside a payload says of each column: the name of its meaning, or else its type.

    The scale of a decimal stands behind the name, its precision before the scale if it is known; of an array,
    a map or a struct it is the schema.  None where it says nothing, or names a column twice.

    >>> types_of(b'{"fields": [{"field": "after", "fields": [{"field": "day", "type": "int32"}]}]}')
    {'day': 'int32'}
    """
    images = _read_object.object(schema) or {}
    rows = (image.get("fields") for image in _dicts(images.get("fields")) if image.get("field") in _ROWS)
    row = next((row for row in rows if row is not None), None)
    if not isinstance(row, list):
        return None
    named = [column for column in _dicts(row) if column.get("field") is not None]
    types = {str(column["field"]): column_type(column) for column in named}
    return types if len(types) == len(named) else None


_ROWS = ("after", "before")


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


_PARTS = {"array": ["items"], "map": ["keys", "values"], "struct": ["fields"]}


def column_type(column: dict[str, Any]) -> str | None:
    """The name of a type; of an array, a map or a struct its schema, but for a value that is one thing."""
    kind, name = plain_text(column.get("type")), plain_text(column.get("name"))
    parts = [(part, column.get(part)) for part in _PARTS.get(kind or "", ())]
    if parts and name != VARIABLE and all(part is not None for _, part in parts):
        return f'{{"type":"{kind}",' + ",".join(f'"{part}":{json_text(value)}' for part, value in parts) + "}"
    return kind if name is None else with_digits(name, column.get("parameters"))


def with_digits(name: str, parameters: Any) -> str:
    """
    The name of a meaning, with precision and scale behind it where its parameters have them.

    >>> with_digits("Decimal", {"scale": "2", "connect.decimal.precision": "10"}), with_digits("Date", None)
    ('Decimal(10,2)', 'Date')
    """
    given = parameters if isinstance(parameters, dict) else {}
    if given.get("scale") is None:
        return name
    digits = (plain_text(given.get(part)) for part in ("connect.decimal.precision", "scale"))
    return f"{name}({','.join(digit for digit in digits if digit is not None)})"
