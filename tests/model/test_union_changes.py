"""Changes of several sources about one kind of entity."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, changes_from, merge, union_changes
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.model.changes import ARRIVAL_TYPE, MADE_OF
from cdckit.model.unions import unite


def changes(spark: SparkSession, source: str, data: str, carried: str) -> DataFrame:
    """One change of *source* at an instant that does not matter here."""
    return spark.range(1).select(
        F.lit("upsert").alias("operation"),
        F.timestamp_seconds(F.lit(0)).alias("effective_timestamp"),
        F.lit("").alias("sequence"),
        F.lit(None).cast(ARRIVAL_TYPE).alias("arrival"),
        F.lit(f"{source}:1").alias("message_id"),
        F.lit(source).alias("source"),
        F.lit(0).alias("priority"),
        F.expr(data).alias("data"),
        F.expr(carried).alias("carried"),
    )


def test_a_field_that_a_source_lacks_is_null_and_not_carried(spark: SparkSession) -> None:
    """Not sent is not null: the other source's value must survive the merge."""
    schedule = changes(
        spark, "schedule", "struct(1 as id, 'JFK' as origin)", "struct(true as id, true as origin)"
    )
    airport = changes(spark, "airport", "struct('A7' as gate, 1 as id)", "struct(false as gate, true as id)")
    both = union_changes(schedule, airport).orderBy("source").select("source", "data", "carried").collect()
    assert [tuple(map(_plain, row)) for row in both] == [
        ("airport", {"id": 1, "origin": None, "gate": "A7"}, {"id": True, "origin": False, "gate": False}),
        ("schedule", {"id": 1, "origin": "JFK", "gate": None}, {"id": True, "origin": True, "gate": False}),
    ]


def _plain(value: object) -> object:
    return value.asDict() if hasattr(value, "asDict") else value


def test_field_priorities_keep_their_field(spark: SparkSession) -> None:
    """A field without a stated priority stays without one."""
    one = changes(spark, "a", "struct(1 as id, 2 as x)", "struct(true as id, true as x)")
    two = changes(spark, "b", "struct(1 as id, 2 as y)", "struct(true as id, true as y)")
    one = one.withColumn("field_priorities", F.expr("struct(7 as x)"))
    two = two.withColumn("field_priorities", F.expr("struct(9 as y)"))
    both = union_changes(one, two).orderBy("source").select("field_priorities.*").collect()
    assert [row.asDict() for row in both] == [
        {"id": None, "x": 7, "y": None},
        {"id": None, "x": None, "y": 9},
    ]


def test_priorities_of_one_source_alone_are_kept(spark: SparkSession) -> None:
    """A source without stated priorities has none, whichever table comes first."""
    one = changes(spark, "a", "struct(1 as id)", "struct(true as id)")
    two = changes(spark, "b", "struct(1 as id)", "struct(true as id)")
    two = two.withColumn("field_priorities", F.expr("struct(9 as id)"))
    for both in (union_changes(one, two), union_changes(two, one)):
        stated = {row["source"]: row["field_priorities"]["id"] for row in both.collect()}
        assert stated == {"a": None, "b": 9}


def test_names_that_differ_in_case_alone_are_refused(spark: SparkSession) -> None:
    """Spark would see one field where there are two."""
    one = changes(spark, "a", "struct(1 as id, 2 as gate)", "struct(true as id, true as gate)")
    two = changes(spark, "b", "struct(1 as id, 2 as GATE)", "struct(true as id, true as GATE)")
    with pytest.raises(
        InvalidArgument, match=r"differ in more than case; it is \['gate', 'GATE'\]. Call both gate"
    ):
        union_changes(one, two)


def test_one_table_is_itself(spark: SparkSession) -> None:
    """A union of one changes nothing."""
    one = changes(spark, "a", "struct(1 as id)", "struct(true as id)")
    assert union_changes(one).collect() == one.collect()


@pytest.mark.parametrize(
    ("one", "two", "common", "values"),
    [
        ("1", "2L", "bigint", [1, 2]),
        ("1L", "2.50BD", "decimal(21,2)", [Decimal("1.00"), Decimal("2.50")]),
        ("cast(1 as smallint)", "0.5f", "float", [1.0, 0.5]),
        ("1", "0.5D", "double", [1.0, 0.5]),
        ("1152921504606846976L", "7D", "double", [2.0**60, 7.0]),
        ("12.30BD", "0.1D", "double", [12.3, 0.1]),
        ("cast(1 as decimal(38,0))", "0.5BD", "double", [1.0, 0.5]),
        ("null", "7", "int", [None, 7]),
        ("null", "'7'", "string", [None, "7"]),
    ],
)
def test_two_types_for_one_field_become_one_that_holds_both(
    spark: SparkSession, one: str, two: str, common: str, values: list[object]
) -> None:
    """Numbers stay numbers, and null is of any type."""
    tables = [
        changes(spark, source, f"struct({value} as id)", "struct(true as id)")
        for source, value in (("a", one), ("b", two))
    ]
    for both in (union_changes(*tables), union_changes(*tables[::-1])):
        assert both.schema["data"].dataType.simpleString() == f"struct<id:{common}>"
        assert [row["data"]["id"] for row in both.orderBy("source").collect()] == values


