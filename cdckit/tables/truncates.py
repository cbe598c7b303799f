"""The truncates among the rows of a table: what each of them ends."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import ABSENT, DELETE, UNTIL, keep_key
from cdckit.parts.arguments import quoted, require_struct
from cdckit.parts.values import comparable

IS_TRUNCATE = "is_truncate"
"""The column that says whether a row of a table is a truncate."""

_PLACE = ("effective_timestamp", "sequence", "arrival")
_END = (*_PLACE, "message_id", "source", "priority")


def with_absences(changes: DataFrame, keys: Sequence[str], kinds: T.StructType) -> DataFrame:
    """
    The changes, and in place of the truncates among them what each of them ends.

    Args:
        changes: One row per row of the table, and whether it is a truncate.  At one place truncates stand
            first, which their record number, 0, says.  Rejects stay as they are.
        keys: The key fields.
        kinds: The types of the fields.

    Returns:
        An absence of each entity at the first truncate after a mention of it, unless that mention, the
        last one before the truncate, is a delete without an end.  Later truncates find nothing there.
    """
    statements = changes.where(~F.col(IS_TRUNCATE)).drop(IS_TRUNCATE)
    ends = _with_previous(changes.where(F.col(IS_TRUNCATE)))
    place = F.struct(*_PLACE)
    is_gone = F.col("operation") == DELETE
    if UNTIL in statements.columns:
        is_gone &= F.col(UNTIL).isNull()
    entity = {
        f"key {n}": comparable(F.col("data").getField(key), kinds[key].dataType) for n, key in enumerate(keys)
    }
    mentions = statements.where(F.col("operation").isNotNull()).select(
        F.col("source").alias("by"),
        is_gone.alias("is_gone"),
        "data",
        place.alias("place"),
        F.struct(place, "message_id").alias("in_order"),
        *(value.alias(name) for name, value in entity.items()),
    )
    is_first = F.col("previous").isNull() | (F.col("previous") < F.col("place"))
    first = (F.col("ends") > F.col("place")) & is_first
    met = mentions.join(F.broadcast(ends), F.col("by").eqNullSafe(F.col("source")) & first, how="inner")
    last = F.max_by(F.struct("is_gone", "data", "end"), "in_order").alias("last")
    entities = met.groupBy("by", "ends", *map(quoted, entity)).agg(last).where(~F.col("last.is_gone"))
    # What a truncate ends has no end itself.
    return statements.unionByName(_absences(entities, keys, statements), allowMissingColumns=True)


def _with_previous(truncates: DataFrame) -> DataFrame:
    """Each truncate with the one of its source before it."""
    in_order = Window.partitionBy("source").orderBy("ends")
    placed = truncates.select("source", F.struct(*_PLACE).alias("ends"), F.struct(*_END).alias("end"))
    return placed.withColumn("previous", F.lag("ends").over(in_order))


def _absences(entities: DataFrame, keys: Sequence[str], changes: DataFrame) -> DataFrame:
    data = require_struct(changes, "data")
    values, carried = keep_key(F.col("last.data"), keys, data)
    return entities.select(
        F.lit(ABSENT).alias("operation"),
        *(F.col("last.end").getField(name).alias(name) for name in _END),
        values.alias("data"),
        carried.alias("carried"),
    )
