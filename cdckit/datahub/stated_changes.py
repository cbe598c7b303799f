"""From statements to changes: what the spine merges."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdckit.changes import ABSENT
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import AUTOCREATE, DELETE, UPSERT, by_place, place_numbers
from cdckit.datahub.targets import Target


def record_changes(schema: Schema, entity: str, applied: DataFrame) -> DataFrame:
    """
    The statements of records, and of links that make what is missing, as changes.

    Args:
        schema: The schema; its mappings give source and priorities.
        entity: The target.
        applied: Its statements that are applied.

    Returns:
        One row per change (`cdckit.changes.CHANGE_SCHEMA`), with its `guid`.
    """
    target = schema.targets[entity]
    said = applied.where(F.col("guid").isNotNull() & F.col("operation").isin(UPSERT, DELETE, AUTOCREATE))
    if entity in schema.autocreated:
        said = _without_vain_autocreates(said)
    operation = F.when(F.col("operation") == AUTOCREATE, UPSERT).otherwise(F.col("operation"))
    numbers = place_numbers(schema)
    priorities = {numbers[place]: mapping.priority for place, mapping in target.mappings.items()}
    sources = {number: place.system for place, number in numbers.items()}
    columns: dict[str, Column] = {
        "operation": operation,
        "sequence": F.lit(""),
        "source": by_place(sources, "string"),
        # A link may make an entity without any mapping of the target.
        "priority": F.coalesce(by_place(priorities, "int"), F.lit(0)),
    }
    field_priorities = _field_priorities(schema, target)
    if field_priorities is not None:
        columns["field_priorities"] = F.when(F.col("operation") != AUTOCREATE, field_priorities)
    return said.select(
        "guid", "message_id", "effective_timestamp", "arrival", "data", "carried",
        *(column.alias(name) for name, column in columns.items()),
    )  # fmt: skip


def absence_changes(target: Target, absences: DataFrame, like: DataFrame) -> DataFrame:
    """Absences as changes, in the columns of *like*: they carry nothing."""
    names = target.data.fieldNames()
    columns = {
        "operation": F.lit(ABSENT),
        "sequence": F.lit(""),
        "data": F.struct(*(F.lit(None).cast(each.dataType).alias(each.name) for each in target.data)),
        "carried": F.struct(*(F.lit(False).alias(name) for name in names)),
    }
    if "field_priorities" in like.columns:
        columns["field_priorities"] = F.lit(None).cast(like.schema["field_priorities"].dataType)
    return absences.withColumns(columns).select(*like.columns)


def _without_vain_autocreates(said: DataFrame) -> DataFrame:
    """Keep an "autocreate" only where nothing makes its entity sooner."""
    makes = F.col("operation").isin(UPSERT, AUTOCREATE)
    # Of two that stand in one place the record itself comes first: it says more than its link.
    place = F.struct("effective_timestamp", "arrival", (F.col("operation") == AUTOCREATE).alias("is_auto"))
    first = F.min(F.when(makes, place)).over(Window.partitionBy("guid"))
    return (
        said.withColumns({"_place": place, "_first": first})
        .where((F.col("operation") != AUTOCREATE) | (F.col("_place") == F.col("_first")))
        .drop("_place", "_first")
    )


def _field_priorities(schema: Schema, target: Target) -> Column | None:
    """The priorities of single fields, if any mapping of the target states one."""
    numbers = place_numbers(schema)
    stated: dict[str, dict[int, int]] = {}
    for place, mapping in target.mappings.items():
        for each in mapping.columns:
            if each.priority is not None:
                stated.setdefault(each.reference, {})[numbers[place]] = each.priority
    if not stated:
        return None
    return F.struct(*(by_place(values, "int").alias(name) for name, values in stated.items()))
