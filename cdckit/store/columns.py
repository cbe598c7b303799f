"""
The columns of a table: which it can have, under which names they are stored, and how rows get them.

A table's columns have *true* names, which users know, and *stored* ones, which Delta and Parquet take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import quoted
from cdckit.parts.arrow_types import arrow_schema, list_parts
from cdckit.parts.widening import as_type, common_spark_type
from cdckit.store.errors import NotStorable

TRUE_NAME = "cdckit.name"
"""The key of a stored column's metadata under which its true name stands, where it is another."""

_NOT_TAKEN = re.compile(r"[ ,;{}()\n\t=]")
_PLAIN = (T.BooleanType, T.NumericType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)
_TEXTS = (T.StringType, T.CharType, T.VarcharType)
_PARTITIONING = (T.BooleanType, T.IntegralType, T.StringType, T.DateType)


def storable_columns(columns: T.StructType, table: str) -> T.StructType:
    """
    The columns as a table has them: all nullable, and every text of one type, whatever its collation.

    Raises:
        NotStorable: A column is of a type that Delta tables lack, or two columns have one name.

    >>> storable_columns(T.StructType().add("n", T.IntegerType(), False), "t").simpleString()
    'struct<n:int>'
    """
    names = columns.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise NotStorable(table, name, "there twice", "one column of its name")
    return T.StructType(
        [T.StructField(column.name, _storable(column.dataType, table, column.name)) for column in columns]
    )


def _storable(kind: T.DataType, table: str, column: str) -> T.DataType:
    if isinstance(kind, T.StructType):
        if not kind.fields:
            raise NotStorable(table, column, "struct<>", "a type with something in it")
        parts = {field.name: _storable(field.dataType, table, f"{column}.{field.name}") for field in kind}
        return T.StructType([T.StructField(name, part) for name, part in parts.items()])
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
            kind_name = "not there" if kind is None else kind.simpleString()
            needed = "a whole number, text, a date or a boolean to partition by"
            raise NotStorable(table, name, kind_name, needed)


def unite_columns(before: T.StructType, rows: T.StructType, table: str) -> T.StructType:
    """
    The columns of a table to which rows with other ones come: new ones last, types as wide as needed.

    Which type two of them share is said in `cdckit.parts.widening`; within structs, lists and maps too.

    Raises:
        NotStorable: There is no such type.

    >>> old, new = T.StructType().add("n", "integer"), T.StructType().add("m", "date").add("n", "long")
    >>> unite_columns(old, new, "t").simpleString()
    'struct<n:bigint,m:date>'
    """
    kind = _unite_types(before, rows, table, "")
    assert isinstance(kind, T.StructType)
    return storable_columns(kind, table)


def _unite_types(left: T.DataType, right: T.DataType, table: str, column: str) -> T.DataType:
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        kinds = {field.name: field.dataType for field in left}
        for field in right:
            left_kind = kinds.get(field.name)
            path = f"{column}.{field.name}" if column else field.name
            kinds[field.name] = (
                field.dataType if left_kind is None else _unite_types(left_kind, field.dataType, table, path)
            )
        return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        return T.ArrayType(_unite_types(left.elementType, right.elementType, table, f"{column}.element"))
    if isinstance(left, T.MapType) and isinstance(right, T.MapType):
        keys = _unite_types(left.keyType, right.keyType, table, f"{column}.key")
        return T.MapType(keys, _unite_types(left.valueType, right.valueType, table, f"{column}.value"))
    common = common_spark_type(left, right, as_double=True)
    if common is None:
        raise NotStorable(table, column, right.simpleString(), left.simpleString())
    return common


def keeps_types(before: T.DataType, after: T.DataType) -> bool:
    """
    Tell whether files of *before* can be read as *after*: columns may have come, none is of another type.

    Fields may have come to structs, but not to those within lists and maps, to which Delta adds none.
    """
    if isinstance(before, T.StructType) and isinstance(after, T.StructType):
        later = {true_name(column): column for column in after}
        return all(
            (other := later.get(true_name(column))) is not None
            and other.name == column.name
            and keeps_types(column.dataType, other.dataType)
            for column in before
        )
    return before.simpleString() == after.simpleString()


