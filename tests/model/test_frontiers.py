"""`find_frontiers` and `find_missing_positions`: until where a stream is whole, and what it lacks."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.model import find_frontiers, find_missing_positions
from tools.tiers import seeds

BEGIN = datetime(2024, 1, 1)
SCHEMA = "topic string, partition int, offset bigint, timestamp timestamp"


def records(topic: str | None, *minutes: tuple[int | None, int | None]) -> list[tuple[Any, ...]]:
    """Records of that topic: the offset of each, and the minute in which it was sent."""
    times = [None if minute is None else BEGIN + timedelta(minutes=minute) for _, minute in minutes]
    return [(topic, 0, offset, time) for (offset, _), time in zip(minutes, times, strict=True)]


ROWS = [
    *records("whole", (3, 1), (4, 1), (5, 2)),
    # The same record twice; what came late is in the middle.
    *records("gaps", (7, 5), (1, 1), (2, 2), (1, 1), (3, 3), (8, 6), (12, 9)),
    *records("falling", (1, 5), (2, 4), (3, 6)),
    *records("falling behind a gap", (1, 1), (3, 5), (4, 4)),
    *records("older behind a gap", (1, 3), (3, 2)),
    *records("no times", (1, 1), (2, None)),
    *records("one", (9, 1)),
    *records("no number", (None, 1)),
    *records(None, (1, 1), (3, 3)),
]


def test_a_stream_is_complete_until_its_first_gap(spark: SparkSession) -> None:
    found = find_frontiers(spark.createDataFrame(ROWS, SCHEMA)).localCheckpoint()
    told = {
        row["topic"]: (*row[2:5], row[5] and (row[5] - BEGIN).total_seconds() / 60, row[6])
        for row in found.collect()
    }
    assert told == {
        "whole": (3, 5, 5, 2, 0),
        "gaps": (1, 12, 3, 3, 6),
        "falling": (1, 3, 3, None, 0),
        "falling behind a gap": (1, 4, 1, None, 1),
        "older behind a gap": (1, 3, 1, None, 1),
        "no times": (1, 2, 2, None, 0),
        "one": (9, 9, 9, 1, 0),
        None: (1, 3, 1, 1, 1),
    }


def test_each_gap_is_told_by_its_first_and_last_number(spark: SparkSession) -> None:
    found = find_missing_positions(spark.createDataFrame(ROWS, SCHEMA))
    assert sorted(map(tuple, found.drop("partition").collect()), key=repr) == sorted(
        [
            ("gaps", 4, 6),
            ("gaps", 9, 11),
            ("falling behind a gap", 2, 2),
            ("older behind a gap", 2, 2),
            (None, 2, 2),
        ],
        key=repr,
    )


@seeds(1, soak=10)
def test_what_was_lost_is_what_is_missing(spark: SparkSession, seed: int) -> None:
    drawn = random.Random(seed)
    lost = {(stream, number) for stream in range(40) for number in range(1, 30) if drawn.random() < 0.2}
    kept = [
        (stream, number)
        for stream in range(40)
        for number in range(31)
        for _ in range(drawn.choice((1, 1, 2)))
        if (stream, number) not in lost
    ]
    drawn.shuffle(kept)
    gaps = find_missing_positions(
        spark.createDataFrame(kept, "stream int, number int"), stream=["stream"], position="number"
    ).collect()
    missing = [(row[0], number) for row in gaps for number in range(row[1], row[2] + 1)]
    assert sorted(missing) == sorted(lost)
    assert all((row[0], row[1] - 1) not in lost and (row[0], row[2] + 1) not in lost for row in gaps)


def test_a_call_that_cannot_be_answered_says_what_is_needed(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA)
    with pytest.raises(MissingColumns, match="offset"):
        find_frontiers(frame.drop("offset"))
    with pytest.raises(InvalidArgument, match="topik"):
        find_frontiers(frame, stream=["topik"])
    with pytest.raises(WrongColumnType, match="whole number"):
        find_missing_positions(frame, position="topic")
    with pytest.raises(WrongColumnType, match="timestamp"):
        find_frontiers(frame.withColumn("timestamp", F.lit("x")))
    with pytest.raises(InvalidArgument, match="answer"):
        find_frontiers(frame.withColumnRenamed("topic", "missing"), stream=["missing"])
