"""Rows that move from key to key take along what was not sent with the new key."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import (
    Ledger,
    as_known,
    bitemporal,
    complete_moves,
    keep_known,
    merge,
    union_changes,
    why,
    with_fields,
)
from cdckit.errors import MissingColumns, WrongColumnType
from support.histories import Row, by_guid, to_rows
from support.row_moves import CALL, KEYS, ONE_MOVE, START, frame, moved, said, shown


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
