"""`cdckit.parts.avro`: datums by hand, datums by the thousand, and datums that mean harm."""

from __future__ import annotations

import io
import json
import math
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdckit.parts.arrow_types import arrow_type, spark_type
from cdckit.parts.avro import (
    DecodedDatums,
    SchemaRefused,
    decode,
    decode_parts,
    decoding,
    native,
    parse_schema,
)
from cdckit.parts.avro.decoding import find_fault
from cdckit.parts.avro.schema import decoded_bytes, most_bytes
from support.replicate_messages import number, text
from tools.tiers import examples


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    """A record of the given types, its fields named a, b, c ... (f26, f27 ... when letters are used up)."""
    names = [chr(97 + i) if i < 26 else f"f{i}" for i in range(len(types))]
    fields = [{"name": field, "type": kind} for field, kind in zip(names, types, strict=True)]
    return {"type": "record", "name": name, "fields": fields}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def run(schema: Any, *datums: bytes | None) -> DecodedDatums:
    """Decode *datums*; checks what holds for every result."""
    parsed = parse_schema(json.dumps(schema))
    decoded = decode(pa.array(datums, pa.binary()), parsed)
    decoded.values.validate(full=True)
    decoded.errors.validate(full=True)
    assert decoded.values.type == parsed.arrow_type
    assert decoded.errors.type == pa.string()
    assert len(decoded.values) == len(decoded.errors) == len(datums)
    assert all(
        v is None for v, e in zip(decoded.values.to_pylist(), decoded.errors.to_pylist(), strict=True) if e
    )
    return decoded


ENUM = {"type": "enum", "name": "E", "symbols": ["red", "green"]}
SIZE = {"type": "enum", "name": "Size", "namespace": "s", "symbols": ["S", "L"]}
DAY = 86_400_000_000

