"""Events in JSON: Debezium's with and without schemas, Maxwell's of MySQL, and wal2json's of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.column_types import VARIABLE
from cdckit.debezium.encodings import read_json, read_quickly
from cdckit.debezium.events import (
    CREATE,
    DELETE,
    MESSAGE,
    OF_ROWS,
    READ,
    SOURCE_FIELDS,
    TEXTS,
    TRUNCATE,
    UPDATE,
    EventFault,
    Kind,
    binlog_position,
    error_columns,
    event_columns,
    header,
    lsn_position,
    position,
    time_columns,
    without_schema,
)
from cdckit.model.records import require_records
from cdckit.parts.arguments import flat_columns
from cdckit.parts.columns import built_once

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


class _Steps(NamedTuple):
    """The columns of each step from records to their events."""

    value: Column
    envelope: Column
    events: list[Column]


@built_once
def _steps() -> _Steps:
    text, is_read = text_of_value(), F.col(_VALUE_READ).isNotNull()
    unread = [(EventFault.NOT_JSON, ~is_read & ~_is_nothing(text), text)]
    producer = Producer("json", text, is_read, json_types(), json_key(), unread)
    # To look for fractions with more digits would cost a fifth: `exact_digits` does, where types ask it to.
    value = json_object(_VALUE, exact=False)
    return _Steps(value, _envelope(F.col(_VALUE_READ)), envelope_columns(producer))


def _envelope(value: Column) -> Column:
    """What is read of an envelope, and the schema: beside a schema the envelope is the payload."""
    # A struct that is never null: of such a one Spark makes the fields alone that are asked for.
    payload = value["payload"]
    fields = {field.name: F.coalesce(payload[field.name], value[field.name]) for field in ENVELOPE}
    document = document_fields(text_of_value(), fields["source"]["connector"], json_key())
    fields |= {"after": F.coalesce(fields["after"], document), "schema": value["schema"]}
    return F.struct(*(field.alias(name) for name, field in fields.items()))


def json_object(kind: T.StructType, *, exact: bool = True) -> Column:
    """
    The one JSON object that a record's value is; null for all else.

    Where *exact*, numbers keep their digits (see `read_json`).

    Spark's reader ends with the first value of a text; as an element of a list, it must end where the text
    does.  Nesting deeper than a thousand is refused by the reader itself.

    Spark puts what a column is made of wherever a filter reads it, and would read the text there anew.  It
    does not for what is exploded; and filters that do not read it go on to the records, and to their files.
    """
    listed = (read_json if exact else read_quickly)(text_of_value(), T.ArrayType(kind), chosen=_wrap_in_list)
    # As a list of lists, since a function that is given each list reads it once.
    only = F.filter(F.array(listed), lambda found: F.size(found) == 1)
    return F.explode_outer(F.flatten(only))


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


def envelope_columns(producer: Producer) -> list[Column]:
    """The events of records whose envelopes are in `found`: null, or all null, where there is none."""
    event = F.col(FOUND)
    source, operation, text = event["source"], event["op"], producer.text
    kind, is_document = _kind(text), source["connector"] == MONGODB
    is_row = kind == Kind.ROW
    columns = {
        "form": F.when(producer.is_read, producer.form),
        "kind": kind,
        "connector": source["connector"],
        "source": source["name"],
        "db": F.coalesce(source["db"], event["databaseName"]),
        "schema": F.coalesce(source["schema"], event["schemaName"]),
        "table": _not_empty(F.coalesce(source["table"], source["collection"])),
        "operation": operation,
        "snapshot": source["snapshot"],
        **time_columns(
            [
                ("source", _instant(source)),
                ("event", _instant(event)),
                ("record", F.col("timestamp")),
            ]
        ),
        "position": position(source["connector"], lambda name: source[name]),
        "transaction_id": _transaction_id(event),
        "row_key": F.when(is_document, document_key(producer.row_key)).otherwise(producer.row_key),
        "before": event["before"],
        "after": event["after"],
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
    return event_columns(columns, faults)


def _transaction_id(event: Column) -> Column:
    """
    Which transaction, in the same words in its events and in its begin and end.

    Behind PostgreSQL's number Debezium says the LSN of each event (https://github.com/debezium/debezium/pull/3945).
    """
    source = event["source"]
    said = F.coalesce(event["transaction"]["id"], source["txId"], source["gtid"], event["id"])
    return F.regexp_replace(said, r"^(\d+):\d+$", "$1")


def _not_empty(text: Column) -> Column:
    return F.when(text != "", text)


def _kind(text: Column) -> Column:
    event = F.col(FOUND)
    operation = event["op"]
    return (
        # First what is most: the others are looked at where it is none.
        F.when(operation.isin(*OF_ROWS), Kind.ROW)
        .when(operation == TRUNCATE, Kind.TRUNCATE)
        .when(operation == MESSAGE, Kind.MESSAGE)
        .when(_is_nothing(text), Kind.TOMBSTONE)
        .when(operation.isNotNull(), F.lit(None).cast("string"))
        # Strictly: a row that was taken out of its envelope may have columns of these names.
        .when(event["status"].isin("BEGIN", "END") & event["id"].isNotNull(), Kind.TRANSACTION)
        .when(
            event["source"].isNotNull() & F.coalesce(event["databaseName"], event["ddl"]).isNotNull(),
            Kind.SCHEMA_CHANGE,
        )
        .when(event["ts_ms"].isNotNull() & _has_only_times(text), Kind.HEARTBEAT)
    )


def _has_only_times(text: Column) -> Column:
    """Whether a value, or its payload, says nothing else, as a heartbeat."""
    names = F.json_object_keys(F.coalesce(F.get_json_object(text, "$.payload"), text))
    return F.size(F.array_except(names, F.array(*(F.lit(each) for each in _TIMES)))) == 0


def _is_nothing(text: Column) -> Column:
    return F.col("value").isNull() | F.coalesce(text.rlike(_NOTHING), F.lit(False))


def _instant(instant: Column) -> Column:
    """An instant that is told in three precisions; 0 is none: old connectors said so of snapshots."""
    # A number too large for a long is none, and neither is one that a thousand times is too large.
    micros = F.coalesce(
        instant["ts_us"].try_cast("long"),
        F.floor(instant["ts_ns"].try_cast("decimal(38,0)") / 1000).try_cast("long"),
        (instant["ts_ms"].try_cast("decimal(20,0)") * 1000).try_cast("long"),
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
    result = F.lit(None).cast("string")
    for kind, names in parts.items():
        members = [F.concat(F.lit(f',"{name}":'), column[name]) for name in names]
        schema = F.concat(F.lit(f'{{"type":"{kind}"'), *members, F.lit("}"))
        result = F.when(column["type"] == kind, schema).otherwise(result)
    return F.when(column["name"].isNull() | (column["name"] != VARIABLE), result)


def texts_by_name(entries: Column) -> Column:
    """The entries as a map; null where a name is there twice, which Spark would end the job for."""
    names = entries["key"]
    return F.when(F.size(names) == F.size(F.array_distinct(names)), F.map_from_entries(entries))


def decode(records: DataFrame) -> DataFrame:
    """
    What every record of Debezium's topics says: changes of rows, and all that lies beside them.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`): of one topic or of many,
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
    steps = _steps()
    read = records.withColumn(_VALUE_READ, steps.value).withColumn(FOUND, steps.envelope)
    return read.select(*steps.events)


