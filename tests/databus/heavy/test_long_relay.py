"""
A relay whose windows come in any batches.

In `make test`:
tests/databus/test_databus_relay.py::test_a_stream_gives_what_its_batches_give,
tests/databus/test_databus_relay.py::test_windows_of_a_relay_are_frames_for_a_loop_and_streams_are_told_apart,
tests/test_doors.py::test_what_waited_too_long_is_given_up_once_and_is_a_reject_then.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

from pyspark.sql import DataFrame, SparkSession

from cdckit import databus, merge
from cdckit.model.rejected_records import drop_rejects
from support.databus_streams import drawn_words, record_of
from support.relays import KEYS, NOON, SOURCES, Sent, frame, relay_of, sent_of, sums
from tools.tiers import seeds


def rows_of(frame: DataFrame, *columns: str) -> list[str]:
    return sorted(repr(row) for row in frame.select(*(columns or sorted(frame.columns))).collect())


@seeds(1, soak=6)
def test_any_batches_give_what_one_batch_gives_and_half_a_window_never_shows(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Two partitions with two streams each, everything that can go wrong, and batches that come again."""
    draw = Random(seed)
    everything: list[Sent] = []
    for part in (0, 1):
        # As a row is of one physical partition in Databus, so each stream has keys of its own.
        physical = (2 * part + 1, 2 * part + 2)
        stream_words = {number: drawn_words(draw, 12, first_key=3 * number) for number in physical}
        turns = [number for number, words in stream_words.items() for _ in words]
        draw.shuffle(turns)
        left = {number: iter(words) for number, words in stream_words.items()}
        everything += [
            (record_of(next(left[number]), at, SOURCES, number), part, at) for at, number in enumerate(turns)
        ]
    draw.shuffle(everything)
    cuts = {part: sorted(draw.choices(range(100), k=2)) for part in (0, 1)}
    batches = [
        [record for record in everything if sum(record[2] >= cut for cut in cuts[record[1]]) == number]
        for number in range(3)
    ]
    relay = relay_of(spark, tmp_path, batches[0])
    for number in (1, 2):
        again = batches[draw.randint(0, number - 1)]
        relay.receive(frame(spark, [*again, *batches[number]]))
        assert set(sums(relay)) <= {0}
    assert relay.receive(frame(spark, batches[2])).records == 0
    sources = SOURCES.values()
    windowed = databus.with_windows(databus.decode(frame(spark, everything), sources))
    assert rows_of(relay.events()) == rows_of(windowed)
    whole = databus.consistent_events(databus.decode(frame(spark, everything), sources))
    assert rows_of(relay.consistent_events()) == rows_of(whole)
    for name, source in SOURCES.items():
        changes = drop_rejects(databus.changes(windowed, source, keys=KEYS[name]))
        right = merge(changes, entity=name, keys=KEYS[name])
        assert rows_of(relay.ledgers()[name].history()) == rows_of(right)
    before = rows_of(relay.events()), rows_of(relay.ledgers()["a"].history()), rows_of(relay.streams())
    relay.rebuild()
    assert (
        rows_of(relay.events()),
        rows_of(relay.ledgers()["a"].history()),
        rows_of(relay.streams()),
    ) == before


def test_a_window_that_is_open_waits_is_given_up_and_passes_when_it_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    relay = relay_of(spark, tmp_path, sent_of("a1:1=-10 b1:1=10 .1 a2:1=-15"))
    assert [row["waiting_for"] for row in relay.waiting().collect()] == ["the end of window 2"]
    [row] = relay.streams().collect()
    assert (row["windows"], row["passed_scn"], row["open_events"]) == (1, 1, 1)
    assert relay.expire(now=NOON + timedelta(minutes=5)) == 0
    assert relay.expire(now=NOON + timedelta(hours=2)) == 1
    assert relay.expire(now=NOON + timedelta(hours=3)) == 0
    assert [row["error_code"] for row in relay.rejects().collect()] == ["WINDOW_OPEN"]
    assert relay.waiting().isEmpty()
    relay.receive(frame(spark, sent_of("b2:1=15", 4)))
    assert [row["offset"] for row in relay.waiting().collect()] == [4]
    version = relay.receive(frame(spark, sent_of(".2", 5))).version
    assert relay.rejects().isEmpty()
    amounts = {name: view.as_of(NOON).collect()[0]["amount"] for name, view in relay.ledgers().items()}
    assert amounts == {"a": -15, "b": 15}
    before = relay.ledgers(version=version - 1)
    assert {name: view.as_of(NOON).collect()[0]["amount"] for name, view in before.items()} == {
        "a": -10, "b": 10,
    }  # fmt: skip
