"""Debezium's events in Avro: records that fastavro wrote, with the schemas of a registry."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from cdckit import debezium, rejects
from cdckit.debezium.avro_events import Registry, as_json, read_avro
from cdckit.debezium.connect_values import encoding
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from support.database_events import batch, rows, types

# As Debezium's page "Avro Serialization" and Confluent's converter write them.
ID = {"name": "id", "type": "int"}
NAME = {"name": "name", "type": ["null", "string"], "default": None}
DECIMAL = {
    "type": "bytes",
    "scale": 2,
    "precision": 64,
    "connect.version": 1,
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "logicalType": "decimal",
}
PRICE = {"name": "price", "type": ["null", DECIMAL], "default": None}
MICROS = {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}
SINCE = {"name": "since", "type": ["null", MICROS], "default": None}
PHOTO = {"name": "photo", "type": ["null", "bytes"], "default": None}
WIDER = {"name": "id", "type": "long"}
SMALL = {"name": "stock", "type": ["null", {"type": "int", "connect.type": "int16"}], "default": None}
POINT = {
    "type": "record",
    "name": "Point",
    "namespace": "io.debezium.data.geometry",
    "fields": [{"name": "x", "type": "double"}, {"name": "wkb", "type": ["null", "bytes"], "default": None}],
    "connect.name": "io.debezium.data.geometry.Point",
}
PLACE = {"name": "place", "type": ["null", POINT], "default": None}


def envelope(*columns: dict[str, Any]) -> dict[str, Any]:
    value = {
        "type": "record",
        "name": "Value",
        "fields": list(columns),
        "connect.name": "shop.products.Value",
    }
    source = [
        ("connector", "string"),
        ("name", "string"),
        ("ts_ms", "long"),
        ("snapshot", ["null", "string"]),
        ("db", "string"),
        ("sequence", ["null", "string"]),
        ("schema", "string"),
        ("table", "string"),
        ("txId", ["null", "long"]),
        ("lsn", ["null", "long"]),
    ]
    of_source = [{"name": name, "type": kind} for name, kind in source]
    block = {
        "type": "record",
        "name": "Block",
        "namespace": "event",
        "fields": [{"name": "id", "type": "string"}],
    }
    fields = [
        {"name": "before", "type": ["null", value], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "namespace": "io.debezium.connector.postgresql",
                "fields": of_source,
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
        {"name": "transaction", "type": ["null", block], "default": None},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "shop.products", "fields": fields}


AMOUNTS = [{"name": name, "type": "int"} for name in ("price", "Price")]
PARTS = {"name": "parts", "type": {"type": "record", "name": "Parts", "fields": AMOUNTS}}
FIRST, SECOND, KEY, ENDS, LOOP, CASES = 7, 300, 8, 9, 10, 11
SCHEMAS = {
    FIRST: envelope(ID, NAME, PRICE, SINCE, PHOTO),
    SECOND: envelope(WIDER, NAME, PRICE, SINCE, PHOTO, SMALL, PLACE),
    KEY: {"type": "record", "name": "Key", "namespace": "shop.products", "fields": [ID]},
    ENDS: {
        "type": "record",
        "name": "TransactionMetadataValue",
        "fields": [{"name": name, "type": "string"} for name in ("status", "id")],
    },
    LOOP: {"type": "record", "name": "Loop", "fields": [{"name": "of", "type": ["null", "Loop"]}]},
    CASES: envelope(ID, *AMOUNTS, PARTS),
}
REGISTRY = {number: json.dumps(schema) for number, schema in SCHEMAS.items()}
AT = 1709294400000
SOURCE = {
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": AT,
    "snapshot": "false",
    "db": "shop",
    "schema": "public",
    "table": "products",
    "txId": 7,
}


def written(number: int, datum: dict[str, Any], *, id_bytes: int = 4) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMAS[number]), datum)
    return b"\0" + number.to_bytes(id_bytes, "big") + stream.getvalue()


def event(operation: str, lsn: int, **images: Any) -> dict[str, Any]:
    return {"op": operation, "source": SOURCE | {"lsn": lsn, "sequence": f'["1","{lsn}"]'}} | images


def records(spark: SparkSession, *sent: tuple[bytes | None, bytes | None]) -> DataFrame:
    rows = [(key, value, "t", 0, n, None, 0, None) for n, (key, value) in enumerate(sent)]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


KETTLE = {"id": 1, "name": "kettle", "price": Decimal("19.90"), "since": AT * 1000 + 5, "photo": b"hi"}
LEFT_ALONE = {"name": "__debezium_unavailable_value", "photo": b"__debezium_unavailable_value"}


def test_parts_that_json_has_no_numbers_for_are_read() -> None:
    """As Connect's JSON has them, as texts."""
    read = encoding("array<float64>").read
    assert str(read(as_json([1.5, float("nan"), float("-inf")]))) == "[1.5, nan, -inf]"


