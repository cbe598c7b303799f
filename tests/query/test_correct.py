"""`correct`: other values for a period, and what would stand without them, before, after and beside it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import blame, changes_from, merge, union_changes
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.query import correct, revoke
from support.drawn_reports import day
from support.fold import Entity, apply, fold, guid_of, holds, place, without_redeliveries
from support.histories import INSTANTS, LAST, Row, random_changes, to_dataframe
from tools.tiers import seeds

KEYS = ["gate"]
STEWARD: dict[str, Any] = {"keys": KEYS, "by": "anna", "reason": "misread"}


@pytest.fixture(scope="module")
def said(spark: SparkSession) -> DataFrame:
    """Gate A has a price from day 1, another from day 5, is gone from day 8 to 10; B has one price."""
    rows = [
        ("A", day(1), "upsert", 10, "x"),
        ("A", day(5), "upsert", 20, "x"),
        ("A", day(8), "delete", None, None),
        ("A", day(10), "upsert", 30, "y"),
        ("B", day(1), "upsert", 7, "z"),
    ]
    frame = spark.createDataFrame(rows, "gate string, at timestamp, op string, price int, pier string")
    return changes_from(
        frame,
        keys=KEYS,
        effective="at",
        source="plan",
        apply_as_deletes="op = 'delete'",
        except_column_list=["op", "at"],
    ).localCheckpoint()


@pytest.fixture(scope="module")
def history(said: DataFrame) -> DataFrame:
    """What these changes are merged to: once for all tests, which correct it."""
    return history_of(said).localCheckpoint()


def history_of(*changes: DataFrame) -> DataFrame:
    return merge(union_changes(*changes), entity="gate", keys=KEYS)


def prices_by_gate(history: DataFrame) -> dict[str, list[tuple[int, int | None]]]:
    """From which day of January which price; none while the gate is not there."""
    found: dict[str, list[tuple[int, int | None]]] = {}
    for row in history.orderBy("valid_from_timestamp").toArrow().to_pylist():
        found.setdefault(row["gate"], []).append((row["valid_from_timestamp"].day, row["price"]))
    return found


def prices(history: DataFrame, gate: str = "A") -> list[tuple[int, int | None]]:
    return prices_by_gate(history)[gate]


Prices = list[tuple[int, int | None]]
PLAN = "gate string, at timestamp, price int"


class Rule(NamedTuple):
    """Corrections of a gate like A or B, what its source says later, and its prices after all that."""

    expected: Prices
    corrections: list[tuple[Callable[[], Any], int, int | None]]
    """The values, and from and until which day."""
    like: str = "A"
    later: tuple[tuple[int, int | None], ...] = ()
    """From which day which price; none deletes the gate."""
    more: dict[str, Any] = {}  # noqa: RUF012 a named tuple's default, which nobody changes


def is_(price: int) -> Callable[[], Any]:
    return lambda: {"price": price}


RULES: dict[str, Rule] = {
    "what stands without it stands again behind its end": Rule(
        [(1, 10), (2, 11), (4, 10), (5, 20), (8, None), (10, 30)], [(is_(11), 2, 4)]
    ),
    "over several versions it corrects what is there and revives nothing": Rule(
        [(1, 10), (4, 11), (8, None), (10, 11), (12, 30)], [(is_(11), 4, 12)]
    ),
    "a column corrects each version by its own value": Rule(
        [(1, 10), (4, 11), (5, 21), (6, 20), (8, None), (10, 30)],
        [(lambda: {"price": F.col("price") + 1}, 4, 6)],
    ),
    "without values the entity was not there": Rule(
        [(1, 10), (2, None), (4, 10), (5, 20), (8, None), (10, 30)], [(lambda: None, 2, 4)]
    ),
    "a priority that is said counts as it is": Rule(
        [(1, 10), (5, 20), (8, None), (10, 30)], [(is_(11), 2, 4)], more={"priority": -1}
    ),
    "several corrections of one instant all count": Rule(
        [(1, 10), (2, 11), (3, 12), (4, 10), (5, 20), (8, None), (10, 30)], [(is_(11), 2, 3), (is_(12), 3, 4)]
    ),
    "a source that says the wrong value again does not undo it": Rule(
        [(1, 10), (2, 11), (4, 10), (5, 20), (8, None), (10, 30)], [(is_(11), 2, 4)], later=((3, 10),)
    ),
    "without an end it holds until the next word": Rule(
        [(1, 7), (2, 8), (4, 9)], [(is_(8), 2, None)], "B", ((4, 9),)
    ),
    "it counts from the very instant of what it corrects": Rule([(1, 8)], [(is_(8), 1, None)], "B"),
    "a row that comes back after a delete that comes later is as its source says": Rule(
        [(1, 7), (6, 8), (8, None), (10, 9)], [(is_(8), 6, 13)], "B", ((8, None), (10, 9))
    ),
}


@pytest.fixture(scope="module")
def corrected(spark: SparkSession, said: DataFrame) -> dict[str, Prices]:
    """The prices of gates of the names of the rules, each corrected by its own: one merge for all."""
    like = {gate: [name for name, rule in RULES.items() if rule.like == gate] for gate in "AB"}
    names = F.create_map(
        *(part for gate, some in like.items() for part in (F.lit(gate), F.array(*map(F.lit, some))))
    )
    gates = said.withColumn("name", F.explode(names[F.col("data.gate")]))
    gates = gates.withColumns(
        {
            "data": F.col("data").withField("gate", F.col("name")),
            "message_id": F.concat("message_id", "name"),
        }
    )
    gates = gates.drop("name").localCheckpoint()
    history = history_of(gates).localCheckpoint()
    right = [
        correct(
            history.where(F.col("gate") == name), values(), day(begin), end and day(end), **STEWARD,
            received_at=day(20), **rule.more,
        )
        for name, rule in RULES.items()
        for values, begin, end in rule.corrections
    ]  # fmt: skip
    later = [(name, day(begin), price) for name, rule in RULES.items() for begin, price in rule.later]
    frame = spark.createDataFrame(later, PLAN)
    how: dict[str, Any] = {"apply_as_deletes": "price IS NULL", "except_column_list": ["at"]}
    words = changes_from(frame, keys=KEYS, effective="at", source="plan", **how)
    return prices_by_gate(history_of(gates, *right, words))


@pytest.mark.parametrize("rule", RULES)
def test_a_correction_follows_the_rule(corrected: dict[str, Prices], rule: str) -> None:
    assert corrected[rule] == RULES[rule].expected


def test_other_entities_and_other_fields_stay(said: DataFrame, history: DataFrame) -> None:
    right = history_of(said, correct(history.where("gate = 'A'"), {"price": 11}, day(2), day(4), **STEWARD))
    right = right.localCheckpoint()
    assert prices(right, "B") == [(1, 7)]
    piers = right.where("gate = 'A' AND price = 11").select("pier", "field_provenance.pier").collect()
    assert [row[0] for row in piers] == ["x"]
    assert "anna" not in piers[0][1]["m"]


def deleted(spark: SparkSession, *deletes: tuple[str, datetime]) -> DataFrame:
    frame = spark.createDataFrame(deletes, "gate string, at timestamp")
    how: dict[str, Any] = {"apply_as_deletes": "true", "except_column_list": ["at"], "source": "plan"}
    return changes_from(frame, keys=KEYS, effective="at", **how)


def test_a_delete_that_comes_later_is_not_undone(spark: SparkSession) -> None:
    """
    Neither one before the period, nor one in it; with an end and without, with a priority and without.

    One merge for all: for each of the four ways to correct, one gate of either delete.
    """
    ways = [(end, priority) for end in (day(13), None) for priority in (None, 9)]
    before, within = ([f"{when} {number}" for number in range(len(ways))] for when in ("before", "within"))
    frame = spark.createDataFrame([(gate, day(1), 7) for gate in (*before, *within)], PLAN)
    plan = changes_from(frame, keys=KEYS, effective="at", source="plan", except_column_list=["at"])
    plan = plan.localCheckpoint()
    history = history_of(plan).localCheckpoint()
    right = [
        correct(
            history.where(F.col("gate").isin(*gates)), {"price": 8}, day(6), end, **STEWARD, priority=priority
        )
        for gates, (end, priority) in zip(zip(before, within, strict=True), ways, strict=True)
    ]
    deletes = deleted(spark, *((gate, day(4)) for gate in before), *((gate, day(10)) for gate in within))
    found = prices_by_gate(history_of(plan, *right, deletes))
    assert [found[gate] for gate in before] == [[(1, 7), (4, None)]] * len(ways)
    assert [found[gate] for gate in within] == [[(1, 7), (6, 8), (10, None)]] * len(ways)


def test_the_row_is_as_it_was_and_only_the_value_has_another_message(
    said: DataFrame, history: DataFrame
) -> None:
    """Of the row, and of the key, nobody said anything."""
    right = history_of(said, correct(history, {"price": 8}, day(2), day(3), **STEWARD))
    first, corrected_, *_ = (
        row["field_provenance"] for row in right.where("gate = 'B'").orderBy("valid_from_timestamp").collect()
    )
    assert corrected_["guid"] == first["guid"]
    assert corrected_["gate"] == first["gate"]
    assert (first["price"]["p"], corrected_["price"]["p"]) == (0, 1)


def test_a_correction_without_an_end_yields_to_the_next_word_of_its_field(spark: SparkSession) -> None:
    """However much the row itself counts, of which a stronger source has spoken."""
    stronger, weaker = (
        changes_from(
            spark.createDataFrame(rows, "gate string, at timestamp, price int, pier string"),
            keys=KEYS,
            effective="at",
            source=source,
            except_column_list=["at"],
            priority=priority,
        )
        for source, priority, rows in (
            ("plan", 5, [("C", day(1), 5, None)]),
            ("pier", 0, [("C", day(2), None, "x"), ("C", day(6), None, "z")]),
        )
    )
    known = weaker.where(F.col("effective_timestamp") < day(6))
    right = correct(history_of(stronger, known).localCheckpoint(), {"pier": "y"}, day(3), **STEWARD)
    after = history_of(stronger, weaker, right).orderBy("valid_from_timestamp")
    assert [row["pier"] for row in after.collect()] == [None, "x", "y", "z"]


def test_a_correction_of_a_correction_counts_with_an_end_and_without(
    said: DataFrame, history: DataFrame
) -> None:
    first = correct(
        history.where("gate = 'B'"), {"price": 8}, day(2), day(12), **STEWARD, received_at=day(20)
    )
    first = first.localCheckpoint()
    then = history_of(said, first).where("gate = 'B'").localCheckpoint()
    for end, expected in (
        (day(6), [(1, 7), (2, 8), (4, 9), (6, 8), (12, 7)]),
        (None, [(1, 7), (2, 8), (4, 9), (12, 9)]),
    ):
        second = correct(then, {"price": 9}, day(4), end, **STEWARD, received_at=day(21))
        both = union_changes(said, first, second).localCheckpoint()
        assert prices(history_of(both), "B") == expected
        back = revoke(both, "anna, 2024-01-21 00:00:00: misread")
        assert prices(history_of(back), "B") == [(1, 7), (2, 8), (12, 7)]


def test_what_is_said_at_one_instant_has_places_of_its_own(history: DataFrame) -> None:
    """Nothing of it is another statement's repeat: not what differs by a null, by the operation or by who."""
    said: list[tuple[dict[str, Any] | None, str]] = [
        ({"price": None}, "anna"),
        ({"pier": None}, "anna"),
        ({"price": None, "pier": None}, "anna"),
        (None, "anna"),
        ({"price": None}, "ben"),
        ({"price": None}, "ben"),
    ]
    at = {"received_at": day(20), "keys": KEYS, "reason": "misread"}
    of_one = history.where("gate = 'B'")
    every = union_changes(*(correct(of_one, values, day(2), day(3), by=by, **at) for values, by in said))
    assert every.select("arrival").distinct().count() == len(said) - 1


