"""Debezium's events in JSON, with and without the schema beside the payload; and what any envelope says."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.event_faults import EventFault
from cdckit.debezium.events import (
    DELETE,
    MESSAGE,
    OF_ROWS,
    TEXTS,
    TRUNCATE,
    Kind,
    error_columns,
    header,
    once,
    time_columns,
    with_events,
)
from cdckit.debezium.positions import SOURCE_FIELDS, position

SOURCE = T.StructType(
    [
        T.StructField(name, T.StringType())
        for name in (
            *("connector", "name", "snapshot", "db", "schema", "table", "collection", "txId", "gtid"),
            *("ts_us", "ts_ns", *SOURCE_FIELDS),
        )
    ]
)
ENVELOPE = [
    *(T.StructField(name, T.StringType()) for name in ("op", "ts_ms", "ts_us", "ts_ns")),
    *(T.StructField(name, TEXTS) for name in ("before", "after")),
    T.StructField("source", SOURCE),
    T.StructField("transaction", T.StructType([T.StructField("id", T.StringType())])),
    # Of what is not about a row: transactions, changes of a schema.
    *(T.StructField(name, T.StringType()) for name in ("status", "id", "databaseName", "schemaName", "ddl")),
]
"""What is read of an event's envelope."""

TEXT, FOUND = "text", "found"
Told = Callable[[str], Column]
"""A field of the envelope, by its name."""

_VALUE = T.StructType([*ENVELOPE, T.StructField("payload", T.StructType(ENVELOPE))])
_COLUMN = "struct<type: string, field: string, name: string, parameters: map<string, string>>"
_SCHEMA = f"schema struct<fields: array<struct<field: string, fields: array<{_COLUMN}>>>>"
_NOTHING = r'^\s*\{\s*"schema"\s*:\s*null\s*,\s*"payload"\s*:\s*null\s*\}\s*$'


def json_events(records: DataFrame) -> DataFrame:
    """The events of *records* that are JSON, or are no events at all: every record has its row."""
    read = one_object(records, _VALUE)
    found = F.col(FOUND)
    # Beside a schema the envelope is the payload.
    return envelopes(read, lambda name: F.coalesce(found["payload"][name], found[name]), json_types())


def one_object(records: DataFrame, kind: T.StructType) -> DataFrame:
    """
    The records, with `text`, their value, and `found`: the one JSON object that it is, null for all else.

    Spark's reader ends with the first value of a text; as an element of a list, it must end where the text
    does.  Nesting deeper than a thousand is refused by the reader itself.
    """
    text = F.try_validate_utf8(F.col("value").cast("string"))
    listed = F.from_json(F.concat(F.lit("["), F.col(TEXT), F.lit("]")), T.ArrayType(kind), _STRICT)
    read = records.withColumn(TEXT, text).withColumn("listed", once(listed))
    return read.withColumn(FOUND, F.when(F.size("listed") == 1, F.col("listed")[0]))


_STRICT = {"allowSingleQuotes": "false"}


def envelopes(read: DataFrame, told: Told, types: Column) -> DataFrame:
    """The events of records, given what is *told* in their envelopes; `found` is null where there is none."""
    one = once(F.struct(*(told(field.name).alias(field.name) for field in ENVELOPE)))
    opened = read.withColumn("told", one)
    seen = F.struct(
        _kind().alias("kind"),
        _instant("told.source").alias("source"),
        _instant("told").alias("event"),
    )
    known = opened.withColumn("seen", once(seen))
    envelope, source = F.col("told"), F.col("told.source")
    kind, operation, text = F.col("seen.kind"), F.col("told.op"), F.col(TEXT)
    is_row = kind == Kind.ROW
    unread = F.col(FOUND).isNull()
    columns = {
        "form": F.when(~unread, "json"),
        "kind": kind,
        "connector": source["connector"],
        "source": source["name"],
        "db": F.coalesce(source["db"], envelope["databaseName"]),
        "schema": F.coalesce(source["schema"], envelope["schemaName"]),
        "table": F.nullif(F.coalesce(source["table"], source["collection"]), F.lit("")),
        "operation": operation,
        "snapshot": source["snapshot"],
        **time_columns(
            [
                ("source", F.col("seen.source")),
                ("event", F.col("seen.event")),
                ("record", F.col("timestamp")),
            ]
        ),
        "position": position(source["connector"], lambda name: source[name]),
        "transaction_id": F.coalesce(
            envelope["transaction"]["id"], source["txId"], source["gtid"], envelope["id"]
        ),
        "row_key": json_key(),
        "before": envelope["before"],
        "after": F.coalesce(envelope["after"], _document(text, source["connector"])),
        "types": F.when(is_row, types),
        "new_key": header("__debezium.newkey"),
        "old_key": header("__debezium.oldkey"),
        "said": F.when(~is_row, text),
    }
    key_or_before = columns["before"].isNotNull() | F.col("key").isNotNull()
    has_row = F.when(operation == DELETE, key_or_before).otherwise(columns["after"].isNotNull())
    is_readable = ~unread | (kind == Kind.TOMBSTONE)
    faults = error_columns(
        [
            (EventFault.NOT_JSON, ~F.coalesce(is_readable, F.lit(False)), text),
            (EventFault.UNKNOWN_OPERATION, kind.isNull() & operation.isNotNull(), operation),
            (EventFault.NOT_AN_EVENT, kind.isNull(), text),
            (EventFault.NO_TABLE, kind.isin(Kind.ROW, Kind.TRUNCATE) & columns["table"].isNull(), None),
            (EventFault.NO_ROW, is_row & ~has_row, None),
            (EventFault.NO_TIME, is_row & columns["event_timestamp"].isNull(), None),
        ]
    )
    return with_events(known, columns, faults)