_MAXWELL_ROW = T.StructType(
    [
        *flat_columns(
            "type string, database string, table string, ts string, xid string, xoffset string,"
            " position string, commit string"
        ),
        *(T.StructField(name, TEXTS) for name in ("data", "old")),
    ]
)
_TYPES = {"insert": CREATE, "update": UPDATE, "delete": DELETE, "bootstrap-insert": READ}
_OF_ROWS_NOT = ("bootstrap-start", "bootstrap-complete")
_OF_SCHEMAS = r"^(database|table)-(create|alter|drop)$"
_BEHIND_ALL = "9" * 20


def decode_maxwell(records: DataFrame) -> DataFrame:
    """
    What every record of Maxwell says, in the columns of `decode`.

    A row that is updated is sent whole, and in `old` what its changed columns were, the key among them: a
    column that only `old` has became null (Maxwell's option `output_nulls=false` leaves nulls out).  A value
    has the type that JSON has, so nothing is said of the columns' types: give them to `changes`.  Decimals
    are JSON numbers, which keep their digits.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`).

    Returns:
        One row per record, in the columns of `EVENT_SCHEMA`: `operation` in Debezium's letters, of a
        bootstrap's row r; the start and the end of a bootstrap are of the kind `heartbeat`, DDL is of the
        kind `schema_change`.  `event_timestamp` has whole seconds, so `position` decides within one: the
        place in the binlog (of Maxwell's option `output_binlog_position`) and the row in its
        transaction (`output_xoffset`; the last one says no number).  It never fails on data.

    Raises:
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: as `decode`.

    Source:
        Maxwell's Daemon, "Data Format" and "Bootstrapping".

    >>> value = b'{"type": "delete", "table": "products", "ts": 1709294400, "data": {"id": 1}}'
    >>> found = decode_maxwell(records_of(value, b'{"type": "table-drop", "ts": 1709294400000}'))
    >>> found.orderBy("offset").select("kind", "operation", "table", "event_timestamp", "before").show()
    +-------------+---------+--------+-------------------+---------+
    |         kind|operation|   table|    event_timestamp|   before|
    +-------------+---------+--------+-------------------+---------+
    |          row|        d|products|2024-03-01 12:00:00|{id -> 1}|
    |schema_change|     NULL|    NULL|2024-03-01 12:00:00|     NULL|
    +-------------+---------+--------+-------------------+---------+
    <BLANKLINE>
    """
    require_records(records, function="decode_maxwell")
    value, events = _maxwell_steps()
    return records.withColumn(FOUND, value).select(*events)


