"""What records wait for, by its key: from a guid, the sender could not tell what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.resolution import Resolution
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import SOUGHT


def with_sought(
    schema: Schema, resolution: Resolution, entities: Sequence[str], waiting: DataFrame
) -> DataFrame:
    """
    The statements that wait, `missing` being the key of what they wait for: "customer c = c1".

    Args:
        schema: The schema.
        resolution: The statements of all targets.
        entities: The targets of which there are any.
        waiting: As `waiting_statements` gives them; what is named already stays as it is.

    Cost: a look at the links of all statements, and a join by what is missing.
    """
    found = []
    for entity in entities:
        rows = resolution.resolved(entity)
        for name in schema.targets[entity].links:
            leads, text = (F.col(each).getField(name) for each in ("data", SOUGHT))
            found.append(rows.select(leads.alias("missing"), text.alias("text")).where(text.isNotNull()))
    if not found:
        return waiting
    missing = waiting.select("missing").distinct()
    texts = reduce(DataFrame.unionByName, found).join(missing, "missing", "left_semi")
    named = texts.groupBy("missing").agg(F.min("text").alias("text"))
    joined = waiting.join(named, "missing", "left").withColumn("missing", F.coalesce("text", "missing"))
    return joined.select(*waiting.columns)
