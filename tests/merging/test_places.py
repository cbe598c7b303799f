"""The times of changes that say a place in a log: each by a loop over the others of its entity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pyarrow as pa

from cdckit.merging.arrow_changes import OPERATIONS, Layout, carried_column, value_column
from cdckit.merging.places import order_entities
from cdckit.model.changes import LOG_END
from tools.tiers import seeds

LAYOUT = Layout(("id",), (0,), frozenset(), by_guid=False, entity="thing")
INSTANT = pa.timestamp("us", "UTC")
ARRIVAL = pa.struct(
    {
        "timestamp": INSTANT,
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "record_number": pa.int32(),
    }
)


@dataclass(frozen=True)
class Word:
    """A change: when it arrived, of which entity, its log, its place there, its time, and if it was read."""

    arrived: int
    entity: int
    log: str
    place: int
    time: int
    is_read: bool
    message: int
    """By what it arrived as first: of another number, it is a copy."""

    @property
    def is_copy(self) -> bool:
        return self.message != self.arrived

    @property
    def order(self) -> tuple[int, int]:
        return (self.place, self.arrived)

    @property
    def sequence(self) -> str:
        name = f"{self.log}{LOG_END}{self.place:03}{LOG_END}" if self.log else ""
        return f"{name}{self.place:03}"


def drawn(chance: Random, logs: str) -> list[Word]:
    words = [
        Word(
            arrived,
            chance.randrange(4),
            chance.choice([log.strip() for log in logs]),
            chance.randrange(30),
            chance.randrange(50),
            chance.random() < 0.3,
            arrived,
        )
        for arrived in range(chance.randrange(2, 30))
    ]
    again = [each for each in words if chance.random() < 0.2]
    return words + [
        replace(each, arrived=len(words) + number, time=chance.randrange(50))
        for number, each in enumerate(again)
    ]


def time_of(word: Word, words: list[Word]) -> int:
    """When a change is true, of all that was said of its entity."""
    same = [each for each in words if each.entity == word.entity and not each.is_copy]

    def logged(one: Word) -> int:
        """What is in the log is true from its own time on, but not before any that stands ahead of it."""
        ahead = [each for each in same if each.log == one.log and each.order < one.order]
        return max([one.time, *(each.time for each in ahead if not each.is_read)])

    if not word.is_read:
        return logged(word)
    log = [each for each in same if each.log == word.log]
    behind = [each for each in log if each.order > word.order]
    own = min([word.time, *(each.time if each.is_read else logged(each) for each in behind)])
    ahead = [logged(each) for each in log if each.order < word.order and not each.is_read]
    followed = max([own, *ahead, *(time_of(each, words) for each in log if each.order < word.order)])
    if word.log:
        return followed
    others = [each for each in same if each.log and not each.is_read and each.order > word.order]
    return min([followed, *map(logged, others)])


def times(words: list[Word]) -> dict[int, int]:
    """The same by `order_entities`: the time of each change, by when it arrived."""
    rows = sorted(words, key=lambda word: (word.entity, word.time, word.sequence, word.arrived))
    columns = {
        "operation": pa.array([OPERATIONS.index("upsert")] * len(rows), pa.int8()),
        "effective_timestamp": pa.array([each.time for each in rows], INSTANT),
        "sequence": pa.array([each.sequence for each in rows]),
        "arrival": pa.array([(each.arrived, "t", 0, each.arrived, 1) for each in rows], ARRIVAL),
        "snapshot": pa.array([each.is_read for each in rows]),
        "message_id": pa.array([str(each.message) for each in rows]),
        "source": pa.array(["s"] * len(rows)),
        "record_number": pa.array([1] * len(rows), pa.int32()),
        "priority": pa.array([each.arrived for each in rows], pa.int32()),
        value_column(0): pa.array([each.entity for each in rows]),
        carried_column(0): pa.array([1] * len(rows), pa.int64()),
    }
    found = pa.Table.from_batches(order_entities([pa.RecordBatch.from_pydict(columns)], LAYOUT))
    at = found.column("effective_timestamp").cast(pa.int64()).to_pylist()
    return dict(zip(found.column("priority").to_pylist(), at, strict=True))


@seeds(1, 2, 3, soak=50)
def test_times_follow_the_places_in_each_log(seed: int) -> None:
    """In one log; in two that have names; and where reads know no name: also beside others, and alone."""
    chance = Random(seed)
    for _ in range(100):
        for logs in (" ", "a", "ab", " ab"):
            words = drawn(chance, logs)
            found = times(words)
            first = [each for each in words if not each.is_copy]
            assert all(found[each.arrived] == time_of(each, words) for each in first), (logs, words)
            # So the first of what came twice stands first, which is the one that counts.
            assert all(found[each.arrived] >= found[each.message] for each in words if not each.is_read)
