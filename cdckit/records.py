"""Records: transported messages, in the columns of Spark's Kafka source."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import require_types

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


# The headers of a record go to the workers and back as text: as a list of structs they would cost,
# empty or not, more than all else that a record holds.
WORKER_FIELDS = [
    T.StructField("headers", T.StringType()) if field.name == "headers" else field
    for field in RECORD_SCHEMA.fields
]
"""The columns of a record on the way through Python."""


def for_workers(records: DataFrame, *others: str) -> DataFrame:
    """The columns of *records* as they travel to the workers (`WORKER_FIELDS`), and *others* behind them."""
    text = F.when(F.col("headers").isNotNull(), F.to_json("headers"))
    return records.select(*RECORD_COLUMNS[:-1], text.alias("headers"), *others)


def headers_from_workers() -> Column:
    """The column `headers` as it was before `for_workers`."""
    return F.from_json("headers", RECORD_SCHEMA["headers"].dataType.json()).alias("headers")