BY_HAND: list[tuple[Any, pa.DataType, list[tuple[bytes, Any]]]] = [
    ("null", pa.null(), [(b"", None)]),
    ("boolean", pa.bool_(), [(b"\0", False), (b"\1", True)]),
    ("int", pa.int32(), [(b"\x01", -1), (b"\x80\x01", 64), (b"\xff\xff\xff\xff\x0f", -(2**31))]),
    ("long", pa.int64(), [(b"\x02", 1), (b"\xfe" + b"\xff" * 8 + b"\x01", 2**63 - 1)]),
    ("float", pa.float32(), [(b"\0\0\xc0\x3f", 1.5)]),
    ("double", pa.float64(), [(b"\0\0\0\0\0\0\xf8\xbf", -1.5), (struct.pack("<d", math.inf), math.inf)]),
    ("bytes", pa.binary(), [(b"\x04\0\xff", b"\0\xff"), (b"\0", b"")]),
    ("string", pa.string(), [(b"\x04\xc3\xa9", "é"), (b"\0", "")]),
    (fixed(3), pa.binary(), [(b"abc", b"abc")]),
    (ENUM, pa.string(), [(b"\0", "red"), (b"\x02", "green")]),
    (
        array("long"),
        pa.list_(pa.int64()),
        [(b"\x04\x02\x04\0", [1, 2]), (b"\0", []), (b"\x01\x02\x02\0", [1])],
    ),
    (array("int"), pa.list_(pa.int32()), [(b"\x02\x02\x02\x04\0", [1, 2])]),
    (mapping("int"), pa.map_(pa.string(), pa.int32()), [(b"\x04\x02k\x02\x02l\x04\0", [("k", 1), ("l", 2)])]),
    (
        record("int", "string"),
        pa.struct({"a": pa.int32(), "b": pa.string()}),
        [(b"\x02\x02x", {"a": 1, "b": "x"})],
    ),
    (record("null", "int"), pa.struct({"a": pa.null(), "b": pa.int32()}), [(b"\x02", {"a": None, "b": 1})]),
    (["null", "int"], pa.int32(), [(b"\0", None), (b"\x02\x06", 3)]),
    (["int", "null"], pa.int32(), [(b"\x02", None), (b"\0\x06", 3)]),
    (["null", "boolean"], pa.bool_(), [(b"\0", None), (b"\x02\x01", True)]),
    (["null"], pa.null(), [(b"\0", None)]),
    (["string"], pa.string(), [(b"\0\x02x", "x")]),
    (["null", "string"], pa.string(), [(b"\x02\x02x", "x"), (b"\0", None), (b"\x02\0", "")]),
    (["null", fixed(2)], pa.binary(), [(b"\x02ab", b"ab"), (b"\0", None)]),
    (["null", ENUM], pa.string(), [(b"\x02\x02", "green"), (b"\0", None)]),
    (["null", record("int")], pa.struct({"a": pa.int32()}), [(b"\x02\x02", {"a": 1}), (b"\0", None)]),
    (
        ["null", array(["null", "int"])],
        pa.list_(pa.int32()),
        [(b"\0", None), (b"\x02\x04\0\x02\x02\0", [None, 1])],
    ),
    (
        ["null", mapping(array(record("int", ["null", record("string", name="Q")])))],
        pa.map_(pa.string(), pa.list_(pa.struct({"a": pa.int32(), "b": pa.struct({"a": pa.string()})}))),
        [
            (b"\0", None),
            (
                b"\x02\x02\x02k\x04\x02\0\x04\x02\x02x\0\0",
                [("k", [{"a": 1, "b": None}, {"a": 2, "b": {"a": "x"}}])],
            ),
        ],
    ),
    (
        ["null", "string", "long", "double", record("bytes", name="n.Q"), array("int")],
        pa.string(),
        [
            (b"\0", None),
            (b"\x02\x02x", '{"string":"x"}'),
            (b"\x04\x02", '{"long":1}'),
            (b"\x06" + struct.pack("<d", math.inf), '{"double":"inf"}'),
            (b"\x08\x02\xff", '{"n.Q":{"a":"ÿ"}}'),
            (b"\x0a\x04\x02\x04\0", '{"array":[1,2]}'),
        ],
    ),
    (array(["null"]), pa.list_(pa.null()), [(b"\x04\0\0\0", [None, None]), (b"\0", [])]),
    (mapping(["null"]), pa.map_(pa.string(), pa.null()), [(b"\x02\x02k\0\0", [("k", None)]), (b"\0", [])]),
    (array(record(["null"])), pa.list_(pa.struct({"a": pa.null()})), [(b"\x02\0\0", [{"a": None}])]),
    ([ENUM, "int"], pa.string(), [(b"\0\x02", '{"E":"green"}'), (b"\x02\x02", '{"int":1}')]),
    (
        ["int", "null", ENUM],
        pa.string(),
        [(b"\0\x02", '{"int":1}'), (b"\x02", None), (b"\x04\0", '{"E":"red"}')],
    ),
    (["null", ENUM, SIZE], pa.string(), [(b"\x02\x02", '{"E":"green"}'), (b"\x04\x02", '{"s.Size":"L"}')]),
    (
        array(record([ENUM, SIZE, "long"])),
        pa.list_(pa.struct({"a": pa.string()})),
        [
            (
                b"\x06\x02\0\x04\x02\0\x02\0",
                [{"a": '{"s.Size":"S"}'}, {"a": '{"long":1}'}, {"a": '{"E":"green"}'}],
            )
        ],
    ),
    (
        logical("bytes", "decimal", precision=4, scale=2),
        pa.decimal128(4, 2),
        [
            (b"\x02\x01", Decimal("0.01")),
            (b"\x04\xff\x38", Decimal("-2.00")),
            (b"\x04\x27\x0f", Decimal("99.99")),
            (b"\x28" + b"\xff" * 20, Decimal("-0.01")),
            (b"\0", Decimal("0.00")),
        ],
    ),
    (
        fixed(16, logicalType="decimal", precision=38, scale=0),
        pa.decimal128(38, 0),
        [((10**38 - 1).to_bytes(16, "big"), Decimal(10**38 - 1)), (b"\xff" * 16, Decimal(-1))],
    ),
    (fixed(20, logicalType="decimal", precision=39), pa.binary(), [(b"\1" * 20, b"\1" * 20)]),
    (
        logical("int", "date"),
        pa.date32(),
        [(b"\0", date(1970, 1, 1)), (number(-719162), date(1, 1, 1)), (number(2932896), date(9999, 12, 31))],
    ),
    (
        logical("long", "timestamp-millis"),
        pa.timestamp("us", "UTC"),
        [
            (number(1), datetime(1970, 1, 1, microsecond=1000, tzinfo=UTC)),
            (number(-62135596800000), datetime(1, 1, 1, tzinfo=UTC)),
            (number(253402300799999), datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)),
        ],
    ),
    (
        logical("long", "timestamp-micros"),
        pa.timestamp("us", "UTC"),
        [(number(-1), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC))],
    ),
    (
        logical("long", "timestamp-nanos"),
        pa.timestamp("us", "UTC"),
        [
            (number(1999), datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)),
            (number(-1), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        ],
    ),
    (
        logical("long", "local-timestamp-millis"),
        pa.timestamp("us"),
        [(number(1), datetime(1970, 1, 1, microsecond=1000))],
    ),
    (
        logical("long", "local-timestamp-micros"),
        pa.timestamp("us"),
        [(number(1), datetime(1970, 1, 1, microsecond=1))],
    ),
    (logical("int", "time-millis"), pa.int64(), [(number(1), 1000), (number(86_399_999), DAY - 1000)]),
    (logical("long", "time-micros"), pa.int64(), [(number(1), 1), (number(DAY - 1), DAY - 1)]),
    (logical("string", "uuid"), pa.string(), [(b"\x02x", "x")]),
    (
        fixed(16, logicalType="uuid"),
        pa.string(),
        [(bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f")],
    ),
    (fixed(12, logicalType="duration"), pa.binary(), [(b"\1" * 12, b"\1" * 12)]),
    (logical("string", "date"), pa.string(), [(b"\x02x", "x")]),
]
NAMES_BY_HAND = [json.dumps(schema)[:60] for schema, _, _ in BY_HAND]


@pytest.mark.parametrize(("schema", "kind", "datums"), BY_HAND, ids=NAMES_BY_HAND)
def test_each_type_is_decoded_as_written_by_hand(
    schema: Any, kind: pa.DataType, datums: list[tuple[bytes, Any]]
) -> None:
    decoded = run(schema, *(datum for datum, _ in datums))
    assert decoded.errors.to_pylist() == [None] * len(datums)
    assert decoded.values.type == kind
    assert decoded.values.to_pylist() == [value for _, value in datums]


@pytest.mark.parametrize(("schema", "kind", "datums"), BY_HAND, ids=NAMES_BY_HAND)
def test_each_type_is_read_by_the_native_reader_at_once(
    monkeypatch: pytest.MonkeyPatch, schema: Any, kind: pa.DataType, datums: list[tuple[bytes, Any]]
) -> None:
    """The slow walk is for wrong datums only: a type that needed it would be slow and nobody would see."""

    def never(*args: object) -> int:
        raise AssertionError("the datums were not read at once")

    monkeypatch.setattr(decoding, "find_fault", never)
    run(schema, *(datum for datum, _ in datums * 3))
    run(record(["null", array(schema)], name="Outer") if kind != pa.null() else schema)


@pytest.mark.parametrize(("schema", "kind", "datums"), BY_HAND, ids=NAMES_BY_HAND)
def test_each_type_is_one_that_spark_has(
    schema: Any, kind: pa.DataType, datums: list[tuple[bytes, Any]]
) -> None:
    assert arrow_type(spark_type(kind)) == kind


@pytest.mark.parametrize(("schema", "kind", "datums"), BY_HAND, ids=NAMES_BY_HAND)
def test_the_slow_walk_accepts_what_the_native_reader_accepts(
    schema: Any, kind: pa.DataType, datums: list[tuple[bytes, Any]]
) -> None:
    root = parse_schema(json.dumps(schema)).root
    assert [find_fault(datum, root) for datum, _ in datums] == [None] * len(datums)


WRONG: list[tuple[Any, bytes, str]] = [
    ("null", b"x", "the value ends at byte 0, but 1 more bytes follow"),
    ("boolean", b"", "boolean of 1 bytes, 0 remain"),
    ("int", b"\xff\xff\xff\xff\x1f", "more than 32 bits"),
    ("int", b"\xff", "the bytes end inside a number"),
    ("long", b"\x80" * 10 + b"\x01", "more than 10 bytes"),
    ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
    ("long", b"", "the bytes end inside a number"),
    ("float", b"abc", "float of 4 bytes, 3 remain"),
    ("double", b"", "double of 8 bytes, 0 remain"),
    ("string", b"\x04x", "string of 2 bytes, 1 remain"),
    ("string", b"\x01", "string of -1 bytes"),
    ("string", b"\x02\xff", "not UTF-8"),
    ("string", b"\x06\xed\xa0\x80", "not UTF-8"),
    ("string", b"\x02xy", "1 more bytes follow"),
    ("bytes", number(2**40) + b"x", "bytes of 1099511627776 bytes, 1 remain"),
    (fixed(3), b"ab", "fixed of 3 bytes, 2 remain"),
    (ENUM, b"\x04", "the enum E has only 2 symbols"),
    (ENUM, b"\x01", "the enum E has only 2 symbols"),
    (["null", "string"], b"\x04\x02x", "branch 2 of a union that has 2"),
    (["null", "string"], b"\x04", "branch 2 of a union that has 2"),
    (["null", "string"], b"\x04\x00", "a union"),
    (["null", "string"], b"\x01\x02x", "branch -1"),
    (["string", "null"], b"\x04", "branch 2"),
    (["string"], b"\x02\x02x", "branch 1"),
    (["null", "string", "int"], b"\x06\x02x", "branch 3"),
    (array("int"), number(2**40) + b"\x02", "1099511627776 items are claimed"),
    (array("int"), number(-(2**63)) + b"\0\x02", "items are claimed"),
    (array("int"), b"\x01\x01\x02\0", "a block of -1 bytes"),
    (array("int"), b"\x02\x02", "the bytes end inside a number"),
    (mapping("int"), b"\x04\x02k\x02\x02k\x04\0", "a map has a key twice"),
    (mapping("int"), b"\x02\x02\xff\x02\0", "in the value (a key), byte 2: a string that is not UTF-8"),
    (
        record("int", ["null", record("string", name="Q")]),
        b"\x02\x02\x04x",
        "in b.a, byte 3: string of 2 bytes",
    ),
    (logical("bytes", "decimal", precision=2), b"\x02\x64", "a decimal has more than 2 digits"),
    (
        logical("bytes", "decimal", precision=38),
        b"\x22\x01" + b"\0" * 16,
        "a decimal has more than 38 digits",
    ),
    (logical("int", "date"), number(2932897), "years 1 to 9999"),
    (logical("int", "date"), number(-719163), "years 1 to 9999"),
    (logical("long", "timestamp-millis"), number(253402300800000), "years 1 to 9999: 253402300800000"),
    (logical("long", "timestamp-micros"), number(2**63 - 1), "years 1 to 9999"),
    (logical("long", "time-micros"), number(DAY), "a time of day"),
    (logical("int", "time-millis"), number(-1), "a time of day"),
    (array(["null", logical("int", "date")]), b"\x04\0\x02" + number(10**7) + b"\0", "years 1 to 9999"),
    (["int", "string", array(ENUM)], b"\x04\x02\x04\0", "the enum E has only 2 symbols"),
    (["int", ENUM], b"\x02\x04", "the enum E has only 2 symbols"),
    (logical("bytes", "decimal", precision=20), b"\x14" + b"\x7f" * 10, "a decimal has more than 20 digits"),
    (logical("bytes", "decimal", precision=18), b"\x10" + b"\x7f" * 8, "a decimal has more than 18 digits"),
    (logical("bytes", "decimal", precision=18), b"\x12\xff" + b"\0" * 8, "a decimal has more than 18 digits"),
]


@pytest.mark.parametrize(
    ("schema", "datum", "reason"), WRONG, ids=[json.dumps(s)[:40] + d.hex() for s, d, _ in WRONG]
)
def test_a_wrong_datum_is_one_error_that_says_why(schema: Any, datum: bytes, reason: str) -> None:
    """Alone, and between right ones, which stay what they are."""
    [alone] = run(schema, datum).errors.to_pylist()
    assert reason in alone
    right = _right_datum(schema)
    among = run(schema, right, datum, right, datum)
    value = run(schema, right).values.to_pylist()[0]
    assert among.errors.to_pylist() == [None, alone, None, alone]
    assert among.values.to_pylist() == [value, None, value, None]


def _right_datum(schema: Any) -> bytes:
    """A datum of *schema* for which zeros all the way are right; a record of a union is its first branch."""
    root = parse_schema(json.dumps(schema)).root
    return next(b"\0" * n for n in range(40) if find_fault(b"\0" * n, root) is None)


def test_no_datum_is_an_error_too() -> None:
    decoded = run("int", b"\x02", None, b"\x04")
    assert decoded.values.to_pylist() == [1, None, 2]
    assert decoded.errors.to_pylist() == [None, "There is no datum.", None]


def test_nothing_in_nothing_out() -> None:
    assert run(record("int", array("string"))).values.to_pylist() == []
    assert run("int", None, None).errors.null_count == 0


def test_slices_chunks_and_large_binary_are_read_as_what_they_show() -> None:
    schema = parse_schema('"string"')
    datums = pa.array([b"\x02a", b"\x02b", None, b"bad", b"\x02c"], pa.large_binary())
    assert decode(datums.slice(1), schema).values.to_pylist() == ["b", None, None, "c"]
    assert decode(datums.slice(4), schema).values.to_pylist() == ["c"]
    assert decode(datums.cast(pa.binary()).slice(1, 2), schema).values.to_pylist() == ["b", None]


# --- one wrong datum among many -----------------------------------------------------------------

ROW = record("long", "string", ["null", "double"], ["null", "string"], logical("long", "timestamp-micros"))


def row(i: int) -> bytes:
    there = text(f"maybe {i}") if i % 3 else b""
    return (
        number(i)
        + text(f"text {i}")
        + (b"\x02" + struct.pack("<d", i / 4) if i % 5 else b"\0")
        + (b"\x02" + there if i % 3 else b"\0")
        + number(i * 1000)
    )


def row_value(i: int) -> dict[str, Any]:
    return {
        "a": i,
        "b": f"text {i}",
        "c": i / 4 if i % 5 else None,
        "d": f"maybe {i}" if i % 3 else None,
        "e": datetime.fromtimestamp(i / 1000, UTC),
    }


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "short": lambda datum: datum[:-1],
    "long": lambda datum: datum + b"\0",
    "empty": lambda datum: b"",
    "a string that swallows the next rows": lambda datum: b"\x02" + number(200) + datum,
    "a string that swallows everything": lambda datum: b"\x02" + number(2**30) + datum,
    "two values": lambda datum: datum + b"\0" * native.MARK + datum,
    "another schema": lambda datum: b"{}" * 20,
    "ff": lambda datum: b"\xff" * 40,
}


