"""`as_of_join(…, known=…)`: each fact with the version that was believed when the fact was decided on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cdckit import Lookup, as_of_join, bitemporal
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from support.fold import fold
from support.histories import Row, random_changes, to_dataframe
from support.join_workers import answered
from support.searching import searched
from tools.tiers import seeds

BELIEFS = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp,
    system_from_timestamp timestamp, system_to_timestamp timestamp, deleted_indicator boolean,
    flight int, gate string, source_message string
"""
FACTS = "id int, flight int, departs timestamp, decided timestamp"
FIELDS = {"h": "int", "k": "string", "a": "int"}
KEYS = ["h", "k"]


def at(hour: float) -> datetime:
    return datetime(2024, 3, 10, tzinfo=UTC) + timedelta(hours=hour)


def belief(
    begins: float, ends: float | None, since: float, until: float | None, gate: str | None
) -> tuple[Any, ...]:
    """A version of flight 1; without a gate, a deleted one."""
    period = at(begins), None if ends is None else at(ends)
    known = at(since), None if until is None else at(until)
    return ("f", *period, *known, gate is None, 1, gate, f"m{since}")


ROWS = [
    belief(9, None, 5, 7, "A"),
    belief(9, 10, 7, 11, "A"),
    belief(10, None, 7, 13, "B"),
    belief(9, 9.5, 11, None, "A"),
    belief(9.5, 10, 11, None, "C"),
    belief(10, 12, 13, None, "B"),
    belief(12, None, 13, None, None),
]
"""
At 5 somebody says: gate A from 9.  At 7: B from 10.  At 11, late: it had been C from 9:30 to 10.
At 13, late: it was deleted at 12.
"""


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    """The same as a table."""
    return spark.createDataFrame(ROWS, BELIEFS)


def found(
    table: DataFrame, *asked: tuple[float, float], **options: Any
) -> list[tuple[str | None, str | None]]:
    """The gate and the reason of facts, each at an hour and decided on at another."""
    rows = [(place, 1, at(departs), at(decided)) for place, (departs, decided) in enumerate(asked)]
    lookup = Lookup(table, on="flight", into="found", reason="why", **options)
    facts = table.sparkSession.createDataFrame(rows, FACTS)
    joined = as_of_join(facts, lookup, time="departs", known="decided").orderBy("id")
    return [(row["gate"], row["why"]) for row in joined.select("found.gate", "why").collect()]


def test_a_fact_gets_what_was_believed_when_it_was_decided_on(table: DataFrame) -> None:
    assert found(table, (10.5, 6), (10.5, 7), (9.75, 10), (9.75, 11), (12.5, 12), (12.5, 13)) == [
        ("A", None),
        ("B", None),
        ("A", None),
        ("C", None),
        ("B", None),
        (None, "deleted"),
    ]


def told_by_workers(*asked: tuple[float, float], **options: Any) -> list[tuple[str | None, str | None]]:
    """As `found`, without Spark."""
    names = [column.split()[0] for column in BELIEFS.split(",")]
    versions = [dict(zip(names, row, strict=True)) for row in ROWS]
    facts = [{"key": "f", "at": at(departs), "known": at(decided)} for departs, decided in asked]
    return [(version and version["gate"], why) for version, why in answered(versions, facts, **options)]


def test_before_anybody_spoke_of_the_key_nothing_is_found_and_it_is_said() -> None:
    """What arrives at the moment of knowledge is known; a time before the first version never has one."""
    assert told_by_workers((10.5, 4.999), (10.5, 5), (8, 6), (8, 4)) == [
        (None, "not yet known"),
        ("A", None),
        (None, "no version"),
        (None, "no version"),
    ]


def test_all_options_ask_what_was_believed() -> None:
    assert told_by_workers((9.25, 8), (9.25, 11), direction="forward") == [("B", None), ("C", None)]
    assert told_by_workers((9.5, 8), (9.5, 11), strictly=True) == [("A", None), ("A", None)]
    assert told_by_workers((9.75, 8), (9.75, 11), direction="nearest") == [("B", None), ("C", None)]
    near = {"tolerance": timedelta(minutes=15)}
    assert told_by_workers((9.75, 8), (9.75, 11), **near) == [(None, "too old"), ("C", None)]


def test_one_moment_for_all_facts_is_an_aware_datetime(spark: SparkSession, table: DataFrame) -> None:
    facts = spark.createDataFrame([(1, 1, at(9.75), None), (2, 1, at(12.5), None)], FACTS)
    eleven = at(11).astimezone(timezone(timedelta(hours=5)))
    lookup = Lookup(table, on="flight", into="found")
    joined = as_of_join(facts, lookup, time="departs", known=eleven).orderBy("id")
    assert joined.select("found.gate").collect() == [("C",), ("B",)]
    with pytest.raises(InvalidArgument, match=r"needs known to be an aware datetime"):
        as_of_join(facts, lookup, time="departs", known=datetime(2024, 3, 10))


