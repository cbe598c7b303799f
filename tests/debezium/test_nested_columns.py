"""Arrays, maps and structs of Connect schemas are typed: one row in three encodings is one row."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from cdckit import debezium, merge
from cdckit.debezium.table_changes import table_plan
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from cdckit.parts.arrow_types import spark_type
from support.database_events import batch, changes, types

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"


def coded(unscaled: int) -> str:
    """The bytes of Connect's decimals, as its JSON writes them."""
    size = max(1, (unscaled.bit_length() + 8) // 8)
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


# As Kafka Connect's JsonConverter writes schemas, and Confluent's AvroConverter the same ones.
MONEY = {
    "type": "bytes",
    "optional": True,
    "name": DECIMAL,
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "12"},
}
DAY = {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1}
LOOSE = {
    "type": "struct",
    "fields": [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ],
    "optional": True,
    "name": VARIABLE,
    "version": 1,
    "doc": "Variable scaled decimal",
}
POINT = {
    "type": "struct",
    "fields": [
        # So the converter names what Connect calls float64.
        {"type": "double", "optional": False, "field": "x"},
        {"type": "double", "optional": False, "field": "y"},
        {"type": "bytes", "optional": True, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "optional": True,
    "name": "io.debezium.data.geometry.Point",
    "version": 1,
    "doc": "Geometry (POINT)",
}
LINE = {
    "type": "struct",
    "fields": [
        {"type": "string", "optional": True, "field": "sku"},
        MONEY | {"field": "price"},
        {"type": "map", "keys": {"type": "string"}, "values": MONEY, "optional": True, "field": "taxes"},
    ],
    "optional": True,
    "name": "shop.Line",
}
STATE = {"type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1}
FIELDS: dict[str, dict[str, Any]] = {
    "id": {"type": "int32", "optional": False},
    "prices": {"type": "array", "items": MONEY, "optional": True},
    "loose": {"type": "array", "items": LOOSE, "optional": True},
    "loosest": LOOSE,
    "days": {"type": "array", "items": DAY, "optional": True},
    "tags": {"type": "array", "items": {"type": "string", "optional": True}, "optional": True},
    "states": {"type": "array", "items": STATE, "optional": True},
    "place": POINT,
    "home": POINT,
    "fees": {"type": "map", "keys": {"type": "string"}, "values": MONEY, "optional": True},
    "lines": {"type": "array", "items": LINE, "optional": True},
}
POINTS = "struct<x: float64, y: float64, wkb: bytes, srid: int32>"
NAMES = {
    "id": "int32",
    "prices": f"array<{DECIMAL}(12,2)>",
    "loose": f"array<{VARIABLE}>",
    "loosest": VARIABLE,
    "days": "array<io.debezium.time.Date>",
    "tags": "array<string>",
    "states": "array<io.debezium.data.Enum>",
    "place": POINTS,
    "home": POINTS,
    "fees": f"map<string, {DECIMAL}(12,2)>",
    "lines": f"array<struct<sku: string, price: {DECIMAL}(12,2), taxes: map<string, {DECIMAL}(12,2)>>>",
}

SENT: list[dict[str, Any]] = [
    {
        "id": 1,
        "prices": [1990, None, -1],
        "loose": [(2, 1250), (0, 7), None],
        "loosest": (3, 1234567890123456789012),
        "days": [19783, None],
        "tags": ["a, b", None, "1.50", ""],
        "states": ["open"],
        "place": {"x": 1.5, "y": -2.0, "wkb": b"wkb", "srid": None},
        "home": {"x": 0.1, "y": 1e22, "wkb": None, "srid": 4326},
        "fees": {"vat": 123456789012, "none": None},
        "lines": [
            {"sku": "k", "price": 1990, "taxes": {"vat": 378}},
            {"sku": None, "price": None, "taxes": None},
        ],
    },
    {"id": 2, "prices": [], "fees": {}, "lines": []},
]  # fmt: skip
READ: list[dict[str, Any]] = [
    {
        "id": 1,
        "prices": [Decimal("19.90"), None, Decimal("-0.01")],
        "loose": ["12.50", "7", None],
        "loosest": "1234567890123456789.012",
        "days": [date(2024, 3, 1), None],
        "tags": ["a, b", None, "1.50", ""],
        "states": ["open"],
        "place": Row(x=1.5, y=-2.0, wkb=bytearray(b"wkb"), srid=None),
        "home": Row(x=0.1, y=1e22, wkb=None, srid=4326),
        "fees": {"vat": Decimal("1234567890.12"), "none": None},
        "lines": [
            Row(sku="k", price=Decimal("19.90"), taxes={"vat": Decimal("3.78")}),
            Row(sku=None, price=None, taxes=None),
        ],
    },
    {**dict.fromkeys(NAMES), "id": 2, "prices": [], "fees": {}, "lines": []},
]
SOURCE = {"connector": "postgresql", "name": "shop", "table": "t", "ts_ms": 1709294400000, "db": "shop"}


def in_json(schema: dict[str, Any], value: Any, *, numeric: bool = False) -> Any:
    """The value as the JsonConverter writes it, with decimals in Base64 or as numbers."""
    if value is None:
        return None
    if schema.get("name") == VARIABLE:
        return {"scale": value[0], "value": coded(value[1])}
    if schema.get("name") == DECIMAL:
        return Number(f"{Decimal(value).scaleb(-2):f}") if numeric else coded(value)
    if schema["type"] == "array":
        return [in_json(schema["items"], each, numeric=numeric) for each in value]
    if schema["type"] == "map":
        return {name: in_json(schema["values"], each, numeric=numeric) for name, each in value.items()}
    if schema["type"] == "struct":
        return {
            each["field"]: in_json(each, value[each["field"]], numeric=numeric) for each in schema["fields"]
        }
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


class Number(float):
    """A number that is written with the digits that it is made of."""

    def __new__(cls, text: str) -> Number:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


def row_of(sent: dict[str, Any], *, numeric: bool = False) -> dict[str, Any]:
    return {name: in_json(schema, sent.get(name), numeric=numeric) for name, schema in FIELDS.items()}


def of(spark: SparkSession, *values: Any) -> DataFrame:
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    rows = [(None, text, "t", 0, place, None, 0, None) for place, text in enumerate(texts)]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def event(row: dict[str, Any]) -> dict[str, Any]:
    return {"after": row, "source": SOURCE, "op": "c", "ts_ms": 1709294400000}


def beside_schema(row: dict[str, Any], fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    images = [{"type": "struct", "field": "after", "fields": [s | {"field": n} for n, s in fields.items()]}]
    return {"schema": {"type": "struct", "fields": images}, "payload": event(row)}


def in_avro(schema: dict[str, Any], known: set[str]) -> Any:
    """The schema as the AvroConverter writes it: a record is spelled out once and then named."""
    kind = {"int32": "int"}.get(schema["type"], schema["type"])
    said: Any
    if kind == "array":
        said = {"type": "array", "items": in_avro(schema["items"], known)}
    elif kind == "map":
        said = {"type": "map", "values": in_avro(schema["values"], known)}
    elif kind == "struct":
        space, _, name = schema["name"].rpartition(".")
        if schema["name"] in known:
            said = schema["name"]
        else:
            known.add(schema["name"])
            fields = [{"name": each["field"], "type": in_avro(each, known)} for each in schema["fields"]]
            said = {"type": "record", "name": name, "namespace": space, "fields": fields}
            said["connect.name"] = schema["name"]
    elif "name" in schema:
        said = {"type": kind, "connect.name": schema["name"], "connect.version": 1}
        if schema["name"] == DECIMAL:
            said |= {"logicalType": "decimal", "precision": 12, "scale": 2}
            said["connect.parameters"] = schema["parameters"]
    else:
        said = kind
    return ["null", said] if schema.get("optional") else said


def for_avro(schema: dict[str, Any], value: Any) -> Any:
    if value is None:
        return None
    if schema.get("name") == VARIABLE:
        return {"scale": value[0], "value": base64.b64decode(coded(value[1]))}
    if schema.get("name") == DECIMAL:
        return Decimal(value).scaleb(-2)
    if schema["type"] == "array":
        return [for_avro(schema["items"], each) for each in value]
    if schema["type"] == "map":
        return {name: for_avro(schema["values"], each) for name, each in value.items()}
    if schema["type"] == "struct":
        return {each["field"]: for_avro(each, value[each["field"]]) for each in schema["fields"]}
    return value


def avro(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    known: set[str] = set()
    value = {
        "type": "record",
        "name": "Value",
        "namespace": "shop.t",
        "fields": [{"name": name, "type": in_avro(schema, known)} for name, schema in FIELDS.items()],
    }
    source = [{"name": name, "type": "long" if name == "ts_ms" else "string"} for name in SOURCE]
    fields = [
        {"name": "before", "type": ["null", value]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": "long"},
    ]
    schema = {"type": "record", "name": "Envelope", "namespace": "shop.t", "fields": fields}
    values = []
    for sent in rows:
        row = {name: for_avro(each, sent.get(name)) for name, each in FIELDS.items()}
        stream = io.BytesIO()
        fastavro.schemaless_writer(
            stream, fastavro.parse_schema(json.loads(json.dumps(schema))), event(row) | {"before": None}
        )
        values.append(b"\0\0\0\0\1" + stream.getvalue())
    return debezium.decode_avro(of(spark, *values), {1: json.dumps(schema)})


def json_rows(
    spark: SparkSession, rows: Sequence[dict[str, Any]], *, schemas: bool, numeric: bool
) -> DataFrame:
    sent = [row_of(each, numeric=numeric) for each in rows]
    return debezium.decode(
        of(spark, *(beside_schema(each, FIELDS) if schemas else event(each) for each in sent))
    ).localCheckpoint()


ENCODINGS: dict[str, Callable[[SparkSession, Sequence[dict[str, Any]]], DataFrame]] = {
    "JSON with schemas": partial(json_rows, schemas=True, numeric=False),
    "JSON with schemas, decimals as numbers": partial(json_rows, schemas=True, numeric=True),
    "Avro": avro,
    "JSON without schemas": partial(json_rows, schemas=False, numeric=False),
    "JSON without schemas, decimals as numbers": partial(json_rows, schemas=False, numeric=True),
}


def with_ids(rows: Sequence[dict[str, Any]], encoding: str) -> list[dict[str, Any]]:
    """The rows as those of one encoding, so that rows of all encodings are in one table."""
    first = 10 * list(ENCODINGS).index(encoding)
    return [each | {"id": first + each["id"]} for each in rows]


@pytest.mark.parametrize("says_types", [True, False], ids=["types in the events", "types in the call"])
def test_one_row_in_every_encoding_is_one_row(spark: SparkSession, says_types: bool) -> None:
    """All encodings are one table: to plan nested columns takes ten times as long as to read them."""
    encodings = [each for each in ENCODINGS if ("without" not in each) == says_types]
    decoded = [ENCODINGS[each](spark, with_ids(SENT, each)) for each in encodings]
    if says_types:
        names = {name: (said,) for name, said in NAMES.items()}
        assert [debezium.columns(each, "t") for each in decoded] == [names] * 3
    together = reduce(DataFrame.unionByName, decoded).localCheckpoint()
    told = debezium.changes(together, "t", keys=["id"], columns=None if says_types else NAMES)
    kept = told.localCheckpoint()
    expected = [row for each in encodings for row in with_ids(READ, each)]
    assert [row["data"].asDict() for row in kept.orderBy("data.id").collect()] == expected
    history = merge(kept, entity="t", keys=["id"]).select(*NAMES).orderBy("id")
    assert [row.asDict() for row in history.collect()] == expected


def test_digits_within_arrays_and_maps_are_all_read() -> None:
    """As numbers, by the form of each token: four digits are Base64, too."""
    after = (
        '{"id": 1, "a": [12345678901234567.89, 1234, "AMc=", "1234", 1E+3],'
        ' "b": {"x": 0.1000000000000000001}, "c": [[1.10, 2]],'
        ' "d": {"e": 1234, "f": "1234", "g": [19.900000000000000001]}}'
    )
    value = f'{{"after": {after}, "source": {{"connector": "mysql", "table": "t"}}, "op": "c", "ts_ms": 1}}'
    columns = {
        "id": "int32",
        "a": f"array<{DECIMAL}(30,2)>",
        "b": "map<string,decimal(38,19)>",
        "c": "array<array<string>>",
        "d": f"struct<e: {DECIMAL}(10,0), f: {DECIMAL}(10,0), g: array<decimal(20,18)>>",
    }
    [change] = changes(batch([value]), ["id"], columns)
    base64_of_1234 = int.from_bytes(bytes([0xD7, 0x6D, 0xF8]), signed=True)
    a = ["12345678901234567.89", "1234.00", "1.99", Decimal(base64_of_1234).scaleb(-2), "1000.00"]
    assert change["data"] == {
        "id": 1,
        "a": [Decimal(each) for each in a],
        "b": [("x", Decimal("0.1000000000000000001"))],
        "c": [["1.10", "2"]],
        "d": {"e": Decimal(1234), "f": Decimal(base64_of_1234), "g": [Decimal("19.900000000000000001")]},
    }


def test_a_part_that_cannot_be_read_costs_its_column() -> None:
    """Null with a fault, or the row; never a shorter list."""
    columns = {
        "id": "int32",
        "a": "array<int32>",
        "b": "map<string, int32>",
        "c": "struct<x: int32, y: array<io.debezium.time.Date>>",
    }
    rows: list[dict[str, Any]] = [
        {"id": 1, "a": [1, "x"], "b": {"k": 1}, "c": {"x": 1, "y": [1]}},
        {"id": 2, "a": [1], "b": {"k": "x"}, "c": {"x": 1, "y": ["x"]}},
        {"id": 3, "a": {"k": 1}, "b": [1], "c": 7},
        {"id": 4, "a": [[1]], "b": {"k": None}, "c": {"y": None, "z": "unknown"}},
        {"id": 5, "a": None, "b": None, "c": None},
    ]
    records = batch([event(row) for row in rows])
    told = changes(records, ["id"], columns, reject=False)
    day = date(1970, 1, 2)
    assert [(*change["data"].values(), change["faults"]) for change in told] == [
        (1, None, [("k", 1)], {"x": 1, "y": [day]}, ['a: [1,"x"]']),
        (2, [1], None, None, ['b: {"k":"x"}', 'c: {"x":1,"y":["x"]}']),
        (3, None, None, None, ['a: {"k":1}', "b: [1]", "c: 7"]),
        (4, None, [("k", None)], {"x": None, "y": None}, ["a: [[1]]"]),
        (5, None, None, None, None),
    ]
    [left] = [change["data"] for change in changes(records, ["id"], columns) if change["reject"] is None]
    assert left["id"] == 5


def test_a_list_that_did_not_change_was_not_sent() -> None:
    """The placeholder is a list, too."""
    absent = "__debezium_unavailable_value"
    coded = base64.b64encode(absent.encode()).decode()
    row = {"id": 1, "a": [absent], "b": [coded], "c": list(absent.encode())}
    # One number for each of its letters, as an open change of Debezium (dbz#2418) sends of these types.
    row |= {
        "d": [float(byte) for byte in absent.encode()],
        "e": [in_json(MONEY, byte) for byte in absent.encode()],
    }
    columns = {"id": "int32", "a": "array<string>", "b": f"array<{DECIMAL}(4,2)>", "c": "array<int32>"}
    columns |= {"d": "array<float64>", "e": f"array<{DECIMAL}(4,0)>"}
    [change] = changes(batch([event(row)]), ["id"], columns)
    assert change["data"] == {"id": 1} | dict.fromkeys("abcde")
    assert change["carried"] == {"id": True} | dict.fromkeys("abcde", False)


def test_a_column_whose_array_was_altered_is_read_as_each_event_says() -> None:
    """Two schemas that mean one type; of types that have none in common, text is the way."""
    micros = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    millis = {"type": "int64", "name": "io.debezium.time.Timestamp"}
    key = {"id": {"type": "int32"}}

    def sent(number: int, value: Any, items: dict[str, Any]) -> dict[str, Any]:
        return beside_schema({"id": number, "a": [value]}, key | {"a": {"type": "array", "items": items}})

    both = [sent(1, 1_000_000, micros), sent(2, 1_000, millis)]
    found = types(batch(both))
    assert len(found["a"]) == 2
    instants = [change["data"]["a"][0].timestamp() for change in changes(batch(both), ["id"], found)]
    assert instants == [1, 1]
    with pytest.raises(InvalidArgument, match="as columns names them"):
        table_plan("t", ["id"], found | {"a": tuple(f"array<{each['name']}>" for each in (micros, millis))})
    other = batch([*both, sent(3, "x", {"type": "string"})])
    with pytest.raises(InvalidArgument, match="types that have one in common"):
        table_plan("t", ["id"], types(other))
    told = changes(other, ["id"], {"id": "int32", "a": "string"})
    assert [change["data"]["a"] for change in told] == ["[1000000]", "[1000]", '["x"]']


NESTED_TYPES = {
    "array<map<string,int32>>": "array<map<string,int>>",
    "ARRAY< Decimal(10,2) >": "array<decimal(10,2)>",
    "array<decimal(10,2)>": "array<decimal(10,2)>",
    f"array<{DECIMAL}(10,2)>": "array<decimal(10,2)>",
    "struct<`a, b`: int32, c:timestamp without time zone>": "struct<a, b:int,c:timestamp>",
    "struct<a int, b: array<string>>": "struct<a:int,b:array<string>>",
    "array<numeric(8,2)>": "array<decimal(8,2)>",
    # Of these the text is kept as it was sent.
    "map<int16, float64>": "string",
    "struct<>": "string",
    "struct<a: int32, A: int32>": "string",
    "io.debezium.data.geometry.Point": "string",
}


def test_a_nested_type_is_named_by_its_parts() -> None:
    """Of each name there is a column."""
    columns = {f"c{place}": (said,) for place, said in enumerate(NESTED_TYPES)}
    plan = table_plan("t", ["c0"], columns)
    found = [spark_type(field.type).simpleString() for field in plan.data_type]
    assert dict(zip(NESTED_TYPES, found, strict=True)) == NESTED_TYPES


@pytest.mark.parametrize(
    "said",
    [
        "array<",
        "array<nothing>",
        "map<string>",
        "struct<a>",
        "{}",
        '{"type": 1}',
        DECIMAL,
        f"array<{DECIMAL}>",
    ],
)
def test_a_type_that_is_none_is_refused(said: str) -> None:
    """So is a decimal of Connect without its scale: its bytes alone do not say where the point is."""
    with pytest.raises(InvalidArgument, match="the name of a type"):
        table_plan("t", ["id"], {"id": ("int32",), "a": (said,)})
