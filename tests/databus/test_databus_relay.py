"""`Relay`: any batches, as a stream too, give what one batch of all gives; ledgers at one end of a window."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdckit import databus
from cdckit.databus import Relay
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.records import RECORD_SCHEMA
from support.databus_streams import record_of
from support.relays import FIELDS, KEYS, NOON, SCHEMA, SOURCES, frame, relay_of, sent_of, sums


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
    relay = Relay(spark, tmp_path / "one", SOURCES.values(), keys={"a": ["id"]})
    assert relay.receive(frame(spark, sent), 0).records == 3
    with pytest.raises(InvalidArgument, match="of sources among a, b"):
        Relay(spark, tmp_path, SOURCES.values(), keys={"c": ["id"]})
    # Of a ledger that is left out, or added, some windows would be missing.
    for keys in ({}, KEYS, {"a": ["amount"]}):
        other = Relay(spark, tmp_path / "one", SOURCES.values(), keys=keys)
        with pytest.raises(InvalidArgument, match="`rebuild` goes by new ones"):
            other.receive(frame(spark, sent))
    other.rebuild()
    assert [row["amount"] for row in other.ledgers()["a"].history({"amount": -10}).collect()] == [-10]


def test_events_that_do_not_say_their_key_are_rejects(spark: SparkSession, tmp_path: Path) -> None:
    """Such as a delete without a value where the key has two fields; of one field its event says it."""
    fields = [{"name": name, "type": ["null", "long"]} for name in ("id", "amount")]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    sources = [databus.Source(number, name, [schema]) for number, name in ((1, "one"), (2, "two"))]
    [schema_id] = sources[0].texts
    header = {"sequence": 1, "physicalPartitionId": 1, "timestampInNanos": 1}
    row = {"schemaId": schema_id, "valueEnc": "JSON_PLAIN", "value": '{"id": 7, "amount": 5}'}
    of_row = {**header, **row, "key": 7, "opcode": "UPSERT"}
    deleted = {**header, "key": 7, "opcode": "DELETE"}
    events = [
        *({**of_row, "srcId": 1}, {**of_row, "srcId": 2}),
        *({**deleted, **row, "value": '{"id": null, "amount": 5}', "srcId": 1}, {**deleted, "srcId": 2}),
        {**header, "srcId": -2},
    ]
    sent = [(json.dumps(event).encode(), 0, at) for at, event in enumerate(events)]
    relay = Relay(spark, tmp_path, sources, keys={"one": ["id"], "two": ["id", "amount"]})
    relay.receive(frame(spark, sent))
    [reject] = relay.rejects().collect()
    assert (reject["error_code"], reject["offset"], reject["value"]) == ("KEY_MISSING", 3, sent[3][0])
    [alive] = relay.ledgers()["two"].history().collect()
    [gone] = relay.ledgers()["one"].history().collect()
    assert (alive["deleted_indicator"], gone["deleted_indicator"]) == (False, True)


def test_a_source_that_was_unknown_is_known_after_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_of("a1:1=-10 b1:1=10 .1 a2:1=-15 b2:1=15 .2")
    relay = Relay(spark, tmp_path, [SOURCES["a"]], keys={"a": ["id"]})
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
    monkeypatch.setattr("cdckit.databus.relay_intake.MANY_FILES", 2)
    words = "a1:1=-10 b1:1=10 .1 " + " ".join(f"a{scn}:1={scn} .{scn}" for scn in range(2, 20))
    sent = sent_of(words)
    for number, at in enumerate(range(0, len(sent), 13)):
        frame(spark, sent[at : at + 13]).write.parquet(str(tmp_path / "in" / f"{number:02}"))
    relay = Relay(spark, tmp_path / "relay", SOURCES.values())
    stream: Any = spark.readStream.schema(RECORD_SCHEMA).option("maxFilesPerTrigger", 1)
    query = (
        stream.parquet(str(tmp_path / "in" / "*"))
        .writeStream.foreachBatch(relay.sink("databus"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = relay.consistent_events().orderBy("scn", "window_position").select("offset").collect()
    assert [row["offset"] for row in rows] == [0, 1, *range(3, len(sent), 2)]
    assert relay.store.commits().where("batch like 'databus:%'").count() == 3
    assert len(relay.store.snapshot().files("events")) == 2


def test_windows_of_a_relay_are_frames_for_a_loop_and_streams_are_told_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    sent = sent_of("a1:1=-9 <1 a1:1=-10 b1:1=10 .1 a2:1=-15 !2:1=1 .2 a2:1=-15")
    relay = relay_of(spark, tmp_path, sent)
    asked = [SOURCES["a"]]
    [window] = [window.table() for window in relay.stream(asked).windows()]
    typed = databus.rows(spark.createDataFrame(window), SOURCES["a"]).collect()
    assert [(row["scn"], row["data"]["amount"]) for row in typed] == [(1, -10)]
    other = [record_of(word, 9, SOURCES, 2) for word in ("a7:1=3", ".7")]
    relay.receive(frame(spark, [(value, 0, at) for at, value in enumerate(other, len(sent))]))
    with pytest.raises(InvalidArgument, match="of one stream, such as physical partition 1 of topic 't'"):
        list(relay.stream(asked).windows())
    ends = [window.end_scn for window in relay.stream(asked, physical_partition=2).windows()]
    assert ends == [7]
    events = databus.decode(frame(spark, sent_of("a1:1=1 <1 a1:1=1 .1")), SOURCES.values())
    unbuffered_ends = [
        window.end_scn for window in databus.EventStream(events, asked, buffered=False).windows()
    ]
    assert unbuffered_ends == [None, 1]


def test_sources_that_nobody_needs_are_left_out_and_damage_no_window(spark: SparkSession) -> None:
    records = frame(spark, sent_of("a1:1=-10 b1:1=10 .1"))
    for skipped, states in (((), ["damaged"]), ((SOURCES["b"].id,), ["complete"])):
        events = databus.decode(records, [SOURCES["a"]], skip_sources=skipped)
        assert [window["state"] for window in databus.windows(events).collect()] == states


def test_events_are_never_read_by_fewer_sources_or_schemas_than_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Fields in another order would give other values; a source under another number would have none."""
    newer = json.dumps({"type": "record", "name": "R", "fields": FIELDS[::-1]})
    a, b = SOURCES["a"], SOURCES["b"]
    relay_of(spark, tmp_path, sent_of("a1:1=-10 b1:1=10 .1 a2:1=-15"))
    ended = frame(spark, sent_of("b2:1=15 .2", 4))
    [first_id] = a.texts
    for sources, lacking in (
        ([databus.Source(a.id, "a", [newer]), b], f"also the schema '{first_id}' of 'a'"),
        ([databus.Source(a.id, "a", {first_id: newer}), b], f"also the schema '{first_id}' of 'a'"),
        ([databus.Source(3, "a", [SCHEMA]), b], "also the source 97, 'a'"),
    ):
        relay = Relay(spark, tmp_path, sources, keys=KEYS)
        with pytest.raises(InvalidArgument) as refusal:
            relay.receive(ended)
        assert lacking in str(refusal.value)
        assert "`rebuild` goes by new ones" in str(refusal.value)
        with pytest.raises(InvalidArgument, match="by which the events were read before"):
            relay.rejects()
        with pytest.raises(InvalidArgument, match="by which the events were read before"):
            relay.erase("a", keys=[{"id": 1}], by="dana", reason="a letter")
    relay = Relay(spark, tmp_path, [databus.Source(a.id, "a", [SCHEMA, newer]), b], keys=KEYS)
    relay.receive(ended)
    assert sums(relay) == [0, 0]


