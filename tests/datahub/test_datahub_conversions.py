"""`convert_values`: every type, its edges, and the same result whatever stands beside a value."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from cdckit.datahub.conversions import convert_values
from cdckit.datahub.mappings import SPARK_TYPES, FieldType
from cdckit.parts.instants import microseconds, parse_instant

TYPES = {
    name: FieldType(name, scale=4, precision=2) if name == "decimal" else FieldType(name)
    for name in SPARK_TYPES
    if name != "children"
}
PRICE = FieldType("decimal", scale=4, precision=2)
"""Four digits in all, two of them decimals."""


class Wrong:
    """Stands in an expectation for a value that is null since it does not convert."""

    def __repr__(self) -> str:
        return "WRONG"


WRONG = Wrong()


def found(values: Sequence[Any], kind: FieldType) -> list[Any]:
    column = convert_values(values, kind)
    rows = column.values.to_pylist()
    assert len(rows) == len(values)
    assert all(rows[position] is None for position in column.errors)
    return [WRONG if position in column.errors else value for position, value in enumerate(rows)]


def alone(value: Any, kind: FieldType) -> Any:
    return found([value], kind)[0]


def text_of(value: Any, kind: FieldType) -> str:
    return convert_values([value], kind).errors[0]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


EXAMPLES: dict[str, list[tuple[Any, Any]]] = {
    "text": [
        ("", ""),
        ("a", "a"),
        (" a\n", " a\n"),
        ("NaN", "NaN"),
        ("\x00", "\x00"),
        ("\U0001f600é", "\U0001f600é"),
        (12, "12"),
        (-0, "0"),
        (Decimal("19.20"), "19.20"),
        (Decimal("1e3"), "1000"),
        (Decimal("1.5e-7"), "0.00000015"),
        (Decimal("-0.0"), "-0.0"),
        (10**399, "1" + "0" * 399),
        (True, "true"),
        (False, "false"),
        ([], WRONG),
        ({}, WRONG),
        (["a"], WRONG),
        ("\ud800", WRONG),
        ("a\udfff", WRONG),
        (10**5000, WRONG),
        (Decimal("1e999999999"), WRONG),
        (Decimal("-1e-999999999"), WRONG),
    ],
    "number": [
        (0, 0.0),
        (12, 12.0),
        (2**53 + 1, 9007199254740992.0),
        (Decimal("0.1"), 0.1),
        (Decimal("1e308"), 1e308),
        (Decimal("5e-324"), 5e-324),
        ("12", 12.0),
        (" +1.5e3 ", 1500.0),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1E+2", 100.0),
        (Decimal("1e309"), WRONG),
        (Decimal("-1e309"), WRONG),
        ("1e309", WRONG),
        (10**309, WRONG),
        (10**5000, WRONG),
        (Decimal("1e999999999"), WRONG),
        ("1e999999999", WRONG),
        ("1e99999999999999999999", WRONG),
        ("", WRONG),
        (" ", WRONG),
        ("1 2", WRONG),
        ("1,5", WRONG),
        ("1_000", WRONG),
        ("0x10", WRONG),
        ("١٢", WRONG),
        ("1e", WRONG),
        (".", WRONG),
        ("NaN", WRONG),
        ("Infinity", WRONG),
        ("-inf", WRONG),
        ("12\n", WRONG),
        (True, WRONG),
        ([1], WRONG),
        ("\ud800", WRONG),
    ],
    "smallint": [
        (32767, 32767),
        (-32768, -32768),
        (32768, WRONG),
        (Decimal("32767.4"), 32767),
        (Decimal("32767.5"), WRONG),
        (Decimal("-32768.4"), -32768),
        (Decimal("-32768.5"), WRONG),
    ],
    "integer": [
        (2**31 - 1, 2**31 - 1),
        (-(2**31), -(2**31)),
        (2**31, WRONG),
        (Decimal("2.5"), 3),
        (Decimal("-2.5"), -3),
        (Decimal("2.4999999999999999999999"), 2),
        (Decimal("0.5"), 1),
        (Decimal("-0.4"), 0),
        (Decimal("1e2"), 100),
        ("7", 7),
        (" +7.5 ", 8),
        (10**5000, WRONG),
        (-(10**5000), WRONG),
        (Decimal("1e999999999"), WRONG),
        ("-1e999999999", WRONG),
        ("", WRONG),
        ("seven", WRONG),
        (True, WRONG),
        ({}, WRONG),
    ],
    "bigint": [
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, WRONG),
        ("9223372036854775807", 2**63 - 1),
        (Decimal("9223372036854775807.4"), 2**63 - 1),
        (Decimal("9223372036854775807.5"), WRONG),
        (Decimal("9007199254740993.0"), 9007199254740993),
    ],
    "decimal": [
        (0, Decimal("0.00")),
        (12, Decimal("12.00")),
        (Decimal("12.349"), Decimal("12.34")),
        ("99.999", Decimal("99.99")),
        (Decimal("9.995"), Decimal("10.00")),
        (Decimal("9.994"), Decimal("9.99")),
        (Decimal("0.005"), Decimal("0.01")),
        (Decimal("-0.005"), Decimal("-0.01")),
        (Decimal("0.0049999"), Decimal("0.00")),
        (Decimal("-0.001"), Decimal("0.00")),
        (" 1e1 ", Decimal("10.00")),
        (Decimal("1e-300"), Decimal("0.00")),
        (100, WRONG),
        (-100, WRONG),
        (Decimal("99999e-3"), Decimal("99.99")),
        (10**5000, WRONG),
        (Decimal("1e999999999"), WRONG),
        ("NaN", WRONG),
        (False, WRONG),
        ("", WRONG),
    ],
    "date": [
        ("2024-02-29", date(2024, 2, 29)),
        ("0001-01-01", date(1, 1, 1)),
        ("1582-10-10", date(1582, 10, 10)),
        ("9999-12-31", date(9999, 12, 31)),
        ("2023-02-29", WRONG),
        ("0000-01-01", WRONG),
        ("10000-01-01", WRONG),
        ("2024-2-9", WRONG),
        ("20240229", WRONG),
        ("2024-W09-4", WRONG),
        (" 2024-02-29", WRONG),
        ("2024-02-29\n", WRONG),
        ("2024-02-29T00:00", WRONG),
        ("٢٠٢٤-02-29", WRONG),
        ("", WRONG),
        (20240229, WRONG),
        (True, WRONG),
        ([], WRONG),
    ],
    "timestamp": [
        ("2024-02-29", utc(2024, 2, 29)),
        ("2024-02-29T10:30", utc(2024, 2, 29, 10, 30)),
        ("2024-02-29 10:30:15", utc(2024, 2, 29, 10, 30, 15)),
        ("2024-02-29T10:30:15.5Z", utc(2024, 2, 29, 10, 30, 15, 500_000)),
        ("2024-02-29T10:30:15.123456789", utc(2024, 2, 29, 10, 30, 15, 123_456)),
        ("2024-02-29T10:30+02:00", utc(2024, 2, 29, 8, 30)),
        ("2024-02-29T00:30:00-05:30", utc(2024, 2, 29, 6)),
        ("1969-12-31T23:59:59.9999999", utc(1969, 12, 31, 23, 59, 59, 999_999)),
        ("0001-01-01T00:00", utc(1, 1, 1)),
        ("9999-12-31T23:59:59.999999", utc(9999, 12, 31, 23, 59, 59, 999_999)),
        ("0001-01-01T00:00+01:00", WRONG),
        ("9999-12-31T23:59-01:00", WRONG),
        ("2024-02-30T00:00", WRONG),
        ("2024-02-29T24:00", WRONG),
        ("2024-02-29T10:60", WRONG),
        ("2024-02-29T10:30:60", WRONG),
        ("2024-02-29T10:30+24:00", WRONG),
        ("2024-02-29T10:30+01:60", WRONG),
        ("2024-02-29T10:30+01:99", WRONG),
        ("2024-02-29T10:30+0100", WRONG),
        ("2024-02-29T10:30+01", WRONG),
        ("2024-02-29T10:30.5", WRONG),
        ("2024-02-29T10:30:15.", WRONG),
        ("2024-02-29T10:30:15.1234567890", WRONG),
        ("2024-02-29T10", WRONG),
        ("2024-02-29Z", WRONG),
        ("2024-02-29t10:30z", WRONG),
        ("2024-02-29T10:30 Z", WRONG),
        ("2024-02-29T10:30\n", WRONG),
        ("", WRONG),
        (1709200000, WRONG),
        (True, WRONG),
        ({}, WRONG),
    ],
    "boolean": [
        (True, True),
        (False, False),
        (1, True),
        (0, False),
        (Decimal("1.0"), True),
        (Decimal("0e5"), False),
        ("TRUE", True),
        ("Yes", True),
        ("on", True),
        ("t", True),
        ("y", True),
        ("1", True),
        ("OFF", False),
        ("n", False),
        ("f", False),
        ("0", False),
        (2, WRONG),
        (-1, WRONG),
        (Decimal("0.5"), WRONG),
        ("", WRONG),
        (" true", WRONG),
        ("tru", WRONG),
        ("1.0", WRONG),
        ([True], WRONG),
        ("\ud800", WRONG),
    ],
}
EXAMPLES["double"] = EXAMPLES["number"]
EXAMPLES["link"] = EXAMPLES["text"]

every_type = pytest.mark.parametrize("name", TYPES)


@every_type
def test_each_value_by_itself(name: str) -> None:
    assert [(value, alone(value, TYPES[name])) for value, _ in EXAMPLES[name]] == EXAMPLES[name]


@every_type
def test_all_values_in_one_column(name: str) -> None:
    values = [value for value, _ in EXAMPLES[name]]
    assert found(values, TYPES[name]) == [expected for _, expected in EXAMPLES[name]]


@every_type
def test_nulls_stay_null_and_no_values_are_a_column_too(name: str) -> None:
    assert found([None, None], TYPES[name]) == [None, None]
    assert found([], TYPES[name]) == []
    sound = next(value for value, expected in EXAMPLES[name] if expected is not WRONG)
    assert found([None, sound, None], TYPES[name])[::2] == [None, None]


@every_type
def test_a_column_has_the_type_of_its_field_whatever_is_in_it(name: str) -> None:
    sound = next(value for value, expected in EXAMPLES[name] if expected is not WRONG)
    types = {convert_values(values, TYPES[name]).values.type for values in ([], [None], [sound], [sound, {}])}
    assert len(types) == 1


@pytest.mark.parametrize("name", ["boolean", "date", "timestamp", "decimal", "text", "integer", "number"])
def test_an_integer_of_thousands_of_digits_is_an_error_like_any_other(name: str) -> None:
    """Python refuses to write more than 4300 digits: the error must not need them."""
    assert found([None, 10**5000, -(10**4300)], TYPES[name]) == [None, WRONG, WRONG]


@pytest.mark.parametrize("text", ["0e-99999999", "-0.00e-99999999"])
def test_a_nought_with_millions_of_decimals_is_not_written_out(text: str) -> None:
    """Eleven characters of message must not become a hundred megabytes."""
    value = alone(Decimal(text), FieldType("text"))
    assert value is WRONG or len(value) < 1000


def test_what_is_too_small_for_a_double_is_nought_whatever_stands_beside_it() -> None:
    """The other value must not decide: run by run, messages are read beside others."""
    tiny = Decimal("1e-500")
    beside_a_number = found([tiny, 1], TYPES["number"])
    beside_a_text = found([tiny, "1"], TYPES["number"])
    assert beside_a_number == beside_a_text == [0.0, 1.0]


def test_a_python_float_is_a_number() -> None:
    """Readers of one's own return what they like: 0.1 is no text, and written 0.1."""
    assert found([0.1, None, -2.5], TYPES["number"]) == [0.1, None, -2.5]
    assert found([2.5], TYPES["integer"]) == [3]
    assert found([0.1], TYPES["text"]) == ["0.1"]


