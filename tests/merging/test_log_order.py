"""The times of changes that say a place in a log: each by a loop over the others of its entity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random

import pyarrow as pa

from cdckit.merging.arrow_changes import OPERATIONS, Layout, carried_column, value_column
from cdckit.merging.log_order import order_entities
from cdckit.model.logs import LOG_END
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

    @cache  # noqa: B019
    def order(self, same: tuple[Word, ...]) -> tuple[int, int, int, int]:
        """Where it stands in its log: behind every read that was delivered before it."""
        reads = [each.place for each in same if each.is_read and each.log == self.log]
        arrived = [each.arrived for each in same if each.is_read and each.log == self.log]
        before = [place for place, at in zip(reads, arrived, strict=True) if at < self.arrived]
        if self.is_read or max(before, default=0) <= self.place:
            return (self.place, 0, 0, self.arrived)
        return (max(before), 1, self.place, self.arrived)

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


def same_entity(word: Word, words: list[Word]) -> tuple[Word, ...]:
    return tuple(each for each in words if each.entity == word.entity and not each.is_copy)


@cache
def logged(word: Word, same: tuple[Word, ...]) -> int:
    """What is in the log is true from its own time on, but not before any that stands ahead of it."""
    log = [each for each in same if each.log == word.log and not each.is_read]
    return max([word.time, *(each.time for each in log if each.order(same) < word.order(same))])


@cache
def time_in_log(word: Word, same: tuple[Word, ...]) -> int:
    """When a change is true, of all that stands in its log."""
    if not word.is_read:
        return logged(word, same)
    log = [each for each in same if each.log == word.log]
    behind = [each for each in log if each.order(same) > word.order(same)]
    own = min([word.time, *(each.time if each.is_read else logged(each, same) for each in behind)])
    ahead = [each for each in log if each.order(same) < word.order(same)]
    return max([own, *(time_in_log(each, same) for each in ahead)])


def time_of(word: Word, words: list[Word]) -> int:
    """When a change is true; a read that knows none of the logs that have names stands where it arrived."""
    same = same_entity(word, words)
    at = time_in_log(word, same)
    if not word.is_read or word.log or not any(each.log for each in same):
        return at
    said = [each for each in same if not each.is_read]
    no_earlier = max([at, *(logged(each, same) for each in said if each.arrived < word.arrived)])
    return min([no_earlier, *(logged(each, same) for each in said if each.arrived > word.arrived)])


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


@seeds(1, 2, 3, soak=125)
def test_times_follow_the_places_in_each_log(seed: int) -> None:
    """In one log; in two that have names; and where reads know no name: also beside others, and alone."""
    chance = Random(seed)
    for _ in range(40):
        for logs in (" ", "a", "ab", " ab"):
            words = drawn(chance, logs)
            found = times(words)
            first = [each for each in words if not each.is_copy]
            assert all(found[each.arrived] == time_of(each, words) for each in first), (logs, words)
            # So the first of what came twice stands first, which is the one that counts.
            assert all(found[each.arrived] >= found[each.message] for each in words if not each.is_read)
