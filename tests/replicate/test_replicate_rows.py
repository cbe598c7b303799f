"""Rows of a batch of data messages, without Spark: wide tables, bounded parts, refusals for one row alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdckit.parts import avro
from cdckit.parts.avro import decoding
from cdckit.replicate import data_messages
from cdckit.replicate.data_messages import Reading
from cdckit.replicate.table_versions import Table, TableVersion
from support.replicate_messages import RECORD_SCHEMA, Version, numbered

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}


def table_of(version: Version) -> Table:
    fields = avro.parse_schema(version.data_schema).arrow_type.field("data").type
    positions = {field.name: place for place, field in enumerate(fields)}
    ordinals = {name: place + 1 for name, place in positions.items()}
    names = {name: name for name in positions}
    known = TableVersion(version.schema_id, 1, version.data_schema, ordinals, positions, ("id",), names)
    lineage = version.server, version.task, version.schema, version.table
    return Table(*lineage, (known,), fields, ("id",), {}, ((0, 0),))


def parts_of(version: Version, messages: list[bytes]) -> list[pa.RecordBatch]:
    batch = pa.RecordBatch.from_pylist(numbered(messages), schema=RECORD_SCHEMA)
    parts = list(data_messages.read_messages([batch], Reading(table_of(version))))
    for part in parts:
        part.validate(full=True)
    return parts


def rows_of(parts: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for part in parts for row in part.to_pylist()]


def wide(columns: int) -> tuple[Version, dict[str, Any]]:
    names = [f"c{place}" for place in range(columns)]
    return Version({"id": "int", **{name: ["null", DECIMAL] for name in names}}), {
        "id": 1,
        **dict.fromkeys(names),
    }


def test_a_wide_row_is_taken_apart_once_and_not_once_for_each_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `struct_field` goes over all columns: once for each of them is quadratic."""
    calls: list[int] = []
    taken = pc.struct_field

    def counted(*args: Any, **more: Any) -> pa.Array:
        calls[-1] += 1
        return taken(*args, **more)

    monkeypatch.setattr(pc, "struct_field", counted)
    for columns in (3, 300):
        version, row = wide(columns)
        calls.append(0)
        assert rows_of(parts_of(version, [version.dt("INSERT", row)]))[0]["data"] == row
    assert calls[0] == calls[1]


ITEMS = Version({"id": "int", "note": ["null", "string"]})
NOTES = ["a", None, "c", "d"]
MESSAGES = [
    ITEMS.dt("INSERT", {"id": 0, "note": "a"}),
    ITEMS.dt("DELETE", None, {"id": 1, "note": None}),
    ITEMS.dt("UPDATE", {"id": 2, "note": "c"}, {"id": 2, "note": "b"}),
    ITEMS.dt("DELETE", {"id": 3, "note": "d"}),
]


def test_rows_that_are_null_and_rows_of_a_part_keep_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was not sent makes its columns null, in every part of the batch."""
    together = rows_of(parts_of(ITEMS, MESSAGES))
    assert [row["data"] for row in together] == [{"id": i, "note": note} for i, note in enumerate(NOTES)]
    assert [row["before"] for row in together] == [
        None,
        {"id": 1, "note": None},
        {"id": 2, "note": "b"},
        None,
    ]
    monkeypatch.setattr(decoding, "MAX_MADE", 1)
    apart = parts_of(ITEMS, MESSAGES)
    assert [part.num_rows for part in apart] == [1, 1, 1, 1]
    assert rows_of(apart) == together


def test_what_arrow_refuses_costs_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    widened = data_messages.widen_row

    def refusing(row: pa.Array, *table: Any) -> pa.Array:
        if "c" in pc.struct_field(row, "note").to_pylist():
            raise pa.ArrowInvalid("no c")
        return widened(row, *table)

    monkeypatch.setattr(data_messages, "widen_row", refusing)
    rows = rows_of(parts_of(ITEMS, MESSAGES))
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert [row["error_code"] for row in rows] == [None, None, "MESSAGE_UNREADABLE", None]
    assert "no c" in rows[2]["error_description"]
    assert rows[2]["value"] == MESSAGES[2]
    assert [row["data"] and row["data"]["note"] for row in rows] == ["a", None, None, "d"]


NOTHINGS: dict[str, tuple[Any, Any, Any]] = {
    "array": ({"type": "array", "items": ["null"]}, [None, None], [None, None]),
    "array that may be null": (["null", {"type": "array", "items": ["null"]}], [None], [None]),
    "map": ({"type": "map", "values": ["null"]}, {"k": None}, [("k", None)]),
    "null": ("null", None, None),
}


def of_nothing(name: str) -> Iterator[dict[str, Any]]:
    kind, value, shown = NOTHINGS[name]
    version = Version({"id": "int", "nothing": kind})
    row = {"id": 1, "nothing": value}
    messages = [version.dt("INSERT", row), version.dt("DELETE", None, row), version.dt("UPDATE", row, row)]
    for found in rows_of(parts_of(version, messages)):
        assert found["error_code"] is None
        yield {"expected": {"id": 1, "nothing": shown}, **found}


@pytest.mark.parametrize("name", NOTHINGS)
def test_a_column_that_holds_nothing_but_nulls_is_read(name: str) -> None:
    """Arrow's cast of a list of nulls to its own type loses items, which ended the job."""
    for found in of_nothing(name):
        assert found["data"] == found["expected"]