def test_it_is_told_by_whom_and_taken_back(said: DataFrame, history: DataFrame) -> None:
    right = correct(history, {"price": 0}, day(2), day(3), **STEWARD, received_at=day(20))
    both = union_changes(said, right).localCheckpoint()
    told = blame(history_of(both), {"gate": "A"}, valid_at=day(2)).where("field = 'price'").collect()
    assert [row["message"] for row in told] == ["anna, 2024-01-20 00:00:00: misread"]
    back = history_of(revoke(both, "anna, 2024-01-20 00:00:00: misread")).localCheckpoint()
    assert back.exceptAll(history).isEmpty()
    assert history.exceptAll(back).isEmpty()


@pytest.mark.parametrize(
    ("values", "more", "error", "text"),
    [
        ({"price": "many"}, {}, WrongColumnType, "price"),
        ({"price": True}, {}, WrongColumnType, "price"),
        ({"price": 2**31}, {}, WrongColumnType, "price"),
        ({"pier": True}, {}, WrongColumnType, "pier"),
        ({"gate": "C"}, {}, InvalidArgument, "values"),
        ({"prise": 1}, {}, InvalidArgument, "price"),
        ({}, {}, InvalidArgument, "values"),
        ({"price": 1}, {"keys": ["door"]}, InvalidArgument, "keys"),
        ({"price": 1}, {"by": ""}, InvalidArgument, "by"),
        ({"price": 1}, {"reason": None}, InvalidArgument, "reason"),
        ({"price": 1}, {"priority": "high"}, InvalidArgument, "priority"),
        ({"price": 1}, {"received_at": datetime(2024, 1, 1)}, InvalidArgument, "received_at"),
    ],
)
def test_what_cannot_be_a_correction_is_refused_when_it_is_called(
    history: DataFrame, values: Any, more: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        correct(history, values, day(2), day(3), **{**STEWARD, **more})


def test_a_value_is_of_its_field_s_type_as_in_a_key(spark: SparkSession) -> None:
    """A float is one of a column of floats, days before 1582 stay, and no instant is without its zone."""
    frame = spark.sql(
        "SELECT 'A' AS gate, timestamp'2024-01-01' AS at, float(1) AS f, 1.00BD AS d, smallint(1) AS s, "
        "timestamp'2024-01-01' AS t, timestamp_ntz'2024-01-01' AS n"
    )
    old = history_of(changes_from(frame, keys=KEYS, effective="at", column_list=[*"fdstn"]))
    ancient = datetime(1500, 1, 1, tzinfo=UTC)
    values = {"f": 1.5, "d": 2, "s": 7, "t": ancient, "n": ancient.replace(tzinfo=None)}
    (row,) = correct(old, values, day(2), day(3), **STEWARD).select("data.*").toArrow().to_pylist()
    assert {name: row[name] for name in values} == values
    wrong: list[dict[str, Any]] = [{"t": day(2).replace(tzinfo=None)}, {"n": day(2)}, {"d": 1.5}, {"s": 1.0}]
    for value in [*wrong, {"d": Decimal("1.234")}, {"s": 40_000}]:
        with pytest.raises(WrongColumnType, match=next(iter(value))):
            correct(old, value, day(2), day(3), **STEWARD)


def test_so_are_an_end_that_is_no_later_a_column_of_another_type_and_no_priorities(
    history: DataFrame,
) -> None:
    with pytest.raises(InvalidArgument, match="end"):
        correct(history, {"price": 1}, day(3), day(3), **STEWARD)
    with pytest.raises(WrongColumnType, match="price"):
        correct(history, {"price": F.col("price") * 1.5}, day(2), day(3), **STEWARD)
    with pytest.raises(WrongColumnType, match="pier"):
        correct(history, {"pier": F.col("price")}, day(2), day(3), **STEWARD)
    bare = history.drop("field_provenance")
    with pytest.raises(MissingColumns, match="field_provenance"):
        correct(bare, {"price": 1}, day(2), day(3), **STEWARD)
    assert correct(bare, {"price": 1}, day(2), day(3), **STEWARD, priority=1).columns


KEY = ["h", "k"]
FIELDS = {"h": "int", "k": "string", "v": "int", "w": "string"}


def at_instants(history: DataFrame, instants: list[datetime]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What each entity that is there says at each of the instants."""
    found = {}
    for row in history.where("NOT deleted_indicator").toArrow().to_pylist():
        begin, end = row["valid_from_timestamp"], row["valid_to_timestamp"]
        for instant in instants:
            if begin <= instant and (end is None or instant < end):
                found[row["guid"], instant] = (row["h"], row["k"], row["v"], row["w"])
    return found


@seeds(1, soak=20)
def test_at_each_instant_only_what_is_there_and_in_the_period_is_corrected(
    spark: SparkSession, seed: int
) -> None:
    """Random histories with priorities, deletes and ends; the period is one of their instants."""
    rows = random_changes(seed, 120, FIELDS, ends=(False, False, True))
    changes = to_dataframe(spark, rows, FIELDS)
    start, end = sorted(random.Random(seed).sample([*INSTANTS, LAST], 2))
    before = merge(changes, entity="thing", keys=KEY).localCheckpoint()
    right = correct(before, {"v": 99}, start, end, keys=KEY, by="anna", reason="a test")
    after = merge(union_changes(changes, right), entity="thing", keys=KEY)
    instants = [each + timedelta(microseconds=more) for each in (*INSTANTS, LAST) for more in (-1, 0, 1)]
    expected = {
        (guid, at): (h, k, 99 if start <= at < end else v, w)
        for (guid, at), (h, k, v, w) in at_instants(before, instants).items()
    }
    assert at_instants(after, instants) == expected
    assert any(v == 99 for _, _, v, _ in expected.values())


def late_deletes(chance: random.Random, rows: list[Row]) -> list[Row]:
    """For half of the entities a delete that nobody knew of when they were corrected."""
    some = {guid_of("thing", {name: row["data"][name] for name in KEY}): row for row in rows}
    found = []
    for number, guid in enumerate(chance.sample(sorted(some), len(some) // 2)):
        begin = chance.choice(INSTANTS)
        change = {
            "operation": "delete",
            "effective_timestamp": begin,
            "message_id": f"late {number}",
            "priority": chance.choice((-1, 0)),
            "field_priorities": None,
            "effective_until": chance.choice((None, *(each for each in (*INSTANTS, LAST) if each > begin))),
        }
        found.append({**some[guid], **change})
    return found


def corrected_one_by_one(
    rows: list[Row], late: list[Row], start: datetime, end: datetime, instants: list[datetime]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """
    What each entity that is there says at each instant, by the naive fold.

    From where a version was corrected, its value is 99 for as long as nothing deletes the entity.
    """
    fields, found = list(FIELDS), {}
    versions: dict[str, list[Row]] = {}
    for version in fold(rows, entity="thing", keys=KEY, fields=fields):
        versions.setdefault(version["guid"], []).append(version)
    changes: dict[str, list[Row]] = {guid: [] for guid in versions}
    for row in [*rows, *late]:
        changes.get(guid_of("thing", {name: row["data"][name] for name in KEY}), []).append(row)
    for guid, some in changes.items():
        in_order = sorted(without_redeliveries(some), key=place)
        for at in instants:
            stands = [each for each in versions[guid] if in_force(each, at)] if start <= at < end else []
            begin = max(start, stands[0]["valid_from_timestamp"]) if stands else None
            state, is_right = Entity(), False
            for change in [each for each in in_order if holds(each, at)]:
                if begin and change["effective_timestamp"] > begin:
                    begin, is_right = None, is_alive(state)
                state = apply(state, change, KEY, fields)
                is_right &= is_alive(state)
            if is_alive(state):
                right = {"v": 99} if begin or is_right else {}
                found[guid, at] = tuple({**state.values, **right}.get(name) for name in fields)
    return found


def in_force(version: Row, at: datetime) -> bool:
    end = version["valid_to_timestamp"]
    return (
        not version["deleted_indicator"]
        and version["valid_from_timestamp"] <= at
        and (end is None or at < end)
    )


def is_alive(state: Entity) -> bool:
    return state.exists and not state.deleted


@seeds(1, soak=20)
def test_deletes_that_come_after_the_correction_delete(spark: SparkSession, seed: int) -> None:
    """As above; then half of the entities hear of a delete, some of which end."""
    rows = random_changes(seed, 120, FIELDS, ends=(False, False, True))
    chance = random.Random(seed)
    start, end = sorted(chance.sample([*INSTANTS, LAST], 2))
    late = late_deletes(chance, rows)
    before, afterwards = (to_dataframe(spark, some, FIELDS) for some in (rows, rows + late))
    history = merge(before, entity="thing", keys=KEY).localCheckpoint()
    right = correct(history, {"v": 99}, start, end, keys=KEY, by="anna", reason="a test")
    after = merge(union_changes(afterwards, right), entity="thing", keys=KEY)
    instants = [each + timedelta(microseconds=more) for each in (*INSTANTS, LAST) for more in (-1, 0, 1)]
    expected = corrected_one_by_one(rows, late, start, end, instants)
    assert at_instants(after, instants) == expected
    assert any(v == 99 for _, _, v, _ in expected.values())
    # Numbers of records that words of moves have.
    assert right.where(f"arrival.record_number >= {2**30}").isEmpty()
    in_time = corrected_one_by_one(rows, [], start, end, instants)
    assert any(in_time[each][2] == 99 for each in in_time.keys() - expected.keys())
