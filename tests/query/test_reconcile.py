"""`reconcile`: where a table of the source and the history differ, since when, why; and `repair`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, changes_from, merge, union_changes
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.query import correct, count_findings, reconcile, repair, revoke
from support.fold import fold, same_value
from support.histories import (
    INSTANTS,
    PRIORITIES,
    Row,
    change_schema,
    draw_arrival,
    draw_history,
    holds,
    rows_to_dataframe,
    to_dataframe,
)
from tools.tiers import seeds

FIELDS = {"number": "int", "name": "string", "price": "int"}
KEYS = ["number"]
SEEN = (
    *("number", "finding", "field", "history_value", "source_value"),
    *("since_timestamp", "message", "priority", "explanation", "evidence"),
)


def at(hour: int) -> datetime:
    return datetime(2024, 1, 1, hour, tzinfo=UTC)


NOON = at(12)


def said(
    number: int | None, message: str, hour: int, *, until: int | None = None, p: int = 0, **data: Any
) -> Row:
    """A message of that hour: an upsert of *data*, or a delete where it says nothing."""
    return {
        "operation": "upsert" if data else "delete",
        "effective_timestamp": at(hour),
        "effective_until": None if until is None else at(until),
        "sequence": "",
        "arrival": {"timestamp": at(hour), "topic": "t", "partition": 0, "offset": 0, "record_number": 1},
        "message_id": message,
        "source": "shop",
        "priority": p,
        "data": {"number": number, "name": None, "price": None, **data},
        "carried": {"number": True, "name": "name" in data, "price": "price" in data},
    }


CHANGES = [
    # Sound, and said twice.
    said(1, "m1", 9, name="mug", price=1),
    said(1, "m1", 9, name="mug", price=1),
    # 2 was never said.  3 was deleted, which was wrong.  4 is gone, which nobody said.
    said(3, "m3", 9, name="mug", price=1),
    said(3, "d3", 11),
    said(4, "m4", 9, name="mug", price=1),
    # The name came back, which nobody said; the price begins a version of its own.
    said(5, "m5", 8, name="mug", price=1),
    said(5, "n5", 9, name="cup"),
    said(5, "o5", 11, price=2),
    # The name is another, which nobody said.
    said(6, "m6", 9, name="mug", price=1),
    # A weaker message was right: about a name, a delete, a new row.
    said(7, "m7", 9, p=5, name="mug", price=1),
    said(7, "n7", 10, name="cup"),
    said(8, "m8", 9, p=5, name="mug", price=1),
    said(8, "d8", 10),
    said(9, "m9", 9, name="mug", price=1),
    said(9, "d9", 10, p=5),
    said(9, "n9", 11, name="mug"),
    # What the source says held until 11; it has been said of 13.
    said(10, "m10", 9, name="mug", price=1),
    said(10, "n10", 10, until=11, name="cup"),
    said(11, "m11", 9, name="mug", price=1),
    said(11, "n11", 13, name="cup"),
    # Nothing stands since 10; again from 13.
    said(12, "m12", 9, until=10, name="mug", price=1),
    said(12, "n12", 13, name="jug", price=1),
    # Of these there are rejects, and records that wait.
    said(13, "m13", 9, name="mug", price=1),
    said(14, "m14", 9, name="mug", price=1),
    # Of this anna has stated another name.
    said(15, "m15", 9, name="mug", price=1),
    # A null is a value like any other.
    said(16, "m16", 9, name="mug", price=None),
    # Deleted and there again, with the same name: it stands since then.
    said(17, "m17", 8, name="mug", price=1),
    said(17, "d17", 9),
    said(17, "n17", 10, name="mug", price=1),
    # Sound: deleted there, too.
    said(18, "m18", 8, name="mug", price=1),
    said(18, "d18", 9),
    # Sound: null is a key like any other.
    said(None, "m0", 9, name="mug", price=1),
    # Begins later.
    said(19, "m19", 13, name="mug", price=1),
]
SOURCE: list[tuple[int | None, str | None, int | None]] = [
    *(
        (1, "mug", 1),
        (2, "mug", 1),
        (3, "mug", 1),
        (5, "mug", 2),
        (6, "cup", 1),
        (7, "cup", 1),
        (9, "mug", None),
    ),
    *((10, "cup", 1), (11, "cup", 1), (12, "mug", 1), (13, "cup", 1), (14, "cup", 1), (15, "mug", 1)),
    *((16, None, 1), (17, "cup", 1), (20, "mug", 1), (None, "mug", 1)),
]
ROW = "deleted_indicator"
ANNA = "anna, 2024-01-02 00:00:00: misread"
FOUND = [
    (2, "missing", ROW, None, "false", None, None, None, None, None),
    (3, "missing", ROW, "true", "false", 11, "d3", 0, "DELETED", "d3"),
    (4, "extra", ROW, "false", None, 9, "m4", 0, None, None),
    (5, "different", "name", "cup", "mug", 9, "n5", 0, "SUPERSEDED", "m5"),
    (6, "different", "name", "mug", "cup", 9, "m6", 0, None, None),
    (7, "different", "name", "mug", "cup", 9, "m7", 5, "OUTRANKED", "n7"),
    (8, "extra", ROW, "false", None, 9, "m8", 5, "OUTRANKED", "d8"),
    (9, "missing", ROW, "true", "false", 10, "d9", 5, "OUTRANKED", "n9"),
    (10, "different", "name", "mug", "cup", 11, "m10", 0, "EXPIRED", "n10"),
    (11, "different", "name", "mug", "cup", 9, "m11", 0, "NOT_YET_EFFECTIVE", "n11"),
    (12, "missing", ROW, None, "false", 10, None, None, "EXPIRED", "m12"),
    (13, "different", "name", "mug", "cup", 9, "m13", 0, "REJECTED", "NO_DATE: There is no date."),
    (14, "different", "name", "mug", "cup", 9, "m14", 0, "WAITING", "metadata"),
    (15, "different", "name", "pot", "mug", 10, ANNA, 0, "CORRECTED", ANNA),
    (16, "different", "name", "mug", None, 9, "m16", 0, None, None),
    (16, "different", "price", None, "1", 9, "m16", 0, None, None),
    (17, "different", "name", "mug", "cup", 10, "n17", 0, None, None),
    (20, "missing", ROW, None, "false", None, None, None, "REJECTED", "NOT_JSON"),
]


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    rows = to_dataframe(spark, CHANGES, FIELDS)
    history = merge(rows, entity="product", keys=KEYS).where("number = 15")
    day = datetime(2024, 1, 2, tzinfo=UTC)
    anna = correct(history, {"name": "pot"}, at(10), keys=KEYS, by="anna", reason="misread", received_at=day)
    return union_changes(rows, anna).localCheckpoint()


@pytest.fixture(scope="module")
def history(changes: DataFrame) -> DataFrame:
    return merge(changes, entity="product", keys=KEYS).localCheckpoint()


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(SOURCE, "number int, name string, price int")


def seen(found: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """The findings by key and field; of instants the hour."""
    rows = found.select(*(names or SEEN)).toArrow().to_pylist()
    told = [tuple(each.hour if isinstance(each, datetime) else each for each in row.values()) for row in rows]
    return sorted(told, key=lambda row: (row[0], str(row[2])))


def test_each_kind_of_finding_since_when_by_whom_and_why(
    spark: SparkSession, history: DataFrame, source: DataFrame, changes: DataFrame
) -> None:
    refused = [("13", "NO_DATE", "There is no date."), ("20", "NOT_JSON", None), ("1", "NOT_JSON", None)]
    rejects = spark.createDataFrame(refused, "number string, error_code string, error_description string")
    waiting = spark.createDataFrame([(14, "metadata")], "number int, waiting_for string")
    found = reconcile(
        history, source, valid_at=NOON, keys=KEYS, changes=changes, rejects=rejects, waiting=waiting
    ).localCheckpoint()
    assert seen(found) == FOUND
    assert found.columns == ["guid", *SEEN]
    known = {row["number"]: row["guid"] for row in history.select("number", "guid").collect()}
    assert {(row["number"], row["guid"]) for row in found.collect()} == {
        (row[0], known.get(row[0])) for row in FOUND
    }
    counted = {
        (row["finding"], row["field"], row["explanation"]): (row["findings"], row["since_timestamp"])
        for row in count_findings(found).collect()
    }
    assert sum(findings for findings, _ in counted.values()) == len(FOUND)
    assert counted["different", "name", None] == (3, at(9).replace(tzinfo=None))
    assert counted["extra", ROW, "OUTRANKED"] == (1, at(9).replace(tzinfo=None))


def test_a_record_whose_key_is_no_value_of_its_type_explains_nothing(spark: SparkSession) -> None:
    """Not what the source says of the entity whose key is null, nor of the one that is nearest."""
    said_so = [said(None, "n1", 9, name="nobody"), said(1, "m1", 9, name="kettle")]
    history = merge(to_dataframe(spark, said_so, FIELDS), entity="product", keys=KEYS)
    source = spark.createDataFrame([(None, "somebody"), (1, "pot")], "number int, name string")
    for kind, key, explained in (("string", "x", {}), ("double", 1.5, {}), ("string", "1", {1: "REJECTED"})):
        rejects = spark.createDataFrame([(key,)], f"number {kind}")
        found = reconcile(history, source, valid_at=NOON, keys=KEYS, rejects=rejects).collect()
        assert {row["number"]: row["explanation"] for row in found} == {None: None, 1: None, **explained}


def test_a_record_that_does_not_say_its_key_explains_what_is_of_no_key_if_it_lacked_that(
    spark: SparkSession,
) -> None:
    """What could not be read may be about any entity: it is no proof of the one whose key is null."""
    history = merge(to_dataframe(spark, [said(1, "m1", 9, name="pot")], FIELDS), entity="product", keys=KEYS)
    source = spark.createDataFrame([(None, "somebody"), (1, "pot")], "number int, name string")
    for code, explanation in (("NOT_JSON", None), ("KEY_MISSING", "REJECTED")):
        rejects = spark.createDataFrame([(None, code)], "number int, error_code string")
        (found,) = reconcile(history, source, valid_at=NOON, keys=KEYS, rejects=rejects).collect()
        assert (found["number"], found["explanation"]) == (None, explanation)


def test_without_the_other_tables_only_a_delete_explains_itself(
    history: DataFrame, source: DataFrame
) -> None:
    found = seen(reconcile(history, source, valid_at=NOON, keys=KEYS))
    deleted = {row[0]: row[-2:] for row in found if row[-2] is not None}
    assert deleted == {3: ("DELETED", "d3"), 9: ("DELETED", "d9")}
    assert [row[:8] for row in found] == [row[:8] for row in FOUND]


def test_behind_the_frontier_a_message_may_still_come(history: DataFrame, source: DataFrame) -> None:
    """The frontier explains what nothing else does; at an instant before it, it explains nothing."""
    call = {"valid_at": NOON, "keys": KEYS}
    few = history.where("number IN (1, 3, 6)"), source.where("number IN (1, 3, 6)")
    found = {row[0]: row[-2:] for row in seen(reconcile(*few, **call, complete_until=NOON))}
    assert found == {3: ("DELETED", "d3"), 6: ("NOT_YET_SEEN", "complete until 2024-01-01 12:00:00")}
    before = seen(reconcile(*few, **call, complete_until=at(13)))
    assert {row[0]: row[-2:] for row in before} == {3: ("DELETED", "d3"), 6: (None, None)}
    with pytest.raises(InvalidArgument, match="complete_until"):
        reconcile(*few, **call, complete_until=datetime(2024, 1, 1))


def test_the_frontier_is_an_instant_also_in_the_hour_that_comes_twice(
    history: DataFrame, source: DataFrame
) -> None:
    """At half past two for the second time, what was complete at a quarter to three for the first is over."""
    zone = ZoneInfo("Europe/Paris")
    first = datetime(2024, 10, 27, 2, 45, tzinfo=zone)
    second = datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=1)
    few = history.where("number = 6"), source.where("number = 6")
    [row] = reconcile(*few, valid_at=second, keys=KEYS, complete_until=first).collect()
    assert row["explanation"] == "NOT_YET_SEEN"


def test_fields_that_the_source_does_not_have_are_not_compared(history: DataFrame, source: DataFrame) -> None:
    """A frame of pandas will do, and numbers of another type."""
    prices = pd.DataFrame(
        {"number": [row[0] for row in SOURCE], "price": pd.array([row[2] for row in SOURCE], dtype="Int64")}
    )
    found = reconcile(history, prices, valid_at=NOON, keys=KEYS)
    expected = [row[:8] for row in FOUND if row[2] != "name"]
    assert [row[:8] for row in seen(found)] == expected
    alone = reconcile(history, source.select("number"), valid_at=NOON, keys=KEYS)
    assert [row[:2] for row in seen(alone)] == [row[:2] for row in FOUND if row[2] == ROW]


def test_a_repair_mends_what_was_found_and_nothing_else(
    history: DataFrame, source: DataFrame, changes: DataFrame
) -> None:
    mended = repair(history, source, valid_at=NOON, keys=KEYS, by="bob", received_at=at(13)).localCheckpoint()
    told = {
        row["data"]["number"]: (row["operation"], row["priority"], *row["carried"], *row["data"])
        for row in mended.collect()
    }
    assert set(told) == {row[0] for row in FOUND}
    low = -(2**31) + 1
    assert told[2] == ("upsert", low, True, True, True, 2, "mug", 1)
    assert told[4] == ("delete", 0, True, False, False, 4, None, None)
    assert told[7] == ("upsert", 5, True, True, False, 7, "cup", None)
    assert told[9] == ("upsert", 5, True, True, True, 9, "mug", None)
    assert told[16] == ("upsert", 0, True, True, True, 16, None, 1)
    assert {row["source"] for row in mended.select("source").collect()} == {"reconciliation"}
    both = union_changes(changes, mended)
    right = merge(both, entity="product", keys=KEYS).localCheckpoint()
    assert seen(reconcile(right, source, valid_at=NOON, keys=KEYS)) == []
    # What was said of a later time still counts, and so does what held before.
    assert seen(right.where("number = 11"), "number", "valid_from_timestamp", "name") == [
        (11, 12, "cup"),
        (11, 9, "mug"),
    ]
    assert seen(right.where("number = 12"), "number", "valid_from_timestamp", "name") == [
        (12, 13, "jug"),
        (12, 9, "mug"),
        (12, 12, "mug"),
    ]
    without = merge(
        revoke(both, "bob, 2024-01-01 13:00:00: as the source has it"), entity="product", keys=KEYS
    )
    assert [row[:8] for row in seen(reconcile(without, source, valid_at=NOON, keys=KEYS))] == [
        row[:8] for row in FOUND
    ]


def test_a_repair_does_not_stand_in_the_way_of_the_next_word(
    spark: SparkSession, history: DataFrame, source: DataFrame, changes: DataFrame
) -> None:
    """Of a field that nobody had spoken of, and of an entity that was not there, the weakest word counts."""
    mended = repair(history, source, valid_at=NOON, keys=KEYS, by="bob")
    later = to_dataframe(
        spark, [said(2, "l2", 14, p=-3, name="jug"), said(7, "l7", 14, name="jug", price=3)], FIELDS
    )
    right = merge(union_changes(changes, mended, later), entity="product", keys=KEYS)
    last = right.where("valid_to_timestamp IS NULL AND number IN (2, 7)")
    assert seen(last, "number", "name", "price") == [(2, "jug", 1), (7, "cup", 1)]


@pytest.mark.parametrize(
    ("wrong", "error", "needed"),
    [
        (lambda a: {**a, "valid_at": datetime(2024, 1, 1)}, InvalidArgument, "valid_at"),
        (lambda a: {**a, "keys": ["nmae"]}, InvalidArgument, "Is it name for nmae"),
        (lambda a: {**a, "source": a["source"].drop("number")}, MissingColumns, "number"),
        (lambda a: {**a, "source": a["source"].withColumn("nmae", F.lit(1))}, InvalidArgument, "Is it name"),
        (lambda a: {**a, "source": a["source"].withColumn("gate", F.lit(1))}, InvalidArgument, "drop"),
        (
            lambda a: {**a, "source": a["source"].withColumn("price", F.lit("1"))},
            WrongColumnType,
            r'cast\("int"\)',
        ),
        (lambda a: {**a, "source": "shop"}, InvalidArgument, "DataFrame"),
        (lambda a: {**a, "history": a["source"]}, MissingColumns, "valid_from_timestamp"),
        (lambda a: {**a, "rejects": a["source"].drop("number")}, MissingColumns, "get_json_object"),
    ],
)
def test_a_call_that_cannot_be_answered_says_what_is_needed(
    history: DataFrame,
    source: DataFrame,
    wrong: Callable[[dict[str, Any]], dict[str, Any]],
    error: type[Exception],
    needed: str,
) -> None:
    call = {"history": history, "source": source, "valid_at": NOON, "keys": KEYS}
    with pytest.raises(error, match=needed):
        reconcile(**wrong(call))


def test_whole_numbers_beside_an_empty_cell_of_pandas_are_whole(history: DataFrame) -> None:
    """What pandas made floats of, key or field, is compared as the whole numbers that they were."""
    table = pd.DataFrame(SOURCE, columns=["number", "name", "price"])
    assert [str(kind) for kind in table.dtypes] == ["float64", "object", "float64"]
    found = reconcile(history, table, valid_at=NOON, keys=KEYS)
    assert seen(found, "number", "finding", "field") == [each[:3] for each in FOUND]
    with pytest.raises(InvalidArgument, match=r"source\.drop\(columns=\['colour'\]\)"):
        reconcile(history, table.assign(colour="red"), valid_at=NOON, keys=KEYS)
    with pytest.raises(WrongColumnType, match=r"Cast it to int\."):
        reconcile(history, table.assign(price="1"), valid_at=NOON, keys=KEYS)


def test_a_repair_needs_to_know_what_stands(history: DataFrame, source: DataFrame) -> None:
    with pytest.raises(MissingColumns, match="field_provenance"):
        repair(history.drop("field_provenance"), source, valid_at=NOON, keys=KEYS, by="bob")
    with pytest.raises(InvalidArgument, match="by"):
        repair(history, source, valid_at=NOON, keys=KEYS, by="")


@pytest.mark.parametrize("kind", ["decimal(10,2)", "int"])
def test_a_repair_changes_no_value_of_the_source(spark: SparkSession, kind: str) -> None:
    """What the history cannot hold is told, in a field as in a key."""
    rows = spark.sql(f"SELECT id, CAST(5 AS {kind}) AS price FROM VALUES (CAST(1 AS {kind})) AS t(id)")
    history = merge(changes_from(rows, keys=["id"], effective=at(9)), entity="e", keys=["id"])

    def repaired(row: str) -> list[Row]:
        source = spark.sql(
            f"SELECT CAST(id AS decimal(12,4)) AS id, CAST(price AS decimal(12,4)) AS price FROM {row}"
        )
        mended = repair(history, source, valid_at=NOON, keys=["id"], by="bob", received_at=at(13))
        return [
            (row["operation"], float(row["data"]["id"]), float(row["data"]["price"]))
            for row in mended.collect()
        ]

    assert repaired("VALUES (1, 7.0) AS t(id, price)") == [("upsert", 1, 7)]
    for wrong, name in (("(1, 7.1234)", "price"), ("(1.0625, 5)", "id")):
        with pytest.raises(SparkRuntimeException, match=f"a value of {name} is no {kind[:7]}"):
            repaired(f"VALUES {wrong} AS t(id, price)")


# Random programs ----------------------------------------------------------------------------------------

WIDE = {"h": "int", "k": "string", "name": "string", "price": "double", "sizes": "array<double>"}
WIDE_KEYS = ["h", "k"]
FAULTS = ("none", "lost", "doubled", "reordered", "false delete", "by hand")
WORLDS = 120
LATER = datetime(2024, 8, 1, tzinfo=UTC)


@seeds(1, soak=40)
def test_every_fault_in_a_feed_is_found_and_none_where_there_is_none(spark: SparkSession, seed: int) -> None:
    """What a feed lost, or says in excess, against the tables that its source has; then mended."""
    drawn = random.Random(seed)
    instant = drawn.choice(INSTANTS)
    feed: list[Row] = []
    table: list[Row] = []
    for number in range(WORLDS):
        fault = FAULTS[number % len(FAULTS)]
        # In every other round of the faults some changes have ends.
        ends = (True, False) if number // len(FAULTS) % 2 else ()
        true = draw_history(drawn.choice, WIDE, number=number, ends=ends)
        rows = in_force(history_of(true), instant)
        feed += with_fault(drawn, true, fault, number)
        table += changed_by_hand(drawn, rows, number) if fault == "by hand" else rows
    drawn.shuffle(feed)
    drawn.shuffle(table)
    changes = to_dataframe(spark, feed, WIDE).localCheckpoint()
    kept = ("h", "k", "name", "price", "sizes")
    fields = change_schema(WIDE)["data"].dataType
    source = rows_to_dataframe(spark, [{name: row[name] for name in kept} for row in table], fields)
    history = merge(changes, entity="thing", keys=WIDE_KEYS).localCheckpoint()
    found = reconcile(history, source, valid_at=instant, keys=WIDE_KEYS, changes=changes)
    told = found.drop("guid", "history_value", "source_value").toArrow().to_pylist()
    wanted = expected(feed, table, instant)
    assert sorted((tuple(row.values())[:7] for row in told), key=order) == sorted(wanted, key=order)
    assert {row["h"] % len(FAULTS) for row in told} & {0, 2} == set()
    assert {row["h"] % len(FAULTS) for row in told} == {1, 3, 4, 5}
    for row in told:
        assert row["explanation"] is not None or not (row["message"] or "").startswith("false")
        assert row["explanation"] != "DELETED" or row["evidence"] == row["message"]
    mended = repair(history, source, valid_at=instant, keys=WIDE_KEYS, by="bob", received_at=LATER)
    right = merge(union_changes(changes, mended), entity="thing", keys=WIDE_KEYS)
    assert reconcile(right, source, valid_at=instant, keys=WIDE_KEYS).take(1) == []


def order(row: tuple[Any, ...]) -> str:
    return repr(row[:4])


def history_of(changes: Sequence[Row]) -> list[Row]:
    return fold(changes, entity="thing", keys=WIDE_KEYS, fields=list(WIDE)) if changes else []


def in_force(history: Sequence[Row], instant: datetime) -> list[Row]:
    """The versions of that instant that are not deleted."""
    return [row for row in history if holds(row, instant) and not row["deleted_indicator"]]


def with_fault(drawn: random.Random, changes: list[Row], fault: str, number: int) -> list[Row]:
    """The changes as a broken feed would bring them."""
    if fault == "lost":
        lost = drawn.choice(changes)["message_id"]
        return [each for each in changes if each["message_id"] != lost]
    if fault == "doubled":
        again = dict(drawn.choice(changes))
        return [*changes, {**again, "arrival": {**again["arrival"], "timestamp": LATER}}]
    if fault == "reordered":
        one, other = drawn.choice(changes), drawn.choice(changes)
        time = {id(one): other["effective_timestamp"], id(other): one["effective_timestamp"]}
        moved = [
            {**each, "effective_timestamp": time.get(id(each), each["effective_timestamp"])}
            for each in changes
        ]
        return [
            each
            for each in moved
            if not each.get("effective_until") or each["effective_timestamp"] < each["effective_until"]
        ]
    if fault == "false delete":
        false = {**drawn.choice(changes), "operation": "delete", "priority": drawn.choice(PRIORITIES)}
        false |= {"message_id": f"false{number}", "sequence": "3"}
        return [*changes, {**false, "arrival": draw_arrival(drawn.choice, record_number=0)}]
    return changes


def changed_by_hand(drawn: random.Random, rows: list[Row], number: int) -> list[Row]:
    """The source's rows after somebody has changed, deleted or written one behind the log."""
    if not rows:
        return [{"h": number, "k": "z", "name": "new", "price": None, "sizes": None}]
    changed = drawn.choice(rows)
    others = [row for row in rows if row is not changed]
    return drawn.choice([others, [*others, {**changed, "name": "by hand", "price": None}]])


