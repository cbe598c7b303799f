"""`allen_relation` and `join_periods`: how periods lie to each other, and the pairs that lie so."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.history import OPEN_END
from cdckit.query import ALLEN_RELATIONS, allen_relation, join_periods
from cdckit.query.intervals import _find_crowded_keys
from support.random_versions import hour, streamed
from tools.tiers import seeds

END = 12
"""What stands for an open end: later than all others."""
Period = tuple[int | None, int | None]
SHARING = [name for name in ALLEN_RELATIONS if name not in ("before", "after", "meets", "met_by")]


def relation(a: Period, b: Period) -> str | None:
    """By the instants of each, as sets: no comparison of ends."""
    one, other = (
        set(range(0 if begins is None else begins, END if ends is None else ends)) for begins, ends in (a, b)
    )
    if a[0] is None or b[0] is None or not one or not other:
        return None
    if not one & other:
        first, last = ("before", "after"), ("meets", "met_by")
        gap = set(range(min(one | other), max(one | other) + 1)) - one - other
        return (first if gap else last)[0 if min(one) < min(other) else 1]
    if one == other:
        return "equals"
    together = min(one) == min(other), max(one) == max(other)
    if one < other:
        return {(True, False): "starts", (False, True): "finishes", (False, False): "during"}[together]
    if one > other:
        return {(True, False): "started_by", (False, True): "finished_by", (False, False): "contains"}[
            together
        ]
    return "overlaps" if min(one) < min(other) else "overlapped_by"


def frame(spark: SparkSession, rows: list[tuple[int | None, str, Period]]) -> DataFrame:
    """Cases, names and periods in hours."""
    listed = [
        (case, name, None if begins is None else hour(begins), None if ends is None else hour(ends))
        for case, name, (begins, ends) in rows
    ]
    return spark.createDataFrame(
        listed, "case int, name string, valid_from_timestamp timestamp, valid_to_timestamp timestamp"
    )


def found(pairs: DataFrame) -> Counter[tuple[Any, ...]]:
    rows = pairs.select(
        "a.case", F.col("a.name").alias("a"), F.col("b.name").alias("b"), "relation"
    ).collect()
    return Counter(tuple(row) for row in rows)


def expected(
    a: list[tuple[int | None, str, Period]],
    b: list[tuple[int | None, str, Period]],
    asked: list[str],
    *,
    keyed: bool = True,
) -> Counter[tuple[Any, ...]]:
    told = (
        (one[0], one[1], other[1], relation(one[2], other[2]))
        for one in a
        for other in b
        if not keyed or one[0] == other[0]
    )
    return Counter(row for row in told if row[3] in asked)


def random_periods(seed: int, cases: int, most: int) -> list[tuple[int | None, str, Period]]:
    """Also open ones, equal ones, some without a beginning and some without an instant."""
    chance = random.Random(seed)
    rows: list[tuple[int | None, str, Period]] = []
    for case in range(cases):
        for number in range(chance.randrange(most + 1)):
            begins = None if chance.random() < 0.05 else chance.randrange(10)
            ends = None if chance.random() < 0.2 else (begins or 0) + chance.choice((0, 1, 1, 2, 3, 6))
            ends = None if ends is None else min(ends, END - 1)
            rows.append((case or None, f"{case}.{number}", (begins, ends)))
    return rows


def test_every_pair_of_short_periods_has_the_relation_of_its_instants(spark: SparkSession) -> None:
    periods = [(begins, ends) for begins in (None, *range(5)) for ends in (None, *range(6))]
    both = [(a, b) for a in periods for b in periods]
    told = spark.createDataFrame([(*a, *b) for a, b in both], "a int, b int, c int, d int")
    named = told.select(
        "a", "b", "c", "d", allen_relation("a", "b", F.col("c"), "d").alias("relation")
    ).collect()
    assert [((row.a, row.b), (row.c, row.d), row.relation) for row in named] == [
        (a, b, relation(a, b)) for a, b in both
    ]
    assert {row.relation for row in named} == {*ALLEN_RELATIONS, None}


@seeds(3, soak=20)
def test_random_periods_of_many_keys(spark: SparkSession, seed: int) -> None:
    """Null is a key like any other; some keys have more periods than are compared each with each."""
    a, b = (random_periods(each, 150, 6) + random_periods(each + 2, 8, 70) for each in (seed, seed + 1))
    one, other = frame(spark, a), frame(spark, b)
    every = join_periods(one, other, ALLEN_RELATIONS, on={"case": "case"})
    assert found(every) == expected(a, b, list(ALLEN_RELATIONS))


def test_a_key_is_crowded_from_65_periods_on_in_both_tables_together(spark: SparkSession) -> None:
    """Else the pairs would be right, and a key of many periods would take the square of their number."""
    sizes = {None: (40, 25), 1: (32, 32), 2: (65, 0), 3: (0, 65), 4: (1, 1)}
    one, other = (
        spark.createDataFrame([(key,) for key, both in sizes.items() for _ in range(both[side])], "key int")
        for side in range(2)
    )
    assert {row[0] for row in _find_crowded_keys(one, other, ["key"]).collect()} == {None, 2, 3}


@seeds(5, soak=20)
def test_random_periods_without_a_key(spark: SparkSession, seed: int) -> None:
    """More than are looked at together."""
    a, b = random_periods(seed, 60, 6), random_periods(seed + 1, 60, 6)
    one, other = frame(spark, a), frame(spark, b)
    asked = [*SHARING, "meets", "met_by"]
    assert found(join_periods(one, other, asked)) == expected(a, b, asked, keyed=False)


def test_a_long_period_among_many_short_ones_is_compared_with_those_within_it(spark: SparkSession) -> None:
    """And many that lie elsewhere with none: the join makes no row more than it must look at."""
    minutes = spark.range(5_000).select(
        F.timestamp_seconds(F.col("id") * 60).alias("valid_from_timestamp"),
        F.timestamp_seconds(F.col("id") * 60 + 60).alias("valid_to_timestamp"),
    )
    long = frame(spark, [(1, "long", (0, None))]).withColumn(
        "valid_from_timestamp", F.timestamp_seconds(F.lit(1))
    )
    elsewhere = minutes.withColumns(
        {name: F.col(name) + F.expr("INTERVAL 400 DAYS") for name in minutes.columns}
    )
    pairs = join_periods(long.select(*minutes.columns).union(elsewhere), minutes)
    counts = pairs.groupBy("relation").count().collect()
    assert {row["relation"]: row["count"] for row in counts} == {"overlapped_by": 1, "contains": 4_999}


def test_an_end_that_stands_for_open_is_open(spark: SparkSession) -> None:
    """As `scd_type_2` writes it, on either side; the struct tells what the table does."""
    one = frame(spark, [(1, "one", (0, None))])
    stands_for_open = F.timestamp_micros(F.lit(int(hour(END).timestamp()) * 1_000_000))
    other = one.withColumn("valid_to_timestamp", stands_for_open).withMetadata(
        "valid_to_timestamp", {OPEN_END: int(hour(END).timestamp()) * 1_000_000}
    )
    pairs = join_periods(one, other, ALLEN_RELATIONS, on="case").unionByName(
        join_periods(other, one, ALLEN_RELATIONS, on="case")
    )
    told = pairs.selectExpr("relation", "a.valid_to_timestamp IS NULL", "b.valid_to_timestamp IS NULL")
    assert sorted(map(tuple, told.collect())) == [("equals", False, True), ("equals", True, False)]


def test_what_cannot_be_asked(spark: SparkSession) -> None:
    one = frame(spark, [(1, "one", (0, 1))])
    with pytest.raises(InvalidArgument, match="relations to be one or more fields among before"):
        join_periods(one, one, "touches")
    with pytest.raises(InvalidArgument, match="nearly every row is before or after"):
        join_periods(one, one, ["during", "after"])
    with pytest.raises(InvalidArgument, match="into"):
        join_periods(one, one, into=("a", "A"))
    for argument in ("period", "into"):
        for given in ("ab", ("a", "b", "c"), None):
            with pytest.raises(InvalidArgument, match=f"{argument} to be a pair of names"):
                join_periods(one, one, **{argument: given})
    with pytest.raises(WrongColumnType, match="int, like case of a"):
        join_periods(one, one.withColumn("case", F.lit("1")), on="case")
    with pytest.raises(WrongColumnType, match="timestamp"):
        join_periods(
            one, one.withColumn("valid_to_timestamp", F.col("valid_to_timestamp").cast("timestamp_ntz"))
        )
    for given, said in (
        (one.select("*", F.lit(2).alias("CASE")), "b to be of columns that differ in more than case"),
        (one.select("*", "name"), "b to be of columns that differ in more than case"),
        (streamed(one), "b to be a batch of rows; of a stream"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            join_periods(one, given)
    assert join_periods(one, one.where("case > 1")).count() == 0


def test_a_table_of_files_is_joined_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Of structs in a condition Spark can lose a field where one table is read on both sides."""
    path = str(tmp_path / "periods")
    frame(spark, [(1, "x", (1, 3)), (1, "y", (3, 5)), (1, "z", (6, 8))]).coalesce(1).write.parquet(path)
    table = spark.read.parquet(path)
    for relations, expected in (
        (["meets"], {("x", "y")}),
        (["before", "after"], {("x", "z"), ("z", "x"), ("y", "z"), ("z", "y")}),
    ):
        pairs = join_periods(table, table, relations, on=["case"])
        assert {(row["a"]["name"], row["b"]["name"]) for row in pairs.collect()} == expected
