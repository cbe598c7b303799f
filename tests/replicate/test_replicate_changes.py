"""`changes`: what each data message says about its entity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import complete_moves, merge, rejects, replicate
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.model.changes import CHANGE_SCHEMA
from cdckit.model.records import RECORD_COLUMNS
from cdckit.replicate.envelopes import PLAIN_START
from support.replicate_messages import NOON, Version, header_values, json_envelope, numbered, record, sequence
from support.replicate_readings import read

TEXT = ["null", "string"]
ITEMS = Version({"a": "int", "b": "string", "price": ["null", "int"], "note": TEXT}, keys=("a", "b"))
ROW = {"a": 1, "b": "x", "price": 5, "note": "n"}
OTHER_A, OTHER_B = ROW | {"a": 2}, ROW | {"b": "y"}
NO_KEY = Version({"a": ["null", "int"], "b": TEXT}, keys=(), table="LOOSE")


def dt(operation: str, data: Any, before: Any = None, count: int = 1, **headers: Any) -> bytes:
    return ITEMS.dt(
        operation, data, before, **{"changeSequence": sequence("20240101100000", count), **headers}
    )


MESSAGES = {
    "insert": dt("INSERT", ROW, count=11),
    "partial update": dt("UPDATE", ROW | {"note": None}, count=12, columnMask=b"\x0b"),
    "update with the row before": dt("UPDATE", ROW | {"price": 6}, ROW, count=13),
    "refresh without a sequence": dt("REFRESH", ROW, changeSequence=""),
    "delete, row in data": dt("DELETE", ROW, count=15),
    "delete, row in beforeData": dt("DELETE", None, ROW, count=16, columnMask=b"\x03"),
    "another key": dt("UPDATE", OTHER_A | {"note": None}, ROW, count=17, columnMask=b"\x07"),
    "another second key": dt("UPDATE", OTHER_B, ROW, count=18),
    "an insert with a row before": dt("INSERT", OTHER_A, ROW, count=19),
    "a delete with another row before": dt("DELETE", OTHER_A, ROW, count=20),
    "an operation that is none": ITEMS.dt("INSERT", ROW)[:-1],
    "a mask without a key": dt("UPDATE", ROW, count=21, columnMask=b"\x05"),
    "another key, the old one unsaid": dt("UPDATE", OTHER_A, count=22, changeMask=b"\x01"),
    "no other key, the row before unsaid": dt("UPDATE", ROW, count=23, changeMask=b"\x0c"),
    "an insert of new values": dt("INSERT", OTHER_B, count=24, changeMask=b"\x0f"),
    "another key, a note unsaid": dt(
        "UPDATE", OTHER_A | {"note": None}, ROW | {"note": None}, count=25, columnMask=b"\x07"
    ),
}
# The insert is delivered once more, elsewhere and later.
AGAIN = record(MESSAGES["insert"], 500, topic="again", partition=3, timestamp=NOON + timedelta(days=1))
IN_JSON = json_envelope(
    "DT",
    {
        "data": {"a": "1", "b": "x", "note": None},
        "headers": header_values("UPDATE", changeSequence=None, timestamp="2024-01-01T10:00:01"),
    },
)
MOVED_IN_JSON = json_envelope(
    "DT",
    {
        "data": {"a": "2", "b": "x"},
        "beforeData": {"b": "x", "note": "w"},
        "headers": header_values("UPDATE", changeMask="09"),
    },
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """The rows of all messages, computed."""
    told = numbered([ITEMS.md(), NO_KEY.md(), *MESSAGES.values()])
    in_json = [record(value, 600 + at, topic="in json") for at, value in enumerate((IN_JSON, MOVED_IN_JSON))]
    reading = read(spark, [*told, AGAIN, *in_json])
    made = reading.rows(json_topics=["in json"])
    return spark.createDataFrame(made.collect(), made.schema)


@pytest.fixture(scope="module")
def told(rows: DataFrame) -> dict[int, list[dict[str, Any]]]:
    """The changes by the offset of their message, in the order of their record numbers."""
    found: dict[int, list[dict[str, Any]]] = {}
    made = replicate.changes(rows, keys=["a", "b"]).orderBy("arrival.offset", "arrival.record_number")
    for row in made.collect():
        found.setdefault(row["arrival"]["offset"], []).append(row.asDict(recursive=True))
    return found


def offset(name: str) -> int:
    return 2 + list(MESSAGES).index(name)


def carried(change: dict[str, Any]) -> list[str]:
    assert set(change["carried"].values()) <= {True, False}
    return [name for name, sent in change["carried"].items() if sent]


def test_the_columns_are_those_of_a_table_of_changes(rows: DataFrame) -> None:
    made = replicate.changes(rows, keys=["a", "b"]).schema
    assert made.fieldNames() == [
        *CHANGE_SCHEMA.fieldNames(),
        "snapshot",
        "moved",
        "data",
        "carried",
        "reject",
    ]
    for field in CHANGE_SCHEMA:
        assert made[field.name].dataType.simpleString() == field.dataType.simpleString()
    assert made["data"].dataType.simpleString() == "struct<a:int,b:string,price:int,note:string>"
    assert made["carried"].dataType.simpleString() == "struct<a:boolean,b:boolean,price:boolean,note:boolean>"


def test_a_change_to_the_letter(told: dict[int, list[dict[str, Any]]]) -> None:
    assert told[offset("partial update")] == [
        {
            "operation": "upsert",
            "effective_timestamp": datetime(2024, 1, 1, 10),
            "sequence": "20240101100000000000000000000000012",
            "arrival": {
                "timestamp": datetime(2024, 1, 1, 12, 0, 3),
                "topic": "items",
                "partition": 0,
                "offset": 3,
                "record_number": 1,
            },
            "message_id": "db1/shop_task:20240101100000000000000000000000012",
            "source": "db1/shop_task",
            "priority": 0,
            "snapshot": False,
            "moved": None,
            "data": {"a": 1, "b": "x", "price": 5, "note": None},
            "carried": {"a": True, "b": True, "price": False, "note": True},
            "reject": None,
        }
    ]


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("insert", ["upsert"]),
        ("partial update", ["upsert"]),
        ("update with the row before", ["upsert"]),
        ("refresh without a sequence", ["upsert"]),
        ("delete, row in data", ["delete"]),
        ("delete, row in beforeData", ["delete"]),
        ("another key", ["delete", "upsert"]),
        ("another second key", ["delete", "upsert"]),
        ("an insert with a row before", ["upsert"]),
        ("a delete with another row before", ["delete"]),
        ("no other key, the row before unsaid", ["upsert"]),
        ("an insert of new values", ["upsert"]),
        ("another key, a note unsaid", ["delete", "upsert"]),
    ],
)
def test_operations(told: dict[int, list[dict[str, Any]]], name: str, operations: list[str]) -> None:
    found = told[offset(name)]
    assert [change["operation"] for change in found] == operations
    assert [change["arrival"]["record_number"] for change in found] == list(range(1, len(operations) + 1))


def test_an_update_of_the_key_is_a_delete_of_the_old_and_an_upsert_of_the_new(
    told: dict[int, list[dict[str, Any]]],
) -> None:
    leaving, coming = told[offset("another key")]
    assert (leaving["data"], coming["data"]) == (ROW, OTHER_A)
    assert leaving["message_id"] == coming["message_id"]
    # The mask leaves the note out; under the new key it is what the row before says.
    assert carried(coming) == ["a", "b", "price", "note"]
    (partial,) = told[offset("partial update")]
    assert carried(partial) == ["a", "b", "note"]
    leaving, coming = told[offset("another second key")]
    assert (leaving["data"], coming["data"]) == (ROW, OTHER_B)
    assert leaving["moved"] == coming["moved"]
    assert coming["moved"]["old_key"] == {"a": 1, "b": "x"}
    assert coming["moved"]["new_key"] == {"a": 1, "b": "y"}
    # What neither row says is taken along from the old key.
    leaving, coming = told[offset("another key, a note unsaid")]
    assert carried(coming) == ["a", "b", "price"]
    assert coming["moved"] == {
        "id": "db1/shop_task:20240101100000000000000000000000025",
        "old_key": {"a": 1, "b": "x"},
        "new_key": {"a": 2, "b": "x"},
    }


def test_what_was_sent_is_what_is_carried(told: dict[int, list[dict[str, Any]]]) -> None:
    (deleted,) = told[offset("delete, row in beforeData")]
    assert deleted["data"] == ROW
    assert carried(deleted) == ["a", "b"]
    (inserted,) = told[offset("insert")]
    assert carried(inserted) == ["a", "b", "price", "note"]
    (from_json,) = told[600]
    assert carried(from_json) == ["a", "b", "note"]


def test_rows_in_error_are_rejects(told: dict[int, list[dict[str, Any]]]) -> None:
    """
    They are rejects among the changes; of a record without an operation there is no row.

    An update that marks a column of the key says what it was: all of it, with or without a row before.
    """
    rejected = {at: row["reject"] for at, rows in told.items() for row in rows if row["reject"] is not None}
    codes = {at: reject["error_code"] for at, reject in rejected.items()}
    unsaid = "another key, the old one unsaid"
    missing = {offset(unsaid): "OLD_KEY_MISSING", 601: "OLD_KEY_MISSING"}
    assert codes == {offset("a mask without a key"): "KEY_MISSING", **missing}
    assert rejected[offset(unsaid)]["value"] == MESSAGES[unsaid]
    assert rejected[601]["value"] == MOVED_IN_JSON
    assert offset("an operation that is none") not in told
    assert all(reject["offset"] == at for at, reject in rejected.items())
    assert len(told) == len(MESSAGES) - 1 + 3


def test_a_message_that_is_delivered_twice_is_one_message(told: dict[int, list[dict[str, Any]]]) -> None:
    (once,), (again,) = told[offset("insert")], told[500]
    assert once["message_id"] == again["message_id"] == "db1/shop_task:20240101100000000000000000000000011"
    assert again["arrival"] == {
        "timestamp": datetime(2024, 1, 2, 12),
        "topic": "again",
        "partition": 3,
        "offset": 500,
        "record_number": 1,
    }
    assert {**once, "arrival": None} == {**again, "arrival": None}


def test_without_a_sequence_a_message_is_known_by_its_place(told: dict[int, list[dict[str, Any]]]) -> None:
    """And by the time of its record: another topic of the name counts its offsets from 0, too."""
    for topic, at in (("items", offset("refresh without a sequence")), ("in json", 600)):
        [loaded] = told[at]
        micros = (NOON - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) + at * 1_000_000
        assert loaded["message_id"] == f"db1/shop_task:{topic}/0/{micros}/{at}"
        assert loaded["sequence"] == ""


def test_the_source_may_have_another_name_and_the_message_keeps_its_own(rows: DataFrame) -> None:
    made = replicate.changes(rows, keys=["a"], source="the shop").where("arrival.offset = 2").collect()
    assert [(row["source"], row["message_id"][:14]) for row in made] == [("the shop", "db1/shop_task:")]


def test_the_caller_chooses_the_keys(rows: DataFrame) -> None:
    """By `b` alone an update of `a` moves nothing."""
    made = replicate.changes(rows, keys=["b"])
    moved = made.where("arrival.record_number = 2").select("arrival.offset").collect()
    assert [row["offset"] for row in moved] == [offset("another second key")]


def test_a_key_that_becomes_null_or_was_null_is_another_key(spark: SparkSession) -> None:
    row, nothing = {"a": 1, "b": "x"}, {"a": None, "b": "x"}
    messages = [NO_KEY.dt("UPDATE", *pair) for pair in ((nothing, row), (row, nothing), (nothing, nothing))]
    reading = read(spark, numbered([NO_KEY.md(), *messages]))
    made = replicate.changes(reading.rows("LOOSE"), keys=["a"]).orderBy(
        "arrival.offset", "arrival.record_number"
    )
    found = [(row["arrival"]["offset"], row["operation"], row["data"]["a"]) for row in made.collect()]
    assert found == [
        (1, "delete", 1),
        (1, "upsert", None),
        (2, "delete", None),
        (2, "upsert", 1),
        (3, "upsert", None),
    ]


def test_changes_of_a_redelivered_stream_merge_to_the_same_history(rows: DataFrame) -> None:
    """Delivered twice, at other places, the messages that name themselves add nothing."""
    named = rows.where("change_sequence <> ''")
    elsewhere = named.withColumns(
        {"offset": F.col("offset") + 1000, "timestamp": F.col("timestamp") + F.expr("interval 1 hour")}
    )
    twice = replicate.changes(named.unionByName(elsewhere), keys=["a", "b"])
    histories = [
        sorted(merge(complete_moves(each), entity="item", keys=["a", "b"]).collect(), key=repr)
        for each in (replicate.changes(named, keys=["a", "b"]), twice)
    ]
    assert histories[0] == histories[1]
    assert len(histories[0]) > 2


def test_table_changes_are_those_of_the_single_steps(spark: SparkSession) -> None:
    """Metadata, data of the table and of another one, in any order, in one set of records."""
    other = NO_KEY.dt("INSERT", {"a": 1, "b": None})
    told = [*MESSAGES.values(), other, NO_KEY.md(), ITEMS.md(), b"?", PLAIN_START + b"abc", other[:-1]]
    reading = read(spark, numbered(told))
    steps = replicate.changes(reading.rows(), keys=["a", "b"])
    made = replicate.table_changes(reading.records, task="shop_task", table="ITEMS")
    no_envelope = {row["offset"] for row in rejects(replicate.decode(reading.records)).collect()}
    of_table = made.where(~F.col("arrival.offset").isin(*no_envelope))
    assert sorted(map(repr, of_table.collect())) == sorted(map(repr, steps.collect()))
    assert {row["offset"] for row in rejects(made).collect()} > no_envelope
    assert no_envelope >= {len(told) - 3, len(told) - 2, len(told) - 1}
    assert steps.count() > 10


def test_table_changes_need_a_table_that_is_known_and_has_a_key(spark: SparkSession) -> None:
    records = read(spark, numbered([ITEMS.md(), NO_KEY.md()])).records
    near = r"knows; near it are db1/shop_task SHOP.ITEMS, db1/shop_task SHOP.LOOSE; it is 'ITEM'"
    with pytest.raises(InvalidArgument, match=near):
        replicate.table_changes(records, task="shop_task", table="ITEM")
    with pytest.raises(InvalidArgument, match="a table with a key"):
        replicate.table_changes(records, task="shop_task", table="LOOSE")


# --- callers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [[], "a", ["a", "c"], ("A",)])
def test_keys_that_are_no_columns_are_refused_at_the_call(rows: DataFrame, keys: Any) -> None:
    with pytest.raises(
        InvalidArgument,
        match=r"changes\(\) needs keys to be a list of distinct fields among a, b, price, note; it is",
    ):
        replicate.changes(rows, keys=keys)


def test_what_are_no_rows_is_refused_at_the_call(rows: DataFrame) -> None:
    with pytest.raises(
        MissingColumns, match=r"changes\(\) needs the columns task, sent; the DataFrame has key"
    ):
        replicate.changes(rows.drop("sent", "task"), keys=["a"])
    with pytest.raises(WrongColumnType, match=r"changes\(\) needs the column data as a struct; it is int"):
        replicate.changes(rows.withColumn("data", F.lit(1)), keys=["a"])


def test_the_rows_have_the_columns_that_are_promised(spark: SparkSession) -> None:
    made = read(spark, numbered([ITEMS.md()])).rows().schema
    assert made.fieldNames() == [
        *RECORD_COLUMNS,
        *("schema_id", "server", "task", "schema", "table", "table_version", "key_columns", "absent_columns"),
        *("operation", "change_sequence", "change_timestamp", "time_taken_from", "stream_position"),
        *("transaction_id", "transaction_event_counter", "transaction_last_event"),
        *("data", "before", "sent", "changed", "error_code", "error_description"),
    ]
    row = "struct<a:int,b:string,price:int,note:string>"
    types = {field.name: field.dataType.simpleString() for field in made}
    assert (types["data"], types["before"]) == (row, row)
    assert (types["table_version"], types["key_columns"]) == ("int", "array<string>")
    assert (types["change_timestamp"], types["transaction_last_event"]) == ("timestamp", "boolean")
