"""Statements that stand on others, and the naive way to find which stand on nothing."""

from __future__ import annotations

import random

Statement = tuple[str | None, list[str]]


def one_by_one(statements: list[Statement]) -> list[tuple[int, str]]:
    standing = set(range(len(statements)))
    while True:
        made = {statements[place][0] for place in standing}
        falls = [place for place in standing if not made.issuperset(statements[place][1])]
        if not falls:
            break
        standing.remove(falls[0])
    first = {at: [one for one in needs if one not in made] for at, (_, needs) in enumerate(statements)}
    return [(at, first[at][0]) for at in range(len(statements)) if at not in standing]


def drawn_programs() -> list[list[Statement]]:
    chance, found = random.Random(7), list[list[Statement]]()
    for _ in range(500):
        names = "abcdefghij"[: chance.randint(2, 10)]
        drawn = range(chance.randint(1, 15))
        needs = (0, 1, 1, 2)
        found.append(
            [(chance.choice([*names, None]), chance.sample(names, chance.choice(needs))) for _ in drawn]
        )
    return found


PROGRAMS = drawn_programs()