@pytest.fixture(scope="module")
def ten_thousand() -> tuple[list[bytes], pa.Array]:
    """Datums, and what they say as a table would have it."""
    values = pa.array([row_value(i) for i in range(10_000)], run(ROW, row(0)).values.type)
    return [row(i) for i in range(10_000)], values


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("place", [0, 1, 255, 256, 5000, 9999])
def test_one_wrong_datum_among_ten_thousand_costs_one_error(
    ten_thousand: tuple[list[bytes], pa.Array], damage: str, place: int
) -> None:
    datums, values = ten_thousand
    decoded = run(ROW, *datums[:place], DAMAGE[damage](datums[place]), *datums[place + 1 :])
    errors = [i for i, error in enumerate(decoded.errors.to_pylist()) if error]
    assert errors == [place]
    assert decoded.values.slice(place, 1).to_pylist() == [None]
    assert decoded.values.slice(0, place).equals(values.slice(0, place))
    assert decoded.values.slice(place + 1).equals(values.slice(place + 1))


def test_two_wrong_datums_that_make_up_for_each_other_are_both_found() -> None:
    """One holds two values, the other reaches over the next: only the marks tell, not the number of rows."""
    two = text("x") + b"\0" * native.MARK + text("y")
    victim = text("mine")
    over = number(native.MARK + len(victim))
    decoded = run("bytes", two, text("a"), over, victim, text("z"))
    assert decoded.values.to_pylist() == [None, b"a", None, b"mine", b"z"]
    assert [error is None for error in decoded.errors.to_pylist()] == [False, True, False, True, True]


