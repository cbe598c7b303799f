"""
Loads and changes of a source, drawn at random.

In `make test`:
tests/replicate/test_replicate_loads.py::test_what_is_no_change_sequence_is_no_place,
tests/merging/test_reads_without_a_place.py::test_a_read_is_no_later_than_what_came_after_it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from pyspark.sql import DataFrame, SparkSession

from cdckit import current, merge, replicate
from cdckit.replicate import Feed
from support.replicate_messages import NO_TIME, Record, Version, record, sequence, to_dataframe
from tools.tiers import seeds

ITEMS = Version({"id": "int", "name": ["null", "string"]})
START = datetime(2024, 1, 1, 10, tzinfo=UTC)
LOADS = [(30, 60), (90, 110)]
END = 140


@dataclass
class Task:
    """What Replicate sends of a table, and what stood in the table at each second."""

    records: list[Record] = field(default_factory=lambda: [record(ITEMS.md(), 0, timestamp=START)])
    rows: list[dict[int, str]] = field(default_factory=list)

    def change(
        self, operation: str, key: int, name: str | None, at: int, sent: int, clock: int | None = None
    ) -> None:
        """A change of the second *at*, which the broker takes at another one; the *clock* may be wrong."""
        instant, told = (START + timedelta(seconds=each) for each in (at, at if clock is None else clock))
        said = {
            "changeSequence": sequence(f"{instant:%Y%m%d%H%M%S}", len(self.records)),
            "timestamp": f"{told:%Y-%m-%dT%H:%M:%S}",
        }
        self._send(ITEMS.dt(operation, {"id": key, "name": name}, **said), sent)

    def load(self, key: int, name: str, sent: int) -> None:
        """A row of a full load."""
        self._send(ITEMS.dt("REFRESH", {"id": key, "name": name}, **NO_TIME), sent)

    def _send(self, value: bytes, sent: int) -> None:
        self.records.append(
            record(value, len(self.records), timestamp=START + timedelta(seconds=sent, microseconds=1))
        )


def drawn(seed: int) -> Task:
    """
    Eight items that change at one second in two, and are loaded twice.

    A row is read at any second of its load, and sent at its end.  What changes meanwhile comes after it,
    also what the row that was read had already.
    """
    chance, task, now = Random(seed), Task(), dict[int, str]()
    loaded, waiting = list[tuple[int, str]](), list[tuple[str, int, str | None, int]]()
    reads = {
        second: key for begin, end in LOADS for key, second in enumerate(chance.sample(range(begin, end), 8))
    }
    for second in range(END):
        if chance.random() < 0.5:
            key = chance.randrange(8)
            there = key in now
            if there and chance.random() < 0.25:
                del now[key]
                waiting.append(("DELETE", key, None, second))
            else:
                now[key] = f"{second}"
                waiting.append(("UPDATE" if there else "INSERT", key, now[key], second))
        task.rows.append(dict(now))
        loads = any(begin <= second < end for begin, end in LOADS)
        if loads and second in reads and reads[second] in now:
            loaded.append((reads[second], now[reads[second]]))
        if not loads:
            for row in loaded:
                task.load(*row, sent=second)
            for each in waiting:
                # The task begins with its first load.
                if each[3] >= LOADS[0][0]:
                    task.change(*each, sent=second)
            loaded.clear()
            waiting.clear()
    return task


def require_rows(history: DataFrame, task: Task) -> None:
    """At every second after the first load, but within a load, the history has the rows of the table."""
    versions = history.where("not deleted_indicator").collect()
    seconds = [at for at in range(LOADS[0][1], END) if not LOADS[1][0] <= at < LOADS[1][1]]
    for at in seconds:
        instant = (START + timedelta(seconds=at, microseconds=2)).replace(tzinfo=None)
        found = {
            row["id"]: row["name"]
            for row in versions
            if row["valid_from_timestamp"] <= instant
            and (row["valid_to_timestamp"] is None or instant < row["valid_to_timestamp"])
        }
        assert found == task.rows[at], at


@seeds(1, soak=20)
def test_after_a_load_the_rows_are_those_of_the_source(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """In one merge, and in a feed, whatever the batches are."""
    task, chance = drawn(seed), Random(seed)
    records = to_dataframe(spark, task.records)
    told = replicate.table_changes(records, task="shop_task", table="ITEMS").localCheckpoint()
    assert told.where("snapshot").count() > 5
    require_rows(merge(told, entity="ITEMS", keys=["id"]), task)
    feed = Feed(spark, tmp_path)
    batches = [chance.randrange(4) for _ in task.records]
    for number in range(4):
        some = [each for each, batch in zip(task.records, batches, strict=True) if batch == number]
        feed.receive(to_dataframe(spark, some), number)
    require_rows(feed.table("ITEMS").history(), task)


@seeds(3, soak=10)
def test_a_clock_that_is_set_back_changes_no_order(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Whatever times they say, the last change of the sequence is the one that stands."""
    chance, task, now = Random(seed), Task(), dict[int, str]()
    for number in range(60):
        key, clock = chance.randrange(4), number - chance.choice([0, 0, 7, 30])
        if key in now and chance.random() < 0.3:
            del now[key]
            task.change("DELETE", key, None, number, number, clock)
        else:
            task.change("UPDATE" if key in now else "INSERT", key, f"{number}", number, number, clock)
            now[key] = f"{number}"
    feed, batches = Feed(spark, tmp_path), [chance.randrange(3) for _ in task.records]
    for number in range(3):
        some = [each for each, batch in zip(task.records, batches, strict=True) if batch == number]
        feed.receive(to_dataframe(spark, some), number)
    told = replicate.table_changes(to_dataframe(spark, task.records), task="shop_task", table="ITEMS")
    for history in (merge(told, entity="ITEMS", keys=["id"]), feed.table("ITEMS").history()):
        assert {row["id"]: row["name"] for row in current(history).collect()} == now
