"""What leaves a run: records accepted, waiting or rejected, and exports for indexes that keep no history."""

from __future__ import annotations

from functools import reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.backoff import Backoff
from cdckit.datahub.messages import IS_STORED, HubFault, Outcome, Status, whole_value
from cdckit.datahub.resolution import UNPROCESSED
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import DELETE, DROPPED, IS_RECORD, UNREADABLE, UPSERT, value_by_place
from cdckit.datahub.waiting import with_statement
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_COLUMNS
from cdckit.parts.argument_forms import rows_with, takes
from cdckit.parts.arguments import quoted, text_literal
from cdckit.parts.values import EXACT_JSON, as_text


def record_log(statements: DataFrame, waiting: DataFrame | None, entity: str) -> DataFrame:
    """
    Tell what became of each record, as far as it concerns one target.

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
        f"coalesce(error_description, {missing.describe_sql('missing')}) AS error_description",
        "guid",
        "raw",
        "arrival.record_number AS number",
    )


def waiting_records(
    unapplied: DataFrame, status_rows: DataFrame, received: DataFrame, retry: Backoff
) -> DataFrame:
    """The records that wait, of what is *unapplied*, with the statuses of their messages (see `Hub`)."""
    records = unapplied.select("statement.*", "missing").where(f"{IS_RECORD} AND missing IS NOT NULL")
    named = status_rows.where(f"status <> {int(Status.REPROCESS_TIMEOUT)}")
    stored = received.where(IS_STORED).withColumn("value", whole_value())
    waits = records.withColumnRenamed("message_id", "message_identifier").join(named, "message_identifier")
    return waits.selectExpr(
        "message_identifier",
        "record",
        "entity",
        "attempts",
        "next_attempt_timestamp",
        f"{retry.give_up_time()} AS given_up_timestamp",
        "waiting_since",
        "missing AS waiting_for",
    ).join(stored.select(*RECORD_COLUMNS, "message_identifier"), "message_identifier")


def problems(facts: DataFrame | None, waiting: DataFrame | None) -> DataFrame | None:
    """
    Find per message what befell its records: `message_id`, `status`, `error_message` (that of the first).

    What waits decides the status beside records in error, but not beside data that could not be read.
    Messages whose records were all applied or dropped have no row; None if nothing was ever stated.
    """
    problem_rows = []
    if facts is not None:
        rank = f"if(statement.operation = '{UNREADABLE}', 0, 2) AS rank"
        wrong = facts.where(f"error_code <> '{UNPROCESSED}'")
        problem_rows.append(wrong.selectExpr("statement.*", rank, "error"))
    if waiting is not None:
        error = f"{HubFault.LINK_MISSING.error_sql('missing')} AS error"
        problem_rows.append(waiting.selectExpr("statement.*", "1 AS rank", error).where(IS_RECORD))
    if not problem_rows:
        return None
    first = F.min(F.struct("number", "rank", "record", "error")).alias("earliest")
    by_message = reduce(DataFrame.unionByName, problem_rows).groupBy("message_id")
    return by_message.agg(F.min("rank").alias("least_rank"), first).selectExpr(
        "message_id",
        f"if(least_rank = 1, {int(Status.REQUIRES_REPROCESSING)}, {int(Status.DATA_INVALID)}) AS status",
        "concat(coalesce('record ' || earliest.record || ': ', ''), earliest.error) AS error_message",
    )


def message_log(status_rows: DataFrame) -> DataFrame:
    """The messages that the schema has no place for, in the columns of the log that they fill."""
    refused = status_rows.where(f"status IN {(int(Status.SYSTEM_NOT_FOUND), int(Status.ENTITY_NOT_FOUND))}")
    errors = refused.selectExpr("message_identifier", "split(error_message, ': ', 2) AS parts", "0 AS number")
    error = (f"'{Outcome.ERROR}' AS outcome", "parts[0] AS error_code", "parts[1] AS error_description")
    return errors.selectExpr("*", *error).drop("parts")


def find_rejects(received: DataFrame, log: DataFrame, status_rows: DataFrame) -> DataFrame:
    """Find what could not be applied, or was given up, as the records that were received, with a reason."""
    sender = ("message_identifier", "source_system", "source_entity")
    error = ("error_code", "error_description")
    whole = received.withColumn("value", whole_value())
    invalid = whole.where(f"status = {int(Status.MESSAGE_INVALID)}")
    stored = whole.where(IS_STORED).select(*RECORD_COLUMNS, *sender)
    late = status_rows.where(f"status = {int(Status.REPROCESS_TIMEOUT)}").select("message_identifier")
    given_up = log.where(f"outcome = '{Outcome.WAITING}'").join(late, "message_identifier", "left_semi")
    wrong = log.where(f"outcome = '{Outcome.ERROR}'").unionByName(given_up)
    faulty = wrong.withColumnRenamed("raw", "record_text")
    # Two mappings of a record may find the same wrong.
    rejects = faulty.groupBy("message_identifier", "record", "record_text", *error).agg(
        F.array_sort(F.collect_set("entity")).alias("entities")
    )
    refused_messages = invalid.select(
        *RECORD_COLUMNS, *sender, *error, F.array().cast("array<string>").alias("entities")
    )
    united = refused_messages.unionByName(
        rejects.join(stored, "message_identifier"), allowMissingColumns=True
    )
    return united.select(*RECORD_COLUMNS, *sender, "record", "entities", "record_text", *error)


_SINCE_YEAR_1 = 62_135_596_800_000_000
"""1970, in microseconds since the year 1: Elasticsearch knows no version below zero."""


@takes(rows=rows_with("operation", "id", "version", "arrival", "document"))
def bulk_lines(rows: DataFrame, index: str) -> DataFrame:
    """
    Inserts and deletes of documents as lines for Elasticsearch's bulk interface (NDJSON).

    Args:
        rows: As a hub's `exports` returns them: `operation` ("insert" or "delete"), `id` (null for none),
            `version` (microseconds since 1970), `arrival` (any order), `document` (a struct).
        index: The index to write to.

    Returns:
        One row per record with the one column `value`, so that `lines.write.text(path)` writes the
        file: the line of the action and, for an insert, the line of the document.  Actions with an id
        carry the version, counted from the year 1, so the index keeps the latest record whatever the order
        of lines and files (deletes as long as it remembers them); of two at one instant, the one that comes
        later in the order of lines.  Without an id the index gives one, and a delete has nothing to name:
        it is left out.

    Raises:
        MissingColumns: *rows* are not exported records.
        InvalidArgument: *index* is empty.

    Cost: a projection, and one sort by id within what one task writes.

    >>> row = "'insert' AS operation, '1' AS id, 0L AS version, 0 AS arrival"
    >>> document = "named_struct('number', 1, 'name', 'kettle') AS document"
    >>> print(bulk_lines(session().sql(f"SELECT {row}, {document}"), "products").first()["value"])
    {"index":{"_index":"products","_id":"1","version":62135596800000000,"version_type":"external_gte"}}
    {"number":1,"name":"kettle"}
    """
    if not index:
        raise InvalidArgument(None, "index", "the name of an index", index)
    is_delete = F.col("operation") == "delete"
    meta = F.struct(
        F.lit(index).alias("_index"),
        F.col("id").alias("_id"),
        F.when(F.col("id").isNotNull(), F.col("version") + _SINCE_YEAR_1).alias("version"),
        F.when(F.col("id").isNotNull(), "external_gte").alias("version_type"),
    )
    action = F.when(is_delete, F.to_json(F.struct(meta.alias("delete")))).otherwise(
        F.to_json(F.struct(meta.alias("index")))
    )
    lines = F.when(is_delete, action).otherwise(F.concat(action, F.lit("\n"), _document_text()))
    kept = rows.where(F.col("id").isNotNull() | ~is_delete)
    in_order = kept.repartition("id").sortWithinPartitions("id", "version", "arrival")
    return in_order.select(lines.alias("value"))


def _document_text() -> Column:
    """The document as JSON.  Fields that are null stay in it: they say that there is no value."""
    return F.to_json("document", {**EXACT_JSON, "ignoreNullFields": "false"})


class Exporter(Protocol):
    """
    Takes the exported records of one target, as `Hub.exports` gives them, to where they belong.

    >>> from cdckit.datahub import bulk_lines
    >>> def to_index(rows):
    ...     print(bulk_lines(rows, "products").first()["value"])
    >>> gone = "'delete' AS operation, '1' AS id, 0L AS version, 0 AS arrival, struct(1 AS n) AS document"
    >>> sink: Exporter = to_index
    >>> sink(session().sql(f"SELECT {gone}"))
    {"delete":{"_index":"products","_id":"1","version":62135596800000000,"version_type":"external_gte"}}

    A hub hands it what there is: `hub.export("products", to_index, after=position)`.
    """

    def __call__(self, rows: DataFrame, /) -> None: ...


def export_rows(schema: Schema, entity: str, applied: DataFrame) -> DataFrame:
    """
    The records of an export target, of which *applied* are the statements that are applied.

    Returns:
        One row per record: `operation` ("insert" or "delete"), `id` (the text of the field that
        `exportIdentifier` names; null without one), `version` (the effective timestamp in microseconds: of
        two records with one id the later is to stand, in whatever order they come), `message_id`,
        `arrival`, and `document`, a struct of the fields (with `exportStandardFields` also of
        `valid_from_timestamp`, `deleted_indicator` and `source_message`); a field that was not carried
        is null.

    Source:
        Data hub, section on export mode.
    """
    target = schema.targets[entity]
    identifiers = {
        place: quoted(f"id {mapping.export_identifier}")
        for place, mapping in target.mappings.items()
        if mapping.export_identifier is not None
    }
    # A cast would write instants by the session's zone.
    texts = [
        as_text(F.col("data").getField(name), target.fields[name].spark).alias(f"id {name}")
        for name in {mapping.export_identifier for mapping in target.mappings.values()}
        if name is not None
    ]
    fields = [f"data.{quoted(name)} AS {quoted(name)}" for name in target.fields]
    if any(mapping.export_standard_fields for mapping in target.mappings.values()):
        fields += [
            "effective_timestamp AS valid_from_timestamp",
            f"operation = '{DELETE}' AS deleted_indicator",
            "message_id AS source_message",
        ]
    return (
        applied.where(IS_RECORD)
        .select("*", *texts)
        .selectExpr(
            f"if(operation = '{DELETE}', 'delete', 'insert') AS operation",
            f"{value_by_place(schema, identifiers, 'string')} AS id",
            "unix_micros(effective_timestamp) AS version",
            "message_id",
            "arrival",
            f"struct({', '.join(fields)}) AS document",
        )
    )


def new_exports(rows: DataFrame, exported: DataFrame, position: int) -> DataFrame:
    """Find what of *rows* had no position so far, or was not what it is now (`EXPORTED_COLUMNS`)."""
    # A hash passes over nulls, and over the names of fields.
    digest = F.xxhash64("operation", "id", F.col("id").isNull(), _document_text()).alias("digest")
    digests = rows.select("message_id", F.col("arrival.record_number").alias("number"), digest)
    new = digests.join(_last_exports(exported), [*_NAME, "digest"], "left_anti")
    return new.withColumn("position", F.lit(position).cast("long"))


def with_positions(rows: DataFrame, exported: DataFrame) -> DataFrame:
    """Exported records with the `position` at which they came to be what they are."""
    columns = [*rows.columns[:3], "position", *rows.columns[3:]]
    named = rows.withColumn("number", F.col("arrival.record_number"))
    return named.join(_last_exports(exported), list(_NAME), "left").select(*columns)


EXPORTED_COLUMNS = "message_id string, number int, digest long, position long"
"""One row is what one record was in one run: a digest of what is exported of it, and the run's position."""

_NAME = ("message_id", "number")
"""What tells one exported record from all others."""


def _last_exports(exported: DataFrame) -> DataFrame:
    """Tell of each record what it was when it was last given a position."""
    last = F.max(F.struct("position", "digest")).alias("last")
    return exported.groupBy(*_NAME).agg(last).select(*_NAME, "last.*")
