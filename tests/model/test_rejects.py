"""`rejects` and `drop_rejects`: every record that cannot be used, with bytes, place and reason."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import rejects, replicate
from cdckit.errors import MissingColumns
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.model.rejected_records import REJECT_SCHEMA, drop_rejects
from cdckit.replicate import ReplicateFault
from support.replicate_messages import (
    HEADERS,
    METADATA_SCHEMA,
    NOON,
    Version,
    by_offset,
    envelope,
    header_values,
    json_envelope,
    record,
    to_dataframe,
)
from support.replicate_readings import Reading, read, settled

ITEMS = Version({"id": "int", "name": ["null", "string"]}, headers=HEADERS | {"operation": "string"})
ID, NOWHERE = ITEMS.schema_id, "0" * 32
ROW = {"id": 1, "name": "x"}
SCHEMA = json.dumps(METADATA_SCHEMA)

# One message for each violation, in the order in which the door looks for them.
ONE_OF_EACH: dict[ReplicateFault, bytes | None] = {
    ReplicateFault.NO_VALUE: None,
    ReplicateFault.WRONG_MAGIC: b"atMSX",
    ReplicateFault.ENVELOPE_UNREADABLE: ITEMS.dt("INSERT", ROW)[:-1],
    ReplicateFault.UNKNOWN_TYPE: envelope("HB", b"", schema_id=ID),
    ReplicateFault.BOTH_SCHEMA_FIELDS: envelope("DT", b"", schema_id=ID, schema=SCHEMA),
    ReplicateFault.NO_SCHEMA_FIELD: envelope("DT", b""),
    ReplicateFault.METADATA_BY_REFERENCE: envelope("MD", b"", schema_id=ID),
    ReplicateFault.DATA_SELF_DESCRIBING: envelope("DT", b"", schema=SCHEMA),
    ReplicateFault.SCHEMA_ID_LENGTH: envelope("DT", b"", schema_id=ID + "0"),
    ReplicateFault.METADATA_SCHEMA_INVALID: envelope("MD", b"", schema="{"),
    ReplicateFault.METADATA_UNREADABLE: envelope("MD", b"\x05", schema=SCHEMA),
    ReplicateFault.METADATA_INCOMPLETE: envelope("MD", b"\x00", schema='"int"'),
    ReplicateFault.DATA_SCHEMA_INVALID: ITEMS.md(dataSchema="{"),
    ReplicateFault.SCHEMA_CONFLICT: Version({"id": "int"}).md(schemaId=ID),
    ReplicateFault.MESSAGE_UNREADABLE: envelope("DT", b"\x05", schema_id=ID),
    ReplicateFault.UNKNOWN_OPERATION: ITEMS.dt("TRUNCATE", ROW),
    ReplicateFault.TIMESTAMP_INVALID: ITEMS.dt("INSERT", ROW, timestamp="noon"),
    ReplicateFault.COLUMN_UNKNOWN: json_envelope(
        "DT", {"data": {**ROW, "x": ""}, "headers": header_values("INSERT")}
    ),
    ReplicateFault.NO_ROW: ITEMS.dt("DELETE", None),
    ReplicateFault.MASK_INVALID: ITEMS.dt("UPDATE", ROW, columnMask=b"\x07"),
    ReplicateFault.VALUE_INVALID: json_envelope(
        "DT", {"data": {"id": "one"}, "headers": header_values("INSERT")}
    ),
    ReplicateFault.OLD_KEY_MISSING: ITEMS.dt("UPDATE", ROW, changeMask=b"\x01"),
    ReplicateFault.METADATA_MISSING: envelope("DT", b"", schema_id=NOWHERE),
}
# The last does not say its key: only as a change of an entity is it a reject.
SOUND = [ITEMS.md(), ITEMS.dt("INSERT", ROW), ITEMS.md(), ITEMS.dt("UPDATE", ROW, columnMask=b"\x02")]
# One name twice, and values that are null, empty, and no text.
ODD_HEADERS = [
    {"key": "trace", "value": b"\xff\x00\xfe"},
    {"key": "trace", "value": b""},
    {"key": '"\u00e9', "value": None},
]
RECORDS = [
    *(record(value, offset, topic="in json") for offset, value in enumerate(SOUND)),
    *(
        record(value, 100 + place, topic="in json", partition=7, key=b"\xff", headers=ODD_HEADERS)
        for place, value in enumerate(ONE_OF_EACH.values())
    ),
]


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> Reading:
    return read(spark, RECORDS)


@pytest.fixture(scope="module")
def rejected(reading: Reading) -> dict[int, dict[str, Any]]:
    """The rejects of all of the door's tables: an offset that were in two of them would fail."""
    late = replicate.waiting(
        reading.decoded, reading.zone, now=NOON + timedelta(days=1), overdue="reject", json_topics=["in json"]
    )
    changes = replicate.changes(reading.rows(json_topics=["in json"]), keys=["id"])
    found = [rejects(table) for table in (reading.decoded, reading.said, changes, late)]
    found[2] = found[2].where("error_code <> 'KEY_MISSING'")
    assert {table.schema.simpleString() for table in found} == {REJECT_SCHEMA.simpleString()}
    together = found[0].unionByName(found[1]).unionByName(found[2]).unionByName(found[3])
    return by_offset(together)


