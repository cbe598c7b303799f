"""The walk over many datums at once, against the exact walk over each."""

from __future__ import annotations

import io
import json
import random

import fastavro
import pyarrow as pa
import pytest

from cdckit.parts.avro import parse_schema
from cdckit.parts.avro.decoding import can_scan, ends_right, find_fault
from tools.tiers import seeds

SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "count", "type": ["int", "null"]},
        {"name": "ratio", "type": ["null", "double"]},
        {"name": "flag", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 3}},
        {
            "name": "inner",
            "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "bytes"}]}],
        },
        {"name": "small", "type": "float"},
    ],
}
ROOT = parse_schema(json.dumps(SCHEMA)).root


def datum(chance: random.Random) -> bytes:
    """A right datum, written by fastavro."""
    out = io.BytesIO()
    row = {
        "id": chance.choice([0, -1, 2**63 - 1, -(2**63), 300]),
        "text": chance.choice([None, "", "ü" * chance.randrange(90)]),
        "count": chance.choice([None, 0, 2**31 - 1, -(2**31)]),
        "ratio": chance.choice([None, 0.5]),
        "flag": chance.random() < 0.5,
        "kind": chance.choice("ABC"),
        "mark": b"xyz",
        "inner": chance.choice([None, {"b": b"\xff" * chance.randrange(5)}]),
        "small": 1.0,
    }
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), row)
    return out.getvalue()


def damaged(right: bytes, chance: random.Random) -> bytes:
    """Cut, lengthened, or with one byte changed."""
    place = chance.randrange(len(right))
    kind = chance.randrange(4)
    if kind == 0:
        return right[:place]
    if kind == 1:
        return right + bytes([chance.randrange(256)])
    if kind == 2:
        return right[:place] + b"\xff" * 9 + b"\x01" + right[place:]
    return right[:place] + bytes([chance.randrange(256)]) + right[place + 1 :]


@seeds(*range(3), soak=50)
def test_what_is_right_passes_and_what_ends_elsewhere_does_not(seed: int) -> None:
    """Of 6,000 datums, none that is right is held back; few that are wrong pass, for their values alone."""
    chance = random.Random(seed)
    datums = [datum(chance) for _ in range(6000)]
    datums = [damaged(each, chance) if chance.random() < 0.5 else each for each in datums]
    faults = [find_fault(each, ROOT) for each in datums]
    passed = ends_right(pa.array(datums, pa.binary()), ROOT).tolist()
    assert [fault for fault, passes in zip(faults, passed, strict=True) if not passes and fault is None] == []
    overlooked = {
        fault.split(": ")[-1] for fault, passes in zip(faults, passed, strict=True) if passes and fault
    }
    assert not {fault for fault in overlooked if "remain" in fault or "follow" in fault}


def test_a_slice_is_read_at_its_own_place() -> None:
    """A part of an Arrow array keeps its neighbours' buffers."""
    right = datum(random.Random(1))
    datums = pa.array([b"", right, right[:-1], right, b"\xff"], pa.binary())
    assert ends_right(datums.slice(1, 3), ROOT).tolist() == [True, False, True]


@pytest.mark.parametrize("claim", [2**62, -(2**63), -1])
def test_a_claim_moves_nothing(claim: int) -> None:
    """A length beyond every datum is wrong, not an overflow into the neighbour."""
    schema = parse_schema('{"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}')
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", claim)
    datums = pa.array([b"\x02x", out.getvalue(), b"\x02y"], pa.binary())
    assert ends_right(datums, schema.root).tolist() == [True, False, True]


def test_what_repeats_is_not_walked() -> None:
    """The number of steps must be the schema's, not the datum's."""
    array = parse_schema('{"type": "array", "items": "int"}')
    assert can_scan(ROOT)
    assert not can_scan(array.root)