def test_a_datum_cannot_bring_along_the_mark_of_another_row() -> None:
    """Were marks row numbers, these bytes would end their own row and make the next row theirs."""
    victim = text("mine")
    for first in (0, 1):
        forged = text("x") + struct.pack("<Q", first) + number(native.MARK + len(victim))
        decoded = run("string", forged, victim, text("z"))
        assert decoded.values.to_pylist() == [None, "mine", "z"]


def test_marks_begin_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for base in (0, 2**63 - 1):
        monkeypatch.setattr(native.secrets, "randbits", lambda bits, base=base: base)
        assert run(ROW, *(row(i) for i in range(300))).values.to_pylist() == [
            row_value(i) for i in range(300)
        ]


def test_many_wrong_datums_are_found_each() -> None:
    for every in (1, 2, 7, 700):
        datums = [row(i)[:-1] if i % every == 0 else row(i) for i in range(3000)]
        decoded = run(ROW, *datums)
        assert decoded.values.to_pylist() == [None if i % every == 0 else row_value(i) for i in range(3000)]
        assert [error is not None for error in decoded.errors.to_pylist()] == [
            i % every == 0 for i in range(3000)
        ]


def test_portions_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_BYTES", 500)
    monkeypatch.setattr(decoding, "MAX_ROWS", 16)
    datums = [row(i) if i % 50 else None for i in range(1000)]
    datums[333] = b"x" * 600
    decoded = run(ROW, *datums)
    gone = {333, *range(0, 1000, 50)}
    assert decoded.values.to_pylist() == [None if i in gone else row_value(i) for i in range(1000)]


@pytest.mark.parametrize("failure", ["exception", "panic", "all"])
def test_a_reader_that_fails_on_right_datums_costs_only_those(
    monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """Were the native reader to refuse what our own walk accepts, or to panic, the datum gets an error."""
    inner = native._items
    panic = type("PanicException", (BaseException,), {})

    def failing(datums: pa.Array, *args: Any) -> pa.StructArray:
        with native._translate_errors():
            if failure == "all" or any(datum.as_py() == row(77) for datum in datums):
                raise panic("boom") if failure == "panic" else RuntimeError("boom")
        return inner(datums, *args)

    monkeypatch.setattr(native, "_items", failing)
    decoded = run(ROW, *(row(i) for i in range(100)))
    assert [i for i, e in enumerate(decoded.errors.to_pylist()) if not e] == [
        i for i in range(100) if i != 77 and failure != "all"
    ]


def test_an_interrupt_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(native.SessionContext, "read_avro", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("int", b"\x02")


# --- as fastavro reads it -----------------------------------------------------------------------


def shown(schema: Any, value: Any) -> Any:
    """What `decode` shows where fastavro reads *value*."""
    if isinstance(schema, list):
        branch, value = chosen(schema, value)
        if branch == "null":
            return None
        if len(set(map(json.dumps, schema)) - {'"null"'}) == 1:
            return shown(branch, value)
        return json.dumps(
            {name_of(branch): as_json(branch, value)}, ensure_ascii=False, separators=(",", ":")
        )
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {field["name"]: shown(field["type"], value[field["name"]]) for field in schema["fields"]}
    if kind == "array":
        return [shown(schema["items"], item) for item in value]
    if kind == "map":
        return [(key, shown(schema["values"], item)) for key, item in value.items()]
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value


def name_of(branch: Any) -> str:
    named: str = branch if isinstance(branch, str) else branch.get("name", branch["type"])
    return named


PYTHON = {
    "null": type(None), "boolean": bool, "int": int, "long": int, "float": float, "double": float,
    "bytes": bytes, "string": str, "array": list, "map": dict,
}  # fmt: skip


def chosen(branches: list[Any], value: Any) -> tuple[Any, Any]:
    """The branch of a union that fastavro read, and the value: it names the branches that have names."""
    if isinstance(value, tuple):
        return next((branch, value[1]) for branch in branches if name_of(branch) == value[0])
    if value is None:
        return "null", None
    others = [branch for branch in branches if branch != "null"]
    if len(others) == 1:
        return others[0], value
    return next((branch, value) for branch in others if type(value) is PYTHON.get(name_of(branch)))


def as_json(schema: Any, value: Any) -> Any:
    """Avro's JSON encoding of what fastavro reads; infinity is a text."""
    if isinstance(schema, list):
        branch, value = chosen(schema, value)
        return None if branch == "null" else {name_of(branch): as_json(branch, value)}
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {field["name"]: as_json(field["type"], value[field["name"]]) for field in schema["fields"]}
    if kind == "array":
        return [as_json(schema["items"], item) for item in value]
    if kind == "map":
        return {key: as_json(schema["values"], item) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return _with_infinity_as_text(value)


def by_fastavro(schema: Any, datum: bytes) -> Any:
    """What fastavro reads, as `decode` shows it; raises if it does not read all of *datum*."""
    stream = io.BytesIO(datum)
    value = fastavro.schemaless_reader(stream, schema, None, return_named_type=True, return_record_name=True)
    if stream.tell() < len(datum):
        raise ValueError("not all bytes were read")
    return shown(schema, value)


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def written_by_hand(schema: Any, value: Any) -> bytes:
    """As `written`; a value of a union is the number of its branch and the value, which fastavro has not."""
    if isinstance(schema, list):
        return number(value[0]) + written_by_hand(schema[value[0]], value[1])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return b"".join(written_by_hand(field["type"], value[field["name"]]) for field in schema["fields"])
    if kind == "array":
        items = [written_by_hand(schema["items"], item) for item in value]
    elif kind == "map":
        items = [text(key) + written_by_hand(schema["values"], item) for key, item in value.items()]
    else:
        return written(schema, value)
    return b"".join([number(len(items)), *items, number(0)] if items else [number(0)])


LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=20)),
    (logical("bytes", "decimal", precision=12, scale=3), st.decimals(-(10**8), 10**8, places=3)),
    (logical("int", "date"), st.dates()),
    (
        logical("long", "timestamp-millis"),
        st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(microsecond=0)),
    ),
    (logical("long", "timestamp-micros"), st.datetimes(timezones=st.just(UTC))),
    (logical("long", "local-timestamp-micros"), st.datetimes()),
    (
        logical("int", "time-millis"),
        st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    (logical("long", "time-micros"), st.times()),
    (logical("string", "uuid"), st.uuids()),
]


