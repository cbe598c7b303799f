"""`create_view`: a history in SQL, where `as_of` and `between` are table functions."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, as_of, between, changes_from, current
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.outputs import create_view
from support.versions_by_hand import day, history_of, rows_of

VERSIONS = [
    ("a", day(1), day(3), False, 1, "x"),
    ("a", day(3), None, False, 2, "y"),
    # As another library may say that it is not deleted.
    ("b", day(2), day(3), None, 3, "z"),
    ("b", day(3), day(5), True, None, None),
    ("b", day(5), None, False, 4, "z"),
    ("c", day(2), None, True, None, None),
    ("d", day(4), day(4), False, 5, "never"),
]
ODD = "flights of `1.x's"
"""A name that is right only where it is quoted."""


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """Fields that have the names of parameters and of the view's own alias."""
    return history_of(spark, "at int, `v` string", VERSIONS)


def sql(spark: SparkSession, function: str, arguments: str) -> DataFrame:
    return spark.sql(f"SELECT * FROM `{f'{ODD}_{function}'.replace('`', '``')}`({arguments})")


def together(*tables: DataFrame) -> DataFrame:
    """The rows of all of them, numbered by their table: one question to Spark for all."""
    numbered = [table.select(F.lit(place), "*") for place, table in enumerate(tables)]
    return reduce(DataFrame.unionAll, numbered)


def said(at: datetime | None) -> str:
    return "NULL" if at is None else f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S}Z'"


def test_the_functions_give_what_as_of_and_between_give(spark: SparkSession, history: DataFrame) -> None:
    create_view(history, ODD)
    instants = ((day(2), False), (day(3), False), (day(3), True), (day(9), False))
    periods = ((day(2), day(3), False), (day(3), day(5), True), (day(2), None, False))
    rows = together(
        *(sql(spark, "as_of", f"{said(at)}, {deletes}") for at, deletes in instants),
        *(sql(spark, "between", f"{said(start)}, {said(end)}, {deletes}") for start, end, deletes in periods),
        spark.table(f"`{f'{ODD}_current'.replace('`', '``')}`"),
        sql(spark, "as_of", said(day(3))).where("at = 2"),
    )
    expected = together(
        *(as_of(history, at, deletes=deletes) for at, deletes in instants),
        *(between(history, start, end, deletes=deletes) for start, end, deletes in periods),
        current(history),
        history.where("source_message = 'm2'"),
    )
    assert rows_of(rows) == rows_of(expected)


def test_a_table_of_both_times_is_asked_for_both(spark: SparkSession) -> None:
    """From day 2 on x was believed of a; on day 4 it was learned that y had been true from day 3 on."""
    versions = [
        ("a", day(2), None, day(2), day(4), False, "x", "m1"),
        ("a", day(2), day(3), day(4), None, False, "x", "m1"),
        ("a", day(3), None, day(4), None, False, "y", "m2"),
        ("b", day(2), None, day(3), None, True, None, "m3"),
    ]
    columns = "guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp"
    system_columns = "system_from_timestamp timestamp, system_to_timestamp timestamp"
    more = "deleted_indicator boolean, v string, source_message string"
    create_view(spark.createDataFrame(versions, f"{columns}, {system_columns}, {more}"), ODD)

    def asked(function: str, *arguments: datetime | bool | None) -> list[tuple[str, str | None]]:
        texts = (str(argument) if isinstance(argument, bool) else said(argument) for argument in arguments)
        return sorted((row["guid"], row["v"]) for row in sql(spark, function, ", ".join(texts)).collect())

    assert asked("as_of", day(3), day(3)) == [("a", "x")]
    assert asked("as_of", day(3), day(4)) == [("a", "y")]
    assert asked("as_of", day(3), day(4), True) == [("a", "y"), ("b", None)]
    assert asked("as_of", day(3), None) == asked("as_of", None, day(4)) == []
    assert asked("between", day(2), day(5), day(3)) == [("a", "x")]
    assert asked("between", day(2), day(5), day(4)) == [("a", "x"), ("a", "y")]
    assert asked("known_at", day(2)) == [("a", "x")]
    assert asked("known_at", day(5)) == [("a", "x"), ("a", "y"), ("b", None)]
    assert [row["v"] for row in spark.table(f"`{f'{ODD}_current'.replace('`', '``')}`").collect()] == ["y"]
    assert "system_from_timestamp" not in sql(spark, "known_at", said(day(5))).columns
    create_view(spark.createDataFrame([versions[0][:3] + versions[0][5:]], f"{columns}, {more}"), ODD)
    with pytest.raises(PySparkException, match="known_at"):
        sql(spark, "known_at", said(day(5)))


