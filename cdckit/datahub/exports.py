"""Export mode: records for indexes that keep no history, as inserts and deletes."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.mappings import Target
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import DELETE, UPSERT


class Sink(Protocol):
    """
    Takes the exported records of one target, as `export_rows` gives them, to where they belong.

    >>> from cdckit.datahub import bulk_lines
    >>> def to_index(rows):
    ...     print(bulk_lines(rows, "products").first()["value"])
    >>> gone = "'delete' AS operation, '1' AS id, 0L AS version, 0 AS arrival, struct(1 AS n) AS document"
    >>> sink: Sink = to_index
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
    rows = applied.where(F.col("operation").isin(UPSERT, DELETE))
    is_delete = F.col("operation") == DELETE
    fields = [F.col("data").getField(name).alias(name) for name in target.fields]
    if any(mapping.export_standard_fields for mapping in target.mappings.values()):
        fields += [
            F.col("effective_timestamp").alias("valid_from_timestamp"),
            is_delete.alias("deleted_indicator"),
            F.col("message_id").alias("source_message"),
        ]
    return rows.select(
        F.when(is_delete, "delete").otherwise("insert").alias("operation"),
        _identifier(schema, target).alias("id"),
        F.unix_micros("effective_timestamp").alias("version"),
        "message_id",
        "arrival",
        F.struct(*fields).alias("document"),
    )


def newly_exported(rows: DataFrame, known: DataFrame | None, position: int) -> DataFrame:
    """
    What of *rows* had no position so far, or was not what it is now.

    One row per record: `message_id`, `number`, `digest` (of what it says), `position`.  A record may become
    applied long after it arrived, since what it links to came then, and another schema may read it otherwise:
    so the position is that of the run which first had it so, and not of its arrival.
    """
    said = rows.select(*_named())
    if known is not None:
        said = said.join(_last(known).drop("position"), [*_NAME, "digest"], "left_anti")
    return said.withColumn("position", F.lit(position).cast("long"))


def with_positions(rows: DataFrame, known: DataFrame | None) -> DataFrame:
    """Exported records with the `position` at which they came to be what they are."""
    columns = [*rows.columns[:3], "position", *rows.columns[3:]]
    if known is None:
        return rows.withColumn("position", F.lit(None).cast("long")).select(*columns)
    named = rows.withColumn("number", F.col("arrival.record_number"))
    return named.join(_last(known).drop("digest"), list(_NAME), "left").select(*columns)


_NAME = ("message_id", "number")
"""What tells one exported record from all others."""


def _named() -> list[Column]:
    digest = F.xxhash64("operation", "id", "document")
    return [F.col("message_id"), F.col("arrival.record_number").alias("number"), digest.alias("digest")]


def _last(known: DataFrame) -> DataFrame:
    """Of each record what it was when it was last given a position."""
    last = F.max(F.struct("position", "digest")).alias("last")
    return known.groupBy(*_NAME).agg(last).select(*_NAME, "last.position", "last.digest")


def _identifier(schema: Schema, target: Target) -> Column:
    found = F.lit(None).cast("string")
    for place, mapping in target.mappings.items():
        if mapping.export_identifier is not None:
            value = F.col("data").getField(mapping.export_identifier).cast("string")
            found = F.when(F.col("place") == schema.numbers[place], value).otherwise(found)
    return found