@every_type
def test_a_float_that_is_no_number_of_json_is_an_error(name: str) -> None:
    assert found([math.nan, math.inf, -math.inf], TYPES[name]) == [WRONG, WRONG, WRONG]


def test_a_text_is_cut_to_characters_not_to_bytes_on_both_paths() -> None:
    three = FieldType("text", length=3)
    assert found(["\U0001f600éa!", "ab", "", None], three) == ["\U0001f600éa", "ab", "", None]
    assert found(["\U0001f600éa!", 1234, True], three) == ["\U0001f600éa", "123", "tru"]


def test_half_a_character_is_an_error_even_where_it_would_be_cut_off() -> None:
    assert found(["abc\ud800", "abcd"], FieldType("text", length=3)) == [WRONG, "abc"]


def test_a_decimal_may_have_38_digits() -> None:
    nines = "9" * 38
    assert alone(nines, FieldType("decimal", scale=38, precision=0)) == Decimal(nines)
    assert alone(f"0.{nines}", FieldType("decimal", scale=38, precision=38)) == Decimal(f"0.{nines}")
    assert alone(f"{nines}9", FieldType("decimal", scale=38, precision=0)) is WRONG


def test_a_decimal_that_rounds_up_to_a_digit_more_does_not_fit() -> None:
    assert alone(Decimal("9.99"), FieldType("decimal", scale=3, precision=2)) == Decimal("9.99")
    # Cut to three digits first, so nothing is left to round.
    assert alone(Decimal("9.999"), FieldType("decimal", scale=3, precision=2)) == Decimal("9.99")
    assert alone(Decimal("0.95"), FieldType("decimal", scale=2, precision=2)) == Decimal("0.95")
    assert alone(1, FieldType("decimal", scale=2, precision=2)) is WRONG


