"""Any table of rows becomes changes: what a null, an order, a time, a delete and a truncate mean."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import Ledger, as_known, changes_from, changes_from_snapshots, merge, rejects, union_changes
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.changes import require_changes
from cdckit.model.rejected_records import drop_rejects
from cdckit.tables import UnfitTable, table_rows
from cdckit.tables.times import TypedColumn, order_text
from support.change_logs import DAY, KETTLE, Row, at, log, refused, versions, way
from tools.tiers import seeds


def test_the_rows_are_a_table_of_changes(spark: SparkSession) -> None:
    said = changes_from(KETTLE, keys=["id"], sequence_by="at", source="shop", priority=3)
    require_changes(said)
    first = said.orderBy("effective_timestamp").toArrow().to_pylist()[0]
    assert (first["source"], first["priority"], first["operation"]) == ("shop", 3, "upsert")
    assert first["arrival"] == {
        "timestamp": DAY[0], "topic": "table", "partition": 0, "offset": 1, "record_number": 1,
    }  # fmt: skip
    assert first["data"] == {"id": 1, "op": "I", "name": "kettle", "price": 20, "at": DAY[0]}


def test_a_delete_is_what_the_condition_says_and_null_is_none(spark: SparkSession) -> None:
    frame = log((1, 1, "I", "kettle", 20), (1, 2, None, "teapot", 20), (1, 3, "D", None, None))
    listed = ["name", F.col("price")]
    by_text, by_column = (
        changes_from(
            frame, keys=[F.col("id")], sequence_by=F.col("at"), apply_as_deletes=condition, column_list=listed
        )
        for condition in ("op = 'D'", F.col("op") == "D")
    )
    assert versions(by_text, "name", "price") == [
        *((1, 1, False, "kettle", 20), (1, 2, False, "teapot", 20), (1, 3, True, None, None)),
    ]
    operations = [changes.select("arrival.offset", "operation") for changes in (by_text, by_column)]
    assert sorted(operations[0].collect()) == sorted(operations[1].collect())


def test_fields_are_the_keys_and_what_is_listed_or_left(spark: SparkSession) -> None:
    def fields(**options: Any) -> list[str]:
        return changes_from(KETTLE, keys=["id"], sequence_by="at", **options).schema["data"].dataType.names

    assert fields() == ["id", "op", "name", "price", "at"]
    assert fields(column_list=["price"]) == ["id", "price"]
    assert fields(except_column_list=["op", "at"]) == ["id", "name", "price"]


def test_a_table_that_is_read_otherwise_says_something_else(spark: SparkSession) -> None:
    """With other columns, or with the deletes that were forgotten; read as before it is no news."""
    rows = pd.DataFrame({"id": [1, 2], "op": ["I", "D"], "name": ["mug", "cup"], "price": [5, 7]}).assign(
        at=DAY[0]
    )

    frame = spark.createDataFrame(rows)

    def read(**options: Any) -> DataFrame:
        return changes_from(frame, keys=["id"], sequence_by="at", **options)

    names, prices = (read(column_list=[name]).localCheckpoint() for name in ("name", "price"))
    forgotten, told = (
        read(except_column_list=["op", "at"], **more).localCheckpoint()
        for more in ({}, {"apply_as_deletes": "op = 'D'"})
    )
    assert versions(union_changes(names, prices, names), "name", "price") == [
        *((1, 1, False, "mug", 5), (2, 1, False, "cup", 7)),
    ]
    assert versions(union_changes(forgotten, told), "name", "price") == [
        *((1, 1, False, "mug", 5), (2, 1, True, None, None)),
    ]
    ids = [row[0] for said in (forgotten, told) for row in said.select("message_id").collect()]
    assert len(set(ids)) == 3


# Order --------------------------------------------------------------------------------------------------


def sequences(frame: DataFrame, sequence_by: Any) -> list[str]:
    """The column `n` in the order of the sequence."""
    said = changes_from(frame, keys=["n"], sequence_by=sequence_by, effective=DAY[0])
    rows = said.select("data.n", F.encode("sequence", "utf-8").alias("bytes")).toArrow().to_pylist()
    return [row["n"] for row in sorted(rows, key=lambda row: row["bytes"])]


RISING = {
    "bigint": [None, -(2**63), -10, -9, 0, 9, 10, 2**63 - 1],
    "decimal(6,3)": [
        None,
        *map(Decimal, ("-2", "-1.999", "-1.5", "-0.001", "0", "0.05", "0.5", "9.5", "10")),
    ],
    "decimal(38,10)": [
        None,
        *map(Decimal, ("-1.0000000001", "1.0000000001", "1.0000000002", "5.2", "5.9999999999")),
    ],
    "decimal(38,0)": [None, Decimal(-(10**37)), Decimal(9), Decimal(10), Decimal(10**37)],
    "timestamp": [None, datetime(1700, 1, 1, tzinfo=UTC), DAY[0], DAY[0] + timedelta(microseconds=1), DAY[1]],
    "timestamp_ntz": [None, datetime(1969, 12, 31, 23), datetime(2024, 1, 1), datetime(2024, 1, 1, 9)],
    "date": [None, date(1960, 1, 1), date(2024, 1, 9), date(2024, 1, 10)],
    "string": [
        None,
        "",
        "\0",
        "\0\0",
        "\0a",
        " ",
        "!",
        "10",
        "9",
        "a",
        "a\0",
        "a\0b",
        "aa",
        "\u00e9",
        "\uffff",
    ],
    "boolean": [None, False, True],
    "binary": [None, b"", b"\0", b"\0\1", b"\1", b"\xff"],
}


def test_a_sequence_sorts_as_the_values_do(spark: SparkSession) -> None:
    """Null first, then by value: 9 before 10, and texts by their bytes; here by the rule itself."""
    many = max(map(len, RISING.values()))
    columns = [[*rising, *[None] * (many - len(rising))] for rising in RISING.values()]
    names = ", ".join(f"`{kind}` {kind}" for kind in RISING)
    frame = spark.createDataFrame(list(zip(range(many), *columns, strict=True)), f"n int, {names}")
    kinds = {kind: TypedColumn(F.col(f"`{kind}`"), frame.schema[kind].dataType) for kind in RISING}
    # By falling numbers: two texts that are equal would be found in that order.
    falling = TypedColumn(-F.col("n"), T.IntegerType())
    alone = [order_text([value]) for value in kinds.values()]
    beside = [order_text([value, falling]) for value in kinds.values()]
    rows = frame.orderBy("n").select(*(F.encode(text, "utf-8") for text in (*alone, *beside))).toArrow()
    for place, (kind, rising) in enumerate(RISING.items()):
        texts, several = (rows[at].to_pylist()[: len(rising)] for at in (place, place + len(RISING)))
        # Of one text alone nothing tells null from the empty one: both are no sequence.
        known = texts if kind not in ("string", "binary") else texts[1:]
        assert (kind, known) == (kind, sorted({*known}))
        assert (kind, several) == (kind, sorted({*several}))


def test_numbers_of_a_table_are_in_the_order_of_their_values(spark: SparkSession) -> None:
    """As `changes_from` writes the sequence, of a column by itself and beside another one."""
    rising = RISING["bigint"]
    frame = spark.createDataFrame(list(enumerate(rising))[::-1], "n int, value bigint")
    for sequence in ("value", ["value", "-n"]):
        assert sequences(frame, sequence) == list(range(len(rising)))


TIMES_AS_TEXTS = [
    "2024-02-29",
    "2024-03-01",  # a day alone stands before its midnight
    "2024-03-01 00:00",
    "2024-03-01T09:30:00+02:00",
    "2024-03-01T08:00:00Z",
    "2024-03-01T08:00:00.25Z",
    "2024-03-01 08:00:00.5",
    "2024-03-01T10:00:00.5000001+02:00",
    "2024-03-01T08:00:00.500001",
    " 2024-03-01T07:00:01-01:00",
    "2024-03-02T00:30:00+01:00",
    " 2024-03-02 ",
    "2024-03-02 00:00:00Z",
    "24:30",
    "9:30",
    "later",
]


def test_texts_that_are_times_sort_by_their_instants(spark: SparkSession) -> None:
    """Whatever their zone, digits, form and blanks; other texts stand among them by their bytes."""
    frame = pd.DataFrame(list(enumerate(TIMES_AS_TEXTS))[::-1], columns=["n", "at"])
    frame["falling"] = -frame["n"]
    in_order = list(range(len(TIMES_AS_TEXTS)))
    assert sequences(frame, "at") == sequences(frame, ["at", "falling"]) == in_order
    for sequence in ("at", F.struct("at", "falling")):
        assert sequences(spark.createDataFrame(frame), sequence) == in_order
    # Several texts of one instant are one place, so the next part counts.
    one = pd.DataFrame({"at": ["2024-03-01T08:00:00Z", "2024-03-01 08:00", "2024-03-01T10:00:00.00+02:00"]})
    assert sequences(one.assign(n=[0, 1, 2], x=[3, 2, 1]), ["at", "x"]) == [2, 1, 0]


def test_the_last_word_is_the_last_that_came(spark: SparkSession) -> None:
    """By texts of several zones `merge` and `as_known` agree: half past nine at +02:00 is before eight."""
    rows = [(1, "eight", "2024-03-01T08:00:00Z"), (1, "half past seven", "2024-03-01T09:30:00+02:00")]
    frame = pd.DataFrame(rows, columns=["id", "name", "at"])
    for table in (frame, spark.createDataFrame(frame)):
        said = changes_from(table, keys=["id"], effective=DAY[0], sequence_by="at", column_list=["name"])
        assert versions(said, "name") == [(1, 1, False, "eight")]
        known = as_known(said, datetime(2024, 3, 1, 7, 45, tzinfo=UTC), entity="product", keys=["id"])
        assert [row["name"] for row in known.collect()] == ["half past seven"]


def test_several_parts_sort_one_after_the_other(spark: SparkSession) -> None:
    """The second part counts only where the first is equal, whatever it holds; a struct likewise."""
    pairs = [(text, number) for text in RISING["string"] for number in (None, -1, 2, 10)]
    frame = spark.createDataFrame([(n, *pair) for n, pair in enumerate(pairs)], "n int, text string, x int")
    in_order = list(range(len(pairs)))
    assert sequences(frame, ["text", "x"]) == in_order
    assert sequences(frame, F.struct("text", "x")) == in_order
    assert sequences(frame, [F.struct("text"), "x + 1"]) == in_order


def test_rows_of_spark_have_no_order_and_one_answer(spark: SparkSession) -> None:
    rows = [(1, "kettle"), (1, "teapot"), (1, "mug")]
    answers = [
        versions(changes_from(spark.createDataFrame(some, "id int, name string"), keys=["id"]), "name")
        for some in (rows, rows[::-1], [*rows, *rows])
    ]
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == 1


def test_equal_rows_are_one_message_and_others_are_not(spark: SparkSession) -> None:
    """Read again, a table says nothing new; a row of another table at the same place is another message."""
    said = changes_from(KETTLE, keys=["id"], sequence_by="at")
    again = changes_from(pd.concat([KETTLE[1:], KETTLE]), keys=["id"], sequence_by="at")
    ids = {row["message_id"] for row in said.collect()}
    assert len(ids) == 3
    assert {row["message_id"] for row in again.collect()} == ids
    first, second = (pd.DataFrame({"id": [1], "name": [name]}) for name in ("kettle", "teapot"))
    days = union_changes(
        changes_from(first, keys=["id"], effective=DAY[0]),
        changes_from(second, keys=["id"], effective=DAY[1]),
        changes_from(first, keys=["id"], effective=DAY[2]),
    )
    assert versions(days, "name") == [
        (1, 1, False, "kettle"),
        (1, 2, False, "teapot"),
        (1, 3, False, "kettle"),
    ]


def test_a_message_may_say_several_things_of_one_entity(spark: SparkSession) -> None:
    """Its rows that differ all count, in their order; equal ones are one; without an id it is the digest."""
    frame = log((1, 1, "I", "kettle", 20), (1, 2, "U", "teapot", 20), (1, 2, "U", "teapot", 20))
    frame["m"] = ["batch 1", "batch 1", "batch 1"]
    said = changes_from(frame, keys=["id"], sequence_by="at", message="m", column_list=["name"])
    assert versions(said, "name", "source_message") == [
        *((1, 1, False, "kettle", "batch 1"), (1, 2, False, "teapot", "batch 1")),
    ]
    assert len({(row["message_id"], row["arrival"]["record_number"]) for row in said.collect()}) == 2
    frame["m"] = [None, "batch 1", None]
    some = changes_from(frame, keys=["id"], sequence_by="at", message="m").collect()
    assert sorted(len(row["message_id"]) for row in some) == [7, len("table-") + 32, len("table-") + 32]


# Times --------------------------------------------------------------------------------------------------


INSTANTS = [
    ("cast('2024-03-10 02:30:00' as timestamp_ntz)", datetime(2024, 3, 10, 2, 30, tzinfo=UTC)),
    ("date'2024-03-10'", datetime(2024, 3, 10, tzinfo=UTC)),
    ("'2024-03-10'", datetime(2024, 3, 10, tzinfo=UTC)),
    ("' 2024-03-10T02:30 '", datetime(2024, 3, 10, 2, 30, tzinfo=UTC)),
    ("'2024-03-10 02:30:00.1234567'", datetime(2024, 3, 10, 2, 30, 0, 123456, tzinfo=UTC)),
    ("'2024-03-10T02:30:00+02:00'", datetime(2024, 3, 10, 0, 30, tzinfo=UTC)),
    ("timestamp'2024-03-10 02:30:00Z'", datetime(2024, 3, 10, 2, 30, tzinfo=UTC)),
]


@pytest.mark.usefixtures("in_new_york")
def test_a_time_without_a_zone_is_of_utc(spark: SparkSession) -> None:
    """Whatever the zone of the session is, also in the hour that New York leaves out in spring."""
    one = spark.range(1)
    said = [
        changes_from(one, keys=["id"], effective=text).select(
            F.lit(text).alias("text"), "effective_timestamp"
        )
        for text, _ in INSTANTS
    ]
    found = reduce(DataFrame.unionAll, said).toArrow().to_pylist()
    assert [(text, at.astimezone(UTC)) for text, at in map(dict.values, found)] == INSTANTS
    naive = pd.DataFrame({"id": [1], "at": pd.to_datetime(["2024-03-10 02:30:00"])})
    said = changes_from(naive, keys=["id"], sequence_by="at").toArrow().to_pylist()
    assert said[0]["effective_timestamp"].astimezone(UTC) == datetime(2024, 3, 10, 2, 30, tzinfo=UTC)


def test_rows_of_a_csv_that_cannot_be_read_are_rejects(spark: SparkSession, tmp_path: Path) -> None:
    """Each with a code and the row as it came; the others are changes, whatever is asked of them."""
    lines = [
        *("id,name,price,at", "1,kettle,20,2024-01-01", "2,mug,many,2024-01-02", ",jug,5,2024-01-03"),
        *("4,pan,6,03/04/2024", "5,pot,7,", '6,"cut', "7,lid,1,2024-01-05,more", "1,,25,2024-01-04"),
    ]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    schema = "id int, name string, price int, at string, _corrupt_record string"
    csv = spark.read.schema(schema).csv(str(tmp_path / "log.csv"), header=True)
    how: Row = {"keys": ["id"], "effective": "at", "column_list": ["name", "price"]}
    told = changes_from(csv, **how)
    assert told.schema["data"].dataType.names == ["id", "name", "price"]
    assert versions(told, "name", "price") == [(1, 1, False, "kettle", 20), (1, 4, False, "kettle", 25)]
    # A row is corrupt by what stands in any column, and not by what a question reads.
    assert drop_rejects(told).count() == drop_rejects(told).select("data.id").count() == 2
    assert rejects(told).count() == 6
    assert refused(csv, **how) == [
        ("KEY_MISSING", '{"name":"jug","price":5,"at":"2024-01-03"}'),
        *(("ROW_UNREADABLE", lines[number]) for number in (2, 6, 7)),
        ("TIME_MISSING", '{"id":5,"name":"pot","price":7}'),
        ("TIME_UNREADABLE", '{"id":4,"name":"pan","price":6,"at":"03/04/2024"}'),
    ]


def test_what_could_not_be_read_may_be_bytes(spark: SparkSession) -> None:
    """They are kept as they came, such as those of a message that is no text."""
    rows = [(1, "2024-01-01", None), (1, "2024-01-02", b"\xff{"), (1, "2024-01-03", b""), (None, None, b"x")]
    table = spark.createDataFrame(rows, "id int, at string, _corrupt_record binary")
    how: Row = {"keys": ["id"], "effective": "at", "source": "shop"}
    told = changes_from(table, **how)
    assert told.schema["data"].dataType.names == ["id", "at"]
    assert versions(told, "at") == [(1, 1, False, "2024-01-01")]
    unread = rejects(told).collect()
    assert {row["error_code"] for row in unread} == {"ROW_UNREADABLE"}
    assert sorted(bytes(row["value"]) for row in unread) == [b"", b"x", b"\xff{"]


def test_of_a_table_that_is_at_hand_it_is_told_that_rows_are_left_out(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """One of Spark is read by nobody before it is asked for."""
    frame = pd.DataFrame({"id": [1, None, 3], "at": ["2024-01-01", "2024-01-01", "1.1.2024"]})
    how: Row = {"keys": ["id"], "effective": "at"}
    sound = frame[:1].convert_dtypes()
    changes_from(sound, **how)
    changes_from(spark.createDataFrame([(None, "x")], "id int, at string"), **how)
    assert not caplog.messages
    changes_from(frame.convert_dtypes(), **how)
    (told,) = caplog.messages
    first, key, time = told.splitlines()
    assert first.startswith("changes_from() cannot use 2 rows; cdckit.rejects(…) of the changes shows them")
    assert key.startswith("1 KEY_MISSING: All key columns of the row are null")
    assert time.startswith("1 TIME_UNREADABLE: The row says when it is true in a way that is not known.")
    assert "effective=\"try_to_timestamp(at, 'd.M.yyyy')\"" in time


@pytest.mark.usefixtures("in_new_york")
def test_it_is_told_that_an_expression_reads_times_of_another_zone(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """What is a column, a date or a number has no zone to be read in."""
    days = spark.createDataFrame([(1, "10.3.2024", DAY[0])], "id int, day string, at timestamp")
    for text in ("at", "to_date(day, 'd.M.yyyy')", "timestamp_seconds(id)", F.col("at")):
        changes_from(days, keys=["id"], effective=text)
    assert not caplog.messages
    changes_from(days, keys=["id"], effective="try_to_timestamp(day, 'd.M.yyyy')")
    assert caplog.messages == [
        "changes_from(): effective reads texts without a zone as of the session, America/New_York; cdckit "
        "takes others as of UTC. spark.conf.set('spark.sql.session.timeZone', 'UTC') makes them one"
    ]


def test_of_a_table_that_is_at_hand_it_is_told_that_nobody_knows_when_a_row_came(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """9:15 has one digit: 'HH' does not read it, and null stands for the hour."""
    frame = pd.DataFrame({"id": [1, 2], "since": DAY[0], "at": ["5.1.2024 9:15", "5.1.2024 10:15"]})
    how: Row = {"keys": ["id"], "effective": "since"}
    changes_from(frame, sequence_by="try_to_timestamp(at, 'd.M.yyyy H:mm')", **how)
    changes_from(frame, sequence_by="id", **how)
    assert not caplog.messages
    changes_from(frame, sequence_by="try_to_timestamp(at, 'd.M.yyyy HH:mm')", **how)
    assert caplog.messages == [
        "changes_from(): 1 row without a time in sequence_by, known as if from the beginning"
    ]


def test_a_row_is_a_change_or_a_reject_and_never_both(spark: SparkSession) -> None:
    """In pandas with its number; without a key, or a time, in each of the ways to have none."""
    frame = pd.DataFrame(
        {
            "id": pd.array([1, None, 3, None, 5], "Int64"),
            "part": ["a", None, None, "b", "c"],
            "at": ["2024-01-01", "2024-01-01", "2024-02-30", None, " "],
        }
    )
    rows = table_rows(frame, keys=["id", "part"], effective="at").toArrow().to_pylist()
    codes = {row["offset"]: row["error_code"] for row in rows}
    missing = "TIME_MISSING"
    assert codes == {1: None, 2: "KEY_MISSING", 3: "TIME_UNREADABLE", 4: missing, 5: missing}
    assert {row["topic"] for row in rows} == {"table"}
    sentences = {row["offset"]: row["error_description"] for row in rows}
    assert sentences[1] is None
    assert sentences[2].endswith("it is about no entity. The keys are id, part.")
    assert sentences[4].endswith("at is null.")
    assert sentences[5].endswith("at is empty.")
    made = changes_from(frame, keys=["id", "part"], effective="at")
    assert [row["arrival"]["offset"] for row in drop_rejects(made).collect()] == [1]
    assert refused(frame.drop(columns="at"), keys=["id"], apply_as_truncates="part = 'b'") == [
        ("KEY_MISSING", "{}")
    ]
    # Of the time that a table is sequenced by: its type says that none is unreadable.
    gone = spark.createDataFrame([(1, None), (2, DAY[0])], "id int, at timestamp")
    assert refused(gone, keys=["id"], sequence_by=["at", "id"]) == [(missing, '{"id":1}')]
    with pytest.raises(TypeError, match="key"):
        table_rows(frame, key=["id"])


def test_the_rejects_of_a_stream_are_a_stream(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    assert rejects(table_rows(stream, keys=["value"], sequence_by="timestamp")).isStreaming


# Truncates ----------------------------------------------------------------------------------------------


def truncated(frame: pd.DataFrame, **options: Any) -> DataFrame:
    settings: Row = {
        "apply_as_truncates": "op = 'T'",
        "apply_as_deletes": "op = 'D'",
        "column_list": ["name"],
    }
    return changes_from(frame, keys=["id"], sequence_by="at", **{**settings, **options})


def absences(changes: DataFrame) -> list[tuple[int, int]]:
    gone = changes.where("operation = 'absent'").select("data.id", F.dayofmonth("effective_timestamp"))
    return sorted(map(tuple, gone.collect()))


def test_a_truncate_ends_what_the_source_said_before_it(spark: SparkSession) -> None:
    """What is said again is there again; what was deleted before, and a second truncate, find nothing."""
    frame = log(
        *((1, 1, "I", "kettle", 1), (1, 2, "U", "teapot", 1), (2, 1, "I", "mug", 1), (3, 1, "I", "jug", 1)),
        *((3, 2, "D", None, None), (None, 3, "T", None, None), (None, 4, "T", None, None)),
        *((1, 5, "I", "kettle", 1), (4, 5, "I", "pan", 1), (None, 6, "T", None, None)),
    )
    said = truncated(frame).localCheckpoint()
    assert absences(said) == [(1, 3), (1, 6), (2, 3), (4, 6)]
    assert said.where("operation = 'absent' and data.name is not null or not carried.id").count() == 0
    assert versions(said, "name") == [
        *((1, 1, False, "kettle"), (1, 2, False, "teapot"), (1, 3, True, None)),
        *((1, 5, False, "kettle"), (1, 6, True, None)),
        *((2, 1, False, "mug"), (2, 3, True, None)),
        *((3, 1, False, "jug"), (3, 2, True, None)),
        *((4, 5, False, "pan"), (4, 6, True, None)),
    ]


def test_a_truncate_speaks_of_its_own_source(spark: SparkSession) -> None:
    frame = log((1, 1, "I", "kettle", 1), (2, 1, "I", "mug", 2), (9, 3, "T", None, 1), (9, 4, "T", None, 3))
    said = truncated(frame, source=F.concat(F.lit("shop "), "price"))
    assert absences(said) == [(1, 3)]
    ending = said.where("operation = 'absent'").collect()[0]
    assert (ending["source"], ending["arrival"]["record_number"]) == ("shop 1", 0)


def test_at_one_place_the_truncate_comes_first(spark: SparkSession) -> None:
    """In Spark's rows nothing but the sequence says what was first; in those of pandas the row does."""
    frame = log((1, 1, "I", "kettle", 1), (1, 3, "I", "teapot", 1), (None, 3, "T", None, None))
    assert versions(truncated(frame), "name")[-1] == (1, 3, True, None)
    of_spark = spark.createDataFrame(
        [(1, "I", "kettle", DAY[0]), (1, "I", "teapot", DAY[2]), (None, "T", None, DAY[2])],
        "id int, op string, name string, at timestamp",
    )
    assert versions(truncated(of_spark), "name") == [(1, 1, False, "kettle"), (1, 3, False, "teapot")]


