"""`with_unknown`: messages about objects that nobody created."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import rdss, rejects
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.model import drop_rejects
from cdckit.rdss.decoding import DECODED_SCHEMA
from support.existence import codes, decoded, uuid

MESSAGES = (
    *("C a 09:00", "U a 09:30", "D a 10:00", "U a 10:30", "R a 10:31", "D a 10:32", "C a 11:00", "R a 11:30"),
    *("U b 09:00", "U b 09:10", "D b 09:20", "R b 09:30", "A b 09:31", "C b 09:25"),
    *("D c 12:00", "C c 12:00", "! d 09:00", "U - 09:00", "D a 10:00"),
)


def find_unknown(frame: DataFrame, **settings: Any) -> DataFrame:
    return rdss.with_unknown(frame, **settings).where("error_code like 'APPERRMET%'")


def test_what_a_message_is_about_exists_if_the_last_create_or_delete_before_it_was_a_create(
    spark: SparkSession,
) -> None:
    found = rdss.with_unknown(decoded(spark, *MESSAGES)).collect()
    assert sorted(row["message_id"] for row in found) == sorted(MESSAGES)
    assert {row["message_id"]: row["error_code"] for row in found if row["error_code"]} == {
        **{"U a 10:30": "APPERRMET001", "R a 10:31": "APPERRMET003", "D a 10:32": "APPERRMET002"},
        # An update of what is not there does not make it be there.
        **{"U b 09:00": "APPERRMET001", "U b 09:10": "APPERRMET001", "D b 09:20": "APPERRMET002"},
        # At one instant, what arrived first is first.
        "D c 12:00": "APPERRMET002",
        "! d 09:00": "GENERR001",
    }
    [row] = [row for row in found if row["message_id"] == "D c 12:00"]
    assert (row["queue"], row["error_description"]) == (
        "invalid",
        "The object to delete does not exist. At $.messageBody.objectUUID: no object c was known when the "
        "message was published.",
    )


def test_a_system_that_keeps_what_is_deleted_knows_it(spark: SparkSession) -> None:
    found = find_unknown(decoded(spark, *MESSAGES), keeps_deleted=True)
    assert codes(found) == {"U b 09:00": "001", "U b 09:10": "001", "D b 09:20": "002", "D c 12:00": "002"}


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """The object k is known from 9 to 12, g was deleted at 10."""
    rows = [("k", 9, "C"), ("k", 12, "D"), ("g", 9, "C"), ("g", 10, "D")]
    versions = [
        (name, datetime(2024, 3, 1, hour, tzinfo=UTC), said == "D", f"{said} {name} {hour:02}:00")
        for name, hour, said in rows
    ]
    columns = "objectUUID string, valid_from_timestamp timestamp, deleted_indicator boolean"
    return spark.createDataFrame(versions, f"{columns}, source_message string")


LATER = (
    "U k 08:00",
    "U k 09:00",
    "U k 11:00",
    "D k 12:00",
    "R k 12:00",
    "R g 11:00",
    "C g 12:00",
    "U g 13:00",
)


def test_a_history_says_what_was_known(spark: SparkSession, history: DataFrame) -> None:
    found = find_unknown(decoded(spark, *LATER), known_objects=history)
    assert codes(found) == {"U k 08:00": "001", "R k 12:00": "003", "R g 11:00": "003"}
    kept = find_unknown(decoded(spark, *LATER), known_objects=history, keeps_deleted=True)
    assert codes(kept) == {"U k 08:00": "001"}


def test_changes_say_what_was_known(spark: SparkSession) -> None:
    body = F.lit('{"objectUUID": "k"}')
    before = rdss.changes(decoded(spark, "C k 09:00", "D k 12:00").withColumn("body", body))
    found = find_unknown(decoded(spark, *LATER), known_objects=before)
    assert codes(found) == {"U k 08:00": "001", "R k 12:00": "003", "R g 11:00": "003"}


def test_what_is_unknown_is_a_reject_and_no_change(spark: SparkSession) -> None:
    judged = rdss.with_unknown(decoded(spark, "U a 09:00")).withColumn("body", F.lit("{}"))
    assert judged.schema.simpleString() == DECODED_SCHEMA.simpleString()
    stated = rdss.changes(judged)
    assert drop_rejects(stated).count() == 0
    assert rejects(stated).count() == 1


def test_calls_that_cannot_mean_anything_are_refused(spark: SparkSession, history: DataFrame) -> None:
    few = decoded(spark, "U a 09:00")
    with pytest.raises(InvalidArgument, match="keeps_deleted"):
        rdss.with_unknown(few, keeps_deleted="yes")  # type: ignore[arg-type]
    with pytest.raises(MissingColumns, match="deleted_indicator"):
        rdss.with_unknown(few, known_objects=history.drop("deleted_indicator"))
    with pytest.raises(MissingColumns, match="object_uuid"):
        rdss.with_unknown(few.drop("object_uuid"))


def test_an_update_may_be_a_new_object_that_is_a_version_of_one_that_exists(spark: SparkSession) -> None:
    # By the time: its number, and of which it is the next (or the previous) version.
    said = {
        "10:00": (2, "isNewVersionOf", 1),
        "10:10": (3, "isNewVersionOf", 2),
        "10:20": (6, "isNewVersionOf", 5),
        "10:30": (7, "isPreviousVersionOf", 3),
        "10:40": (8, "cites", 1),
        "10:50": (9, "isNewVersionOf", 9),
    }
    lines = [f"U {uuid(number)} {at}" for at, (number, _, _) in said.items()]
    bodies = {
        f"U {uuid(number)} {at}": json.dumps(
            {
                "objectRelatedIdentifier": [
                    {"relationType": kind, "identifier": {"identifierValue": uuid(other)}},
                    {"relationType": kind, "identifier": {"identifierValue": "10.5555/x"}},
                ]
            }
        )
        for at, (number, kind, other) in said.items()
    }
    texts = F.create_map(*(F.lit(each) for pair in bodies.items() for each in pair))
    frame = decoded(spark, f"C {uuid(1)} 09:00", *lines, f"R {uuid(3)} 11:00", f"R {uuid(8)} 11:00")
    judged = rdss.with_unknown(frame.withColumn("body", texts[F.col("message_id")])).collect()
    assert len(judged) == 9
    assert all(row["body"] == bodies.get(row["message_id"]) for row in judged)
    assert {row["message_id"]: row["error_code"] for row in judged if row["error_code"]} == {
        f"U {uuid(6)} 10:20": "APPERRMET001",
        f"U {uuid(8)} 10:40": "APPERRMET001",
        f"U {uuid(9)} 10:50": "APPERRMET001",
        f"R {uuid(8)} 11:00": "APPERRMET003",
    }
