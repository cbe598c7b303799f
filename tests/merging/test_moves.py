"""Rows that move from key to key take along what was not sent with the new key."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import (
    Ledger,
    as_known,
    bitemporal,
    blame,
    complete_moves,
    keep_known,
    merge,
    union_changes,
    why,
    with_fields,
)
from cdckit.errors import MissingColumns, WrongColumnType
from support.fold import fold_with_moves, identity
from support.histories import Row, assert_same, by_guid, change_schema, rows_to_dataframe, to_rows
from tools.tiers import seeds

START = datetime(2024, 1, 1, tzinfo=UTC)
FIELDS = {"w": "int", "k": "int", "a": "string", "b": "int"}
KEYS = ["w", "k"]
KEY = T.StructType().add("w", T.IntegerType()).add("k", T.IntegerType())
MOVED = T.StructType().add("id", T.StringType()).add("old_key", KEY).add("new_key", KEY)
CALL: Any = {"entity": "thing", "keys": KEYS}


def said(number: int, key: int, hour: int, *, world: int = 0, move: Row | None = None, **sent: Any) -> Row:
    """A change: message m<number>, at an hour, of a key; a delete if nothing is sent."""
    return {
        "operation": "upsert",
        "effective_timestamp": START + timedelta(hours=hour),
        "sequence": f"{number:05}",
        "arrival": {
            "timestamp": START + timedelta(days=1, minutes=number),
            "topic": "t",
            "partition": 0,
            "offset": number,
            "record_number": 1,
        },
        "message_id": f"m{number}",
        "source": "log",
        "priority": 0,
        "data": {"w": world, "k": key, "a": sent.get("a"), "b": sent.get("b")},
        "carried": {"w": True, "k": True, "a": "a" in sent, "b": "b" in sent},
        "field_priorities": {"w": None, "k": None, "a": None, "b": None},
        "moved": move,
    }


def moved(number: int, old: int, new: int, hour: int, *, world: int = 0, **sent: Any) -> list[Row]:
    """A move: a delete of the old key and an upsert of the new one, in one message."""
    move = {
        "id": str(number),
        "old_key": {"w": world, "k": old},
        "new_key": {"w": world, "k": new},
    }
    leaving = said(number, old, hour, world=world, move=move) | {"operation": "delete"}
    arriving = said(number, new, hour, world=world, move=move, **sent)
    arriving["sequence"] += "/1"
    arriving["arrival"] = arriving["arrival"] | {"record_number": 2}
    return [leaving, arriving]


def frame(spark: SparkSession, rows: Sequence[Row], *, placed: bool = False) -> DataFrame:
    ends = any("effective_until" in row for row in rows)
    schema = change_schema(FIELDS, ends=ends).add("moved", MOVED)
    found = rows_to_dataframe(spark, rows, schema)
    return complete_moves(found.withColumn("snapshot", F.lit(False)) if placed else found)


def shown(history: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    rows = history.orderBy("k", "valid_from_timestamp").collect()
    return [tuple(row[name] for name in columns) for row in rows]


ONE_MOVE = [said(1, 1, 1, a="large", b=1), *moved(2, 1, 2, 2, b=5)]


def test_an_unsent_value_is_that_of_the_old_key_with_its_provenance(spark: SparkSession) -> None:
    history = merge(frame(spark, ONE_MOVE), **CALL)
    found = history.select("k", "deleted_indicator", "a", "b", "source_message", "field_provenance").orderBy(
        "k", "valid_from_timestamp"
    )
    first, gone, new = found.collect()
    assert (first["a"], gone["deleted_indicator"], gone["a"]) == ("large", True, None)
    assert (new["k"], new["a"], new["b"], new["source_message"]) == (2, "large", 5, "m2")
    assert new["field_provenance"]["a"]["m"] == "m1"
    assert new["field_provenance"]["b"]["m"] == new["field_provenance"]["guid"]["m"] == "m2"


def test_a_row_of_which_nothing_was_known_moves_with_what_was_sent(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As in the first batch of a stream that begins at a move."""
    changes = frame(spark, moved(2, 1, 2, 2, b=5))
    assert shown(merge(changes, **CALL), "k", "a", "b") == [(2, None, 5)]
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=2)
    ledger.apply(changes)
    assert shown(ledger.history(), "k", "a", "b") == [(2, None, 5)]
    ledger.apply(frame(spark, ONE_MOVE[:1]))
    assert shown(ledger.history(), "k", "a", "b") == [(1, "large", 1), (1, None, None), (2, "large", 5)]


