"""What the tests share: one Spark session, made when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cdckit import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one local session of the test run: UTC, no UI, few partitions."""
    running = session(app_name="cdckit-tests", memory="2g", config={"spark.sql.shuffle.partitions": "4"})
    # Else Spark walks the stack for each RDD, to say of its jobs at which line of Spark they were begun.
    for form in ("callSite.short", "callSite.long"):
        running.sparkContext.setLocalProperty(form, "a test")
    yield running
    running.stop()


@pytest.fixture
def whole_plans(spark: SparkSession) -> Iterator[None]:
    """The text of a plan is whole; else it has the beginning of each expression (`tools/jvm_options.py`)."""
    most = "spark.sql.debug.maxToStringFields"
    before = spark.conf.get(most)
    spark.conf.set(most, "1000")
    yield
    spark.conf.set(most, before)
