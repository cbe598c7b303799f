"""One smoke test for each door, for `merge` and for `as_of`: what `make quick` starts a JVM for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import as_of, databus, datahub, debezium, merge, rdss, replicate, streams, tables
from cdckit.model.records import RECORD_SCHEMA
from support.histories import to_dataframe as changes_to_dataframe
from support.rdss_messages import MESSAGES, as_bytes
from support.replicate_messages import Version, numbered, to_dataframe

AT = datetime(2024, 1, 1, 9, tzinfo=UTC)

# An hour of the day, an operation, a message, a number and a name.
SAID = [
    (9, "upsert", "m1", 1, "kettle"),
    (9, "upsert", "m1", 2, "mug"),
    (10, "upsert", "m2", 1, "teapot"),
    (11, "delete", "m3", 2, None),
]


def changes(spark: SparkSession) -> DataFrame:
    """Three messages of a shop about two products."""
    rows = []
    for place, (hour, operation, message, number, name) in enumerate(SAID):
        at = AT.replace(hour=hour)
        arrival = {"timestamp": at, "topic": "shop", "partition": 0, "offset": place, "record_number": 0}
        rows.append(
            {
                "operation": operation, "effective_timestamp": at, "sequence": "", "arrival": arrival,
                "message_id": message, "source": "shop", "priority": 0,
                "data": {"number": number, "name": name},
                "carried": {"number": True, "name": name is not None},
            }
        )  # fmt: skip
    return changes_to_dataframe(spark, rows, {"number": "int", "name": "string"})


@pytest.mark.smoke("merge")
def test_merge(spark: SparkSession) -> None:
    """A kettle that is renamed, a mug that is deleted: three messages about two products."""
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true", "as for a user: see conftest.py"
    history = merge(changes(spark), entity="product", keys=["number"])
    rows = history.orderBy("number", "valid_from_timestamp").collect()
    assert [
        (row["number"], row["name"], row["deleted_indicator"], row["source_message"]) for row in rows
    ] == [
        (1, "kettle", False, "m1"),
        (1, "teapot", False, "m2"),
        (2, "mug", False, "m1"),
        (2, None, True, "m3"),
    ]
    assert [row["valid_to_timestamp"] is None for row in rows] == [False, True, False, True]


@pytest.mark.smoke("as_of")
def test_as_of(spark: SparkSession) -> None:
    """At ten the kettle is a teapot, and the mug is there for an hour yet."""
    history = merge(changes(spark), entity="product", keys=["number"])
    found = as_of(history, datetime(2024, 1, 1, 10, tzinfo=UTC)).orderBy("number").collect()
    assert [(row["number"], row["name"]) for row in found] == [(1, "teapot"), (2, "mug")]


@pytest.mark.smoke("tables")
def test_tables(spark: SparkSession) -> None:
    """A table of one's own: a kettle, renamed in the row after it."""
    rows = spark.createDataFrame([(1, "kettle"), (1, "teapot")], "number int, name string")
    told = tables.changes_from(rows, keys=["number"]).orderBy("arrival.record_number").collect()
    assert [(row["operation"], row["data"]["name"]) for row in told] == [
        ("upsert", "kettle"), ("upsert", "teapot"),
    ]  # fmt: skip


@pytest.mark.smoke("debezium")
def test_debezium(spark: SparkSession) -> None:
    """A kettle that is made and taken out, as PostgreSQL's own plugin says it."""
    values = [
        b'{"action": "I", "timestamp": "2024-01-01 09:00:00+00", "lsn": "0/9", "table": "product",'
        b' "columns": [{"name": "number", "type": "integer", "value": 1}]}',
        b'{"action": "D", "timestamp": "2024-01-01 10:00:00+00", "lsn": "0/A", "table": "product",'
        b' "identity": [{"name": "number", "type": "integer", "value": 1}]}',
    ]
    rows = [(None, value, "product", 0, offset, AT, 0, None) for offset, value in enumerate(values)]
    decoded = debezium.decode_wal2json(spark.createDataFrame(rows, RECORD_SCHEMA))
    told = debezium.changes(decoded, "product", keys=["number"], columns={"number": "integer"})
    history = merge(told, entity="product", keys=["number"]).orderBy("valid_from_timestamp").collect()
    assert [(row["number"], row["deleted_indicator"]) for row in history] == [(1, False), (1, True)]


