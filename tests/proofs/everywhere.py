"""
What must be the same wherever Spark runs: a merge, a ledger, a hub, a stream into a feed, and their outputs.

    python everywhere.py master python package folder

At `master`, a cluster whose workers run `python` and get cdckit as the file `package`, or a server of Spark
Connect, which needs neither.  What came of it is written to `folder/<name>.parquet`; the last line are the
interpreters that did the work, with the executor of each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, changes_from_snapshots, datahub, debezium, merge, replicate, union_changes
from cdckit.model.records import RECORD_SCHEMA
from cdckit.outputs import create_view, periodic_snapshots, scd_type_2
from cdckit.quality import check_all
from support.histories import Row, to_dataframe
from support.killed_programs import ENTITY, KEYS, hub_of, ledger_of
from support.ledger_programs import FIELDS, all_of, batches
from support.replicate_messages import life
from support.replicate_messages import to_dataframe as to_records

NOW = datetime(2024, 2, 1, tzinfo=UTC)
SEED = 11


def results(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """By name, the tables that came of it."""
    parts = batches(SEED, 80, most=4)
    whole = merge(to_dataframe(spark, all_of(parts), FIELDS), entity=ENTITY, keys=KEYS)

    ledger = ledger_of(spark, folder / "ledger")
    for number, part in enumerate(parts):
        ledger.apply(to_dataframe(spark, part, FIELDS).repartition(2), number)
    ledger.compact()

    hub = hub_of(spark, folder / "hub")
    for number in range(2):
        hub.receive(datahub.records(spark, _messages(number), received_at=NOW).repartition(2), number)
        hub.run(now=NOW)

    feed = replicate.Feed(spark, folder / "feed")
    _stream_into(feed, spark, folder)
    return {
        "merge": whole,
        "ledger": ledger.history(),
        "ledger-key": ledger.history(_born(all_of(parts))),
        "hub": hub.history("product"),
        "hub-messages": hub.messages().select("message_identifier", "status"),
        "hub-rejects": hub.rejects().select("record", "record_text", "error_code"),
        "feed": feed.table("ITEMS").history(),
        "feed-rejects": feed.rejects().select("offset", "error_code"),
        **outputs(ledger.history()),
        "checked": checked(ledger),
        "metadata": metadata(spark),
    }


def metadata(spark: SparkSession) -> DataFrame:
    """What columns say of themselves: which fields are texts as they were sent, which lists a call named."""
    event = {"op": "c", "ts_ms": 1, "source": {"table": "items"}, "after": {"id": 1, "day": 19800}}
    decoded = debezium.decode(datahub.records(spark, [event], received_at=NOW))
    kinds = {"id": "int64", "day": "untyped"}
    untyped = debezium.changes(decoded, "items", keys=["id"], columns=kinds)
    listed = changes_from_snapshots({NOW: spark.range(2)}, keys=["id"], source="nightly")
    columns = union_changes(untyped, listed).schema["data"], listed.schema["message_id"]
    told = [(each.name, json.dumps(each.metadata, sort_keys=True)) for each in columns]
    assert all(text != "{}" for _, text in told), told
    return spark.createDataFrame(told, "column string, metadata string")


def checked(ledger: Ledger) -> DataFrame:
    """What the suites say of a ledger, and of its history without the versions that have ended."""
    torn = ledger.history().where("valid_to_timestamp IS NULL AND NOT deleted_indicator")
    found = check_all(
        {"sound": ledger, "torn": {"log": (ledger.changes(), "changes"), "torn": (torn, "ledger")}}
    )
    rows = [(name, told.sentence.says, told.broken) for name, each in found.items() for told in each.results]
    shown = [(name, repr(told.examples), told.broken) for name, each in found.items() for told in each.broken]
    return ledger.store.snapshot().spark.createDataFrame(
        rows + shown, "suite string, says string, broken long"
    )


def outputs(history: DataFrame) -> dict[str, DataFrame]:
    """What others get of a history: a table of type 2, snapshots, and an answer in SQL."""
    create_view(history, "kept")
    question = "SELECT * FROM kept_between(TIMESTAMP '1960-01-01 00:00:00Z', NULL, deletes => true)"
    year = {"start": date(2023, 12, 30), "end": date(2024, 1, 4), "zone": "Asia/Tokyo"}
    return {
        "scd": scd_type_2(history, track_history_column_list=["a"], surrogate_key="row_key"),
        "snapshots": periodic_snapshots(history, **year),
        "sql": history.sparkSession.sql(question),
    }


def _born(changes: list[Row]) -> dict[str, object]:
    """The key of some entity that has versions."""
    one = next(each for each in changes if each["operation"] == "upsert" and each["data"]["k"] is not None)
    return {name: one["data"][name] for name in KEYS}


def _messages(number: int) -> list[dict[str, object]]:
    """Messages about nine products, one record of each without a key."""
    return [
        {
            "guid": f"m{number}-{place}",
            "entity": "product",
            "timestamp": f"2024-01-0{number + 1}T{place:02d}:00:00Z",
            "data": [{"number": (place + each) % 9, "name": f"{number}{place}"} for each in range(3)]
            + [{"name": "nobody"}],
        }
        for place in range(12)
    ]


def _stream_into(feed: replicate.Feed, spark: SparkSession, folder: Path) -> None:
    """Records that lie in five files, a batch each; the later metadata is in the last one."""
    records = life(SEED)
    records.append(records.pop(1))
    for number in range(5):
        some = records[number * 13 : number * 13 + 13]
        to_records(spark, some).write.mode("append").parquet(str(folder / "records"))
    stream = spark.readStream.schema(RECORD_SCHEMA).option("maxFilesPerTrigger", 1)
    writer = stream.parquet(str(folder / "records")).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.foreachBatch(feed.sink("files")).start()
    query.awaitTermination()


def interpreters(spark: SparkSession) -> list[list[str]]:
    """Each executor's folder, and the interpreter that works there."""

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            time.sleep(0.5)  # so long that one executor cannot take all tasks
            yield pa.record_batch({"folder": [os.getcwd()], "python": [sys.executable]})

    rows = spark.range(0, 16, 1, 8).mapInArrow(told, "folder string, python string").distinct().collect()
    return sorted([row["folder"], row["python"]] for row in rows)


def session_at(master: str, python: str, package: str) -> SparkSession:
    """A session on a cluster, or with a server of Spark Connect (sc://...)."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if master.startswith("sc:"):
        remote = SparkSession.builder.remote(master).getOrCreate()
        for name, value in settings.items():
            remote.conf.set(name, value)
        return remote
    settings |= {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "768m",
        "spark.cores.max": "4",
        "spark.ui.enabled": "false",
    }
    os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.addPyFile(package)
    return spark


def main(master: str, python: str, package: str, folder: Path) -> None:
    spark = session_at(master, python, package)
    for name, frame in results(spark, folder).items():
        pq.write_table(frame.toArrow(), folder / f"{name}.parquet")
    print(json.dumps(interpreters(spark)))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
