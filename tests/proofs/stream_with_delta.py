"""
Follow a Delta table as a stream of Spark's own connector, until told to end.  Nothing of cdckit is in here.

    python stream_with_delta.py table out stop jars

What comes is written below `out` as Parquet.  Once there is a file `stop`, it ends with what is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from delta_session import delta_session


def main(table: str, out: Path, stop: Path, jars: str) -> None:
    spark = delta_session(jars)
    rows = spark.readStream.format("delta").option("maxFilesPerTrigger", "7").load(table)
    writing = rows.writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
    query = writing.start(str(out / "rows"))
    query.processAllAvailable()
    print("ready", flush=True)
    while not stop.exists() and query.isActive:
        time.sleep(0.1)
    query.processAllAvailable()
    print("batches", query.lastProgress["batchId"], flush=True)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
