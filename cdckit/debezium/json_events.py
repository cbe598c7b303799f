"""Debezium's events in JSON, with and without the schema beside the payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.column_types import VARIABLE
from cdckit.debezium.encodings import read_json, read_quickly
from cdckit.debezium.events import (
    DELETE,
    MESSAGE,
    OF_ROWS,
    SOURCE_FIELDS,
    TEXTS,
    TRUNCATE,
    EventFault,
    Kind,
    error_columns,
    header,
    position,
    time_columns,
    with_events,
    without_schema,
)
from cdckit.parts.arguments import flat_columns
from cdckit.records import require_records

MONGODB = "mongodb"
_ID = "_id"


def document_fields(text: Column, connector: Column, row_key: Column) -> Column:
    """
    The document of an event, field by field; null for another connector.

    Its `_id` is what the record's key says, where there is one: the two write it by different rules, such as
    `{"$numberLong": "7"}` and `7`, and a delete has the key alone.
    """
    inner = F.coalesce(F.get_json_object(text, "$.payload.after"), F.get_json_object(text, "$.after"))
    known = document_key(row_key)[_ID]
    fields = F.transform_values(
        F.from_json(inner, TEXTS.simpleString()),
        lambda name, value: F.when(name == _ID, F.coalesce(known, value)).otherwise(value),
    )
    return F.when(connector == MONGODB, fields)


def document_key(row_key: Column) -> Column:
    """The key `{"id": "…"}` of a document, whose value is JSON text, under the name that documents have."""
    named = F.concat(F.lit(f'{{"{_ID}":'), row_key["id"], F.lit("}"))
    return F.from_json(named, TEXTS.simpleString())


_NUMBERS = ("ts_ms", "ts_us", "ts_ns", "lsn", "pos", "row", "ord")
"""What every connector writes as a number: Spark's reader is slow to make a text of one."""
_TIMES = ("ts_ms", "ts_us", "ts_ns")
"""All that a heartbeat says."""


def _text_fields(*names: str) -> list[T.StructField]:
    return [T.StructField(name, T.LongType() if name in _NUMBERS else T.StringType()) for name in names]


SOURCE = T.StructType(
    _text_fields(
        *("connector", "name", "snapshot", "db", "schema", "table", "collection", "txId", "gtid"),
        *("ts_us", "ts_ns", *SOURCE_FIELDS),
    )
)
ENVELOPE = [
    *_text_fields("op", "ts_ms", "ts_us", "ts_ns"),
    *(T.StructField(name, TEXTS) for name in ("before", "after")),
    T.StructField("source", SOURCE),
    T.StructField("transaction", T.StructType([T.StructField("id", T.StringType())])),
    # Of what is not about a row: transactions, changes of a schema.
    *_text_fields("status", "id", "databaseName", "schemaName", "ddl"),
]
"""What is read of an event's envelope."""

FOUND = "found"
_VALUE_READ = "value read"

_COLUMN = T.StructType(
    [
        *flat_columns("type string, field string, name string"),
        T.StructField("parameters", TEXTS),
        *flat_columns("items string, keys string, values string, fields string"),
    ]
)
_IMAGE = T.StructType([*flat_columns("field string"), T.StructField("fields", T.ArrayType(_COLUMN))])
_SCHEMA = T.StructType([T.StructField("fields", T.ArrayType(_IMAGE))])
_VALUE = T.StructType(
    [
        *ENVELOPE,
        T.StructField("payload", T.StructType(ENVELOPE)),
        T.StructField("schema", _SCHEMA),
    ]
)
_NOTHING = r'^\s*\{\s*"schema"\s*:\s*null\s*,\s*"payload"\s*:\s*null\s*\}\s*$'


def json_events(records: DataFrame) -> DataFrame:
    """The events of *records* that are JSON, or are no events at all: every record has its row."""
    # To look for fractions with more digits would cost a fifth: `with_digits` does, where types ask for them.
    read = parse_object(records, _VALUE, exact=False)
    text, is_read = text_of_value(), F.col(_VALUE_READ).isNotNull()
    unread = [(EventFault.NOT_JSON, ~is_read & ~_is_nothing(text), text)]
    envelope = _envelope(F.col(_VALUE_READ))
    told = read.withColumnRenamed(FOUND, _VALUE_READ).withColumn(FOUND, envelope)
    return envelopes(told, Producer("json", text, is_read, json_types(), json_key(), unread))


def _envelope(value: Column) -> Column:
    """What is read of an envelope, and the schema: beside a schema the envelope is the payload."""
    # A struct that is never null: of such a one Spark makes the fields alone that are asked for.
    payload = value["payload"]
    fields = {field.name: F.coalesce(payload[field.name], value[field.name]) for field in ENVELOPE}
    document = document_fields(text_of_value(), fields["source"]["connector"], json_key())
    fields |= {"after": F.coalesce(fields["after"], document), "schema": value["schema"]}
    return F.struct(*(field.alias(name) for name, field in fields.items()))


