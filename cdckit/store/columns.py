"""Which columns a table can have, and what becomes of them when rows come with others."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import quoted
from cdckit.parts.widening import as_type, common_spark_type
from cdckit.store.errors import NotStorable

_PLAIN = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
_TEXTS = (T.StringType, T.CharType, T.VarcharType)
_PARTITIONING = (T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.StringType, T.DateType)


def storable(columns: T.StructType, table: str) -> T.StructType:
    """
    The columns as a table has them: all nullable, and every text of one type, whatever its collation.

    Raises:
        NotStorable: A column is of a type that Delta tables lack, or two columns have one name.

    >>> storable(T.StructType().add("n", T.IntegerType(), False), "t").simpleString()
    'struct<n:int>'
    """
    names = columns.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise NotStorable(table, name, "there twice", "one column of its name")
    return T.StructType(
        [T.StructField(one.name, _storable(one.dataType, table, one.name)) for one in columns]
    )


def _storable(kind: T.DataType, table: str, column: str) -> T.DataType:
    if isinstance(kind, T.StructType):
        if not kind.fields:
            raise NotStorable(table, column, "struct<>", "a type with something in it")
        return T.StructType(
            [T.StructField(one.name, _storable(one.dataType, table, f"{column}.{one.name}")) for one in kind]
        )
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_storable(kind.elementType, table, f"{column}.element"))
    if isinstance(kind, T.MapType):
        keys = _storable(kind.keyType, table, f"{column}.key")
        return T.MapType(keys, _storable(kind.valueType, table, f"{column}.value"))
    if isinstance(kind, _TEXTS):
        return T.StringType()
    if isinstance(kind, _PLAIN):
        return kind
    raise NotStorable(table, column, kind.simpleString(), "a type that Delta tables have")


def require_partitioning(columns: T.StructType, by: tuple[str, ...], table: str) -> None:
    """Raise `NotStorable` unless files can be told apart by these columns."""
    for name in by:
        kind = columns[name].dataType if name in columns.fieldNames() else None
        if not isinstance(kind, _PARTITIONING):
            found = "not there" if kind is None else kind.simpleString()
            raise NotStorable(table, name, found, "a whole number, text, a date or a boolean to partition by")


def together(before: T.StructType, rows: T.StructType, table: str) -> T.StructType:
    """
    The columns of a table to which rows with other ones come: new ones last, types as wide as needed.

    Which type two of them share is said in `cdckit.parts.widening`; within structs, lists and maps too.

    Raises:
        NotStorable: There is no such type.

    >>> old, new = T.StructType().add("n", "integer"), T.StructType().add("m", "date").add("n", "long")
    >>> together(old, new, "t").simpleString()
    'struct<n:bigint,m:date>'
    """
    kind = _together(before, rows, table, "")
    assert isinstance(kind, T.StructType)
    return storable(kind, table)


def _together(left: T.DataType, right: T.DataType, table: str, column: str) -> T.DataType:
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        found = {one.name: one.dataType for one in left}
        for one in right:
            known = found.get(one.name)
            path = f"{column}.{one.name}" if column else one.name
            found[one.name] = one.dataType if known is None else _together(known, one.dataType, table, path)
        return T.StructType([T.StructField(name, kind) for name, kind in found.items()])
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        return T.ArrayType(_together(left.elementType, right.elementType, table, f"{column}.element"))
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        keys = _together(left.keyType, right.keyType, table, f"{column}.key")
        return T.MapType(keys, _together(left.valueType, right.valueType, table, f"{column}.value"))
    common = common_spark_type(left, right)
    if common is None:
        raise NotStorable(table, column, right.simpleString(), left.simpleString())
    return common


def keeps_types(before: T.StructType, after: T.StructType) -> bool:
    """Whether files of *before* can be read as *after*: columns may have come, none is of another type."""
    return _keeps(before, after)


def _keeps(before: T.DataType, after: T.DataType) -> bool:
    if isinstance(before, T.StructType) and isinstance(after, T.StructType):
        later = {one.name: one.dataType for one in after}
        return all(one.name in later and _keeps(one.dataType, later[one.name]) for one in before)
    if isinstance(before, T.ArrayType) and isinstance(after, T.ArrayType):
        return _keeps(before.elementType, after.elementType)
    if isinstance(before, T.MapType) and isinstance(after, T.MapType):
        return _keeps(before.keyType, after.keyType) and _keeps(before.valueType, after.valueType)
    return before.simpleString() == after.simpleString()


def as_columns(rows: DataFrame, columns: T.StructType) -> DataFrame:
    """The rows with their columns in the types of *columns*; those that they lack stay away."""
    found = {one.name: one for one in rows.schema}
    return rows.select(
        *(
            _as_type(F.col(quoted(one.name)), found[one.name].dataType, one.dataType).alias(one.name)
            for one in columns
            if one.name in found
        )
    )


def _as_type(value: Column, kind: T.DataType, common: T.DataType) -> Column:
    """As `cdckit.parts.widening.as_type`, within structs, lists and maps too."""
    if kind.simpleString() == common.simpleString():
        return value
    if isinstance(kind, T.StructType) and isinstance(common, T.StructType):
        before = {one.name: one.dataType for one in kind}
        parts = [
            _as_type(value.getField(one.name), before[one.name], one.dataType).alias(one.name)
            if one.name in before
            else F.lit(None).cast(one.dataType).alias(one.name)
            for one in common
        ]
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, T.ArrayType) and isinstance(common, T.ArrayType):
        inner, element = kind.elementType, common.elementType
        return F.transform(value, lambda each: _as_type(each, inner, element))
    if isinstance(kind, T.MapType) and isinstance(common, T.MapType):
        keys, items = (kind.keyType, common.keyType), (kind.valueType, common.valueType)
        changed = F.transform_keys(value, lambda key, _: _as_type(key, *keys))
        return F.transform_values(changed, lambda _, item: _as_type(item, *items))
    return as_type(value, kind, common)
