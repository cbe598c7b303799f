"""JSON objects as records: what each text is, by hand, and beside Python's own reader."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from cdckit.parts.json_objects import ObjectReader, json_text, plain_text


class Block(msgspec.Struct):
    at: Any = None


class Pair(msgspec.Struct):
    name: Any = None
    value: Any = None


class Kind(msgspec.Struct):
    number: Any = None
    row: Any = None
    source: Block | None = None
    pairs: list[Pair | None] | None = None
    schema: msgspec.Raw = msgspec.Raw()


def read(kind: type[Any], *texts: bytes | None) -> list[Any]:
    return ObjectReader(kind).read(pa.array(texts, pa.binary()))


def as_texts(text: str) -> dict[str, str | None] | None:
    (found,) = read(dict, text.encode())
    return None if found is None else {name: plain_text(value) for name, value in found.items()}


def plain(value: Any) -> Any:
    """A record as JSON has it, with its numbers as they were written."""
    if isinstance(value, msgspec.Struct):
        said = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        return {name: part for name, part in said.items() if part not in (None, b"")}
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    return [plain(part) for part in value] if isinstance(value, list) else value


FITTING: list[tuple[str, dict[str, Any]]] = [
    ("{}", {}),
    (' {"number": 7, "other": [1]} ', {"number": 7}),
    ('{"number": -9223372036854775808}', {"number": -(1 << 63)}),
    ('{"number": 9223372036854775808}', {"number": 1 << 63}),
    ('{"row": {}, "source": {}}', {"row": {}, "source": {}}),
    ('{"source": {"at": 5, "more": {}}}', {"source": {"at": 5}}),
    ('{"pairs": [{"name": "a", "value": 1.0}, null, {}]}',
     {"pairs": [{"name": "a", "value": b"1.0"}, None, {}]}),
    ('{"schema": {"x" : 1.0}}', {"schema": b'{"x" : 1.0}'}),
    ('{"schema": null}', {"schema": b"null"}),
]  # fmt: skip
OF_ANOTHER_KIND = ['{"source": "flat"}', '{"pairs": {"name": "a"}}', '{"pairs": 1}', '{"source": [{}]}']
NO_OBJECTS = [
    b"", b" ", b"7", b'"a"', b"null", b"[1]", b'[{"number": 7}]', b"{} {}", b"{},", b"{'number': 7}",
    b'{"number": 07}', b'{"number": NaN}', b'{"number": Infinity}', b'{"number": 7,}',
    b'\xef\xbb\xbf{"number": 7}',
    b'{"row": {"a": "\xff"}}', b'{"passed over": "\xff"}', b'{"row": {"a": "\\x"}}', b'{"number": 7',
]  # fmt: skip


def test_what_fits_is_read_and_what_is_of_another_kind_is_null() -> None:
    """All in one batch, beside what is no object: none costs another its value."""
    texts = [text.encode() for text, _ in FITTING] + [text.encode() for text in OF_ANOTHER_KIND]
    expected: list[Any] = [found for _, found in FITTING] + [{}] * len(OF_ANOTHER_KIND)
    assert list(map(plain, read(Kind, *texts))) == expected
    found = read(Kind, *texts, None, *NO_OBJECTS)
    assert list(map(plain, found)) == [*expected, *[None] * (len(NO_OBJECTS) + 1)]


def test_a_field_may_be_called_otherwise() -> None:
    class Named(msgspec.Struct, rename={"tx_id": "txId"}):
        tx_id: Any = None
        source: Block | None = None

    assert [each.tx_id for each in read(Named, b'{"txId": 7}', b'{"txId": 7, "source": 5}')] == [7, 7]


def test_what_one_reader_of_json_refuses_is_read_all_the_same() -> None:
    """Numbers of thousands of digits; halves of characters, which are written out: no file holds them."""
    long = "7" * 6000
    assert as_texts(f'{{"a": {long}, "b": [{long}]}}') == {"a": long, "b": f"[{long}]"}
    assert as_texts('{"a": "x\\ud800", "\\udfff": ["\\ud800"]}') == {
        "a": "x\\ud800",
        "\\udfff": '["\\\\ud800"]',
    }
    assert as_texts('{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


@pytest.mark.parametrize("depth", [*range(10, 800, 17), 5000])
def test_an_object_is_read_or_not_however_deep_it_is(depth: int) -> None:
    """Never an error, which would cost all that is read with it."""
    nested = "[" * depth + "]" * depth
    found, beside = read(dict, f'{{"a": {nested}}}'.encode(), b'{"b": [1]}')
    assert (json_text(found) if found is not None else None) == (f'{{"a":{nested}}}' if depth < 800 else None)
    assert beside == {"b": [1]}


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
    found = as_texts("{" + ", ".join(f'"n{place}": {each}' for place, each in enumerate(numbers)) + "}")
    assert found is not None
    assert list(found.values()) == numbers
    assert as_texts('{"a": -0, "b": [-0]}') == {"a": "0", "b": "[0]"}
    assert json.loads(found["n2"] or "") == 12345678901234567890123
