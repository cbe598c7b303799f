"""A Spark with its own Delta connector, for programs beside the tests.  Nothing of cdckit is in here."""

from __future__ import annotations

from pyspark.sql import SparkSession


def delta_session(jars: str, warehouse: str | None = None) -> SparkSession:
    """
    A session with these jars, which are separated by commas.

    Args:
        jars: As `jars.jars(fitting(DELTA))` finds them.
        warehouse: Where tables of the catalogue lie, for who makes some.
    """
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "localhost")
        .config("spark.ui.enabled", "false")
    )
    if warehouse is not None:
        builder = builder.config("spark.sql.warehouse.dir", warehouse)
    return builder.getOrCreate()
