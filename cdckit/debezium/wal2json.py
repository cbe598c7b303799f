"""wal2json, format 2: PostgreSQL's changes as an output plugin of its own writes them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.event_faults import EventFault
from cdckit.debezium.events import (
    CREATE,
    DELETE,
    MESSAGE,
    TRUNCATE,
    UPDATE,
    Kind,
    error_columns,
    time_columns,
    with_events,
)
from cdckit.debezium.json_events import FOUND, one_object, text_of_value, texts_of
from cdckit.debezium.positions import lsn_position
from cdckit.parts.schemas import flat_columns
from cdckit.records import require_records

_COLUMN = flat_columns("name string, type string, value string")
_SAID = T.StructType(
    [
        *flat_columns("action string, xid string, timestamp string, lsn string, schema string, table string"),
        *(T.StructField(name, T.ArrayType(_COLUMN)) for name in ("columns", "identity", "pk")),
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
        records: One row per transported message (`cdckit.records.RECORD_SCHEMA`).

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
    read = one_object(records, _SAID)
    said = F.col(FOUND)
    action, columns, identity = said["action"], said["columns"], said["identity"]
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
        "form": F.when(said.isNotNull(), "json"),
        "kind": kind,
        "connector": F.when(kind.isNotNull() & (kind != Kind.TOMBSTONE), "postgresql"),
        "schema": said["schema"],
        "table": said["table"],
        "operation": operation,
        **time_columns(
            [
                ("source", said["timestamp"].try_cast("timestamp")),
                ("record", F.when(action.isNotNull(), F.col("timestamp"))),
            ]
        ),
        "position": lsn_position(said["lsn"]),
        "transaction_id": said["xid"],
        "before": before,
        "after": after,
        "types": F.when(is_row, _texts(F.coalesce(columns, identity), "type")),
        "said": F.when(~is_row, text_of_value()),
    }
    has_row = F.when(operation == DELETE, before.isNotNull()).otherwise(after.isNotNull())
    faults = error_columns(
        [
            (EventFault.NOT_JSON, said.isNull() & F.col("value").isNotNull(), text_of_value()),
            (EventFault.UNKNOWN_OPERATION, kind.isNull() & action.isNotNull(), action),
            (EventFault.NOT_AN_EVENT, kind.isNull(), text_of_value()),
            (EventFault.NO_TABLE, kind.isin(Kind.ROW, Kind.TRUNCATE) & said["table"].isNull(), None),
            (EventFault.NO_ROW, is_row & ~has_row, None),
            (EventFault.NO_TIME, is_row & found["event_timestamp"].isNull(), None),
        ]
    )
    return with_events(read, found, faults)


def _texts(columns: Column, of: str) -> Column:
    """By name, one thing that is said of each column; null where a name is missing or there twice."""
    entries = F.transform(columns, lambda each: F.struct(each["name"].alias("key"), each[of].alias("value")))
    return F.when(~F.exists(columns, lambda each: each["name"].isNull()), texts_of(entries))
