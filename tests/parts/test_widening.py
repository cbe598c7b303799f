"""The texts of numbers that no type of numbers holds together: the same in Spark and in its workers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.arrow_widening import common_type, number_texts, to_common_type
from cdckit.parts.widening import as_type, common_spark_type

# A type, and numbers of it with their texts: a whole number has the same one whatever type it is of.
TEXTS: list[tuple[T.DataType, list[tuple[Any, str | None]]]] = [
    (T.LongType(), [(10_000_000, "10000000"), (-7, "-7"), (None, None)]),
    (
        T.DoubleType(),
        [
            (1.0, "1"),
            (-0.0, "0"),
            (10_000_000.0, "10000000"),
            (-(2.0**62), "-4611686018427387904"),
            (1e20, "1.0E20"),
            (-1.5e300, "-1.5E300"),
            (0.5, "0.5"),
            (0.001, "0.001"),
            (0.00015, "1.5E-4"),
            (12345678.5, "1.23456785E7"),
            (float("nan"), "NaN"),
            (float("-inf"), "-Infinity"),
            (None, None),
        ],
    ),
    # A float is the double that it is: its own shortest text would be another one once it has become one.
    (
        T.FloatType(),
        [
            (1.0, "1"),
            (0.5, "0.5"),
            (16_777_216.0, "16777216"),
            (1.5 * 2**-20, "1.430511474609375E-6"),
            (0.10000000149011612, "0.10000000149011612"),
            (100_000_002_004_087_734_272.0, "1.0000000200408773E20"),
            (float("nan"), "NaN"),
        ],
    ),
    (
        T.DecimalType(20, 10),
        [
            (Decimal("1"), "1"),
            (Decimal("-1.50"), "-1.5"),
            (Decimal("100"), "100"),
            (Decimal("0"), "0"),
            (Decimal("0.0000001"), "0.0000001"),
            (None, None),
        ],
    ),
]
IDS = [kind.simpleString() for kind, _ in TEXTS]


@pytest.mark.parametrize(("kind", "numbers"), TEXTS, ids=IDS)
def test_the_workers_write_them_so(kind: T.DataType, numbers: list[tuple[Any, str | None]]) -> None:
    texts = number_texts(pa.array([number for number, _ in numbers], arrow_type(kind)))
    assert texts.to_pylist() == [text for _, text in numbers]


def test_columns_that_meet_in_any_order_become_one() -> None:
    """Four types at a time, each with a number of its own: type and values are the same for each order."""
    told: list[tuple[pa.DataType, Any]] = [
        (pa.int32(), 2**24 + 1),
        (pa.int64(), 2**53 + 1),
        (pa.float32(), 0.1),
        (pa.float32(), 1e20),
        (pa.float64(), 0.1),
        (pa.decimal128(5, 2), Decimal("1.50")),
        (pa.decimal128(38, 20), Decimal("1.5")),
        (pa.string(), "0.1"),
        (pa.date32(), date(2020, 1, 1)),
    ]
    for some in combinations(range(len(told)), 4):
        found = set()
        for order in permutations(some):
            common, columns = pa.null(), dict[int, pa.Array]()
            for place in order:
                kind, value = told[place]
                common = common_type(common, kind)
                columns[place] = pa.array([value], kind)
                columns = {at: to_common_type(column, common) for at, column in columns.items()}
            found.add(str((common, [columns[at].to_pylist() for at in some])))
        assert len(found) == 1, found


DATE, INSTANT = T.DateType(), T.TimestampType()


def test_workers_find_the_type_that_spark_finds() -> None:
    kinds = [
        T.IntegerType(),
        T.LongType(),
        T.DoubleType(),
        T.DecimalType(7, 2),
        T.StringType(),
        T.BooleanType(),
    ]
    for left, right in product([*kinds, DATE, INSTANT], repeat=2):
        found = common_type(arrow_type(left), arrow_type(right))
        assert found == arrow_type(common_spark_type(left, right) or T.StringType()), (left, right)


def test_a_date_is_its_midnight_in_utc_whatever_the_zone_of_the_session(spark: SparkSession) -> None:
    rows = spark.sql("SELECT date'2024-05-01' AS day, timestamp_ntz'2024-05-01 09:30:00' AS clock")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        instants = [
            as_type(F.col("day"), DATE, INSTANT, "day"),
            as_type(F.col("clock"), T.TimestampNTZType(), INSTANT, "clock"),
        ]
        assert rows.select(*(F.unix_micros(instant) for instant in instants)).collect() == [
            (1714521600_000000, 1714555800_000000)
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert to_common_type(pa.array([date(2024, 5, 1)]), pa.timestamp("us", "UTC")).to_pylist() == [
        datetime(2024, 5, 1, tzinfo=UTC)
    ]


def test_of_a_decimal_the_nearest_float_is_made() -> None:
    """As Spark and Python do; Arrow's own cast makes 19.990000000000002 of the first."""
    for text, kind in (("19.99", pa.float64()), ("1.13", pa.float64()), ("0.1", pa.float32())):
        [number] = to_common_type(pa.array([Decimal(text)], pa.decimal128(38, 20)), kind).to_pylist()
        assert number == (float(text) if kind == pa.float64() else np.float32(text))
    [number] = to_common_type(pa.array([Decimal("19.99")], pa.decimal128(10, 2)), pa.float64()).to_pylist()
    assert number == 19.99


def test_spark_writes_them_so(spark: SparkSession) -> None:
    """What was saved by one of the two meets what the other makes: one number must not become two."""
    for kind, numbers in TEXTS:
        frame = spark.createDataFrame([(number,) for number, _ in numbers], T.StructType().add("n", kind))
        rows = frame.select("n", as_type(F.col("n"), kind, T.StringType(), "n").alias("text")).collect()
        assert [row["text"] for row in rows] == [text for _, text in numbers]
