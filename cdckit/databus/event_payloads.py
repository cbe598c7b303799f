"""The values of events: the Avro datum of each, in whichever form it came, checked against its schema."""

from __future__ import annotations

import base64
import binascii
import io
import json
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from cdckit.databus.event_sources import Source
from cdckit.databus.event_text import Parsed
from cdckit.databus.faults import DatabusFault
from cdckit.parts import avro
from cdckit.parts.running_aggregates import Bools

_BASE64, _PLAIN = ("JSON",), ("JSON_PLAIN_VALUE", "JSON_PLAIN")


def payloads_of(parsed: Parsed, is_data: Bools, is_delete: Bools, sources: dict[int, Source]) -> pa.Array:
    """The Avro datum of each value, each checked against the schema of its id."""
    field, findings = parsed.fields, parsed.findings
    encodings, ids = field["valueEnc"].to_pylist(), field["schemaId"].to_pylist()
    numbers, texts = field["srcId"].to_pylist(), field["value"].to_pylist()
    datums: list[bytes | None] = [None] * len(texts)
    of_schema: dict[tuple[int, str], list[int]] = {}
    schemas = {number: each.texts for number, each in sources.items()}
    for row in np.flatnonzero(is_data).tolist():
        if row in findings or (is_delete[row] and not texts[row]):
            continue
        text, encoding = texts[row], encodings[row]
        missing = [
            name
            for name, said in (("value", text), ("schemaId", ids[row]), ("valueEnc", encoding))
            if said is None
        ]
        if missing:
            findings[row] = (DatabusFault.FIELD_MISSING, f"It has no {missing[0]}.")
            continue
        schema = schemas[numbers[row]].get(ids[row])
        if schema is None:
            findings[row] = (DatabusFault.SCHEMA_UNKNOWN, f"It is {ids[row]!r:.60}.")
        elif encoding in _BASE64:
            datums[row] = from_base64(text)
            if datums[row] is None:
                findings[row] = (DatabusFault.VALUE_UNREADABLE, "It is not base64.")
            else:
                of_schema.setdefault((numbers[row], ids[row]), []).append(row)
        elif encoding in _PLAIN:
            try:
                datums[row] = plain_datum(text, schema)
                of_schema.setdefault((numbers[row], ids[row]), []).append(row)
            except ValueError as error:
                findings[row] = (DatabusFault.VALUE_UNREADABLE, f"As plain JSON: {error}.")
        else:
            findings[row] = (DatabusFault.ENCODING_UNKNOWN, f"It is {encoding!r:.60}.")
    payloads = pa.array(datums, pa.binary())
    for (number, schema_id), rows in of_schema.items():
        of_id = avro.parse_schema(schemas[number][schema_id])
        start = 0
        for decoded in avro.decode_parts(payloads.take(pa.array(rows)), of_id):
            for place in np.flatnonzero(decoded.errors.is_valid()).tolist():
                findings[rows[start + place]] = (DatabusFault.VALUE_UNREADABLE, decoded.errors[place].as_py())
            start += len(decoded.errors)
    return payloads


_BYTES = "ISO-8859-1"


def plain_datum(text: str, schema: str) -> bytes:
    """
    The Avro datum of a record that is written as JSON text.

    A value of a union may be written as Avro's JSON encoding has it, `{"string": "x"}`, or bare, `"x"`.
    Bytes are text of one character each, as in Avro's JSON encoding.

    Raises:
        ValueError: The text is no such record; it says why.

    >>> schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]}]}'
    >>> plain_datum('{"a": "x"}', schema) == plain_datum('{"a": {"string": "x"}}', schema)
    True
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error!s:.100}") from None
    parsed = _parsed(schema)
    written = io.BytesIO()
    try:
        fastavro.schemaless_writer(
            written, parsed, _value(said, parsed), strict_allow_default=True, disable_tuple_notation=True
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise ValueError(f"{type(error).__name__}: {error!s:.160}") from None
    return written.getvalue()


def from_base64(text: str) -> bytes | None:
    """The bytes that a text in base64 stands for; nothing where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


@lru_cache(maxsize=512)
def _parsed(schema: str) -> Any:
    # Logical types stay what they are written on: a plain value is a number there, as in Avro's JSON.
    return fastavro.parse_schema(json.loads(schema, object_hook=_without_logical_type))


def _without_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in found.items() if name != "logicalType"}


def _value(said: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        return _of_union(said, schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record" and isinstance(said, dict):
        fields = {field["name"]: field for field in schema["fields"]}
        if more := sorted(said.keys() - fields.keys()):
            raise ValueError(f"the schema has no field {', '.join(more)}")
        return {name: _value(each, fields[name]["type"]) for name, each in said.items()}
    if kind == "array" and isinstance(said, list):
        return [_value(each, schema["items"]) for each in said]
    if kind == "map" and isinstance(said, dict):
        return {name: _value(each, schema["values"]) for name, each in said.items()}
    if kind in ("bytes", "fixed") and isinstance(said, str):
        return said.encode(_BYTES)
    if kind in ("int", "long") and not (isinstance(said, int) and not isinstance(said, bool)):
        raise ValueError(f"{said!r:.60} is no whole number")
    return said


def _of_union(said: Any, branches: list[Any]) -> Any:
    if said is None:
        if "null" not in branches:
            raise ValueError("null is no value here")
        return None
    names = {_name(branch): branch for branch in branches}
    if isinstance(said, dict) and len(said) == 1 and (name := next(iter(said))) in names:
        return _value(said[name], names[name])
    others = [branch for branch in branches if branch != "null"]
    return _value(said, others[0]) if len(others) == 1 else said


def _name(branch: Any) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"]))
    return str(branch)
