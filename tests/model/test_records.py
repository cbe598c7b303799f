"""Records: the columns of Spark's Kafka source, wherever they come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import debezium, replicate
from cdckit.errors import MissingColumns, WrongColumnType
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA, require_records
from support.replicate_messages import numbered, to_dataframe

KAFKA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    "timestampType:int,headers:array<struct<key:string,value:binary>>>"
)


def test_the_columns_are_those_of_the_kafka_source_with_headers() -> None:
    assert RECORD_SCHEMA.simpleString() == KAFKA
    assert RECORD_COLUMNS == (
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    )  # fmt: skip


def test_records_are_records_after_a_way_through_parquet(spark: SparkSession, tmp_path: Path) -> None:
    frame = to_dataframe(spark, numbered([b"a", None, b""]))
    frame.write.parquet(str(tmp_path / "records"))
    loaded = spark.read.parquet(str(tmp_path / "records"))
    require_records(loaded)
    assert sorted(loaded.collect(), key=repr) == sorted(frame.collect(), key=repr)


def test_columns_that_promise_more_and_further_columns_are_welcome(spark: SparkSession) -> None:
    strict = T.StructType(
        [T.StructField(field.name, field.dataType, nullable=False) for field in RECORD_SCHEMA]
    )
    require_records(spark.createDataFrame([], strict).withColumn("mine", F.lit(1)))
    turned = T.StructType(list(reversed(RECORD_SCHEMA.fields)))
    require_records(spark.createDataFrame([], turned))


@pytest.mark.parametrize("missing", RECORD_COLUMNS[:6])
def test_each_column_is_needed(spark: SparkSession, missing: str) -> None:
    frame = spark.createDataFrame([], RECORD_SCHEMA).drop(missing)
    with pytest.raises(MissingColumns, match=rf"needs the columns {missing}; the DataFrame has"):
        require_records(frame)


def test_all_that_is_missing_is_told_at_once_and_what_to_do(spark: SparkSession) -> None:
    lines = spark.createDataFrame([("{}",)], "value string")
    sentence = "needs the columns key, topic, partition, offset, timestamp; .*datahub.records"
    with pytest.raises(MissingColumns, match=sentence):
        require_records(lines)


def test_a_topic_without_headers_and_with_other_whole_numbers_is_one_of_records(spark: SparkSession) -> None:
    """Nobody says `includeHeaders`; a table that was kept of a topic has numbers as its writer liked them."""
    whole = to_dataframe(spark, numbered([b"?", b"{}"]))
    plain = whole.drop("headers", "timestampType").withColumn("partition", F.col("partition").cast("bigint"))
    found = require_records(plain)
    assert found.select(*RECORD_COLUMNS).schema.simpleString() == KAFKA
    kept = ("offset", "value", "error_code")
    refused = debezium.decode(plain).select(*kept).orderBy("offset").collect()
    assert refused == debezium.decode(whole).select(*kept).orderBy("offset").collect()
    assert replicate.decode(plain).where("headers IS NULL AND timestampType = 0").count() == 2


@pytest.mark.parametrize("column", RECORD_COLUMNS)
def test_each_column_is_needed_in_its_type(spark: SparkSession, column: str) -> None:
    frame = spark.createDataFrame([], RECORD_SCHEMA).withColumn(column, F.lit(1.5))
    with pytest.raises(WrongColumnType, match=rf"needs the column {column} as .*; it is double\."):
        require_records(frame)
