"""`with_table` and `tables_changes`: many tables of one feed, which is read once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import rejects, replicate
from cdckit.errors import MissingColumns, WrongColumnType
from support.jobs import jobs_of
from support.replicate_messages import (
    NO_TIME,
    Record,
    Version,
    json_envelope,
    numbered,
    record,
    to_dataframe,
)
from support.replicate_readings import read, settled

TEXT = ["null", "string"]
TABLES = [
    Version({"id": "int", f"x{n}": TEXT}, table=f"T{n}", server="db2" if n == 3 else "db1") for n in range(4)
]
SHARED = [
    Version({"id": "int", "shared": TEXT}, table="S"),
    Version({"id": "int", "shared": TEXT}, table="S"),
]
SHARED[1] = replace(SHARED[1], server="db2")
NO_KEY = Version({"a": ["null", "int"]}, keys=(), table="LOOSE")
UNKNOWN = Version({"id": "int", "y": TEXT}, table="UNKNOWN")


def feed() -> list[Record]:
    values = [version.md() for version in (*TABLES, *SHARED, NO_KEY)]
    for count in range(3):
        values += [version.dt("INSERT", {"id": count, f"x{n}": "v"}) for n, version in enumerate(TABLES)]
    values += [
        TABLES[0].dt("REFRESH", {"id": 9, "x0": None}, **NO_TIME),
        NO_KEY.dt("INSERT", {"a": 1}),
        SHARED[0].dt("INSERT", {"id": 1, "shared": "?"}),
        UNKNOWN.dt("INSERT", {"id": 1, "y": "?"}),
        TABLES[0].dt("INSERT", {"id": 1, "x0": "v"})[:-3],
        json_envelope("DT", {"data": {"id": "1"}}),
        b"?",
    ]
    records = numbered(values)
    random.Random(9).shuffle(records)
    return records


@pytest.mark.usefixtures("whole_plans")
def test_each_record_says_whose_it_is_and_each_table_reads_its_own_part(
    spark: SparkSession, tmp_path: Path
) -> None:
    reading = read(spark, feed())
    sorted_out = replicate.with_table(reading.records, reading.zone)
    sorted_out.write.partitionBy("server", "task", "schema", "table").parquet(str(tmp_path / "parts"))
    saved = spark.read.schema(sorted_out.schema).parquet(str(tmp_path / "parts"))
    counted = Counter((row["server"], row["table"]) for row in saved.select("server", "table").collect())
    assert counted.total() == len(feed())
    assert counted == {
        ("db1", "T0"): 4,
        ("db1", "T1"): 3,
        ("db1", "T2"): 3,
        ("db2", "T3"): 3,
        ("db1", "LOOSE"): 1,
        (None, None): 12,
    }
    every = replicate.tables_changes(saved, reading.zone)
    assert [(name.server, name.task, name.schema, name.table) for name in every] == [
        ("db1", "shop_task", "SHOP", "T0"),
        ("db1", "shop_task", "SHOP", "T1"),
        ("db1", "shop_task", "SHOP", "T2"),
        ("db2", "shop_task", "SHOP", "T3"),
    ]
    no_envelope = {row["offset"] for row in rejects(replicate.decode(reading.records)).collect()}
    for name, changes in every.items():
        alone = replicate.table_changes(reading.records, server=name.server, task=name.task, table=name.table)
        # What holds no envelope is of no table.
        of_table = alone.where(~F.col("arrival.offset").isin(*no_envelope))
        assert sorted(map(repr, changes.collect())) == sorted(map(repr, of_table.collect()))
    plan = every[replicate.TableName("db1", "shop_task", "SHOP", "T1")]._jdf.queryExecution().toString()
    assert "PartitionFilters: [isnotnull(server" in plan


def test_many_tables_are_a_matter_of_one_collect(spark: SparkSession) -> None:
    """Building what reads them runs no job for a table."""
    versions = [Version({"id": "int", f"c{n}": TEXT}, table=f"T{n:04}") for n in range(60)]
    reading = read(spark, numbered([version.md() for version in versions]))
    routed = replicate.with_table(reading.records, reading.zone)
    spark.sparkContext.setJobGroup("tables", "built")
    every = replicate.tables_changes(routed, settled(reading.zone))
    jobs = jobs_of(spark, "tables")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert len(every) == 60
    assert len(jobs) < 5


def test_names_that_were_read_back_as_numbers_are_refused(spark: SparkSession) -> None:
    """Spark reads the folder `table=007` as the number 7, which no table is called."""
    reading = read(spark, numbered([TABLES[0].md()]))
    routed = replicate.with_table(reading.records, reading.zone).withColumn("table", F.lit(7))
    with pytest.raises(WrongColumnType, match="needs the column table as string; it is int"):
        replicate.tables_changes(routed, reading.zone)


def test_what_is_no_zone_is_refused(spark: SparkSession) -> None:
    records = to_dataframe(spark, [record(b"?", 0)])
    for function in (replicate.with_table, replicate.tables_changes):
        with pytest.raises(MissingColumns, match=r"needs the columns schema_id, server"):
            function(records, records)
