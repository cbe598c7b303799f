"""A declarative pipeline of Spark with an AUTO CDC flow of type 1, run once for each day."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
from taken import each_day

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
HOME = Path(pyspark.__file__).parent
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "localhost",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

COLUMNS = "number long, gate string, status string, changed_at timestamp, deleted boolean"


@dp.temporary_view
def feed():
    return SparkSession.active().readStream.schema(COLUMNS).parquet("{feed}")


dp.create_streaming_table("flights", format="delta")
dp.create_auto_cdc_flow(
    target="flights", source="feed", keys=["number"], sequence_by="changed_at", apply_as_deletes="deleted",
    except_column_list=["deleted"], stored_as_scd_type=1,
)
"""
SPEC = """
name: flights
storage: file://{storage}
libraries:
  - glob:
      include: transformations/**
"""


def add_delta(work: Path) -> None:
    """Delta's jars among Spark's own: a pipeline does not find those of `--packages`."""
    if any(HOME.glob("jars/*delta-spark*")):
        return
    (work / "nothing.py").write_text("")
    ivy = work / "ivy"
    fetch = [str(HOME / "bin" / "spark-submit"), "--conf", f"spark.jars.ivy={ivy}", "--packages", DELTA]
    subprocess.run([*fetch, str(work / "nothing.py")], check=True)
    # What Delta needs beside, as a JSON parser, Spark has in a version of its own.
    for jar in ivy.glob("jars/io.delta_*.jar"):
        shutil.copy(jar, HOME / "jars" / jar.name)


def main(days: Path, work: Path, many: int) -> None:
    """Take the days."""
    add_delta(work)
    feed = work / "feed"
    feed.mkdir()
    conf = work / "conf"
    conf.mkdir()
    # A pipeline takes the settings of its server from here, and not from its command.
    (conf / "spark-defaults.conf").write_text("\n".join(f"{name} {SETTINGS[name]}" for name in SETTINGS))
    (work / "transformations").mkdir()
    (work / "transformations" / "flights.py").write_text(PIPELINE.format(feed=feed))
    (work / "spark-pipeline.yml").write_text(SPEC.format(storage=work / "storage"))

    def take(day: int) -> None:
        shutil.copy(days / f"changes_{day}.parquet", feed)
        run = [str(HOME / "bin" / "spark-pipelines"), "run", "--spec", str(work / "spark-pipeline.yml")]
        # It asks the first Python of the path where Spark is.
        path = f"{sys.prefix}/bin:{os.environ['PATH']}"
        settings = {**os.environ, "PATH": path, "SPARK_CONF_DIR": str(conf)}
        subprocess.run(run, cwd=work, env=settings, check=True)

    each_day(take, work, many)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = spark.read.format("delta").load(str(work / "spark-warehouse" / "flights"))
    versions = rows.selectExpr(
        "number", "gate", "status", "changed_at AS valid_from", "CAST(NULL AS timestamp) AS valid_to"
    )
    versions.toPandas().to_parquet(work / "answer.parquet")


main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
