"""What all tests keep to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from cdckit.parts import at_home


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
def by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do what this program would do with few rows."""
    monkeypatch.setattr(at_home, "WORK_BYTES", -1)
    monkeypatch.setattr(at_home, "BUCKETS", 0)


@pytest.fixture
def whole_plans(spark: SparkSession) -> Iterator[None]:
    """The text of a plan is whole; else it has the beginning of each expression (`tools/jvm_options.py`)."""
    most = "spark.sql.debug.maxToStringFields"
    before = spark.conf.get(most)
    spark.conf.set(most, "1000")
    yield
    spark.conf.set(most, before)
