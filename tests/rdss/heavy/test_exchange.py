"""
`Exchange`: messages in any order and any batches, as a stream too, give what one batch of all gives.

In `make test`:
tests/rdss/test_exchange_cases.py::test_what_becomes_of_messages_about_objects,
tests/test_doors.py::test_a_rebuild_lets_only_what_was_given_up_wait_again,
tests/rdss/test_message_assembly.py::test_missing_parts_are_waited_for_and_then_given_up_with_what_was_there.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from cdckit import rdss, samples
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from cdckit.parts.kept_folds import bucket_of
from cdckit.rdss import Exchange, Rules
from cdckit.rdss.exchange_rows import Names
from cdckit.rdss.exchange_rules import Identity
from cdckit.rdss.exchange_tables import NAMES_NOTE
from cdckit.shell import states_and_outcomes
from cdckit.shell.states_and_outcomes import STATES
from support.rdss_messages import NOON, Sent, as_bytes, changed, frame, message, titled, told, uuid
from tools.tiers import seeds

SHORT = Rules(max_bytes=1200)
TYPES = ["ResearchObject"]


def exchange_of(spark: SparkSession, folder: Path, *batches: Sequence[Sent], **options: Any) -> Exchange:
    exchange = Exchange(spark, folder, **{"types": TYPES, **options})
    for number, sent in enumerate(batches):
        exchange.receive(frame(spark, sent), number)
    return exchange


def outcomes(exchange: Exchange) -> Counter[tuple[str, str | None]]:
    counted = exchange.messages().groupBy("outcome", "error_code").count().collect()
    return Counter({(row["outcome"], row["error_code"]): row["count"] for row in counted})


def titles(exchange: Exchange) -> list[tuple[str, int, str | None, bool]]:
    """The versions: the object, the hour in which each begins, its title, and whether it is deleted."""
    rows = exchange.history().orderBy("objectUUID", "valid_from_timestamp").collect()
    return [
        (
            row["objectUUID"][:8].lstrip("0"),
            row["valid_from_timestamp"].hour,
            row["objectTitle"],
            row["deleted_indicator"],
        )
        for row in rows
    ]


def same(one: DataFrame, other: DataFrame) -> bool:
    columns = one.columns
    return sorted(map(repr, one.collect())) == sorted(map(repr, other.select(columns).collect()))


def tables_of(exchange: Exchange) -> list[list[str]]:
    """What an exchange says of its messages, of one kind of object, and of what was asked for."""
    tables = (exchange.messages(), exchange.history("Dataset"), exchange.read_requests())
    return [sorted(map(repr, each.select(*sorted(each.columns)).collect())) for each in tables]


def drawn(records: Sequence[Row], chance: random.Random, batches: int) -> list[list[Row]]:
    """The records in any order and any batches, a tenth of them twice, one each second."""
    again = chance.sample(list(records), len(records) // 10)
    order = chance.sample([*records, *again], len(records) + len(again))
    came = [
        Row(**{**each.asDict(), "offset": place, "timestamp": NOON + timedelta(seconds=place)})
        for place, each in enumerate(order)
    ]
    cuts = [0, *sorted(chance.sample(range(len(came)), batches - 1)), len(came)]
    return [came[one:other] for one, other in itertools.pairwise(cuts)]


@seeds(1, soak=2)
def test_any_order_and_any_batches_give_what_one_batch_gives(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample, with its faults, parts and late messages: each has one outcome; at home and by workers."""
    records = spark.read.parquet(samples("rdss/records.parquet")).collect()
    rounds = drawn(records, random.Random(seed), 3)
    everything = spark.createDataFrame([row for each in rounds for row in each], RECORD_SCHEMA)
    whole = Exchange(spark, tmp_path / "whole", types=["Dataset"])
    whole.receive(everything)
    apart = Exchange(spark, tmp_path / "apart", types=["Dataset"])
    for each in rounds:
        apart.receive(spark.createDataFrame(each, RECORD_SCHEMA))
    messages, *others = expected = tables_of(whole)
    assert len(messages) == sum(map(len, rounds))
    found = {row["outcome"] for row in whole.messages().select("outcome").distinct().collect()}
    assert found == {"processed", "invalid", "error", "duplicate", "waiting"}
    assert all(others)
    assert tables_of(apart) == expected
    apart.rebuild()
    assert tables_of(apart) == expected
    monkeypatch.setattr(states_and_outcomes, "hold_few_rows", lambda files: False)
    spread = Exchange(spark, tmp_path / "spread", types=["Dataset"])
    for each in rounds:
        spread.receive(spark.createDataFrame(each, RECORD_SCHEMA))
    assert tables_of(spread) == expected
    spread.rebuild()
    assert tables_of(spread) == expected


