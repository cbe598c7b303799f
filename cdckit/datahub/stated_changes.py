"""From statements to changes: what the spine merges."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import ABSENT
from cdckit.datahub.mappings import Place, Target
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import AUTOCREATE, DELETE, UPSERT, by_place
from cdckit.parts.schemas import quoted


def record_changes(schema: Schema, entity: str, applied: DataFrame) -> DataFrame:
    """
    The statements of records, and of links that make what is missing, as changes.

    One row per statement that is *applied*, in the columns of `cdckit.changes.CHANGE_SCHEMA` with its `guid`;
    the mappings of the schema give source and priorities.
    """
    target = schema.targets[entity]
    said = applied.where(f"guid IS NOT NULL AND operation IN {(UPSERT, DELETE, AUTOCREATE)}")
    if entity in schema.autocreated:
        said = _without_vain_autocreates(said)
    priorities = {place: mapping.priority for place, mapping in target.mappings.items()}
    sources = {place: place.system for place in schema.all_mappings}
    more = _field_priorities(schema, target)
    return said.selectExpr(
        "guid", "message_id", "effective_timestamp", "arrival", "data", "carried",
        f"if(operation = '{AUTOCREATE}', '{UPSERT}', operation) AS operation",
        "'' AS sequence",
        f"{by_place(schema, sources, 'string')} AS source",
        # A link may make an entity without any mapping of the target.
        f"coalesce({by_place(schema, priorities, 'int')}, 0) AS priority",
        *([f"if(operation <> '{AUTOCREATE}', {more}, NULL) AS field_priorities"] if more else []),
    )  # fmt: skip


def absence_changes(absences: DataFrame, like: DataFrame) -> DataFrame:
    """Absences as changes, in the columns of *like*: they carry nothing."""
    data, nothing = like.schema["data"].dataType, F.lit(None)
    assert isinstance(data, T.StructType)
    # One text of JSON for each struct, since a literal for each field would be several calls into the JVM.
    carried = json.dumps(dict.fromkeys(data.fieldNames(), False))
    columns = {
        "operation": F.lit(ABSENT),
        "sequence": F.lit(""),
        "data": F.from_json(F.lit("{}"), data),
        "carried": F.from_json(F.lit(carried), like.schema["carried"].dataType),  # type: ignore[arg-type]
    }
    if "field_priorities" in like.columns:
        columns["field_priorities"] = nothing.cast(like.schema["field_priorities"].dataType)
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


def _field_priorities(schema: Schema, target: Target) -> str | None:
    """The priorities of single fields, if any mapping of the target states one."""
    stated: dict[str, dict[Place, int]] = {}
    for place, mapping in target.mappings.items():
        for each in mapping.columns:
            if each.priority is not None:
                stated.setdefault(each.reference, {})[place] = each.priority
    if not stated:
        return None
    fields = (f"{by_place(schema, values, 'int')} AS {quoted(name)}" for name, values in stated.items())
    return f"struct({', '.join(fields)})"