def test_every_question_about_a_row_that_moved_says_the_same(spark: SparkSession) -> None:
    changes = frame(spark, ONE_MOVE)
    told = why(changes, {"w": 0, "k": 2}, "a", keys=KEYS).collect()
    assert [(row["message_id"], row["value"], row["verdict"]) for row in told] == [("m1", "large", "WON")]
    assert told[0]["reason"] == ("taken along from the key that the row had: this is the value that stands")
    (sent,) = why(changes, {"w": 0, "k": 2}, "b", keys=KEYS).where("message_id = 'm2'").collect()
    assert sent["reason"] == "this is the value that stands"
    rows = why(changes, {"w": 0, "k": 2}, "deleted_indicator", keys=KEYS).collect()
    assert [(row["message_id"], row["verdict"]) for row in rows] == [("m2", "WON")]
    history = merge(changes, **CALL)
    named = {row["field"]: row["message"] for row in blame(history, {"w": 0, "k": 2}).collect()}
    assert (named["a"], named["b"]) == ("m1", "m2")
    table = bitemporal(changes, **CALL)
    for minute in (1, 2):
        at = START + timedelta(days=1, minutes=minute)
        known = as_known(changes, at, **CALL)
        assert shown(known, "k", "a", "b") == shown(keep_known(table, at), "k", "a", "b")
    assert shown(known, "k", "a", "b") == [(1, "large", 1), (1, None, None), (2, "large", 5)]


@pytest.mark.parametrize("question", ["merge", "as_known", "bitemporal", "why"])
def test_a_row_that_moved_without_all_of_its_values_is_refused_until_asked_for(
    spark: SparkSession, question: str
) -> None:
    ask: dict[str, Callable[[DataFrame], DataFrame]] = {
        "merge": lambda changes: merge(changes, **CALL),
        "as_known": lambda changes: as_known(changes, START + timedelta(days=2), **CALL),
        "bitemporal": lambda changes: bitemporal(changes, **CALL),
        "why": lambda changes: why(changes, {"w": 0, "k": 2}, "b", keys=KEYS),
    }
    silent = frame(spark, ONE_MOVE).withMetadata("moved", {})
    with pytest.raises(
        PySparkException, match=rf"message m2 gave .*{question}\(complete_moves\(changes\), …\)"
    ):
        ask[question](silent).collect()
    assert ask[question](silent.drop("moved")).collect()
    everything = frame(spark, [ONE_MOVE[0], *moved(2, 1, 2, 2, a=None, b=5)]).withMetadata("moved", {})
    assert ask[question](everything).collect()


def test_only_a_table_that_says_what_moved_can_be_completed(spark: SparkSession) -> None:
    with pytest.raises(MissingColumns, match="moved"):
        complete_moves(frame(spark, ONE_MOVE).drop("moved"))
    with pytest.raises(WrongColumnType, match="moved as a struct of id"):
        complete_moves(frame(spark, ONE_MOVE).withColumn("moved", F.struct(F.lit(1).alias("id"))))


def test_a_key_that_is_not_made_of_the_old_one_alone_is_refused_with_the_way(spark: SparkSession) -> None:
    mixed: dict[str, Any] = {"w": "w", "key": lambda k, a: F.concat(k, a), "a": "a"}
    changes = with_fields(frame(spark, ONE_MOVE), mixed)
    call = {"entity": "thing", "keys": ["w", "key"]}
    with pytest.raises(
        WrongColumnType, match=r"with w, key\); it is .*with_fields.*`changes.drop\('moved'\)`"
    ):
        merge(complete_moves(changes), **call)
    merge(changes.drop("moved"), **call)


