"""
What opens a version in a table of type 2: the rule of Spark's AUTO CDC.

Neighbouring versions that are equal in every tracked field are one row, which begins with the first of them
and shows, in all other fields, what the last of them says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.history import DELETED, VALID_FROM, VALID_TO
from cdckit.outputs.calls import Call, free
from cdckit.parts.schemas import quoted
from cdckit.parts.values import comparable


def tracked_fields(
    call: Call, listed: Iterable[str] | None, excepted: Iterable[str] | None
) -> Sequence[T.StructField]:
    """The fields whose changes open a version: those that are listed, all but some, or all."""
    if listed is not None and excepted is not None:
        call.wrong.append(
            "track_history_column_list and track_history_except_column_list are both given: one says it"
        )
    if listed is not None:
        return call.fields(listed, "track_history_column_list", empty=True)
    if excepted is not None:
        left_out = call.fields(excepted, "track_history_except_column_list", empty=True)
        return [field for field in call.known if field not in left_out]
    return list(call.known)


def folded(versions: DataFrame, tracked: Sequence[T.StructField]) -> DataFrame:
    """
    One row per run of neighbouring versions of an entity that are equal in the tracked fields.

    Two versions are neighbours if one begins at the instant at which the other ends; a deleted one is never
    equal to one that is not.  The row is the last version of the run, from the first one's beginning on.
    """
    goes_on, begins, ends = (free(versions.columns, name) for name in ("goes_on", "begins", "ends"))
    in_time = Window.partitionBy("guid").orderBy(VALID_FROM)
    until_here = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    said = F.struct(
        F.col(DELETED), *(comparable(F.col(quoted(field.name)), field.dataType) for field in tracked)
    )
    before = F.lag(F.struct(F.col(VALID_TO).alias("end"), said.alias("said"))).over(in_time)
    follows = before.getField("end").eqNullSafe(F.col(VALID_FROM))
    same = before.getField("said").eqNullSafe(said)
    first = F.when(~F.col(goes_on), F.col(VALID_FROM))
    runs = versions.withColumn(goes_on, follows & same).withColumns(
        {
            begins: F.last(first, ignorenulls=True).over(until_here),
            ends: ~F.coalesce(F.lead(goes_on).over(in_time), F.lit(False)),
        }
    )
    return runs.where(F.col(ends)).withColumn(VALID_FROM, F.col(begins)).drop(goes_on, begins, ends)
