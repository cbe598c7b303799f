"""What falls when what it stands on is missing: by hand, and against taking away one after the other."""

from __future__ import annotations

import random

import pytest

from cdckit.datahub.waiting import unsupported_places

Statement = tuple[str | None, list[str]]


def fallen(*statements: Statement) -> list[int]:
    return unsupported_places([makes for makes, _ in statements], [needs for _, needs in statements])


def one_by_one(statements: list[Statement]) -> list[int]:
    standing = set(range(len(statements)))
    while True:
        made = {statements[place][0] for place in standing}
        falls = [place for place in standing if not made.issuperset(statements[place][1])]
        if not falls:
            return sorted(set(range(len(statements))) - standing)
        standing.remove(falls[0])


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([("a", [])], []),
        ([("a", ["nobody"])], [0]),
        ([("a", ["b"]), ("b", ["c"]), ("c", ["nobody"]), (None, ["a"])], [0, 1, 2, 3]),
        ([("a", ["b"]), ("b", ["a"])], []),
        ([("a", ["b"]), ("b", ["a", "nobody"])], [0, 1]),
        ([("a", ["nobody"]), ("a", []), ("b", ["a"])], [0]),
        ([(None, ["a"]), ("a", ["nobody"]), ("a", ["nobody", "a"])], [0, 1, 2]),
    ],
)
def test_what_stands_on_nothing_falls(statements: list[Statement], expected: list[int]) -> None:
    assert fallen(*statements) == expected


def test_it_is_what_is_left_when_one_after_the_other_is_taken_away() -> None:
    chance = random.Random(7)
    fell = 0
    for _ in range(500):
        names = "abcdefghij"[: chance.randint(2, 10)]
        statements: list[Statement] = [
            (chance.choice([*names, None]), chance.sample(names, chance.choice((0, 1, 1, 2))))
            for _ in range(chance.randint(1, 15))
        ]
        expected = one_by_one(statements)
        assert fallen(*statements) == expected
        fell += 0 < len(expected) < len(statements)
    assert fell > 100
