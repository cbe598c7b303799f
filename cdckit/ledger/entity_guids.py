"""Which entities keys name: the guids of Python values, and of the columns of tables, by type and value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.parts.arguments import quoted, require_columns
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.guids import can_be_guids, guids
from cdckit.parts.tables import AnyTable, as_spark, with_whole_numbers
from cdckit.parts.widening import as_type, common_spark_type
from cdckit.query.entity_keys import is_value

Key: TypeAlias = str | Mapping[str, Any]
"""An entity: its guid, or the values of its key fields by name."""


_MADE_GUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_key(key: object, kind: Kind) -> bool:
    """Tell whether this is a guid, or a mapping of just the key fields, if guids are made of them."""
    if isinstance(key, str):
        # What is made of keys is written so: another text is a value of a key, of which nobody says which.
        return bool(kind.by_guid or _MADE_GUID.fullmatch(key))
    return isinstance(key, Mapping) and not kind.by_guid and set(key) == set(kind.keys)


def key_guid(key: Key, spark: SparkSession, kind: Kind, fields: T.StructType) -> str:
    """The guid of one entity; raises `InvalidArgument` as `listed_guids`."""
    if isinstance(key, str):
        return key
    table = _key_table([key], kind, fields, "key", key)
    columns = {name: table[name].combine_chunks() for name in kind.keys}
    if can_be_guids({name: values.type for name, values in columns.items()}):
        return str(guids(kind.entity, columns)[0].as_py())
    row = _with_guids(table, spark, kind, fields).first()
    assert row is not None
    return str(row[0])


def listed_guids(keys: list[Key], spark: SparkSession, kind: Kind, fields: T.StructType) -> DataFrame:
    """
    The guids of entities, one row for each of *keys*.

    Args:
        fields: The fields of the log, with their types.

    Raises:
        InvalidArgument: A value is none of its field's type, as `cdckit.query.entity_keys.literal` tells it.
    """
    return _with_guids(_key_table(keys, kind, fields, "keys", "others"), spark, kind, fields)


def table_guids(keys: AnyTable, spark: SparkSession, kind: Kind, fields: T.StructType) -> DataFrame:
    """
    The guids of the entities of which a table has the key fields, or the guids.

    Raises:
        InvalidArgument: A column is of a type whose values the key field may not have.
    """
    whole = [name for name in kind.keys if isinstance(fields[name].dataType, T.IntegralType)]
    rows = as_spark(spark, with_whole_numbers(keys, whole))
    if GUID in rows.columns:
        return rows
    if kind.by_guid:
        raise InvalidArgument(None, "keys", f"a table with the column {GUID}", rows.columns)
    require_columns(rows, kind.keys)
    columns = {}
    for name in kind.keys:
        given, needed = rows.schema[name].dataType, fields[name].dataType
        if isinstance(given, T.IntegralType) and isinstance(needed, T.IntegralType):
            needed = given  # Whole numbers have one guid, whatever type they have.
        common = common_spark_type(given, needed, as_double=True)
        if common is None or common.simpleString() != needed.simpleString():
            wanted = f"a table whose column {name} has values of the type {needed.simpleString()}"
            raise InvalidArgument(None, "keys", wanted, given.simpleString())
        columns[name] = as_type(F.col(quoted(name)), given, needed, name)
    return rows.select(kind.guid(columns).alias(GUID))


def _key_table(
    keys: Iterable[Key], kind: Kind, fields: T.StructType, argument: str, found: object
) -> pa.Table:
    """The guids that are given, and the values of key fields, as columns."""
    columns = _key_columns(kind, fields)
    rows = [{GUID: key} if isinstance(key, str) else dict(key) for key in keys]
    try:
        if not all(is_value(value, columns[name].dataType) for row in rows for name, value in row.items()):
            raise ValueError(argument)
        return pa.Table.from_pylist(rows, arrow_schema(columns))
    except (pa.ArrowException, TypeError, ValueError) as error:
        needed = ", ".join(f"{name} ({fields[name].dataType.simpleString()})" for name in kind.keys)
        raise InvalidArgument(None, argument, f"values of {needed}", found) from error


def _key_columns(kind: Kind, fields: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(GUID, T.StringType()), *(fields[name] for name in kind.keys)])


def _with_guids(table: pa.Table, spark: SparkSession, kind: Kind, fields: T.StructType) -> DataFrame:
    rows = spark.createDataFrame(table, _key_columns(kind, fields))
    guid_column = kind.guid({name: F.col(quoted(name)) for name in kind.keys})
    return rows.select(F.coalesce(F.col(GUID), guid_column).alias(GUID))
