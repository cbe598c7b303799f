"""A table of Spark or of pandas, as Spark has it."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import quoted
from cdckit.parts.instants import INSTANT

AnyTable = DataFrame | pd.DataFrame


def as_spark(spark: SparkSession, frame: AnyTable, *, function: str) -> DataFrame:
    """
    The table as Spark's; raises `InvalidArgument` for what is none, or has two columns of one name.

    A frame of pandas goes through Arrow: NaN, NaT, NA and None are null, the index is left out, and
    datetimes without a zone are instants of UTC.  A column without any value and type is void: what it is
    put together with has the type, and else `void_as_text` gives it one.
    """
    if isinstance(frame, pd.DataFrame):
        return spark.createDataFrame(as_arrow(frame, function=function))
    return spark_table(frame, function=function)


def spark_table(frame: object, *, function: str) -> DataFrame:
    """A table that is Spark's already, as `as_spark` says."""
    if not isinstance(frame, DataFrame):
        raise InvalidArgument(function, "its table", "a DataFrame of Spark or of pandas", frame)
    require_distinct(frame.columns, function=function)
    return frame


def require_distinct(columns: Collection[str], *, function: str) -> None:
    """Raise `InvalidArgument` where two columns have one name, or names that differ in case alone."""
    lower = [name.lower() for name in columns]
    twice = [name for name in columns if lower.count(name.lower()) > 1]
    if twice:
        numbers = [lower[: place + 1].count(name) for place, name in enumerate(lower)]
        renamed = [
            name if number == 1 else f"{name}_{number}" for name, number in zip(columns, numbers, strict=True)
        ]
        raise InvalidArgument(
            function, "its table", "of columns that differ in more than case", list(columns),
            remedy=f"There is {' and '.join(dict.fromkeys(map(str.lower, twice)))} twice; rename one: "
            f"`frame.columns = {renamed!r}` in pandas, `frame.toDF(*{renamed!r})` in Spark.",
        )  # fmt: skip


def void_as_text(frame: DataFrame) -> DataFrame:
    """The table with text in place of the type void, which nothing can be kept in."""
    void = [each.name for each in frame.schema if isinstance(each.dataType, T.NullType)]
    return frame.withColumns({name: F.col(quoted(name)).cast("string") for name in void}) if void else frame


def as_arrow(frame: pd.DataFrame, *, function: str) -> pa.Table:
    """The columns of a frame of pandas in types that Spark has, as `as_spark` says."""
    require_distinct([str(name) for name in frame.columns], function=function)
    arrays, wrong = {}, {}
    for place, name in enumerate(frame.columns):
        try:
            arrays[str(name)] = _as_spark_takes_it(pa.array(frame.iloc[:, place], from_pandas=True))
        except (pa.ArrowException, OverflowError, UnicodeError, _NotOfSpark) as error:
            wrong[str(name)] = f"{name} ({str(error).splitlines()[0]})"
    if wrong:
        # By `str` an empty cell would become the text "nan", which is a value.
        texts = f"frame.astype({dict.fromkeys(wrong, 'string')!r})"
        raise InvalidArgument(
            function, "its table", "of columns with one type each, which Spark has too", [*wrong.values()],
            remedy=f"Perhaps as texts, in which empty cells stay empty: `{texts}`.",
        )  # fmt: skip
    return pa.table(arrays)


_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
}


class _NotOfSpark(TypeError):
    """A type that Spark's tables do not have, or that changes cannot be made of."""


def _as_spark_takes_it(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _as_spark_takes_it(values.cast(kind.value_type))
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_time(kind):
        raise _NotOfSpark(str(kind))
    if pa.types.is_timestamp(kind):
        # Spark keeps microseconds: what is below is cut.
        return values.cast(INSTANT, safe=False)
    return values.cast(_UNSIGNED[kind]) if kind in _UNSIGNED else values
