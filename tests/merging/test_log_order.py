"""The times of changes that say a place in a log: each by a loop over the others of its entity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import pyarrow as pa

from cdckit.merging.arrow_changes import OPERATIONS, Layout, carried_column, value_column
from cdckit.merging.log_order import order_entities
from cdckit.model.places import LOG_END
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
    offset: int | None = None
    """That of its record, if it does not grow with the arrival."""
    clock_behind: int = 0
    """By how many seconds its producer's clock is behind that of the others."""
    operation: str = "upsert"

    @property
    def is_copy(self) -> bool:
        return self.message != self.arrived

    @property
    def record(self) -> int:
        return self.arrived if self.offset is None else self.offset

    @cache  # noqa: B019
    def order(self, same: tuple[Word, ...]) -> tuple[int, int, int, int]:
        """Where it stands in its log: behind every read, or time of a clock, delivered before it."""
        bounds = [each for each in same if each.log == self.log and (each.is_read or each.log == "clock")]
        before = [each.place for each in bounds if each.arrived < self.arrived]
        is_bound = self.is_read and self.log != "clock"
        if is_bound or max(before, default=0) <= self.place:
            return (self.place, 0, 0, self.arrived)
        return (max(before), 1, self.place, self.arrived)

    @property
    def sequence(self) -> str:
        name = f"{self.log}{LOG_END}{self.place:03}{LOG_END}" if self.log else ""
        return f"{name}{self.place:03}"


def drawn(chance: Random, logs: Sequence[str]) -> list[Word]:
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


def arrival_of(word: Word) -> int:
    """Two minutes after the one before, by its producer's clock, in microseconds."""
    return (120 * word.arrived - word.clock_behind) * 1_000_000


def times(words: list[Word]) -> dict[int, int]:
    """The same by `order_entities`: the time of each change, by when it arrived."""
    rows = sorted(words, key=lambda word: (word.entity, word.time, word.sequence, word.arrived))
    columns = {
        "operation": pa.array([OPERATIONS.index(each.operation) for each in rows], pa.int8()),
        "effective_timestamp": pa.array([each.time for each in rows], INSTANT),
        "sequence": pa.array([each.sequence for each in rows]),
        "arrival": pa.array([(arrival_of(each), "t", 0, each.record, 1) for each in rows], ARRIVAL),
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
    """In one log; in two that have names; where reads know no name, alone and beside others; by a clock."""
    chance = Random(seed)
    for _ in range(40):
        for logs in (" ", "a", "ab", " ab", ["clock"], ["", "clock"]):
            words = drawn(chance, logs)
            found = times(words)
            first = [each for each in words if not each.is_copy]
            assert all(found[each.arrived] == time_of(each, words) for each in first), (logs, words)
            # So the first of what came twice stands first, which is the one that counts.
            assert all(found[each.arrived] >= found[each.message] for each in words if not each.is_read)


def test_what_was_delivered_behind_a_clock_that_went_back_counts_behind() -> None:
    """By both: a topic that was made anew, on the other hand, delivered later what has lower offsets."""
    words = [Word(at, 1, "clock", place, place, False, at) for at, place in ((1, 10), (2, 13), (3, 12))]
    assert times(words) == {1: 10, 2: 13, 3: 13}
    anew = [replace(word, offset=-word.arrived) for word in words]
    assert times(anew) == {1: 10, 2: 13, 3: 12}


def test_what_a_topic_delivered_before_it_was_made_anew_stays_ahead_of_a_read() -> None:
    """Its offset is greater, but its record is older."""
    logged, read = Word(1, 1, "", 5, 5, False, 1, offset=500), Word(2, 1, "", 10, 20, True, 2, offset=0)
    assert times([logged, read]) == {1: 5, 2: 20}


def test_what_was_delivered_behind_a_read_counts_behind_it_though_its_clock_is() -> None:
    read = Word(1, 1, "", 20, 10, True, 1)
    logged = Word(2, 1, "", 10, 15, False, 2, clock_behind=121)
    assert times([read, logged]) == {1: 10, 2: 15}


def test_what_came_before_a_snapshot_ended_stays_ahead_of_the_row_that_it_did_not_find() -> None:
    """Whatever was known of the row when its absence was found, and so whichever offset that has."""
    said, later, behind = (Word(at, 1, "", at, at, False, at, clock_behind=-90) for at in (1, 2, 4))
    gone = Word(3, 1, "", 30, 20, True, 3, offset=1, operation="delete")
    assert times([said, later, gone, behind]) == {1: 1, 2: 2, 3: 4, 4: 4}
