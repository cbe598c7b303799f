"""The headers of a data message: what is read of them, and in which types."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T

OPERATIONS = ("INSERT", "UPDATE", "DELETE", "REFRESH")

HEADER_TYPES = {
    "operation": pa.string(),
    "changeSequence": pa.string(),
    "timestamp": pa.string(),
    "streamPosition": pa.string(),
    "transactionId": pa.string(),
    "changeMask": pa.binary(),
    "columnMask": pa.binary(),
    "transactionEventCounter": pa.int64(),
    "transactionLastEvent": pa.bool_(),
}
"""The headers that are read, by the producer's names; it may send more, and leave out any but the first
and the timestamp."""

HEADER_FIELDS = [
    T.StructField("operation", T.StringType()),
    T.StructField("change_sequence", T.StringType()),
    T.StructField("change_timestamp", T.TimestampType()),
    T.StructField("stream_position", T.StringType()),
    T.StructField("transaction_id", T.StringType()),
    T.StructField("transaction_event_counter", T.LongType()),
    T.StructField("transaction_last_event", T.BooleanType()),
]
"""The same in a row: instants typed, masks decoded elsewhere (`sent`, `changed`)."""


def misfit_headers(found: pa.StructType) -> str:
    """What is wrong with the headers of a data schema, or nothing."""
    misfits = [name for name in ("operation", "timestamp") if found.get_field_index(name) < 0]
    for name, needed in HEADER_TYPES.items():
        index = found.get_field_index(name)
        if index >= 0 and not _readable(found.field(index).type, needed):
            misfits.append(f"{name} is {found.field(index).type}")
    return ", ".join(misfits)


def _readable(found: pa.DataType, needed: pa.DataType) -> bool:
    return found in (needed, pa.null()) or (pa.types.is_integer(found) and pa.types.is_integer(needed))
