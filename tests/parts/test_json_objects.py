"""JSON objects as columns: what each text is, by hand, and beside Python's own reader."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from cdckit.parts.json_objects import ObjectReader

TEXTS = T.MapType(T.StringType(), T.StringType())
PAIR = T.StructType().add("name", "string").add("value", "string")
KIND = (
    T.StructType()
    .add("number", "long")
    .add("row", TEXTS)
    .add("source", T.StructType().add("at", "string"))
    .add("pairs", T.ArrayType(PAIR))
    .add("schema", "binary")
)
NOTHING: dict[str, Any] = {"number": None, "row": None, "source": None, "pairs": None, "schema": None}


def read(kind: T.StructType | T.MapType, *texts: bytes | None) -> list[Any]:
    reader = ObjectReader(kind)
    column = reader.column(reader.read(pa.array(texts, pa.binary())))
    column.validate(full=True)
    return list(column.to_pylist())


def as_map(text: str) -> Any:
    (found,) = read(TEXTS, text.encode())
    return None if found is None else dict(found)


FITTING: list[tuple[str, dict[str, Any]]] = [
    ("{}", {}),
    (' {"number": 7, "other": [1]} ', {"number": 7}),
    ('{"number": -9223372036854775808}', {"number": -(1 << 63)}),
    ('{"row": {"a": 1.10, "b": "1.10", "c": null, "d": true, "e": [1.50, {"f": 1E5}]}}',
     {"row": [("a", "1.10"), ("b", "1.10"), ("c", None), ("d", "true"), ("e", '[1.50,{"f":1E5}]')]}),
    ('{"row": {}, "source": {}}', {"row": [], "source": {"at": None}}),
    ('{"source": {"at": 5, "more": {}}}', {"source": {"at": "5"}}),
    ('{"pairs": [{"name": "a", "value": 1.0}, null, {}]}',
     {"pairs": [{"name": "a", "value": "1.0"}, None, {"name": None, "value": None}]}),
    ('{"schema": {"x" : 1.0}}', {"schema": b'{"x" : 1.0}'}),
    ('{"schema": null}', {}),
]  # fmt: skip
OF_ANOTHER_KIND = [
    '{"number": 1.0}', '{"number": "1"}', '{"number": true}', '{"number": 9223372036854775808}',
    '{"row": "a"}', '{"row": [1]}', '{"source": "flat"}', '{"pairs": {"name": "a"}}', '{"pairs": 1}',
]  # fmt: skip
NO_OBJECTS = [
    b"", b" ", b"7", b'"a"', b"null", b"[1]", b'[{"number": 7}]', b"{} {}", b"{},", b"{'number': 7}",
    b'{"number": 07}', b'{"number": NaN}', b'{"number": Infinity}', b'{"number": 7,}',
    b'\xef\xbb\xbf{"number": 7}',
    b'{"row": {"a": "\xff"}}', b'{"passed over": "\xff"}', b'{"row": {"a": "\\x"}}', b'{"number": 7',
]  # fmt: skip


def test_what_fits_is_read_and_what_is_of_another_kind_is_null() -> None:
    """All in one batch, beside what is no object: none costs another its value."""
    texts = [text.encode() for text, _ in FITTING] + [text.encode() for text in OF_ANOTHER_KIND]
    expected = [NOTHING | found for _, found in FITTING] + [NOTHING] * len(OF_ANOTHER_KIND)
    assert read(KIND, *texts) == expected
    assert read(KIND, *texts, None, *NO_OBJECTS) == [*expected, *[None] * (len(NO_OBJECTS) + 1)]


def test_what_one_reader_of_json_refuses_is_read_all_the_same() -> None:
    """Numbers of thousands of digits; halves of characters, which are written out: no file holds them."""
    long = "7" * 6000
    assert as_map(f'{{"a": {long}, "b": [{long}]}}') == {"a": long, "b": f"[{long}]"}
    assert as_map('{"a": "x\\ud800", "\\udfff": ["\\ud800"]}') == {
        "a": "x\\ud800",
        "\\udfff": '["\\\\ud800"]',
    }
    assert as_map('{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


@pytest.mark.parametrize("depth", [*range(10, 1200, 17), *range(900, 1010), 5000])
def test_an_object_is_read_or_not_however_deep_it_is(depth: int) -> None:
    """Never an error, which would cost all that is read with it."""
    nested = "[" * depth + "]" * depth
    found, beside = read(TEXTS, f'{{"a": {nested}}}'.encode(), b'{"b": [1]}')
    assert found in ([None, [("a", nested)]] if depth > 800 else [[("a", nested)]])
    assert beside == [("b", "[1]")]


def test_a_number_is_the_text_that_was_sent() -> None:
    """Whole ones as Python's reader has them; but a zero below zero is plain."""
    numbers = [
        "0",
        "-7",
        "12345678901234567890123",
        "0.10",
        "-0.0",
        "1E5",
        "1.5e+3",
        "1e400",
        "2E-400",
        "40.0",
    ]
    found = as_map("{" + ", ".join(f'"n{place}": {each}' for place, each in enumerate(numbers)) + "}")
    assert list(found.values()) == numbers
    assert as_map('{"a": -0, "b": [-0]}') == {"a": "0", "b": "[0]"}
    assert json.loads(found["n2"]) == 12345678901234567890123
