"""What became of a history between two commits, held against the two histories themselves."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from support.publications import opened
from support.shop_log import shop_changes


def told(rows: list[tuple[Any, ...]], spark: SparkSession, kind: str = "int") -> DataFrame:
    fields = {"h": "int", "k": "string", "v": kind}
    return shop_changes(spark, fields, (({"h": h, "k": k, "v": v}, day) for h, k, v, day in rows))


def words(found: DataFrame) -> list[tuple[Any, ...]]:
    columns = ("change", "h", "v", F.day("valid_from_timestamp"), F.day("valid_to_timestamp"))
    return sorted(tuple(row) for row in found.select(*columns).collect())


def test_each_word(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    first = ledger.apply(told([(1, "x", 10, 1), (2, "x", 20, 1), (2, "x", 21, 9)], spark)).version
    second = ledger.apply(told([(1, "x", 11, 5), (2, "x", 22, 3), (3, "x", 30, 2)], spark)).version
    assert words(ledger.history_changes(first)) == [
        ("appeared", 1, 11, 5, None),
        ("appeared", 2, 22, 3, 9),
        ("appeared", 3, 30, 2, None),
        ("changed", 2, 20, 1, 3),
        ("ended", 1, 10, 1, 5),
    ]
    DeltaTable(str(tmp_path / "changes")).delete("data.h = 3 OR data.v = 11")
    third = ledger.adopt()
    assert words(ledger.history_changes(second, third)) == [
        ("changed", 1, 10, 1, None),
        ("went", 1, 11, 5, None),
        ("went", 3, 30, 2, None),
    ]
    assert words(ledger.history_changes(first, first)) == []


def test_a_field_that_came_and_one_of_a_wider_type_change_nothing_by_themselves(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = opened(spark, tmp_path)
    first = ledger.apply(told([(1, "x", 10, 1), (2, "x", 20, 1)], spark)).version
    wide = told([(3, "x", 2**40, 2)], spark, "bigint")
    more = wide.withColumn("data", F.col("data").withField("w", F.lit("new")))
    more = more.withColumn("carried", F.col("carried").withField("w", F.lit(True)))
    ledger.apply(more)
    found = ledger.history_changes(first)
    assert words(found) == [("appeared", 3, 2**40, 2, None)]
    assert found.drop("change").schema == ledger.history().schema


def test_only_files_that_changed_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """The others might as well not be there."""
    ledger = opened(spark, tmp_path, buckets=8)
    first = ledger.apply(told([(n, "x", n, 1) for n in range(40)], spark)).version
    last = ledger.apply(told([(7, "x", 70, 5)], spark)).version
    both = [{one.path for one in ledger.store.snapshot(n).files("history")} for n in (first, last)]
    assert len(both[0] & both[1]) > 5
    for path in both[0] & both[1]:
        (tmp_path / "history" / path).unlink()
    assert words(ledger.history_changes(first)) == [("appeared", 7, 70, 5, None), ("ended", 7, 7, 1, 5)]


def test_a_commit_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    for since in (0, 1):
        with pytest.raises(InvalidArgument, match=r"history_changes\(\) needs since"):
            ledger.history_changes(since)
    for day in (1, 2, 3):
        ledger.apply(told([(1, "x", day, day)], spark))
    for since, until, why in [
        (
            4,
            None,
            r"history_changes\(\) needs since to be a commit up to 3, 0 for one in which nothing is; it is 4",
        ),
        (2, 1, r"since to be a commit up to 1, 0 for one in which nothing is; it is 2"),
        (-1, None, r"since to be from 0 to 3; it is -1"),
        (0, 9, r"until to be from 0 to 3; it is 9"),
        ("1", None, r"since to be a commit"),
    ]:
        with pytest.raises(InvalidArgument, match=why):
            ledger.history_changes(since, until)  # type: ignore[arg-type]
    ledger.vacuum(timedelta(0))
    with pytest.raises(InvalidArgument, match=r"3 or later, because of vacuum; it is 1\. Take all of"):
        ledger.history_changes(1)
