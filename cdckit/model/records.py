"""Records, as Kafka transports them, and rejects, those that are of no use (`cdckit.model.faults`)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import require_columns, require_types

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


ERROR_CODE = "error_code"
ERROR_DESCRIPTION = "error_description"
ERROR_FIELDS = [T.StructField(ERROR_CODE, T.StringType()), T.StructField(ERROR_DESCRIPTION, T.StringType())]

REJECT_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *ERROR_FIELDS])
"""One row is one record that cannot be used: the record as it came, and why."""


def rejects(decoded: DataFrame) -> DataFrame:
    """
    The rows of a door's table that could not be used, as records with a reason.

    Args:
        decoded: One row per record, as a door's functions return it: the record columns,
            `error_code` (null where all is well) and `error_description`.

    Returns:
        One row per reject, in the columns of `REJECT_SCHEMA`.  Without the two error columns it is
        a table of records again, which can be fed to the door once more.

    Raises:
        MissingColumns: *decoded* lacks a record column or an error column.

    Cost: one filter, no shuffle.

    >>> frame = session().createDataFrame(
    ...     [(b"?", "t", 7, "NOT_AN_ENVELOPE"), (b"!", "t", 8, None)],
    ...     "value binary, topic string, offset long, error_code string",
    ... )
    >>> rejects(frame)
    Traceback (most recent call last):
    ...
    cdckit.errors.MissingColumns: rejects() needs the columns key, partition, timestamp, ...
    """
    columns = [*RECORD_COLUMNS, ERROR_CODE, ERROR_DESCRIPTION]
    require_columns(decoded, columns, function="rejects")
    return decoded.where(F.col(ERROR_CODE).isNotNull()).select(*columns)


def drop_rejects(decoded: DataFrame) -> DataFrame:
    """
    The rows of a door's table that could be used, without the error columns.

    Raises:
        MissingColumns: *decoded* has no `error_code` or no `error_description`.

    Cost: one filter, no shuffle.

    >>> frame = session().createDataFrame(
    ...     [(7, "NO_VALUE", "The record has no value."), (8, None, None)],
    ...     "offset long, error_code string, error_description string",
    ... )
    >>> drop_rejects(frame).show()
    +------+
    |offset|
    +------+
    |     8|
    +------+
    <BLANKLINE>
    """
    require_columns(decoded, [ERROR_CODE, ERROR_DESCRIPTION], function="drop_rejects")
    return decoded.where(F.col(ERROR_CODE).isNull()).drop(ERROR_CODE, ERROR_DESCRIPTION)
