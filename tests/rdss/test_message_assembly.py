"""
`parts`, `assemble_messages` and `waiting`: longer messages come back whole, whatever the order of their
parts.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import rdss, rejects
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from cdckit.rdss import Rules
from cdckit.rdss.decoding import DECODED_SCHEMA
from support.rdss_messages import MESSAGES, as_bytes, changed, message, uuid

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
RULES = Rules(max_bytes=1200)
DECORATION = "messageHeader/errorCode", "GENERR006"


def large(number: int, title: str, *changes: dict[str, Any]) -> dict[str, Any]:
    own = [
        changed("/messageHeader/messageId", uuid(number)),
        changed("/messageHeader/messageSequence/sequence", uuid(1000 + number)),
        changed("/messageBody/objectTitle", title),
    ]
    return message("create", *own, *changes)


def cut(sent: dict[str, Any]) -> list[bytes]:
    return rdss.split(as_bytes(sent), rules=RULES)


def altered(part: bytes, path: str, value: Any) -> bytes:
    made = json.loads(part)
    *above, last = path.split("/")
    holder = made
    for step in above:
        holder = holder[step]
    holder[last] = value
    return as_bytes(made) if value != DECORATION[1] else json.dumps(made).encode()


TITLES = ['Tides "of" \\ 潮汐 🌊 ' * 60, "x" * 2500, "Ebb\n" * 400]
SENT = [large(number, title) for number, title in enumerate(TITLES)]
WRONG = large(7, "y" * 2500, changed("/messageBody/objectValue", "low"))
BROKEN = cut(large(8, "z" * 2500))
BROKEN = [BROKEN[0], altered(BROKEN[1], "messageBody", '"{{{'), *BROKEN[2:]]
TOTALS = cut(large(4, "t" * 2500))
CONTENTS = cut(large(5, "c" * 2500))
INCOMPLETE = cut(large(6, "i" * 4500))

# As the snippet of the specification makes them: each piece beside the one header.
SHARED = [altered(part, "messageHeader/messageId", uuid(3)) for part in cut(large(3, "s" * 2500))]

# Interleaved, in an order drawn once; what repeats others, or contradicts them, comes at the end.
ALL: list[tuple[str, bytes]] = [
    *(("complete", part) for sent in SENT for part in cut(sent)),
    *(("complete", part) for part in [*cut(WRONG), *BROKEN, *TOTALS, *CONTENTS, *SHARED]),
    *(("waiting", part) for place, part in enumerate(INCOMPLETE, 1) if place not in (2, 4)),
    ("whole", as_bytes(MESSAGES["delete"])),
    ("whole", b"?"),
]
LATE = [
    ("duplicate", cut(SENT[0])[1]),
    ("duplicate", altered(cut(SENT[1])[0], "messageHeader/messageId", uuid(99))),
    # The same text, written with other escapes and with an error code in its header.
    ("duplicate", altered(json.dumps(json.loads(cut(SENT[0])[0])).encode(), *DECORATION)),
    ("duplicate", INCOMPLETE[0]),
    ("contradicting", altered(TOTALS[-1], "messageHeader/messageSequence/total", 9)),
    ("contradicting", altered(CONTENTS[1], "messageBody", "other")),
    ("contradicting", altered(INCOMPLETE[1], "messageHeader/generator", "somebody else")),
]


def to_records(spark: SparkSession, values: list[bytes]) -> DataFrame:
    rows = [
        (None, value, "rdss", 0, offset, NOW + timedelta(seconds=offset), 0, [("n", b"1")])
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA)


def drawn(seed: int) -> list[tuple[str, bytes]]:
    first = list(ALL)
    random.Random(seed).shuffle(first)
    return [*first, *LATE]


ORDER = drawn(1)


@pytest.fixture(scope="module")
def parts(spark: SparkSession) -> DataFrame:
    decoded = rdss.decode(to_records(spark, [value for _, value in ORDER]), rules=Rules(max_bytes=4000))
    return rdss.parts(decoded).localCheckpoint()


@pytest.fixture(scope="module")
def whole(parts: DataFrame) -> list[dict[str, Any]]:
    made = rdss.assemble_messages(parts, rules=RULES)
    assert made.schema.simpleString() == DECODED_SCHEMA.simpleString()
    return sorted((row.asDict() for row in made.collect()), key=lambda row: row["message_id"])


def test_every_part_is_one_row_that_says_what_became_of_it(parts: DataFrame) -> None:
    became = {row["offset"]: row["part"] for row in parts.collect()}
    expected = {offset: outcome for offset, (outcome, _) in enumerate(ORDER) if outcome != "whole"}
    assert became == expected


def test_complete_sequences_are_the_messages_that_were_split(whole: list[dict[str, Any]]) -> None:
    found = whole[: len(SENT)]
    assert [json.loads(row["value"]) for row in found] == SENT
    assert [json.loads(row["body"]) for row in found] == [each["messageBody"] for each in SENT]
    told = {(row["sequence_position"], row["sequence_total"], row["error_code"]) for row in found}
    assert told == {(1, 1, None)}


def test_a_body_is_validated_when_it_is_whole(whole: list[dict[str, Any]]) -> None:
    assert {row["message_id"][:8]: (row["error_code"], row["queue"]) for row in whole[-2:]} == {
        "00000007": ("GENERR001", "invalid"),
        "00000008": ("GENERR007", "invalid"),
    }
    assert "At $.messageBody.objectValue: 'low'" in whole[-2]["error_description"]


def test_a_message_that_was_put_together_has_a_limit_of_its_own(parts: DataFrame) -> None:
    made = rdss.assemble_messages(parts, rules=Rules(max_whole_bytes=4400))
    found = {row["message_id"][:8]: row["error_code"] for row in made.collect()}
    assert found["00000001"] == "GENERR006"
    assert found["00000002"] is None


def test_a_sequence_that_is_far_too_large_is_never_put_together(parts: DataFrame) -> None:
    bodies = [json.dumps(json.loads(part)["messageBody"], ensure_ascii=False) for part in cut(SENT[0])]
    size = sum(len(body.encode()) for body in bodies)
    made = rdss.assemble_messages(parts, rules=Rules(max_whole_bytes=1800)).collect()
    [one] = [row for row in made if row["message_id"] == uuid(0)]
    assert bytes(one["value"]) == cut(SENT[0])[0]
    assert (one["body"], one["error_code"], one["queue"]) == (None, "GENERR006", "error")
    assert f"its parts have {size:,} bytes, and a message may have 1,800" in one["error_description"]


def test_parts_are_shuffled_and_sorted_as_they_came_and_then_by_their_places(spark: SparkSession) -> None:
    decoded = rdss.decode(to_records(spark, [value for _, value in ORDER]), rules=RULES)
    plan = rdss.assemble_messages(rdss.parts(decoded))._jdf.queryExecution().executedPlan().toString()
    assert (plan.count("Exchange"), plan.count("Sort ")) == (2, 2)


def test_contradictions_are_rejects_with_their_records(parts: DataFrame) -> None:
    found = parts.where("error_code is not null").orderBy("offset").collect()
    assert rejects(parts).count() == len(found)
    expected = [(offset, value) for offset, (what, value) in enumerate(ORDER) if what == "contradicting"]
    assert [(row["offset"], bytes(row["value"])) for row in found] == expected
    assert {(row["error_code"], row["queue"]) for row in found} == {("GENERR004", "invalid")}
    for row in found:
        said = f"the part contradicts what came before it of the sequence {row['sequence_id']}."
        assert row["error_description"].endswith(f"At $.messageHeader.messageSequence: {said}")


def test_missing_parts_are_waited_for_and_then_given_up_with_what_was_there(parts: DataFrame) -> None:
    total = len(INCOMPLETE)
    kept = rdss.waiting(parts, now=NOW + timedelta(minutes=30)).collect()
    assert len(kept) == total - 2
    assert {(row["waiting_for"], row["is_overdue"], row["error_code"]) for row in kept} == {
        (f"2 of {total} parts, the first of them part 2", False, None)
    }
    since = min(offset for offset, (outcome, _) in enumerate(ORDER) if outcome == "waiting")
    assert {row["waiting_since"] for row in kept} == {datetime(2024, 3, 1, 12) + timedelta(seconds=since)}
    later = rdss.waiting(parts, now=NOW + timedelta(hours=2), overdue="reject")
    given_up = rejects(later).collect()
    assert {bytes(row["value"]) for row in given_up} == {part for what, part in ORDER if what == "waiting"}
    assert {(row["error_code"], row["error_description"]) for row in given_up} == {
        (
            "GENERR001",
            "The body is not of the form that its type needs. At $.messageBody: the sequence lacks "
            f"2 of {total} parts, the first of them part 2, for which it waited too long.",
        )
    }


def test_what_has_no_time_does_not_wait_for_ever(parts: DataFrame) -> None:
    untimed = parts.withColumn("waiting_since", F.lit(None).cast("timestamp_ltz"))
    assert {row["is_overdue"] for row in rdss.waiting(untimed, now=NOW).collect()} == {True}


def test_what_waits_is_put_together_when_the_rest_has_come(spark: SparkSession, parts: DataFrame) -> None:
    late = rdss.waiting(parts, now=NOW).select(*RECORD_SCHEMA.names)
    rest = to_records(spark, [INCOMPLETE[1], INCOMPLETE[3]])
    again = rdss.assemble_messages(
        rdss.parts(rdss.decode(late.union(rest), rules=RULES)), rules=RULES
    ).collect()
    assert [json.loads(row["value"])["messageBody"]["objectTitle"] for row in again] == ["i" * 4500]


def test_a_stream_and_an_unknown_policy_are_refused(spark: SparkSession, parts: DataFrame) -> None:
    stream = rdss.decode(spark.readStream.schema(RECORD_SCHEMA).parquet("."))
    with pytest.raises(InvalidArgument, match="foreachBatch"):
        rdss.parts(stream)
    with pytest.raises(InvalidArgument, match="overdue to be 'keep' or 'reject'"):
        rdss.waiting(parts, now=NOW, overdue="drop")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="now to be an aware datetime"):
        rdss.waiting(parts, now=datetime(2024, 3, 1))
