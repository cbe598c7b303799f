"""`waiting`: data that came before its metadata waits, for a bounded time, and nothing of it is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import replicate
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.model.records import RECORD_COLUMNS
from support.replicate_messages import (
    NOON,
    Version,
    by_offset,
    envelope,
    header_values,
    json_envelope,
    record,
)
from support.replicate_readings import Reading, read

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "replicate"
TEXT = ["null", "string"]
KNOWN = Version({"id": "int", "name": TEXT})
UNKNOWN = Version({"id": "int", "name": TEXT}, table="UNKNOWN")
ROW = {"id": 1, "name": "x"}
MINUTE = timedelta(minutes=1)


def json_dt(**others: Any) -> bytes:
    return json_envelope("DT", {"data": {"id": "1"}, "headers": header_values("INSERT")}, **others)


RECORDS = [
    record(KNOWN.md(), 0),
    record(KNOWN.dt("INSERT", ROW), 1),
    record(UNKNOWN.dt("INSERT", ROW), 2, timestamp=NOON),
    record(UNKNOWN.dt("INSERT", ROW), 3, timestamp=NOON + timedelta(seconds=50)),
    record(UNKNOWN.dt("INSERT", ROW), 4, timestamp=NOON + timedelta(seconds=49, microseconds=999_999)),
    record(UNKNOWN.dt("INSERT", ROW), 5, timestamp=NOON + 2 * MINUTE),
    record(json_dt(), 6, topic="in json"),
    record(json_dt(messageSchemaId=KNOWN.schema_id), 7, topic="in json"),
    record(json_dt(), 8, topic="of a table"),
    record(json_dt(), 9, topic=None),
    record(json_envelope("MD", KNOWN.metadata()), 10),
    record(envelope("DT", b"x", schema_id=UNKNOWN.schema_id[:-1]), 11),
    record(b"?", 12),
    record(None, 13),
    record(UNKNOWN.md(schemaId=UNKNOWN.schema_id, dataSchema="?"), 14),
    record(envelope("DT", b"\xff", schema_id=UNKNOWN.schema_id, headers={"a": "b"}), 15, timestamp=NOON),
    record(UNKNOWN.dt("INSERT", ROW), 16, timestamp=None),
]
WAITING = [2, 3, 4, 5, 6, 7, 9, 15, 16]


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> Reading:
    return read(spark, RECORDS)


def wait(reading: Reading, **options: Any) -> DataFrame:
    said = {"now": NOON + MINUTE, "json_topics": ["of a table"], **options}
    return replicate.waiting(reading.decoded, reading.zone, **said)


@pytest.fixture(scope="module")
def waiting(reading: Reading) -> dict[int, dict[str, Any]]:
    return by_offset(wait(reading))


def test_data_without_metadata_waits_and_nothing_else_does(waiting: dict[int, dict[str, Any]]) -> None:
    """Known data has rows, metadata and errors have their own places; metadata in error helps nobody."""
    assert sorted(waiting) == WAITING


def test_a_message_in_json_form_waits_for_its_topic_to_be_named(reading: Reading) -> None:
    assert 8 in by_offset(wait(reading, json_topics=()))
    assert sorted(by_offset(wait(reading, json_topics=["in json", "of a table"]))) == [2, 3, 4, 5, 9, 15, 16]


def test_a_waiting_record_is_whole(waiting: dict[int, dict[str, Any]]) -> None:
    for sent in RECORDS:
        if sent["offset"] in WAITING and sent["timestamp"] is not None:
            sent = sent | {"timestamp": sent["timestamp"].replace(tzinfo=None)}
            assert {name: waiting[sent["offset"]][name] for name in sent} == sent
    assert waiting[2]["schema_id"] == UNKNOWN.schema_id
    assert waiting[6]["schema_id"] is None


def test_how_long_it_has_waited_is_measured_from_its_record_to_now(
    waiting: dict[int, dict[str, Any]],
) -> None:
    assert [waiting[offset]["waited"] for offset in (2, 3, 4, 5)] == [
        MINUTE,
        timedelta(seconds=10),
        timedelta(seconds=10, microseconds=1),
        -MINUTE,
    ]


def test_a_wait_of_just_the_time_allowed_is_not_too_long(waiting: dict[int, dict[str, Any]]) -> None:
    assert [waiting[offset]["is_overdue"] for offset in (2, 3, 4, 5)] == [True, False, True, False]


def test_a_wait_that_nobody_can_measure_is_too_long(waiting: dict[int, dict[str, Any]]) -> None:
    """A record without a time would else wait for ever."""
    assert (waiting[16]["waited"], waiting[16]["is_overdue"]) == (None, True)


def test_now_may_be_said_in_any_zone_and_the_time_allowed_is_the_callers(reading: Reading) -> None:
    there = (NOON + MINUTE).astimezone(timezone(timedelta(hours=-5)))
    rows = by_offset(wait(reading, now=there, wait=MINUTE))
    assert [rows[offset]["waited"] for offset in (2, 3)] == [MINUTE, timedelta(seconds=10)]
    assert {offset for offset, row in rows.items() if row["is_overdue"]} == {16}


def test_kept_ones_are_in_no_error_however_long_they_waited(waiting: dict[int, dict[str, Any]]) -> None:
    assert {(row["error_code"], row["error_description"]) for row in waiting.values()} == {(None, None)}


def test_rejected_ones_say_what_was_missing_and_those_in_time_still_wait(reading: Reading) -> None:
    rows = by_offset(wait(reading, overdue="reject"))
    assert sorted(rows) == WAITING
    for offset, row in rows.items():
        code = "METADATA_MISSING" if row["is_overdue"] else None
        assert row["error_code"] == code, offset
        assert (row["error_description"] is None) == (code is None)
    assert rows[2]["error_description"] == (
        "No metadata message for this schema id and topic came within the time allowed."
        f" Schema id {UNKNOWN.schema_id}, in items/0 at 2."
    )
    assert rows[6]["error_description"].endswith(" Schema id none, in in json/0 at 6.")


def test_the_policy_fail_stops_the_computation_whatever_of_it_is_asked_for(reading: Reading) -> None:
    failing = wait(reading, overdue="fail")
    message = "METADATA_MISSING: No metadata message for this schema id and topic came"
    with pytest.raises(PySparkException, match=message):
        failing.collect()
    with pytest.raises(PySparkException, match=message):
        failing.select(*RECORD_COLUMNS).collect()
    with pytest.raises(PySparkException, match=message):
        failing.count()


def test_the_policy_fail_lets_those_pass_that_are_in_time(reading: Reading) -> None:
    timed = replace(reading, decoded=reading.decoded.where("timestamp is not null"))
    rows = by_offset(wait(timed, overdue="fail", wait=MINUTE))
    assert sorted(rows) == WAITING[:-1]
    assert {row["error_code"] for row in rows.values()} == {None}


# --- callers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [NOON.replace(tzinfo=None), None, "2024-01-01", NOON.date()])
def test_an_instant_without_a_zone_is_refused_at_the_call(reading: Reading, now: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"waiting\(\) needs now to be an aware datetime"):
        wait(reading, now=now)


def test_a_policy_that_is_none_is_refused_at_the_call(reading: Reading) -> None:
    with pytest.raises(
        InvalidArgument, match=r"needs overdue to be 'keep', 'reject' or 'fail'; it is 'drop'"
    ):
        wait(reading, overdue="drop")


@pytest.mark.parametrize("time", [10, -MINUTE, "10 seconds", None])
def test_a_time_to_wait_that_is_none_is_refused_at_the_call(reading: Reading, time: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"waiting\(\) needs wait to be a timedelta that"):
        wait(reading, wait=time)


def test_wrong_tables_are_refused_at_the_call(reading: Reading) -> None:
    with pytest.raises(MissingColumns, match=r"waiting\(\) needs the columns form, type, envelope_headers"):
        replicate.waiting(reading.records, reading.zone, now=NOON)
    with pytest.raises(
        MissingColumns, match=r"waiting\(\) needs the columns schema_id; the DataFrame has server"
    ):
        replicate.waiting(reading.decoded, reading.zone.drop("schema_id"), now=NOON)
    with pytest.raises(WrongColumnType, match=r"waiting\(\) needs the column schema_id as string; it is int"):
        replicate.waiting(reading.decoded, reading.zone.withColumn("schema_id", F.lit(1)), now=NOON)


def test_failing_looks_only_at_what_waits(spark: SparkSession) -> None:
    """Data whose schema is known is old as well, and must not make the computation fail."""
    records = spark.read.parquet(*(str(SAMPLE / f"{name}.parquet") for name in ("metadata", "schedule")))
    decoded = replicate.decode(records.where("topic in ('flights.metadata', 'schedule.airlines')"))
    zone = replicate.schema_zone(replicate.metadata(decoded))
    later = datetime(2026, 1, 1, tzinfo=UTC)
    assert replicate.waiting(decoded, zone, now=later, overdue="fail").collect() == []
