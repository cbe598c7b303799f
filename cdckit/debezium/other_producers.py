"""Events of other producers than Debezium: Maxwell's of MySQL, and wal2json's of PostgreSQL, in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.events import (
    CREATE,
    DELETE,
    MESSAGE,
    READ,
    TEXTS,
    TRUNCATE,
    UPDATE,
    EventFault,
    Kind,
    binlog_position,
    error_columns,
    event_columns,
    lsn_position,
    time_columns,
)
from cdckit.debezium.json_events import FOUND, text_of_value, with_values
from cdckit.model.records import require_records
from cdckit.parts.arguments import flat_columns
from cdckit.parts.columns import built_once
from cdckit.parts.json_objects import ObjectReader
from cdckit.parts.workers import without_garbage_collection


def _read_objects(batches: Iterable[pa.RecordBatch], kind: T.StructType) -> Iterator[pa.RecordBatch]:
    reader = ObjectReader(kind)
    for batch in batches:
        with without_garbage_collection():
            found = reader.column(reader.read(batch.column("value")))
        yield pa.RecordBatch.from_arrays([found], [FOUND])


def _with_objects(records: DataFrame, kind: T.StructType) -> DataFrame:
    """Records with the one JSON object that the value of each is; null for all else."""
    read = T.StructType([T.StructField(FOUND, kind)])
    return with_values(records, partial(_read_objects, kind=kind), read)


def texts_by_name(entries: Column) -> Column:
    """The entries as a map; null where a name is there twice, which Spark would end the job for."""
    names = entries["key"]
    return F.when(F.size(names) == F.size(F.array_distinct(names)), F.map_from_entries(entries))


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
        transaction (`output_xoffset`; the last one says no number).  Another server counts its places
        anew: after a failover, read its records as another `source`, or leave the option out.  It never
        fails on data.

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
    return _with_objects(records, _MAXWELL_ROW).select(*_maxwell_columns())


@built_once
def _maxwell_columns() -> list[Column]:
    event = F.col(FOUND)
    operation = F.lit(None).cast("string")
    for name, meaning in _TYPES.items():
        operation = F.when(event["type"] == name, meaning).otherwise(operation)
    kind = F.col("kind")
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
        "kind": (
            F.when(F.col("value").isNull(), Kind.TOMBSTONE)
            .when(operation.isNotNull(), Kind.ROW)
            .when(event["type"].rlike(_OF_SCHEMAS), Kind.SCHEMA_CHANGE)
            .when(event["type"].isin(*_OF_ROWS_NOT), Kind.HEARTBEAT)
        ),
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
            (EventFault.NO_TIME, is_row & F.col("event_timestamp").isNull(), None),
        ]
    )
    return event_columns(found, faults)


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
    return _with_objects(records, _WAL2JSON_ROW).select(*_wal2json_columns())


@built_once
def _wal2json_columns() -> list[Column]:
    event = F.col(FOUND)
    action, columns, identity = event["action"], event["columns"], event["identity"]
    operation = F.lit(None).cast("string")
    for letter, meaning in _ACTIONS.items():
        operation = F.when(action == letter, meaning).otherwise(operation)
    kind = F.col("kind")
    is_row = kind == Kind.ROW
    after, before = _texts(columns, "value"), _texts(identity, "value")
    found = {
        "form": F.when(event.isNotNull(), "json"),
        "kind": (
            F.when(F.col("value").isNull(), Kind.TOMBSTONE)
            .when(operation == TRUNCATE, Kind.TRUNCATE)
            .when(operation == MESSAGE, Kind.MESSAGE)
            .when(operation.isNotNull(), Kind.ROW)
            .when(action.isin("B", "C"), Kind.TRANSACTION)
        ),
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
    has_row = F.when(operation == DELETE, F.col("before").isNotNull()).otherwise(F.col("after").isNotNull())
    faults = error_columns(
        [
            (EventFault.NOT_JSON, event.isNull() & F.col("value").isNotNull(), text_of_value()),
            (EventFault.UNKNOWN_OPERATION, kind.isNull() & action.isNotNull(), action),
            (EventFault.NOT_AN_EVENT, kind.isNull(), text_of_value()),
            (EventFault.NO_TABLE, kind.isin(Kind.ROW, Kind.TRUNCATE) & event["table"].isNull(), None),
            (EventFault.NO_ROW, is_row & ~has_row, None),
            (EventFault.NO_TIME, is_row & F.col("event_timestamp").isNull(), None),
        ]
    )
    return event_columns(found, faults)


def _texts(columns: Column, of: str) -> Column:
    """By name, one thing that is said of each column; null where a name is missing or there twice."""
    entries = F.transform(columns, lambda each: F.struct(each["name"].alias("key"), each[of].alias("value")))
    return F.when(~F.exists(columns, lambda each: each["name"].isNull()), texts_by_name(entries))
