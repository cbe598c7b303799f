"""
The programs that `killing.py` kills: each takes batches one after the other, as a stream would.

    python killed_programs.py ledger folder

A program that is begun again goes on with the last batch that it had taken, whether or not it knew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from cdckit import Ledger, datahub, rdss, replicate, session, streams
from cdckit.ledger import Receipt, intake
from cdckit.outputs import scd_type_2
from cdckit.shell import states_and_outcomes
from cdckit.store import Store

ENTITY, KEYS = "e", ["h", "k"]
NOW = datetime(2024, 2, 1, tzinfo=UTC)


def ledger_of(spark: SparkSession, folder: Path) -> Ledger:
    return Ledger(spark, folder / "store", entity=ENTITY, keys=KEYS)


def people_of(spark: SparkSession, folder: Path) -> Ledger:
    return Ledger(spark, folder / "store", entity="person", keys=KEYS, buckets=3)


def feed_of(spark: SparkSession, folder: Path) -> replicate.Feed:
    return replicate.Feed(spark, folder / "store")


def exchange_of(spark: SparkSession, folder: Path) -> rdss.Exchange:
    return rdss.Exchange(spark, folder / "store", types=["ResearchObject"])


def service_of(spark: SparkSession, folder: Path) -> streams.Service:
    return streams.Service(spark, folder / "store")


def hub_of(spark: SparkSession, folder: Path) -> datahub.Hub:
    product = {
        "reference": "product",
        "fields": [{"reference": "number", "type": "integer", "key": True}, {"reference": "name"}],
    }
    return datahub.Hub(
        spark, datahub.schema({"reference": "*", "mappings": {"product": [product]}}), folder / "store"
    )


def main(work: str, folder: Path) -> None:
    # What is kept grows while it is written.
    intake.BUCKET_BYTES, intake._PART_BYTES, states_and_outcomes.SPREAD_BYTES = 20_000, 0, 20_000
    spark = session(app_name="killed", memory="1g", config={"spark.sql.shuffle.partitions": "2"})
    programs = {
        **{"ledger": _ledger, "feed": _feed, "hub": _hub, "exchange": _exchange, "service": _service},
        **{"erasing": _erasing, "erasing_exchange": _erasing_exchange},
        **{"erasing_service": _erasing_service, "erasing_hub": _erasing_hub},
    }
    take = programs[work](spark, folder)
    count = len(list((folder / "batches").iterdir()))
    print("ready", flush=True)
    known = [n for n in range(count) if Store(spark, folder / "store").batch(_id(work, n)) is not None]
    for number in range(max(known, default=0), count):
        take(number)
        print(number, flush=True)


def _id(work: str, number: int) -> str:
    return f"batch {number}"


def _ledger(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    ledger = ledger_of(spark, folder)

    def take(number: int) -> None:
        ledger.apply(spark.read.parquet(str(folder / "batches" / str(number))), _id("ledger", number))

    return take


def _erasing(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    ledger = people_of(spark, folder)

    def take(number: int) -> None:
        ledger.apply(spark.read.parquet(str(folder / "batches" / str(number))), _id("erasing", number))
        keys = json.loads((folder / "erased" / f"{number}.json").read_text())
        ledger.erase(keys=keys, by="dana", reason="asked for", published={folder / "published": scd_type_2})

    return take


def _feed(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    feed = feed_of(spark, folder)

    def take(number: int) -> None:
        feed.receive(spark.read.parquet(str(folder / "batches" / str(number))), _id("feed", number))

    return take


def _exchange(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    exchange = exchange_of(spark, folder)

    def take(number: int) -> None:
        exchange.receive(spark.read.parquet(str(folder / "batches" / str(number))), _id("exchange", number))

    return take


def _erasing_door(
    folder: Path, receive: Callable[[int], None], erase: Callable[..., Receipt]
) -> Callable[[int], None]:
    def take(number: int) -> None:
        receive(number)
        keys = json.loads((folder / "erased" / f"{number}.json").read_text())
        if keys:
            erase(keys=keys, by="dana", reason="asked for")

    return take


def _erasing_exchange(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    erase = partial(exchange_of(spark, folder).erase, "ResearchObject")
    return _erasing_door(folder, _exchange(spark, folder), erase)


def _erasing_service(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    return _erasing_door(folder, _service(spark, folder), partial(service_of(spark, folder).erase, "entity"))


def _erasing_hub(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    return _erasing_door(folder, _hub(spark, folder), partial(hub_of(spark, folder).erase, "product"))


def _service(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    service = service_of(spark, folder)

    def take(number: int) -> None:
        service.receive(spark.read.parquet(str(folder / "batches" / str(number))), _id("service", number))

    return take


def _hub(spark: SparkSession, folder: Path) -> Callable[[int], None]:
    hub = hub_of(spark, folder)

    def take(number: int) -> None:
        messages = json.loads((folder / "batches" / str(number)).read_text())
        hub.receive(datahub.records(spark, messages, received_at=NOW), _id("hub", number))
        hub.run(now=NOW)

    return take


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
