"""Records: transported messages, in the columns of Spark's Kafka source."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.schemas import require_types

RECORD_SCHEMA = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField(
            "headers",
            T.ArrayType(
                T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
            ),
        ),
    ]
)
"""One row is one transported message.  A topic read with Spark's Kafka source (with the option
`includeHeaders`) and a Parquet file with these columns are the same thing to every function."""

RECORD_COLUMNS = tuple(RECORD_SCHEMA.fieldNames())


def require_records(records: DataFrame, *, function: str) -> None:
    """
    Raise unless *records* has the columns of `RECORD_SCHEMA` in their types; more columns are fine.

    Raises:
        MissingColumns: A column is not there.
        WrongColumnType: A column has another type.
    """
    require_types(records, RECORD_SCHEMA, function=function)