def expected(feed: Sequence[Row], table: Sequence[Row], instant: datetime) -> list[tuple[Any, ...]]:
    """What is wrong, found by looking at each entity."""
    of_entity: dict[tuple[Any, Any], list[Row]] = {}
    for row in history_of(feed):
        of_entity.setdefault((row["h"], row["k"]), []).append(row)
    right = {(row["h"], row["k"]): row for row in table}
    found: list[tuple[Any, ...]] = []
    for key in of_entity.keys() | right.keys():
        begun = [row for row in of_entity.get(key, []) if row["valid_from_timestamp"] <= instant]
        here = begun[-1] if begun and holds(begun[-1], instant) else None
        alive = here is not None and not here["deleted_indicator"]
        there = right.get(key)
        if there and not alive:
            lived = [row["valid_to_timestamp"] for row in begun if not row["deleted_indicator"]]
            found.append((*key, "missing", ROW, max(lived, default=None), *word(here, "guid")))
        elif alive and not there:
            found.append((*key, "extra", ROW, since(begun, None), *word(here, "guid")))
        elif here and there:
            for name in ("name", "price", "sizes"):
                if not same_value(here[name], there[name]):
                    found.append((*key, "different", name, since(begun, name), *word(here, name)))
    return found


def word(version: Row | None, name: str) -> tuple[str | None, int | None]:
    entry = version and version["field_provenance"][name]
    return (entry["m"], entry["p"]) if entry else (None, None)


