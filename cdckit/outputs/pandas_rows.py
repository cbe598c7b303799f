"""Rows of Spark in this program: as a table of pandas, never more than a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame

from cdckit.errors import InvalidArgument
from cdckit.outputs.faults import TooManyRows
from cdckit.parts.arguments import require_int
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.schemas import require_batch, require_columns

_WITH_NULLS: dict[pa.DataType, Callable[[], Any]] = {
    pa.bool_(): pd.BooleanDtype,
    pa.int8(): pd.Int8Dtype,
    pa.int16(): pd.Int16Dtype,
    pa.int32(): pd.Int32Dtype,
    pa.int64(): pd.Int64Dtype,
}
"""Types of pandas that hold a null beside whole numbers and truths: without them 2^53 + 1 becomes 2^53."""


def to_pandas(frame: DataFrame, *, limit: int = 100_000) -> pd.DataFrame:
    """
    The rows of a DataFrame as a table of pandas, or an error if there are more than *limit*.

    Args:
        frame: Any DataFrame; its rows come in its order, if it has one.
        limit: As many rows as may come.

    Returns:
        All rows.  A column's type follows from its type in Spark, never from its rows.  Instants are aware,
        in UTC and to the microsecond (so that the year 9999 fits), whatever the session's zone is.  Whole
        numbers and truths have pandas' own types that hold nulls.  Dates, decimals and binaries are
        Python's; structs and maps are dictionaries.

    Raises:
        TooManyRows: There are more than *limit*; at most one more than that has come.
        InvalidArgument: *frame* is no DataFrame or a stream, or *limit* is no whole number from 0 on.
        NoSuchArrowType: A column is of a type that Arrow does not have.

    Cost: computes the frame once, as far as it takes to know; of each partition, at most limit + 1 rows.

    >>> to_pandas(history.orderBy("number", "valid_from_timestamp").select("number", "valid_to_timestamp"))
       number        valid_to_timestamp
    0       1 2024-01-01 10:00:00+00:00
    1       1                       NaT
    2       2 2024-01-01 11:00:00+00:00
    3       2                       NaT
    >>> try:
    ...     to_pandas(history, limit=3)
    ... except TooManyRows as error:
    ...     print(str(error).split(",")[0])
    to_pandas() needs at most 3 rows
    """
    require_columns(frame, [], function="to_pandas")
    require_batch(frame, "frame", "ask the table that keeps it", function="to_pandas")
    if require_int(limit, "limit", function="to_pandas") not in range(2**31 - 1):
        raise InvalidArgument("to_pandas", "limit", "a whole number from 0 to 2147483646", limit)
    arrow_schema(frame.schema)  # raises for a type that Arrow does not have
    table = frame.limit(limit + 1).toArrow()
    if table.num_rows > limit:
        raise TooManyRows(limit, len(frame.columns))
    # Spark names the zone of its session, which says nothing about the instants.
    in_utc = pa.schema([field.with_type(_in_utc(field.type)) for field in table.schema])
    found: pd.DataFrame = table.cast(in_utc).to_pandas(types_mapper=_type_of, maps_as_pydicts="strict")
    return found


def _type_of(arrow: pa.DataType) -> Any:
    found = _WITH_NULLS.get(arrow)
    return None if found is None else found()


def _in_utc(arrow: pa.DataType) -> pa.DataType:
    """The same type with every instant in it in UTC."""

    def within(field: pa.Field) -> pa.Field:
        # Where a struct is null, Spark leaves nulls in its fields, also in those that may have none.
        return field.with_type(_in_utc(field.type)).with_nullable(True)

    if pa.types.is_struct(arrow):
        return pa.struct([within(field) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(within(arrow.value_field))
    if pa.types.is_map(arrow):
        return pa.map_(within(arrow.key_field).with_nullable(False), within(arrow.item_field))
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        return pa.timestamp(arrow.unit, "UTC")
    return arrow