PLAIN = [(schema, values) for schema, values in LEAVES if isinstance(schema, str) and schema != "bytes"]
NUMBERS = ("int", "long", "float", "double")
FORMS = ["leaf", "leaf", "enum", "fixed", "union", "record", "record", "array", "map", "nulls", "branches"]


@st.composite
def schemas(
    draw: st.DrawFn, depth: int = 3, names: list[int] | None = None, leaves: Any = LEAVES
) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema and the values of it, as `written_by_hand` takes them."""
    names = [] if names is None else names
    form = draw(st.sampled_from(FORMS if depth else FORMS[:4]))
    names.append(0)
    name = f"N{len(names)}"
    if form == "leaf":
        return draw(st.sampled_from(leaves))
    if form == "enum":
        symbols = [f"S{i}" + "x" * draw(st.sampled_from([0, 250])) for i in range(draw(st.integers(1, 4)))]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if form == "fixed":
        size = draw(st.integers(1, 9))
        return fixed(size, name), st.binary(min_size=size, max_size=size)
    if form == "nulls":
        kind = draw(st.sampled_from([["null"], record(["null"], name=name)]))
        return kind, st.just((0, None)) if isinstance(kind, list) else st.just({"a": (0, None)})
    if form == "record":
        members = [draw(schemas(depth - 1, names, leaves)) for _ in range(draw(st.integers(1, 5)))]
        values = st.fixed_dictionaries({chr(97 + i): value for i, (_, value) in enumerate(members)})
        return record(*(kind for kind, _ in members), name=name), values
    if form == "branches":
        return draw(branches(depth, names))
    inner, values = draw(schemas(depth - 1, names, leaves))
    if form == "array":
        return array(inner), st.lists(values, max_size=4)
    if form == "map":
        return mapping(inner), st.dictionaries(st.text(max_size=5), values, max_size=4)
    if isinstance(inner, list):
        return inner, values
    nothing = draw(st.integers(0, 1))
    return [inner, "null"][:: 1 if nothing else -1], st.tuples(st.just(1 - nothing), values) | st.just(
        (nothing, None)
    )


@st.composite
def branches(draw: st.DrawFn, depth: int, names: list[int]) -> tuple[Any, st.SearchStrategy[Any]]:
    """A union of several types, enums among them; of the numbers only one, since fastavro names none."""
    found: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {}
    for _ in range(draw(st.integers(2, 5))):
        kind, values = draw(schemas(depth - 1, names, PLAIN))
        if not isinstance(kind, list):
            found.setdefault("number" if kind in NUMBERS else name_of(kind), (kind, values))
    if draw(st.booleans()):
        found["null"] = ("null", st.none())
    if not found:
        found["int"] = ("int", st.integers(-5, 5))
    numbered = [st.tuples(st.just(i), values) for i, (_, values) in enumerate(found.values())]
    return [kind for kind, _ in found.values()], st.one_of(numbered)


@pytest.mark.drawn
@settings(**examples(60, soak=10_000), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_is_written_is_read_as_fastavro_reads_it(data: st.DataObject) -> None:
    """In no more bytes than were foreseen: of the schema alone, and of what the native reader gives."""
    schema, values = data.draw(schemas())
    parsed = parse_schema(json.dumps(schema))
    datums = [written_by_hand(schema, value) for value in data.draw(st.lists(values, min_size=1, max_size=8))]
    decoded = run(schema, *datums)
    assert decoded.errors.null_count == len(datums)
    assert decoded.values.to_pylist() == [by_fastavro(schema, datum) for datum in datums]
    foreseen, most = (
        decoded_bytes(native.read(pa.array(datums), parsed.root), parsed.root),
        most_bytes(parsed.root),
    )
    lengths = [len(datum) for datum in datums]
    overhead = 64 * (parsed.root.weight + 1)  # an array of no items has an offset too, and each bitmap a byte
    assert decoded.values.nbytes <= foreseen + overhead
    assert decoded.values.nbytes <= sum(most.each + most.per_byte * length for length in lengths) + overhead
    assert decoded.values.nbytes <= sum(most.ratio * max(1, length) for length in lengths) + overhead


@pytest.mark.drawn
@settings(**examples(60, soak=1_000), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_unions_of_several_types_are_the_json_that_fastavro_writes(data: st.DataObject) -> None:
    branches = data.draw(
        st.lists(st.sampled_from(PLAIN), min_size=2, max_size=4, unique_by=lambda leaf: leaf[0])
    )
    inner = [branch for branch, _ in branches]
    schema = record(["null", "int", record(inner, array(inner), mapping(["null", "string"]), name="n.Q")])
    one = st.one_of(*(values.map(lambda v, b=b: (b, v)) for b, values in branches))
    inside = st.fixed_dictionaries(
        {
            "a": one,
            "b": st.lists(one, max_size=3),
            "c": st.dictionaries(st.text(min_size=1, max_size=3), st.none()),
        }
    )
    rows = [{"a": value} for value in data.draw(st.lists(st.none() | inside, min_size=1, max_size=5))]
    stream = io.StringIO()
    fastavro.json_writer(stream, schema, rows)
    expected = [json.loads(line)["a"] for line in stream.getvalue().splitlines()]
    decoded = run(schema, *(written(schema, value) for value in rows))
    texts = [value["a"] for value in decoded.values.to_pylist()]
    assert [None if t is None else json.loads(t) for t in texts] == _with_infinity_as_text(expected)


def _with_infinity_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_infinity_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_infinity_as_text(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# --- bytes that were damaged --------------------------------------------------------------------

EVERYTHING = record(
    "long",
    "string",
    ["null", "string"],
    "boolean",
    ["double", "null"],
    ENUM,
    array(["null", "int"]),
    mapping("bytes"),
    ["null", record("float", array(record("string", "int", name="P")), name="Q")],
    fixed(4),
    logical("bytes", "decimal", precision=9, scale=2),
    ["null", logical("long", "timestamp-micros")],
    logical("int", "date"),
)

STRICTER = (
    "more than 10 bytes",
    "more than 64 bits",
    "more than 32 bits",
    "branch -",
    "the enum E",
    "a block of -",
    "items are claimed",
    "a key twice",
    "9 digits",
    "years 1 to 9999",
)
"""Faults that fastavro lets pass: numbers that are too long, indexes below zero, keys given twice ..."""


def samples(seed: int, count: int) -> list[bytes]:
    chance = random.Random(seed)

    def words() -> str:
        return "".join(chance.choices("abcé ", k=chance.randrange(8)))

    def one() -> bytes:
        value = {
            "a": chance.randrange(-(2**40), 2**40),
            "b": words(),
            "c": chance.choice([None, words()]),
            "d": chance.random() < 0.5,
            "e": chance.choice([None, chance.random()]),
            "f": chance.choice(["red", "green"]),
            "g": [chance.choice([None, chance.randrange(300)]) for _ in range(chance.randrange(4))],
            "h": {words(): chance.randbytes(3) for _ in range(chance.randrange(3))},
            "i": chance.choice([None, {"a": 0.5, "b": [{"a": words(), "b": 7}]}]),
            "j": chance.randbytes(4),
            "k": Decimal(chance.randrange(10**8)) / 100,
            "l": chance.choice([None, datetime(2024, 1, 1, tzinfo=UTC)]),
            "m": date(2024, 1, chance.randrange(1, 28)),
        }
        return written(EVERYTHING, value)

    return [one() for _ in range(count)]


def damaged(datum: bytes, other: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(datum))
    form = chance.randrange(6)
    if form == 0:
        return datum[:place] + bytes([datum[place] ^ 1 << chance.randrange(8)]) + datum[place + 1 :]
    if form == 1:
        return datum[:place]
    if form == 2:
        return datum[:place] + other[chance.randrange(len(other)) :]
    if form == 3:
        return datum[:place] + number(chance.choice([2**40, -(2**40), 2**31, -1, 2**62])) + datum[place:]
    if form == 4:
        return datum[:place] + chance.randbytes(chance.randrange(1, 12)) + datum[place:]
    return datum + chance.randbytes(chance.randrange(1, 4))


@pytest.mark.parametrize(("seed", "share"), [(1, 1.0), (2, 0.5), (3, 0.02), (4, 0.001)])
def test_damaged_datums_are_read_as_fastavro_reads_them_or_are_errors(seed: int, share: float) -> None:
    """And fastavro agrees on which are errors, except that it lets some pass."""
    chance = random.Random(seed)
    originals = samples(seed, 1000)
    datums = []
    for _ in range(10_000):
        datum = chance.choice(originals)
        datums.append(damaged(datum, chance.choice(originals), chance) if chance.random() < share else datum)
    decoded = run(EVERYTHING, *datums)
    schema = fastavro.parse_schema(json.loads(json.dumps(EVERYTHING)))
    for datum, value, error in zip(
        datums, decoded.values.to_pylist(), decoded.errors.to_pylist(), strict=True
    ):
        try:
            expected = by_fastavro(schema, datum)
        except Exception:
            assert error is not None
            continue
        if error is None:
            assert _same(value, expected)
        else:
            assert any(reason in error for reason in STRICTER), (error, datum, expected)


def _same(value: Any, expected: Any) -> bool:
    return repr(value) == repr(expected) or value == expected  # repr: NaN is itself


def test_errors_are_the_same_whatever_the_company() -> None:
    chance = random.Random(5)
    originals = samples(5, 50)
    datums = [damaged(chance.choice(originals), chance.choice(originals), chance) for _ in range(300)]
    together = run(EVERYTHING, *datums)
    for datum, value, error in zip(
        datums, together.values.to_pylist(), together.errors.to_pylist(), strict=True
    ):
        alone = run(EVERYTHING, datum)
        assert _same([value], alone.values.to_pylist())
        assert [error] == alone.errors.to_pylist()


# --- claims that are bombs ----------------------------------------------------------------------

BOMBS = """
import json, resource, sys, time
import pyarrow as pa
from cdckit.parts.avro import decode, parse_schema