def test_the_struct_tells_since_when_it_was_believed_and_not_until_when(
    spark: SparkSession, table: DataFrame
) -> None:
    facts = spark.createDataFrame([(1, 1, at(9.75), at(8))], FACTS)
    joined = as_of_join(facts, Lookup(table, on="flight", into="found"), time="departs", known="decided")
    assert joined.select("found.*").toArrow().to_pylist() == [
        {
            "guid": "f",
            "valid_from_timestamp": at(9),
            "valid_to_timestamp": at(10),
            "system_from_timestamp": at(7),
            "flight": 1,
            "gate": "A",
            "source_message": "m7",
        }
    ]


def test_a_fact_without_one_of_its_times_finds_nothing(spark: SparkSession, table: DataFrame) -> None:
    rows = [(1, 1, None, at(8)), (2, 1, at(10), None), (3, 1, None, None)]
    lookup = Lookup(table, on="flight", into="found", reason="why")
    joined = as_of_join(spark.createDataFrame(rows, FACTS), lookup, time="departs", known="decided")
    assert joined.select("found", "why").collect() == [(None, "no time")] * 3


def test_without_beliefs_there_is_nothing_to_know(spark: SparkSession, table: DataFrame) -> None:
    facts = spark.createDataFrame([], FACTS)
    history = table.drop("system_from_timestamp", "system_to_timestamp")
    with pytest.raises(InvalidArgument, match=r"needs history of 'found' to be a bitemporal table"):
        as_of_join(facts, Lookup(history, on="flight", into="found"), time="departs", known="decided")
    with pytest.raises(
        InvalidArgument, match=r"needs known to be said, since history of 'found' has two times"
    ):
        as_of_join(facts, Lookup(table, on="flight", into="found"), time="departs")


@pytest.mark.parametrize(
    ("known", "error", "said"),
    [
        ("when", MissingColumns, "needs the columns when"),
        ("flight", WrongColumnType, "needs the column flight as timestamp; it is int"),
        (5, InvalidArgument, "needs known to be the name of a timestamp column of the facts, or an aware"),
        (["decided"], InvalidArgument, "needs known to be the name of a timestamp column"),
        (pd.NaT, InvalidArgument, "needs known to be an aware datetime"),
    ],
)
def test_what_is_no_moment_of_knowledge_is_refused(
    spark: SparkSession, table: DataFrame, known: Any, error: type[Exception], said: str
) -> None:
    facts = spark.createDataFrame([], FACTS)
    with pytest.raises(error, match=said):
        as_of_join(facts, Lookup(table, on="flight", into="found"), time="departs", known=known)


def test_two_versions_that_a_fact_meets_are_never_chosen_from(spark: SparkSession, table: DataFrame) -> None:
    twice = table.union(spark.createDataFrame([belief(9, 10, 8, 10, "D")], BELIEFS))
    with pytest.raises(PySparkException, match=r"of the key \[\"1\"\] two overlap at 2024-03-10 09:00:00"):
        found(twice, (9.25, 9))


# The laws ------------------------------------------------------------------------------------------------

MOMENTS = range(0, 14)
CROSSED: list[dict[str, Any]] = [
    {"direction": direction, "strictly": strictly, "tolerance": tolerance}
    for direction in ("backward", "forward", "nearest")
    for strictly in (False, True)
    for tolerance in (None, timedelta(hours=2))
]


def delayed_changes(seed: int, histories: int) -> list[Row]:
    """Random changes on whole hours, of which many arrive some hours after they were true."""
    chance = random.Random(seed)
    changes = random_changes(seed, histories, FIELDS)
    for change in changes:
        hour = chance.randrange(0, 9)
        change["effective_timestamp"] = at(hour)
        change["arrival"] = {**change["arrival"], "timestamp": at(hour + chance.choice((0, 0, 1, 2, 4)))}
    return changes


def drawn_facts(seed: int, count: int, histories: int) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            "id": number,
            "h": chance.randrange(histories + 5),
            "k": chance.choice("xy"),
            "departs": at(chance.randrange(-1, 21) / 2),
            "decided": at(chance.choice(MOMENTS)),
        }
        for number in range(count)
    ]


