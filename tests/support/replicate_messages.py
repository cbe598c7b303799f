"""
Replicate messages for tests, written from the specification: nothing of cdckit is in them.

The envelope is put together byte by byte; the payloads inside it are written by fastavro.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
"""When the broker took the record with offset 0; each offset is a second later."""

# Written out from the specification, not imported from the library.
ENVELOPE = parse_schema(
    {
        "type": "record",
        "name": "MessageEnvelope",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 5}},
            {"name": "type", "type": "string"},
            {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "messageSchemaId", "type": ["null", "string"]},
            {"name": "messageSchema", "type": ["null", "string"]},
            {"name": "message", "type": "bytes"},
        ],
    }
)

# --- Avro by hand -------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """An Avro int or long: zigzag, then seven bits to a byte, the lowest first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def text(value: str | bytes) -> bytes:
    """An Avro string or bytes: its length in bytes, then the bytes."""
    data = value.encode() if isinstance(value, str) else value
    return number(len(data)) + data


def either(value: str | None) -> bytes:
    """A value of the union of null and string: the number of the branch, then the value."""
    return number(0) if value is None else number(1) + text(value)


def text_map(entries: Mapping[str, str] | None) -> bytes:
    """A value of the union of null and a map of strings."""
    if entries is None:
        return number(0)
    items = b"".join(text(name) + text(value) for name, value in entries.items())
    return number(1) + (number(len(entries)) + items if entries else b"") + number(0)


def avro_bytes(schema: Any, datum: Any) -> bytes:
    """One datum, without a container and without a prefix."""
    out = BytesIO()
    schemaless_writer(out, parse_schema(schema), datum)
    return out.getvalue()


# --- the envelope -------------------------------------------------------------------------------------------


def envelope(
    kind: str,
    message: bytes,
    *,
    schema_id: str | None = None,
    schema: str | None = None,
    headers: Mapping[str, str] | None = None,
    magic: bytes = b"atMSG",
) -> bytes:
    """An envelope in Avro form: magic, type, headers, messageSchemaId, messageSchema, message."""
    return b"".join([magic, text(kind), text_map(headers), either(schema_id), either(schema), text(message)])


def json_envelope(kind: str, message: object, **others: object) -> bytes:
    """An envelope in JSON form; *others* replace its fields."""
    whole = {
        "magic": "atMSG",
        "type": kind,
        "headers": None,
        "messageSchemaId": None,
        "messageSchema": None,
        "message": message,
    }
    return json.dumps(whole | others, ensure_ascii=False).encode()


# --- what is in it ------------------------------------------------------------------------------------------

_NUMBERS = ("ordinal", "length", "precision", "scale", "primaryKeyPosition")

METADATA_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "MetadataRecord",
    "namespace": "com.attunity.queue.msg",
    "fields": [
        {"name": "schemaId", "type": "string"},
        {
            "name": "lineage",
            "type": {
                "type": "record",
                "name": "Lineage",
                "fields": [
                    {"name": "server", "type": "string"},
                    {"name": "task", "type": "string"},
                    {"name": "schema", "type": "string"},
                    {"name": "table", "type": "string"},
                    {"name": "tableVersion", "type": "int"},
                    {"name": "timestamp", "type": "string"},
                ],
            },
        },
        {
            "name": "tableStructure",
            "type": {
                "type": "record",
                "name": "TableStructure",
                "fields": [
                    {
                        "name": "tableColumns",
                        "type": {
                            "type": "map",
                            "values": {
                                "type": "record",
                                "name": "TableColumn",
                                "fields": [
                                    {"name": "type", "type": "string"},
                                    *({"name": name, "type": "int"} for name in _NUMBERS),
                                ],
                            },
                        },
                    }
                ],
            },
        },
        {"name": "dataSchema", "type": "string"},
    ],
}

OPERATION = {"type": "enum", "name": "operation", "symbols": ["INSERT", "UPDATE", "DELETE", "REFRESH"]}

