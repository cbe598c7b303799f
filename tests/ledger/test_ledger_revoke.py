"""`Ledger.revoke`: log and history as if some messages had never come."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from cdckit import changes_from, merge, union_changes
from cdckit.errors import InvalidArgument
from cdckit.ledger import Ledger
from cdckit.query import correct, revoke
from cdckit.store import NoSuchTable
from support import source_order
from support.drawn_reports import day
from support.histories import assert_folds_to, to_dataframe, to_rows
from support.ledger_programs import FIELDS, KEYS, all_of, batches
from support.source_order import Event
from tools.tiers import seeds


@seeds(1, soak=20)
def test_what_is_left_is_what_the_other_messages_say(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Some of the messages, of one source or of all, between two batches; then one comes again."""
    first, *rest = batches(seed, 80, ends=(False, False, True))
    ledger = Ledger(spark, tmp_path / "ledger", entity="e", keys=KEYS, buckets=3)
    ledger.apply(to_dataframe(spark, first, FIELDS))
    chance = random.Random(seed)
    known = sorted({change["message_id"] for change in first})
    gone = chance.sample(known, len(known) // 3)
    source = chance.choice((None, "one"))
    before = ledger.at_commit().version
    assert ledger.revoke(gone, source=source) == before + 1
    left = [
        change
        for change in first
        if change["message_id"] not in gone or (source is not None and change["source"] != source)
    ]
    assert_folds_to(ledger.history(), left, entity="e", keys=KEYS)
    later = [*all_of(rest), *(change for change in first if change["message_id"] == gone[0])]
    ledger.apply(to_dataframe(spark, later, FIELDS))
    assert_folds_to(ledger.history(), [*left, *later], entity="e", keys=KEYS)
    ledger.rebuild()
    assert_folds_to(ledger.history(), [*left, *later], entity="e", keys=KEYS)


def test_a_correction_is_applied_and_taken_back_like_any_other_message(
    spark: SparkSession, tmp_path: Path
) -> None:
    prices = [("kettle", 20, day(1)), ("kettle", 25, day(10)), ("mug", 5, day(1))]
    frame = spark.createDataFrame(prices, "item string, price int, at timestamp")
    said = changes_from(frame, keys=["item"], sequence_by="at", column_list=["price"], source="shop")
    ledger = Ledger(spark, tmp_path / "ledger", entity="price", keys=["item"], buckets=2)
    ledger.apply(said)
    before = to_rows(ledger.history())
    right = correct(
        ledger.history({"item": "kettle"}),
        *({"price": 19}, day(3), day(5)),
        keys=["item"],
        by="anna",
        reason="misread",
        received_at=day(20),
    )
    ledger.apply(right)
    kettles = ledger.history({"item": "kettle"}).orderBy("valid_from_timestamp")
    assert [row["price"] for row in kettles.collect()] == [20, 19, 20, 25]
    assert to_rows(ledger.history()) == to_rows(
        merge(union_changes(said, right), entity="price", keys=["item"])
    )
    # Of what can be walked through once, the second look would find nothing to take back.
    version = ledger.revoke(message for message in ["anna, 2024-01-20 00:00:00: misread"])
    assert to_rows(ledger.history()) == before
    assert ledger.revoke("anna, 2024-01-20 00:00:00: misread") == version
    assert to_rows(ledger.at_commit(version - 1).history()) != before


def test_a_gate_may_refuse_it_and_lists_have_a_call_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path / "ledger", entity="price", keys=["item"], buckets=2)
    with pytest.raises(NoSuchTable):
        ledger.revoke("m1")
    night = spark.createDataFrame([("kettle", 20)], "item string, price int")
    ledger.apply_list(night, taken_at=day(1))
    (message,) = ledger.changes().select("message_id").first()
    with pytest.raises(SparkRuntimeException, match="full list"):
        ledger.revoke(message)
    frame = spark.createDataFrame(
        [("mug", 5, day(1), "m1")], "item string, price int, at timestamp, m string"
    )
    how = {"keys": ["item"], "sequence_by": "at", "column_list": ["price"]}
    ledger.apply(changes_from(frame, **how, source="shop", message="m"))
    before = ledger.at_commit().version

    def refuse(pending: object) -> None:
        raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        ledger.revoke("m1", gate=refuse)
    assert ledger.at_commit().version == before
    with pytest.raises(InvalidArgument, match="messages"):
        ledger.revoke(["m1", 2])  # type: ignore[list-item]
    assert revoke(ledger.changes(), "m1").count() == 1


def test_a_gate_sees_whom_a_truncate_that_goes_brings_back(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, tmp_path, entity="row", keys=source_order.KEYS)
    events = [*(Event(0, "c", at, at, at, "a") for at in range(1, 4)), Event(0, "t", 40, 40)]
    ledger.apply(source_order.changes(spark, list(enumerate(events))))
    row = ledger.changes().where("operation = 'truncate'").first()
    assert row is not None
    shown: list[int] = []
    is_there = "valid_to_timestamp IS NULL AND NOT deleted_indicator"
    ledger.revoke(
        row["message_id"], gate=lambda after: shown.append(after.touched_history().where(is_there).count())
    )
    assert shown == [ledger.history().where(is_there).count()] == [3]
