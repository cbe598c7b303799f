"""The message store: records read as messages, each kept as it came under an identifier of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.mappings import DEFAULT_SYSTEM
from cdckit.datahub.statuses import HubFault, Status
from cdckit.parts.arguments import flat_columns
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.parts.instants import microseconds, parse_instant
from cdckit.parts.json_text import members
from cdckit.parts.values import guid
from cdckit.parts.workers import WorkerPlan
from cdckit.records import (
    ERROR_CODE,
    ERROR_DESCRIPTION,
    ERROR_FIELDS,
    RECORD_COLUMNS,
    RECORD_SCHEMA,
    WORKER_FIELDS,
    for_workers,
    headers_from_workers,
    require_records,
)

MESSAGE_SCHEMA = flat_columns(
    """message_identifier string, source_system string, source_entity string, message_timestamp timestamp,
    effective_timestamp timestamp, user_name string, refresh boolean, options string, data string,
    topic string, partition integer, offset long"""
)
"""One row is one message of the store.  `data` and `options` are JSON text, null where the message has
none; topic, partition and offset say where it came from, and with `message_timestamp` when in the order."""

_TEXTS = {
    "system": "source_system",
    "entity": "source_entity",
    "user": "user_name",
    "guid": "message_identifier",
}
_FLAGS = ("refresh", "process")
_PROPERTIES = (*_TEXTS, *_FLAGS, "timestamp", "options", "data")

_ENVELOPE = flat_columns("before string, after string")
_MESSAGE_FIELDS = [
    *(each for each in MESSAGE_SCHEMA if each.name not in RECORD_COLUMNS),
    T.StructField("envelope", _ENVELOPE),
    *ERROR_FIELDS,
]
DECODED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *_MESSAGE_FIELDS])
"""One row is one record, and the message that it holds; or why it holds none."""

_WORKER_SCHEMA = T.StructType([*WORKER_FIELDS, *_MESSAGE_FIELDS])


def decode(records: DataFrame) -> DataFrame:
    """
    Every record as a message of the data hub.

    Args:
        records: One row per record; `value` is one JSON document in UTF-8: `entity` (needed), `system`
            (default `*`), `timestamp` (ISO 8601; in UTC unless it says its zone), `user`, `refresh`,
            `process`, `options` (an object), `data`, `guid`.  `process`, true or false, is allowed and
            decides nothing: a message is stored first, and processed by the next `Hub.run`.

    Returns:
        One row per record: its columns, then those of `MESSAGE_SCHEMA` that are not among them, `envelope`,
        `error_code` and `error_description`.  A sound message has no `value`: it is what stands in
        `envelope` before and after `data`, and that.  One in error (MESSAGE_INVALID; another property than
        these is an error too) has its bytes, so that `cdckit.rejects` gives it as it came.
        `message_identifier` is the sender's `guid`, or a UUIDv5 of topic, partition and offset;
        `effective_timestamp` is `timestamp`, or when the record was stored.

    Raises:
        MissingColumns, WrongColumnType: *records* is not a table of records.

    Cost: one pass through Python, no shuffle.

    Source:
        Data hub, sections on the message store and on received messages.

    >>> from datetime import datetime, timezone
    >>> at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    >>> from cdckit.datahub import records
    >>> documents = [{"entity": "product", "guid": "m1", "data": []}, {}]
    >>> found = decode(records(session(), documents, received_at=at))
    >>> found.orderBy("offset").select("message_identifier", "source_entity", "error_code").show()
    +------------------+-------------+---------------+
    |message_identifier|source_entity|     error_code|
    +------------------+-------------+---------------+
    |                m1|      product|           NULL|
    |              NULL|         NULL|MESSAGE_INVALID|
    +------------------+-------------+---------------+
    <BLANKLINE>
    """
    require_records(records, function="decode")
    decoded = WorkerPlan(for_workers(records), _decode_batches, _WORKER_SCHEMA).rows()
    place = {name: F.col(name) for name in ("topic", "partition", "offset")}
    sound = F.col(ERROR_CODE).isNull()
    return decoded.withColumns(
        {
            "headers": headers_from_workers(),
            "message_identifier": F.when(sound, F.coalesce("message_identifier", guid("message", place))),
            "message_timestamp": F.col("timestamp"),
            "effective_timestamp": F.when(sound, F.coalesce("effective_timestamp", "timestamp")),
        }
    )


def _decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(_WORKER_SCHEMA)
    for batch in batches:
        needed = (batch.column(name).is_valid() for name in ("timestamp", "topic", "partition", "offset"))
        has_place = reduce(pc.and_, needed).to_pylist()
        found = list(map(_message, batch.column("value").to_pylist(), has_place))
        columns = {name: batch.column(name) for name in RECORD_COLUMNS}
        columns["value"] = pc.if_else(
            pa.array([ERROR_CODE in each for each in found], pa.bool_()), columns["value"], None
        )
        for each in _MESSAGE_FIELDS:
            kind = schema.field(each.name).type
            columns[each.name] = pa.array([one.get(each.name) for one in found], kind)
        yield make_batch(columns, schema)


def _message(value: bytes | None, has_place: bool) -> dict[str, Any]:
    """The columns that the document fills, or the error."""
    try:
        if not has_place:
            # It would have no identifier, and no order.
            raise ValueError("the record has no timestamp, topic, partition or offset")
        if value is None:
            raise ValueError("the record has no value")
        return _columns(value.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        problem = HubFault.MESSAGE_INVALID
        return {ERROR_CODE: str(problem), ERROR_DESCRIPTION: problem.describe(str(error))}


def _require_known(said: Mapping[str, Any]) -> None:
    """A property that is ignored would be an instruction that silently does not hold."""
    for name in said:
        if name not in _PROPERTIES:
            near = get_close_matches(name[:40].lower(), _PROPERTIES, 1)
            hint = f"did you mean {near[0]}?" if near else f"they are {', '.join(_PROPERTIES)}"
            raise ValueError(f"{name!r:.80} is no property of a message; {hint}")


def _columns(document: str) -> dict[str, Any]:
    # The texts of data and options are handed on as they were written: numbers in them stay exact.
    said, places = members(document)
    _require_known(said)
    found: dict[str, Any] = {}
    for name, column in _TEXTS.items():
        text = found[column] = said.get(name)
        if text is not None:
            if not isinstance(text, str) or not text:
                raise ValueError(f"{name} must be a text that is not empty")
            text.encode()
    if found["source_entity"] is None:
        raise ValueError("entity is missing")
    found["source_system"] = found["source_system"] or DEFAULT_SYSTEM
    for name in _FLAGS:
        if not isinstance(said.get(name), bool | None):
            raise ValueError(f"{name} must be true or false")
    found["refresh"] = bool(said.get("refresh"))
    if said.get("timestamp") is not None:
        at = parse_instant(said["timestamp"])
        if at is None:
            raise ValueError("timestamp must be an instant, YYYY-MM-DDTHH:MM:SS, with or without a zone")
        found["effective_timestamp"] = microseconds(at)
    if said.get("options") is not None:
        if not isinstance(said["options"], dict):
            raise ValueError("options must be an object")
        found["options"] = document[places["options"]]
    end = len(document)
    data = slice(end, end) if said.get("data") is None else places["data"]
    found["data"] = document[data] or None
    found["envelope"] = {"before": document[: data.start], "after": document[data.stop :]}
    return found


def with_statuses(decoded: DataFrame, stored: DataFrame | None = None) -> DataFrame:
    """
    Say of each message whether it is received: `status`.

    Args:
        decoded: One row per record, as `decode` returns them.
        stored: The `identity` of what was received before.

    Returns:
        The same rows and `status`: 0, not processed; 5, previously received, for the second message with
        an identifier in the order of arrival, which loses its data; 22, message invalid.  The same bytes
        from the same place, as of a file that is read again, are received once too if they are no message.

    Cost: one shuffle by identity.

    Source:
        Data hub, section on messages that are received twice.
    """
    decoded = decoded.withColumn("identity", identity())
    order = Window.partitionBy("identity").orderBy("message_timestamp", "topic", "partition", "offset")
    repeated = F.row_number().over(order) > 1
    if stored is not None:
        known = stored.select("identity").distinct().withColumn("known", F.lit(True))
        decoded = decoded.join(known, "identity", "left")
        repeated = repeated | F.coalesce("known", F.lit(False))
    status = (
        F.when(repeated, int(Status.PREVIOUSLY_RECEIVED))
        .when(F.col(ERROR_CODE).isNotNull(), int(Status.MESSAGE_INVALID))
        .otherwise(int(Status.NOT_PROCESSED))
    )
    is_new = F.col("status") == int(Status.NOT_PROCESSED)
    kept = {name: F.when(is_new, F.col(name)) for name in ("data", "envelope")}
    said = decoded.withColumn("status", status).withColumns(kept).select(*DECODED_SCHEMA.names, "status")
    # A run reads the messages of one entity after the other: side by side they are found faster.
    return said.sortWithinPartitions("source_system", "source_entity")


def whole_value() -> Column:
    """The bytes of a record that was received: those that were kept, or what its message was made of."""
    parts = (F.col("envelope.before"), F.coalesce("data", F.lit("")), F.col("envelope.after"))
    return F.coalesce("value", F.encode(F.concat(*parts), "utf-8"))


def identity() -> Column:
    """What the same message has each time that it comes; of what is no message its place and its bytes."""
    place = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in ("topic", "partition", "offset")]
    digest = F.coalesce(F.sha2("value", 256), F.lit(""))
    return F.coalesce("message_identifier", F.concat_ws("\n", *place, digest))