def test_columns_whose_names_differ_in_case_alone_have_their_values() -> None:
    """The later one is a field with a number; a struct of such parts is the text of its JSON."""
    amounts = {"price": 10, "Price": 99}
    sent = batch([written(CASES, event("c", 2, after={"id": 1, **amounts, "parts": amounts}))])
    reader = partial(read_avro, registry=Registry(REGISTRY, 4))
    [row] = rows(sent, ["id"], types(sent, reader, "products"), reader, "products")
    assert row["data"] == {"id": 1, "price": 10, "Price_2": 99, "parts": '{"price":10,"Price":99}'}


STREAM = [
    (written(KEY, {"id": 1}), written(FIRST, event("c", 2, after=KETTLE))),
    # The table was altered: another schema, another id, the same topic.
    (
        b'{"id": 1}',
        written(
            SECOND,
            event(
                "u", 3, after=KETTLE | LEFT_ALONE | {"id": 1, "stock": 4, "place": {"x": 1.5, "wkb": b"p"}}
            ),
        ),
    ),
    (written(KEY, {"id": 1}), written(SECOND, event("d", 4))),
    (written(KEY, {"id": 1}), None),
    (None, written(ENDS, {"status": "END", "id": "7"})),
]


def test_rows_of_two_schemas_are_changes_of_one_table(spark: SparkSession) -> None:
    """Decimals, micro-timestamps, bytes; a value that is not available was not sent; a delete has its key."""
    decoded = debezium.decode_avro(records(spark, *STREAM), REGISTRY)
    kinds = [(row["kind"], row["form"]) for row in decoded.orderBy("offset").collect()]
    assert kinds == [("row", "avro")] * 3 + [("tombstone", None), ("transaction", "avro")]
    assert debezium.columns(decoded, "products") == {
        "id": ("int32", "int64"),
        "name": ("string",),
        "price": ("org.apache.kafka.connect.data.Decimal(10,2)",),
        "since": ("io.debezium.time.MicroTimestamp",),
        "photo": ("bytes",),
        "stock": ("int16",),
        "place": ("struct<x: float64, wkb: bytes>",),
    }
    told = debezium.changes(decoded, "products", keys=["id"]).orderBy("sequence").collect()
    assert [(row["operation"], row["sequence"][-1]) for row in told] == [
        ("upsert", "2"),
        ("upsert", "3"),
        ("delete", "4"),
    ]
    since = datetime(2024, 3, 1, 12, 0, 0, 5)
    assert [tuple(row["data"]) for row in told] == [
        (1, "kettle", Decimal("19.90"), since, b"hi", None, None),
        (1, None, Decimal("19.90"), since, None, 4, Row(x=1.5, wkb=bytearray(b"p"))),
        (1, None, None, None, None, None, None),
    ]
    assert [[name for name, was in row["carried"].asDict().items() if was] for row in told] == [
        ["id", "name", "price", "since", "photo"],
        ["id", "price", "since", "stock", "place"],
        ["id"],
    ]


def test_what_cannot_be_read_is_a_reject_and_costs_no_other_record(spark: SparkSession) -> None:
    good = written(FIRST, event("c", 2, after=KETTLE))
    sent = [
        (None, good),
        (None, b"\0\0\0\0\x63x"),
        (None, good[:-1]),
        (None, good + b"!"),
        (None, b'{"op": "c"}'),
        (None, b"\0\0"),
        (None, written(LOOP, {"of": None})),
        (written(KEY, {"id": 1})[:-1], good),
        (b"\0\0\0\0\x63x", good),
        (b"text", good),
        (None, b""),
    ]
    decoded = debezium.decode_avro(records(spark, *sent), REGISTRY).orderBy("offset")
    assert [row["error_code"] for row in decoded.collect()] == [
        None,
        "UNKNOWN_SCHEMA",
        "DATUM_UNREADABLE",
        "DATUM_UNREADABLE",
        "NOT_FRAMED",
        "NOT_FRAMED",
        "SCHEMA_UNUSABLE",
        "DATUM_UNREADABLE",
        "UNKNOWN_SCHEMA",
        None,
        "NOT_FRAMED",
    ]
    refused = rejects(decoded).orderBy("offset").collect()
    assert [bytes(row["value"]) for row in refused] == [
        value for n, (_, value) in enumerate(sent) if n not in (0, 9)
    ]
    assert "in the key: 99" in refused[7]["error_description"]


