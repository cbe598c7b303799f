"""
The types of Spark as those of Arrow, and back: what Spark hands to its Python workers, and takes from them.

Spark has such a mapping for its own use; it is not part of its interface, and changes with its versions.
The types here are those of Spark's page "Apache Arrow in PySpark", the same in every version.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from cdckit.errors import CdcError

_PLAIN: list[tuple[type[T.DataType], pa.DataType]] = [
    (T.NullType, pa.null()),
    (T.BooleanType, pa.bool_()),
    (T.ByteType, pa.int8()),
    (T.ShortType, pa.int16()),
    (T.IntegerType, pa.int32()),
    (T.LongType, pa.int64()),
    (T.FloatType, pa.float32()),
    (T.DoubleType, pa.float64()),
    (T.StringType, pa.string()),  # of any collation
    (T.CharType, pa.string()),
    (T.VarcharType, pa.string()),
    (T.BinaryType, pa.binary()),
    (T.DateType, pa.date32()),
    (T.TimestampType, pa.timestamp("us", "UTC")),
    (T.TimestampNTZType, pa.timestamp("us")),
    (T.DayTimeIntervalType, pa.duration("us")),
    (T.TimeType, pa.time64("ns")),
]

_BACK: dict[pa.DataType, type[T.DataType]] = {
    **{arrow: spark for spark, arrow in _PLAIN},
    pa.string(): T.StringType,
    pa.large_string(): T.StringType,
    pa.large_binary(): T.BinaryType,
}


class NoSuchArrowType(CdcError, TypeError):
    """A column is of a type that Spark does not hand to Python workers, or that is not one of Spark's."""

    def __init__(self, found: str, column: str | None = None) -> None:
        self.found, self.column = found, column
        super().__init__(found, column)

    def __str__(self) -> str:
        return (
            f"Workers need every column in a type that both Spark and Arrow have; {self.column or 'one'} is "
            f"{self.found}: cast it before, to text for example."
        )


def arrow_schema(columns: T.StructType, *, large: bool = False) -> pa.Schema:
    """
    The Arrow schema of these columns, with *large* texts if so wished; raises `NoSuchArrowType`.

    >>> arrow_schema(T.StructType().add("at", T.TimestampType()).add("name", T.StringType(), False))
    at: timestamp[us, tz=UTC]
    name: string not null
    """
    fields = [_field(column) for column in columns]
    return pa.schema([field.with_type(with_texts(field.type, large=large)) for field in fields])


def arrow_type(spark: T.DataType) -> pa.DataType:
    """
    The Arrow type of the values of a Spark type; raises `NoSuchArrowType`.

    >>> arrow_type(T.ArrayType(T.DecimalType(10, 2)))
    ListType(list<element: decimal128(10, 2)>)
    """
    if isinstance(spark, T.DecimalType):
        return pa.decimal128(spark.precision, spark.scale)
    if isinstance(spark, T.ArrayType):
        return pa.list_(_part("element", spark.elementType, spark.containsNull))
    if isinstance(spark, T.MapType):
        key = pa.field("key", arrow_type(spark.keyType), nullable=False)
        return pa.map_(key, _part("value", spark.valueType, spark.valueContainsNull))
    if isinstance(spark, T.StructType):
        return pa.struct([_field(field) for field in spark])
    if isinstance(spark, T.UserDefinedType):
        return arrow_type(spark.sqlType())
    if isinstance(spark, T.VariantType):
        # The mark tells a variant from a struct of two binaries.
        metadata = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
        return pa.struct([pa.field("value", pa.binary(), nullable=False), metadata])
    for plain, arrow in _PLAIN:
        if isinstance(spark, plain):
            return arrow
    raise NoSuchArrowType(spark.simpleString())


