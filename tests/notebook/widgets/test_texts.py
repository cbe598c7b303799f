"""Instants among values that are texts, on the clock of a zone."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.notebook.widgets.panel import show_in_zone

NEW_YORK = ZoneInfo("America/New_York")
FIELDS = T.StructType().add("due", T.TimestampType()).add("name", T.StringType())
ROWS = [
    ("due", "2013-02-08 12:00:00", None),
    ("due", "2013-07-08 12:00:05.25", "2013-02-09 02:30:00"),
    ("due", "2024-11-03 05:30:00", "2024-11-03 06:30:00"),
    ("due", "2024-11-03 04:59:00", "2024-11-03 07:00:00"),
    ("due", "2024-03-10 06:59:00", "2024-03-10 07:00:00"),
    ("name", "2013-02-08 12:00:00", None),
    ("due", "+20013-02-08 12:00:00", "no instant"),
]


class _Nameless(tzinfo):
    """A zone of a program's own, which Spark cannot know."""


def test_instants_are_on_the_clock_of_the_zone_and_nothing_else_is(spark: SparkSession) -> None:
    """New York is five hours behind in winter and four in summer; 01:30 on 3 November 2024 happens twice."""
    zones = [
        UTC,
        NEW_YORK,
        timezone(timedelta(hours=5, minutes=30)),
        timezone(timedelta(hours=-3)),
        _Nameless(),
    ]
    before = spark.conf.get("spark.sql.session.timeZone")
    frame = spark.createDataFrame(
        [(place, *row) for place, row in enumerate(ROWS)], "n int, field string, a string, b string"
    )
    told = None
    for number, zone in enumerate(zones):
        one = show_in_zone(zone, frame, FIELDS, "a", "b").withColumn("zone", F.lit(number))
        told = one if told is None else told.unionByName(one)
    assert told is not None
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")  # it does not matter
    try:
        rows = told.orderBy("zone", "n").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    found = [[(row["a"], row["b"]) for row in rows if row["zone"] == number] for number in range(len(zones))]
    unchanged = [("2013-02-08 12:00:00", None)]
    assert found[0] == [
        ("2013-02-08 12:00", None),
        ("2013-07-08 12:00:05.25", "2013-02-09 02:30"),
        ("2024-11-03 05:30", "2024-11-03 06:30"),
        ("2024-11-03 04:59", "2024-11-03 07:00"),
        ("2024-03-10 06:59", "2024-03-10 07:00"),
        *unchanged,
        ("+20013-02-08 12:00", "no instant"),
    ]
    assert found[1] == [
        ("2013-02-08 07:00", None),
        ("2013-07-08 08:00:05.25", "2013-02-08 21:30"),
        ("2024-11-03 01:30-04:00", "2024-11-03 01:30-05:00"),
        ("2024-11-03 00:59", "2024-11-03 02:00"),
        ("2024-03-10 01:59", "2024-03-10 03:00"),
        *unchanged,
        ("+20013-02-08 07:00", "no instant"),
    ]
    assert found[2][:2] == [("2013-02-08 17:30", None), ("2013-07-08 17:30:05.25", "2013-02-09 08:00")]
    assert found[3][0] == ("2013-02-08 09:00", None)
    assert found[4][0] == ("2013-02-08 12:00 UTC", None)
    assert found[4][5:] == [*unchanged, ("+20013-02-08 12:00 UTC", "no instant")]


def test_a_frame_without_instants_is_left_alone(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("name", "2013-02-08 12:00:00")], "field string, a string")
    assert show_in_zone(NEW_YORK, frame, T.StructType().add("name", T.StringType()), "a") is frame
