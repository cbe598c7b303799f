"""The committed sample through the whole door: nothing is lost, and the history is the truth."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import as_of, current, merge, replicate, union_changes
from support.replicate_readings import Reading, settled

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "replicate"
MANIFEST: dict[str, Any] = json.loads((SAMPLE / "manifest.json").read_text())
JSON_TOPIC = "schedule.airlines.json"

Place = tuple[str, int, int]

# Where each kind of damage has to come out: in which of the door's tables, and with which code.
REJECTED = {
    "wrong_magic": ("decode", "WRONG_MAGIC"),
    "unknown_type": ("decode", "UNKNOWN_TYPE"),
    "both_schema_fields": ("decode", "BOTH_SCHEMA_FIELDS"),
    "neither_schema_field": ("decode", "NO_SCHEMA_FIELD"),
    "short_schema_id": ("decode", "SCHEMA_ID_LENGTH"),
    "truncated_envelope": ("decode", "ENVELOPE_UNREADABLE"),
    "trailing_bytes_after_envelope": ("decode", "ENVELOPE_UNREADABLE"),
    "empty_value": ("decode", "WRONG_MAGIC"),
    "null_value": ("decode", "NO_VALUE"),
    "not_avro": ("decode", "WRONG_MAGIC"),
    "broken_json": ("decode", "ENVELOPE_UNREADABLE"),
    "unparsable_message_schema": ("metadata", "METADATA_SCHEMA_INVALID"),
    "unparsable_data_schema": ("metadata", "DATA_SCHEMA_INVALID"),
    "conflicting_metadata": ("metadata", "SCHEMA_CONFLICT"),
    "truncated_message": ("data", "MESSAGE_UNREADABLE"),
    "trailing_bytes_in_message": ("data", "MESSAGE_UNREADABLE"),
    "unknown_schema_id": ("delayed", "METADATA_MISSING"),
}
TOPICS = {
    "operations.flights": ("operations", "FLIGHTS"),
    "schedule.flights": ("schedule", "FLIGHTS"),
    "schedule.planes": ("schedule", "PLANES"),
    "schedule.airlines": ("schedule", "AIRLINES"),
    JSON_TOPIC: ("schedule_json", "AIRLINES"),
}


def of_table(zone: DataFrame, task: str, table: str) -> DataFrame:
    return zone.where((F.col("task") == task) & (F.col("table") == table))


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> Reading:
    files = [str(SAMPLE / name) for name in ("metadata.parquet", "schedule.parquet", "operations.parquet")]
    records = spark.read.parquet(*files)
    decoded = replicate.decode(records).localCheckpoint()
    said = replicate.metadata(decoded)
    return Reading(records, decoded, said, settled(replicate.schema_zone(said)))


@pytest.fixture(scope="module")
def rows(reading: Reading) -> dict[str, DataFrame]:
    """The rows of each table by the topic that it has; computed once, as many tests ask."""
    made = {}
    for topic, (task, table) in TOPICS.items():
        json_topics = [JSON_TOPIC] if topic == JSON_TOPIC else []
        made[topic] = replicate.data(
            reading.records,
            of_table(reading.zone, task, table),
            json_topics=json_topics,
            # The messages of a full load do not say when it was.
            loaded_at=F.date_trunc("day", F.col("timestamp")) + F.expr("INTERVAL 5 HOURS"),
        ).localCheckpoint()
    return made


@pytest.fixture(scope="module")
def places(reading: Reading, rows: dict[str, DataFrame]) -> list[tuple[Place, str, str | None]]:
    """Each row of each of the door's tables: the record's place, the table, and the code of its error."""
    late = replicate.waiting(
        reading.decoded,
        reading.zone,
        now=datetime(2013, 2, 11, tzinfo=UTC),
        overdue="reject",
        json_topics=[JSON_TOPIC],
    )
    tables = [
        ("decode", reading.decoded.where("error_code is not null")),
        ("metadata", reading.said),
        *(("data", table) for table in rows.values()),
        ("delayed", late),
    ]
    found = []
    for name, table in tables:
        for row in table.select("topic", "partition", "offset", "error_code").collect():
            found.append(((row["topic"], row["partition"], row["offset"]), name, row["error_code"]))
    return found


def test_the_zone_is_what_the_sample_says(reading: Reading) -> None:
    names = ("schema_id", "task", "schema", "table")
    found = sorted((*(row[n] for n in names), row["table_version"]) for row in reading.zone.collect())
    assert found == sorted((*(said[n] for n in names), said["version"]) for said in MANIFEST["schemas"])


def test_every_record_is_in_exactly_one_place(places: list[tuple[Place, str, str | None]]) -> None:
    counted = Counter(place for place, _, _ in places)
    assert {place: count for place, count in counted.items() if count > 1} == {}
    every = {
        (topic, int(partition), offset)
        for topic, partitions in MANIFEST["records_by_partition"].items()
        for partition, count in partitions.items()
        for offset in range(count)
    }
    assert len(every) == 15_566
    assert set(counted) == every


def test_the_rejects_are_the_damaged_records_and_no_others(
    places: list[tuple[Place, str, str | None]],
) -> None:
    expected = {
        (where["topic"], where["partition"], where["offset"]): REJECTED[kind]
        for kind, damaged in MANIFEST["corrupt"].items()
        for where in damaged
    }
    assert len(expected) == 3 * 17
    assert {place: (table, code) for place, table, code in places if code} == expected


def test_every_change_has_its_row_and_every_redelivered_one_has_another(
    rows: dict[str, DataFrame],
) -> None:
    for topic, table in rows.items():
        good = table.where("error_code is null")
        assert good.count() == sum(MANIFEST["changes"][topic].values()) + MANIFEST["duplicates"].get(topic, 0)
        loaded = F.when(F.col("operation") == "REFRESH", F.to_json("data"))
        messages = good.withColumn("loaded", loaded).dropDuplicates(["change_sequence", "loaded"])
        distinct = messages.groupBy("operation").count().collect()
        assert {row["operation"]: row["count"] for row in distinct} == MANIFEST["changes"][topic]


def test_a_full_load_is_true_from_when_it_was_and_a_change_from_when_it_says(
    rows: dict[str, DataFrame],
) -> None:
    for table in rows.values():
        taken = table.where("error_code is null").groupBy("operation", "time_taken_from").count().collect()
        for row in taken:
            assert row["time_taken_from"] == ("given" if row["operation"] == "REFRESH" else "change")


def test_data_that_came_before_its_metadata_is_found_to_be_waiting(reading: Reading) -> None:
    """At the instant at which the metadata comes, just the records before it are waiting for it."""
    for topic, count in MANIFEST["before_metadata"].items():
        task, table = TOPICS[topic]
        newest = of_table(reading.zone, task, table).orderBy(F.desc("table_version")).first()
        assert newest is not None
        before = F.col("timestamp") < F.lit(newest["timestamp"].replace(tzinfo=UTC))
        known = reading.zone.where(before)
        waiting = replicate.waiting(
            reading.decoded.where(before), known, now=newest["timestamp"].replace(tzinfo=UTC)
        )
        assert waiting.where(F.col("schema_id") == newest["schema_id"]).count() == count


# --- the history --------------------------------------------------------------------------------------------

KEYS = ["flight_date", "carrier", "flight", "origin"]
TOLD = ["tailnum", "status", "expected_departure"]

Key = tuple[date, str, int, str]
State = dict[str, Any]


@pytest.fixture(scope="module")
def truth() -> dict[Key, list[dict[str, Any]]]:
    """What each source said of each flight, in the order of the instants: not from the stream."""
    found = pq.read_table(SAMPLE / "truth.parquet", columns=[*KEYS, "updates"]).to_pylist()
    return {tuple(row[key] for key in KEYS): row["updates"] for row in found}


@pytest.fixture(scope="module")
def history(rows: dict[str, DataFrame], reading: Reading) -> DataFrame:
    """The flights by both sources, which count alike; computed once."""
    told = []
    for topic in ("schedule.flights", "operations.flights"):
        keys = replicate.keys(of_table(reading.zone, *TOPICS[topic]))
        assert keys == KEYS
        told.append(replicate.changes(rows[topic], keys=keys))
    return merge(union_changes(*told), entity="flight", keys=KEYS).coalesce(2).localCheckpoint()


def carried(update: dict[str, Any]) -> list[str]:
    """Which of the fields a message sends, as the description of the sample has it."""
    if update["source"] == "schedule" or update["operation"] == "INSERT":
        return TOLD
    return {
        "delayed": ["expected_departure", "status"],
        "departed": TOLD,
        "arrived": ["status"],
        "diverted": ["status"],
        "cancelled": ["expected_departure", "status"],
    }[update["status"]]


def state_at(updates: Iterable[dict[str, Any]], at: datetime | None) -> State | None:
    """What two sources of equal weight make of a flight: the last word counts, and a delete empties."""
    state: State | None = None
    for update in updates:
        is_load = update["operation"] == "REFRESH"
        began = update["at"].replace(minute=0, second=0, microsecond=0) if is_load else update["at"]
        if at is not None and began > at:
            break
        if update["operation"] == "DELETE":
            state = None
        else:
            said = {name: update[name] for name in carried(update)}
            state = (state or dict.fromkeys(TOLD)) | said
    return state


def states(versions: DataFrame) -> dict[Key, State]:
    found = {}
    for row in versions.select(*KEYS, *TOLD).collect():
        state = {name: row[name] for name in TOLD}
        if state["expected_departure"] is not None:
            state["expected_departure"] = state["expected_departure"].replace(tzinfo=UTC)
        found[tuple(row[key] for key in KEYS)] = state
    return found


@pytest.mark.parametrize(
    "at",
    [
        datetime(2013, 2, 7, 5, 0, 15, tzinfo=UTC),
        datetime(2013, 2, 8, 17, 0, tzinfo=UTC),
        datetime(2013, 2, 9, 0, 46, 55, 57534, tzinfo=UTC),
        datetime(2013, 2, 9, 0, 46, 55, 57535, tzinfo=UTC),
    ],
    ids=str,
)
def test_the_board_at_an_instant_is_the_truth(
    history: DataFrame, truth: dict[Key, list[dict[str, Any]]], at: datetime
) -> None:
    expected = {key: state_at(updates, at) for key, updates in truth.items()}
    assert states(as_of(history, at)) == {key: state for key, state in expected.items() if state is not None}


def test_the_board_in_the_end_is_the_truth(
    history: DataFrame, truth: dict[Key, list[dict[str, Any]]]
) -> None:
    expected = {key: state_at(updates, None) for key, updates in truth.items()}
    assert states(current(history)) == {key: state for key, state in expected.items() if state is not None}
    # Each flight has been known, also those that are deleted now.
    assert history.select("guid").distinct().count() == len(truth) == 2546


def versions_of(history: DataFrame, key: Key) -> list[Any]:
    flight_date, carrier, flight, origin = key
    chosen = history.where(
        (F.col("flight_date") == F.lit(flight_date))
        & (F.col("carrier") == carrier)
        & (F.col("flight") == flight)
        & (F.col("origin") == origin)
    )
    return chosen.orderBy("valid_from_timestamp").collect()


def shown(version: Any) -> tuple[Any, ...]:
    """From, to, plane, status, expected departure, deleted, and the message: its task and its time."""
    task, _, name = version["source_message"].partition("/")[2].partition(":")
    return (
        str(version["valid_from_timestamp"]),
        version["valid_to_timestamp"] and str(version["valid_to_timestamp"]),
        version["tailnum"],
        version["status"],
        version["expected_departure"] and f"{version['expected_departure']:%d %H:%M}",
        version["deleted_indicator"],
        f"{task} {name[:16]}" if name.isdigit() else f"{task} load",
    )


def test_the_worked_history_of_a_flight_that_got_another_plane(history: DataFrame) -> None:
    """Its departure reached us half an hour after its arrival, and stands before it all the same."""
    versions = versions_of(history, (date(2013, 2, 8), "AA", 117, "JFK"))
    assert [shown(version) for version in versions] == [
        ("2013-02-08 05:00:00", "2013-02-08 15:44:36.332375", "N530AA", "scheduled", "08 18:45", False,
         "schedule load"),
        ("2013-02-08 15:44:36.332375", "2013-02-08 16:59:33.027395", "N530AA", "on time", "08 18:45", False,
         "operations 2013020815443633"),
        ("2013-02-08 16:59:33.027395", "2013-02-08 18:54:39.553122", "N320AA", "scheduled", "08 18:45", False,
         "schedule 2013020816593302"),
        ("2013-02-08 18:54:39.553122", "2013-02-09 01:09:14.783678", "N320AA", "departed", "08 18:54", False,
         "operations 2013020818543955"),
        ("2013-02-09 01:09:14.783678", None, "N320AA", "arrived", "08 18:54", False,
         "operations 2013020901091478"),
    ]  # fmt: skip
    last = versions[-1]
    assert (last["departure_delay"], last["arrival_delay"], last["dest"]) == (9, 4, "LAX")
    # Where each value comes from: the plane was last changed by the schedule, at an equal value kept since.
    provenance = last["field_provenance"]
    assert provenance["tailnum"]["m"].startswith("replicate-ny1/schedule:2013020816593302")
    assert provenance["departure_delay"]["m"].startswith("replicate-ny2/operations:2013020818543955")
    assert provenance["arrival_delay"]["m"] == last["source_message"]
    assert provenance["air_time"]["m"] == last["source_message"]


def test_the_worked_history_of_a_flight_that_was_cancelled(history: DataFrame) -> None:
    """The schedule deletes it; that the operations delete it two hours later changes nothing any more."""
    versions = versions_of(history, (date(2013, 2, 8), "DL", 2159, "JFK"))
    assert [shown(version) for version in versions] == [
        ("2013-02-08 05:00:00", "2013-02-08 20:28:03.931177", "N3771K", "scheduled", "08 23:50", False,
         "schedule load"),
        ("2013-02-08 20:28:03.931177", "2013-02-08 20:38:01.287629", "N3771K", "on time", "08 23:50", False,
         "operations 2013020820280393"),
        ("2013-02-08 20:38:01.287629", "2013-02-08 23:25:00", "N3749D", "scheduled", "08 23:50", False,
         "schedule 2013020820380128"),
        ("2013-02-08 23:25:00", "2013-02-08 23:52:00", "N3749D", "delayed", "09 00:20", False,
         "operations 2013020823250000"),
        ("2013-02-08 23:52:00", "2013-02-09 00:39:49.789482", "N3749D", "delayed", "09 01:10", False,
         "operations 2013020823520000"),
        ("2013-02-09 00:39:49.789482", "2013-02-09 00:46:55.057535", "N3749D", "cancelled", None, False,
         "operations 2013020900394978"),
        ("2013-02-09 00:46:55.057535", None, None, None, None, True, "schedule 2013020900465505"),
    ]  # fmt: skip


def test_a_flight_that_arrived_before_the_column_was_added_has_no_value_for_it(
    history: DataFrame,
) -> None:
    """air_time is a column from 8 February, 17:00 UTC on; before, it was not sent, which is not null."""
    arrived = current(history).where("status = 'arrived'")
    by_side = arrived.groupBy((F.col("actual_arrival") > "2013-02-08 17:05:00").alias("later")).agg(
        F.count("*").alias("flights"),
        F.count("air_time").alias("with_value"),
        F.count("field_provenance.air_time.m").alias("with_word"),
    )
    found = {row["later"]: row for row in by_side.collect()}
    assert found[True]["flights"] == found[True]["with_value"] == found[True]["with_word"] > 0
    early = arrived.where("actual_arrival < '2013-02-08 16:55:00'")
    assert early.count() > 800
    assert early.where("air_time is not null or field_provenance.air_time is not null").count() == 0