def since(begun: Sequence[Row], name: str | None) -> datetime:
    """From when on the last version has been there, or has had its value, without a break."""
    last = earliest = begun[-1]
    for row in reversed(begun[:-1]):
        goes_on = (
            row["valid_to_timestamp"] == earliest["valid_from_timestamp"] and not row["deleted_indicator"]
        )
        if not goes_on or (name and not same_value(row[name], last[name])):
            break
        earliest = row
    begins: datetime = earliest["valid_from_timestamp"]
    return begins


def test_the_order_in_which_a_map_is_written_is_no_difference(spark: SparkSession) -> None:
    said_of_a = spark.sql("SELECT 'a' AS k, map('x', 1, 'y', 2) AS v, timestamp'2024-01-01 09:00:00' AS t")
    changes = changes_from(said_of_a, keys=["k"], effective="t", column_list=["v"]).localCheckpoint()
    history = merge(changes, entity="k", keys=["k"]).localCheckpoint()
    now = spark.sql("SELECT 'a' AS k, map('y', 2, 'x', 1) AS v")
    assert reconcile(history, now, valid_at=NOON, keys=["k"], changes=changes).take(1) == []
    other = spark.sql("SELECT 'a' AS k, map('y', 2, 'x', 3) AS v")
    (found,) = reconcile(history, other, valid_at=NOON, keys=["k"], changes=changes).collect()
    assert (found["history_value"], found["source_value"]) == ('{"x":1,"y":2}', '{"x":3,"y":2}')


