"""`decode`: one row per record, whatever it holds; the header in columns, the verdict beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from test_rdss_validation import HOSTILE

from cdckit import rdss, rejects
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.model.rejected_records import REJECT_SCHEMA, drop_rejects
from cdckit.rdss.decoding import DECODED_SCHEMA
from support.rdss_messages import MESSAGES, as_bytes, changed, message, read_cases, value_of

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
CASES = read_cases("validation")["cases"]
LATE = message("create", changed("/messageHeader/messageTimings/expirationTimestamp", "2024-03-01T11:00:00Z"))
ODD = {
    "messageId": 1, "messageTimings": "now", "messageSequence": {"position": "1", "total": 2**40},
    "messageHistory": [{"machineId": 1}], "tenantJiscID": "7", "generator": "g", "version": None,
    "errorCode": [],
}  # fmt: skip
VALUES: list[bytes | None] = [
    *(value_of(case) for case in CASES),
    *(value for name, (value, _) in HOSTILE.items() if name != "100 MB"),
    as_bytes({"messageHeader": ODD, "messageBody": {}}),
    as_bytes(LATE),
]


def to_records(spark: SparkSession, values: list[bytes | None], at: datetime | None = NOW) -> DataFrame:
    headers = [("trace", b"\xff"), ("trace", None)]
    rows = [(b"k", value, "rdss", 0, offset, at, 0, headers) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORD_SCHEMA)


@pytest.fixture(scope="module")
def decoded(spark: SparkSession) -> DataFrame:
    return rdss.decode(to_records(spark, VALUES))


@pytest.fixture(scope="module")
def rows(decoded: DataFrame) -> list[Row]:
    assert decoded.schema.simpleString() == DECODED_SCHEMA.simpleString()
    return sorted(decoded.collect(), key=lambda row: row["offset"])


def test_every_record_is_one_row_as_it_came(rows: list[Row]) -> None:
    assert [row["value"] and bytes(row["value"]) for row in rows] == VALUES
    assert {tuple(row["headers"]) for row in rows} == {(("trace", b"\xff"), ("trace", None))}


def test_the_verdict_is_that_of_each_message_alone(rows: list[Row]) -> None:
    for row, value in zip(rows, VALUES, strict=True):
        verdict = rdss.validate(value, now=NOW)
        found = (row["error_code"], row["error_description"], row["queue"], row["body"])
        assert found == (verdict.code, verdict.description, verdict.queue, verdict.body_text)


def test_the_header_of_a_valid_message_is_in_columns(rows: list[Row]) -> None:
    row = rows[[case["name"] for case in CASES].index("a valid message: create")]
    expected = {
        "message_id": "00000001-0000-4000-8000-000000000000",
        "correlation_id": None,
        "message_class": "Command",
        "message_type": "MetadataCreate",
        "return_address": None,
        "published_timestamp": datetime(2024, 3, 1, 12),
        "expiration_timestamp": datetime(2024, 3, 2, 12),
        "sequence_id": "00000065-0000-4000-8000-000000000000",
        "sequence_position": 1,
        "sequence_total": 1,
        "message_history": [Row(machineId="m1", machineAddress="machine.example.org", timestamp=STOPPED)],
        "version": "4.0.0",
        "header_error_code": None,
        "header_error_description": None,
        "generator": "repository",
        "tenant_jisc_id": 7,
        "object_uuid": "00000384-0000-4000-8000-000000000000",
        "queue": None,
        "error_code": None,
        "error_description": None,
    }
    assert {name: row[name] for name in expected} == expected


STOPPED = "2024-03-01T12:00:00.250+01:00"


def test_of_a_refused_header_the_columns_hold_what_could_be_read(rows: list[Row]) -> None:
    row = rows[-2]
    read: dict[str, Any] = {name: row[name] for name in DECODED_SCHEMA.names[8:-5] if row[name] is not None}
    assert read == {"generator": "g"}
    assert row["error_code"] == "GENERR010"


def test_a_message_expires_by_the_records_own_time_or_by_the_instant_that_is_given(
    spark: SparkSession, rows: list[Row]
) -> None:
    assert rows[-1]["error_code"] == "GENERR003"
    records = to_records(spark, [as_bytes(LATE)], at=None)
    earlier = rdss.decode(to_records(spark, [as_bytes(LATE)]), now=datetime(2024, 3, 1, 10, tzinfo=UTC))
    found = rdss.decode(records).unionAll(earlier).select("error_code").collect()
    assert [row["error_code"] for row in found] == [
        None,
        None,
    ]  # a record without a time is delivered at none


def test_rejects_are_records_that_can_be_fed_again(spark: SparkSession, decoded: DataFrame) -> None:
    found = rejects(decoded).collect()
    assert len(found) == sum(not rdss.validate(value, now=NOW).valid for value in VALUES)
    again = rdss.decode(spark.createDataFrame(found, REJECT_SCHEMA).select(*RECORD_COLUMNS))
    assert sorted((row["offset"], row["error_code"]) for row in rejects(again).collect()) == sorted(
        (row["offset"], row["error_code"]) for row in found
    )


def test_every_record_is_valid_or_refused_and_none_is_lost(decoded: DataFrame) -> None:
    valid = drop_rejects(decoded).groupBy().count().withColumnRenamed("count", "n")
    refused = rejects(decoded).groupBy().count().withColumnRenamed("count", "n")
    assert sum(row["n"] for row in valid.unionAll(refused).collect()) == len(VALUES)


def test_a_stream_is_decoded_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    values = [as_bytes(each) for each in MESSAGES.values()] + [b"?", None]
    records = to_records(spark, values)
    records.repartition(2).write.parquet(str(tmp_path / "records"))
    stream = spark.readStream.schema(RECORD_SCHEMA).parquet(str(tmp_path / "records"))
    running = (
        rdss.decode(stream)
        .writeStream.format("memory")
        .queryName("decoded_rdss")
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    key = "offset"
    streamed = spark.table("decoded_rdss").drop("headers").orderBy(key).collect()
    assert streamed == rdss.decode(records).drop("headers").orderBy(key).collect()


def test_queues_take_decorated_messages(spark: SparkSession) -> None:
    wrong = message("create", changed("/messageHeader/messageId", "m1"))
    decoded = rdss.decode(
        to_records(spark, [as_bytes(wrong), b"?", as_bytes(MESSAGES["read"]), b" " * 1_000_001])
    )
    queued = rdss.queue_records(decoded).orderBy("offset").collect()
    assert [(row["offset"], row["queue"]) for row in queued] == [(0, "invalid"), (1, "invalid"), (3, "error")]
    verdict = rdss.validate(as_bytes(wrong), now=NOW)
    assert bytes(queued[0]["value"]) == rdss.decorate_bytes(as_bytes(wrong), verdict)
    assert b"GENERR007" in queued[1]["value"]
    assert b"GENERR006" in queued[2]["value"]


def test_a_call_that_cannot_mean_anything_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match=r"decode.*now to be an aware datetime"):
        rdss.decode(spark.createDataFrame([], RECORD_SCHEMA), now=datetime(2024, 3, 1))
    with pytest.raises(MissingColumns, match="value"):
        rdss.decode(spark.createDataFrame([], RECORD_SCHEMA).drop("value"))
