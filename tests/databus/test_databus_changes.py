"""From records to histories: typed values, and no instant at which half a window shows."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, date, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import databus, merge, rejects
from cdckit.databus.row_changes import _decode_values, row_fields
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from cdckit.model.rejected_records import drop_rejects

FIRST = {
    "type": "record",
    "name": "A",
    "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": "int"}],
}
SECOND = {
    **FIRST,
    "fields": [
        *FIRST["fields"][:1],
        {"name": "amount", "type": ["null", "long"]},
        {"name": "note", "type": "string"},
    ],
}
A = databus.Source(97, "a", [json.dumps(FIRST), json.dumps(SECOND)])
B = databus.Source(98, "b", [json.dumps(FIRST)])
STREAM = """
    a1:1=-10 b1:1=10 .1
    a2:1=-15 <2
    a2:1=-15 b2:1=15 .2
    a3:1=-99 ? .3
    a3:1=-20 b3:1=20 .3
    a2:1=-15 b2:1=15 .2
    a4:1=-30/new b4:1=30 b4:2=0 .4
    a5:1 b5:1 .5
    a6:1=-7
"""


def record(word: str, offset: int) -> bytes:
    """`a2:1=-15` is an upsert in source a with SCN 2 of the key 1; without an amount it is a delete."""
    if word == "?":
        return b"?"
    scn = int(word[1])
    event: dict[str, Any] = {"sequence": scn, "physicalPartitionId": 1}
    event["timestampInNanos"] = (1_704_099_600 + 10 * scn) * 10**9 + offset
    if word[0] in ".<":
        return json.dumps(event | {"srcId": -2 if word[0] == "." else -51}).encode()
    key, _, value = word.partition(":")[2].partition("=")
    amount, _, note = value.partition("/")
    source = A if word[0] == "a" else B
    ids = list(source.texts)
    event |= {"opcode": "UPSERT" if amount else "DELETE", "key": int(key), "srcId": source.id}
    if amount:
        row = {"id": int(key), "amount": int(amount)} | ({"note": note} if note else {})
        written = io.BytesIO()
        fastavro.schemaless_writer(written, SECOND if note else FIRST, row)
        value = base64.b64encode(written.getvalue()).decode()
        event |= {"schemaId": ids[1 if note else 0], "valueEnc": "JSON", "value": value}
    return json.dumps(event).encode()


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    """Decoded once, in several partitions and out of order."""
    rows = [
        (None, record(word, offset), "t", 0, offset, datetime(2024, 1, 1, tzinfo=UTC), 0, None)
        for offset, word in enumerate(STREAM.split())
    ]
    decoded = databus.decode(spark.createDataFrame(rows[::-1], RECORD_SCHEMA).repartition(3), [A, B])
    return spark.createDataFrame(decoded.collect(), decoded.schema)


def test_every_record_is_in_one_place(events: DataFrame) -> None:
    windowed = databus.with_windows(events)
    rows = windowed.orderBy("offset").select("window_state", "error_code").collect()
    expected = [
        *["complete"] * 3,
        *["rolled back"] * 2,
        *["complete"] * 3,
        *["damaged", None, "damaged"],
        *["complete"] * 3,
        *["repeated"] * 3,
        *["complete"] * 7,
        "open",
    ]
    assert [row["window_state"] for row in rows] == expected
    assert [row["value"] for row in rejects(windowed).collect()] == [b"?"]


def test_what_is_in_error_or_does_not_say_its_key_is_a_reject_with_its_bytes(events: DataFrame) -> None:
    """The schema that came first has no note; the delete has it from the key of its event."""
    made = databus.changes(events, A, keys=["note"], source="ours")
    words = STREAM.split()
    codes = [(row["offset"], row["error_code"]) for row in rejects(made).orderBy("offset").collect()]
    assert codes == [(0, "KEY_MISSING"), (5, "KEY_MISSING"), (9, "NOT_AN_EVENT"), (11, "KEY_MISSING")]
    assert {bytes(row["value"]) for row in rejects(made).collect()} == {
        record(words[offset], offset) for offset, _ in codes
    }
    sound_changes = drop_rejects(made).select("operation", "data.note", "source", "arrival.offset")
    assert sorted(tuple(row) for row in sound_changes.collect()) == [
        ("delete", "1", "ours", 21), ("upsert", "new", "ours", 17),
    ]  # fmt: skip


def test_histories_of_two_tables_agree_at_every_instant(events: DataFrame) -> None:
    """Each window moves an amount from a to b; half of one would show."""
    windowed = databus.with_windows(events)
    changes_by_source = {source.name: databus.changes(windowed, source, keys=["id"]) for source in (A, B)}
    histories = [
        merge(changes_by_source[name], entity=name, keys=["id"]).select(
            "valid_from_timestamp",
            "valid_to_timestamp",
            F.lit(name).alias("of"),
            "id",
            "amount",
            "deleted_indicator",
        )
        for name in "ab"
    ]
    rows = histories[0].unionByName(histories[1].withColumn("amount", F.col("amount").cast("long"))).collect()
    instants = sorted({row["valid_from_timestamp"] for row in rows})
    assert len(instants) == 5
    for at in instants:
        now = [
            r
            for r in rows
            if r["valid_from_timestamp"] <= at
            and (r["valid_to_timestamp"] is None or at < r["valid_to_timestamp"])
        ]
        assert sum(row["amount"] or 0 for row in now) == 0
    last = [row for row in rows if row["valid_to_timestamp"] is None]
    assert {(row["of"], row["id"], row["deleted_indicator"]) for row in last} == {
        ("a", 1, True), ("b", 1, True), ("b", 2, False),
    }  # fmt: skip


def test_windows_of_two_partitions_of_a_topic_say_messages_of_their_own(events: DataFrame) -> None:
    both = events.unionByName(events.withColumn("partition", F.lit(1)))
    messages = drop_rejects(databus.changes(both, A, keys=["id"])).select("message_id").collect()
    assert len({row["message_id"] for row in messages}) == len(messages) == 10


def test_values_of_all_versions_are_in_one_type_and_say_what_was_sent(events: DataFrame) -> None:
    rows = databus.rows(databus.consistent_events(events), A).orderBy("offset")
    assert rows.schema["data"].dataType.simpleString() == "struct<id:bigint,amount:bigint,note:string>"
    typed = rows.select("data", "sent.note", "window_position").collect()
    values = [(row["data"] and tuple(row["data"]), row["note"], row["window_position"]) for row in typed]
    assert values == [
        ((1, -10, None), False, 1),
        ((1, -15, None), False, 1),
        ((1, -20, None), False, 1),
        ((1, -30, "new"), True, 1),
        (None, True, 1),
    ]


def test_a_stream_is_refused_where_the_end_of_a_window_must_be_known(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr(
        "CAST(null AS binary) AS key", "CAST(null AS binary) AS value", "'t' AS topic", "0 AS partition",
        "value AS offset", "timestamp", "0 AS timestampType",
        "CAST(null AS array<struct<key string, value binary>>) AS headers",
    )  # fmt: skip
    events = databus.decode(stream, [A])
    assert events.isStreaming
    with pytest.raises(InvalidArgument, match="foreachBatch"):
        databus.windows(events)


def test_a_value_is_read_by_its_own_schema_or_not_at_all() -> None:
    """Only a delete without a value may say a schema that the source has not."""
    fields, first = row_fields(A), next(iter(A.texts))
    payload = b"\x02\x04"
    for number, text in (("other", FIRST), (first, SECOND)):
        batch = pa.record_batch({"schema_id": [number], "payload": pa.array([payload], pa.binary())})
        with pytest.raises(InvalidArgument, match=f"`decode` read its events, also '{number}'"):
            list(_decode_values([batch], schemas={first: json.dumps(text)}, fields=fields))
    batch = pa.record_batch({"schema_id": ["other"], "payload": pa.array([None], pa.binary())})
    [row] = list(_decode_values([batch], schemas=A.texts, fields=fields))
    assert row.column("data").to_pylist() == [None]


def test_a_delete_that_says_its_date_by_a_number_says_the_day(spark: SparkSession) -> None:
    """Day 19000 is 2022-01-08, not the year 19000; a number says no timestamp, since its unit is not said."""
    types = {"day": {"type": "int", "logicalType": "date"}}
    types["at"] = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": name, "type": ["null", kind]} for name, kind in types.items()]
    source = databus.Source(1, "s", [json.dumps({"type": "record", "name": "S", "fields": fields})])
    event = {"sequence": 1, "physicalPartitionId": 1, "timestampInNanos": 1}
    deleted = {**event, "opcode": "DELETE", "key": 19000, "srcId": 1}
    far = {**deleted, "key": 20_240_101}
    rows = [
        (None, json.dumps(sent).encode(), "t", 0, at, datetime(2024, 1, 1, tzinfo=UTC), 0, None)
        for at, sent in enumerate([deleted, far, {**event, "srcId": -2}])
    ]
    decoded = databus.decode(spark.createDataFrame(rows, RECORD_SCHEMA), [source])
    days = databus.changes(decoded, source, keys=["day"]).orderBy("arrival.offset")
    day, none = days.select("operation", "data.day", "reject.error_code").collect()
    assert (day["operation"], day["day"]) == ("delete", date(2022, 1, 8))
    assert (none["day"], none["error_code"]) == (None, "KEY_MISSING")  # in no year up to 9999
    codes = databus.changes(decoded, source, keys=["at"]).select("reject.error_code").collect()
    assert [row["error_code"] for row in codes] == ["KEY_MISSING"] * 2
