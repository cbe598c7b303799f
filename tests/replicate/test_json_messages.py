"""Values in JSON form, by the kernel alone: what a text is for a column of a type, or that it is none."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdckit.parts.text_values import Unreadable
from cdckit.replicate.json_messages import value_reader

INSTANT, CLOCK = pa.timestamp("us", "UTC"), pa.timestamp("us")
PARTS = pa.struct([("list", pa.list_(pa.int32())), ("map", pa.map_(pa.string(), pa.decimal128(5, 2)))])
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)

READ: list[tuple[pa.DataType, dict[str, Any]]] = [
    (pa.string(), {"": "", " x ": " x ", "null": "null"}),
    (pa.int32(), {"7": 7, " -2147483648 ": -(2**31), "+7": 7}),
    (pa.int64(), {"9223372036854775807": 2**63 - 1}),
    (pa.float64(), {"0.25": 0.25, "1e2": 100.0, ".5": 0.5, "5.": 5.0, "-Infinity": float("-inf")}),
    (pa.decimal128(7, 2), {"12.5": Decimal("12.50"), "1.230": Decimal("1.23"), "1E+2": Decimal("100.00")}),
    (pa.bool_(), {"true": True, "T": True, "yes": True, "1": True, "False": False, "n": False}),
    (pa.binary(), {"FF00": b"\xff\x00", "f": b"\x0f", "": b""}),
    (pa.date32(), {"2024-02-29": date(2024, 2, 29), "2024-1-5": date(2024, 1, 5), "2024": date(2024, 1, 1)}),
    (pa.date32(), {"2024-01-05T23:30:00-02:00": date(2024, 1, 5), " 2024-01-05 ": date(2024, 1, 5)}),
    (INSTANT, {"2024-01-01T12:00": NOON, "2024-01-01 10:00:00-02": NOON, "2024-01-01T13:30:00+0130": NOON}),
    (INSTANT, {"2024-01-01T12:00:00.0000009Z": NOON, "2024-01-01": NOON.replace(hour=0)}),
    (CLOCK, {"2024-01-01T12:00:00+05:00": NOON.replace(tzinfo=None)}),
    (PARTS, {'{"list": [1, "2", null]}': {"list": [1, 2, None], "map": None}}),
    (PARTS, {'{"map": {"a": "1.5"}, "more": 1}': {"list": None, "map": [("a", Decimal("1.50"))]}}),
    (pa.list_(pa.decimal128(19, 2)), {"[12345678901234567.89]": [Decimal("12345678901234567.89")]}),
    (pa.list_(pa.string()), {'[{"p": 1.50, "q": [1e5]}, 1.0]': ['{"p":1.50,"q":[1e5]}', "1.0"]}),
    (pa.list_(pa.string()), {r'["\ud83d\ude00", 1.10, true]': ["\U0001f600", "1.10", "true"]}),
]
REFUSED: list[tuple[pa.DataType, list[str]]] = [
    (pa.int32(), ["2147483648", "7.0", "7.5", "", "x", "1_0", "\u0661", "0x10"]),
    (pa.float64(), ["", "one", "1d", "1,5"]),
    (pa.decimal128(7, 2), ["100000", "12.345", "NaN", "1E+9999999999", "", "1_0"]),
    (pa.bool_(), ["", "on", "2"]),
    (pa.binary(), ["XY", "F F", "0xFF"]),
    (pa.date32(), ["2023-02-29", "0000-01-01", "+10000-01-01", "10:00", "2024-13-01", "20240101"]),
    (INSTANT, ["10:00", "2024", "2024-01-01T10", "2024-01-01T24:00", "2024-01-01T10:00:60", " 2024-01-01"]),
    (INSTANT, ["9999-12-31T23:30:00-01:00", "2024-01-01T10:00:00,5", "2024-01-01T10:00 Z", ""]),
    (CLOCK, ["2024-01-01T10", "x"]),
    (pa.list_(pa.string()), [r'["\ud800"]']),
    (pa.map_(pa.string(), pa.string()), [r'{"\ud800": "x"}']),
    (PARTS, ['{"list": [1], "list": [2]}', '{"list": NaN}']),
    (PARTS, ["", "[1]", '{"list": 1}', '{"list": ["x"]}', '{"map": {"a": "x"}}', "[" * 100_000]),
    (pa.null(), ["x", ""]),
]


@pytest.mark.parametrize(
    ("kind", "text", "value"), [(k, *pair) for k, texts in READ for pair in texts.items()]
)
def test_a_text_is_a_value_of_its_type(kind: pa.DataType, text: str, value: Any) -> None:
    found = value_reader(kind)(text)
    assert found == value
    pa.array([found], kind).validate(full=True)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in REFUSED for text in texts])
def test_what_its_type_cannot_hold_exactly_is_none(kind: pa.DataType, text: str) -> None:
    with pytest.raises(Unreadable):
        value_reader(kind)(text)
