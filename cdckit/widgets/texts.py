"""Answers that give values of all fields as text, with the instants among them on the clock of a zone."""

from __future__ import annotations

from datetime import UTC, tzinfo

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import quoted


def on_the_clock_of(
    zone: tzinfo, told: DataFrame, fields: T.StructType, *columns: str, field: str = "field"
) -> DataFrame:
    """
    *told*, the values of fields that are instants written as *zone*'s clocks show them.

    `diff` and `blame` write them in UTC.  One view has one clock: beside it the beginnings of versions stand.
    """
    instants = [each.name for each in fields if isinstance(each.dataType, T.TimestampType)]
    if not instants or zone is UTC:
        return told
    here = F.lit(str(zone))
    for column in columns:
        text = F.col(quoted(column))
        local = F.convert_timezone(F.lit("UTC"), here, text.try_cast("timestamp_ntz")).cast("string")
        is_instant = F.col(field).isin(instants)
        told = told.withColumn(column, F.when(is_instant, F.coalesce(local, text)).otherwise(text))
    return told
