"""What pictures ask Spark for: one entity, sources of messages, a bounded number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.history import SYSTEM_FROM, SYSTEM_TO, VALID_TO, business_fields
from cdckit.parts.arguments import require_columns
from cdckit.parts.instants import microseconds
from cdckit.parts.values import as_text
from cdckit.query.entity_keys import of_entity
from cdckit.query.provenance import with_messages

# What tables of other programs write for an open end; an axis up to there would show nothing else.
_NO_REAL_END = microseconds(datetime(9999, 1, 1, tzinfo=UTC))


def of_one_entity(
    table: DataFrame, key: Mapping[str, Any], columns: Sequence[Column], function: str
) -> DataFrame:
    """These columns of the rows of one entity, and `matching`: how many entities have this key."""
    asked = of_entity(key, T.StructType([table.schema["guid"], *fields_of(table)]), function=function)
    one = table.where(asked).agg(F.min("guid").alias("one"), F.count_distinct("guid").alias("matching"))
    return table.select(F.col("guid").alias("one"), *columns).join(F.broadcast(one), on="one", how="inner")


def with_ends(history: DataFrame) -> DataFrame:
    """The same versions, with null for ends in the year 9999, which are open too."""
    is_real = F.unix_micros(VALID_TO) < F.lit(_NO_REAL_END)
    return history.withColumn(VALID_TO, F.when(is_real, F.col(VALID_TO)))


def fields_of(table: DataFrame) -> T.StructType:
    known = business_fields(table)
    return T.StructType([field for field in known if field.name not in (SYSTEM_FROM, SYSTEM_TO)])


def with_sources(frame: DataFrame, changes: DataFrame, message: str, function: str) -> DataFrame:
    """The source of each row's message, and the sources of all changes, which choose the colours."""
    require_columns(changes, ["message_id", "source"], function=function)
    every = changes.agg(F.array_sort(F.collect_set("source")).alias("sources"))
    return with_messages(frame, changes, message=message).crossJoin(F.broadcast(every))


def exact_text(value: Column, kind: T.DataType) -> Column:
    """A value as text; instants as microseconds, since their text depends on the zone of the session."""
    return F.unix_micros(value).cast("string") if isinstance(kind, T.TimestampType) else as_text(value, kind)


def first_rows(frame: DataFrame, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """The first rows, and whether there are more."""
    rows: list[dict[str, Any]] = frame.limit(limit + 1).toArrow().to_pylist()
    return rows[:limit], len(rows) > limit


def require_limit(limit: int, function: str) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidArgument(function, "limit", "a positive number", limit)