def test_what_became_known_of_the_old_key_after_the_move_is_refused_by_bitemporal(
    spark: SparkSession,
) -> None:
    late = said(3, 1, 1, a="larger") | {"sequence": "00001/9"}
    changes = frame(spark, [*ONE_MOVE, late])
    assert shown(merge(changes, **CALL), "k", "a")[-1] == (2, "larger")
    with pytest.raises(PySparkException, match="cannot tell what was believed of a row that moved"):
        bitemporal(changes, **CALL).collect()


def test_what_was_known_at_a_moment_is_what_was_taken_along_then(spark: SparkSession) -> None:
    late = said(3, 1, 1, a="larger") | {"sequence": "00001/9"}
    changes = frame(spark, [*ONE_MOVE, late])
    for minute, message, value in ((2, "m1", "large"), (3, "m3", "larger")):
        at = START + timedelta(days=1, minutes=minute)
        told = why(changes, {"w": 0, "k": 2}, "a", keys=KEYS, known_at=at).where("verdict = 'WON'")
        assert [(row["message_id"], row["value"]) for row in told.collect()] == [(message, value)]
        assert shown(as_known(changes, at, **CALL), "k", "a")[-1] == (2, value)


def test_moves_of_two_tables_come_together_and_keys_may_get_other_names(spark: SparkSession) -> None:
    changes = frame(spark, ONE_MOVE)
    wider = changes.where("moved IS NULL")
    long = wider.withColumn("data", F.col("data").withField("k", F.col("data.k").cast("long")))
    both = union_changes(long.drop("moved"), changes)
    found = merge(complete_moves(both), **CALL)
    assert shown(found, "k", "a") == [(1, "large"), (1, None), (2, "large")]
    renamed = with_fields(
        changes, {"id": lambda w, k: F.concat_ws("-", w.cast("string"), k.cast("string")), "a": "a"}
    )
    history = merge(complete_moves(renamed), entity="thing", keys=["id"])
    history = history.orderBy("id", "valid_from_timestamp").collect()
    assert [(row["id"], row["a"]) for row in history] == [("0-1", "large"), ("0-1", None), ("0-2", "large")]


SIX = {1: "a", 2: "b", 3: "c", 4: "d", 5: "e", 6: "f"}
# Rows by key, moves of one transaction in the order of the log, and the rows after it, by hand.
SHIFTS: dict[str, tuple[dict[int, str], list[tuple[int, int]], dict[int, str]]] = {
    "a shift of two": ({1: "a", 2: "b"}, [(1, 2), (2, 3)], {2: "a", 3: "b"}),
    "a shift of six": (SIX, [(k, k + 1) for k in SIX], {2: "a", 3: "b", 4: "c", 5: "d", 6: "e", 7: "f"}),
    "a shift by two": ({1: "a", 2: "b", 3: "c"}, [(1, 3), (2, 4), (3, 5)], {3: "a", 4: "b", 5: "c"}),
    "a shift from the end": ({1: "a", 2: "b"}, [(2, 3), (1, 2)], {2: "a", 3: "b"}),
    "a swap": ({1: "a", 2: "b"}, [(1, 2), (2, 1)], {1: "b", 2: "a"}),
    "a swap by a third key": ({1: "a", 2: "b"}, [(1, 9), (2, 1), (9, 2)], {1: "b", 2: "a"}),
    "a ring": ({1: "a", 2: "b", 3: "c"}, [(1, 2), (2, 3), (3, 1)], {1: "c", 2: "a", 3: "b"}),
    "two shifts": ({1: "a", 2: "b"}, [(1, 2), (2, 3), (2, 3), (3, 4)], {3: "a", 4: "b"}),
    "there and back": ({1: "a", 2: "b"}, [(1, 2), (2, 3), (3, 2), (2, 1)], {1: "a", 2: "b"}),
    "onto a free key": ({1: "a"}, [(1, 2), (2, 3)], {3: "a"}),
}


