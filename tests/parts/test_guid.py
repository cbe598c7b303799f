"""The guid of an entity, against Python's own UUIDs."""

from __future__ import annotations

import random
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.parts.guids import NAMESPACE, can_be_guids, guid, guids


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
        ("named_struct('v', cast(1.50 as decimal(5,2)))", '{"entity":"e","key":{"v":1.5}}'),
        ("named_struct('v', cast(1 as decimal(5,2)))", '{"entity":"e","key":{"v":1}}'),
        ("named_struct('v', cast(100 as decimal(5,0)))", '{"entity":"e","key":{"v":100}}'),
        ("named_struct('v', cast(0.000000100 as decimal(12,12)))", '{"entity":"e","key":{"v":0.0000001}}'),
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


def test_it_does_not_follow_how_the_session_writes_json(spark: SparkSession) -> None:
    """Null parts are left out even where the session would write them."""
    name = "spark.sql.jsonGenerator.ignoreNullFields"
    key = {"a": F.lit(1), "b": F.lit(None).cast("string")}
    try:
        spark.conf.set(name, "false")
        made = spark.range(1).select(guid("e", key)).first()[0]
    finally:
        spark.conf.unset(name)
    assert made == uuid5('{"entity":"e","key":{"a":1}}')


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_number_has_one_guid_whatever_its_type(spark: SparkSession, ansi: str) -> None:
    """Zeros at the end of a decimal are no part of its value, whatever way a session writes it."""
    whole = ["cast(7 as int)", "cast(7 as bigint)", "cast(7 as decimal(5,0))", "cast(7 as decimal(20,10))"]
    small = ["cast(0.00000015 as decimal(8,8))", "cast(0.00000015 as decimal(20,12))"]
    before = spark.conf.get("spark.sql.ansi.enabled")
    try:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for texts, number in ((whole, "7"), (small, "0.00000015")):
            made = spark.range(1).select(*(guid("e", {"n": F.expr(text)}) for text in texts)).first()
            assert set(made) == {uuid5(f'{{"entity":"e","key":{{"n":{number}}}}}')}
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_version_and_variant_are_those_of_a_uuid5(spark: SparkSession) -> None:
    """All sixteen digits can stand where the variant is put."""
    made = spark.range(200).select(guid("e", {"id": F.col("id")}).alias("guid")).collect()
    parsed = [uuid.UUID(row["guid"]) for row in made]
    assert {each.version for each in parsed} == {5}
    assert {each.variant for each in parsed} == {uuid.RFC_4122}
    assert [str(each) for each in parsed] == [
        uuid5(f'{{"entity":"e","key":{{"id":{n}}}}}') for n in range(200)
    ]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ({"n": pa.array([7])}, '{"entity":"e","key":{"n":7}}'),
        ({"n": pa.array(["7"])}, '{"entity":"e","key":{"n":"7"}}'),
        ({"a": pa.array(["x"]), "b": pa.array(['ü"'])}, '{"entity":"e","key":{"a":"x","b":"ü\\""}}'),
        ({"a": pa.nulls(1, pa.int32()), "b": pa.array(["x"])}, '{"entity":"e","key":{"b":"x"}}'),
        ({"a": pa.nulls(1, pa.string())}, '{"entity":"e","key":{}}'),
        ({"v": pa.array([Decimal("1.50")])}, '{"entity":"e","key":{"v":1.5}}'),
        ({"v": pa.array([Decimal("1.00")])}, '{"entity":"e","key":{"v":1}}'),
        ({"v": pa.array([Decimal("100")])}, '{"entity":"e","key":{"v":100}}'),
        ({"o": pa.array([False])}, '{"entity":"e","key":{"o":false}}'),
        ({"t": pa.array(["\x01\n\\\x1f/"])}, r'{"entity":"e","key":{"t":"\u0001\n\\\u001F/"}}'),
    ],
)
def test_in_a_worker_it_is_the_uuid5_of_the_compact_json_too(key: dict[str, pa.Array], name: str) -> None:
    """Text is escaped as JSON asks, control characters in capitals."""
    assert guids("e", key).to_pylist() == [uuid5(name)]


def test_both_ways_give_one_guid(spark: SparkSession) -> None:
    """Random keys of every type that workers know, names and texts with every kind of character."""
    rng = random.Random(20130208)

    def text() -> str | None:
        kinds = ["ab c", '"\\/', "".join(map(chr, range(0x20))), "\x7f\x80éß漢", "😀\u2028\ufeff"]
        return "".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randrange(9))) or None

    rows = [
        (
            text(),
            rng.choice([None, rng.randrange(-(2**63), 2**63)]),
            rng.choice([None, True, False]),
            rng.choice([None, Decimal(rng.randrange(-(10**11), 10**11)).scaleb(-10), Decimal(0)]),
            rng.choice([None, Decimal(rng.randrange(10**20))]),
        )
        for _ in range(3_000)
    ]
    kinds = {"a": "string", "é\n": "bigint", "c": "boolean", "d": "decimal(21,10)", "e": "decimal(38,0)"}
    schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    keys = spark.createDataFrame(rows, schema)
    made = keys.withColumn("guid", guid('en"tity', {name: F.col(f"`{name}`") for name in kinds})).toArrow()
    key = {name: made.column(name).combine_chunks() for name in kinds}
    assert can_be_guids({name: array.type for name, array in key.items()})
    assert guids('en"tity', key).to_pylist() == made.column("guid").to_pylist()


def test_bytes_that_are_no_text_are_read_as_java_reads_them(spark: SparkSession) -> None:
    """Spark lets any bytes pass as a string, and a guid has to come out all the same."""
    rng = random.Random(20130208)
    pieces = [*(bytes([each]) for each in range(0x7E, 0x100)), b"\xed\xa0\x80", b"\xf0\x9f", "é漢😀".encode()]
    bytes_ = [b"".join(rng.choices(pieces, k=rng.randrange(1, 8))) for _ in range(3_000)]
    rows = spark.createDataFrame([(each,) for each in bytes_], "b binary")
    as_text = rows.select(F.col("b").cast("string").alias("k"))
    from_spark = [row[0] for row in as_text.select(guid("e", {"k": F.col("k")})).collect()]
    text = pa.Array.from_buffers(pa.string(), len(bytes_), pa.array(bytes_, pa.binary()).buffers())
    assert guids("e", {"k": text}).to_pylist() == from_spark
    assert len(set(from_spark)) > 3
