"""The one equality on Arrow arrays, as the workers have them."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdckit.parts.arrays import number_values, same_values

NAN = float("nan")
INT, REAL, TEXT = pa.int32(), pa.float64(), pa.string()
FAR = 2**62
"""Microseconds since 1970 of an instant in a year that Python does not have."""

ALIKE: list[tuple[pa.DataType, list[list[Any]]]] = [
    (REAL, [[None], [0.0, -0.0], [NAN, -NAN], [1.5], [float("inf")]]),
    (pa.float32(), [[None], [0.0, -0.0], [NAN, -NAN]]),
    (TEXT, [[None], [""], ["a"], ["A"], ["a "]]),
    (pa.timestamp("us", tz="UTC"), [[None], [0], [FAR], [-FAR]]),
    (pa.list_(INT), [[None], [[]], [[None]], [[1, 2]], [[2, 1]], [[1], [1]], [[1, 2, None]]]),
    (pa.list_(REAL), [[[NAN, 0.0], [NAN, -0.0]], [[0.0, NAN]]]),
    (pa.list_(pa.timestamp("us")), [[[FAR], [FAR]], [[FAR + 1]]]),
    (pa.struct([("x", INT)]), [[None], [{"x": None}], [{"x": 1}, {"x": 1}]]),
    (pa.struct([("x", REAL), ("y", TEXT)]), [[None], [{"x": NAN, "y": None}] * 2, [{"x": None, "y": None}]]),
    (pa.struct([]), [[None], [{}, {}]]),
    (
        pa.map_(TEXT, INT),
        [[None], [[]], [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], [[("a", 2), ("b", 1)]], [[("a", None)]]],
    ),
    (
        pa.map_(TEXT, pa.map_(TEXT, REAL)),
        [
            [[("a", [("x", 0.0), ("y", NAN)])], [("a", [("y", NAN), ("x", -0.0)])]],
            [[("a", None)]],
            [[("a", [])]],
        ],
    ),
    (
        pa.list_(pa.struct([("m", pa.map_(TEXT, INT))])),
        [[[{"m": [("a", 1), ("b", 2)]}], [{"m": [("b", 2), ("a", 1)]}]], [[{"m": None}]], [[None]], [[]]],
    ),
]
"""By type: values, those of one list equal to one another and to no other."""


def arrays() -> list[Any]:
    return [pytest.param(kind, groups, id=str(kind)) for kind, groups in ALIKE]


def every_pair(groups: list[list[Any]]) -> tuple[list[Any], list[Any], list[bool]]:
    values = [(place, value) for place, group in enumerate(groups) for value in group]
    pairs = list(itertools.product(values, values))
    same = [one[0] == other[0] for one, other in pairs]
    return [one for (_, one), _ in pairs], [other for _, (_, other) in pairs], same


@pytest.mark.parametrize(("kind", "groups"), arrays())
def test_values_are_the_same_by_one_equality(kind: pa.DataType, groups: list[list[Any]]) -> None:
    """Null is null, NaN is NaN, 0.0 is -0.0, maps are their entries: nested, too."""
    left, right, same = every_pair(groups)
    assert same_values(pa.array(left, kind), pa.array(right, kind)).tolist() == same


@pytest.mark.parametrize(("kind", "groups"), arrays())
def test_slices_hold_what_they_show(kind: pa.DataType, groups: list[list[Any]]) -> None:
    """Arrow keeps the children of a slice whole."""
    left, right, same = every_pair(groups)
    sliced = [pa.array([None, *values, None], kind).slice(1, len(values)) for values in (left, right)]
    assert same_values(*sliced).tolist() == same


def test_values_of_no_type_are_null_and_so_the_same() -> None:
    assert same_values(pa.nulls(2), pa.nulls(2)).tolist() == [True, True]


def test_a_null_may_have_elements() -> None:
    """Arrow allows it, and they are nobody's."""
    offsets, mask = pa.array([0, 2, 3, 4], pa.int32()), pa.array([True, False, False])
    lists = pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3, 3]), mask=mask)
    assert same_values(lists, pa.array([None, [3], [1]], lists.type)).tolist() == [True, True, False]


def test_text_that_is_not_utf_8_is_compared_by_its_bytes() -> None:
    """Spark lets bytes of any kind pass as text; Python would not read them."""
    bytes_ = pa.array([[b"\xff"], [b"\xff"], [b"\xfe"]], pa.list_(pa.binary()))
    texts = pa.ListArray.from_arrays(bytes_.offsets, bytes_.values.view(pa.string()))
    assert same_values(texts.slice(0, 2), texts.slice(1, 2)).tolist() == [True, False]


def test_no_rows() -> None:
    for kind, _ in ALIKE:
        assert len(number_values(pa.array([], kind))) == 0


def test_random_nested_values_are_compared_as_one_by_one() -> None:
    kind = pa.list_(pa.struct([("x", REAL), ("m", pa.map_(TEXT, pa.list_(REAL)))]))
    picked = random.Random(12)

    def real() -> float | None:
        return picked.choice([None, 0.0, -0.0, NAN, 1.0])

    def one() -> Any:
        if picked.random() < 0.1:
            return None
        keys = picked.sample("ab", picked.randrange(3))
        entries = [(key, [real() for _ in range(picked.randrange(2))]) for key in keys]
        return {"x": real(), "m": picked.choice([entries, None])}

    def some() -> list[Any]:
        return [picked.choice([None, [one() for _ in range(picked.randrange(3))]]) for _ in range(5_000)]

    left, right = some(), some()
    found = same_values(pa.array(left, kind), pa.array(right, kind))
    expected = np.array([naively(a) == naively(b) for a, b in zip(left, right, strict=True)])
    assert 0 < expected.sum() < len(expected)
    assert (found == expected).all()


def naively(value: Any) -> Any:
    """A value in a form in which Python's own equality is the one meant."""
    if isinstance(value, float):
        return "NaN" if value != value else value
    if isinstance(value, dict):
        entries = value["m"]
        return naively(value["x"]), entries and {key: naively(found) for key, found in entries}
    return [naively(each) for each in value] if isinstance(value, list) else value
