"""Ledgers of people, nights of lists, and what is left where somebody was forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.ledger import Ledger
from support.histories import Row
from support.people import ENTITY, KEYS
from support.shop_log import shop_changes

WHO = {"by": "dana", "reason": "asked for by letter"}


def opened(spark: SparkSession, place: Path, **options: Any) -> Ledger:
    return Ledger(spark, place, entity=ENTITY, keys=KEYS, **{"buckets": 3, **options})


def keys_of(changes: Sequence[Row]) -> list[Row]:
    keys = [{name: change["data"][name] for name in KEYS} for change in changes]
    return [dict(each) for each in dict.fromkeys(tuple(sorted(key.items(), key=str)) for key in keys)]


def told(spark: SparkSession, *rows: tuple[int, str, int]) -> DataFrame:
    """What a shop says: the number, the name and from which day of January on; without a name a deletion."""
    said: list[tuple[Row, int]] = [({"h": number, "v": name or None}, day) for number, name, day in rows]
    deletes = [data for data, _ in said if data["v"] is None]
    return shop_changes(spark, {"h": "int", "v": "string"}, said, deletes=deletes)


def numbered(spark: SparkSession, place: Path) -> Ledger:
    return Ledger(spark, place, entity="e", keys=["h"], buckets=2)


def names_in(found: Ledger) -> list[str]:
    return sorted({row["v"] for row in found.history().collect() if row["v"]})


NIGHTS = {
    datetime(2024, 1, 1, tzinfo=UTC): {1: ("ann1.", 1), 2: ("bob1.", 1)},
    datetime(2024, 1, 2, tzinfo=UTC): {1: ("ann2.", 2), 2: ("bob2.", 2)},
    datetime(2024, 1, 3, tzinfo=UTC): {1: ("ann3.", 2), 2: ("bob3.", 2), 3: ("cyd3.", 3)},
    datetime(2024, 1, 4, tzinfo=UTC): {2: ("bob3.", 4), 3: ("cyd3.", 3)},
}
"""Full lists: name and number of some people."""


def nights(spark: SparkSession, count: int) -> dict[datetime, DataFrame]:
    return {
        at: spark.createDataFrame([(h, *said) for h, said in some.items()], "h int, v string, w int")
        for at, some in list(NIGHTS.items())[:count]
    }


def apply_all(found: Ledger, lists: dict[datetime, DataFrame], by_list: bool) -> None:
    """List for list, or all in one call."""
    if by_list:
        for at, rows in lists.items():
            found.apply_list(rows, taken_at=at)
    else:
        together = reduce(DataFrame.union, (rows.withColumn("at", F.lit(at)) for at, rows in lists.items()))
        found.apply_list(together, taken_at="at")
