"""`Relay`: any batches, as a stream too, give what one batch of all gives; ledgers at one end of a window."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import databus, merge
from cdckit.databus import Relay
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from support.databus_streams import drawn_words, record_of
from tools.tiers import seeds

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
FIELDS = [{"name": name, "type": "long"} for name in ("id", "amount")]
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": FIELDS})
SOURCES = {name: databus.Source(ord(name), name, [SCHEMA]) for name in "ab"}
KEYS = {"a": ["id"], "b": ["id"]}

Sent = tuple[bytes, int, int]
"""A value, the partition of its topic, and its offset."""


def frame(spark: SparkSession, sent: Sequence[Sent]) -> DataFrame:
    rows = [
        (None, value, "t", part, offset, NOON + timedelta(seconds=offset), 0, None)
        for value, part, offset in sent
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def sent_of(text: str, start: int = 0) -> list[Sent]:
    return [(record_of(word, at, SOURCES), 0, at) for at, word in enumerate(text.split(), start)]


def relay_of(spark: SparkSession, folder: Path, *batches: Sequence[Sent]) -> Relay:
    relay = Relay(spark, folder, SOURCES.values(), keys=KEYS, buckets=1)
    for sent in batches:
        relay.receive(frame(spark, sent))
    return relay


def rows_of(frame: DataFrame, *columns: str) -> list[str]:
    return sorted(repr(row) for row in frame.select(*(columns or sorted(frame.columns))).collect())


def sums(relay: Relay) -> list[int]:
    """What the two tables have together: at the end, and at every instant at which something changes."""
    found = {name: view.history().collect() for name, view in relay.ledgers().items()}
    versions = [row for rows in found.values() for row in rows]
    instants = sorted({row["valid_from_timestamp"] for row in versions})
    return [
        sum(
            row["amount"] or 0
            for row in versions
            if row["valid_from_timestamp"] <= at
            and (row["valid_to_timestamp"] is None or at < row["valid_to_timestamp"])
        )
        for at in instants
    ]


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
        own = {each: drawn_words(draw, 12, first_key=3 * each) for each in physical}
        turns = [each for each, words in own.items() for _ in words]
        draw.shuffle(turns)
        left = {each: iter(words) for each, words in own.items()}
        everything += [
            (record_of(next(left[each]), at, SOURCES, each), part, at) for at, each in enumerate(turns)
        ]
    draw.shuffle(everything)
    cuts = {part: sorted(draw.choices(range(100), k=2)) for part in (0, 1)}
    batches = [
        [each for each in everything if sum(each[2] >= cut for cut in cuts[each[1]]) == number]
        for number in range(3)
    ]
    relay = relay_of(spark, tmp_path, batches[0])
    for number in (1, 2):
        again = batches[draw.randint(0, number - 1)]
        relay.receive(frame(spark, [*again, *batches[number]]))
        assert set(sums(relay)) <= {0}
    assert relay.receive(frame(spark, batches[2])).records == 0
    sources = SOURCES.values()
    told = databus.with_windows(databus.decode(frame(spark, everything), sources))
    assert rows_of(relay.events()) == rows_of(told)
    whole = databus.consistent_events(databus.decode(frame(spark, everything), sources))
    assert rows_of(relay.consistent_events()) == rows_of(whole)
    for name, source in SOURCES.items():
        changes = databus.changes(databus.rows(whole, source), keys=KEYS[name])
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


def test_a_record_in_the_place_of_another_is_a_reject_and_one_behind_others_finds_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    sent = sent_of("a1:1=-10 b1:1=10 .1 a2:1=-15 b2:1=15 .2")
    relay = relay_of(spark, tmp_path, [*sent[:3], *sent[5:]], [(b"other", 0, 1), *sent[3:5]])
    codes = [(row["offset"], row["error_code"]) for row in relay.rejects().orderBy("offset").collect()]
    assert codes == [(1, "PLACE_TAKEN"), (3, "PLACE_TAKEN"), (4, "PLACE_TAKEN")]
    assert [row["amount"] for row in relay.ledgers()["b"].history().collect()] == [10]
    relay.rebuild()
    codes = [(row["offset"], row["error_code"]) for row in relay.rejects().collect()]
    assert codes == [(1, "PLACE_TAKEN")]
    assert sorted(row["amount"] for row in relay.ledgers()["b"].history().collect()) == [10, 15]


def test_a_ledger_is_kept_by_the_keys_of_the_relay(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_of("a1:1=-10 b1:1=10 .1")
    relay = Relay(spark, tmp_path / "one", SOURCES.values(), keys={"a": ["id"]}, buckets=1)
    assert relay.receive(frame(spark, sent), 0).records == 3
    with pytest.raises(InvalidArgument, match="of sources among a, b"):
        Relay(spark, tmp_path, SOURCES.values(), keys={"c": ["id"]})
    other = Relay(spark, tmp_path / "one", SOURCES.values(), keys={"a": ["amount"]}, buckets=1)
    with pytest.raises(InvalidArgument, match="rebuild makes it anew"):
        other.receive(frame(spark, sent))
    other.rebuild()
    assert [row["amount"] for row in other.ledgers()["a"].history({"amount": -10}).collect()] == [-10]


def test_a_source_that_was_unknown_is_known_after_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_of("a1:1=-10 b1:1=10 .1 a2:1=-15 b2:1=15 .2")
    relay = Relay(spark, tmp_path, [SOURCES["a"]], keys={"a": ["id"]}, buckets=1)
    relay.receive(frame(spark, sent))
    assert {row["error_code"] for row in relay.rejects().collect()} == {"SOURCE_UNKNOWN"}
    relay = Relay(spark, tmp_path, SOURCES.values(), keys=KEYS)
    relay.rebuild()
    assert relay.rejects().isEmpty()
    assert sums(relay) == [0, 0]


def test_a_stream_gives_what_its_batches_give(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that go over batches, the files of which are written together."""
    monkeypatch.setattr("cdckit.databus.relay_intake.FOLD", 2)
    words = "a1:1=-10 b1:1=10 .1 " + " ".join(f"a{scn}:1={scn} .{scn}" for scn in range(2, 20))
    sent = sent_of(words)
    for number, at in enumerate(range(0, len(sent), 10)):
        frame(spark, sent[at : at + 10]).write.parquet(str(tmp_path / "in" / f"{number:02}"))
    relay = Relay(spark, tmp_path / "relay", SOURCES.values(), buckets=1)
    stream: Any = spark.readStream.schema(RECORD_SCHEMA).option("maxFilesPerTrigger", 1)
    query = (
        stream.parquet(str(tmp_path / "in" / "*"))
        .writeStream.foreachBatch(relay.sink("databus"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = relay.consistent_events().orderBy("scn", "window_position").select("offset").collect()
    assert [row["offset"] for row in found] == [0, 1, *range(3, len(sent), 2)]
    assert relay.store.commits().where("batch like 'databus:%'").count() == 4
    assert len(relay.store.snapshot().files("events")) == 2


class Board(databus.Consumer):
    """Keeps what is there by key, and the windows that it was told; killed after some events."""

    def __init__(self, left: int = 10**6) -> None:
        self.rows: dict[tuple[str, Any], int | None] = {}
        self.told: list[int] = []
        self.left = left

    def on_data_event(self, event: databus.Event) -> bool:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        value = event.value()
        self.rows[event.source.name, event.key] = value["amount"] if value else None
        return True

    def on_end_data_event_sequence(self, end_scn: int) -> None:
        self.told.append(end_scn)


def test_a_consumer_begins_with_a_snapshot_catches_up_and_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Killed in the middle of the snapshot, and again while it catches up."""
    first = "a1:1=-10 b1:1=10 .1 a2:1=-15 b2:1=15 a2:2=7 .2 a3:2 .3"
    relay = relay_of(spark, tmp_path / "relay", sent_of(first))
    asked = databus.Subscription([SOURCES["b"], SOURCES["a"]])
    kept = databus.StoredCheckpoints(relay.store, "board")
    killed = Board(left=1)
    with pytest.raises(KeyboardInterrupt):
        databus.dispatch(relay.bootstrap(asked), killed, checkpoints=kept)
    assert killed.rows == {("b", 1): 15}
    checkpoint = kept.load()
    assert (checkpoint.consumption_mode, checkpoint.bootstrap_start_scn) == ("BOOTSTRAP_SNAPSHOT", 3)
    assert checkpoint.bootstrap_snapshot_source_index == 1
    relay.receive(frame(spark, sent_of("b4:1=16 .4 a5:1=-16 .5", 9)))
    board = Board(left=2)
    board.rows = killed.rows
    with pytest.raises(KeyboardInterrupt):
        databus.dispatch(relay.bootstrap(asked), board, checkpoints=kept)
    assert (kept.load().consumption_mode, kept.load().window_scn) == ("BOOTSTRAP_CATCHUP", 4)
    relay.receive(frame(spark, sent_of("a6:3=1 .6", 13)))
    board.left = 10
    outcome = databus.dispatch(relay.bootstrap(asked), board, checkpoints=kept)
    assert (outcome.checkpoint.consumption_mode, outcome.checkpoint.window_scn) == ("ONLINE_CONSUMPTION", 6)
    assert board.rows == {("b", 1): 16, ("a", 1): -16, ("a", 3): 1}
    assert board.told == [3, 4, 5, 6]


def test_windows_of_a_relay_are_frames_for_a_loop_and_streams_are_told_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    sent = sent_of("a1:1=-9 <1 a1:1=-10 b1:1=10 .1 a2:1=-15 !2:1=1 .2 a2:1=-15")
    relay = relay_of(spark, tmp_path, sent)
    asked = databus.Subscription([SOURCES["a"]])
    [typed] = [
        databus.rows(each.frame(spark), SOURCES["a"]).collect() for each in relay.stream(asked).windows()
    ]
    assert [(row["scn"], row["data"]["amount"]) for row in typed] == [(1, -10)]
    other = [record_of(word, 9, SOURCES, 2) for word in ("a7:1=3", ".7")]
    relay.receive(frame(spark, [(value, 0, at) for at, value in enumerate(other, len(sent))]))
    with pytest.raises(InvalidArgument, match="of one stream, such as physical partition 1 of topic 't'"):
        list(relay.stream(asked).windows())
    found = [each.end_scn for each in relay.stream(asked, physical_partition=2).windows()]
    assert found == [7]
    events = databus.decode(frame(spark, sent_of("a1:1=1 <1 a1:1=1 .1")), SOURCES.values())
    told = [each.end_scn for each in databus.EventStream(events, asked, buffered=False).windows()]
    assert told == [None, 1]
