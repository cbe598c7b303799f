"""Sides of a reconciliation: a history and a table of its source at one instant, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import and_
from typing import NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.history import DELETED, business_fields
from cdckit.parts.arguments import (
    quoted,
    require_batch,
    require_columns,
    require_instant,
    require_keys,
    wrong_argument,
    wrong_type,
)
from cdckit.parts.near_names import suggest_names
from cdckit.parts.tables import AnyTable, as_spark, with_whole_numbers
from cdckit.parts.values import comparable
from cdckit.parts.widening import common_spark_type, is_made_text
from cdckit.query.as_of import as_of
from cdckit.query.differences import PRESENCE, is_there, same_value, value_of, version_rows
from cdckit.query.intervals import key_column

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"

OTHER_SIDE = "other_"
"""Begins the names of the key's columns in what is looked up by them."""


class Sides(NamedTuple):
    """
    A history and a table of its source, which can be compared: their fields have the same types.

    *keys* and *fields*, those that are compared, are fields of both.
    """

    history: DataFrame
    source: DataFrame
    instant: Column
    keys: list[T.StructField]
    fields: list[T.StructField]

    @property
    def cells(self) -> list[T.StructField]:
        """What can differ: that the entity is there, and each field."""
        return [PRESENCE, *self.fields]

    @property
    def places(self) -> list[str]:
        """The names of the columns of the key, in the form in which equal ones meet."""
        return [key_column(place) for place, _ in enumerate(self.keys)]


ONE_INSTANT = "take its rows of one instant"


def read_sides(history: DataFrame, source: AnyTable, valid_at: datetime, keys: Sequence[str]) -> Sides:
    of_history = business_fields(history)
    names = of_history.fieldNames()
    key = require_keys(keys, names)
    instant = require_instant(valid_at, "valid_at")
    whole = [field.name for field in of_history if isinstance(field.dataType, T.IntegralType)]
    table = as_spark(history.sparkSession, with_whole_numbers(source, whole))
    require_batch(table, "source", ONE_INSTANT)
    require_columns(table, key, remedy="The source says by its keys which entity it means.")
    unknown = [name for name in table.columns if name not in names]
    if unknown:
        needed = f"of columns that are fields of the history, {', '.join(names)}"
        named = f"columns={unknown}" if isinstance(source, pd.DataFrame) else str(unknown)[1:-1]
        remedy = suggest_names(unknown, names) or f"Leave the others out: source.drop({named})."
        raise wrong_argument("source", needed, unknown, remedy=remedy)
    is_sparks = isinstance(source, DataFrame)
    types = {name: _common_type(name, history, table, is_sparks) for name in names if name in table.columns}

    def alike(frame: DataFrame) -> DataFrame:
        columns = {
            name: cast_where_needed(F.col(quoted(name)), frame.schema[name].dataType, kind)
            for name, kind in types.items()
        }
        return frame.withColumns(columns)

    fields = {name: T.StructField(name, kind) for name, kind in types.items()}
    compared = [field for name, field in fields.items() if name not in key]
    return Sides(alike(history), alike(table), instant, [fields[name] for name in key], compared)


def _common_type(name: str, history: DataFrame, source: DataFrame, is_sparks: bool) -> T.DataType:
    """The type that holds the values of both; raises where only their texts could be compared."""
    kind, other = history.schema[name].dataType, source.schema[name].dataType
    common = common_spark_type(kind, other)
    # What differs is stated in the history's type, and an instant is no date.
    is_other_time = kind != other and isinstance(common, T.TimestampType | T.TimestampNTZType)
    if common is None or is_other_time or is_made_text(common, kind, other):
        needed = f"a type that compares exactly with the history's {kind.simpleString()}"
        remedy = f"Cast it to {kind.simpleString()}."
        if is_sparks:
            remedy = f'Cast it: source.withColumn("{name}", F.col("{name}").cast("{kind.simpleString()}")).'
        raise wrong_type(name, needed, other.simpleString(), remedy)
    return common


def cast_where_needed(value: Column, kind: T.DataType, needed: T.DataType) -> Column:
    """Cast where it must be: Spark refuses where a type that is the same may hold nulls within."""
    return value if kind.simpleString() == needed.simpleString() else value.cast(needed)


def cast_whole(value: Column, kind: T.DataType, field: T.StructField) -> Column:
    """Cast to the type of a field of the history; ends the job for a value that would not be the same."""
    if kind.simpleString() == field.dataType.simpleString():
        return value
    made, needed = value.try_cast(field.dataType), field.dataType.simpleString()
    sentence = (
        f"repair() says what the source says in the types of the history, and a value of {field.name} is no "
        f"{needed}: round it in the source, or give the history a wider type first.  The value: "
    )
    refused = F.raise_error(F.concat(F.lit(sentence), value.cast("string"))).cast(field.dataType)
    is_whole = comparable(made.cast(kind), kind).eqNullSafe(comparable(value, kind))
    return F.when(is_whole, made).otherwise(refused)


def find_differences(sides: Sides) -> DataFrame:
    """Find what is wrong: the key, `guid`, `finding`, and the versions of both sides, `a` and `b`."""
    in_force = version_rows(as_of(sides.history, sides.instant, deletes=True))
    left = in_force.select("guid", F.struct("begins", "version.*").alias("a"))
    right = _source_versions(sides)
    a, b = F.col("a"), F.col("b")
    both = with_key_columns(left, a, sides).join(
        with_key_columns(right, b, sides, OTHER_SIDE), same_keys(sides.places), "outer"
    )
    here, there = is_there(a), b.isNotNull()
    same = reduce(and_, (same_value(a, b, field) for field in sides.fields), F.lit(True))
    finding = F.when(there & ~here, MISSING).when(here & ~there, EXTRA).when(here & there & ~same, DIFFERENT)
    return both.select(
        *(F.coalesce(place, OTHER_SIDE + place).alias(place) for place in sides.places),
        "guid",
        finding.alias("finding"),
        "a",
        "b",
    ).where(F.col("finding").isNotNull())


def _source_versions(sides: Sides) -> DataFrame:
    """The rows of the source, as versions: `b`."""
    fields = [F.col(quoted(field.name)) for field in (*sides.keys, *sides.fields)]
    values = F.struct(F.lit(False).alias(DELETED), *fields)
    return sides.source.select(F.struct(values.alias("values")).alias("b"))


def with_key_columns(frame: DataFrame, version: Column, sides: Sides, prefix: str = "") -> DataFrame:
    keys = zip(sides.places, sides.keys, strict=True)
    return frame.withColumns(
        {prefix + place: comparable(value_of(version, key), key.dataType) for place, key in keys}
    )


def same_keys(places: Sequence[str]) -> Column:
    return reduce(and_, (F.col(place).eqNullSafe(F.col(OTHER_SIDE + place)) for place in places))
