"""Records, as Kafka transports them: their columns, and what they must have."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import flat_columns, require_columns, require_types
from cdckit.parts.arrow_types import spark_columns

RECORD_SCHEMA = flat_columns(
    "key binary, value binary, topic string, partition integer, offset long, timestamp timestamp, "
    "timestampType integer"
).add("headers", T.ArrayType(flat_columns("key string, value binary")))
"""One row is one transported message.  A topic read with Spark's Kafka source and a Parquet file with these
columns are the same thing to every function.  `timestampType` and `headers` may be missing: Kafka's source
has headers with the option `includeHeaders` alone, and then the doors that read them know more."""

RECORD_COLUMNS = tuple(RECORD_SCHEMA.fieldNames())


def decoded_columns(types: Mapping[str, pa.DataType] | pa.Schema, *more: T.StructField) -> T.StructType:
    """The columns of records, and those of what is decoded of each: Arrow's *types*, and *more*."""
    return T.StructType([*RECORD_SCHEMA.fields, *spark_columns(pa.schema(types)), *more])


_USUAL = {"timestampType": 0, "headers": None}
"""What stands in columns that a record need not have."""

_WHOLE = {"partition": T.IntegerType(), "offset": T.LongType(), "timestampType": T.IntegerType()}

_HOW_TO_READ = (
    "A topic read by Spark's Kafka source has them; `cdckit.datahub.records` makes them of lines of a file "
    "or of dictionaries."
)


def require_records(records: DataFrame) -> DataFrame:
    """
    Put all columns of `RECORD_SCHEMA` into their types; more columns are fine.

    Headers and timestamp types that are not there are added; numbers may be of another whole type.

    Raises:
        MissingColumns: Columns are not there.
        WrongColumnType: A column has another type.
    """
    needed = [name for name in RECORD_COLUMNS if name not in _USUAL]
    require_columns(records, needed, remedy=_HOW_TO_READ)
    added = {
        name: F.lit(value).cast(RECORD_SCHEMA[name].dataType)
        for name, value in _USUAL.items()
        if name not in records.columns
    }
    kinds = {field.name: field.dataType for field in records.schema}
    cast = {
        name: F.col(name).cast(kind)
        for name, kind in _WHOLE.items()
        if kinds.get(name, kind) != kind and isinstance(kinds[name], T.IntegralType)
    }
    whole = records.withColumns({**added, **cast}) if added or cast else records
    require_types(whole, RECORD_SCHEMA)
    return whole
