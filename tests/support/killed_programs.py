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
from typing import Any

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
    take = _program(work, spark, folder)
    count = len(list((folder / "batches").iterdir()))
    print("ready", flush=True)
    known = [n for n in range(count) if Store(spark, folder / "store").batch(f"batch {n}") is not None]
    for number in range(max(known, default=0), count):
        take(number)
        print(number, flush=True)


def _program(work: str, spark: SparkSession, folder: Path) -> Callable[[int], None]:
    """What takes a batch of that number."""
    if work == "erasing":
        ledger, published = people_of(spark, folder), {folder / "published": scd_type_2}
        take = _taking(spark, folder, ledger.apply)
        return _erasing(folder, take, partial(ledger.erase, published=published))
    name = work.removeprefix("erasing_")
    door: Any = _DOORS[name](spark, folder)
    if name == "hub":
        take = _hub(spark, folder, door)
    else:
        take = _taking(spark, folder, door.apply if name == "ledger" else door.receive)
    return take if name == work else _erasing(folder, take, partial(door.erase, _ERASED_OF[name]))


_DOORS: dict[str, Callable[[SparkSession, Path], Any]] = {
    **{"ledger": ledger_of, "feed": feed_of, "hub": hub_of},
    **{"exchange": exchange_of, "service": service_of},
}
_ERASED_OF = {"exchange": "ResearchObject", "service": "entity", "hub": "product"}


def _taking(spark: SparkSession, folder: Path, receive: Callable[..., Any]) -> Callable[[int], None]:
    def take(number: int) -> None:
        receive(spark.read.parquet(str(folder / "batches" / str(number))), f"batch {number}")

    return take


def _hub(spark: SparkSession, folder: Path, hub: datahub.Hub) -> Callable[[int], None]:
    def take(number: int) -> None:
        messages = json.loads((folder / "batches" / str(number)).read_text())
        hub.receive(datahub.records(spark, messages, received_at=NOW), f"batch {number}")
        hub.run(now=NOW)

    return take


def _erasing(
    folder: Path, receive: Callable[[int], None], erase: Callable[..., Receipt]
) -> Callable[[int], None]:
    def take(number: int) -> None:
        receive(number)
        keys = json.loads((folder / "erased" / f"{number}.json").read_text())
        if keys:
            erase(keys=keys, by="dana", reason="asked for")

    return take


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
