"""RDSS, "Metadata Error Codes", "Digital Object Versioning", by tables: whether an object existed."""

from __future__ import annotations

import random

import pytest

from cdckit.rdss.exchange_rows import Arrival, ArrivedMessage, Statement
from support.exchange_memory import ExchangeInMemory
from tools.tiers import seeds

TYPES = {"C": "MetadataCreate", "U": "MetadataUpdate", "D": "MetadataDelete", "R": "MetadataRead"}

# In the order of publishing, with the verdict behind each: `C x` creates the object x, `U x<y,z` says that it
# is a version of two others.
EXISTENCE = {
    "an object that nobody created": "U x no | D x no | R x no",
    "from its create to its delete": "C x ok | U x ok | D x ok | U x no | R x no | C x ok | R x ok",
    "an update creates nothing": "U x no | U x no",
    "a version of another exists if its update is right": "C y ok | U x<y ok | R x ok | D x ok | R x no",
    "a version that outlives the other": "C y ok | U x<y ok | D y ok | U x ok | U z<y no | U z<x ok | R z ok",
    "a chain that leads to no create is refused whole": "U x<y no | U z<x no | R z no | U x no",
    "a create after a version": "U x<y no | C x ok | R x ok | U y<x ok | R y ok",
    "one of several is enough": "C z ok | U x<y,z ok | U w<y,x ok | R w ok | R y no",
    "of each other": "U x<y no | U y<x no | C x ok | U y<x ok | D x ok | U x<y ok",
    "a version begins anew after a delete": "C y ok | U x<y ok | D x ok | U x<y ok | D y ok | D x ok",
    "a create of what exists": "C x ok | C x ok | D x ok | D x no",
}
KEPT = {
    "a deleted object exists still": "C x ok | D x ok | U x ok | D x ok | R x ok | U y<x ok",
    "a delete of what nobody created": "D x no | U x no | U y<x no",
}
CASES = [
    pytest.param(case, keeps_deleted, id=name)
    for cases, keeps_deleted in ((EXISTENCE, False), (KEPT, True))
    for name, case in cases.items()
]


def lines_of(case: str) -> list[tuple[str, list[str], str]]:
    """The type, the objects, and the verdict."""
    lines = (line.split() for line in case.split(" | "))
    return [(TYPES[kind], objects.replace("<", ",").split(","), verdict) for kind, objects, verdict in lines]


def read_in_order(lines: list[tuple[int, str, str, list[str]]], keeps_deleted: bool) -> dict[int, bool]:
    """By the number of a line whether it is wrong: as one reads them who has all, in their order."""
    existing, wrong = set[str](), dict[int, bool]()
    for number, kind, about, others in lines:
        wrong[number] = kind != TYPES["C"] and existing.isdisjoint([about, *others])
        if not wrong[number] and kind in (TYPES["C"], TYPES["U"]):
            existing.add(about)
        elif not wrong[number] and kind == TYPES["D"] and not keeps_deleted:
            existing.discard(about)
    return wrong


@pytest.mark.parametrize(("case", "keeps_deleted"), CASES)
def test_in_whatever_order_they_come_the_last_verdict_is_the_same(case: str, keeps_deleted: bool) -> None:
    """All at once, one by one, the last first, and drawn; ledgers have what is right."""
    lines = lines_of(case)
    statements = []
    for number, (kind, [about, *others], _) in enumerate(lines):
        came = Arrival(number, number, "t", 0, 0, 0)
        message = ArrivedMessage(came, [came.place], came, f"m{number}", None, kind, number, about, others)
        statements.append(Statement(message))
    one_by_one = [[statement] for statement in statements]
    orders = [[statements], one_by_one, one_by_one[::-1]]
    orders += [random.Random(seed).sample(one_by_one, len(one_by_one)) for seed in range(4)]
    for order in orders:
        exchange = ExchangeInMemory(keeps_deleted=keeps_deleted)
        for rows in order:
            exchange.fold(rows)
        for number, (kind, _, expected) in enumerate(lines):
            said = exchange.outcomes.get((number, 0))
            assert (said is not None and said.code is not None) == (expected == "no"), number
            assert ((number, 0) in exchange.applied) == (expected == "ok" and kind != TYPES["R"])


@seeds(3, soak=30)
def test_random_statements_have_the_verdict_of_a_naive_reader(seed: int) -> None:
    """One by one as they come, as if all were read in the order of publishing."""
    draw = random.Random(seed)
    keeps_deleted = draw.random() < 0.3
    lines, exchange = list[tuple[int, str, str, list[str]]](), ExchangeInMemory(keeps_deleted=keeps_deleted)
    for number in range(60):
        kind, (about, *others) = draw.choice("CUUUDDR"), draw.sample("abcdef", draw.choice([1, 1, 2, 3]))
        lines.append((number, TYPES[kind], about, others if kind == "U" else []))
    expected = read_in_order(lines, keeps_deleted)
    assert {True, False} == set(expected.values())
    for number, kind, about, others in draw.sample(lines, len(lines)):
        came = Arrival(number, number, "t", 0, 0, 0)
        message = ArrivedMessage(came, [came.place], came, f"m{number}", None, kind, number, about, others)
        exchange.fold([Statement(message)])
    for number, is_wrong in expected.items():
        said = exchange.outcomes.get((number, 0))
        assert (said is not None and said.code is not None) == is_wrong, number