def test_errors_are_named_by_position_and_say_what_was_needed() -> None:
    errors = convert_values(["1", None, "one", True, 3], TYPES["integer"]).errors
    assert errors == {2: "'one' is not a number", 3: "True is not a number"}
    assert text_of(40_000, TYPES["smallint"]) == "40000 is not a number within the range of a smallint"
    long = text_of("2024-01-01" + 90 * "0" + "25:61", TYPES["timestamp"])
    assert long.startswith("'2024-01-01000")
    assert "00025:61' is not a timestamp" in long
    assert len(long) < 130
    assert text_of("x", TYPES["boolean"]) == "'x' is not true or false"
    assert text_of("x", TYPES["date"]) == "'x' is not a date, YYYY-MM-DD"
    assert (
        text_of(Decimal("1e3"), TYPES["decimal"])
        == "1E+3 is not a number of at most 2 digits before the point"
    )


@every_type
def test_an_error_is_short_and_can_be_written_anywhere(name: str) -> None:
    hostile = ["x\ud800\n" * 10_000, ["\udfff"] * 10_000, {"\ud800": {"a": [None] * 10_000}}]
    errors = convert_values(hostile, TYPES[name]).errors
    assert sorted(errors) == [0, 1, 2]
    for text in errors.values():
        assert len(text.encode("ascii")) < 200
        assert text.isprintable()


