"""Numbers of JSON keep their digits, whoever sends them; without a JVM."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
import pytest

from cdckit.debezium.envelopes import read_records
from cdckit.debezium.events import Reader
from cdckit.debezium.other_producers import read_maxwell, read_wal2json
from support.database_events import batch, changes, events, rows, types
from tools.tiers import seeds

NUMBERS = [
    "19.90", "-0.0", "0.00", "1E-8", "1.5e+3", "-2E2", "0.00001", "0.001", "12345678.5",
    "1234567.5", "40.0", "7", "-7",
    "12345678901234567890123456789012345.678", "-0.99999999999999999999999999999999999999",
    "99999999999999999.99", "19.900000000000000001", "123456789012345678901234567890123456789012345678",
    "1234567890123456789E-3", "0.10", "100.10", "3.141592653589793",
]  # fmt: skip
TEXTS = [
    "", "a, 1.50, b", 'x": 2.50, "y', "\\", '\\"', "[1.50]", "-", "1.50", "{é: 1.50}", "NaN 1e-9",
    "\n1.50,", "\u00001.10",
]  # fmt: skip


def drawn(chance: random.Random, depth: int = 0) -> tuple[str, str | None]:
    """A JSON value as it is sent, and the text that stands for it: of a text its letters, null for null."""
    kind = chance.choice(["number", "number", "text", "word", "list", "object"][: 6 if depth < 3 else 4])
    if kind == "number":
        digits = "".join(chance.choices("0123456789", k=chance.choice([1, 2, 5, 9, 20, 40])))
        sign, point = chance.choice(["", "-"]), chance.randrange(len(digits) + 1)
        whole = digits[:point].lstrip("0") or "0"
        fraction = f".{digits[point:]}" if digits[point:] else ""
        power = chance.choice(["", "", "", "e5", "E-7", "E+12"])
        number = chance.choice([f"{sign}{whole}{fraction}{power}", *NUMBERS])
        return (number, number) if number != "-0" else ("0", "0")
    if kind == "text":
        text = chance.choice(TEXTS)
        return json.dumps(text, ensure_ascii=False), text
    if kind == "word":
        return chance.choice([("true", "true"), ("false", "false"), ("null", None)])
    inner = [drawn(chance, depth + 1)[0] for _ in range(chance.randrange(4))]
    if kind == "list":
        return "[" + spaced(chance, inner) + "]", "[" + ",".join(map(compact, inner)) + "]"
    names = [json.dumps(f"n{place} 1.50") for place in range(len(inner))]
    sent = spaced(
        chance,
        [f"{name}{chance.choice([':', ' : '])}{each}" for name, each in zip(names, inner, strict=True)],
    )
    shown = ",".join(f"{name}:{compact(each)}" for name, each in zip(names, inner, strict=True))
    return "{" + sent + "}", "{" + shown + "}"


def spaced(chance: random.Random, parts: list[str]) -> str:
    return chance.choice([",", " , ", ",\n"]).join(parts)


class Raw(float):
    """A number that is written as it was read."""

    def __new__(cls, text: str) -> Raw:
        made = super().__new__(cls, 0)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


def compact(text: str) -> str:
    """The same JSON text without spaces, by Python's own reader and writer, each number as it stands."""
    return written(json.loads(text, parse_float=Raw, parse_int=Raw))


def written(value: object) -> str:
    if isinstance(value, Raw):
        return "0" if value.text == "-0" else value.text
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{written(each)}" for name, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def debezium_value(row: str, _: str = "") -> str:
    source = '{"connector": "mysql", "table": "t", "version": "2.7.0.Final"}'
    return f'{{"before": {row}, "after": {row}, "source": {source}, "op": "u", "ts_ms": 1}}'


def beside_schema(row: str, _: str = "") -> str:
    return f'{{"schema": {{"type": "struct"}}, "payload": {debezium_value(row)}}}'


def maxwell_value(row: str, _: str) -> str:
    return f'{{"type": "update", "table": "t", "ts": 1, "data": {row}, "old": {row}}}'


