"""Records of a captured database, and what the kernels of its door make of them, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cdckit.debezium.envelopes import read_records
from cdckit.debezium.event_tables import of_records, read_table, report_types
from cdckit.debezium.events import READ_COLUMNS, RECORD_TYPES, Reader, event_batch
from cdckit.debezium.row_changes import change_batch
from cdckit.debezium.rows import row_batch
from cdckit.debezium.table_changes import distinct_types, table_plan

Value = bytes | str | dict[str, Any] | None


def as_bytes(value: Value) -> bytes | None:
    """Bytes as they are, texts in UTF-8, and all else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def batch(
    values: Sequence[Value],
    *,
    keys: Sequence[Value] = (),
    headers: Sequence[Mapping[str, str] | Sequence[tuple[str, str]]] = (),
) -> pa.RecordBatch:
    """Records of the topic `t`, without a time of their own, with offsets from 0 on."""
    count = len(values)
    pairs = [said.items() if isinstance(said, Mapping) else said for said in headers]
    named = [[{"key": name, "value": text.encode()} for name, text in some] for some in pairs]
    columns = {
        "key": [as_bytes(key) for key in keys] or [None] * count,
        "value": [as_bytes(value) for value in values],
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": range(count),
        "timestamp": [None] * count,
        "timestampType": [0] * count,
        "headers": named or [None] * count,
    }
    return pa.record_batch(
        [pa.array(columns[name], kind) for name, kind in RECORD_TYPES.items()], [*RECORD_TYPES]
    )


def events(records: pa.RecordBatch, reader: Reader = read_records) -> list[dict[str, Any]]:
    """The events of records, as rows; images as dictionaries."""
    return event_batch(records.select(READ_COLUMNS), reader).to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def rows(
    records: pa.RecordBatch,
    keys: Sequence[str],
    columns: Mapping[str, Any],
    reader: Reader = read_records,
    table: str = "t",
    **plan: Any,
) -> list[dict[str, Any]]:
    """The rows of a table, those in error among them."""
    made = row_batch(records, of_records(reader), table_plan(table, keys, _types(columns), **plan))
    return made.to_pylist()  # type: ignore[no-any-return]


def changes(
    records: pa.RecordBatch,
    keys: Sequence[str],
    columns: Mapping[str, Any],
    reader: Reader | None = read_records,
    table: str = "t",
    **plan: Any,
) -> list[dict[str, Any]]:
    """The changes of a table, and what cannot be one; without a reader, of a table of events."""
    by = read_table if reader is None else of_records(reader)
    made = change_batch(records, by, table_plan(table, keys, _types(columns), **plan), None, None)
    return made.to_pylist()  # type: ignore[no-any-return]


def event_table(records: pa.RecordBatch, reader: Reader) -> pa.RecordBatch:
    """Records with their events beside them, as `decode` gives them."""
    beside = event_batch(records.select(READ_COLUMNS), reader)
    return pa.record_batch([*records.columns, *beside.columns], [*RECORD_TYPES, *beside.schema.names])


def types(
    records: pa.RecordBatch, reader: Reader = read_records, table: str = "t"
) -> dict[str, tuple[str, ...]]:
    """By column of a table what the events say of its type."""
    (report,) = report_types([records], of_records(reader), table)
    named: dict[str, list[str]] = {}
    for _, name, kind in report["types"]:
        named.setdefault(name, []).append(kind)
    return {name: distinct_types(kinds) for name, kinds in named.items()}


def _types(columns: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: (kinds,) if isinstance(kinds, str) else tuple(kinds) for name, kinds in columns.items()}
