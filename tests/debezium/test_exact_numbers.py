"""Numbers of Maxwell's and wal2json's JSON keep their digits."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import debezium
from cdckit.records import RECORD_SCHEMA
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


def of(spark: SparkSession, *values: str) -> DataFrame:
    rows = [(None, value.encode(), "t", 0, offset, None, 0, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORD_SCHEMA)


def maxwell_value(row: str, _: str) -> str:
    return f'{{"type": "update", "table": "t", "ts": 1, "data": {row}, "old": {row}}}'


def wal2json_value(_: str, columns: str) -> str:
    rest = f'"table": "t", "columns": {columns}, "identity": {columns}'
    return f'{{"action": "U", "timestamp": "2024-03-01 12:00:00+00", {rest}}}'


PRODUCERS: dict[str, tuple[Callable[[DataFrame], DataFrame], Callable[[str, str], str]]] = {
    "maxwell": (debezium.decode_maxwell, maxwell_value),
    "wal2json": (debezium.decode_wal2json, wal2json_value),
}


@pytest.mark.parametrize("producer", PRODUCERS)
@seeds(1, soak=40)
def test_every_value_is_what_was_sent(spark: SparkSession, producer: str, seed: int) -> None:
    decode, written_by = PRODUCERS[producer]
    chance = random.Random(seed)
    events = [[(number, number)] for number in NUMBERS]
    events += [[drawn(chance) for _ in range(chance.randint(1, 6))] for _ in range(200)]
    sent = []
    for event in events:
        row = "{" + ", ".join(f'"c{place}": {text}' for place, (text, _) in enumerate(event)) + "}"
        columns = ", ".join(
            f'{{"name": "c{place}", "value": {text}}}' for place, (text, _) in enumerate(event)
        )
        sent.append(written_by(row, f"[{columns}]"))
    found = decode(of(spark, *sent)).orderBy("offset").select("before", "after", "error_code").collect()
    expected = [{f"c{place}": text for place, (_, text) in enumerate(event)} for event in events]
    assert [(row["before"], row["after"], row["error_code"]) for row in found] == [
        (row, row, None) for row in expected
    ]


def test_what_is_no_json_stays_none(spark: SparkSession) -> None:
    """A number that JSON does not have is not made one by being looked for."""
    wrong = ["01.50", "1.50.2", ".50", "1.50e", "1.50x", "--1.50", "+1.50", "1.50 2.50", "{1.50: 2}", "[1.50"]
    values = [maxwell_value(f'{{"id": {each}}}', "") for each in wrong]
    found = debezium.decode_maxwell(of(spark, *values, values[0] + ", 1.50")).select("error_code").collect()
    assert {row["error_code"] for row in found} == {"NOT_JSON"}


def test_a_numeric_is_read_digit_by_digit(spark: SparkSession) -> None:
    numbers = ["12345678901234567890.123456789012345678", "-0.000000000000000001", "1E-18", "19.90", "7"]
    columns = [
        f'[{{"name": "id", "type": "integer", "value": {place}}},'
        f' {{"name": "a", "type": "numeric(38,18)", "value": {number}}}]'
        for place, number in enumerate(numbers)
    ]
    decoded = debezium.decode_wal2json(of(spark, *(wal2json_value("", each) for each in columns)))
    told = debezium.changes(decoded, "t", keys=["id"], columns={"id": "integer", "a": "numeric(38,18)"})
    assert [row["a"] for row in told.orderBy("arrival.offset").select("data.a").collect()] == [
        Decimal(number) for number in numbers
    ]
