"""What is replicated: tables, their columns and versions, and the Avro schemas that follow."""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import md5
from pathlib import Path
from typing import Any

from fastavro import parse_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

METADATA_TOPIC = "flights.metadata"
SCHEMAS: dict[str, Any] = json.loads(Path(__file__).with_name("schemas.json").read_text())


def micros(instant: datetime) -> int:
    """Return *instant* (aware) as microseconds since 1970."""
    return (instant - EPOCH) // timedelta(microseconds=1)


CREATED_AT = micros(datetime(2012, 11, 5, 9, 30, tzinfo=UTC))
# Noon in New York on the second day of the committed sample.
AIR_TIME_ADDED_AT = micros(datetime(2013, 2, 8, 17, tzinfo=UTC))

AVRO: dict[str, Any] = {
    "BOOLEAN": "boolean",
    "DATE": {"type": "int", "logicalType": "date"},
    "DATETIME": {"type": "long", "logicalType": "timestamp-micros"},
    "INT4": "int",
    "INT8": "long",
    "NUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    "REAL8": "double",
    "STRING": "string",
}
"""The types of the source's catalogue, as Avro has them."""

PRECISION_AND_SCALE = {"DATETIME": (6, 0), "NUMERIC": (5, 2)}


@dataclass(frozen=True)
class Column:
    """One column: its type as the source's catalogue has it, its place in the key, its first version."""

    name: str
    type: str
    length: int = 0
    key: int = 0
    since: int = 1

    @property
    def avro_field(self) -> dict[str, Any]:
        """Return the field as it stands in the schema: a column that is not in the key may be null."""
        avro = AVRO[self.type]
        nullable = {"name": self.name, "type": ["null", avro], "default": None}
        return {"name": self.name, "type": avro} if self.key else nullable


def columns(text: str) -> tuple[Column, ...]:
    """
    Return the columns that a text lists, as SQL would.

    >>> columns("carrier STRING(2) KEY, seats INT4 SINCE 2")[1]
    Column(name='seats', type='INT4', length=0, key=0, since=2)
    """
    found: list[Column] = []
    for name, kind, length, key, since in re.findall(
        r"(\w+) ([A-Z]+\d?)(?:\((\d+)\))?( KEY)?(?: SINCE (\d))?(?:, |$)", text
    ):
        found.append(Column(name, kind, int(length or 0), len(found) + 1 if key else 0, int(since or 1)))
    return tuple(found)


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
        """Return the names of the key columns, which come first."""
        return tuple(column.name for column in self.columns if column.key)


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
    def ordinals(self) -> dict[str, int]:
        """Return the ordinal of each column, from 1."""
        return {column.name: ordinal for ordinal, column in enumerate(self.columns, start=1)}

    @cached_property
    def data_schema(self) -> str:
        """Return the Avro schema of a data message, as the JSON text that the metadata message carries."""
        table = self.table
        row = {"type": "record", "name": "Data", "fields": [column.avro_field for column in self.columns]}
        external = [{"name": "externalSchemaId", "type": "string"}] if table.has_external_schema_id else []
        headers = SCHEMAS["headers"] | {"fields": SCHEMAS["headers"]["fields"] + external}
        schema = {
            "type": "record",
            "name": "DataRecord",
            "namespace": f"com.attunity.queue.msg.{table.task}.{table.schema}.{table.name}",
            "fields": [
                {"name": "data", "type": ["null", row] if table.data_may_be_null else row},
                {"name": "beforeData", "type": ["null", "Data"], "default": None},
                {"name": "headers", "type": headers},
            ],
        }
        return json.dumps(schema, separators=(",", ":"))

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


FLIGHT_KEY = "flight_date DATE KEY, carrier STRING(2) KEY, flight INT4 KEY, origin STRING(3) KEY, "
AIRLINE = columns("carrier STRING(2) KEY, name STRING(60)")

SCHEDULE = "replicate-ny1", "schedule", "SCHED"
SCHEDULE_FLIGHTS = Table(
    *(*SCHEDULE, "FLIGHTS", "schedule.flights", 3),
    columns=columns(
        FLIGHT_KEY + "dest STRING(3), tailnum STRING(6), scheduled_departure DATETIME, "
        "scheduled_arrival DATETIME, expected_departure DATETIME, status STRING(12), distance INT8, "
        "block_minutes INT4"
    ),
)
PLANES = Table(
    *(*SCHEDULE, "PLANES", "schedule.planes", 2),
    columns=columns(
        "tailnum STRING(6) KEY, year INT4, type STRING(40), manufacturer STRING(40), model STRING(30), "
        "engines INT4, seats INT4, speed REAL8, engine STRING(20)"
    ),
)
AIRLINES = Table(*(*SCHEDULE, "AIRLINES", "schedule.airlines", 1), columns=AIRLINE)
AIRLINES_JSON = Table(
    *("replicate-ny1", "schedule_json", "SCHED", "AIRLINES", "schedule.airlines.json", 1),
    columns=AIRLINE,
    form="json",
)
OPERATIONS_FLIGHTS = Table(
    *("replicate-ny2", "operations", "OPS", "FLIGHTS", "operations.flights", 3),
    columns=columns(
        FLIGHT_KEY + "dest STRING(3), tailnum STRING(6), scheduled_departure DATETIME, "
        "expected_departure DATETIME, actual_departure DATETIME, departure_delay INT4, "
        "expected_arrival DATETIME, actual_arrival DATETIME, arrival_delay INT4, status STRING(12), "
        "diverted BOOLEAN, distance INT8, visibility REAL8, temperature NUMERIC, air_time INT4 SINCE 2"
    ),
    altered=(AIR_TIME_ADDED_AT,),
    data_may_be_null=True,
    has_external_schema_id=True,
)

TABLES = (SCHEDULE_FLIGHTS, PLANES, AIRLINES, AIRLINES_JSON, OPERATIONS_FLIGHTS)
