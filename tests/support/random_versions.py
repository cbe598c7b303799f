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


def version(
    guid: str, begins: float, ends: float | None, gate: str | None, seats: int | None = None, **columns: Any
) -> Row:
    """A version between two hours, whose message is named after it."""
    return {
        "guid": guid,
        "valid_from_timestamp": hour(begins),
        "valid_to_timestamp": None if ends is None else hour(ends),
        "deleted_indicator": False,
        "gate": gate,
        "seats": seats,
        "source_message": f"{guid} {begins}",
        **columns,
    }


def random_versions(seed: int, entities: int) -> list[Row]:
    """Versions that meet, or leave a gap; some deleted, some over as they begin; the last often open."""
    chance = random.Random(seed)
    rows = []
    for number in range(entities):
        at = chance.randrange(-6, 12)
        for place in range(chance.randrange(1, 9)):
            ends = at + chance.choice((0, 1, 1, 2, 3, 7))
            is_last = chance.random() < 0.2
            deleted = chance.random() < 0.2
            gate = None if deleted else chance.choice(("A", "B", None))
            seats = None if deleted else chance.choice((1, 2, 30, None))
            said = {"deleted_indicator": deleted, "source_message": f"m{number}.{place}"}
            rows.append(version(f"g{number}", at, None if is_last else ends, gate, seats, **said))
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
