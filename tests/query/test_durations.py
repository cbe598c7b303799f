"""`durations` and `weighted_means`: time as a quantity."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.query import durations, weighted_means
from support.random_versions import HOURS, history_of, hour, in_force, random_versions, version


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """A flight at two gates, then deleted for an hour, then back without a gate; and one that waits at A."""
    return history_of(
        spark,
        [
            version("one", 0, 2, "A", 10),
            version("one", 2, 3, "A", 40),
            version("one", 3, 4, "B", 40),
            version("one", 4, 5, None, deleted_indicator=True),
            version("one", 5, None, None),
            version("two", -9, None, "A", 5),
        ],
    )


def rows_of(frame: DataFrame) -> set[tuple[Any, ...]]:
    rows = frame.collect()
    assert len({tuple(row) for row in rows}) == len(rows)
    return {tuple(row) for row in rows}


def test_time_of_all_entities_is_added_up_by_value_and_cut_to_the_period(history: DataFrame) -> None:
    assert rows_of(durations(history, "gate", hour(1), hour(7))) == {
        ("A", 3600.0 * (2 + 6), 3),
        ("B", 3600.0, 1),
        (None, 3600.0 * 2, 1),
    }


def test_by_group_and_of_a_combination_of_fields(history: DataFrame) -> None:
    found = durations(history, ["gate", "seats"], hour(0), hour(3), by="guid")
    assert found.columns == ["guid", "gate", "seats", "seconds", "versions"]
    assert rows_of(found) == {
        ("one", "A", 10, 7200.0, 1),
        ("one", "A", 40, 3600.0, 1),
        ("two", "A", 5, 10800.0, 1),
    }


def test_a_microsecond_counts_and_so_do_ten_thousand_entities_for_a_thousand_years(
    spark: SparkSession,
) -> None:
    moment = timedelta(microseconds=1)
    begins, ends = datetime(1000, 1, 1, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC)
    one = history_of(spark, [version("one", 0, None, "A", 1)]).withColumn(
        "valid_from_timestamp", F.timestamp_micros(F.lit(-30_610_224_000_000_000))
    )
    assert rows_of(durations(one, "gate", ends - moment, ends)) == {("A", 0.000001, 1)}
    many = one.withColumn("guid", F.explode(F.sequence(F.lit(1), F.lit(10_000)).cast("array<string>")))
    assert rows_of(durations(many, "gate", begins, ends)) == {
        ("A", 10_000 * (ends - begins).total_seconds(), 10_000)
    }


def test_a_mean_weighs_each_value_by_its_time(history: DataFrame) -> None:
    # 10 for two hours, 40 for two; nothing is said of the other three.
    assert rows_of(weighted_means(history, "seats", hour(0), hour(7), by="guid")) == {
        ("one", 25.0),
        ("two", 5.0),
    }


def test_a_mean_of_nothing_is_null(history: DataFrame) -> None:
    assert rows_of(weighted_means(history, "seats", hour(5), hour(6), by="guid")) == {
        ("one", None),
        ("two", 5.0),
    }
    assert rows_of(weighted_means(history, "seats", hour(-99), hour(-98))) == {(None,)}


def test_random_histories_hour_by_hour(spark: SparkSession) -> None:
    rows = random_versions(7, 200)
    history = history_of(spark, rows)
    seconds: dict[Any, float] = defaultdict(float)
    weights: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for number in range(HOURS):
        for row in in_force(rows, hour(number)):
            seconds[row["guid"], row["gate"]] += 3600
            if row["seats"] is not None:
                weights[row["gate"]].append((row["seats"], 1))
    found = durations(history, "gate", hour(0), hour(HOURS), by="guid").drop("versions")
    assert rows_of(found) == {(guid, gate, total) for (guid, gate), total in seconds.items()}
    means = {
        row["gate"]: row["seats"]
        for row in weighted_means(history, "seats", hour(0), hour(HOURS), by="gate").collect()
    }
    assert means == {
        gate: pytest.approx(sum(value * weight for value, weight in each) / len(each))
        for gate, each in weights.items()
    }


def test_what_cannot_be_meant(history: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="would depend on when it is asked"):
        durations(history, "gate", hour(0), None)  # type: ignore[arg-type]
    for asked in (durations, weighted_means):
        with pytest.raises(InvalidArgument, match="fields to be one or more"):
            asked(history, [], hour(0), hour(1))
    with pytest.raises(InvalidArgument, match="after start"):
        durations(history, "gate", hour(1), hour(1))
    with pytest.raises(InvalidArgument, match="aware datetime"):
        durations(history, "gate", datetime(2024, 1, 1), hour(1))
    with pytest.raises(InvalidArgument, match=r"gait.*gate"):
        durations(history, "gait", hour(0), hour(1))
    with pytest.raises(InvalidArgument, match="by"):
        durations(history, "gate", hour(0), hour(1), by="gate")
    with pytest.raises(InvalidArgument, match="other names than seconds, versions"):
        durations(history.withColumnRenamed("gate", "Seconds"), "Seconds", hour(0), hour(1))
    with pytest.raises(WrongColumnType, match="gate as a number"):
        weighted_means(history, "gate", hour(0), hour(1))
    with pytest.raises(MissingColumns, match="valid_to_timestamp"):
        durations(history.drop("valid_to_timestamp"), "gate", hour(0), hour(1))
