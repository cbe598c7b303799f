"""`episodes` and `transitions`: how long something held, and from what it went to what."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.query import episodes, transitions
from support.random_versions import MIDNIGHT, Row, history_of, hour, random_versions


@pytest.fixture(scope="module")
def versions() -> list[Row]:
    return random_versions(13, 150)


@pytest.fixture(scope="module")
def history(spark: SparkSession, versions: list[Row]) -> DataFrame:
    return history_of(spark, versions)


def lives(versions: list[Row]) -> dict[str, list[Row]]:
    """By entity, its versions in their order, without those that are over as they begin."""
    found: dict[str, list[Row]] = {}
    for row in sorted(versions, key=lambda row: row["valid_from_timestamp"]):
        if row["valid_to_timestamp"] != row["valid_from_timestamp"]:
            found.setdefault(row["guid"], []).append(row)
    return found


def utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(MIDNIGHT.tzinfo)


@pytest.mark.parametrize("bridged", [0, 1])
def test_episodes_are_what_a_walk_along_each_life_finds(
    history: DataFrame, versions: list[Row], bridged: int
) -> None:
    expected = set()
    for guid, life in lives(versions).items():
        open_: list[Any] | None = None
        for row in life:
            if row["gate"] != "A" or row["deleted_indicator"]:
                continue
            begins, ends = row["valid_from_timestamp"], row["valid_to_timestamp"]
            if open_ is not None and begins <= open_[1] + timedelta(hours=bridged):
                open_[1], open_[2] = ends, open_[2] + 1
            else:
                if open_ is not None:
                    expected.add((guid, *open_))
                open_ = [begins, ends, 1, row["source_message"], row["seats"]]
        if open_ is not None:
            expected.add((guid, *open_))
    found = episodes(history, F.col("gate") == "A", keep="seats", bridge=timedelta(hours=bridged))
    rows = [
        (row["guid"], utc(row[2]), utc(row[3]), row["versions"], row["source_message"], row["seats"])
        for row in found.collect()
    ]
    assert len(expected) > 50
    assert sorted(rows, key=repr) == sorted(expected, key=repr)


def test_transitions_are_what_a_walk_along_each_life_finds(history: DataFrame, versions: list[Row]) -> None:
    start, end = hour(3), hour(20)
    expected: Counter[tuple[Any, ...]] = Counter()
    for life in lives(versions).values():
        before: Row | None = None
        for row in life:
            if before is not None and before["valid_to_timestamp"] != row["valid_from_timestamp"]:
                before = None
            if start <= row["valid_from_timestamp"] < end:
                for told in _told(before, row):
                    expected[told] += 1
            before = row
    found = transitions(history, "gate", start, end, by="seats")
    assert found.columns == ["seats", "operation", "from_value", "to_value", "transitions"]
    assert {tuple(row)[:4]: row["transitions"] for row in found.collect()} == dict(expected)
    assert len({operation for _, operation, _, _ in expected}) == 4


def _told(before: Row | None, row: Row) -> list[tuple[Any, ...]]:
    was_there = before is not None and not before["deleted_indicator"]
    if row["deleted_indicator"]:
        if before is None or not was_there:
            return []
        return [(before["seats"], "delete", before["gate"], None)]
    if before is None:
        return [(row["seats"], "insert", None, row["gate"])]
    if not was_there:
        return [(row["seats"], "recreate", None, row["gate"])]
    if before["gate"] == row["gate"]:
        return []
    return [(row["seats"], "update", before["gate"], row["gate"])]


def test_a_bridge_of_a_day_is_24_hours_in_every_zone(spark: SparkSession) -> None:
    """In Paris, 31 March 2024 has 23 hours."""
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    midnight = datetime(2024, 3, 30, 12, tzinfo=UTC)
    starts = (midnight, midnight + timedelta(hours=25))
    rows = [
        {
            "guid": "g",
            "valid_from_timestamp": start,
            "valid_to_timestamp": start + timedelta(hours=1),
            "deleted_indicator": False,
        }
        for start in starts
    ]
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        history, day = history_of(spark, rows), timedelta(days=1)
        found = [
            episodes(history, F.lit(True), bridge=bridge).count()
            for bridge in (day, day - timedelta(microseconds=1), timedelta.max)
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert found == [1, 2, 1]


def test_a_deleted_entity_has_no_value_even_of_its_key(spark: SparkSession) -> None:
    """A deleted version keeps the fields of the key, as `merge` makes it: here the gate."""
    lives = ((0, 2, False, "A"), (2, 4, True, "A"), (4, 6, False, "A"), (6, 7, True, "A"), (7, 9, False, "B"))
    rows = [
        {
            "guid": "g",
            "valid_from_timestamp": hour(begins),
            "valid_to_timestamp": hour(ends),
            "deleted_indicator": deleted,
            "gate": gate,
        }
        for begins, ends, deleted, gate in lives
    ]
    found = transitions(history_of(spark, rows), "gate", hour(0), None, by="gate")
    assert sorted(map(tuple, found.collect()), key=repr) == [
        ("A", "delete", "A", None, 2),
        ("A", "insert", None, "A", 1),
        ("A", "recreate", None, "A", 1),
        ("B", "recreate", None, "B", 1),
    ]


def test_what_cannot_be_meant(history: DataFrame) -> None:
    with pytest.raises(WrongColumnType, match="condition as boolean; it is string"):
        episodes(history, F.col("gate"))
    with pytest.raises(InvalidArgument, match=r"condition to be a column, such as F\.expr"):
        episodes(history, "gate = 1")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="field to be a name"):
        transitions(history, ["gate"], hour(0), None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="bridge"):
        episodes(history, F.lit(True), bridge=timedelta(seconds=-1))
    with pytest.raises(InvalidArgument, match="keep"):
        episodes(history, F.lit(True), keep="gait")
    with pytest.raises(InvalidArgument, match="field"):
        transitions(history, "gait", hour(0), None)
    with pytest.raises(InvalidArgument, match="after start"):
        transitions(history, "gate", hour(0), hour(0))
