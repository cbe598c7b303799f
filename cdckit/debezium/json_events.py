"""Debezium's events in JSON, with and without schemas, and what an envelope says in whatever form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.column_types import VARIABLE
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
    event_columns,
    header,
    position,
    time_columns,
)
from cdckit.model.records import RECORD_COLUMNS, require_records
from cdckit.parts.arguments import flat_columns
from cdckit.parts.columns import built_once
from cdckit.parts.json_objects import ObjectReader
from cdckit.parts.workers import Function, map_columns, without_garbage_collection

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
"""What every connector writes as a number."""
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
# Not called as columns of an event: in a list of columns Spark would take those for these.
ROW_KEY = "key read"
TYPES = "types read"

_COLUMN = T.StructType(
    [
        *flat_columns("type string, field string, name string"),
        T.StructField("parameters", TEXTS),
        *flat_columns("items string, keys string, values string, fields string"),
    ]
)
_IMAGE = T.StructType([*flat_columns("field string"), T.StructField("fields", T.ArrayType(_COLUMN))])
_SCHEMA = T.StructType([T.StructField("fields", T.ArrayType(_IMAGE))])
_ENVELOPE = T.StructType(ENVELOPE)
_VALUE = T.StructType(
    [
        *ENVELOPE,
        T.StructField("payload", _ENVELOPE),
        T.StructField("schema", T.BinaryType()),
    ]
)
_READ = T.StructType(
    [T.StructField(FOUND, _ENVELOPE), T.StructField(ROW_KEY, TEXTS), T.StructField(TYPES, TEXTS)]
)
_NOTHING = r'^\s*\{\s*"schema"\s*:\s*null\s*,\s*"payload"\s*:\s*null\s*\}\s*$'


def _read_envelopes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The envelope that each value is, the columns of its key, and the types that it says."""
    values, envelopes = ObjectReader(_VALUE), ObjectReader(_ENVELOPE)
    for batch in batches:
        with without_garbage_collection():
            read = values.read(batch.column("value"))
            # Beside a schema the envelope is the payload.
            found = [each if each is None or each.payload is None else each.payload for each in read]
            types = _types([None if each is None else each.schema for each in read])
            columns = [envelopes.column(found), json_keys(batch.column("key")), types]
        yield pa.RecordBatch.from_arrays(columns, _READ.names)


def json_keys(keys: pa.Array) -> pa.Array:
    """The columns of keys in JSON, with or without a schema, as maps of texts; null for any other key."""
    maps = ObjectReader(TEXTS)
    return maps.column([_key_columns(key) for key in maps.read(keys)])


def _key_columns(key: Any) -> Any:
    # Beside a schema alone: a column may have the name of the payload.
    has_schema = isinstance(key, dict) and "schema" in key and key.get("payload") is not None
    return key["payload"] if has_schema else key


def _types(schemas: Sequence[bytes | None]) -> pa.Array:
    """What each schema says of its columns; few differ."""
    texts = [None if each is None else bytes(each) for each in schemas]
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    maps = ObjectReader(TEXTS).column([None if text is None else types_of(text) for text in places])
    return maps.take(pa.array([places[text] for text in texts], pa.int32()))


@lru_cache(maxsize=512)
def types_of(schema: bytes) -> dict[str, str | None] | None:
    """
    What the schema beside a payload says of each column: the name of its meaning, or else its type.

    The scale of a decimal stands behind the name, its precision before the scale if it is known.  None where
    it says nothing, or names a column twice.

    >>> types_of(b'{"fields": [{"field": "after", "fields": [{"field": "day", "type": "int32"}]}]}')
    {'day': 'int32'}
    """
    reader = ObjectReader(_SCHEMA)
    (found,) = reader.column(reader.read(pa.array([schema]))).to_pylist()
    images = [each for each in (found or {}).get("fields") or () if each is not None]
    rows = [each["fields"] for each in images if each["field"] in ("after", "before")]
    row = next((each for each in rows if each is not None), None)
    if row is None:
        return None
    named = [each for each in row if each is not None and each["field"] is not None]
    types = {each["field"]: _column_type(each) for each in named}
    return types if len(types) == len(named) else None


_PARTS = {"array": ["items"], "map": ["keys", "values"], "struct": ["fields"]}


def _column_type(column: dict[str, Any]) -> Any:
    """The name of a type; of an array, a map or a struct its schema, but for a value that is one thing."""
    kind, name, parameters = column["type"], column["name"], dict(column["parameters"] or ())
    parts = [(each, column[each]) for each in _PARTS.get(kind, ())]
    if parts and name != VARIABLE and all(text is not None for _, text in parts):
        return f'{{"type":"{kind}",' + ",".join(f'"{each}":{text}' for each, text in parts) + "}"
    if name is None or (scale := parameters.get("scale")) is None:
        return name or kind
    precision = parameters.get("connect.decimal.precision")
    return f"{name}({scale})" if precision is None else f"{name}({precision},{scale})"


@built_once
def _event_columns() -> list[Column]:
    text, is_read = text_of_value(), F.col(FOUND).isNotNull()
    unread = [(EventFault.NOT_JSON, ~is_read & F.col("value").isNotNull(), text)]
    return envelope_columns(Producer("json", text, is_read, F.col(TYPES), F.col(ROW_KEY), unread))


def with_values(records: DataFrame, by: Function, read: T.StructType) -> DataFrame:
    """
    Records with what workers read of the value and the key of each, once, whatever a filter asks of it.

    Spark puts what a column is made of wherever a filter reads it.  It does not for what is exploded; and
    filters that do not read it go on to the records, and to their files.
    """
    values = map_columns(["value", "key"], by, read, pure=True)
    once = records.withColumn(_READ_OF, F.explode(F.array(values)))
    return once.select(*RECORD_COLUMNS, *(F.col(_READ_OF)[name].alias(name) for name in read.names))


_READ_OF = "read"


def text_of_value() -> Column:
    """The value as text; null where it is none."""
    return F.try_validate_utf8(F.col("value").cast("string"))


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
    kind, is_document = F.col("kind"), source["connector"] == MONGODB
    is_row = kind == Kind.ROW
    document = document_fields(text, source["connector"], producer.row_key)
    columns = {
        "form": F.when(producer.is_read, producer.form),
        "kind": _kind(text),
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
        "after": F.coalesce(event["after"], document),
        "types": F.when(is_row, producer.types),
        "new_key": header("__debezium.newkey"),
        "old_key": header("__debezium.oldkey"),
        "said": F.when(~is_row, text),
    }
    key_or_before = F.col("before").isNotNull() | F.col("key").isNotNull()
    has_row = F.when(operation == DELETE, key_or_before).otherwise(F.col("after").isNotNull())
    faults = error_columns(
        [
            *producer.refused,
            (EventFault.UNKNOWN_OPERATION, kind.isNull() & operation.isNotNull(), operation),
            (EventFault.NOT_AN_EVENT, kind.isNull(), text),
            (EventFault.NO_TABLE, kind.isin(Kind.ROW, Kind.TRUNCATE) & F.col("table").isNull(), None),
            (EventFault.NO_ROW, is_row & ~has_row, None),
            (EventFault.NO_TIME, is_row & F.col("event_timestamp").isNull(), None),
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

    Raises:
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: one pass through Python in Arrow batches; no shuffle.

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
    return with_values(records, _read_envelopes, _READ).select(*_event_columns())
