"""Inserts and deletes of documents as an index takes them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.parts.schemas import require_columns
from cdckit.parts.values import EXACT_JSON

_SINCE_YEAR_1 = 62_135_596_800_000_000
"""1970, in microseconds since the year 1: Elasticsearch knows no version below zero."""


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
    require_columns(rows, ["operation", "id", "version", "arrival", "document"], function="bulk_lines")
    if not index:
        raise InvalidArgument("bulk_lines", "index", "the name of an index", index)
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
    # Fields that are null stay in the document: they say that there is no value.
    document = F.to_json("document", {**EXACT_JSON, "ignoreNullFields": "false"})
    lines = F.when(is_delete, action).otherwise(F.concat(action, F.lit("\n"), document))
    kept = rows.where(F.col("id").isNotNull() | ~is_delete)
    in_order = kept.repartition("id").sortWithinPartitions("id", "version", "arrival")
    return in_order.select(lines.alias("value"))