HEADERS: dict[str, Any] = {
    "operation": OPERATION,
    "changeSequence": "string",
    "timestamp": "string",
    "streamPosition": "string",
    "transactionId": "string",
    "changeMask": ["null", "bytes"],
    "columnMask": ["null", "bytes"],
    "transactionEventCounter": ["null", "long"],
    "transactionLastEvent": ["null", "boolean"],
}


def fields(types: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in types.items()]


def sequence(at: str, count: int) -> str:
    """A change sequence: 16 digits of time and 19 of a counter."""
    return f"{at:0<16}{count:019d}"


@dataclass(frozen=True)
class Version:
    """A version of a source table, and what Replicate sends about it."""

    columns: Mapping[str, Any]
    """Avro types by name, in the order of the ordinals; one that is not in a union with null is the key's."""
    keys: Sequence[str] = ("id",)
    number: int = 1
    server: str = "db1"
    task: str = "shop_task"
    schema: str = "SHOP"
    table: str = "ITEMS"
    ordinals: Mapping[str, int] = field(default_factory=dict)
    """Where they are not 1, 2, 3, …"""
    headers: Mapping[str, Any] = field(default_factory=lambda: HEADERS)
    others: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the data messages' rows that are no columns of the source."""

    @cached_property
    def data_record(self) -> dict[str, Any]:
        row = {"type": "record", "name": "Data", "fields": fields({**self.columns, **self.others})}
        headers = {"type": "record", "name": "Headers", "fields": fields(self.headers)}
        return {
            "type": "record",
            "name": "DataRecord",
            "namespace": f"com.attunity.queue.msg.{self.task}.{self.schema}.{self.table}",
            "fields": [
                {"name": "data", "type": ["null", row]},
                {"name": "beforeData", "type": ["null", "Data"]},
                {"name": "headers", "type": headers},
            ],
        }

    @cached_property
    def data_schema(self) -> str:
        return json.dumps(self.data_record)

    @cached_property
    def schema_id(self) -> str:
        return hashlib.md5(self.data_schema.encode(), usedforsecurity=False).hexdigest()

    def metadata(self, **others: Any) -> dict[str, Any]:
        """What the metadata message says; *others* replace its fields."""
        columns = {
            name: {
                "type": "VARCHAR",
                "ordinal": self.ordinals.get(name, place),
                "length": 20,
                "precision": 0,
                "scale": 0,
                "primaryKeyPosition": self.keys.index(name) + 1 if name in self.keys else 0,
            }
            for place, name in enumerate(self.columns, start=1)
        }
        lineage = {
            "server": self.server,
            "task": self.task,
            "schema": self.schema,
            "table": self.table,
            "tableVersion": self.number,
            "timestamp": "2024-01-01T00:00:00.000000",
        }
        return {
            "schemaId": self.schema_id,
            "lineage": lineage,
            "tableStructure": {"tableColumns": columns},
            "dataSchema": self.data_schema,
            **others,
        }

    def md(self, **others: Any) -> bytes:
        """The metadata message in Avro form."""
        return metadata_message(self.metadata(**others))

    def payload(self, operation: str, data: Any, before: Any = None, **headers: Any) -> bytes:
        """What is in the envelope of a data message."""
        return avro_bytes(
            self.data_record,
            {"data": data, "beforeData": before, "headers": header_values(operation, **headers)},
        )

    def dt(self, operation: str, data: Any, before: Any = None, **headers: Any) -> bytes:
        """A data message in Avro form."""
        return envelope("DT", self.payload(operation, data, before, **headers), schema_id=self.schema_id)


NO_TIME: dict[str, Any] = {"changeSequence": "", "timestamp": "", "streamPosition": "", "transactionId": ""}
"""The headers that a row of a full load does not have."""


def metadata_message(said: Mapping[str, Any]) -> bytes:
    return envelope("MD", avro_bytes(METADATA_SCHEMA, said), schema=json.dumps(METADATA_SCHEMA))


