"""One equality in all that compares values: every pair of some values of every type, through all of it."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import Lookup, as_of_join, blame, changes_between, merge
from cdckit.errors import InvalidArgument
from cdckit.parts.guids import guid
from cdckit.parts.values import as_text
from cdckit.quality import coalesce_versions
from cdckit.query import diff, timeline, values_by_message
from cdckit.query.entity_keys import is_entity

NAN = float("nan")
ABSENT = object()
"""A value that Python does not have."""


class Of(NamedTuple):
    """A value of a type: in SQL, in Python, and which others it equals: those of the same number."""

    sql: str
    python: Any
    equals: int


NULL = Of("null", None, 0)
VALUES: dict[str, list[Of]] = {
    "boolean": [NULL, Of("true", True, 1), Of("false", False, 2)],
    "tinyint": [NULL, Of("1", 1, 1), Of("-128", -128, 2)],
    "int": [NULL, Of("0", 0, 1), Of("1", 1, 2)],
    "bigint": [NULL, Of("4611686018427387905", 2**62 + 1, 1), Of("4611686018427387904", 2**62, 2)],
    "decimal(12,2)": [
        NULL,
        Of("1.00", Decimal("1"), 1),
        Of("1.0", Decimal("1.00"), 1),
        Of("1.01", Decimal("1.01"), 2),
    ],
    "float": [
        NULL,
        Of("0.0", 0.0, 1),
        Of("-0.0D", -0.0, 1),
        Of("'NaN'", NAN, 2),
        Of("1.1", 1.1, 3),
        Of("'Infinity'", float("inf"), 4),
    ],
    "double": [NULL, Of("0.0", 0.0, 1), Of("-0.0D", -0.0, 1), Of("'NaN'", NAN, 2), Of("1.1", 1.1, 3)],
    "string": [NULL, Of("'a'", "a", 1), Of("'A'", "A", 2), Of("''", "", 3), Of("'a '", "a ", 4)],
    "string collate UTF8_LCASE": [NULL, Of("'a'", "a", 1), Of("'A'", "A", 2)],
    "string collate UNICODE_CI_AI": [NULL, Of("'\u00e9'", "\u00e9", 1), Of("'E'", "E", 2)],
    "binary": [NULL, Of("X'00ff'", b"\x00\xff", 1), Of("X''", bytearray(), 2)],
    "date": [
        NULL,
        Of("'0001-01-01'", date(1, 1, 1), 1),
        Of("'1582-10-04'", date(1582, 10, 4), 2),
        Of("'2024-02-29'", date(2024, 2, 29), 3),
        Of("'+12024-02-29'", ABSENT, 4),
    ],
    "timestamp": [
        NULL,
        Of("'1500-01-01 00:00:00Z'", datetime(1500, 1, 1, tzinfo=UTC), 1),
        Of("'2024-03-10 02:30:00.000001Z'", datetime(2024, 3, 10, 2, 30, 0, 1, tzinfo=UTC), 2),
        Of("'+40000-01-01 00:00:00Z'", ABSENT, 3),
        Of("'-0044-03-15 00:00:00Z'", ABSENT, 4),
    ],
    "timestamp_ntz": [
        NULL,
        Of("'0001-01-01 00:00:00'", datetime(1, 1, 1), 1),
        Of("'1500-01-01 00:00:00.000001'", datetime(1500, 1, 1, 0, 0, 0, 1), 2),
        Of("'2024-03-10 02:30:00'", datetime(2024, 3, 10, 2, 30), 3),
        Of("'+40000-01-01 00:00:00'", ABSENT, 4),
    ],
    "interval day to second": [
        NULL,
        Of("interval 1 day", timedelta(days=1), 1),
        Of("interval 24 hour", timedelta(1), 1),
    ],
    "array<double>": [
        NULL,
        Of("array()", [], 1),
        Of("array(0.0)", [0.0], 2),
        Of("array(-0.0D)", [-0.0], 2),
        Of("array(double('NaN'), null)", [NAN, None], 3),
        Of("array(null, double('NaN'))", (None, NAN), 4),
    ],
    "array<timestamp>": [
        NULL,
        Of("array(timestamp'+40000-01-01 00:00:00Z')", ABSENT, 1),
        Of("array(timestamp'2024-01-01 00:00:00Z')", [datetime(2024, 1, 1, tzinfo=UTC)], 2),
    ],
    "array<date>": [
        NULL,
        Of("array(date'-0001-01-01')", ABSENT, 1),
        Of("array(date'0001-01-01')", [date(1, 1, 1)], 2),
    ],
    "array<string>": [
        NULL,
        Of("array(cast(X'ff' as string))", ABSENT, 1),
        Of("array(cast(X'fe' as string))", ABSENT, 2),
        Of("array('a')", ["a"], 3),
    ],
    "array<string collate UTF8_LCASE>": [NULL, Of("array('a')", ["a"], 1), Of("array('A')", ["A"], 2)],
    "map<string,int>": [
        NULL,
        Of("map()", {}, 1),
        Of("map('a', 1, 'b', 2)", {"a": 1, "b": 2}, 2),
        Of("map('b', 2, 'a', 1)", {"b": 2, "a": 1}, 2),
        Of("map('a', 2, 'b', 1)", {"a": 2, "b": 1}, 3),
        Of("map('a', null)", {"a": None}, 4),
    ],
    "map<string collate UTF8_LCASE,double>": [
        NULL,
        Of("map('a', 0.0)", {"a": 0.0}, 1),
        Of("map('a', -0.0D)", {"a": -0.0}, 1),
        Of("map('A', 0.0)", {"A": 0.0}, 2),
    ],
    "map<string,map<string,double>>": [
        NULL,
        Of("map('k', map('a', 0.0, 'b', double('NaN')))", {"k": {"a": 0.0, "b": NAN}}, 1),
        Of("map('k', map('b', double('NaN'), 'a', -0.0D))", {"k": {"b": NAN, "a": -0.0}}, 1),
        Of("map('k', null)", {"k": None}, 2),
    ],
    "struct<x:double,m:map<string,int>>": [
        NULL,
        Of("named_struct('x', 0.0, 'm', map('a', 1, 'b', 2))", {"x": 0.0, "m": {"a": 1, "b": 2}}, 1),
        Of("named_struct('x', -0.0D, 'm', map('b', 2, 'a', 1))", {"m": {"b": 2, "a": 1}, "x": -0.0}, 1),
        Of("named_struct('x', null, 'm', null)", {"x": None, "m": None}, 2),
    ],
    "array<struct<m:map<string,int>>>": [
        NULL,
        Of("array(named_struct('m', map('a', 1, 'b', 2)))", [{"m": {"a": 1, "b": 2}}], 1),
        Of("array(named_struct('m', map('b', 2, 'a', 1)))", [{"m": {"b": 2, "a": 1}}], 1),
        Of("array(null)", [None], 2),
    ],
    "variant": [
        NULL,
        Of("""parse_json('{"a": 1, "b": 2}')""", ABSENT, 1),
        Of("""parse_json('{"b": 2, "a": 1}')""", ABSENT, 1),
        Of("to_variant_object(named_struct('b', 2L, 'a', 1L))", ABSENT, 1),
        Of("parse_json('null')", ABSENT, 2),
    ],
}
TYPES = list(VALUES)
FIELDS = {kind: f"f{number}" for number, kind in enumerate(TYPES)}
PAIRS = {
    f"{kind}/{number}": pair
    for kind, values in VALUES.items()
    for number, pair in enumerate(itertools.product(values, repeat=2))
}
"""Every pair of values of one type, under a name of its own."""
DIFFERENT = {name for name, (one, other) in PAIRS.items() if one.equals != other.equals}
FIRST, SECOND = "timestamp'2024-01-01 00:00:00Z'", "timestamp'2024-01-02 00:00:00Z'"
EXACT = [
    "boolean", "tinyint", "int", "bigint", "decimal(12,2)",
    "string", "binary", "date", "timestamp", "timestamp_ntz",
]  # fmt: skip
"""The types of which a key may be that guids are made of."""


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """One row per pair: its name in `guid`, and its first, or its second, value in the column of its type."""
    return _side(spark, 0), _side(spark, 1)


def _side(spark: SparkSession, side: int) -> DataFrame:
    parts = []
    for kind in TYPES:
        values = [
            f"named_struct('guid', '{name}', 'value', cast({pair[side].sql} AS {kind}))"
            for name, pair in PAIRS.items()
            if name.startswith(f"{kind}/")
        ]
        columns = [
            f"value AS {name}" if each == kind else f"cast(null AS {each}) AS {name}"
            for each, name in FIELDS.items()
        ]
        parts.append(f"SELECT guid, {', '.join(columns)} FROM (SELECT inline(array({', '.join(values)})))")
    return spark.sql(" UNION ALL ".join(parts)).coalesce(1).localCheckpoint()


def versions(side: DataFrame, begins: str, ends: str) -> DataFrame:
    """A history: each row is one version of an entity of its own."""
    said = F.expr("named_struct('m', 'm', 'p', 0)")
    return side.select(
        "guid",
        F.expr(begins).alias("valid_from_timestamp"),
        F.expr(ends).cast("timestamp").alias("valid_to_timestamp"),
        F.lit(False).alias("deleted_indicator"),
        *FIELDS.values(),
        F.lit("m").alias("source_message"),
        F.struct(*(said.alias(name) for name in ("guid", *FIELDS.values()))).alias("field_provenance"),
    )


def one_after_the_other(sides: tuple[DataFrame, DataFrame]) -> DataFrame:
    """A history: each pair is an entity with two versions."""
    return versions(sides[0], FIRST, SECOND).union(versions(sides[1], SECOND, "null"))


def names(rows: DataFrame) -> set[str]:
    return {row["guid"] for row in rows.select("guid").collect()}


def test_merge(sides: tuple[DataFrame, DataFrame]) -> None:
    """What is said again does not change who said it."""
    listed = []
    for message, side in enumerate(sides):
        at = F.expr((FIRST, SECOND)[message])
        place = F.named_struct(
            F.lit("timestamp"), at, F.lit("topic"), F.lit("t"), F.lit("partition"), F.lit(0),
            F.lit("offset"), F.lit(0).cast("bigint"), F.lit("record_number"), F.lit(1),
        )  # fmt: skip
        listed.append(
            side.select(
                F.lit("upsert").alias("operation"),
                at.alias("effective_timestamp"),
                F.lit("").alias("sequence"),
                place.alias("arrival"),
                F.concat(F.lit(f"{message} "), "guid").alias("message_id"),
                F.lit("s").alias("source"),
                F.lit(0).alias("priority"),
                F.struct(*FIELDS.values()).alias("data"),
                F.struct(*(F.lit(True).alias(name) for name in FIELDS.values())).alias("carried"),
                "guid",
            )
        )
    history = merge(listed[0].union(listed[1]), entity="pair", keys=["f0"])
    assert names(history.where(f"valid_from_timestamp = {SECOND}")) == DIFFERENT


def test_coalesce(sides: tuple[DataFrame, DataFrame]) -> None:
    folded = coalesce_versions(one_after_the_other(sides))
    assert names(folded.where(f"valid_from_timestamp = {SECOND}")) == DIFFERENT


def test_changes_between(sides: tuple[DataFrame, DataFrame]) -> None:
    asked = changes_between(one_after_the_other(sides), datetime(2024, 1, 2, tzinfo=UTC), None)
    assert names(asked) == DIFFERENT


def test_diff(sides: tuple[DataFrame, DataFrame]) -> None:
    assert names(diff(*(versions(side, FIRST, "null") for side in sides))) == DIFFERENT


def test_provenance(sides: tuple[DataFrame, DataFrame]) -> None:
    """A value begins anew where it is another one: here the message is the same."""
    begun = values_by_message(one_after_the_other(sides), "m")
    assert names(begun.where(f"valid_from_timestamp = {SECOND}")) == DIFFERENT


def test_as_of_join(sides: tuple[DataFrame, DataFrame]) -> None:
    history = versions(sides[0], FIRST, "null")
    facts = sides[1].withColumn("time", F.expr(SECOND))
    joined = as_of_join(
        facts, Lookup(history, on=["guid", *FIELDS.values()], into="found", fields=[]), time="time"
    )
    assert names(joined.where("found IS NULL")) == DIFFERENT


def test_texts(sides: tuple[DataFrame, DataFrame]) -> None:
    """Equal values have one text, different ones different texts; but JSON cannot show wrong UTF-8."""
    made = [
        side.select(
            "guid",
            F.array(*(as_text(F.col(name), side.schema[name].dataType) for name in FIELDS.values())).alias(
                "text"
            ),
        )
        for side in sides
    ]
    joined = made[0].join(made[1].withColumnRenamed("text", "other"), "guid")
    wrong = {name for name, pair in PAIRS.items() if all("X'f" in value.sql for value in pair)}
    assert names(joined.where("text != other")) | wrong == DIFFERENT | wrong


def test_guids(sides: tuple[DataFrame, DataFrame]) -> None:
    """Keys that are equal have one guid."""
    key = {kind: F.col(FIELDS[kind]) for kind in EXACT}
    made = [side.select("guid", guid("e", key).alias("made")) for side in sides]
    joined = made[0].join(made[1].withColumnRenamed("made", "other"), "guid")
    exact = {name for name in PAIRS if name.split("/")[0] in EXACT}
    assert names(joined.where("made != other")) == DIFFERENT & exact


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_keys_of_questions(spark: SparkSession, sides: tuple[DataFrame, DataFrame], zone: str) -> None:
    """A Python value finds what equals it, in any zone: `timeline`, `blame` and `why` ask so."""
    asked = [(kind, value) for kind in TYPES for value in VALUES[kind] if value.python is not ABSENT]
    schema = sides[0].schema
    conditions = [is_entity({FIELDS[kind]: value.python}, schema) for kind, value in asked]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        matches = {row[0]: row[1:] for row in sides[0].select("guid", *conditions).collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for name, (here, _) in PAIRS.items():
        for (kind, value), found in zip(asked, matches[name], strict=True):
            if name.startswith(f"{kind}/"):
                assert found == (here.equals == value.equals), (kind, here, value)


def test_questions_ask_so(sides: tuple[DataFrame, DataFrame]) -> None:
    """A key may be of any type: here a map, whose entries stand in another order in the history."""
    history = one_after_the_other(sides)
    kind = "map<string,int>"
    number = [(one.sql, other.sql) for one, other in itertools.product(VALUES[kind], repeat=2)].index(
        ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)")
    )
    key = {"guid": f"{kind}/{number}", FIELDS[kind]: {"b": 2, "a": 1}}
    assert timeline(history, key).count() == 2
    assert blame(history, key).where("field = 'deleted_indicator'").count() == 1


@pytest.mark.usefixtures("spark")
def test_a_whole_number_that_a_float_cannot_hold_is_none_of_its_values() -> None:
    """It would be rounded to that of another entity."""
    for kind, last in (("double", 2**53), ("float", 2**24)):
        fields = T.StructType.fromDDL(f"x {kind}")
        is_entity({"x": last}, fields)
        for lost in (last + 1, -last - 1, 10**400):
            with pytest.raises(InvalidArgument, match=f"to be a value of the type {kind}"):
                is_entity({"x": lost}, fields)
