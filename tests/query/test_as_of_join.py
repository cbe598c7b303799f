"""`as_of_join`: each fact with the versions that were in force when it happened."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Lookup, as_of_join, merge
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from support.histories import INSTANTS, Row, at, plain, random_changes, to_dataframe, to_rows
from support.random_versions import streamed
from tools.tiers import seeds

PRODUCTS = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    number int, name string, price double, source_message string,
    field_provenance struct<guid: struct<m: string, p: int>>
"""
SHOPS = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    country string, code string, city string, source_message string
"""
ORDERS = "order string, number int, time timestamp"
MICROSECOND = timedelta(microseconds=1)


@pytest.fixture(scope="module")
def products(spark: SparkSession) -> DataFrame:
    """A kettle with two names, and a mug that was deleted and came back."""
    return spark.createDataFrame(
        [
            ("kettle", at(9), at(10), False, 1, "Kettle", 20.0, "m1", (("m1", 0),)),
            ("kettle", at(10), None, False, 1, "Teapot", 21.0, "m2", (("m1", 0),)),
            ("mug", at(9), at(11), False, 2, "Mug", 5.0, "m1", (("m1", 0),)),
            ("mug", at(11), at(12), True, 2, None, None, "m3", (("m3", 0),)),
            ("mug", at(12), None, False, 2, "New Mug", 6.0, "m4", (("m4", 0),)),
        ],
        PRODUCTS,
    )


def orders(spark: SparkSession, *rows: tuple[str, int | None, datetime | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), ORDERS)


def names(joined: DataFrame) -> dict[str, str | None]:
    """The name of the product of each order; there must be one row per order."""
    rows = joined.select("order", "product.name").collect()
    assert len({row["order"] for row in rows}) == len(rows)
    return {row["order"]: row["name"] for row in rows}


# What matches --------------------------------------------------------------------------------------------


def test_a_fact_gets_the_version_in_force_at_its_time(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark, ("A", 1, at(9, 30)), ("B", 1, at(15)), ("C", 2, at(9, 30)))
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    first, *_ = found.orderBy("order").collect()
    assert first.asDict(recursive=True) == {
        "order": "A",
        "number": 1,
        "time": datetime(2024, 3, 10, 9, 30),
        "product": {
            "guid": "kettle",
            "valid_from_timestamp": datetime(2024, 3, 10, 9),
            "valid_to_timestamp": datetime(2024, 3, 10, 10),
            "number": 1,
            "name": "Kettle",
            "price": 20.0,
            "source_message": "m1",
        },
    }
    assert names(found) == {"A": "Kettle", "B": "Teapot", "C": "Mug"}


def test_facts_of_pandas_go_in(spark: SparkSession, products: DataFrame) -> None:
    """Their datetimes without a zone are of UTC; a fact without a key finds nothing, and is kept."""
    times = pd.to_datetime(["2024-03-10 09:59:59", "2024-03-10 10:00:00"])
    facts = pd.DataFrame({"order": ["A", "B"], "number": [1, None], "time": times})
    whole = products.withColumn("number", F.col("number").cast("bigint"))
    found = as_of_join(facts, Lookup(whole, on="number", into="product", reason="why"), time="time")
    assert names(found) == {"A": "Kettle", "B": None}
    assert {row["order"]: row["why"] for row in found.collect()} == {"A": None, "B": "no key"}
    with pytest.raises(WrongColumnType, match="convert_dtypes"):
        as_of_join(
            facts.replace({"number": {1: 1.5}}), Lookup(whole, on="number", into="product"), time="time"
        )


def test_at_the_instant_where_one_version_ends_and_the_next_starts_the_next_is_read(
    spark: SparkSession, products: DataFrame
) -> None:
    facts = orders(spark, ("before", 1, at(10) - MICROSECOND), ("at", 1, at(10)))
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    assert names(found) == {"before": "Kettle", "at": "Teapot"}


def test_before_the_first_version_nothing_matches(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark, ("before", 1, at(9) - MICROSECOND), ("at", 1, at(9)))
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    assert names(found) == {"before": None, "at": "Kettle"}


def test_a_deleted_version_does_not_match(spark: SparkSession, products: DataFrame) -> None:
    """From the instant of the delete on, until the one at which the mug is back."""
    facts = orders(
        spark,
        ("last", 2, at(11) - MICROSECOND),
        ("deleted", 2, at(11)),
        ("still", 2, at(12) - MICROSECOND),
        ("back", 2, at(12)),
    )
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    assert names(found) == {"last": "Mug", "deleted": None, "still": None, "back": "New Mug"}
    assert found.where("product is null").count() == 2


def test_a_key_without_versions_matches_nothing(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark, ("A", 99, at(9, 30)))
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    assert found.select("order", "number", "product").collect() == [("A", 99, None)]


def test_a_fact_without_a_time_matches_nothing_and_is_kept(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark, ("A", 1, None), ("B", 1, at(10)), ("C", 99, None))
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    assert names(found) == {"A": None, "B": "Teapot", "C": None}


def test_a_null_in_a_key_matches_null_and_nothing_else(spark: SparkSession) -> None:
    """The merge takes null in a key for a value: an entity may have one."""
    shops = spark.createDataFrame(
        [
            ("a", at(9), None, False, "NL", None, "no code", "m1"),
            ("b", at(9), None, False, "NL", "1", "one", "m1"),
            ("c", at(9), None, False, None, None, "nothing", "m1"),
        ],
        SHOPS,
    )
    facts = spark.createDataFrame(
        [("NL", None, at(10)), ("NL", "1", at(10)), (None, None, at(10)), (None, "1", at(10))],
        "country string, code string, time timestamp",
    )
    found = as_of_join(facts, Lookup(shops, on=["country", "code"], into="shop"), time="time")
    assert sorted(found.select("country", "code", "shop.city").collect(), key=str) == [
        ("NL", "1", "one"),
        ("NL", None, "no code"),
        (None, "1", None),
        (None, None, "nothing"),
    ]


def test_the_same_fact_twice_is_two_facts(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark, ("A", 1, at(9)), ("A", 1, at(9)), ("A", 99, None), ("A", 99, None))
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    assert sorted(found.select("number", "product.name").collect(), key=str) == [
        (1, "Kettle"),
        (1, "Kettle"),
        (99, None),
        (99, None),
    ]


def test_what_ends_as_it_starts_is_never_in_force_and_hides_nothing(spark: SparkSession) -> None:
    """Neither do deleted versions hide one that is in force, whatever they claim."""
    products = spark.createDataFrame(
        [
            ("g", at(9), None, False, 1, "Kettle", 1.0, "m1", None),
            ("g", at(10), at(10), False, 1, "empty", 1.0, "m2", None),
            ("g", at(11), at(10), False, 1, "backwards", 1.0, "m2", None),
            ("g", None, None, False, 1, "no start", 1.0, "m2", None),
            ("g", at(10), None, True, 1, None, None, "m3", None),
        ],
        PRODUCTS,
    )
    facts = orders(spark, ("A", 1, at(10)), ("B", 1, at(12)))
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    assert names(found) == {"A": "Kettle", "B": "Kettle"}


def test_empty_facts_and_empty_histories(spark: SparkSession, products: DataFrame) -> None:
    facts, nothing = orders(spark, ("A", 1, at(10))), orders(spark)
    found = as_of_join(nothing, Lookup(products, on="number", into="product"), time="time")
    assert found.collect() == []
    found = as_of_join(facts, Lookup(products.limit(0), on="number", into="product"), time="time")
    assert names(found) == {"A": None}


# What comes out ------------------------------------------------------------------------------------------


def test_several_histories_are_looked_up_each_by_its_own_key(
    spark: SparkSession, products: DataFrame
) -> None:
    shops = spark.createDataFrame(
        [
            ("a", at(8), at(11), False, "NL", "1", "Delft", "m1"),
            ("a", at(11), None, False, "NL", "1", "Leiden", "m2"),
        ],
        SHOPS,
    )
    facts = spark.createDataFrame(
        [("A", 1, "NL", "1", at(9)), ("B", 2, "NL", "1", at(11)), ("C", 2, "BE", "1", at(12))],
        "order string, number int, land string, shop_code string, time timestamp",
    )
    found = as_of_join(
        facts,
        Lookup(products, on="number", into="product"),
        Lookup(shops, on={"land": "country", "shop_code": "code"}, into="shop", fields=["city"]),
        time="time",
    )
    assert found.columns == ["order", "number", "land", "shop_code", "time", "product", "shop"]
    assert found.orderBy("order").select("order", "product.name", "shop.city").collect() == [
        ("A", "Kettle", "Delft"),
        ("B", None, "Leiden"),
        ("C", "New Mug", None),
    ]


@pytest.mark.parametrize("key", ["number", "price", "name", ["number", "price"]], ids=str)
def test_facts_and_versions_are_shuffled_once_and_once_more_for_the_answers_of_workers(
    spark: SparkSession, products: DataFrame, key: str | list[str]
) -> None:
    """Whatever the key (a whole number, one with its own equality, a text, several) and however many ask."""
    facts = products.select("number", "price", "name", F.col("valid_from_timestamp").alias("time"))
    plain = Lookup(products.where("number = 1"), on=key, into="product")
    asked = [replace(plain, into=into, direction=into) for into in ("forward", "nearest")]
    for lookups, shuffles in (([plain], 1), (asked, 2)):
        joined = as_of_join(facts, *lookups, time="time")
        plan = joined._jdf.queryExecution().executedPlan().toString()
        assert plan.count("Exchange") == shuffles, plan
        assert plan.count("ArrowEvalPython") == shuffles - 1, "all are answered in one pass"


def test_one_history_may_be_looked_up_twice(spark: SparkSession, products: DataFrame) -> None:
    facts = spark.createDataFrame([("A", 1, 2, at(9))], "order string, sold int, given int, time timestamp")
    found = as_of_join(
        facts,
        Lookup(products, on={"sold": "number"}, into="product"),
        Lookup(products, on={"given": "number"}, into="gift"),
        time="time",
    )
    assert found.select("product.name", "gift.name").collect() == [("Kettle", "Mug")]


def test_versions_of_the_same_history_may_be_the_facts(products: DataFrame) -> None:
    found = as_of_join(products, Lookup(products, on="guid", into="itself"), time="valid_from_timestamp")
    alive = found.where("not deleted_indicator")
    assert alive.where("itself.source_message = source_message").count() == alive.count() == 4
    assert found.where("deleted_indicator and itself is null").count() == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["number", "name", "price", "source_message"]),
        ({"fields": ["price", "name"]}, ["price", "name", "source_message"]),
        ({"fields": []}, ["source_message"]),
        ({"fields": ["name"], "provenance": True}, ["name", "source_message", "field_provenance"]),
    ],
    ids=str,
)
def test_the_struct_holds_the_fields_that_are_asked_for(
    spark: SparkSession, products: DataFrame, options: dict[str, Any], expected: list[str]
) -> None:
    facts = orders(spark, ("A", 1, at(10)))
    found = as_of_join(facts, Lookup(products, on="number", into="product", **options), time="time")
    held = found.select("product.*")
    assert held.columns == ["guid", "valid_from_timestamp", "valid_to_timestamp", *expected]
    assert held.select("guid", "source_message").collect() == [("kettle", "m2")]


def test_columns_and_fields_may_have_any_name(spark: SparkSession) -> None:
    """Dots, spaces, backticks, and the names that the function itself uses inside."""
    products = spark.createDataFrame(
        [("g", at(9), None, False, "x", 1, 2, 3, "m1")],
        """guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp,
        deleted_indicator boolean, `the.key` string, ```fact``` int, version int, last int,
        source_message string""",
    )
    facts = spark.createDataFrame(
        [("x", at(9), 1, True, "k", "f"), ("y", at(9), 2, False, "k", "f")],
        "`a `` key` string, instant timestamp, last int, is_fact boolean, key_0 string, fact string",
    )
    lookup = Lookup(products, on={"a ` key": "the.key"}, into="the version.", fields=["`fact`", "last"])
    found = as_of_join(facts, lookup, time="instant")
    assert found.columns == [*facts.columns, "the version."]
    struct = F.col("`the version.`")
    assert found.select("last", "is_fact", struct.getField("`fact`"), struct.getField("last")).orderBy(
        "last"
    ).collect() == [(1, True, 1, 3), (2, False, None, None)]


def test_the_types_of_the_columns_stay(spark: SparkSession, products: DataFrame) -> None:
    facts = spark.range(1).select(
        F.lit(1).alias("number"),
        F.lit(at(10)).alias("time"),
        F.create_map(F.lit("a"), F.array(F.lit(1))).alias("map"),
        F.struct(F.lit(b"\x00").alias("bytes")).alias("nested"),
        F.lit(None).alias("nothing"),
    )
    found = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    assert [(name, kind) for name, kind in found.dtypes if name != "product"] == facts.dtypes
    assert found.drop("product").collect() == facts.collect()


# What is refused -----------------------------------------------------------------------------------------


OVERLAPPING: dict[str, list[tuple[str, datetime, datetime | None, int]]] = {
    "into the next": [("g", at(9), at(11), 1), ("g", at(10), at(12), 1)],
    "two current ones": [("g", at(9), None, 1), ("g", at(10), None, 1)],
    "within": [("g", at(9), at(14), 1), ("g", at(10), at(11), 1), ("g", at(12), at(13), 1)],
    "two at once": [("g", at(9), at(10), 1), ("g", at(9), at(11), 1)],
    "two entities": [("g", at(9), None, 1), ("h", at(9), None, 1)],
}


@pytest.mark.parametrize("versions", OVERLAPPING.values(), ids=OVERLAPPING.keys())
def test_versions_of_one_key_that_overlap_are_never_chosen_from(
    spark: SparkSession, versions: list[tuple[str, datetime, datetime | None, int]]
) -> None:
    products = spark.createDataFrame(
        [(guid, start, end, False, number, "n", 1.0, "m", None) for guid, start, end, number in versions],
        PRODUCTS,
    )
    facts = orders(spark, ("A", 1, at(16)))
    joined = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    said = r"as_of_join\(\) needs one version at a time per key in the lookup 'product'; of the key \[\"1\"\]"
    with pytest.raises(PySparkException, match=said):
        joined.collect()


def test_a_filter_of_the_result_does_not_hide_an_overlap(spark: SparkSession) -> None:
    products = spark.createDataFrame(
        [(guid, at(9), None, False, 1, guid, 1.0, "m", None) for guid in "gh"], PRODUCTS
    )
    facts = orders(spark, ("A", 1, at(16)))
    joined = as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    for few in (
        joined.where("product is not null"),
        joined.where("product.name = 'g'"),
        joined.where("number = 1 and order = 'A'"),
        joined.select("order"),
        joined.groupBy().count(),
    ):
        with pytest.raises(PySparkException, match="needs one version at a time"):
            few.collect()


def test_a_key_that_is_not_the_entitys_is_found_out(spark: SparkSession, products: DataFrame) -> None:
    """Each product has a shelf, but a shelf has many products: which one is meant?"""
    facts = spark.createDataFrame([("A", "s", at(10))], "order string, shelf string, time timestamp")
    shelved = products.withColumn("shelf", F.lit("s"))
    with pytest.raises(PySparkException, match=r"`on` does not tell one entity from the next"):
        as_of_join(facts, Lookup(shelved, on="shelf", into="product"), time="time").collect()


@pytest.mark.parametrize(
    ("lookup", "said"),
    [
        (
            {"on": "shelf"},
            r"needs on to be one or more fields among guid, number, name, price; it is \['shelf'\]",
        ),
        ({"on": []}, r"needs on to be one or more fields"),
        ({"on": ["number", "number"]}, r"needs on to be one or more fields"),
        ({"on": {"order": "name", "number": "shelf"}}, r"needs on to be one or more fields"),
        ({"fields": ["colour"]}, r"needs fields to be one or more fields among number, name, price"),
        ({"fields": "guid"}, r"needs fields to be one or more fields"),
        ({"into": "number"}, r"needs into to be a name other than order, number, time; it is 'number'"),
        ({"into": "TIME"}, r"needs into to be a name other than order, number, time"),
    ],
    ids=str,
)
def test_a_lookup_that_cannot_mean_anything_is_refused(
    spark: SparkSession, products: DataFrame, lookup: dict[str, Any], said: str
) -> None:
    facts = orders(spark, ("A", 1, at(10)))
    with pytest.raises(InvalidArgument, match=said):
        as_of_join(
            facts, Lookup(**{"history": products, "on": "number", "into": "product", **lookup}), time="time"
        )


def test_two_lookups_into_one_column_are_refused(spark: SparkSession, products: DataFrame) -> None:
    facts, lookup = orders(spark, ("A", 1, at(10))), Lookup(products, on="number", into="product")
    with pytest.raises(
        InvalidArgument, match="needs into to be a name other than order, number, time, product"
    ):
        as_of_join(facts, lookup, lookup, time="time")


def test_at_least_one_lookup_is_needed(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match=r"needs lookups to be one or more Lookup; it is \(\)"):
        as_of_join(orders(spark), time="time")


def test_facts_that_differ_in_case_alone_are_refused(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark).select("number", "time", F.lit(1).alias("a"), F.lit(2).alias("A"))
    with pytest.raises(InvalidArgument, match=r"needs facts to be of columns that differ in more than case"):
        as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    said = r"needs history of 'product' to be of columns that differ in more than case"
    twice = products.select("*", F.lit(1).alias("NAME"))
    with pytest.raises(InvalidArgument, match=said):
        as_of_join(orders(spark), Lookup(twice, on="number", into="product"), time="time")


def test_streams_are_refused(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark)
    with pytest.raises(InvalidArgument, match=r"needs facts to be a batch of rows; of a stream, join each"):
        as_of_join(streamed(facts), Lookup(products, on="number", into="product"), time="time")
    with pytest.raises(InvalidArgument, match=r"needs history of 'product' to be a batch of rows"):
        as_of_join(facts, Lookup(streamed(products), on="number", into="product"), time="time")


def test_the_types_of_a_key_must_agree(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark).withColumn("number", F.col("number").cast("long"))
    with pytest.raises(
        WrongColumnType, match=r"needs the column number as int, like number in product; it is bigint\.$"
    ):
        as_of_join(facts, Lookup(products, on="number", into="product"), time="time")
    floats = facts.withColumn("number", F.col("number").cast("double"))
    with pytest.raises(WrongColumnType, match=r"it is double\. .*`frame.convert_dtypes\(\)`"):
        as_of_join(floats, Lookup(products, on="number", into="product"), time="time")
    with pytest.raises(MissingColumns, match=r"a datetime with tzinfo\.$"):
        as_of_join(
            orders(spark), Lookup(products, on="number", into="product"), time="time", known="2024-01-01"
        )


@pytest.mark.parametrize("kind", ["timestamp_ntz", "date", "string"])
def test_the_time_of_a_fact_must_be_an_instant(spark: SparkSession, products: DataFrame, kind: str) -> None:
    facts = orders(spark).withColumn("time", F.col("time").cast(kind))
    with pytest.raises(
        WrongColumnType, match=f"needs the column time as timestamp; it is {kind}.*to_datetime"
    ):
        as_of_join(facts, Lookup(products, on="number", into="product"), time="time")


def test_the_time_is_told_by_name(spark: SparkSession, products: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="needs time to be the name of a timestamp column of the facts"):
        as_of_join(orders(spark), Lookup(products, on="number", into="product"), time=F.col("time"))  # type: ignore[arg-type]


def test_missing_columns_are_named(spark: SparkSession, products: DataFrame) -> None:
    facts = orders(spark)
    with pytest.raises(
        MissingColumns, match=r"needs the columns when; the DataFrame has order, number, time"
    ):
        as_of_join(facts, Lookup(products, on="number", into="product"), time="when")
    with pytest.raises(MissingColumns, match=r"needs the columns sku; the DataFrame has order, number, time"):
        as_of_join(facts, Lookup(products, on={"sku": "number"}, into="product"), time="time")


@pytest.mark.parametrize("column", ["deleted_indicator", "guid", "field_provenance"])
def test_a_history_must_have_the_columns_that_are_read(
    spark: SparkSession, products: DataFrame, column: str
) -> None:
    short = Lookup(products.drop(column), on="number", into="product", provenance=True)
    with pytest.raises(
        MissingColumns, match=rf"as_of_join\(\) needs the columns {column}; the DataFrame has"
    ):
        as_of_join(orders(spark), short, time="time")


# The law -------------------------------------------------------------------------------------------------

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}


@seeds(1, soak=12)
def test_every_fact_meets_the_versions_that_a_search_through_all_of_them_finds(
    spark: SparkSession, seed: int
) -> None:
    merged = merge(
        to_dataframe(spark, random_changes(seed, 100, FIELDS), FIELDS), entity="thing", keys=["h", "k"]
    )
    # One of the keys is null, as if the entities had always been called that.
    history = merged.withColumn("h", F.nullif("h", F.lit(0))).localCheckpoint()
    facts = random_facts(seed, 2_000)
    frame = spark.createDataFrame(facts, "id int, h int, name string, time timestamp")
    found = as_of_join(
        frame,
        Lookup(history, on={"h": "h", "name": "k"}, into="thing", provenance=True),
        Lookup(history, on={"name": "k", "h": "h"}, into="again", fields=["a"]),
        time="time",
    )
    rows = sorted(found.toArrow().to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == [fact[0] for fact in facts]
    versions = to_rows(history)
    matched = 0
    for row in rows:
        expected = searched(versions, row)
        matched += expected is not None
        assert plain(row["thing"]) == plain(expected)
        assert (row["again"] and row["again"]["a"]) == (expected and expected["a"])
    assert 200 < matched < 1_800


def random_facts(seed: int, count: int) -> list[tuple[int, int | None, str | None, datetime | None]]:
    """Facts at, just before and just after the instants of random histories, of keys that may not exist."""
    generator = random.Random(seed)
    pick = generator.choice
    moments = [instant + distance * MICROSECOND for instant in INSTANTS for distance in (-1, 0, 1)]
    return [
        (number, pick((None, *range(1, 102))), pick(("x", "y", "x", "y", None)), pick((*moments, None)))
        for number in range(count)
    ]


def searched(versions: Sequence[Row], fact: Row) -> Row | None:
    """The version of the fact's key that was in force at its time, found by looking at every one."""
    found = [version for version in versions if is_of(version, fact) and is_in_force(version, fact["time"])]
    assert len(found) <= 1
    return {name: part for name, part in found[0].items() if name != "deleted_indicator"} if found else None


def is_of(version: Row, fact: Row) -> bool:
    return bool(version["h"] == fact["h"] and version["k"] == fact["name"])


def is_in_force(version: Row, time: datetime | None) -> bool:
    if time is None or version["deleted_indicator"] or time < version["valid_from_timestamp"]:
        return False
    return version["valid_to_timestamp"] is None or time < version["valid_to_timestamp"]
