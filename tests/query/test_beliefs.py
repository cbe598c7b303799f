"""`beliefs_about`, `diff_beliefs`, `as_shown`, `error_durations`: beliefs, and how long they were wrong."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import keep_known
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.query import as_shown, beliefs_about, diff, diff_beliefs, error_durations
from support.random_versions import SCHEMA, Row, hour, random_versions
from tools.tiers import seeds

HOURS = range(-8, 90)
TOLD = ("guid", "field", "error", "shown_value", "true_value")
TABLE = SCHEMA + ", system_from_timestamp timestamp, system_to_timestamp timestamp"


def random_beliefs(seed: int, entities: int) -> list[Row]:
    """Of each entity up to five beliefs one after the other, each a history of its own."""
    chance, rows = random.Random(seed), []
    for number in range(entities):
        moments = sorted(chance.sample(range(-6, 30), chance.randrange(1, 6)))
        for place, moment in enumerate(moments):
            until = hour(moments[place + 1]) if place + 1 < len(moments) else None
            for row in random_versions(chance.randrange(2**31), 1):
                system = {"system_from_timestamp": hour(moment), "system_to_timestamp": until}
                said = f"{number}.{place}.{row['source_message']}"
                rows.append(row | {"guid": f"g{number}", "source_message": said} | system)
    return rows


def holds(row: Row, at: datetime, kind: str = "valid") -> bool:
    begins, ends = row[f"{kind}_from_timestamp"], row[f"{kind}_to_timestamp"]
    return bool(begins <= at and (ends is None or at < ends))


def table_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(rows, TABLE)


def hour_by_hour(history: DataFrame) -> Counter[tuple[int, str]]:
    rows = history.toArrow().to_pylist()
    assert not {name for row in rows[:1] for name in row if name.startswith("system_")}
    return Counter(
        (number, row["source_message"]) for number in HOURS for row in rows if holds(row, hour(number))
    )


@seeds(21, soak=20)
def test_random_beliefs_hour_by_hour(spark: SparkSession, seed: int) -> None:
    """On the board, and about one instant, at every hour of knowledge."""
    rows = random_beliefs(seed, 300)
    table = table_of(spark, rows)
    assert hour_by_hour(as_shown(table)) == Counter(
        (number, row["source_message"])
        for number in HOURS
        for row in rows
        if holds(row, hour(number)) and holds(row, hour(number), "system")
    )
    assert hour_by_hour(beliefs_about(table, hour(7))) == Counter(
        (number, row["source_message"])
        for number in HOURS
        for row in rows
        if holds(row, hour(7)) and holds(row, hour(number), "system")
    )


def errors(rows: list[Row], until: int | None) -> Counter[tuple[Any, ...]]:
    """By asking at every hour what was shown, and what is true in the end."""
    end = hour(HOURS[-1] if until is None else until)
    by_guid: dict[str, list[Row]] = {}
    for row in rows:
        by_guid.setdefault(row["guid"], []).append(row)
    found: Counter[tuple[Any, ...]] = Counter()
    for number in HOURS:
        if until is not None and number >= until:
            break
        for guid, own in by_guid.items():
            there = [row for row in own if holds(row, hour(number)) and not row["deleted_indicator"]]
            shown = next((row for row in there if holds(row, hour(number), "system")), None)
            true = next((row for row in there if holds(row, end, "system")), None)
            for field in ("gate", "seats"):
                said = [row and row[field] for row in (shown, true)]
                error = "wrong" if said[0] != said[1] else None
                if (shown is None) != (true is None):
                    error = "missing" if shown is None else "extra"
                if error:
                    texts = (None if value is None else str(value) for value in said)
                    found[guid, field, error, *texts] += 1
    return found


@seeds(22, soak=20)
def test_random_errors_hour_by_hour(spark: SparkSession, seed: int) -> None:
    rows = random_beliefs(seed, 300)
    table = table_of(spark, rows)
    for until in (None, 12):
        told = error_durations(table, ["gate", "seats"], until=None if until is None else hour(until))
        listed = told.toArrow().to_pylist()
        found: Counter[tuple[Any, ...]] = Counter()
        for row in listed:
            lasted = (row["valid_to_timestamp"] - row["valid_from_timestamp"]).total_seconds()
            assert lasted == row["seconds"] > 0
            found[*(row[name] for name in TOLD)] += lasted / 3600
        assert found == errors(rows, until)
        # The longest periods: none begins as one with the same error ends.
        begun, ended = (
            {(row[f"valid_{end}_timestamp"], *(row[name] for name in TOLD)) for row in listed}
            for end in ("from", "to")
        )
        assert not begun & ended


@seeds(23, soak=20)
def test_what_came_and_went_is_all_that_differs(spark: SparkSession, seed: int) -> None:
    table = table_of(spark, random_beliefs(seed, 200))
    found = diff_beliefs(table, hour(3), hour(14), keys=["gate"])
    whole = diff(keep_known(table, hour(3)), keep_known(table, hour(14)), keys=["gate"])
    assert found.columns[-4:] == ["from_value", "to_value", "from_message", "to_message"]
    # Which version the key is taken from may differ.
    one, other = (Counter(tuple(row) for row in frame.drop("gate").collect()) for frame in (found, whole))
    assert one == other
    assert len(one) > 500


def test_how_long_the_board_showed_the_wrong_gate(spark: SparkSession) -> None:
    """A from 8 on; at 10:30 it becomes known that it is B since 10, at 12 that it was C from 11 to 11:30."""

    def row(begins: float, ends: float | None, known: float, until: float | None, gate: str) -> Row:
        instants = {"valid_from": begins, "valid_to": ends, "system_from": known, "system_to": until}
        return {
            "guid": "x",
            **{f"{name}_timestamp": None if at is None else hour(at) for name, at in instants.items()},
            "deleted_indicator": False,
            "gate": gate,
            "seats": 7,
            "source_message": "m",
        }

    table = table_of(
        spark,
        [
            row(8, None, 7, 10.5, "A"),
            row(8, 10, 10.5, None, "A"),
            row(10, None, 10.5, 12, "B"),
            row(10, 11, 12, None, "B"),
            # A key that is null by what is true is not that of the board.
            row(11, 11.5, 12, None, "C") | {"seats": None},
            row(11.5, None, 12, None, "B"),
        ],
    )
    told = error_durations(table, "gate", keys=["seats"]).drop("guid").orderBy("valid_from_timestamp")
    assert [tuple(row.values()) for row in told.toArrow().to_pylist()] == [
        (7, "gate", "wrong", hour(10), hour(10.5), "A", "B", 1800.0),
        (None, "gate", "wrong", hour(11), hour(11.5), "B", "C", 1800.0),
    ]
    early = error_durations(table, "gate", until=hour(11.25)).toArrow().to_pylist()
    assert [(row["shown_value"], row["true_value"], row["seconds"]) for row in early] == [("A", "B", 1800.0)]


def test_what_cannot_be_asked(spark: SparkSession) -> None:
    table = table_of(spark, random_beliefs(1, 2))
    naive = datetime(2024, 1, 1)
    with pytest.raises(InvalidArgument, match=r"beliefs_about\(table, datetime\(2024"):
        beliefs_about(table, naive)
    with pytest.raises(InvalidArgument, match="until"):
        error_durations(table, "gate", until=naive)
    with pytest.raises(InvalidArgument, match="fields to be one or more fields among gate, seats"):
        error_durations(table, "gates")
    for moments, said in (
        ((hour(2), hour(1)), r"diff_beliefs\(\) needs later to be after earlier"),
        ((naive, hour(1)), r"diff_beliefs\(\) needs earlier to be an aware .*diff_beliefs\(table, "),
        ((hour(1), None), r"diff_beliefs\(\) needs later to be an aware"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            diff_beliefs(table, *moments)
    for key in ("gates", "Field", "to_value"):
        with pytest.raises(InvalidArgument, match=r"diff_beliefs\(\) needs keys to be"):
            diff_beliefs(table.withColumnRenamed("gate", key.rstrip("s")), hour(1), hour(2), keys=[key])
    with pytest.raises(InvalidArgument, match="keys to be called otherwise than field, error"):
        error_durations(table.withColumnRenamed("gate", "Seconds"), "seats", keys=["Seconds"])
    without = table.drop("deleted_indicator")
    with pytest.raises(MissingColumns, match=r"diff_beliefs\(\) needs the columns deleted_indicator"):
        diff_beliefs(without, hour(1), hour(2))
    with pytest.raises(MissingColumns, match=r"error_durations\(\) needs the columns deleted_indicator"):
        error_durations(without, "gate")
    for ask in (
        as_shown,
        lambda given: beliefs_about(given, hour(1)),
        lambda given: error_durations(given, "gate"),
    ):
        with pytest.raises(MissingColumns, match="system_from_timestamp"):
            ask(keep_known(table, hour(1)))
