"""The guid of an entity, against Python's own UUIDs."""

from __future__ import annotations

import uuid

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.identifiers import NAMESPACE, guid


def uuid5(name: str) -> str:
    return str(uuid.uuid5(NAMESPACE, name))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("named_struct('n', 7)", '{"entity":"e","key":{"n":7}}'),
        ("named_struct('n', '7')", '{"entity":"e","key":{"n":"7"}}'),
        ("named_struct('a', 'x', 'b', 'ü\"')", '{"entity":"e","key":{"a":"x","b":"ü\\""}}'),
        ("named_struct('a', 'x', 'b', cast(null as string))", '{"entity":"e","key":{"a":"x"}}'),
        ("named_struct('d', date'2013-02-08')", '{"entity":"e","key":{"d":"2013-02-08"}}'),
        (
            "named_struct('t', timestamp'2013-02-08 05:00:00.25Z')",
            '{"entity":"e","key":{"t":"2013-02-08T05:00:00.250000Z"}}',
        ),
        (
            "named_struct('t', timestamp_ntz'2013-02-08 05:00:00.000001')",
            '{"entity":"e","key":{"t":"2013-02-08T05:00:00.000001"}}',
        ),
        ("named_struct('v', cast(1.50 as decimal(5,2)))", '{"entity":"e","key":{"v":1.50}}'),
        ("named_struct('y', X'00ff')", '{"entity":"e","key":{"y":"AP8="}}'),
        ("named_struct('o', true)", '{"entity":"e","key":{"o":true}}'),
    ],
)
def test_it_is_the_uuid5_of_the_compact_json(spark: SparkSession, key: str, name: str) -> None:
    """A number is not its text, null parts are left out, instants are in UTC with six decimals."""
    row = spark.range(1).select(F.expr(key).alias("key"))
    parts = {field: F.col("key").getField(field) for field in row.schema["key"].dataType.fieldNames()}
    assert row.select(guid("e", parts)).first()[0] == uuid5(name)


def test_it_does_not_follow_the_session_zone(spark: SparkSession) -> None:
    """The same instant has the same guid wherever it is read."""
    key = {"t": F.timestamp_seconds(F.lit(1_360_299_600))}
    zone = spark.conf.get("spark.sql.session.timeZone")
    here = spark.range(1).select(guid("e", key)).first()[0]
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        there = spark.range(1).select(guid("e", key)).first()[0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert here == there


def test_version_and_variant_are_those_of_a_uuid5(spark: SparkSession) -> None:
    """All sixteen digits can stand where the variant is put."""
    made = spark.range(200).select(guid("e", {"id": F.col("id")}).alias("guid")).collect()
    parsed = [uuid.UUID(row["guid"]) for row in made]
    assert {each.version for each in parsed} == {5}
    assert {each.variant for each in parsed} == {uuid.RFC_4122}
    assert [str(each) for each in parsed] == [
        uuid5(f'{{"entity":"e","key":{{"id":{n}}}}}') for n in range(200)
    ]
