"""What stands for an open end in a table of type 2: it is known as long as Spark keeps the metadata."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import as_of, current
from cdckit.outputs import create_view, scd_type_1, scd_type_2, to_pandas
from cdckit.query import diff
from support.versions_by_hand import day, history_of

NEVER = datetime(9999, 12, 31, tzinfo=UTC)
VERSIONS = [
    ("kettle", day(1), day(2), False, 1, 20),
    ("kettle", day(2), None, False, 1, 25),
    ("mug", day(1), day(3), False, 2, 5),
]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    """A kettle whose price rose, and a mug that is gone."""
    return scd_type_2(
        history_of(spark, "id int, price int", VERSIONS), valid_to_current=NEVER
    ).localCheckpoint()


def test_what_is_current_is_found(spark: SparkSession, table: DataFrame, tmp_path: Path) -> None:
    """Also in a view and in a file that Spark wrote; in an answer an open end is null."""
    table.write.parquet(str(tmp_path / "table"))
    for rows in (
        table,
        table.where("price > 0").drop("source_message"),
        spark.read.parquet(str(tmp_path / "table")),
    ):
        (row,) = current(rows).collect()
        assert (row["price"], row["valid_to_timestamp"]) == (25, None)
    assert [row["price"] for row in scd_type_1(table).collect()] == [25]
    create_view(table, "products")
    asked = "SELECT price, valid_to_timestamp FROM "
    assert spark.sql(f"{asked} products_current").collect() == [(25, None)]
    assert spark.sql(f"{asked} products_as_of(TIMESTAMP '9999-12-31 00:00:00Z')").collect() == [(25, None)]
    assert spark.sql("SELECT price FROM products WHERE year(valid_to_timestamp) = 9999").collect() == [(25,)]
    assert as_of(table, NEVER).select("price", "valid_to_timestamp").collect() == [(25, None)]


def test_no_difference_from_the_history_that_it_was_made_of(spark: SparkSession, table: DataFrame) -> None:
    history = history_of(spark, "id int, price int", VERSIONS)
    assert diff(table.select(*history.columns), history).count() == 0


def test_the_end_of_another_table_is_an_end(spark: SparkSession) -> None:
    """Without the metadata nobody knows what an instant stands for."""
    ended = history_of(spark, "id int, price int", [("kettle", day(1), NEVER, False, 1, 20)])
    assert current(ended).count() == 0


def test_pandas_gets_the_year_9999(table: DataFrame) -> None:
    """Spark's own `toPandas` cannot: its instants are nanoseconds, which end in 2262."""
    ends = to_pandas(table.orderBy("guid", "valid_from_timestamp"))["valid_to_timestamp"]
    assert [end.year for end in ends] == [2024, 9999, 2024]
    assert ends[1] == pd.Timestamp(NEVER).as_unit("us")
