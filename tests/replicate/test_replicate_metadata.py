"""`metadata` and `schema_zone`: what each schema id stands for, and what contradicts it."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import replicate
from cdckit.errors import MissingColumns, WrongColumnType
from cdckit.model.faults import FoundFault
from cdckit.parts.avro import parse_schema
from cdckit.replicate.decoding import ZONE_SCHEMA
from cdckit.replicate.envelopes import open_envelopes
from cdckit.replicate.metadata_messages import layout, read_metadata
from support.replicate_messages import (
    HEADERS,
    METADATA_SCHEMA,
    NOON,
    OPERATION,
    Record,
    Version,
    avro_bytes,
    by_offset,
    envelope,
    json_envelope,
    metadata_message,
    number,
    numbered,
    record,
    text,
    to_dataframe,
)
from support.replicate_readings import Reading, read, settled

NULLABLE_TEXT = ["null", "string"]
ITEMS = Version({"id": "int", "name": NULLABLE_TEXT})


def changed(version: Version, path: str, value: Any) -> dict[str, Any]:
    """What *version*'s metadata says, with another value at a path like lineage/task; ... takes it out."""
    said = copy.deepcopy(version.metadata())
    *above, last = path.split("/")
    place = said
    for name in above:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return said


def with_data_schema(schema: Any) -> bytes:
    """Metadata with another data schema: text, or what becomes JSON text."""
    return ITEMS.md(dataSchema=schema if isinstance(schema, str) else json.dumps(schema))


def data_record(**fields: Any) -> dict[str, Any]:
    """A data schema in which some fields have other types; None leaves a field out."""
    named = {field["name"]: field["type"] for field in ITEMS.data_record["fields"]} | fields
    kept = [{"name": name, "type": kind} for name, kind in named.items() if kind is not None]
    return {"type": "record", "name": "DataRecord", "fields": kept}


def headers(**types: Any) -> dict[str, Any]:
    """The type of headers in which some have other types; None leaves one out."""
    kept = [{"name": name, "type": kind} for name, kind in (HEADERS | types).items() if kind is not None]
    return {"type": "record", "name": "Headers", "fields": kept}


ROW = {"type": "record", "name": "Data", "fields": [{"name": "id", "type": "int"}]}

# --- one message --------------------------------------------------------------------------------------------