def shift(world: int, rows: dict[int, str], moves: list[tuple[int, int]], *, sends: bool) -> list[Row]:
    """The rows, and an hour later their moves; each sends its value, or nothing but the key."""
    told = [said(key, key, 1, world=world, a=value) for key, value in rows.items()]
    held = {key: [value] for key, value in rows.items()}
    for number, (old, new) in enumerate(moves, 10):
        value = held[old].pop(0)
        held.setdefault(new, []).append(value)
        told += moved(number, old, new, 2, world=world, **({"a": value} if sends else {}))
    return [{**row, "message_id": f"{world}-{row['message_id']}"} for row in told]


SHIFTED = [(case, sends) for case in SHIFTS.values() for sends in (True, False)]
"""The worlds of the next two tests."""


def test_a_row_that_leaves_a_key_does_not_take_the_newcomer_with_it(spark: SparkSession) -> None:
    """As `UPDATE t SET id = id + 1` is told, where keys are checked at the end of a transaction."""
    rows = [
        row
        for world, (case, sends) in enumerate(SHIFTED)
        for row in shift(world, case[0], case[1], sends=sends)
    ]
    history = merge(frame(spark, rows), **CALL)
    alive = history.where("valid_to_timestamp IS NULL AND NOT deleted_indicator").collect()
    assert {(row["w"], row["k"]): row["a"] for row in alive} == {
        (world, key): value for world, (case, _) in enumerate(SHIFTED) for key, value in case[2].items()
    }


def test_a_shift_that_comes_in_any_batches_is_one(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    batches: list[list[Row]] = [[], []]
    for world, (case, sends) in enumerate(SHIFTED):
        for row in shift(world, case[0], case[1], sends=sends):
            chance.choice(batches).append(row)
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=2)
    for batch in batches:
        ledger.apply(frame(spark, batch))
    whole = merge(frame(spark, [row for batch in batches for row in batch]), **CALL)
    assert by_guid(to_rows(ledger.history())) == by_guid(to_rows(whole))


def test_what_was_believed_in_the_middle_of_a_shift(spark: SparkSession) -> None:
    changes = frame(spark, shift(0, *SHIFTS["a shift of two"][:2], sends=True))
    beliefs = bitemporal(changes, **CALL).localCheckpoint()
    for minute in (10, 11):
        at = START + timedelta(days=1, minutes=minute)
        known = as_known(changes, at, **CALL)
        assert shown(known, "k", "a") == shown(keep_known(beliefs, at), "k", "a")


def test_the_changes_of_one_key_say_what_shifted(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=1)
    ledger.apply(frame(spark, shift(0, *SHIFTS["a shift of two"][:2], sends=True)))
    key = {"w": 0, "k": 2}
    own = ledger.changes(key)
    assert by_guid(to_rows(merge(own, **CALL))) == by_guid(to_rows(ledger.history(key)))
    verdicts = why(own, key, "a", keys=KEYS).orderBy("step").collect()
    assert [(row["message_id"], row["verdict"]) for row in verdicts] == [
        ("0-m2", "SUPERSEDED"),
        ("0-m11", "SUPERSEDED"),
        ("0-m10", "WON"),
    ]


