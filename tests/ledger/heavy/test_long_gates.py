"""
A gate that is asked of news, and again when another writer was faster.

In `make test`:
tests/ledger/test_gate.py::test_a_stream_ends_with_what_it_refuses_and_goes_on_from_there,
tests/quality/test_check.py::test_a_gate_lets_pass_what_is_sound_and_commits_nothing_else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.ledger import Pending
from cdckit.store import ConflictingCommit
from support.gates import ROWS, changed, opened


def told(spark: SparkSession, *rows: tuple[int, float, int], kind: str = "int") -> DataFrame:
    return changed(spark.createDataFrame(rows, ROWS.format(kind)))


def test_it_is_shown_the_entities_of_which_there_is_news(spark: SparkSession, tmp_path: Path) -> None:
    """Not those of which a batch writes older changes again: small files as one, or all for a wider type."""
    ledger = opened(spark, tmp_path)
    first = told(spark, *((number, -1, 2) for number in range(15)))
    for number in range(15):
        ledger.apply(first.where(f"data.id = {number}"))
    seen = []

    def look(after: Pending) -> None:
        versions = after.touched_history()
        assert versions.columns == after.history().columns
        seen.append(sorted(row["id"] for row in versions.collect()))

    # Of number 3 the message again, as one that was true a day before: of the two the log has both.
    earlier = first.where("data.id = 3").withColumn(
        "effective_timestamp", F.lit(datetime(2024, 1, 1, tzinfo=UTC))
    )
    files = len(ledger.store.snapshot().files("changes"))
    ledger.apply(told(spark, (15, 7, 2)).union(earlier), gate=look)
    # The fifteen as one, and what is new.
    assert (files, len(ledger.store.snapshot().files("changes"))) == (15, 2)
    ledger.apply(told(spark, (4, 2.5, 3), kind="double"), gate=look)
    assert seen == [[3, 15], [4, 4]]


def test_it_is_asked_again_if_another_writer_changed_what_it_was_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A gate that asks for the whole ledger passes no batch by what another bucket held before."""
    ledger, other = (opened(spark, tmp_path, buckets=4) for _ in range(2))
    ledger.apply(told(spark, *((number, 1, 1) for number in range(4))))
    buckets = {row["id"]: ledger.at_commit().kind.bucket(row["guid"]) for row in ledger.history().collect()}
    one, another = next((a, b) for a in buckets for b in buckets if buckets[a] != buckets[b])
    asked: list[int] = []

    def apply(day: int, versions: Callable[[Pending], DataFrame], most: int) -> None:
        def gate(after: Pending) -> None:
            asked.append(versions(after).count())
            if len(asked) == 1:
                other.apply(told(spark, (another, day, day)))
            if asked[-1] > most:
                raise ValueError("too many versions")

        asked.clear()
        ledger.apply(told(spark, (one, day, day)), gate=gate)

    with pytest.raises(ValueError, match="too many versions"):
        apply(2, Pending.history, 5)
    assert (asked, ledger.history().count()) == ([5, 6], 5)
    apply(3, Pending.touched_history, 2)
    assert (asked, ledger.history().count()) == ([2], 7)

    def conflicting(after: Pending) -> None:
        asked.append(after.touched_history().count())
        raise ConflictingCommit(["orders"], 0, 1, "a store of its own")

    with pytest.raises(ConflictingCommit, match="a store of its own"):
        ledger.apply(told(spark, (one, 4, 4)), gate=conflicting)
    assert (asked, ledger.history().count()) == ([2, 3], 7)

    def listed(after: Pending) -> None:
        asked.append(after.lists().count())
        if len(asked) == 1:
            tonight = spark.createDataFrame([(another,)], "id int")
            other.apply_list(tonight, taken_at=datetime(2024, 1, 5, tzinfo=UTC))

    asked.clear()
    ledger.apply(told(spark, (one, 4, 4)), gate=listed)
    assert asked == [0, 1]
