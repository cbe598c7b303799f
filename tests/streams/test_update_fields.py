"""What an update says of fields, without Spark: what it touched, and with which values."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdckit.streams.update_fields import CONVERT, Fields
from support.devices import add

LONGS = pa.schema([(name, pa.int64()) for name in ("a.b", "x.a.b")])
REMOVE = {"op": "remove", "path": "/"}
DOTS = {"a.b": 1, "x": {"a.b": 2}}


ANEW = [REMOVE, add("x", 1)]

# Name; the operations; the entity after them; is it a delete, the values, which were touched, the code.
CASES: list[tuple[str, list[dict[str, Any]], Any, tuple[bool, list[Any], list[bool], str | None]]] = [
    ("removed", [REMOVE], None, (True, [None, None], [False, False], None)),
    ("made anew, and nobody said what it is", ANEW, None, (False, [None] * 2, [False] * 2, "NO_DOCUMENT")),
    ("made anew and removed", [*ANEW, REMOVE], None, (True, [None, None], [False, False], None)),
    (
        "removed: then there is nothing to copy",
        [REMOVE, {"op": "copy", "fromPath": "x", "toPath": "y"}],
        None,
        (True, [None, None], [False, False], None),
    ),
    ("a name with a dot", [add("a.b", 1)], DOTS, (False, [1, None], [True, False], None)),
    ("such a name within another", [add("x/a.b", 2)], DOTS, (False, [None, 2], [False, True], None)),
    (
        "both are there: which of the two is a.b?",
        [add("a/b", 3)],
        {**DOTS, "a": {"b": 3}},
        (False, [None, None], [False, False], "UNFIT_VALUE"),
    ),
    ("made anew: all is touched", ANEW, {"x": 1}, (False, [None, None], [True, True], None)),
    (
        "a move touches where it was and where it is",
        [{"op": "move", "fromPath": "a/b", "toPath": "x/a/b"}],
        {"x": {"a": {"b": 7}}},
        (False, [None, 7], [True, True], None),
    ),
    (
        "a test touches nothing",
        [{"op": "test", "path": "a/b", "value": 1}],
        {"a": {"b": 1}},
        (False, [None, None], [False, False], None),
    ),
    (
        "a value of another type",
        [add("a/b", "one")],
        {"a": {"b": "one"}},
        (False, [None, None], [False, False], "UNFIT_VALUE"),
    ),
]


@pytest.mark.parametrize(("name", "ops", "after", "expected"), CASES, ids=[case[0] for case in CASES])
def test_cases(name: str, ops: list[dict[str, Any]], after: Any, expected: Any) -> None:
    text = None if after is None else json.dumps(after)
    is_delete, data, carried, code, _ = Fields(LONGS, dotted=True).read(json.dumps(ops), text, None, None)
    assert (is_delete, list(data.values()), list(carried.values()), code) == expected
    refused = Fields(LONGS, dotted=True).read(json.dumps(ops), text, "NOT_JSON", "It is none.")
    assert refused[3:] == ("NOT_JSON", "It is none.")


def test_without_dots_a_name_is_a_name() -> None:
    fields = Fields(pa.schema([("a.b", pa.string()), ("x", pa.string())]), dotted=False)
    _, data, carried, *_ = fields.read(
        json.dumps([add("x/a", 1)]), '{"x": {"a": 1}, "a": {"b": 2}}', None, None
    )
    assert (data, carried) == ({"a.b": None, "x": '{"a":1}'}, {"a.b": False, "x": True})


def test_a_sentence_names_the_field_and_what_is_there() -> None:
    *_, sentence = Fields(LONGS, dotted=True).read("[]", None, None, None)
    assert sentence == "The update does not say what the entity is after it."
    *_, sentence = Fields(LONGS, dotted=True).read(
        json.dumps([add("a/b", "x")]), '{"a": {"b": "x"}}', None, None
    )
    assert sentence.endswith("a.b is 'x'.")
    both = json.dumps({"a.b": 1, "a": {"b": 2}})
    *_, sentence = Fields(LONGS, dotted=True).read(json.dumps([add("a/b", 2)]), both, None, None)
    assert "a.b is there twice" in sentence


def test_numbers_at_the_ends_of_their_types() -> None:
    for kind, lowest in ((pa.int32(), -(2**31)), (pa.int64(), -(2**63))):
        assert [CONVERT[kind](end) for end in (lowest, ~lowest)] == [lowest, ~lowest]
        for beyond in (lowest - 1, -lowest):
            with pytest.raises(TypeError):
                CONVERT[kind](beyond)
    assert CONVERT[pa.float64()](Decimal("1e308")) == 1e308
    for far in (Decimal("1e309"), Decimal("-1e309"), 10**309):
        with pytest.raises(OverflowError):  # no infinity instead of what was sent
            CONVERT[pa.float64()](far)
