"""Messages that wait, taken by a stream, beside a plain write of them; and messages that come one by one."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.debezium import COLUMNS, FIRST, event_records
from benchmarks.hub import ENTITIES, NOW, hub_document, hub_schema, message_files
from benchmarks.measure import PeakMemory, Result
from cdckit import Ledger, datahub, debezium, replicate
from cdckit.model.records import RECORD_SCHEMA

MESSAGES = 1_000_000
BATCHES = 10
"""In so many batches a backlog is taken."""
SECONDS = 600
"""For so long one message comes each second."""
ROOT = Path(__file__).parents[1]

Take = Callable[[DataFrame, int], None]


def results(spark: SparkSession, year: Path, work: Path) -> list[Result]:
    """A million messages: of Replicate to a feed, of Debezium to a ledger, of five records to a hub."""
    sources = {
        "feed": (_replicate_records(spark, year), _feed_taker),
        "debezium": (event_records(spark, work / f"events_{MESSAGES}", MESSAGES), _ledger_taker),
        "hub": (spark.read.parquet(str(message_files(spark, work, MESSAGES))), _hub_taker),
    }
    found = []
    for name, (records, taker) in sources.items():
        source, folder = _in_batches(records, work / f"backlog_{name}"), work / f"backlog_{name}_taken"
        plain, _, _ = _taken(spark, source, folder, _plain_taker)
        seconds, memory, rows = _taken(spark, source, folder, taker)
        ratio = round(seconds / plain, 2)
        print(f"  {name:<36}{seconds:8.1f} s, a plain write {plain:.1f} s", flush=True)
        line = f"backlog_{name}_over_plain_write"
        found.append(Result(line, ratio, 4.0, "lower", round(seconds, 2), memory, str(rows)))
    return found


TRICKLED = """
import json
from pathlib import Path
from benchmarks.backlog import trickle
from cdckit import session
spark = session(memory="2g", small=True)
print(json.dumps(trickle(spark, Path({folder!r}), {name!r})))
"""


def trickle_results(work: Path) -> list[Result]:
    """
    A message each second for ten minutes: how long until it can be asked, in the last minute and the first.

    A door that takes longer than a second for one takes all that have come meanwhile.  Each has a process of
    its own, with the session that is meant for some thousand rows.
    """
    found = []
    for name in ("debezium", "captured", "hub"):
        folder = work / f"trickle_{name}"
        shutil.rmtree(folder, ignore_errors=True)
        program = [sys.executable, "-c", TRICKLED.format(folder=str(folder.resolve()), name=name)]
        process = subprocess.run(program, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        waited = json.loads(process.stdout)
        minute = len(waited) * 60 // SECONDS
        first, last = statistics.median(waited[:minute]), statistics.median(waited[-minute:])
        print(f"  {name:<36}first minute {first:.2f} s, last minute {last:.2f} s", flush=True)
        line, ratio = f"trickle_{name}_last_minute_over_first", round(last / first, 2)
        found.append(Result(line, ratio, 1.2, "lower", round(last, 2), 0, str(len(waited))))
    return found


def trickle(spark: SparkSession, folder: Path, door: str) -> list[float]:
    """How long each message waited until it could be asked, from the second at which it was sent."""
    takers = {"debezium": _ledger_taker, "captured": _captured_taker, "hub": _hub_taker}
    take, document = takers[door](spark, folder), _message if door == "hub" else _event
    for warm in (-3, -2, -1):
        take(datahub.records(spark, [document(warm)], received_at=datetime.now(UTC)), -1)
    began, waited = time.perf_counter(), list[float]()
    batch = 0
    while len(waited) < SECONDS:
        ready = min(int(time.perf_counter() - began) + 1, SECONDS)
        if ready == len(waited):
            time.sleep(0.01)
            continue
        sent = range(len(waited), ready)
        take(datahub.records(spark, map(document, sent), received_at=datetime.now(UTC)), batch)
        waited += [time.perf_counter() - began - second for second in sent]
        batch += 1
    return waited


def _replicate_records(spark: SparkSession, year: Path) -> DataFrame:
    """All metadata of the year, and the first data of one task."""
    metadata, data = (
        spark.read.parquet(str(year / f"{name}.parquet")) for name in ("metadata", "operations")
    )
    first = data.orderBy("offset").limit(MESSAGES)
    # Before all data, wherever their own topic had them.
    return metadata.withColumn("offset", F.col("offset") - MESSAGES).union(first)


def _in_batches(records: DataFrame, folder: Path) -> Path:
    """The records in as many files as there will be batches, in their order; made once and then kept."""
    if not (folder / "_SUCCESS").exists():
        records.repartitionByRange(BATCHES, "offset").write.parquet(str(folder))
    return folder


def _taken(
    spark: SparkSession, source: Path, folder: Path, taker: Callable[[SparkSession, Path], Take]
) -> tuple[float, int, int]:
    """How long a stream takes for all records, at how many MB, and how many rows it was given."""
    shutil.rmtree(folder, ignore_errors=True)
    take, rows = taker(spark, folder / "tables"), spark.read.parquet(str(source)).count()
    stream = spark.readStream.schema(RECORD_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = stream.writeStream.foreachBatch(take)
    with PeakMemory() as peak:
        began = time.perf_counter()
        begun = writer.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
        begun.start().awaitTermination()
        return time.perf_counter() - began, peak.megabytes, rows


def _plain_taker(spark: SparkSession, folder: Path) -> Take:
    return lambda batch, number: batch.write.mode("append").parquet(str(folder))


def _feed_taker(spark: SparkSession, folder: Path) -> Take:
    feed = replicate.Feed(spark, folder)

    def take(batch: DataFrame, number: int) -> None:
        feed.receive(batch)

    return take


def _ledger_taker(spark: SparkSession, folder: Path) -> Take:
    ledger = Ledger(spark, folder, entity="flight", keys=["id"])

    def take(batch: DataFrame, number: int) -> None:
        decoded = debezium.decode(batch)
        ledger.apply(debezium.changes(decoded, "flights", keys=["id"], columns=COLUMNS))

    return take


def _captured_taker(spark: SparkSession, folder: Path) -> Take:
    feed = debezium.Feed(spark, folder, tables={"flights": ["id"]})

    def take(batch: DataFrame, number: int) -> None:
        feed.receive(batch)

    return take


def _hub_taker(spark: SparkSession, folder: Path) -> Take:
    hub = datahub.Hub(spark, hub_schema(), folder)

    def take(batch: DataFrame, number: int) -> None:
        hub.receive(batch)
        hub.run(now=NOW)

    return take


def _message(number: int) -> dict[str, Any]:
    # Each link leads to what came before it, so that nothing waits.
    turn, place = divmod(number, len(ENTITIES))
    return hub_document([*reversed(ENTITIES)][place], turn)


def _event(number: int) -> dict[str, Any]:
    at = FIRST + number * 1_000
    source = {"connector": "postgresql", "name": "shop", "ts_ms": at, "snapshot": "false", "db": "shop"}
    place = {"schema": "public", "table": "flights", "txId": number, "lsn": number + 1_000}
    row = {"id": number % 100, "carrier": "UA", "flight": number, "delay": float(number)}
    return {"before": None, "after": row, "source": source | place, "op": "c", "ts_ms": at}
