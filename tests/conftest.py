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
    # PySpark asks the JVM for these by name whenever a column is made; they are what they are.
    jvm = running.sparkContext._jvm
    for name in ("org.apache.spark.sql.functions", "PythonUtils", "java"):
        setattr(jvm, name, getattr(jvm, name))
    yield running
    running.stop()