@built_once
def _maxwell_steps() -> tuple[Column, list[Column]]:
    """What a record says, and what of it are the columns of an event."""
    event = F.col(FOUND)
    operation = F.lit(None).cast("string")
    for name, meaning in _TYPES.items():
        operation = F.when(event["type"] == name, meaning).otherwise(operation)
    kind = (
        F.when(F.col("value").isNull(), Kind.TOMBSTONE)
        .when(operation.isNotNull(), Kind.ROW)
        .when(event["type"].rlike(_OF_SCHEMAS), Kind.SCHEMA_CHANGE)
        .when(event["type"].isin(*_OF_ROWS_NOT), Kind.HEARTBEAT)
    )
    is_row, is_delete = kind == Kind.ROW, operation == DELETE
    # Rows say seconds, DDL milliseconds.
    seconds = event["ts"].try_cast("decimal(20,0)")
    micros = (
        F.when(kind == Kind.SCHEMA_CHANGE, seconds * 1000).otherwise(seconds * 1_000_000).try_cast("long")
    )
    # The last row of a transaction says that it is, and no number.
    last = F.when(event["commit"] == "true", _BEHIND_ALL)
    place = F.coalesce(event["xoffset"], last, F.when(event["position"].isNotNull(), ""))
    found = {
        "form": F.when(event.isNotNull(), "json"),
        "kind": kind,
        "connector": F.when(kind.isNotNull() & (kind != Kind.TOMBSTONE), "mysql"),
        "db": event["database"],
        "table": event["table"],
        "operation": operation,
        "snapshot": F.when(operation == READ, "true"),
        **time_columns(
            [
                ("source", F.timestamp_micros(micros)),
                ("record", F.when(event["type"].isNotNull(), F.col("timestamp"))),
            ]
        ),
        "position": F.concat_ws("/", binlog_position(event["position"]), F.lpad(place, 20, "0")),
        "transaction_id": event["xid"],
        "before": F.when(is_delete, event["data"]).otherwise(event["old"]),
        "after": F.when(~is_delete, _with_nulls(event["data"], event["old"])),
        "said": F.when(~is_row, text_of_value()),
    }
    found["position"] = F.when(binlog_position(event["position"]).isNotNull(), found["position"])
    faults = error_columns(
        [
            (EventFault.NOT_JSON, event.isNull() & F.col("value").isNotNull(), text_of_value()),
            (EventFault.UNKNOWN_OPERATION, kind.isNull() & event["type"].isNotNull(), event["type"]),
            (EventFault.NOT_AN_EVENT, kind.isNull(), text_of_value()),
            (EventFault.NO_TABLE, is_row & event["table"].isNull(), None),
            (EventFault.NO_ROW, is_row & event["data"].isNull(), None),
            (EventFault.NO_TIME, is_row & found["event_timestamp"].isNull(), None),
        ]
    )
    return json_object(_MAXWELL_ROW), event_columns(found, faults)


def _with_nulls(data: Column, old: Column) -> Column:
    """
    A row, with null for each column that `old` has alone.

    With the option `output_nulls=false` nulls are left out, and so is a column that became null.
    """
    gone = F.filter(F.map_keys(old), lambda name: ~F.map_contains_key(data, name))
    null = F.lit(None).cast("string").alias("value")
    nulls = F.transform(gone, lambda name: F.struct(name.alias("key"), null))
    return F.when(F.size(gone) > 0, texts_by_name(F.concat(F.map_entries(data), nulls))).otherwise(data)


_WAL_COLUMN = flat_columns("name string, type string, value string")
_WAL2JSON_ROW = T.StructType(
    [
        *flat_columns("action string, xid string, timestamp string, lsn string, schema string, table string"),
        *(T.StructField(name, T.ArrayType(_WAL_COLUMN)) for name in ("columns", "identity", "pk")),
    ]
)
_ACTIONS = {"I": CREATE, "U": UPDATE, "D": DELETE, "T": TRUNCATE, "M": MESSAGE}