LONG = as_bytes(
    message(
        "create",
        changed("/messageHeader/messageId", uuid(50)),
        changed("/messageHeader/messageSequence/sequence", uuid(51)),
        changed("/messageBody/objectUUID", uuid(5)),
        changed("/messageBody/objectTitle", "Tides " * 400),
    )
)
PARTS = [(value, 50 + place) for place, value in enumerate(rdss.split(LONG, rules=SHORT))]


def test_parts_of_different_batches_are_put_together_and_given_up_where_some_lack(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, second, *others = PARTS
    exchange = exchange_of(spark, tmp_path, [second, second], rules=SHORT)
    assert outcomes(exchange) == {("waiting", None): 1, ("duplicate", None): 1}
    [row] = exchange.waiting().collect()
    assert (row["offset"], row["waiting_for"]) == (
        51,
        f"{len(PARTS) - 1} of {len(PARTS)} parts, the first of them part 1",
    )
    assert exchange.expire(now=NOON + timedelta(minutes=5)) == 0
    version = exchange.store.snapshot().version
    assert exchange.expire(now=NOON + timedelta(hours=2)) == 1
    assert exchange.expire(now=NOON + timedelta(hours=3)) == 0
    assert exchange.store.snapshot().version == version + 1
    assert outcomes(exchange) == {("invalid", "GENERR001"): 1, ("duplicate", None): 1}
    assert exchange.waiting().isEmpty()
    assert [bytes(row["value"]) for row in exchange.rejects().collect()] == [second[0]]
    exchange.receive(frame(spark, [first, *others]))
    assert outcomes(exchange) == {("processed", None): len(PARTS), ("duplicate", None): 1}
    [row] = exchange.history().collect()
    assert (row["objectUUID"], row["objectTitle"], row["source_message"]) == (
        uuid(5),
        "Tides " * 400,
        uuid(50),
    )
    other = json.loads(second[0])
    other["messageBody"] = "other"
    exchange.receive(frame(spark, [(second[0], 90), (as_bytes(other), 91), (LONG, 92)]), "after")
    expected = {("processed", None): len(PARTS), ("duplicate", None): 2, ("invalid", "GENERR004"): 1}
    # The message in one piece is over the limit of these rules.
    expected["error", "GENERR006"] = 1
    assert outcomes(exchange) == expected
    assert exchange.history().count() == 1


def test_messages_of_our_own_that_come_back_are_duplicates(spark: SparkSession, tmp_path: Path) -> None:
    """Whole ones and parts; and a message that is SENT stays so."""
    mine = told("create", 1, "09:00", 1)
    exchange = exchange_of(spark, tmp_path, rules=Rules(max_bytes=5000))
    assert exchange.status(uuid(1)) is None
    short = [(value, 50 + place) for place, value in enumerate(rdss.split(LONG, rules=SHORT))]
    assert exchange.note_own(frame(spark, [mine, *short, (b"?", 99)]), rdss.Status.TO_SEND) == 1 + len(short)
    assert exchange.status(uuid(1)) == rdss.Status.TO_SEND
    exchange.note_own(frame(spark, [mine]))
    exchange.note_own(frame(spark, [mine]), rdss.Status.TO_SEND)
    assert (exchange.status(uuid(1)), exchange.status(uuid(50))) == ("SENT", "TO_SEND")
    theirs = told("create", 2, "10:00", 2)
    exchange.receive(frame(spark, [mine, theirs, *reversed(short)]))
    expected = Counter({("duplicate", None): 1 + len(short), ("processed", None): 1})
    assert outcomes(exchange) == expected
    assert [row["objectUUID"] for row in exchange.history().collect()] == [uuid(2)]
    assert (exchange.status(uuid(1)), exchange.status(uuid(2))) == ("SENT", "RECEIVED")
    own = exchange.own_messages().orderBy("message_id").collect()
    assert len(own) == 1 + len(short)
    assert {"MetadataCreate"} == {row["message_type"] for row in own}
    [row] = [row for row in own if row["message_id"] == uuid(1)]
    assert (row["sequence_id"], row["sequence_position"], row["status"]) == (uuid(0x1001), 1, "SENT")
    exchange.rebuild()
    assert outcomes(exchange) == expected
    assert exchange.status(uuid(1)) == "SENT"
    with pytest.raises(InvalidArgument, match="RECEIVED"):
        exchange.note_own(frame(spark, [mine]), rdss.Status.RECEIVED)


def test_of_what_is_known_only_the_buckets_of_a_batch_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buckets = 8
    monkeypatch.setattr(states_and_outcomes, "SPREAD_BUCKETS", buckets)
    monkeypatch.setattr(states_and_outcomes, "SPREAD_BYTES", -1)
    exchange = exchange_of(spark, tmp_path)
    many = [told("create", number, "09:00", 1) for number in range(30, 60)]
    exchange.receive(frame(spark, many))
    before = exchange.store.snapshot()
    there = {one.path: one.partition for one in before.files(STATES)}
    # Where a name falls, its secret decides.
    assert len({one["bucket"] for one in there.values() if one["fold"] == Identity.name}) > 4
    opened: list[str] = []
    read = states_and_outcomes.read_batches

    def watched(target: Any, path: str, *names: Any) -> Any:
        opened.append(path)
        return read(target, path, *names)

    monkeypatch.setattr(states_and_outcomes, "read_batches", watched)
    again, new = many[0], told("create", 99, "10:00", 2)
    exchange.receive(frame(spark, [(again[0], 90), new]))
    found = [there[path]["bucket"] for path in opened if there.get(path, {}).get("fold") == Identity.name]
    secret = json.loads(before.notes[NAMES_NOTE])
    assert sorted(found) == sorted({bucket_of(Names(secret).of(uuid(n)), buckets) for n in (30, 99)})
    assert not set(opened) & {one.path for one in before.files("messages")}
    assert outcomes(exchange) == {("processed", None): 31, ("duplicate", None): 1}


def test_messages_are_received_by_the_settings_that_the_exchange_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    sent = [titled("create", 1, "09:00", 1, "Tides"), titled("update", 2, "10:00", 1, "Ebb"), (b"?", 3)]
    exchange = exchange_of(spark, tmp_path / "one", sent)
    with pytest.raises(InvalidArgument, match="keeps_deleted"):
        Exchange(spark, tmp_path / "one", types=TYPES, keeps_deleted=True).receive(frame(spark, sent))
    with pytest.raises(InvalidArgument, match="Dataset"):
        exchange.history("Dataset")
    before = exchange.messages().drop("batch"), exchange.history()
    other = Exchange(spark, tmp_path / "one", types=["Dataset", *TYPES])
    other.rebuild()
    assert same(other.messages(), before[0])
    assert same(other.history(), before[1])
    assert other.history("Dataset").count() == 2
    [queued] = other.queued_records().collect()
    assert json.loads(queued["value"])["messageHeader"]["errorCode"] == "GENERR007"


def test_a_stream_gives_what_its_batches_give(spark: SparkSession, tmp_path: Path) -> None:
    said = [
        [titled("update", 2, "10:00", 1, "Ebb"), told("preservation", 3, "11:00", 1)],
        [titled("create", 1, "09:00", 1, "Tides"), told("read", 4, "12:00", 1)],
    ]
    for number, sent in enumerate(said):
        frame(spark, sent).write.parquet(str(tmp_path / "in" / str(number)))
    exchange = exchange_of(spark, tmp_path / "exchange")
    stream = spark.readStream.schema(RECORD_SCHEMA).option("maxFilesPerTrigger", 1)
    query = (
        stream.parquet(str(tmp_path / "in" / "*"))
        .writeStream.foreachBatch(exchange.sink("rdss"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert outcomes(exchange) == {("processed", None): 4}
    assert [version[1:] for version in titles(exchange)] == [(9, "Tides", False), (10, "Ebb", False)]
    assert exchange.store.commits().where("batch like 'rdss:%'").count() == 2
    [asked] = exchange.read_requests().collect()
    assert (asked["object_uuid"], asked["response_message_id"]) == (uuid(1), None)
    [event] = exchange.preservation_events().collect()
    assert event["event_type"] == "ingestion"
