"""Times as texts of databases write them, and the digits of them that an instant does not keep."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.tables import table_rows
from cdckit.tables.times import as_instant

# What a text of ISO 8601 says in UTC, by hand; None for what is none.
INSTANTS = {
    "2024-01-01 10:00:00+00": "2024-01-01 10:00:00",
    "2024-01-01T12:00:00+02": "2024-01-01 10:00:00",
    "2024-01-01 07:00:00.5-03": "2024-01-01 10:00:00.500000",
    "2024-01-01 12:30:00+0230": "2024-01-01 10:00:00",
    "2024-01-01T12:30:00+02:30": "2024-01-01 10:00:00",
    "2024-01-01T10:00+00": "2024-01-01 10:00:00",
    "20240101T100000Z": "2024-01-01 10:00:00",
    "20240101T1000Z": "2024-01-01 10:00:00",
    "20240101T100000": "2024-01-01 10:00:00",
    "20240101T120000,25+0200": "2024-01-01 10:00:00.250000",
    "2024-01-01T10:00:00,123456789Z": "2024-01-01 10:00:00.123456",
    "2024-01-01T10:00:00.123456789012": "2024-01-01 10:00:00.123456",
    "2024-02-28T24:00:00": "2024-02-29 00:00:00",
    "2024-12-31 24:00+01": "2024-12-31 23:00:00",
    "2024-12-31T24:00:00Z": "2025-01-01 00:00:00",
    "2024-12-31T24:00:00+02:00": "2024-12-31 22:00:00",
    "2024-12-31T24:00:00.000Z": "2025-01-01 00:00:00",
    "2024-12-31T24:00:00.001Z": None,
    "20241231T240000Z": "2025-01-01 00:00:00",
    "1969-12-31T23:59:59.1234567Z": "1969-12-31 23:59:59.123456",
    "2024-01-01": "2024-01-01 00:00:00",
    "2024-01-01T24:00:01": None,
    "2024-01-01T25:00:00": None,
    "2024-01-01 10:00:00+2": None,
    "2024-01-01 10:00:00+25": None,
    "20240101": None,
    "20240101T1Z": None,
    "2024-01-01T10:00:00,Z": None,
    "2024-13-01T10:00:00Z": None,
    "infinity": None,
    "-infinity": None,
}


def test_iso_8601_is_read_as_databases_write_it(spark: SparkSession) -> None:
    """PostgreSQL and DuckDB write offsets of hours; the standard has commas and hour 24."""
    rows = spark.createDataFrame([(text,) for text in INSTANTS], "text string")
    instant = as_instant(F.col("text"), T.StringType())
    assert instant is not None
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # a day of 25 hours is 24 of UTC
    try:
        found = dict(rows.select("text", F.unix_micros(instant)).collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    micros = {
        text: None if said is None else pd.Timestamp(said, tz="UTC").value // 1000
        for text, said in INSTANTS.items()
    }
    assert found == micros


NANOSECONDS = pa.array([1704067200123456700, 1704067200123456100], pa.timestamp("ns"))
TEXTS = ["2024-01-01T00:00:00.1234567", "2024-01-01T00:00:00.1234561"]
COMMAS = ["20240101T000000,1234567Z", "2024-01-01 02:00:00.1234561+02"]


def test_digits_below_a_microsecond_count_in_the_order(spark: SparkSession) -> None:
    """As `datetime2(7)`, pandas and Arrow have them: .1234567 is after .1234561, whatever row it is in."""
    columns: dict[str, Any] = {"id": [1, 1], "v": ["new", "old"]}
    texts = pd.DataFrame({**columns, "at": TEXTS})
    tables: dict[str, Any] = {
        "texts": texts,
        "other forms": pd.DataFrame({**columns, "at": COMMAS}),
        "pandas": pd.DataFrame({**columns, "at": NANOSECONDS.to_pandas()}),
        "arrow": pa.table({**columns, "at": NANOSECONDS}),
        "spark": spark.createDataFrame(texts),
    }
    calls: dict[str, Any] = {name: {name: "at"} for name in ("sequence_by", "effective", "valid_from")}
    calls["both"] = {"sequence_by": "at", "effective": "at"}
    # Every argument reads every sort of digits: those in texts, and those that stand beside an instant.
    named = [(name, call) for name in ("texts", "arrow") for call in calls]
    named += [("other forms", "sequence_by"), ("pandas", "sequence_by"), ("spark", "effective")]
    ordered = [
        table_rows(tables[name], keys=["id"], column_list=["v"], source=f"{name} by {call}", **calls[call])
        .where("error_code IS NULL")
        .select("source", "data.v", "effective_timestamp", "sequence", "arrival.offset")
        for name, call in named
    ]
    rows = reduce(DataFrame.union, ordered).orderBy("source", *["effective_timestamp", "sequence", "offset"])
    instant = datetime(2024, 1, 1, 0, 0, 0, 123456)
    assert [tuple(row)[:3] for row in rows.collect()] == [
        (source, value, instant)
        for source in sorted(f"{name} by {call}" for name, call in named)
        for value in ("old", "new")
    ]


def test_of_several_parts_the_digits_of_a_time_count_before_the_next_part(spark: SparkSession) -> None:
    rows = pd.DataFrame(
        {
            "id": [1, 1, 1],
            "v": ["last", "first", "second"],
            "at": [TEXTS[0], TEXTS[1], TEXTS[1]],
            "n": [1, 8, 9],
        }
    )
    for at in (rows["at"], pd.to_datetime(rows["at"])):
        changes = table_rows(rows.assign(at=at), keys=["id"], sequence_by=["at", "n"])
        assert [row[0] for row in changes.orderBy("sequence").select("data.v").collect()] == [
            "first",
            "second",
            "last",
        ]


def test_an_end_of_infinity_is_open(spark: SparkSession) -> None:
    rows = pd.DataFrame(
        [
            (1, "2024-01-01", "infinity"),
            (2, "2024-01-01", " Infinity"),
            (3, "2024-01-01", "2024-02-01 00:00:00+00"),
        ],
        columns=["id", "since", "until"],
    )
    changes = table_rows(rows, keys=["id"], valid_from="since", valid_to="until")
    assert changes.orderBy("data.id").select("effective_until").collect() == [
        (None,),
        (None,),
        (datetime(2024, 2, 1),),
    ]
