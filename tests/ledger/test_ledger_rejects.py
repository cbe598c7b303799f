"""`Ledger.rejects`: rows that could not be used are counted and kept, whatever way they came in."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, Priority, changes_from, merge, rejects, union_changes, with_fields, with_priorities
from cdckit.model import drop_rejects
from cdckit.quality import check_all
from cdckit.tables import table_rows

HOW: dict[str, Any] = {"keys": ["id"], "effective": "try_to_timestamp(at, 'd.M.yyyy')"}
GOOD, BAD, KEYLESS = (1, "tea", "5.1.2024"), (2, "mug", "soon"), (None, "jug", "6.1.2024")
NO_TIME = ("TIME_UNREADABLE", '{"id":2,"name":"mug","at":"soon"}')
NO_KEY = ("KEY_MISSING", '{"name":"jug","at":"6.1.2024"}')


def frame(spark: SparkSession, *rows: tuple[int | None, str, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id int, name string, at string")


def opened(spark: SparkSession, place: Path) -> Ledger:
    return Ledger(spark, place, entity="item", keys=["id"], buckets=2)


def shown(found: DataFrame) -> list[tuple[str, str]]:
    """Of each reject its code and the record's text."""
    return sorted((row["error_code"], bytes(row["value"]).decode()) for row in found.collect())


def names(history: DataFrame) -> list[str]:
    return sorted(row["name"] for row in history.collect())


def test_rows_that_cannot_be_used_are_counted_and_kept(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the commit of the batch; a row that comes again stands there once."""
    ledger = opened(spark, tmp_path)
    made = changes_from(frame(spark, GOOD, BAD, KEYLESS), source="shop", **HOW)
    with caplog.at_level(logging.WARNING, "cdckit"):
        first = ledger.apply(made, "monday")
    assert (first.news, first.rejects) == (1, 2)
    assert "could not be used: 2" in caplog.text
    assert "ledger.rejects()" in caplog.text
    assert shown(ledger.rejects()) == [NO_KEY, NO_TIME]
    assert {row["source"] for row in ledger.rejects().collect()} == {"shop"}
    assert ledger.apply(made, "monday").repeated
    second = ledger.apply(made, "tuesday")
    assert (second.news, second.rejects) == (0, 2)
    assert shown(ledger.rejects()) == [NO_KEY, NO_TIME]
    assert names(ledger.history()) == ["tea"]
    assert ledger.changes().count() == 1
    assert shown(ledger.at_commit(first.version).rejects()) == [NO_KEY, NO_TIME]


def test_a_stream_keeps_what_it_cannot_read(spark: SparkSession, tmp_path: Path) -> None:
    """A text of another form made null of the time, and the row was gone."""
    frame(spark, GOOD, BAD).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id int, name string, at string").parquet(str(tmp_path / "in"))
    ledger = opened(spark, tmp_path / "ledger")
    writer = changes_from(stream, **HOW).writeStream.foreachBatch(ledger.sink("rows"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    assert shown(ledger.rejects()) == [NO_TIME]
    assert names(ledger.history()) == ["tea"]


def test_what_is_done_with_changes_leaves_their_rejects(spark: SparkSession, tmp_path: Path) -> None:
    """United, renamed and with priorities they are the same; `merge` passes over them."""
    of_spark = changes_from(frame(spark, GOOD, BAD), source="shop", **HOW)
    local = pd.DataFrame([(3, "pan", "7.1.2024"), (None, "jug", "6.1.2024")], columns=["id", "name", "at"])
    of_pandas = changes_from(local.convert_dtypes(), source="till", **HOW)
    both = with_priorities(union_changes(of_spark, of_pandas), {"shop": Priority(1)})
    named = with_fields(both, {"id": "id", "name": "name"})
    assert shown(rejects(named)) == [NO_KEY, NO_TIME]
    assert names(merge(named, entity="item", keys=["id"])) == ["pan", "tea"]
    assert set(drop_rejects(named).columns) == set(named.columns) - {"reject"}
    ledger = opened(spark, tmp_path)
    assert ledger.apply(named).rejects == 2
    sources = {(row["error_code"], row["source"]) for row in ledger.rejects().collect()}
    assert sources == {("KEY_MISSING", "till"), ("TIME_UNREADABLE", "shop")}


def test_rows_of_a_table_are_taken_as_its_changes(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    assert ledger.apply(table_rows(frame(spark, GOOD, BAD, KEYLESS), **HOW)).rejects == 2
    assert shown(ledger.rejects()) == [NO_KEY, NO_TIME]
    assert names(ledger.history()) == ["tea"]


def test_a_row_that_cannot_be_read_is_no_truncate(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, GOOD, (None, "all gone", "soon"), (None, "all gone", "6.1.2024"))
    made = changes_from(rows, apply_as_truncates="name = 'all gone'", **HOW)
    assert [code for code, _ in shown(rejects(made))] == ["TIME_UNREADABLE"]
    history = merge(made, entity="item", keys=["id"])
    assert sorted(row["deleted_indicator"] for row in history.collect()) == [False, True]


def test_rejects_are_told_by_a_check_until_they_are_dropped(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    ledger.apply(changes_from(frame(spark, GOOD), **HOW))
    assert set(ledger.contracts()) == {"changes", "history", "ledger"}
    ledger.apply(changes_from(frame(spark, BAD, KEYLESS), **HOW))
    (broken,) = check_all({"rejects": ledger.contracts()["rejects"]})["rejects"].broken
    assert broken.broken == 2
    ledger.drop_rejects("error_code = 'KEY_MISSING'")
    assert shown(ledger.rejects()) == [NO_TIME]
    ledger.drop_rejects()
    assert check_all({"rejects": ledger.contracts()["rejects"]})["rejects"].ok


def test_an_erasure_says_that_rejects_stay_but_keeps_none_of_whom_it_erased(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A row whose key can be read is refused as any other of the erased; of one without nobody can tell."""
    ledger = opened(spark, tmp_path)
    ledger.apply(changes_from(frame(spark, GOOD, (2, "cup", "1.1.2024"), KEYLESS), **HOW))
    receipt = ledger.erase(keys=[{"id": 2}], by="dana", reason="asked for")
    assert any("1 rejects" in sentence for sentence in receipt.not_erased)
    done = ledger.apply(changes_from(frame(spark, BAD), **HOW))
    assert done.rejects == 0
    assert ledger.refused().count() == 1
    assert shown(ledger.rejects()) == [NO_KEY]


def test_rejects_outlive_what_is_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    ledger.apply(changes_from(frame(spark, GOOD, BAD), **HOW).withColumn("message_id", F.lit("m")))
    ledger.compact()
    ledger.rebuild()
    ledger.revoke("m")
    assert shown(ledger.rejects()) == [NO_TIME]
    assert ledger.history().count() == 0