# What is wrong ------------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_said_at_once(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "a", 2.5, DAY[0])], "id int, name string, price double, at timestamp")
    with pytest.raises(UnfitTable) as caught:
        changes_from(
            frame,
            keys=["ID", "price", "number"],
            sequence_by="change_time",
            apply_as_deletes="operation = 'D'",
            apply_as_truncates="name",
            ignore_null_updates=["nme"],
            column_list=["name", "colour"],
            message="concat(name, lsn",
            effective="id",
        )
    text = str(caught.value)
    for said in (
        *("keys names ID, which is no column (is it id?)", "keys names number, which is no column"),
        *("the key price is double", "sequence_by: change_time is no column", "operation is no column"),
        *("apply_as_truncates is string, and must be a condition", "ignore_null_updates names nme"),
        *("(is it name?)", "column_list names colour", "message: Spark cannot read", "effective is int"),
        "The table has id int, name string, price double, at timestamp.",
    ):
        assert said in text
    assert text.endswith("at timestamp.")


WAYS = {
    "31.12.2024": ["d.M.yyyy"],
    "1/31/2024 9:30": ["M/d/yyyy H:mm"],
    "31/1/2024 09:30:15": ["d/M/yyyy H:mm:ss"],
    "03/04/2024": ["d/M/yyyy", "M/d/yyyy"],
    "03-04-2024": ["d-M-yyyy", "M-d-yyyy"],
    "20240301": ["yyyyMMdd"],
    "10122012": ["ddMMyyyy", "MMddyyyy"],
    "2024030109": ["yyyyMMddHH", "seconds"],
    "20240301101112": ["yyyyMMddHHmmss"],
    "1709251200": ["seconds"],
    "1709251200123": ["millis"],
    "1709251200123456": ["micros"],
    "9:15 PM": [],
    "3/31/2024 9:15 PM": ["M/d/yyyy h:mm a"],
    "3/4/2024 9:15:00 am": ["d/M/yyyy h:mm:ss a", "M/d/yyyy h:mm:ss a"],
    "2024-03-01 09:00:00 Europe/Berlin": ["yyyy-M-d H:mm:ss VV"],
    "2024-03-01 09:00 UTC": ["yyyy-M-d H:mm VV"],
    "2024-03-01 09:00:00.123 +0200": ["yyyy-M-d H:mm:ss.SSSSSSSSS XX"],
    "1.3.2024 9:00:00+02:00": ["d.M.yyyy H:mm:ssXXX"],
    "2024-03-01 09:00 CST": [],  # of Chicago, of Shanghai or of Havana
    "2024-3-1 9:00": ["yyyy-M-d H:mm"],
    "2024/03/01": ["yyyy/M/d"],
    "31.12.24": [],
    "2024-02-30": [],
    "99.99.2024": [],
    "in June": [],
    "it's 1/2/2024": [],
}
"""By text, how a reject says that it can be read: all ways that there are, and none that fails."""


