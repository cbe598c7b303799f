"""Rows that a snapshot read and gave no place: no later than what came after them, in any batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, current, merge
from tools.tiers import seeds

START = datetime(2024, 3, 1, tzinfo=UTC)
ENTITIES = 18
COLUMNS = """operation string, effective_timestamp timestamp, sequence string,
    arrival struct<timestamp: timestamp, topic: string, `partition`: int, offset: long, record_number: int>,
    message_id string, source string, priority int, snapshot boolean, data struct<id: int, v: string>,
    carried struct<id: boolean, v: boolean>"""


@dataclass(frozen=True)
class Word:
    """A change: what says it, of which entity, of which second, and in which second it arrived."""

    message: str
    entity: int
    second: int
    arrived: int
    operation: str = "upsert"
    is_read: bool = False
    source: str = "s"

    def row(self) -> tuple[object, ...]:
        at, came = (START + timedelta(seconds=each) for each in (self.second, self.arrived))
        is_delete = self.operation == "delete"
        data = (self.entity, None if is_delete else self.message)
        place = (came, "t", 0, self.arrived, 1)
        said = (self.message, self.source, 0, True if self.is_read else None, data, (True, not is_delete))
        return (self.operation, at, "" if self.is_read else f"{self.message:0>9}", place, *said)


def drawn(chance: Random) -> list[Word]:
    """Words about the entities from two sources, whose clocks are no order; one in five comes twice."""
    words = []
    for number in range(10 * ENTITIES):
        kind = chance.choice(["read", "read", "upsert", "upsert", "delete"])
        words.append(
            Word(
                str(number),
                chance.randrange(ENTITIES),
                chance.randrange(100),
                2 * number,
                "upsert" if kind == "read" else kind,
                kind == "read",
                chance.choice("sst"),
            )
        )
    again = [
        replace(each, arrived=chance.randrange(10 * ENTITIES) * 2 + 1)
        for each in words
        if chance.random() < 0.2
    ]
    return words + [each for each in again if not each.is_read]


def bounded(words: list[Word]) -> list[Word]:
    """The same, each read with the time that it has, one by one; and nothing twice."""
    once: dict[str, Word] = {}
    for each in sorted(words, key=lambda word: word.arrived):
        once.setdefault(each.message, each)

    def second(read: Word) -> int:
        later = [
            each.second
            for each in once.values()
            if not each.is_read
            and (each.entity, each.source) == (read.entity, read.source)
            and each.arrived > read.arrived
        ]
        return min([read.second, *later])

    return [replace(each, second=second(each)) if each.is_read else each for each in once.values()]


def to_changes(spark: SparkSession, words: list[Word]) -> DataFrame:
    return spark.createDataFrame([each.row() for each in words], COLUMNS)


def versions(history: DataFrame) -> list[str]:
    return sorted(map(str, history.select(sorted(history.columns)).collect()))


@seeds(1, soak=30)
def test_a_read_is_no_later_than_what_came_after_it(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """In one merge, of a few entities alone, and in a ledger, whose batches come in any order."""
    chance = Random(seed)
    words = drawn(chance)
    plain = to_changes(spark, bounded(words)).drop("snapshot")
    expected = versions(merge(plain, entity="e", keys=["id"]))
    assert versions(merge(to_changes(spark, words).drop("snapshot"), entity="e", keys=["id"])) != expected
    whole = merge(to_changes(spark, words), entity="e", keys=["id"]).localCheckpoint()
    assert versions(whole) == expected
    few = to_changes(spark, [each for each in words if each.entity < 2])
    assert versions(merge(few, entity="e", keys=["id"])) == versions(whole.where("id < 2"))
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=2)
    batches = [chance.randrange(3) for _ in words]
    for number in range(3):
        some = [each for each, batch in zip(words, batches, strict=True) if batch == number]
        ledger.apply(to_changes(spark, some))
    assert versions(ledger.history()) == expected


def test_a_place_counts_behind_changes_without_one(spark: SparkSession, tmp_path: Path) -> None:
    """What stands ahead of the last place that is known is late, whatever came without a place since."""
    first, other, ahead = Word("5", 1, 10, 1), Word("6", 1, 20, 2), Word("3", 1, 30, 3)
    rows = [word.row() for word in (first, other, ahead)]
    # The third from the end is `snapshot`: of a log, of none, of a log.
    placed = [(*row[:-3], flag, *row[-2:]) for row, flag in zip(rows, (False, None, False), strict=True)]
    batches = [spark.createDataFrame([row], COLUMNS) for row in placed]
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1)
    for batch in batches:
        ledger.apply(batch)
    whole = merge(spark.createDataFrame(placed, COLUMNS), entity="e", keys=["id"])
    assert versions(ledger.history()) == versions(whole)
    assert [row["v"] for row in current(ledger.history()).collect()] == ["5"]
