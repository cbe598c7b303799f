"""Changes with an end, `effective_until`: what holds at an instant, and no longer."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, Lookup, as_of, as_of_join, bitemporal, blame, check, merge, union_changes, why
from cdckit.errors import WrongColumnType
from cdckit.query import diff, revoke
from support.drawn_reports import day
from support.histories import INSTANTS, Row, assert_folds_to, random_changes, to_dataframe
from tools.tiers import seeds

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
KEYS = ["h", "k"]
ENDS = (False, False, True)


def change(message: str, begin: int, until: int | None = None, a: int | None = 1, **more: Any) -> Row:
    """An upsert of the one thing, true from a day of January on."""
    arrival = {"timestamp": day(begin), "topic": "t", "partition": 0, "offset": 0, "record_number": 0}
    return {
        "operation": "upsert",
        "effective_timestamp": day(begin),
        "effective_until": until and day(until),
        "sequence": "",
        "arrival": arrival,
        "message_id": message,
        "source": "one",
        "priority": 0,
        "data": {"h": 1, "k": "x", "a": a, "b": None},
        "carried": {"h": True, "k": True, "a": True, "b": False},
        **more,
    }


@pytest.mark.parametrize("options", [{}, {"guids": True}])
@seeds(3, soak=10)
def test_random_changes_with_ends_are_what_the_fold_makes_of_them(
    spark: SparkSession, options: dict[str, Any], seed: int
) -> None:
    changes = random_changes(seed, 120, FIELDS, ends=ENDS, **options)
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


@pytest.mark.parametrize("until", [1, 2])
def test_a_change_that_holds_at_no_time_stops_the_merge(spark: SparkSession, until: int) -> None:
    """An end before the beginning, or at it, says nothing: it must not be dropped in silence."""
    changes = to_dataframe(spark, [change("m1", 1), change("m2", 2, until)], FIELDS)
    text = r"InvalidEnds.*which must be later; at least 1 do not, such as one from 2024-01-02"
    with pytest.raises(PySparkException, match=text):
        merge(changes, entity="thing", keys=KEYS).collect()


def test_an_end_without_a_beginning_stops_the_merge(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [change("m1", 1, 3, effective_timestamp=None)], FIELDS)
    with pytest.raises(PySparkException, match="The merge needs effective_timestamp in every change"):
        merge(changes, entity="thing", keys=KEYS).collect()


def test_an_end_is_a_timestamp(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [change("m1", 1, 3)], FIELDS)
    dates = changes.withColumn("effective_until", F.col("effective_until").cast("date"))
    with pytest.raises(WrongColumnType, match="needs the column effective_until as timestamp"):
        merge(dates, entity="thing", keys=KEYS)


def test_changes_with_ends_are_united_with_changes_without(spark: SparkSession) -> None:
    """Those of the other table hold until something else is said."""
    plain = to_dataframe(spark, [change("m1", 1)], FIELDS).drop("effective_until")
    corrected = to_dataframe(spark, [change("m2", 2, 3, a=9, source="steward")], FIELDS)
    for both in (union_changes(plain, corrected), union_changes(corrected, plain)):
        history = merge(both, entity="thing", keys=KEYS).orderBy("valid_from_timestamp")
        found = [(row["a"], row["source_message"]) for row in history.collect()]
        assert found == [(1, "m1"), (9, "m2"), (1, "m1")]


# Questions ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def overridden(spark: SparkSession) -> DataFrame:
    """It is 1 from the 1st on; the steward says 9 from the 3rd to the 5th, and arrives on the 4th."""
    arrival = {"timestamp": day(4), "topic": "t", "partition": 0, "offset": 1, "record_number": 0}
    steward = change("m2", 3, 5, a=9, source="steward", priority=5, arrival=arrival)
    both = [change("m1", 1), steward, change("m3", 6, a=2)]
    return to_dataframe(spark, both, FIELDS).localCheckpoint()


@pytest.fixture(scope="module")
def history(overridden: DataFrame) -> DataFrame:
    return merge(overridden, entity="thing", keys=KEYS).localCheckpoint()


def verdicts(changes: DataFrame, field: str, **asked: Any) -> list[tuple[str, str, str | None]]:
    told = why(changes, {"h": 1, "k": "x"}, field, keys=KEYS, **asked).collect()
    return [(row["message_id"], row["verdict"], row["by_message"]) for row in told]


def test_why_says_that_a_word_is_over(overridden: DataFrame) -> None:
    later = ("m3", "NOT_YET_EFFECTIVE", None)
    during = [("m1", "SUPERSEDED", "m2"), ("m2", "WON", None), later]
    assert verdicts(overridden, "a", valid_at=day(4)) == during
    after = [("m1", "WON", None), ("m2", "EXPIRED", None), later]
    assert verdicts(overridden, "a", valid_at=day(5)) == after
    unknown = [("m1", "WON", None), *((message, "ARRIVED_LATER", None) for message in ("m2", "m3"))]
    assert verdicts(overridden, "a", valid_at=day(3), known_at=day(3)) == unknown
    row = [("m1", "WON", None), ("m2", "EXPIRED", None), later]
    assert verdicts(overridden, "deleted_indicator", valid_at=day(5)) == row
    at_last = [("m1", "SUPERSEDED", "m3"), ("m2", "EXPIRED", None), ("m3", "WON", None)]
    assert verdicts(overridden, "a") == at_last


@seeds(4, soak=5)
def test_why_names_the_message_that_the_history_has(spark: SparkSession, seed: int) -> None:
    """Of random histories, at an instant: the one that won is the one that the version names."""
    changes = random_changes(seed, 30, FIELDS, ends=ENDS)
    frame = to_dataframe(spark, changes, FIELDS).localCheckpoint()
    at = INSTANTS[0]
    history = as_of(merge(frame, entity="thing", keys=KEYS), at, deletes=True).collect()
    known = {(row["h"], row["k"]): row for row in history}
    some = sorted({(each["data"]["h"], each["data"]["k"]) for each in changes})
    for (h, k), field in zip(some[:4], ["a", "deleted_indicator"] * 2, strict=True):
        told = why(frame, {"h": h, "k": k}, field, keys=KEYS, valid_at=at).collect()
        winners = [row["message_id"] for row in told if row["verdict"] == "WON"]
        entry = (h, k) in known and known[h, k]["field_provenance"]["guid" if field != "a" else "a"]
        assert winners == ([entry["m"]] if entry else [])


def test_blame_tells_who_says_what_again(history: DataFrame) -> None:
    messages = {2: "m1", 3: "m2", 5: "m1", 6: "m3"}
    told = [
        blame(history, {"h": 1, "k": "x"}, valid_at=day(number))
        .where("field = 'a'")
        .select(F.lit(number), "message")
        for number in messages
    ]
    assert sorted(map(tuple, reduce(DataFrame.unionAll, told).collect())) == [*messages.items()]


def test_a_change_with_an_end_is_revoked_like_any_other(overridden: DataFrame) -> None:
    call: Any = {"entity": "thing", "keys": KEYS}
    before = merge(overridden, **call)
    after = merge(revoke(overridden, messages=["m2"]), **call)
    assert [row["a"] for row in after.orderBy("valid_from_timestamp").collect()] == [1, 2]
    (difference,) = diff(before, after).where("field = 'a'").collect()
    assert (difference["valid_from_timestamp"], difference["valid_to_timestamp"]) == (
        day(3).replace(tzinfo=None),
        day(5).replace(tzinfo=None),
    )
    assert (difference["a_value"], difference["b_value"]) == ("9", "1")


def test_what_was_known_is_joined_as_it_was_known(spark: SparkSession, overridden: DataFrame) -> None:
    """A fact of the 3rd met 1 before the steward spoke on the 4th, and meets 9 since."""
    table = bitemporal(overridden, entity="thing", keys=KEYS)
    rows = [(1, "x", day(3), day(3)), (1, "x", day(3), day(4)), (1, "x", day(5), day(6))]
    facts = spark.createDataFrame(rows, "h int, k string, at timestamp, known timestamp")
    joined = as_of_join(facts, Lookup(table, on=KEYS, into="thing"), time="at", known="known")
    assert [row["thing"]["a"] for row in joined.orderBy("at", "known").collect()] == [1, 9, 1]


def test_a_fact_between_two_terms_finds_nothing(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [change("m1", 1, 3), change("m2", 5, 7, a=2)], FIELDS)
    rows = [(1, "x", day(number)) for number in (2, 3, 4, 5, 7)]
    facts = spark.createDataFrame(rows, "h int, k string, at timestamp")
    history = merge(changes, entity="thing", keys=KEYS)
    joined = as_of_join(facts, Lookup(history, on=KEYS, into="thing", reason="why_not"), time="at")
    found = [row["thing"] and row["thing"]["a"] for row in joined.orderBy("at").collect()]
    assert found == [1, None, None, 2, None]


def test_an_entity_that_has_ended_begins_again_in_a_ledger(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=1)
    ledger.apply(to_dataframe(spark, [change("m1", 1, 3)], FIELDS))
    assert ledger.as_of(day(3)).count() == 0
    ledger.apply(to_dataframe(spark, [change("m2", 5, a=2)], FIELDS))
    ledger.apply(to_dataframe(spark, [change("m3", 7, a=3)], FIELDS).drop("effective_until"))
    found = ledger.history().orderBy("valid_from_timestamp").collect()
    assert [row["a"] for row in found] == [1, 2, 3]
    assert [row["valid_to_timestamp"] and row["valid_to_timestamp"].day for row in found] == [3, 7, None]


def test_a_ledger_refuses_a_change_that_holds_at_no_time(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=1)
    ledger.apply(to_dataframe(spark, [change("m1", 1, 3)], FIELDS))
    with pytest.raises(PySparkException, match="InvalidEnds"):
        ledger.apply(to_dataframe(spark, [change("m2", 5, 4)], FIELDS))
    assert ledger.changes().count() == 1


def test_a_history_of_changes_without_ends_promises_more(history: DataFrame) -> None:
    assert check(history, "history").ok
    without_mark = history.withMetadata("valid_to_timestamp", {})
    (broken,) = check(without_mark, "history").broken
    assert broken.sentence.says.startswith("The priority of a row never falls")