def _kind() -> Column:
    is_nothing = F.col("value").isNull() | F.coalesce(F.col(TEXT).rlike(_NOTHING), F.lit(False))
    told = F.col("told")
    operation = told["op"]
    return (
        # First what is most: the others are looked at where it is none.
        F.when(operation.isin(*OF_ROWS), Kind.ROW)
        .when(operation == TRUNCATE, Kind.TRUNCATE)
        .when(operation == MESSAGE, Kind.MESSAGE)
        .when(is_nothing, Kind.TOMBSTONE)
        .when(operation.isNotNull(), F.lit(None).cast("string"))
        .when(told["status"].isNotNull() & told["id"].isNotNull(), Kind.TRANSACTION)
        .when(F.coalesce(told["databaseName"], told["ddl"]).isNotNull(), Kind.SCHEMA_CHANGE)
        .when(told["source"].isNull() & told["ts_ms"].isNotNull(), Kind.HEARTBEAT)
    )


def _instant(holder: str) -> Column:
    """An instant that is told in three precisions; 0 is none: old connectors said so of snapshots."""
    # A number too large for a long is none, and neither is one that a thousand times is too large.
    micros = F.coalesce(
        F.col(f"{holder}.ts_us").try_cast("long"),
        F.floor(F.col(f"{holder}.ts_ns").try_cast("decimal(38,0)") / 1000).try_cast("long"),
        (F.col(f"{holder}.ts_ms").try_cast("decimal(20,0)") * 1000).try_cast("long"),
    )
    return F.timestamp_micros(F.nullif(micros, F.lit(0)))


def json_key() -> Column:
    """The columns of the record's key, in JSON with or without its schema; null for any other key."""
    key = F.try_validate_utf8(F.col("key").cast("string"))
    payload = F.when(F.contains(key, F.lit('"payload"')), F.get_json_object(key, "$.payload"))
    return F.from_json(F.coalesce(payload, key), TEXTS.simpleString(), _STRICT)


def _document(text: Column, connector: Column) -> Column:
    """The row of MongoDB, which is JSON text within the JSON."""
    inner = F.coalesce(F.get_json_object(text, "$.payload.after"), F.get_json_object(text, "$.after"))
    return F.when(connector == "mongodb", F.from_json(inner, TEXTS.simpleString(), _STRICT))


def json_types() -> Column:
    """
    What the schema beside a payload says of each column: the name of its meaning, or else its type.

    The scale of a decimal stands behind the name, its precision before the scale if it is known.
    """
    fields = F.from_json(F.col(TEXT), _SCHEMA)["schema"]["fields"]
    images = F.filter(fields, lambda each: each["field"].isin("after", "before") & each["fields"].isNotNull())
    columns = F.filter(F.try_element_at(images, F.lit(1))["fields"], lambda each: each["field"].isNotNull())
    entries = F.transform(
        columns, lambda each: F.struct(each["field"].alias("key"), _type_of(each).alias("value"))
    )
    return texts_of(entries)


def _type_of(column: Column) -> Column:
    precision, scale = (
        F.try_element_at(column["parameters"], F.lit(name)) for name in ("connect.decimal.precision", "scale")
    )
    digits = F.concat(F.lit("("), F.concat_ws(",", precision, scale), F.lit(")"))
    meaning = F.concat(column["name"], F.when(scale.isNotNull(), digits).otherwise(""))
    return F.coalesce(meaning, column["type"])


def texts_of(entries: Column) -> Column:
    """The entries as a map; null where a name is there twice, which Spark would end the job for."""
    names = entries["key"]
    return F.when(F.size(names) == F.size(F.array_distinct(names)), F.map_from_entries(entries))