def parse_object(records: DataFrame, kind: T.StructType, *, exact: bool = True) -> DataFrame:
    """
    The records, with `found`: the one JSON object that their value is; null for all else.

    Where *exact*, numbers keep their digits (see `read_json`).

    Spark's reader ends with the first value of a text; as an element of a list, it must end where the text
    does.  Nesting deeper than a thousand is refused by the reader itself.

    Spark puts what a column is made of wherever a filter reads it, and would read the text there anew.  It
    does not for what is exploded; and filters that do not read it go on to the records, and to their files.
    """
    listed = (read_json if exact else read_quickly)(text_of_value(), T.ArrayType(kind), chosen=_wrap_in_list)
    # As a list of lists, since a function that is given each list reads it once.
    only = F.filter(F.array(listed), lambda found: F.size(found) == 1)
    return records.withColumn(FOUND, F.explode_outer(F.flatten(only)))


def text_of_value() -> Column:
    """The value as text; null where it is none."""
    return F.try_validate_utf8(F.col("value").cast("string"))


def _wrap_in_list(text: Column) -> Column:
    return F.concat(F.lit("["), text, F.lit("]"))


class Producer(NamedTuple):
    """
    What differs by the form of events.

    Its name, the value as text, whether it was read, the columns' types, the key's columns, what is wrong.
    """

    form: str
    text: Column
    is_read: Column
    types: Column
    row_key: Column
    refused: Sequence[tuple[EventFault, Column, Column]]


def envelopes(read: DataFrame, producer: Producer) -> DataFrame:
    """The events of records, whose envelopes are in `found`: null, or all null, where there is none."""
    told = F.col(FOUND)
    source, operation, text = told["source"], told["op"], producer.text
    kind, is_document = _kind(text), source["connector"] == MONGODB
    is_row = kind == Kind.ROW
    columns = {
        "form": F.when(producer.is_read, producer.form),
        "kind": kind,
        "connector": source["connector"],
        "source": source["name"],
        "db": F.coalesce(source["db"], told["databaseName"]),
        "schema": F.coalesce(source["schema"], told["schemaName"]),
        "table": _not_empty(F.coalesce(source["table"], source["collection"])),
        "operation": operation,
        "snapshot": source["snapshot"],
        **time_columns(
            [
                ("source", _instant(source)),
                ("event", _instant(told)),
                ("record", F.col("timestamp")),
            ]
        ),
        "position": position(source["connector"], lambda name: source[name]),
        "transaction_id": F.coalesce(told["transaction"]["id"], source["txId"], source["gtid"], told["id"]),
        "row_key": F.when(is_document, document_key(producer.row_key)).otherwise(producer.row_key),
        "before": told["before"],
        "after": told["after"],
        "types": F.when(is_row, producer.types),
        "new_key": header("__debezium.newkey"),
        "old_key": header("__debezium.oldkey"),
        "said": F.when(~is_row, text),
    }
    key_or_before = columns["before"].isNotNull() | F.col("key").isNotNull()
    has_row = F.when(operation == DELETE, key_or_before).otherwise(columns["after"].isNotNull())
    faults = error_columns(
        [
            *producer.refused,
            (EventFault.UNKNOWN_OPERATION, kind.isNull() & operation.isNotNull(), operation),
            (EventFault.NOT_AN_EVENT, kind.isNull(), text),
            (EventFault.NO_TABLE, kind.isin(Kind.ROW, Kind.TRUNCATE) & columns["table"].isNull(), None),
            (EventFault.NO_ROW, is_row & ~has_row, None),
            (EventFault.NO_TIME, is_row & columns["event_timestamp"].isNull(), None),
        ]
    )
    return with_events(read, columns, faults)


def _not_empty(text: Column) -> Column:
    return F.when(text != "", text)


def _kind(text: Column) -> Column:
    told = F.col(FOUND)
    operation = told["op"]
    return (
        # First what is most: the others are looked at where it is none.
        F.when(operation.isin(*OF_ROWS), Kind.ROW)
        .when(operation == TRUNCATE, Kind.TRUNCATE)
        .when(operation == MESSAGE, Kind.MESSAGE)
        .when(_is_nothing(text), Kind.TOMBSTONE)
        .when(operation.isNotNull(), F.lit(None).cast("string"))
        # Strictly: a row that was taken out of its envelope may have columns of these names.
        .when(told["status"].isin("BEGIN", "END") & told["id"].isNotNull(), Kind.TRANSACTION)
        .when(
            told["source"].isNotNull() & F.coalesce(told["databaseName"], told["ddl"]).isNotNull(),
            Kind.SCHEMA_CHANGE,
        )
        .when(told["ts_ms"].isNotNull() & _has_only_times(text), Kind.HEARTBEAT)
    )


