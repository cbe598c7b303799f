"""One patch on one document, without Spark: every operation and path, all or nothing, in bounded memory."""

from __future__ import annotations

import json
import random
import time
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdckit.parts.json_text import nesting_depth
from cdckit.streams import CONNECTIONS, ENTITY_BATCHES, patches
from cdckit.streams.documents import PatchedDocument
from cdckit.streams.json_values import read, to_text
from cdckit.streams.messages import message
from support import patch_interpreter
from support.growth import growth
from tools.tiers import seeds

CASES = json.loads((Path(__file__).parents[1] / "cases/streams/patches.json").read_text())["cases"]


def document(value: Any, *, most: int = 1_000_000) -> PatchedDocument:
    state = (None if value is None else to_text(value), [], 0, 0, None)
    return PatchedDocument(state, most=most, remember=100)


def answer(to: PatchedDocument, ops: Any, request: int = 1) -> tuple[Any, ...]:
    text = ops if isinstance(ops, str) else json.dumps(ops)
    return to.take(None, "client", request, 1, text, False, 5)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_cases(case: dict[str, Any]) -> None:
    of = document(case["before"])
    status, reasons, before, after, action, *_ = answer(of, case["ops"])
    assert (status, action) == (case["status"], case["action"])
    assert len(reasons or []) == case.get("reasons", 0 if status == 1 else 1)
    text = of.state()[0]
    assert (None if text is None else json.loads(text)) == case["after"]
    if status == 1:
        assert [before and json.loads(before), after and json.loads(after)] == [case["before"], case["after"]]
    else:
        assert (before, after) == (None, None)


def test_digits_stay_as_they_were_sent() -> None:
    of = document({})
    answer(of, '[{"op": "add", "path": "a", "value": 1.10}, {"op": "add", "path": "b", "value": 1e2}]')
    answer(of, '[{"op": "inc", "path": "a", "value": 12345678901234567890.05}]', 2)
    assert of.state()[0] == '{"a":12345678901234567891.15,"b":1E+2}'


