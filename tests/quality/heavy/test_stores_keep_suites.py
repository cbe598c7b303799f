"""
Every store says of its tables which suites they keep, and they do.

In `make test`:
tests/quality/test_samples_keep_suites.py::test_samples_keep_their_suites.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import databus, datahub, merge, rdss, rejects, replicate, samples, streams
from cdckit.quality import check_all, record_outcomes
from cdckit.quality.data_docs import HasContracts
from support.hub_shop import AT, SHOP, customers, order


def feed(spark: SparkSession, place: Path) -> HasContracts:
    records = spark.read.parquet(samples("replicate/{metadata,schedule}.parquet"))
    found = replicate.Feed(spark, place)
    found.receive(records.where("topic IN ('flights.metadata', 'schedule.airlines')"))
    return found


def relay(spark: SparkSession, place: Path) -> HasContracts:
    folder = Path(samples("databus"))
    listed = json.loads((folder / "sources.json").read_text())
    sources = [databus.Source(each["id"], each["name"], [each["schema"]]) for each in listed]
    found = databus.Relay(spark, place, sources, keys={"airlines": ["carrier"]})
    found.receive(spark.read.parquet(str(folder / "events.parquet")))
    return found


def exchange(spark: SparkSession, place: Path) -> HasContracts:
    found = rdss.Exchange(spark, place, types=["ResearchObject"])
    found.receive(spark.read.parquet(samples("rdss/records.parquet")))
    return found


def service(spark: SparkSession, place: Path) -> HasContracts:
    found = streams.Service(spark, place)
    found.receive(spark.read.parquet(samples("debezium_streams/entity-batches.parquet")))
    return found


def hub(spark: SparkSession, place: Path) -> HasContracts:
    """Two customers, an order of one of them, and one that waits for its customer."""
    found = datahub.Hub(spark, datahub.schema(SHOP), place)
    messages = [customers("known", "c0", "c00"), order("at once", 0, "c0"), order("waits", 1, "c1")]
    found.receive(messages, received_at=AT)
    found.run(now=AT)
    return found


TOLD = {
    feed: {"records", "schema_zone", "rejects", "ledgers"},
    relay: {"windows", "rejects", "ledgers"},
    exchange: {"messages", "queued", "rejects", "ledgers"},
    service: {"updates", "rejects", "ledgers"},
    hub: {"messages", "rejects", "ledgers"},
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Great Expectations imports
@pytest.mark.parametrize("store", TOLD, ids=lambda store: store.__name__)
def test_all_tables_of_a_store_keep_their_suites(
    spark: SparkSession, tmp_path: Path, store: Callable[[SparkSession, Path], HasContracts]
) -> None:
    found = check_all(store(spark, tmp_path / "store"), docs=tmp_path / "docs")
    assert {name: repr(each) for name, each in found.items() if not each.ok} == {}
    assert {name.split(".")[0] for name in found} == TOLD[store]
    pages = [*(tmp_path / "docs" / "validations").rglob("*.html")]
    assert len(pages) == len(found), "a page of Data Docs for each, whatever a table is called"
    kept = [each.rows for name, each in found.items() if name.endswith(".ledger")]
    assert kept
    assert all(kept), "no ledger is empty"


def of_replicate(spark: SparkSession) -> dict[str, tuple[DataFrame, str]]:
    records = spark.read.parquet(samples("replicate/{metadata,operations}.parquet"))
    decoded = replicate.decode(records).localCheckpoint()
    metadata = replicate.metadata(decoded).localCheckpoint()
    told = replicate.table_changes(records, task="operations", table="FLIGHTS").localCheckpoint()
    history = merge(told, entity="flight", keys=["flight_date", "carrier", "flight", "origin"])
    zone = replicate.schema_zone(metadata).localCheckpoint()
    refused = rejects(decoded)
    outcomes = record_outcomes(
        records,
        changed=told,
        metadata=metadata,
        refused=refused,
        unreadable=rejects(replicate.data(records, zone.where("task = 'operations'"))),
        waiting=replicate.waiting(decoded, zone, now=datetime(2013, 2, 10, tzinfo=UTC)),
    )
    return {
        "records": (records, "records"),
        "rejects": (refused, "rejects"),
        "zone": (zone, "schema_zone"),
        "changes": (told, "changes"),
        "history": (history, "history"),
        "outcomes": (outcomes, "outcomes"),
    }


def test_the_sample_of_replicate_keeps_its_suites(spark: SparkSession) -> None:
    found = check_all(of_replicate(spark))
    assert {name: repr(each) for name, each in found.items() if not each.ok} == {}
    assert any(each.rows for each in found.values())
