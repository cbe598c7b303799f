"""`Lookup`: which version a fact gets, how far away it may begin, and why there is none."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Lookup, as_of_join
from cdckit.errors import InvalidArgument
from cdckit.model.history import OPEN_END
from cdckit.parts.arrow_types import NoSuchArrowType
from support.join_workers import answered
from support.random_versions import Row, history_of, hour, random_versions, version
from support.searching import searched
from tools.tiers import seeds

HOUR = timedelta(hours=1)
FACTS = "id int, guid string, at timestamp"


GATES = [
    version("f", 9, 10, "A"),
    version("f", 10, 12, "B"),
    version("f", 12, 14, None, deleted_indicator=True),
    version("f", 14, None, "C"),
    version("g", 9, 11, "Z"),
]
"""A flight at gate A from 9, at B from 10, deleted from 12 to 14, then at C; another ends at 11."""


@pytest.fixture(scope="module")
def gates(spark: SparkSession) -> DataFrame:
    """The same as a table."""
    return history_of(spark, GATES)


def found(
    *at: float, guid: str = "f", among: list[Row] = GATES, **options: Any
) -> list[tuple[str | None, str | None]]:
    """The gate and the reason of facts at these hours, as the workers say; Spark is asked below."""
    answers = answered(among, [{"key": guid, "at": hour(each)} for each in at], **options)
    return [(version and version["gate"], why) for version, why in answers]


# What is found -------------------------------------------------------------------------------------------


def test_backward_finds_what_is_in_force_and_says_why_not() -> None:
    assert found(8, 9, 11, 12, 13, 14) == [
        (None, "no version"),
        ("A", None),
        ("B", None),
        (None, "deleted"),
        (None, "deleted"),
        ("C", None),
    ]
    assert found(10, 11, guid="g") == [("Z", None), (None, "no version")]
    assert found(10, guid="unknown") == [(None, "no version")]


def test_strictly_finds_what_was_in_force_just_before() -> None:
    """At the instant of a change the version before it, also where the change is a delete."""
    assert found(9, 10, 11, 12, 12.5, 14, 15, strictly=True) == [
        (None, "no version"),
        ("A", None),
        ("B", None),
        ("B", None),
        (None, "deleted"),
        (None, "deleted"),
        ("C", None),
    ]


def test_a_version_that_has_been_in_force_for_longer_than_the_tolerance_is_too_old() -> None:
    """One that began exactly so long ago is not; and tolerance never reaches over a delete."""
    assert found(11, 11.5, 13, 15, 16, tolerance=HOUR) == [
        ("B", None),
        (None, "too old"),
        (None, "deleted"),
        ("C", None),
        (None, "too old"),
    ]
    assert found(10, 10.5, tolerance=timedelta(0)) == [("B", None), (None, "too old")]


def test_forward_finds_the_first_version_that_begins_then_or_later() -> None:
    """A deleted version is no answer: the next one that is there is."""
    assert found(8, 9, 9.5, 10.5, 13, 14, 15, direction="forward") == [
        ("A", None),
        ("A", None),
        ("B", None),
        ("C", None),
        ("C", None),
        ("C", None),
        (None, "no version"),
    ]
    assert found(9, 10, direction="forward", strictly=True) == [("B", None), ("C", None)]
    near = {"direction": "forward", "tolerance": HOUR}
    assert found(9.5, 10.5, **near) == [("B", None), (None, "too far ahead")]


def test_nearest_finds_what_begins_nearer_and_of_two_as_near_the_one_in_force() -> None:
    """A version that has ended or is deleted is not there, however near it began."""
    assert found(8, 9.4, 9.5, 9.6, 11, 12, 13, direction="nearest") == [
        ("A", None),
        ("A", None),
        ("A", None),
        ("B", None),
        ("B", None),
        ("C", None),
        ("C", None),
    ]
    assert found(10, direction="nearest", strictly=True) == [("A", None)]
    near = {"direction": "nearest", "tolerance": HOUR}
    assert found(7, 11.5, 13.5, 16, **near) == [
        (None, "too far ahead"),
        (None, "too old"),
        ("C", None),
        (None, "too old"),
    ]


def test_a_deleted_entity_does_not_hide_another_one_of_the_same_key(spark: SparkSession) -> None:
    """Flight f is deleted and keeps its gate's number; flight g has that number since."""
    rows = [
        version("f", 9, 12, "A"),
        version("f", 12, None, "A", deleted_indicator=True),
        version("g", 13, None, "A"),
    ]
    facts = spark.createDataFrame(
        [(at, "A", hour(at)) for at in (11, 12, 14)], "id int, gate string, at timestamp"
    )
    lookup = Lookup(history_of(spark, rows), on="gate", into="found", reason="why")
    joined = as_of_join(facts, lookup, time="at").orderBy("id").select("found.guid", "why")
    assert joined.collect() == [("f", None), (None, "deleted"), ("g", None)]


