"""`decode`: what an event says, or why it says nothing."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdckit import databus
from cdckit.databus.events import EVENT, event_columns
from cdckit.databus.sources import sources_by_id
from cdckit.errors import InvalidArgument
from tools.tiers import examples

CASES = json.loads((Path(__file__).parents[1] / "cases/databus/events.json").read_text())["cases"]
SCHEMA = (
    '{"type": "record", "name": "Plane", "fields": [{"name": "tail", "type": "string"},'
    '{"name":"seats","type":["null","int"]}]}'
)
PLANES = databus.Source(3, "planes", {"4gi0x6CY4Kz4djWOPVBkVA==": SCHEMA})
NAMES = [*EVENT.names, "error_code", "error_description"]


def decoded(values: list[bytes | None]) -> list[dict[str, Any]]:
    columns = event_columns(pa.array(values, pa.binary()), {3: PLANES})
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, names=NAMES).to_pylist()
    for row in rows:
        row["payload"] = None if row["payload"] is None else row["payload"].hex()
    return rows


def value_of(case: dict[str, Any]) -> bytes | None:
    value = case["value"]
    return None if value is None else (json.dumps(value) if isinstance(value, dict) else value).encode()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    [row] = decoded([value_of(case)])
    if "error" in case:
        code, finding = case["error"]
        assert row["error_code"] == code
        assert finding in row["error_description"]
        return
    assert (row["error_code"], row["error_description"]) == (None, None)
    expected = dict(case["event"])
    if "event_timestamp" in expected:
        expected["event_timestamp"] = datetime.fromisoformat(expected["event_timestamp"])
    assert {name: row[name] for name in expected} == expected


GOOD = [value_of(case) for case in CASES if "event" in case]


@pytest.mark.drawn
@settings(**examples(150, soak=20_000))
@given(st.lists(st.sampled_from(GOOD), min_size=1, max_size=4), st.data())
def test_broken_bytes_never_raise_and_spoil_no_neighbour(values: list[bytes], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(values) - 1))
    value = bytearray(values[place])
    at = data.draw(st.integers(0, len(value) - 1))
    value[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    rows = decoded([*values[:place], bytes(value), *values[place + 1 :]])
    assert len(rows) == len(values)
    others = [row for at, row in enumerate(rows) if at != place]
    assert others == decoded([*values[:place], *values[place + 1 :]])
    assert [rows[place]] == decoded([bytes(value)])


def test_sources_must_be_distinct_and_have_schemas_of_records() -> None:
    with pytest.raises(InvalidArgument, match="distinct ids and names"):
        sources_by_id([PLANES, PLANES], function="decode")
    with pytest.raises(InvalidArgument, match="schemas of records"):
        databus.Source(3, "planes", ['"long"'])
    with pytest.raises(InvalidArgument, match="one schema or more"):
        databus.Source(3, "planes", [])
    with pytest.raises(InvalidArgument, match="system events have those below"):
        databus.Source(-1, "planes", [SCHEMA])
