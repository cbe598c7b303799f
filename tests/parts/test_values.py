"""Values as text and in a comparable form, whatever the zone of the session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.parts.instants import microseconds
from cdckit.parts.values import as_text, comparable, time_between


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[SparkSession]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("timestamp'2024-11-03 05:30:00Z'", "2024-11-03 05:30:00"),
        ("timestamp'2024-11-03 06:30:00.000001Z'", "2024-11-03 06:30:00.000001"),
        ("timestamp'1500-01-01 00:00:00Z'", "1500-01-01 00:00:00"),
        ("timestamp'9999-12-31 23:59:59.999999Z'", "9999-12-31 23:59:59.999999"),
        ("timestamp_ntz'2024-03-10 02:30:00'", "2024-03-10 02:30:00"),
        ("named_struct('t', timestamp'2024-11-03 06:30:00.000001Z')", '{"t":"2024-11-03T06:30:00.000001Z"}'),
        ("X'00ff'", "00ff"),
        ("cast(null as timestamp)", None),
        ("'x'", "x"),
    ],
)
def test_instants_are_exact_and_in_utc(new_york: SparkSession, value: str, text: str | None) -> None:
    """Also in the hour that the session's zone has twice, or not at all."""
    row = new_york.range(1).select(F.expr(value).alias("value"))
    assert row.select(as_text(F.col("value"), row.schema["value"].dataType)).first()[0] == text


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("map(X'01', 1, X'02', 2)", "map(X'02', 2, X'01', 1)", True),
        (
            "map('a', timestamp'2024-01-01 00:00:00Z')",
            "map('a', timestamp'2024-01-01 00:00:00.000001Z')",
            False,
        ),
        ("map('a', map('b', 1, 'c', 2))", "map('a', map('c', 2, 'b', 1))", True),
        ("array(map('a', 1))", "array(map('a', 2))", False),
        ("named_struct('m', map('a', cast(null as int)))", "named_struct('m', map('a', 1))", False),
        ("map('a', double('NaN'))", "map('a', double('NaN'))", True),
        ("cast(null as map<string,int>)", "map('a', 1)", False),
        ("array(1, null)", "array(1, null)", True),
    ],
)
def test_maps_are_equal_if_their_entries_are(spark: SparkSession, one: str, other: str, same: bool) -> None:
    """Spark itself refuses to compare them."""
    rows = spark.range(1).select(F.expr(one).alias("a"), F.expr(other).alias("b"))
    a, b = (comparable(F.col(name), rows.schema[name].dataType) for name in "ab")
    assert rows.select(a.eqNullSafe(b)).first()[0] == same


def test_time_is_measured_between_instants(spark: SparkSession) -> None:
    """Not between what the clocks of the session's zone showed: Paris puts them forward at one o'clock."""
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        start, end = (
            F.timestamp_micros(F.lit(microseconds(datetime(2024, 3, 31, *clock, tzinfo=UTC))))
            for clock in ((0, 59), (1, 1, 0, 7))
        )
        [row] = spark.range(1).select(time_between(start, end), time_between(end, start)).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    waited = timedelta(minutes=2, microseconds=7)
    assert tuple(row) == (waited, -waited)
