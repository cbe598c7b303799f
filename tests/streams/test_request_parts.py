"""Requests without Spark: the patches of a batch, and what the responses to a request are when all came."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from cdckit.streams.request_parts import PATCH, RESPONSE_PLAN, batch_patches
from support.folded_tables import fold_table

AT = datetime(2014, 11, 11, tzinfo=UTC)
RESPONSE = pa.schema(
    [
        *(("client_id", pa.string()), ("request", pa.int64()), ("part", pa.int32()), ("parts", pa.int32())),
        *(("user", pa.string()), ("timestamp", pa.timestamp("us", "UTC"))),
    ]
)
LACKING = "2 of 4 parts, the first of them part {}"

# Name; the sentence of the page; by response its part, of how many, its user; what each is, and for what it
# waits.  All are of one request, and came in this order.
CASES: list[tuple[str, str, list[tuple[int, int, str]], list[tuple[str, str | None]]]] = [
    (
        "one part",
        "If a request has only one part, then the complete response will be identical to the partial one.",
        [(1, 1, "ann")],
        [("complete", None)],
    ),
    (
        "all parts, in any order",
        "only after all parts have been completed will the aggregate message … be written",
        [(2, 2, "ann"), (1, 2, "ann")],
        [("complete", None), ("complete", None)],
    ),
    (
        "some are missing",
        "only after all parts have been completed",
        [(4, 4, "ann"), (2, 4, "ann")],
        [("waiting", LACKING.format(1)), ("waiting", LACKING.format(1))],
    ),
    (
        "the first parts are there",
        "only after all parts have been completed",
        [(1, 4, "ann"), (2, 4, "ann")],
        [("waiting", LACKING.format(3)), ("waiting", LACKING.format(3))],
    ),
    (
        "a part comes again",
        "An array containing each of the partial response messages that make up this total response",
        [(1, 2, "ann"), (1, 2, "ann"), (2, 2, "ann")],
        [("complete", None), ("duplicate", None), ("complete", None)],
    ),
    (
        "they differ in how many they are",
        "parts: The total number of parts … that make up the batch request",
        [(1, 2, "ann"), (2, 3, "ann")],
        [("contradicting", None), ("contradicting", None)],
    ),
    (
        "they differ in user",
        "user: Unique identifier of the user on behalf of which the client submitted the request",
        [(1, 2, "ann"), (2, 2, "ben")],
        [("contradicting", None), ("contradicting", None)],
    ),
]


def judged(responses: list[tuple[Any, ...]], *, completed: pa.Table | None = None) -> list[dict[str, Any]]:
    """What each response is, in the order in which they came."""
    rows = pa.Table.from_pylist([dict(zip(RESPONSE.names, row, strict=True)) for row in responses], RESPONSE)
    numbered = rows.append_column("place", pa.array(range(rows.num_rows)))
    folded = fold_table(numbered, RESPONSE_PLAN, order=["part", "timestamp", "place"], states=completed)
    return sorted(folded.to_pylist(), key=lambda row: row["place"])


@pytest.mark.parametrize(
    ("name", "sentence", "responses", "expected"), CASES, ids=[case[0] for case in CASES]
)
def test_cases(
    name: str, sentence: str, responses: list[tuple[int, int, str]], expected: list[tuple[str, str | None]]
) -> None:
    sent = [("c", 1, *response, AT + timedelta(seconds=place)) for place, response in enumerate(responses)]
    parts = judged(sent)
    assert [(row["part_is"], row["waiting_for"]) for row in parts] == expected
    for row in parts:
        assert row["waiting_since"] == (AT if row["part_is"] == "waiting" else None)
        assert row["error_code"] == ("CONTRADICTING" if row["part_is"] == "contradicting" else None)
    over = pa.table({"client_id": ["c"], "request": pa.array([1], pa.int64())})
    assert {row["part_is"] for row in judged(sent, completed=over)} == {"duplicate"}


@pytest.mark.parametrize("seed", range(20))
def test_random_responses_give_what_a_naive_reader_gives(seed: int) -> None:
    chance = random.Random(seed)
    sent = []
    for place in range(60):
        parts = chance.choice([1, 2, 2, 3])
        if chance.random() < 0.9:
            parts = 3
        user = "ben" if chance.random() < 0.03 else "ann"
        request = ("c", chance.randrange(12), chance.randrange(1, parts + 1), parts, user)
        sent.append((*request, AT + timedelta(seconds=place)))
    found = judged(sent)
    for number in range(12):
        mine = [row for row in found if row["request"] == number]
        terms = {(row["parts"], row["user"]) for row in mine}
        there = [row["part"] for row in mine]
        for place, row in enumerate(mine):
            if len(terms) > 1:
                expected = "contradicting"
            elif row["part"] in there[:place]:
                expected = "duplicate"
            else:
                expected = "complete" if set(there) == set(range(1, row["parts"] + 1)) else "waiting"
            assert row["part_is"] == expected


def test_a_batch_is_its_patches() -> None:
    """ "one for each patch": part i of n, with what is wrong with each."""

    def patches(database: str, *texts: Any, is_reject: bool = False) -> list[tuple[Any, ...]]:
        found = batch_patches(database, list(map(json.dumps, texts)), is_reject, databases=frozenset(["d"]))
        return list(found)

    mug = {"collection": "Mugs", "zone": "z", "entity": "m", "ops": [{"op": "remove", "path": "a"}]}
    assert PATCH.names == ["collection", "zone", "entity", "part", "parts", "ops", "errors"]
    ops = '[{"op":"remove","path":"a"}]'
    foreign = "the database 'e' is not served here"
    nameless = ["the patch has no entity: it is null", "the patch has no ops"]
    assert patches("d", mug, {"collection": "Mugs", "zone": "z"}, "ERASED") == [
        ("Mugs", "z", "m", 1, 3, ops, None),
        ("Mugs", "z", None, 2, 3, None, nameless),
        (None, None, None, 3, 3, None, ["the patch spoke of an entity that was erased"]),
    ]
    assert patches("e", mug, 7) == [
        ("Mugs", "z", "m", 1, 2, ops, [foreign]),
        (None, None, None, 2, 2, None, [foreign, "the patch is 7, not an object"]),
    ]
    assert patches("d") == []
    assert patches("d", is_reject=True) == [(None,) * 7]