def decode_wal2json(records: DataFrame) -> DataFrame:
    """
    What every record of wal2json says, in the columns of `decode`.

    A record is one JSON object of format version 2.  A value that was not sent is one that did not change.
    Say `include-timestamp`, `include-lsn` and `include-xids` to the plugin: without the first, times are
    those of the records; without the second, their order is that of arrival.  A `numeric` is a JSON number,
    which keeps its digits; for NaN and the infinities the plugin writes null, unless it knows the option
    `numeric-data-types-as-string` and is told to.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`).

    Returns:
        One row per record, in the columns of `EVENT_SCHEMA`: `operation` in Debezium's letters; begin and
        commit are of the kind `transaction`; `event_timestamp` is the time of the commit; `position` the
        LSN, which sorts the changes of one row, while concurrent transactions interleave; `types` are
        PostgreSQL's.  It never fails on data; an object of format 1 is in error.

    Raises:
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: as `decode`.

    Source:
        wal2json, "Parameters", and its examples of format version 2.

    >>> value = b'{"action": "T", "timestamp": "2024-03-01 12:00:00+00", "lsn": "0/2A", "table": "products"}'
    >>> found = decode_wal2json(records_of(value, b'{"change": []}')).orderBy("offset")
    >>> found.select("operation", "table", "event_timestamp", "position", "error_code").show()
    +---------+--------+-------------------+-----------------+------------+
    |operation|   table|    event_timestamp|         position|  error_code|
    +---------+--------+-------------------+-----------------+------------+
    |        t|products|2024-03-01 12:00:00|00000000/0000002A|        NULL|
    |     NULL|    NULL|               NULL|             NULL|NOT_AN_EVENT|
    +---------+--------+-------------------+-----------------+------------+
    <BLANKLINE>
    """
    require_records(records, function="decode_wal2json")
    value, events = _wal2json_steps()
    return records.withColumn(FOUND, value).select(*events)


@built_once
def _wal2json_steps() -> tuple[Column, list[Column]]:
    """What a record says, and what of it are the columns of an event."""
    event = F.col(FOUND)
    action, columns, identity = event["action"], event["columns"], event["identity"]
    operation = F.lit(None).cast("string")
    for letter, meaning in _ACTIONS.items():
        operation = F.when(action == letter, meaning).otherwise(operation)
    kind = (
        F.when(F.col("value").isNull(), Kind.TOMBSTONE)
        .when(operation == TRUNCATE, Kind.TRUNCATE)
        .when(operation == MESSAGE, Kind.MESSAGE)
        .when(operation.isNotNull(), Kind.ROW)
        .when(action.isin("B", "C"), Kind.TRANSACTION)
    )
    is_row = kind == Kind.ROW
    after, before = _texts(columns, "value"), _texts(identity, "value")
    found = {
        "form": F.when(event.isNotNull(), "json"),
        "kind": kind,
        "connector": F.when(kind.isNotNull() & (kind != Kind.TOMBSTONE), "postgresql"),
        "schema": event["schema"],
        "table": event["table"],
        "operation": operation,
        **time_columns(
            [
                ("source", event["timestamp"].try_cast("timestamp")),
                ("record", F.when(action.isNotNull(), F.col("timestamp"))),
            ]
        ),
        "position": lsn_position(event["lsn"]),
        "transaction_id": event["xid"],
        "before": before,
        "after": after,
        "types": F.when(is_row, _texts(F.coalesce(columns, identity), "type")),
        "said": F.when(~is_row, text_of_value()),
    }
    has_row = F.when(operation == DELETE, before.isNotNull()).otherwise(after.isNotNull())
    faults = error_columns(
        [
            (EventFault.NOT_JSON, event.isNull() & F.col("value").isNotNull(), text_of_value()),
            (EventFault.UNKNOWN_OPERATION, kind.isNull() & action.isNotNull(), action),
            (EventFault.NOT_AN_EVENT, kind.isNull(), text_of_value()),
            (EventFault.NO_TABLE, kind.isin(Kind.ROW, Kind.TRUNCATE) & event["table"].isNull(), None),
            (EventFault.NO_ROW, is_row & ~has_row, None),
            (EventFault.NO_TIME, is_row & found["event_timestamp"].isNull(), None),
        ]
    )
    return json_object(_WAL2JSON_ROW), event_columns(found, faults)


def _texts(columns: Column, of: str) -> Column:
    """By name, one thing that is said of each column; null where a name is missing or there twice."""
    entries = F.transform(columns, lambda each: F.struct(each["name"].alias("key"), each[of].alias("value")))
    return F.when(~F.exists(columns, lambda each: each["name"].isNull()), texts_by_name(entries))