def wal2json_value(_: str, columns: str) -> str:
    rest = f'"table": "t", "columns": {columns}, "identity": {columns}'
    return f'{{"action": "U", "timestamp": "2024-03-01 12:00:00+00", {rest}}}'


PRODUCERS: dict[str, tuple[Reader, Callable[[str, str], str]]] = {
    "debezium": (read_records, debezium_value),
    "debezium beside a schema": (read_records, beside_schema),
    "maxwell": (read_maxwell, maxwell_value),
    "wal2json": (read_wal2json, wal2json_value),
}


@pytest.mark.parametrize("producer", PRODUCERS)
@seeds(1, soak=40)
def test_every_value_is_what_was_sent(producer: str, seed: int) -> None:
    """As text in an event, and in a column that is one."""
    reader, written_by = PRODUCERS[producer]
    chance = random.Random(seed)
    drawn_events = [[(number, number)] for number in NUMBERS]
    drawn_events += [[drawn(chance) for _ in range(chance.randint(1, 6))] for _ in range(200)]
    sent = []
    for event in drawn_events:
        row = "{" + ", ".join(f'"c{place}": {text}' for place, (text, _) in enumerate(event)) + "}"
        columns = ", ".join(
            f'{{"name": "c{place}", "value": {text}}}' for place, (text, _) in enumerate(event)
        )
        sent.append(written_by(row, f"[{columns}]"))
    found = events(batch(sent), reader)
    expected = [{f"c{place}": text for place, (_, text) in enumerate(event)} for event in drawn_events]
    assert [(row["before"], row["after"], row["error_code"]) for row in found] == [
        (row, row, None) for row in expected
    ]
    texts = [row["data"]["c0"] for row in rows(batch(sent), ["c0"], {"c0": "string"}, reader)]
    assert texts == [row["c0"] for row in expected]


CONNECT = "org.apache.kafka.connect.data.Decimal"
COLUMNS = {"id": "decimal(38,2)", "a": "decimal(38,18)", "b": f"{CONNECT}(38,2)", "c": f"{CONNECT}(20,0)"}
BASE64_OF_1234 = Decimal(int.from_bytes(bytes([0xD7, 0x6D, 0xF8]), signed=True))
TRUE = Decimal("-48016.34")
FAR = "99999999999999999999999999999999999.90"
EIGHTEEN = "123456789012345678"
DECIMALS: list[tuple[str, tuple[Decimal | None, ...]]] = [
    (
        '{"id": 1.10, "a": 12345678901234567890.123456789012345678, "b": "AMc=", "c": "TbQ="}',
        (Decimal("1.10"), Decimal(f"12345678901234567890.{EIGHTEEN}"), Decimal("1.99"), Decimal(19892)),
    ),
    # What the converter writes for `decimal.format=NUMERIC`; four digits are Base64, too.
    (
        f'{{"id": 2.10, "a": -0.000000000000000001, "b": {FAR}, "c": -5}}',
        (Decimal("2.10"), Decimal("-1E-18"), Decimal(FAR), Decimal(-5)),
    ),
    (
        '{"id": 3.10, "a": 1E-18, "b": -1.00, "c": 1234}',
        (Decimal("3.10"), Decimal("1E-18"), Decimal("-1.00"), Decimal(1234)),
    ),
    (
        '{"id": 4.10, "a": "1.10", "b": 0.00, "c": "1234"}',
        (Decimal("4.10"), Decimal("1.10"), Decimal("0.00"), BASE64_OF_1234),
    ),
    (
        '{"id": 12345678901234567.89, "a": 0.1000000000000000000, "b": 1E+3, "c": 12345678}',
        (Decimal("12345678901234567.89"), Decimal("0.1"), Decimal(1000), Decimal(12345678)),
    ),
    (
        '{"id": 123456789012345678901E-2, "a": 19.900000000000000001, "b": 12345, "c": 1E+3}',
        (Decimal("1234567890123456789.01"), Decimal("19.900000000000000001"), Decimal(12345), Decimal(1000)),
    ),
    ('{"id": 5, "a": null, "b": null, "c": "MTIz"}', (Decimal(5), None, None, Decimal(0x313233))),
    # A text of these letters is Base64.
    ('{"id": 6, "a": 20000000.50, "b": "true", "c": null}', (Decimal(6), Decimal("20000000.5"), TRUE, None)),
]  # fmt: skip