def test_the_session_s_zone_does_not_matter_to_an_instant_that_says_its_own(
    spark: SparkSession, history: DataFrame
) -> None:
    create_view(history, ODD)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = together(sql(spark, "as_of", said(day(3))), sql(spark, "as_of", "'2024-01-03 09:00:00'"))
        assert [row["source_message"] for row in rows_of(rows)] == ["m2", "m2"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_what_is_no_period_is_an_error_and_what_is_no_instant_finds_nothing(
    spark: SparkSession, history: DataFrame
) -> None:
    create_view(history, ODD)
    with pytest.raises(PySparkException, match="needs end to be after start"):
        sql(spark, "between", f"{said(day(3))}, {said(day(3))}").collect()
    nothing = together(sql(spark, "as_of", "NULL"), sql(spark, "between", f"NULL, {said(day(3))}"))
    assert rows_of(nothing) == []


@pytest.mark.parametrize("number", ["20240115", "1.5", "1705276800.0D", "true"])
def test_a_number_is_no_instant(spark: SparkSession, history: DataFrame, number: str) -> None:
    """Spark would take it for seconds since 1970; a day and a local time are instants still."""
    create_view(history, ODD)
    for function, arguments in (("as_of", number), ("between", f"{number}, NULL")):
        with pytest.raises(PySparkException, match=r"to be a time, such as .*; a number is none"):
            sql(spark, function, arguments).collect()
    for time in ("DATE '2024-01-03'", "TIMESTAMP_NTZ '2024-01-03 00:00:00'"):
        assert rows_of(sql(spark, "as_of", time)) == rows_of(as_of(history, day(3)))


def test_the_instants_of_a_table_are_asked_by_a_lateral_join(spark: SparkSession, history: DataFrame) -> None:
    create_view(history, "versions")
    spark.createDataFrame(
        [("b", day(2)), ("b", day(4))], "guid string, ordered timestamp"
    ).createOrReplaceTempView("orders")
    joined = spark.sql("""
        SELECT o.ordered, f.v FROM orders AS o, LATERAL versions_as_of(o.ordered) AS f WHERE f.guid = o.guid
    """)
    assert [row["v"] for row in joined.collect()] == ["z"]


def test_a_view_is_replaced_with_its_functions(spark: SparkSession, history: DataFrame) -> None:
    create_view(history, "versions")
    create_view(history.where("guid = 'a'").drop("v"), "versions")
    rows = spark.sql(f"SELECT * FROM versions_as_of({said(day(9))})")
    assert "v" not in rows.columns
    assert [row["guid"] for row in rows.collect()] == ["a"]


def test_a_ledger_s_tables_are_views(spark: SparkSession, tmp_path: Path) -> None:
    """They stay at their commit until they are created again."""
    ledger = Ledger(spark, tmp_path, entity="product", keys=["id"], buckets=1)

    def log(number: int, name: str) -> DataFrame:
        rows = spark.createDataFrame([(1, name, day(number))], "id int, name string, at timestamp")
        return changes_from(rows, keys=["id"], sequence_by="at", source=f"m{number}")

    ledger.apply(log(1, "kettle"))
    ledger.create_view("products")
    ledger.apply(log(3, "teapot"))
    query = f"SELECT name FROM products_as_of({said(day(5))})"
    assert [row["name"] for row in spark.sql(query).collect()] == ["kettle"]
    ledger.create_view("products")
    assert [row["name"] for row in spark.sql(query).collect()] == ["teapot"]
    assert spark.table("products_changes").count() == 2


def test_what_is_no_history_or_no_name_is_refused(history: DataFrame) -> None:
    with pytest.raises(MissingColumns, match=r"create_view\(\) needs the columns deleted_indicator"):
        create_view(history.drop("deleted_indicator"), "versions")
    with pytest.raises(InvalidArgument, match="a name"):
        create_view(history, "")
