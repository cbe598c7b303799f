"""The usual MERGE for type 2: a change closes the open version, and a copy of it opens the next one."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from taken import each_day

MERGE = """
MERGE INTO delta.`{place}` AS versions USING staged
ON versions.number = staged.merge_key AND versions.valid_to IS NULL
WHEN MATCHED THEN UPDATE SET valid_to = staged.changed_at
WHEN NOT MATCHED AND staged.merge_key IS NULL THEN
INSERT (number, gate, status, valid_from) VALUES (staged.number, gate, status, changed_at)
"""


def main(days: Path, work: Path, many: int) -> None:
    """Take the days."""
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "localhost")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.jars.packages", "io.delta:delta-spark_4.1_2.13:4.4.0")
        .getOrCreate()
    )
    place = str(work / "versions")
    columns = "number long, gate string, status string, valid_from timestamp, valid_to timestamp"
    spark.createDataFrame([], columns).write.format("delta").save(place)

    def take(day: int) -> None:
        rows = spark.read.parquet(str(days / f"changes_{day}.parquet"))
        # MERGE takes one row for each key: the statement goes over the changes of a key one after the other.
        order = Window.partitionBy("number").orderBy("changed_at")
        ranked = rows.withColumn("turn", F.row_number().over(order)).cache()
        for turn in range(1, ranked.agg(F.max("turn")).first()[0] + 1):
            merge_one(ranked.where(F.col("turn") == turn))
        ranked.unpersist()

    def merge_one(changes: DataFrame) -> None:
        opened = spark.read.format("delta").load(place).where("valid_to IS NULL")
        known = changes.join(opened.select("number", "valid_from"), "number", "left")
        # What is older than the open version is left out: this statement has no place for it.
        newer = known.where("valid_from IS NULL OR changed_at > valid_from")
        copies = newer.where("NOT deleted").withColumn("merge_key", F.lit(None).cast("long"))
        newer.withColumn("merge_key", F.col("number")).unionByName(copies).createOrReplaceTempView("staged")
        spark.sql(MERGE.format(place=place))

    each_day(take, work, many)
    spark.read.format("delta").load(place).toPandas().to_parquet(work / "answer.parquet")


main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