NO_DAYS = ("2024-02-30", "99.99.2024")


def test_a_time_that_cannot_be_read_is_told_with_all_ways_to_read_it(spark: SparkSession) -> None:
    """Column, value and row are named, and each advice works; what has two readings has both."""
    frame = spark.createDataFrame(list(enumerate(WAYS)), "id int, `changed on` string")
    found = rejects(table_rows(frame, keys=["id"], effective="changed on")).toArrow().to_pylist()
    sentences = {json.loads(row["value"])["changed on"]: row["error_description"] for row in found}
    assert {text: re.findall('effective="([^"]*)"', said) for text, said in sentences.items()} == {
        text: [way(how) for how in ways] for text, ways in WAYS.items()
    }
    for text, said in sentences.items():
        why = "and there is no such day" if text in NO_DAYS else "which is not ISO 8601"
        assert f"`changed on` is '{text}', {why}" in said
        assert ("which of them it is, the text does not say" in said) == (len(WAYS[text]) > 1)
    every = [(text, way(how)) for text, ways in WAYS.items() for how in ways]
    # One call for all of them: each row is read by the expression that was said of it.
    rows = [(number, text) for number, (text, _) in enumerate(every)]
    cases = " ".join(f"WHEN {number} THEN {said}" for number, (_, said) in enumerate(every))
    each_by_its_own = spark.createDataFrame(rows, frame.schema)
    read = changes_from(each_by_its_own, keys=["id"], effective=f"CASE id {cases} END")
    assert read.where("effective_timestamp is not null").count() == len(every)
    text, said = every[0]
    (alone,) = changes_from(frame.where(F.col("changed on") == text), keys=["id"], effective=said).collect()
    assert alone["data"]["changed on"] == "31.12.2024"


