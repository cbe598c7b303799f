"""
What every door makes of its sample keeps the suites: the tables of a hub are asked in its own tests.

The six tables of Replicate: tests/quality/heavy/test_stores_keep_suites.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import changes_from, databus, debezium, merge, rdss, rejects, samples, streams
from cdckit.quality import check_all

Asked = dict[str, tuple[DataFrame, str]]


def of_tables(spark: SparkSession) -> Asked:
    rows = pd.read_csv(samples("tables/timetable.csv"), parse_dates=["changed_at"])
    told = changes_from(rows, keys=["flight", "origin"], sequence_by="changed_at")
    history = merge(told, entity="flight", keys=["flight", "origin"])
    return {"changes": (told, "changes"), "history": (history, "history")}


def of_databus(spark: SparkSession) -> Asked:
    folder = Path(samples("databus"))
    listed = json.loads((folder / "sources.json").read_text())
    sources = [databus.Source(each["id"], each["name"], [each["schema"]]) for each in listed]
    events = databus.decode(spark.read.parquet(str(folder / "events.parquet")), sources).localCheckpoint()
    return {"windows": (databus.windows(events), "databus_windows"), "rejects": (rejects(events), "rejects")}


def of_rdss(spark: SparkSession) -> Asked:
    decoded = rdss.decode(spark.read.parquet(samples("rdss/records.parquet"))).localCheckpoint()
    told = rdss.changes(decoded, rdss.ObjectType.RESEARCH_OBJECT).localCheckpoint()
    history = merge(told, entity="object", keys=["objectUUID"])
    versions = rdss.version_ancestry(rdss.version_links(history))
    return {
        "messages": (decoded, "rdss_messages"),
        "queues": (rdss.queue_records(decoded), "rdss_queues"),
        "rejects": (rejects(decoded), "rejects"),
        "changes": (told, "changes"),
        "versions": (versions, "rdss_versions"),
    }


def of_debezium(spark: SparkSession) -> Asked:
    decoded = debezium.decode_wal2json(spark.read.parquet(samples("debezium/wal2json.parquet")))
    told = debezium.changes(decoded.localCheckpoint(), "remarks", keys=["id"]).localCheckpoint()
    history = merge(told, entity="remark", keys=["id"])
    return {"changes": (told, "changes"), "history": (history, "history")}


def of_streams(spark: SparkSession) -> Asked:
    records = spark.read.parquet(samples("debezium_streams/entity-batches.parquet"))
    decoded = streams.decode(records, streams.ENTITY_BATCHES)
    answers = streams.apply_patches(streams.entity_patches(decoded)).localCheckpoint()
    return {"updates": (streams.entity_updates(answers), "debezium_updates"), "records": (records, "records")}


DOORS: list[Callable[[SparkSession], Asked]] = [
    of_tables, of_databus, of_rdss, of_debezium, of_streams,
]  # fmt: skip


@pytest.fixture(scope="module", params=DOORS, ids=lambda door: door.__name__)
def asked(spark: SparkSession, request: pytest.FixtureRequest) -> Asked:
    """The tables of a door's samples, made once."""
    tables: Asked = request.param(spark)
    return tables


def test_samples_keep_their_suites(asked: Asked) -> None:
    found = check_all(asked)
    assert {name: repr(each) for name, each in found.items() if not each.ok} == {}
    assert any(each.rows for each in found.values())