BAD: dict[str, tuple[bytes, str, str]] = {
    "the message's schema breaks off": (
        envelope("MD", b"x", schema=json.dumps(METADATA_SCHEMA)[:100]),
        "METADATA_SCHEMA_INVALID",
        "it is not JSON",
    ),
    "the message's schema has a type that does not exist": (
        envelope("MD", b"x", schema='"gate"'),
        "METADATA_SCHEMA_INVALID",
        "'gate' is not defined",
    ),
    "the message's schema contains itself": (
        envelope("MD", b"x", schema='{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}'),
        "METADATA_SCHEMA_INVALID",
        "contains itself",
    ),
    "the message's schema is a bomb of items that take no bytes": (
        envelope("MD", number(2**40), schema='{"type":"array","items":"null"}'),
        "METADATA_SCHEMA_INVALID",
        "take no bytes",
    ),
    "the message is cut": (
        envelope(
            "MD", avro_bytes(METADATA_SCHEMA, ITEMS.metadata())[:-1], schema=json.dumps(METADATA_SCHEMA)
        ),
        "METADATA_UNREADABLE",
        "dataSchema",
    ),
    "bytes after the message": (
        envelope(
            "MD", avro_bytes(METADATA_SCHEMA, ITEMS.metadata()) + b"\0", schema=json.dumps(METADATA_SCHEMA)
        ),
        "METADATA_UNREADABLE",
        "1 more bytes follow",
    ),
    "the message claims 2^40 columns": (
        envelope(
            "MD",
            text("x" * 32) + b"".join(map(text, ["s", "t", "s", "t"])) + number(1) + text("") + number(2**40),
            schema=json.dumps(METADATA_SCHEMA),
        ),
        "METADATA_UNREADABLE",
        "1099511627776 items",
    ),
    "the message is a number": (
        envelope("MD", number(7), schema='"long"'),
        "METADATA_INCOMPLETE",
        "Expected `object`, got `int`.",
    ),
    "the message is null": (envelope("MD", b"", schema='"null"'), "METADATA_INCOMPLETE", "got `null`."),
    "the message is another record": (
        envelope("MD", number(7), schema=json.dumps(ROW)),
        "METADATA_INCOMPLETE",
        "Object missing required field `schemaId`.",
    ),
    "there is no column": (
        metadata_message(changed(ITEMS, "tableStructure/tableColumns", {})),
        "METADATA_INCOMPLETE",
        "they are [].",
    ),
    "two columns with one ordinal": (
        Version({"id": "int", "name": NULLABLE_TEXT}, ordinals={"name": 1}).md(),
        "METADATA_INCOMPLETE",
        "they are [1, 1].",
    ),
    "an ordinal of 0": (
        Version({"id": "int", "name": NULLABLE_TEXT}, ordinals={"name": 0}).md(),
        "METADATA_INCOMPLETE",
        "they are [0, 1].",
    ),
    "an ordinal that would make masks of 256 MiB": (
        Version({"id": "int", "name": NULLABLE_TEXT}, ordinals={"name": 2**31 - 1}).md(),
        "METADATA_INCOMPLETE",
        "from 1 to 10,000; they are [1, 2147483647].",
    ),
    "a key that no row has": (
        metadata_message(
            changed(
                ITEMS,
                "tableStructure/tableColumns/code",
                ITEMS.metadata()["tableStructure"]["tableColumns"]["id"] | {"ordinal": 3},
            )
        ),
        "METADATA_INCOMPLETE",
        "The data schema lacks the key code.",
    ),
    "no column is in the data schema": (
        Version({"code": "int"}, keys=()).md(dataSchema=Version({"x": "int"}).data_schema),
        "METADATA_INCOMPLETE",
        "The data schema has none of the columns; it has x.",
    ),
    "a schema id of 31 bytes": (ITEMS.md(schemaId="x" * 31), "SCHEMA_ID_LENGTH", f"It is '{'x' * 31}'."),
    "a schema id of 32 characters and 33 bytes": (
        ITEMS.md(schemaId="ß" + "x" * 31),
        "SCHEMA_ID_LENGTH",
        "32 bytes long",
    ),
    "the data schema breaks off": (
        with_data_schema(ITEMS.data_schema[:200]),
        "DATA_SCHEMA_INVALID",
        "it is not JSON",
    ),
    "the data schema is empty": (with_data_schema(""), "DATA_SCHEMA_INVALID", "it is not JSON"),
    "the data schema has a type that does not exist": (
        with_data_schema(data_record(data="gate", beforeData=None)),
        "DATA_SCHEMA_INVALID",
        "'gate' is not defined",
    ),
    "the data schema has half a character in a name": (
        with_data_schema('{"type": "record", "name": "a.\\ud800", "fields": []}'),
        "DATA_SCHEMA_INVALID",
        "cannot be a part of the name 'a.\\ud800'",
    ),
    "the data schema points to a file": (
        with_data_schema(data_record(data="file:///etc/passwd")),
        "DATA_SCHEMA_INVALID",
        "is not defined",
    ),
    "the data schema nests without end": (
        with_data_schema('{"type":"array","items":' * 5000 + '"int"' + "}" * 5000),
        "DATA_SCHEMA_INVALID",
        "nested",
    ),
    "the data schema doubles at each level": (
        with_data_schema(
            data_record(
                data={
                    "type": "record",
                    "name": "L0",
                    "fields": [{"name": "x", "type": "int"}],
                }
            )
            | {
                "fields": [
                    {
                        "name": "data",
                        "type": {"type": "record", "name": "L0", "fields": [{"name": "x", "type": "int"}]},
                    },
                    *(
                        {
                            "name": f"l{level}",
                            "type": {
                                "type": "record",
                                "name": f"L{level}",
                                "fields": [
                                    {"name": "a", "type": f"L{level - 1}"},
                                    {"name": "b", "type": f"L{level - 1}"},
                                ],
                            },
                        }
                        for level in range(1, 25)
                    ),
                ]
            }
        ),
        "DATA_SCHEMA_INVALID",
        "more than 10,000 types",
    ),
    "the data schema is no record": (with_data_schema('"string"'), "DATA_SCHEMA_INVALID", "the field data"),
    "the data schema has no data": (
        with_data_schema(data_record(data=None, beforeData=None)),
        "DATA_SCHEMA_INVALID",
        "with the field data",
    ),
    "the data schema has no headers": (
        with_data_schema(data_record(headers=None)),
        "DATA_SCHEMA_INVALID",
        "with the field headers",
    ),
    "data is no record": (
        with_data_schema(data_record(data="string", beforeData=None)),
        "DATA_SCHEMA_INVALID",
        "field data is not a record",
    ),
    "beforeData is no row": (
        with_data_schema(data_record(beforeData=NULLABLE_TEXT)),
        "DATA_SCHEMA_INVALID",
        "beforeData is not a row like data",
    ),
    "beforeData is a row of another table": (
        with_data_schema(data_record(beforeData=["null", ROW | {"name": "Other"}])),
        "DATA_SCHEMA_INVALID",
        "beforeData is not a row like data",
    ),
    "the headers have no operation": (
        with_data_schema(data_record(headers=headers(operation=None))),
        "DATA_SCHEMA_INVALID",
        "operation",
    ),
    "a mask is text": (
        with_data_schema(data_record(headers=headers(columnMask=NULLABLE_TEXT))),
        "DATA_SCHEMA_INVALID",
        "columnMask is string",
    ),
    "an operation is a number": (
        with_data_schema(data_record(headers=headers(operation="int"))),
        "DATA_SCHEMA_INVALID",
        "operation is int32",
    ),
    "JSON form: no lineage": (
        json_envelope("MD", changed(ITEMS, "lineage", ...)),
        "METADATA_INCOMPLETE",
        "missing required field `lineage`.",
    ),
    "JSON form: a task that is a number": (
        json_envelope("MD", changed(ITEMS, "lineage/task", 7)),
        "METADATA_INCOMPLETE",
        "Expected `str`, got `int` - at `$.lineage.task`.",
    ),
    "JSON form: an id that is a fraction of 32 letters": (
        json_envelope("MD", changed(ITEMS, "schemaId", "FRACTION")).replace(
            b'"FRACTION"', b"0.123456789012345678901234567890"
        ),
        "METADATA_INCOMPLETE",
        "Expected `str`, got `float` - at `$.schemaId`.",
    ),
    "JSON form: the columns are a list": (
        json_envelope("MD", changed(ITEMS, "tableStructure/tableColumns", ["id", "name"])),
        "METADATA_INCOMPLETE",
        "Expected `array`, got `str` - at `$.tableStructure.tableColumns[0]`.",
    ),
    "JSON form: a column is a text": (
        json_envelope("MD", changed(ITEMS, "tableStructure/tableColumns/id", "INT")),
        "METADATA_INCOMPLETE",
        "Expected `object`, got `str`",
    ),
    "JSON form: an ordinal that is a fraction": (
        json_envelope("MD", changed(ITEMS, "tableStructure/tableColumns/id/ordinal", 1.5)),
        "METADATA_INCOMPLETE",
        "Expected `int`, got `float` - at `$.tableStructure.tableColumns",
    ),
    "JSON form: an ordinal that is true": (
        json_envelope("MD", changed(ITEMS, "tableStructure/tableColumns/id/ordinal", True)),
        "METADATA_INCOMPLETE",
        "Expected `int`, got `bool`",
    ),
    "JSON form: a version of 64 bits": (
        json_envelope("MD", changed(ITEMS, "lineage/tableVersion", 2**31)),
        "METADATA_INCOMPLETE",
        "Expected `int` <= 2147483647 - at `$.lineage.tableVersion`.",
    ),
    "JSON form: null for the data schema": (
        json_envelope("MD", changed(ITEMS, "dataSchema", None)),
        "METADATA_INCOMPLETE",
        "Expected `str | object`, got `null` - at `$.dataSchema`.",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_metadata_that_cannot_be_used_says_why(name: str) -> None:
    value, code, finding = BAD[name]
    opened = open_envelopes(pa.array([value]))
    with pytest.raises(FoundFault) as refused:
        read_metadata(*(part[0].as_py() for part in (opened.form, opened.message_schema, opened.message)))
    fault, found = refused.value.fault, refused.value.finding
    assert (opened.findings, fault.value) == ({}, code)
    assert finding in found or finding in fault.sentence
    # A column of texts can hold it.
    found.encode()
    assert len(fault.describe(found)) < 500


def test_metadata_that_cannot_be_used_is_a_reject_with_its_bytes(spark: SparkSession) -> None:
    rows = by_offset(read(spark, numbered([*(value for value, _, _ in BAD.values()), ITEMS.md()])).said)
    for offset, (value, code, _) in enumerate(BAD.values()):
        assert (rows[offset]["error_code"], rows[offset]["value"]) == (code, value)
    assert rows[len(BAD)]["error_code"] is None


GOOD = {
    "Avro": ITEMS.md(),
    "JSON": json_envelope("MD", ITEMS.metadata()),
    "JSON, numbers as text": json_envelope(
        "MD",
        {
            **ITEMS.metadata(),
            "lineage": ITEMS.metadata()["lineage"] | {"tableVersion": "1"},
            "tableStructure": {
                "tableColumns": {
                    name: {fact: str(value) for fact, value in facts.items()}
                    for name, facts in ITEMS.metadata()["tableStructure"]["tableColumns"].items()
                }
            },
        },
    ),
}
COLUMN = {"type": "VARCHAR", "length": 20, "precision": 0, "scale": 0}
LAYOUT = [
    "data: null or record",
    "data.id: int",
    "data.name: null or string",
    "beforeData: null or record",
    "beforeData.id: int",
    "beforeData.name: null or string",
    "headers.operation: enum(INSERT, UPDATE, DELETE, REFRESH)",
    "headers.changeSequence: string",
    "headers.timestamp: string",
    "headers.streamPosition: string",
    "headers.transactionId: string",
    "headers.changeMask: null or bytes",
    "headers.columnMask: null or bytes",
    "headers.transactionEventCounter: null or long",
    "headers.transactionLastEvent: null or boolean",
]
ITEMS_METADATA = {
    "schema_id": ITEMS.schema_id,
    "server": "db1",
    "task": "shop_task",
    "schema": "SHOP",
    "table": "ITEMS",
    "table_version": 1,
    "lineage_timestamp": "2024-01-01T00:00:00.000000",
    "columns": [
        {"name": "id", "ordinal": 1, "key_position": 1, **COLUMN},
        {"name": "name", "ordinal": 2, "key_position": 0, **COLUMN},
    ],
    "data_schema": ITEMS.data_schema,
    "layout": LAYOUT,
}


@pytest.fixture(scope="module")
def good(spark: SparkSession) -> Reading:
    return read(
        spark, [record(value, offset, topic=form) for offset, (form, value) in enumerate(GOOD.items())]
    )


def test_a_metadata_message_to_the_letter_whatever_its_form(good: Reading) -> None:
    said = by_offset(good.said)
    for offset, form in enumerate(GOOD):
        row = said[offset]
        assert row.pop("timestamp") == NOON.replace(tzinfo=None) + timedelta(seconds=offset)
        assert row == {
            "key": b"key %d" % offset,
            "value": GOOD[form],
            "topic": form,
            "partition": 0,
            "offset": offset,
            "timestampType": 0,
            "headers": [{"key": "trace", "value": b"%d" % offset}],
            **ITEMS_METADATA,
            "error_code": None,
            "error_description": None,
        }


def test_the_zone_holds_one_row_of_three_messages_that_say_the_same(good: Reading) -> None:
    row = good.zone.collect()
    assert len(row) == 1
    assert row[0].asDict(recursive=True) == {
        **ITEMS_METADATA,
        "topic": "Avro",
        "partition": 0,
        "offset": 0,
        "timestamp": NOON.replace(tzinfo=None),
        "places": [
            {
                "timestamp": NOON.replace(tzinfo=None) + timedelta(seconds=offset),
                "topic": topic,
                "partition": 0,
                "offset": offset,
                "lineage_timestamp": "2024-01-01T00:00:00.000000",
            }
            for offset, topic in enumerate(["Avro", "JSON", "JSON, numbers as text"])
        ],
        "other_tables": [],
    }


def test_columns_come_by_ordinal_whatever_the_order_of_the_map(spark: SparkSession) -> None:
    version = Version(
        {"c": NULLABLE_TEXT, "id": "int", "b": "int"},
        keys=("id", "b"),
        ordinals={"c": 9, "id": 4, "b": 2},
        headers=HEADERS
        | {"externalSchemaId": "string", "later": ["null", {"type": "array", "items": "int"}]},
    )
    columns = read(spark, numbered([version.md()])).said.selectExpr("inline(columns)").collect()
    assert [(row["name"], row["ordinal"], row["key_position"]) for row in columns] == [
        ("b", 2, 2),
        ("id", 4, 1),
        ("c", 9, 0),
    ]


def test_headers_may_be_leaner_and_richer_than_those_of_today(spark: SparkSession) -> None:
    lean = {
        "operation": "string",
        "timestamp": "string",
        "transactionEventCounter": "int",
        "externalSchemaId": "string",
    }
    rich = HEADERS | {
        "operation": ["null", OPERATION],
        "columnMask": "null",
        "more": {"type": "map", "values": "int"},
    }
    timeless = {"operation": "string"}
    values = [Version({"id": "int"}, headers=headers).md() for headers in (lean, rich, timeless)]
    said = by_offset(read(spark, numbered(values)).said)
    assert [row["error_description"] for row in said.values()] == [None, None, None]


# --- two messages about one id ------------------------------------------------------------------------------

ID = ITEMS.schema_id
OTHER_NAME = Version({"id": "int", "label": NULLABLE_TEXT}).md(schemaId=ID)
OTHER_TABLE = metadata_message(changed(ITEMS, "lineage/table", "THINGS"))
OTHER_KEY = Version({"id": "int", "name": NULLABLE_TEXT}, keys=("id", "name")).md(schemaId=ID)
LATER_VERSION = metadata_message(changed(ITEMS, "lineage/tableVersion", 2))
OTHER_SERVER = metadata_message(changed(ITEMS, "lineage/server", "db2"))
RESENT = metadata_message(changed(ITEMS, "lineage/timestamp", "2024-02-02T02:02:02.000000"))

TOLD = {
    10: ITEMS.md(),
    11: OTHER_NAME,
    12: OTHER_TABLE,
    13: OTHER_KEY,
    14: LATER_VERSION,
    15: OTHER_SERVER,
    16: RESENT,
    17: OTHER_NAME,
    18: ITEMS.md(),
    19: Version({"id": "int", "x": "int"}).md(),
}
CONFLICTS = [11, 17]
STATEMENTS = [10, 12, 13, 14, 15, 16, 19]
"""Each says something new of its id and table; 16 takes back what 13 and 14 said, and 18 says it again."""


def told() -> list[Record]:
    return [record(value, offset) for offset, value in TOLD.items()]


def in_error(rows: dict[int, dict[str, Any]]) -> list[int]:
    assert {row["error_code"] for row in rows.values()} <= {None, "SCHEMA_CONFLICT"}
    return sorted(offset for offset, row in rows.items() if row["error_code"])


@pytest.mark.parametrize(("order", "partitions"), [(1, 1), (-1, 3)])
def test_the_first_to_arrive_stands_and_what_contradicts_it_is_in_error_whatever_the_order_of_rows(
    spark: SparkSession, order: int, partitions: int
) -> None:
    reading = read(spark, told()[::order], partitions=partitions)
    rows = by_offset(reading.said)
    assert in_error(rows) == CONFLICTS
    assert rows[11]["error_description"] == (
        "An earlier message gave this schema id another layout, which stands."
        " Here, for db1/shop_task SHOP.ITEMS, it has"
        " data.label: null or string; beforeData.label: null or string;"
        " before, for db1/shop_task SHOP.ITEMS, it had"
        " data.name: null or string; beforeData.name: null or string."
    )
    zone = by_offset(reading.zone)
    assert sorted(zone) == STATEMENTS
    assert zone[10]["data_schema"] == ITEMS.data_schema
    assert {
        offset: row["places"][-1]["offset"] for offset, row in zone.items() if len(row["places"]) > 1
    } == {16: 18}


def test_schemas_that_decode_alike_have_one_layout() -> None:
    """Names of types, defaults, texts for readers and spaces are no part of the bytes; the order is."""
    other = json.dumps(ITEMS.data_record | {"namespace": "elsewhere", "doc": "for readers"}, indent=2)
    turned = Version({"name": NULLABLE_TEXT, "id": "int"}, ordinals={"id": 1, "name": 2})
    layouts = [layout(parse_schema(text).root) for text in (ITEMS.data_schema, other, turned.data_schema)]
    assert layouts[0] == layouts[1] != layouts[2]
    assert sorted(layouts[0]) == sorted(layouts[2])


def test_the_first_to_arrive_is_told_by_time_before_offset(spark: SparkSession) -> None:
    """Offsets of two partitions say nothing about each other."""
    early = record(OTHER_NAME, 500, timestamp=NOON)
    late = record(ITEMS.md(), 3, timestamp=NOON + timedelta(microseconds=1), partition=1)
    assert in_error(by_offset(read(spark, [late, early]).said)) == [3]


@pytest.fixture(scope="module")
def known(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zone of one entry, saved."""
    place = tmp_path_factory.mktemp("zone") / "zone.parquet"
    read(spark, [record(ITEMS.md(), 100)]).zone.write.parquet(str(place))
    return place


def test_a_zone_that_was_saved_and_loaded_is_the_same_zone(spark: SparkSession, known: Path) -> None:
    loaded = spark.read.parquet(str(known))
    assert loaded.collect() == read(spark, [record(ITEMS.md(), 100)]).zone.collect()
    assert replicate.keys(loaded) == ["id"]
    row = by_offset(
        replicate.data(to_dataframe(spark, [record(ITEMS.dt("INSERT", {"id": 7, "name": "x"}), 0)]), loaded)
    )[0]
    assert row["data"] == {"id": 7, "name": "x"}


def test_what_is_known_stands_against_what_arrived_before_it_and_nothing_of_either_is_lost(
    spark: SparkSession, known: Path
) -> None:
    loaded = spark.read.parquet(str(known))
    decoded = replicate.decode(to_dataframe(spark, [*told(), record(OTHER_NAME, 9)]))
    said = replicate.metadata(decoded, zone=loaded)
    assert in_error(by_offset(said)) == [9, *CONFLICTS]
    zone = by_offset(settled(replicate.schema_zone(said, zone=loaded)))
    assert sorted(zone) == STATEMENTS
    # The known one says again what 16 and 18 said.
    assert zone[16]["places"][-1]["offset"] == 100


def test_a_zone_that_grew_in_batches_is_the_zone_of_all_at_once(spark: SparkSession) -> None:
    zone = None
    for batch in (told()[:3], told()[3:6], told()[6:]):
        said = replicate.metadata(replicate.decode(to_dataframe(spark, batch)), zone=zone)
        zone = settled(replicate.schema_zone(said, zone=zone))
    assert zone is not None
    assert by_offset(zone) == by_offset(read(spark, told()).zone)


def test_a_zone_grows_by_what_is_new(spark: SparkSession, known: Path) -> None:
    loaded = spark.read.parquet(str(known))
    nothing = replicate.metadata(replicate.decode(to_dataframe(spark, [])), zone=loaded)
    assert settled(replicate.schema_zone(nothing, zone=loaded)).collect() == loaded.collect()


def test_data_messages_and_messages_in_error_are_passed_over(spark: SparkSession) -> None:
    values = [ITEMS.dt("INSERT", {"id": 1, "name": None}), b"?", None, envelope("MD", b"x", schema_id=ID)]
    reading = read(spark, numbered(values))
    assert by_offset(reading.said) == {}
    assert reading.zone.collect() == []


# --- callers ------------------------------------------------------------------------------------------------


def test_what_is_not_decoded_is_refused_at_the_call(spark: SparkSession) -> None:
    with pytest.raises(MissingColumns, match=r"metadata\(\) needs the columns form, type, envelope_headers"):
        replicate.metadata(to_dataframe(spark, []))


def test_what_is_not_metadata_is_refused_at_the_call(good: Reading) -> None:
    with pytest.raises(
        MissingColumns, match=r"schema_zone\(\) needs the columns server, task, schema, table"
    ):
        replicate.schema_zone(good.decoded)
    wrong = good.said.withColumn("table_version", F.lit("1"))
    with pytest.raises(
        WrongColumnType, match=r"schema_zone\(\) needs the column table_version as int; it is string"
    ):
        replicate.schema_zone(wrong)


def test_a_known_zone_that_is_none_is_refused_at_the_call(good: Reading) -> None:
    lacking = good.zone.drop("columns")
    with pytest.raises(MissingColumns, match=r"metadata\(\) needs the columns columns; the DataFrame has"):
        replicate.metadata(good.decoded, zone=lacking)
    with pytest.raises(MissingColumns, match=r"schema_zone\(\) needs the columns columns; the DataFrame has"):
        replicate.schema_zone(good.said, zone=lacking)


def test_a_zone_has_the_columns_that_it_promises(good: Reading) -> None:
    made = replicate.schema_zone(good.said)
    assert made.schema.simpleString() == ZONE_SCHEMA.simpleString()