def header_values(operation: str, **others: Any) -> dict[str, Any]:
    return {
        "operation": operation,
        "changeSequence": sequence("20240101100000", 1),
        "timestamp": "2024-01-01T10:00:00.000000",
        "streamPosition": "00000001:1",
        "transactionId": "T1",
        "changeMask": None,
        "columnMask": None,
        "transactionEventCounter": 1,
        "transactionLastEvent": True,
        **others,
    }


# --- records ------------------------------------------------------------------------------------------------

RECORD_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)

Record = dict[str, Any]


def record(value: bytes | None, offset: int, **others: Any) -> Record:
    """A record as Spark's Kafka source shows it; *others* replace its columns."""
    return {
        "key": b"key %d" % offset,
        "value": value,
        "topic": "items",
        "partition": 0,
        "offset": offset,
        "timestamp": NOON + timedelta(seconds=offset),
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"%d" % offset}],
        **others,
    }


def numbered(values: Iterable[bytes | None], **others: Any) -> list[Record]:
    """Records with the offsets 0, 1, 2, …"""
    return [record(value, offset, **others) for offset, value in enumerate(values)]


def to_dataframe(spark: SparkSession, records: Sequence[Record], *, partitions: int = 1) -> DataFrame:
    frame = spark.createDataFrame(pa.Table.from_pylist(list(records), schema=RECORD_SCHEMA))
    return frame.coalesce(1) if partitions == 1 else frame.repartition(partitions)


def by_offset(frame: DataFrame) -> dict[int, dict[str, Any]]:
    """The rows as dictionaries, one for each offset: it fails where an offset stands twice."""
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    found = {row["offset"]: row for row in rows}
    assert len(found) == len(rows), "an offset stands in two rows"
    return found


# --- cases --------------------------------------------------------------------------------------------------

CASES = Path(__file__).parents[1] / "cases" / "replicate"


def read_cases(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def joined(parts: Iterable[str]) -> bytes:
    """The bytes of a case: hex, and text between single quotes."""
    pieces = re.findall(r"'[^']*'|[0-9a-f]{2}", " ".join(parts))
    return b"".join(
        piece[1:-1].encode() if piece.startswith("'") else bytes.fromhex(piece) for piece in pieces
    )


# --- a life -------------------------------------------------------------------------------------------------

TEXT = ["null", "string"]
V1 = Version({"id": "int", "price": ["null", "int"], "note": TEXT})
V2 = Version({"id": "int", "price": ["null", "int"], "note": TEXT, "colour": TEXT}, number=2)


def life(seed: int) -> list[Record]:
    """Sixty messages about three items, in two versions of their table, some damaged or sent twice."""
    rng = random.Random(seed)
    records = [record(V1.md(), 0, topic="metadata"), record(V2.md(), 1, topic="metadata")]
    for offset in range(2, 62):
        version = rng.choice([V1, V2])
        row = {
            "id": rng.randrange(3),
            "price": rng.choice([None, 1, 2]),
            "note": rng.choice([None, "a", "b"]),
        }
        row |= {"colour": rng.choice([None, "red"])} if version is V2 else {}
        operation = rng.choice(["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE", "REFRESH"])
        mask = rng.choice([None, bytes([1 | rng.randrange(8 if version is V1 else 16)])])
        minute = rng.randrange(20)
        said = {
            "columnMask": mask,
            "changeSequence": sequence(f"2024010110{minute:02d}", offset),
            "timestamp": f"2024-01-01T10:{minute:02d}:00",
        }
        said |= NO_TIME if operation == "REFRESH" else {}
        value = version.dt(operation, row, **said)
        if rng.random() < 0.1:
            value = value[: rng.randrange(len(value))]
        elif rng.random() < 0.1:
            value = records[-1]["value"]
        records.append(record(value, offset))
    return records
