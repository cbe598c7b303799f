"""
Change events as a structured stream: a ledger that follows a topic, batch by batch.

In `make test`:
tests/ledger/test_ledger.py::test_a_new_field_and_a_wider_type_come_with_a_later_batch,
tests/ledger/test_ledger.py::test_two_streams_may_count_alike.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, debezium, rejects
from cdckit.model.records import RECORD_SCHEMA
from cdckit.store import Store

AT = 1709294400000
TYPES = {"id": "int32", "name": "string", "price": "int64"}


def event(operation: str, place: int, **row: Any) -> bytes:
    """An event with its schema, which has the columns that the table had then."""
    fields = [{"field": name, "type": TYPES[name]} for name in row]
    image = "before" if operation == "d" else "after"
    source = {"connector": "postgresql", "name": "shop", "table": "products"}
    said = source | {"ts_ms": AT + 1000 * place, "sequence": f'["{place}","{place}"]'}
    return json.dumps(
        {
            "schema": {"fields": [{"field": image, "fields": fields}]},
            "payload": {"op": operation, image: row, "source": said},
        }
    ).encode()


BATCHES = [
    [event("c", 1, id=1, name="kettle"), event("c", 2, id=2, name="mug"), b"?"],
    # What is sent again is no news; nothing here is about a row.
    [event("c", 1, id=1, name="kettle"), b'{"ts_ms": 1}'],
    # The table has another column now, and a value does not fit it.
    [
        event("u", 3, id=1, name="kettle", price=20),
        event("u", 4, id=2, name="mug", price="much"),
        event("d", 5, id=2, name="mug", price=None),
    ],
]


def records(spark: SparkSession, number: int) -> DataFrame:
    rows = [(None, value, "t", 0, 10 * number + n, None, 0, None) for n, value in enumerate(BATCHES[number])]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def test_a_ledger_follows_a_stream_whose_table_is_altered(spark: SparkSession, tmp_path: Path) -> None:
    """Changes and rejects are kept once, though a batch is given twice, and all when a checkpoint is lost."""
    for number in range(len(BATCHES)):
        records(spark, number).write.mode("append").parquet(str(tmp_path / "topic"))
    ledger = Ledger(spark, tmp_path / "products", entity="product", keys=["id"], buckets=1)
    refused = Store(spark, tmp_path / "refused")

    def take(batch: DataFrame, number: int) -> None:
        decoded = debezium.decode(batch).localCheckpoint()
        unfit = rejects(decoded)
        if not decoded.where("kind = 'row' and error_code is null").isEmpty():
            call: dict[str, Any] = {"keys": ["id"], "columns": debezium.columns(decoded, "products")}
            ledger.apply(debezium.changes(decoded, "products", **call), f"shop:{number}")
            unfit = unfit.unionByName(rejects(debezium.table_rows(decoded, "products", **call)))
        with refused.begin() as transaction:
            transaction.append("rejects", unfit)
            transaction.commit(batch=f"shop:{number}")

    def take_last_twice(batch: DataFrame, number: int) -> None:
        for _ in range(2 if number == 2 else 1):
            take(batch, number)

    for checkpoint, each_batch in (("first", take_last_twice), ("second", take)):
        stream = spark.readStream.schema(RECORD_SCHEMA).option("maxFilesPerTrigger", 1)
        events = stream.parquet(str(tmp_path / "topic"))
        writer = events.writeStream.foreachBatch(each_batch).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()
    found = ledger.history().orderBy("id", "valid_from_timestamp").collect()
    assert [
        (row["id"], row["name"], row["price"], row["valid_from_timestamp"].second, row["deleted_indicator"])
        for row in found
    ] == [
        (1, "kettle", None, 1, False),
        (1, "kettle", 20, 3, False),
        (2, "mug", None, 2, False),
        (2, None, None, 5, True),
    ]
    assert found[0]["valid_to_timestamp"] == datetime(2024, 3, 1, 12, 0, 3)
    kept = refused.snapshot().read("rejects").orderBy("offset").collect()
    assert [(row["offset"], row["error_code"]) for row in kept] == [(2, "NOT_JSON"), (21, "VALUE_INVALID")]
