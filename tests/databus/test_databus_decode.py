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
from cdckit.databus.consumers import Event
from cdckit.databus.events import EVENT, event_columns
from cdckit.databus.plain_values import plain_datum
from cdckit.databus.sources import sources_by_id
from cdckit.errors import InvalidArgument
from cdckit.parts.avro import SchemaRefused
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


def record_schema(**fields: Any) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "R", "namespace": "n", "fields": listed})


TEXT_OR_NULL = ["null", "string"]
POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": TEXT_OR_NULL}]}
TWO_POINTS = {"a": POINT, "b": ["null", "P"]}
TEXTS = {"type": "array", "items": TEXT_OR_NULL}
COLOUR = {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}


@pytest.mark.parametrize(
    ("fields", "value", "datum"),
    [
        ({"a": POINT, "b": "P"}, {"a": {"x": None}, "b": {"x": {"string": "u"}}}, "00 02 02 75"),
        (TWO_POINTS, {"a": {"x": None}, "b": {"n.P": {"x": {"string": "u"}}}}, "00 02 02 02 75"),
        (TWO_POINTS, {"a": {"x": None}, "b": {"x": {"string": "u"}}}, "00 02 02 02 75"),
        ({"a": ["int", "long"]}, {"a": {"long": 5}}, "02 0a"),
        ({"a": ["int", "long"]}, {"a": 5}, "00 0a"),
        ({"a": ["string", "bytes"]}, {"a": {"bytes": "u"}}, "02 02 75"),
        ({"a": ["string", COLOUR]}, {"a": {"n.C": "BLUE"}}, "02 02"),
        ({"a": ["null", TEXTS]}, {"a": {"array": [{"string": "u"}]}}, "02 02 02 02 75 00"),
        (
            {"a": "boolean", "b": "double", "c": "null"},
            {"a": False, "b": 1, "c": None},
            "00" + " 00" * 6 + " f0 3f",
        ),
    ],
)
def test_the_datum_of_a_plain_value(fields: dict[str, Any], value: Any, datum: str) -> None:
    """Types that are used again by name; branches of unions that are named, or not."""
    assert plain_datum(json.dumps(value), record_schema(**fields)).hex(" ") == datum


@pytest.mark.parametrize(
    ("kind", "text", "finding"),
    [
        ("boolean", '"false"', "'false' is not true or false"),
        ("boolean", "null", "None is not true or false"),
        ("boolean", "0", "0 is not true or false"),
        ("double", "true", "True is not a number"),
        ("float", '"1"', "'1' is not a number"),
        ("long", "1.0", "1.0 is not a whole number"),
        ("null", '"x"', "'x' is not null"),
        ("string", "7", "7 is not text"),
        ("bytes", "[7]", r"\[7\] is not text"),
        (TEXTS, '"ab"', "'ab' is not an array"),
        (TEXTS, '{"a": 1}', "is not an array"),
        ({"type": "map", "values": "long"}, "[]", r"\[\] is not an object"),
        (POINT, "[]", r"\[\] is not an object"),
        ("string", '"x", "a": "y"', "the name 'a' comes twice"),
    ],
)
def test_a_plain_value_that_is_not_of_its_type_is_refused(kind: Any, text: str, finding: str) -> None:
    """Its writer would have made true of "false" and of anything else, 1.0 of true, and texts of letters."""
    with pytest.raises(ValueError, match=finding):
        plain_datum(f'{{"a": {text}}}', record_schema(a=kind))


def test_a_schema_that_no_plain_value_can_be_written_with_is_refused_at_once() -> None:
    wrong_default = record_schema().replace("[]", '[{"name": "n", "type": "int", "default": null}]')
    for text in (wrong_default, record_schema(e={"type": "enum", "name": "E", "symbols": ["é"]})):
        with pytest.raises(SchemaRefused, match="fastavro does not take it"):
            databus.Source(3, "planes", [text])


def test_a_listener_reads_a_value_with_a_schema_of_its_own() -> None:
    event = Event(PLANES, 5, "UPSERT", 7, 0, next(iter(PLANES.texts)), bytes.fromhex("064e3132026e"))
    assert event.value() == {"tail": "N12", "seats": 55}
    own = json.loads(SCHEMA)
    own["fields"] = [own["fields"][0], {"name": "owner", "type": "string", "default": "?"}]
    assert event.value(json.dumps(own)) == {"tail": "N12", "owner": "?"}


def test_sources_must_be_distinct_and_have_schemas_of_records() -> None:
    with pytest.raises(InvalidArgument, match="distinct ids and names"):
        sources_by_id([PLANES, PLANES])
    with pytest.raises(InvalidArgument, match="schemas of records"):
        databus.Source(3, "planes", ['"long"'])
    with pytest.raises(InvalidArgument, match="one schema or more"):
        databus.Source(3, "planes", [])
    with pytest.raises(InvalidArgument, match="system events have those below"):
        databus.Source(-1, "planes", [SCHEMA])
