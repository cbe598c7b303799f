"""Random programs for a ledger: a log of changes, cut into batches that come in some order, some again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from support.histories import Row, random_changes

FIELDS = {"h": "int", "k": "string", "a": "string", "b": "double", "c": "struct<x:double,y:string>"}
KEYS = ["h", "k"]


def batches(seed: int, histories: int, most: int = 6, **options: Any) -> list[list[Row]]:
    """
    The changes of many small worlds in batches: in order of time, or not; with repeats.

    Each world has its own cut, so that every batch holds late changes and timely ones.
    """
    generator = random.Random(seed)
    count = generator.randint(2, most)
    found: list[list[Row]] = [[] for _ in range(count)]
    by_world: dict[int, list[Row]] = {}
    for change in random_changes(seed, histories, FIELDS, **options):
        by_world.setdefault(change["data"]["h"], []).append(change)
    for changes in by_world.values():
        way = generator.choice(("timely", "timely", "as drawn", "nearly timely"))
        if way != "as drawn":
            changes.sort(key=lambda change: change["effective_timestamp"])
        if way == "nearly timely" and len(changes) > 1:
            at = generator.randrange(len(changes) - 1)
            changes[at], changes[at + 1] = changes[at + 1], changes[at]
        cuts = sorted(generator.choices(range(len(changes) + 1), k=count - 1))
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(changes)], strict=True)):
            found[number] += changes[start:end]
    for number in range(count):
        earlier = [change for batch in found[:number] for change in batch]
        found[number] += generator.sample(earlier, min(len(earlier), generator.choice((0, 0, 3, 20))))
        generator.shuffle(found[number])
    if generator.random() < 0.5:
        found.append(list(generator.choice(found)))
    return found


def all_of(some: Sequence[Sequence[Row]]) -> list[Row]:
    """The changes of some batches."""
    return [change for batch in some for change in batch]
