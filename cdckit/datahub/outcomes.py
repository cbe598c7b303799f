"""What became of messages: a log of their records, and the status of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.existence import STATEMENT_KEY, with_statement_key
from cdckit.datahub.faults import HubFault
from cdckit.datahub.mappings import DEFAULT_SYSTEM
from cdckit.datahub.message_store import whole_value
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import DELETE, DROPPED, UNREADABLE, UPSERT
from cdckit.datahub.statuses import Outcome, Status
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_instant
from cdckit.records import RECORD_COLUMNS

STATUS_COLUMNS = ("message_identifier", "status", "error_message", "attempts", "next_attempt_timestamp")


DUE, EVERYTHING = "due", "everything"
"""What a run may choose instead of listed messages: the new ones and those that are due, or all."""


@dataclass(frozen=True)
class Retry:
    """
    When messages that require reprocessing are tried again.

    Args:
        first: How long after the first attempt.
        growth: By what each further delay is longer than the one before.
        maximum: The age, since the message was stored, at which it is given up.

    Source:
        Data hub: "automatically resubmitted periodically, up to a maximum delay".  The figures are the
        product's.
    """

    first: timedelta = timedelta(seconds=60)
    growth: float = 2.0
    maximum: timedelta = timedelta(days=40)

    def __post_init__(self) -> None:
        if self.first <= timedelta(0) or self.maximum <= timedelta(0) or not self.growth >= 1:
            raise InvalidArgument("Retry", "its arguments", "delays above zero that do not shrink", self)

    def next_attempt(self, now: Column, attempts: Column) -> Column:
        """When a message is due again that was tried so many times, the last time *now*."""
        longest = F.lit(self.maximum.total_seconds())
        delay = F.lit(self.first.total_seconds()) * F.pow(F.lit(self.growth), attempts - 1)
        return _later(now, F.least(delay, longest))

    def given_up(self, stored: Column) -> Column:
        """When a message is given up that was *stored* then."""
        return _later(stored, F.lit(self.maximum.total_seconds()))


def _later(at: Column, seconds: Column) -> Column:
    return F.timestamp_micros(F.unix_micros(at) + (seconds * 1_000_000).cast("long"))


def record_log(statements: DataFrame, waiting: DataFrame | None, entity: str) -> DataFrame:
    """
    What became of each record, as far as it concerns one target.

    Returns:
        One row per record and mapping: `message_identifier`, `record` ("2", "2/order_lines/1"; null
        for the data of a whole message), `entity`, `outcome` (see `Outcome`), `error_code`,
        `error_description`, `guid`, `raw` (the record as JSON text, where it is in error).
    """
    rows = statements.where(F.col("operation").isin(UPSERT, DELETE, DROPPED, UNREADABLE))
    joined = with_statement_key(rows)
    if waiting is None:
        joined = joined.withColumn("missing", F.lit(None).cast("string"))
    else:
        ours = waiting.where(F.col("entity") == entity).drop("entity").alias("w")
        keyed = [name for name in STATEMENT_KEY if name != "entity"]
        same = [F.col(f"s.{name}").eqNullSafe(F.col(f"w.{name}")) for name in keyed]
        joined = joined.alias("s").join(ours, same, "left").select("s.*", "w.missing")
    invalid, waits = F.col("error_code").isNotNull(), F.col("missing").isNotNull()
    outcome = (
        F.when(invalid, str(Outcome.ERROR)).when(waits, str(Outcome.WAITING)).otherwise(F.col("operation"))
    )
    text = _described(HubFault.LINK_MISSING, F.col("missing"))
    return joined.select(
        F.col("message_id").alias("message_identifier"),
        "record",
        F.when(F.col("operation") != UNREADABLE, entity).alias("entity"),
        outcome.alias("outcome"),
        F.coalesce("error_code", F.when(waits, str(HubFault.LINK_MISSING))).alias("error_code"),
        F.coalesce("error_description", F.when(waits, text)).alias("error_description"),
        "guid",
        "raw",
        F.col("number"),
    )


def waiting_records(
    waiting: DataFrame, messages: DataFrame, known: DataFrame | None, retry: Retry
) -> DataFrame:
    """
    The records that wait, with what is known of their messages (see `Hub.waiting`).

    Args:
        waiting: The statements that wait.
        messages: The message store.
        known: The statuses.
        retry: When messages are given up.
    """
    records = waiting.where(F.col("operation").isin(UPSERT, DELETE))
    named = records.withColumnRenamed("message_id", "message_identifier")
    return with_status(
        named.join(messages.select("message_identifier", "message_timestamp"), "message_identifier"), known
    ).select(
        "message_identifier",
        "record",
        "entity",
        "missing",
        F.col("message_timestamp").alias("since_timestamp"),
        "attempts",
        "next_attempt_timestamp",
        retry.given_up(F.col("message_timestamp")).alias("given_up_timestamp"),
    )


def problems(statements: Iterable[DataFrame], waiting: DataFrame | None) -> DataFrame | None:
    """
    Per message, the worst that befell its records: `message_id`, `status`, `error_message`.

    Messages whose records were all applied or dropped have no row; None if nothing was ever stated.
    """
    columns = ("message_id", "number", "rank", "record", "error")
    found = []
    for rows in statements:
        unreadable = F.col("operation") == UNREADABLE
        found.append(
            rows.where(F.col("error_code").isNotNull()).select(
                "message_id",
                F.col("arrival.record_number").alias("number"),
                F.when(unreadable, 0).otherwise(2).alias("rank"),
                "record",
                F.concat_ws(": ", "error_code", "error_description").alias("error"),
            )
        )
    if waiting is not None:
        found.append(
            waiting.where(F.col("operation").isin(UPSERT, DELETE)).select(
                "message_id",
                "number",
                F.lit(1).alias("rank"),
                "record",
                _error(HubFault.LINK_MISSING, F.col("missing")).alias("error"),
            )
        )
    if not found:
        return None
    united = reduce(DataFrame.unionByName, [each.select(*columns) for each in found])
    first = F.min(F.struct("number", "rank", "record", "error"))
    status = F.when(F.col("worst") == 1, int(Status.REQUIRES_REPROCESSING)).otherwise(
        int(Status.DATA_INVALID)
    )
    said = F.col("first")
    text = F.when(
        said.getField("record").isNotNull(), F.concat(F.lit("record "), said.getField("record"), F.lit(": "))
    ).otherwise(F.lit(""))
    return (
        united.groupBy("message_id")
        .agg(F.min("rank").alias("worst"), first.alias("first"))
        .select(
            "message_id",
            status.alias("status"),
            F.concat(text, said.getField("error")).alias("error_message"),
        )
    )


def routed(messages: DataFrame, schema: Schema) -> DataFrame:
    """Say of each message where the schema has no place for it: `refused` (a status) and `refusal`."""
    system, entity = F.col("source_system"), F.col("source_entity")
    known_system = system.isin(list(schema.systems))
    known = F.lit(False)
    for reference, each in schema.systems.items():
        known = known | ((system == reference) & entity.isin(list(each.mappings)))
    no_default = F.lit("the message names none, and there is none by default, *")
    wanted = F.when(system == DEFAULT_SYSTEM, no_default).otherwise(system)
    no_system = _error(HubFault.SYSTEM_NOT_FOUND, wanted)
    no_entity = _error(HubFault.ENTITY_NOT_FOUND, F.concat(system, F.lit(" has no "), entity))
    return messages.withColumns(
        {
            "refused": F.when(~known_system, int(Status.SYSTEM_NOT_FOUND)).when(
                ~known, int(Status.ENTITY_NOT_FOUND)
            ),
            "refusal": F.when(~known_system, no_system).when(~known, no_entity),
        }
    )


def _described(problem: HubFault, finding: Column) -> Column:
    """What `HubFault.describe` gives."""
    return F.concat(F.lit(f"{problem.sentence.removesuffix('.')}: "), finding)


def _error(problem: HubFault, finding: Column) -> Column:
    """The code and what it means, as the error of a message."""
    return F.concat(F.lit(f"{problem}: "), _described(problem, finding))


def statuses(
    processed: DataFrame, problems: DataFrame | None, before: DataFrame | None, *, now: datetime, retry: Retry
) -> DataFrame:
    """
    The statuses of the messages that a run processed, in `STATUS_COLUMNS`.

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
    attempts = F.lit(1)
    if before is not None:
        earlier = before.select("message_identifier", F.col("attempts").alias("earlier"))
        joined = joined.join(earlier, "message_identifier", "left")
        attempts = F.coalesce("earlier", F.lit(0)) + 1
    given_up = retry.given_up(F.col("message_timestamp"))
    waits = F.col("status") == int(Status.REQUIRES_REPROCESSING)
    status = (
        F.when(F.col("refused").isNotNull(), F.col("refused"))
        .when(waits & (at >= given_up), int(Status.REPROCESS_TIMEOUT))
        .when(F.col("status").isNotNull(), F.col("status"))
        .otherwise(int(Status.SUCCESS))
    )
    found = joined.select(
        "message_identifier",
        status.cast("int").alias("status"),
        F.coalesce("refusal", "error_message").alias("error_message"),
        attempts.cast("int").alias("attempts"),
        given_up.alias("given_up"),
    )
    again = F.col("status") == int(Status.REQUIRES_REPROCESSING)
    # The last attempt is at the maximum age, and no later.
    due = F.least(retry.next_attempt(at, F.col("attempts")), F.col("given_up"))
    return found.withColumn("next_attempt_timestamp", F.when(again, due)).drop("given_up")


