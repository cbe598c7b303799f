"""One table of types for tables of any library: each type is taken exactly, at every depth, or refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cdckit.parts.instants import INSTANT
from cdckit.parts.table_values import UnfitValues, in_spark_types, read_objects
from cdckit.parts.tables import as_arrow

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456)
IN_UTC = NOON.replace(tzinfo=UTC)
DAY = date(2024, 2, 29)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")

# A type, a value of it as Arrow is given it, the type in which Spark takes it, and the value there.
TAKEN: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.bool_(), True, pa.bool_(), True),
    (pa.int8(), -128, pa.int8(), -128),
    (pa.int16(), -1, pa.int16(), -1),
    (pa.int32(), -1, pa.int32(), -1),
    (pa.int64(), 2**63 - 1, pa.int64(), 2**63 - 1),
    (pa.uint8(), 255, pa.int16(), 255),
    (pa.uint16(), 65535, pa.int32(), 65535),
    (pa.uint32(), 2**32 - 1, pa.int64(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1, pa.decimal128(20), Decimal(2**64 - 1)),
    (pa.float16(), np.float16(1.5), pa.float32(), 1.5),
    (pa.float32(), 1.5, pa.float32(), 1.5),
    (pa.float64(), 0.1, pa.float64(), 0.1),
    (pa.string(), "é", pa.string(), "é"),
    (pa.large_string(), "é", pa.string(), "é"),
    (pa.string_view(), "a text of more than twelve bytes", pa.string(), "a text of more than twelve bytes"),
    (pa.binary(), b"\xff", pa.binary(), b"\xff"),
    (pa.large_binary(), b"\xff", pa.binary(), b"\xff"),
    (pa.binary_view(), b"\xff", pa.binary(), b"\xff"),
    (pa.binary(2), b"\xff\x00", pa.binary(), b"\xff\x00"),
    (pa.date32(), DAY, pa.date32(), DAY),
    (pa.date64(), DAY, pa.date32(), DAY),
    (pa.timestamp("s"), NOON.replace(microsecond=0), INSTANT, IN_UTC.replace(microsecond=0)),
    (pa.timestamp("ms"), NOON.replace(microsecond=123000), INSTANT, IN_UTC.replace(microsecond=123000)),
    (pa.timestamp("us"), NOON, INSTANT, IN_UTC),
    (pa.timestamp("us", "Asia/Tokyo"), IN_UTC, INSTANT, IN_UTC),
    (pa.timestamp("ns"), pd.Timestamp("2024-02-29 12:00:00.123456789"), INSTANT, IN_UTC),
    (pa.duration("s"), timedelta(days=1), pa.duration("us"), timedelta(days=1)),
    (pa.duration("ns"), timedelta(microseconds=1), pa.duration("us"), timedelta(microseconds=1)),
    (pa.decimal32(5, 2), Decimal("123.45"), pa.decimal128(5, 2), Decimal("123.45")),
    (pa.decimal64(18, 2), Decimal("123.45"), pa.decimal128(18, 2), Decimal("123.45")),
    (pa.decimal128(38, 0), Decimal(10**38 - 1), pa.decimal128(38, 0), Decimal(10**38 - 1)),
    (pa.decimal128(3, -2), Decimal("12300"), pa.decimal128(5, 0), Decimal("12300")),
    (pa.decimal256(76, 2), Decimal("123.45"), pa.decimal128(38, 2), Decimal("123.45")),
    (pa.dictionary(pa.int8(), pa.large_string()), "x", pa.string(), "x"),
    (pa.dictionary(pa.uint32(), pa.string_view()), "x", pa.string(), "x"),
    (pa.run_end_encoded(pa.int32(), pa.uint8()), 7, pa.int16(), 7),
    (pa.uuid(), ID.bytes, pa.string(), str(ID)),
    (pa.bool8(), 1, pa.bool_(), True),
    (pa.json_(), '{"a": 1}', pa.string(), '{"a": 1}'),
    (pa.list_(pa.uint8()), [255, None], pa.list_(pa.int16()), [255, None]),
    (pa.large_list(pa.string_view()), ["a", None], pa.list_(pa.string()), ["a", None]),
    (pa.list_(pa.uint8(), 2), [1, None], pa.list_(pa.int16()), [1, None]),
    (pa.list_view(pa.uint8()), [1, None], pa.list_(pa.int16()), [1, None]),
]


class Within(NamedTuple):
    """How three values become three values that have them as parts, in Arrow, in Python and as types."""

    array: Callable[[pa.Array], pa.Array]
    rows: Callable[[list[Any]], list[Any]]
    kind: Callable[[pa.DataType], pa.DataType]


WITHIN = {
    "alone": Within(lambda array: array, lambda rows: rows, lambda kind: kind),
    "list": Within(
        lambda array: pa.ListArray.from_arrays([0, 2, 2, 3], array),
        lambda rows: [rows[:2], [], rows[2:]],
        pa.list_,
    ),
    "struct": Within(
        lambda array: pa.StructArray.from_arrays([array], ["v"], mask=pa.array([False, False, True])),
        lambda rows: [{"v": rows[0]}, {"v": rows[1]}, None],
        lambda kind: pa.struct([("v", kind)]),
    ),
    "map": Within(
        lambda array: pa.MapArray.from_arrays([0, 1, 1, 3], pa.array(["x", "y", "z"]), array),
        lambda rows: [[("x", rows[0])], [], [("y", rows[1]), ("z", rows[2])]],
        lambda kind: pa.map_(pa.string(), kind),
    ),
}


def array_of(value: Any, kind: pa.DataType) -> pa.Array:
    """A null, the value and a null; Arrow makes not all of these types of Python's values."""
    if pa.types.is_dictionary(kind):
        places = pa.array([None, 0, None], kind.index_type)
        return pa.DictionaryArray.from_arrays(places, pa.array([value], kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        plain = pa.array([None, value, None], kind.value_type)
        return pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), plain)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array([None, value, None], kind.storage_type))
    return pa.array([None, value, None], kind)