def as_columns(rows: DataFrame, columns: T.StructType) -> DataFrame:
    """The rows with their columns in the types of *columns*; those that they lack stay away."""
    return all_columns(rows, T.StructType([column for column in columns if column.name in rows.columns]))


def all_columns(rows: DataFrame, columns: T.StructType) -> DataFrame:
    """The rows with all of *columns*, in their types; those that they lack are null."""
    return rows.select(*_as_fields(lambda name: F.col(quoted(name)), rows.schema, columns))


def _as_fields(field: Callable[[str], Column], kind: T.StructType, common: T.StructType) -> list[Column]:
    """Fields of one type in those of another one; those that it lacks are null."""
    kinds = {field.name: field.dataType for field in kind}
    return [
        _as_type(field(wanted.name), kinds[wanted.name], wanted.dataType, wanted.name).alias(wanted.name)
        if wanted.name in kinds
        else F.lit(None).cast(wanted.dataType).alias(wanted.name)
        for wanted in common
    ]


def _as_type(value: Column, kind: T.DataType, common: T.DataType, column: str) -> Column:
    """Cast as `cdckit.parts.widening.as_type`, within structs, lists and maps too."""
    if kind.simpleString() == common.simpleString():
        return value
    if isinstance(kind, T.StructType) and isinstance(common, T.StructType):
        return F.when(value.isNotNull(), F.struct(*_as_fields(value.getField, kind, common)))
    if isinstance(kind, T.ArrayType) and isinstance(common, T.ArrayType):
        inner, element = kind.elementType, common.elementType
        return F.transform(value, lambda item: _as_type(item, inner, element, column))
    if isinstance(kind, T.MapType) and isinstance(common, T.MapType):
        keys, items = (kind.keyType, common.keyType), (kind.valueType, common.valueType)
        changed = F.transform_keys(value, lambda key, _: _as_type(key, *keys, column))
        return F.transform_values(changed, lambda _, item: _as_type(item, *items, column))
    return as_type(value, kind, common, column)


# Names ----------------------------------------------------------------------------------------------------


def stored_names(columns: T.StructType, earlier: T.StructType | None = None) -> T.StructType:
    """
    The columns under names that Delta and Parquet take; the true ones stand in the fields' metadata.

    A name that they take stays, whatever the order.  In another one each character of ` ,;{}()=`, a tab and
    a line's end is written as SQL/XML writes it (ISO 9075-14), so that no other column is likely to have that
    name; an empty one is `_`.  Of names that differ in case alone the first stays; a name that is taken gets
    a number.  A column that *earlier* has keeps its stored name, and what others have said of it.

    >>> columns = T.StructType().add("a b", "long").add("a_b", "long").add("X", "long").add("x", "long")
    >>> [one.name for one in stored_names(columns)]
    ['a_x0020_b', 'a_b', 'X', 'x_2']
    """
    before = {true_name(column): column for column in earlier or [] if true_name(column) in columns.names}
    names = {true: column.name for true, column in before.items()}
    # Those that can stay come first.
    for true in sorted(columns.names, key=lambda true: _taken_form(true) != true):
        if true not in names:
            names[true] = _free_name(_taken_form(true), names.values(), columns.names)
    fields = []
    for column in columns:
        column_before, name = before.get(column.name), names[column.name]
        kind = _within(column.dataType, column_before.dataType if column_before else None, stored_names)
        metadata = column_before.metadata if column_before else _name_metadata(column.name, name)
        fields.append(T.StructField(name, kind, column.nullable, metadata))
    return T.StructType(fields)


def _taken_form(name: str) -> str:
    """A name in letters that Delta and Parquet take."""
    return _NOT_TAKEN.sub(lambda match: f"_x{ord(match[0]):04X}_", name) or "_"


def _name_metadata(true: str, stored: str) -> dict[str, str]:
    """Note a column's true name, where that is another; the comment is for readers of SQL."""
    return {} if stored == true else {TRUE_NAME: true, "comment": true}


def true_names(stored: T.StructType) -> T.StructType:
    """The columns under their true names."""
    return _renamed(stored, true_name)


def plain_names(stored: T.StructType) -> T.StructType:
    """The columns under their stored names, without their true ones."""
    return _renamed(stored, lambda column: column.name)


