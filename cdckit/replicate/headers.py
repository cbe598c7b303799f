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
"""The headers that are read, by the producer's names; it may send more, and leave out any but the first."""

TIME_TAKEN_FROM = T.StructField("time_taken_from", T.StringType())

HEADER_FIELDS = [
    T.StructField("operation", T.StringType()),
    T.StructField("change_sequence", T.StringType()),
    T.StructField("change_timestamp", T.TimestampType()),
    TIME_TAKEN_FROM,
    T.StructField("stream_position", T.StringType()),
    T.StructField("transaction_id", T.StringType()),
    T.StructField("transaction_event_counter", T.LongType()),
    T.StructField("transaction_last_event", T.BooleanType()),
]
"""The same in a row: instants typed, masks decoded elsewhere (`sent`, `changed`)."""

WORKER_HEADER_FIELDS = [field for field in HEADER_FIELDS if field is not TIME_TAKEN_FROM]
"""The headers as they come from the workers: `change_timestamp` is null where the message has none."""


def misfit_headers(found: pa.StructType) -> str:
    """What is wrong with the headers of a data schema, or nothing."""
    misfits = ["operation"] if found.get_field_index("operation") < 0 else []
    for name, needed in HEADER_TYPES.items():
        index = found.get_field_index(name)
        if index >= 0 and not _readable(found.field(index).type, needed):
            misfits.append(f"{name} is {found.field(index).type}")
    return ", ".join(misfits)


def _readable(found: pa.DataType, needed: pa.DataType) -> bool:
    return found in (needed, pa.null()) or (pa.types.is_integer(found) and pa.types.is_integer(needed))
