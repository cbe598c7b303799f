"""What all tests keep to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.types import StructType

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


@pytest.fixture(scope="session", autouse=True)
def local_rows(pytestconfig: pytest.Config) -> Iterator[None]:
    """
    Rows of a list are a part of the plan, as Spark Connect makes them.

    Else Spark cannot tell how many bytes they are, and whatever cdckit does at home with few rows (see
    `parts.at_home`) would be done by workers: where a test means that, it asks for `by_workers`.
    """
    create = SparkSession.createDataFrame

    def create_local(
        spark: SparkSession, data: Any, schema: Any = None, *more: Any, **named: Any
    ) -> DataFrame:
        if isinstance(data, list) and data and isinstance(schema, str | StructType):
            kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
            data, schema = LocalDataToArrowConversion.convert(data, kind, use_large_var_types=False), kind
        frame: DataFrame = create(spark, data, schema, *more, **named)
        return frame

    with pytest.MonkeyPatch.context() as patch:
        # The soak goes as a user's work does.
        if pytestconfig.option.tier != "soak":
            patch.setattr(SparkSession, "createDataFrame", create_local)
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


@pytest.fixture
def in_new_york(spark: SparkSession) -> Iterator[None]:
    """The session's clocks are New York's."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")
