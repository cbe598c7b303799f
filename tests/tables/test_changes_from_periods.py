"""`changes_from` of tables that say from when and until when a row is true, such as those of type 2."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, changes_from, rejects, union_changes
from cdckit.tables import UnfitTable, table_rows
from support.periods import PERIOD, prices, rows_of_type_2, versions


@pytest.mark.usefixtures("spark")
def test_the_ends_of_a_table_are_those_of_the_history() -> None:
    """A gap from the 3rd to the 5th, and an end on the 9th after which nothing is said; null has no end."""
    frame = prices(
        (1, 50, "2024-01-01", "2024-01-03"),
        (1, 60, "2024-01-05", "2024-01-07"),
        (1, 60, "2024-01-07", "2024-01-09"),
        (2, 70, "2024-01-01", None),
        (3, 80, "2024-01-01", " "),
    )
    said = changes_from(frame, keys=["id"], **PERIOD)
    assert said.schema["data"].dataType.fieldNames() == ["id", "price"]
    assert versions(said) == [
        (1, 50, "1", "3"),
        (1, 60, "5", "7"),
        (1, 60, "7", "9"),
        (2, 70, "1", None),
        (3, 80, "1", None),
    ]


@pytest.mark.parametrize(
    ("kind", "end", "open_ends"),
    [
        ("string", "2024-01-03", ["9999-12-31", "9999-12-31T23:59:59.9999999-05:00"]),
        ("date", date(2024, 1, 3), [date(9999, 12, 31)]),
        ("timestamp_ntz", datetime(2024, 1, 3), [datetime(9999, 12, 31)]),
        (
            "timestamp",
            datetime(2024, 1, 3, tzinfo=UTC),
            # As a session east of UTC writes 9999-01-01, the first day that stands for an open end.
            [datetime(9998, 12, 31, 10, tzinfo=UTC), datetime(9999, 12, 30, 22, tzinfo=UTC)],
        ),
    ],
)
def test_an_end_in_the_year_9999_is_open(
    spark: SparkSession, kind: str, end: Any, open_ends: list[Any]
) -> None:
    """Of a CSV, a warehouse or dbt: nothing but the year says that the row has not ended."""
    frame = prices((1, 50, "2024-01-01", end), *((1, 60, "2024-01-03", each) for each in open_ends))
    table = spark.createDataFrame(
        list(frame.itertuples(index=False, name=None)), f"id int, price int, since string, until {kind}"
    )
    of_pandas, of_spark = (
        table_rows(each, keys=["id"], **PERIOD).selectExpr(
            *("data.price", "day(effective_timestamp)", "effective_until", "error_code")
        )
        for each in (frame, table)
    )
    found = sorted(map(tuple, of_pandas.unionAll(of_spark).collect()))
    ended, opened = (50, 1, datetime(2024, 1, 3), None), (60, 3, None, None)
    assert found == [*[ended] * 2, *[opened] * 2 * len(open_ends)]


@pytest.mark.usefixtures("spark")
def test_one_end_in_the_year_9999_for_the_whole_table_is_open() -> None:
    frame = prices((1, 50, "2024-01-01", None))
    whole = changes_from(frame, keys=["id"], valid_from="since", valid_to=datetime(9999, 12, 31, tzinfo=UTC))
    assert [row[0] for row in whole.select("effective_until").collect()] == [None]


def test_a_row_that_ends_on_the_third_night(spark: SparkSession, tmp_path: Path) -> None:
    """What was replaced on the second night, and is still in the ledger, replaces nothing."""
    ledger = Ledger(spark, tmp_path, entity="room", keys=["id"], buckets=1)
    first = (1, 50, "2024-01-01", "2024-01-03")
    for table in (prices((*first[:3], None)), prices(first, (1, 60, "2024-01-03", None))):
        ledger.apply(changes_from(table, keys=["id"], **PERIOD))
    third = prices(first, (1, 60, "2024-01-03", "2024-01-05"))
    with pytest.raises(PythonException, match="OpenInLedger"):
        ledger.apply(changes_from(third, keys=["id"], **PERIOD))


@pytest.mark.usefixtures("spark")
def test_an_override_of_some_days_is_laid_over_a_table_without_ends() -> None:
    base = changes_from(
        prices((1, 50, "2024-01-01", None)), keys=["id"], valid_from="since", column_list=["price"]
    )
    rows = prices((1, 70, "2024-01-03", "2024-01-05"))
    override = changes_from(rows, keys=["id"], source="steward", priority=5, **PERIOD)
    assert versions(union_changes(base, override)) == [
        (1, 50, "1", "3"),
        (1, 70, "3", "5"),
        (1, 50, "5", None),
    ]


@pytest.mark.usefixtures("spark")
def test_a_truncate_ends_what_was_deleted_for_some_days() -> None:
    rows = (
        (1, 50, "2024-01-01", None),
        (1, None, "2024-01-05", "2024-01-10"),
        (None, None, "2024-01-20", None),
    )
    conditions = {"apply_as_deletes": "op = 'D'", "apply_as_truncates": "op = 'T'"}
    changes = changes_from(
        prices(*rows).assign(op=["I", "D", "T"]), keys=["id"], column_list=["price"], **PERIOD, **conditions
    )
    assert versions(changes) == [
        (1, 50, "1", "5"),
        (1, None, "5", "10"),
        (1, 50, "10", "20"),
        (1, None, "20", None),
    ]


@pytest.mark.usefixtures("spark")
def test_a_row_that_holds_at_no_time_is_a_reject_and_so_is_one_whose_end_cannot_be_read() -> None:
    frame = prices(
        (1, 50, "2024-01-05", "2024-01-03"),
        (2, 50, "2024-01-05", "2024-01-05"),
        (3, 50, "2024-01-05", "06.01.2024"),
        (4, 50, None, "2024-01-03"),
        (5, 50, "2024-01-05", "2024-01-06"),
    )
    found = rejects(table_rows(frame, keys=["id"], **PERIOD)).orderBy("offset").collect()
    assert [(row["offset"], row["error_code"]) for row in found] == [
        (1, "END_NOT_LATER"),
        (2, "END_NOT_LATER"),
        (3, "END_UNREADABLE"),
        (4, "TIME_MISSING"),
    ]
    said = "The row ends before it begins, or as it does: it holds at no time. It says from 2024-01-05 until"
    assert found[0]["error_description"] == f"{said} 2024-01-03."
    assert "valid_to=\"try_to_timestamp(until, 'd.M.yyyy')\"" in found[2]["error_description"]
    assert versions(changes_from(frame, keys=["id"], **PERIOD)) == [(5, 50, "5", "6")]


@pytest.mark.usefixtures("spark")
def test_an_end_that_an_expression_cannot_read_is_no_open_end() -> None:
    """But one that it leaves out by null is, and so is what says of itself that it never ends."""
    frame = prices(
        (1, 50, "2024-01-05", "06.01.2024"),
        (2, 50, "2024-01-05", "soon"),
        (3, 50, "2024-01-05", "infinity"),
        (4, 50, "2024-01-05", " "),
    )
    how: dict[str, Any] = {"keys": ["id"], "valid_from": "since", "column_list": ["price"]}
    form = "d.M.yyyy"
    read_text = f"try_to_timestamp(until, '{form}')"
    for end in (
        read_text,
        f"case when until is not null then {read_text} end",
        read_text.replace("until", "replace(until, 'null', '')"),
        F.try_to_timestamp(F.col("until"), F.lit(form)),
    ):
        read = changes_from(frame, valid_to=end, **how)
        (refused,) = rejects(read).collect()
        assert (refused["offset"], refused["error_code"]) == (2, "END_UNREADABLE")
        assert "until is 'soon', which is not ISO 8601" in refused["error_description"]
    assert versions(read) == [(1, 50, "5", "6"), (3, 50, "5", None), (4, 50, "5", None)]
    told = frame.assign(day=[date(2024, 1, 6), None, None, None])
    for meant in (
        "try_to_timestamp(nullif(until, 'soon'), 'd.M.yyyy')",
        "nullif(if(id = 1, '2024-01-06', until), 'soon')",
        "if(until = 'soon', day, day)",
        F.when(F.col("until") == "soon", None).otherwise(F.try_to_timestamp("until", F.lit(form))),
    ):
        assert versions(changes_from(told, valid_to=meant, **how)) == [
            (1, 50, "5", "6"),
            *((number, 50, "5", None) for number in (2, 3, 4)),
        ]


@pytest.mark.usefixtures("spark")
def test_an_end_of_several_columns_that_cannot_be_read_is_no_open_end() -> None:
    """A day and a clock, or two forms: it is open where nothing stands in them, or what never ends."""
    frame = prices(
        (1, 50, "2024-01-05", "06.01.2024"),
        (2, 50, "2024-01-05", "06.01.2024"),
        (3, 50, "2024-01-05", "soon"),
        (4, 50, "2024-01-05", " "),
        (5, 50, "2024-01-05", "infinity"),
    ).assign(clock=["00:00", None, "00:00", None, "infinity"])
    end = "try_to_timestamp(concat_ws(' ', until, nullif(clock, '')), 'd.M.yyyy HH:mm')"
    how: dict[str, Any] = {"keys": ["id"], "valid_from": "since", "column_list": ["price"]}
    read = changes_from(frame, valid_to=end.replace("nullif(clock, '')", "clock"), **how)
    refused = {row["offset"]: row["error_description"] for row in rejects(read).collect()}
    assert list(refused) == [2, 3]
    assert "is '06.01.2024', which is not ISO 8601" in refused[2]
    assert "is 'soon 00:00', which is not ISO 8601" in refused[3]
    assert versions(read) == [(1, 50, "5", "6"), (4, 50, "5", None), (5, 50, "5", None)]
    # It speaks of null itself.
    assert versions(changes_from(frame, valid_to=end, **how))[1:] == [
        (number, 50, "5", None) for number in (2, 3, 4, 5)
    ]


@pytest.mark.usefixtures("spark")
def test_an_end_needs_a_beginning_and_one_beginning_is_enough() -> None:
    frame = prices((1, 50, "2024-01-05", "2024-01-06"))
    with pytest.raises(UnfitTable, match="valid_to is said, and valid_from is not: an end needs a beginning"):
        changes_from(frame, keys=["id"], sequence_by="since", valid_to="until")
    with pytest.raises(UnfitTable, match="effective and valid_from are both given: one says it"):
        changes_from(frame, keys=["id"], effective="since", **PERIOD)
    with pytest.raises(UnfitTable, match=r"valid_to.*untill"):
        changes_from(frame, keys=["id"], valid_from="since", valid_to="untill")


@pytest.mark.usefixtures("spark")
def test_one_end_for_the_whole_table_is_part_of_what_its_rows_say() -> None:
    """The same rows with another end are other messages."""
    frame = prices((1, 50, "2024-01-05", None))[["id", "price"]]
    first, second = (
        changes_from(frame, keys=["id"], valid_from=datetime(2024, 1, 1, tzinfo=UTC), valid_to=end)
        for end in (datetime(2024, 1, 3, tzinfo=UTC), datetime(2024, 1, 4, tzinfo=UTC))
    )
    assert versions(union_changes(first, second))[-1][-1] == "4"


def test_a_table_of_type_2_becomes_the_history_that_it_was_made_of(spark: SparkSession) -> None:
    """Of random histories with gaps, deletes and recreations: every row again, from when until when."""
    made, again = rows_of_type_2(spark, 5, histories=60, valid_to_current=datetime(2999, 12, 31, tzinfo=UTC))
    assert made == again
    assert len(made) > 100


def test_times_given_as_columns_are_no_fields(spark: SparkSession) -> None:
    """`F.col("since")` names a column as "since" does."""
    rows = spark.createDataFrame(
        [(1, 20, "2024-01-01", "2024-02-01")], "id int, p int, since string, until string"
    )
    changes = changes_from(rows, keys=["id"], valid_from=F.col("since"), valid_to=F.col("until"))
    assert [row.data.asDict() for row in changes.collect()] == [{"id": 1, "p": 20}]
    of_one_time = changes_from(rows.withColumnRenamed("until", "None"), keys=["id"], valid_from="since")
    assert of_one_time.schema["data"].dataType.fieldNames() == ["id", "p", "None"]