def test_a_source_that_was_skipped_is_not_wanted_later(spark: SparkSession, tmp_path: Path) -> None:
    """Its event of SCN 1 is not kept; sent again at a new offset it would count as repeated, and be lost."""
    a, b = SOURCES["a"], SOURCES["b"]
    sent = sent_of("a1:1=-10 b1:1=10 .1 a1:1=-10 b1:1=10 .1")
    relay = Relay(spark, tmp_path, [a, b], keys={"a": ["id"]}, skip_sources=[b.id])
    relay.receive(frame(spark, sent[:3]))
    wanted = Relay(spark, tmp_path, [a, b], keys={"a": ["id"]})
    with pytest.raises(
        InvalidArgument, match=r"also \[98\]: their events were not kept; .* another location"
    ):
        wanted.receive(frame(spark, sent))
    with pytest.raises(InvalidArgument, match="Begin a relay in another location"):
        wanted.rebuild()
    assert relay.receive(frame(spark, sent)).records == 3 - 1


def test_a_checkpoint_waits_for_nothing_and_is_no_reject(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = {"sequence": 1, "physicalPartitionId": 1, "timestampInNanos": 1, "srcId": -3}
    relay = relay_of(spark, tmp_path, [*sent_of("a1:1=-10 .1"), (json.dumps(checkpoint).encode(), 0, 2)])
    assert relay.waiting().isEmpty()
    assert relay.expire(now=NOON + timedelta(days=1)) == 0
    relay.receive(frame(spark, sent_of("a2:1=-15", 3)))
    assert [row["offset"] for row in relay.waiting().collect()] == [3]
    assert relay.expire(now=NOON + timedelta(days=1)) == 1
    assert [(row["offset"], row["error_code"]) for row in relay.rejects().collect()] == [(3, "WINDOW_OPEN")]
    assert [row["kind"] for row in relay.events().where("offset = 2").collect()] == ["checkpoint"]


def test_a_key_whose_type_becomes_text_is_refused_until_the_ledger_is_rebuilt(
    spark: SparkSession, tmp_path: Path
) -> None:
    newer = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}, FIELDS[1]]}
    )
    sent = sent_of("a1:1=-10 .1 b1:1=10 .1")
    relay = relay_of(spark, tmp_path, sent[:2])
    sources = [databus.Source(97, "a", [SCHEMA, newer]), SOURCES["b"]]
    relay = Relay(spark, tmp_path, sources, keys=KEYS)
    with pytest.raises(WrongColumnType, match=r"data.id as a number as before .*; it is string. `rebuild`"):
        relay.receive(frame(spark, sent[2:]))
    relay.rebuild()
    assert [row["id"] for row in relay.ledgers()["a"].history().collect()] == ["1"]
