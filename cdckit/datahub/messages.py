"""Messages: kept as they came, each with a status: its faults, when it is tried again, when given up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import IntEnum, StrEnum
from functools import reduce
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.backoff import Backoff
from cdckit.datahub.erased_records import require_no_mark
from cdckit.datahub.json_values import require_names_once
from cdckit.datahub.mappings import DEFAULT_SYSTEM
from cdckit.datahub.source_systems import Schema
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION, Fault
from cdckit.model.forms import RECORDS
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.model.rejected_records import ERROR_FIELDS
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import flat_columns, require_instant, text_literal
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.parts.guids import guids
from cdckit.parts.instants import microseconds, parse_instant
from cdckit.parts.json_text import members
from cdckit.parts.values import time_between
from cdckit.parts.workers import WorkerPlan


class HubFault(Fault):
    """
    Why a message or a record was not applied: the `error_code` of logs and rejects.

    >>> HubFault.KEY_MISSING.describe("number")
    'The record needs values in the fields of a key: number'
    >>> [str(fault) for fault in HubFault if fault.heals]
    ['KEY_AMBIGUOUS', 'LINK_AMBIGUOUS', 'LINK_MISSING']
    """

    MESSAGE_INVALID = "MESSAGE_INVALID", "The record holds no message."
    SYSTEM_NOT_FOUND = "SYSTEM_NOT_FOUND", "The schema has no such source system."
    ENTITY_NOT_FOUND = "ENTITY_NOT_FOUND", "The source system has no such source entity."
    DATA_INVALID = "DATA_INVALID", "The reader cannot read the data of the message."
    RECORD_INVALID = "RECORD_INVALID", "A record must be an object that has each name once."
    FILTER_FAILED = "FILTER_FAILED", "A filter of the mapping failed on the record."
    VALUE_INVALID = "VALUE_INVALID", "A value does not convert to the type of its field."
    CHILDREN_INVALID = "CHILDREN_INVALID", "Children must be an array of objects."
    KEY_MISSING = "KEY_MISSING", "The record needs values in the fields of a key."
    KEY_AMBIGUOUS = "KEY_AMBIGUOUS", "The keys of the record lead to several entities.", True
    LINK_AMBIGUOUS = "LINK_AMBIGUOUS", "The key of a link leads to several entities.", True
    LINK_MISSING = "LINK_MISSING", "The record waits for what is not there.", True

    def describe(self, finding: str = "") -> str:
        """The sentence, with what was found in this message or record."""
        return f"{self.sentence.removesuffix('.')}: {finding}" if finding else self.sentence

    def describe_sql(self, finding: str) -> str:
        """Describe what an expression of SQL says, as one."""
        return f"concat({text_literal(self.sentence.removesuffix('.') + ': ')}, {finding})"

    def error_sql(self, finding: str) -> str:
        """The code, and the sentence with what an expression says: the error of a message."""
        return f"concat({text_literal(f'{self}: ')}, {self.describe_sql(finding)})"


STATUS_SCHEMA = flat_columns(
    """message_identifier string, waiting_since timestamp, status integer, error_message string,
    attempts integer, next_attempt_timestamp timestamp"""
)
"""One row is one message that a run has processed, and where it stands.  `waiting_since` is the time of the
run which found that it waits: by when it was stored, all that waits of an old topic would be given up."""

DUE, EVERYTHING = "due", "everything"
"""What a run may choose instead of listed messages: the new ones and those that are due, or all."""


class Status(IntEnum):
    """
    Where a message stands.

    A message is BEING_PROCESSED while a run that has chosen it is under way: that is how any hub on the same
    local folder shows it meanwhile (`Hub.messages`).  No table holds it, so a run that dies leaves no message
    so (but on Windows, until the next run); and in an object store it is not shown at all.

    Source:
        Data hub: 1 and 5 stand in the text.  The others are those of the product's status page, but for
        BEING_PROCESSED: its number there is 1, which the text has given away (decision: 4).

    >>> Status(26).name, Status.SUCCESS == 10
    ('REPROCESS_TIMEOUT', True)
    """

    NOT_PROCESSED = 0
    REQUIRES_REPROCESSING = 1
    BEING_PROCESSED = 4
    PREVIOUSLY_RECEIVED = 5
    SUCCESS = 10
    MESSAGE_NOT_FOUND = 21
    MESSAGE_INVALID = 22
    SYSTEM_NOT_FOUND = 23
    ENTITY_NOT_FOUND = 24
    DATA_INVALID = 25
    REPROCESS_TIMEOUT = 26


IS_STORED = f"status = {int(Status.NOT_PROCESSED)}"
"""Whether a record that was received is the message of its name that the store keeps: SQL."""


class Outcome(StrEnum):
    """
    What a record came to.

    >>> [str(each) for each in Outcome]
    ['upsert', 'delete', 'dropped', 'waiting', 'error']
    """

    UPSERT = "upsert"
    DELETE = "delete"
    DROPPED = "dropped"
    WAITING = "waiting"
    ERROR = "error"


def with_refusals(messages: DataFrame, schema: Schema) -> DataFrame:
    """Say of each message where the schema has no place for it: `refused` (a status) and `refusal`."""
    entities = {name: list(system.mappings) for name, system in schema.systems.items()}
    by_system = F.from_json(F.lit(json.dumps(entities)), "map<string, array<string>>")
    no_default = text_literal("the message names none, and there is none by default, *")
    wanted = f"if(source_system = '{DEFAULT_SYSTEM}', {no_default}, source_system)"
    no_entity = HubFault.ENTITY_NOT_FOUND.error_sql("concat(source_system, ' has no ', source_entity)")

    def found(no_system: str, no_entity: str) -> str:
        return f"""CASE WHEN _known IS NULL THEN {no_system}
            WHEN NOT array_contains(_known, source_entity) THEN {no_entity} END"""

    return (
        messages.withColumn("_known", F.try_element_at(by_system, F.col("source_system")))
        .selectExpr(
            "*",
            f"{found(str(int(Status.SYSTEM_NOT_FOUND)), str(int(Status.ENTITY_NOT_FOUND)))} AS refused",
            f"{found(HubFault.SYSTEM_NOT_FOUND.error_sql(wanted), no_entity)} AS refusal",
        )
        .drop("_known")
    )


def statuses(
    processed: DataFrame,
    problems: DataFrame | None,
    before: DataFrame | None,
    *,
    now: int,
    retry: Backoff,
    is_attempt: bool = True,
) -> DataFrame:
    """
    The statuses (`STATUS_SCHEMA`) of the messages that a run at the time *now*, in microseconds, processed.

    One row of *processed* is one of these messages (`message_identifier`, `refused`, `refusal`), of
    *problems* what `cdckit.datahub.outcomes.problems` gives, of *before* a status until now; None where
    none had one.  Unless it *is_attempt*, attempts, and when the next one is due, stay what they
    were, and what was given up is not tried; what only waits now is due at once.
    """
    at = f"timestamp_micros({now}L)"
    if problems is None:
        joined = processed.selectExpr("*", "NULL AS status", "NULL AS error_message")
    else:
        named = problems.withColumnRenamed("message_id", "message_identifier")
        joined = processed.join(named, "message_identifier", "left")
    if before is None:
        nothing = ("NULL AS stood", "NULL AS due_before", "CAST(NULL AS timestamp) AS waited_since")
        attempted = joined.selectExpr("*", "0 AS earlier", *nothing)
    else:
        earlier = before.selectExpr(
            "message_identifier",
            "attempts AS earlier",
            "status AS stood",
            "next_attempt_timestamp AS due_before",
            "waiting_since AS waited_since",
        )
        attempted = joined.join(earlier, "message_identifier", "left")
    since, given_up = f"coalesce(waited_since, {at})", retry.give_up_time()
    requires, timeout = int(Status.REQUIRES_REPROCESSING), int(Status.REPROCESS_TIMEOUT)
    is_late = f"{at} >= {given_up}" if is_attempt else f"stood = {timeout}"
    statuses_now = attempted.selectExpr("*", f"{since} AS waiting_since").selectExpr(
        "message_identifier",
        "waiting_since",
        f"""CAST(CASE
            WHEN refused IS NOT NULL THEN refused
            WHEN status = {requires} AND {is_late} THEN {timeout}
            ELSE coalesce(status, {int(Status.SUCCESS)}) END AS int) AS status""",
        "coalesce(refusal, error_message) AS error_message",
        f"CAST(coalesce(earlier, 0) + {int(is_attempt)} AS int) AS attempts",
        "due_before",
    )
    due = f"coalesce(due_before, {at})"
    if is_attempt:
        # The last attempt is when it has waited for the longest time, and no later.
        due = f"least({retry.next_attempt(at, 'attempts')}, {given_up})"
    return statuses_now.selectExpr(
        "message_identifier",
        f"if(status IN ({requires}, {timeout}), waiting_since, NULL) AS waiting_since",
        *STATUS_SCHEMA.names[2:-1],
        f"if(status = {requires}, {due}, NULL) AS next_attempt_timestamp",
    )


def given_up(status_rows: DataFrame, now: datetime, wait: timedelta) -> tuple[DataFrame, int]:
    """
    Statuses, those of messages that wait for longer than *wait* given up; and how many those are.
    """
    at = require_instant(now, "now")
    waits = F.col("status") == int(Status.REQUIRES_REPROCESSING)
    # At *wait* itself nothing is given up, as in every door: a run would try once more then.
    is_late = waits & (time_between(F.col("waiting_since"), at) > F.lit(wait))
    rows = status_rows.withColumns(
        {
            "status": F.when(is_late, int(Status.REPROCESS_TIMEOUT)).otherwise(F.col("status")),
            "next_attempt_timestamp": F.when(~is_late, F.col("next_attempt_timestamp")),
        }
    )
    return rows, status_rows.where(is_late).count()


def with_status(messages: DataFrame, status_rows: DataFrame) -> DataFrame:
    """Messages with what the statuses say of them; those of which they say nothing were not processed."""
    joined = messages.join(status_rows.drop("waiting_since"), "message_identifier", "left")
    return joined.fillna({"status": int(Status.NOT_PROCESSED), "attempts": 0})


def with_being_processed(messages: DataFrame, chosen: str | list[str], now: int, last: int) -> DataFrame:
    """
    Messages with their statuses while a run is under way that has *chosen* some of them.

    It takes place at *now*, in microseconds, and knows of receipts (`received`) up to the *last*.
    """
    if chosen == EVERYTHING:
        is_chosen = F.lit(True)
    elif chosen == DUE:
        is_chosen = F.expr(f"status = {int(Status.NOT_PROCESSED)} OR coalesce({is_due(now)}, false)")
    else:
        is_chosen = F.col("message_identifier").isin(chosen)
    being_processed = F.when(is_chosen & (F.col("received") <= last), int(Status.BEING_PROCESSED))
    return messages.withColumn("status", being_processed.otherwise(F.col("status")))


def is_due(now: int) -> str:
    """Tell whether a message waits and is to be tried again at that time, in microseconds: SQL."""
    waits = f"status = {int(Status.REQUIRES_REPROCESSING)}"
    return f"({waits} AND next_attempt_timestamp <= timestamp_micros({now}L))"


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
    *(field for field in MESSAGE_SCHEMA if field.name not in RECORD_COLUMNS),
    T.StructField("envelope", _ENVELOPE),
    *ERROR_FIELDS,
]
DECODED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *_MESSAGE_FIELDS])
"""One row is one record, and the message that it holds; or why it holds none."""


@takes(records=RECORDS)
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
        these is an error too, or one that comes twice) has its bytes, so that `cdckit.rejects` gives it as
        it came.
        `message_identifier` is the sender's `guid`, or a UUIDv5 of topic, partition, offset, timestamp and
        bytes: a topic that was made anew counts its offsets from 0 again.  `effective_timestamp` is
        `timestamp`, or when the record was stored.  Digits below a microsecond are cut, and decide nothing:
        of two messages in one microsecond the one that arrived later counts.

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
    return WorkerPlan(records.select(*RECORD_COLUMNS), _decode_batches, DECODED_SCHEMA).rows()


def _decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(DECODED_SCHEMA)
    for batch in batches:
        origin = {name: batch.column(name) for name in ("topic", "partition", "offset")}
        at = batch.column("timestamp")
        has_origin = reduce(pc.and_, (column.is_valid() for column in (at, *origin.values()))).to_pylist()
        messages = list(map(_message, batch.column("value").to_pylist(), has_origin))
        columns = {name: batch.column(name) for name in RECORD_COLUMNS}
        for field in _MESSAGE_FIELDS:
            kind = schema.field(field.name).type
            columns[field.name] = pa.array([message.get(field.name) for message in messages], kind)
        is_sound, names = columns[ERROR_CODE].is_null(), columns["message_identifier"]
        is_nameless = pc.and_(is_sound, names.is_null())
        named = {**origin, "timestamp": at, "sha256": _digests(batch.column("value"), is_nameless)}
        made = guids("message", {name: column.filter(is_nameless) for name, column in named.items()})
        columns["message_identifier"] = pc.replace_with_mask(names, is_nameless, made.cast(names.type))
        columns["value"] = pc.if_else(is_sound, None, columns["value"])
        stored, effective = at.cast(schema.field("timestamp").type), columns["effective_timestamp"]
        columns["message_timestamp"] = stored
        columns["effective_timestamp"] = pc.if_else(is_sound, pc.coalesce(effective, stored), None)
        yield make_batch(columns, schema)


def _digests(values: pa.Array, chosen: pa.Array) -> pa.Array:
    """The digests of the values that are chosen."""
    texts = (
        sha256(value).hexdigest() if is_chosen else None
        for value, is_chosen in zip(values.to_pylist(), chosen.to_pylist(), strict=True)
    )
    return pa.array(texts, pa.string())


def _message(value: bytes | None, has_origin: bool) -> dict[str, Any]:
    """The columns that the document fills, or the error."""
    try:
        if not has_origin:
            # It would have no identifier, and no order.
            raise ValueError("the record has no timestamp, topic, partition or offset")
        if value is None:
            raise ValueError("the record has no value")
        return _read_document(value.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        problem = HubFault.MESSAGE_INVALID
        return {ERROR_CODE: str(problem), ERROR_DESCRIPTION: problem.describe(str(error))}


def _require_known(properties: Mapping[str, Any]) -> None:
    """A property that is ignored would be an instruction that silently does not hold."""
    for name in properties:
        if name not in _PROPERTIES:
            near = get_close_matches(name[:40].lower(), _PROPERTIES, 1)
            hint = f"did you mean {near[0]}?" if near else f"they are {', '.join(_PROPERTIES)}"
            raise ValueError(f"{name!r:.80} is no property of a message; {hint}")


def _read_document(document: str) -> dict[str, Any]:
    # The texts of data and options are handed on as they were written: numbers in them stay exact.
    # Of a name that comes twice the first text would be kept, and read by nobody.
    values, slices = members(document, once=True)
    _require_known(values)
    columns: dict[str, Any] = {}
    for name, column in _TEXTS.items():
        text = columns[column] = values.get(name)
        if text is not None:
            if not isinstance(text, str) or not text:
                raise ValueError(f"{name} must be a text that is not empty")
            text.encode()
    if columns["source_entity"] is None:
        raise ValueError("entity is missing")
    columns["source_system"] = columns["source_system"] or DEFAULT_SYSTEM
    for name in _FLAGS:
        if not isinstance(values.get(name), bool | None):
            raise ValueError(f"{name} must be true or false")
    columns["refresh"] = bool(values.get("refresh"))
    if values.get("timestamp") is not None:
        at = parse_instant(values["timestamp"])
        if at is None:
            raise ValueError("timestamp must be an instant, YYYY-MM-DDTHH:MM:SS, with or without a zone")
        columns["effective_timestamp"] = microseconds(at)
    if values.get("options") is not None:
        if not isinstance(values["options"], dict):
            raise ValueError("options must be an object")
        columns["options"] = document[slices["options"]]
        require_names_once(document[slices["options"]])
    end = len(document)
    data = slice(end, end) if values.get("data") is None else slices["data"]
    columns["data"] = document[data] or None
    require_no_mark(document[data])
    columns["envelope"] = {"before": document[: data.start], "after": document[data.stop :]}
    return columns


def with_statuses(decoded: DataFrame, stored: DataFrame | None = None) -> DataFrame:
    """
    Say of each message whether it is received: `status`.

    Args:
        decoded: One row per record, as `decode` returns them.
        stored: The `identity` of what was received before.

    Returns:
        The same rows and `status`: 0, not processed; 5, previously received, for the second message with
        an identifier in the order of arrival, which loses its data, key and headers; 22, message invalid.
        The same bytes from the same place, as of a file that is read again, are received once too if they
        are no message.

    Cost: one shuffle by identity.

    Source:
        Data hub, section on messages that are received twice.
    """
    decoded = decoded.withColumn("identity", identity())
    order = Window.partitionBy("identity").orderBy("message_timestamp", "topic", "partition", "offset")
    repeated = F.row_number().over(order) > 1
    if stored is not None:
        received = stored.select("identity").distinct().withColumn("known", F.lit(True))
        decoded = decoded.join(received, "identity", "left")
        repeated = repeated | F.coalesce("known", F.lit(False))
    status = (
        F.when(repeated, int(Status.PREVIOUSLY_RECEIVED))
        .when(F.col(ERROR_CODE).isNotNull(), int(Status.MESSAGE_INVALID))
        .otherwise(int(Status.NOT_PROCESSED))
    )
    is_new = F.col("status") == int(Status.NOT_PROCESSED)
    is_repeat = F.col("status") == int(Status.PREVIOUSLY_RECEIVED)
    kept = {
        **{name: F.when(is_new, F.col(name)) for name in ("data", "envelope")},
        # Nobody asks for these, and what the first one said may have been erased.
        **{name: F.when(~is_repeat, F.col(name)) for name in ("key", "headers")},
    }
    messages = decoded.withColumn("status", status).withColumns(kept).select(*DECODED_SCHEMA.names, "status")
    # A run reads the messages of one entity after the other: side by side they are found faster.
    return messages.sortWithinPartitions("source_system", "source_entity")


def whole_value() -> Column:
    """The bytes of a record that was received: those that were kept, or what its message was made of."""
    parts = (F.col("envelope.before"), F.coalesce("data", F.lit("")), F.col("envelope.after"))
    return F.coalesce("value", F.encode(F.concat(*parts), "utf-8"))


def identity() -> Column:
    """Name what a message has each time that it comes; of what is no message its place and bytes."""
    origin = [F.coalesce(F.col(name).cast("string"), F.lit("")) for name in ("topic", "partition", "offset")]
    digest = F.coalesce(F.sha2("value", 256), F.lit(""))
    return F.coalesce("message_identifier", F.concat_ws("\n", *origin, digest))
