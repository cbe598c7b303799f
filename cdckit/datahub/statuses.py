"""Statuses: where each message stands, when it is tried again, and when it is given up."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.faults import HubFault
from cdckit.datahub.mappings import DEFAULT_SYSTEM
from cdckit.datahub.source_systems import Schema
from cdckit.parts.arguments import require_instant
from cdckit.parts.waiting import Retry

STATUS_SCHEMA = (
    T.StructType()
    .add("message_identifier", "string")
    .add("message_timestamp", "timestamp")
    .add("status", "integer")
    .add("error_message", "string")
    .add("attempts", "integer")
    .add("next_attempt_timestamp", "timestamp")
)
"""One row is one message that a run has processed, and where it stands."""

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
    """

    NOT_PROCESSED = 0
    REQUIRES_REPROCESSING = 1
    BEING_PROCESSED = 4
    PREVIOUSLY_RECEIVED = 5
    SUCCESS = 10
    GENERAL_ERROR = 20
    MESSAGE_NOT_FOUND = 21
    MESSAGE_INVALID = 22
    SYSTEM_NOT_FOUND = 23
    ENTITY_NOT_FOUND = 24
    DATA_INVALID = 25
    REPROCESS_TIMEOUT = 26


class Outcome(StrEnum):
    """What a record came to."""

    UPSERT = "upsert"
    DELETE = "delete"
    DROPPED = "dropped"
    WAITING = "waiting"
    ERROR = "error"


def routed(messages: DataFrame, schema: Schema) -> DataFrame:
    """Say of each message where the schema has no place for it: `refused` (a status) and `refusal`."""
    system, entity = F.col("source_system"), F.col("source_entity")
    known_system = system.isin(list(schema.systems))
    senders = [(system == name) & entity.isin(list(each.mappings)) for name, each in schema.systems.items()]
    known = reduce(Column.__or__, senders)
    no_default = F.lit("the message names none, and there is none by default, *")
    wanted = F.when(system == DEFAULT_SYSTEM, no_default).otherwise(system)
    no_system = HubFault.SYSTEM_NOT_FOUND.error(wanted)
    no_entity = HubFault.ENTITY_NOT_FOUND.error(F.concat(system, F.lit(" has no "), entity))
    return messages.withColumns(
        {
            "refused": F.when(~known_system, int(Status.SYSTEM_NOT_FOUND)).when(
                ~known, int(Status.ENTITY_NOT_FOUND)
            ),
            "refusal": F.when(~known_system, no_system).when(~known, no_entity),
        }
    )


def statuses(
    processed: DataFrame, problems: DataFrame | None, before: DataFrame, *, now: datetime, retry: Retry
) -> DataFrame:
    """
    The statuses of the messages that a run processed, in `STATUS_SCHEMA`.

    Args:
        processed: The messages (`message_identifier`, `message_timestamp`, `refused`, `refusal`).
        problems: As `problems` gives them.
        before: Their statuses before the run.
        now: When the run takes place.
        retry: When those that wait are tried again, and when they are given up.
    """
    at = require_instant(now, "now", function="process")
    if problems is None:
        columns = {"status": F.lit(None).cast("int"), "error_message": F.lit(None).cast("string")}
        joined = processed.withColumns(columns)
    else:
        named = problems.withColumnRenamed("message_id", "message_identifier")
        joined = processed.join(named, "message_identifier", "left")
    earlier = before.select("message_identifier", F.col("attempts").alias("earlier"))
    joined = joined.join(earlier, "message_identifier", "left")
    # The last attempt is at the maximum age, and no later.
    due = F.least(retry.next_attempt(at, F.col("attempts")), F.col("given_up"))
    requires, timeout = int(Status.REQUIRES_REPROCESSING), int(Status.REPROCESS_TIMEOUT)
    timed = joined.withColumns(
        {
            "attempts": F.expr("coalesce(earlier, 0) + 1"),
            "now": at,
            "given_up": retry.given_up(F.col("message_timestamp")),
        }
    )
    found = timed.selectExpr(
        "message_identifier",
        "message_timestamp",
        f"""CAST(CASE
            WHEN refused IS NOT NULL THEN refused
            WHEN status = {requires} AND now >= given_up THEN {timeout}
            ELSE coalesce(status, {int(Status.SUCCESS)}) END AS int) AS status""",
        "coalesce(refusal, error_message) AS error_message",
        "CAST(attempts AS int) AS attempts",
        "given_up",
    )
    again = F.when(F.col("status") == requires, due)
    return found.withColumn("next_attempt_timestamp", again).drop("given_up")


def with_status(messages: DataFrame, known: DataFrame) -> DataFrame:
    """Messages with what the statuses say of them; those of which they say nothing were not processed."""
    said = known.select(*(name for name in STATUS_SCHEMA.names if name != "message_timestamp"))
    joined = messages.join(said, "message_identifier", "left")
    return joined.withColumns(
        {
            "status": F.coalesce("status", F.lit(int(Status.NOT_PROCESSED))),
            "attempts": F.coalesce("attempts", F.lit(0)),
        }
    )


def with_being_processed(messages: DataFrame, chosen: str | list[str], now: int, last: int) -> DataFrame:
    """
    Messages with their statuses while a run is under way that has chosen some of them.

    Args:
        messages: With their statuses, and `received`, the number of their receipt.
        chosen: `DUE`, `EVERYTHING`, or the identifiers.
        now: The time of the run, in microseconds.
        last: The last receipt that the run knows of.
    """
    at, status = F.timestamp_micros(F.lit(now)), F.col("status")
    if chosen == EVERYTHING:
        is_chosen = F.lit(True)
    elif chosen == DUE:
        waits = status == int(Status.REQUIRES_REPROCESSING)
        is_due = waits & (F.col("next_attempt_timestamp") <= at)
        is_chosen = (status == int(Status.NOT_PROCESSED)) | F.coalesce(is_due, F.lit(False))
    else:
        is_chosen = F.col("message_identifier").isin(chosen)
    is_known = F.col("received") <= last
    return messages.withColumn(
        "status", F.when(is_chosen & is_known, F.lit(int(Status.BEING_PROCESSED))).otherwise(status)
    )
