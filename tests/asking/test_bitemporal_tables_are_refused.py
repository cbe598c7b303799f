"""A bitemporal table is no history: whoever asks it as one is told how to take what was believed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from histories import random_changes, to_dataframe
from pyspark.sql import DataFrame, SparkSession

import cdckit as c
from cdckit import pictures

FIELDS = {"h": "int", "k": "string", "a": "int"}
KEYS = ["h", "k"]
KEY = {"h": 0, "k": "x"}
AT = datetime(2024, 3, 1, tzinfo=UTC)
LATER = datetime(2024, 4, 1, tzinfo=UTC)

QUESTIONS: dict[str, Callable[[DataFrame, DataFrame], Any]] = {
    "as_of": lambda table, changes: c.as_of(table, AT),
    "current": lambda table, changes: c.current(table),
    "between": lambda table, changes: c.between(table, AT, LATER),
    "timeline": lambda table, changes: c.timeline(table, KEY),
    "with_operation": lambda table, changes: c.with_operation(table),
    "changes_between": lambda table, changes: c.changes_between(table, AT, LATER),
    "diff": lambda table, changes: c.diff(table, table),
    "coalesce": lambda table, changes: c.coalesce(table),
    "find_overlaps": lambda table, changes: c.find_overlaps(table),
    "find_gaps": lambda table, changes: c.find_gaps(table),
    "find_several_current": lambda table, changes: c.find_several_current(table),
    "find_empty_periods": lambda table, changes: c.find_empty_periods(table),
    "as_of_join": lambda table, changes: c.as_of_join(
        changes.select("effective_timestamp", "data.k"),
        c.Lookup(table, on="k", into="found"),
        time="effective_timestamp",
    ),
    "overlay": lambda table, changes: c.overlay(c.Side(table, into="a"), c.Side(table, into="b")),
    "blame": lambda table, changes: c.blame(table, KEY),
    "by_message": lambda table, changes: c.by_message(table, "m1"),
    "sources_of": lambda table, changes: c.sources_of(table, changes),
    "validity_bars": lambda table, changes: pictures.validity_bars(table, label="k"),
    "provenance_map": lambda table, changes: pictures.provenance_map(table, changes, KEY),
}


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    return to_dataframe(spark, random_changes(81, 2, FIELDS), FIELDS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_about_a_history_refuses_a_bitemporal_table(changes: DataFrame, name: str) -> None:
    table = c.bitemporal(changes, entity="thing", keys=KEYS)
    said = rf"{name}\(\) needs history to be what was believed at one moment.*known_at\(table, at\)"
    with pytest.raises(c.InvalidArgument, match=said):
        QUESTIONS[name](table, changes)
    if name not in ("validity_bars", "provenance_map"):  # These would run a job.
        QUESTIONS[name](c.known_at(table, AT), changes)


def test_either_side_of_a_difference_is_refused(changes: DataFrame) -> None:
    table = c.bitemporal(changes, entity="thing", keys=KEYS)
    with pytest.raises(c.InvalidArgument, match=r"diff\(\) needs history"):
        c.diff(c.known_at(table, AT), table)


def test_half_of_the_interval_is_a_column_like_any_other(changes: DataFrame) -> None:
    table = c.bitemporal(changes, entity="thing", keys=KEYS)
    c.current(table.drop("system_to_timestamp"))