def number(value):
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

R = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}
schemas = ["string", "bytes"]
L = {"type": "array", "items": "int"}
for item in ("long", "boolean", "string", ["null", "string"], R, L, ["int", "string"]):
    schemas += [{"type": "array", "items": item}, {"type": "map", "values": item}]
    schemas += [["null", {"type": "array", "items": item}]]
decode(pa.array([b"\\0"]), parse_schema('"int"'))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
slowest = 0
for schema in schemas:
    parsed = parse_schema(json.dumps(schema))
    tag = b"\\2" if isinstance(schema, list) else b""
    for claim in (2**31 - 1, 2**31, 2**40, 2**62, -(2**31), -(2**40), -(2**63)):
        for rest in (b"", b"\\0" * 50, b"\\2" * 50):
            datum = tag + number(claim) + (number(2**40) if claim < 0 else b"") + rest
            start = time.process_time()
            decoded = decode(pa.array([b"\\0"] * 500 + [datum] + [b"\\0"] * 500), parsed)
            slowest = max(slowest, time.process_time() - start)
            errors = [i for i, e in enumerate(decoded.errors.to_pylist()) if e]
            assert errors == [500], (schema, claim, errors)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"slowest": slowest, "grown": grown / 1024}))
"""


def test_a_claim_of_trillions_costs_neither_time_nor_memory() -> None:
    done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["slowest"] < 1
    assert measured["grown"] < 200  # MiB


# --- few bytes that mean much -------------------------------------------------------------------

LONG = {"type": "enum", "name": "Long", "symbols": ["a" * 250, "b" * 250]}


def repeated(item: bytes, times: int) -> bytes:
    """An array that holds *item* so many times."""
    return number(times) + item * times + b"\0"


def test_what_is_made_at_once_is_bounded_and_in_the_order_of_the_datums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Arrays of a hundred symbols of 250 letters, 30,000 bytes at once: one array after the other."""
    monkeypatch.setattr(decoding, "MAX_MADE", 30_000)
    datums = [repeated(b"\x02", 100), None, b"bad", *[repeated(b"\0", 100)] * 8]
    parts = list(decode_parts(pa.array(datums, pa.binary()), parse_schema(json.dumps(array(LONG)))))
    assert len(parts) >= 9
    assert max(part.values.nbytes for part in parts) <= 30_000
    values = [value for part in parts for value in part.values.to_pylist()]
    assert values == [["b" * 250] * 100, None, None, *[["a" * 250] * 100] * 8]
    errors = [error for part in parts for error in part.errors.to_pylist()]
    assert [error is not None for error in errors] == [False, True, True, *[False] * 8]


