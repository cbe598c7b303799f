"""`keys`: the key columns of a table, as its metadata says."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import replicate
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from support.replicate_messages import Version, numbered, to_dataframe
from support.replicate_readings import Reading, read

TEXT = ["null", "string"]
PLACED = Version({"a": "int", "x": TEXT, "b": "int", "c": "int"}, keys=("c", "a", "b"), table="PLACED")
NONE = Version({"a": "int"}, keys=(), table="NONE")
OLD = Version({"id": "int", "code": "string"}, keys=("id",), table="REKEYED")
NEW = Version({"id": "int", "code": "string"}, keys=("code",), table="REKEYED", number=2)
GROWN = [
    Version({"id": "int"}, keys=("id",), table="GROWN"),
    Version({"id": "int", "code": "string"}, keys=("id", "code"), table="GROWN", number=2),
]
RENAMED = [
    Version({"old": "int", "x": TEXT}, keys=("old",), table="RENAMED"),
    Version({"new": "int", "x": TEXT}, keys=("new",), table="RENAMED", number=2),
]
REPLACED = [
    Version({"id": "int"}, keys=("id",), table="REPLACED"),
    Version({"id": "int", "code": "string"}, keys=("code",), table="REPLACED", number=2),
]
# REKEYED: the DDL is taken back.  ANEW: the table is dropped at version 5 and made again.
ANEW = [
    Version({"id": "int", "code": "string"}, keys=("code",), table="ANEW", number=5),
    Version({"id": "int"}, keys=("id",), table="ANEW"),
]
VALUES = [
    PLACED.md(),
    NONE.md(),
    *(each.md() for each in (*GROWN, *RENAMED, *REPLACED, *ANEW)),
    OLD.md(),
    NEW.md(schemaId="n" * 32),
    OLD.md(),
]


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> Reading:
    return read(spark, numbered(VALUES))


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("PLACED", ["c", "a", "b"]),
        ("NONE", []),
        ("REKEYED", ["id"]),
        ("GROWN", ["id", "code"]),
        ("RENAMED", ["new"]),
        ("REPLACED", ["code", "id"]),
        ("ANEW", ["id"]),
    ],
)
def test_keys_come_by_their_position_in_the_key_of_the_latest_metadata_message(
    reading: Reading, table: str, keys: list[str]
) -> None:
    assert replicate.keys(reading.zone.where(F.col("table") == table)) == keys


def test_a_taken_back_ddl_leaves_the_key_as_it_was_and_a_late_one_counts(spark: SparkSession) -> None:
    """The version's number says nothing: what arrived last is how the table is now."""
    told = [OLD.md(), NEW.md(schemaId="n" * 32), OLD.md()]
    for count, expected in ((1, ["id"]), (2, ["code"]), (3, ["id"])):
        assert replicate.keys(read(spark, numbered(told[:count])).zone) == expected


def test_a_zone_of_several_tables_or_of_none_is_refused(reading: Reading) -> None:
    with pytest.raises(InvalidArgument, match=r"keys\(\) needs zone to be the schema zone of one table"):
        replicate.keys(reading.zone)
    with pytest.raises(InvalidArgument, match=r"it is 'none'"):
        replicate.keys(reading.zone.where("false"))


def test_what_is_no_zone_is_refused(spark: SparkSession, reading: Reading) -> None:
    with pytest.raises(
        MissingColumns, match=r"keys\(\) needs the columns schema_id, server, task, schema, table"
    ):
        replicate.keys(to_dataframe(spark, []))
    with pytest.raises(
        WrongColumnType, match=r"keys\(\) needs the column table_version as int; it is string"
    ):
        replicate.keys(reading.zone.withColumn("table_version", F.lit("1")))