@pytest.mark.parametrize("number", ["9007199254740993L", "9223372036854775807L", "1234567890.12345678BD"])
def test_a_number_that_would_lose_digits_as_a_double_is_refused(spark: SparkSession, number: str) -> None:
    """Neither is it rounded, nor do all numbers become text for it."""
    one = changes(spark, "a", f"struct({number} as id)", "struct(true as id)")
    two = changes(spark, "b", "struct(0.5D as id)", "struct(true as id)")
    with pytest.raises(SparkRuntimeException, match=f"id has .* {number.rstrip('LBD')} has more digits"):
        union_changes(one, two).collect()


def test_a_nested_field_and_another_are_refused(spark: SparkSession) -> None:
    """The text of a struct is not its value."""
    one = changes(spark, "a", "struct(1 as id)", "struct(true as id)")
    two = changes(spark, "b", "struct(array(1) as id)", "struct(true as id)")
    with pytest.raises(WrongColumnType, match=r"it is int in one and array<int> in another\. Cast"):
        union_changes(one, two)


@pytest.mark.parametrize(
    ("one", "two", "found"),
    [
        ("10L", "'0010'", "bigint in one and string in another"),
        ("'2024-01-01'", "date'2024-01-01'", "string in one and date in another"),
        ("timestamp'2024-01-01 10:00:00Z'", "'2024-01-01'", "timestamp in one and string in another"),
        ("true", "1", "boolean in one and int in another"),
    ],
)
def test_a_value_that_would_be_written_in_two_ways_is_refused(
    spark: SparkSession, one: str, two: str, found: str
) -> None:
    """As text 10 and "0010" would be two keys, without a word; a ledger alone keeps both as text."""
    tables = [
        changes(spark, source, f"struct({value} as id)", "struct(true as id)")
        for source, value in (("a", one), ("b", two))
    ]
    with pytest.raises(
        WrongColumnType, match=rf"data\.id as one type in all tables; it is {found}\. Cast it"
    ):
        union_changes(*tables)
    assert unite(tables).schema["data"].dataType.simpleString() == "struct<id:string>"


def test_tables_in_a_list_are_to_be_given_one_by_one(spark: SparkSession) -> None:
    tables: Any = [changes(spark, source, "struct(1 as id)", "struct(true as id)") for source in ("a", "b")]
    with pytest.raises(InvalidArgument, match="Give the tables one by one: `union_changes"):
        union_changes(tables)


def test_what_is_no_table_of_changes_is_refused(spark: SparkSession) -> None:
    """The first column that is missing is named."""
    with pytest.raises(MissingColumns, match=r"union_changes\(\) needs the columns operation, "):
        union_changes(spark.range(1))


def test_a_guid_that_is_made_of_the_key_goes_beside_changes_without_one(spark: SparkSession) -> None:
    """As those of a ledger, beside a correction; one that is an identity itself must be in all."""
    plain = changes(spark, "anna", "struct(1 as id)", "struct(true as id)")
    logged = plain.withColumn("guid", F.lit("g").alias("guid", metadata={MADE_OF: ["id"]}))
    assert "guid" not in union_changes(logged, plain).columns
    assert "guid" not in union_changes(plain, logged).columns
    assert "guid" in union_changes(logged, logged).columns
    with pytest.raises(MissingColumns, match="guid"):
        union_changes(plain, plain.withColumn("guid", F.lit("g")))


def test_changes_of_a_table_that_calls_the_key_otherwise_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """All of it would be one entity without a key; a part of a key may be missing."""
    columns, at = ["Vertrag", "part", "amount"], datetime(2024, 1, 1, tzinfo=UTC)
    crm = changes_from(pd.DataFrame([(1, 1, 5)], columns=columns), keys=["Vertrag"], effective=at)
    billing = changes_from(pd.DataFrame({"contract": [1], "amount": [6]}), keys=["contract"], effective=at)
    both = union_changes(union_changes(billing, billing), union_changes(crm, crm))
    assert merge(both, entity="e", keys=["contract", "part"]).count() == 2
    said = r"rename the key of those that call it otherwise; .* where one has only amount, Vertrag, part"
    with pytest.raises(InvalidArgument, match=said):
        merge(both, entity="e", keys=["contract"])
    with pytest.raises(InvalidArgument, match="where one has only contract, amount"):
        Ledger(spark, tmp_path / "ledger", entity="e", keys=["Vertrag"]).apply(both)


def test_of_two_tables_that_speak_of_one_instant_the_later_one_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As of two that a ledger took one by one, however many rows each has; also where unions are united."""
    files = [[(2, "x"), (2, "y"), (1, "first")], [(1, "second")], [(3, "z"), (1, "third")]]
    at = datetime(2024, 1, 1, tzinfo=UTC)
    tables = [
        changes_from(pd.DataFrame(rows, columns=["id", "name"]), keys=["id"], effective=at) for rows in files
    ]
    one, two, three = tables
    for united, expected in (
        (union_changes(three, two, one), "first"),
        (union_changes(one, union_changes(two, three)), "third"),
    ):
        (row,) = merge(united, entity="e", keys=["id"]).where("id = 1").select("name").collect()
        assert row["name"] == expected
    # The last table's row is its second, and the first one's its third: row numbers would say "first".
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1)
    ledger.apply(union_changes(*tables))
    assert [row["name"] for row in ledger.history({"id": 1}).select("name").collect()] == ["third"]
