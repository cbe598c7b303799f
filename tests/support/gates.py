"""A ledger of two rows, and changes of them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cdckit import changes_from
from cdckit.ledger import Ledger

ROWS = "id int, `net.``eur` {}, day int"
"""A number, a price under a name that SQL must quote, and a day of January 2024."""


def opened(spark: SparkSession, place: Path, *, buckets: int = 1) -> Ledger:
    return Ledger(spark, place, entity="price", keys=["id"], buckets=buckets)


def changed(rows: DataFrame) -> DataFrame:
    by = "make_date(2024, 1, day)"
    return changes_from(rows, keys=["id"], sequence_by=by, except_column_list=["day"])