def test_a_decimal_is_read_digit_by_digit_by_the_form_of_its_token() -> None:
    """A text is Base64, a number is a number, alone or beside a schema; of a key in `before` too."""
    values = [debezium_value(row) for row, _ in DECIMALS]
    told = rows(batch([*values, *(beside_schema(row) for row, _ in DECIMALS)]), ["id"], COLUMNS)
    found, expected = [tuple(row["data"].values()) for row in told], [row for _, row in DECIMALS]
    assert (found[: len(values)], found[len(values) :]) == (expected, expected)
    assert {(row["moved"], row["error_code"]) for row in told} == {(False, None)}


BYTES = {"type": "bytes", "name": CONNECT}
TIMES = "io.debezium.time"


def decimal_of(precision: int, scale: int) -> dict[str, Any]:
    return BYTES | {"parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)}}


def count_of(name: str) -> dict[str, Any]:
    return {"type": "int64", "name": f"{TIMES}.{name}"}


def array_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "map", "keys": {"type": "string"}, "values": values}


def struct_of(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [kind | {"field": name} for name, kind in fields.items()]}


def nested_arrays(depth: int) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        kind = array_of(kind)
    return kind


PRICE, FINER, DAY, LATE = "B88=", "Th8=", date(2024, 3, 18), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
"""Unscaled 1999 and 19999; day 19800; and 1,700,000,000 seconds."""
BASE64_IN_DIGITS = Decimal("-26588.24")
"""Of `1234`: its bytes are D7 6D F8."""
PRICES = [(decimal_of(10, 2), PRICE, Decimal("19.99")), (decimal_of(12, 3), FINER, Decimal("19.999"))]
DAYS = [(count_of("Date"), 19800, datetime(2024, 3, 18, tzinfo=UTC))]
MILLIS = [(count_of("Timestamp"), 1_700_000_000_000, LATE)]
WRITTEN: dict[str, tuple[str | list[str], list[tuple[dict[str, Any], Any, Any]]]] = {
    # One type: the field's.  What an event says of its own tells how the value is written.
    "a decimal of another scale": (f"{CONNECT}(10,3)", PRICES),
    "a decimal that the field cannot hold": (f"{CONNECT}(10,2)", [PRICES[0], (*PRICES[1][:2], None)]),
    "zeros that the field does not have": (f"{CONNECT}(10,2)", [(decimal_of(12, 3), "TiA=", Decimal(20))]),
    "a decimal of too many digits": (f"{CONNECT}(38,30)", [(decimal_of(65, 2), *PRICES[0][1:])]),
    "a decimal of too many places": (f"{CONNECT}(38,30)", [(decimal_of(65, 39), PRICE, None)]),
    "no decimal of Connect": (f"{CONNECT}(10,2)", [({"type": "bytes"}, PRICE, Decimal("19.99"))]),
    "decimals as texts": ("decimal(10,2)", [({"type": "string"}, "19.99", Decimal("19.99"))]),
    "a time in another unit": (f"{TIMES}.MicroTimestamp", [*MILLIS, *DAYS]),
    "a time of day in another unit": (f"{TIMES}.MicroTime", [(count_of("Time"), 1000, 1_000_000)]),
    "a timestamp for a day": (f"{TIMES}.Date", [(*MILLIS[0][:2], None)]),
    "a count as it is": ("int64", [(*MILLIS[0][:2], 1_700_000_000_000)]),
    "a count for a double": ("double", [(count_of("MicroDuration"), 5, 5.0)]),
    "Connect's decimals for a plain one": (
        "decimal(12,3)", [*PRICES, (decimal_of(10, 2), "1234", BASE64_IN_DIGITS)],
    ),
    "Connect's decimals for a double": ("double", [(decimal_of(10, 2), "1234", -26588.24)]),
    "Connect's decimals as numbers": ("double", [(decimal_of(21, 20), 0.1, 0.1)]),
    "a text as it is": ("string", [(*PRICES[0][:2], PRICE)]),
    "a decimal that stays Base64": (f"{CONNECT}(65,30)", [(decimal_of(65, 20), PRICE, PRICE)]),
    # So are the parts of arrays, maps and structs, each by itself.
    "an array of another scale": (
        f"array<{CONNECT}(10,3)>",
        [(array_of(kind), [None, text], [None, value]) for kind, text, value in PRICES],
    ),
    "an array that the field cannot hold": (
        f"array<{CONNECT}(10,2)>", [(array_of(decimal_of(12, 3)), [FINER], None)],
    ),
    "an array of too many digits": (
        f"array<{CONNECT}(38,30)>", [(array_of(decimal_of(65, 2)), [PRICE], [Decimal("19.99")])],
    ),
    "an array in another unit": (
        f"array<{TIMES}.MicroTimestamp>",
        [(array_of(kind), [count], [value]) for kind, count, value in (*MILLIS, *DAYS)],
    ),
    "arrays for days": (f"array<{TIMES}.Date>", [(array_of(MILLIS[0][0]), [MILLIS[0][1]], None)]),
    "arrays of counts as they are": ("array<int64>", [(array_of(MILLIS[0][0]), [1000], [1000])]),
    "arrays of Connect's decimals": (
        "array<decimal(10,2)>", [(array_of(decimal_of(10, 2)), ["1234"], [BASE64_IN_DIGITS])],
    ),
    "a map in another unit": (
        f"map<string, {TIMES}.Timestamp>", [(map_of(DAYS[0][0]), {"k": 19800}, [("k", DAYS[0][2])])],
    ),
    "a struct of both": (
        f"struct<`p`: array<{CONNECT}(10,3)>, t: timestamp, n: int64>",
        [
            (
                struct_of(
                    q=count_of("Date"), t={"type": "string"}, n=count_of("MicroTime"),
                    p=array_of(decimal_of(10, 2)),
                ),
                {"p": [PRICE], "t": "2024-03-18T00:00:00Z", "n": 5, "q": 1},
                {"p": [Decimal("19.99")], "t": DAYS[0][2], "n": 5},
            )
        ],
    ),
    "a third array": (
        [json.dumps(array_of(count_of(f"{unit}Timestamp"))) for unit in ("Micro", "Nano")],
        [(array_of(MILLIS[0][0]), [MILLIS[0][1]], [LATE]), (array_of({"type": "int64"}), [1000], None)],
    ),
    "a third array of another scale": (
        [json.dumps(array_of(decimal_of(10, 2))), json.dumps(array_of(decimal_of(10, 2)), indent=1)],
        [(array_of(decimal_of(12, 3)), [FINER], None)],
    ),
    # Of several types each event is read by its own, however they are spelt, and also if it is none of them.
    "spaces": ([f"{CONNECT}(10, 2)", f"{CONNECT}(12, 3)"], PRICES),
    "letters": ([f"{TIMES}.date", f"{TIMES}.timestamp"], [*DAYS, *MILLIS]),
    "a third type": ([f"{TIMES}.MicroTimestamp", f"{TIMES}.NanoTimestamp"], [*DAYS, *MILLIS]),
    "a type that says no unit": ([f"{TIMES}.Date", f"{TIMES}.Timestamp"], [({"type": "int32"}, 19800, None)]),
    "a narrower number": (["int32", "int64"], [({"type": "int16"}, 7, 7)]),
    "numbers of few bits": (["int8", "int16"], [({"type": "int8"}, 7, 7), ({"type": "int16"}, 300, 300)]),
    "a hostile scale": (f"{CONNECT}(9,1)", [(BYTES | {"name": f"{CONNECT}({'9' * 5000})"}, 7, Decimal(7))]),
    "hostile depth": (["int32", "int64"], [(nested_arrays(450), 7, 7)]),
    "later as texts": ([f"{CONNECT}(9,1)", "decimal(9,1)"], [({"type": "string"}, "1.5", Decimal("1.5"))]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN)
def test_the_type_that_an_event_says_tells_how_its_value_is_written(case: str) -> None:
    """In the type of the field, which `columns` says, or not at all."""
    columns, cells = WRITTEN[case]
    values = []
    for schema, value, _ in cells:
        image = [{"field": "id", "type": "int32"}, schema | {"field": "a"}]
        payload = debezium_value(json.dumps({"id": 1, "a": value}))
        fields = json.dumps({"fields": [{"field": "after", "fields": image}]})
        values.append(f'{{"schema": {fields}, "payload": {payload}}}')
    found = rows(batch(values), ["id"], {"id": "int32", "a": columns}, reject=False)
    assert [row["data"]["a"] for row in found] == [expected for _, _, expected in cells]


def test_a_type_that_only_its_database_knows_is_text_beside_others_too() -> None:
    """A domain, an enumeration, money: before and after the column was altered."""
    cases = {
        ("zip_code", "00123"): "00123", ("mood", "happy"): "happy", ("money", "$1,000.00"): "$1,000.00",
        ("character varying(5)", "007"): "007", ("integer", 5): "5",
    }  # fmt: skip
    identity = {"name": "id", "type": "integer", "value": 1}
    values = [
        wal2json_value("", json.dumps([identity, {"name": "a", "type": kind, "value": value}]))
        for kind, value in cases
    ]
    sent = batch(values)
    for named in (types(sent, read_wal2json)["a"], ("string", "integer")):
        found = rows(sent, ["id"], {"id": "integer", "a": named}, read_wal2json)
        assert [row["data"]["a"] for row in found] == [*cases.values()]


def drawn_number(chance: random.Random) -> str:
    """A number of JSON: whole or not, with a power of ten or none, short or far too long."""
    digits = "".join(chance.choices("0012345678999", k=chance.choice([1, 2, 4, 7, 8, 12, 19, 39])))
    point = chance.choice([len(digits), len(digits), chance.randrange(len(digits) + 1)])
    fraction = digits[point:] + "0" * chance.choice([0, 0, 1, 4])
    power = chance.choice(["", "", "", "e", "E+", "E-"])
    return "".join(
        [
            chance.choice(["", "-"]),
            digits[:point].lstrip("0") or "0",
            f".{fraction}" if fraction else "",
            f"{power}{chance.choice([0, 1, 2, 5, 12, 40])}" if power else "",
        ]
    )


def held(unscaled: Fraction, precision: int, scale: int) -> Decimal | None:
    """The decimal of so many digits and places, if it can be one exactly."""
    if unscaled.denominator != 1 or abs(unscaled) >= 10**precision:
        return None
    return Decimal(int(unscaled)).scaleb(-scale, Context(prec=40))


def drawn_cell(chance: random.Random, said: str, precision: int, scale: int) -> tuple[str, Decimal | None]:
    """A value as it is sent in a column of that type, and what it is; None for what the type cannot hold."""
    if said == CONNECT and chance.random() < 0.4:
        unscaled = chance.randrange(-(1 << (bits := chance.choice([4, 7, 23, 30, 64, 127]))), 1 << bits)
        text = b64encode(unscaled.to_bytes(bits // 8 + 1, signed=True)).decode()
        return json.dumps(text), held(Fraction(unscaled), precision, scale)
    number = drawn_number(chance)
    value = held(Fraction(number) * 10**scale, precision, scale)
    return (json.dumps(number) if said == "decimal" and chance.random() < 0.3 else number), value


@seeds(*range(2), soak=40)
def test_a_number_is_what_python_says_it_is_or_a_fault(seed: int) -> None:
    """In columns of three types and several sizes, as numbers, as texts and in Base64."""
    chance = random.Random(seed)
    sizes = [
        (said, *size) for said in ("decimal", CONNECT, "numeric") for size in ((38, 18), (10, 2), (9, 0))
    ]
    columns = {f"c{place}": f"{said}({most},{scale})" for place, (said, most, scale) in enumerate(sizes)}
    samples = [
        chance.sample(list(zip(columns, sizes, strict=True)), chance.randint(1, 3)) for _ in range(600)
    ]
    sent, expected = [], list[dict[str, Decimal | None] | None]()
    for event in samples:
        cells = {name: drawn_cell(chance, *size) for name, size in event}
        fields = [f'"{name}": {text}' for name, (text, _) in cells.items()]
        sent.append(debezium_value("{" + ", ".join([f'"id": {len(sent)}', *fields]) + "}"))
        values = {name: value for name, (_, value) in cells.items()}
        expected.append(None if None in values.values() else dict.fromkeys(columns) | values)
    found = rows(batch(sent), ["id"], {"id": "int32", **columns})
    told = [None if row["error_code"] else {name: row["data"][name] for name in columns} for row in found]
    wrong = [each for each in zip(sent, told, expected, strict=True) if each[1] != each[2]]
    assert wrong == []
    assert 100 < expected.count(None) < 500


NOT_HELD = {
    "decimal(10,2)": [
        "19.999",
        "-0.001",
        '"19.999"',
        "19.9900000000000000000000000000000000000001",
        "1999E-3",
        "1E-3",
        "12345678.125",
        "0.1234567890123456789E-1",
        "1E+9",
        "123456789.00",
        "true",
        "false",
        '"19.9x1"',
        "1e400",
        "1E-400",
    ],
    f"{CONNECT}(10,2)": ["19.999", "1999E-3", "-0.001", "1E+9", "true", "false", "12345678.125", "1e400"],
    "numeric(10,2)": ["19.999", "true"],
    "decimal(10,0)": ["1.5", "15E-1"],
    f"array<{CONNECT}(10,2)>": ["[true]", "[1.10, 19.999]", "[1999E-3]", "[1, -1e400]", "[1E-400]"],
    "array<decimal(10,2)>": ["[1.10, 19.999]"],
    # Beyond the largest of these floats: of 32 bits 2**128 - 2**103 is the first that is nearer to infinity.
    "float": ["1e39", '"-1e39"', "340282356779733661637539395458142568448"],
    "double": ["1e999", "-1e999"],
    "io.debezium.time.Timestamp": ["1529507596945.5"],
}
HELD = [
    ("19.9900000000000000000000000000000000000000", "19.99"), ("19900E-3", "19.90"), ("-1999E-2", "-19.99"),
    ("0E-9", "0.00"), ("0.000", "0.00"), ("-0.000", "0.00"), ("1.0E7", "10000000.00"), ("100E-1", "10.00"),
    ("12345678.10", "12345678.10"), ("0.5E+1", "5.00"), ("10.0100", "10.01"), ("1E-2", "0.01"),
    ("1e5", "100000.00"), ("12E3", "12000.00"), ("1E+7", "10000000.00"), ("123E+2", "12300.00"),
]  # fmt: skip


def test_a_number_that_its_type_cannot_hold_exactly_is_a_fault() -> None:
    """Too many digits on either side of the point, or no number at all; nothing is rounded."""
    cases = [(said, sent) for said, values in NOT_HELD.items() for sent in values]
    columns = {f"c{place}": said for place, said in enumerate(NOT_HELD)}
    names = {said: name for name, said in columns.items()}
    values = [
        debezium_value(f'{{"id": {place}, "{names[said]}": {sent}}}')
        for place, (said, sent) in enumerate(cases)
    ]
    found = rows(batch(values), ["id"], {"id": "int32", **columns})
    assert len(found) == len(cases)
    assert [(cases[row["offset"]], row["data"]) for row in found if row["error_code"] is None] == []


def test_a_number_is_held_whose_further_digits_are_zeros() -> None:
    columns = {"id": "int32", "plain": "decimal(10,2)", "connect": f"{CONNECT}(10,2)"}
    values = [
        debezium_value(f'{{"id": {place}, "plain": {sent}, "connect": {sent}}}')
        for place, (sent, _) in enumerate(HELD)
    ]
    found = rows(batch(values), ["id"], columns)
    for name in ("plain", "connect"):
        assert [row["data"][name] for row in found] == [Decimal(expected) for _, expected in HELD], columns[
            name
        ]


@pytest.mark.parametrize("said", ["float", "double"])
def test_the_largest_float_and_what_is_said_to_be_infinite_are_held(said: str) -> None:
    """Java writes the largest of 32 bits as 3.4028235E38, which is a little more than it is."""
    sent = {"3.4028235E38": 3.4028235e38, '"Infinity"': inf, '"-inf"': -inf}
    values = [debezium_value(f'{{"id": 1, "a": {text}}}') for text in sent]
    found = [row["data"]["a"] for row in rows(batch(values), ["id"], {"id": "int32", "a": said})]
    assert found == [float(np.float32(value)) if said == "float" else value for value in sent.values()]


def test_a_decimal_that_is_a_word_is_named_as_it_was_sent() -> None:
    values = [debezium_value('{"id": 1, "a": true}'), debezium_value('{"id": 2, "a": 12345678}')]
    found = rows(batch(values), ["id"], {"id": "int32", "a": f"{CONNECT}(5,2)"})
    told = [row["error_description"].partition("It says: ")[2] for row in found]
    assert told == ["a: true", "a: 12345678"]


def test_a_key_that_is_a_whole_number_pairs_a_delete_with_its_create() -> None:
    """A header's key is read as the row's own: four digits that are a number are no Base64."""
    source = {"connector": "postgresql", "name": "shop", "table": "t", "sequence": '["1","2"]', "ts_ms": 1000}
    gone = {"op": "d", "before": {"id": 1234}, "source": source}
    come = {"op": "c", "after": {"id": 5678}, "source": source}
    headers = [
        {"__debezium.newkey": '{"schema": {}, "payload": {"id": 5678}}'},
        {"__debezium.oldkey": '{"id": 1234}'},
    ]
    told = changes(batch([gone, come], headers=headers), ["id"], {"id": f"{CONNECT}(10,0)"})
    assert [(row["moved"]["old_key"]["id"], row["moved"]["new_key"]["id"]) for row in told] == [
        (Decimal(1234), Decimal(5678))
    ] * 2


def test_a_delete_has_the_decimal_of_its_key() -> None:
    cases = {
        '{"id": 1234}': Decimal("1234.00"),
        '{"id": "1234"}': BASE64_OF_1234 / 100,
        '{"schema": {}, "payload": {"id": 12345678901234567.89}}': Decimal("12345678901234567.89"),
    }
    value = b'{"op": "d", "ts_ms": 1, "source": {"connector": "postgresql", "table": "t"}}'
    told = changes(batch([value] * len(cases), keys=[*cases]), ["id"], {"id": f"{CONNECT}(20,2)"})
    found = [(row["operation"], row["data"]["id"]) for row in told]
    assert dict(zip(cases, found, strict=True)) == {
        key: ("delete", expected) for key, expected in cases.items()
    }


def test_events_of_one_place_that_differ_in_digits_are_two_messages() -> None:
    """Events of a compressed transaction of MySQL share a position; a double could not tell these apart."""
    numbers = ["12345678901234567.89", "12345678901234567.90"]
    source = '{"connector": "mysql", "name": "m", "table": "t", "file": "a.1", "pos": 4, "row": 0}'
    values = [
        f'{{"after": {{"id": 1, "a": {number}}}, "source": {source}, "op": "u", "ts_ms": 1}}'
        for number in numbers
    ]
    told = changes(batch(values), ["id"], {"id": "int32", "a": "decimal(38,2)"})
    assert len({row["message_id"] for row in told}) == 2


def test_what_is_no_json_stays_none() -> None:
    """A number that JSON does not have is not made one by being looked for."""
    wrong = ["01.50", "1.50.2", ".50", "1.50e", "1.50x", "--1.50", "+1.50", "1.50 2.50", "{1.50: 2}", "[1.50"]
    values = [maxwell_value(f'{{"id": {each}}}', "") for each in wrong]
    found = events(batch([*values, values[0] + ", 1.50"]), read_maxwell)
    assert {row["error_code"] for row in found} == {"NOT_JSON"}