def random_world(world: int, chance: random.Random, ends: bool) -> list[Row]:
    """Changes of four keys from two sources, and moves: chains, swaps, back, onto what is there."""
    rows, hour = [], 0
    for number in range(1, chance.randint(4, 14)):
        number += 100 * world
        hour += chance.choice([0, 0, 1, 2])
        sent: Row = {
            name: value
            for name, value in (("a", f"value {number}"), ("b", chance.choice([None, 1, 2])))
            if chance.random() < 0.5
        }
        draw, key = chance.random(), chance.randint(1, 4)
        if draw < 0.45:
            made = moved(number, key, chance.randint(1, 4), hour, world=world, **sent)
        else:
            made = [said(number, key, hour, world=world, **sent)]
            if draw < 0.55:
                made[0]["operation"] = "delete"
        if chance.random() < 0.3:
            made[0]["source"] = "other" if len(made) == 1 else "log"
        for row in made:
            row["priority"] = chance.choice([0, 0, 0, 1, -1])
            row["field_priorities"] = {**row["field_priorities"], "a": chance.choice([None, None, 0, 2])}
            if ends:
                until = row["effective_timestamp"] + timedelta(hours=chance.randint(1, 5))
                row["effective_until"] = until if chance.random() < 0.4 else None
        rows += made
        if chance.random() < 0.1:
            again = [{**row, "arrival": row["arrival"] | {"offset": number + 50}} for row in made]
            rows += [row for row in again if chance.random() < 0.7]
    return [row for row in rows if chance.random() < 0.95]


def test_a_move_that_is_taken_back_leaves_nothing_of_what_it_took_along(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=2)
    ledger.apply(frame(spark, ONE_MOVE))
    ledger.revoke("m2")
    assert shown(ledger.history(), "k", "a", "b") == [(1, "large", 1)]
    ledger.apply(frame(spark, ONE_MOVE))
    ledger.revoke("m1")
    assert shown(ledger.history(), "k", "a", "b") == [(2, None, 5)]


@pytest.mark.parametrize("ends", [False, True])
@seeds(1, soak=10)
def test_any_moves_give_what_one_by_one_gives_in_one_merge_and_in_any_batches(
    spark: SparkSession, tmp_path: Path, seed: int, ends: bool
) -> None:
    """Placed by `complete_moves` beforehand: all in one merge or none, and every other batch of a ledger."""
    chance = random.Random(2 * seed + ends)
    rows = [row for world in range(400) for row in random_world(world, chance, ends)]
    expected = fold_with_moves(rows, fields=list(FIELDS), **CALL)

    def require_expected(history: DataFrame) -> None:
        assert_same(to_rows(history), expected, rows, lambda change: identity(change, **CALL))

    require_expected(merge(frame(spark, rows, placed=ends), **CALL))
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=3)
    batches: list[list[Row]] = [[], [], []]
    for row in rows:
        batches[chance.randrange(3)].append(row)
    for number, batch in enumerate(batches):
        ledger.apply(frame(spark, batch, placed=bool(number % 2) != ends))
    require_expected(ledger.history())
    require_expected(merge(ledger.changes(), **CALL))
    ledger.rebuild()
    require_expected(ledger.history())


def test_a_late_change_of_the_old_key_changes_the_new_one_in_a_ledger(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And `changes` of one key has what it took along, of which the history of that key can be made."""
    ledger = Ledger(spark, tmp_path / "things", entity="thing", keys=KEYS, buckets=2)
    chain = [*ONE_MOVE, *moved(3, 2, 3, 3)]
    ledger.apply(frame(spark, chain[1:]))
    assert shown(ledger.history(), "k", "a", "b") == [(2, None, 5), (2, None, None), (3, None, 5)]
    ledger.apply(frame(spark, chain[:1]))
    assert shown(ledger.history({"w": 0, "k": 3}), "k", "a", "b") == [(3, "large", 5)]
    late = said(9, 1, 1, a="larger") | {"sequence": "00001/9"}
    ledger.apply(frame(spark, [late]))
    history = ledger.history({"w": 0, "k": 3})
    assert shown(history, "k", "a", "b") == [(3, "larger", 5)]
    own = ledger.changes({"w": 0, "k": 3})
    assert by_guid(to_rows(merge(own, **CALL))) == by_guid(to_rows(history))
    assert why(own, {"w": 0, "k": 3}, "a", keys=KEYS).collect()[0]["message_id"] == "m9"
