"""`data`: the data messages of one table as typed rows, across its versions, in both forms."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import replicate
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.parts.arrow_widening import common_type, to_common_type
from cdckit.replicate.message_rules import parse_instants
from support.replicate_messages import (
    HEADERS,
    Version,
    by_offset,
    envelope,
    header_values,
    joined,
    json_envelope,
    number,
    numbered,
    read_cases,
    record,
    to_dataframe,
)
from support.replicate_readings import Reading, read, read_home, rows_of

Row = dict[str, Any]

TEXT = ["null", "string"]
INT = ["null", "int"]
ITEMS = Version({"id": "int", "name": TEXT})
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 2}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}


def marked(flags: Row | None) -> list[str] | None:
    """The names of the columns whose flag is set; none of the flags may be null."""
    if flags is None:
        return None
    assert set(flags.values()) <= {True, False}
    return [name for name, flag in flags.items() if flag]


def wrong(row: Row) -> tuple[str | None, str | None]:
    return row["error_code"], row["error_description"]


# --- the conversation of the cases --------------------------------------------------------------------------

CONVERSATION = read_cases("conversation")


@pytest.fixture(scope="module")
def conversation(spark: SparkSession) -> Reading:
    values = [joined(case["value"]) for case in [CONVERSATION["metadata"], *CONVERSATION["cases"]]]
    return read(spark, numbered(values))


@pytest.fixture(scope="module")
def told(conversation: Reading) -> dict[int, Row]:
    return by_offset(conversation.rows("PEOPLE"))


def test_the_zone_of_the_conversation(conversation: Reading) -> None:
    (row,) = conversation.zone.collect()
    said = CONVERSATION["metadata"]["zone"]
    assert {name: row.asDict(recursive=True)[name] for name in said} == said


@pytest.mark.parametrize(
    "place", range(len(CONVERSATION["cases"])), ids=[case["name"] for case in CONVERSATION["cases"]]
)
def test_conversation(told: dict[int, Row], place: int) -> None:
    row, expected = told[place + 1], CONVERSATION["cases"][place]["row"]
    at = datetime.fromisoformat(expected["change_timestamp"])
    found = {name: row[name] for name in expected}
    found |= {"sent": marked(row["sent"]), "changed": marked(row["changed"])}
    assert found == expected | {"change_timestamp": at}
    assert wrong(row) == (None, None)


def test_every_row_says_where_it_comes_from_and_of_which_table_it_is(told: dict[int, Row]) -> None:
    assert sorted(told) == [1, 2, 3, 4, 5, 6]
    names = (
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "schema_id",
        "task",
        "schema",
        "table",
    )
    assert [told[3][name] for name in names] == [
        "items",
        0,
        3,
        datetime(2024, 1, 1, 12, 0, 3),
        0,
        "7d3f0c1e5b2a4968d0c7e6f5a4b39281",
        "people_task",
        "HR",
        "PEOPLE",
    ]
    assert told[3]["table_version"] == 1


def test_a_good_row_does_not_carry_its_bytes(told: dict[int, Row]) -> None:
    assert {row[name] for row in told.values() for name in ("key", "value", "headers")} == {None}


# --- types --------------------------------------------------------------------------------------------------

TYPES: dict[str, tuple[Any, Any, str]] = {
    "id": ("long", 2**63 - 1, "bigint"),
    "string": ("string", "häß😀\0", "string"),
    "int": ("int", -(2**31), "int"),
    "long": ("long", -(2**63), "bigint"),
    "float": ("float", 0.5, "float"),
    "double": ("double", 0.1, "double"),
    "boolean": ("boolean", False, "boolean"),
    "bytes": ("bytes", b"\xff\x00", "binary"),
    "date": (DATE, date(1969, 12, 31), "date"),
    "millis": (MILLIS, datetime(2024, 2, 29, 23, 59, 59, 999000, UTC), "timestamp"),
    "micros": (MICROS, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "timestamp"),
    "decimal": (DECIMAL, Decimal("-12345.67"), "decimal(7,2)"),
    "wide": (
        DECIMAL | {"precision": 38, "scale": 10},
        Decimal("1234567890123456789012345678.0123456789"),
        "decimal(38,10)",
    ),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, b"abc", "binary"),
}


def test_values_are_typed_as_the_source_has_them_and_may_be_null(spark: SparkSession) -> None:
    columns = {name: kind if name == "id" else ["null", kind] for name, (kind, _, _) in TYPES.items()}
    version = Version(columns, table="TYPES")
    full = {name: value for name, (_, value, _) in TYPES.items()}
    empty = dict.fromkeys(TYPES) | {"id": 1}
    reading = read(
        spark, numbered([version.md(), version.dt("INSERT", full, empty), version.dt("INSERT", empty)])
    )
    rows = reading.rows("TYPES")
    struct = rows.schema["data"].dataType
    assert struct.simpleString() == "struct<" + ",".join(f"{n}:{t}" for n, (_, _, t) in TYPES.items()) + ">"
    found = by_offset(rows)
    shown = {
        name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
        for name, value in full.items()
    }
    assert found[1]["data"] == shown
    assert found[1]["before"] == found[2]["data"] == empty
    assert wrong(found[1]) == wrong(found[2]) == (None, None)


# --- versions -----------------------------------------------------------------------------------------------

V1 = Version({"id": "int", "price": INT, "note": TEXT})
V2 = Version({"id": "int", "price": INT, "note": TEXT, "colour": TEXT}, number=2)
V3 = Version(
    {"colour": TEXT, "id": "int", "price": ["null", "long"]},
    number=3,
    ordinals={"colour": 4, "id": 1, "price": 2},
)


@pytest.fixture(scope="module")
def evolved() -> list[Row]:
    """A column added, then one dropped and one widened."""
    return rows_of(
        [V1.md(), V2.md(), V3.md()],
        [
            V1.dt("INSERT", {"id": 1, "price": 10, "note": "n"}),
            V2.dt(
                "UPDATE",
                {"id": 1, "price": 10, "note": "n", "colour": "red"},
                columnMask=b"\x09",
                changeMask=b"\x08",
            ),
            V3.dt("UPDATE", {"id": 1, "price": 2**40, "colour": None}, columnMask=b"\x0b"),
            V1.dt("DELETE", None, {"id": 1, "price": 7, "note": None}),
        ],
    )


def test_rows_of_all_versions_have_the_columns_of_all_the_newest_first(evolved: list[Row]) -> None:
    assert [row["data"] for row in evolved] == [
        {"colour": None, "id": 1, "price": 10, "note": "n"},
        {"colour": "red", "id": 1, "price": 10, "note": "n"},
        {"colour": None, "id": 1, "price": 2**40, "note": None},
        {"colour": None, "id": 1, "price": 7, "note": None},
    ]
    assert {tuple(row["data"]) for row in evolved} == {("colour", "id", "price", "note")}
    assert [row["table_version"] for row in evolved] == [1, 2, 3, 1]
    assert [row["schema_id"] for row in evolved] == [v.schema_id for v in (V1, V2, V3, V1)]


def test_a_column_that_a_version_does_not_have_was_not_sent_by_it(evolved: list[Row]) -> None:
    assert [marked(row["sent"]) for row in evolved] == [
        ["id", "price", "note"],
        ["colour", "id"],
        ["colour", "id", "price"],
        ["id", "price", "note"],
    ]
    assert [marked(row["changed"]) for row in evolved] == [None, ["colour"], None, None]


def test_a_column_whose_name_changed_in_case_alone_is_the_same_column() -> None:
    """Spark tells no cases apart: `data` with both names could not be read by either."""
    old, new = (
        Version({"ID": "int", "name": TEXT}, keys=("ID",)),
        Version({"id": "int", "NAME": TEXT}, number=2),
    )
    messages = [
        old.dt("UPDATE", {"ID": 1, "name": "a"}, columnMask=b"\x01", changeMask=b"\x02"),
        new.dt("UPDATE", {"id": 1, "NAME": "b"}, columnMask=b"\x03"),
    ]
    first, second = rows_of([old.md(), new.md()], messages)
    assert (first["data"], second["data"]) == ({"id": 1, "NAME": "a"}, {"id": 1, "NAME": "b"})
    assert (marked(first["sent"]), marked(first["changed"])) == (["id"], ["NAME"])
    assert marked(second["sent"]) == ["id", "NAME"]


def test_columns_whose_type_changed_become_text_where_no_number_holds_both() -> None:
    old = Version(
        {
            "id": "int",
            "bytes": ["null", "bytes"],
            "list": ["null", {"type": "array", "items": "int"}],
            "map": ["null", {"type": "map", "values": TEXT}],
            "number": INT,
            "date": ["null", DATE],
            "decimal": ["null", DECIMAL],
            "nothing": "null",
            "truth": ["null", "boolean"],
        },
        table="TEXTS",
    )
    new = Version(
        {"id": "int"} | {name: TEXT for name in old.columns if name != "id"}, number=2, table="TEXTS"
    )
    said = {
        "id": 1,
        "bytes": b"\xff\x00",
        "list": [1, 2],
        "map": {"a": None},
        "number": -7,
        "date": date(2024, 1, 2),
        "decimal": Decimal("1.50"),
        "nothing": None,
        "truth": True,
    }
    (row,) = rows_of([old.md(), new.md()], [old.dt("INSERT", said)], table="TEXTS")
    assert row["data"] == {
        "id": 1,
        "bytes": "ff00",
        "list": "[1, 2]",
        "map": '[["a", null]]',
        "number": "-7",
        "date": "2024-01-02",
        "decimal": "1.5",
        "nothing": None,
        "truth": "true",
    }


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float64(), pa.string()),
        (pa.decimal128(5, 2), pa.decimal128(7, 4), pa.decimal128(7, 4)),
        (pa.decimal128(9, 0), pa.decimal128(5, 4), pa.decimal128(13, 4)),
        (pa.decimal128(38, 0), pa.decimal128(5, 4), pa.string()),
        (pa.int32(), pa.decimal128(9, 0), pa.decimal128(10, 0)),
        (pa.int64(), pa.decimal128(5, 2), pa.decimal128(21, 2)),
        (pa.int64(), pa.decimal128(38, 20), pa.string()),
        (pa.float64(), pa.decimal128(5, 2), pa.string()),
        (pa.float32(), pa.float32(), pa.float32()),
        (pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (pa.null(), pa.int32(), pa.int32()),
        (pa.binary(), pa.string(), pa.string()),
        (pa.bool_(), pa.bool_(), pa.bool_()),
    ],
)
def test_the_type_that_holds_two(one: pa.DataType, other: pa.DataType, common: pa.DataType) -> None:
    assert common_type(one, other) == common_type(other, one) == common
    for kind in (one, other):
        assert to_common_type(pa.nulls(1, kind), common).type == common


# --- masks --------------------------------------------------------------------------------------------------

MASKS = read_cases("masks")["tables"]


@pytest.fixture(scope="module")
def masked() -> dict[tuple[str, str, str], Row]:
    """The rows of all mask cases by table, case and form."""
    found: dict[tuple[str, str, str], Row] = {}
    for case in MASKS:
        columns = {name: "int" if name == "id" else TEXT for name in case["ordinals"]}
        version = Version(columns, table=case["table"], ordinals=case["ordinals"])
        row = {name: 1 if name == "id" else name for name in columns}
        texts = {name: str(value) for name, value in row.items()}
        names = [each["name"] for each in case["cases"]]
        masks = [each["mask"] for each in case["cases"]]
        avro = [
            version.dt("UPDATE", row, columnMask=bytes.fromhex(m), changeMask=bytes.fromhex(m)) for m in masks
        ]
        in_json = [
            json_envelope(
                "DT", {"data": texts, "headers": header_values("UPDATE", columnMask=m, changeMask=m)}
            )
            for m in masks
        ]
        rows = rows_of([version.md()], [*avro, *in_json], table=case["table"], json_topics=["items"])
        places = [(case["table"], name, form) for form in ("avro", "json") for name in names]
        found.update(zip(places, rows, strict=True))
    return found


@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize(
    ("table", "case"),
    [(table["table"], case) for table in MASKS for case in table["cases"]],
    ids=[f"{table['table']}: {case['name']}" for table in MASKS for case in table["cases"]],
)
def test_mask(masked: dict[tuple[str, str, str], Row], table: str, case: Row, form: str) -> None:
    row = masked[table, case["name"], form]
    if "error" in case:
        code, finding = case["error"]
        assert row["error_code"] == code
        assert finding in row["error_description"]
    else:
        assert wrong(row) == (None, None)
        assert marked(row["sent"]) == marked(row["changed"]) == case["columns"]


def test_a_table_with_the_greatest_ordinal_costs_neither_form_its_time() -> None:
    """Metadata says where the columns are, and metadata may be hostile."""
    version = Version({"id": "int", "name": TEXT}, ordinals={"name": 10_000})
    mask = b"\x01" + b"\0" * 1248 + b"\x80"
    stray = b"\x01" + b"\0" * 700 + b"\x10"
    messages = []
    for each in (mask, stray, b"\x01"):
        messages.append(version.dt("UPDATE", {"id": 1, "name": "x"}, columnMask=each))
        headers = header_values("UPDATE", columnMask=each.hex())
        messages.append(json_envelope("DT", {"data": {"id": "1", "name": "x"}, "headers": headers}))
    rows = rows_of([version.md()], messages, json_topics=["items"])
    assert [row["error_code"] for row in rows] == [None, None, "MASK_INVALID", "MASK_INVALID", None, None]
    assert [marked(row["sent"]) for row in rows] == [["id", "name"]] * 2 + [["id"]] * 4


MEGABYTE = 2**20


def test_a_mask_of_a_megabyte_is_read_in_no_time_and_costs_its_neighbours_nothing() -> None:
    row, texts = {"id": 1, "name": "x"}, {"id": "1", "name": "x"}
    zeros, stray = b"\x03" + b"\0" * MEGABYTE, b"\x03" + b"\0" * MEGABYTE + b"\x80"
    messages = [
        ITEMS.dt("UPDATE", row, columnMask=zeros, changeMask=zeros),
        ITEMS.dt("UPDATE", row, columnMask=stray),
        ITEMS.dt("UPDATE", row, changeMask=stray),
        ITEMS.dt("UPDATE", row, columnMask=b"\x01"),
        *(
            json_envelope("DT", {"data": texts, "headers": header_values("UPDATE", columnMask=mask.hex())})
            for mask in (zeros, stray, b"\x01")
        ),
    ]
    rows = rows_of([ITEMS.md()], messages, json_topics=["items"])
    bad = "MASK_INVALID"
    assert [row["error_code"] for row in rows] == [None, bad, bad, None, None, bad, None]
    assert [marked(row["sent"]) for row in rows] == [
        ["id", "name"],
        ["id", "name"],
        ["id", "name"],
        ["id"],
        ["id", "name"],
        ["id", "name"],
        ["id"],
    ]
    assert marked(rows[0]["changed"]) == ["id", "name"]


# --- what is wrong ------------------------------------------------------------------------------------------

OPEN = Version(
    {"id": "int", "name": TEXT},
    table="OPEN",
    headers=HEADERS | {"operation": TEXT, "timestamp": TEXT, "externalSchemaId": "string"},
    others={"loaded_by": "string"},
)
ROW = {"id": 1, "name": "x", "loaded_by": "task"}


def open_dt(operation: Any, data: Any = ROW, before: Any = None, **headers: Any) -> bytes:
    return OPEN.dt(operation, data, before, externalSchemaId="1001", **headers)


SOUND = OPEN.payload("INSERT", ROW, externalSchemaId="1001")
WRONG: dict[str, tuple[bytes, str, str]] = {
    "the payload is cut": (
        envelope("DT", SOUND[:-3], schema_id=OPEN.schema_id),
        "MESSAGE_UNREADABLE",
        "headers",
    ),
    "the payload is empty": (envelope("DT", b"", schema_id=OPEN.schema_id), "MESSAGE_UNREADABLE", "data"),
    "bytes after the payload": (
        envelope("DT", SOUND + b"\0\0", schema_id=OPEN.schema_id),
        "MESSAGE_UNREADABLE",
        "2 more bytes follow",
    ),
    "a name that claims 2^40 bytes": (
        envelope("DT", number(1) + number(1) + number(1) + number(2**40), schema_id=OPEN.schema_id),
        "MESSAGE_UNREADABLE",
        "1099511627776 bytes",
    ),
    "the payload of another table": (
        envelope("DT", ITEMS.payload("INSERT", {"id": 1, "name": "x"}), schema_id=OPEN.schema_id),
        "MESSAGE_UNREADABLE",
        "The data message does not decode with the schema of its id.",
    ),
    "an operation that is none": (open_dt("TRUNCATE"), "UNKNOWN_OPERATION", "It says: TRUNCATE"),
    "an operation in small letters": (open_dt("insert"), "UNKNOWN_OPERATION", "It says: insert"),
    "no operation": (open_dt(None), "UNKNOWN_OPERATION", "It says: nothing"),
    "an operation of a megabyte": (open_dt("X" * MEGABYTE), "UNKNOWN_OPERATION", "It says: XXX"),
    "a timestamp of words": (
        open_dt("INSERT", timestamp="yesterday"),
        "TIMESTAMP_INVALID",
        "It says: yesterday",
    ),
    "a day that no year has": (
        open_dt("INSERT", timestamp="2023-02-29T00:00:00"),
        "TIMESTAMP_INVALID",
        "It says: 2023-02-29",
    ),
    "a year that no calendar has": (
        open_dt("INSERT", timestamp="0000-01-01T00:00:00"),
        "TIMESTAMP_INVALID",
        "It says: 0000-01-01",
    ),
    "no row": (open_dt("INSERT", None), "NO_ROW", "Neither data nor beforeData holds a row."),
    "a delete without a row": (open_dt("DELETE", None), "NO_ROW", "Neither data nor beforeData holds a row."),
    "an update with nothing but the row before": (open_dt("UPDATE", None, ROW), "NO_ROW", ""),
    "a mask with a stray bit": (open_dt("UPDATE", columnMask=b"\x05"), "MASK_INVALID", "does not have"),
    "several things at once": (
        open_dt("TRUNCATE", None, timestamp="?", columnMask=b"\xff"),
        "UNKNOWN_OPERATION",
        "It says: TRUNCATE",
    ),
}
RIGHT: dict[str, tuple[bytes, datetime]] = {
    "plain": (open_dt("INSERT"), datetime(2024, 1, 1, 10)),
    "with the zone UTC": (
        open_dt("INSERT", timestamp="2024-01-01T10:00:00.5Z"),
        datetime(2024, 1, 1, 10, 0, 0, 500000),
    ),
    "with another zone": (open_dt("INSERT", timestamp="2024-01-01T10:00:00+02:00"), datetime(2024, 1, 1, 8)),
    "with a space": (open_dt("INSERT", timestamp="2024-01-01 10:00:00"), datetime(2024, 1, 1, 10)),
    "to the minute": (open_dt("INSERT", timestamp="2024-01-01T10:00"), datetime(2024, 1, 1, 10)),
    "a day": (open_dt("INSERT", timestamp="2024-01-01"), datetime(2024, 1, 1)),
    "with seven decimals": (
        open_dt("INSERT", timestamp="2024-01-01T10:00:00.1234567"),
        datetime(2024, 1, 1, 10, 0, 0, 123456),
    ),
    "with a mask without the key": (open_dt("UPDATE", columnMask=b"\x02"), datetime(2024, 1, 1, 10)),
    "with an empty mask": (open_dt("UPDATE", columnMask=b""), datetime(2024, 1, 1, 10)),
    "with application headers": (
        envelope("DT", SOUND, schema_id=OPEN.schema_id, headers={"app": "x"}),
        datetime(2024, 1, 1, 10),
    ),
}


def open_records() -> list[Row]:
    values = [OPEN.md(), *(value for value, _, _ in WRONG.values()), *(value for value, _ in RIGHT.values())]
    return numbered(values)


@pytest.fixture(scope="module")
def judged() -> dict[int, Row]:
    return read_home(open_records(), "OPEN")[1]


@pytest.mark.parametrize("name", WRONG)
def test_a_data_message_that_cannot_be_used_is_a_reject_with_its_bytes(
    judged: dict[int, Row], name: str
) -> None:
    value, code, finding = WRONG[name]
    offset = list(WRONG).index(name) + 1
    row = judged[offset]
    assert row["error_code"] == code
    assert finding in row["error_description"]
    assert len(row["error_description"]) < 500
    assert (row["key"], row["value"]) == (b"key %d" % offset, value)
    assert row["headers"] == [{"key": "trace", "value": b"%d" % offset}]


@pytest.mark.parametrize("name", RIGHT)
def test_a_timestamp_may_be_written_in_the_ways_of_iso_8601(judged: dict[int, Row], name: str) -> None:
    row = judged[len(WRONG) + 1 + list(RIGHT).index(name)]
    assert wrong(row) == (None, None)
    assert row["change_timestamp"] == RIGHT[name][1]


def test_a_field_that_is_no_column_of_the_source_is_always_sent_and_never_changed(
    judged: dict[int, Row],
) -> None:
    assert judged[len(WRONG) + 1]["sent"] == {"id": True, "name": True, "loaded_by": True}
    partial = judged[len(WRONG) + 1 + list(RIGHT).index("with a mask without the key")]
    assert partial["sent"] == {"id": False, "name": True, "loaded_by": True}


def test_partitions_and_order_change_no_row(spark: SparkSession, judged: dict[int, Row]) -> None:
    records = open_records()
    random.Random(5).shuffle(records)
    rows = by_offset(read(spark, records, partitions=3).rows("OPEN"))
    shared = list(next(iter(judged.values())))
    assert {offset: {name: row[name] for name in shared} for offset, row in rows.items()} == judged


def test_what_a_timestamp_is_read_as_does_not_hang_on_its_neighbours() -> None:
    texts = [
        "2024-01-01T10:00:00.123456",
        "2024-01-01T10:00:00.1",
        "2024-01-01",
        "2024-01-01T10",
        "2024-01-01 10:00",
        "20240101T100000",
        "0000-01-01",
        "0001-01-01",
        "9999-12-31T23:59:59.999999",
        "10000-01-01",
        "2024-01-01T24:00:00",
        "2024-02-30",
        "2024-01-01T10:00:60",
        " 2024-01-01",
        "2024-01-01T10:00:00 ",
        None,
        "",
    ]
    together, bad_together = parse_instants(pa.array([*texts, "neither"]))
    for place, text in enumerate(texts):
        alone, bad_alone = parse_instants(pa.array([text], pa.string()))
        assert (alone[0], bad_alone[0]) == (together[place], bad_together[place]), text


def test_a_table_without_a_key_has_no_key_that_could_be_missing() -> None:
    version = Version({"a": INT, "b": INT}, keys=())
    rows = rows_of([version.md()], [version.dt("UPDATE", {"a": None, "b": 2}, columnMask=b"\x02")])
    assert wrong(rows[0]) == (None, None)


# --- the JSON form ------------------------------------------------------------------------------------------

ORDERS = Version(
    {
        "id": "int",
        "note": TEXT,
        "total": ["null", DECIMAL],
        "at": ["null", MICROS],
        "day": ["null", DATE],
        "blob": ["null", "bytes"],
        "paid": ["null", "boolean"],
        "weight": ["null", "double"],
        "big": ["null", "long"],
    },
    table="ORDERS",
)
NOTHING = dict.fromkeys(ORDERS.columns)
FULL = {
    "id": "7",
    "note": "ä",
    "total": "12.50",
    "at": "2024-01-01T10:00:00.000001",
    "day": "2024-01-01",
    "blob": "FF00",
    "paid": "true",
    "weight": "0.25",
    "big": "9007199254740993",
}
TYPED = {
    "id": 7,
    "note": "ä",
    "total": Decimal("12.50"),
    "at": datetime(2024, 1, 1, 10, 0, 0, 1),
    "day": date(2024, 1, 1),
    "blob": b"\xff\x00",
    "paid": True,
    "weight": 0.25,
    "big": 9007199254740993,
}


def json_dt(data: Any, before: Any = None, operation: str = "UPDATE", **headers: Any) -> bytes:
    said = {"data": data, "beforeData": before, "headers": header_values(operation, **headers)}
    return json_envelope("DT", said)


JSON_ROWS: dict[str, tuple[bytes, Row]] = {
    "values are text": (json_dt(FULL), {"data": TYPED, "sent": list(FULL), "changed": None, "before": None}),
    "values are numbers and truth values": (
        json_envelope("DT", "MESSAGE").replace(
            b'"MESSAGE"',
            b'{"data":{"id":7,"total":12.50,"paid":true,"weight":0.25,"big":9007199254740993},"headers":'
            + json.dumps(header_values("INSERT")).encode()
            + b"}",
        ),
        {
            "data": NOTHING | {name: TYPED[name] for name in ("id", "total", "paid", "weight", "big")},
            "sent": ["id", "total", "paid", "weight", "big"],
            "operation": "INSERT",
        },
    ),
    "a column that is absent was not sent, one that is null was": (
        json_dt({"id": "7", "note": None}),
        {"data": NOTHING | {"id": 7}, "sent": ["id", "note"]},
    ),
    "a mask has the last word": (
        json_dt({"id": "7", "note": None, "big": "1"}, columnMask="03", changeMask="02"),
        {"data": NOTHING | {"id": 7, "big": 1}, "sent": ["id", "note"], "changed": ["note"]},
    ),
    "a mask of two bytes": (
        json_dt(FULL, columnMask="0101", changeMask="0001"),
        {"sent": ["id", "big"], "changed": ["big"]},
    ),
    "a mask in small letters": (json_dt(FULL, columnMask="0b"), {"sent": ["id", "note", "at"]}),
    "the row before": (
        json_dt({"id": "7"}, {"id": "6", "note": "old"}),
        {"before": NOTHING | {"id": 6, "note": "old"}},
    ),
    "a row before that leaves out the key, which did not change": (
        json_dt({"id": "7", "note": "new"}, {"note": "old"}),
        {"before": NOTHING | {"id": 7, "note": "old"}},
    ),
    "a row before that is empty": (json_dt({"id": "7", "note": "new"}, {}), {"before": NOTHING | {"id": 7}}),
    "a delete with the row in data": (
        json_dt({"id": "7"}, None, "DELETE"),
        {"data": NOTHING | {"id": 7}, "sent": ["id"], "before": None},
    ),
    "a delete with the row in beforeData": (
        json_dt(None, {"id": "7"}, "DELETE"),
        {"data": NOTHING | {"id": 7}, "sent": ["id"], "before": NOTHING | {"id": 7}},
    ),
    "names in other letters": (
        json_dt({"ID": "7", "Note": "x"}, {"Id": "6"}),
        {"data": NOTHING | {"id": 7, "note": "x"}, "sent": ["id", "note"], "before": NOTHING | {"id": 6}},
    ),
    "headers that are text": (
        json_dt({"id": "7"}, transactionEventCounter="3", transactionLastEvent="false"),
        {"transaction_event_counter": 3, "transaction_last_event": False},
    ),
    "a timestamp with a zone": (
        json_dt({"id": "7", "at": "2024-01-01 10:00:00-05:00"}, timestamp="2024-01-01T10:00:00+02:00"),
        {
            "change_timestamp": datetime(2024, 1, 1, 8),
            "data": NOTHING | {"id": 7, "at": datetime(2024, 1, 1, 15)},
        },
    ),
    "a timestamp to the minute, with a zone": (
        json_dt({"id": "7"}, timestamp="2024-01-01T10:00-0130"),
        {"change_timestamp": datetime(2024, 1, 1, 11, 30)},
    ),
    "the key is absent": (json_dt({"note": "x"}), {"data": NOTHING | {"note": "x"}, "sent": ["note"]}),
    "a mask without the key": (json_dt(FULL, columnMask="02"), {"sent": ["note"]}),
    "a row of a full load, which has no time": (
        json_dt({"id": "7"}, None, "REFRESH", changeSequence="", timestamp="", streamPosition=""),
        {"data": NOTHING | {"id": 7}, "time_taken_from": "record", "change_sequence": ""},
    ),
    "a change without a time": (
        json_dt({"id": "7"}, timestamp=None, changeSequence="2024020304050607" + "0" * 19),
        {"time_taken_from": "sequence", "change_timestamp": datetime(2024, 2, 3, 4, 5, 6, 70_000)},
    ),
    "a timestamp that is a day": (
        json_dt({"id": "7"}, timestamp="2024-01-01"),
        {"change_timestamp": datetime(2024, 1, 1)},
    ),
    "an id of a schema, which settles nothing": (
        json_dt({"id": "7"}).replace(
            b'"messageSchemaId": null', b'"messageSchemaId": "%s"' % ITEMS.schema_id.encode()
        ),
        {"data": NOTHING | {"id": 7}, "table": "ORDERS"},
    ),
}
JSON_WRONG: dict[str, tuple[bytes, str, str]] = {
    "no headers": (
        json_envelope("DT", {"data": {"id": "7"}}),
        "MESSAGE_UNREADABLE",
        "The message has no headers.",
    ),
    "headers that are text": (
        json_envelope("DT", {"data": {"id": "7"}, "headers": "x"}),
        "MESSAGE_UNREADABLE",
        "no headers",
    ),
    "an operation that is none": (
        json_dt({"id": "7"}, None, "UPSERT"),
        "UNKNOWN_OPERATION",
        "It says: UPSERT",
    ),
    "no operation": (json_dt({"id": "7"}, None, None), "UNKNOWN_OPERATION", "It says: nothing"),  # type: ignore[arg-type]
    "a timestamp of words": (json_dt({"id": "7"}, timestamp="now"), "TIMESTAMP_INVALID", "It says: now"),
    "a time without a day, which Spark would take for today's": (
        json_dt({"id": "7"}, timestamp="12:30:00"),
        "TIMESTAMP_INVALID",
        "It says: 12:30:00",
    ),
    "a year without a month": (json_dt({"id": "7"}, timestamp="2024"), "TIMESTAMP_INVALID", "It says: 2024"),
    "a year that no calendar has": (
        json_dt({"id": "7"}, timestamp="0000-01-01T00:00:00"),
        "TIMESTAMP_INVALID",
        "It says: 0000",
    ),
    "a field that is not known": (
        json_dt({"id": "7", "later": {"a": [1]}}),
        "COLUMN_UNKNOWN",
        "It says: later",
    ),
    "a field of the row before that is not known": (
        json_dt({"id": "7"}, {"id": "7", "b": "", "a": "1"}),
        "COLUMN_UNKNOWN",
        "It says: b, a",
    ),
    "a column twice, in other letters": (json_dt({"id": "7", "ID": "8"}), "COLUMN_UNKNOWN", "It says: id"),
    "no row": (json_dt(None), "NO_ROW", "Neither data nor beforeData"),
    "an update with nothing but the row before": (json_dt(None, {"id": "7"}), "NO_ROW", "Neither data"),
    "a row that is a list": (json_dt(["7"]), "NO_ROW", "Neither data nor beforeData"),
    "a counter that is a fraction": (
        json_dt({"id": "7"}, transactionEventCounter=1.5),
        "VALUE_INVALID",
        "transactionEventCounter: It says: 1.5",
    ),
    "a flag that is a word": (
        json_dt({"id": "7"}, transactionLastEvent="maybe"),
        "VALUE_INVALID",
        "transactionLastEvent: It says: maybe",
    ),
    "a mask of half a byte": (json_dt(FULL, columnMask="1"), "MASK_INVALID", "not hex text"),
    "a mask that is not hex": (json_dt(FULL, columnMask="0G"), "MASK_INVALID", "not hex text"),
    "a mask with a prefix": (json_dt(FULL, changeMask="0x03"), "MASK_INVALID", "not hex text"),
    "a mask with a stray bit": (json_dt(FULL, changeMask="0003"), "MASK_INVALID", "does not have"),
    "an int that is too large": (json_dt({"id": "2147483648"}), "VALUE_INVALID", "id: It says: 2147483648"),
    "an int that is a fraction": (json_dt({"id": "7.5"}), "VALUE_INVALID", "id: It says: 7.5"),
    "a decimal with too many digits": (
        json_dt({"id": "7", "total": "123456.78"}),
        "VALUE_INVALID",
        "total: It says: 123456.78",
    ),
    "a timestamp that is a time": (
        json_dt({"id": "7", "at": "10:00"}),
        "VALUE_INVALID",
        "at: It says: 10:00",
    ),
    "a date that no year has": (
        json_dt({"id": "7", "day": "2023-02-29"}),
        "VALUE_INVALID",
        "day: It says: 2023-02-29",
    ),
    "a date of the year 10000": (
        json_dt({"id": "7", "day": "+10000-01-01"}),
        "VALUE_INVALID",
        "day: It says: +10000-01-01",
    ),
    "a number of days, whose text is a year": (
        json_dt({"id": "7", "day": 8035}),
        "VALUE_INVALID",
        "day: It says: 8035",
    ),
    "an instant of the year 10000 in UTC": (
        json_dt({"id": "7", "at": "9999-12-31T23:30:00-01:00"}),
        "VALUE_INVALID",
        "at: It says: 9999-12-31T23:30:00-01:00",
    ),
    "such an instant of the change": (
        json_dt({"id": "7"}, timestamp="9999-12-31T23:30:00-01:00"),
        "TIMESTAMP_INVALID",
        "It says: 9999",
    ),
    "bytes that are not hex": (json_dt({"id": "7", "blob": "XY"}), "VALUE_INVALID", "blob: It says: XY"),
    "a value that is an object": (
        json_dt({"id": "7", "big": {"a": 1}}),
        "VALUE_INVALID",
        'big: It says: {"a":1}',
    ),
    "a value of the row before": (json_dt({"id": "7"}, {"id": "x"}), "VALUE_INVALID", "id: It says: x"),
}


def orders_records() -> list[Row]:
    told = [*(value for value, _ in JSON_ROWS.values()), *(value for value, _, _ in JSON_WRONG.values())]
    passed_over = [
        ORDERS.dt("INSERT", NOTHING | {"id": 99}),
        json_envelope("MD", ORDERS.metadata()),
        b'{"magic":"atMSG","type":"DT"}',
    ]
    records = numbered([ORDERS.md(), *told, *passed_over], topic="orders")
    return [*records, record(json_dt({"id": "7"}), len(records), topic="other"), record(ITEMS.md(), 9999)]


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> Reading:
    return read(spark, orders_records())


@pytest.fixture(scope="module")
def ordered() -> dict[int, Row]:
    return read_home(orders_records(), "ORDERS", json_topics=["orders"])[1]


@pytest.mark.parametrize("name", JSON_ROWS)
def test_a_message_in_json_form(ordered: dict[int, Row], name: str) -> None:
    row, expected = ordered[1 + list(JSON_ROWS).index(name)], JSON_ROWS[name][1]
    assert wrong(row) == (None, None)
    found = {key: row[key] for key in expected}
    found |= {key: marked(row[key]) for key in ("sent", "changed") if key in expected}
    assert found == expected
    assert (row["table_version"], row["schema_id"]) == (1, ORDERS.schema_id)
    # As in Avro form: what does not say its key will be a reject of `changes`.
    assert (row["value"] is None) == row["sent"]["id"]


@pytest.mark.parametrize("name", JSON_WRONG)
def test_a_message_in_json_form_that_cannot_be_used_is_a_reject_with_its_bytes(
    ordered: dict[int, Row], name: str
) -> None:
    value, code, finding = JSON_WRONG[name]
    offset = 1 + len(JSON_ROWS) + list(JSON_WRONG).index(name)
    row = ordered[offset]
    assert row["error_code"] == code
    assert finding in row["error_description"]
    assert (row["key"], row["value"]) == (b"key %d" % offset, value)
    assert row["headers"] == [{"key": "trace", "value": b"%d" % offset}]


def test_the_rows_of_a_table_are_those_of_its_ids_and_of_its_json_topics(ordered: dict[int, Row]) -> None:
    in_json = len(JSON_ROWS) + len(JSON_WRONG)
    assert sorted(ordered) == [*range(1, in_json + 2)]
    assert ordered[in_json + 1]["data"] == NOTHING | {"id": 99}


def test_without_json_topics_there_are_no_messages_in_json_form(orders: Reading) -> None:
    assert sorted(by_offset(orders.rows("ORDERS"))) == [1 + len(JSON_ROWS) + len(JSON_WRONG)]


def test_by_spark_the_rows_are_the_same(orders: Reading, ordered: dict[int, Row]) -> None:
    rows = by_offset(orders.rows("ORDERS", ["orders"]))
    assert {offset: {name: row[name] for name in ordered[offset]} for offset, row in rows.items()} == ordered


@pytest.mark.usefixtures("in_new_york")
def test_instants_are_in_utc_whatever_the_zone_of_the_session(orders: Reading) -> None:
    rows = orders.rows("ORDERS", ["orders"]).where("offset = 1")
    found = rows.select(F.unix_micros("change_timestamp"), F.unix_micros("data.at")).first()
    ten = int(datetime(2024, 1, 1, 10, tzinfo=UTC).timestamp()) * 1_000_000
    assert tuple(found or ()) == (ten, ten + 1)


# --- callers ------------------------------------------------------------------------------------------------


def test_a_zone_of_several_tables_or_of_none_is_refused_at_the_call(orders: Reading) -> None:
    several = (
        "data() needs zone to be the schema zone of one table"
        " (filter it by server, task, schema and table); it is "
    )
    with pytest.raises(InvalidArgument) as refused:
        replicate.data(orders.records, orders.zone)
    assert str(refused.value) == several + "'db1/shop_task SHOP.ITEMS, db1/shop_task SHOP.ORDERS'."
    with pytest.raises(InvalidArgument) as refused:
        replicate.data(orders.records, orders.zone.where("false"))
    assert str(refused.value) == several + "'none'."


def test_one_table_of_two_tasks_is_two_tables(spark: SparkSession) -> None:
    other = replace(ITEMS, task="b")
    reading = read(spark, numbered([ITEMS.md(), other.md()]))
    with pytest.raises(InvalidArgument, match=r"it is 'db1/b SHOP.ITEMS, db1/shop_task SHOP.ITEMS'"):
        reading.rows()


def test_wrong_tables_are_refused_at_the_call(orders: Reading) -> None:
    with pytest.raises(MissingColumns, match=r"data\(\) needs the columns value; the DataFrame has key"):
        replicate.data(orders.records.drop("value"), orders.zone)
    with pytest.raises(WrongColumnType, match=r"data\(\) needs the column offset as bigint; it is string"):
        replicate.data(orders.records.withColumn("offset", F.lit("1")), orders.zone)
    with pytest.raises(MissingColumns, match=r"data\(\) needs the columns data_schema"):
        replicate.data(orders.records, orders.zone.drop("data_schema"))


def test_no_records_give_no_rows(spark: SparkSession, conversation: Reading) -> None:
    rows = replicate.data(to_dataframe(spark, []), conversation.zone)
    assert rows.collect() == []
    assert rows.schema["data"].dataType.simpleString() == "struct<ID:int,NAME:string,tableName:string>"


def test_keys_of_the_callers_are_keys_of_a_message_in_json_form_and_keep_the_bytes_of_rejects() -> None:
    """A column of the key that beforeData leaves out did not change; one that is not sent is missed."""
    table = Version({"id": "int", "name": TEXT, "code": TEXT})
    row = {"id": 1, "name": "n", "code": "c"}
    values = [
        table.md(),
        json_dt({"id": 1, "name": {"p": 1.5, "q": []}, "code": "c"}, {"id": 1}),
        table.dt("UPDATE", row, columnMask=b"\x03"),
        table.dt("UPDATE", row, changeMask=b"\x04"),
        table.dt("UPDATE", row, row, changeMask=b"\x04"),
        table.dt("INSERT", row, changeMask=b"\x07"),
    ]
    for keys, before, kept in (((), None, []), (("code",), "c", [2, 3]), (("gone",), None, [1, 2, 3, 4, 5])):
        records = [record(value, at, topic="json" if at == 1 else "avro") for at, value in enumerate(values)]
        _, rows = read_home(records, json_topics=["json"], keys=keys)
        assert rows[1]["before"] == {"id": 1, "name": None, "code": before}
        assert rows[1]["data"]["name"] == '{"p":1.5,"q":[]}'
        assert sorted(at for at, read_row in rows.items() if read_row["value"] is not None) == kept


def test_a_key_that_the_mask_marks_is_said_by_before_or_unsaid() -> None:
    """In both forms; what the mask does not mark did not change, and without one before says what did."""
    table = Version({"id": ["null", "int"], "name": TEXT}, keys=("id",))
    row, old, silent = {"id": 2, "name": "x"}, {"id": 1, "name": "w"}, {"id": None, "name": "w"}
    values = [
        table.md(),
        *(json_dt(row, {"name": "w"}, changeMask=mask) for mask in ("03", "02", None)),
        json_dt(row, silent),
        *(table.dt("UPDATE", row, silent, changeMask=mask) for mask in (b"\x03", b"\x02", None)),
        table.dt("UPDATE", row, old, changeMask=b"\x03"),
        table.dt("UPDATE", silent, silent, changeMask=b"\x03"),
        table.dt("UPDATE", silent, changeMask=b"\x03"),
    ]
    records = [record(value, at, topic="json" if at < 5 else "avro") for at, value in enumerate(values)]
    _, rows = read_home(records, json_topics=["json"])
    keys = {at: read_row["before"] and read_row["before"]["id"] for at, read_row in rows.items()}
    assert keys == {1: None, 2: 2, 3: 2, 4: None, 5: None, 6: 2, 7: None, 8: 1, 9: None, 10: None}
    assert sorted(at for at, read_row in rows.items() if read_row["value"] is not None) == [1, 5, 10]


def test_a_row_that_does_not_say_the_key_of_a_newer_version_keeps_its_bytes() -> None:
    """The column was there before it came into the key; a version that never had it says all of its key."""
    fields: dict[str, Any] = {"id": "int", "site": TEXT, "name": TEXT}
    first = Version(fields, keys=("id",))
    second = Version(fields | {"more": TEXT}, keys=("id", "site"), number=2)
    row = dict.fromkeys(fields | {"more": TEXT}) | {"id": 1}
    values = [
        first.md(),
        second.md(),
        first.dt("UPDATE", row, columnMask=b"\x05"),
        first.dt("UPDATE", row, columnMask=b"\x03"),
        second.dt("UPDATE", row, columnMask=b"\x05"),
    ]
    _, rows = read_home(numbered(values))
    assert sorted(at for at, read_row in rows.items() if read_row["value"] is not None) == [2, 4]