def with_status(messages: DataFrame, known: DataFrame | None) -> DataFrame:
    """Messages with what the statuses say of them; those of which they say nothing were not processed."""
    if known is None:
        return messages.withColumns(
            {
                "status": F.lit(int(Status.NOT_PROCESSED)),
                "error_message": F.lit(None).cast("string"),
                "attempts": F.lit(0),
                "next_attempt_timestamp": F.lit(None).cast("timestamp"),
            }
        )
    joined = messages.join(known.select(*STATUS_COLUMNS), "message_identifier", "left")
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


def message_log(known: DataFrame, columns: list[str]) -> DataFrame:
    """The messages that the schema has no place for, as rows of the log."""
    refused = F.col("status").isin(int(Status.SYSTEM_NOT_FOUND), int(Status.ENTITY_NOT_FOUND))
    parts = F.split("error_message", ": ", 2)
    said = {
        "message_identifier": F.col("message_identifier"),
        "outcome": F.lit(str(Outcome.ERROR)),
        "error_code": parts.getItem(0),
        "error_description": parts.getItem(1),
        "number": F.lit(0),
    }
    absent = F.lit(None).cast("string")
    return known.where(refused).select(*(said.get(name, absent).alias(name) for name in columns))


def rejected(received: DataFrame, log: DataFrame) -> DataFrame:
    """What could not be applied, as the records that were received, with a reason."""
    sender = ("message_identifier", "source_system", "source_entity")
    error = ("error_code", "error_description")
    whole = received.withColumn("value", whole_value())
    invalid = whole.where(F.col("status") == int(Status.MESSAGE_INVALID)).select(
        *RECORD_COLUMNS, *sender, *error,
        F.lit(None).cast("string").alias("record"), F.lit(None).cast("string").alias("record_text"),
        F.array().cast("array<string>").alias("entities"),
    )  # fmt: skip
    stored = whole.where(F.col("status") == int(Status.NOT_PROCESSED)).select(*RECORD_COLUMNS, *sender)
    faulty = log.where(F.col("outcome") == str(Outcome.ERROR))
    # Two mappings of a record may find the same wrong.
    found = faulty.groupBy("message_identifier", "record", F.col("raw").alias("record_text"), *error).agg(
        F.array_sort(F.collect_set("entity")).alias("entities")
    )
    columns = (*RECORD_COLUMNS, *sender, "record", "entities", "record_text", *error)
    united = invalid.unionByName(found.join(stored, "message_identifier").select(*invalid.columns))
    return united.select(*columns)
