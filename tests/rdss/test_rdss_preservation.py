"""What preservation systems say and keep; and reads with their responses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import rdss
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from support.rdss_messages import as_bytes, changed, message

OBJECT = "00000384-0000-4000-8000-000000000000"
ASKED, UNANSWERED = "00000006-0000-4000-8000-000000000000", "00000016-0000-4000-8000-000000000000"
MESSAGES = [
    message("preservation", changed("/messageHeader/returnAddress", "queue/7")),
    message("preservation", changed("/messageBody/packageType", "XIP")),
    message(
        "read", changed("/messageHeader/returnAddress", "queue/9"), changed("/messageHeader/messageId", ASKED)
    ),
    message("read", changed("/messageHeader/messageId", UNANSWERED)),
    message("response"),
    message("response"),
    message("create"),
]


@pytest.fixture(scope="module")
def decoded(spark: SparkSession) -> DataFrame:
    at = datetime(2024, 3, 1, 12, tzinfo=UTC)
    rows = [(None, as_bytes(each), "rdss", 0, offset, at, 0, None) for offset, each in enumerate(MESSAGES)]
    found = rdss.decode(spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1))
    return spark.createDataFrame(found.collect(), found.schema)


def test_a_preservation_event_is_one_row(decoded: DataFrame) -> None:
    [row] = rdss.preservation_events(decoded).collect()
    body = MESSAGES[0]["messageBody"]
    event = body["packagePreservationEvent"]
    assert row.asDict() == {
        "message_id": MESSAGES[0]["messageHeader"]["messageId"],
        "published_timestamp": datetime(2024, 3, 1, 12),
        "generator": "repository",
        "tenant_jisc_id": 7,
        "return_address": "queue/7",
        "object_uuid": OBJECT,
        "package_uuid": "0000038a-0000-4000-8000-000000000000",
        "package_type": "AIP",
        "package_container_type": body["packageContainerType"],
        "package_description": body.get("packageDescription"),
        "event_type": event["preservationEventType"],
        "event_value": event["preservationEventValue"],
        "event_detail": event.get("preservationEventDetail"),
    }


def test_a_read_stands_beside_its_response(decoded: DataFrame) -> None:
    found = rdss.read_requests(decoded).orderBy("message_id").collect()
    response = MESSAGES[4]["messageHeader"]["messageId"]
    assert [(row["message_id"], row["return_address"], row["response_message_id"]) for row in found] == [
        (ASKED, "queue/9", response),
        (UNANSWERED, "queue/7", None),
    ]
    assert '"objectTitle": "A tide table"' in found[0]["response_body"]
    assert found[0]["object_uuid"] == OBJECT


HISTORY = [
    ("g", 9, 10, False, "first", "m1"),
    ("g", 10, 11, False, "second", "m2"),
    ("g", 11, 12, True, None, "m3"),
    ("g", 12, None, False, None, "m4"),
    ("h", 9, None, False, "other", "m5"),
]


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    rows = []
    for guid, start, end, deleted, name, said in HISTORY:
        one = {"m": said, "p": 0}
        hours = [hour and datetime(2024, 3, 1, hour, tzinfo=UTC) for hour in (start, end)]
        rows.append((guid, deleted, name, said, {"guid": one, "the name": one}, *hours))
    provenance = "struct<guid: struct<m: string, p: int>, `the name`: struct<m: string, p: int>>"
    return spark.createDataFrame(
        rows,
        f"guid string, deleted_indicator boolean, `the name` string, source_message string, "
        f"field_provenance {provenance}, valid_from_timestamp timestamp, valid_to_timestamp timestamp",
    )


def test_what_is_deleted_is_kept_and_marked_until_it_is_published_again(history: DataFrame) -> None:
    kept = rdss.preservation_history(history)
    assert kept.columns == [*history.columns, "delete_requested_timestamp"]
    found = kept.orderBy("guid", "valid_from_timestamp").collect()
    names = ("the name", "deleted_indicator", "source_message", "delete_requested_timestamp")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("first", False, "m1", None),
        ("second", False, "m2", None),
        ("second", False, "m3", datetime(2024, 3, 1, 11)),
        (None, False, "m4", None),
        ("other", False, "m5", None),
    ]
    assert found[2]["field_provenance"]["the name"]["m"] == "m2"


def test_a_history_that_is_marked_already_is_refused(history: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="delete_requested_timestamp"):
        rdss.preservation_history(rdss.preservation_history(history))
