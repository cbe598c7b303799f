"""The gate of a ledger: what it is shown, and what becomes of the batch that it refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from
from cdckit.ledger import Ledger, Pending

ROWS = "id int, `net.``eur` {}, day int"
"""A number, a price under a name that SQL must quote, and a day of January 2024."""


def opened(spark: SparkSession, place: Path, *, buckets: int = 1) -> Ledger:
    return Ledger(spark, place, entity="price", keys=["id"], buckets=buckets)


def changed(rows: DataFrame) -> DataFrame:
    by = "make_date(2024, 1, day)"
    return changes_from(rows, keys=["id"], sequence_by=by, except_column_list=["day"])


def told(spark: SparkSession, *rows: tuple[int, float, int], kind: str = "int") -> DataFrame:
    return changed(spark.createDataFrame(rows, ROWS.format(kind)))


def test_it_is_shown_the_entities_of_which_there_is_news(spark: SparkSession, tmp_path: Path) -> None:
    """Not those of which a batch writes older changes again: small files as one, or all for a wider type."""
    ledger = opened(spark, tmp_path)
    rows = spark.range(0, 15, 1, 15).selectExpr("cast(id AS int) AS id", "-1 AS `net.``eur`", "2 AS day")
    first = changed(rows)
    ledger.apply(first)
    seen = []

    def look(after: Pending) -> None:
        changes, versions = after.touched_changes(), after.touched_history()
        assert (changes.columns, versions.columns) == (after.changes().columns, after.history().columns)
        numbers = (changes.select("data.id"), versions.select("id"))
        seen.append([sorted(row[0] for row in each.collect()) for each in numbers])

    # Of number 3 the message again, as one that was true a day before: of the two the log has both.
    earlier = first.where("data.id = 3").withColumn(
        "effective_timestamp", F.lit(datetime(2024, 1, 1, tzinfo=UTC))
    )
    files = len(ledger.store.snapshot().files("changes"))
    ledger.apply(told(spark, (15, 7, 2)).union(earlier), gate=look)
    assert (files, len(ledger.store.snapshot().files("changes"))) == (15, 1)
    ledger.apply(told(spark, (4, 2.5, 3), kind="double"), gate=look)
    assert seen == [[[3, 3, 15], [3, 15]], [[4, 4], [4, 4]]]