@seeds(1, soak=6)
def test_every_fact_finds_what_the_messages_that_had_arrived_say(spark: SparkSession, seed: int) -> None:
    """200 random histories, merged one change at a time as of each moment; all options, in one plan."""
    histories = 200
    changes = delayed_changes(seed, histories)
    facts = drawn_facts(seed, 800, histories)
    table = bitemporal(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    lookups = [
        Lookup(table, on=KEYS, into=f"found_{place}", fields=["a"], reason=f"why_{place}", **options)
        for place, options in enumerate(CROSSED)
    ]
    frame = spark.createDataFrame(facts, "id int, h int, k string, departs timestamp, decided timestamp")
    joined = as_of_join(frame, *lookups, time="departs", known="decided")
    # As in `session()`; the other random tests are planned once, as in `session(small=True)`.
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        rows = {row["id"]: row for row in joined.toArrow().to_pylist()}
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert len(rows) == len(facts)
    believed_at = {
        moment: by_key(fold(arrived_by(moment, changes), entity="thing", keys=KEYS, fields=list(FIELDS)))
        for moment in sorted({change["arrival"]["timestamp"] for change in changes})
    }

    def learnt_after(moment: datetime, key: tuple[int, str]) -> Iterator[list[Row]]:
        return (each.get(key, []) for at, each in believed_at.items() if at > moment)

    compared = 0
    for moment in sorted({fact["decided"] for fact in facts}):
        arrived = arrived_by(moment, changes)
        believed = by_key(fold(arrived, entity="thing", keys=KEYS, fields=list(FIELDS)))
        for fact in facts:
            if fact["decided"] != moment:
                continue
            row, key = rows[fact["id"]], (fact["h"], fact["k"])
            for place, options in enumerate(CROSSED):
                expected, why = searched(believed.get(key, []), fact["departs"], **options)
                asked = {**options, "tolerance": None}
                if why == "no version" and any(
                    searched(rows, fact["departs"], **asked)[0] for rows in learnt_after(moment, key)
                ):
                    why = "not yet known"
                assert told(row[f"found_{place}"]) == told(expected), (fact, options)
                assert row[f"why_{place}"] == why, (fact, options)
                compared += expected is not None
    assert compared > 1_500


def arrived_by(moment: datetime, changes: list[Row]) -> list[Row]:
    return [change for change in changes if change["arrival"]["timestamp"] <= moment]


def by_key(history: list[Row]) -> dict[tuple[int, str], list[Row]]:
    keyed: dict[tuple[int, str], list[Row]] = {}
    for version in history:
        keyed.setdefault((version["h"], version["k"]), []).append(version)
    return keyed


def told(version: Row | None) -> Any:
    names = ("guid", "valid_from_timestamp", "valid_to_timestamp", "a", "source_message")
    return version and tuple(version[name] for name in names)


@seeds(2, soak=6)
def test_messages_that_arrive_after_the_moment_of_knowledge_change_nothing(
    spark: SparkSession, seed: int
) -> None:
    """
    Each history twice: as a whole, and without what arrived after a moment that is drawn for it.

    All that the structs hold is the same.  The reason alone may tell of later: "not yet known".
    """
    histories, chance = 150, random.Random(seed)
    last = {number: at(chance.choice(MOMENTS)) for number in range(histories)}
    changes = delayed_changes(seed, histories)
    early = [
        {**change, "data": {**change["data"], "h": change["data"]["h"] + histories}}
        for change in changes
        if change["arrival"]["timestamp"] <= last[change["data"]["h"]]
    ]
    assert 0.3 < len(early) / len(changes) < 0.9
    facts = [fact for fact in drawn_facts(seed, 3_000, histories - 5) if fact["decided"] <= last[fact["h"]]]
    again = [{**fact, "id": fact["id"] + 3_000, "h": fact["h"] + histories} for fact in facts]
    table = bitemporal(to_dataframe(spark, [*changes, *early], FIELDS), entity="thing", keys=KEYS)
    lookups = [
        Lookup(table, on=KEYS, into=f"found_{way}", provenance=True, direction=way, reason=f"why_{way}")
        for way in ("backward", "forward", "nearest")
    ]
    frame = spark.createDataFrame(
        facts + again, "id int, h int, k string, departs timestamp, decided timestamp"
    )
    joined = as_of_join(frame, *lookups, time="departs", known="decided")
    rows = {row["id"]: row for row in joined.toArrow().to_pylist()}
    matched = 0
    for fact in facts:
        whole, cut = rows[fact["id"]], rows[fact["id"] + 3_000]
        for lookup in lookups:
            found = [without(row[lookup.into], "guid", "h") for row in (whole, cut)]
            assert found[0] == found[1], (fact, lookup.into)
            matched += found[0] is not None
            reasons = whole[lookup.reason], cut[lookup.reason]
            assert reasons[0] == reasons[1] or reasons == ("not yet known", "no version"), fact
    assert matched > 700


def without(found: Row | None, *names: str) -> Row | None:
    return found and {name: value for name, value in found.items() if name not in names}
