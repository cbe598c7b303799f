"""`coalesce_versions`: neighbouring versions that say the same are one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import merge
from cdckit.errors import InvalidArgument
from cdckit.quality.unsound_rows import coalesce_versions
from support.fold import fold, same_value
from support.histories import (
    Row,
    at,
    by_guid,
    history_schema,
    random_changes,
    rows_to_dataframe,
    to_dataframe,
    to_rows,
)

SCHEMA = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    name string, price double, source_message string,
    field_provenance struct<
        guid: struct<m: string, p: int>, name: struct<m: string, p: int>, price: struct<m: string, p: int>
    >
"""
NAN = float("nan")


def version(
    begins: int, ends: int | None, name: str | None, price: float | None, message: str, **columns: Any
) -> Row:
    """A version of the mug, all of which its message said."""
    entry = {"m": message, "p": 0}
    return {
        "guid": "mug",
        "valid_from_timestamp": at(begins),
        "valid_to_timestamp": None if ends is None else at(ends),
        "deleted_indicator": False,
        "name": name,
        "price": price,
        "source_message": message,
        "field_provenance": {"guid": entry, "name": entry, "price": entry},
        **columns,
    }


def history_of(spark: SparkSession, *versions: Row) -> DataFrame:
    return spark.createDataFrame(list(versions), SCHEMA)


def runs(history: DataFrame) -> list[tuple[str, datetime, datetime | None]]:
    return [
        (row["source_message"], row["valid_from_timestamp"], row["valid_to_timestamp"])
        for row in to_rows(history)
    ]


def test_neighbours_that_differ_in_provenance_alone_are_one(spark: SparkSession) -> None:
    history = history_of(
        spark,
        version(9, 10, "Mug", 1.0, "m1"),
        version(10, 11, "Mug", 1.0, "m2"),
        version(11, 12, "Mug", 1.0, "m3"),
        version(12, None, "Cup", 1.0, "m4"),
    )
    assert runs(coalesce_versions(history)) == [("m1", at(9), at(12)), ("m4", at(12), None)]


def test_the_provenance_is_that_of_the_first_version(spark: SparkSession) -> None:
    history = history_of(spark, version(9, 10, "Mug", 1.0, "m1"), version(10, None, "Mug", 1.0, "m2"))
    entry = {"m": "m1", "p": 0}
    assert to_rows(coalesce_versions(history)) == [version(9, None, "Mug", 1.0, "m1")]
    assert to_rows(coalesce_versions(history, on=["name"]))[0]["field_provenance"] == {
        "guid": entry,
        "name": entry,
    }


def test_fields_that_are_not_asked_for_neither_count_nor_stay(spark: SparkSession) -> None:
    history = history_of(spark, version(9, 10, "Mug", 1.0, "m1"), version(10, None, "Mug", 2.0, "m2"))
    assert len(runs(coalesce_versions(history))) == 2
    folded = coalesce_versions(history, on=["name"])
    assert runs(folded) == [("m1", at(9), None)]
    assert folded.columns == [
        "guid",
        "valid_from_timestamp",
        "valid_to_timestamp",
        "deleted_indicator",
        "name",
        "source_message",
        "field_provenance",
    ]


def test_a_value_that_comes_back_is_another_run(spark: SparkSession) -> None:
    history = history_of(
        spark,
        version(9, 10, "Mug", 1.0, "m1"),
        version(10, 11, "Cup", 1.0, "m2"),
        version(11, None, "Mug", 1.0, "m3"),
    )
    assert runs(coalesce_versions(history)) == [
        ("m1", at(9), at(10)),
        ("m2", at(10), at(11)),
        ("m3", at(11), None),
    ]


def test_null_equals_null_and_nan_equals_nan(spark: SparkSession) -> None:
    history = history_of(
        spark,
        version(9, 10, None, NAN, "m1"),
        version(10, 11, None, NAN, "m2"),
        version(11, 12, None, None, "m3"),
        version(12, None, "", None, "m4"),
    )
    assert runs(coalesce_versions(history)) == [
        ("m1", at(9), at(11)),
        ("m3", at(11), at(12)),
        ("m4", at(12), None),
    ]


def test_versions_with_a_gap_between_them_are_no_neighbours(spark: SparkSession) -> None:
    history = history_of(spark, version(9, 10, "Mug", 1.0, "m1"), version(11, 12, "Mug", 1.0, "m2"))
    assert runs(coalesce_versions(history)) == [("m1", at(9), at(10)), ("m2", at(11), at(12))]


