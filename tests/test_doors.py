"""
What every door promises, asked of all of them: a new door adds its line to `DOORS`.

Every record becomes a change, waits, is a reject, or is one that the door names otherwise; changes have the
shape that `merge` takes; where nothing came, `process` changes nothing; rejects are records again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import databus, datahub, debezium, merge, rdss, rejects, replicate, tables
from cdckit.changes import require_changes
from cdckit.records import RECORD_COLUMNS, RECORD_SCHEMA
from support.rdss_messages import MESSAGES, as_bytes, changed, message
from support.replicate_messages import Version, record, to_dataframe

AT = datetime(2024, 3, 1, 12, tzinfo=UTC)
BAD = b"?"


class Run(NamedTuple):
    """What a door made of the records 0, 1, 2 …, which have their numbers as offsets."""

    count: int
    changes: DataFrame
    keys: list[str]
    waiting: set[int]
    named: set[int]
    """The records that are neither, and that the door shows in a table of its own."""
    shell: Any
    """What the door keeps its tables with; None for one that need not remember."""
    sent: DataFrame | None = None
    refused: Callable[[DataFrame], DataFrame] | None = None
    """Of a door without a shell that has rejects: the records, and which of some cannot be used."""


def records(spark: SparkSession, *values: bytes) -> DataFrame:
    rows = [(None, value, "door", 0, offset, AT, 0, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def offsets(rows: DataFrame) -> set[int]:
    return {row[0] for row in rows.select("offset").collect()}


def of_tables(spark: SparkSession, folder: Path) -> Run:
    kinds = {"id": "Int64", "name": "string", "at": "string"}
    log = pd.DataFrame([(1, "kettle", "2024-01-01"), (None, "mug", "2024-01-01"), (3, "jug", "soon")])
    frame = log.set_axis(list(kinds), axis=1).astype(kinds)
    call: dict[str, Any] = {"keys": ["id"], "effective": "at"}
    # Rows have numbers from 1, and a record here from 0.
    sent = tables.table_rows(frame, **call).withColumn("offset", F.col("offset") - 1)
    place = F.col("arrival").withField("offset", F.col("arrival.offset") - 1)

    def refused(some: DataFrame) -> DataFrame:
        if "error_code" in some.columns:
            return rejects(some)
        row = F.from_json(some.value.cast("string"), "id bigint, name string, at string")
        return rejects(tables.table_rows(some.select(row.alias("row")).select("row.*"), **call))

    told = tables.changes_from(frame, **call).withColumn("arrival", place)
    return Run(3, told, ["id"], set(), set(), None, sent, refused)


def of_replicate(spark: SparkSession, folder: Path) -> Run:
    items, others = Version({"id": "int"}), Version({"code": "int"}, keys=("code",), table="OTHERS")
    values = [items.md(), items.dt("INSERT", {"id": 1}), BAD, others.dt("INSERT", {"code": 1})]
    sent = to_dataframe(spark, [record(value, offset) for offset, value in enumerate(values)])
    feed = replicate.Feed(spark, folder, buckets=1)
    feed.receive(sent)
    metadata = offsets(replicate.metadata(replicate.decode(sent)))
    return Run(4, feed.table("ITEMS").changes(), ["id"], offsets(feed.waiting()), metadata, feed)


def of_datahub(spark: SparkSession, folder: Path) -> Run:
    product = {"reference": "product", "fields": [{"reference": "number", "type": "integer", "key": True}]}
    leads = {"linkEntity": "product", "linkKey": "number", "sourceLinkKey": "of"}
    link = {"reference": "product", "type": "link", **leads}
    order = {"reference": "order", "fields": [{"reference": "name", "key": True}, link]}
    shop = datahub.schema({"reference": "*", "mappings": {"product": [product], "order": [order]}})
    hub = datahub.Hub(spark, shop, folder)
    hub.receive(
        records(
            spark,
            b'{"entity": "product", "guid": "m0", "data": [{"number": 1}]}',
            b'{"entity": "order", "guid": "m1", "data": [{"name": "a", "of": 9}]}',
            BAD,
        )
    )
    hub.process(now=AT)
    waiting = {int(row["message_identifier"][1:]) for row in hub.waiting().collect()}
    return Run(3, hub.changes("product"), ["number"], waiting, set(), hub)


def of_databus(spark: SparkSession, folder: Path) -> Run:
    tail = '{"type": "record", "name": "P", "fields": [{"name": "tail", "type": "string"}]}'
    source = databus.Source(3, "planes", [tail])
    of = {"srcId": 3, "physicalPartitionId": 1, "timestampInNanos": 0}
    value = {"schemaId": next(iter(source.texts)), "valueEnc": "JSON_PLAIN", "value": '{"tail": "N1"}'}
    event = {**of, **value, "opcode": "UPSERT", "key": 7}
    said = [{**event, "sequence": 5}, {**of, "sequence": 5, "srcId": -2}, {**event, "sequence": 6}]
    relay = databus.Relay(spark, folder, [source], keys={"planes": ["tail"]}, buckets=1)
    relay.receive(records(spark, *(json.dumps(each).encode() for each in said), BAD))
    ends = offsets(relay.events().where("kind = 'end'"))
    return Run(4, relay.table("planes").changes(), ["tail"], offsets(relay.waiting()), ends, relay)


def of_rdss(spark: SparkSession, folder: Path) -> Run:
    unknown = message("read", changed("/messageBody/objectUUID", "00000009-0000-4000-8000-000000000000"))
    whole = [as_bytes(MESSAGES[name]) for name in ("create", "part", "preservation")]
    exchange = rdss.Exchange(spark, folder, types=["ResearchObject"], buckets=1)
    exchange.receive(records(spark, *whole, BAD, as_bytes(unknown)))
    events = exchange.preservation_events().select("message_id")
    named = offsets(exchange.messages().join(events, "message_id", "left_semi"))
    told = exchange.objects().changes()
    return Run(5, told, ["objectUUID"], offsets(exchange.waiting()), named, exchange)


def of_debezium(spark: SparkSession, folder: Path) -> Run:
    said = b'{"op": "c", "ts_ms": 1, "source": {"table": "items"}, "after": {"id": %s}}'
    sent = records(spark, said % b"1", said % b'"one"', BAD, b'{"ts_ms": 1}')
    call: dict[str, Any] = {"table": "items", "keys": ["id"], "columns": {"id": "int32"}}

    def refused(some: DataFrame) -> DataFrame:
        decoded = debezium.decode(some)
        return rejects(decoded).unionByName(rejects(debezium.table_rows(decoded, **call)))

    told = debezium.changes(debezium.decode(sent), **call)
    return Run(4, told, ["id"], set(), {3}, None, sent, refused)


DOORS: dict[str, Callable[[SparkSession, Path], Run]] = {
    "tables": of_tables,
    "replicate": of_replicate,
    "databus": of_databus,
    "datahub": of_datahub,
    "rdss": of_rdss,
    "debezium": of_debezium,
}


@pytest.fixture(scope="module", params=DOORS)
def run(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: Any) -> Run:
    return DOORS[request.param](spark, tmp_path_factory.mktemp(request.param))


def test_every_record_is_a_change_or_waits_or_is_a_reject_or_is_named(run: Run) -> None:
    require_changes(run.changes, function="merge")
    assert merge(run.changes, entity="thing", keys=run.keys).count() > 0
    changed_by = {row[0] for row in run.changes.select("arrival.offset").collect()}
    rejected = offsets(rejects_of(run))
    fates = [changed_by, rejected, run.waiting, run.named]
    assert sorted(offset for each in fates for offset in each) == list(range(run.count))
    assert changed_by
    assert rejected


def test_where_nothing_came_process_changes_nothing(run: Run) -> None:
    if run.shell is not None:
        run.shell.process(now=AT)
        before = run.shell.store.snapshot().version
        run.shell.process(now=AT)
        assert run.shell.store.snapshot().version == before


def test_rejects_are_records_that_can_be_fed_again(run: Run) -> None:
    """As they are they are rejects again, and nothing else becomes of them."""
    if run.shell is not None:
        before = as_set(run.shell.rejects())
        run.shell.receive(run.shell.rejects().select(*RECORD_COLUMNS))
        run.shell.process(now=AT)
        assert as_set(run.shell.rejects()) == before
    elif run.refused is not None:
        once = rejects_of(run)
        assert as_set(run.refused(once.select(*RECORD_COLUMNS))) == as_set(once)


def rejects_of(run: Run) -> DataFrame:
    if run.refused is not None and run.sent is not None:
        return run.refused(run.sent)
    found: DataFrame = run.shell.rejects()
    return found


def as_set(refused: DataFrame) -> set[tuple[bytes, str]]:
    return {(bytes(row["value"]), row["error_code"]) for row in refused.collect()}