WIDE = record(*["long"] * 30, name="Wide")
MUCH: list[tuple[Any, bytes, int]] = [
    (array(LONG), b"\x02", 254),
    (array(["null", WIDE]), b"\0", 240),
    (array(["null", LONG, "int"]), b"\x02\x02", 250),
    (array(logical("bytes", "decimal", precision=9)), b"\x02\x07", 16),
    (mapping(["null", WIDE]), b"\0\0", 240),
]


@pytest.mark.parametrize(("schema", "item", "bytes_of_item"), MUCH)
def test_a_datum_that_would_become_too_much_is_an_error_and_its_neighbours_are_not(
    monkeypatch: pytest.MonkeyPatch, schema: Any, item: bytes, bytes_of_item: int
) -> None:
    """What it would become is known from what it holds, not only from its schema."""
    monkeypatch.setattr(decoding, "MAX_MADE", 100_000)
    monkeypatch.setattr(decoding, "MAX_MADE_OF_ONE", 100_000)
    much, few = 100_000 // bytes_of_item + 100, 3
    datums = [repeated(item, 1)] * 3 + [repeated(item, much)] + [repeated(item, 1)] * 3
    if schema["type"] == "map":  # with keys of their own, of four letters
        entries = (text(f"{i:04}") + item[1:] for i in range(much))
        datums[3] = number(much) + b"".join(entries) + b"\0"
    decoded = run(schema, *datums)
    assert [i for i, error in enumerate(decoded.errors.to_pylist()) if error] == [few]
    assert "would become" in decoded.errors[few].as_py()


def test_a_datum_of_which_little_is_made_is_not_refused_for_what_its_schema_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand times the short symbol, where the schema has a long one as well."""
    symbols = {"type": "enum", "name": "Mixed", "symbols": ["a", "b" * 250]}
    monkeypatch.setattr(decoding, "MAX_MADE", 100_000)
    monkeypatch.setattr(decoding, "MAX_MADE_OF_ONE", 100_000)
    decoded = run(array(symbols), repeated(b"\0", 1000), repeated(b"\x02", 1000))
    assert [error is None for error in decoded.errors.to_pylist()] == [True, False]


def test_arrows_refusal_of_what_was_read_costs_one_datum(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = decoding.Shaper.shape

    def refusing(self: Any, values: pa.Array, node: Any, rows: Any) -> pa.Array:
        if node.kind == "long" and 77 in values.to_pylist():
            raise pa.ArrowInvalid("no 77")
        return shape(self, values, node, rows)

    monkeypatch.setattr(decoding.Shaper, "shape", refusing)
    decoded = run(record("long"), *(number(i) for i in range(100)))
    assert decoded.values.to_pylist() == [{"a": i} if i != 77 else None for i in range(100)]
    assert decoded.errors[77].as_py() == "The datum cannot be held: no 77."


AMPLIFIED = """
import json, resource
import pyarrow as pa
from cdckit.parts.avro import decode, decode_parts, parse_schema

