"""The types in which Spark hands rows to its Python workers, as this Spark hands them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdckit.parts.arrow_types import (
    NoSuchArrowType,
    arrow_schema,
    arrow_type,
    make_batch,
    spark_columns,
    spark_type,
    with_texts,
)

# Spark's workers cannot import a module of the tests: what they are to run travels by value.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

LISTED = pa.list_(pa.field("element", pa.int32(), nullable=False))
NAMED = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.int64(), nullable=True))

LISTS = pa.list_(pa.field("element", pa.string()))
MAPS = pa.map_(pa.string(), pa.binary())

# A value in Spark's SQL, its type, and the type in which Arrow holds it.
KINDS = [
    ("null", T.NullType(), pa.null()),
    ("true", T.BooleanType(), pa.bool_()),
    ("1Y", T.ByteType(), pa.int8()),
    ("1S", T.ShortType(), pa.int16()),
    ("1", T.IntegerType(), pa.int32()),
    ("1L", T.LongType(), pa.int64()),
    ("1.5F", T.FloatType(), pa.float32()),
    ("1.5D", T.DoubleType(), pa.float64()),
    ("1.25BD", T.DecimalType(3, 2), pa.decimal128(3, 2)),
    ("12345678901234567890123456789012345678BD", T.DecimalType(38, 0), pa.decimal128(38, 0)),
    ("'text'", T.StringType(), pa.string()),
    ("X'00FF'", T.BinaryType(), pa.binary()),
    ("date'2024-02-29'", T.DateType(), pa.date32()),
    ("timestamp'2024-02-29 12:00:00'", T.TimestampType(), pa.timestamp("us", "UTC")),
    ("timestamp_ntz'2024-02-29 12:00:00'", T.TimestampNTZType(), pa.timestamp("us")),
    ("interval '1' day", T.DayTimeIntervalType(0, 0), pa.duration("us")),
    ("array(1, 2)", T.ArrayType(T.IntegerType(), False), LISTED),
    ("map('a', null, 'b', 2L)", T.MapType(T.StringType(), T.LongType()), NAMED),
    (
        "named_struct('x', 1, 'at', timestamp'2024-02-29 12:00:00')",
        T.StructType().add("x", T.IntegerType(), False).add("at", T.TimestampType(), False),
        pa.struct(
            [
                pa.field("x", pa.int32(), nullable=False),
                pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
            ]
        ),
    ),
]  # fmt: skip


def schema_and_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column("came_as", pa.array([str(batch.schema)] * batch.num_rows, pa.string()))


def test_each_type_is_the_one_that_this_spark_sends_and_takes(spark: SparkSession) -> None:
    given = spark.range(1).selectExpr(*(f"{text} as c{n}" for n, (text, _, _) in enumerate(KINDS)))
    assert [field.dataType for field in given.schema] == [kind for _, kind, _ in KINDS]
    made = given.mapInArrow(
        schema_and_rows, T.StructType([*given.schema, T.StructField("came_as", T.StringType())])
    )
    assert made.drop("came_as").collect() == given.collect()
    assert made.select("came_as").first()[0] == str(arrow_schema(given.schema))


@pytest.mark.parametrize(("kind", "arrow"), [kinds for _, *kinds in KINDS], ids=[text for text, *_ in KINDS])
def test_each_type_is_exact_there_and_back(kind: T.DataType, arrow: pa.DataType) -> None:
    assert arrow_type(kind) == arrow
    if not isinstance(kind, T.DayTimeIntervalType):  # Arrow does not say which units were named
        assert spark_type(arrow) == kind


def test_texts_of_any_declaration_are_texts() -> None:
    for kind in (T.StringType("UTF8_LCASE"), T.VarcharType(3), T.CharType(3)):
        assert arrow_type(kind) == pa.string()
    assert spark_type(pa.large_string()) == T.StringType()
    assert spark_type(pa.large_binary()) == T.BinaryType()


def test_nullable_or_not_is_kept() -> None:
    columns = T.StructType().add("a", T.StringType(), nullable=False).add("b", T.StringType())
    assert [field.nullable for field in arrow_schema(columns)] == [False, True]
    assert spark_columns(arrow_schema(columns)) == columns


def test_a_variant_is_marked_as_one() -> None:
    assert arrow_type(T.VariantType()).field("metadata").metadata == {b"variant": b"true"}


def test_a_type_that_workers_cannot_have_is_named() -> None:
    with pytest.raises(NoSuchArrowType, match="interval year to month"):
        arrow_schema(T.StructType().add("a", T.ArrayType(T.YearMonthIntervalType())))
    with pytest.raises(NoSuchArrowType, match="uint64"):
        spark_type(pa.uint64())


def test_texts_are_large_or_not_wherever_they_stand() -> None:
    kind = T.StructType([T.StructField(f"c{n}", kind) for n, (_, kind, _) in enumerate(KINDS)])
    small, large = arrow_type(kind), arrow_schema(kind, large=True)
    assert large.field("c10").type == pa.large_string()
    assert large.field("c11").type == pa.large_binary()
    assert str(large.field("c17").type) == "map<large_string, int64>"
    assert with_texts(small, large=True) == pa.struct(list(large))
    assert with_texts(pa.struct(list(large)), large=False) == small
    values = pa.array([{"t": ["a"], "m": [("k", b"\xff")]}], pa.struct([("t", LISTS), ("m", MAPS)]))
    there = values.cast(with_texts(values.type, large=True))
    assert str(there.type) == "struct<t: list<element: large_string>, m: map<large_string, large_binary>>"
    assert there.cast(values.type) == values


NOTHINGS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.list_(pa.null()), [[None, None], None, [], [None] * 3]),
    (pa.map_(pa.string(), pa.null()), [[("a", None)], None, [("b", None), ("c", None)], []]),
    (
        pa.struct([("x", pa.list_(pa.null())), ("y", pa.string())]),
        [{"x": [None, None], "y": "a"}, None, {"x": None, "y": None}, {"x": [None] * 3, "y": "b"}],
    ),
    (
        pa.list_(pa.struct([("n", pa.null()), ("t", pa.string())])),
        [[{"n": None, "t": "a"}, None], [], None, [{"n": None, "t": "b"}] * 3],
    ),
]


@pytest.mark.parametrize(("kind", "values"), NOTHINGS, ids=[str(kind) for kind, _ in NOTHINGS])
def test_lists_of_nothing_but_nulls_keep_their_elements(kind: pa.DataType, values: list[Any]) -> None:
    """Arrow's own cast forgets some, and the batch is not valid."""
    array = pa.array(values, kind)
    large = with_texts(kind, large=True)
    for places in ([0, 1, 2, 3], [3, 0], [3], [1]):
        expected = [values[place] for place in places]
        for some in (
            array.take(pa.array(places)),
            pa.concat_arrays([array[place : place + 1] for place in places]),
        ):
            made = make_batch({"a": some}, pa.schema([("a", large)]))
            made.validate(full=True)
            assert made.column("a").to_pylist() == expected
    made = make_batch({"a": array[2:]}, pa.schema([("a", large)]))
    made.validate(full=True)
    assert made.column("a").to_pylist() == values[2:]


def test_a_batch_takes_the_texts_of_its_schema() -> None:
    schema = pa.schema([("a", pa.large_string()), ("b", pa.int32())])
    made = make_batch({"b": pa.array([1], pa.int32()), "a": pa.array(["x"])}, schema)
    assert made.schema == schema
    assert made.to_pylist() == [{"a": "x", "b": 1}]