@pytest.mark.smoke("streams")
def test_streams(spark: SparkSession) -> None:
    """A request with one patch, which makes a mug, and bytes that are no request."""
    ops = [{"op": "add", "path": "/name", "value": "mug"}]
    request = {"db": "shop", "clientid": "c", "request": 1, "user": "ann", "begun": 7}
    request["patches"] = [{"collection": "Mugs", "zone": "z", "entity": "m1", "ops": ops}]
    values = [json.dumps(request).encode(), b"?"]
    rows = [(None, value, "shop", 0, offset, AT, 0, None) for offset, value in enumerate(values)]
    decoded = streams.decode(spark.createDataFrame(rows, RECORD_SCHEMA), streams.ENTITY_BATCHES)
    assert [row["error_code"] for row in decoded.orderBy("offset").collect()] == [None, "NOT_JSON"]
    answers = streams.apply_patches(streams.entity_patches(decoded)).collect()
    told = [(row["entity"], row["status"], row["after"]) for row in answers if row["reject"] is None]
    assert told == [("m1", 1, '{"name":"mug"}')]
    assert [row["reject"]["value"] for row in answers if row["reject"] is not None] == [b"?"]


@pytest.mark.smoke("replicate")
def test_replicate(spark: SparkSession) -> None:
    """The metadata of a table, a row of it, and bytes that are no message."""
    items = Version({"id": "int", "price": ["null", "int"]})
    records = to_dataframe(spark, numbered([items.md(), items.dt("INSERT", {"id": 1, "price": 5}), b"?"]))
    decoded = replicate.decode(records)
    assert [row["error_code"] is None for row in decoded.orderBy("offset").collect()] == [True, True, False]
    zone = replicate.schema_zone(replicate.metadata(decoded))
    told = replicate.changes(replicate.data(records, zone), keys=["id"]).collect()
    assert [(row["operation"], row["data"].asDict()) for row in told] == [("upsert", {"id": 1, "price": 5})]


@pytest.mark.smoke("datahub")
def test_datahub(spark: SparkSession, tmp_path: Path) -> None:
    """A record that becomes a version, and one without a key that is a reject."""
    fields = [{"reference": "number", "type": "integer", "key": True}, {"reference": "name"}]
    shop = datahub.schema(
        {"reference": "*", "mappings": {"product": [{"reference": "product", "fields": fields}]}}
    )
    message: dict[str, Any] = {"entity": "product", "guid": "m1"}
    message["data"] = [{"number": 1, "name": "kettle"}, {"name": "mug"}]
    hub = datahub.Hub(spark, shop, tmp_path)
    hub.receive([message], received_at=AT)
    hub.run(now=AT)
    history = hub.history("product").collect()
    assert [(row["number"], row["name"], row["source_message"]) for row in history] == [(1, "kettle", "m1")]
    assert [(row["record"], row["error_code"]) for row in hub.rejects().collect()] == [("2", "KEY_MISSING")]


@pytest.mark.smoke("rdss")
def test_rdss(spark: SparkSession) -> None:
    """A message that is valid, and bytes that are none."""
    values = [as_bytes(MESSAGES["delete"]), b"?"]
    rows = [(None, value, "rdss", 0, offset, AT, 0, None) for offset, value in enumerate(values)]
    decoded = rdss.decode(spark.createDataFrame(rows, RECORD_SCHEMA)).orderBy("offset").collect()
    assert [(row["message_type"], row["queue"], row["error_code"]) for row in decoded] == [
        ("MetadataDelete", None, None), (None, "invalid", "GENERR007"),
    ]  # fmt: skip


@pytest.mark.smoke("databus")
def test_databus(spark: SparkSession) -> None:
    """A window of one delete that is complete, and one that never ends."""
    tail = '{"type": "record", "name": "P", "fields": [{"name": "tail", "type": "string"}]}'
    source = databus.Source(3, "planes", [tail])
    event = {"opcode": "DELETE", "key": 7, "srcId": 3, "physicalPartitionId": 1, "timestampInNanos": 0}
    said = [{**event, "sequence": 5}, {**event, "sequence": 5, "srcId": -2}, {**event, "sequence": 6}]
    rows = [
        (None, json.dumps(each).encode(), "t", 0, offset, AT, 0, None) for offset, each in enumerate(said)
    ]
    events = databus.decode(spark.createDataFrame(rows, RECORD_SCHEMA), [source])
    told = databus.with_windows(events).where("kind = 'data'").orderBy("scn").collect()
    assert [(row["long_key"], row["window_end_scn"], row["window_state"]) for row in told] == [
        (7, 5, "complete"), (7, None, "open"),
    ]  # fmt: skip
