"""
Read Delta tables with Spark's own connector, and write what it saw as Parquet.  Nothing of cdckit is in here.

    python read_with_delta.py tables.json jars

`tables.json` is a list of `path`, `version` and `out`; `jars` are separated by commas.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from delta_session import delta_session


def main(tables: Path, jars: str) -> None:
    spark = delta_session(jars)
    for table in json.loads(tables.read_text()):
        seen = spark.read.format("delta").option("versionAsOf", table["version"]).load(table["path"])
        seen.coalesce(1).write.parquet(table["out"])
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