def test_a_column_of_several_forms_is_read_by_a_coalesce_of_them(spark: SparkSession) -> None:
    """As the docstring and the task page have it; `try_to_timestamp` without a form reads ISO 8601."""
    texts = ["1.3.2024", "3/31/2024", "2024-03-02 10:00:00", "none"]
    frame = spark.createDataFrame(list(enumerate(texts)), "id int, at string")
    forms = ("at, 'd.M.yyyy'", "at, 'M/d/yyyy'", "at")
    how: Row = {
        "keys": ["id"],
        "effective": f"coalesce({', '.join(f'try_to_timestamp({form})' for form in forms)})",
    }
    made = drop_rejects(changes_from(frame, **how)).orderBy("data.id").select("effective_timestamp").collect()
    assert [row[0] for row in made] == [
        datetime(2024, 3, 1),
        datetime(2024, 3, 31),
        datetime(2024, 3, 2, 10),
    ]
    assert refused(frame, **how) == [("TIME_UNREADABLE", '{"id":3,"at":"none"}')]


def test_what_an_expression_does_not_read_is_told_as_it_stands(spark: SparkSession) -> None:
    """Of several columns nobody knows which is meant; an end that an expression leaves out is open."""
    rows = [(1, "31.02.2024", "x"), (2, "1/2/2024", "x"), (3, " ", "x"), (4, None, None)]
    frame = spark.createDataFrame(rows, "id int, at string, till string")
    read = "try_to_timestamp(at, 'd.M.yyyy')"
    by_one = table_rows(frame, keys=["id"], effective=read).orderBy("data.id").collect()
    assert [row["error_code"] for row in by_one] == ["TIME_UNREADABLE"] * 2 + ["TIME_MISSING"] * 2
    told = [row["error_description"] for row in by_one]
    assert told[0].endswith("that is not known. at is '31.02.2024', and there is no such day.")
    assert "effective=\"try_to_timestamp(at, 'd/M/yyyy')\" or " in told[1]
    assert [each.rpartition("true. ")[2] for each in told[2:]] == ["at is empty.", "at is null."]
    both = "try_to_timestamp(concat(at, till))"
    assert {row["error_code"] for row in table_rows(frame, keys=["id"], effective=both).collect()} == {
        "TIME_MISSING"
    }
    ends = {"valid_from": "date'2024-01-01'", "valid_to": "try_to_timestamp(till)"}
    assert changes_from(frame, keys=["id"], **ends).count() == 4


