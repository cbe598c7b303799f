"""
Change Delta tables with Spark's own connector.  Nothing of cdckit is in here.

    python write_with_delta.py changes.json jars

`changes.json` is a list of `path` and `statements`, in which `{table}` stands for the table; the statement
NEW COLUMN is ours: not every PySpark has the class that ALTER TABLE of its Delta connector needs.  `jars` are
separated by commas.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from delta_session import delta_session
from pyspark.sql import functions as F


def main(changes: Path, jars: str) -> None:
    spark = delta_session(jars)
    for change in json.loads(changes.read_text()):
        for statement in change["statements"]:
            if statement == "NEW COLUMN":
                rows = spark.read.format("delta").load(change["path"]).limit(0)
                rows = rows.withColumn("more", F.lit("").cast("string")).write.format("delta").mode("append")
                rows.option("mergeSchema", "true").save(change["path"])
                continue
            spark.sql(statement.format(table=f"delta.`{change['path']}`")).collect()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
