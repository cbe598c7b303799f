"""Contradictions: one message that says two things."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import ORDER, UPSERT
from cdckit.errors import InvalidArgument
from cdckit.history import STANDARD_COLUMNS
from cdckit.merging import checked_fields
from cdckit.parts.schemas import require_struct
from cdckit.parts.values import comparable

_FUNCTION = "find_contradictions"
_COUNTS = "counts"
_DIFFERS = "counts_differ"


def find_contradictions(changes: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """
    The changes that claim to be one and the same, and differ.

    A change is known by its source, message and record number: when it comes twice for one entity it was
    delivered again, and `merge` passes over the second.  That is right only if both say the same.  Where
    they do not, a source uses one id twice, or sent a correction under the old id; then what was passed
    over is listed here.

    Args:
        changes: One row per change.
        keys: As for `merge`.  Where *changes* have the column `guid`, that is the entity instead.

    Returns:
        All rows of every (entity, `source`, `message_id`, `arrival.record_number`) of which two differ
        in what they say: `operation`, `effective_timestamp`, `sequence`, `priority`; of upserts which
        fields they carried, with which values and priorities; of deletes the priorities of all fields but
        the keys.  Equal ones among them, too; where and when they arrived is no difference.  The same
        columns, and `counts`: whether it is the one that `merge` takes, the first in the order of changes.
        Rows have no order.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `merge`; or *changes* have a column `counts`
            or `counts_differ` already.

    Cost: one shuffle by identity and one sort.

    >>> told_again = changes.where("message_id = 'm2'").withColumns(
    ...     {
    ...         "data": F.col("data").withField("name", F.lit("samovar")),
    ...         "arrival": F.col("arrival").withField("offset", F.lit(99).cast("long")),
    ...     }
    ... )
    >>> found = find_contradictions(changes.union(told_again), keys=["number"])
    >>> found.select("source", "message_id", "data.name", "counts").orderBy("arrival.offset").show()
    +------+----------+-------+------+
    |source|message_id|   name|counts|
    +------+----------+-------+------+
    |  shop|        m2| teapot|  true|
    |  shop|        m2|samovar| false|
    +------+----------+-------+------+
    <BLANKLINE>
    """
    data = checked_fields(changes, keys, STANDARD_COLUMNS, _FUNCTION)
    taken = [name for name in changes.columns if name.lower() in (_COUNTS, _DIFFERS)]
    if taken:
        needed = f"free of columns {_COUNTS} and {_DIFFERS}: rename these first"
        raise InvalidArgument(_FUNCTION, "changes", needed, taken)
    entity = [F.col("guid")] if "guid" in changes.columns else [F.col("data").getField(key) for key in keys]
    one_change = Window.partitionBy(*entity, "source", "message_id", "arrival.record_number")
    in_order = one_change.orderBy(*ORDER)
    said = _said(changes, data, keys)
    differs = ~said.eqNullSafe(F.first(said).over(in_order))
    compared = changes.withColumns(
        {_COUNTS: F.row_number().over(in_order) == 1, _DIFFERS: differs}
    ).withColumn(_DIFFERS, F.max(_DIFFERS).over(one_change))
    return compared.where(F.col(_DIFFERS)).drop(_DIFFERS)


def _said(changes: DataFrame, data: T.StructType, keys: Sequence[str]) -> Column:
    """What a change says, in a form that Spark can compare; a delete gives fields a priority, no value."""
    is_upsert = F.col("operation") == UPSERT
    stated: list[str] = []
    if "field_priorities" in changes.columns:
        stated = require_struct(changes, "field_priorities", function=_FUNCTION).fieldNames()
    fields = []
    for place, field in enumerate(data):
        priority = F.col("priority")
        if field.name in stated:
            priority = F.coalesce(F.col("field_priorities").getField(field.name), priority)
        value = comparable(F.col("data").getField(field.name), field.dataType)
        speaks = F.when(is_upsert, F.col("carried").getField(field.name)).otherwise(field.name not in keys)
        word = F.struct(F.when(is_upsert, value).alias("value"), priority.alias("priority"))
        fields.append(F.when(speaks, word).alias(f"field_{place}"))
    return F.struct(
        *(F.col(name) for name in ("operation", "effective_timestamp", "sequence", "priority")),
        *fields,
    )
