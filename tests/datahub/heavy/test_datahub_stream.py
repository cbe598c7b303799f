"""
Hub messages as a stream: whatever batches they come in, the hub is what one batch of everything makes.

In `make test`:
tests/datahub/test_datahub_store.py::test_a_stream_is_received_once_though_it_forgets_how_far_it_was.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit.datahub import Hub, records, schema
from cdckit.model.records import RECORD_SCHEMA
from support.hub_programs import rows_of

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)
FIELDS: list[Row] = [{"reference": "no", "key": True}, {"reference": "name"}]
SHOP = schema({"reference": "*", "mappings": {"product": [{"reference": "product", "fields": FIELDS}]}})


def product(guid: str, no: str, name: str) -> Row:
    return {"entity": "product", "guid": guid, "data": {"no": no, "name": name}}


BATCHES = [
    [product("m1", "1", "kettle"), product("m2", "2", "mug")],
    # What a producer sends again has another offset, and is the same message.
    [
        product("m1", "1", "kettle"),
        product("m3", "1", "teapot"),
        {"entity": "nothing known", "guid": "m4"},
        product("m5", "3", "cup"),
        product("m3", "1", "teapot"),
    ],
]


def batch(spark: SparkSession, number: int) -> DataFrame:
    return records(spark, BATCHES[number], received_at=AT + number * timedelta(minutes=1))


def held(hub: Hub) -> list[list[Row]]:
    """The history, and the status of each message."""
    history = rows_of(hub.history("product").orderBy("no", "valid_from_timestamp"))
    messages = hub.messages().select("message_identifier", "status", "error_message")
    return [history, rows_of(messages.orderBy("message_identifier"))]


def test_a_stream_of_messages_gives_what_one_receive_gives(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(len(BATCHES)):
        batch(spark, number).write.mode("append").parquet(str(tmp_path / "topic"))
    streamed = Hub(spark, SHOP, tmp_path / "streamed")
    # The second stream has lost its checkpoint, and gives everything again.
    for checkpoint in ("first", "second"):
        stream = spark.readStream.schema(RECORD_SCHEMA).option("maxFilesPerTrigger", 1)
        messages = stream.parquet(str(tmp_path / "topic"))
        writer = messages.writeStream.foreachBatch(streamed.sink(checkpoint)).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()
    streamed.run(now=AT)
    once = Hub(spark, SHOP, tmp_path / "once")
    once.receive(batch(spark, 0).unionByName(batch(spark, 1)))
    once.run(now=AT)
    found = held(streamed)
    assert found == held(once)
    assert [(row["no"], row["name"]) for row in found[0]] == [
        ("1", "kettle"), ("1", "teapot"), ("2", "mug"), ("3", "cup"),
    ]  # fmt: skip
    assert [row["message_identifier"] for row in found[1]] == ["m1", "m2", "m3", "m4", "m5"]
