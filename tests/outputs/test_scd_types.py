"""Slowly changing dimensions: a history as the tables that people know by the numbers of their types."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Lookup, as_of, as_of_join
from cdckit.errors import InvalidArgument
from cdckit.outputs import UnfitHistory, scd_type_1, scd_type_2, scd_type_3, scd_type_4, scd_type_6
from support.versions_by_hand import Row, day, history_of, rows_of
from tools.tiers import seeds

FIELDS = "id int, price int, place string"
VERSIONS = [
    ("kettle", day(1), day(2), False, 1, 20, "shelf"),
    ("kettle", day(2), day(3), False, 1, 20, "desk"),
    ("kettle", day(3), day(5), False, 1, 25, "desk"),
    ("kettle", day(5), None, False, 1, 20, "desk"),
    ("mug", day(1), day(3), False, 2, 5, "shelf"),
    ("mug", day(3), day(6), True, 2, None, None),
    ("mug", day(6), None, False, 2, 5, "shelf"),
    ("vase", day(1), day(2), False, None, 9, None),
    ("vase", day(2), None, True, None, None, None),
    ("lamp", day(1), day(2), False, 4, 1, "shelf"),
    ("lamp", day(2), None, False, 4, 1, "shelf"),
    ("bowl", day(1), day(2), False, 5, None, "shelf"),
    ("bowl", day(2), None, False, 5, 7, "shelf"),
]


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """A kettle whose price came back, a mug that did, a vase without a key that is gone, and two more.

    The lamp's second version says what the first one says, by another message.
    """
    return history_of(spark, FIELDS, VERSIONS).localCheckpoint()


def told(table: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """By guid and time: the guid, the days from and to which, and the columns *names*."""
    days = [F.dayofmonth(f"valid_{end}_timestamp").alias(end) for end in ("from", "to")]
    rows = table.orderBy("guid", "valid_from_timestamp").select("guid", *days, *names).collect()
    return [tuple(row) for row in rows]


def test_type_1_is_what_is_there_now(history: DataFrame) -> None:
    """The vase is gone, the mug is back; null keys are keys like others."""
    table = scd_type_1(history)
    assert table.columns == ["guid", "id", "price", "place"]
    assert [tuple(row) for row in table.orderBy("id").collect()] == [
        ("kettle", 1, 20, "desk"),
        ("mug", 2, 5, "shelf"),
        ("lamp", 4, 1, "shelf"),
        ("bowl", 5, 7, "shelf"),
    ]
    assert scd_type_1(history, provenance=True).columns[-1] == "source_message"


def test_type_2_has_a_row_for_each_version_that_brought_another_value(history: DataFrame) -> None:
    table = scd_type_2(history)
    assert table.columns == [
        *("guid", "id", "price", "place"),
        *("valid_from_timestamp", "valid_to_timestamp", "is_current", "deleted_indicator", "source_message"),
    ]
    assert told(table, "is_current", "price", "place", "source_message") == [
        ("bowl", 1, 2, False, None, "shelf", "m12"),
        ("bowl", 2, None, True, 7, "shelf", "m13"),
        ("kettle", 1, 2, False, 20, "shelf", "m1"),
        ("kettle", 2, 3, False, 20, "desk", "m2"),
        ("kettle", 3, 5, False, 25, "desk", "m3"),
        ("kettle", 5, None, True, 20, "desk", "m4"),
        ("lamp", 1, None, True, 1, "shelf", "m11"),
        ("mug", 1, 3, False, 5, "shelf", "m5"),
        ("mug", 6, None, True, 5, "shelf", "m7"),
        ("vase", 1, 2, False, 9, None, "m8"),
    ]


def test_what_is_not_tracked_opens_no_row_and_shows_its_newest_value_within_one(history: DataFrame) -> None:
    kettle = history.where("guid = 'kettle'")
    by_price = [("kettle", 1, 3, 20, "desk"), ("kettle", 3, 5, 25, "desk"), ("kettle", 5, None, 20, "desk")]
    by_place = [("kettle", 1, 2, 20, "shelf"), ("kettle", 2, None, 20, "desk")]
    listed = scd_type_2(kettle, track_history_column_list=["price"])
    excepted = scd_type_2(kettle, track_history_except_column_list=["id", "place"])
    assert told(listed, "price", "place") == told(excepted, "price", "place") == by_price
    assert told(scd_type_2(kettle, track_history_except_column_list=["price"]), "price", "place") == by_place


def test_with_nothing_tracked_a_row_is_a_life(history: DataFrame) -> None:
    """The mug had two: a delete ends a row whatever is tracked."""
    assert told(scd_type_2(history, track_history_column_list=[]), "price") == [
        ("bowl", 1, None, 7),
        ("kettle", 1, None, 20),
        ("lamp", 1, None, 1),
        ("mug", 1, 3, 5),
        ("mug", 6, None, 5),
        ("vase", 1, 2, 9),
    ]


def test_deleted_times_have_rows_on_request(history: DataFrame) -> None:
    table = scd_type_2(history, deletes=True).where("guid IN ('mug', 'vase')")
    assert told(table, "is_current", "deleted_indicator", "price") == [
        ("mug", 1, 3, False, False, 5),
        ("mug", 3, 6, False, True, None),
        ("mug", 6, None, True, False, 5),
        ("vase", 1, 2, False, False, 9),
        ("vase", 2, None, True, True, None),
    ]
    mug = scd_type_2(history.where("guid = 'mug'"), deletes=True, track_history_column_list=[])
    assert told(mug, "deleted_indicator") == [
        ("mug", 1, 3, False),
        ("mug", 3, 6, True),
        ("mug", 6, None, False),
    ]


def test_an_end_by_choice_and_a_key_of_one_column(history: DataFrame) -> None:
    """The key is a hash of the guid and the instant in microseconds: the same in every zone and every run."""
    table = scd_type_2(
        history, valid_to_current=datetime(9999, 12, 31, tzinfo=UTC), surrogate_key="product_key"
    )
    assert table.columns[0] == "product_key"
    bowl = table.where("guid = 'bowl'").orderBy("valid_from_timestamp")
    keys = [
        hashlib.md5(f"bowl|{int(at.timestamp()) * 1_000_000}".encode()).hexdigest() for at in (day(1), day(2))
    ]
    rows = bowl.toArrow().to_pylist()
    assert [row["product_key"] for row in rows] == keys
    assert [row["valid_to_timestamp"] for row in rows] == [day(2), datetime(9999, 12, 31, tzinfo=UTC)]
    assert [row["is_current"] for row in rows] == [False, True]


def test_type_2_is_a_history_that_facts_are_joined_with(spark: SparkSession, history: DataFrame) -> None:
    table = scd_type_2(history, surrogate_key="product_key", track_history_column_list=["price"])
    facts = spark.createDataFrame([(1, day(2)), (1, day(4)), (2, day(4))], "id int, at timestamp")
    joined = as_of_join(
        facts, Lookup(table, on="id", into="product", fields=["price", "product_key"]), time="at"
    )
    rows = joined.orderBy("id", "at").select("product.price", "product.product_key").collect()
    keys = {
        row["price"]: row["product_key"]
        for row in table.where("id = 1").orderBy("valid_from_timestamp").collect()
    }
    assert [row["price"] for row in rows] == [20, 25, None]
    assert rows[1]["product_key"] == keys[25]
    assert as_of(table, day(4)).where("guid = 'kettle'").first()["price"] == 25


def test_type_3_is_type_1_with_the_value_before_and_since_when(history: DataFrame) -> None:
    """The price of the kettle came back; a null was a value; that the mug was deleted is none."""
    table = scd_type_3(history, ["price", "place"])
    assert table.columns == [
        *("guid", "id", "price", "place"),
        *("previous_price", "price_changed_at_timestamp", "previous_place", "place_changed_at_timestamp"),
    ]
    rows = [tuple(row.values()) for row in rows_of(table.drop("id"))]
    assert rows == [
        ("bowl", 7, "shelf", None, day(2), None, None),
        ("kettle", 20, "desk", 25, day(5), "shelf", day(2)),
        ("lamp", 1, "shelf", None, None, None, None),
        ("mug", 5, "shelf", None, None, None, None),
    ]


def test_type_3_remembers_what_was_before_a_delete(spark: SparkSession) -> None:
    versions = [
        ("mug", day(1), day(2), False, 2, 5, "shelf"),
        ("mug", day(2), day(3), True, 2, None, None),
        ("mug", day(3), None, False, 2, 6, "shelf"),
    ]
    [row] = rows_of(scd_type_3(history_of(spark, FIELDS, versions), ["price"]))
    assert (row["price"], row["previous_price"], row["price_changed_at_timestamp"]) == (6, 5, day(3))


def test_type_4_is_type_2_in_two_tables(history: DataFrame) -> None:
    tables = scd_type_4(history, track_history_column_list=["price"])
    assert told(tables.current, "price", "place") == [
        ("bowl", 2, None, 7, "shelf"),
        ("kettle", 5, None, 20, "desk"),
        ("lamp", 1, None, 1, "shelf"),
        ("mug", 6, None, 5, "shelf"),
    ]
    assert told(tables.history, "price", "place") == [
        ("bowl", 1, 2, None, "shelf"),
        ("kettle", 1, 3, 20, "desk"),
        ("kettle", 3, 5, 25, "desk"),
        ("mug", 1, 3, 5, "shelf"),
        ("vase", 1, 2, 9, None),
    ]
    assert tables.current.columns == tables.history.columns
    assert "is_current" not in tables.current.columns


def test_type_6_shows_the_values_of_now_in_every_row(history: DataFrame) -> None:
    """Of an entity that is gone, the last ones that it had."""
    table = scd_type_6(history, ["price", "place"], track_history_column_list=["price"], deletes=True)
    assert told(table, "price", "current_price", "current_place", "is_current") == [
        ("bowl", 1, 2, None, 7, "shelf", False),
        ("bowl", 2, None, 7, 7, "shelf", True),
        ("kettle", 1, 3, 20, 20, "desk", False),
        ("kettle", 3, 5, 25, 20, "desk", False),
        ("kettle", 5, None, 20, 20, "desk", True),
        ("lamp", 1, None, 1, 1, "shelf", True),
        ("mug", 1, 3, 5, 5, "shelf", False),
        ("mug", 3, 6, None, 5, "shelf", False),
        ("mug", 6, None, 5, 5, "shelf", True),
        ("vase", 1, 2, 9, 9, None, False),
        ("vase", 2, None, None, 9, None, True),
    ]


def test_nested_values_and_odd_names_are_values_and_names_like_others(spark: SparkSession) -> None:
    """Maps are equal if their entries are; NaN is NaN; a version that is over as it begins is none."""
    history = spark.sql("""
        SELECT guid, timestamp_seconds(f * 86400) AS valid_from_timestamp,
            timestamp_seconds(t * 86400) AS valid_to_timestamp, false AS deleted_indicator, m AS `a.b``c`,
            array(named_struct('x', n)) AS goes_on, m AS before, 'm' || f AS source_message
        FROM VALUES ('a', 1, 2, map('x', 1, 'y', 2), double('NaN')),
            ('a', 2, 3, map('y', 2, 'x', 1), double('NaN')), ('a', 3, 3, map('z', 0), 2.0D),
            ('a', 3, NULL, map('x', 2), 0.0D) AS v(guid, f, t, m, n)
    """)
    table = scd_type_2(history)
    rows = table.orderBy("valid_from_timestamp").toArrow().to_pylist()
    assert [(row["source_message"], row["valid_from_timestamp"].day) for row in rows] == [
        ("m2", 2),
        ("m3", 4),
    ]
    [row] = scd_type_3(history, ["a.b`c", "goes_on"]).toArrow().to_pylist()
    assert dict(row["previous_a.b`c"]) == {"x": 1, "y": 2}
    [row] = scd_type_6(history, ["a.b`c"]).where("is_current").toArrow().to_pylist()
    assert dict(row["current_a.b`c"]) == {"x": 2}


def test_all_that_is_wrong_with_a_call_is_said_at_once(history: DataFrame) -> None:
    taken = history.withColumnsRenamed({"place": "Is_Current", "price": "product_key"}).drop("source_message")
    with pytest.raises(UnfitHistory) as refused:
        scd_type_2(
            taken.withColumn("deleted_indicator", F.lit("no")),
            track_history_column_list=["product_kei", "id", "id"],
            track_history_except_column_list=["id"],
            surrogate_key="product_key",
            deletes=True,
        )
    message = str(refused.value)
    for part in (
        "the column source_message (string) is missing",
        "deleted_indicator is string, and must be boolean",
        "track_history_column_list names product_kei, which is no field (is it product_key?)",
        "track_history_column_list names a field twice: product_kei, id, id",
        "track_history_column_list and track_history_except_column_list are both given",
        "has a column product_key already",
        "has a column Is_Current already",
    ):
        assert part in message
    assert "rename it, `history.withColumnRenamed('product_key', 'product_key_before')`" in message


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda h: scd_type_3(h, []), "fields is empty"),
        (
            lambda h: scd_type_3(h.withColumnRenamed("place", "previous_price"), ["price"]),
            "previous_price already",
        ),
        (lambda h: scd_type_6(h, ["prize"]), r"fields names prize, which is no field \(is it price\?\)"),
        (
            lambda h: scd_type_2(h, track_history_column_list=["plcae", "id"]),
            r"track_history_column_list names plcae, which is no field \(is it place\?\)",
        ),
        (
            lambda h: scd_type_2(h, track_history_column_list=["colour"]),
            r"track_history_column_list names colour, which is no field\. The history has [^.]*\.$",
        ),
        (lambda h: scd_type_6(h, "price", surrogate_key="current_price"), "two columns would have the name"),
        (lambda h: scd_type_4(h, surrogate_key="guid"), "a column guid already"),
        (lambda h: scd_type_1(h.drop("guid")), r"the column guid \(string\) is missing"),
    ],
)
def test_a_call_that_cannot_mean_anything_is_refused(history: DataFrame, make: Any, wrong: str) -> None:
    with pytest.raises(UnfitHistory, match=wrong):
        make(history)


def test_flags_and_instants_are_checked(history: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="True or False"):
        scd_type_2(history, deletes="no")
    with pytest.raises(InvalidArgument, match=r"valid_to_current=datetime\(9999, 12, 31, tzinfo=UTC\)"):
        scd_type_2(history, valid_to_current=datetime(9999, 12, 31))


# A random law -------------------------------------------------------------------------------------------


def drawn(chance: random.Random) -> list[Row]:
    """The versions of some entities: they follow each other, with gaps and deletes, and change little."""
    versions: list[Row] = []
    for entity in range(12):
        at = chance.randrange(1, 4)
        for _ in range(chance.randrange(1, 8)):
            until = at + chance.randrange(1, 3)
            deleted = chance.random() < 0.2
            values = {name: None if deleted else chance.choice((1, 2, None)) for name in ("a", "b", "c")}
            versions.append({"guid": f"e{entity}", "from": at, "to": until, "deleted": deleted, **values})
            at = until if chance.random() < 0.8 else until + 1
        if chance.random() < 0.7:
            versions[-1]["to"] = None
    return versions


def folded_by_hand(versions: list[Row], tracked: list[str], deletes: bool) -> list[Row]:
    """One version after the other: it goes on with the row before, or opens one."""
    rows: list[Row] = []
    for version in versions:
        if version["deleted"] and not deletes:
            continue
        last = rows[-1] if rows else {}
        goes_on = (last.get("guid"), last.get("to")) == (version["guid"], version["from"])
        if goes_on and all(last[name] == version[name] for name in ("deleted", *tracked)):
            rows[-1] = {**version, "from": last["from"]}
        else:
            rows.append(dict(version))
    return rows


def before_by_hand(versions: list[Row]) -> dict[str, tuple[Any, Any, Any]]:
    """By entity that is there: its `a`, the one before, and since when."""
    values: dict[str, tuple[Any, Any, Any]] = {}
    for guid in {version["guid"] for version in versions}:
        lived = [version for version in versions if version["guid"] == guid and not version["deleted"]]
        before, since = None, None
        for earlier, later in pairwise(lived):
            if earlier["a"] != later["a"]:
                before, since = earlier["a"], later["from"]
        if lived and lived[-1]["to"] is None:
            values[guid] = (lived[-1]["a"], before, since)
    return values


@seeds(1, 2, soak=20)
def test_types_2_3_and_6_are_what_a_loop_over_the_versions_gives(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    versions = drawn(chance)
    tracked = chance.sample(["a", "b", "c"], chance.randrange(4))
    deletes = chance.random() < 0.5
    rows = [
        (
            version["guid"],
            day(version["from"]),
            day(version["to"]),
            version["deleted"],
            *(version[name] for name in "abc"),
        )
        for version in chance.sample(versions, len(versions))
    ]
    history = history_of(spark, "a int, b int, c int", rows)
    table = scd_type_6(history, ["b"], track_history_column_list=tracked, deletes=deletes)
    now = {version["guid"]: version["b"] for version in versions if not version["deleted"]}
    assert told(table, "deleted_indicator", "a", "b", "c", "current_b", "is_current") == sorted(
        (
            *(row["guid"], row["from"], row["to"], row["deleted"], row["a"], row["b"], row["c"]),
            *(now.get(row["guid"]), row["to"] is None),
        )
        for row in folded_by_hand(versions, tracked, deletes)
    )
    previous = scd_type_3(history, ["a"]).withColumn("since", F.dayofmonth("a_changed_at_timestamp"))
    values = {row["guid"]: (row["a"], row["previous_a"], row["since"]) for row in previous.collect()}
    assert values == before_by_hand(versions)