def _has_only_times(text: Column) -> Column:
    """Whether a value, or its payload, says nothing else, as a heartbeat."""
    names = F.json_object_keys(F.coalesce(F.get_json_object(text, "$.payload"), text))
    return F.size(F.array_except(names, F.array(*(F.lit(each) for each in _TIMES)))) == 0


def _is_nothing(text: Column) -> Column:
    return F.col("value").isNull() | F.coalesce(text.rlike(_NOTHING), F.lit(False))


def _instant(told: Column) -> Column:
    """An instant that is told in three precisions; 0 is none: old connectors said so of snapshots."""
    # A number too large for a long is none, and neither is one that a thousand times is too large.
    micros = F.coalesce(
        told["ts_us"].try_cast("long"),
        F.floor(told["ts_ns"].try_cast("decimal(38,0)") / 1000).try_cast("long"),
        (told["ts_ms"].try_cast("decimal(20,0)") * 1000).try_cast("long"),
    )
    return F.when(micros != 0, F.timestamp_micros(micros))


def json_key() -> Column:
    """The columns of the record's key, in JSON with or without its schema; null for any other key."""
    key = F.try_validate_utf8(F.col("key").cast("string"))
    return read_quickly(key, TEXTS, chosen=without_schema)


def json_types() -> Column:
    """
    What the schema beside a payload says of each column: the name of its meaning, or else its type.

    The scale of a decimal stands behind the name, its precision before the scale if it is known.
    """
    fields = F.col(FOUND)["schema"]["fields"]
    images = F.filter(fields, lambda each: each["field"].isin("after", "before") & each["fields"].isNotNull())
    columns = F.filter(F.try_element_at(images, F.lit(1))["fields"], lambda each: each["field"].isNotNull())
    entries = F.transform(
        columns, lambda each: F.struct(each["field"].alias("key"), _column_type(each).alias("value"))
    )
    return texts_by_name(entries)


def _column_type(column: Column) -> Column:
    precision, scale = (
        F.try_element_at(column["parameters"], F.lit(name)) for name in ("connect.decimal.precision", "scale")
    )
    digits = F.concat(F.lit("("), F.concat_ws(",", precision, scale), F.lit(")"))
    meaning = F.concat(column["name"], F.when(scale.isNotNull(), digits).otherwise(""))
    return F.coalesce(_part_schema(column), meaning, column["type"])


def _part_schema(column: Column) -> Column:
    """Of an array, a map or a struct its schema; null for a value that is one, whatever it is made of."""
    parts = {"array": ["items"], "map": ["keys", "values"], "struct": ["fields"]}
    made = F.lit(None).cast("string")
    for kind, names in parts.items():
        said = [F.concat(F.lit(f',"{name}":'), column[name]) for name in names]
        schema = F.concat(F.lit(f'{{"type":"{kind}"'), *said, F.lit("}"))
        made = F.when(column["type"] == kind, schema).otherwise(made)
    return F.when(column["name"].isNull() | (column["name"] != VARIABLE), made)


def texts_by_name(entries: Column) -> Column:
    """The entries as a map; null where a name is there twice, which Spark would end the job for."""
    names = entries["key"]
    return F.when(F.size(names) == F.size(F.array_distinct(names)), F.map_from_entries(entries))


def decode(records: DataFrame) -> DataFrame:
    """
    What every record of Debezium's topics says: changes of rows, and all that lies beside them.

    Args:
        records: One row per transported message (`cdckit.records.RECORD_SCHEMA`): of one topic or of many,
            of one table or of many.  Values and keys are JSON, with or without the schema beside the
            payload; those in Avro are in error (`NOT_JSON`): see `decode_avro`.  A row that
            `ExtractNewRecordState` took out of its envelope is no event, nor is a CloudEvent
            (`NOT_AN_EVENT`).

    Returns:
        One row per record, in no order, in the columns of `EVENT_SCHEMA`.  It never fails on data.
        Here a fraction that is written as a JSON number has the digits of a double, since Spark's reader
        makes one of it; `changes` and `table_rows` read all digits of the event itself.

    Raises:
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: JSON is read once, by Spark's own reader, and no row passes through Python; no shuffle.

    Source:
        Debezium, the reference pages of its connectors, "Data change events".

    >>> from cdckit import debezium
    >>> value = b'{"op": "t", "ts_ms": 1, "source": {"connector": "postgresql", "table": "products"}}'
    >>> found = debezium.decode(records_of(value, b'{"op": "x"}', None))
    >>> found.orderBy("offset").select("kind", "table", "operation", "error_code").show()
    +---------+--------+---------+-----------------+
    |     kind|   table|operation|       error_code|
    +---------+--------+---------+-----------------+
    | truncate|products|        t|             NULL|
    |     NULL|    NULL|        x|UNKNOWN_OPERATION|
    |tombstone|    NULL|     NULL|             NULL|
    +---------+--------+---------+-----------------+
    <BLANKLINE>
    """
    require_records(records, function="decode")
    return json_events(records)
