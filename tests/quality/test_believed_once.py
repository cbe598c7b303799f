"""What the suite `bitemporal` says of intervals, held against counting instant by instant."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from cdckit.quality.checks import breaking_rows
from cdckit.quality.suites import read_suite, to_sql
from tools.tiers import seeds

Row = tuple[int, int | None, int, int | None]
"""Valid from and to, believed from and to, in days; none is an open end."""


def any_rows(chance: random.Random) -> list[Row]:
    def interval(days: int) -> tuple[int, int | None]:
        begin = chance.randrange(1, days)
        return begin, chance.choice([None, *range(begin + 1, days + 1)])

    return [(*interval(5), *interval(4)) for _ in range(chance.choice([1, 2, 2, 3, 3, 4]))]


def sound_rows(chance: random.Random) -> list[Row]:
    """As a history becomes known: each day versions begin at new instants, and all but the first may go."""
    begins: set[int] = set()
    open_rows: dict[tuple[int, int | None], int] = {}
    rows: list[Row] = []
    for day in range(1, 4):
        begins = {begin for begin in begins if begin == min(begins) or chance.random() < 0.8}
        begins |= {chance.randrange(1, 6) for _ in range(chance.choice([1, 1, 2]))}
        ends = [*sorted(begins)[1:], None]
        now = set(zip(sorted(begins), ends, strict=True))
        for known in open_rows.keys() - now:
            rows.append((*known, open_rows.pop(known), day))
        open_rows |= dict.fromkeys(now - open_rows.keys(), day)
    return rows + [(*known, day, None) for known, day in open_rows.items()]


def damaged(rows: list[Row], chance: random.Random) -> list[Row]:
    """The same rows, one of them lost or replaced."""
    kept = chance.sample(rows, len(rows) - 1)
    return kept + chance.choice([[], any_rows(chance)[:1]])


def is_sound(rows: list[Row]) -> bool:
    for day in range(1, 6):
        first = min((row[0] for row in rows if row[2] <= day), default=8)
        believed = [row for row in rows if row[2] <= day and (row[3] is None or day < row[3])]
        for at in range(first, 8):
            if sum(row[0] <= at and (row[1] is None or at < row[1]) for row in believed) != 1:
                return False
    return True


@seeds(7, soak=6)
def test_what_is_believed_not_once_is_found_and_nothing_else(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    entities = [any_rows(chance) for _ in range(700)]
    for _ in range(700):
        rows = sound_rows(chance)
        entities += [rows, damaged(rows, chance)]

    def at(day: int | None) -> datetime | None:
        return None if day is None else datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day)

    named = {f"{number:08d}-0000-5000-8000-000000000000": rows for number, rows in enumerate(entities)}
    table = [(guid, *map(at, row)) for guid, rows in named.items() for row in rows]
    columns = ["valid_from_timestamp", "valid_to_timestamp", "system_from_timestamp", "system_to_timestamp"]
    schema = ", ".join(["guid string", *(f"{name} timestamp" for name in columns)])
    frame = spark.createDataFrame(table, schema)
    asked = to_sql(read_suite("bitemporal").sentences[-1], frame.schema)
    assert asked is not None
    found = breaking_rows(asked, {"batch": frame}).select("guid").distinct()
    sound = {guid for guid, rows in named.items() if is_sound(rows)}
    assert 700 < len(sound) < 1_400
    assert {row["guid"] for row in found.collect()} == named.keys() - sound
