"""`why`: every message that spoke of a value, and what became of its word."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import why
from cdckit.errors import InvalidArgument
from support.histories import Row, random_changes, to_dataframe

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "string"}
KEYS = ["h", "k"]
KEY = {"h": 1, "k": "x"}
START = datetime(2024, 7, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def change(
    hour: float,
    message: str,
    value: int | None = None,
    priority: int = 0,
    *,
    delete: bool = False,
    **more: Any,
) -> Row:
    """What a message says at an hour about `a` of the one entity; it arrives a minute later."""
    arrives = START + more.get("arrives", hour) * HOUR + timedelta(minutes=1)
    return {
        "operation": "delete" if delete else "upsert",
        "effective_timestamp": START + hour * HOUR,
        "sequence": "",
        "arrival": {"timestamp": arrives, "topic": "t", "partition": 0, "offset": 0, "record_number": 0},
        "message_id": message,
        "source": "one",
        "priority": priority,
        "field_priorities": {"h": None, "k": None, "a": more.get("field_priority"), "b": None},
        "data": {**KEY, "a": value, "b": None},
        "carried": {"h": True, "k": True, "a": not delete and more.get("carried", True), "b": False},
    }


def asked(
    spark: SparkSession, changes: Sequence[Row], at: float = 24, field: str = "a", **options: Any
) -> list[tuple[Any, ...]]:
    """(message, value, priority, verdict, overruled by), in order."""
    told = to_dataframe(spark, changes, FIELDS)
    rows = why(told, KEY, field, keys=KEYS, valid_at=START + at * HOUR, **options).collect()
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    columns = ("message_id", "value", "priority", "verdict", "by_message")
    return [tuple(row[name] for name in columns) for row in rows]


def test_the_last_word_wins_and_the_one_before_is_superseded(spark: SparkSession) -> None:
    assert asked(spark, [change(2, "m2", 20), change(1, "m1", 10)]) == [
        ("m1", 10, 0, "SUPERSEDED", "m2"),
        ("m2", 20, 0, "WON", None),
    ]


def test_without_an_instant_all_has_come_true(spark: SparkSession) -> None:
    """In the year 9999 too."""
    last = (datetime(9999, 12, 31, tzinfo=UTC) - START) / HOUR
    said = to_dataframe(spark, [change(1, "m1", 1), change(last, "m2", 2, arrives=2)], FIELDS)
    told = why(said, KEY, "a", keys=KEYS)
    assert [row["verdict"] for row in told.collect()] == ["SUPERSEDED", "WON"]


def test_a_weaker_word_is_outranked_by_the_one_that_stands(spark: SparkSession) -> None:
    """The priority of the field counts where it is stated."""
    changes = [
        change(1, "m1", 10, 5),
        change(2, "m2", 20, 4),
        change(3, "m3", 30, 0, field_priority=6),
        change(4, "m4", 40, 9, field_priority=5),
    ]
    assert asked(spark, changes) == [
        ("m1", 10, 5, "SUPERSEDED", "m3"),
        ("m2", 20, 4, "OUTRANKED", "m1"),
        ("m3", 30, 6, "WON", None),
        ("m4", 40, 5, "OUTRANKED", "m3"),
    ]


def test_who_says_the_same_again_is_equal_and_who_says_it_stronger_wins(spark: SparkSession) -> None:
    assert asked(spark, [change(1, "m1", 10), change(2, "m2", 10), change(3, "m3", 10, 1)]) == [
        ("m1", 10, 0, "SUPERSEDED", "m3"),
        ("m2", 10, 0, "EQUAL", "m1"),
        ("m3", 10, 1, "WON", None),
    ]


def test_a_delete_takes_the_value_and_weak_words_after_it_are_in_vain(spark: SparkSession) -> None:
    """The second delete is no stronger than the first; the third message is too weak to bring it back."""
    changes = [
        change(0, "m0", delete=True),
        change(1, "m1", 10),
        change(2, "m2", delete=True, priority=3),
        change(3, "m3", 30, 2),
        change(4, "m4", delete=True, priority=3),
        change(5, "m5", 50, 3),
        change(6, "m6", delete=True, priority=2),
    ]
    assert asked(spark, changes) == [
        ("m0", None, 0, "NOTHING_THERE", None),
        ("m1", 10, 0, "SUPERSEDED", "m2"),
        ("m2", None, 3, "SUPERSEDED", "m5"),
        ("m3", 30, 2, "DELETED", "m2"),
        ("m4", None, 3, "DELETED", "m2"),
        ("m5", 50, 3, "WON", None),
        ("m6", None, 2, "OUTRANKED", "m5"),
    ]


def test_a_delete_takes_no_value_from_a_field_that_was_never_set(spark: SparkSession) -> None:
    """It did delete the entity, where the one before it found none."""
    changes = [change(0, "m0", delete=True), change(1, "m1", carried=False), change(2, "m2", delete=True)]
    assert asked(spark, changes) == [
        ("m0", None, 0, "NOTHING_THERE", None),
        ("m2", None, 0, "NEVER_SET", None),
    ]


def test_of_the_row_itself_every_change_speaks(spark: SparkSession) -> None:
    """True says that the entity is deleted, False that it is there."""
    changes = [
        change(0, "m0", delete=True),
        change(1, "m1", 10, 1),
        change(2, "m2", 20, 1),
        change(3, "m3", 30),
        change(4, "m4", delete=True),
        change(5, "m5", 50, 2, field_priority=9),
        change(6, "m6", delete=True, priority=2),
        change(7, "m7", delete=True, priority=2),
        change(8, "m8", delete=True, priority=1),
        change(9, "m9", 90, 1, field_priority=9),
        change(10, "m10", delete=True, priority=3),
        change(11, "m11", carried=False, priority=3),
    ]
    assert asked(spark, changes, field="deleted_indicator") == [
        ("m0", True, 0, "NOTHING_THERE", None),
        ("m1", False, 1, "SUPERSEDED", "m5"),
        ("m2", False, 1, "EQUAL", "m1"),
        ("m3", False, 0, "OUTRANKED", "m1"),
        ("m4", True, 0, "OUTRANKED", "m1"),
        ("m5", False, 2, "SUPERSEDED", "m6"),
        ("m6", True, 2, "SUPERSEDED", "m10"),
        ("m7", True, 2, "EQUAL", "m6"),
        ("m8", True, 1, "DELETED", "m6"),
        ("m9", False, 1, "DELETED", "m6"),
        ("m10", True, 3, "SUPERSEDED", "m11"),
        ("m11", False, 3, "WON", None),
    ]


def test_a_key_that_is_said_again_keeps_its_message_and_takes_the_priority(spark: SparkSession) -> None:
    """Over a delete, too; what is weaker than the priority it has by now is beaten by who gave it that."""
    changes = [
        change(1, "m1", 10),
        change(2, "m2", 10),
        change(3, "m3", 10, 4),
        change(4, "m4", 10, 1),
        change(5, "m5", delete=True, priority=4),
        change(6, "m6", 10, 5),
        change(7, "m7", 10, 5),
    ]
    table = why(to_dataframe(spark, changes, FIELDS), KEY, "k", keys=KEYS, valid_at=START + 9 * HOUR)
    columns = ["message_id", "value", "priority", "verdict", "by_message", "by_priority"]
    assert [tuple(row) for row in table.select(columns).collect()] == [
        ("m1", "x", 0, "WON", None, None),
        ("m2", "x", 0, "EQUAL", "m1", 0),
        ("m3", "x", 4, "CONFIRMED", "m1", 0),
        ("m4", "x", 1, "OUTRANKED", "m3", 4),
        ("m6", "x", 5, "CONFIRMED", "m1", 4),
        ("m7", "x", 5, "EQUAL", "m1", 5),
    ]


def test_a_message_that_did_not_carry_the_field_did_not_speak_of_it(spark: SparkSession) -> None:
    assert asked(spark, [change(1, "m1", 10), change(2, "m2", carried=False)]) == [("m1", 10, 0, "WON", None)]


def test_a_repeat_is_no_second_word(spark: SparkSession) -> None:
    assert asked(spark, [change(1, "m1", 10), change(1, "m1", 10, arrives=5)]) == [
        ("m1", 10, 0, "WON", None),
        ("m1", 10, 0, "REPEATED", None),
    ]


def test_the_same_id_of_another_source_is_another_message(spark: SparkSession) -> None:
    changes = [change(1, "m1", 10), {**change(2, "m1", 20), "source": "two"}, change(3, "m1", 10)]
    table = why(to_dataframe(spark, changes, FIELDS), KEY, "a", keys=KEYS, valid_at=START + 9 * HOUR)
    columns = ["message_id", "source", "verdict", "by_message", "by_source"]
    assert [tuple(row) for row in table.select(columns).collect()] == [
        ("m1", "one", "SUPERSEDED", "m1", "two"),
        ("m1", "two", "WON", None, None),
        ("m1", "one", "REPEATED", None, None),
    ]


def test_what_is_true_later_is_not_yet_effective(spark: SparkSession) -> None:
    changes = [change(1, "m1", 10), change(2, "m2", 20), change(3, "m3", 30)]
    assert asked(spark, changes, at=2) == [
        ("m1", 10, 0, "SUPERSEDED", "m2"),
        ("m2", 20, 0, "WON", None),
        ("m3", 30, 0, "NOT_YET_EFFECTIVE", None),
    ]


def test_what_was_not_known_then_does_not_count(spark: SparkSession) -> None:
    changes = [change(1, "m1", 10), change(2, "m2", 20, arrives=9), change(12, "m3", 30)]
    assert asked(spark, changes, at=5, known_at=START + 6 * HOUR) == [
        ("m1", 10, 0, "WON", None),
        ("m2", 20, 0, "ARRIVED_LATER", None),
        ("m3", 30, 0, "ARRIVED_LATER", None),
    ]


def test_of_a_key_field_a_delete_says_nothing(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [change(1, "m1", 10), change(2, "m2", delete=True)], FIELDS)
    table = why(changes, KEY, "k", keys=KEYS, valid_at=START + 9 * HOUR)
    assert [(row["message_id"], row["value"], row["verdict"]) for row in table.collect()] == [
        ("m1", "x", "WON")
    ]


def test_every_verdict_has_its_reason(spark: SparkSession) -> None:
    rows = [change(1, "m1", 10, 5), change(2, "m2", 20), change(3, "m3", priority=9, delete=True)]
    changes = to_dataframe(spark, rows, FIELDS)

    def reasons(hours: int) -> list[str]:
        table = why(changes, KEY, "a", keys=KEYS, valid_at=START + hours * HOUR)
        return [row["reason"] for row in table.collect()]

    later = "not yet: speaks of a later time than was asked about"
    outranked = "ignored: a message of higher priority had spoken before"
    assert reasons(2) == ["this is the value that stands", outranked, later]
    stood = "stood until a later message of at least its priority spoke"
    assert reasons(9) == [stood, outranked, "deleted the entity, and nothing has brought it back"]


def test_a_word_that_never_stood_is_told(spark: SparkSession) -> None:
    """What a later change of its source says of the same instant takes its place before it begins."""
    first, second = change(1, "m1", 10) | {"sequence": "1"}, change(1, "m2", 20) | {"sequence": "2"}
    table = why(
        to_dataframe(spark, [first, second, change(2, "m3", 30)], FIELDS),
        KEY, "a", keys=KEYS, valid_at=START + 9 * HOUR,
    )  # fmt: skip
    never = "never stood: a message of at least its priority, of the same instant, counts after it"
    assert [(row["message_id"], row["verdict"], row["reason"]) for row in table.collect()] == [
        ("m1", "SUPERSEDED", never),
        ("m2", "SUPERSEDED", "stood until a later message of at least its priority spoke"),
        ("m3", "WON", "this is the value that stands"),
    ]


def test_an_unknown_key_has_no_messages(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [change(1, "m1", 10)], FIELDS)
    assert why(changes, {"h": 1, "k": None}, "a", keys=KEYS, valid_at=START).collect() == []


@pytest.mark.parametrize("known", [None, 1])
def test_every_message_that_spoke_has_one_verdict(spark: SparkSession, known: int | None) -> None:
    told = random_changes(41, 1, FIELDS, longest=60, exactly=60)
    mine = [each for each in told if each["data"]["k"] == "x"]
    speaking = [each for each in mine if each["operation"] == "delete" or each["carried"]["a"]]
    table = why(
        to_dataframe(spark, told, FIELDS),
        {"h": 0, "k": "x"},
        "a",
        keys=KEYS,
        valid_at=max(each["effective_timestamp"] for each in told),
        known_at=known and min(each["arrival"]["timestamp"] for each in told),
    ).collect()
    assert sorted(row["message_id"] for row in table) == sorted(each["message_id"] for each in speaking)
    beaten = {"SUPERSEDED", "OUTRANKED", "EQUAL", "DELETED"}
    assert all((row["by_message"] is not None) == (row["verdict"] in beaten) for row in table)


def test_a_guid_names_the_entity_where_changes_have_one(spark: SparkSession) -> None:
    changes = [{**change(1, "m1", 10), "guid": "g1"}, {**change(2, "m2", 20), "guid": "g2"}]
    frame = to_dataframe(spark, changes, FIELDS)
    table = why(frame, {"guid": "g1"}, "a", keys=KEYS, valid_at=START + 9 * HOUR)
    assert [(row["message_id"], row["verdict"]) for row in table.collect()] == [("m1", "WON")]
    # Several entities have had that key: only the guid tells them apart.
    with pytest.raises(PythonException, match="NotOneEntity"):
        why(frame, KEY, "a", keys=KEYS, valid_at=START).collect()


def test_where_the_row_decides_its_priorities_are_shown(spark: SparkSession) -> None:
    """The entity's 5 beats the delete's 3, though the field was said with 1; and the other way round."""
    changes = [
        change(1, "m1", 10, 5, field_priority=1),
        change(2, "m2", delete=True, priority=3),
        change(3, "m3", delete=True, priority=6),
        change(4, "m4", 40, 5, field_priority=9),
    ]
    table = why(to_dataframe(spark, changes, FIELDS), KEY, "a", keys=KEYS, valid_at=START + 9 * HOUR)
    columns = ["message_id", "verdict", "priority", "by_message", "by_priority"]
    assert [tuple(row) for row in table.select(columns).collect()] == [
        ("m1", "SUPERSEDED", 5, "m3", 6),
        ("m2", "OUTRANKED", 3, "m1", 5),
        ("m3", "WON", 6, None, None),
        ("m4", "DELETED", 5, "m3", 6),
    ]


def test_a_delete_speaks_of_a_field_with_its_own_priority_of_it(spark: SparkSession) -> None:
    """What it took and what is no match for it: by the row's; what came after it is back: by the field's."""
    changes = [
        change(1, "m1", 10, 0, field_priority=30),
        change(2, "m2", delete=True, priority=1, field_priority=3),
        change(3, "m3", carried=False, priority=1),
        change(4, "m4", 40, 2),
        change(5, "m5", 50, 1, field_priority=4),
    ]
    columns = ["message_id", "verdict", "priority", "by_message", "by_priority"]

    def told(at: float) -> list[tuple[Any, ...]]:
        table = why(to_dataframe(spark, changes, FIELDS), KEY, "a", keys=KEYS, valid_at=START + at * HOUR)
        return [tuple(row) for row in table.where("verdict <> 'NOT_YET_EFFECTIVE'").select(columns).collect()]

    assert told(4) == [
        ("m1", "SUPERSEDED", 0, "m2", 1),
        ("m2", "WON", 3, None, None),
        ("m4", "OUTRANKED", 2, "m2", 3),
    ]
    assert told(5) == [
        ("m1", "SUPERSEDED", 0, "m2", 1),
        ("m2", "SUPERSEDED", 3, "m5", 4),
        ("m4", "OUTRANKED", 2, "m2", 3),
        ("m5", "WON", 4, None, None),
    ]


def test_a_message_without_a_time_of_arrival_counts_unless_one_asks_what_was_known(
    spark: SparkSession,
) -> None:
    told = change(1, "m1", 10)
    told["arrival"]["timestamp"] = None
    assert asked(spark, [told]) == [("m1", 10, 0, "WON", None)]
    assert asked(spark, [told], known_at=START + 99 * HOUR) == [("m1", 10, 0, "ARRIVED_LATER", None)]


# Bad input -----------------------------------------------------------------------------------------------


@pytest.fixture
def changes(spark: SparkSession) -> DataFrame:
    return to_dataframe(spark, [change(1, "m1", 10)], FIELDS)


@pytest.mark.parametrize(
    ("key", "field", "options", "says"),
    [
        ({"z": 1}, "a", {}, "key"),
        ({"h": 1}, "a", {}, "key"),
        ({"h": "1", "k": "x"}, "a", {}, r"key\['h'\]"),
        ({"h": 1, "k": 7}, "a", {}, r"key\['k'\]"),
        ({"h": True, "k": "x"}, "a", {}, r"key\['h'\]"),
        (None, "a", {}, "key"),
        ({}, "a", {}, "key"),
        ("h", "a", {}, "key"),
        (KEY, "z", {}, "field"),
        (KEY, "guid", {}, "field"),
        (KEY, "a", {"valid_at": datetime(2024, 1, 1)}, "valid_at"),
        (KEY, "a", {"known_at": datetime(2024, 1, 1)}, "known_at"),
    ],
)
def test_a_question_that_cannot_be_asked(
    changes: DataFrame, key: Any, field: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=rf"why\(\) needs {says} "):
        why(changes, key, field, **{"keys": KEYS, "valid_at": START, **options})


def ties(spark: SparkSession, *changes: Row) -> list[tuple[str, bool]]:
    """(message, whether its reason says that order of arrival decided)."""
    table = why(to_dataframe(spark, list(changes), FIELDS), KEY, "a", keys=KEYS, valid_at=START + 24 * HOUR)
    tie = "decided by order of arrival, equal priority at one instant"
    return [(row["message_id"], tie in row["reason"]) for row in table.collect()]


def test_a_tie_is_told(spark: SparkSession) -> None:
    """One instant and one priority: then nothing but the order of arrival decides between two sources.

    Within a source its sequence decides, where it says one.  A priority decides, too, and so does time.
    """
    other = {"source": "two"}
    first, second = change(1, "m1", 10), change(1, "m2", 20)
    assert ties(spark, first, second | other) == [("m1", True), ("m2", True)]
    assert ties(spark, first, second) == [("m1", True), ("m2", True)]
    assert ties(spark, first | {"sequence": "1"}, second | {"sequence": "2"}) == [
        ("m1", False),
        ("m2", False),
    ]
    numbered = second | {"sequence": "2"} | other
    assert ties(spark, first | {"sequence": "1"}, numbered) == [("m1", True), ("m2", True)]
    assert ties(spark, first, change(1, "m2", 20, 1) | other) == [("m1", False), ("m2", False)]
    assert ties(spark, first, change(2, "m2", 20) | other, change(2, "m3", 30)) == [
        *(("m1", False), ("m2", True), ("m3", True)),
    ]
    # Whether a delete takes a value, and what brings it back, the priorities of the row decide.
    for delete, tie in ((change(1, "m2", delete=True), True), (change(1, "m2", None, 1, delete=True), False)):
        ranked = change(1, "m1", 10, field_priority=9)
        assert ties(spark, ranked, delete | other) == [("m1", tie), ("m2", tie)]


def test_an_entity_with_a_guid_is_also_known_by_its_key(spark: SparkSession) -> None:
    """By every key that it has had."""
    moved = change(2, "m2", 20) | {"data": {"h": 1, "k": "y", "a": 20, "b": None}}
    table = to_dataframe(spark, [change(1, "m1", 10), moved], FIELDS).withColumn("guid", F.lit("g1"))

    def messages(changes: DataFrame, key: Row) -> list[str]:
        told = why(changes, key, "a", keys=KEYS, valid_at=START + 24 * HOUR)
        return [row["message_id"] for row in told.collect()]

    for key in ({"guid": "g1"}, KEY, {"h": 1, "k": "y"}):
        assert messages(table, key) == ["m1", "m2"]
    assert messages(table, {"h": 1, "k": "z"}) == []
    with pytest.raises(InvalidArgument, match="a value for each of guid, or for h, k"):
        messages(table, {"h": 1})