def test_a_key_that_passed_to_another_entity(spark: SparkSession) -> None:
    """Where guids tell, and deleted versions are left out, an entity's past is its own."""
    rows = [
        {**said(1, "m1", 8, name="cup", price=1), "guid": "one"},
        {**said(1, "d1", 10), "guid": "one"},
        {**said(1, "m2", 10, name="cup", price=1), "guid": "two"},
        {**said(1, "n2", 11, price=2), "guid": "two"},
    ]
    history = merge(to_dataframe(spark, rows, FIELDS), entity="product", keys=KEYS)
    now = spark.createDataFrame([(1, "jug", 2)], "number int, name string, price int")
    found = reconcile(history.where("NOT deleted_indicator"), now, valid_at=NOON, keys=KEYS)
    assert seen(found, "number", "guid", "field", "since_timestamp") == [(1, "two", "name", 10)]


def test_a_ledger_takes_a_repair(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path, entity="product", keys=KEYS)
    rows = [said(1, "m1", 9, name="mug", price=1), said(2, "m2", 9, name="cup", price=1)]
    ledger.apply(to_dataframe(spark, rows, FIELDS).drop("effective_until"))
    now = spark.createDataFrame([(1, "jug", 1), (3, "pot", None)], "number int, name string, price int")
    ledger.apply(repair(ledger.history(), now, valid_at=NOON, keys=KEYS, by="bob"))
    found = reconcile(ledger.history(), now, valid_at=NOON, keys=KEYS, changes=ledger.changes())
    assert found.take(1) == []
