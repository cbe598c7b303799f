"""`range_checksums` and `find_differing_ranges`: the ranges of two tables that differ, and no others."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.query import checksum_expression, find_differing_ranges, range_checksums
from tools.tiers import seeds

FIELDS = {"number": "bigint", "name": "string", "price": "decimal(10,2)", "size": "double"}
OURS = "number int, name string, price decimal(6,2), size double"
THEIRS = "size float, number bigint, price decimal(12,4), name string"


@seeds(1, soak=10)
def test_just_the_ranges_that_differ_are_found(spark: SparkSession, seed: int) -> None:
    """In other types, another order of rows and of columns; a range for each thing that can be wrong."""
    drawn = random.Random(seed)
    ours = [[n, f"n{n % 7}", n % 5, 0.5 * (n % 3)] for n in range(200)]
    theirs = [list(row) for row in ours]
    wrong = {n: theirs[n * 10 + drawn.randrange(10)] for n in range(5)}
    wrong[0][1] = None
    wrong[1][2] += 1
    wrong[2][3], wrong[2][1] = None, "0.5"
    theirs.remove(wrong[3])
    theirs.append(list(wrong[4]))
    theirs.append([500, "new", 1, 0.0])
    # Sound: one zero is as good as the other.
    zeros = next(row for row in theirs[60:] if row[3] == 0)
    zeros[3] = -0.0
    drawn.shuffle(theirs)
    drawn_as = "number int, name string, price int, size double"
    sums = [
        range_checksums(
            spark.createDataFrame(rows, drawn_as).selectExpr(*casts(kinds)), "number DIV 10", FIELDS
        )
        for rows, kinds in ((ours, OURS), (theirs, THEIRS))
    ]
    found = {
        row["range"]: (row["our_rows"], row["their_rows"]) for row in find_differing_ranges(*sums).collect()
    }
    assert found == {0: (10, 10), 1: (10, 10), 2: (10, 10), 3: (10, 9), 4: (10, 11), 50: (0, 1)}


def casts(schema: str) -> list[str]:
    pairs = [each.split(" ", 1) for each in schema.split(", ")]
    return [f"cast({name} AS {kind}) AS {name}" for name, kind in pairs]


def test_a_source_that_speaks_sql_makes_the_same_sums(spark: SparkSession) -> None:
    """Where a null stands counts, and how often a row does."""
    rows = "VALUES (1, null, 'a'), (2, 'a', null), (2, 'a', null) AS t(n, x, y)"
    table = spark.sql(f"SELECT * FROM {rows}")
    fields = {"n": "bigint", "x": "string", "y": "string"}
    summed = f"n AS range, count(*) AS rows, {checksum_expression(fields)} AS checksum"
    told = spark.sql(f"SELECT {summed} FROM {rows} GROUP BY 1")
    assert find_differing_ranges(range_checksums(table, "n", fields), told).collect() == []
    swapped = table.selectExpr("n", "y AS x", "x AS y")
    found = find_differing_ranges(range_checksums(swapped, "n", fields), told)
    assert sorted(row["range"] for row in found.collect()) == [1, 2]
    once = range_checksums(table.distinct(), "n", fields)
    assert [tuple(row) for row in find_differing_ranges(once, told).collect()] == [(2, 1, 2)]


def test_a_call_that_cannot_be_answered_says_what_is_needed(spark: SparkSession) -> None:
    table = spark.range(1)
    with pytest.raises(MissingColumns, match="name"):
        range_checksums(table, "id", {"name": "string"})
    with pytest.raises(InvalidArgument, match="reconcile"):
        checksum_expression({"id": "map<string,int>"})
    with pytest.raises(InvalidArgument, match="fields"):
        checksum_expression({})
    with pytest.raises(MissingColumns, match="range_checksums"):
        find_differing_ranges(table, table)