def test_facts_without_a_time_and_keys_that_are_null(spark: SparkSession, gates: DataFrame) -> None:
    nameless = gates.withColumn("guid", F.nullif("guid", F.lit("g")))
    rows = [(1, "f", None), (2, None, hour(10)), (3, None, None)]
    lookup = Lookup(nameless, on="guid", into="found", reason="why")
    joined = as_of_join(spark.createDataFrame(rows, FACTS), lookup, time="at").orderBy("id")
    assert joined.select("found.gate", "why").collect() == [(None, "no time"), ("Z", None), (None, "no key")]


def test_nearest_tells_of_a_deleted_version_up_to_the_instant_at_which_it_ends() -> None:
    """Strictly, what was in force just before an instant counts; otherwise what is in force at it."""
    ended = [version("f", 9, 12, None, deleted_indicator=True)]
    assert found(12, among=ended, direction="nearest", strictly=True) == [(None, "deleted")]


def test_an_end_that_stands_for_open_is_open(spark: SparkSession, gates: DataFrame) -> None:
    """By the JVM and by workers, also of a version that begins later than that; an answer says null."""
    ends, stands_for_open = "valid_to_timestamp", int(hour(13).timestamp()) * 1_000_000
    written = F.coalesce(ends, F.timestamp_micros(F.lit(stands_for_open)))
    table = gates.withColumn(ends, written).withMetadata(ends, {OPEN_END: stands_for_open})
    lookups = [Lookup(table, on="guid", into="now"), Lookup(table, on="guid", into="said", reason="why")]
    for some in (lookups[:1], lookups[1:]):
        joined = as_of_join(spark.createDataFrame([(1, "f", hour(15))], FACTS), *some, time="at")
        said = joined.select(f"{some[0].into}.gate", f"{some[0].into}.{ends}").collect()
        assert said == [("C", None)]


def test_the_columns_of_all_lookups_come_in_their_order(spark: SparkSession, gates: DataFrame) -> None:
    """Those that ask by one key in one pass, others in another."""
    facts = spark.createDataFrame([(1, "f", hour(10), "Z")], f"{FACTS}, gate string")
    joined = as_of_join(
        facts,
        Lookup(gates, on="guid", into="now", reason="why_now"),
        Lookup(gates, on="gate", into="other", reason="why_other"),
        Lookup(gates, on="guid", into="next", direction="forward", strictly=True),
        time="at",
    )
    added = ["now", "why_now", "other", "why_other", "next"]
    assert joined.columns == [*facts.columns, *added]
    assert joined.select("now.gate", "other.guid", "next.gate").collect() == [("B", "g", "C")]


def test_columns_of_all_types_stay_as_they_are(spark: SparkSession, gates: DataFrame) -> None:
    facts = spark.range(1).select(
        F.lit("f").alias("guid"),
        F.timestamp_micros(F.lit(int(hour(10).timestamp() * 1_000_000))).alias("at"),
        F.create_map(F.lit("a"), F.array(F.lit(1), F.lit(None))).alias("a map"),
        F.struct(F.lit(b"\x00").alias("the.bytes"), F.lit(None).alias("nothing")).alias("fact"),
        F.lit(None).alias("lookup"),
    )
    nothing = gates.where("gate = 'Z'").withColumn("nothing", F.lit(None))
    joined = as_of_join(
        facts,
        Lookup(gates, on="guid", into="known", reason="at 2"),
        Lookup(nothing, on={"lookup": "nothing"}, into="same", strictly=True),
        time="at",
    )
    assert joined.dtypes[:-3] == facts.dtypes
    assert joined.drop("known", "at 2", "same").collect() == facts.collect()
    assert joined.select("same.gate").collect() == [("Z",)], "a key of no type is null everywhere"


