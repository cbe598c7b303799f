"""
A log in one merge and in any batches.

In `make test`:
tests/debezium/test_source_order.py::test_positions_of_mysql,
tests/merging/test_log_order.py::test_times_follow_the_places_in_each_log.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

from pyspark.sql import Row, SparkSession

from cdckit import Ledger, merge
from cdckit.quality import check_all
from support.source_order import KEYS, NAIVE, Event, changes
from tools.tiers import seeds


def random_life(life: int, chance: random.Random) -> list[Event]:
    """
    What a connector sends of four rows, two of which were there before it.

    Its reads are of their positions, but their clock is up to 60 seconds ahead of the log's.  In odd lives
    every statement says when it began, up to 5 seconds before it had the row.
    """
    rows: dict[int, str | None] = {1: "old 1", 2: "old 2"}
    events, second = [], 0
    for position in range(10, 10 + chance.randint(5, 16)):
        second += chance.randint(1, 6)
        said = second - (chance.randint(0, 5) if life % 2 else 0)
        key, draw = chance.randint(1, 4), chance.random()
        if draw < 0.35:
            ahead = second + chance.randint(0, 60)
            events += [Event(life, "r", position, ahead, each, rows[each]) for each in sorted(rows)]
        elif draw < 0.42:
            rows.clear()
            events.append(Event(life, "t", position, said))
        elif key in rows and draw < 0.65:
            events.append(Event(life, "d", position, said, key, rows.pop(key)))
        else:
            op = "u" if key in rows else "c"
            rows[key] = f"value {position}"
            events.append(Event(life, op, position, said, key, rows[key]))
    return events


def expected(events: Sequence[Event], key: int, second: int) -> str | None:
    """The value of a row at a second, naively: of the last event of the log by then, or else of a read."""
    logged: list[tuple[int, str | None]] = []
    reads: list[tuple[int, Event]] = []
    named = False
    for event in events:
        hit = event.key == key if event.op != "t" else named
        if hit and event.op == "r":
            reads.append((len(logged), event))
        elif hit:
            # A statement has its row once all before it are through with it.
            at = max([event.second, *(each for each, _ in logged)])
            logged.append((at, event.value if event.op in "cu" else None))
        if event.op == "t":
            named = False
        elif event.key == key and event.op != "d":
            named = True
    past = [value for at, value in logged if at <= second]
    if past:
        return past[-1]
    first = [event for before, event in reads if before == 0]
    at_last = min([second + 1, *(at for at, _ in logged)])
    seen = [each.value for each in first if min(each.second, at_last) <= second]
    return seen[-1] if seen else None


def require_expected(lives: Sequence[Sequence[Event]], history: Iterable[Row]) -> None:
    """At every second something is said of, and in the end, each row is what it should be."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in history:
        found.setdefault((row["life"], row["id"]), []).append(row)
    wrong, compared = [], 0
    for events in lives:
        for key in range(1, 5):
            for second in sorted({event.second for event in events} | {10_000}):
                at = NAIVE + timedelta(seconds=second)
                standing = [
                    None if row["deleted_indicator"] else row["v"]
                    for row in found.get((events[0].life, key), [])
                    if row["valid_from_timestamp"] <= at
                    and (row["valid_to_timestamp"] is None or at < row["valid_to_timestamp"])
                ]
                compared += 1
                value = expected(events, key, second)
                if (standing or [None]) != [value]:
                    wrong.append((events[0].life, key, second, value, standing))
    assert compared > 100
    assert wrong == []


@seeds(1, soak=20)
def test_rows_are_what_their_log_says_in_one_merge_and_in_any_batches(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Events of 24 sources; batches of them in any order, and some of them twice."""
    chance = random.Random(seed)
    lives = [random_life(life, chance) for life in range(24)]
    events = list(enumerate(event for life in lives for event in life))
    whole = merge(changes(spark, events), entity="row", keys=KEYS).localCheckpoint()
    require_expected(lives, whole.collect())
    ledger = Ledger(spark, tmp_path / "rows", entity="row", keys=KEYS, buckets=2)
    batches: list[list[tuple[int, Event]]] = [[], [], []]
    for at, event in events:
        for batch in (
            {chance.randrange(3), chance.randrange(3)} if chance.random() < 0.2 else {chance.randrange(3)}
        ):
            again = chance.random() < 0.2 and any(each is event for some in batches for _, each in some)
            batches[batch].append((at + 1000 if again else at, event))
    for batch in batches:
        ledger.apply(changes(spark, batch))
    kept = ledger.history().select("life", "id", "v", *_VERSION).localCheckpoint()
    require_expected(lives, kept.collect())
    assert kept.exceptAll(whole.select(*kept.columns)).isEmpty()
    assert merge(ledger.changes(), entity="row", keys=KEYS).select(*kept.columns).exceptAll(kept).isEmpty()
    assert {name: each.ok for name, each in check_all(ledger).items() if not each.ok} == {}


_VERSION = ("valid_from_timestamp", "valid_to_timestamp", "deleted_indicator", "source_message")