@pytest.mark.parametrize(
    "text",
    [
        "[-0, 0.0, -0.0, 1E5, 1e400, 18446744073709551616, -12345678901234567890123]",
        '{"a": 1, "a": {"a": null}}',
        r'["\ud800", "\ud83d\ude00", "\u0000", "", "é"]',
        f"{'[' * 900}{']' * 900}",
        *("", " ", "01", "1.", ".5", "+1", "[1,]", "[1] 2", "{1: 2}", "'a'", '"\t"', "\ufeff[1]"),
        *("NaN", "-Infinity", "tru", '"\\x"', '{"a":}'),
    ],
)
def test_texts_are_read_as_the_standard_library_reads_them(text: str) -> None:
    """Two readers take them, a quick one first: nobody is to see which of them did."""
    try:
        expected = json.loads(text, parse_float=Decimal, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        with pytest.raises(ValueError, match=r"\S"):
            read(text)
    else:
        assert repr(read(text)) == repr(expected)


def test_half_a_character_is_spelled_as_it_came() -> None:
    of = document({})
    answer(of, r'[{"op": "add", "path": "a", "value": "\ud83d!"}]')
    assert of.state()[0] == r'{"a":"\ud83d!"}'


def test_a_patch_that_comes_again_has_no_effect_and_no_status() -> None:
    of = document({"n": 0})
    ops = [{"op": "inc", "path": "n", "value": 1}]
    assert answer(of, ops)[0] == 1
    assert answer(of, ops) == (None,) * 8 + (True,)
    assert of.state() == ('{"n":1}', ["client/1/1"], 1, 5, None)


def test_what_is_remembered_does_not_depend_on_where_a_call_ends() -> None:
    """Of three patches two are remembered: the first one, when it comes again, is applied again."""
    ops = json.dumps([{"op": "inc", "path": "n", "value": 1}])
    outcomes = []
    for ends in (False, True):
        of, repeats = PatchedDocument(('{"n":0}', [], 0, 0, None), most=1000, remember=2), []
        for request in (1, 2, 3, 3, 2, 1):
            repeats.append(of.take(None, "c", request, 1, ops, False, 5)[-1])
            if ends:
                of = PatchedDocument(of.state(), most=1000, remember=2)
        outcomes.append((repeats, of.state()))
    expected = [False, False, False, True, True, False]
    assert outcomes == [(expected, ('{"n":4}', ["c/3/1", "c/1/1"], 4, 5, None))] * 2


def test_a_message_with_a_number_beyond_decimals_is_refused() -> None:
    for number in ("1e99999999999999999999", "9" * 6000):
        text = f'{{"db": "d", "patches": [{number}]}}'
        columns = message(text.encode(), ENTITY_BATCHES)
        assert columns["error_description"] == "The value is not one JSON object. A number is out of range."
        of = document({"b": 1})
        ops = f'[{{"op": "add", "path": "a", "value": {number}}}]'
        assert answer(of, ops)[:2] == (3, ["the ops cannot be read: a number is out of range"])


def test_whole_numbers_are_all_that_a_long_holds_and_the_database_is_in_either_field() -> None:
    request_message: dict[str, Any] = {
        "db": None,
        "dbid": "d",
        "clientid": "c",
        "user": "u",
        "begun": 1,
        "patches": [],
    }
    for request, code in ((-(2**63), None), (2**63 - 1, None), (2**63, "WRONG_TYPE")):
        columns = message(json.dumps({**request_message, "request": request}).encode(), ENTITY_BATCHES)
        assert (columns.get("error_code"), columns["db"]) == (code, "d"), request


def test_instants_are_within_the_years_that_timestamps_have() -> None:
    """By hand: the first and the last millisecond, 0001-01-01T00:00:00.000 and 9999-12-31T23:59:59.999."""
    connection = {"db": "d", "clientid": "c", "user": "u", "device": "d", "appVersion": "1"}
    for begun, code in (
        *((-62135596800000, None), (253402300799999, None)),
        *((-62135596800001, "WRONG_TYPE"), (253402300800000, "WRONG_TYPE"), (2**62, "WRONG_TYPE")),
    ):
        columns = message(json.dumps({**connection, "begun": begun}).encode(), CONNECTIONS)
        assert columns.get("error_code") == code, begun


HOSTILE = {
    "a path of 10,000 steps": [{"op": "add", "path": "a/" * 10_000, "value": 1}],
    "a document copied into itself 100 times": [
        {"op": "copy", "fromPath": "/", "toPath": f"x{n}"} for n in range(100)
    ],
    "a document copied into one field 200 times": [{"op": "copy", "fromPath": "/", "toPath": "x"}] * 200,
    "a number beyond decimals": '[{"op": "add", "path": "a", "value": 1e99999999999999999999}]',
    "a sum of a billion digits": '[{"op": "inc", "path": "n", "value": 1e-999999}]',
    "values nested 5,000 deep": '[{"op":"add","path":"a","value":' + "[" * 5000 + "]" * 5000 + "}]",
    "values nested 101 deep": '[{"op":"add","path":"a","value":' + "[" * 101 + "]" * 101 + "}]",
    "a huge index": [{"op": "add", "path": "list/999999999", "value": 1}],
    "a huge index where nothing is": [{"op": "add", "path": "new/999999999", "value": 1}],
    "not a number": '[{"op": "add", "path": "a", "value": NaN}]',
    "no JSON": "[{",
    "a path of two slashes": [{"op": "remove", "path": "//"}],
    "more than fits": [{"op": "add", "path": "a", "value": "x" * 1_000_001}],
}


@pytest.mark.parametrize("ops", HOSTILE.values(), ids=HOSTILE)
def test_hostile_patches_get_status_3_soon_and_change_nothing(ops: Any) -> None:
    of = document({"a": 1, "n": 1, "list": []})
    began = time.thread_time()
    status, reasons, *_ = answer(of, ops)
    assert (status, len(reasons)) == (3, 1)
    assert len(reasons[0]) < 400
    assert of.state()[0] == '{"a":1,"n":1,"list":[]}'
    # Of the processor's time, of which nobody else can take any: none takes more than a second or two.
    assert time.thread_time() - began < 10


def test_moves_do_not_nest_a_document_deeper_and_deeper() -> None:
    of, path = document({"x": {}}), "y/" * 60 + "x"
    assert answer(of, [{"op": "move", "fromPath": "x", "toPath": path}])[0] == 1
    assert answer(of, [{"op": "move", "fromPath": "y", "toPath": "z/" * 60}], 2)[0] == 3
    assert nesting_depth(read(of.state()[0] or "")) == 62


def test_sums_and_moves_are_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    of = document({"n": 1, "a": [0] * 100}, most=1000)
    far = [{"op": "inc", "path": "n", "value": 12}, {"op": "inc", "path": "m", "value": Decimal("1E+900")}]
    ops = to_text([*far, {"op": "inc", "path": "m", "value": 1}])
    # 1 and 1E+900 are 901 digits, which its operation does not tell: 8, 206 and 906 characters of n, a, m.
    assert answer(of, ops)[:2] == (
        3,
        ["the document would have 1,120 characters; the most are 1,000"],
    )
    twice = to_text([*far, *[{"op": "inc", "path": f"m{n}", "value": Decimal("1E+900")} for n in range(2)]])
    assert answer(of, twice, 2)[0] == 1
    sums = to_text([{"op": "inc", "path": f"m{n}", "value": 1} for n in range(2)])
    assert answer(of, sums, 3)[1] == ["operation 2: its sums would make the document larger than it may be"]

    monkeypatch.setattr(patches, "_MOST_LOOKED_AT", 1000)

    def moves(path: str, times: int) -> list[dict[str, str]]:
        steps = (("a", path), (path, "a"))
        return [{"op": "move", "fromPath": one, "toPath": other} for one, other in steps] * times

    assert answer(of, moves("b", 100), 4)[0] == 1  # no deeper than it was
    assert answer(of, moves("b/c", 9), 5)[0] == 1
    assert answer(of, moves("b/c", 10), 6)[1] == ["operation 19: the patch moves too much"]


def test_many_copies_into_a_wide_document_take_no_square_of_time() -> None:
    def copy(many: int) -> None:
        of = document({"s": [], **{f"f{n}": n for n in range(4 * many)}}, most=2_000_000)
        copies = [{"op": "copy", "fromPath": "s", "toPath": f"t{n}"} for n in range(many)]
        assert answer(of, [*copies, {"op": "add", "path": "t7/-", "value": 1}])[0] == 1
        now = read(of.state()[0] or "")
        assert (now["s"], now["t7"], now["t8"]) == ([], [1], [])

    assert growth(copy, 4_000) < 8


def test_many_operations_on_a_wide_document_take_no_square_of_time() -> None:
    def increment(many: int) -> None:
        of = document({f"f{n}": n for n in range(2 * many)})
        assert answer(of, [{"op": "inc", "path": f"f{n}", "value": 1} for n in range(many)])[0] == 1

    assert growth(increment, 2_500) < 8


@seeds(1, 2, 3, soak=200)
def test_random_programs_give_what_a_naive_interpreter_gives(seed: int) -> None:
    chance = random.Random(seed)
    of, known = document(None), None
    for request in range(150):
        ops = patch_interpreter.drawn_patch(chance)
        expected, value = patch_interpreter.answered(deepcopy(known), ops)
        status, _, before, after, *_ = answer(of, ops, request)
        assert status == expected, ops
        if status == 1:
            shown = [
                None if each is None else json.loads(each, parse_float=Decimal) for each in (before, after)
            ]
            assert shown == [known, value], ops
        known = value