def test_no_option_changes_the_columns_of_the_facts(spark: SparkSession, gates: DataFrame) -> None:
    """All are nullable, with the metadata (comments, lengths) of the facts, not that of the history."""

    def commented(frame: DataFrame, of: str) -> DataFrame:
        return frame.select(*(F.col(each).alias(each, metadata={"comment": of}) for each in frame.columns))

    columns = {"guid": F.lit("f"), "at": F.lit(hour(10)), "Overlap": F.lit(1), "list": F.array("id")}
    facts = commented(spark.range(1).withColumns(columns), "of the facts")
    never_null = {
        name: F.coalesce(name, F.lit(value))
        for name, value in (("guid", ""), ("valid_from_timestamp", hour(0)))
    }
    table = commented(gates.withColumns(never_null), "of the history")
    assert not any(each.nullable for each in facts.schema)
    for reason in (None, "overlap_"):
        joined = as_of_join(facts, Lookup(table, on="guid", into="found", reason=reason), time="at")
        for asked, has in zip(facts.schema, joined.schema, strict=False):
            assert (has.name, has.nullable, has.metadata) == (asked.name, True, {"comment": "of the facts"})
            assert has.dataType.simpleString() == asked.dataType.simpleString()
        assert joined.select(*facts.columns, "found.gate").collect() == [(*facts.collect()[0], "B")]


def test_no_distance_is_too_long(spark: SparkSession) -> None:
    """
    What holds since ever begins at Spark's least instant, more than 2^63 microseconds before 1970 and later.

    The next version begins in 2023.
    """
    least, then = -(2**63), 1_700_000_000_000_000
    is_first = F.col("gate") == "ever"
    rows = [version("f", 9, 10, "ever"), version("f", 10, None, "next"), version("g", 9, 10, "ever")]
    table = history_of(spark, rows).withColumns(
        {
            "valid_from_timestamp": F.timestamp_micros(F.when(is_first, F.lit(least)).otherwise(then)),
            "valid_to_timestamp": F.when(is_first, F.timestamp_micros(F.lit(then))),
        }
    )
    day = timedelta(days=1)
    asked: dict[str, dict[str, Any]] = {
        "backward": {"tolerance": day},
        "forward": {"direction": "forward", "tolerance": day},
        "near": {"direction": "nearest", "tolerance": day},
        "nearest": {"direction": "nearest"},
        "longest": {"tolerance": timedelta.max},
    }
    asked_at = [(1, "f", least), (2, "f", 0), (3, "f", then - 5), (4, "g", then - 5)]
    facts = spark.createDataFrame(asked_at, "id int, guid string, micros long").select(
        "id", "guid", F.timestamp_micros("micros").alias("at")
    )
    lookups = [
        Lookup(table, on="guid", into=name, reason=f"{name}_why", **options)
        for name, options in asked.items()
    ]
    joined = as_of_join(facts, *lookups, time="at").orderBy("id")
    assert joined.select(*(F.coalesce(f"{name}.gate", f"{name}_why") for name in asked)).collect() == [
        ("ever", "ever", "ever", "ever", "ever"),
        ("too old", "too far ahead", "too far ahead", "next", "ever"),
        ("too old", "next", "next", "next", "ever"),
        ("too old", "no version", "too old", "ever", "ever"),
    ]


def test_versions_that_overlap_are_never_chosen_from(spark: SparkSession) -> None:
    rows = [version("f", 9, 12, "A"), version("f", 11, None, "B")]
    facts = spark.createDataFrame([(1, "f", hour(20))], FACTS)
    lookup = Lookup(history_of(spark, rows), on="guid", into="found", direction="forward")
    said = (
        r"as_of_join\(\) needs one version at a time per key in the lookup 'found'; of the key \[\"f\"\] two "
        r"overlap at 2024-03-10 11:00:00: the history is not sound"
    )
    with pytest.raises(PySparkException, match=said):
        as_of_join(facts, lookup, time="at").select("id").collect()


def test_keys_that_spark_hashes_to_one_number_are_told_apart(spark: SparkSession) -> None:
    """Their rows come to a worker together: taken for one key they would overlap."""
    one, other = "f34402", "f288913"
    assert spark.sql(f"SELECT hash('{one}') = hash('{other}')").collect() == [(True,)]
    history = history_of(spark, [version(one, 9, 12, "A"), version(other, 8, 20, "B")])
    asked = [(1, one, hour(10)), (2, one, hour(13)), (3, other, hour(13)), (4, other, hour(7))]
    plain = Lookup(history, on="guid", into="found")
    joined = as_of_join(spark.createDataFrame(asked, FACTS), replace(plain, reason="why"), time="at")
    assert joined.orderBy("id").select("found.gate", "why").collect() == [
        ("A", None),
        (None, "no version"),
        ("B", None),
        (None, "no version"),
    ]