def test_there_is_a_message_for_each_violation() -> None:
    assert list(ONE_OF_EACH) == list(ReplicateFault)


def test_nothing_else_is_rejected(rejected: dict[int, dict[str, Any]]) -> None:
    assert sorted(rejected) == [100 + place for place in range(len(ONE_OF_EACH))]


@pytest.mark.parametrize("violation", list(ReplicateFault))
def test_each_violation_has_its_own_code_and_keeps_the_record(
    rejected: dict[int, dict[str, Any]], violation: ReplicateFault
) -> None:
    place = 100 + list(ONE_OF_EACH).index(violation)
    row = rejected[place]
    assert row["error_code"] == violation.value
    assert row["error_description"].startswith(violation.sentence)
    assert {name: row[name] for name in RECORD_COLUMNS} == {
        "key": b"\xff",
        "value": ONE_OF_EACH[violation],
        "topic": "in json",
        "partition": 7,
        "offset": place,
        "timestamp": (NOON + timedelta(seconds=place)).replace(tzinfo=None),
        "timestampType": 0,
        "headers": ODD_HEADERS,
    }


def test_every_violation_says_something_of_its_own() -> None:
    sentences = [violation.sentence for violation in ReplicateFault]
    assert len(set(sentences)) == len(sentences)
    assert all(sentence.endswith(".") and len(sentence) > 25 for sentence in sentences)
    assert ReplicateFault.NO_ROW.describe() == "Neither data nor beforeData holds a row."
    assert ReplicateFault.NO_ROW.describe("Or so.") == "Neither data nor beforeData holds a row. Or so."


def test_rejects_can_be_fed_to_the_door_again(spark: SparkSession, reading: Reading) -> None:
    found = rejects(reading.decoded)
    again = replicate.decode(spark.createDataFrame(found.collect(), REJECT_SCHEMA))
    assert by_offset(rejects(again)) == by_offset(found)


def test_a_reject_without_its_metadata_is_used_when_it_is_fed_again_with_it(spark: SparkSession) -> None:
    came = record(ITEMS.dt("INSERT", ROW), 7, headers=ODD_HEADERS)
    wrong = record(ITEMS.dt("TRUNCATE", ROW), 8, headers=ODD_HEADERS)
    alone = read(spark, [came, wrong])
    late = replicate.waiting(alone.decoded, alone.zone, now=NOON + timedelta(days=1), overdue="reject")
    found = rejects(late).drop("error_code", "error_description")
    assert by_offset(found) == by_offset(alone.records)

    known = to_dataframe(spark, [record(ITEMS.md(), 1, topic="metadata")])
    zone = replicate.schema_zone(replicate.metadata(replicate.decode(known.unionByName(found))))
    rows = by_offset(replicate.data(found, settled(zone)))
    assert (rows[7]["data"], rows[7]["error_code"]) == (ROW, None)
    assert (rows[8]["headers"], rows[8]["error_code"]) == (ODD_HEADERS, "UNKNOWN_OPERATION")


def test_what_could_be_used_is_left_without_the_error_columns(reading: Reading) -> None:
    good = drop_rejects(reading.rows())
    # A row that changes its key is sound; it is no change as long as nobody says the old one.
    moved = 100 + list(ONE_OF_EACH).index(ReplicateFault.OLD_KEY_MISSING)
    assert sorted(row["offset"] for row in good.collect()) == [1, 3, moved]
    assert "data" in good.columns
    assert not {"error_code", "error_description"} & set(good.columns)


def test_of_nothing_in_error_there_are_no_rejects(spark: SparkSession) -> None:
    good: DataFrame = spark.createDataFrame([], REJECT_SCHEMA)
    assert rejects(good).collect() == drop_rejects(good).collect() == []
    assert drop_rejects(good).schema.simpleString() == RECORD_SCHEMA.simpleString()


def test_a_table_without_error_columns_is_refused_at_the_call(reading: Reading) -> None:
    with pytest.raises(
        MissingColumns, match=r"rejects\(\) needs the columns error_code, error_description; the"
    ):
        rejects(reading.records)
    with pytest.raises(MissingColumns, match=r"rejects\(\) needs the columns headers; the DataFrame has key"):
        rejects(reading.decoded.drop("headers"))
    with pytest.raises(
        MissingColumns, match=r"drop_rejects\(\) needs the columns error_code; the DataFrame has"
    ):
        drop_rejects(reading.decoded.drop("error_code"))
