"""What is replicated: tables, their columns and versions, and the Avro schemas that follow."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import md5
from typing import Any

from fastavro import parse_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

METADATA_TOPIC = "flights.metadata"


def micros(instant: datetime) -> int:
    """Return *instant* (aware) as microseconds since 1970."""
    return (instant - EPOCH) // timedelta(microseconds=1)


CREATED_AT = micros(datetime(2012, 11, 5, 9, 30, tzinfo=UTC))
# Noon in New York on the second day of the committed sample.
AIR_TIME_ADDED_AT = micros(datetime(2013, 2, 8, 17, tzinfo=UTC))


@dataclass(frozen=True)
class Column:
    """One column: its Avro type, and its type as the source's catalogue has it."""

    name: str
    avro: Any
    type: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    key: int = 0
    since: int = 1

    @property
    def avro_type(self) -> Any:
        """Return the type as it stands in the schema: a column that is not in the key may be null."""
        return self.avro if self.key else ["null", self.avro]


@dataclass(frozen=True)
class Table:
    """
    One table as one task replicates it; `form` is "avro" or "json".

    `altered` are the instants at which the table got its version 2, 3, …
    `data_may_be_null` says that a message can have its row in `beforeData` alone.
    """

    server: str
    task: str
    schema: str
    name: str
    topic: str
    partitions: int
    columns: tuple[Column, ...]
    form: str = "avro"
    altered: tuple[int, ...] = ()
    data_may_be_null: bool = False
    has_external_schema_id: bool = False

    @cached_property
    def versions(self) -> tuple["Version", ...]:
        """Return all versions, the first one first."""
        return tuple(Version(self, n, at) for n, at in enumerate((CREATED_AT, *self.altered), start=1))

    def version_at(self, at: int) -> "Version":
        """Return the version in force at *at* (microseconds)."""
        return [version for version in self.versions if version.created_at <= at][-1]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Return the names of the key columns in the order of the key."""
        return tuple(column.name for column in sorted(self.columns, key=lambda c: c.key) if column.key)


@dataclass(frozen=True)
class Version:
    """One version of a table: its columns and the schemas of the messages that carry it."""

    table: Table
    number: int
    created_at: int
    _masks: dict[tuple[str, ...], bytes] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns in the order of their ordinals."""
        return tuple(column for column in self.table.columns if column.since <= self.number)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns in the order of their ordinals."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def ordinals(self) -> dict[str, int]:
        """Return the ordinal of each column, from 1."""
        return {name: ordinal for ordinal, name in enumerate(self.names, start=1)}

    @cached_property
    def data_schema(self) -> str:
        """Return the Avro schema of a data message, as the JSON text that the metadata message carries."""
        return json.dumps(self._data_record(), separators=(",", ":"))

    @cached_property
    def schema_id(self) -> str:
        """Return the id of the schema: 32 hexadecimal digits."""
        return md5(self.data_schema.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def parsed_schema(self) -> Any:
        """Return the schema as fastavro wants it."""
        return parse_schema(json.loads(self.data_schema))

    def mask(self, names: tuple[str, ...]) -> bytes:
        """
        Return the mask of *names*: bit `ordinal - 1`, bit 0 of byte 0 first, zero bytes at the end left out.

        A name that this version does not have leaves no bit.
        """
        if names not in self._masks:
            bits = sum(1 << (self.ordinals[name] - 1) for name in names if name in self.ordinals)
            self._masks[names] = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        return self._masks[names]

    def _data_record(self) -> dict[str, Any]:
        data = {
            "type": "record",
            "name": "Data",
            "fields": [
                {"name": column.name, "type": column.avro_type} | _default(column) for column in self.columns
            ],
        }
        namespace = ".".join(("com.attunity.queue.msg", self.table.task, self.table.schema, self.table.name))
        return {
            "type": "record",
            "name": "DataRecord",
            "namespace": namespace,
            "fields": [
                {"name": "data", "type": ["null", data] if self.table.data_may_be_null else data},
                {"name": "beforeData", "type": ["null", "Data"], "default": None},
                {"name": "headers", "type": _headers_record(external=self.table.has_external_schema_id)},
            ],
        }


def _default(column: Column) -> dict[str, None]:
    return {} if column.key else {"default": None}


def _headers_record(*, external: bool) -> dict[str, Any]:
    operation = {"type": "enum", "name": "operation", "symbols": ["INSERT", "UPDATE", "DELETE", "REFRESH"]}
    fields: list[dict[str, Any]] = [
        {"name": "operation", "type": operation},
        {"name": "changeSequence", "type": "string"},
        {"name": "timestamp", "type": "string"},
        {"name": "streamPosition", "type": "string"},
        {"name": "transactionId", "type": "string"},
        {"name": "changeMask", "type": ["null", "bytes"]},
        {"name": "columnMask", "type": ["null", "bytes"]},
        {"name": "transactionEventCounter", "type": ["null", "long"]},
        {"name": "transactionLastEvent", "type": ["null", "boolean"]},
    ]
    if external:
        fields.append({"name": "externalSchemaId", "type": "string"})
    return {"type": "record", "name": "Headers", "namespace": "com.attunity.queue.msg", "fields": fields}


DATE = {"type": "int", "logicalType": "date"}
INSTANT = {"type": "long", "logicalType": "timestamp-micros"}


def text(name: str, length: int, *, key: int = 0) -> Column:
    """Return a text column."""
    return Column(name, "string", "STRING", length=length, key=key)


def integer(name: str, *, key: int = 0, since: int = 1) -> Column:
    """Return a 32-bit column."""
    return Column(name, "int", "INT4", key=key, since=since)


def instant(name: str) -> Column:
    """Return a column of UTC instants in microseconds."""
    return Column(name, INSTANT, "DATETIME", precision=6)


FLIGHT_KEY = (
    Column("flight_date", DATE, "DATE", key=1),
    text("carrier", 2, key=2),
    integer("flight", key=3),
    text("origin", 3, key=4),
)

SCHEDULE_FLIGHTS = Table(
    server="replicate-ny1",
    task="schedule",
    schema="SCHED",
    name="FLIGHTS",
    topic="schedule.flights",
    partitions=3,
    columns=(
        *FLIGHT_KEY,
        text("dest", 3),
        text("tailnum", 6),
        instant("scheduled_departure"),
        instant("scheduled_arrival"),
        instant("expected_departure"),
        text("status", 12),
        Column("distance", "long", "INT8"),
        integer("block_minutes"),
    ),
)

PLANES = Table(
    server="replicate-ny1",
    task="schedule",
    schema="SCHED",
    name="PLANES",
    topic="schedule.planes",
    partitions=2,
    columns=(
        text("tailnum", 6, key=1),
        integer("year"),
        text("type", 40),
        text("manufacturer", 40),
        text("model", 30),
        integer("engines"),
        integer("seats"),
        Column("speed", "double", "REAL8"),
        text("engine", 20),
    ),
)

AIRLINE_COLUMNS = (text("carrier", 2, key=1), text("name", 60))

AIRLINES = Table(
    server="replicate-ny1",
    task="schedule",
    schema="SCHED",
    name="AIRLINES",
    topic="schedule.airlines",
    partitions=1,
    columns=AIRLINE_COLUMNS,
)

AIRLINES_JSON = Table(
    server="replicate-ny1",
    task="schedule_json",
    schema="SCHED",
    name="AIRLINES",
    topic="schedule.airlines.json",
    partitions=1,
    columns=AIRLINE_COLUMNS,
    form="json",
)

OPERATIONS_FLIGHTS = Table(
    server="replicate-ny2",
    task="operations",
    schema="OPS",
    name="FLIGHTS",
    topic="operations.flights",
    partitions=3,
    columns=(
        *FLIGHT_KEY,
        text("dest", 3),
        text("tailnum", 6),
        instant("scheduled_departure"),
        instant("expected_departure"),
        instant("actual_departure"),
        integer("departure_delay"),
        instant("expected_arrival"),
        instant("actual_arrival"),
        integer("arrival_delay"),
        text("status", 12),
        Column("diverted", "boolean", "BOOLEAN"),
        Column("distance", "long", "INT8"),
        Column("visibility", "double", "REAL8"),
        Column(
            "temperature",
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            "NUMERIC",
            precision=5,
            scale=2,
        ),
        integer("air_time", since=2),
    ),
    altered=(AIR_TIME_ADDED_AT,),
    data_may_be_null=True,
    has_external_schema_id=True,
)

TABLES = (SCHEDULE_FLIGHTS, PLANES, AIRLINES, AIRLINES_JSON, OPERATIONS_FLIGHTS)