KEY = {
    "flag": ("true", "true"),
    "ratio": ("1e10D", "1.0E10"),
    "price": ("1.50", "1.50"),
    "day": ("DATE'2024-02-29'", "2024-02-29"),
    "instant": ("TIMESTAMP'2024-03-10 02:30:00.5Z'", "2024-03-10 02:30:00.5"),
    "bytes": ("X'00FF'", "00ff"),
    "wait": ("INTERVAL '1 02:03:04.5' DAY TO SECOND", "INTERVAL '1 02:03:04.5' DAY TO SECOND"),
    "list": ("array(1.5D)", "[1.5]"),
    "nothing": ("CAST(NULL AS string)", None),
}
"""Parts of a key: as SQL, and as an error tells them."""


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_the_jvm_and_workers_say_the_same_of_an_overlap(spark: SparkSession, zone: str) -> None:
    """Keys of all types in one text each, instants in UTC whatever the zone of the session."""
    rows = [version("f", 9, 12, "A"), version("f", 11, None, "B")]
    columns = {name: F.expr(sql) for name, (sql, _) in KEY.items()}
    history = history_of(spark, rows).withColumns(columns)
    facts = spark.createDataFrame([(1, "f", hour(10))], FACTS).withColumns(columns)
    key = json.dumps([text for _, text in KEY.values()], separators=(",", ":"))
    said = (
        "as_of_join() needs one version at a time per key in the lookup 'found'; of the key "
        f"{key} two overlap at 2024-03-10 11:00:00: the history is not sound, "
        "or `on` does not tell one entity from the next."
    )
    for reason in (None, "why"):
        lookup = Lookup(history, on=list(KEY), into="found", reason=reason)
        joined = as_of_join(facts, lookup, time="at")
        before = str(spark.conf.get("spark.sql.session.timeZone"))
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            with pytest.raises(PySparkException, match=re.escape(said)):
                joined.select("id").collect()
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)


def test_keys_that_are_intervals(spark: SparkSession, gates: DataFrame) -> None:
    """
    Of days and seconds by the JVM and by workers; of months, which Arrow has not, by the JVM alone.

    What is no key may be of any type: it stays in the JVM.
    """
    keys = {"wait": F.expr("INTERVAL 90 SECONDS"), "term": F.expr("INTERVAL 2 MONTHS")}
    history = gates.where("guid = 'g'").withColumns(keys)
    facts = spark.createDataFrame([(1, "g", hour(10))], FACTS).withColumns(keys)
    by_both = Lookup(history, on="wait", into="found", fields=["gate", "term"], reason="why")
    joined = as_of_join(facts, by_both, time="at")
    assert joined.where("term = found.term").select("found.gate").collect() == [("Z",)]
    by_jvm = Lookup(history, on=["wait", "term"], into="found", fields=["gate"])
    assert as_of_join(facts, by_jvm, time="at").select("found.gate").collect() == [("Z",)]
    with pytest.raises(NoSuchArrowType, match="is interval month: cast it before, to text for example"):
        as_of_join(facts, replace(by_jvm, reason="why"), time="at")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"direction": "sideways"}, "needs direction to be one of backward, forward, nearest"),
        ({"strictly": "yes"}, "needs strictly to be True or False"),
        ({"tolerance": -HOUR}, "needs tolerance to be a timedelta that is not negative"),
        ({"tolerance": 3600}, "needs tolerance to be a timedelta"),
        ({"reason": ""}, "needs reason to be a name"),
        ({"reason": "AT"}, "needs reason to be a name other than id, guid, at, found; it is 'AT'"),
        ({"reason": "found"}, "needs reason to be a name other than id, guid, at, found"),
    ],
    ids=str,
)
def test_an_option_that_cannot_mean_anything_is_refused(
    gates: DataFrame, options: dict[str, Any], said: str
) -> None:
    facts = gates.sparkSession.createDataFrame([], FACTS)
    with pytest.raises(InvalidArgument, match=said):
        as_of_join(facts, Lookup(gates, on="guid", into="found", **options), time="at")


# Peers ---------------------------------------------------------------------------------------------------