@pytest.mark.parametrize("condition", ["true", "false", "TRUE", "gone", "Gone"])
def test_an_expression_may_be_one_word(spark: SparkSession, condition: str) -> None:
    """A column where there is one of that name, otherwise what SQL makes of it."""
    frame = spark.createDataFrame([(1, True)], "id int, gone boolean")
    made = changes_from(frame, keys=["id"], apply_as_deletes=condition)
    operation = "upsert" if condition == "false" else "delete"
    assert [row["operation"] for row in made.collect()] == [operation]


@pytest.mark.parametrize("misspelt", ["gon", "order"])
def test_a_word_that_is_no_expression_is_no_column(spark: SparkSession, misspelt: str) -> None:
    frame = spark.createDataFrame([(1, True)], "id int, gone boolean")
    with pytest.raises(UnfitTable, match=f"apply_as_deletes: {misspelt} is no column"):
        changes_from(frame, keys=["id"], apply_as_deletes=misspelt)


def test_nothing_is_said_beside_what_is_wrong_that_is_not_wrong(spark: SparkSession) -> None:
    """A good ISO text is a time, whatever else the call says."""
    rows = pd.DataFrame({"id": [1], "v": ["a"], "at": ["2024-01-01T10:00:00Z"]})
    calls: list[tuple[dict[str, Any], str]] = [
        ({"keys": "id"}, "keys is 'id', and must be a list of columns, such as ['id']"),
        ({"keys": ["number"]}, "keys names number, which is no column"),
        ({"keys": ["id"], "column_list": ["w"]}, "column_list names w, which is no column"),
    ]
    for call, sentence in calls:
        with pytest.raises(UnfitTable) as error:
            changes_from(rows, sequence_by="at", **call)
        assert error.value.wrong == (sentence,)


