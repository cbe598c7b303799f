"""
Read Delta tables with Spark's own connector, and write what it saw as Parquet.  Nothing of cdckit is in here.

    python read_with_delta.py tables.json jars

`tables.json` is a list of `path`, `version` and `out`; `jars` are separated by commas.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(tables: Path, jars: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "localhost")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    for table in json.loads(tables.read_text()):
        seen = spark.read.format("delta").option("versionAsOf", table["version"]).load(table["path"])
        seen.coalesce(1).write.parquet(table["out"])
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