def test_a_deleted_version_is_not_folded_with_one_that_is_alive(spark: SparkSession) -> None:
    history = history_of(
        spark,
        version(9, 10, None, None, "m1"),
        version(10, 11, None, None, "m2", deleted_indicator=True),
        version(11, None, None, None, "m3", deleted_indicator=True),
    )
    assert runs(coalesce_versions(history)) == [("m1", at(9), at(10)), ("m2", at(10), None)]


def test_two_entities_that_say_the_same_stay_two(spark: SparkSession) -> None:
    history = history_of(
        spark, version(9, 10, "Mug", 1.0, "m1"), version(10, None, "Mug", 1.0, "m2", guid="other")
    )
    assert runs(coalesce_versions(history)) == [("m1", at(9), at(10)), ("m2", at(10), None)]


def test_provenance_may_be_missing(spark: SparkSession) -> None:
    history = history_of(spark, version(9, 10, "Mug", 1.0, "m1"), version(10, None, "Mug", 1.0, "m2"))
    bare = history.drop("field_provenance")
    folded = coalesce_versions(bare)
    assert runs(folded) == [("m1", at(9), None)]
    assert folded.dtypes == bare.dtypes


def test_maps_are_compared_too(spark: SparkSession) -> None:
    """Spark itself refuses to compare them."""
    history = history_of(
        spark,
        version(9, 10, "Mug", 1.0, "m1"),
        version(10, 11, "Mug", 1.0, "m2"),
        version(11, None, "Cup", 1.0, "m3"),
    )
    maps = history.withColumn("name", F.array(F.create_map(F.lit("name"), "name")))
    assert runs(coalesce_versions(maps)) == [("m1", at(9), at(11)), ("m3", at(11), None)]


def test_field_names_may_be_anything(spark: SparkSession) -> None:
    history = history_of(spark, version(9, 10, "Mug", 1.0, "m1"), version(10, None, "Mug", 2.0, "m2"))
    odd = history.drop("field_provenance").withColumnsRenamed({"name": "a.b `c`", "price": "version"})
    assert runs(coalesce_versions(odd, on=["a.b `c`"])) == [("m1", at(9), None)]
    assert len(runs(coalesce_versions(odd))) == 2
    assert coalesce_versions(odd).columns == odd.columns


@pytest.mark.parametrize("on", [[], ["name", "name"], ["nme"], ["guid"]])
def test_what_are_no_fields_is_refused(spark: SparkSession, on: list[str]) -> None:
    with pytest.raises(
        InvalidArgument, match=r"coalesce_versions\(\) needs on to be one or more fields among name"
    ):
        coalesce_versions(history_of(spark), on=on)


FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double", "c": "array<double>"}


@pytest.mark.parametrize("on", [None, ["a"], ["b", "k"], ["c"]], ids=str)
def test_it_is_what_a_loop_over_the_versions_gives(spark: SparkSession, on: list[str] | None) -> None:
    """Random histories, some of whose versions were lost."""
    lost = random.Random(5)
    rows = fold(random_changes(41, 100, FIELDS), entity="thing", keys=["h", "k"], fields=list(FIELDS))
    rows = [row for row in rows if lost.random() > 0.1]
    found = coalesce_versions(rows_to_dataframe(spark, rows, history_schema(FIELDS)), on=on)
    expected = folded(rows, on or list(FIELDS))
    assert len(expected) < len(rows) - 10
    assert by_guid(to_rows(found)) == by_guid(expected)


def test_what_is_folded_is_folded(spark: SparkSession) -> None:
    """Folding a second time changes nothing; a merge's own history is the start."""
    changes = to_dataframe(spark, random_changes(43, 100, FIELDS), FIELDS)
    once = to_rows(coalesce_versions(merge(changes, entity="thing", keys=["h", "k"])))
    again = coalesce_versions(rows_to_dataframe(spark, once, history_schema(FIELDS)))
    assert by_guid(to_rows(again)) == by_guid(once)


def folded(rows: Sequence[Row], on: Sequence[str]) -> list[Row]:
    runs: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["guid"], row["valid_from_timestamp"])):
        last = runs[-1] if runs else None
        if (
            last is not None
            and last["guid"] == row["guid"]
            and last["valid_to_timestamp"] == row["valid_from_timestamp"]
            and last["deleted_indicator"] == row["deleted_indicator"]
            and all(same_value(last[name], row[name]) for name in on)
        ):
            last["valid_to_timestamp"] = row["valid_to_timestamp"]
            continue
        standing = ["guid", "valid_from_timestamp", "valid_to_timestamp", "deleted_indicator"]
        kept = {name: row[name] for name in [*standing, *on, "source_message"]}
        runs.append(
            {**kept, "field_provenance": {name: row["field_provenance"][name] for name in ["guid", *on]}}
        )
    return runs