def test_a_number_is_no_time(spark: SparkSession) -> None:
    """A log that is numbered must say when its rows are true, else all but the last would be lost."""
    frame = pd.DataFrame({"id": [1, 1], "version": [9, 10], "name": ["kettle", "teapot"]})
    with pytest.raises(
        UnfitTable, match="effective is not said, and the sequence, bigint, is not a time: name a column"
    ):
        changes_from(frame, keys=["id"], sequence_by="version")
    made = changes_from(frame, keys=["id"], sequence_by="version", effective=DAY[0])
    assert versions(made, "name") == [(1, 1, False, "teapot")]


@pytest.mark.parametrize(
    "values",
    [[2**70], ["\ud800"], pd.period_range("2024", periods=1, freq="D"), [time(9, 30)], [object()], [1j]],
    ids=["too large", "no text", "period", "time of day", "object", "complex"],
)
def test_a_column_of_pandas_that_spark_has_not_is_named(values: Any) -> None:
    """Without Spark: nothing is made of a table that cannot be read whole."""
    frame = pd.DataFrame({"id": [1], "odd": values})
    with pytest.raises(InvalidArgument, match=r"of columns with one type each, .*odd \(.*astype"):
        changes_from(frame, keys=["id"])


def test_what_is_no_table_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match="a DataFrame of Spark or of pandas"):
        changes_from([{"id": 1}], keys=["id"])  # type: ignore[arg-type]
    twice = (
        r"differ in more than case; it is .* There is id twice; rename one: `frame.columns = \['id', 'ID_2'\]"
    )
    with pytest.raises(InvalidArgument, match=twice):
        changes_from(pd.DataFrame([[1, 2]], columns=["id", "ID"]), keys=["id"])
    with pytest.raises(InvalidArgument, match=r"one type each.*b \("):
        changes_from(pd.DataFrame({"id": [1, 2], "b": [1, "x"]}), keys=["id"])
    with pytest.raises(InvalidArgument, match="aware datetime"):
        changes_from(KETTLE, keys=["id"], effective=datetime(2024, 1, 1))
    with pytest.raises(UnfitTable, match=r"keys is 'id', and must be a list of columns, such as \['id'\]"):
        changes_from(KETTLE, keys="id")
    with pytest.raises(UnfitTable, match="keys is Column<'id'>, and must be a list"):
        changes_from(KETTLE, keys=F.col("id"))
    with pytest.raises(UnfitTable, match=r"keys is 5, and must be a list of columns\. The table"):
        changes_from(KETTLE, keys=5)  # type: ignore[arg-type]
    with pytest.raises(UnfitTable, match="keys is empty"):
        changes_from(KETTLE, keys=[], column_list=[])
    with pytest.raises(UnfitTable, match="both given"):
        changes_from(KETTLE, keys=["id"], column_list=["id"], except_column_list=["op"])
    with pytest.raises(UnfitTable, match="leaves out the key id"):
        changes_from(KETTLE, keys=["id"], except_column_list=["id"])
    stream = spark.readStream.format("rate").load()
    assert changes_from(stream, keys=["value"], sequence_by="timestamp").isStreaming
    with pytest.raises(InvalidArgument, match="leave the truncates out"):
        changes_from(stream, keys=["value"], sequence_by="timestamp", apply_as_truncates="value = 0")


