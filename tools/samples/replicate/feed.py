"""The whole feed, one day at a time, in the order in which the broker took it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, NamedTuple

from tools.samples.replicate.changes import NEVER, Change, load_instant
from tools.samples.replicate.corrupt import damaged_messages
from tools.samples.replicate.disorder import LATE, Arrival, Message, arrival, deliver, partition_of
from tools.samples.replicate.envelope import data_message, metadata_message
from tools.samples.replicate.flights import real_flights
from tools.samples.replicate.journal import Committed, Journal
from tools.samples.replicate.lives import changes_of_day
from tools.samples.replicate.tables import (
    EPOCH,
    METADATA_TOPIC,
    MINUTE,
    PLANES,
    SCHEDULE_FLIGHTS,
    SECOND,
    TABLES,
    Version,
)
from tools.samples.replicate.truth import TrueFlight, true_flights


class Record(NamedTuple):
    """One record of a topic; `timestamp` in microseconds."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int


class Day(NamedTuple):
    """The records that the broker took in one day, and what is true of the flights of that day."""

    records: list[Record]
    truth: list[TrueFlight]


@dataclass
class Ledger:
    """What a feed consists of, counted while it is made: the facts of the manifest."""

    records: Counter[tuple[str, int]] = field(default_factory=Counter)
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    before_metadata: Counter[str] = field(default_factory=Counter)
    corrupt: defaultdict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    schemas: dict[str, Version] = field(default_factory=dict)
    metadata_at: dict[str, int] = field(default_factory=dict)

    def enter(self, delivery: Arrival, record: Record) -> None:
        """Count one record."""
        message = delivery.message
        self.records[record.topic, record.partition] += 1
        self.duplicates[record.topic] += delivery.copy
        if message.label:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            self.corrupt[message.label].append(place)
        elif message.version is not None:
            self.late[record.topic] += not delivery.copy and delivery.at - message.at >= LATE
            is_early = delivery.at < self.metadata_at[message.version.schema_id]
            self.before_metadata[record.topic] += is_early and message.version.table.form == "avro"


class Feed:
    """The feed of the flights from *first* to *last*: read `days` once, `ledger` is complete after it."""

    def __init__(self, first: date, last: date) -> None:
        self.first = first
        self.last = last
        self.ledger = Ledger()
        self._journals: defaultdict[str, Journal] = defaultdict(Journal)
        self._offsets: Counter[tuple[str, int]] = Counter()

    def days(self) -> Iterator[Day]:
        """
        Give the feed day by day; a day ends just before the next day is loaded.

        Changes that come true later, and messages that arrive later, wait; the last day takes in all that is
        left.
        """
        changes: list[Change] = []
        arrivals: list[Arrival] = []
        for day, flights in real_flights(self.first, self.last).items():
            of_day = changes_of_day(day, flights, first=day == self.first)
            end = NEVER if day == self.last else load_instant(day + timedelta(days=1)) - 5 * SECOND
            changes += of_day
            due = [change for change in changes if change.at < end]
            changes = [change for change in changes if change.at >= end]
            arrivals += self._metadata(day)
            messages = [self._message(committed) for committed in self._commit(due)]
            arrivals += deliver(messages)
            arrivals += [arrival(message, message.at) for message in damaged_messages(day, messages)]
            arrivals.sort(key=_broker_order)
            taken = [delivery for delivery in arrivals if delivery.at < end]
            arrivals = arrivals[len(taken) :]
            yield Day([self._record(delivery) for delivery in taken], true_flights(flights, of_day))

    def _commit(self, changes: Iterable[Change]) -> Iterator[Committed]:
        tasks: defaultdict[str, list[Change]] = defaultdict(list)
        for change in changes:
            tasks[change.table.task].append(change)
        for task in sorted(tasks):
            yield from self._journals[task].commit(tasks[task])

    def _message(self, committed: Committed) -> Message:
        change = committed.change
        table = change.table
        self.ledger.changes[table.topic, change.operation] += 1
        key = key_text(change).encode()
        version = table.version_at(change.at)
        value = data_message(version, committed)
        partition = partition_of(key, table.partitions)
        return Message(change.at, change.seed, change.step, table.topic, partition, key, value, version)

    def _metadata(self, day: date) -> Iterator[Arrival]:
        """Give the metadata of all tables at the start, then of what is loaded again or altered."""
        load = load_instant(day)
        if day == self.first:
            for table in TABLES:
                # The metadata of the planes is overtaken by the planes.
                yield self._metadata_arrival(
                    table.version_at(load), load + (20 if table is PLANES else -60) * SECOND
                )
        else:
            yield self._metadata_arrival(SCHEDULE_FLIGHTS.version_at(load), load - 5 * SECOND)
        for table in TABLES:
            for version in table.versions[1:]:
                if load <= version.created_at < load_instant(day + timedelta(days=1)):
                    yield self._metadata_arrival(version, version.created_at + 2 * MINUTE)

    def _metadata_arrival(self, version: Version, at: int) -> Arrival:
        self.ledger.schemas[version.schema_id] = version
        self.ledger.metadata_at.setdefault(version.schema_id, at)
        key = f"{version.table.schema}.{version.table.name}".encode()
        message = Message(at, 0, 0, METADATA_TOPIC, 0, key, metadata_message(version))
        return arrival(message, at)

    def _record(self, delivery: Arrival) -> Record:
        message = delivery.message
        place = message.topic, message.partition
        record = Record(message.key, message.value, *place, self._offsets[place], delivery.at)
        self._offsets[place] += 1
        self.ledger.enter(delivery, record)
        return record


def key_text(change: Change) -> str:
    """Return the key of a record: the values of the key columns, a date in ISO form, joined by bars."""
    values = (change.row[name] for name in change.table.keys)
    first, *others = values
    if change.table.keys[0] == "flight_date":
        first = (EPOCH + timedelta(days=first)).date().isoformat()
    return "|".join(str(value) for value in (first, *others))


def _broker_order(delivery: Arrival) -> tuple[int, str, int, int, int]:
    return delivery.at, delivery.message.topic, delivery.seed, delivery.step, delivery.copy
