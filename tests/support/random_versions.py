"""Random versions on whole hours of one day, for questions that a loop over all hours can answer."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

Row = dict[str, Any]

MIDNIGHT = datetime(2024, 3, 10, tzinfo=UTC)
HOURS = 30
SCHEMA = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    gate string, seats int, source_message string
"""


def hour(number: float) -> datetime:
    return MIDNIGHT + timedelta(hours=number)


def random_versions(seed: int, entities: int) -> list[Row]:
    """Versions that meet, or leave a gap; some deleted, some over as they begin; the last often open."""
    chance = random.Random(seed)
    rows = []
    for number in range(entities):
        at = chance.randrange(-6, 12)
        for version in range(chance.randrange(1, 9)):
            ends = at + chance.choice((0, 1, 1, 2, 3, 7))
            is_last = chance.random() < 0.2
            deleted = chance.random() < 0.2
            rows.append(
                {
                    "guid": f"g{number}",
                    "valid_from_timestamp": hour(at),
                    "valid_to_timestamp": None if is_last else hour(ends),
                    "deleted_indicator": deleted,
                    "gate": None if deleted else chance.choice(("A", "B", None)),
                    "seats": None if deleted else chance.choice((1, 2, 30, None)),
                    "source_message": f"m{number}.{version}",
                }
            )
            if is_last:
                break
            at = ends + chance.choice((0, 0, 0, 1, 2))
    chance.shuffle(rows)
    return rows


def streamed(table: DataFrame) -> DataFrame:
    """A stream of the columns of *table*, for what refuses streams."""
    columns = (F.lit(None).cast(field.dataType).alias(field.name) for field in table.schema)
    return table.sparkSession.readStream.format("rate").load().select(*columns)


def in_force(rows: list[Row], at: datetime) -> list[Row]:
    """The versions that are in force at an instant, entity by entity, without the deleted ones."""
    return [
        row
        for row in rows
        if row["valid_from_timestamp"] <= at
        and (row["valid_to_timestamp"] is None or at < row["valid_to_timestamp"])
        and not row["deleted_indicator"]
    ]


def history_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)
