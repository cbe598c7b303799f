"""
Rows that move, in one merge and in a ledger, in any batches.

In `make test`:
tests/merging/test_moves.py::test_an_unsent_value_is_that_of_the_old_key_with_its_provenance,
tests/merging/test_moves.py::test_what_was_known_at_a_moment_is_what_was_taken_along_then.
"""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, as_known, bitemporal, blame, keep_known, merge, why
from support.fold import fold_with_moves, identity
from support.histories import Row, assert_same, by_guid, to_rows
from support.row_moves import CALL, FIELDS, KEYS, ONE_MOVE, START, frame, moved, said, shown
from tools.tiers import seeds


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