READINGS = [(key, at, f"{key}{at}") for key in "abc" for at in random.Random(5).sample(range(0, 40), 9)]
QUESTIONS = [(place, "abcd"[place % 4], place // 4 / 2) for place in range(160)]


@pytest.fixture(scope="module")
def readings(spark: SparkSession) -> DataFrame:
    """Readings of three sensors, each in force until the next one: no gaps, no deletes."""
    rows = []
    for key in "abc":
        times = sorted(at for each, at, _ in READINGS if each == key)
        rows += [
            version(key, at, ends, f"{key}{at}") for at, ends in zip(times, [*times[1:], None], strict=True)
        ]
    return history_of(spark, rows)


def test_without_gaps_and_deletes_all_options_find_what_merge_asof_of_pandas_finds(
    spark: SparkSession, readings: DataFrame
) -> None:
    crossed = [
        (direction, strictly, tolerance)
        for direction in ("backward", "forward", "nearest")
        for strictly in (False, True)
        for tolerance in (None, timedelta(0), 2 * HOUR)
        # A tolerance of nothing with no exact matches is an error of pandas; here it finds nothing.
        if not (strictly and tolerance == timedelta(0))
    ]
    lookups = [
        Lookup(readings, on="guid", into=f"found_{place}", direction=way, strictly=strictly, tolerance=most)
        for place, (way, strictly, most) in enumerate(crossed)
    ]
    facts = spark.createDataFrame([(place, key, hour(at)) for place, key, at in QUESTIONS], FACTS)
    gates_found = [F.col(f"{lookup.into}.gate").alias(lookup.into) for lookup in lookups]
    ours = as_of_join(facts, *lookups, time="at").select("id", *gates_found).orderBy("id").toPandas()
    left = pd.DataFrame(
        [(place, key, hour(at)) for place, key, at in QUESTIONS], columns=["id", "guid", "at"]
    )
    right = pd.DataFrame(
        [(key, hour(at), gate) for key, at, gate in READINGS], columns=["guid", "at", "gate"]
    )
    for lookup, (way, strictly, most) in zip(lookups, crossed, strict=True):
        theirs = pd.merge_asof(
            left.sort_values("at"),
            right.sort_values("at"),
            on="at",
            by="guid",
            direction=way,
            allow_exact_matches=not strictly,
            tolerance=None if most is None else pd.Timedelta(most),
        ).sort_values("id")
        expected = [None if pd.isna(gate) else gate for gate in theirs["gate"]]
        assert ours[lookup.into].tolist() == expected, (way, strictly, most)
        assert 0 < sum(gate is not None for gate in expected) < len(QUESTIONS)


def test_where_versions_end_peers_find_what_is_over_and_this_does_not(
    spark: SparkSession, gates: DataFrame
) -> None:
    """At 13 the flight is deleted: by its start alone, the deleted version or the one before is the last."""
    facts = spark.createDataFrame([(1, "f", hour(13)), (2, "g", hour(13))], FACTS)
    joined = as_of_join(facts, Lookup(gates, on="guid", into="found", reason="why"), time="at").orderBy("id")
    assert joined.select("found", "why").collect() == [(None, "deleted"), (None, "no version")]
    left = joined.selectExpr("id", "guid", "at AS time").toPandas()
    alive = (
        gates.where("NOT deleted_indicator")
        .selectExpr("guid", "valid_from_timestamp AS time", "gate")
        .toPandas()
    )
    by_pandas = pd.merge_asof(left, alive.sort_values("time"), on="time", by="guid").sort_values("id")
    assert by_pandas["gate"].tolist() == ["B", "Z"]
    query = "SELECT gate FROM left_ ASOF LEFT JOIN alive USING (guid, time) ORDER BY id"
    with duckdb.connect() as connection:
        connection.register("left_", left)
        connection.register("alive", alive)
        assert connection.execute(query).fetchall() == [("B",), ("Z",)]


def test_without_gaps_and_deletes_this_finds_what_the_asof_join_of_duckdb_finds(
    spark: SparkSession, readings: DataFrame
) -> None:
    """Backward with >=, and strictly with >: its two conditions; forward with <= and <."""
    ways = {
        ">=": ("backward", False),
        ">": ("backward", True),
        "<=": ("forward", False),
        "<": ("forward", True),
    }
    lookups = [
        Lookup(readings, on="guid", into=f"found_{place}", direction=way, strictly=strictly)
        for place, (way, strictly) in enumerate(ways.values())
    ]
    facts = spark.createDataFrame([(place, key, hour(at)) for place, key, at in QUESTIONS], FACTS)
    found = [F.col(f"{lookup.into}.gate").alias(lookup.into) for lookup in lookups]
    ours = as_of_join(facts, *lookups, time="at").select("id", *found).orderBy("id").toPandas()
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE reading (guid VARCHAR, time DOUBLE, gate VARCHAR)")
        connection.executemany("INSERT INTO reading VALUES (?, ?, ?)", READINGS)
        connection.execute("CREATE TABLE fact (id INTEGER, guid VARCHAR, time DOUBLE)")
        connection.executemany("INSERT INTO fact VALUES (?, ?, ?)", QUESTIONS)
        for lookup, sign in zip(lookups, ways, strict=True):
            query = f"""
                SELECT gate FROM fact ASOF LEFT JOIN reading
                ON fact.guid = reading.guid AND fact.time {sign} reading.time ORDER BY id
            """
            theirs = [row[0] for row in connection.execute(query).fetchall()]
            assert ours[lookup.into].tolist() == theirs, sign


def test_situations_that_tempo_tries(spark: SparkSession) -> None:
    """
    A trade before the first quote, between two, at one exactly, long after the last; of two symbols; a null.

    tempo's `asofJoin` takes a null quote's value from an earlier quote unless `skipNulls=False`; here a
    null is what the version says.  Of two quotes at one instant it takes the one with the greater sequence
    number; in a history one instant has one version, whose message `merge` chose by the same number.
    """
    quotes = [
        version("S1", 1, 5, "10"),
        version("S1", 5, 9, None),
        version("S1", 9, None, "12"),
        version("S2", 2, None, "20"),
    ]
    trades = [
        (1, "S1", 0.5),
        (2, "S1", 3),
        (3, "S1", 5),
        (4, "S1", 9),
        (5, "S1", 300),
        (6, "S2", 1),
        (7, "S2", 3),
    ]
    facts = spark.createDataFrame([(place, key, hour(at)) for place, key, at in trades], FACTS)
    history = history_of(spark, quotes)
    joined = as_of_join(
        facts,
        Lookup(history, on="guid", into="quote"),
        Lookup(history, on="guid", into="recent", tolerance=3 * HOUR, reason="why"),
        time="at",
    )
    rows = joined.orderBy("id").select("quote.source_message", "quote.gate", "recent.gate", "why").collect()
    assert rows == [
        (None, None, None, "no version"),
        ("S1 1", "10", "10", None),
        ("S1 5", None, None, None),
        ("S1 9", "12", "12", None),
        ("S1 9", "12", None, "too old"),
        (None, None, None, "no version"),
        ("S2 2", "20", "20", None),
    ]


# The law -------------------------------------------------------------------------------------------------

CROSSED: list[dict[str, Any]] = [
    {"direction": direction, "strictly": strictly, "tolerance": tolerance}
    for direction in ("backward", "forward", "nearest")
    for strictly in (False, True)
    for tolerance in (None, timedelta(0), 2 * HOUR)
]


@seeds(1, soak=20)
def test_every_fact_finds_what_a_search_through_all_versions_finds(spark: SparkSession, seed: int) -> None:
    """600 random histories, all options crossed, in one plan."""
    entities = 600
    versions = random_versions(seed, entities)
    chance = random.Random(seed)
    facts: list[tuple[int, str, datetime | None]] = [
        (place, f"g{chance.randrange(entities + 20)}", hour(chance.randrange(-16, 80) / 2))
        for place in range(1_200)
    ]
    history = history_of(spark, versions)
    lookups = [
        Lookup(history, on="guid", into=f"found_{place}", fields=[], reason=f"why_{place}", **options)
        for place, options in enumerate(CROSSED)
    ]
    plain = Lookup(history, on={"again": "guid"}, into="plain", fields=[])
    frame = spark.createDataFrame(facts, FACTS).withColumn("again", F.col("guid"))
    joined = as_of_join(frame, *lookups, plain, time="at").toArrow().to_pylist()
    rows = {row["id"]: row for row in joined}
    assert len(rows) == len(joined) == len(facts)
    of_key: dict[str, list[Row]] = {}
    for each in versions:
        of_key.setdefault(each["guid"], []).append(each)
    for number, guid, at in facts:
        for place, options in enumerate(CROSSED):
            expected, why = searched(of_key.get(guid, []), at, **options)
            row = rows[number]
            assert message(row[f"found_{place}"]) == message(expected), (number, options)
            assert row[f"why_{place}"] == why, (number, options)
        assert rows[number]["plain"] == rows[number]["found_0"]


def message(found: Row | None) -> Any:
    return found and (found["guid"], found["source_message"])
