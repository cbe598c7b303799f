"""
Write every stream of a service to its topic, read it back, and let a second service live on one of them.

    python send_streams_to_kafka.py broker jars folder

Prints a line of JSON for each stream, and one for the second service.
"""

from __future__ import annotations

import json
import sys
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cdckit import samples, session, streams

PARTITIONS = 3


def read(spark: SparkSession, broker: str, stream: streams.Stream) -> DataFrame:
    options = {"kafka.bootstrap.servers": broker, "subscribe": stream.name, "includeHeaders": "true"}
    return spark.read.format("kafka").options(**options).load()


def send(service: streams.Service, broker: str, stream: streams.Stream) -> dict[str, object]:
    """Write one stream; how many messages there are, and what was read back otherwise than it was sent."""
    messages = service.messages(stream)
    place = [name for name in ("timestamp", "offset", "part") if name in messages.columns]
    ordered = messages.coalesce(1).sortWithinPartitions(*place) if place else messages
    sent = streams.to_records(ordered, stream, partitions=PARTITIONS).drop("timestamp")
    sent.write.format("kafka").option("kafka.bootstrap.servers", broker).save()
    came = read(messages.sparkSession, broker, stream)
    again = streams.decode(came, stream).where("error_code is not null")
    columns = ["topic", "partition", "key", "value"]
    found, meant = came.select(columns), sent.select(columns)
    return {
        "stream": stream.name,
        "messages": found.count(),
        "otherwise": found.exceptAll(meant).count() + meant.exceptAll(found).count(),
        "unreadable": again.count(),
        "partitions": found.select("partition").distinct().count(),
    }


def live(spark: SparkSession, broker: str, folder: Path) -> streams.Service:
    """A service that lives on entity-patches, by a structured stream, a few messages at a time."""
    service = streams.Service(spark, folder / "live", databases=["my-db"])
    options = {
        "kafka.bootstrap.servers": broker,
        "subscribe": streams.ENTITY_PATCHES.name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
        "includeHeaders": "true",
    }
    came = spark.readStream.format("kafka").options(**options).load()
    sink = service.sink("kafka")
    writer = came.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).foreachBatch(lambda rows, n: print(sink(rows, n))).start()
    query.awaitTermination()
    return service


def main(broker: str, jars: str, folder: Path) -> None:
    spark = session(
        app_name="send", memory="1g", config={"spark.jars": jars, "spark.sql.shuffle.partitions": "2"}
    )
    service = streams.Service(spark, folder / "service", databases=["my-db"])
    sample = samples("debezium_streams")
    names = ("entity-batches", "schema-patches", "connections")
    records = [spark.read.parquet(f"{sample}/{name}.parquet") for name in names]
    service.receive(reduce(DataFrame.unionByName, records), "sample")
    for stream in streams.STREAMS.values():
        print(json.dumps(send(service, broker, stream)), flush=True)
    second = live(spark, broker, folder)
    columns = ["collection", "zone", "entity", "document", "revision"]
    here, there = service.entities().select(columns), second.entities().select(columns)
    otherwise = here.exceptAll(there).count() + there.exceptAll(here).count()
    batches = second.store.commits().where("batch is not null").count()
    told = {"entities": there.count(), "otherwise": otherwise, "batches": batches}
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