@pytest.mark.parametrize(("kind", "value", "expected", "kept"), TAKEN, ids=lambda one: str(one)[:30])
def test_each_type_is_taken_exactly_at_two_depths(
    kind: pa.DataType, value: Any, expected: pa.DataType, kept: Any
) -> None:
    for (outer, around), (inner, within) in product(WITHIN.items(), WITHIN.items()):
        given = around.array(within.array(array_of(value, kind)))
        rows, wanted = around.rows(within.rows([None, kept, None])), around.kind(within.kind(expected))
        found = in_spark_types(given)
        assert (outer, inner, found.type, found.to_pylist()) == (outer, inner, wanted, rows)
        # A part of a column, and one without rows, are of the same type.
        assert in_spark_types(pa.chunked_array([given[1:]])).to_pylist() == rows[1:]
        assert in_spark_types(pa.chunked_array([], given.type)).type == wanted


REFUSED = {
    "a time of day": (pa.array([1], pa.time64("us")), "time64"),
    "months and days": (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "month_day_nano_interval"),
    "a decimal of 39 digits": (pa.array([Decimal(10**38)], pa.decimal256(39)), "precision"),
    "said to be of 38 digits": (
        pa.Array.from_buffers(pa.decimal128(38), 1, [None, pa.py_buffer((10**38).to_bytes(16, "little"))]),
        "precision",
    ),
    "nanoseconds of a duration": (pa.array([1], pa.duration("ns")), "lose data"),
    "a duration too long": (pa.array([2**62], pa.duration("s")), "out of bounds"),
    "a day with a clock": (pa.array([1], pa.int64()).view(pa.date64()), "lose data"),
    "a union": (
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), "union",
    ),
    "a tensor": (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [1]), pa.array([[1]], pa.list_(pa.int8(), 1))
        ),
        "tensor",
    ),
    "names that differ in case": (pa.array([{"a": 1, "A": 2}]), "differ in case alone"),
    "more than 38 digits of a fraction": (pa.array([Decimal("1e-40")], pa.decimal256(40, 40)), "decimal256"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_spark_cannot_hold_is_refused_at_every_depth(values: pa.Array, reason: str) -> None:
    for nested in (values, pa.ListArray.from_arrays([0, 1], values)):
        with pytest.raises((UnfitValues, pa.ArrowException), match=reason):
            in_spark_types(nested)


def test_instants_beyond_what_microseconds_hold_stay_beyond_the_years() -> None:
    """Infinity of DuckDB in seconds, and the year 290,000: neither is wrapped into 1969."""
    for unit in ("s", "ms", "us", "ns"):
        ends = in_spark_types(pa.array([2**63 - 1, -(2**63) + 1, None], pa.timestamp(unit)))
        later, earlier, nothing = ends.cast(pa.int64()).to_pylist()
        assert (later > 9 * 10**18, earlier < -9 * 10**18, nothing) == (True, True, None)
    before_1970 = in_spark_types(pa.array([-1], pa.timestamp("ns")))
    assert before_1970.cast(pa.int64()).to_pylist() == [-1]


BERLIN = timezone(timedelta(hours=1))
OBJECTS: dict[str, tuple[list[Any], list[Any]]] = {
    "a date beside a datetime": ([DAY, NOON, None], [datetime(2024, 2, 29, tzinfo=UTC), IN_UTC, None]),
    "the other order": ([NOON, DAY], [IN_UTC, datetime(2024, 2, 29, tzinfo=UTC)]),
    "dates alone": ([DAY, pd.NaT], [DAY, None]),
    "with and without a zone": (
        [NOON, datetime(2024, 2, 29, 13, tzinfo=BERLIN)], [IN_UTC, datetime(2024, 2, 29, 12, tzinfo=UTC)],
    ),
    "several zones": (
        [datetime(2024, 2, 29, 13, tzinfo=BERLIN), datetime(2024, 2, 29, 12, tzinfo=UTC)],
        [datetime(2024, 2, 29, 12, tzinfo=UTC)] * 2,
    ),
    "a timestamp of pandas beside a date": (
        [pd.Timestamp(NOON), DAY], [IN_UTC, datetime(2024, 2, 29, tzinfo=UTC)],
    ),
    "UUIDs": ([ID, None], [str(ID), None]),
    "lists of dates and datetimes": ([[DAY, NOON], []], [[datetime(2024, 2, 29, tzinfo=UTC), IN_UTC], []]),
    "structs": ([{"a": DAY}, {"a": NOON}], [{"a": datetime(2024, 2, 29, tzinfo=UTC)}, {"a": IN_UTC}]),
    "numbers": ([1, 1.5, float("nan")], [1.0, 1.5, None]),
    "decimals": ([Decimal("1.50"), Decimal("NaN"), 2], [Decimal("1.50"), None, Decimal(2)]),
}  # fmt: skip


@pytest.mark.parametrize(("values", "expected"), OBJECTS.values(), ids=OBJECTS)
def test_objects_of_python_are_what_they_say(values: list[Any], expected: list[Any]) -> None:
    read = pa.array(read_objects(values), from_pandas=True)
    assert in_spark_types(read).to_pylist() == expected


@pytest.mark.parametrize("kind", ["float16", "float64", "Float32", "Float64", "double[pyarrow]"])
def test_no_number_of_pandas_is_null_whatever_keeps_the_floats(kind: str) -> None:
    numbers = pd.Series([1.5, 0.0, None], dtype=kind)
    # 0 / 0 is NaN, also where the missing one is NA.
    values = numbers * (numbers / numbers)
    assert as_arrow(pd.DataFrame({"a": values}))["a"].to_pylist() == [1.5, None, None]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["a", b"a"], "texts and bytes"),
        ([["a"], [b"a"]], "texts and bytes"),
        ([{"a": "a"}, {"a": b"a"}], "texts and bytes"),
        ([pd.Timestamp(1)], "nanoseconds as objects"),
        ([pd.Timedelta(1)], "nanoseconds as objects"),
        ([True, 5], "truths and numbers"),
        ([DAY, 5], "numbers and dates"),
        ([timedelta(1), 5], "numbers and durations"),
        ([{1, 2}], "sets"),
        ([[{1, 2}]], "sets"),
        ([Decimal("Infinity")], "infinite decimal"),
        ([Decimal("-Infinity"), Decimal(1)], "infinite decimal"),
    ],
)
def test_objects_that_are_not_of_one_kind_are_refused(values: list[Any], reason: str) -> None:
    with pytest.raises(UnfitValues, match=reason):
        read_objects(values)
