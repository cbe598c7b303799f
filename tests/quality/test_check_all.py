"""`check_all`: what it can be asked, and that each answer has a page of its own in Data Docs."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit.errors import InvalidArgument
from cdckit.quality import check_all, data_docs
from support.suites import told, views

NAMED = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "name"}}
SUITE = {"name": "mine", "expectations": [NAMED]}


@pytest.fixture(scope="module")
def products(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "kettle"), (2, None)], "number int, name string").coalesce(1)


def test_what_cannot_be_asked_is_told_with_its_place(products: DataFrame) -> None:
    has_column = products.withColumnRenamed("name", "contracts")
    wrong: list[tuple[Any, str]] = [
        ({"x": (products,)}, r"asked\['x'\]"),
        ({"x": (products, SUITE, 1)}, r"asked\['x'\]"),
        ({"in": {"x": [products, SUITE]}}, r"asked\['in.x'\]"),
        ({"x": (SUITE, products)}, r"asked\['x'\]"),
        ({1: (products, SUITE)}, "asked"),
        ({"x": has_column}, r"asked\['x'\]"),
        (products, "asked"),
    ]
    for asked, place in wrong:
        with pytest.raises(InvalidArgument, match=rf"needs {place} to be what has `contracts\(\)`"):
            check_all(asked)


def test_no_answer_takes_the_place_of_another(products: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match=r"tables of different names; it is 'two of the name a\.b'"):
        check_all({"a.b": (products, SUITE), "a": {"b": (products, SUITE)}})


def test_of_two_logs_beside_a_history_none_is_taken(spark: SparkSession) -> None:
    tables = views(spark, "ledger", [told("ledger")["good"]])
    log = tables["cdckit_changes"]
    asked = {
        "flights": {"one": (log, "changes"), "two": (log, "changes"), "kept": (tables["batch"], "ledger")}
    }
    with pytest.raises(
        InvalidArgument, match=r"one table of the suite changes beside flights.kept.*one, two"
    ):
        check_all(asked)


NAMES = ["a/b", "a\\b", "A_B", "a:b", "50%", "a b", "é#?*", "..", "x" * 300, "x" * 299 + "y"]


def test_every_name_is_that_of_a_file_of_its_own() -> None:
    """Also where files whose names differ in case are one, and where names are long."""
    files = data_docs._file_names(NAMES)
    assert [*files] == sorted(NAMES)
    assert len({name.casefold() for name in files.values()}) == len(NAMES)
    assert [name for name in files.values() if set(name) & set("/\\:%#?*")] == []
    assert max(len(name.encode()) for name in files.values()) <= 210