def _renamed(stored: T.StructType, name: Callable[[T.StructField], str]) -> T.StructType:
    inner = lambda kind, _: _renamed(kind, name)  # noqa: E731
    fields = ((name(column), _within(column.dataType, None, inner), column.nullable) for column in stored)
    return T.StructType([T.StructField(*field) for field in fields])


def true_name(stored: T.StructField) -> str:
    """The name under which users know a stored column."""
    return str((stored.metadata or {}).get(TRUE_NAME, stored.name))


def renamed_columns(stored: T.DataType, within: str = "") -> Iterator[tuple[str, str]]:
    """The columns whose stored name is another one, at any depth: where, and its name there."""
    if isinstance(stored, T.StructType):
        for column in stored:
            path = f"{within}{true_name(column)}"
            if true_name(column) != column.name:
                yield path, column.name
            yield from renamed_columns(column.dataType, f"{path}.")
    elif isinstance(stored, T.ArrayType):
        yield from renamed_columns(stored.elementType, within)
    elif isinstance(stored, T.MapType):
        yield from renamed_columns(stored.keyType, within)
        yield from renamed_columns(stored.valueType, within)


def _free_name(name: str, taken: Iterable[str], true: Iterable[str]) -> str:
    """The name, or the first with a number that is not taken in any case and is no column's true name."""
    is_taken = {other.lower() for other in taken}
    is_meant = {other.lower() for other in true}
    free, number = name, 1
    while free.lower() in is_taken or (number > 1 and free.lower() in is_meant):
        number += 1
        free = f"{name}_{number}"
    return free


_OfStruct = Callable[[T.StructType, T.StructType | None], T.StructType]


def _within(kind: T.DataType, before: T.DataType | None, change: _OfStruct) -> T.DataType:
    """The type with *change* made to the structs in it."""
    if isinstance(kind, T.StructType):
        return change(kind, before if isinstance(before, T.StructType) else None)
    if isinstance(kind, T.ArrayType):
        inner = before.elementType if isinstance(before, T.ArrayType) else None
        return T.ArrayType(_within(kind.elementType, inner, change), kind.containsNull)
    if isinstance(kind, T.MapType):
        both = (before.keyType, before.valueType) if isinstance(before, T.MapType) else (None, None)
        keys, values = _within(kind.keyType, both[0], change), _within(kind.valueType, both[1], change)
        return T.MapType(keys, values, kind.valueContainsNull)
    return kind


# Arrow ----------------------------------------------------------------------------------------------------


class Shape:
    """
    How batches get the columns of a table: by name, at every depth.

    Args:
        given: The columns under the names that batches have; a batch may lack some, or have others.
        wanted: The same columns in the same order, under the names that are wanted.
    """

    def __init__(self, given: T.StructType, wanted: T.StructType) -> None:
        self._given = given
        self.schema = arrow_schema(wanted, large=True)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in that shape."""
        parts = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns = _parts(parts, batch.num_rows, self._given, list(self.schema))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def to_stored(stored: T.StructType) -> Shape:
    """Shape rows from true names to stored ones."""
    return Shape(true_names(stored), plain_names(stored))


def to_true(stored: T.StructType) -> Shape:
    """Shape rows from stored names to true ones."""
    return Shape(plain_names(stored), true_names(stored))


def _parts(
    parts: Mapping[str, pa.Array], rows: int, columns: T.StructType, wanted: list[pa.Field]
) -> list[pa.Array]:
    return [
        _shape_values(parts[column.name], field.type, column.dataType)
        if column.name in parts
        else pa.nulls(rows, field.type)
        for column, field in zip(columns, wanted, strict=True)
    ]


def _shape_values(values: pa.Array, kind: pa.DataType, column: T.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if isinstance(column, T.StructType):
        named = {field.name: values.field(place) for place, field in enumerate(values.type)}
        parts = _parts(named, len(values), column, list(kind))
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if isinstance(column, T.ArrayType | T.MapType):
        mask, (offsets, *parts) = values.is_null(), list_parts(values)
        if isinstance(column, T.ArrayType):
            elements = _shape_values(parts[0], kind.value_type, column.elementType)
            return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=mask)
        keys = _shape_values(parts[0], kind.key_type, column.keyType)
        items = _shape_values(parts[1], kind.item_type, column.valueType)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    return values.cast(kind)
