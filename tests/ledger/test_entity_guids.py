"""Which entity a key names, of Python's values and of tables: the one of the same value, or an error."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.entity_guids import key_guid, listed_guids, table_guids
from cdckit.ledger.kind import Kind

NO_SESSION: Any = None


def about(*types: T.DataType) -> tuple[Kind, T.StructType]:
    """A ledger whose keys, `k.0` and so on, are of these types."""
    names = tuple(f"k.{number}" for number in range(len(types)))
    fields = T.StructType([T.StructField(*pair) for pair in zip(names, types, strict=True)])
    return Kind("e", names, 1), fields


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (T.TimestampType(), datetime(2024, 1, 1)),
        (T.TimestampType(), "2024-01-01"),
        (T.TimestampType(), pd.NaT),
        (T.TimestampNTZType(), datetime(2024, 1, 1, tzinfo=UTC)),
        (T.DateType(), datetime(2024, 1, 1)),
        (T.DateType(), pd.Timestamp("2024-01-01")),
        (T.IntegerType(), 7.0),
        (T.IntegerType(), "7"),
        (T.IntegerType(), True),
        (T.StringType(), 7),
        (T.DecimalType(10, 2), Decimal("7.555")),
    ],
)
def test_a_value_of_another_type_names_nothing(kind: T.DataType, value: Any) -> None:
    """In a list as in a question."""
    ledger, fields = about(kind)
    needed = rf"values of k\.0 \({kind.simpleString().replace('(', '.').replace(')', '.')}\)"
    with pytest.raises(InvalidArgument, match=f"key to be {needed}"):
        key_guid({"k.0": value}, NO_SESSION, ledger, fields)
    with pytest.raises(InvalidArgument, match=f"keys to be {needed}"):
        listed_guids([{"k.0": value}], NO_SESSION, ledger, fields)


def test_one_key_has_one_guid(spark: SparkSession) -> None:
    """In a question, in a list and in a table; also by names with a dot, and days of before 1582."""
    ledger, fields = about(T.IntegerType(), T.StringType(), T.DateType(), T.TimestampType())
    at = datetime(1500, 1, 1, 12, tzinfo=UTC)
    key = {"k.0": 7, "k.1": "7", "k.2": date(1500, 1, 1), "k.3": at}
    asked = key_guid(key, spark, ledger, fields)
    assert asked == key_guid({**key, "k.3": at.astimezone(ZoneInfo("Asia/Tokyo"))}, spark, ledger, fields)
    table = spark.sql(
        "SELECT 7L AS `k.0`, '7' AS `k.1`, date'1500-01-01' AS `k.2`, "
        "timestamp_ntz'1500-01-01 12:00' AS `k.3`"
    )
    guids = listed_guids([key], spark, ledger, fields).union(table_guids(table, spark, ledger, fields))
    assert [row[0] for row in guids.collect()] == [asked, asked]


def test_the_columns_of_a_table_are_of_the_types_of_the_keys(spark: SparkSession) -> None:
    """A cast would name others: a day in the zone of the session, a number without its decimals."""
    at = pd.Timestamp("2024-01-02")
    for kind, values in (
        (T.DateType(), [at]),
        (T.IntegerType(), [7.5]),
        (T.IntegerType(), ["7"]),
        (T.DecimalType(10, 2), pd.array([Decimal("7.555")])),
    ):
        ledger, fields = about(kind)
        with pytest.raises(InvalidArgument, match=r"table whose column k\.0 has values of the type "):
            table_guids(pd.DataFrame({"k.0": values}), spark, ledger, fields)
    ledger, fields = about(T.IntegerType())
    made_floats = pd.DataFrame({"k.0": [7.0, None]})
    assert table_guids(made_floats, spark, ledger, fields).first() == (
        key_guid({"k.0": 7}, NO_SESSION, ledger, fields),
    )
