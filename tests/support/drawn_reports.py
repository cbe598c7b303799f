"""Reports about random histories, and what explains their difference, held against the naive way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from cdckit.query import Belief, explain
from support.explaining import Measure, Report, World
from support.histories import INSTANTS, Row, random_changes, to_dataframe


def day(number: int) -> datetime:
    """A day of January."""
    return datetime(2024, 1, number, tzinfo=UTC)


DRAWN = {"h": "int", "k": "string", "a": "decimal(12,2)", "b": "string"}
WORLD = World("thing", ["h", "k"], list(DRAWN))
MEASURES: list[tuple[str, Any, Any, Callable[[Row], Any], Callable[[Row], tuple[Any, ...]]]] = [
    ("sum", "a", ["h"], lambda row: row["a"], lambda row: (row["h"],)),
    ("sum", "a * h", ["b"], lambda row: row["a"] and row["a"] * row["h"], lambda row: (row["b"],)),
    ("count", None, ["h", "b"], lambda row: 1, lambda row: (row["h"], row["b"])),
    ("count", "a", [], lambda row: row["a"], lambda row: ()),
    ("mean", "a", ["b"], lambda row: row["a"], lambda row: (row["b"],)),
    ("mean", "h", [], lambda row: row["h"], lambda row: ()),
]


def drawn(seed: int, count: int) -> tuple[random.Random, list[Row]]:
    chance = random.Random(seed)
    changes = random_changes(seed, count, DRAWN, ends=chance.choice(((), (False, False, True))))
    arrivals = [day(number) for number in range(1, 9)]
    for change in changes:
        change["arrival"] = {**change["arrival"], "timestamp": chance.choice(arrivals)}
    return chance, changes


def assert_explained(
    before: tuple[Belief, Report], after: tuple[Belief, Report], *, measures: Sequence[str | None] = ()
) -> None:
    steps = WORLD.steps(before[1], after[1])
    first, last = (WORLD.rows(report) for _, report in (before, after))
    for name, value, by, of, group in MEASURES:
        if measures and value not in measures:
            continue
        measure = Measure(name, of, group)
        parts = explain(before[0], after[0], name, value, by=by, entity="thing", keys=["h", "k"])
        found, added = Counter[Any](), Counter[Any]()
        for row in parts.toArrow().to_pylist():
            groups = tuple(row[each] for each in by)
            found[row["guid"], groups, row["kind"], row["message_id"], row["source"]] += row["amount"]
            added[groups] += row["amount"]
        wanted = measure.parts(steps, before[1], first)
        assert {part: amount for part, amount in found.items() if amount} == wanted, (name, value, by)
        then, now = measure.of(first), measure.of(last)
        assert all(then.get(each, 0) + added[each] == now.get(each, 0) for each in {*then, *now, *added})


Told = tuple[Belief, Report]


def learnt(spark: SparkSession, seed: int) -> tuple[Told, Told]:
    """Two beliefs about sixty histories, of which one knows more."""
    chance, changes = drawn(seed, 60)
    instants = sorted(chance.choice((INSTANTS[0], INSTANTS[1], INSTANTS[3])) for _ in range(2))
    moments = (day(chance.choice((2, 3))), day(chance.choice((6, 8))))
    frame = to_dataframe(spark, changes, DRAWN).localCheckpoint()
    both = [
        (
            Belief(frame, valid, known),
            Report([each for each in changes if each["arrival"]["timestamp"] <= known], valid),
        )
        for valid, known in zip(instants, moments, strict=True)
    ]
    return both[0], both[1]
