"""Export mode: records for indexes that keep no history, as inserts and deletes."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import DELETE, IS_RECORD, by_place
from cdckit.parts.schemas import quoted


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
    identifiers = {
        place: f"CAST(data.{quoted(each.export_identifier)} AS string)"
        for place, each in target.mappings.items()
        if each.export_identifier is not None
    }
    fields = [f"data.{quoted(name)} AS {quoted(name)}" for name in target.fields]
    if any(mapping.export_standard_fields for mapping in target.mappings.values()):
        fields += [
            "effective_timestamp AS valid_from_timestamp",
            f"operation = '{DELETE}' AS deleted_indicator",
            "message_id AS source_message",
        ]
    return applied.where(IS_RECORD).selectExpr(
        f"if(operation = '{DELETE}', 'delete', 'insert') AS operation",
        f"{by_place(schema, identifiers, 'string')} AS id",
        "unix_micros(effective_timestamp) AS version",
        "message_id",
        "arrival",
        f"struct({', '.join(fields)}) AS document",
    )


def newly_exported(rows: DataFrame, known: DataFrame, position: int) -> DataFrame:
    """What of *rows* had no position so far, or was not what it is now (`EXPORTED_COLUMNS`)."""
    digest = "xxhash64(operation, id, document) AS digest"
    said = rows.selectExpr("message_id", "arrival.record_number AS number", digest)
    new = said.join(_last(known), [*_NAME, "digest"], "left_anti")
    return new.withColumn("position", F.lit(position).cast("long"))


def with_positions(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Exported records with the `position` at which they came to be what they are."""
    columns = [*rows.columns[:3], "position", *rows.columns[3:]]
    named = rows.withColumn("number", F.col("arrival.record_number"))
    return named.join(_last(known), list(_NAME), "left").select(*columns)


EXPORTED_COLUMNS = "message_id string, number int, digest long, position long"
"""One row is what one record was in one run: a digest of what is exported of it, and the run's position."""

_NAME = ("message_id", "number")
"""What tells one exported record from all others."""


def _last(known: DataFrame) -> DataFrame:
    """Of each record what it was when it was last given a position."""
    last = F.max(F.struct("position", "digest")).alias("last")
    return known.groupBy(*_NAME).agg(last).select(*_NAME, "last.*")
