"""`to_pandas`: rows in this program, never more than a limit, never fewer than there are."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.outputs import TooManyRows, to_pandas


def test_as_many_rows_as_the_limit_come_and_one_more_is_an_error(spark: SparkSession) -> None:
    """At most one more than the limit is asked of Spark: most of these rows are never made."""
    rows = spark.range(2_000_000_000).where("id < 3 OR id > 1000")
    with pytest.raises(
        TooManyRows, match=r"at most 2 rows, and there are at least 3 of 1 columns.*limit=20\)"
    ):
        to_pandas(rows, limit=2)
    assert to_pandas(rows.limit(3), limit=3)["id"].tolist() == [0, 1, 2]
    assert len(to_pandas(rows.limit(0), limit=0)) == 0


def test_types_follow_from_the_types_and_not_from_the_rows(spark: SparkSession) -> None:
    """Instants in UTC whatever the session's zone; nulls make no floats of whole numbers."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = spark.sql("""
            SELECT * FROM VALUES
                (TIMESTAMP '9999-12-31 00:00:00Z', 9007199254740993, true, 1.50, DATE '2024-01-02', 'x',
                 map('a', 1), named_struct('at', TIMESTAMP '2024-01-01 12:00:00.000001Z'), array(1, 2)),
                (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
            AS v(at, number, truth, price, day, text, m, s, l)
        """)
        table = to_pandas(frame)
        empty = to_pandas(frame.where(F.col("number") == 0))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert str(table["at"].dtype) == "datetime64[us, UTC]"
    assert table["at"].tolist()[0] == pd.Timestamp("9999-12-31", tz="UTC")
    assert table["number"].tolist() == [9007199254740993, pd.NA]
    assert table["truth"].tolist() == [True, pd.NA]
    assert (table["price"][0], table["day"][0]) == (Decimal("1.50"), date(2024, 1, 2))
    assert table["m"][0] == {"a": 1}
    assert table["s"][0]["at"] == datetime(2024, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
    assert list(table["l"][0]) == [1, 2]
    assert list(empty.dtypes) == list(table.dtypes)


def test_whole_numbers_within_stay_whole_beside_nulls(spark: SparkSession) -> None:
    """A float of this number would be one less, in the same field of another row as in a list of its own."""
    frame = spark.sql("""
        SELECT * FROM VALUES
            (named_struct('n', 9007199254740993), array(9007199254740993, NULL), map('a', 9007199254740993)),
            (named_struct('n', CAST(NULL AS bigint)), array(1, 2), map('b', NULL))
        AS v(s, l, m)
    """)
    structs, lists, maps = (to_pandas(frame)[name].tolist() for name in ("s", "l", "m"))
    assert (structs, maps) == ([{"n": 9007199254740993}, {"n": None}], [{"a": 9007199254740993}, {"b": None}])
    assert [list(each) for each in lists] == [[9007199254740993, None], [1, 2]]
    assert all(type(number) is int for number in (structs[0]["n"], lists[0][0], maps[0]["a"]))


@pytest.mark.parametrize("limit", [-1, True, 1.5, 2**31 - 1])
def test_a_limit_is_a_whole_number(spark: SparkSession, limit: object) -> None:
    with pytest.raises(InvalidArgument, match="needs limit to be"):
        to_pandas(spark.range(1), limit=limit)
