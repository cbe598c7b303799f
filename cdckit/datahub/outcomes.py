"""What became of records: their log, those that wait, and those that are rejects."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.existence import with_statement
from cdckit.datahub.faults import HubFault
from cdckit.datahub.message_store import whole_value
from cdckit.datahub.resolution import UNPROCESSED
from cdckit.datahub.statements import DELETE, DROPPED, IS_RECORD, UNREADABLE, UPSERT
from cdckit.datahub.statuses import Outcome, Status
from cdckit.parts.retry_times import Retry
from cdckit.parts.schemas import text_literal
from cdckit.records import RECORD_COLUMNS


def record_log(statements: DataFrame, waiting: DataFrame | None, entity: str) -> DataFrame:
    """
    What became of each record, as far as it concerns one target.

    One row per record and mapping, in the columns of `Hub.log`, with `raw` (the record as JSON text, where it
    is in error) and `number`.
    """
    rows = statements.where(F.col("operation").isin(UPSERT, DELETE, DROPPED, UNREADABLE))
    if waiting is None:
        joined = rows.withColumn("missing", F.lit(None).cast("string"))
    else:
        joined = with_statement(rows, entity).join(waiting, "statement", "left")
    missing = HubFault.LINK_MISSING
    return joined.selectExpr(
        "message_id AS message_identifier",
        "record",
        f"if(operation <> '{UNREADABLE}', {text_literal(entity)}, NULL) AS entity",
        f"""CASE WHEN error_code IS NOT NULL THEN '{Outcome.ERROR}'
            WHEN missing IS NOT NULL THEN '{Outcome.WAITING}' ELSE operation END AS outcome""",
        f"coalesce(error_code, if(missing IS NOT NULL, '{missing}', NULL)) AS error_code",
        f"coalesce(error_description, {missing.described('missing')}) AS error_description",
        "guid",
        "raw",
        "arrival.record_number AS number",
    )


def waiting_records(unapplied: DataFrame, known: DataFrame, retry: Retry) -> DataFrame:
    """The records that wait, with what is *known* of their messages, their statuses (see `Hub.waiting`)."""
    records = unapplied.select("statement.*", "missing").where(f"{IS_RECORD} AND missing IS NOT NULL")
    named = known.withColumnRenamed("message_identifier", "message_id")
    return records.join(named, "message_id").selectExpr(
        "message_id AS message_identifier",
        "record",
        "entity",
        "missing",
        "message_timestamp AS since_timestamp",
        "attempts",
        "next_attempt_timestamp",
        f"{retry.given_up('message_timestamp')} AS given_up_timestamp",
    )


def problems(facts: DataFrame | None, waiting: DataFrame | None) -> DataFrame | None:
    """
    Per message, the worst that befell its records: `message_id`, `status`, `error_message`.

    Messages whose records were all applied or dropped have no row; None if nothing was ever stated.
    """
    found = []
    if facts is not None:
        rank = f"if(statement.operation = '{UNREADABLE}', 0, 2) AS rank"
        wrong = facts.where(f"error_code <> '{UNPROCESSED}'")
        found.append(wrong.selectExpr("statement.*", rank, "error"))
    if waiting is not None:
        error = f"{HubFault.LINK_MISSING.error('missing')} AS error"
        found.append(waiting.selectExpr("statement.*", "1 AS rank", error).where(IS_RECORD))
    if not found:
        return None
    first = F.min(F.struct("number", "rank", "record", "error")).alias("earliest")
    by_message = reduce(DataFrame.unionByName, found).groupBy("message_id")
    worst = by_message.agg(F.min("rank").alias("worst"), first)
    return worst.selectExpr(
        "message_id",
        f"if(worst = 1, {int(Status.REQUIRES_REPROCESSING)}, {int(Status.DATA_INVALID)}) AS status",
        "concat(coalesce('record ' || earliest.record || ': ', ''), earliest.error) AS error_message",
    )


def message_log(known: DataFrame) -> DataFrame:
    """The messages that the schema has no place for, in the columns of the log that they fill."""
    refused = known.where(f"status IN {(int(Status.SYSTEM_NOT_FOUND), int(Status.ENTITY_NOT_FOUND))}")
    said = refused.selectExpr("message_identifier", "split(error_message, ': ', 2) AS parts", "0 AS number")
    error = (f"'{Outcome.ERROR}' AS outcome", "parts[0] AS error_code", "parts[1] AS error_description")
    return said.selectExpr("*", *error).drop("parts")


def rejected(received: DataFrame, log: DataFrame) -> DataFrame:
    """What could not be applied, as the records that were received, with a reason."""
    sender = ("message_identifier", "source_system", "source_entity")
    error = ("error_code", "error_description")
    whole = received.withColumn("value", whole_value())
    invalid = whole.where(f"status = {int(Status.MESSAGE_INVALID)}")
    stored = whole.where(f"status = {int(Status.NOT_PROCESSED)}").select(*RECORD_COLUMNS, *sender)
    faulty = log.where(f"outcome = '{Outcome.ERROR}'").withColumnRenamed("raw", "record_text")
    # Two mappings of a record may find the same wrong.
    found = faulty.groupBy("message_identifier", "record", "record_text", *error).agg(
        F.array_sort(F.collect_set("entity")).alias("entities")
    )
    said = invalid.select(*RECORD_COLUMNS, *sender, *error, F.array().cast("array<string>").alias("entities"))
    united = said.unionByName(found.join(stored, "message_identifier"), allowMissingColumns=True)
    return united.select(*RECORD_COLUMNS, *sender, "record", "entities", "record_text", *error)
