"""One table across its versions: what the schema zone says of it, as a value that travels to the workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T

from cdckit import avro
from cdckit.arrow_types import spark_type
from cdckit.errors import InvalidArgument
from cdckit.replicate.metadata import ZONE_SCHEMA
from cdckit.schemas import require_types


@dataclass(frozen=True)
class TableVersion:
    """What one schema id stands for; columns go by the names that the table's newest version gives them."""

    schema_id: str
    number: int
    data_schema: str
    ordinals: Mapping[str, int]
    """The source's own number of each column."""
    places: Mapping[str, int]
    """Where each column stands in a row of this version."""


@dataclass(frozen=True)
class Table:
    """A source table: where it lives, its versions by age, its columns over all of them, its keys."""

    task: str
    schema: str
    name: str
    versions: tuple[TableVersion, ...]
    fields: pa.StructType
    keys: tuple[str, ...]


def table_of(zone: DataFrame, *, function: str) -> Table:
    """
    The one table that *zone* speaks of.

    The only place where cdckit collects: one row per schema id.
    """
    require_types(zone, ZONE_SCHEMA, function=function)
    rows = sorted(zone.collect(), key=lambda row: (row["table_version"], row["timestamp"], row["schema_id"]))
    tables = sorted({(row["task"], row["schema"], row["table"]) for row in rows})
    if len(tables) != 1:
        found = ", ".join(f"{task} {schema}.{table}" for task, schema, table in tables) or "none"
        raise InvalidArgument(
            function, "zone", "the schema zone of one table (filter it by task and table)", found
        )
    task, schema, name = tables[0]
    fields = _fields(rows)
    spelling = {field.name.lower(): field.name for field in fields}
    versions = tuple(_version(row, spelling) for row in rows)
    return Table(task, schema, name, versions, fields, _keys(rows[-1], spelling))


def keys(zone: DataFrame) -> list[str]:
    """
    The key columns of the one table that *zone* speaks of, by their position in the key.

    Args:
        zone: The part of a schema zone (`ZONE_SCHEMA`) that is about one table; its newest version counts.

    Returns:
        Column names; empty for a table without a key, whose key the caller has to name.

    Raises:
        InvalidArgument: *zone* is empty or about several tables.
        MissingColumns, WrongColumnType: *zone* is not a schema zone.

    Cost: collects the zone's rows.

    Source:
        Replicate, primaryKeyPosition (0 = not in the key).
    """
    return list(table_of(zone, function="keys").keys)


def _version(row: Row, spelling: Mapping[str, str]) -> TableVersion:
    def spelled(name: str) -> str:
        return spelling.get(name.lower(), name)

    ordinals = {spelled(column["name"]): column["ordinal"] for column in row["columns"]}
    places = {spelled(field.name): place for place, field in enumerate(_row_of(row))}
    return TableVersion(row["schema_id"], row["table_version"], row["data_schema"], ordinals, places)


def _row_of(row: Row) -> pa.StructType:
    return avro.parse_schema(row["data_schema"]).arrow_type.field("data").type


def _keys(row: Row, spelling: Mapping[str, str]) -> tuple[str, ...]:
    in_key = [column for column in row["columns"] if column["key_position"] > 0]
    names = [column["name"] for column in sorted(in_key, key=lambda column: column["key_position"])]
    return tuple(spelling.get(name.lower(), name) for name in names)


def _fields(rows: Sequence[Row]) -> pa.StructType:
    """
    The columns of all versions, the newest's first, each in a type that holds what any of them sent.

    Names that differ in case alone are one column: Spark could not tell two of them apart.
    """
    found: dict[str, pa.Field] = {}
    for row in reversed(rows):
        for field in _row_of(row):
            known = found.setdefault(field.name.lower(), field)
            found[field.name.lower()] = known.with_type(common_type(known.type, field.type))
    return pa.struct(list(found.values()))


def row_type(table: Table) -> T.StructType:
    """A row of *table*, in the columns of all its versions."""
    return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in table.fields])


def row_fields(table: Table) -> list[T.StructField]:
    """`data`, `before`, `sent` and `changed` for *table*."""
    row = row_type(table)
    flags = T.StructType([T.StructField(name, T.BooleanType()) for name in row.fieldNames()])
    return [
        T.StructField("data", row),
        T.StructField("before", row),
        T.StructField("sent", flags),
        T.StructField("changed", flags),
    ]


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """
    The type that a column has when two versions of its table disagree.

    Numbers widen where that loses nothing, null gives way; anything else becomes text.  Decision: no
    specification says what a consumer should do here.

    >>> common_type(pa.int32(), pa.int64()), common_type(pa.int64(), pa.date32())
    (DataType(int64), DataType(string))
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    kinds = (left, right)
    if all(map(pa.types.is_integer, kinds)):
        return pa.int64()
    if all(pa.types.is_floating(kind) or kind == pa.int32() for kind in kinds):
        return pa.float64()
    if all(map(pa.types.is_decimal, kinds)):
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale
        return pa.decimal128(digits, scale) if digits <= 38 else pa.string()
    return pa.string()


def to_common_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """
    The *values* of one version in the type that `common_type` found for all versions.

    Bytes become hex text, as in JSON form; nested values become JSON text.

    >>> to_common_type(pa.array([b"\\xff", None]), pa.string()).to_pylist()
    ['ff', None]
    """
    if values.type == kind:  # Arrow's cast of a list of nulls to its own type loses items
        return values
    if not pa.types.is_string(kind):
        return values.cast(kind)
    if pa.types.is_binary(values.type):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], kind)
    if pa.types.is_nested(values.type):
        texts = [None if value is None else json.dumps(value, default=str) for value in values.to_pylist()]
        return pa.array(texts, kind)
    return values.cast(kind)
