"""
Write messages to topics, a few at a time, while two streams read them: into a feed, and into a hub.

    python stream_from_kafka.py broker jars folder

`folder` has `feed.parquet` and `hub.parquet`, records with a `step`; the feed is made in `folder/feed`, the
hub in `folder/store`.  Whoever cannot go on without the broker begins again: a step is written again, a
stream goes on from its checkpoint.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from cdckit import replicate, session
from support.killed_programs import hub_of

NOW = datetime(2024, 2, 1, tzinfo=UTC)
BATCH = 12
"""How many records a batch of a stream has at most."""


class Stream:
    """A stream from some topics that is begun again when it fails, until it has read all that is there."""

    def __init__(
        self,
        spark: SparkSession,
        broker: str,
        topics: str,
        sink: Callable[[DataFrame, int], object],
        folder: Path,
    ) -> None:
        self._spark, self._sink, self._checkpoint = spark, sink, folder / "checkpoints" / topics
        self._options = {
            "kafka.bootstrap.servers": broker,
            "subscribe": topics,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(BATCH),
            "includeHeaders": "true",
            # A broker that is away for some seconds is noticed.
            "kafka.default.api.timeout.ms": "5000",
            "kafka.request.timeout.ms": "4000",
            "kafkaConsumer.pollTimeoutMs": "4000",
            "fetchOffset.numRetries": "1",
        }
        self.began, self.batches, self._all_is_written = 0, 0, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        """Wait until everything that is there has been read."""
        self._all_is_written.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            query = self._query()
            self.began += 1
            try:
                while not self._all_is_written.wait(0.2) and query.isActive:
                    pass
                query.processAllAvailable()
                if self._all_is_written.is_set():
                    return
            except Exception as error:
                print("a stream failed:", str(error).splitlines()[0][:120], flush=True)
                time.sleep(1)
            finally:
                query.stop()

    def _query(self) -> StreamingQuery:
        read = self._spark.readStream.format("kafka").options(**self._options).load()
        writer = read.writeStream.option("checkpointLocation", str(self._checkpoint))
        return writer.foreachBatch(self._take).start()

    def _take(self, records: DataFrame, number: int) -> None:
        self._sink(records, number)
        self.batches += 1


def write(rows: DataFrame, broker: str) -> None:
    """Write a step's records to their topics; again, if it is not known whether they were taken."""
    options = {
        "kafka.bootstrap.servers": broker,
        "kafka.delivery.timeout.ms": "6000",
        "kafka.request.timeout.ms": "4000",
        "kafka.max.block.ms": "6000",
    }
    for _ in range(20):
        try:
            rows.write.format("kafka").options(**options).save()
            return
        except Exception as error:
            print("a step is written again:", str(error).splitlines()[0][:120], flush=True)
            time.sleep(1)
    raise AssertionError("the broker did not come back")


def main(broker: str, jars: str, folder: Path) -> None:
    spark = session(
        app_name="stream", memory="1g", config={"spark.jars": jars, "spark.sql.shuffle.partitions": "2"}
    )
    feed, hub = replicate.Feed(spark, folder / "feed"), hub_of(spark, folder)
    steps = [spark.read.parquet(str(folder / f"{name}.parquet")).cache() for name in ("feed", "hub")]
    last = max(row[0] for rows in steps for row in rows.agg({"step": "max"}).collect())
    streams: list[Stream] = []

    def received(records: DataFrame, number: int) -> None:
        hub.receive(records, batch=number)
        hub.run(now=NOW)

    for step in range(last + 1):
        for rows in steps:
            write(rows.where(f"step = {step}").select("topic", "key", "value", "headers"), broker)
        if not streams:  # Topics are there once they have been written to.
            streams = [
                Stream(spark, broker, "items,metadata", feed.sink("kafka"), folder),
                Stream(spark, broker, "products", received, folder),
            ]
        print("step", step, flush=True)
    for stream in streams:
        stream.finish()
    topics = spark.read.format("kafka").option("kafka.bootstrap.servers", broker)
    count = topics.option("subscribe", "items,metadata,products").load().count()
    print("batches", *(stream.batches for stream in streams))
    print("begun", *(stream.began for stream in streams))
    print("records", count, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
