"""Avro values as JSON would have them: texts by column, for events read in bulk."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TEXTS = pa.map_(pa.string(), pa.string())


def texts(values: pa.Array) -> pa.Array:
    """
    The text of the JSON value for each value, as Debezium's JSON has it: bytes in Base64.

    >>> texts(pa.array([{"scale": 2, "value": b"hi"}, None])).to_pylist()
    ['{"scale":2,"value":"aGk="}', None]
    """
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_primitive(kind):
        return pc.cast(values, pa.string())
    # Arrow has no Base64 and writes no JSON.
    plain = values.to_pylist(maps_as_pydicts="lossy")
    return pa.array([None if each is None else _text(each) for each in plain], pa.string())


def _text(value: Any) -> str:
    return _base64(value) if isinstance(value, bytes) else as_json(value)


def as_json(value: Any) -> str:
    """A decoded value as compact JSON, bytes in Base64."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_base64)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def as_maps(rows: pa.Array) -> pa.Array:
    """
    Each record as a map of its columns to their texts; null for null, and for what is no record.

    >>> as_maps(pa.array([{"id": 1, "ok": None}, None])).to_pylist()
    [[('id', '1'), ('ok', None)], None]
    """
    if not pa.types.is_struct(rows.type):
        return pa.nulls(len(rows), TEXTS)
    valid = rows.is_valid().to_numpy(zero_copy_only=False)
    there = rows.filter(pa.array(valid))
    names = [field.name for field in rows.type]
    columns = [texts(pc.struct_field(there, place)) for place in range(len(names))]
    # Column after column, the texts of a row are as far from one another as there are rows.
    by_row = np.arange(len(there) * len(names)).reshape(len(names), len(there)).T.ravel()
    items = pa.concat_arrays([pa.nulls(0, pa.string()), *columns]).take(pa.array(by_row))
    keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(len(names)), len(there))))
    offsets = np.concatenate([[0], np.cumsum(valid * len(names))]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=TEXTS, mask=pa.array(~valid))