def test_columns_of_pandas_of_any_kind_are_read(spark: SparkSession) -> None:
    """Categories, unsigned numbers, columns without a value; missing is null, names are texts."""
    frame = pd.DataFrame(
        {
            "id": pd.Series([1, 2], dtype="uint64"),
            "kind": pd.Categorical(["a", None]),
            "price": [1.5, float("nan")],
            "nothing": [None, None],
            7: ["x", pd.NA],
            "row number": [True, False],
        }
    )
    rows = changes_from(frame, keys=["id"]).orderBy("data.id").toArrow().to_pylist()
    shown = {"kind": None, "price": None, "nothing": None, "7": None, "row number": False}
    assert rows[1]["data"] == {"id": Decimal(2), **shown}
    assert rows[1]["carried"] == {name: value is False for name, value in shown.items()} | {"id": True}
    assert rows[0]["data"]["kind"] == "a"
    assert changes_from(frame[:0], keys=["id"]).count() == 0


# Against a table that is changed row by row -------------------------------------------------------------


def draw(chance: random.Random) -> list[Row]:
    """Rows in which places tie, sources meet, and deletes and truncates are many."""
    return [
        {
            "id": chance.choice(("x", "y")),
            "source": chance.choice(("one", "one", "two")),
            "op": chance.choice("UUUUUDT"),
            "a": chance.choice((1, 2, None)),
            "b": chance.choice(("p", "q", None)),
            "number": chance.choice((9, 10, None)),
            "at": chance.choice(DAY[:4]),
            "n": n,
        }
        for n in range(chance.randint(1, 12))
    ]


def states(rows: Sequence[Row], *, nulls: str) -> dict[datetime, Row]:
    """
    By instant, what a table holds when the rows were done to it one by one: the naive reading.

    *nulls* are the fields in which null is a value.
    """
    table: Row = {}
    named: dict[str, set[str]] = {"one": set(), "two": set()}
    found: dict[datetime, Row] = {}
    for row in sorted(rows, key=lambda row: (row["at"], row["number"] or -1, row["n"])):
        id_, source = row["id"], row["source"]
        if row["op"] == "T":
            for each in named[source]:
                table.pop(each, None)
            named[source] = set()
        elif row["op"] == "D":
            table.pop(id_, None)
            named[source].discard(id_)
        else:
            said = {name: row[name] for name in "ab" if name in nulls or row[name] is not None}
            table[id_] = {**table.get(id_, {"a": None, "b": None}), **said}
            named[source].add(id_)
        found[row["at"]] = {each: dict(fields) for each, fields in table.items()}
    return found


def histories(changes: DataFrame) -> dict[str, list[Row]]:
    """By world, the versions that are no deletes."""
    rows = (
        merge(changes, entity="thing", keys=["world", "id"])
        .where("not deleted_indicator")
        .toArrow()
        .to_pylist()
    )
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["world"], []).append(row)
    return found


@seeds(1, soak=40)
def test_random_tables_are_what_doing_their_rows_one_by_one_gives(spark: SparkSession, seed: int) -> None:
    """
    In pandas by place where numbers tie; in Spark, shuffled, by a last number that is never the same.

    In one of the two fields null says nothing, in the other one it is a value.
    """
    chance = random.Random(seed)
    worlds = {str(number): draw(chance) for number in range(60)}
    rows = [{"world": world, **row} for world, some in worlds.items() for row in some]
    # A truncate speaks of its source: each world has two of its own.
    rows = [{**row, "source": f"{row['world']} {row['source']}"} for row in rows]
    frame = pd.DataFrame(rows).astype({"a": "Int64", "number": "Int64"})
    settings: Row = {
        "keys": ["world", "id"],
        "source": F.col("source"),
        "apply_as_deletes": "op = 'D'",
        "apply_as_truncates": "op = 'T'",
        "ignore_null_updates": ["a"],
        "effective": "at",
        "column_list": ["a", "b"],
    }
    kinds = "world string, id string, source string, op string, a long, b string, number long, "
    kinds += "at timestamp, n int"
    chance.shuffle(rows)
    shuffled = spark.createDataFrame([tuple(row[name] for name in frame.columns) for row in rows], kinds)
    in_pandas = histories(changes_from(frame, sequence_by="number", **settings))
    in_spark = histories(changes_from(shuffled, sequence_by=["number", "n"], **settings))
    for world, some in worlds.items():
        for instant, expected in states(some, nulls="b").items():
            assert at(in_pandas.get(world, []), instant) == expected, (world, instant, some)
            assert at(in_spark.get(world, []), instant) == expected, (world, instant, some)


# A table that a person made --------------------------------------------------------------------------------

DIRTY = pd.DataFrame(
    {
        "Kunden-Nr.": [1001.0, None, 1002.0],
        "Name ": ["Müller & Söhne", "Łukasz Żółć", None],
        "PLZ": ["01067", None, "SW1A 1AA"],
        "Geändert am": ["01.03.2024 09:00", "2.3.2024 10:15", "31.12.2024 23:59"],
    }
)
BY_TIME = "try_to_timestamp(`Geändert am`, 'd.M.yyyy H:mm')"