def spark_type(arrow: pa.DataType) -> T.DataType:
    """
    The Spark type that holds the values of an Arrow type exactly; raises `NoSuchArrowType`.

    >>> spark_type(pa.struct([("at", pa.timestamp("us")), ("names", pa.list_(pa.string()))])).simpleString()
    'struct<at:timestamp_ntz,names:array<string>>'
    """
    if pa.types.is_decimal(arrow):
        return T.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_list(arrow):
        return T.ArrayType(spark_type(arrow.value_type), arrow.value_field.nullable)
    if pa.types.is_map(arrow):
        return T.MapType(spark_type(arrow.key_type), spark_type(arrow.item_type), arrow.item_field.nullable)
    if pa.types.is_struct(arrow):
        return spark_columns(pa.schema(list(arrow)))
    if arrow not in _BACK:
        raise NoSuchArrowType(str(arrow))
    return _BACK[arrow]()


def spark_columns(columns: pa.Schema) -> T.StructType:
    """The Spark columns for these Arrow columns; raises `NoSuchArrowType`."""
    return T.StructType(
        [T.StructField(column.name, spark_type(column.type), column.nullable) for column in columns]
    )


def with_texts(arrow: pa.DataType, *, large: bool) -> pa.DataType:
    """
    Make every text and all bytes in a type large, or none.

    The offsets of a large one have 64 bits: together its values may have more than 2 GiB.

    >>> with_texts(pa.list_(pa.string()), large=True), with_texts(pa.large_binary(), large=False)
    (ListType(list<item: large_string>), DataType(binary))
    """

    def within(field: pa.Field) -> pa.Field:
        return field.with_type(with_texts(field.type, large=large))

    if pa.types.is_struct(arrow):
        return pa.struct([within(field) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(within(arrow.value_field))
    if pa.types.is_map(arrow):
        return pa.map_(within(arrow.key_field), within(arrow.item_field))
    if arrow in (pa.string(), pa.large_string()):
        return pa.large_string() if large else pa.string()
    if arrow in (pa.binary(), pa.large_binary()):
        return pa.large_binary() if large else pa.binary()
    return arrow


def make_batch(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of *schema*; a column whose texts are large or not in another way is given that of *schema*."""
    return pa.RecordBatch.from_arrays(
        [_cast(columns[field.name], field.type) for field in schema], schema=schema
    )


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast as Arrow does, which forgets elements where those of a list are all null by their type."""
    if values.type == kind:
        return values
    if not _is_null_type(kind):
        return values.cast(kind)
    if pa.types.is_struct(kind):
        parts = [_cast(values.field(place), part.type) for place, part in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    mask, (offsets, *parts) = values.is_null(), list_parts(values)
    if pa.types.is_map(kind):
        keys, items = map(_cast, parts, (kind.key_type, kind.item_type))
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(offsets, _cast(parts[0], kind.value_type), type=kind, mask=mask)


def list_parts(values: pa.Array) -> list[pa.Array]:
    """
    The offsets of lists or maps, from 0, and their elements, or keys and items: of a slice its own alone.

    >>> list_parts(pa.array([["a"], None, ["b", "c"]])[1:])[1].to_pylist()
    ['b', 'c']
    """
    offsets = np.asarray(values.offsets)
    parts = (values.keys, values.items) if pa.types.is_map(values.type) else (values.values,)
    some_parts = (part.slice(offsets[0], offsets[-1] - offsets[0]) for part in parts)
    # As a copy: with a mask, Arrow wants offsets that are no slice.
    return [pa.array(offsets - offsets[0]), *some_parts]


def _is_null_type(kind: pa.DataType) -> bool:
    """Tell whether a part of the type is that of nulls alone."""
    return any(
        pa.types.is_null(kind.field(place).type) or _is_null_type(kind.field(place).type)
        for place in range(kind.num_fields)
    )


def _part(name: str, kind: T.DataType, nullable: bool) -> pa.Field:
    # Of an empty array Spark says that it holds no nulls, and that they are all that it could hold.
    return pa.field(name, arrow_type(kind), nullable or isinstance(kind, T.NullType))


def _field(column: T.StructField) -> pa.Field:
    try:
        return _part(column.name, column.dataType, column.nullable)
    except NoSuchArrowType as error:
        within = column.name if error.column is None else f"{column.name}.{error.column}"
        raise NoSuchArrowType(error.found, within) from None
