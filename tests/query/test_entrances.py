"""
What comes in as a history: whatever stands for an open end is one, and a bitemporal table is no history.

Whoever asks that as a history is told how to take what was believed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit as c
import cdckit.errors
import cdckit.outputs
import cdckit.quality
import cdckit.query
from cdckit.model.history import OPEN_END
from cdckit.notebook import pictures

KEYS = ["h", "k"]
KEY = {"h": 0, "k": "x"}
AT = datetime(2024, 3, 1, tzinfo=UTC)
LATER = datetime(2024, 4, 1, tzinfo=UTC)
NO_END = datetime(2030, 12, 31, tzinfo=UTC)

QUESTIONS: dict[str, Callable[[DataFrame, DataFrame], Any]] = {
    "as_of": lambda table, changes: c.as_of(table, AT),
    "current": lambda table, changes: c.current(table),
    "between": lambda table, changes: c.between(table, AT, LATER),
    "timeline": lambda table, changes: c.query.timeline(table, KEY),
    "with_operation": lambda table, changes: c.query.with_operation(table),
    "changes_between": lambda table, changes: c.changes_between(table, AT, LATER),
    "diff": lambda table, changes: c.query.diff(table, table.where("k = 'x'")),
    "coalesce_versions": lambda table, changes: c.quality.coalesce_versions(table),
    "find_overlaps": lambda table, changes: c.quality.find_overlaps(table),
    "find_gaps": lambda table, changes: c.quality.find_gaps(table),
    "as_of_join": lambda table, changes: c.as_of_join(
        changes.select("effective_timestamp", "data.k"),
        c.Lookup(table, on="k", into="found"),
        time="effective_timestamp",
    ),
    "overlay": lambda table, changes: c.query.overlay(*(c.query.Layer(table, into=name) for name in "ab")),
    "blame": lambda table, changes: c.blame(table, KEY),
    "values_by_message": lambda table, changes: c.query.values_by_message(table, ["m1", "m3"]),
    "count_sources": lambda table, changes: c.query.count_sources(table, changes),
    "durations": lambda table, changes: c.query.durations(table, "a", AT, LATER),
    "weighted_means": lambda table, changes: c.query.weighted_means(table, "a", AT, LATER),
    "counts_over_time": lambda table, changes: c.query.counts_over_time(table, AT, LATER),
    "episodes": lambda table, changes: c.query.episodes(table, F.col("a") > 0),
    "transitions": lambda table, changes: c.query.transitions(table, "a", AT, LATER),
    "scd_type_1": lambda table, changes: c.outputs.scd_type_1(table),
    "scd_type_2": lambda table, changes: c.outputs.scd_type_2(table),
    "scd_type_3": lambda table, changes: c.outputs.scd_type_3(table, ["a"]),
    "scd_type_4": lambda table, changes: c.outputs.scd_type_4(table).current,
    "scd_type_6": lambda table, changes: c.outputs.scd_type_6(table, ["a"]),
    "periodic_snapshots": lambda table, changes: c.outputs.periodic_snapshots(
        table, start=AT, end=LATER, every="month"
    ),
}
PICTURES: dict[str, Callable[[DataFrame, DataFrame], Any]] = {
    "validity_bars": lambda table, changes: pictures.validity_bars(table, label="k"),
    "provenance_map": lambda table, changes: pictures.provenance_map(table, changes, KEY),
}


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    """Two things: one that is changed in March, also by a late word, and one that goes."""
    log = pd.DataFrame(
        [
            *((0, "x", 1, "m0", "2024-02-01", "2024-02-01"), (0, "y", 5, "m0", "2024-02-01", "2024-02-01")),
            *(
                (0, "x", 2, "m1", "2024-03-10", "2024-03-10"),
                (0, "y", None, "m2", "2024-03-11", "2024-03-11"),
            ),
            (0, "x", 3, "m3", "2024-03-12", "2024-03-20"),
        ],
        columns=["h", "k", "a", "m", "since", "said"],
    ).astype({"a": "Int64", "said": "datetime64[ns, UTC]"})
    return c.changes_from(
        log,
        keys=KEYS,
        sequence_by="said",
        effective="since",
        message="m",
        apply_as_deletes="a is null",
        column_list=["a"],
    ).localCheckpoint()


@pytest.fixture(scope="module")
def beliefs(changes: DataFrame) -> DataFrame:
    return c.bitemporal(changes, entity="thing", keys=KEYS).localCheckpoint()


@pytest.mark.parametrize("name", {**QUESTIONS, **PICTURES})
def test_a_question_about_a_history_refuses_a_bitemporal_table(
    beliefs: DataFrame, changes: DataFrame, name: str
) -> None:
    said = rf"{name}\(\) needs history to be what was believed at one moment.*keep_known\(table, at\)"
    if name == "as_of_join":  # it is asked of such a table, too
        said = r"as_of_join\(\) needs known to be said, since history of '\w+' has two times"
    with pytest.raises(c.errors.InvalidArgument, match=said):
        {**QUESTIONS, **PICTURES}[name](beliefs, changes)
    if name in QUESTIONS:  # A picture would run a job.
        QUESTIONS[name](c.keep_known(beliefs, AT), changes)


def test_either_side_of_a_difference_is_refused(beliefs: DataFrame) -> None:
    with pytest.raises(c.errors.InvalidArgument, match=r"diff\(\) needs history"):
        c.query.diff(c.keep_known(beliefs, AT), beliefs)


def test_half_of_the_interval_is_a_column_like_any_other(beliefs: DataFrame) -> None:
    c.current(beliefs.drop("system_to_timestamp"))


# Open ends ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(changes: DataFrame) -> tuple[DataFrame, DataFrame]:
    """A history, and the same as other libraries write it: an instant for open ends, null for not deleted."""
    history = c.merge(changes, entity="thing", keys=KEYS).localCheckpoint()
    unsaid = history.withColumn("deleted_indicator", F.when(F.col("deleted_indicator"), True))
    return history, marked(unsaid, "valid_to_timestamp")


def marked(table: DataFrame, *ends: str) -> DataFrame:
    for end in ends:
        written = F.coalesce(end, F.lit(NO_END))
        table = table.withColumn(end, written).withMetadata(end, {OPEN_END: int(NO_END.timestamp()) * 10**6})
    return table


def rows(answer: DataFrame) -> list[str]:
    return sorted(map(str, answer.toArrow().to_pylist()))


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_history_of_another_library_is_one_to_every_question(
    both: tuple[DataFrame, DataFrame], changes: DataFrame, name: str
) -> None:
    """What stands for an open end is one, and what nobody says to be deleted is there."""
    history, table = both
    expected = rows(QUESTIONS[name](history, changes))
    assert expected or name.startswith("find_")
    # In the column of the history itself, what it does not say stays unsaid.
    answer = rows(QUESTIONS[name](table, changes))
    assert [
        row.replace("'deleted_indicator': None", "'deleted_indicator': False") for row in answer
    ] == expected


def test_what_stands_for_an_open_end_is_one_in_either_time(beliefs: DataFrame) -> None:
    written = marked(beliefs, "valid_to_timestamp", "system_to_timestamp")
    for ask in (
        lambda each: c.keep_known(each, NO_END),
        lambda each: c.query.beliefs_about(each, NO_END),
        c.query.as_shown,
        lambda each: c.query.diff_beliefs(each, AT, NO_END),
        lambda each: c.query.error_durations(each, ["a"]),
    ):
        assert rows(ask(written)) == rows(ask(beliefs)) != []


def test_nobody_asks_a_history_but_as_it_comes_out_of_the_entrance() -> None:
    """`require_history` and `require_bitemporal` tell open ends apart: who drops what they return forgets."""
    for path in Path(c.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = getattr(node.value.func, "id", "")
                assert called not in ("require_history", "require_bitemporal", "with_open_ends"), path


# One for the other ----------------------------------------------------------------------------------------


def test_a_history_where_changes_are_asked_for_is_called_one(
    both: tuple[DataFrame, DataFrame], changes: DataFrame
) -> None:
    """Not a table of which changes are still to be made."""
    for ask in (
        lambda table: c.merge(table, entity="thing", keys=KEYS),
        lambda table: c.why(table, KEY, "a", keys=KEYS),
        lambda table: c.bitemporal(table, entity="thing", keys=KEYS),
    ):
        with pytest.raises(c.errors.MissingColumns, match=r"This is a history.* give the changes") as caught:
            ask(both[0])
        assert "changes_from" not in str(caught.value)
    with pytest.raises(c.errors.MissingColumns, match="changes_from"):
        c.merge(changes.select("data.*"), entity="thing", keys=KEYS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_changes_where_a_history_is_asked_for_are_to_be_merged_first(changes: DataFrame, name: str) -> None:
    with pytest.raises(c.CdcError, match=r"merge"):
        QUESTIONS[name](changes.withColumn("k", F.lit("x")), changes)