def test_a_schema_that_refers_to_others_is_made_whole(spark: SparkSession) -> None:
    """Row, source and a column's type are subjects of their own, the row in two versions."""
    point = POINT | {"name": "Point"}
    row = {
        "type": "record",
        "name": "Row",
        "namespace": "shop",
        "fields": [ID, {"name": "at", "type": "io.debezium.data.geometry.Point"}],
    }
    block = SCHEMAS[FIRST]["fields"][2]["type"]
    refers = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop",
        "fields": [
            {"name": "before", "type": ["null", "Row"], "default": None},
            {"name": "after", "type": ["null", "shop.Row"], "default": None},
            {"name": "source", "type": "io.debezium.connector.postgresql.Source"},
            {"name": "op", "type": "string"},
        ],
    }
    wider = row | {"fields": [WIDER, *row["fields"][1:]]}
    # As the registry's own client would: all definitions in one list.
    datum = event("c", 2, after={"id": 1, "at": {"x": 0.5, "wkb": b"p"}})
    sent = []
    for number, first in ((20, row), (21, wider)):
        named: dict[str, Any] = {}
        for each in (point, block, first):
            fastavro.parse_schema(each, named)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(refers, named), datum)
        sent.append((None, b"\0" + number.to_bytes(4, "big") + stream.getvalue()))
    texts = {name: json.dumps(kind) for name, kind in (("point", point), ("block", block), ("row", row))}
    given = {
        20: [json.dumps(refers), *texts.values()],
        21: [json.dumps(refers), json.dumps(wider), texts["block"], texts["point"]],
    }
    decoded = debezium.decode_avro(records(spark, *sent), given)
    assert debezium.columns(decoded, "products") == {
        "id": ("int32", "int64"),
        "at": ("struct<x: float64, wkb: bytes>",),
    }
    told = debezium.changes(decoded, "products", keys=["id"]).collect()
    assert [tuple(change["data"]) for change in told] == [(1, Row(x=0.5, wkb=bytearray(b"p")))] * 2
    [lacking] = debezium.decode_avro(records(spark, sent[0]), {20: given[20][:-1]}).collect()
    assert lacking["error_code"] == "SCHEMA_UNUSABLE"
    assert "the type 'Row' is not defined" in lacking["error_description"]


def test_columns_of_documents_are_those_that_they_have(spark: SparkSession) -> None:
    """MongoDB's rows are text in Avro too, of which the schema says no types."""
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": n, "type": "string"} for n in ("connector", "collection")],
    }
    after = {"name": "after", "type": ["null", "string"]}
    fields = [after, {"name": "source", "type": source}, {"name": "op", "type": "string"}]
    schema = {"type": "record", "name": "Envelope", "fields": fields}
    said = {"connector": "mongodb", "collection": "customers"}
    stream = io.BytesIO()
    datum = {"op": "c", "after": '{"_id": 1, "name": "Anne"}', "source": said}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), datum)
    at = datetime(2024, 3, 1, tzinfo=UTC)
    sent = (b'{"id": "1"}', b"\0\0\0\0\1" + stream.getvalue(), "t", 0, 0, at, 0, None)
    decoded = debezium.decode_avro(spark.createDataFrame([sent], RECORD_SCHEMA), {1: json.dumps(schema)})
    assert debezium.columns(decoded, "customers") == {"_id": ("untyped",), "name": ("untyped",)}


def test_ids_of_eight_bytes(spark: SparkSession) -> None:
    sent = (written(KEY, {"id": 1}, id_bytes=8), written(FIRST, event("r", 2, after=KETTLE), id_bytes=8))
    row = debezium.decode_avro(records(spark, sent), REGISTRY, ids="apicurio").collect()[0]
    assert (row["operation"], row["row_key"], row["after"]["price"]) == ("r", {"id": "1"}, "B8Y=")
    assert row["event_timestamp"] == datetime.fromtimestamp(AT / 1000, UTC).replace(tzinfo=None)


def test_a_call_that_cannot_be_meant_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match="confluent, apicurio"):
        debezium.decode_avro(records(spark), REGISTRY, ids="glue")
    with pytest.raises(InvalidArgument, match="by their ids"):
        debezium.decode_avro(records(spark), {"7": "x"})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument, match="by their ids"):
        debezium.decode_avro(records(spark), {7: []})