LONG = {"type": "enum", "name": "Long", "symbols": ["a" * 250]}
schema = parse_schema(json.dumps({"type": "array", "items": LONG}))
decode(pa.array([b"\\0"]), schema)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
datums = [DATUMS]
told = [(part.values.nbytes >> 20, part.errors.null_count) for part in decode_parts(pa.array(datums), schema)]
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"told": told, "grown": grown / 1024}))
"""


@pytest.mark.parametrize(("items", "times"), [(9_000_000, 1), (900_000, 10)], ids=["one", "ten"])
def test_nine_megabytes_do_not_become_two_gigabytes(items: int, times: int) -> None:
    """Neither as one message, which is an error, nor as ten, which are read one after the other."""
    program = AMPLIFIED.replace("DATUMS", f"bytes.fromhex('{number(items).hex()}') + bytes({items + 1})")
    program = program.replace("datums = [", f"datums = {times} * [")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["told"] == [[0, 0]] if times == 1 else len(measured["told"]) == 10
    assert measured["grown"] < 800  # MiB


# --- schemas that are refused -------------------------------------------------------------------


def doubling(levels: int) -> dict[str, Any]:
    """Each level holds the one before twice: 2 to the power of *levels* fields."""
    kind: Any = record("int", name="L0")
    for i in range(1, levels + 1):
        kind = record(kind, f"L{i - 1}", name=f"L{i}")
    return kind


def nested(levels: int) -> Any:
    kind: Any = "int"
    for _ in range(levels):
        kind = array(kind)
    return kind


REFUSED: list[tuple[str, str]] = [
    ("", "it is not JSON"),
    ("{", "it is not JSON"),
    ("[" * 100_000, "nested too deeply"),
    ('{"a":' * 100_000, "nested too deeply"),
    (" " * 2**20 + '"int"', "its text has 1,048,581 characters"),
    ("3", "3 is not a type"),
    ("null", "None is not a type"),
    ('"number"', "'number' is not defined"),
    ('"file:///etc/passwd"', "is not defined"),
    ('{"type": "https://example.org/a.avsc"}', "is not defined"),
    ('{"type": ' * 200 + '"int"' + "}" * 200, "nested more than 32 deep"),
    ("{}", "None is not a type"),
    ("[]", "a union has no branches"),
    ('["int", ["null", "string"]]', "directly in a union"),
    ('["int", "int"]', "two branches of one type"),
    ('["null", "null"]', "two branches of one type"),
    (json.dumps(doubling(40)), "more than 10,000 types"),
    (json.dumps(record(*["int"] * 10_001)), "more than 10,000 types"),
    (json.dumps(record("int", *["null"] * 10_000)), "more than 10,000 types"),
    (json.dumps(record(*[["null", "int"]] * 10_001)), "more than 10,000 types"),
    (json.dumps(nested(40)), "nested more than 32 deep"),
    (json.dumps(record(["null", "R"])), "the type R contains itself"),
    (json.dumps(record(array("R"))), "the type R contains itself"),
    (json.dumps(array("null")), "the items of an array take no bytes"),
    (json.dumps(mapping("null")), "the values of a map take no bytes"),
    (json.dumps(array(record("null"))), "the record R takes no bytes"),
    (json.dumps(array(fixed(0))), "the size of the fixed F is 0"),
    (json.dumps(record()), "the record R has no fields"),
    (json.dumps(array(record(record("null", "null", name="Q")))), "the record Q takes no bytes"),
    (json.dumps([fixed(1, f"F{i}") for i in range(129)]), "a union has 129 branches"),
    (json.dumps(array(["null", record(*["long"] * 200)])), "more than 1024 for each byte"),
    (json.dumps({"type": "fixed", "name": "F", "size": 2**40}), "the size of the fixed F"),
    (json.dumps({"type": "fixed", "name": "F", "size": -1}), "the size of the fixed F"),
    (json.dumps({"type": "fixed", "name": "F", "size": True}), "the size of the fixed F"),
    (json.dumps({"type": "enum", "name": "E", "symbols": []}), "has no symbols"),
    (json.dumps({"type": "enum", "name": "E", "symbols": ["a", "a"]}), "a symbol twice"),
    (json.dumps({"type": "enum", "name": "E", "symbols": ["a" * 300]}), "cannot be a symbol"),
    (json.dumps({"type": "record", "name": "R", "fields": "x"}), "has no fields"),
    (json.dumps({"type": "record", "name": "R", "fields": ["x"]}), "a field that is not an object"),
    (
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}),
        "'a b' cannot be",
    ),
    (json.dumps({"type": "record", "name": "R", "fields": [{"name": "a"}]}), "None is not a type"),
    (
        json.dumps({"type": "record", "name": "R\0", "fields": [{"name": "a", "type": "int"}]}),
        "cannot be a part",
    ),
    (
        json.dumps(
            {"type": "record", "name": "R", "fields": [{"name": n, "type": "int"} for n in ("a", "a")]}
        ),
        "two fields",
    ),
    (json.dumps(record(fixed(1), fixed(2))), "the type F is defined twice"),
    (
        json.dumps({"type": "record", "fields": [{"name": "a", "type": "int"}]}),
        "None is not the name of a type",
    ),
    ('"\\ud800"', "is not defined"),
    ("1" * 5000, "it is not JSON"),
]


@pytest.mark.parametrize(("schema", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_a_hostile_or_broken_schema_is_refused_with_the_reason(schema: str, reason: str) -> None:
    for _ in range(2):
        with pytest.raises(SchemaRefused) as refused:
            parse_schema(schema)
        assert reason in str(refused.value)
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("a", "A"), ["a", "A_2"]),
        (("a", "A", "A_2", "b"), ["a", "A_2_", "A_2", "b"]),
        (("name", "Name", "NAME"), ["name", "Name_2", "NAME_3"]),
        (("größe", "GRÖSSE", "数"), ["größe", "GRÖSSE", "数"]),
    ],
)
def test_fields_whose_names_differ_in_case_alone_are_told_apart(
    names: tuple[str, ...], told: list[str]
) -> None:
    """Spark could not name either of two such fields. Letters that Avro does not allow are sent as well."""
    fields = [{"name": name, "type": "int"} for name in names]
    kind = parse_schema(json.dumps({"type": "record", "name": "R", "fields": fields})).arrow_type
    assert [field.name for field in kind] == told


def test_the_same_text_is_judged_once() -> None:
    assert parse_schema('{"type":"int"}') is parse_schema('{"type":"int"}')


def test_names_are_resolved_in_their_namespace() -> None:
    schema = {
        "type": "record",
        "name": "x.R",
        "fields": [
            {"name": "a", "type": fixed(1)},
            {"name": "b", "type": "F"},
            {"name": "c", "type": "x.F"},
            {
                "name": "d",
                "type": {
                    "type": "record",
                    "name": "Q",
                    "namespace": "y",
                    "fields": [
                        {"name": "e", "type": fixed(2)},
                        {"name": "f", "type": "F"},
                        {"name": "g", "type": "x.F"},
                    ],
                },
            },
            {"name": "h", "type": ["null", "y.F", "F"]},
        ],
    }
    [value] = run(schema, b"123" + b"aabb1" + b"\x02zz").values.to_pylist()
    assert value["d"] == {"e": b"aa", "f": b"bb", "g": b"1"}
    assert value["h"] == '{"y.F":"zz"}'


# --- a good citizen -----------------------------------------------------------------------------


def test_no_file_is_left_behind_by_right_and_by_wrong_datums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder of this test's own: other processes keep files of theirs where files usually are."""
    made, make = list[str](), tempfile.mkstemp

    def noted(*where: str) -> tuple[int, str]:
        handle, path = make(*where)
        made.append(path)
        return handle, path

    monkeypatch.setattr(native, "_IN_MEMORY", str(tmp_path))
    monkeypatch.setattr(tempfile, "mkstemp", noted)
    run("int", b"\x02")
    run("int", b"\x02", b"", b"\x02")
    assert len(made) >= 2
    assert {Path(path).parent for path in made} == {tmp_path}
    assert list(tmp_path.iterdir()) == []


def test_threads_do_not_meet() -> None:
    batches = [
        [row(i) if i % 97 else b"bad" for i in range(start, start + 500)] for start in range(0, 8000, 500)
    ]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda batch: run(ROW, *batch).values.to_pylist(), batches))
    assert results == [
        [row_value(i) if i % 97 else None for i in range(s, s + 500)] for s in range(0, 8000, 500)
    ]


def test_where_no_memory_disk_is_the_temporary_folder_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_IN_MEMORY", "/no/such/folder")
    assert run("int", b"\x02").values.to_pylist() == [1]


FORKED = """
import os, signal
import pyarrow as pa
from cdckit.parts.avro import decode, parse_schema

schema, datums = parse_schema('"int"'), pa.array([b"\\2"])
signal.alarm(240)
if os.fork() == 0:  # as Spark's daemon does: not used before
    decode(datums, schema)
    os._exit(0)
assert os.wait()[1] == 0
decode(datums, schema)
if os.fork() == 0:
    signal.alarm(240)
    try:
        decode(datums, schema)
    except RuntimeError as error:
        os._exit(0 if "spawn" in str(error) else 2)
    os._exit(3)
assert os.wait()[1] == 0
"""


def test_a_fork_after_use_is_an_error_and_not_a_hang() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_session_is_not_kept_for_ever() -> None:
    """It remembers each path it has read."""
    schema, datums = parse_schema('"int"'), pa.array([b"\2"])
    sessions = [native._session() for _ in range(600)]
    assert 2 <= len(set(map(id, sessions))) <= 4
    assert decode(datums, schema).values.to_pylist() == [1]