@every_type
def test_values_that_are_nested_as_deep_as_json_reads_them_are_errors(name: str) -> None:
    """What could be read must be spoken of, though that takes a few more levels than reading it."""
    deepest: Any = None
    for depth in range(800, 1000):
        try:
            deepest = json.loads("[" * depth + "]" * depth)
        except RecursionError:
            break
    assert found([deepest], TYPES[name]) == [WRONG]


# The fast path against the one-by-one path ----------------------------------------------------------------

POOL: list[Any] = [
    "", "a", "12", "1.5", "-1e3", " 7 ", "true", "N", "2024-02-29", "2024-02-29T10:30+01:00", "\ud800", "é",
    0, 1, -1, 2, 32767, 32768, 2**31, 2**53 + 1, -(2**63), 2**63, 10**40, 10**309, 10**400, 10**4000,
    Decimal("0.5"), Decimal("-2.5"), Decimal("19.20"), Decimal("1e308"), Decimal("1e309"), Decimal("1e-310"),
    Decimal("1e-399"), Decimal("1e-500"), Decimal("-0.0"), Decimal("0e-600"), Decimal("0e600"),
    Decimal("1e999999999"), Decimal("1e-999999999"), True, False, None, [], {}, ["a"], {"a": 1},
]  # fmt: skip

CLASSES: list[type[Any]] = [str, int, Decimal, bool, list]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other) and type(one) is type(other)


@every_type
def test_a_value_converts_to_the_same_whatever_stands_beside_it(name: str) -> None:
    """Columns of one kind of values take the fast path, those that are mixed go value by value."""
    chance = random.Random(name)
    for number in range(400):
        kind = FieldType("text", length=2) if name == "text" and number % 2 else TYPES[name]
        chosen = chance.sample(CLASSES, chance.choice([1, 1, 1, 2, 5]))
        some = [each for each in POOL if each is None or type(each) in chosen]
        values = chance.choices(some, k=chance.choice([1, 2, 5]))
        together = found(values, kind)
        # Beside an object nothing is fast: it converts to nothing.
        slowly = [found([value, {}], kind)[0] for value in values]
        assert all(map(same, together, slowly)), (values, together, slowly)


def test_a_column_of_many_values_is_read_in_their_order() -> None:
    count = 200_000
    assert found(range(count), TYPES["bigint"]) == list(range(count))
    texts = [str(number) for number in range(count)]
    assert found(texts, TYPES["bigint"]) == list(range(count))
    assert found([*range(count), "x"], TYPES["bigint"])[-2:] == [count - 1, WRONG]


# Instants ------------------------------------------------------------------------------------------------


def test_an_instant_is_none_where_a_text_names_none() -> None:
    assert parse_instant("2024-01-01T12:00+02:00") == utc(2024, 1, 1, 10)
    for value in (None, 5, True, "", "noon", ["2024-01-01"], utc(2024, 1, 1)):
        assert parse_instant(value) is None


def test_microseconds_are_exact_before_1970_and_at_the_ends_of_time() -> None:
    assert microseconds(utc(1970, 1, 1)) == 0
    assert microseconds(utc(1969, 12, 31, 23, 59, 59, 999_999)) == -1
    assert microseconds(utc(1, 1, 1)) == -62_135_596_800_000_000
    assert microseconds(utc(9999, 12, 31, 23, 59, 59, 999_999)) == 253_402_300_799_999_999
