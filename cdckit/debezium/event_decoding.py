"""Debezium's change events: what every record says."""

from __future__ import annotations

from pyspark.sql import DataFrame

from cdckit.debezium.json_events import json_events
from cdckit.records import require_records


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
