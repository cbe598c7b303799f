"""What the tests share: one Spark session, made when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from cdckit import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one local session of the test run: UTC, no UI, few partitions."""
    running = session(
        app_name="cdckit-tests",
        memory="2g",
        config={"spark.master": "local[1]", "spark.sql.shuffle.partitions": "4"},
    )
    # Else Spark walks the stack for each RDD, to say of its jobs at which line of Spark they were begun.
    for form in ("callSite.short", "callSite.long"):
        running.sparkContext.setLocalProperty(form, "a test")
    yield running
    running.stop()


@pytest.fixture(scope="session", autouse=True)
def as_spark_connect() -> Iterator[None]:
    """What Spark Connect refuses is refused here, too: columns that are added, and are none."""
    add_columns = ClassicDataFrame.withColumns

    def refuse_none(rows: Any, columns: dict[str, Any]) -> DataFrame:
        assert columns, "Spark Connect adds no columns where none are named"
        return add_columns(rows, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassicDataFrame, "withColumns", refuse_none)
        yield


@pytest.fixture
def whole_plans(spark: SparkSession) -> Iterator[None]:
    """The text of a plan is whole; else it has the beginning of each expression (`tools/jvm_options.py`)."""
    most = "spark.sql.debug.maxToStringFields"
    before = spark.conf.get(most)
    spark.conf.set(most, "1000")
    yield
    spark.conf.set(most, before)