def test_a_number_that_empty_cells_made_a_float_is_still_the_key_that_is_meant(spark: SparkSession) -> None:
    """The times are read as they are written; what is no whole number, or lost digits, is no key."""
    with pytest.raises(UnfitTable, match="effective is not said") as caught:
        changes_from(DIRTY, keys=["Kunden-Nr."], sequence_by="Geändert am")
    assert f'"{BY_TIME}" in the place of Geändert am reads all of it' in str(caught.value)
    made = changes_from(DIRTY, keys=["Kunden-Nr."], sequence_by=BY_TIME)
    found = versions(made, "PLZ", keys=("Kunden-Nr.",))
    assert found == [(1001, 1, False, "01067"), (1002, 31, False, "SW1A 1AA")]
    with pytest.raises(UnfitTable, match=r"is it Kunden-Nr\.\?"):
        changes_from(DIRTY.convert_dtypes(), keys=["Kunden-Nr"], sequence_by=BY_TIME)
    for number in (2.5, 2.0**53):
        with pytest.raises(UnfitTable, match=r"no exact text: .* dtype='Int64'"):
            changes_from(pd.DataFrame({"id": [1.0, None, number]}), keys=["id"])


def test_a_key_with_nanoseconds_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Cut to microseconds, two keys would be one; zeros there are none."""
    frame = pd.DataFrame({"at": pd.to_datetime([1_704_100_000_000_000_120, 1_704_100_000_000_000_340])})
    needed = "the key at has nanoseconds, which are cut: cast it to a text or a number"
    with pytest.raises(UnfitTable, match=needed):
        changes_from(frame, keys=["at"], effective=DAY[0])
    with pytest.raises(UnfitTable, match=needed):
        changes_from_snapshots({DAY[0]: frame, DAY[1]: frame[:0]}, keys=["at"])
    ledger = Ledger(spark, tmp_path, entity="reading", keys=["at"])
    with pytest.raises(WrongColumnType, match=r"column at as whole microseconds; it is nanoseconds\. .*cast"):
        ledger.apply_list(frame, taken_at=DAY[0])
    assert changes_from(frame.assign(at=frame["at"].dt.floor("us")), keys=["at"], effective=DAY[0])


def test_an_expression_that_does_not_fit_its_column_is_refused_by_the_types(spark: SparkSession) -> None:
    """Read with a mark between thousands, a day loses its points, and Spark has no error for that."""
    frame = pd.DataFrame({"id": [1], "ab": [28042024]})
    needed = r"cannot read \"try_to_timestamp\(ab, 'd.M.yyyy'\)\" \(ab is bigint\)"
    with pytest.raises(UnfitTable, match=needed):
        changes_from(frame, keys=["id"], effective="try_to_timestamp(ab, 'd.M.yyyy')")


def test_a_key_that_nobody_can_guess_is_not_guessed(spark: SparkSession) -> None:
    with pytest.raises(UnfitTable, match=r"keys names wholly another, which is no column\. The table"):
        changes_from(DIRTY, keys=["wholly another"])


def test_a_name_of_several_words_is_recognised_where_it_is_misspelt(spark: SparkSession) -> None:
    sound = DIRTY.drop(columns=["Kunden-Nr."])
    with pytest.raises(UnfitTable, match=r"is it Geändert am\?"):
        changes_from(sound, keys=["Name "], sequence_by="Geaendert am", effective=DAY[0])


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["1/2/2024", "12/31/2024"], "try_to_timestamp(at, 'M/d/yyyy')"),
        (["1/2/2024 9:00:00", "31/12/2024 9:00:00"], "try_to_timestamp(at, 'd/M/yyyy H:mm:ss')"),
        (["1709251200", "1709251201"], "timestamp_seconds(try_cast(at as bigint))"),
        (["1.3.2024", "01.03.2024 09:00"], None),
        (["a", "b"], None),
    ],
    ids=["month first", "day first", "seconds", "several forms", "no times"],
)
def test_texts_that_are_times_are_named_as_they_are_written(
    spark: SparkSession, texts: list[str], read: str | None
) -> None:
    with pytest.raises(UnfitTable) as caught:
        changes_from(pd.DataFrame({"id": [1, 2], "at": texts}), keys=["id"], sequence_by="at")
    # In its place, and not beside it: texts that are none in ISO 8601 may not sort.
    remedy = "name a column of times" if read is None else f'"{read}" in the place of at reads all of it'
    assert f"is not a time: {remedy}" in str(caught.value)


def test_a_form_with_two_readings_is_said_as_both(spark: SparkSession) -> None:
    """Nobody but the caller knows whether 3/4 is in March or in April."""
    with pytest.raises(
        UnfitTable, match=r"at can be read by (.*) or by (.*), and does not say which"
    ) as caught:
        changes_from(pd.DataFrame({"id": [1], "at": ["03/04/2024"]}), keys=["id"], sequence_by="at")
    for form in ("d/M/yyyy", "M/d/yyyy"):
        assert f"try_to_timestamp(at, '{form}')" in str(caught.value)


def test_a_column_of_several_types_is_text_in_which_empty_cells_stay_empty(spark: SparkSession) -> None:
    """By `astype(str)` the empty cell would be a text, "None"."""
    frame = pd.DataFrame({"id": [1, 2, 3], "PLZ": [1067, "SW1A 1AA", None]})
    with pytest.raises(InvalidArgument, match="empty cells stay empty") as caught:
        changes_from(frame, keys=["id"])
    assert "`frame.astype({'PLZ': 'string'})`" in str(caught.value)
    made = changes_from(frame.astype({"PLZ": "string"}), keys=["id"]).select(
        "data.id", "data.PLZ", "carried.PLZ"
    )
    assert sorted(map(tuple, made.collect())) == [(1, "1067", True), (2, "SW1A 1AA", True), (3, None, False)]


def test_a_message_is_called_by_its_source(spark: SparkSession) -> None:
    """So a history says who said so, even where it is shown without the changes."""
    said = changes_from(pd.DataFrame({"id": [1]}), keys=["id"], source="crm")
    assert merge(said, entity="customer", keys=["id"]).first()["source_message"].startswith("crm-")
