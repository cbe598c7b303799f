"""
Whole tables of changes, in one call, in a ledger, and by every argument.

In `make test`:
tests/tables/test_changes_from.py::test_a_sequence_sorts_as_the_values_do,
tests/tables/test_changes_from.py::test_the_last_word_is_the_last_that_came,
tests/tables/test_changes_from.py::test_a_form_with_two_readings_is_said_as_both,
tests/tables/test_changes_from.py::test_random_tables_are_what_doing_their_rows_one_by_one_gives.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from, merge, rejects
from cdckit.errors import InvalidArgument
from cdckit.model.rejected_records import drop_rejects
from cdckit.tables import table_rows
from support.change_logs import DAY, KETTLE, Row, refused, versions


def test_a_null_says_nothing_unless_it_is_said_to_be_a_value(spark: SparkSession) -> None:
    """Without a word a table can erase nothing; the choice is for all columns, or for some."""

    def told(**options: Any) -> list[tuple[Any, ...]]:
        return versions(changes_from(KETTLE, keys=["id"], sequence_by="at", **options), "name", "price")

    nothing_erased = [(1, 1, False, "kettle", 20), (1, 2, False, "teapot", 20), (1, 3, False, "teapot", 25)]
    assert told() == told(ignore_null_updates=True) == nothing_erased
    assert told(ignore_null_updates=False) == [
        *((1, 1, False, "kettle", 20), (1, 2, False, "teapot", None), (1, 3, False, None, 25)),
    ]
    assert told(ignore_null_updates=["name"]) == [
        *((1, 1, False, "kettle", 20), (1, 2, False, "teapot", None), (1, 3, False, "teapot", 25)),
    ]


def test_what_an_empty_text_says_is_told_beside_null(spark: SparkSession) -> None:
    """A value, null as a value, or nothing: in any of these, null may say what it wants."""
    rows = [(1, "kettle", 1), (1, "", 2), (1, None, 3)]
    frame = spark.createDataFrame(rows, "id int, name string, at int").selectExpr(
        "id", "name", "make_date(2024, 1, at) as at"
    )

    def names(empty_texts: str, ignored: bool) -> list[str | None]:
        """What the name is on the first three days."""
        how: Row = {"empty_texts": empty_texts, "ignore_null_updates": ignored, "column_list": ["name"]}
        made = changes_from(frame, keys=["id"], sequence_by="at", **how)
        found = {day: name for _, day, _, name in versions(made, "name")}
        known = [found.get(1)]
        for day in (2, 3):
            known.append(found.get(day, known[-1]))
        return known

    assert names("value", True) == ["kettle", "", ""]
    assert names("value", False) == ["kettle", "", None]
    assert names("null", True) == ["kettle", None, None]
    assert names("null", False) == ["kettle", None, None]
    assert names("unsent", True) == ["kettle", "kettle", "kettle"]
    assert names("unsent", False) == ["kettle", "kettle", None]
    with pytest.raises(InvalidArgument, match="empty_texts to be 'value', 'null' or 'unsent'"):
        changes_from(frame, keys=["id"], empty_texts="nothing")
    blank = pd.DataFrame({"id": ["", "a"], "name": ["x", ""]})
    assert refused(blank, keys=["id"]) == []
    assert refused(blank, keys=["id"], empty_texts="unsent") == [("KEY_MISSING", '{"id":"","name":"x"}')]


def test_rows_of_pandas_have_their_order(spark: SparkSession) -> None:
    """Without a sequence the place counts, and a row that comes again after another is said again."""
    frame = pd.DataFrame({"id": [1, 1, 1, 2], "name": ["kettle", "teapot", "kettle", "mug"]})
    said = changes_from(frame, keys=["id"])
    assert {row["effective_timestamp"] for row in said.collect()} == {datetime(1970, 1, 1)}
    assert versions(said, "name") == [(1, 1, False, "kettle"), (2, 1, False, "mug")]
    assert versions(changes_from(frame.iloc[::-1], keys=["id"]), "name")[0] == (1, 1, False, "kettle")
    assert versions(changes_from(frame[:2], keys=["id"]), "name") == [(1, 1, False, "teapot")]
    # The same with one time for all, and where numbers tie the later row counts.
    assert versions(changes_from(frame[:2], keys=["id"], effective=DAY[4]), "name") == [
        (1, 5, False, "teapot")
    ]
    tied = frame[:2].assign(number=7)
    listed = changes_from(tied, keys=["id"], sequence_by="number", effective=DAY[4], column_list=["name"])
    assert versions(listed, "name") == [(1, 5, False, "teapot")]


def test_a_row_that_comes_back_on_one_day_is_said_once_more(spark: SparkSession) -> None:
    """Of one day the last row counts, also where the first said the same; equal rows in a row are one."""
    said = [(1, "open"), (1, "open"), (2, "open"), (1, "closed"), (2, "open"), (1, "open")]
    log = pd.DataFrame([(*row, "2024-01-01") for row in said], columns=["id", "status", "day"])
    how = {"keys": ["id"], "sequence_by": "day", "effective": "day", "except_column_list": ["day"]}
    changes = changes_from(log, **how)
    found = merge(changes, entity="e", keys=["id"]).orderBy("id").collect()
    assert [(row["id"], row["status"], row["valid_to_timestamp"]) for row in found] == [
        (1, "open", None),
        (2, "open", None),
    ]
    ids = [row["message_id"] for row in changes.orderBy("arrival.offset").collect()]
    assert [ids.index(each) for each in ids] == [0, 0, 2, 3, 2, 5]
    # Read again, nothing is new; and what does not come back has the id that it has in Spark.
    assert ids == [row["message_id"] for row in changes_from(log, **how).orderBy("arrival.offset").collect()]
    of_spark = changes_from(spark.createDataFrame(log), **how).select("message_id").distinct().collect()
    assert {row["message_id"] for row in of_spark} == {*ids[:5]}
    # A message that is named is one, however often it comes.
    named = log.assign(m=["1", "1", "2", "3", "2", "1"])
    found = merge(changes_from(named, message="m", **how), entity="e", keys=["id"])
    assert [row["status"] for row in found.orderBy("id").collect()] == ["closed", "open"]


def test_when_it_was_sequenced_is_when_it_is_true_and_known(spark: SparkSession) -> None:
    """Unless it is said: then it is known when it was sequenced, and true when that says."""
    frame = pd.DataFrame({"id": [1], "at": [DAY[4]], "since": ["2024-01-02"]})

    def times(**options: Any) -> tuple[Any, ...]:
        row = changes_from(frame, keys=["id"], **options).toArrow().to_pylist()[0]
        return row["effective_timestamp"], row["arrival"]["timestamp"]

    assert times(sequence_by="at") == times(sequence_by=["at", "id"]) == (DAY[4], DAY[4])
    assert times(sequence_by=F.struct("at", "id")) == (DAY[4], DAY[4])
    assert times(sequence_by="at", effective="since") == (DAY[1], DAY[4])
    assert times(sequence_by="id", effective="since") == times(effective=DAY[1]) == (DAY[1], DAY[1])
    # Of texts they name the same instant; a row with another text is a reject.
    frame["at"] = ["2024-01-05T02:00:00+02:00"]
    assert times(sequence_by="at") == times(sequence_by=["at", "id"]) == (DAY[4], DAY[4])
    mixed = pd.concat([frame, frame.assign(at="5.1.2024")])
    by_text = drop_rejects(changes_from(mixed, keys=["id"], sequence_by="at"))
    by_text = by_text.select("effective_timestamp", "sequence")
    by_time = changes_from(frame.assign(at=pd.Timestamp(DAY[4])), keys=["id"], sequence_by="at")
    assert by_text.collect() == by_time.select("effective_timestamp", "sequence").collect()
    # A CSV has texts; what is no time tells none.
    frame["at"], frame["odd"] = "2024-01-05T02:00:00+02:00", "20240105"
    assert times(sequence_by="at", effective="since") == (DAY[1], DAY[4])
    assert times(sequence_by=["at", "id"], valid_from="since") == (DAY[1], DAY[4])
    assert times(sequence_by="odd", effective="since") == (DAY[1], DAY[1])


@pytest.mark.parametrize("day", ["5.1.2024", "01/05/2024 9:15", "5-1-2024", "2024/01/05", "2024-1-5"])
def test_a_sequence_of_days_in_a_form_of_their_own_is_no_order(spark: SparkSession, day: str) -> None:
    """As text 5.1.2024 would come after 12.3.2024, and the row would be known since it was true."""
    frame = pd.DataFrame({"id": [1, 2], "since": ["2024-01-01"] * 2, "entered": ["2024-01-06", day]})
    for sequence in ("entered", ["id", "entered"]):
        how: Row = {"keys": ["id"], "effective": "since", "sequence_by": sequence}
        assert [row["data"]["id"] for row in drop_rejects(changes_from(frame, **how)).collect()] == [1]
        (row,) = rejects(table_rows(frame, **how)).toArrow().to_pylist()
        assert row["error_code"] == "SEQUENCE_UNREADABLE"
        assert f"entered is '{day}', which is not ISO 8601" in row["error_description"]
        ways = re.findall('sequence_by="([^"]*)"', row["error_description"])
        assert ways
        for way in ways:
            read = changes_from(frame[1:], **{**how, "sequence_by": way}).toArrow().to_pylist()
            assert read[0]["arrival"]["timestamp"] > DAY[3]
